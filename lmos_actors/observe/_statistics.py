"""How much a node has done: sums over the agents of its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from lmos_actors._budget import BudgetStatistics
    from lmos_actors.actors import LocalLink, Runtime


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


def statistics_of(rt: Runtime, memory: BudgetStatistics) -> NodeStatistics:
    """Count over all agents that are in the tree now: those at rest are in sums, all others are visited.

    Nobody else has a turn meanwhile, and there may be very many agents; see `_tally.py`.
    """
    tally = rt.tally
    others: list[LocalLink] = tally.settle(len(tally.loose))
    agents = len(others)
    waiting = running = 0
    accepted = handled = cancelled = dropped = dead_lettered = refused = restarts = 0
    for slot in others:
        inline, more = slot.inline, slot.more
        accepted += slot.accepted + inline
        handled += slot.handled + inline
        restarts += max(0, slot.incarnation - 1)
        waiting += slot.waiting()
        if more is not None:
            running += slot.running()
            cancelled += more.cancelled
            dropped += more.dropped
            dead_lettered += more.dead_lettered
            refused += more.refused
    for sums in tally.at_rest.values():
        agents += sums.agents
        accepted += sums.accepted
        handled += sums.handled
        cancelled += sums.cancelled
        dropped += sums.dropped
        dead_lettered += sums.dead_lettered
        refused += sums.refused
        restarts += sums.restarts
    return NodeStatistics(
        agents=agents,
        supervisors=len(tally.supervisors),
        accepted=accepted,
        handled=handled,
        cancelled=cancelled,
        dropped=dropped,
        dead_lettered=dead_lettered,
        waiting=waiting,
        running=running,
        refused=refused,
        restarts=restarts,
        dead_letters=rt.dead_letter_count,
        memory=memory,
    )
