"""The other end of a connection, written by hand: frames of any shape, whole, in parts, or wrong."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import attrs
import trio
import trio.testing
from wsproto.utilities import generate_accept_token

from lmos_actors.transport import (
    ConnectionOptions,
    MemoryNetwork,
    accept,
    connect,
    endpoint_of,
    memory_pair,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lmos_actors.transport import Connection, Ended, MemoryStream

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
KEY = b"\x11\x22\x33\x44"
HEAD = (
    b"GET /agents/weather?x=1 HTTP/1.1\r\nHost: here:80\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: lmosprotocol, other\r\nLMOS-Peer: 12ab\r\n\r\n"
)


def xor(data: bytes, key: bytes = KEY) -> bytes:
    found = bytearray(data)
    for n, byte in enumerate(key):
        found[n::4] = found[n::4].translate(_xor_with(byte))
    return bytes(found)


@cache
def _xor_with(byte: int) -> bytes:
    return bytes(each ^ byte for each in range(256))


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, size: int | None = None
) -> bytes:
    """A frame without a mask; `size` says how many bytes write its length: 0, 2 or 8."""
    length = len(payload)
    if size is None:
        size = 0 if length < 126 else 2 if length < 65536 else 8
    word = {0: length, 2: 126, 8: 127}[size]
    return (
        bytes([fin << 7 | rsv << 4 | opcode, word])
        + (length.to_bytes(size, "big") if size else b"")
        + payload
    )


def closing(code: int | None = 1000, reason: str = "") -> bytes:
    return frame(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason.encode())


def mask(plain: bytes) -> bytes:
    """The same frames with masks; a head that claims more than there is gets a mask for what there is."""
    found = bytearray()
    while plain:
        start, stop = bounds(plain)
        found += plain[:1] + bytes([plain[1] | 0x80]) + plain[2:start] + KEY + xor(plain[start:stop])
        plain = plain[stop:]
    return bytes(found)


def bounds(data: bytes) -> tuple[int, int]:
    """Where the payload of an unmasked frame begins and ends."""
    word = data[1] & 0x7F
    start = 2 + {126: 2, 127: 8}.get(word, 0)
    size = int.from_bytes(data[2:start], "big") if word > 125 else word
    return start, min(start + size, len(data))


def frames_of(data: bytes, *, masked: bool) -> list[tuple[int, bytes]]:
    """Opcode and payload of the frames that one of our ends sent; the last may be cut off."""
    found: list[tuple[int, bytes]] = []
    while data:
        assert bool(data[1] & 0x80) == masked, "only clients mask"
        assert data[0] & 0xF0 == 0x80, "we send whole messages"
        plain = data[:1] + bytes([data[1] & 0x7F]) + data[2:]
        start, _ = bounds(plain)
        word = data[1] & 0x7F
        size = int.from_bytes(data[2:start], "big") if word > 125 else word
        key, start = (data[start : start + 4], start + 4) if masked else (b"\0\0\0\0", start)
        found.append((data[0] & 0x0F, xor(data[start : start + size], key)))
        data = data[start + size :]
    return found


class Recorder:
    """A handler that keeps what comes and gives what it is told to."""

    def __init__(self, *out: bytes) -> None:
        self.got: list[str | bytes] = []
        self.out = list(out)
        self.connection: Connection | None = None
        self.on_message: Callable[[str | bytes], None] = lambda message: None

    def text(self, text: str) -> None:
        assert type(text) is str
        self.got.append(text)
        self.on_message(text)

    def binary(self, data: bytes) -> None:
        assert type(data) is bytes
        self.got.append(data)
        self.on_message(data)

    def frames(self, room: int) -> list[bytes]:
        taken: list[bytes] = []
        while self.out and room > 0:
            taken.append(self.out.pop(0))
            room -= len(taken[-1])
        return taken

    def send(self, *messages: bytes) -> None:
        self.out += messages
        assert self.connection is not None
        self.connection.wake()


class Echo(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.on_message = lambda message: self.send(
            message.encode() if isinstance(message, str) else Bin(message)
        )


class Bin(bytes):
    """A binary message among those that are sent."""


@attrs.define
class Peer:
    """A connection of ours that runs, and the raw stream of its other end."""

    connection: Connection
    stream: MemoryStream
    ours: trio.abc.Stream
    is_server: bool  # ours
    sent: bytearray = attrs.Factory(bytearray)
    ended: Ended | None = None
    raised: BaseException | None = None
    over: trio.Event = attrs.Factory(trio.Event)

    async def send(self, plain: bytes) -> None:
        """Send frames as the other end writes them."""
        await self.stream.send_all(mask(plain) if self.is_server else plain)

    async def receive(self, count: int) -> list[tuple[int, bytes]]:
        """Read until that many frames have come, or the end; give all that came so far."""
        while len(self.came()) < count:
            data = await self.stream.receive_some()
            if not data:
                break
            self.sent += data
        return self.came()

    async def read_to_the_end(self) -> list[tuple[int, bytes]]:
        try:
            while data := await self.stream.receive_some():
                self.sent += data
        except trio.BrokenResourceError:
            pass
        return self.came()

    def came(self) -> list[tuple[int, bytes]]:
        return frames_of(bytes(self.sent), masked=not self.is_server)


async def server_end(options: ConnectionOptions, buffer: int = 65536, more: bytes = b"") -> Peer:
    """A server's connection of ours."""
    ours, theirs = memory_pair(buffer)
    connection = await accept(ours, HEAD + more, subprotocol="lmosprotocol", peer="them", options=options)
    answer = await theirs.receive_some()
    assert answer.startswith(b"HTTP/1.1 101 ")
    return Peer(connection, theirs, ours, True)


