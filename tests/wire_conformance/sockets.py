"""WebSockets for peers written by hand: wsproto over any stream, and nothing of the package under test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import RemoteProtocolError

from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors.transport import Network


class Closed(Exception):
    """The connection has ended, with this code, or None without a Close frame."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code} {reason}")


class Socket:
    """One end of a WebSocket connection after its handshake."""

    def __init__(self, stream: trio.abc.Stream, ws: WSConnection) -> None:
        self.stream = stream
        self.ws = ws
        self.subprotocol: str | None = None
        self.offered: tuple[str, ...] = ()
        self.headers: dict[bytes, bytes] = {}
        self.silent = False
        """Do not answer pings."""
        self._events: list[Any] = []
        self._parts: list[Any] = []

    async def send(self, message: str | bytes) -> None:
        """Send one message."""
        event = TextMessage(data=message) if isinstance(message, str) else BytesMessage(data=message)
        await self.stream.send_all(self.ws.send(event))

    async def receive(self) -> str | bytes:
        """Wait for the next message; answer pings and closes. Raises Closed."""
        while True:
            match await self.event():
                case TextMessage(data=data) | BytesMessage(data=data) as event:
                    self._parts.append(data)
                    if event.message_finished:
                        parts, self._parts = self._parts, []
                        return type(data)().join(parts)
                case Ping() as ping if not self.silent:
                    await self.stream.send_all(self.ws.send(ping.response()))
                case CloseConnection() as close:
                    if self.ws.state is ConnectionState.REMOTE_CLOSING:
                        await self._try_send(self.ws.send(close.response()))
                    await self.stream.aclose()
                    raise Closed(close.code, close.reason or "")
                case _:
                    pass

    async def event(self) -> Any:
        """Wait for the next event of the connection. Raises Closed where it just ends."""
        while not self._events:
            try:
                data = await self.stream.receive_some(65536)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                raise Closed(None)
            self.ws.receive_data(data)
            self._events.extend(self.ws.events())
        return self._events.pop(0)

    async def _try_send(self, data: bytes) -> None:
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close in order: say Close, wait for the peer's."""
        await self._try_send(self.ws.send(CloseConnection(code=code, reason=reason)))
        try:
            while True:
                await self.receive()
        except Closed:
            await self.stream.aclose()


async def connect(
    network: Network | Tcp,
    url: str,
    *,
    subprotocols: tuple[str, ...] = (),
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Socket:
    """Connect as a client. Raises Closed with the status where the server refuses."""
    endpoint = endpoint_of(url)
    stream = await network.connect(endpoint, None)
    ws = WSConnection(ConnectionType.CLIENT)
    socket = Socket(stream, ws)
    host = f"{endpoint.host}:{endpoint.port}"
    request = Request(
        host=host, target=endpoint.target, subprotocols=list(subprotocols), extra_headers=list(headers)
    )
    await stream.send_all(ws.send(request))
    match await socket.event():
        case AcceptConnection() as accepted:
            socket.subprotocol = accepted.subprotocol
            socket.headers = {bytes(name).lower(): bytes(value) for name, value in accepted.extra_headers}
            return socket
        case RejectConnection(status_code=status):
            await stream.aclose()
            raise Closed(status)
        case other:
            raise AssertionError(other)


class Tcp:
    """Streams as trio has them, for peers that are to owe nothing to the package."""

    async def connect(self, endpoint: Any, tls: None) -> trio.SocketStream:
        """Connect."""
        return await trio.open_tcp_stream(endpoint.host, endpoint.port)


@asynccontextmanager
async def connected(network: Network | Tcp, url: str, **how: Any) -> AsyncGenerator[Socket]:
    """Connect as a client, for a block; the stream is closed after it."""
    socket = await connect(network, url, **how)
    try:
        yield socket
    finally:
        await trio.aclose_forcefully(socket.stream)


class Server:
    """A server written by hand: WebSockets, and a document or two by HTTP, at one port."""

    def __init__(
        self,
        talk: Callable[[Socket], Awaitable[None]],
        documents: Callable[[str], bytes | None] = lambda path: None,
        *,
        choose: Callable[[tuple[str, ...]], str | None] = lambda offered: None,
    ) -> None:
        self.talk = talk
        self.documents = documents
        self.choose = choose
        self.address = ""
        self.sockets: list[Socket] = []

    async def serve(
        self, network: Network, host: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; tells `host:port`."""
        listener = await network.listen(endpoint_of(f"ws://{host}:0"))
        name, port = listener.addresses[0]
        self.address = f"{name}:{port}"
        task_status.started(self.address)
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    stream, _ = await listener.accept()
                    nursery.start_soon(self._serve, stream)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _serve(self, stream: trio.abc.Stream) -> None:
        head = b""
        try:
            while b"\r\n\r\n" not in head:
                got = await stream.receive_some(65536)
                if not got:
                    return
                head += got
            if b"upgrade: websocket" in head.lower():
                await self._upgrade(stream, head)
            else:
                await self._document(stream, head)
        except (trio.BrokenResourceError, trio.ClosedResourceError, Closed):
            return
        finally:
            await trio.aclose_forcefully(stream)

    async def _document(self, stream: trio.abc.Stream, head: bytes) -> None:
        path = head.split(b" ", 2)[1].decode()
        body = self.documents(path)
        status = b"200 OK" if body is not None else b"404 Not Found"
        body = body or b""
        lines = [b"HTTP/1.1 " + status, b"content-type: application/json", b"connection: close"]
        lines.append(b"content-length: " + str(len(body)).encode())
        bare = head.startswith(b"HEAD ")
        await stream.send_all(b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if bare else body))

    async def _upgrade(self, stream: trio.abc.Stream, head: bytes) -> None:
        ws = WSConnection(ConnectionType.SERVER)
        socket = Socket(stream, ws)
        try:
            ws.receive_data(head)
        except RemoteProtocolError as error:
            await stream.send_all(ws.send(error.event_hint or RejectConnection()))
            return
        request = next(iter(ws.events()))
        socket.offered = tuple(request.subprotocols)
        socket.subprotocol = self.choose(socket.offered)
        self.sockets.append(socket)
        await stream.send_all(ws.send(AcceptConnection(subprotocol=socket.subprotocol)))
        await self.talk(socket)
