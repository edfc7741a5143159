"""Measured series as CSV, one value per line, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from ._messages import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._results import FileResult, RunResult

_BEFORE = ("file", "name")
_AFTER = ("seed", "trial", "ended", "series", "agg", "time", "value")


def csv_text(results: Sequence[FileResult]) -> str:
    """Write the series of all runs: a line for each value, in the columns

    file, name, one for each name of matrix or sweep, seed, trial, ended, series, agg, time, value.

    A number that a run has but once, such as the instant at which a check was met, is a line with an empty
    time and `metric` in the column `agg`. Times are seconds of virtual time. What could not be computed has
    an empty value.
    """
    names = list(dict.fromkeys(name for result in results for run in result.runs for name in run.values))
    taken = {*_BEFORE, *_AFTER}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_BEFORE, *(f"value.{name}" if name in taken else name for name in names), *_AFTER])
    for result in results:
        for run in result.runs:
            writer.writerows(_rows(result, run, names))
    return out.getvalue().encode("utf-8", "backslashreplace").decode()


def _rows(result: FileResult, run: RunResult, names: Sequence[str]) -> Iterator[list[object]]:
    values = [_cell(run.values[name]) if name in run.values else "" for name in names]
    head = [result.file, result.name, *values, run.seed, run.trial, run.ended]
    for series in run.series:
        for time, value in zip(series.times, series.values, strict=True):
            yield [*head, series.name, series.agg, _number(time), _number(value)]
    for name, metric in run.metrics.items():
        yield [*head, name, "metric", "", _number(metric)]


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value)).removesuffix(".0")


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(clean(value), ensure_ascii=False)
