"""The failures found by a search: they are repeated, shrunk, written as files, and checked again later."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from lmos_actors.scenario.cells import repeated
from lmos_actors.scenario.run import RunLost

from ._failure import failures_of, sentence_of
from ._folder import Find, free_name
from ._plain import yaml_of
from ._runs import TIME_LIMIT, is_late
from ._shrink import Shrinker
from ._weight import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.reports import RunResult

    from ._folder import Folder
    from ._plain import Data
    from ._runs import Runs

_WIDTH: Final = 98
_LONGEST: Final = 400
"""Maximum number of characters shown of a difference between two runs."""


class SearchShow(Protocol):
    """The display of the progress of a search."""

    def note(self, text: str) -> None:
        """Show a line that stays on the screen."""
        ...

    def progress(self, text: str) -> None:
        """Show the progress of the search, in a line that the next line replaces."""
        ...


class Finds:
    """The failures of one search. `added` is true once this command has found or shrunk a failure."""

    def __init__(self, file: str, folder: Folder, runs: Runs, show: SearchShow, limit: float | None) -> None:
        self._file = file
        self._limit = limit
        self._folder = folder
        self._runs = runs
        self._show = show
        self.added = False

    def knows(self, failure: str) -> bool:
        """Return whether a failure with this name has been found."""
        return any(find.failure == failure for find in self._folder.finds)

    def add(self, failure: str, data: Data, run: int) -> None:
        """Add a failure: write a file that fails this way, and shrink the file. Raises KeyboardInterrupt."""
        self.added = True
        find = Find(failure=failure, data=data, run=run, limit=self._limit)
        self._show.note(f"run {run}: {failure}")
        self._folder.finds.append(find)
        self._folder.keep_finds()
        self._finish(find)

    def go_on(self) -> None:
        """Continue the shrinking of failures that earlier searches did not finish."""
        for find in self._folder.finds:
            if not find.shrunk and find.can_be_shrunk:
                self.added = True
                self._finish(find)

    def check_again(self) -> None:
        """Rerun the finds after the file or its agents have changed; remove those that no longer fail."""
        for find in list(self._folder.finds):
            seed = find.data["seeds"][0]
            there = bool(find.file) and Path(find.file).is_file()
            run = self._runs.written(find.file, seed, second=False) if there else None
            still = run is not None and find.failure in _failures(run)
            if not still:
                self._folder.finds.remove(find)
            if there:
                self._show.note(f"{find.file}: {'still fails' if still else 'fails no longer'}")
        self._folder.keep_finds()

    # ---- one failure

    def _finish(self, find: Find) -> None:
        try:
            self._write(find)
            if find.can_be_shrunk:
                self._shrink(find)
        finally:
            self._folder.keep_finds()

    def _shrink(self, find: Find) -> None:
        def first(files: Sequence[Data]) -> int | None:
            self._show.progress(f"shrinking, {shrinker.tried} tried: {size_text(shrinker.data)}")
            return self._runs.first(files, lambda _, run: find.failure in run.failures)

        shrinker = Shrinker(find.data, first, instants=self._instants)
        try:
            find.data = shrinker.run()
            find.shrunk = True
        finally:  # a file whose shrinking was cut short fails, too, and has its own log
            self._runs.drain()
            find.data = shrinker.data
            self._write(find)

    def _instants(self, data: Data) -> Sequence[int]:
        (run,) = self._runs.in_order([data])
        return run.outcome.instants

    def _write(self, find: Find) -> None:
        """Write the file of a failure and the log of a run of it; note whether a second run differs.

        A failure of the time limit gets no log.
        """
        if not find.file:
            find.file = free_name(Path(self._file)) + ".yaml"
        self._folder.write(find.file, self._text(find))
        seed = find.data["seeds"][0]
        first = self._runs.written(find.file, seed, second=False)
        if find.failure == TIME_LIMIT:
            find.sentence = "a run takes too long in real time: --time-limit is how long it may"
            self._folder.write(find.file, self._text(find))
            return
        second = self._runs.written(find.file, seed, second=True)
        find.difference = _difference(find.failure, first, second)
        if isinstance(first, RunLost):
            find.sentence = find.failure
        else:
            find.sentence = sentence_of(first, find.failure)
            find.log = str(Path(find.file).with_suffix(".jsonl"))
            self._folder.write(find.log, "".join(f"{line}\n" for line in first.log))
        self._folder.write(find.file, self._text(find))

    def _text(self, find: Find) -> str:
        said = f"Found by lmos-actors explore {self._file}: {find.sentence or find.failure}"
        return yaml_of(find.data, [*textwrap.wrap(said, _WIDTH), f"Again: {find.again}"])


def _difference(failure: str, first: RunResult | RunLost, second: RunResult | RunLost) -> str:
    """Return a text on the difference between two runs of one file; "" if both fail in the same way."""
    if isinstance(first, RunLost) or isinstance(second, RunLost):
        same = _failures(first) == _failures(second)
        return "" if same else "the process of one of them ended"
    if failure not in _failures(first):
        return "in the search it failed, by itself it does not"
    if failure not in _failures(second):
        return "with another hash seed, in a second process, it does not fail"
    found = repeated(first, second)
    return " ".join(str(found.difference or found.problem or "").split())[:_LONGEST]


def _failures(run: RunResult | RunLost) -> tuple[str, ...]:
    if isinstance(run, RunLost):
        return (TIME_LIMIT,) if run.late else (f"the process: {run.why}",)
    return (TIME_LIMIT,) if is_late(run.ended, run.failures) else failures_of(run)
