"""The report files of one call of `run`: opened before anything runs, written as it goes and at the end."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from lmos_actors._errors import ConfigError
from lmos_actors.reports import FileResult, csv_text, html_page, junit_xml, mermaid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.reports import RunResult

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
"""How many lines of logs are kept for the page: of the runs that passed, and again of those that failed."""


@attrs.define
class _Report:
    """One file to write, and what it will tell of."""

    kind: Kind
    path: str
    file: Any
    results: list[tuple[FileResult, FileResult]] = attrs.Factory(list[tuple[FileResult, FileResult]])
    """The results of a file, and the part of them that this report tells."""
    drawn: RunResult | None = None
    diagram: str = ""
    runs: int = 0
    begun: bool = False

    def write(self, text: str) -> None:
        """Write at the end of what is written; what the file held before is gone. Raises ConfigError."""
        try:
            if not self.begun:
                self.begun = True
                with suppress(OSError):  # a pipe has no length
                    self.file.truncate(0)
            self.file.write(text)
            self.file.flush()
        except OSError as error:
            raise unwritten(self.path, error) from None

    def add(self, result: FileResult, run: RunResult) -> None:
        """Note a run; of the file's results only those that have this report are told there."""
        own = next((own for whole, own in self.results if whole is result), None)
        if own is None:
            own = attrs.evolve(result, runs=[])
            self.results.append((result, own))
        own.runs.append(run)

    def draw(self, result: FileResult, run: RunResult) -> None:
        """Draw the first run, and instead of it the first that failed."""
        if self.drawn is None or self.drawn.ok > run.ok:
            self.drawn, self.diagram = attrs.evolve(run, log=()), mermaid(run, result.name)

    def told(self) -> list[FileResult]:
        """Give the results to tell, with what is known by now of the files as a whole."""
        return [
            attrs.evolve(own, repeated=whole.repeated, compared=whole.compared, seconds=whole.seconds)
            for whole, own in self.results
        ]


class Written:
    """Writes report files; `asked` are those of the command line, `inputs` what must not be written over."""

    def __init__(self, asked: Mapping[Kind, str | None], inputs: Sequence[str]) -> None:
        self._asked: dict[Kind, str] = {kind: path for kind in KINDS if (path := asked.get(kind)) is not None}
        self._inputs = dict.fromkeys(inputs, "a scenario file")
        self._all: list[_Report] = []
        self._places: dict[tuple[Kind, str], int] = {}  # in that list
        self._room = {True: MOST_KEPT, False: MOST_KEPT}
        try:
            for kind, path in self._asked.items():
                self._open(kind, path)
        except ConfigError:
            self.close()
            raise

    def open(self, file: str, scenario: Any) -> None:
        """Open what a cell of a file asks for in its `report`. Raises ConfigError if it cannot be written."""
        for entry in scenario.agents.values():
            recording: str | None = getattr(entry, "log", None)
            if recording is not None:
                self._keep_out(str(Path(file).parent / recording), "a recording")
        for kind, path in _own(scenario):
            self._open(kind, path)

    def wants_log(self, scenario: Any) -> bool:
        """Whether the messages of a run of this cell are written, or shown, somewhere."""
        return any(report.kind in _LOGS for report in self._of(scenario))

    def run(self, result: FileResult, run: RunResult, scenario: Any) -> RunResult:
        """Write what a run has to say for itself, and give it as it is to be kept. Raises ConfigError."""
        reports = self._of(scenario)
        run = attrs.evolve(run, logged=max(run.logged, len(run.log)))
        for report in reports:
            if report.kind == "log":
                report.runs += 1
                report.write("".join(line + "\n" for line in run.log))
                run = attrs.evolve(run, replay=run.replay or ("" if run.real_time else _replay(report)))
        for report in reports:
            if report.kind == "sequence":
                report.draw(result, run)
            elif report.kind == "html":
                report.add(result, attrs.evolve(run, log=self._part(run)))
            elif report.kind != "log":
                report.add(result, attrs.evolve(run, log=()))
        return attrs.evolve(run, log=())

    def finish(self) -> None:
        """Write what tells of all runs; after an interrupt of those that there are. Raises ConfigError."""
        for report in self._all:
            report.write(_text(report))

    def close(self) -> None:
        """Close all files. What could not be written has been told."""
        for report in self._all:
            with suppress(OSError):
                report.file.close()

    def _of(self, scenario: Any) -> list[_Report]:
        entries = dict.fromkeys([*self._asked.items(), *_own(scenario)])
        places = dict.fromkeys(self._places[entry] for entry in entries)
        return [self._all[place] for place in places]

    def _part(self, run: RunResult) -> tuple[str, ...]:
        """Give as much of a log as there is room for: its beginning and its end."""
        room = self._room[run.ok]
        if len(run.log) <= room:
            self._room[run.ok] -= len(run.log)
            return run.log
        self._room[run.ok] = 0
        return (*run.log[: room - room // 2], *run.log[len(run.log) - room // 2 :])

    def _keep_out(self, path: str, what: str) -> None:
        self._inputs.setdefault(path, what)
        for report in self._all:
            if same_file(path, report.path):
                raise ConfigError(
                    f"is {what}, the {_NAMES[report.kind]} would be written over it", report.path
                )

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
        self._all.append(_Report(kind, path, opened_file(path)))


def _own(scenario: Any) -> Iterator[tuple[Kind, str]]:
    for kind in KINDS:
        path: str | None = getattr(scenario.report, kind)
        if path is not None:
            yield kind, path


def _text(report: _Report) -> str:
    """Give what a report has to say at the end; a log has said it."""
    results = report.told()
    match report.kind:
        case "junit":
            return junit_xml(results)
        case "html":
            names = ", ".join(dict.fromkeys(result.name for result in results))
            return html_page(results, title=names)
        case "csv":
            return csv_text(results)
        case "sequence":
            return report.diagram
        case "log":
            return ""


def _replay(report: _Report) -> str:
    if not Path(report.path).is_file():
        return ""
    number = ["--run", str(report.runs)] if report.runs > 1 else []
    return shlex.join(["lmos-actors", "replay", report.path, *number])


def opened_file(path: str) -> Any:
    """Open a file to write, in folders that are made; what it holds stays for now. Raises ConfigError."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return open(path, "w", encoding="utf-8", errors="surrogatepass", opener=_unchanged)
    except (OSError, ValueError) as error:
        raise unwritten(path, error) from None


def _unchanged(path: str, flags: int) -> int:
    # what the file holds stays until there is something to write, for it may turn out that it must stay;
    # a pipe that nobody reads is an error, and nothing to wait for
    descriptor = os.open(path, flags & ~os.O_TRUNC | getattr(os, "O_NONBLOCK", 0), 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def unwritten(path: str, error: OSError | ValueError) -> ConfigError:
    """Say that a file cannot be written, and why."""
    reason = error.strerror if isinstance(error, OSError) else error
    return ConfigError(f"cannot be written: {reason}", ascii(path)[1:-1])


def same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file that is there."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
