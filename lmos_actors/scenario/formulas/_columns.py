"""A formula computed for all agents of a population at once, as every sample has it done.

Looked up for one agent after another, the names of a formula cost some twenty calls each, and a population
of 100,000 is sampled for minutes. Here a name is read from all agents by a few calls, and the formula
computed once for each different row of values. That gives what a look at each agent gives, or nothing at
all: where a value is not plain, a name has none, or the formula cannot be computed for one of them, the
caller looks at them one by one and finds out which it is.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ._formulas import FormulaFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from ._formulas import Formula

PLAIN: Final = frozenset({bool, int, float, str, type(None)})
"""The types of values that are the same if they are equal and of one type."""

_CONFUSED: Final = frozenset({bool, int})
"""The types of which values are equal that are not the same: true and 1."""


class Columns:
    """Computes formulas for many slots. `fields` returns attribute and secrecy of the fields of a class.

    `delivered` are the counts by path, `extra` returns the names that are of no agent.
    """

    def __init__(
        self,
        fields: Callable[[Any], Mapping[str, tuple[str, bool]]],
        delivered: Mapping[str, int],
        extra: Callable[[str], Any],
    ) -> None:
        self._fields = fields
        self._delivered = delivered
        self._more = extra
        self._in_sample = False
        self._kept: dict[Any, tuple[Sequence[Any], Sequence[Any]]] = {}  # by the identity of the slots

    @contextmanager
    def sample(self) -> Generator[None]:
        """Read agents once for all formulas, as long as the block is open: nothing may change meanwhile."""
        self._in_sample = True
        try:
            yield
        finally:
            self._in_sample = False
            self._kept.clear()

    def with_agents(self, slots: Sequence[Any]) -> Sequence[Any]:
        """Return those of the slots that have their agents."""
        return self._once(slots, _with_agents)

    def _once(self, slots: Sequence[Any], make: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[Any]:
        if not self._in_sample:
            return make(slots)
        found = self._kept.get((id(slots), make))
        if found is None:  # the slots are kept with it, so that no others get their identity
            found = self._kept[id(slots), make] = slots, make(slots)
        return found[1]

    def values(self, formula: Formula, slots: Sequence[Any]) -> list[Any] | None:
        """Return the values of a formula, one for each of these slots, which all have their agents.

        None: it takes a look at each.
        """
        rows: dict[str, list[Any]] = {}
        others: dict[str, Any] = {}
        try:
            for name in formula.names:
                column = self._column(name, slots)
                if column is None:
                    others[name] = self._more(name)
                else:
                    rows[name] = column
            return _computed(formula, rows, others, len(slots))
        except (AttributeError, LookupError, OverflowError, TypeError, FormulaFailed):
            return None

    def _column(self, name: str, slots: Sequence[Any]) -> list[Any] | None:
        """Return the values of a name; None for one that is of no agent. Raises LookupError."""
        if name.startswith("state."):
            agents = self._once(slots, _agents_of)
            fields = {self._fields(cls)[name[6:]] for cls in set(map(type, agents))}
            ((attribute, secret),) = fields or {("", True)}  # TypeError where classes differ
            if secret:
                raise LookupError(name)
            return list(map(attrgetter(attribute), agents))
        if name in ("mailbox.depth", "mailbox.waiting"):
            return [slot.accepted - slot.begun for slot in slots]
        if name == "mailbox.size":
            return [slot.mailbox.size for slot in slots]
        if name == "mailbox.accepted":
            return [slot.accepted + slot.inline for slot in slots]
        if name == "mailbox.handled":
            return [slot.handled + slot.inline for slot in slots]
        if name.startswith("mailbox."):
            raise LookupError(name)
        if name == "delivered":
            count = self._delivered.get
            return [count(slot.path, 0) for slot in slots]
        if name == "restarts":
            return [slot.restarts for slot in slots]
        return None


def _with_agents(slots: Sequence[Any]) -> Sequence[Any]:
    found = [slot for slot in slots if slot.agent is not None]
    return slots if len(found) == len(slots) else found


def _agents_of(slots: Sequence[Any]) -> Sequence[Any]:
    return [slot.agent for slot in slots]


def _computed(
    formula: Formula, columns: Mapping[str, list[Any]], others: dict[str, Any], count: int
) -> list[Any]:
    """Compute a formula for each row. Raises TypeError for a value that is not plain, FormulaFailed."""
    if not columns:
        return [formula.value(others.__getitem__)] * count
    exact = False not in [_is_exact(column) for column in columns.values()]
    if formula.text in columns:
        return columns[formula.text]
    alone = len(columns) == 1
    (keys,) = columns.values() if alone else (list(zip(*columns.values(), strict=True)),)
    look = others.__getitem__

    def compute(key: Any) -> Any:
        others.update(zip(columns, (key,) if alone else key, strict=True))
        return formula.value(look)

    if not exact:
        return list(map(compute, keys))
    found = {key: compute(key) for key in dict.fromkeys(keys)}
    return [found[key] for key in keys]


def _is_exact(column: list[Any]) -> bool:
    """Return whether equal values of a column are the same. Raises TypeError for one that is not plain."""
    kinds = set(map(type, column))
    if not kinds <= PLAIN or not all(map(math.isfinite, [one for one in column if type(one) is float])):
        raise TypeError
    return float not in kinds and not kinds >= _CONFUSED
