"""The parts that all connections of a simulated network share, and the base class of both kinds of peers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from msgspec import UNSET

from lmos_actors._core import NOT_NEEDED_YET, Budget
from lmos_actors.actors import PoolLink, Seats
from lmos_actors.bindings import (
    Backoff,
    RemoteThing,
    SharedValues,
    WaitingTells,
)
from lmos_actors.errors import (
    InvalidInput,
    LocalProtocolError,
)
from lmos_actors.protocol.lmos import written

from ._requests import HEAD, KINDS, TELLS, NodeLimits, Served, ServedTell, StreamIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import RandomStream
    from lmos_actors.actors import (
        Runtime,
        Slot,
        TraceMembers,
    )
    from lmos_actors.bindings import PendingRequest, SentTell
    from lmos_actors.links import Line, Links


class OnSent(Protocol):
    """A callback for messages sent over a line."""

    def __call__(
        self, line: Line, what: str, now: float, arrivals: tuple[float, ...] | None, was_held: bool, /
    ) -> None:
        """Handle a message that is sent at `now` and arrives at `arrivals`.

        `arrivals` is () if the message is lost, and None if it is held by a cut; `was_held`: a cut has held
        it until now.
        """
        ...


MEMORY: Final = 256 << 20
"""Maximum bytes that wait for listeners, over all connections."""


class NetworkParts:
    """The runtime of a node, its lines, and the state that the receiving ends of all connections share."""

    def __init__(self, rt: Runtime, links: Links) -> None:
        self.rt = rt
        self.links = links
        self.now = trio.lowlevel.current_clock().current_time
        """`trio.current_time`, kept for work on each message: it takes a third of the time."""
        self.counts: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        """How often each node has ended; nodes that never did are not in it."""
        self.away: dict[str, None] = {}
        """The nodes that have ended and have not begun again."""
        self.on_sent: OnSent | None = None
        """Called for each message on a line; None if nobody watches."""
        self.budget = Budget(MEMORY)
        self.limits = NodeLimits(
            Seats(), WaitingTells(self.budget), SharedValues(self.budget), rt.entropy.new_id()
        )

    def end_node(self, node: str) -> None:
        """Record that a node has ended: messages that it sends from now on are dropped."""
        self.ends[node] += 1
        self.away[node] = None

    def chance(self, source: str, target: str) -> str:
        """Return the name of the random stream for one node's waits for another.

        The name changes each time that the waiting node ends.
        """
        lives = self.ends[source]
        return f"peer {source} > {target}" + (f" {lives}" if lives else "")

    def note(self, what: str, line: Line, request: Any = None, size: int = 0) -> None:
        """Count and record what happened to a message, to bytes, or to a connection in the network.

        `size`: the number of bytes, recorded if no `request` is known.
        """
        self.counts[what] += 1
        if self.rt.instrument is not None:
            fields: dict[str, object] = {"what": what, "from": line.source, "to": line.target}
            if request is not None:
                fields["affordance"] = request.name
            elif size:
                fields["bytes"] = size
            self.rt.instrument.record("network", line.target, fields)


class NodeThing(RemoteThing):
    """An agent or a pool of another node, and the one-way messages to it that are under way or wait there."""

    __slots__ = ("_told", "_told_bytes", "target")

    def __init__(self, peer: Any, target: Slot | PoolLink) -> None:
        super().__init__(peer, target.path, target.path)
        self.target = target
        self._told: list[ServedTell] | None = None  # at most `TELLS.items`, mostly one or none
        self._told_bytes = 0

    @property
    def has_credit(self) -> bool:
        """Whether one more one-way message may be sent."""
        told = self._told
        return told is None or (len(told) < TELLS.items and self._told_bytes < TELLS.bytes)

    def take_credit(self, served: ServedTell) -> None:
        """Note that a one-way message is sent."""
        if self._told is None:
            self._told = [served]
        else:
            self._told.append(served)
        self._told_bytes += served.weight

    def regain_credit(self, served: ServedTell) -> bool:
        """Note that a one-way message has begun or failed; return False if that was known already."""
        told = self._told
        if told is None or served not in told:
            return False
        told.remove(served)  # nearly always the first
        self._told_bytes -= served.weight
        if not told:
            self._told = None
        return True

    def lose_told(self) -> list[ServedTell]:
        """Forget the one-way messages, and return them: the connection is gone."""
        told, self._told, self._told_bytes = self._told, None, 0
        return told or []


class NodePeer:
    """The base class of `StreamPeer` and `DatagramPeer`: one node's way to another; see `RemotePeer`."""

    way = "lmos"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    takes_keys = True
    heeds = True
    tried = True
    ended = False

    __slots__ = ("_more", "_random", "_thing", "network", "rt", "source", "target_node")

    def __init__(self, network: NetworkParts, source: str, target: str) -> None:
        self.network = network
        self.rt = network.rt
        """The machinery of the node's agents."""
        self.source = source
        self.target_node = target
        self._random: RandomStream | None = None  # made when there is something to draw: few pairs break
        self._thing: NodeThing | None = None  # the first that was asked for, mostly the only one
        self._more: dict[str, NodeThing] = NOT_NEEDED_YET

    @property
    def budget(self) -> Budget:
        """The memory budget for values that wait for listeners."""
        return self.network.budget

    @property
    def url(self) -> str:
        """The name of the other node."""
        return self.target_node

    @property
    def place(self) -> str:
        """The name of the other node, for messages to people."""
        return self.target_node

    @property
    def origin(self) -> tuple[bool, str]:
        """A mark that distinguishes this connection from others, used in the identity of things."""
        return (False, f"{self.source} > {self.target_node}")

    @property
    def things(self) -> tuple[NodeThing, ...]:
        """The agents and pools of the other node that have been asked for."""
        return () if self._thing is None else (self._thing, *self._more.values())

    def thing_of(self, link: Slot | PoolLink) -> NodeThing:
        """Return the thing for an agent or a pool of the other node, always the same object."""
        first = self._thing
        if first is None:
            first = self._thing = NodeThing(self, link)
        if first.path == link.path:
            return first
        found = self._more.get(link.path)
        if found is None:
            if not self._more:
                self._more = {}
            found = self._more[link.path] = NodeThing(self, link)
        return found

    def thing(self, thing_id: str) -> NodeThing:
        """Return the thing with this id, for which a ref exists."""
        first = self._thing
        return first if first is not None and first.thing_id == thing_id else self._more[thing_id]

    def follow(
        self, request: PendingRequest, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]
    ) -> None:
        """Call `then` with an empty result: an undelivered request waits for no other agent."""
        then({})

    async def run(self) -> None:
        """Do nothing: timers carry the messages."""

    def stop(self) -> None:
        """Do nothing: a pair of nodes lasts as long as the network."""

    def release(self) -> None:
        """Do nothing; see `stop`."""

    def new_backoff(self) -> Backoff:
        """Return a new backoff that draws from this pair's random stream."""
        if self._random is None:
            chance = self.network.chance(self.source, self.target_node)
            self._random = self.rt.entropy.stream(chance)
        return Backoff(self._random)


