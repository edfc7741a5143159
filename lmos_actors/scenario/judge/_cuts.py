"""Cuts of the network of a run: the nodes that cannot reach each other, and the time of each cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ._judge import NAMED, instant

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class Cut:
    """A cut in force: nodes on one of its sides cannot reach nodes on another.

    Without sides, no node can reach another. If `one_way` is true, only messages from the first side are cut.
    """

    since: float
    sides: tuple[tuple[str, ...], ...]
    one_way: bool = False
    is_down: bool = False
    """True if there is one side, whose nodes have ended and not begun again."""

    def __str__(self) -> str:
        since = f"since {instant(self.since)}"
        if self.is_down:
            (nodes,) = self.sides
            return f"{since} {_listing(nodes)} {_verb(nodes)} down"
        if not self.sides:
            return f"{since} all nodes are cut off from one another"
        first, *others = [_listing(side) for side in self.sides]
        if self.one_way:
            return f"{since} {first} {_verb(self.sides[0])} not heard by {' and '.join(others)}"
        return f"{since} {first} {_verb(self.sides[0])} cut off from {' and from '.join(others)}"


def _listing(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more


def _verb(nodes: Sequence[str]) -> str:
    return "is" if len(nodes) == 1 else "are"


def with_cuts(saw: str, cuts: Sequence[Cut]) -> str:
    """Return a text on the observed value, followed by the cuts in force that may be the reason."""
    return "; ".join([saw, *map(str, cuts)])
