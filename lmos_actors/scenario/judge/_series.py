"""Series: a number sampled over all agents of a population.

Percentiles are by nearest rank over the agents at that instant, however few they are. An agent that does not
run is left out if the formula uses its state. A sample has no value if no agent is left, if the formula
cannot be computed for one of them, or if its values cannot be aggregated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.reports import SeriesResult
from lmos_actors.system.values import show

from ..formulas import FormulaFailed, compile_formula, error_text
from ._expect import nearest_rank
from ._formula_judges import ValueMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model import Series
    from ._formula_judges import JudgeContext

_CONDITIONS: Final = ("fraction", "count")
_TRUTH: Final = frozenset({bool})
_NUMBERS: Final = frozenset({int, float})


class SeriesSampler:
    """The sampler of one series."""

    def __init__(self, name: str, declared: Series, context: JudgeContext) -> None:
        self.name = name
        self.declared = declared
        self.view, _, self.agents, names = context
        self.formula = compile_formula(declared.expr, names)
        self.times: list[float] = []
        self.values: list[float | None] = []
        self.problem = "it was never measured"
        self._state = any(found.startswith("state.") for found in self.formula.names)
        self._before: tuple[float, float] | None = None
        self._seen = False

    def sample(self, now: float) -> None:
        """Take a sample."""
        try:
            value = self._value(now)
        except (LookupError, FormulaFailed) as error:
            value = None
            self.problem = error_text(error)
        except OverflowError:
            value = None
            self.problem = f"the {self.declared.agg} of {self.formula.text} is too large"
        self._seen = self._seen or value is not None
        self.times.append(now)
        self.values.append(value)

    def last(self) -> float:
        """Return the value of the last sample. Raises LookupError if that sample has no value.

        The error is a ValueMissing as long as no sample has had a value.
        """
        value = self.values[-1] if self.values else None
        if value is not None:
            return value
        kind = LookupError if self._seen else ValueMissing
        raise kind(f"series.{self.name} has no value: {self.problem}")

    def result(self) -> SeriesResult:
        """Return the series with all samples."""
        return SeriesResult(
            name=self.name, agg=self.declared.agg, times=tuple(self.times), values=tuple(self.values)
        )

    def metrics(self) -> dict[str, float | None]:
        """Return `NAME.last`, `.min`, `.max` and `.mean`; each is None for a series without values."""
        found = [value for value in self.values if value is not None]
        last = self.values[-1] if self.values else None
        numbers = (last, min(found), max(found), _mean(found)) if found else (None,) * 4
        return {f"{self.name}.{key}": number for key, number in zip(_METRICS, numbers, strict=True)}

    def _value(self, now: float) -> float | None:
        values = self._of_all()
        if not values:
            raise LookupError(f"no agent of {self.declared.of} runs")
        agg = self.declared.agg
        if agg in _CONDITIONS:
            true = sum(values)
            return float(true) if agg == "count" else true / len(values)
        if agg != "rate":
            return float(AGGREGATES[agg](values))
        total = math.fsum(values)
        before, self._before = self._before, (now, total)
        if before is None or now <= before[0]:
            self.problem = "a rate needs two samples"
            return None
        return (total - before[1]) / round(now - before[0], 6)  # whole microseconds: no float noise

    def _of_all(self) -> list[Any]:
        agents, value_of, state = self.agents, self.formula.value, self._state
        condition = self.declared.agg in _CONDITIONS
        slots = self.view.slots(self.declared.of)
        found = agents.of_all(self.formula, slots, state=state)
        if found is not None:
            _, at_once = found
            if set(map(type, at_once)) <= (_TRUTH if condition else _NUMBERS):
                return at_once
        values: list[Any] = []
        for slot in slots:
            if not agents.at(slot, state=state):
                continue
            value = value_of(agents)
            if isinstance(value, bool) is not condition or not isinstance(value, (int, float)):
                what = "neither true nor false" if condition else "no number"
                raise LookupError(f"{self.formula.text} of {slot.path} is {show(value)}, {what}")
            values.append(value)
        return values


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # only the sum is too large, unless one of them is
        return math.fsum(value / len(values) for value in values)


_METRICS: Final = ("last", "min", "max", "mean")

AGGREGATES: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "sum": math.fsum,
    "mean": _mean,
    "min": min,
    "max": max,
    "p50": lambda values: nearest_rank(values, 50),
    "p90": lambda values: nearest_rank(values, 90),
    "p95": lambda values: nearest_rank(values, 95),
    "p99": lambda values: nearest_rank(values, 99),
}