async def client_end(options: ConnectionOptions, buffer: int = 65536, more: bytes = b"") -> Peer:
    """A client's connection of ours."""
    network = MemoryNetwork(buffer)
    listener = await network.listen(attrs.evolve(ENDPOINT))
    kept: list[MemoryStream] = []

    async def serve() -> None:
        stream, _ = await listener.accept()
        request = b""
        while b"\r\n\r\n" not in request:
            request += await stream.receive_some()
        await stream.send_all(answer_to(request) + more)
        kept.append(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        connection = await connect(network, "ws://here/ws", options=options)
    await listener.aclose()
    return Peer(connection, kept[0], kept[0]._other, False)


async def masks_of_a_client(count: int) -> list[bytes]:
    """The masks of so many messages that a client's connection of ours sends."""
    peer = await client_end(ConnectionOptions())
    handler = Recorder(*(b"{}" for _ in range(count)))
    handler.connection = peer.connection
    wire = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.connection.run, handler)
        while len(wire) < 8 * count:  # a head, its mask, and two bytes
            wire += await peer.stream.receive_some()
        nursery.cancel_scope.cancel()
    return [bytes(wire[start + 2 : start + 6]) for start in range(0, 8 * count, 8)]


def answer_to(request: bytes, more: bytes = b"Sec-WebSocket-Protocol: lmosprotocol\r\n") -> bytes:
    key = request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + generate_accept_token(key) + b"\r\n" + more + b"\r\n"
    )


ENDPOINT = endpoint_of("ws://here/")
ENDS = {"server": server_end, "client": client_end}
QUICK = ConnectionOptions()


def play(
    end: str,
    body: Callable[[Peer], Awaitable[object]],
    *,
    handler: Recorder | None = None,
    options: ConnectionOptions = QUICK,
    buffer: int = 65536,
    more: bytes = b"",
) -> tuple[Recorder, Peer]:
    """Run a connection of ours against `body`, on virtual time, and look that nothing is left of it."""
    handler = Recorder() if handler is None else handler

    async def run(peer: Peer) -> None:
        try:
            peer.ended = await peer.connection.run(handler)
        except Exception as error:
            peer.raised = error
        finally:
            peer.over.set()

    async def main() -> Peer:
        peer = await ENDS[end](options, buffer, more if end == "client" else mask(more))
        handler.connection = peer.connection
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, peer)
            await body(peer)
        assert_closed(peer.ours)
        return peer

    return handler, trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def assert_closed(stream: trio.abc.Stream) -> None:
    assert stream._closed  # pyright: ignore


def chunks(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """The data in parts of these sizes, what is left in one."""
    found: list[bytes] = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [part for part in (*found, data) if part]


class Steps(trio.abc.Instrument):
    """Counts the steps that tasks are given."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
