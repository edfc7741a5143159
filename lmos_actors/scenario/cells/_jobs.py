"""The runs of one file, in this process or in several; results are reported in the file's order."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from lmos_actors.reports import Failure, Repeated, RunResult
from lmos_actors.simulation import first_difference

from ..run import PaceOrder, RunLost, RunOrder, RunProgress, real_limit_of, run_cell
from ._pool import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..format import Cell, Resolved
    from ._pool import Pool

MOST_AHEAD = 4
"""How many second runs wait in their process while first runs are done here."""


@attrs.frozen(kw_only=True)
class FileJobs:
    """The runs of one file: the numbers of its chosen cells, and of the cells to run twice."""

    file: str
    resolved: Resolved
    settings: dict[str, str]
    seeds: list[int] | None
    until: float | None
    cells: Sequence[int]
    twice: Sequence[int]
    trials: int
    time_limit: float | None
    speed: float
    workers: int
    is_watched: bool = False
    """Somebody watches: each run is in another process, one at a time."""

    def cell(self, number: int) -> Cell:
        """Return a cell by its number."""
        return self.resolved.cells[number]

    def tasks(self) -> list[Task]:
        """Return all runs in the file's order, including the second runs.

        The second runs of every two neighbouring cells swap places. So a second run finds other leftovers of
        earlier runs in modules and classes than the first run did. Comparing the two runs reveals such
        leftovers.
        """
        swapped = [each for at in range(0, len(self.twice), 2) for each in reversed(self.twice[at : at + 2])]
        seconds = dict(zip(self.twice, swapped, strict=True))
        found: list[Task] = []
        for number in self.cells:
            found += [Task(seconds[number], 1, second=True)] if number in seconds else []
            found += [Task(number, trial) for trial in range(1, self.trials + 1)]
        return found

    def order(self, task: Task, *, log: bool, draw: bool, pace: PaceOrder | None) -> RunOrder:
        """Return the order that makes a worker process run a task."""
        return RunOrder(
            file=self.file,
            settings=self.settings,
            seeds=self.seeds,
            until=self.until,
            cell=task.cell,
            label=self.cell(task.cell).label,
            trial=task.trial,
            real_limit=self.time_limit or real_limit_of(self.cell(task.cell)),
            speed=self.speed,
            log=log,
            draw=draw,
            access=self.resolved.access,
            pace=pace,
        )


class Progress(Protocol):
    """A callback for the progress of one run."""

    def __call__(self, done: float, total: float, text: str, /) -> None:
        """Accept the progress so far, the total, and a text on the present step."""
        ...

    def telling(self, watching: Any, /) -> None:
        """Accept the view of the run that may be shown while the run is under way."""
        ...


class RunObserver(Protocol):
    """An observer of runs."""

    @property
    def draws(self) -> bool:
        """Whether trees of agents are to be drawn while runs are under way."""
        ...

    @property
    def fail_fast(self) -> bool:
        """Whether no further run begins after a failed one."""
        ...

    def wants_log(self, cell: Cell) -> bool:
        """Return whether the message log of a cell's runs is wanted."""
        ...

    def progress(self, cell: Cell, trial: int) -> Progress:
        """Return the callback for the progress of a run in this process."""
        ...

    def begins(self, cell: Cell, trial: int) -> PaceOrder | None:
        """Note that a watched run begins, and return the pace for it."""
        ...

    def going(self, cell: Cell, trial: int, going: RunProgress) -> None:
        """Note the progress of a run in another process."""
        ...

    def gone(self, cell: Cell, trial: int) -> None:
        """Note that a run in another process is over."""
        ...

    def last_words(self, cell: Cell, why: str, where: str) -> None:
        """Print that this process exits because a run cannot be ended."""
        ...

    def ended(self, cell: Cell, run: RunResult) -> None:
        """Note the result of a run; called in the file's order."""
        ...


