"""The report files of one call of `run`: opened before anything runs, written during and after it.

A message log is written in place as runs end, since it is long, and useful even if the process is killed. The
other files are written as `_written_files.py` describes.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.reports import FileResult, cut_data, cut_of, missing_lines

from .._written_files import Target, opened_file, same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lmos_actors.reports import Missing, RunResult

Kind: TypeAlias = Literal["log", "junit", "html", "sequence", "csv"]
KINDS: Final[tuple[Kind, ...]] = ("log", "junit", "html", "sequence", "csv")
_NAMES: Final[dict[Kind, str]] = {
    "log": "message log",
    "junit": "JUnit report",
    "html": "HTML report",
    "sequence": "sequence diagram",
    "csv": "CSV file",
}
_LOGS: Final = frozenset({"log", "html", "sequence"})

MOST_KEPT = 200_000
"""Maximum lines of logs kept for the page: of passed runs, and the same number of failed runs."""


@attrs.define
class _Report:
    """One file to write, and the runs that it reports."""

    kind: Kind
    file: Target
    results: list[tuple[FileResult, FileResult]] = attrs.Factory(list[tuple[FileResult, FileResult]])
    """The results of a file, with the part that this report shows."""
    drawn: RunResult | None = None
    diagram: str = ""
    runs: int = 0
    failed: bool = False
    """Whether it could not be written; it is not tried again."""

    @property
    def path(self) -> str:
        """The path of the file, as requested."""
        return self.file.path

    def part_of(self, result: FileResult) -> FileResult:
        """Return the part of a file's results that this report shows; add an empty one if there is none."""
        own = next((own for whole, own in self.results if whole is result), None)
        if own is None:
            own = attrs.evolve(result, runs=[], missing=[])
            self.results.append((result, own))
        return own

    def draw(self, result: FileResult, run: RunResult) -> None:
        """Make the diagram of a run, unless it has one already; a failed run replaces one that passed."""
        if self.drawn is None or self.drawn.ok > run.ok:
            from lmos_actors.reports import mermaid

            self.drawn, self.diagram = attrs.evolve(run, log=()), mermaid(run, result.name)

    def file_results(self) -> list[FileResult]:
        """Return the results to report, with the comparisons, the duration and the cut of each whole file."""
        return [
            attrs.evolve(
                own, repeated=whole.repeated, compared=whole.compared, seconds=whole.seconds, cut=whole.cut
            )
            for whole, own in self.results
        ]


