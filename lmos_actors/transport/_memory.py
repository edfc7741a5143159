"""A network inside one process: bounded streams, no sockets, any clock."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from trio.lowlevel import checkpoint

from lmos_actors.errors import ConfigError, ConnectFailed

from ._network import secured
from ._wakeup import WakeupPoint

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ._network import Endpoint

_BACKLOG: Final = 1024  # connections not yet accepted
_CHUNK: Final = 65536

S = TypeVar("S", bound="MemoryStream")


class Pipe:
    """The bytes of a stream that are in transit in one direction."""

    __slots__ = ("broken", "data", "ended", "gone", "room", "size", "under_way")

    def __init__(self, size: int) -> None:
        self.size = size
        self.data = bytearray()
        self.under_way = 0  # bytes that have been sent and have not arrived
        self.ended = False  # the writer has said its last
        self.gone = False  # its reader is gone
        self.broken = ""  # why neither end is of use
        self.room = WakeupPoint()

    def close(self) -> None:
        self.ended = True


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a pair of streams in memory; the amount that the other end has not read is limited."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self._in = incoming
        self._out = outgoing
        self._reader = WakeupPoint()
        self._closed = False
        self._other: MemoryStream | None = None
        self._when_closed: Callable[[], object] | None = None

    def tell_when_closed(self, callback: Callable[[], object]) -> None:
        """Call `callback` once this end is closed."""
        self._when_closed = callback

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data, and wait while the peer's unread data fills the buffer."""
        self._check_alone(self._out.room)
        rest = memoryview(data)
        while True:
            sent = self.send_now(rest)
            if sent == len(rest):
                return
            rest = rest[sent:]
            await self._out.room.park()

    def send_now(self, data: bytes | memoryview) -> int:
        """Send as many bytes as there is room for, without waiting; return how many were sent."""
        pipe = self._out
        self._check_sending()
        taken = min(len(data), pipe.size - len(pipe.data) - pipe.under_way)
        if taken > 0:
            self._carry(data[:taken])
        return max(taken, 0)

    def _carry(self, data: bytes | memoryview) -> None:
        """Pass bytes to the other end; there must be room for them."""
        self._out.data += data
        if self._other is not None:
            self._other._reader.wake()

    def _check_sending(self) -> None:
        if self._closed or (self._out.ended and not self._out.broken):
            raise trio.ClosedResourceError("this end of the stream is closed")
        if self._out.broken or self._out.gone:
            raise trio.BrokenResourceError(self._out.broken or "the peer has closed the stream")

    def _check_alone(self, place: WakeupPoint) -> None:
        if place.task is not None:
            raise trio.BusyResourceError("another task uses this end of the stream")

    def has_news(self) -> bool:
        """Whether receiving would return at once, because data has arrived or the stream has ended."""
        pipe = self._in
        return bool(self._closed or pipe.data or pipe.broken or pipe.ended)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is some room."""
        await checkpoint()
        self._check_alone(self._out.room)
        while True:
            self._check_sending()
            if len(self._out.data) + self._out.under_way < self._out.size:
                return
            await self._out.room.park()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for data and return up to `max_bytes`; empty if the peer has ended its side."""
        await checkpoint()
        self._check_alone(self._reader)
        while not self._closed and not self._in.data and not self._in.broken and not self._in.ended:
            await self._reader.park()
        if self._closed:
            raise trio.ClosedResourceError("this end of the stream is closed")
        if self._in.broken:
            raise trio.BrokenResourceError(self._in.broken)
        size, data = max_bytes or _CHUNK, self._in.data
        taken = bytes(data[:size])
        if len(taken) == len(data):
            self._in.data = bytearray()  # an idle stream keeps no buffer
        else:
            del data[:size]
        self._in.room.wake()
        return taken

    async def send_eof(self) -> None:
        """Close the sending half; receiving goes on."""
        if self._closed:
            raise trio.ClosedResourceError("this end of the stream is closed")
        self._check_alone(self._out.room)
        self._end_sending()
        await checkpoint()

    def _end_sending(self) -> None:
        self._out.ended = True
        if self._other is not None:
            self._other._reader.wake()

    def close(self) -> None:
        """Close this end at once; what was sent before can still be read."""
        if self._closed:
            return
        self._closed = True
        self._end_sending()
        self._leave()
        self._in.data = bytearray()
        self._reader.wake()
        self._in.room.wake()
        self._out.room.wake()
        if self._when_closed is not None:
            self._when_closed()

    def _leave(self) -> None:
        """Inform the other end that its data is no longer read."""
        self._in.gone = True

    async def aclose(self) -> None:
        """Close this end; what was sent before can still be read."""
        self.close()
        await checkpoint()

    def _break_here(self, why: str) -> None:
        """Break this end only; data that the other end sends is not read."""
        room, pipe = self._out.room, Pipe(0)
        pipe.broken = why
        self._in = self._out = pipe
        self._reader.wake()
        room.wake()

    def break_now(self, why: str = "the connection was reset") -> None:
        """Break the stream for both ends, to simulate a fault: bytes in transit are lost."""
        for pipe in (self._in, self._out):
            pipe.broken = why
            pipe.data = bytearray()
            pipe.room.wake()
        self._reader.wake()
        if self._other is not None:
            self._other._reader.wake()


