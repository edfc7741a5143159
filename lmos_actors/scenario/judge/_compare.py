"""Judges of `compare`: how a number of the runs changes along a key of the matrix or sweep.

All seeds and trials of one combination count as one point, with their median. The other keys are held fixed:
each of their combinations is judged.
"""

from __future__ import annotations

import json
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.reports import CheckResult

from ..model import Compare
from ._judge import NAMED, kind_of, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.reports import RunResult

    from ..model import AnyCheck
    from ._judge import PlaceOf


def judge_compared(
    checks: Sequence[AnyCheck], runs: Sequence[RunResult], place: PlaceOf, *, narrowed: Sequence[str] = ()
) -> list[CheckResult]:
    """Judge the `compare` checks of a file over all its runs, in the order of the file.

    Checks across a key that the selection of runs has `narrowed` to one value are left out.
    """
    return [
        _judged(check, runs, place(index))
        for index, check in enumerate(checks)
        if isinstance(check, Compare) and check.across not in narrowed
    ]


def _judged(check: Compare, runs: Sequence[RunResult], place: str) -> CheckResult:
    rows = _rows(check, runs)
    bad = [row for row in rows if not row.ok]
    saw = "; ".join(row.saw for row in (bad or rows)[:NAMED])
    more = len(bad or rows) - NAMED
    tolerance = f", give or take {check.tolerance:g}" if check.tolerance else ""
    return CheckResult(
        name=name_of(check),
        kind=kind_of(check),
        ok=bool(rows) and not bad,
        expected=f"{check.metric} {check.trend} across {check.across}{tolerance}",
        saw=(saw + (f"; and {more} more combinations" if more > 0 else "")) or "no runs",
        place=place,
    )


@attrs.frozen
class _Row:
    """The verdict on one combination of the keys that the check does not compare."""

    ok: bool
    saw: str


def _rows(check: Compare, runs: Sequence[RunResult]) -> list[_Row]:
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(_label(run, but=check.across), []).append(run)
    return [_row(check, label, members) for label, members in groups.items()]


def _row(check: Compare, label: str, runs: list[RunResult]) -> _Row:
    where = f" ({label})" if label else ""
    points: dict[str, tuple[Any, list[float]]] = {}
    for run in runs:
        number = run.metrics.get(check.metric)
        if check.across not in run.values or number is None:
            what = check.metric if check.across in run.values else check.across
            return _Row(False, f"it cannot be computed: {what} has no value in the run {run.label}")
        value = run.values[check.across]
        points.setdefault(_text(value), (value, []))[1].append(number)
    found = [(value, median(numbers)) for value, numbers in _in_order(list(points.values()))]
    saw = ", ".join(f"{number:.6g} at {_text(value)}" for value, number in found) + where
    if len(found) < 2:
        return _Row(False, f"it cannot be computed: {check.across} has one value alone, {saw}")
    return _Row(_is_trend(check, [number for _, number in found]), saw)


def _is_trend(check: Compare, numbers: list[float]) -> bool:
    """Return whether numbers follow the trend of a check.

    Single steps may go the other way by at most the tolerance of the check.
    """
    tolerance = check.tolerance
    if check.trend == "constant":
        return max(numbers) - min(numbers) <= tolerance
    sign = _SIGNS[check.trend]
    steps = [sign * (after - before) for before, after in pairwise(numbers)]
    if not tolerance:
        return all(step > 0 for step in steps)
    return all(step >= -tolerance for step in steps) and sign * (numbers[-1] - numbers[0]) > 0


_SIGNS: Final = {"increasing": 1, "decreasing": -1}


def _in_order(points: list[tuple[Any, list[float]]]) -> list[tuple[Any, list[float]]]:
    """Return points sorted by their values if these are numbers, and in the order of the file otherwise."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value, _ in points)
    return sorted(points, key=lambda point: point[0]) if numbers else points


def _label(run: RunResult, *, but: str) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in run.values.items() if name != but)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
