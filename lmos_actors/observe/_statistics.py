"""How much a node has done: sums over the agents of its tree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from lmos_actors.supervision import agents_of, supervisors_of

if TYPE_CHECKING:
    from lmos_actors.actors import Runtime
    from lmos_actors.supervision import Supervisor


@attrs.frozen
class NodeStatistics:
    """Counts over all agents of a node that are in its tree now."""

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


_NOT_SUMMED = ("agents", "supervisors", "dead_letters")


def statistics_of(root: Supervisor, rt: Runtime) -> NodeStatistics:
    """Count over all agents that are in the tree now."""
    totals: Counter[str] = Counter()
    agents = 0
    for slot in agents_of(root):
        agents += 1
        numbers = attrs.asdict(slot.statistics())
        totals.update({name: value for name, value in numbers.items() if isinstance(value, int)})
    names = [a.name for a in attrs.fields(NodeStatistics)]
    counts = {name: totals[name] for name in names if name not in _NOT_SUMMED}
    return NodeStatistics(
        agents=agents,
        supervisors=sum(1 for _ in supervisors_of(root)),
        dead_letters=rt.dead_letter_count,
        **counts,
    )
