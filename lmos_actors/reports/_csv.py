"""Measured series as CSV, one value per line, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from ._messages import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._results import FileResult, Missing, RunResult

_BEFORE = ("file", "name")
_AFTER = ("seed", "trial", "ended", "series", "agg", "time", "value")


def csv_text(results: Sequence[FileResult]) -> str:
    """Return the series of all runs as CSV, one value per line.

    The columns are file, name, one for each name in a matrix or sweep, seed, trial, ended, series, agg, time,
    value.

    A number that a run has only once, such as the instant at which a check was met, is a line with an empty
    time and `metric` in the column `agg`. Times are seconds of virtual time. A value that could not be
    computed is empty.

    A file that was ended early begins with lines that have `interrupted` (or `time limit`, `fail-fast`) in
    the column `ended`. These lines contain the number of runs with a result, the number requested, and the
    exit code. The file ends with a line `not run` for each run without a result.
    """
    values = [run.values for result in results for run in result.runs]
    values += [run.values for result in results for run in result.missing]
    names = list(dict.fromkeys(name for each in values for name in each))
    taken = {*_BEFORE, *_AFTER}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_BEFORE, *(f"value.{name}" if name in taken else name for name in names), *_AFTER])
    for result in results:
        if result.cut is not None:
            facts = {"runs": len(result.runs), "of": result.asked, "exit code": result.exit_code()}
            unknown = [""] * (len(names) + 2)
            for name, number in facts.items():
                writer.writerow([result.file, result.name, *unknown, result.cut.why, name, "cut", "", number])
        for run in result.runs:
            writer.writerows(_rows(result, run, names))
        for missing in result.missing:
            writer.writerow([*_head(result, missing, names), "not run", "", "", "", ""])
    return out.getvalue().encode("utf-8", "backslashreplace").decode()


def _head(result: FileResult, run: RunResult | Missing, names: Sequence[str]) -> list[object]:
    values = [_cell(run.values[name]) if name in run.values else "" for name in names]
    return [result.file, result.name, *values, run.seed, run.trial]


def _rows(result: FileResult, run: RunResult, names: Sequence[str]) -> Iterator[list[object]]:
    head = [*_head(result, run, names), run.ended]
    for series in run.series:
        for time, value in zip(series.times, series.values, strict=True):
            yield [*head, series.name, series.agg, _number(time), _number(value)]
    for name, metric in run.metrics.items():
        yield [*head, name, "metric", "", _number(metric)]


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value)).removesuffix(".0")


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(clean(value), ensure_ascii=False)
