"""The machine of a run's node: its disk, and an end of the node as if by `kill -9`.

`Machine.kill` ends the node at one instant. Its store is in the state that a dead process leaves, its
connections are cut, its agents are gone, and nothing that it does while it unwinds becomes a record of the
run. `RunEnvironment` opens the next node, with the same disk, when it is time. Callers outside the node see
what callers of a dead process see: `OutcomeUnknown` for open requests, then `AgentUnavailable` until the next
node is there.

`Machine.kill_node` does the same to one node of a simulated network, which is a part of the real one. It is
cut off, its agents are killed without counting for their supervisors, and its unsynced writes to the store
are handled according to `writes`. Nothing that it does while it unwinds becomes a record. Its agents start
again when it is time and they have unwound.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import trio
from msgspec import UNSET

from lmos_actors.actors import Slot
from lmos_actors.errors import WrongState
from lmos_actors.supervision import agents_of, children_of, lose, regain, wait_unwound
from lmos_actors.system.model import USER
from lmos_actors.system.values import draw

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
    from typing import TypeAlias

    from lmos_actors._core import Entropy, Kind
    from lmos_actors.node import Node
    from lmos_actors.persistence import SimulatedDisk, WritesAtCrash
    from lmos_actors.supervision import Supervisor
    from lmos_actors.transport import MemoryNetwork

    from ...model import Store
    from ..records import Watch

    Parts: TypeAlias = list[tuple[Supervisor, tuple[Slot | Supervisor, ...]]]

LOOK_AGAIN = 0.01
"""Seconds between two checks whether all agents run again after a full disk."""


class NetworkNodes(Protocol):
    """The nodes of a simulated network, which can end and restart."""

    ends_nodes: bool
    """Whether faults end nodes of the network."""

    def of_path(self, path: str, /) -> str:
        """Return the node of the agent at a path."""
        ...

    def parts_of(self, node: str, root: Supervisor, /) -> Parts:
        """Return the parts on a node, as pairs of a supervisor and its children there, in start order.

        A part is a whole child of a supervisor.
        """
        ...

    def end_node(self, node: str, /) -> None:
        """Cut a node off, so that no message reaches it or comes from it."""
        ...

    def begin_node(self, node: str, /) -> None:
        """Make a node reachable again."""
        ...


class Machine:
    """The machine of one run. `network` is the network on which its node listens, if any."""

    def __init__(self, watch: Watch, network: MemoryNetwork | None = None) -> None:
        self.disk: SimulatedDisk | None = None
        """The disk, if agents of the file are durable."""
        self.deaths = 0
        """How often the node was killed."""
        self.is_down = False
        """Whether steps cannot use the node: it was killed, or its agents are being started again."""
        self.has_node = False
        self.back_at = 0.0
        """The instant at which the node is to be started again."""
        self.at_death: Callable[[Collection[Slot] | None], object] = _do_nothing
        """Called before the node is killed, or with the agents of a network node before that is killed."""
        self.at_return: Callable[[str, Collection[Slot]], object] = _do_nothing
        """Called with the name and the agents of a network node once these have begun again."""
        self._watch = watch
        self._network = network
        self._node: Node | None = None
        self._killed = trio.Event()
        self._up = trio.Event()
        self._full = 0
        self._factors: list[float] = []
        self._nodes: NetworkNodes | None = None
        self._away: dict[str, trio.Event] = {}  # nodes whose agents have not all begun again
        self._unwinding: dict[str, None] = {}  # nodes that have not begun again
        self._boots: trio.Nursery | None = None

    def put_in_disk(self, declared: Store | None, entropy: Entropy) -> SimulatedDisk:
        """Make the disk; its commits take as long as the file sets."""
        from lmos_actors.persistence import SimulatedDisk

        times = entropy.stream("disk latency")
        latency = UNSET if declared is None else declared.latency

        def seconds() -> float:
            return 0.0 if latency is UNSET else draw(latency, times)

        self.disk = SimulatedDisk(entropy.stream("disk"), seconds)
        return self.disk

    # ---- the node

    def power_on(self, node: Node) -> None:
        """Store the node that has just been opened; its agents may not have started yet."""
        self._node = node
        self.has_node = True

    def came_up(self) -> None:
        """Note that all agents of the node have been started."""
        self.is_down = False
        self._killed = trio.Event()
        self._up.set()

    def kill(self, writes: WritesAtCrash, down: float) -> None:
        """End the node now, and let it start again after `down` seconds."""
        assert self._node is not None
        self.at_death(None)
        self.deaths += 1
        self._away.clear()
        self._unwinding.clear()
        self.is_down, self.has_node = True, False
        self.back_at = trio.current_time() + down
        self._up = trio.Event()
        if self.disk is not None:
            self.disk.crash(writes)
        self._watch.muted = True
        if self._network is not None:
            self._network.sever_all("its node was killed")
        self._node.force_stop()
        self._killed.set()

    async def wait_killed(self) -> None:
        """Wait until the node is killed."""
        await self._killed.wait()

    async def wait_up(self) -> None:
        """Wait until the node is open and its agents have been started."""
        while self.is_down:
            await self._up.wait()

    def call_at(self, when: float, fn: Callable[[], object]) -> None:
        """Call a function at an instant, even if the node ends before then."""
        clock: Any = trio.lowlevel.current_clock()
        clock.call_at(when, fn)

    # ---- nodes of a network

    @asynccontextmanager
    async def starting_nodes(self, network: NetworkNodes) -> AsyncGenerator[None]:
        """Allow nodes of the network to restart during this block, in which the node is open."""
        self._nodes = network
        self._watch.is_silent = self._is_of_dead if network.ends_nodes else None
        async with trio.open_nursery() as nursery:
            self._boots = nursery
            try:
                yield
            finally:
                self._boots = None
                nursery.cancel_scope.cancel("the node ends")

    def is_node_down(self, name: str) -> bool:
        """Return whether a network node was killed and some of its agents have not restarted yet."""
        return name in self._away

    def is_unwinding(self, path: str) -> bool:
        """Return whether an agent is on a network node that was killed and has not restarted yet."""
        return bool(self._unwinding) and self._is_of_killed(path)

    @property
    def has_unwinding(self) -> bool:
        """Whether `is_unwinding` is true for some agent."""
        return bool(self._unwinding)

    def agents_on(self, name: str) -> tuple[str, ...]:
        """Return the paths of the parts on a network node: agents, and supervisors that are wholly on it."""
        assert self._node is not None
        assert self._nodes is not None
        found: list[str] = []
        for supervisor, children in self._nodes.parts_of(name, self._node.root):
            is_whole = supervisor.numbered is not None and len(supervisor.numbered) == len(children) > 1
            found += [supervisor.path] if is_whole else [child.path for child in children]
        return tuple(found)

    async def wait_node_up(self, name: str) -> None:
        """Wait until a network node has restarted, or the whole node is killed."""
        while name in self._away:
            await first_of(self._away[name].wait, self._killed.wait)

    def kill_node(self, name: str, writes: WritesAtCrash, down: float) -> None:
        """End a node of the network now, and let it restart after `down` seconds."""
        assert self._node is not None
        assert self._nodes is not None
        assert self._boots is not None
        parts = self._nodes.parts_of(name, self._node.root)
        slots = dict.fromkeys(slot for _, children in parts for child in children for slot in _agents(child))
        self.at_death(slots)
        self._watch.muted = True
        self._away[name], self._unwinding[name] = trio.Event(), None
        self._nodes.end_node(name)
        for supervisor, children in parts:
            lose(supervisor, children)
        if self.disk is not None:
            from lmos_actors.persistence import AgentStates  # few files have a store

            keeping = self._node.root.rt.keeping
            if isinstance(keeping, AgentStates):
                keys = {slot.spec.key or slot.path for slot in slots}
                self.disk.crash_of(keeping.end_process(keys), writes)
        self._watch.muted = False
        boots = self._boots

        def begin() -> None:  # by the clock, as two sleeps that end at one instant have no order
            if self._boots is boots:
                boots.start_soon(self._begin_again, name, parts, slots)

        self.call_at(trio.current_time() + down, begin)

    async def _begin_again(self, name: str, parts: Parts, slots: Collection[Slot]) -> None:
        assert self._nodes is not None
        for _, children in parts:
            await wait_unwound(children)
        if self._unwinding.pop(name, self) is self:  # the values are None
            return  # the whole node has been killed in the same instant
        self._nodes.begin_node(name)
        with suppress(WrongState):  # a supervisor has ended: nobody can start them, and the node ends soon
            for supervisor, children in parts:
                await regain(supervisor, children)
        up = self._away.pop(name, None)
        if up is not None:  # else the whole node has been killed in the same instant
            up.set()
            self.at_return(name, slots)

    def _is_of_dead(self, kind: Kind, agent: str, fields: dict[str, object]) -> bool:
        """Return whether a record comes from a killed network node that is still unwinding."""
        if not self._unwinding or kind in ("network", "fault", "healed"):
            return False
        is_of_killed, sender = self._is_of_killed, str(fields.get("from") or USER)
        if kind == "sent" and not is_of_killed(agent):
            return False  # the message was on its way before
        return is_of_killed(sender if kind in ("sent", "dead_letter") else agent)

    def _is_of_killed(self, path: str) -> bool:
        assert self._nodes is not None
        return self._nodes.of_path(path) in self._unwinding

    # ---- the disk

    def fill_disk(self) -> None:
        """Make the disk full."""
        self._full += 1
        self._change_disk()

    def clear_disk(self) -> None:
        """Undo one `fill_disk`; the disk stays full while another fault fills it."""
        self._full -= 1
        self._change_disk()

    def slow_disk(self, factor: float) -> None:
        """Multiply the time of commits by a factor, in addition to other factors."""
        self._factors.append(factor)
        self._change_disk()

    def undo_slow_disk(self, factor: float) -> None:
        """Remove a factor of `slow_disk`."""
        self._factors.remove(factor)
        self._change_disk()

    def _change_disk(self) -> None:
        assert self.disk is not None
        self.disk.full = self._full > 0
        self.disk.factor = math.prod(sorted(self._factors))

    def look_again_in(self) -> float | None:
        """Return the seconds until the next check of whether all durable agents run; None if they do."""
        node = self._node
        if node is None or self.is_down:
            return LOOK_AGAIN
        keeping = node.root.rt.keeping
        if keeping is not None and keeping.retry_in is not None:
            return max(keeping.retry_in, LOOK_AGAIN)
        return LOOK_AGAIN if any(slot.suspended for slot in agents_of(node.root)) else None


def _do_nothing(*_: object) -> None:
    """Do nothing. This is the default of `at_death` and `at_return`, until the run sets other functions."""


def _agents(part: Slot | Supervisor) -> Iterable[Slot]:
    """Return an agent and all agents below it, or the agents below a supervisor."""
    if not isinstance(part, Slot):
        return agents_of(part)
    below = children_of(part)
    return (part,) if below is None else (part, *agents_of(below))


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of several waits is over, and cancel the others."""
    async with trio.open_nursery() as nursery:

        async def wait(for_: Callable[[], Awaitable[object]]) -> None:
            await for_()
            nursery.cancel_scope.cancel("another has come first")

        for each in waits:
            nursery.start_soon(wait, each)
