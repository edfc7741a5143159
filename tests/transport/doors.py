"""A front door to knock at: an echoing WebSocket, a small application, and clients that write bytes."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.transport import (
    Accept,
    Connection,
    ConnectionOptions,
    DoorOptions,
    Endpoint,
    FrontDoor,
    Network,
    Refuse,
    TcpNetwork,
    Upgrade,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from lmos_actors.transport import App, DoorStatistics

KEY = base64.b64encode(bytes(16)).decode()
HANDSHAKE = (
    "GET {target} HTTP/1.1\r\nHost: door\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
GET = b"GET / HTTP/1.1\r\nHost: door\r\n\r\n"
HELLO = b"\x81\x85\0\0\0\0hello"  # masked with zeros
CLOSE = b"\x88\x82\0\0\0\0\x03\xe8"

OK: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
END: dict[str, Any] = {"type": "http.response.body"}


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST / HTTP/1.1", b"Host: door", b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


def chunked(*chunks: bytes) -> bytes:
    coded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return b"POST / HTTP/1.1\r\nHost: door\r\nTransfer-Encoding: chunked\r\n\r\n" + coded


def upgrade(target: str = "/ws") -> bytes:
    return HANDSHAKE.format(target=target).encode()


class Echo:
    """Sends back what comes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.waiting: list[bytes] = []

    def text(self, text: str) -> None:
        self.waiting.append(text.encode())
        self.connection.wake()

    def binary(self, data: bytes) -> None:
        self.waiting.append(data)  # as text: clients here send nothing else

    def frames(self, room: int) -> list[bytes]:
        frames, self.waiting = self.waiting, []
        return frames


async def echo(connection: Connection) -> None:
    await connection.run(Echo(connection))


def echoing(upgrade: Upgrade) -> Accept | Refuse:
    if upgrade.path == "/nowhere":
        return Refuse(404, "nothing is there")
    return Accept(None, echo)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with its method, its path and its body."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    text = f"{scope['method']} {scope['path']} ".encode() + body
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


class Client:
    """A peer that writes bytes and reads bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.rest = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def until(self, end: bytes) -> bytes:
        """Read until `end` has come; give all up to it. What comes behind it stays."""
        while end not in self.rest:
            data = await self.stream.receive_some()
            assert data, f"the end, after {self.rest!r}"
            self.rest += data
        found, _, self.rest = self.rest.partition(end)
        return found + end

    async def take(self, size: int) -> bytes:
        while len(self.rest) < size:
            data = await self.stream.receive_some()
            assert data, f"the end, after {self.rest!r}"
            self.rest += data
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    async def all(self) -> bytes:
        """Read until the other side has ended."""
        while data := await self.stream.receive_some():
            self.rest += data
        found, self.rest = self.rest, b""
        return found

    async def ended(self) -> None:
        """Wait for the end, orderly or not; nothing may come before it."""
        with suppress(trio.BrokenResourceError):
            assert await self.all() == b""

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one whole answer: its status, headers and body."""
        head = (await self.until(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers: dict[str, str] = {}
        for name, value in (line.split(": ", 1) for line in lines):
            before = headers.get(name.lower())
            headers[name.lower()] = f"{before}, {value}" if before else value
        if "content-length" in headers:
            body = await self.take(int(headers["content-length"]))
        elif "chunked" in headers.get("transfer-encoding", ""):
            body = await self.chunks()
        else:
            body = b""
        return int(first.split()[1]), headers, body

    async def chunks(self) -> bytes:
        body = b""
        while size := int((await self.until(b"\r\n")).strip(), 16):
            body += await self.take(size)
            await self.until(b"\r\n")
        await self.until(b"\r\n")
        return body


class Door:
    """A front door that is served, and who wants to enter."""

    def __init__(self, network: Network, endpoint: Endpoint, door: FrontDoor) -> None:
        self.network = network
        self.endpoint = endpoint
        self.door = door
        self.failures: list[BaseException] = []
        self.refusals: list[str] = []
        self.clients: list[Client] = []
        self.tls: ssl.SSLContext | None = None
        self.started = trio.current_time()

    @property
    def statistics(self) -> DoorStatistics:
        return self.door.statistics()

    async def knock(self) -> Client:
        """Connect; with TLS where the door speaks it."""
        return self.take(await self.network.connect(self.endpoint, self.tls))

    async def knock_plainly(self) -> Client:
        """Connect without TLS."""
        return self.take(await self.network.connect(Endpoint(False, *self.address), None))

    @property
    def address(self) -> tuple[str, int]:
        return self.endpoint.host, self.endpoint.port

    def take(self, stream: trio.abc.Stream) -> Client:
        client = Client(stream)
        self.clients.append(client)
        return client

    async def serves_the_next(self) -> None:
        """The next honest clients are served: one of HTTP, one of WebSocket."""
        client = await self.knock()
        await client.send(GET)
        status, _, body = await client.answer()
        assert (status, body) == (200, b"GET / ")
        await client.stream.aclose()
        client = await self.knock()
        await client.send(upgrade())
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await client.send(HELLO)
        assert await client.take(7) == b"\x81\x05hello"
        await client.send(CLOSE)
        assert await client.take(4) == b"\x88\x02\x03\xe8"
        await client.stream.aclose()

    async def comes_to_rest(self) -> DoorStatistics:
        """Wait until all connections are closed; every one must have ended in one way."""
        found = await self.until(lambda now: not now.open)
        assert (found.half_open, found.idle) == (0, 0)
        return found

    async def until(self, there: Callable[[DoorStatistics], bool]) -> DoorStatistics:
        """Wait until the statistics are so."""
        with trio.move_on_after(25):
            while not there(self.statistics):  # noqa: ASYNC110 # they are counters, which tell nobody
                await trio.sleep(0.005)
        found = self.statistics
        assert there(found), found
        adds_up(found)
        return found


def adds_up(found: DoorStatistics) -> None:
    ended = found.served + found.left + found.failed + sum(found.refused.values())
    assert found.accepted == found.open + ended, found


@asynccontextmanager
async def open_door(
    network: Network | None = None,
    *,
    route: Callable[[Upgrade], Accept | Refuse] = echoing,
    app: App | None = hello,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | None = None,
    failures: int = 0,
    now: Callable[[], datetime] | None = None,
    connection: ConnectionOptions | None = None,
    **options: Any,
) -> AsyncIterator[Door]:
    """Serve on 127.0.0.1, or in memory; at the end nobody may be left inside, and no task.

    `failures` is how many exceptions must have been reported.
    """
    network = TcpNetwork() if network is None else network
    host = "127.0.0.1" if isinstance(network, TcpNetwork) else "door"
    listener = await network.listen(Endpoint(tls is not None, host, 0))
    endpoint = Endpoint(tls is not None, *listener.addresses[0])
    found: list[BaseException] = []
    refusals: list[str] = []
    front = FrontDoor(
        listener,
        route=route,
        app=app,
        tls=tls,
        options=DoorOptions(**options),
        on_failure=found.append,
        on_refusal=refusals.append,
        now=now,
        connection=connection,
    )
    door = Door(network, endpoint, front)
    door.failures, door.refusals, door.tls = found, refusals, trust
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(front.serve))
        before = trio.lowlevel.current_statistics().tasks_living
        try:
            with trio.fail_after(30):
                yield door
        finally:
            for client in door.clients:
                await trio.aclose_forcefully(client.stream)
        await door.comes_to_rest()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert len(found) == failures, found
        nursery.cancel_scope.cancel()
