"""Computation of a formula for all agents of a population at once, as every sample needs it.

Looked up agent by agent, each name of a formula costs some twenty calls, and sampling a population of 100,000
takes minutes. Here a few calls read a name from all agents, and the formula is computed once for each
different row of values. The result is either what a separate computation for each agent would give, or
nothing at all. There is no result if a value is not plain, a name has no value, or the formula cannot be
computed for some agent. The caller then computes the formula agent by agent and so finds the agent that is
the cause.
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
    """A calculator of formulas for many slots at once.

    `fields` returns the attribute and secrecy of each field of a class. `delivered` has the counts by path.
    `extra` returns the value of a name that belongs to no agent.
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
        """Read the agents only once for all formulas in the block; nothing may change during the block."""
        self._in_sample = True
        try:
            yield
        finally:
            self._in_sample = False
            self._kept.clear()

    def with_agents(self, slots: Sequence[Any]) -> Sequence[Any]:
        """Return the slots that have an agent."""
        return self._once(slots, _with_agents)

    def _once(self, slots: Sequence[Any], make: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[Any]:
        if not self._in_sample:
            return make(slots)
        found = self._kept.get((id(slots), make))
        if found is None:  # the slots are kept with it, so that no others get their identity
            found = self._kept[id(slots), make] = slots, make(slots)
        return found[1]

    def values(self, formula: Formula, slots: Sequence[Any]) -> list[Any] | None:
        """Return the values of a formula, one for each of the slots; all the slots must have agents.

        None means that the formula has to be computed for each agent separately.
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
        """Return the values of a name, one for each slot; None for a name that belongs to no agent.

        Raises LookupError.
        """
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
    """Compute a formula for each row. Raises FormulaFailed, and TypeError for a value that is not plain."""
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
    """Return whether equal values of a column are always interchangeable; 1 and true, for example, are not.

    Raises TypeError for a value that is not plain.
    """
    kinds = set(map(type, column))
    if not kinds <= PLAIN or not all(map(math.isfinite, [one for one in column if type(one) is float])):
        raise TypeError
    return float not in kinds and not kinds >= _CONFUSED
