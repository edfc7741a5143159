"""Execution of `explore`: the search of one file, and what becomes of the failures that it finds."""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.reports import count, worst
from lmos_actors.scenario import REAL_LIMIT
from lmos_actors.scenario.cells import Pool
from lmos_actors.scenario.explore import (
    TIME_LIMIT,
    Finds,
    Folder,
    Runs,
    Search,
    plain_cells,
    space_of,
    with_schedule,
)
from lmos_actors.scenario.run import log_header, real_limit_of
from lmos_actors.system import RemoteAccess
from lmos_actors.system.model import is_real

from .._exit_codes import COULD_NOT_RUN, FAILED, NOT_DETERMINISTIC, TIME_LIMIT as LATE
from .._signals import signals
from .._written_files import replace_file
from ..run._display import print_wrong
from ..run._load import load_files
from ._show import ExploreShow, find_data, find_lines, kinds_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.scenario.explore import Data, Explored, Find, Schedule
    from lmos_actors.scenario.format import Cell, Resolved

    from ..options._explore import ExploreOptions
    from ..run._load import Wrong

MOST_FOUND: Final = 10
"""Different failures after which a search ends."""

MOST_CELLS: Final = 64
"""Combinations of a matrix that one search takes."""


def explore_file(file: str, options: ExploreOptions) -> int:
    """Explore a file, print what is found, and return the exit code."""
    show = ExploreShow(json=options.json)  # before agents' modules, which may hide what it imports
    wrong: Wrong = []
    with ExitStack() as stack, signals.in_order():
        pool = stack.enter_context(Pool())
        # what agents print in thousands of runs is for nobody
        pool.errors = stack.enter_context(open(os.devnull, "wb"))
        pool.prepare(second=True)
        found, code = load_files([file], options.settings, None, REAL_LIMIT, wrong, access=RemoteAccess())
        if code:
            if options.json:
                print_wrong(wrong, code)
            return code
        resolved = found[0][1]
        cells = _cells_of(resolved, file)
        folder = Folder(resolved.root, Path(file), replace_file)
        stack.callback(folder.close)
        exploring = _Exploration(file, options, resolved, cells, folder, pool, show)
        try:
            exploring.run()
        except KeyboardInterrupt:
            with signals.held():
                exploring.end(signals.code)
            raise
        with signals.held(drop=True):
            return exploring.end()


def _cells_of(resolved: Resolved, file: str) -> list[tuple[Cell, Data]]:
    """Return each combination of a file, with it as a file of its own. Raises ConfigError."""
    plain = plain_cells(resolved.document, resolved.settings)
    if len(plain) > MOST_CELLS:
        why = f"{len(plain)} combinations are too many to explore at once: --set narrows the matrix"
        raise ConfigError(why, file)
    each = len(resolved.cells) // len(plain)
    cells = [(resolved.cells[number * each], data) for number, data in enumerate(plain)]
    for cell, _ in cells:
        if is_real(cell.scenario.world):
            why = f"time is real in world: {cell.scenario.world}, and no run is like another"
            raise FileError([resolved.document.mistake(("world",), f"{why}: explore memory or wire")])
        if cell.scenario.explore is None:
            hint = '"explore: {faults: [crash, pause]}", for example'
            why = f"says nothing of what may be drawn: {hint}"
            raise FileError([resolved.document.mistake((), why)])
    return cells


