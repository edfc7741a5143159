"""The machine on which the node of a run lives: its disk, and the end of the node as by `kill -9`.

`Machine.kill` ends the node at one instant: its store is that of a dead process, its connections are cut, its
agents are gone, and nothing that it does while it unwinds is a record of the run. `RunEnvironment` opens the
next one, with the same disk, when its time has come. Callers outside the node see what callers of a dead
process see: `OutcomeUnknown` for what they had asked, `AgentUnavailable` until it is there again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors.persistence import SimulatedDisk
from lmos_actors.supervision import agents_of

from ..values import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Entropy
    from lmos_actors.node import Node
    from lmos_actors.persistence import WritesAtCrash
    from lmos_actors.transport import MemoryNetwork

    from ..model import Store
    from ._watch import Watch

LOOK_AGAIN = 0.01
"""Seconds until it is looked at again whether all agents run, after a full disk."""


class Machine:
    """The machine of one run. `network` is that of its node, where it listens."""

    def __init__(self, watch: Watch, network: MemoryNetwork | None = None) -> None:
        self.disk: SimulatedDisk | None = None
        """The disk, where agents of the file are durable."""
        self.deaths = 0
        """How often the node was killed."""
        self.is_down = False
        """Whether steps cannot use the node: it was killed, or its agents are being started again."""
        self.has_node = False
        self.back_at = 0.0
        """The instant at which the node is to be started again."""
        self.at_death: Callable[[], object] = _do_nothing
        """Called before the node is killed."""
        self._watch = watch
        self._network = network
        self._node: Node | None = None
        self._killed = trio.Event()
        self._up = trio.Event()
        self._full = 0
        self._factors: list[float] = []

    def put_in_disk(self, declared: Store | None, entropy: Entropy) -> SimulatedDisk:
        """Make the disk; its commits take the time that the file says."""
        times = entropy.stream("disk latency")

        def seconds() -> float:
            return 0.0 if declared is None else draw(declared.latency, times)

        self.disk = SimulatedDisk(entropy.stream("disk"), seconds)
        return self.disk

    # ---- the node

    def power_on(self, node: Node) -> None:
        """Take in a node that has been opened; its agents may not have started yet."""
        self._node = node
        self.has_node = True

    def came_up(self) -> None:
        """All agents of the node have been started."""
        self.is_down = False
        self._killed = trio.Event()
        self._up.set()

    def kill(self, writes: WritesAtCrash, down: float) -> None:
        """End the node now, and have it started again after so many seconds."""
        assert self._node is not None
        self.at_death()
        self.deaths += 1
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
        """Wait until the node is there, and its agents have been started."""
        while self.is_down:
            await self._up.wait()

    def call_at(self, when: float, fn: Callable[[], object]) -> None:
        """Have a function called at an instant, also if the node ends before that."""
        clock: Any = trio.lowlevel.current_clock()
        clock.call_at(when, fn)

    # ---- the disk

    def fill_disk(self) -> None:
        """Let there be no room on the disk."""
        self._full += 1
        self._change_disk()

    def clear_disk(self) -> None:
        """Let there be room again, unless something else takes it too."""
        self._full -= 1
        self._change_disk()

    def slow_disk(self, factor: float) -> None:
        """Let commits take so many times as long, on top of what slows them already."""
        self._factors.append(factor)
        self._change_disk()

    def undo_slow_disk(self, factor: float) -> None:
        """End what `slow_disk` has begun."""
        self._factors.remove(factor)
        self._change_disk()

    def _change_disk(self) -> None:
        assert self.disk is not None
        self.disk.full = self._full > 0
        self.disk.factor = math.prod(sorted(self._factors))

    def look_again_in(self) -> float | None:
        """Return when to look again whether all durable agents can run; None if they do."""
        node = self._node
        if node is None or self.is_down:
            return LOOK_AGAIN
        keeping = node.root.rt.keeping
        if keeping is not None and keeping.retry_in is not None:
            return max(keeping.retry_in, LOOK_AGAIN)
        return LOOK_AGAIN if any(slot.suspended for slot in agents_of(node.root)) else None


def _do_nothing() -> None:
    """Be what is called before the node is killed, until the run sets it."""
