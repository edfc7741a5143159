"""The passage between the clients and the server of a recording: what is changed, and what is recorded.

The recorder replaces `Host`. It changes `Origin` and addresses if they name the recorder or the server, and
drops headers that concern one connection only. It does not offer compression to the server, because it could
not read compressed data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

from lmos_actors.errors import ConnectFailed
from lmos_actors.security import is_loopback

from ._conversation import Conversation
from ._requests import WebExchange
from ._rewriting import Rewriter
from ._web_answers import WebMemory

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable

    import h11

    from lmos_actors.transport import Endpoint, Network

    from ._conversation import Speech
    from ._pipes import Pipes
    from ._transcript import Transcript

Headers = tuple[tuple[bytes, bytes], ...]

CONNECT_SECONDS: Final = 10.0
OF_ONE_CONNECTION: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"trailer",
        b"upgrade",
    }
)  # fmt: skip
"""Headers that are not passed on."""

REPLACED: Final = (b"host", b"accept-encoding", b"sec-websocket-extensions")
"""Headers of a request in whose place others are passed on, or none."""

REGISTER: Final = "/register"
"""The end of the path at which relays register agents."""

CREDENTIALS: Final = (b"authorization", b"cookie", b"proxy-authorization")


@attrs.define
class Outcomes:
    """Counts of WebSockets and requests, and of the ways in which they ended."""

    sockets: int = 0
    requests: int = 0
    refused: int = 0
    unreachable: int = 0
    lost: int = 0
    notes: dict[str, None] = attrs.Factory(dict[str, None])


class Refused(Exception):
    """The refusal of a request, which the recorder itself answers."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        self.why = why
        super().__init__(why)


class Passage:
    """The passage from clients to the server at `target`, and the recording of the traffic.

    `describe` is called with the target and the headers of a WebSocket before anything is sent on it. With
    `insecure`, credentials are passed on to another machine even without TLS. `on_note` is called with
    remarks that people should see at once.
    """

    def __init__(
        self,
        target: Endpoint,
        network: Network,
        tls: ssl.SSLContext | None,
        transcript: Transcript,
        *,
        recorder: str,
        speaks: Speech | None,
        insecure: bool,
        describe: Callable[[str, Headers], Awaitable[None]],
        on_note: Callable[[str], None],
    ) -> None:
        self.outcomes = Outcomes()
        self.rewriter = Rewriter(target, recorder)
        self._target = target
        self._network = network
        self._tls = tls
        self._transcript = transcript
        self._speaks: Speech | None = speaks
        self._is_exposed = not (target.secure or is_loopback(target.host) or insecure)
        self._describe = describe
        self._on_note = on_note
        self._memory = WebMemory()
        self._pipes: dict[Pipes, None] = {}
        self._is_closing = False
        self._all_closed = trio.Event()

    def note(self, text: str) -> None:
        """Pass a remark to `on_note`, unless it was made before."""
        if text not in self.outcomes.notes and len(self.outcomes.notes) < 100:
            self.outcomes.notes[text] = None
            self._on_note(text)

    async def converse(self, pipes: Pipes, from_client: bytes, from_server: bytes) -> None:
        """Pass on the bytes of a WebSocket until it has ended, beginning with the bytes already received."""
        self._pipes[pipes] = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pipes.run, from_client, from_server)
                if self._is_closing:
                    nursery.start_soon(pipes.close)
        finally:
            self._pipes.pop(pipes, None)
            if self._is_closing and not self._pipes:
                self._all_closed.set()

    async def close(self) -> None:
        """Close all WebSockets properly, and wait until both sides of each have answered."""
        self._is_closing = True
        if not self._pipes:
            return
        async with trio.open_nursery() as nursery:
            for pipes in tuple(self._pipes):
                nursery.start_soon(pipes.close)
            await self._all_closed.wait()

    async def connect(self) -> trio.abc.Stream:
        """Connect to the server. Raises Refused."""
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return await self._network.connect(self._target, self._tls)
        except trio.TooSlowError:
            why = f"cannot connect to {self._target.url}: not within {CONNECT_SECONDS:g} s"
        except ConnectFailed as error:
            why = str(error)
        self.outcomes.unreachable += 1
        self.note(why)
        raise Refused(502, f"the recorder {why}")

    def onward(self, request: h11.Request) -> Headers:
        """Return the headers of a request in the form sent to the server. Raise Refused."""
        headers: Headers = tuple(request.headers)
        named = words_of(headers, b"connection")
        found: list[tuple[bytes, bytes]] = [(b"Host", self._target.authority.encode("ascii"))]
        for name, value in headers:
            if name in OF_ONE_CONNECTION or name in named or name in REPLACED:
                continue
            found.append((name, self.rewriter.origin(value) if name == b"origin" else value))
        found.append((b"Accept-Encoding", b"identity"))
        query = request.target.lower().partition(b"?")[2]
        has_credentials = b"token=" in query or any(name in CREDENTIALS for name, _ in headers)
        if self._is_exposed and has_credentials:
            why = "credentials are not passed on to another machine without TLS: --insecure allows it"
            self.note(why)
            raise Refused(403, f"the recorder: {why}")
        return tuple(found)

    def backward(self, headers: Iterable[tuple[bytes, bytes]], *, length: bool = True) -> Headers:
        """Return the headers of an answer in the form sent to the client."""
        found = tuple(headers)
        named = words_of(found, b"connection")
        return tuple(
            (name, self.rewriter.header(name, value))
            for name, value in found
            if name not in OF_ONE_CONNECTION
            and name not in named
            and (length or name not in (b"content-length", b"content-md5", b"digest"))
        )

    async def describe(self, target: str, headers: Headers) -> None:
        """Fetch the descriptions of the things that a WebSocket leads to."""
        await self._describe(target, headers)

    def conversation(self, target: str, offered: tuple[str, ...], selected: str | None) -> Conversation:
        """Begin to record a WebSocket."""
        self.outcomes.sockets += 1
        return Conversation(
            self._transcript,
            self.outcomes.sockets,
            target,
            speaks=self._speaks,
            offered=offered,
            selected=selected,
        )

    def refused(self, target: str, status: int) -> None:
        """Record that the server has refused a WebSocket."""
        self.outcomes.refused += 1
        self._transcript.connected(0, target, status, self._speaks)
        self.note(f"the server has refused a WebSocket: {status}")

    def exchange(self, method: str, target: str, accept: str) -> WebExchange:
        """Begin to record a request over HTTP."""
        self.outcomes.requests += 1
        return WebExchange(self._transcript, self._memory, method, target, accept)

    def keep(self, target: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Remember the credentials in a request or an answer, so that they are hidden in the recording."""
        self._transcript.redaction.keep_query(target)
        self._transcript.redaction.keep_headers(headers)

    def keep_answer(self, target: str, body: bytes) -> bytes:
        """Store the descriptions in a JSON answer, and return the answer in the form sent to the client."""
        url = f"{'https' if self._target.secure else 'http'}://{self._target.authority}{target}"
        if target.partition("?")[0].endswith(REGISTER):
            self._transcript.redaction.frame(_decoded(body))  # which has a token
        self._transcript.things.learn(body, url)
        rewritten = self.rewriter.description(body)
        for place in self.rewriter.elsewhere:
            self.note(f"a description leads to {place} too: what goes there is not recorded")
        return rewritten


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def words_of(headers: Headers, name: bytes) -> list[bytes]:
    """Return the elements of all header values with this name, in lower case."""
    return [part.strip().lower() for each, value in headers if each == name for part in value.split(b",")]
