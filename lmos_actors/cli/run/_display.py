"""Output of runs: live on a terminal, plain text elsewhere, or only JSON."""

from __future__ import annotations

import json
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors._core import printable
from lmos_actors.files import FileError
from lmos_actors.reports import (
    LAST,
    SOME_MESSAGES,
    RunResult,
    as_data,
    check_lines,
    clean,
    combination,
    compared_lines,
    count,
    cut_data,
    cut_of,
    failure_lines,
    file_line,
    first_failure,
    folded_line,
    head,
    missing_lines,
    note_lines,
    repeated_lines,
    run_line,
    summary,
    trial_lines,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from lmos_actors.errors import ConfigError
    from lmos_actors.reports import FileResult

    from ._live import Moving, Screen

MOST_SHOWN = 50
"""Maximum failed runs of a file that are shown at all."""


@attrs.define
class _FileProgress:
    """The state of the output of one file."""

    result: FileResult
    width: int
    folds: bool
    failed: int = 0
    fold: list[RunResult] = attrs.Factory(list[RunResult])


class Show:
    """The printer of the progress of runs; `verbose` prints each run on a separate line, with its checks."""

    def __init__(self, *, json: bool, verbose: bool = False) -> None:
        self._json = json
        self._verbose = verbose
        # kept: during a run, agents print to sys.stdout
        self._out = sys.stdout
        self._file: _FileProgress | None = None
        self._moving: dict[tuple[str, int], Moving] = {}
        self._screen: Screen | None = None
        if not json and self._out.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            from ._live import Screen

            self._screen = Screen(self._out)

    @property
    def draws(self) -> bool:
        """Whether trees are shown while runs go on."""
        return self._screen is not None

    def errors(self) -> BinaryIO | None:
        """Return the file to which agents in other processes write, or None for standard error."""
        return self._screen.errors() if self._screen is not None else None

    # --- files and runs, in their order

    def begin(self, result: FileResult, width: int) -> None:
        """Begin the output of a file; `width` is the width of its longest label."""
        # In a file of many runs, passed runs share a line with the others of their combination.
        folds = not self._verbose and result.cells * result.trials > 20
        self._pass_on()
        self._file = _FileProgress(result, width, folds)
        self._print(head(result), "bold")
        if self._screen is not None:
            began = monotonic()
            self._screen.begin(lambda now: _so_far(result, now - began), width)

    def progress(self, label: str, trial: int) -> Moving | _NoDisplay:
        """Return the display of a run in this process: a callback for its progress.

        Its method `telling` accepts the state of the run, from which a tree is drawn.
        """
        if self._screen is None:
            return _NoDisplay()
        self.gone(label, trial)
        return self._moves(label, trial)

    def going(
        self, label: str, trial: int, done: float, total: float, text: str, tree: tuple[str, ...] = ()
    ) -> None:
        """Show the progress of a run in another process."""
        if self._screen is not None:
            moving = self._moves(label, trial)
            moving(done, total, text)
            moving.tree = tree or moving.tree

    def gone(self, label: str, trial: int) -> None:
        """Remove a run from the live part."""
        moving = self._moving.pop((label, trial), None)
        if moving is not None and self._screen is not None:
            self._screen.remove(moving)

    def _moves(self, label: str, trial: int) -> Moving:
        from ._live import Moving

        assert self._screen is not None
        if (label, trial) not in self._moving:
            several = self._file is not None and self._file.result.trials > 1
            self._moving[label, trial] = Moving(f"{label}  trial {trial}" if several else label)
            self._screen.add(self._moving[label, trial])
        return self._moving[label, trial]

    def run(self, run: RunResult, result: FileResult) -> None:
        """Print the result of a run. Call this in the order of the runs in the file."""
        self.gone(run.label, run.trial)
        file = self._file
        if file is None or file.result is not result:
            file = self._file = _FileProgress(result, len(run.label), folds=False)
        if file.folds:
            if file.fold and combination(file.fold[0]) != combination(run):
                self._unfold(file)
            file.fold.append(run)
            if run.ok:
                return
        if not run.ok:
            file.failed += 1
            if file.failed > MOST_SHOWN and not self._verbose:
                return
        self._run(file, run)

    def _run(self, file: _FileProgress, run: RunResult) -> None:
        self._print(run_line(run, file.width, file.result.trials), _style(run.ok), verdict(run))
        if self._verbose:
            for line in check_lines(run):
                self._print(line)
        if run.ok:
            return
        if file.failed > 5 and not self._verbose:  # the first ones have been shown with all details
            self._print(f"   {first_failure(run)}")
            self._print(f"   again:  {run.again}")
            return
        for line in failure_lines(run, LAST if self._verbose else SOME_MESSAGES):
            self._print(line)

    def _unfold(self, file: _FileProgress) -> None:
        runs, file.fold = file.fold, []
        if runs:
            ok = all(run.ok for run in runs)
            self._print(folded_line(runs, file.width), _style(ok), "ok" if ok else "FAILED")

    def end_file(self, result: FileResult) -> None:
        """Print the rest of the output of a file: notes, comparisons, and runs that were not yet printed."""
        self._moving.clear()
        if self._screen is not None:
            self._screen.end()
        file = self._file
        if file is not None:
            self._unfold(file)
            if file.failed > MOST_SHOWN and not self._verbose:
                self._print(f" {file.failed - MOST_SHOWN} more failed; -v shows them all")
        for line in (*note_lines(result), *trial_lines(result)):
            self._print(line)
        for check, line in zip(result.compared, compared_lines(result.compared), strict=True):
            self._print(line, _style(check.ok), "ok" if check.ok else "FAILED")
        for line in repeated_lines(result.repeated):
            self._print(line)

    def _pass_on(self) -> None:
        """Print the totals of the previous file, if there was one with several runs."""
        if self._file is not None and len(self._file.result.runs) > 1:
            self._print(file_line(self._file.result))

    def end(
        self,
        results: Sequence[FileResult],
        seconds: float,
        code: int,
        problems: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Print the totals of all files; `problems` are the files that could not be written, with reasons."""
        if self._json:
            files = [as_data(result) for result in results]
            data = {"files": files, "cut": cut_data(results), "seconds": seconds}
            mistakes: list[dict[str, Any]] = [
                {"file": clean(file), "line": None, "column": None, "message": clean(why), "kind": "output"}
                for file, why in problems
            ]
            _print_json(data, mistakes, code, self._out)
        else:
            if len(results) > 1:
                self._pass_on()
            cut = cut_of(results)
            for line in missing_lines(results, 20) if cut is not None and cut.code else ():
                self._print(f" {line}")
            self._print(summary(results, seconds), "green" if code == 0 else "bold red")

    # --- how it is printed

    def _print(self, text: str, style: str = "", part: str = "") -> None:
        """Print a line in a style; if `part` is given, only its last occurrence has the style."""
        if self._json:
            return
        text = printable(text)
        if self._screen is None:
            print(text, file=self._out, flush=True)
            return
        from rich.text import Text

        at = text.rfind(f"  {part}  ") + 2 if part else 0
        end = at + len(part) if part else len(text)
        shown = Text(text)
        shown.stylize(style, at, end)
        self._screen.print(shown)

    def close(self) -> None:
        """Remove the live part."""
        if self._screen is not None:
            self._screen.close()

    def abandon(self) -> None:
        """Restore the terminal, just before the process is ended."""
        if self._screen is not None:
            self._screen.abandon()


class _NoDisplay:
    """The live part without a terminal: it shows nothing."""

    def __call__(self, done: float, total: float, text: str) -> None:
        pass

    def telling(self, watching: object) -> None:
        pass


def _style(ok: bool) -> str:
    return "green" if ok else "bold red"


def _so_far(result: FileResult, seconds: float) -> str:
    runs, failed = result.cells * result.trials, len(result.runs) - result.passed
    bad = f", {failed} failed" if failed else ""
    return f" {result.name}  {len(result.runs)} of {count(runs, 'run')} done{bad}  {seconds:.1f} s"


# --- mistakes as JSON


def mistakes_of(error: ConfigError) -> list[dict[str, Any]]:
    """Return mistakes as plain data: file, line and column (None without a place), message, and kind."""
    if isinstance(error, FileError):
        return [
            {
                "file": clean(mistake.file),
                "line": mistake.line or None,
                "column": mistake.column or None,
                "message": clean(mistake.message),
                "kind": mistake.kind,
            }
            for mistake in error.mistakes
        ]
    kind = "import" if error.__cause__ is not None else "usage"
    message = clean(error.message)
    return [
        {"file": clean(error.path) or None, "line": None, "column": None, "message": message, "kind": kind}
    ]


def print_wrong(mistakes: Sequence[dict[str, Any]], code: int, files: Sequence[dict[str, Any]] = ()) -> None:
    """Print mistakes as JSON, together with the files that have no mistakes."""
    _print_json({"files": list(files), "cut": None, "seconds": 0.0}, mistakes, code, sys.stdout)


def _print_json(data: dict[str, Any], mistakes: Sequence[dict[str, Any]], code: int, out: Any) -> None:
    whole = {**data, "mistakes": list(mistakes), "exit_code": code}
    from .._texts import takes_all

    print(json.dumps(whole, ensure_ascii=not takes_all(out)), file=out, flush=True)