def memory_pair(buffer: int = _CHUNK) -> tuple[MemoryStream, MemoryStream]:
    """Return the two ends of a new stream; each direction holds `buffer` bytes at most."""
    return pair_of(MemoryStream, buffer)


def pair_of(kind: type[S], buffer: int) -> tuple[S, S]:
    """Return the two ends of a new stream of a class; each direction holds `buffer` bytes at most."""
    there, back = Pipe(buffer), Pipe(buffer)
    left, right = kind(back, there), kind(there, back)
    left._other, right._other = right, left  # pyright: ignore[reportPrivateUsage]
    return left, right


class MemoryListener:
    """The listener at one address of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, address: tuple[str, int]) -> None:
        self._network = network
        self._address = address
        self._waiting: deque[tuple[MemoryStream, str]] = deque()
        self._acceptor = WakeupPoint()
        self._closed = False

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The address, as a tuple of one."""
        return (self._address,)

    async def accept(self) -> tuple[trio.abc.Stream, str]:
        """Wait for the next connection. Raises trio.ClosedResourceError once the listener is closed."""
        await checkpoint()
        while not self._closed and not self._waiting:
            await self._acceptor.park()
        if self._closed:
            raise trio.ClosedResourceError("the listener is closed")
        return self._waiting.popleft()

    def put(self, stream: MemoryStream, peer: str) -> bool:
        """Add a connection that waits to be accepted; return False if too many are waiting."""
        if len(self._waiting) >= _BACKLOG:
            return False
        self._waiting.append((stream, peer))
        self._acceptor.wake()
        return True

    async def aclose(self) -> None:
        """Stop listening; connections not yet accepted are broken."""
        if not self._closed:
            self._closed = True
            self._network.forget(self._address)
            for stream, _ in self._waiting:
                stream.break_now()
            self._waiting.clear()
            self._acceptor.wake()
        await checkpoint()


class MemoryNetwork:
    """A `Network` without sockets, on any clock. Each direction of a stream holds `buffer` bytes at most.

    Hosts are plain names: the listener at ("any", 80) is reached as ("any", 80).
    """

    def __init__(self, buffer: int = _CHUNK) -> None:
        self._buffer = buffer
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._streams: dict[int, tuple[MemoryStream, tuple[str, int]]] = {}
        self._next_port = 49152  # the first that IANA gives to nobody
        self._connections = 0

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Connect to the listener at an endpoint. Raises ConnectFailed."""
        await checkpoint()
        mine, theirs = memory_pair(self._buffer)
        self.join(endpoint, mine, theirs)
        return await secured(mine, endpoint, tls)

    def join(self, endpoint: Endpoint, mine: MemoryStream, theirs: MemoryStream) -> None:
        """Pass one end of a stream to the listener at an endpoint. Raises ConnectFailed."""
        address = (endpoint.host, endpoint.port)
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectFailed(endpoint.url, "nothing is listening there")
        self._connections += 1
        if not listener.put(theirs, f"{endpoint.host}:{self._connections}"):
            raise ConnectFailed(endpoint.url, "too many connections wait there")
        number = self._connections
        self._streams[number] = (mine, address)
        mine.tell_when_closed(lambda: self._streams.pop(number, None))

    async def listen(self, endpoint: Endpoint) -> MemoryListener:
        """Listen at an endpoint; port 0 finds a free one. Raises ConfigError if the address is taken."""
        await checkpoint()
        address = (endpoint.host, endpoint.port or self._free_port(endpoint.host))
        if address in self._listeners:
            raise ConfigError(f"cannot listen at {endpoint.authority}: {errno.errorcode[errno.EADDRINUSE]}")
        listener = self._listeners[address] = MemoryListener(self, address)
        return listener

    def forget(self, address: tuple[str, int]) -> None:
        """Free the address of a listener."""
        self._listeners.pop(address, None)

    def sever(self, host: str, port: int, why: str = "the connection was reset") -> int:
        """Break every connection to an address; return how many there were."""
        found = [stream for stream, address in self._streams.values() if address == (host, port)]
        for stream in found:
            stream.break_now(why)
        return len(found)

    def sever_all(self, why: str = "the connection was reset") -> None:
        """Break every connection, as if the only listening node had ended."""
        for stream, _ in tuple(self._streams.values()):
            stream.break_now(why)

    def _free_port(self, host: str) -> int:
        while (host, self._next_port) in self._listeners:
            self._next_port += 1
        self._next_port += 1
        return self._next_port - 1
