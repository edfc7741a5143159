"""One HTTP/1.1 connection of a client: one request after another over one stream, everything bounded.

All requests of a node over HTTP go through `HttpStream`: requests to things by the pool (`_pool.py`),
descriptions (`_fetch.py`), and directories. It writes the bytes, so only this class can make the distinction
that matters to callers. If connecting fails, nothing has been sent and a request may be repeated. After
`Unanswered` all or a part of the request may have arrived, and its outcome is unknown. `BadAnswer` means that
the answer breaks HTTP or a bound; then the outcome is unknown too.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import h11
import trio

from lmos_actors.errors import ConnectFailed
from lmos_actors.transport import cut_off, endpoint_of, why_cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._request_body import RequestBody

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

CHUNK: Final = 65_536
LONGEST_HEAD: Final = 32_768
"""Limit in bytes of the head of an answer, and of everything between chunks."""

LONGEST: Final = 4 << 20
"""Limit in bytes of a body that is kept while the request it answers is still being sent."""

INTERIM: Final = 16
"""The most answers with a status below 200 before the final one."""

place_at = lru_cache(1024)(endpoint_of)
"""`endpoint_of` with a cache, as it is slow and the same URLs come again and again."""

_STREAMED: Final[Headers] = ((b"Transfer-Encoding", b"chunked"), (b"Expect", b"100-continue"))

_ENDED: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


class Unanswered(Exception):
    """The connection ended before the answer to a request that was sent, or sent in part."""


def connect_failed(url: str, error: Unanswered, *, secure: bool) -> ConnectFailed:
    """Return the error for a request that may be repeated, as if no connection had been made."""
    ended = error.__cause__
    if isinstance(ended, Exception):
        return cut_off(url, ended, secure=secure)
    return ConnectFailed(url, f"{error}")


class BadAnswer(Exception):
    """The answer is not HTTP, or is not accepted; the text is the reason."""


class Unsendable(Exception):
    """The request cannot be written as HTTP; the text is the reason, without its values."""


@attrs.frozen
class WebRequest:
    """A request to send; `headers` are without credentials, and `again` is set if it may be sent twice.

    The headers `private` are for the server of `url` alone, and are not sent elsewhere after a redirect.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes | None = None
    again: bool = False
    private: Headers = attrs.field(default=(), repr=False)


@attrs.frozen
class Head:
    """The head of an answer; names of headers are in lower case."""

    status: int
    reason: str
    headers: Headers
    url: str

    def header(self, name: bytes) -> str:
        """Return the first header of a name as text; "" if there is none."""
        return next((value.decode("latin-1").strip() for known, value in self.headers if known == name), "")

    def joined(self, name: bytes) -> str:
        """Return all headers of a name joined to one list (RFC 9110, 5.3); "" if there is none."""
        return ", ".join(value.decode("latin-1") for known, value in self.headers if known == name)

    @property
    def kind(self) -> str:
        """The media type, without parameters, in lower case; "" if none is given."""
        return self.header(b"content-type").partition(";")[0].strip().lower()


@attrs.frozen
class WebAnswer:
    """An answer with all of its body."""

    head: Head
    body: bytes