class Written:
    """The writer of the report files of one call of `run`.

    `asked`: the files that options name; `inputs`: files that must not be overwritten. With `force`, files
    are also written through links, and over files that are not reports.
    """

    def __init__(
        self, asked: Mapping[str, Path | str | None], inputs: Sequence[str], *, force: bool = False
    ) -> None:
        self._force = force
        self._asked: dict[Kind, str] = {
            kind: str(path) for kind in KINDS if (path := asked.get(kind)) is not None
        }
        self._inputs = dict.fromkeys(inputs, "a scenario file")
        self._all: list[_Report] = []
        self.problems: list[tuple[str, str]] = []
        """The files that could not be written, with reasons."""
        self._places: dict[tuple[Kind, str], int] = {}  # in that list
        self._room = {True: MOST_KEPT, False: MOST_KEPT}
        try:
            for kind, path in self._asked.items():
                self._open(kind, path)
        except ConfigError:
            self.close()
            raise

    def open(self, file: str, scenario: Any) -> None:
        """Open the report files that a cell's scenario names. Raises ConfigError if one cannot be written."""
        for entry in scenario.agents.values():
            recording: str | None = getattr(entry, "log", None)
            if recording is None:
                continue
            log = str(Path(file).parent / recording)
            self._inputs.setdefault(log, "a recording")
            for report in self._all:
                if same_file(log, report.path):
                    raise ConfigError(
                        f"is a recording, the {_NAMES[report.kind]} would be written over it", report.path
                    )
        for kind, path in _own(scenario):
            self._open(kind, path)

    def wants_log(self, scenario: Any) -> bool:
        """Return whether any report of this cell contains the messages of its runs."""
        return any(report.kind in _LOGS for report in self._of(scenario))

    def run(self, result: FileResult, run: RunResult, scenario: Any) -> RunResult:
        """Add a run to its reports and write it to its logs. Returns the result to keep, without messages."""
        reports = self._of(scenario)
        run = attrs.evolve(run, logged=max(run.logged, len(run.log)))
        for report in reports:
            if report.kind == "log":
                report.part_of(result).runs.append(attrs.evolve(run, log=()))
                report.runs += 1
                self._try(report, report.file.append, "".join(line + "\n" for line in run.log))
                run = attrs.evolve(run, replay=run.replay or ("" if run.real_time else _replay(report)))
        for report in reports:
            if report.kind == "sequence":
                report.draw(result, run)
            if report.kind != "log":
                log = self._part(run) if report.kind == "html" else ()
                report.part_of(result).runs.append(attrs.evolve(run, log=log))
        return attrs.evolve(run, log=())

    def missing(self, result: FileResult, run: Missing, scenario: Any) -> None:
        """Add a run without a result to its reports."""
        for report in self._of(scenario):
            report.part_of(result).missing.append(run)

    def finish(self) -> list[str]:
        """Write the rest of all reports, whether all runs have a result or not. Returns the written files."""
        for report in self._all:
            if report.kind != "log":
                self._try(report, report.file.write, _text(report))
            else:
                self._try(report, report.file.append, _cut_mark(report))
        return [report.path for report in self._all if report.file.is_regular and not report.failed]

    def _try(self, report: _Report, write: Callable[[str], None], text: str) -> None:
        """Write to a report. A failure is stored and printed, so that runs and other reports continue."""
        if report.failed:
            return
        try:
            write(text)
        except OSError as error:
            report.failed = True
            self.problems.append((report.path, str(error.strerror)))
            print(f"lmos-actors: {error.filename}: {error.strerror}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close all files."""
        for report in self._all:
            report.file.close()

    def _of(self, scenario: Any) -> list[_Report]:
        entries = dict.fromkeys([*self._asked.items(), *_own(scenario)])
        places = dict.fromkeys(self._places[entry] for entry in entries)
        return [self._all[place] for place in places]

    def _part(self, run: RunResult) -> tuple[str, ...]:
        """Return as much of a run's log as may still be kept: its beginning and its end."""
        room = self._room[run.ok]
        if len(run.log) <= room:
            self._room[run.ok] -= len(run.log)
            return run.log
        self._room[run.ok] = 0
        return (*run.log[: room - room // 2], *run.log[len(run.log) - room // 2 :])

    def _open(self, kind: Kind, path: str) -> None:
        if (kind, path) in self._places:
            return
        if path.endswith(".py"):
            raise ConfigError(f"is Python source, the {_NAMES[kind]} would be written over it", path)
        for file, what in self._inputs.items():
            if same_file(path, file):
                raise ConfigError(f"is {what}, the {_NAMES[kind]} would be written over it", path)
        for place, other in enumerate(self._all):
            if same_file(path, other.path):
                if other.kind != kind:
                    raise ConfigError(
                        f"cannot hold both the {_NAMES[other.kind]} and the {_NAMES[kind]}", path
                    )
                self._places[kind, path] = place
                return
        self._places[kind, path] = len(self._all)
        self._all.append(_Report(kind, opened_file(path, grows=kind == "log", force=self._force)))


def _own(scenario: Any) -> Iterator[tuple[Kind, str]]:
    for kind in KINDS:
        path: str | None = getattr(scenario.report, kind)
        if path is not None:
            yield kind, path


def _text(report: _Report) -> str:
    """Return the text to write to a report at the end, or "" for a log, which is written during the runs."""
    from lmos_actors.reports import csv_text, html_page, junit_xml, mark_cut

    results = report.file_results()
    match report.kind:
        case "junit":
            return junit_xml(results)
        case "html":
            names = ", ".join(dict.fromkeys(result.name for result in results))
            return html_page(results, title=names)
        case "csv":
            return csv_text(results)
        case "sequence":
            return mark_cut(report.diagram, results)
        case "log":
            return ""


def _cut_mark(report: _Report) -> str:
    """Return the last line of a log from which runs are missing, or "" if none are missing."""
    results = report.file_results()
    cut, data = cut_of(results), cut_data(results)
    if cut is None or data is None:
        return ""
    mark = {**data, "exit_code": cut.code, "missing": missing_lines(results)}
    return json.dumps({"cut": mark}, separators=(",", ":")) + "\n"


def _replay(report: _Report) -> str:
    if not Path(report.path).is_file():
        return ""
    number = ["--run", str(report.runs)] if report.runs > 1 else []
    return shlex.join(["lmos-actors", "replay", report.path, *number])