class _Exploration:
    """One call of `explore`."""

    def __init__(
        self,
        file: str,
        options: ExploreOptions,
        resolved: Resolved,
        cells: list[tuple[Cell, Data]],
        folder: Folder,
        pool: Pool,
        show: ExploreShow,
    ) -> None:
        self._file = file
        self._options = options
        self._resolved = resolved
        self._cells = cells
        self._folder = folder
        self._show = show
        limit = options.time_limit or max(real_limit_of(cell) for cell, _ in cells)
        workers = options.workers or os.cpu_count() or 1
        self._runs = Runs(pool, file, workers=workers, time_limit=limit, access=resolved.access)
        self._finds = Finds(file, folder, self._runs, show, options.time_limit)
        self._known: deque[Explored] = deque()
        self._resumed = 0
        self._done = 0
        self._states = 0
        self._slow = 0
        self._began = monotonic()
        self._code = 0

    def run(self) -> None:
        """Search until there is no more to do. Raises KeyboardInterrupt, ConfigError."""
        options = self._options
        known, changed = self._folder.open(self._head(), fresh=options.fresh)
        self._known.extend(known)
        self._resumed = len(known)
        if changed:
            self._show.note(f"{self._file}: the file or its agents have changed, it is searched anew")
            self._finds.check_again()
        self._finds.go_on()
        baselines = self._baselines()
        if baselines is None:
            return
        spaces = [space_of(cell, run.virtual) for (cell, _), run in zip(self._cells, baselines, strict=True)]
        search = Search(spaces, self._seeds(), options.seed)
        batch = search.batch()
        while self._note_batch(search, batch, baselines):
            batch = search.batch()
            baselines = self._batch([self._data(schedule) for schedule in batch])

    def _head(self) -> dict[str, Any]:
        headers = [log_header(self._resolved, cell, 1) for cell, _ in self._cells]
        sources: dict[str, Any] = {}
        for header in headers:
            sources |= header["sources"] if isinstance(header["sources"], dict) else {}
        return {
            "sha256": headers[0]["sha256"],
            "settings": self._options.settings,
            "sources": sources,
            "seed": self._options.seed,
        }

    def _seeds(self) -> list[int]:
        each = len(self._resolved.cells) // len(self._cells)
        return [cell.seed for cell in self._resolved.cells[:each]]

    def _data(self, schedule: Schedule) -> Data:
        data = self._cells[schedule.cell][1]
        return with_schedule(data, schedule.seed, schedule.faults, schedule.arguments)

    # ---- runs

    def _baselines(self) -> list[Explored] | None:
        """Run every combination once without drawn faults; None if that is not possible."""
        seed = self._seeds()[0]
        runs = self._batch([with_schedule(data, seed, ()) for _, data in self._cells])
        for run in runs:
            if run.refused is not None:
                raise ConfigError(run.refused, self._file)
            if run.slow:
                return None
            if run.result is not None and run.result.ended == "could not run":
                failure = run.result.failures[0]
                self._show.note(f"{self._file}: {failure.what}: {failure.saw}")
                self._code = COULD_NOT_RUN
                return None
        return runs if len(runs) == len(self._cells) else None

    def _batch(self, files: Sequence[Data]) -> list[Explored]:
        """Return the runs of a batch: those known from before, and as many of the others as are asked for."""
        left = len(files) if self._options.runs is None else self._options.runs - self._done
        files = files[: max(left, 0)]
        runs = [self._known.popleft() for _ in files if self._known]
        self._done += len(runs)
        for run in self._runs.in_order(files[len(runs) :]):
            self._folder.add(run)
            runs.append(run)
            self._done += 1
            self._progress()
            if self._is_over():
                break
        self._runs.drain()
        self._slow += sum(run.slow for run in runs)
        return runs

    def _is_over(self) -> bool:
        options = self._options
        if options.minutes is not None and monotonic() - self._began >= 60.0 * options.minutes:
            return True
        return options.runs is not None and self._done >= options.runs

    def _note_batch(self, search: Search, batch: Sequence[Schedule], runs: list[Explored]) -> bool:
        """Take what a batch has found; return whether to go on."""
        outcomes = [run.outcome for run in runs]
        self._states = search.states_with(outcomes)
        if len(runs) == len(batch):
            search.take(outcomes)
        refused = [run.refused for run in runs if run.refused is not None]
        if refused and len(refused) == len(runs):
            raise ConfigError(refused[0], self._file)
        before = self._done - len(runs)
        for number, run in enumerate(runs):
            name = run.outcome.failure
            if name is not None and not self._finds.knows(name) and len(self._folder.finds) < MOST_FOUND:
                self._finds.add(name, self._data(batch[number]), before + number + 1)
        if self._is_over() or len(runs) < len(batch) or len(self._folder.finds) >= MOST_FOUND:
            return False
        return self._options.all_ or not self._finds.added

    def _progress(self) -> None:
        seconds = max(monotonic() - self._began, 1e-9)
        found = f"{count(len(self._folder.finds), 'failure')} found"
        text = f"{count(self._done, 'run')}, {count(self._states, 'state')}, {found}"
        self._show.progress(f"{text}, {self._runs.count / seconds:.0f} runs/s")

    # ---- the end

    def end(self, code: int = 0) -> int:
        """Print what was found and what was searched, and return the exit code."""
        finds = self._folder.finds
        seconds = monotonic() - self._began
        late = {LATE} if self._slow else set[int]()
        code = worst({code, self._code, *late, *map(_code_of, finds)})
        for find in finds:
            for line in find_lines(find):
                self._show.line(line)
        self._show.line(self._summary(seconds))
        if self._slow:
            self._show.line(
                f"{count(self._slow, 'run')} took too long with little processor time: the search cannot tell"
                " whether they hang, or this machine is slow; --time-limit gives them longer"
            )
        self._show.result(
            {
                "file": self._file,
                "name": self._resolved.name,
                "runs": self._done,
                "resumed": min(self._resumed, self._done),
                "slow": self._slow,
                "states": self._states,
                "seconds": seconds,
                "found": [find_data(find) for find in finds],
                "mistakes": [],
                "exit_code": code,
            }
        )
        return code

    def _summary(self, seconds: float) -> str:
        if self._code == COULD_NOT_RUN:
            return f"{self._resolved.name} could not run, so nothing was searched; {seconds:.1f} s"
        finds = len(self._folder.finds)
        earlier = min(self._resumed, self._done)
        more = f" ({earlier} of them earlier)" if earlier else ""
        found = count(finds, "failure") if finds else "nothing failed"
        text = f"{found} in {count(self._done, 'run')}{more} of {self._resolved.name}: {self._searched()}"
        return f"{text}; {count(self._states, 'state')} reached, {seconds:.1f} s"

    def _searched(self) -> str:
        """Return what was searched."""
        explore = self._cells[0][0].scenario.explore
        assert explore is not None
        kinds = [
            each if isinstance(each, str) else str(each.__struct_config__.tag) for each in explore.faults
        ]
        drawn = f"up to {count(explore.at_most, 'fault')} of {kinds_text(kinds)}" if kinds else ""
        text = " and ".join(filter(None, [drawn, "arguments" * bool(explore.arguments)]))
        if isinstance(explore.of, str | tuple):
            names = (explore.of,) if isinstance(explore.of, str) else explore.of
            text += f" on {', '.join(names)}"
        return text


def _code_of(find: Find) -> int:
    if find.failure == TIME_LIMIT:
        return LATE
    return NOT_DETERMINISTIC if find.difference else FAILED