class HttpStream:
    """A connection; `used` is set once it has carried a request, `idle_since` is when it became idle."""

    __slots__ = (
        "_begun", "_early", "_headed", "_http", "_is_untried", "_spoilt", "_stream", "idle_since", "used",
    )  # fmt: skip

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.used = False
        self.idle_since = 0.0
        self._stream = stream
        self._is_untried = hasattr(stream, "transport_stream")  # over TLS, and nothing has arrived yet
        self._begun = False
        self._headed = False
        self._spoilt = False
        self._early: deque[Any] = deque()
        """What came of an answer while its request was being sent: events, and the failure that ended it."""
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)

    @property
    def begun(self) -> bool:
        """Whether a part of the present answer has arrived."""
        return self._begun

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can carry one more request.

        This requires that the last answer is complete, and that neither side asked to close.
        """
        http = self._http
        return (
            not self._spoilt
            and not self._early
            and http.our_state is h11.DONE
            and http.their_state is h11.DONE
        )

    def is_stale(self, now: float) -> bool:
        """Return whether the idle connection has received something: its end, or unrequested data."""
        inner = getattr(self._stream, "transport_stream", None)
        if inner is not None and not self.used:
            # a TLS 1.3 server sends session tickets without a request: for 1 s it counts as open
            return now > self.idle_since + 1.0
        stream = self._stream if inner is None else inner
        has_news: Callable[[], bool] | None = getattr(stream, "has_news", None)
        return bool(self._http.trailing_data[0]) or (has_news is not None and has_news())

    async def ask(self, request: WebRequest, headers: Headers, sent: Callable[[], None] | None) -> Head:
        """Send a request, call `sent`, and wait for the head of its answer.

        Raises Unsendable, Unanswered, BadAnswer. After any of these, or when cancelled, close the connection.
        """
        body = request.body
        length = () if body is None else ((b"Content-Length", b"%d" % len(body)),)
        data = self._encode_head(request, headers, length)
        if body:
            data += self._http.send(h11.Data(body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        self.used, self._begun, self._headed = True, False, False
        if len(data) > CHUNK:
            return await self._ask_at_length(request.url, data, sent)
        await self._send(data)
        if sent is not None:
            sent()
        return await self._answered(request.url, _do_nothing)

    async def _ask_at_length(self, url: str, data: bytes, sent: Callable[[], None] | None) -> Head:
        """Send a large body and wait for the answer meanwhile, as a server may answer before it has read all.

        Sending stops once the request is refused, or its answer is complete, because nobody needs the rest.
        """
        head: Head | None = None
        failure: Exception | None = None
        sending = trio.CancelScope()

        async def send() -> None:
            await self._send(data)
            sending.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            try:
                head = await self._answered(url, _do_nothing)
            except (Unanswered, BadAnswer) as error:
                failure = error
            if head is None or head.status >= 300 or await self._ends_early(sending):
                nursery.cancel_scope.cancel()
        if sent is not None:
            sent()
        if failure is not None:
            raise failure
        assert head is not None
        return head

    async def _ends_early(self, sending: trio.CancelScope) -> bool:
        """Buffer the answer that arrives while its request is sent; return whether it ends meanwhile."""
        early: deque[Any] = deque()
        ends, size = False, 0
        with sending:
            while not ends and size <= LONGEST:
                try:
                    event: Any = await self._next()
                except (Unanswered, BadAnswer) as error:
                    event = error
                early.append(event)
                ends = not isinstance(event, h11.Data)
                size += 0 if ends else len(event.data)
        self._early = early
        return ends

    async def _send(self, data: bytes) -> None:
        self._spoilt = True  # until all is sent
        try:
            await self._stream.send_all(data)
        except _ENDED:
            return  # the server may have answered before it read all, such as with 413
        self._spoilt = False

    async def begin(self, request: WebRequest, headers: Headers) -> None:
        """Send the head of a request whose body is a stream; wait for no answer. Raises Unsendable."""
        data = self._encode_head(request, headers, _STREAMED)
        self.used = self._spoilt = True
        try:
            await self._stream.send_all(data)
        except _ENDED:
            return  # as in `ask`

    async def send_body(self, body: RequestBody) -> None:
        """Send a body that is a stream, piece by piece; stop early if the server takes no more of it."""
        await body.wait_begun()
        try:
            while data := await body.next():
                await self._stream.send_all(self._http.send(h11.Data(data)) or b"")
            await self._stream.send_all(self._http.send(h11.EndOfMessage()) or b"")
        except (*_ENDED, h11.LocalProtocolError):
            return  # the server may have answered before it read all; the answer, or its absence, decides

    async def answered(self, request: WebRequest, body: RequestBody) -> Head:
        """Wait for the head of the answer while the body is being sent. Raises Unanswered, BadAnswer."""
        return await self._answered(request.url, body.begin)

    async def _answered(self, url: str, on_continue: Callable[[], object]) -> Head:
        for _ in range(INTERIM + 1):
            event = await self._next()
            if isinstance(event, h11.Response):
                self._headed = True
                return _head(event, url)
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                break
            if event.status_code == 100:
                on_continue()
        raise BadAnswer("no answer of HTTP")

    def _encode_head(self, request: WebRequest, headers: Headers, more: Headers) -> bytes:
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        endpoint = place_at(request.url)
        own = ((b"Host", endpoint.authority.encode("ascii")), *request.headers, *headers, *more)
        try:
            asked = h11.Request(method=request.method, target=endpoint.target, headers=list(own))
            return self._http.send(asked) or b""
        except h11.LocalProtocolError as error:
            raise Unsendable(str(error).partition(" b'")[0]) from None  # what follows is a header's value

    async def receive(self) -> bytes:
        """Wait for the next part of the body; b"" at its end. Raises Unanswered, BadAnswer."""
        event = await self._next()
        while isinstance(event, h11.Data):
            if event.data:
                return bytes(event.data)
            event = await self._next()
        return b""

    async def body(self, most: int) -> bytes:
        """Return all of the body. Raises Unanswered, and BadAnswer for more than `most` bytes."""
        parts: list[bytes] = []
        left = most
        while part := await self.receive():
            left -= len(part)
            if left < 0:
                raise BadAnswer(f"longer than {most} bytes")
            parts.append(part)
        return b"".join(parts)

    async def _next(self) -> Any:
        if self._early:
            event = self._early.popleft()
            if isinstance(event, Exception):
                raise event
            return event
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if "without sending complete message body" in str(error):
                    raise Unanswered("the connection ended within the answer") from None
                raise BadAnswer(f"no answer of HTTP: {error}") from None
            if event is not h11.NEED_DATA:
                return event
            await self._more()

    async def _more(self) -> None:
        try:
            data = bytes(await self._stream.receive_some(CHUNK))
        except _ENDED as error:
            why = why_cut(error, secure=self._is_untried)
            raise Unanswered(f"the connection ended before the answer: {why}") from error
        if data:
            self._begun, self._is_untried = True, False
        elif not self._headed:
            ended = EOFError(f"the connection ended {'within' if self._begun else 'before'} the answer")
            raise Unanswered(why_cut(ended, secure=self._is_untried)) from ended
        self._http.receive_data(data)

    async def aclose(self) -> None:
        """Close the connection at once.

        Never waits, and cannot be cancelled, as the caller may hold an answer.
        """
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)


def _do_nothing() -> None:
    """Ignore a 100 (Continue) that was not requested."""


def _head(event: h11.Response, url: str) -> Head:
    headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
    return Head(event.status_code, event.reason.decode("latin-1"), headers, url)
