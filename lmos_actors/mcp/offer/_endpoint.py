"""The address `/mcp` of a node: streamable HTTP, by the session manager of the SDK, behind the guard.

The guard's decision about a request is in the scope of the request. The SDK is given the principal, so that
only the principal that began a session can use it; rights are checked at each request. Sessions, including
those being opened, are bounded per client here, as the SDK does not do that. When a request ends, everything
that it has begun ends, too.

Sessions run in the nursery of `run`, which the node has started, and end with it. While the node drains,
requests in progress are answered; then those that only listen are ended.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import Response
from starlette.routing import Route

from lmos_actors._core import read_json
from lmos_actors.files import mapped
from lmos_actors.node import NodeService

from ._exchange import KEY, Exchange
from ._offer import McpOffer

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from lmos_actors.node import ServiceHome

    from .._options import McpOptions

PATH: Final = "/mcp"

METHODS: Final = ("GET", "POST", "DELETE")

UNAVAILABLE: Final = {"retry-after": "5"}

INVALID_REQUEST: Final = -32600
PARSE_ERROR: Final = -32700

_SESSION: Final = b"mcp-session-id"
_VERSION: Final = b"mcp-protocol-version"
_LAST_EVENT: Final = b"last-event-id"


class McpEndpoint(NodeService):
    """The service that offers the agents of a node over HTTP; its ASGI application."""

    name = "sessions of MCP clients"

    def __init__(self, options: McpOptions) -> None:
        self._options = options
        self._scope = trio.CancelScope()
        self._shielded: dict[trio.CancelScope, None] = {}
        self._answering: dict[tuple[str | None, bytes, str], _Answer] = {}
        self._running = trio.Event()
        self._ended = False
        self._opening: Counter[str] = Counter()
        self._asking = 0  # requests in progress that do not listen
        self._quiet = trio.Event()
        self._quiet.set()

    def open(self, home: ServiceHome) -> None:
        """Store the node that is served."""
        options, self._context = self._options, home.server.context
        self._offer = McpOffer(
            home.rt, home.exposure, options=options, seats=self._context.seats, on_failure=home.failed
        )
        self._manager = StreamableHTTPSessionManager(
            self._offer.server,
            session_idle_timeout=options.idle_seconds,
            max_sessions=2 * options.sessions,  # a net: `has_room` counts those that begin, too
            max_request_body_size=options.body_bytes,
        )

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        return [Route(PATH, self)]

    async def run(self) -> None:
        """Hold the sessions of clients until the node ends."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._offer.run)
                    async with self._manager.run():
                        self._running.set()
                        await trio.sleep_forever()
        finally:
            self._ended = True
            for scope in self._shielded:
                scope.shield = False
            self._running.set()

    # ---- one request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        first = reversed(scope["headers"])  # the SDK reads the first of two of one name
        headers = {bytes(name).lower(): bytes(value) for name, value in first}
        exchange = _exchange(scope, headers)
        wrong = await self._refusal(scope["method"], headers, exchange)
        if wrong is not None:
            await wrong(scope, receive, send)
            return
        scope["state"][KEY] = exchange
        scope["user"] = _user(exchange)
        opens = _begins_session(scope["method"], headers)
        self._begin(scope["method"], exchange.owner, opens=opens)
        answer = _Answer(send, at_once=scope["method"] == "GET")
        # without the last event's id: events have no ids here, and none is sent again
        kept = [each for each in scope["headers"] if bytes(each[0]).lower() != _LAST_EVENT]
        try:
            with self._finished(shielded=opens) as limit, _unless_ended():
                await self._passed_on({**scope, "headers": kept}, receive, answer, headers, exchange)
            if not answer.has_begun and limit.cancelled_caught:
                text = f"the request was not received and answered within {self._options.opening_seconds:g} s"
                await _refused(503, text, headers=UNAVAILABLE)(scope, receive, send)
            elif not answer.has_begun:  # as where a session ends while a request comes in
                await _refused(404, "the session has ended")(scope, receive, send)
        finally:
            exchange.end()
            self._end(scope["method"], exchange.owner, opens=opens)

    async def _passed_on(
        self, scope: Scope, receive: Receive, answer: _Answer, headers: dict[bytes, bytes], exchange: Exchange
    ) -> None:
        """Have the SDK answer a readable request, unless another one in its session has the same id.

        The SDK looks up the stream of an answer by the id, as text. With a second request of the same id it
        would never end the stream of the first one.
        """
        if scope["method"] != "POST":
            await self._manager.handle_request(scope, receive, answer)
            return
        body, number = await _body(receive, self._options.body_bytes), None
        if body is not None and not body["more_body"]:
            try:
                number = _id_in(read_json(body["body"]))
            except (ValueError, RecursionError) as error:
                refused = _refused(400, f"the body is not JSON: {error}", PARSE_ERROR)
                await refused(scope, receive, answer)
                return
        if number is None or _SESSION not in headers:
            await self._manager.handle_request(scope, _again(body, receive), answer)
            return
        key = (exchange.principal, headers[_SESSION], number)
        while (earlier := self._answering.get(key)) is not None:
            if not earlier.is_whole:
                text = f"the id {number[:100]!r} is that of a request in progress"
                await _refused(400, text)(scope, receive, answer)
                return
            await earlier.ended.wait()
        self._answering[key] = answer
        try:
            await self._manager.handle_request(scope, _again(body, receive), answer)
        finally:
            del self._answering[key]
            answer.ended.set()

    @contextmanager
    def _finished(self, *, shielded: bool) -> Generator[trio.CancelScope]:
        """Let a request that begins a session run to its end, even if its client has left.

        A client may leave once it has the answer, before its stream has ended. The door would then cancel the
        request, and the SDK would treat the session as one that has not begun.
        """
        with trio.move_on_after(
            self._options.opening_seconds if shielded else math.inf, shield=shielded
        ) as scope:
            self._shielded[scope] = None
            try:
                yield scope
            finally:
                del self._shielded[scope]

    def _begin(self, method: str, owner: str, *, opens: bool) -> None:
        if opens:
            self._opening[owner] += 1
        if method != "GET":
            self._asking += 1
            self._quiet = trio.Event() if self._quiet.is_set() else self._quiet

    def _end(self, method: str, owner: str, *, opens: bool) -> None:
        if opens:
            self._opening -= Counter((owner,))
        if method != "GET":
            self._asking -= 1
            if not self._asking:
                self._quiet.set()
                self.on_drain()

    async def _refusal(self, method: str, headers: dict[bytes, bytes], exchange: Exchange) -> Response | None:
        """Return the response that refuses a request; None if the request is to be passed on."""
        if method not in METHODS:
            return _refused(405, "use POST, GET or DELETE", headers={"allow": ", ".join(METHODS)})
        is_new = _SESSION not in headers
        if is_new and method != "POST":
            return _refused(400, "a session is needed, which a POST with `initialize` begins")
        begins = _begins_session(method, headers)
        if begins and not self._offer.has_room(exchange, self._opening[exchange.owner]):
            return _refused(503, "too many sessions are open", headers=UNAVAILABLE)
        await self._running.wait()
        if self._ended or (self._offer.draining and is_new):
            return _refused(503, "the node is shutting down", headers=UNAVAILABLE)
        return None

    # ---- the end

    def on_drain(self) -> None:
        """Accept no more calls; end the sessions once the node has stopped waiting for listeners."""
        if not self._context.draining:
            return
        self._offer.drain()
        if self._context.finishing:
            self._offer.end_listening()
            if not self._asking:
                self._scope.cancel("the node is shutting down")

    async def wait_done(self) -> None:
        """Wait until all requests are answered."""
        await self._quiet.wait()


