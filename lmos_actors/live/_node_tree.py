"""The tree of a node, as its views `tree`, `find` and `top` show it: supervisors, agents and their sums."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import attrs

from lmos_actors.observe import class_name
from lmos_actors.supervision import (
    Pool,
    Supervisor,
    agent_class,
    agents_of,
    children_between,
    children_of,
    numbered_children,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lmos_actors.actors import Slot

    from ._merge_patch import State
    from ._survey import Order, Survey


class NodeTree:
    """The tree below a root supervisor; its sums come from a survey. See `Tree`."""

    def __init__(self, root: Supervisor, survey: Survey) -> None:
        self.root = root
        self._survey = survey

    @property
    def passes(self) -> int:
        """See `Tree`."""
        return self._survey.passes

    def path_of(self, place: Slot | Supervisor) -> str:
        """See `Tree`."""
        return "" if isinstance(place, Supervisor) and place.is_root else place.path

    def class_of(self, agent: Slot) -> str:
        """See `Tree`."""
        return class_name(agent)

    def row_of(self, place: Slot | Supervisor) -> State:
        """See `Tree`."""
        if isinstance(place, Supervisor):
            row: State = {
                "kind": "supervisor",
                "name": place.label,
                "strategy": place.spec.strategy,
                "status": "running" if place.is_root else place.status,
                "life": place.incarnation,
            }
            if isinstance(pool := place.loop.made_from, Pool):
                cls = agent_class(pool.member(1))
                row |= {"pool": pool.by, **({} if cls is None else {"class": cls.__name__})}
            return row | self._sums_of(place)
        row = {
            "kind": "agent",
            "name": place.label,
            "class": class_name(place),
            "status": place.status,
            "life": place.incarnation,
            "waiting": max(0, place.accepted - place.begun),
            "handled": place.handled + place.inline,
            "running": place.running(),
        }
        if place.held:
            row["held"] = True
        below = children_of(place)
        return row if below is None else row | self._sums_of(below)

    def _sums_of(self, supervisor: Supervisor) -> State:
        """Return the number of children, and the sums below if they are known."""
        found: State = {"children": size_of(supervisor)}
        sums = self._survey.sums_of(supervisor.path)
        if sums is not None:
            found["below"] = attrs.asdict(sums)
        return found

    def size_of(self, place: Slot | Supervisor) -> int | None:
        """See `Tree`."""
        below = _below(place)
        return None if below is None else size_of(below)

    def children_between(self, place: Slot | Supervisor, begin: int, end: int) -> Sequence[Slot | Supervisor]:
        """See `Tree`."""
        below = _below(place)
        return [] if below is None else children_between(below, begin, end)

    def numbered_children(
        self, place: Slot | Supervisor, names: Iterable[str]
    ) -> Iterable[tuple[int, Slot | Supervisor]]:
        """See `Tree`."""
        below = _below(place)
        return [] if below is None else numbered_children(below, names)

    def agents(self) -> Callable[[int], list[Slot]]:
        """See `Tree`. Only agents that exist now are returned."""
        rest = agents_of(self.root)
        return lambda count: list(islice(rest, count))

    def top(self, by: Order) -> Sequence[tuple[float, Slot | Supervisor]]:
        """See `Tree`."""
        return self._survey.top.get(by, [])


def _below(place: Slot | Supervisor) -> Supervisor | None:
    return place if isinstance(place, Supervisor) else children_of(place)
