"""How much a node has done: sums over the agents of its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lmos_actors.actors import LocalLink
from lmos_actors.supervision import children_of

if TYPE_CHECKING:
    from lmos_actors._budget import BudgetStatistics
    from lmos_actors.actors import Runtime
    from lmos_actors.supervision import Supervisor


@attrs.frozen
class NodeStatistics:
    """Counts over all agents of a node that are in its tree now.

    `memory` is what its peers hold of the node's memory, over all connections.
    """

    agents: int
    supervisors: int
    accepted: int
    handled: int
    cancelled: int
    dropped: int
    dead_lettered: int
    waiting: int
    running: int
    refused: int
    restarts: int
    dead_letters: int
    memory: BudgetStatistics


class _Sums:
    """Running sums over the agents of a tree, and how many agents and supervisors have been met."""

    def __init__(self) -> None:
        self.agents = self.supervisors = 0
        self.at_once = 0  # begun and ended in their askers' steps: accepted and handled, in neither number
        self.accepted = self.handled = self.waiting = self.running = self.restarts = 0
        self.cancelled = self.dropped = self.dead_lettered = self.refused = 0

    def add_children(self, supervisor: Supervisor, below: list[Supervisor]) -> None:
        """Add the agents of one supervisor; append the supervisors below it to `below`.

        There may be very many agents, and nobody else has a turn meanwhile: so an agent at rest costs a few
        additions and no call.
        """
        self.supervisors += 1
        agents = at_once = accepted = handled = restarts = 0
        for child in supervisor.children:
            if not isinstance(child, LocalLink):
                below.append(child)
                continue
            agents += 1
            at_once += child.inline
            accepted += child.accepted
            handled += child.handled
            if child.incarnation > 1:
                restarts += child.incarnation - 1
            if child.more is not None:
                self._add_busy(child, below)
            elif child.queue:
                self.waiting += child.waiting()
        self.agents += agents
        self.at_once += at_once
        self.accepted += accepted
        self.handled += handled
        self.restarts += restarts

    def _add_busy(self, slot: LocalLink, below: list[Supervisor]) -> None:
        """Add what only agents have that have done more than take turns."""
        more = slot.more
        if more is None:
            return
        if slot.queue or more.pending or more.shelf is not None:
            self.waiting += slot.waiting()
        if more.runs or more.pace is not None:
            self.running += slot.running()
        self.cancelled += more.cancelled
        self.dropped += more.dropped
        self.dead_lettered += more.dead_lettered
        self.refused += more.refused
        if more.household is not None:
            children = children_of(slot)
            if children is not None:
                below.append(children)


def statistics_of(root: Supervisor, rt: Runtime, memory: BudgetStatistics) -> NodeStatistics:
    """Count over all agents that are in the tree now."""
    sums = _Sums()
    below = [root]
    while below:
        sums.add_children(below.pop(), below)
    return NodeStatistics(
        agents=sums.agents,
        supervisors=sums.supervisors,
        accepted=sums.accepted + sums.at_once,
        handled=sums.handled + sums.at_once,
        cancelled=sums.cancelled,
        dropped=sums.dropped,
        dead_lettered=sums.dead_lettered,
        waiting=sums.waiting,
        running=sums.running,
        refused=sums.refused,
        restarts=sums.restarts,
        dead_letters=rt.dead_letter_count,
        memory=memory,
    )
