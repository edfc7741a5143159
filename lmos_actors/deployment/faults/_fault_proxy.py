"""A TCP proxy that disturbs real connections as a simulated network disturbs simulated ones.

Between its clients and the server behind it there are two lines of a simulated network (`Links`), one for
each way: *in*, from a client to the server, and *out*, from the server to a client. The lines decide when
data arrives, with the same functions and the same random numbers as in a simulation. Here the data is held
until then, in real time.

What this module guarantees:

- **Each connection keeps its order.** Lost or late data holds up the data behind it, but no other connection.
- **A message is the data of one read of a socket**, at most 64 KiB. On a line with a bandwidth, each segment
  of that data is a message. Making a connection takes two more messages, which are a round trip, and the end
  of each side's data takes one more.
- **Data sent during a cut is held**, and sent again after it, as TCP does. Data under way when a cut begins
  arrives. A connection made during a cut is accepted, since the kernel does that, but carries nothing until
  the cut is over. So while both ways are cut, connections are half open: nothing comes through, and neither
  side notices.
- **Ends are passed on unchanged**: the end of one side's data, with the other way still open, or a reset.
  Both take as long as data on that line.
- **Memory is bounded.** Each way of a connection holds at most `WINDOW` bytes and the data of one read. Then
  the proxy stops reading, so that the kernel holds the sender back. At most `most` connections are open; more
  wait to be accepted.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from lmos_actors._core import Entropy, SeededBytes
from lmos_actors.errors import ConnectFailed
from lmos_actors.links import LONGEST, SEGMENT, LinkFault, LinkRules, Links, corrupted
from lmos_actors.transport import DirectStream, Endpoint, MemoryStream, default_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from lmos_actors.transport import Listener, Network

Way: TypeAlias = Literal["in", "out"]
"""A direction: in, from clients to the server, or out, back."""

MOST: Final = 4_096
"""The default limit of open connections."""

WINDOW: Final = 1 << 20
"""Maximum bytes that are held for one way of a connection."""

MOST_PIECES: Final = 4_096
"""Maximum messages that are held for one way of a connection: each takes more memory than a byte."""

CHUNK: Final = 65_536
"""Maximum bytes of one read."""

CONNECT_SECONDS: Final = 10.0
"""Seconds for connecting to the server."""

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)

CLIENT: Final = "client"
SERVER: Final = "server"


def links_with(rules: LinkRules, seed: int | None = None) -> Links:
    """Return links whose lines all have the same rules; `seed` determines the random numbers."""
    entropy = Entropy() if seed is None else Entropy(seed=seed, key_bytes=SeededBytes(seed).of_stream)
    return Links(lambda source, target: rules, entropy.stream)


@attrs.frozen
class FaultProxyStatistics:
    """The counts of a proxy: its connections, and the bytes passed on in each direction."""

    connections: int = 0
    """Accepted connections."""
    open: int = 0
    unreachable: int = 0
    """Connections that the server has refused."""
    reset: int = 0
    """Connections that a fault has ended."""
    bytes_in: int = 0
    bytes_out: int = 0


@attrs.frozen
class Route:
    """The target of a connection: an address that is reached over the lines to the node `target`."""

    to: Endpoint
    target: str


class Gate(Protocol):
    """The entrance of a proxy whose clients name their targets."""

    async def ask(self, client: trio.abc.Stream) -> Route | None:
        """Return the route for a new client, or None to drop the client."""
        ...

    async def tell(self, client: trio.abc.Stream, failure: ConnectFailed | None) -> None:
        """Send a client the news that it is connected, or why the connection failed."""
        ...


class FaultProxy:
    """A proxy that forwards connections to another address, with faults; see the module docstring.

    Use it as an async context manager; on exit all connections are closed. `links` has the lines between
    `source`, the clients, and `target`, the server. Several proxies may share `links`; after a change, call
    `look_at_lines` of each. `on_unreachable` is called with each failure to connect to the server. If `to` is
    a `Gate`, the gate chooses the target of each connection.
    """

    def __init__(
        self,
        listen: Endpoint,
        to: Endpoint | Gate,
        links: Links,
        *,
        source: str = CLIENT,
        target: str = SERVER,
        network: Network | None = None,
        most: int = MOST,
        on_unreachable: Callable[[ConnectFailed], object] | None = None,
    ) -> None:
        self.listens_at = listen
        self.gate = _OneServer(Route(to, target)) if isinstance(to, Endpoint) else to
        self.links = links
        self.ends = (source, target)
        self.network = default_network() if network is None else network
        self._on_unreachable = on_unreachable
        self._connections: dict[_Connection, None] = {}
        self._places = trio.Semaphore(most)
        self._begun: dict[int, None] = {}  # the numbers of the faults that this proxy has begun
        self._accepted = self._unreachable = self._reset = 0
        self._bytes: dict[Way, int] = {"in": 0, "out": 0}
        self._listener: Listener | None = None
        self._opened = trio.open_nursery()
        self._end = trio.CancelScope()  # of that nursery, once it is there

    async def __aenter__(self) -> Self:
        """Listen. Raises ConfigError if that is not possible."""
        self._listener = await self.network.listen(self.listens_at)
        nursery = await self._opened.__aenter__()
        nursery.start_soon(self._accept, self._listener, nursery)
        self._end = nursery.cancel_scope
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the listener and all connections."""
        assert self._listener is not None
        self._end.cancel("the proxy has ended")
        try:
            # without the error of the body, which the nursery would wrap in a group
            await self._opened.__aexit__(None, None, None)
        finally:
            with trio.CancelScope(shield=True):
                await self._listener.aclose()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each address at which clients connect."""
        return () if self._listener is None else self._listener.addresses

    def statistics(self) -> FaultProxyStatistics:
        """Return the counts so far."""
        return FaultProxyStatistics(
            connections=self._accepted,
            open=len(self._connections),
            unreachable=self._unreachable,
            reset=self._reset,
            bytes_in=self._bytes["in"],
            bytes_out=self._bytes["out"],
        )

    # ---- faults

    def cut(self, way: Way | None = None) -> int:
        """Block data in one direction or both; return the number of the fault, for `heal`."""
        source, target = self.ends
        ways = {"in": (source, target), "out": (target, source)}
        cut = tuple(ways.values()) if way is None else (ways[way],)

        def selects(source: str, target: str) -> bool:
            return (source, target) in cut

        return self.begin(LinkFault(selects=selects, cuts=True))

    def begin(self, fault: LinkFault) -> int:
        """Begin a link fault; return its number, for `heal`."""
        number = self.links.begin(fault, trio.current_time())
        self._begun[number] = None
        self.look_at_lines()
        return number

    def heal(self, number: int | None = None) -> None:
        """End a fault that this proxy began, or all of them. A fault that has already ended is ignored."""
        for each in tuple(self._begun) if number is None else (number,):
            if each in self._begun:
                del self._begun[each]
                self.links.heal(each)
        self.look_at_lines()

    def look_at_lines(self) -> None:
        """Send held data again on lines that are up again. Call this after a change of `links`."""
        for connection in self._connections:
            connection.look_at_lines()

    def reset(
        self, selects: Callable[[str, str], bool] = lambda source, target: True, *, half_open: bool = False
    ) -> int:
        """Reset the selected connections, by default all, and return their number.

        `selects` chooses connections by their ends, in either order. Both ends are reset at once. With
        `half_open`, only the server's end is reset at once; a client's end is reset when the client sends
        something.
        """
        source = self.ends[0]
        found = [
            each
            for each in self._connections
            if not each.is_over and (selects(source, each.target) or selects(each.target, source))
        ]
        for connection in found:
            if half_open:
                connection.break_server()
            else:
                connection.break_now()
        self._reset += len(found)
        return len(found)

    # ---- connections

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        while True:
            await self._places.acquire()
            stream, _ = await listener.accept()
            self._accepted += 1
            connection = _Connection(self, stream)
            self._connections[connection] = None
            nursery.start_soon(self._host, connection)

    async def _host(self, connection: _Connection) -> None:
        try:
            await connection.run()
        finally:
            del self._connections[connection]
            self._places.release()

    def count(self, way: Way, size: int) -> None:
        """Count bytes that were passed on in one direction."""
        self._bytes[way] += size

    def note_unreachable(self, failure: ConnectFailed) -> None:
        """Count a failure to connect to the server, and report it to `on_unreachable`."""
        self._unreachable += 1
        if self._on_unreachable is not None:
            self._on_unreachable(failure)


@attrs.frozen
class _OneServer:
    """The gate of a proxy with one server: a client learns of a failure only by a reset."""

    route: Route

    async def ask(self, client: trio.abc.Stream) -> Route:
        """Return the route to the server."""
        return self.route

    async def tell(self, client: trio.abc.Stream, failure: ConnectFailed | None) -> None:
        """Reset a client whose server cannot be reached."""
        if failure is not None:
            _break(client)


class _Connection:
    """A client's connection, and the matching connection to the server."""

    def __init__(self, proxy: FaultProxy, client: trio.abc.Stream) -> None:
        self.target = ""
        """The name of its target, once it is known."""
        self._proxy = proxy
        self._client = client
        self._server: trio.abc.Stream | None = None
        self._scope = trio.CancelScope()
        self._passing = trio.CancelScope()
        self._ways: tuple[_Passage, _Passage] | None = None  # in and out, once it is known where it leads

    async def run(self) -> None:
        """Connect to the server, and pass data both ways until both sides have ended."""
        try:
            with self._scope:
                route = await self._proxy.gate.ask(self._client)
                if route is None:
                    return
                self.target = route.target
                self._server = await self._connected(route)
                if self._server is None:
                    return
                with self._passing:
                    await self._pass(self._client, self._server)
                if self._passing.cancel_called:  # its next message is refused
                    with suppress(*GONE):
                        await self._client.receive_some(CHUNK)
                    _break(self._client)
        finally:
            with trio.CancelScope(shield=True):
                for stream in self._streams:
                    await trio.aclose_forcefully(stream)

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended, and is about to be closed."""
        return self._scope.cancel_called

    @property
    def _streams(self) -> tuple[trio.abc.Stream, ...]:
        return (self._client,) if self._server is None else (self._client, self._server)

    async def _connected(self, route: Route) -> trio.abc.Stream | None:
        """Make a round trip over the lines and connect to the server; return None if that fails."""
        proxy, source, target = self._proxy, self._proxy.ends[0], route.target
        come = _Passage(proxy.links, source, target, lambda size: proxy.count("in", size))
        back = _Passage(proxy.links, target, source, lambda size: proxy.count("out", size))
        self._ways = come, back
        await come.carry()
        stream = failure = None
        try:
            with trio.fail_after(CONNECT_SECONDS):
                stream = await proxy.network.connect(route.to, None)
        except ConnectFailed as error:
            failure = error
        except trio.TooSlowError:
            failure = ConnectFailed(route.to.url, f"not within {CONNECT_SECONDS:g} s")
        try:
            await back.carry()
            if failure is not None:
                proxy.note_unreachable(failure)
            await proxy.gate.tell(self._client, failure)
        except BaseException:
            if stream is not None:
                await trio.aclose_forcefully(stream)
            raise
        return stream

    async def _pass(self, client: trio.abc.Stream, server: trio.abc.Stream) -> None:
        """Pass on the data of both sides."""
        assert self._ways is not None
        come, back = self._ways
        async with trio.open_nursery() as nursery:
            nursery.start_soon(come.read, client)
            nursery.start_soon(back.read, server)
            nursery.start_soon(self._write, come, back, server)
            nursery.start_soon(self._write, back, come, client)

    async def _write(self, passage: _Passage, back: _Passage, sink: trio.abc.Stream) -> None:
        """Write data as it arrives, until the connection is over."""
        while True:
            for each in await passage.arrived():
                if each is RESET:
                    self.break_now()
                    return
                try:
                    await _pass_on(each, sink)
                except GONE:
                    passage.drop()
                    back.source_is_broken()
                    break
                passage.has_passed(each)
            if passage.has_ended and back.has_ended:
                self._scope.cancel("both sides have said their last")
                return

    def look_at_lines(self) -> None:
        """Send held data again in both directions if the lines are up again."""
        for passage in self._ways or ():
            passage.look_at_line()

    def break_now(self) -> None:
        """Reset both ends, at once."""
        for stream in self._streams:
            _break(stream)
        self._scope.cancel("the connection was reset")

    def break_server(self) -> None:
        """Reset the server's end now, and the client's end once the client sends something."""
        if self._server is None:
            return  # it is being made
        _break(self._server)
        self._passing.cancel("the server has forgotten it")


class _Mark(bytes):
    """A mark in the order of the messages that has no data; marks are compared by identity."""

    __slots__ = ()


END: Final = _Mark()
"""The end of one side's data."""

