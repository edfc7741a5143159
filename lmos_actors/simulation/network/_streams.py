"""Streams in memory whose bytes take the time of the lines between two nodes, and are held during cuts.

Both ends are ends of a `MemoryStream`; the only difference is when bytes, their end and a reset arrive. Our
WebSockets handle a silent, slow or changed stream themselves: heartbeats notice a long cut, and the peer
connects again.

What is not modelled: acknowledgements take no time. A stream therefore holds at most `WINDOW` unread bytes,
and the bytes that wait for a line with a bandwidth, but round trips do not slow it down.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from trio.lowlevel import checkpoint

from lmos_actors.errors import ConnectFailed
from lmos_actors.links import LONGEST, SEGMENT, corrupted
from lmos_actors.transport import MemoryStream, Pipe, pair_of, secured

from ._carrier import Carrier
from ._connecting import REFUSED
from ._heartbeats import OPENING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lmos_actors.transport import Endpoint, Listener, MemoryNetwork

    from ._peer import NetworkParts

WINDOW: Final = 1 << 20
"""Maximum unread bytes of one direction, beside those that wait for a slow line."""

RESET: Final = "the connection was reset"
HERE_ENDED: Final = "this node has ended"


class LineStream(MemoryStream):
    """One end of a stream whose bytes take the time of the lines; `carrier` carries both directions."""

    carrier: Carrier
    is_back: bool
    """Whether this is the end that was connected to."""
    closed: Callable[[], object]
    """Called once this end is closed."""
    _has_ended = False
    _is_dead = False

    def _carry(self, data: bytes | memoryview) -> None:
        """Send bytes; over a line with a bandwidth, send them in segments, one after the other."""
        whole = bytes(data)
        limited = self.carrier.line(back=self.is_back).rules.bandwidth is not None
        size = LONGEST if limited and not self.carrier.is_instant else len(whole)
        for start in range(0, len(whole), size):
            self._carry_piece(whole[start : start + size])

    def _carry_piece(self, piece: bytes) -> None:
        carrier = self.carrier
        line = carrier.line(back=self.is_back)
        corrupt = line.rules.corrupt
        if corrupt and not carrier.is_instant and line.random.random() < corrupt:
            piece = corrupted(piece, line.random.randrange(len(piece)))
            carrier.network.note("corrupted", line, size=len(piece))
        self._out.under_way += len(piece)
        carrier.send(SEGMENT + len(piece), partial(self._arrived, piece, self._out), back=self.is_back)

    def _arrived(self, piece: bytes, pipe: Pipe) -> None:
        there = self.other
        pipe.under_way -= len(piece)
        if there._closed or there._is_dead:
            self.carrier.send(SEGMENT, self._refuse, back=not self.is_back)
            return
        pipe.data += piece
        there._reader.wake()

    def _refuse(self) -> None:
        """Break this end only, because the other end is gone."""
        for pipe in (self._in, self._out):
            pipe.broken = "the peer has closed the stream"
            pipe.room.wake()
        self._reader.wake()

    def _check_sending(self) -> None:
        if self._has_ended and not self._out.broken:
            raise trio.ClosedResourceError("this end of the stream is closed")
        super()._check_sending()

    def _end_sending(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            if not self._out.broken:
                self.carrier.send(SEGMENT, partial(self._end_arrived, self._out), back=self.is_back)

    def _end_arrived(self, pipe: Pipe) -> None:
        pipe.ended = True
        self.other._reader.wake()

    def _leave(self) -> None:
        """Do nothing: the other end learns of the close when it next sends something."""

    def close(self) -> None:
        """Close this end at once; what was sent before can still be read."""
        was_closed = self._closed
        super().close()
        if not was_closed:
            self.closed()

    @property
    def other(self) -> LineStream:
        """The other end."""
        assert isinstance(self._other, LineStream)
        return self._other

    @property
    def is_over(self) -> bool:
        """Whether both ends are closed."""
        return self._closed and self._other is not None and self._other._closed

    def end_with_node(self) -> None:
        """End this end as if its process ended: the other end receives what was sent, then the end."""
        if self._is_dead or self._closed:
            return
        self._end_sending()
        self._is_dead = True
        self._break_here("its node has ended")

    def vanish(self) -> None:
        """End this end without notice; bytes that arrive from now on are refused."""
        if not self._closed and not self._is_dead:
            self._has_ended = self._is_dead = True
            self._break_here("its machine has forgotten it")

    def break_now(self, why: str = RESET) -> None:
        """Break the stream for both ends, to simulate a fault: bytes in transit are lost."""
        self.carrier.drop()
        super().break_now(why)


class LineNetwork:
    """A `Network` whose connections lead from one node to another, over the lines between them.

    The first connection is made at once, whatever the state of the lines: it counts as already open.
    """

    def __init__(self, parts: NetworkParts, network: MemoryNetwork, source: str, target: str) -> None:
        self._parts = parts
        self._network = network
        self._source = source
        self._target = target
        self._is_first = True  # the next connection: it is made in no time
        self._carriers: dict[Carrier, LineStream | None] = {}  # with their streams, once there are any
        self._standing: Carrier | None = None
        self._ends = 0  # how often this node had ended when the newest connection stood

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        """Make a connection in one round trip. Raises ConnectFailed."""
        await checkpoint()
        if self._source in self._parts.away:
            raise ConnectFailed(endpoint.url, HERE_ENDED)
        carrier = Carrier(self._parts, self._source, self._target)
        carrier.is_instant, self._is_first = self._is_first, False
        self._carriers[carrier] = None
        try:
            ends = await self._make_round_trip(carrier)
            if ends is None:
                raise ConnectFailed(endpoint.url, REFUSED)
            if ends != self._parts.ends[self._target]:
                raise ConnectFailed(endpoint.url, RESET)
            mine, theirs = pair_of(LineStream, WINDOW + carrier.line().rules.queue)
            for stream in (mine, theirs):
                stream.carrier, stream.is_back = carrier, stream is theirs
                stream.closed = partial(self._closed, stream, carrier)
            self._network.join(endpoint, mine, theirs)
        except BaseException:
            carrier.drop()
            del self._carriers[carrier]
            raise
        self._carriers[carrier] = mine
        return await secured(mine, endpoint, tls)

    async def _make_round_trip(self, carrier: Carrier) -> int | None:
        """Ask the other node for a connection; return how often that node had ended, None if it is away."""
        done, parts, ends = trio.Event(), self._parts, None

        def ask() -> None:
            nonlocal ends
            ends = None if self._target in parts.away else parts.ends[self._target]
            carrier.send(SEGMENT, done.set, back=True)

        carrier.send(SEGMENT, ask)
        await done.wait()
        return ends

    async def listen(self, endpoint: Endpoint) -> Listener:
        """See `Network`."""
        return await self._network.listen(endpoint)

    @property
    def opening(self) -> float:
        """The seconds between the handshake of the newest connection and its first liveness check."""
        newest = next(reversed(self._carriers), None)
        return 0.0 if newest is None or newest.is_instant else OPENING

    def stands(self) -> None:
        """Record that the handshake of the newest connection is done: from now on its messages take time."""
        self._is_first = False
        self._standing = next(reversed(self._carriers), None)
        self._ends = self._parts.ends[self._source]
        if self._standing is not None:
            if not self._standing.is_instant:
                self._parts.note("connected", self._standing.line())
            self._standing.is_instant = False

    def has_ended(self) -> None:
        """Count the end of an established connection, unless it ended because this node did."""
        if self._source not in self._parts.away and self._ends == self._parts.ends[self._source]:
            self._parts.note("disconnected", self._parts.links.line(self._source, self._target))

    def _closed(self, stream: LineStream, carrier: Carrier) -> None:
        if not stream.is_back and carrier is self._standing:
            self._standing = None
        if stream.is_over:
            carrier.drop()
            self._carriers.pop(carrier, None)

    def look_at_lines(self) -> None:
        """Update all connections after a change of the lines."""
        for carrier in tuple(self._carriers):
            carrier.look_at_lines()

    # ---- a node that ends

    @property
    def is_refused(self) -> bool:
        """Whether no connection is possible now because one of the two nodes is away."""
        return self._target in self._parts.away or self._source in self._parts.away

    @property
    def chance(self) -> str:
        """The name of the random stream for waits for the other node; see `NetworkParts`."""
        return self._parts.chance(self._source, self._target)

    def end_here(self) -> None:
        """End this node's end of each connection."""
        for stream in tuple(self._carriers.values()):
            if stream is not None:
                stream.end_with_node()

    def end_there(self) -> None:
        """End the other node's end of each connection."""
        for stream in tuple(self._carriers.values()):
            if stream is not None:
                stream.other.end_with_node()

    def begin_again(self) -> None:
        """Treat the next connection as the first."""
        self._is_first = True

    def half_open(self) -> bool:
        """End the connection at the other node only, without notice. Return whether there was one."""
        stream = None if self._standing is None else self._carriers.get(self._standing)
        if stream is not None:
            stream.other.vanish()
        return stream is not None

    def reset(self) -> bool:
        """Reset all connections at both ends. Return whether one was established."""
        stood = self._standing is not None
        for stream in tuple(self._carriers.values()):
            if stream is not None:
                stream.break_now()
        return stood
