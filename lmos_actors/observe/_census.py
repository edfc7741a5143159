"""All agents of a node, counted by their class: as they stand now, and with all that have been there.

A node may have very many of them, so counting gives way to others in between. What agents that are gone for
good have done is kept, so that no total ever falls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.supervision import agent_class, agents_of

from ._tallies import OTHER

if TYPE_CHECKING:
    from lmos_actors.actors import LocalLink, Totals
    from lmos_actors.supervision import Supervisor

AT_ONCE: Final = 500
"""Agents that are counted before others have their turn."""

OUTCOMES: Final = ("handled", "cancelled", "dropped", "dead_lettered", "refused")
"""What becomes of a message."""

NO_CLASS: Final = "agent"
"""The class of what has not run yet, and does not tell."""


@attrs.define
class Count:
    """The agents of one class. Totals are over all that have been there; the rest is as it stands now."""

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

    def add_done(self, slot: LocalLink) -> None:
        """Add what one agent has done."""
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
        """Add the agents of one class that are at rest."""
        for total in TOTALS:
            setattr(self, total, getattr(self, total) + getattr(sums, total))
        self.statuses["running"] = self.statuses.get("running", 0) + sums.agents

    def add(self, slot: LocalLink) -> None:
        """Add one agent that is there."""
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
class Found:
    """What one count has found: by class, and agent by agent unless there are many."""

    classes: dict[str, Count]
    agents: int
    depths: list[tuple[str, str, int]] | None
    """Path, class and waiting messages of each agent."""


class Census:
    """Counts the agents below `root`: of at most `classes` classes, of at most `shown` one by one."""

    def __init__(self, root: Supervisor, classes: int, shown: int) -> None:
        self._root = root
        self._most = classes
        self._shown = shown
        self._gone: dict[str, Count] = {}
        self._told: dict[str, Count] = {}

    def gone(self, slot: LocalLink) -> None:
        """A slot is empty for good."""
        self._of(self._gone, class_name(slot)).add_done(slot)

    def _of(self, counts: dict[str, Count], name: str) -> Count:
        found = counts.get(name)
        if found is None:
            name = name if name in self._told or len(self._told) < self._most else OTHER
            self._told.setdefault(name, Count())
            found = counts.setdefault(name, Count())
        return found

    async def take(self) -> Found:
        """Count. Others have their turns meanwhile, so that the numbers are of one time only by and large."""
        tally = self._root.rt.tally
        for _ in range(0, len(tally.untallied), AT_ONCE):
            tally.settle(AT_ONCE)
            await trio.lowlevel.checkpoint()
        classes = {name: attrs.evolve(count, statuses={}) for name, count in self._gone.items()}
        number = 0
        for cls, sums in tally.at_rest.items():
            number += sums.agents
            self._of(classes, cls.__name__).add_sums(sums)
        for place, slot in enumerate(tally.others(), start=1):
            number += 1
            self._of(classes, class_name(slot)).add(slot)
            if not place % AT_ONCE:
                await trio.lowlevel.checkpoint()
        self._keep_up(classes)
        return Found(classes, number, self._depths() if number <= self._shown else None)

    def _depths(self) -> list[tuple[str, str, int]]:
        slots = agents_of(self._root)
        return [(slot.path, class_name(slot), slot.accepted - slot.begun) for slot in slots]

    def _keep_up(self, classes: dict[str, Count]) -> None:
        """No total falls, also where an agent has gone while others were counted."""
        for name, told in self._told.items():
            count = classes.setdefault(name, Count())
            for total in TOTALS:
                reached = max(getattr(told, total), getattr(count, total))
                setattr(count, total, reached)
                setattr(told, total, reached)


def class_name(slot: LocalLink) -> str:
    """Return the name of the class of the agents at a place, also while none of them runs."""
    agent: Any = slot.agent
    if agent is not None:
        return str(agent.__class__.__name__)
    op = next(iter(slot.table.values()), None)
    if op is not None:
        return op.owner
    made = agent_class(slot.spec)
    return NO_CLASS if made is None else made.__name__