RESET: Final = _Mark()
"""Word that a side has reset the connection."""

TURN: Final = _Mark()
"""One half of the round trip that makes a connection."""


@attrs.define(eq=False)
class _Piece:
    """A message under way: it arrives at `arrives`, but not before earlier messages.

    `arrives` is None while the message is held because its line is cut.
    """

    data: bytes
    sent_at: float
    arrives: float | None


class _Passage:
    """One way of a connection: the data, in order, that one side has sent and the other has not received."""

    def __init__(self, links: Links, source: str, target: str, count: Callable[[int], object]) -> None:
        self.has_ended = False
        """Whether the end of the source's data has been passed on."""
        self._links = links
        self._source, self._target = source, target
        self._count = count
        self._under_way: deque[_Piece] = deque()
        self._size = 0  # bytes under way, or with a side that does not take them
        self._is_dropped = False
        self._is_last_read = False
        self._is_broken = False  # its source is, whatever reading says
        self._news = trio.Event()
        self._room = trio.Event()

    # ---- from the source

    async def read(self, source: trio.abc.Stream) -> None:
        """Read one side's data until its end, with pauses while the window is full."""
        last = RESET
        with suppress(*GONE):
            while data := bytes(await source.receive_some(CHUNK)):
                self._put(data)
                while self._size >= WINDOW or len(self._under_way) >= MOST_PIECES:
                    self._room = trio.Event()
                    await self._room.wait()
            last = END
        self._is_last_read = True
        self._send(RESET if self._is_broken else last)

    def source_is_broken(self) -> None:
        """Send the source's reset after all data that the source has sent."""
        self._is_broken = True
        if self._is_last_read:
            self._send(RESET)

    def _put(self, data: bytes) -> None:
        """Send data, which is split into segments if the line has a bandwidth."""
        if self._is_dropped:
            return
        line = self._links.line(self._source, self._target)
        size = len(data) if line.rules.bandwidth is None else LONGEST
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            if line.rules.corrupt and line.random.random() < line.rules.corrupt:
                piece = corrupted(piece, line.random.randrange(len(piece)))
            self._size += len(piece)
            self._send(piece)

    def _send(self, data: bytes) -> None:
        links, now = self._links, trio.current_time()
        line = links.line(self._source, self._target)
        arrives = None if line.is_cut else links.send_in_order(line, SEGMENT + len(data), now)
        self._under_way.append(_Piece(data, now, arrives))
        self._news.set()

    def look_at_line(self) -> None:
        """Send held data again if the line is up again."""
        links, now = self._links, trio.current_time()
        line = links.line(self._source, self._target)
        if line.is_cut:
            return
        for piece in self._under_way:
            if piece.arrives is None:
                size = SEGMENT + len(piece.data)
                piece.arrives = links.send_again(line, size, piece.sent_at, now)
        self._news.set()

    # ---- to the other side

    async def carry(self) -> None:
        """Send a message without data, and wait until it has arrived."""
        self._send(TURN)
        await self.arrived()

    async def arrived(self) -> list[bytes]:
        """Wait until something arrives; return all that has arrived, with adjacent data joined."""
        while (arrives := self._arrival()) is None:
            self._news = trio.Event()
            await self._news.wait()
        if arrives > trio.current_time():
            await trio.sleep_until(arrives)
        now = trio.current_time()
        data, found = list[bytes](), list[bytes]()
        while (arrives := self._arrival()) is not None and arrives <= now:
            each = self._under_way.popleft().data
            if not isinstance(each, _Mark):
                data.append(each)
                continue
            found += [b"".join(data), each] if data else [each]
            data = []
        return [*found, b"".join(data)] if data else found

    def _arrival(self) -> float | None:
        """Return the time at which the next piece arrives; None if there is no piece or it is held."""
        return self._under_way[0].arrives if self._under_way else None

    def has_passed(self, data: bytes) -> None:
        """Note that the other side has received data or the end of the data.

        Received data makes room for more.
        """
        if data is END:
            self.has_ended = True
            return
        self._size -= len(data)
        self._count(len(data))
        self._room.set()

    def drop(self) -> None:
        """Drop all data under way and all later data: the other side receives no more."""
        self._is_dropped = True
        self._size = 0
        self._under_way.clear()
        self._room.set()


async def _pass_on(data: bytes, sink: trio.abc.Stream) -> None:
    """Write data, or the end of the data."""
    if data is not END:
        await sink.send_all(data)
    elif isinstance(sink, trio.abc.HalfCloseableStream):
        await sink.send_eof()


def _break(stream: trio.abc.Stream) -> None:
    """Reset a stream, which must be a network stream."""
    assert isinstance(stream, DirectStream | MemoryStream)
    stream.break_now()
