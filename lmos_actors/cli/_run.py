"""`run` and `validate`: files read and checked, their cells run and told of, the results written."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from functools import partial
from json import dumps
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import attrs

from lmos_actors.files import Duration, mapped
from lmos_actors.reports import FileResult, worst
from lmos_actors.scenario import Compare, is_real, judge_compared, stopped_at

from ._jobs import Asked, Jobs, Progress
from ._load import load_files
from ._pool import Pool
from ._select import Selection, selection
from ._show import Show, print_wrong
from ._written import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lmos_actors.reports import RunResult
    from lmos_actors.scenario import Cell, Going, Resolved

    from ._load import Wrong
    from ._written import Kind


INTERRUPTED = 130


@attrs.frozen(kw_only=True)
class Options:
    """What `run` was given. `workers` 0 stands for as many as there are processors."""

    settings: dict[str, str]
    seeds: Sequence[int] | None = None
    trials: int | None = None
    only: str | None = None
    labels: Sequence[str] = ()
    workers: int = 1
    fail_fast: bool = False
    determinism: Literal["all", "first", "off"] = "first"
    until: float | None = None
    written: Mapping[Kind, str | None] = attrs.Factory(dict["Kind", "str | None"])
    time_limit: float = 60.0
    speed: float = 1.0
    json: bool = False
    verbose: bool = False


def read_files(files: Sequence[str], settings: Mapping[str, str], *, json: bool = False) -> int:
    """Check files and say so. Gives the exit code."""
    wrong: Wrong = []
    found, code = load_files(files, settings, wrong=wrong)
    if json:
        print_wrong(wrong, code, [_read(file, resolved) for file, resolved in found])
        return code
    for file, resolved in found:
        runs = len(resolved.cells)
        print(f"{file}: {resolved.name}, {runs} run{'s' * (runs != 1)}, ok")
    return code


def _read(file: str, resolved: Resolved) -> dict[str, Any]:
    """Give a file that is right as plain data."""
    notes = [{"line": note.line, "column": note.column, "message": note.message} for note in resolved.notes]
    return {"file": file, "name": resolved.name, "runs": len(resolved.cells), "notes": notes}


def run_files(files: Sequence[str], options: Options) -> int:
    """Run files, show how it goes, and give the exit code. Nothing runs while a file is wrong."""
    chosen = selection(options.only, options.labels)
    show = Show(
        json=options.json, verbose=options.verbose
    )  # before agents' modules, which may hide what it imports
    wrong: Wrong = []
    with ExitStack() as stack:
        stack.callback(show.close)
        pool = stack.enter_context(Pool())
        if options.determinism != "off":
            pool.prepare()
        found, code = load_files(files, options.settings, options.seeds, options.time_limit, wrong)
        if code:
            if options.json:
                print_wrong(wrong, code)
            return code
        found = [(file, stopped_at(resolved, options.until)) for file, resolved in found]
        chosen.check(found)
        running = _Running(files, options, chosen, show, pool, stack)
        running.open(found)
        try:
            for file, resolved in found:
                running.file(file, resolved)
                if options.fail_fast and running.code():
                    break
        except KeyboardInterrupt:
            running.interrupted()
            raise
        running.end()
        return running.code()


class _Running:
    """One call of `run`: what has come of it so far, what is shown, what is written."""

    def __init__(
        self,
        files: Sequence[str],
        options: Options,
        chosen: Selection,
        show: Show,
        pool: Pool,
        stack: ExitStack,
    ) -> None:
        self.options = options
        self.chosen = chosen
        self.results: list[FileResult] = []
        self._began = perf_counter()
        self._show = show
        self._written = Written(options.written, files)
        self._workers = options.workers or os.cpu_count() or 1
        stack.callback(self._written.close)
        self._pool = pool
        pool.errors = show.errors()

    def code(self) -> int:
        return worst({result.exit_code() for result in self.results})

    def open(self, found: Sequence[tuple[str, Resolved]]) -> None:
        """Open what is to be written: what cannot be is to be known before anything runs."""
        for file, resolved in found:
            for cell in resolved.cells:
                if self.chosen.fits(cell):
                    self._written.open(file, cell.scenario)

    def file(self, file: str, resolved: Resolved) -> None:
        """Run the chosen cells of a file."""
        cells = [number for number, cell in enumerate(resolved.cells) if self.chosen.fits(cell)]
        if not cells:
            return
        asked = self._asked(file, resolved, cells)
        labels = [resolved.cells[number].label for number in cells]
        seeds = dict.fromkeys(resolved.cells[number].seed for number in cells)
        pass_rate = resolved.cells[0].scenario.trials.pass_rate
        result = FileResult(file, resolved.name, pass_rate, asked.trials, len(cells), seeds=len(seeds))
        self.results.append(result)
        self._show.begin(result, max(map(len, labels)))
        began = perf_counter()
        jobs = Jobs(asked, self._pool, _Told(result, self.options, self._show, self._written))
        try:
            jobs.run()
        finally:
            result.repeated[:] = jobs.repeated
            result.seconds = perf_counter() - began
        result.compared[:] = judge_compared(
            resolved.cells[0].scenario.checks,
            result.runs,
            partial(_place_of_check, resolved),
            narrowed=self._narrowed(file, resolved, cells),
        )
        self._show.end_file(result)

    def _narrowed(self, file: str, resolved: Resolved, cells: list[int]) -> list[str]:
        """Give the keys of which the command line has left one value alone; say what is not judged so."""
        values = resolved.cells[cells[0]].values
        left = [key for key in values if _distinct(resolved, cells, key) == 1]
        everything = range(len(resolved.cells))
        cut = [k for k in left if k in self.options.settings or _distinct(resolved, everything, k) > 1]
        for check in resolved.cells[0].scenario.checks:
            if isinstance(check, Compare) and check.across in cut:
                what = f"{check.metric} is not compared, it runs with one {check.across} alone"
                print(f"{file}: note: {what}", file=sys.stderr)
        return cut

    def _asked(self, file: str, resolved: Resolved, cells: list[int]) -> Asked:
        options = self.options
        return Asked(
            file=file,
            resolved=resolved,
            settings=options.settings,
            seeds=list(options.seeds) if options.seeds is not None else None,
            until=options.until,
            cells=cells,
            twice=_to_repeat(resolved, cells, options.determinism),
            trials=options.trials or resolved.cells[0].scenario.trials.count,
            time_limit=options.time_limit,
            speed=options.speed,
            workers=self._workers,
        )

    def write(self) -> None:
        """Write what there is to tell of what has run."""
        self._written.finish()

    def interrupted(self) -> None:
        """Write, and give as JSON, what there is to tell of what has run."""
        self.write()
        if self.options.json:
            self._show.end(self.results, perf_counter() - self._began, INTERRUPTED)

    def end(self) -> None:
        """Write and show what has come of everything."""
        self.write()
        self._show.end(self.results, perf_counter() - self._began, self.code())


class _Told:
    """Shows and writes how the runs of one file go."""

    def __init__(self, result: FileResult, options: Options, show: Show, written: Written) -> None:
        self._result = result
        self._options = options
        self._show = show
        self._written = written

    @property
    def draws(self) -> bool:
        return self._show.draws

    @property
    def fail_fast(self) -> bool:
        return self._options.fail_fast

    def wants_log(self, cell: Cell) -> bool:
        return self._written.wants_log(cell.scenario)

    def progress(self, cell: Cell, trial: int) -> Progress:
        return self._show.progress(cell.label, trial)

    def going(self, cell: Cell, trial: int, going: Going) -> None:
        self._show.going(cell.label, trial, going.done, going.total, going.text, going.tree)

    def gone(self, cell: Cell, trial: int) -> None:
        self._show.gone(cell.label, trial)

    def last_words(self, cell: Cell, why: str, where: str) -> None:
        """Say why the process ends: a run that nothing else can end."""
        self._show.abandon()
        said = f"{self._result.file} {cell.label}: {why}, and it cannot be ended: it hangs at {where}"
        print(said, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    def ended(self, cell: Cell, run: RunResult) -> None:
        run = attrs.evolve(run, again=self._again(run))
        kept = self._written.run(self._result, run, cell.scenario)
        self._result.runs.append(kept)
        self._show.run(kept, self._result)

    def _again(self, run: RunResult) -> str:
        until = self._options.until
        words = ["lmos-actors", "run" if until is None else "sim", self._result.file, "--seed", str(run.seed)]
        if until is not None:
            words += ["--until", str(Duration(until))]
        if run.trial > 1:
            words += ["--trials", str(run.trial)]
        for key, value in (self._options.settings | run.values).items():
            shown = mapped(value).get("name", value)
            words += ["--set", f"{key}={shown if isinstance(shown, str) else dumps(shown)}"]
        return shlex.join(words)


def _distinct(resolved: Resolved, cells: Iterable[int], key: str) -> int:
    return len({str(resolved.cells[number].values[key]) for number in cells})


def _place_of_check(resolved: Resolved, index: int) -> str:
    return resolved.document.place(("checks", index))


def _to_repeat(resolved: Resolved, cells: list[int], which: str) -> list[int]:
    """Choose the cells to run twice: those of the first seed of each combination, all, or none.

    In real time no two runs are the same.
    """
    if which == "off":
        return []
    cells = [number for number in cells if not is_real(resolved.cells[number].scenario.world)]
    first = resolved.cells[cells[0]].seed if cells else 0
    return [number for number in cells if which == "all" or resolved.cells[number].seed == first]