class Jobs:
    """The runs of one file. `repeated` has the second runs, compared with the first, in the file's order."""

    def __init__(self, file_jobs: FileJobs, pool: Pool, observer: RunObserver) -> None:
        self._file_jobs = file_jobs
        self._pool = pool
        self._observer = observer
        self._tasks = file_jobs.tasks()
        self._order = [task for task in self._tasks if not task.second]
        self._results: dict[Task, RunResult] = {}
        self._firsts: dict[int, RunResult] = {}
        self._seconds: dict[int, RunResult | RunLost] = {}
        self._given: dict[int, Task] = {}
        self._repeated: dict[int, Repeated] = {}
        self._under_way: set[Task] = set()
        self._next = 0
        self._stopped = False

    @property
    def repeated(self) -> list[Repeated]:
        """The results of the second runs so far."""
        return [self._repeated[number] for number in self._file_jobs.cells if number in self._repeated]

    @property
    def under_way(self) -> frozenset[tuple[int, int]]:
        """The runs that have begun and not ended, each as the number of its cell and its trial."""
        return frozenset((task.cell, task.trial) for task in self._under_way)

    def run(self) -> None:
        """Do all runs, up to the first failure if the observer is `fail_fast`. Raises KeyboardInterrupt."""
        waiting = deque(self._tasks)
        while waiting or self._pool.busy:
            if waiting and (self._stopped or self._needless(waiting[0])):
                waiting.popleft()
            elif waiting and self._has_room(waiting[0]):
                self._begin(waiting.popleft())
                self._take(wait=False)
            else:
                self._take()
        self.tell_rest()

    def tell_rest(self) -> None:
        """Report the results that were held back because an earlier run has not ended."""
        self._tell(whatever=True)

    def _needless(self, task: Task) -> bool:
        """Return whether a task is a second run to leave out, as the first run has no log to compare."""
        first = self._firsts.get(task.cell)
        return task.second and first is not None and not _has_ended(first)

    def _has_room(self, task: Task) -> bool:
        if self._file_jobs.is_watched and not task.second:
            return not self._under_way
        if self._file_jobs.workers > 1:
            return self._pool.busy < self._file_jobs.workers and self._pool.has_room(second=task.second)
        return not task.second or self._pool.busy < MOST_AHEAD

    def _begin(self, task: Task) -> None:
        if task.second:
            self._given[task.cell] = task
        else:
            self._under_way.add(task)
        is_watched = self._file_jobs.is_watched and not task.second
        if self._file_jobs.workers == 1 and not task.second and not is_watched:
            self._ended(task, self._here(task))
            return
        draw = self._observer.draws and not task.second
        pace = self._observer.begins(self._file_jobs.cell(task.cell), task.trial) if is_watched else None
        order = self._file_jobs.order(task, log=self._log_of(task), draw=draw, pace=pace)
        self._pool.give(task, order, beside=self._file_jobs.workers > 1)

    def _log_of(self, task: Task) -> bool:
        """Return whether the log of a run is needed, to be written or compared."""
        return (
            task.second
            or self._is_compared(task)
            or self._observer.wants_log(self._file_jobs.cell(task.cell))
        )

    def _is_compared(self, task: Task) -> bool:
        return task.trial == 1 and task.cell in self._file_jobs.twice

    def _here(self, task: Task) -> RunResult:
        cell = self._file_jobs.cell(task.cell)
        progress = self._observer.progress(cell, task.trial)
        return run_cell(
            self._file_jobs.resolved,
            cell,
            task.trial,
            real_limit=self._file_jobs.time_limit,
            speed=self._file_jobs.speed,
            progress=progress,
            on_start=progress.telling,
            whole_log=self._log_of(task),
            on_stuck=partial(self._observer.last_words, cell),
        )

    def _take(self, *, wait: bool = True) -> None:
        """Handle the messages of the processes; wait for one if there is none."""
        while (heard := self._pool.take(wait=wait)) is not None:
            task, what = heard
            if isinstance(what, RunProgress):
                if not task.second:
                    self._observer.going(self._file_jobs.cell(task.cell), task.trial, what)
            elif task.second:
                self._seconds[task.cell] = what
                self._compare(task.cell)
            else:
                self._observer.gone(self._file_jobs.cell(task.cell), task.trial)
                self._ended(
                    task, lost_run(self._file_jobs, task, what) if isinstance(what, RunLost) else what
                )
            wait = False

    def _ended(self, task: Task, run: RunResult) -> None:
        self._results[task] = run
        self._under_way.discard(task)
        if self._is_compared(task):
            self._firsts[task.cell] = run
            if not _has_ended(run) and task.cell in self._given:
                self._pool.drop(self._given[task.cell])
            self._compare(task.cell)
        self._stop_if(not run.ok)
        self._tell()

    def _stop_if(self, failed: bool) -> None:
        self._stopped = self._stopped or (failed and self._observer.fail_fast)

    def _tell(self, *, whatever: bool = False) -> None:
        """Report ended runs in order, up to the first unfinished run; with `whatever`, report all of them."""
        for task in self._order[self._next :]:
            run = self._results.pop(task, None)
            if run is not None:
                self._observer.ended(self._file_jobs.cell(task.cell), run)
            elif not whatever:
                return
            self._next += 1

    def _compare(self, number: int) -> None:
        """Compare the two runs of a cell once both have ended, and discard their logs."""
        first, second = self._firsts.get(number), self._seconds.get(number)
        if first is None or second is None or not _has_ended(first):
            return
        found = self._repeated[number] = repeated(first, second)
        self._stop_if(found.difference is not None or found.problem is not None)
        self._firsts[number] = attrs.evolve(first, log=())
        self._seconds[number] = RunLost("")


def _has_ended(run: RunResult) -> bool:
    """Return whether a run ended by itself, so that it has a log to compare."""
    return run.ended in ("passed", "failed")


def repeated(first: RunResult, second: RunResult | RunLost) -> Repeated:
    """Compare two runs of one cell."""
    if isinstance(second, RunLost):
        where = f", {second.where}" if second.where else ""
        problem = f"the second process wrote no log: {second.why}{where}"
        return Repeated(first.label, problem=problem)
    if first.digest == second.digest:
        return Repeated(first.label)
    difference = first_difference(first.log, second.log)
    unseen = None if difference else "the logs differ, in lines that are not kept"
    return Repeated(first.label, difference, unseen)


def lost_run(file_jobs: FileJobs, task: Task, lost: RunLost) -> RunResult:
    """Return the result of a run whose process is gone."""
    cell = file_jobs.cell(task.cell)
    scenario: Any = cell.scenario
    saw = lost.why + (f", {lost.where}" if lost.where else "")
    return RunResult(
        label=cell.label,
        values=cell.values,
        seed=cell.seed,
        trial=task.trial,
        ended="time limit" if lost.late else "could not run",
        steps=0,
        steps_done=0,
        checks=len(scenario.checks),
        checks_passed=0,
        failures=(Failure("", "the run", "an end", saw),),
        virtual=0.0,
        real=0.0,
        digest="",
    )
