"""Comparison of two message logs, run by run; the first difference is shown side by side."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import zip_longest
from json import dumps
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.reports import as_text, message_text, read_record
from lmos_actors.scenario.judge import LogFile, compare_heads, compare_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.scenario.judge import Divergence, FieldDifference, LoggedRun, LogLine


@attrs.frozen(kw_only=True)
class Compared:
    """Two compared runs, with the `places` where they begin in their logs, and the `problems` of the logs."""

    places: tuple[str, str]
    labels: tuple[str, str]
    heads: tuple[FieldDifference, ...]
    records: Divergence
    problems: tuple[str | None, str | None]

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return self.records.equal and not self.heads


def diff_logs(first: str, second: str, *, run: int | None, context: int, json: bool) -> int:
    """Compare two logs, show the first difference, and return the exit code.

    Raises FileError, ConfigError.
    """
    compared: Compared | None = None
    counts = [0, 0]
    with ExitStack() as stack:
        files = [stack.enter_context(LogFile(path)) for path in (first, second)]
        for one, other in zip_longest(*(_chosen(file, run) for file in files)):
            counts = [counts[0] + (one is not None), counts[1] + (other is not None)]
            if one is not None and other is not None and (compared is None or compared.equal):
                compared = _compare(one, other, context)
        cuts = (files[0].cut, files[1].cut)
    missing = _missing((first, second), counts, run)
    if compared is None:
        number = counts.index(0)
        raise ConfigError(f"holds no run: {cuts[number]}", (first, second)[number])
    if json:
        print(dumps(_as_data(compared, missing, cuts), ensure_ascii=False, indent=2))
    else:
        for name, cut in zip((first, second), cuts, strict=True):
            if cut is not None:
                print(f"note: {name}: {cut}")
        _show(compared, (first, second), missing)
    return 0 if compared.equal and not missing else 1


def _chosen(file: LogFile, run: int | None) -> Iterator[LoggedRun]:
    number = 0
    for number, logged in enumerate(file.runs(), start=1):
        if run is None or number == run:
            yield logged
    if run is not None and number < run:
        runs = f"{number} run{'s' * (number != 1)}"
        raise ConfigError(f"there are {runs} in {file.name}, none is number {run}", "--run")


def _compare(one: LoggedRun, other: LoggedRun, context: int) -> Compared:
    records = compare_records(one, other, context)
    for logged in (one, other):
        logged.skip()
    return Compared(
        places=(one.place, other.place),
        labels=(str(one.run.get("label", "")), str(other.run.get("label", ""))),
        heads=compare_heads(one.head.data, other.head.data),
        records=records,
        problems=(one.problem, other.problem),
    )


def _missing(names: tuple[str, str], counts: list[int], run: int | None) -> str:
    if run is not None or counts[0] == counts[1]:
        return ""
    runs = [f"{count} run{'s' * (count != 1)} in {name}" for name, count in zip(names, counts, strict=True)]
    return f"{runs[0]}, {runs[1]}"


# --- for machines


def _as_data(compared: Compared, missing: str, cuts: tuple[str | None, str | None]) -> dict[str, Any]:
    records = compared.records
    sides = [
        {"place": place, "run": label, "problem": problem, "cut": cut}
        for place, label, problem, cut in zip(
            compared.places, compared.labels, compared.problems, cuts, strict=True
        )
    ]
    return {
        "equal": compared.equal and not missing,
        "first": sides[0],
        "second": sides[1],
        "heads": [attrs.asdict(found) for found in compared.heads],
        "common": records.common,
        "before": [line.data for line in records.before],
        "divergence": None
        if records.equal
        else {
            "first": [line.data for line in records.first],
            "second": [line.data for line in records.second],
            "fields": [attrs.asdict(found) for found in records.fields],
        },
        "runs": missing or None,
    }


# --- for people


def _show(compared: Compared, names: tuple[str, str], missing: str) -> None:
    for place, problem in zip(compared.places, compared.problems, strict=True):
        if problem is not None:
            print(f"note: {place}: {problem}")
    if missing:
        print(f"the number of runs differs: {missing}")
    for found in compared.heads:
        print(f"the heads differ: {found.name}  {as_text(found.first)} | {as_text(found.second)}")
    records = compared.records
    if records.equal:
        print(f"{'equal' if compared.equal else 'the records are equal'}: {records.common} records")
        return
    print(f"{compared.places[0]} {compared.labels[0]} | {compared.places[1]} {compared.labels[1]}")
    print(f"the first {records.common} records are equal" if records.common else "no record is equal")
    for line in records.before:
        print(f"    {line_text(line)}")
    for found in records.fields:
        print(f"differs in {found.name}: {as_text(found.first)} | {as_text(found.second)}")
    if sys.stdout.isatty():
        _side_by_side(records, names)
    else:
        for mark, lines in (("<", records.first), (">", records.second)):
            for line in lines:
                print(f"  {mark} {line_text(line)}")
            if not lines:
                print(f"  {mark} (the log has ended)")


def _side_by_side(records: Divergence, names: tuple[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True)
    for name in names:
        table.add_column(Text(name), ratio=1, overflow="fold")
    for number, (left, right) in enumerate(zip_longest(records.first, records.second)):
        cells = ["(the log has ended)" if line is None else line_text(line) for line in (left, right)]
        style = "bold" if number == 0 else ""
        table.add_row(*(Text(cell, style=style) for cell in cells))
    Console(highlight=False).print(table)


def line_text(line: LogLine) -> str:
    """Return a record as one line, its number first."""
    record = read_record(line.text)
    return line.text if record is None else f"{record.number:>5}  {message_text(record)}"
