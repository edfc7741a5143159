"""Counts of a node's agents by class: the agents that exist now, and totals over all agents so far.

A node may have very many agents, so a count lets other tasks run in between, and its numbers describe one
instant only approximately. The totals of agents that no longer exist are kept, so that no total ever falls: a
scraper would read a falling counter as a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.supervision import agent_class, agents_of

from ._request_counts import OTHER

if TYPE_CHECKING:
    from lmos_actors.actors import Slot, Totals
    from lmos_actors.supervision import Supervisor

BATCH: Final = 500
"""Agents that are counted between two checkpoints."""

OUTCOMES: Final = ("handled", "cancelled", "dropped", "dead_lettered", "refused")
"""The ways a message can leave a mailbox, or not get into it."""

NO_CLASS: Final = "agent"
"""The class label of an agent that has not run yet and whose factory does not name its class."""


@attrs.define
class ClassCount:
    """The counts of one class. Totals cover all agents so far; the other fields describe the present."""

    handled: int = 0
    cancelled: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    refused: int = 0
    restarts: int = 0
    depth: int = 0
    deepest: int = 0
    parked: int = 0
    running: int = 0
    statuses: dict[str, int] = attrs.field(factory=dict[str, int])

    def add_done(self, slot: Slot) -> None:
        """Add the totals of one agent."""
        extra = slot.extra
        self.handled += slot.handled + slot.inline
        if slot.incarnation > 1:
            self.restarts += slot.incarnation - 1
        if extra is not None:
            self.cancelled += extra.cancelled
            self.dropped += extra.dropped
            self.dead_lettered += extra.dead_lettered
            self.refused += extra.refused

    def add_sums(self, sums: Totals) -> None:
        """Add the sums of the agents of one class that are at rest."""
        for total in TOTALS:
            setattr(self, total, getattr(self, total) + getattr(sums, total))
        self.statuses["running"] = self.statuses.get("running", 0) + sums.agents

    def add(self, slot: Slot) -> None:
        """Add one agent that exists now."""
        self.add_done(slot)
        status: str = slot.status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        depth = slot.accepted - slot.begun
        if depth:
            self.depth += depth
            self.deepest = max(self.deepest, depth)
        extra = slot.extra
        if extra is not None:
            self.parked += len(extra.parked or ())
            self.running += slot.running()


TOTALS: Final = (*OUTCOMES, "restarts")


@attrs.frozen
class Census:
    """The result of one count: by class, and per agent unless there are many."""

    classes: dict[str, ClassCount]
    agents: int
    depths: list[tuple[str, str, int]] | None
    """Path, class and waiting messages of each agent."""


class AgentCensus:
    """A counter of the agents below `root`, by at most `classes` classes.

    If there are at most `shown` agents, each of them is listed, too.
    """

    def __init__(self, root: Supervisor, classes: int, shown: int) -> None:
        self._root = root
        self._most = classes
        self._shown = shown
        self._gone: dict[str, ClassCount] = {}
        self._reported: dict[str, ClassCount] = {}

    def gone(self, slot: Slot) -> None:
        """Keep the totals of a slot that no agent will use again."""
        self._of(self._gone, class_name(slot)).add_done(slot)

    def _of(self, counts: dict[str, ClassCount], name: str) -> ClassCount:
        found = counts.get(name)
        if found is None:
            name = name if name in self._reported or len(self._reported) < self._most else OTHER
            self._reported.setdefault(name, ClassCount())
            found = counts.setdefault(name, ClassCount())
        return found

    async def take(self) -> Census:
        """Count all agents, with checkpoints in between."""
        tally = self._root.rt.tally
        for _ in range(0, len(tally.untallied), BATCH):
            tally.settle(BATCH)
            await trio.lowlevel.checkpoint()
        classes = {name: attrs.evolve(count, statuses={}) for name, count in self._gone.items()}
        number = 0
        for cls, sums in tally.at_rest.items():
            number += sums.agents
            self._of(classes, cls.__name__).add_sums(sums)
        for place, slot in enumerate(tally.others(), start=1):
            number += 1
            self._of(classes, class_name(slot)).add(slot)
            if not place % BATCH:
                await trio.lowlevel.checkpoint()
        # No total may fall, even if an agent ended during the count.
        for name, reported in self._reported.items():
            count = classes.setdefault(name, ClassCount())
            for total in TOTALS:
                reached = max(getattr(reported, total), getattr(count, total))
                setattr(count, total, reached)
                setattr(reported, total, reached)
        depths = None
        if number <= self._shown:
            slots = agents_of(self._root)
            depths = [(slot.path, class_name(slot), slot.accepted - slot.begun) for slot in slots]
        return Census(classes, number, depths)


def class_name(slot: Slot) -> str:
    """Return the class name of the agents at a path in the tree, even while none of them runs."""
    agent: Any = slot.agent
    if agent is not None:
        return str(agent.__class__.__name__)
    op = next(iter(slot.table.values()), None)
    if op is not None:
        return op.owner
    made = agent_class(slot.spec)
    return NO_CLASS if made is None else made.__name__
