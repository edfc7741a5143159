"""Execution of `run` and `validate`: read and check files, run and report their cells, write the results."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack, suppress
from functools import partial
from json import dumps
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration, FileError, mapped
from lmos_actors.reports import Cut, FileResult, worst
from lmos_actors.scenario import REAL_LIMIT
from lmos_actors.scenario.format import Selection, resolve, selection, with_end_at

from .._exit_codes import COULD_NOT_RUN, TIME_LIMIT
from .._importing import importing, print_notes
from .._signals import signals
from ._display import Show, print_wrong
from ._load import load_files, noting
from ._report_files import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lmos_actors.files import Note
    from lmos_actors.reports import RunResult
    from lmos_actors.scenario.cells import FileJobs, Jobs, PlannedFile, Pool, Progress
    from lmos_actors.scenario.format import Cell, Resolved
    from lmos_actors.scenario.page import RunsPage
    from lmos_actors.scenario.run import PaceOrder, RunProgress
    from lmos_actors.system import RemoteAccess

    from ..options._run import RunOptions
    from ._load import Wrong


def read_files(files: Sequence[str], settings: Mapping[str, str], *, json: bool = False) -> int:
    """Check files and print the result. Returns the exit code."""
    wrong: Wrong = []
    read: list[dict[str, Any]] = []
    codes: set[int] = set()
    for file in files:
        found, code = _validated(file, settings, wrong)
        read += found
        codes.add(code)
    code = worst(codes)
    if json:
        print_wrong(wrong, code, read)
        return code
    for each in read:
        count, word = (each["runs"], "run") if "runs" in each else (each["groups"], "group")
        print(f"{each['file']}: {each['name']}, {count} {word}{'s' * (count != 1)}, ok")
    return code


def _validated(file: str, settings: Mapping[str, str], wrong: Wrong) -> tuple[list[dict[str, Any]], int]:
    """Read one file of any kind. Return it as plain data, if it is valid, and the exit code."""
    if not _is_deployment(file):
        found, code = load_files([file], settings, wrong=wrong)
        return [
            {"file": file, "name": each.name, "notes": _notes(each.notes), "runs": len(each.cells)}
            for _, each in found
        ], code
    from lmos_actors.deployment.files import load_deployment  # few files need it

    loaded = importing(file, partial(load_deployment, file, settings=settings), notice=noting(wrong))
    if isinstance(loaded, int):
        return [], loaded
    print_notes(loaded.notes)
    name, groups = loaded.deployment.name, len(loaded.deployment.groups)
    return [{"file": file, "name": name, "notes": _notes(loaded.notes), "groups": groups}], 0


def _is_deployment(file: str) -> bool:
    from lmos_actors.deployment.model import is_deployment

    try:
        return is_deployment(file)
    except FileError:
        return False  # which is said where it is read


def _notes(notes: Sequence[Note]) -> list[dict[str, Any]]:
    return [{"line": note.line, "column": note.column, "message": note.message} for note in notes]


def run_files(files: Sequence[str], options: RunOptions) -> int:
    """Run files, show the progress, and return the exit code. Nothing runs if a file is invalid."""
    from lmos_actors.scenario.cells import Pool  # imports what runs agents, which `validate` does not

    chosen = selection(options.only, options.labels or ())
    show = Show(
        json=options.json, verbose=options.verbose
    )  # before agents' modules, which may hide what it imports
    wrong: Wrong = []
    with ExitStack() as stack, signals.in_order():
        stack.callback(show.close)
        pool = stack.enter_context(Pool())
        if options.check_determinism != "off":
            pool.prepare(second=True)
        settings, limit, access = options.settings, options.time_limit or REAL_LIMIT, options.access
        running: _Running | None = None
        try:
            signals.check_early()
            found, code = load_files(files, settings, options.seed_list, limit, wrong, access=access)
            if code:
                if options.json:
                    print_wrong(wrong, code)
                return code
            found = [(file, with_end_at(resolved, options.until)) for file, resolved in found]
            chosen.check(found)
            running = _Running(files, options, chosen, show, pool, stack)
            running.open(found)
            running.serve(stack)
            running.run()
        except KeyboardInterrupt:
            with signals.held():
                if running is None:
                    running = _Running(files, options, chosen, show, pool, stack)
                    running.open(_unread(files, options))
                running.cut_short(Cut("interrupted", signals.code, signals.name))
            raise
        with signals.held(drop=True):  # all is done: the reports and the exit code must agree
            running.end()
        running.stay()
        return running.code()


def _unread(files: Sequence[str], options: RunOptions) -> list[tuple[str, Resolved]]:
    """Return the files that can be read without importing their agents: this is enough to list the runs."""
    found: list[tuple[str, Resolved]] = []
    for file in files:
        with suppress(ConfigError):
            resolved = resolve(file, settings=options.settings, seeds=options.seed_list, classes=False)
            found.append((file, with_end_at(resolved, options.until)))
    return found


class _Running:
    """One call of `run`: its results so far, its display, and its report files."""

    def __init__(
        self,
        files: Sequence[str],
        options: RunOptions,
        chosen: Selection,
        show: Show,
        pool: Pool,
        stack: ExitStack,
    ) -> None:
        self.options = options
        self.chosen = chosen
        self._planned: list[PlannedFile] = []
        self._at: PlannedFile | None = None
        self._jobs: Jobs | None = None
        self._began = perf_counter()
        self._show = show
        self._written = Written(options.reports, files, force=options.force)
        self._workers = options.workers or os.cpu_count() or 1
        stack.callback(self._written.close)
        self._pool = pool
        pool.errors = show.errors()
        self._page: RunsPage | None = None

    def serve(self, stack: ExitStack) -> None:
        """Serve the page of the runs until the stack is left, if requested. Raises ConfigError."""
        if not self.options.watch:
            return
        from lmos_actors.scenario.page import RunsPage  # imports what serves

        self._pool.prepare(second=False)
        port, speed = self.options.port or 0, self.options.pace
        self._page = RunsPage(self._pool, _note, port=port, speed=speed)
        for planned in self._planned:
            self._page.plan(planned.result.file, planned.chosen(), planned.result.trials)
        stack.enter_context(self._page.served())

    def stay(self) -> None:
        """Continue to serve the page, if any, until a signal ends the command. That is no failure."""
        if (page := self._page) is not None:
            signals.wait(lambda: _note(f"all is done; {page.url} stays until Ctrl-C"))

    @property
    def results(self) -> list[FileResult]:
        """The results of the files that were begun, and of those with missing runs."""
        return [each.result for each in self._planned if each.result.runs or each.result.cut is not None]

    def code(self) -> int:
        """Return the exit code."""
        codes = {result.exit_code() for result in self.results}
        return worst(codes | ({COULD_NOT_RUN} if self._written.problems else set()))

    def open(self, found: Sequence[tuple[str, Resolved]]) -> None:
        """Open the report files, so that one that cannot be opened is reported before anything runs."""
        from lmos_actors.scenario.cells import PlannedFile

        for file, resolved in found:
            planned = PlannedFile.of(file, resolved, self.chosen, self.options.trials)
            for cell in planned.chosen():
                self._written.open(file, cell.scenario)
            if planned.cells:
                self._planned.append(planned)

    def run(self) -> None:
        """Run all files; with `--fail-fast`, stop after the first that fails. Raises KeyboardInterrupt."""
        for planned in self._planned:
            self._at = planned
            self._file(planned)
            if self.options.fail_fast and self.code():
                break
        self._note_missing(Cut("fail-fast"))

    def _file(self, planned: PlannedFile) -> None:
        """Run the chosen cells of a file."""
        from lmos_actors.scenario.cells import Jobs

        result = planned.result
        self._show.begin(result, max(len(cell.label) for cell in planned.chosen()))
        began = perf_counter()
        reporter = _FileReporter(result, self.options, self._show, self._written, self.hung, self._page)
        self._jobs = jobs = Jobs(self._file_jobs(planned), self._pool, reporter)
        try:
            jobs.run()
        finally:
            with signals.held():
                jobs.tell_rest()
                result.repeated[:] = jobs.repeated
                result.seconds = perf_counter() - began
        narrowed = planned.narrowed(self.options.settings)
        for check in planned.not_compared(narrowed):
            what = f"{check.metric} is not compared, it runs with one {check.across} alone"
            print(f"{result.file}: note: {what}", file=sys.stderr)
        planned.compare(narrowed)
        self._show.end_file(result)

    def _note_missing(self, cut: Cut) -> None:
        """Add the requested runs that have no result to the results, with the reason."""
        for planned in self._planned:
            here = planned is self._at
            jobs = self._jobs if here else None
            missing = list(planned.missing(() if jobs is None else jobs.under_way))
            for cell, run in missing:
                planned.result.missing.append(run)
                self._written.missing(planned.result, run, cell.scenario)
            if missing or (here and cut.code):
                planned.result.cut = cut

    def _file_jobs(self, planned: PlannedFile) -> FileJobs:
        from lmos_actors.scenario.cells import FileJobs

        options = self.options
        return FileJobs(
            file=planned.result.file,
            resolved=planned.resolved,
            settings=options.settings,
            seeds=options.seed_list,
            until=options.until,
            cells=planned.cells,
            twice=planned.to_repeat(options.check_determinism),
            trials=planned.result.trials,
            time_limit=options.time_limit,
            speed=options.pace or 1.0,
            workers=self._workers,
            is_watched=self._page is not None,
        )

    def cut_short(self, cut: Cut) -> None:
        """Write and show the results so far, and the missing runs."""
        self._note_missing(cut)
        if self._at is not None:
            self._show.end_file(self._at.result)
        self.end()

    def hung(self, why: str) -> None:
        """Write and show the results so far when a run hangs and the process ends. Runs in another thread."""
        code = signals.code if why == "interrupted" else TIME_LIMIT
        name = signals.name if why == "interrupted" else ""
        self.cut_short(Cut("interrupted" if why == "interrupted" else "time limit", code, name))

    def end(self) -> None:
        """Write and show all results."""
        wrote = self._written.finish()
        self._show.end(self.results, perf_counter() - self._began, self.code(), self._written.problems)
        for path in wrote:
            print(f"wrote {path}", file=sys.stderr, flush=True)


class _FileReporter:
    """The printer and writer of the progress of the runs of one file."""

    def __init__(
        self,
        result: FileResult,
        options: RunOptions,
        show: Show,
        written: Written,
        hung: Callable[[str], None],
        page: RunsPage | None,
    ) -> None:
        self._result = result
        self._options = options
        self._show = show
        self._written = written
        self._hung = hung
        self._page = page

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

    def begins(self, cell: Cell, trial: int) -> PaceOrder | None:
        return None if self._page is None else self._page.begins(self._result.file, cell, trial)

    def going(self, cell: Cell, trial: int, going: RunProgress) -> None:
        if self._page is not None:
            self._page.going(self._result.file, cell, trial, going)
        self._show.going(cell.label, trial, going.done, going.total, going.text, going.tree)

    def gone(self, cell: Cell, trial: int) -> None:
        self._show.gone(cell.label, trial)

    def last_words(self, cell: Cell, why: str, where: str) -> None:
        """Print that a run hangs, and end the process, since the run cannot be ended in another way."""
        self._show.abandon()
        said = f"{self._result.file} {cell.label}: {why}, and it cannot be ended: {where}"
        print(said, file=sys.stderr, flush=True)
        self._hung(why)
        sys.stdout.flush()
        signals.end_process(interrupted=why == "interrupted")

    def ended(self, cell: Cell, run: RunResult) -> None:
        run = attrs.evolve(run, again=self._again(run))
        with signals.held():  # the reports and the log must have the same runs
            kept = self._written.run(self._result, run, cell.scenario)
            self._result.runs.append(kept)
        if self._page is not None:
            self._page.ended(self._result.file, cell, kept)
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
        return shlex.join([*words, *_access_words(self._options.access)])


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _access_words(access: RemoteAccess) -> Iterator[str]:
    """Yield the options of a command that give the same access, without any secrets."""
    for option, path in (("--ca", access.ca), ("--cert", access.cert), ("--key", access.key)):
        if path is not None:
            yield from (option, os.path.relpath(path))
    for url, text in access.credentials:
        yield from ("--credential", f"{url}={text}")
    if access.insecure:
        yield "--insecure"
