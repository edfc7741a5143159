"""Servers of the kit on a network: HTTP with h11, and WebSockets with the kit's own codec."""

from __future__ import annotations

import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs
import h11
import trio

from lmos_actors.conformance.wire import accept_of

from ._http import HttpRequest, Reply, ScriptedPages
from ._websocket import WebSocketCodec

if TYPE_CHECKING:
    from lmos_actors.transport import Endpoint, Listener, Network

    from ._connection import ScriptedConnection
    from ._scheduler import Scheduler
    from ._server import ScriptedServer

_READ: Final = 65536
_MOST: Final = 256  # connections
_BODY: Final = 4 << 20
_HEAD_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 5.0
_WRITE_SECONDS: Final = 30.0
_FULL: Final = 256  # waiting messages; above this number no more is read
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
_PLACES: Final = ("/ws", "/")
_JSON: Final = (("Content-Type", "application/problem+json"),)


@attrs.frozen
class RequestHead:
    """The head of an HTTP request, for a WebSocket or a page, and the address of its sender."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]  # in their order, the names as they were written
    peer: str

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """Return a header, with repeated values joined by commas, or None if there is none."""
        found = [value for each, value in self.headers if each.lower() == name.lower()]
        return ", ".join(found) if found else None

    def words(self, name: str) -> list[str]:
        """Return the words in a header that is a comma-separated list."""
        return [word.strip() for word in (self.header(name) or "").split(",") if word.strip()]


class WebServer:
    """A server of HTTP and WebSockets at a port; subclasses decide what is served."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._timer_news = trio.Event()
        self._count = 0
        scheduler.wake = self._wake_timer

    async def run(
        self,
        network: Network,
        endpoint: Endpoint,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled; `started` is called with the base, such as `ws://127.0.0.1:8080`.

        Raises ConfigError if the address cannot be used.
        """
        listener = await network.listen(endpoint)
        try:
            port = listener.addresses[0][1]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tick)
                task_status.started(attrs.evolve(endpoint, port=port, target="").url)
                await self._accept(listener, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            stream, peer = await listener.accept()
            if self._count >= _MOST:
                await trio.aclose_forcefully(stream)
                continue
            self._count += 1
            nursery.start_soon(self._serve, stream, peer)

    def _wake_timer(self) -> None:
        self._timer_news.set()

    async def _tick(self) -> None:
        while True:
            self._timer_news = trio.Event()
            due = self._scheduler.due()
            with trio.move_on_at(float("inf") if due is None else due):
                await self._timer_news.wait()
            self._scheduler.tick()

    # ---- HTTP

    async def _serve(self, stream: trio.abc.Stream, peer: str) -> None:
        try:
            with suppress(*_LOST):
                await self._converse(stream, peer)
        finally:
            self._count -= 1
            await trio.aclose_forcefully(stream)

    async def _converse(self, stream: trio.abc.Stream, peer: str) -> None:
        parser = h11.Connection(h11.SERVER)
        while True:
            try:
                request = await self._next(parser, stream)
                if request is None:
                    return
                head = _head_of(request, peer)
                if "websocket" in [word.lower() for word in head.words("upgrade")]:
                    await self._upgrade(parser, stream, head)
                    return
                body = await self._body(parser, stream)
            except h11.RemoteProtocolError as error:
                await self._refuse(parser, stream, error)
                return
            await self._send(parser, stream, self.on_http(head, body), bare=head.method == "HEAD")
            if parser.our_state is not h11.DONE or parser.their_state is not h11.DONE:
                return
            parser.start_next_cycle()

    async def _next(self, parser: h11.Connection, stream: trio.abc.Stream) -> h11.Request | None:
        with trio.move_on_after(_HEAD_SECONDS):
            while (event := parser.next_event()) is h11.NEED_DATA:
                parser.receive_data(bytes(await stream.receive_some(_READ)))
            return event if isinstance(event, h11.Request) else None
        return None

    async def _body(self, parser: h11.Connection, stream: trio.abc.Stream) -> bytes:
        body = bytearray()
        with trio.move_on_after(_WRITE_SECONDS):
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    if parser.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=100, headers=[])
                        await stream.send_all(parser.send(go_on) or b"")
                    parser.receive_data(bytes(await stream.receive_some(_READ)))
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > _BODY:
                        raise h11.RemoteProtocolError("the body is too long", 413)
                else:
                    return bytes(body)
        raise h11.RemoteProtocolError("the body did not come", 408)

    def on_http(self, head: RequestHead, body: bytes) -> Reply:
        """Answer an HTTP request that is no WebSocket handshake."""
        raise NotImplementedError

    async def _send(
        self, parser: h11.Connection, stream: trio.abc.Stream, reply: Reply, *, bare: bool = False
    ) -> None:
        headers = list(reply.headers)
        if reply.status != HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", str(len(reply.body))))
        response = h11.Response(status_code=reply.status, headers=headers, reason=b"")
        parts = [
            parser.send(response),
            parser.send(h11.Data(data=b"" if bare else reply.body)),
            parser.send(h11.EndOfMessage()),
        ]
        with trio.move_on_after(_WRITE_SECONDS):
            await stream.send_all(b"".join(part or b"" for part in parts))

    async def _refuse(
        self, parser: h11.Connection, stream: trio.abc.Stream, error: h11.RemoteProtocolError
    ) -> None:
        if parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(parser, stream, refusal(error.error_status_hint, str(error)))

    # ---- WebSocket

    async def _upgrade(self, parser: h11.Connection, stream: trio.abc.Stream, head: RequestHead) -> None:
        while isinstance(parser.next_event(), h11.Data | h11.EndOfMessage):
            pass
        refused = self.refused(head)
        if refused is not None:
            await self._send(parser, stream, refused)
            return
        wire = self.open(head)
        ended = False  # stays so if the server is cancelled
        try:
            with suppress(*_LOST):
                lines = [f"{name}: {value}" for name, value in self.switching_headers(head)]
                answer = "\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines, "", ""])
                await stream.send_all(answer.encode("latin-1"))
                await _WebSocketTask(stream, wire).run(parser.trailing_data[0])
            ended = True
        finally:
            wire.lost(by_peer=ended)

    def refused(self, head: RequestHead) -> Reply | None:
        """Return the reply that refuses a handshake, or None if it is accepted."""
        if head.header("sec-websocket-version") != "13":
            reply = refusal(426, "version 13 of WebSocket is needed")
            return attrs.evolve(reply, headers=(*reply.headers, ("Sec-WebSocket-Version", "13")))
        if head.method != "GET" or not head.header("sec-websocket-key"):
            return refusal(400, "no WebSocket handshake")
        return None

    def subprotocol(self, head: RequestHead) -> str:
        """Select one of the offered subprotocols, or "" for none."""
        return ""

    def open(self, head: RequestHead) -> WebSocketCodec:
        """Return the codec of a new connection for a handshake."""
        raise NotImplementedError

    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        """Return the headers of the answer to a handshake."""
        headers = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept_of(head.header("sec-websocket-key") or "")),
        ]
        if chosen := self.subprotocol(head):
            headers.append(("Sec-WebSocket-Protocol", chosen))
        return headers


class NetworkServer(WebServer):
    """The network side of a scripted server.

    Subclasses override `on_http`, `refused`, `codec` and the like: the server that judges clients
    (`conformance/clients`), and servers with a fault in HTTP or in frames, with which tests check the kit
    itself.
    """

    wire_class: type[WebSocketCodec] = WebSocketCodec

    def __init__(self, server: ScriptedServer, pages: ScriptedPages | None = None) -> None:
        super().__init__(server)
        self.server = server
        self.pages = pages or ScriptedPages(server)

    def on_http(self, head: RequestHead, body: bytes) -> Reply:
        """Answer an HTTP request that is no WebSocket handshake."""
        headers = {name.lower(): value for name, value in head.headers}
        request = HttpRequest(method=head.method, path=head.path, headers=headers, body=body)
        return self.pages.answer(request, self.base_of(head))

    def base_of(self, head: RequestHead) -> str:
        """Return the address that a client has used, as a `ws` URL."""
        return f"ws://{head.header('host') or 'localhost'}"

    def refused(self, head: RequestHead) -> Reply | None:
        """Return the reply that refuses a handshake, or None if it is accepted."""
        wrong = super().refused(head)
        if wrong is not None:
            return wrong
        path = unquote(head.path)
        here = path in _PLACES or self.server.thing_at(path) is not None
        return None if here or self.subprotocol(head) else refusal(404, f"there is no WebSocket at {path}")

    def subprotocol(self, head: RequestHead) -> str:
        """Select one of the offered subprotocols, or "" for none."""
        return "lmosprotocol" if "lmosprotocol" in head.words("sec-websocket-protocol") else ""

    def open(self, head: RequestHead) -> WebSocketCodec:
        """Return the codec of a new connection for a handshake."""
        connection: ScriptedConnection = self.server.connect(
            offered=bool(self.subprotocol(head)), path=unquote(head.path), peer=head.header("lmos-peer") or ""
        )
        return self.codec(connection, head)

    def codec(self, connection: ScriptedConnection, head: RequestHead) -> WebSocketCodec:
        """Return the codec of a new connection; `head` is the head of its handshake."""
        return self.wire_class(connection)

    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        """Return the headers of the answer to a handshake."""
        return [*super().switching_headers(head), ("LMOS-Extensions", ", ".join(self.server.offers))]


class _WebSocketTask:
    """One WebSocket on a stream: a task that reads, and one that writes."""

    def __init__(self, stream: trio.abc.Stream, wire: WebSocketCodec) -> None:
        self._stream = stream
        self._wire = wire
        self._news = trio.Event()
        self._room = trio.Event()
        wire.connection.wake = self._wake

    def _wake(self) -> None:
        self._news.set()

    async def run(self, rest: bytes) -> None:
        """Serve until one side has closed the WebSocket."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            with suppress(*_LOST):
                await self._read(rest)
            nursery.cancel_scope.cancel()

    async def _read(self, data: bytes) -> None:
        out = self._wire.connection.out
        while True:
            if data:
                self._wire.receive(data)
                self._wake()
            while len(out) > _FULL:
                self._room = trio.Event()
                await self._room.wait()
            data = bytes(await self._stream.receive_some(_READ))
            if not data:
                return

    async def _write(self, scope: trio.CancelScope) -> None:
        wire = self._wire
        with suppress(*_LOST):
            while not wire.is_done():
                self._news = trio.Event()
                if wire.connection.out:
                    await self._write_all()
                    continue
                with trio.move_on_after(_CLOSE_SECONDS if wire.said_close else float("inf")) as patience:
                    await self._news.wait()
                if patience.cancelled_caught:
                    break
        scope.cancel()

    async def _write_all(self) -> None:
        wire = self._wire
        out = wire.connection.out
        while out and not wire.over:
            data = wire.written(out.popleft())
            if len(out) <= _FULL:
                self._room.set()
            if data:
                with trio.move_on_after(_WRITE_SECONDS) as patience:
                    await self._stream.send_all(data)
                wire.over |= patience.cancelled_caught


def _head_of(request: h11.Request, peer: str) -> RequestHead:
    headers = tuple(
        (bytes(name).decode("latin-1"), value.decode("latin-1"))
        for name, value in request.headers.raw_items()
    )
    return RequestHead(request.method.decode(), request.target.decode("latin-1"), headers, peer)


def refusal(status: int, detail: str) -> Reply:
    """Return a reply with problem details that have no specific type."""
    title = HTTPStatus(status).phrase
    details = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return Reply(status, json.dumps(details).encode(), _JSON)
