"""Statistics of a node: sums over the agents of its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lmos_actors.actors import Totals

if TYPE_CHECKING:
    from lmos_actors._core import BudgetStatistics
    from lmos_actors.actors import Runtime, Slot
    from lmos_actors.persistence import WriterStatistics


@attrs.frozen
class NodeStatistics:
    """Counts over all agents of a node that are in its tree now.

    `memory` is the node's memory that peers hold, over all connections; `store` counts the writes to its
    store, None without one.
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
    store: WriterStatistics | None = None


def statistics_of(rt: Runtime, memory: BudgetStatistics) -> NodeStatistics:
    """Return counts over all agents that are in the tree now.

    Agents at rest are kept as sums, and all others are visited. No other task runs meanwhile, and there may
    be very many agents; see `actors/_tally.py`.
    """
    tally = rt.tally
    others: list[Slot] = tally.settle(len(tally.untallied))
    waiting = running = 0
    visited = Totals()
    for slot in others:
        visited.add(slot, 1)
        visited.accepted += slot.accepted - slot.begun
        waiting += slot.waiting()
        running += slot.running()
    each = (visited, *tally.at_rest.values())
    return NodeStatistics(
        agents=sum(sums.agents for sums in each),
        supervisors=len(tally.supervisors),
        accepted=sum(sums.accepted for sums in each),
        handled=sum(sums.handled for sums in each),
        cancelled=sum(sums.cancelled for sums in each),
        dropped=sum(sums.dropped for sums in each),
        dead_lettered=sum(sums.dead_lettered for sums in each),
        waiting=waiting,
        running=running,
        refused=sum(sums.refused for sums in each),
        restarts=sum(sums.restarts for sums in each),
        dead_letters=rt.dead_letter_count,
        memory=memory,
        store=None if rt.keeping is None else rt.keeping.statistics(),
    )
