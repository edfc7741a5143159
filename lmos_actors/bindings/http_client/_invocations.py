"""One request of a ref over HTTP: the message that is sent, the meaning of its answer, and its run.

An `HttpInvocation` is made before it is sent, so that an impossible request is refused at the caller's line.
A request for several properties may take several messages (`_requests` chooses), if the thing offers no form
for all of them.

An action may answer 201 or 202 with the URL of its run. The run is then polled, with growing pauses, until it
ends. A caller that is cancelled ends the run: by DELETE (`abandon_run`) once its URL is known. Before that
the request is not broken off at once: it has `GOODBYE` seconds to return the URL (`with_grace`), or the run
would go on with no caller to stop it.

Errors distinguish "no byte was sent" (ConnectFailed: AgentUnavailable, may be retried) from "unknown"
(Unanswered: OutcomeUnknown). General HTTP libraries do not distinguish these, so this package has an HTTP
client.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs
import trio
from msgspec import UNSET

from lmos_actors.errors import (
    ActionFailed,
    AgentError,
    AgentUnavailable,
    ConfigError,
    ConnectFailed,
    InvalidInput,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RateLimited,
)
from lmos_actors.protocol.td import LINES

from ..lmos._near_errors import refuses_whole
from ..lmos._remote_calls import RemoteRun
from ._answers import ended_as, error_from, refusal, retry_after, run_at, standing_in, wrong
from ._api_keys import with_keys
from ._bodies import essence, from_json, taken, written
from ._grace import with_grace
from ._pool import TooManyListeners
from ._request_body import RequestBody
from ._sse import EventReader
from ._stream import BadAnswer, Unanswered, Unsendable, WebAnswer, WebRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors._core import SecretBytes
    from lmos_actors.actors import TraceMembers

    from ..lmos._peer_requests import PendingRequest
    from ._answers import Standing
    from ._forms import HttpOperation, HttpOperations
    from ._pool import WebPool
    from ._sse import SentEvent
    from ._stream import Head, Headers, HttpStream

SSE: Final = "text/event-stream"
END: Final = "lmosx:end"
WAITS: Final = "lmosx:waits"
GAP: Final = "lmosx:gap"

_ASKS: Final = (b"Prefer", b"lmos-questions")

LONGEST_RETRY_AFTER: Final = 60.0
INPUT: Final = b"LMOS-Input"
LONGEST_BESIDE: Final = 8_000
"""Limit in bytes of the input beside a stream: servers bound the heads of requests."""

SILENCE: Final = 60.0
"""Seconds without a byte that end a stream of events whose server has sent comments as heartbeats."""

GOODBYE: Final = 5.0
"""Seconds for the request that ends an abandoned run."""

_PLAIN: Final[Headers] = ((b"Accept-Encoding", b"identity"),)


@attrs.define
class SingleReads:
    """The time until which properties are read one by one, since the server has refused to send all."""

    until: float = -math.inf

    def holds(self) -> bool:
        """Return whether properties are read one by one now."""
        return trio.current_time() < self.until

    def begin(self) -> None:
        """Begin to read properties one by one, for a minute."""
        self.until = trio.current_time() + 60.0


@attrs.frozen
class InvocationContext:
    """The parts of an HTTP peer that its invocations use."""

    pool: WebPool
    ways: HttpOperations
    own: Callable[[str], Headers]
    abandon_run: Callable[[HttpInvocation, str], None]
    """Function that ends an abandoned run in the background; it never blocks."""
    is_ending: Callable[[], bool]
    """Whether the peer is closing, so that no run can be ended there any more."""
    key_for: Callable[[str], SecretBytes | None]
    """Function that returns the API key for a URL, None without one."""
    singly: SingleReads = attrs.Factory(SingleReads)

    def addressed(self, way: HttpOperation, values: Mapping[str, Any], path: str) -> tuple[str, Headers]:
        """Return the URL of a request, and the headers for its server alone, with the API key that it needs.

        Raises InvalidInput, Unauthorized where the node has no key, NotAllowed where none can be sent.
        """
        key = self.key_for(way.form.href.partition("{")[0])
        return with_keys(way, values, self.ways.description, key, path)


class InvocationObserver(Protocol):
    """The receiver of the reports of an invocation before its answer."""

    def on_status(self, status: str, progress: Any, waits: dict[str, Any] | None) -> None:
        """Note a new status or progress of the run, or the question to a person that the run waits for."""
        ...

    def began(self, url: str) -> None:
        """Note the URL at which the run goes on."""
        ...

    async def took(self, output: Any) -> None:
        """Receive an item of the output; wait until there is room for the next one."""
        ...


def as_agent_error(error: Exception, path: str) -> Exception:
    """Return the AgentError for an exchange over HTTP that failed without a usable answer."""
    if isinstance(error, ConnectFailed):
        return AgentUnavailable(path, f"no connection to {error.url}: {error.why}")
    if isinstance(error, ConfigError):  # such as a secret that cannot be read
        return AgentUnavailable(path, error.message)
    if isinstance(error, Unanswered):
        return OutcomeUnknown(path, str(error))
    if isinstance(error, TooManyListeners):
        return MailboxFull(path, error.most)
    if isinstance(error, Unsendable):
        return InvalidInput(f"the request cannot be written as HTTP: {error}")
    return wrong(path, str(error))


FAILURES: Final = (ConnectFailed, ConfigError, Unanswered, Unsendable, TooManyListeners, BadAnswer)


class HttpInvocation:
    """One request of a ref over HTTP. Creating one raises if the request cannot be made or encoded."""

    def __init__(self, server: InvocationContext, request: PendingRequest) -> None:
        self.server = server
        self.far = request.far
        self.request = request
        self.is_over = False
        """Whether the run has been ended by DELETE."""
        self._body: tuple[bytes | None, Mapping[str, Any]] = (None, {})
        sources = request.sources if isinstance(request, RemoteRun) else None
        target = None if sources is None else sources.sources[0].target
        self._stream = target if isinstance(target, RequestBody) else None  # see `WebPeer.target`
        self._singly: dict[str, HttpOperation] = {}
        verb, name = request.verb, request.name
        self._requests = {"read all": self._all, "write many": self._many}.get(verb, self._one)
        self._way = self._needed(verb, name)

    def _needed(self, verb: str, name: str) -> HttpOperation | None:
        ways, path = self.server.ways, self.far.path
        way = ways.way(verb, name)
        if way is not None and way.op == "writeallproperties":
            properties = ways.description.properties or {}
            if not set(self.request.payload) >= {
                each for each in properties if not properties[each].read_only
            }:
                way = None  # a form that writes all cannot write some
        if way is not None:
            if verb != "read all":
                self._body = self._written(way, self.request.payload)
            return way
        singly = {"read all": "read", "write many": "write"}.get(verb)
        if singly is None:
            return ways.needed(verb, name, path)
        self._singly = {each: ways.needed(singly, each, path) for each in self._names()}
        if not self._singly:
            raise NotAllowed(f"{path!r} has no properties to {singly} over HTTP")
        return None

    def _names(self) -> tuple[str, ...]:
        if self.request.verb == "write many":
            return tuple(self.request.payload)
        ways = self.server.ways
        described = ways.description.properties or {}
        named = self.request.names or tuple(described)
        return tuple(each for each in named if each not in described or ways.way("read", each) is not None)

    # ---- the request

    def _written(self, way: HttpOperation, payload: Any) -> tuple[bytes | None, Mapping[str, Any]]:
        """Split an input into the body and the variables of the URL. Raises InvalidInput, NotAllowed."""
        values: dict[str, Any] = {}
        if self.request.verb == "invoke" and isinstance(payload, dict) and way.variables:
            given = cast("dict[str, Any]", payload)
            taken_out = set(way.variables).difference(dict(self.far.variables))
            values = {name: value for name, value in given.items() if name in taken_out}
            payload = {name: value for name, value in given.items() if name not in values} or UNSET
        if self._stream is not None:
            return _beside(payload), values
        if payload is UNSET:
            return (b"" if way.method in ("POST", "PUT", "PATCH") else None), values
        if way.method in ("GET", "HEAD"):
            raise InvalidInput(f"{self.request.name!r} is asked by {way.method}, which takes no input")
        return written(payload, way.form.content_type), values

    def _request(
        self, way: HttpOperation, body: bytes | None, values: Mapping[str, Any], accept: str
    ) -> WebRequest:
        asked, method = self.request, way.method
        headers: list[tuple[bytes, bytes]] = [(b"Accept", accept.encode("latin-1", "replace")), *_PLAIN]
        if body:
            kind = way.form.content_type or essence(None)
            headers.append((b"Content-Type", kind.encode("latin-1", "replace")))
        headers += traced(asked.trace_context)
        if asked.deadline is not None:
            left = max(0.001, asked.deadline - trio.current_time())
            headers.append((b"LMOS-Remaining", b"%.3f" % left))
        key = None if asked.attempt is None else asked.attempt.key
        if key is not None:
            escaped = key.replace("\\", "\\\\").replace('"', '\\"')  # a quoted string (RFC 8941)
            headers.append((b"Idempotency-Key", f'"{escaped}"'.encode("ascii")))
        action = (self.server.ways.description.actions or {}).get(asked.name)
        is_repeatable = asked.verb != "invoke" or (
            action is not None and bool(action.safe or action.idempotent)
        )
        again = method != "POST" or key is not None or is_repeatable
        url, private = self.server.addressed(way, {**dict(self.far.variables), **values}, self.far.path)
        return WebRequest(method, url, tuple(headers), body, again, private)

    # ---- carrying it out

    async def run(self, observer: InvocationObserver | None) -> Any:
        """Send the request, and return the value as plain data, UNSET if there is none. Raises AgentError."""
        try:
            return await self._requests(observer)
        except FAILURES as error:
            raise as_agent_error(error, self.far.path) from error

    async def _one(self, observer: InvocationObserver | None) -> Any:
        assert self._way is not None
        if self._stream is not None:
            return await self._with_stream(self._way, self._stream, observer)
        if self.request.credit is not None:
            return await self._streamed(self._way, observer)
        body, values = self._body
        return await self._asked(self._way, body, values, observer)

    async def _asked(
        self,
        way: HttpOperation,
        body: bytes | None,
        values: Mapping[str, Any],
        observer: InvocationObserver | None,
    ) -> Any:
        request = self._request(way, body, values, _accepted(way))
        if isinstance(self.request, RemoteRun) and self.server.ways.can_query(self.request.name):
            answer = await self._begun(request)
        else:
            if self.request.verb == "invoke":
                # a run that asks a person has a URL from then on; abandoned in that moment, it goes on
                request = self._asking(request)
            answer = await self._exchange(request)
        if self.request.verb == "invoke" and answer.head.status in (201, 202) and self.request.sent is None:
            standing = standing_in(answer)
            url = run_at(answer, standing)
            if url is not None:
                return await self._followed(url, observer, standing)
        return taken(answer, _expected(way)) if self.request.verb in ("read", "invoke", "read all") else UNSET

    @property
    def _tells_questions(self) -> bool:
        """Whether the thing reports when a run asks a person."""
        return "questions" in (self.server.ways.description.offers or ())

    def _asking(self, request: WebRequest) -> WebRequest:
        """Return a request with a header for reports of questions to people, if the thing offers these."""
        if not self._tells_questions:
            return request
        return attrs.evolve(request, headers=(*request.headers, _ASKS))

    async def _begun(self, request: WebRequest) -> WebAnswer:
        """Start a run and wait for its URL. If cancelled before that, end the run once the URL is known."""
        request = attrs.evolve(request, headers=(*request.headers, (b"Prefer", b"respond-async")))
        ending = self.server.is_ending
        return await with_grace(
            lambda: self._exchange(request), lambda: 0.0 if ending() else GOODBYE, self._undo
        )

    def _undo(self, answer: WebAnswer) -> None:
        """End a run that was abandoned just as it began."""
        standing = standing_in(answer)
        if answer.head.status in (201, 202) and not (standing is not None and standing.is_final):
            with suppress(BadAnswer):
                url = run_at(answer, standing)
                if url is not None:
                    self.server.abandon_run(self, url)

    async def _exchange(self, request: WebRequest) -> WebAnswer:
        server = self.server
        answer = await server.pool.exchange(request, server.own)
        error = refusal(answer, self.far.path, self.far.thing_id, self.request)
        if error is not None:
            raise error
        return answer

    # ---- several properties

    async def _all(self, observer: InvocationObserver | None) -> Any:
        if self._way is None:
            return await self._each()
        if self.server.singly.holds():
            return await self._each_after_all()
        try:
            found = await self._asked(self._way, None, {}, None)
        except AgentError as error:
            if not refuses_whole(error) or self.server.ways.description.offers or not self._names():
                raise
            self.server.singly.begin()
            return await self._each_after_all()
        if not isinstance(found, dict):
            raise BadAnswer("the values of all properties are no object")
        return cast("dict[str, Any]", found)

    async def _each(self) -> dict[str, Any]:
        return {name: await self._asked(way, None, {}, None) for name, way in self._singly.items()}

    async def _each_after_all(self) -> dict[str, Any]:
        ways, path = self.server.ways, self.far.path
        self._singly = {each: ways.needed("read", each, path) for each in self._names()}
        return await self._each()

    async def _many(self, observer: InvocationObserver | None) -> Any:
        if self._way is not None:
            return await self._asked(self._way, self._body[0], {}, None)
        for name, way in self._singly.items():
            await self._asked(way, written(self.request.payload[name], way.form.content_type), {}, None)
        return UNSET

    # ---- a run that goes on after its answer

    async def _followed(
        self, url: str, observer: InvocationObserver | None, standing: Standing | None
    ) -> Any:
        """Wait for the end of a run by polling. If cancelled, end the run."""
        if observer is not None:
            observer.began(url)
        try:
            return await self._polled(url, observer, standing)
        except trio.Cancelled:
            if not self.is_over:
                self.server.abandon_run(self, url)
            raise

    async def _polled(self, url: str, observer: InvocationObserver | None, standing: Standing | None) -> Any:
        wait, lost = 0.1, 0
        while True:
            if standing is not None:
                if observer is not None:
                    waits = standing.waits if self._tells_questions else None
                    observer.on_status(standing.status, standing.progress, waits)
                if standing.is_final:
                    return self._ended(standing)
            await trio.sleep(wait)
            wait = min(wait * 1.5, 2.0)
            try:
                standing, hint = await self.standing(url)
                lost = 0
                wait = max(wait, hint)
            except NotFound:
                raise OutcomeUnknown(self.far.path, "its server does not know the run any more") from None
            except (AgentUnavailable, OutcomeUnknown, RateLimited) as error:
                lost += 1
                if lost >= 5:  # in a row
                    raise OutcomeUnknown(
                        self.far.path, f"its server does not answer with the status of the run: {error}"
                    ) from None
                wait = max(wait, min(getattr(error, "retry_in", None) or 0.0, LONGEST_RETRY_AFTER))

    def _ended(self, standing: Standing) -> Any:
        error = ended_as(standing, self.request, self.far.thing_id)
        if error is not None:
            raise error
        return standing.output

    async def standing(self, url: str) -> tuple[Standing, float]:
        """Poll a run; return its status, and seconds to wait before the next poll. Raises AgentError."""
        request = WebRequest("GET", url, ((b"Accept", b"application/json"), *_PLAIN), None, again=True)
        try:
            answer = await self._exchange(request)
        except FAILURES as error:
            raise as_agent_error(error, self.far.path) from error
        found = standing_in(answer)
        if found is None:
            raise wrong(self.far.path, "the status of a run is no ActionStatus")
        return found, min(retry_after(answer.head) or 0.0, LONGEST_RETRY_AFTER)

    async def end(self, url: str) -> None:
        """Cancel a run. Raises AgentError, such as NotFound for one that the server has forgotten."""
        request = WebRequest("DELETE", url, ((b"Accept", b"application/json"), *_PLAIN), None, again=True)
        try:
            await self._exchange(request)
        except FAILURES as error:
            raise as_agent_error(error, self.far.path) from error
        self.is_over = True

    # ---- many outputs

    async def _streamed(self, way: HttpOperation, observer: InvocationObserver | None) -> Any:
        assert observer is not None
        body, values = self._body
        request = self._asking(self._request(way, body, values, f"{SSE}, {_accepted(way)};q=0.5"))
        async with self.server.pool.listening(request, self.server.own) as (head, stream):
            return await self._items_in(way, head, stream, observer)

    async def _items_in(
        self, way: HttpOperation, head: Head, stream: HttpStream, observer: InvocationObserver
    ) -> Any:
        if head.kind != SSE or not 200 <= head.status < 300:
            return self._value_in(way, WebAnswer(head, await whole_of(stream)))
        reader = EventReader()
        while data := await next_bytes(stream, reader):
            for event in reader.feed(data):
                if event.name == END:
                    return self._stream_end(event)
                said = from_json(event.data)
                if event.name == WAITS and self._tells_questions:
                    observer.on_status("", UNSET, said if isinstance(said, dict) else None)  # pyright: ignore[reportUnknownArgumentType]
                else:
                    await observer.took(said)
        raise Unanswered("the stream broke off")

    def _value_in(self, way: HttpOperation, answer: WebAnswer) -> Any:
        error = refusal(answer, self.far.path, self.far.thing_id, self.request)
        if error is not None:
            raise error
        return taken(answer, _expected(way))

    # ---- a body that is a stream

    async def _with_stream(
        self, way: HttpOperation, body: RequestBody, observer: InvocationObserver | None
    ) -> Any:
        beside, values = self._body
        many = self.request.credit is not None
        accept = f"{SSE}, {_accepted(way)};q=0.5" if many else _accepted(way)
        request = self._request(way, None, values, accept)
        request = self._asking(request) if many else request
        kind = (way.form.content_type or LINES).encode("latin-1", "replace")
        headers = [*request.headers, (b"Content-Type", kind)]
        if beside is not None:
            headers.append((INPUT, beside))
        request = attrs.evolve(request, headers=tuple(headers))

        async def take(head: Head, stream: HttpStream) -> Any:
            if many:
                assert observer is not None
                if head.kind == SSE:
                    body.begin()
                return await self._items_in(way, head, stream, observer)
            return self._value_in(way, await self.server.pool.whole(stream, head))

        return await self.server.pool.converse(request, self.server.own, body, take)

    def _stream_end(self, event: SentEvent) -> Any:
        problem = from_json(event.data)
        if isinstance(problem, dict):
            raise error_from(cast("dict[str, Any]", problem), None, self.request, self.far.thing_id)
        if problem is not None:
            raise ActionFailed(problem)
        return UNSET


def _beside(payload: Any) -> bytes | None:
    """Return the input that goes with a stream, as JSON in ASCII; None without one. Raises InvalidInput."""
    if payload is UNSET or not payload:
        return None
    text = json.dumps(from_json(written(payload, None)), separators=(",", ":")).encode("ascii")
    if len(text) > LONGEST_BESIDE:
        raise InvalidInput(
            f"the arguments beside a stream take {len(text)} bytes as JSON, and over HTTP there is room for "
            f"{LONGEST_BESIDE}: use it over LMOS"
        )
    return text


async def next_bytes(stream: HttpStream, reader: EventReader) -> bytes:
    """Wait for more bytes of a stream of events. Raises Unanswered after a long silence, BadAnswer."""
    if not reader.beats:
        return await stream.receive()
    with trio.move_on_after(SILENCE):
        return await stream.receive()
    raise Unanswered(f"nothing has come for {SILENCE:g} s")


async def whole_of(stream: HttpStream) -> bytes:
    """Return the whole body of an answer that is not a stream of events. Raises Unanswered, BadAnswer."""
    with trio.move_on_after(GOODBYE):
        return await stream.body(1 << 20)
    raise BadAnswer("its body was not there in time")


def traced(trace: TraceMembers) -> Headers:
    """Return the trace of a request as headers."""
    return tuple((name.encode(), str(value).encode("latin-1", "replace")) for name, value in trace.items())


def _expected(way: HttpOperation) -> str | None:
    response = way.form.response or {}
    kind = response.get("contentType")
    return kind if isinstance(kind, str) else way.form.content_type


def _accepted(way: HttpOperation) -> str:
    kind = essence(_expected(way))
    return kind if kind.isascii() and kind.isprintable() else essence(None)