def told(sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> ServedTell:
    """Return a one-way message in the form sent over the line. Raises InvalidInput as `requested` does."""
    thing: NodeThing = sent.link.far
    text = _text(payload)
    return ServedTell(thing.target, KINDS["invoke"], name, text, trace, HEAD + len(text), sent)


def _text(payload: Any) -> bytes:
    try:
        return b"" if payload is UNSET else written(payload)
    except LocalProtocolError as error:
        raise InvalidInput(str(error)) from None


def requested(request: PendingRequest) -> Served:
    """Return a request that expects an answer, in the form sent over the line.

    Raises InvalidInput if it cannot be encoded.
    """
    thing: Any = request.far
    text = _text(request.payload)
    served = Served(
        thing.target, KINDS[request.verb], request.name, text, request.trace_context, HEAD + len(text)
    )
    request.simulated = served
    if request.deadline is not None:
        served.remaining = max(0.001, request.deadline - trio.current_time())
    if request.attempt is not None:
        served.is_attempt, served.key = True, request.attempt.key
        served.message_id = request.attempt.message_id or ""
    if request.credit is not None:
        served.items = request.credit.items
    if request.streams:
        served.streams = {
            name: StreamIn(name, kind, kind == "application/octet-stream", served)
            for name, kind in request.streams.items()
        }
    return served