@contextmanager
def _unless_ended() -> Generator[None]:
    """Ignore an error of the SDK's streams, which means that the session has ended."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("anyio"):
            raise


def _begins_session(method: str, headers: dict[bytes, bytes]) -> bool:
    """Return whether the SDK begins a session for a request. Clients of 2026-07-28 and later have none."""
    version = headers.get(_VERSION)
    is_known = version is None or version.decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS
    return method == "POST" and _SESSION not in headers and is_known


class _Answer:
    """The `send` of a request; it notes whether the answer has begun, is whole, and has `ended`.

    With `at_once` a client learns that its stream has begun before the first event.
    """

    def __init__(self, send: Send, *, at_once: bool) -> None:
        self._send = send
        self._at_once = at_once
        self.has_begun = False
        self.is_whole = False
        self.ended = trio.Event()

    async def __call__(self, message: Message) -> None:
        """Send a message of an ASGI answer; drop messages after its end, as the SDK sends some."""
        if self.is_whole:
            return
        is_start = message["type"] == "http.response.start"
        self.has_begun |= is_start
        self.is_whole |= message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)
        if self._at_once and is_start and message["status"] == 200:
            await self._send(
                {"type": "http.response.body", "body": b": listening\r\n\r\n", "more_body": True}
            )


def _id_in(said: Any) -> str | None:
    """Return the id of a request, as text; None if it is not a request."""
    id, method = (mapped(said).get(name) for name in ("id", "method"))
    return str(id) if isinstance(id, int | str) and isinstance(method, str) else None


async def _body(receive: Receive, most: int) -> Message | None:
    """Return the body of a request as one message, cut after `most` bytes; None if the body breaks off."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if not more or len(body) > most:
            return {"type": "http.request", "body": bytes(body), "more_body": more}


def _again(body: Message | None, receive: Receive) -> Receive:
    """Return a `receive` that first returns `body` once more.

    If `body` is None, the client is gone, and a disconnect is returned in its place.
    """
    first: list[Message] = [body or {"type": "http.disconnect"}]

    async def received() -> Message:
        return first.pop() if first else await receive()

    return received


def _exchange(scope: Scope, headers: dict[bytes, bytes]) -> Exchange:
    client = scope.get("client")
    label = "" if client is None else f"{client[0]}:{client[1]}"
    traced = {
        word: headers[word.encode()].decode("latin-1")
        for word in ("traceparent", "tracestate")
        if word.encode() in headers
    }
    return Exchange(label, scope["state"].get("admission"), traced)


def _user(exchange: Exchange) -> AuthenticatedUser | None:
    """Return the principal in the form that the SDK compares with the principal of the session."""
    if exchange.principal is None:
        return None
    return AuthenticatedUser(AccessToken(token="", client_id=exchange.principal, scopes=[]))


def _refused(
    status: int, message: str, code: int = INVALID_REQUEST, headers: Mapping[str, str] | None = None
) -> Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return Response(msgspec.json.encode(error), status, headers, "application/json")
