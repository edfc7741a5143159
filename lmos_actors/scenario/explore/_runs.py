"""Worker processes that run files which are not on the disk, for the search and for shrinking."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from lmos_actors.reports import Failure, RunResult
from lmos_actors.scenario.cells import Task
from lmos_actors.scenario.run import SLOW, ExploredRun, RunLost, RunOrder

from ._failure import failures_of, is_void
from ._plain import text_of
from ._search import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lmos_actors.scenario.cells import Pool
    from lmos_actors.system import RemoteAccess

    from ._plain import Data

TIME_LIMIT = "the time limit"
"""The name of the failure for a run that takes too long in real time."""

AHEAD = 2
"""Maximum number of runs queued for one process, so that it need not wait for the next."""


@attrs.frozen(kw_only=True)
class Explored:
    """A run of a search: its outcome, the names of its failures, and its result.

    `result` is None if the run's process is gone. `refused` is the reason why a file was not run. `slow` is
    true if the run took too long in real time, but used too little processor time to decide whether it hangs;
    such a run does not count.
    """

    outcome: Outcome
    failures: tuple[str, ...] = ()
    result: RunResult | None = None
    refused: str | None = None
    virtual: float = 0.0
    slow: bool = False


class Runs:
    """A runner of files in place of `file`, up to `workers` at once. `count` is the number of runs."""

    def __init__(
        self, pool: Pool, file: str, *, workers: int, time_limit: float, access: RemoteAccess
    ) -> None:
        self._pool = pool
        self._file = file
        self._workers = workers
        self._limit = time_limit
        self._access = access
        self._number = 0
        self.count = 0

    def in_order(self, files: Sequence[Data], *, second: bool = False) -> Iterator[Explored]:
        """Run several files, and yield each run once that run and those before it have ended.

        With `second` they run in a process with another hash seed. Runs continue if the iterator is not
        exhausted; `drain` waits for them.
        """
        waiting = deque(self._task(second) for _ in files)
        tasks, found = list(waiting), dict[Task, Explored]()
        texts = dict(zip(tasks, files, strict=True))
        for task in tasks:
            while task not in found:
                while waiting and self._pool.busy < self._most:
                    begun = waiting.popleft()
                    self._pool.give(begun, self._order(texts[begun]), beside=self._workers > 1)
                self._take(found)
            yield found[task]

    @property
    def _most(self) -> int:
        return self._workers if self._workers > 1 else AHEAD

    def first(self, files: Sequence[Data], is_one: Callable[[Data, Explored], bool]) -> int | None:
        """Run files until `is_one` accepts one, and return that file's index; None if it accepts none."""
        found: int | None = None
        for number, run in enumerate(self.in_order(files)):
            if is_one(files[number], run):
                found = number
                break
        self.drain()
        return found

    def drain(self) -> None:
        """Wait until no run is under way."""
        while self._pool.busy:
            self._pool.take()

    def written(self, file: str, seed: int, *, second: bool) -> RunResult | RunLost:
        """Run a file from the disk, and keep the whole log."""
        task = self._task(second)
        order = RunOrder(
            file=file,
            settings={},
            seeds=None,
            cell=0,
            label=f"seed={seed}",
            trial=1,
            real_limit=self._limit,
            access=self._access,
            changed=True,
            of_processor=True,
        )
        self._pool.give(task, order)
        while True:
            heard = self._pool.take()
            if heard is not None and heard[0] is task and isinstance(heard[1], RunResult | RunLost):
                return heard[1]

    def _task(self, second: bool) -> Task:
        self._number += 1
        return Task(self._number, 1, second=second)

    def _order(self, data: Data) -> RunOrder:
        return RunOrder(
            file=self._file,
            settings={},
            seeds=None,
            cell=0,
            label=f"seed={data['seeds'][0]}",
            trial=1,
            real_limit=self._limit,
            log=False,
            access=self._access,
            text=text_of(data),
            of_processor=True,
        )

    def _take(self, found: dict[Task, Explored]) -> None:
        heard = self._pool.take()
        if heard is not None and isinstance(heard[1], ExploredRun | RunLost):
            self.count += 1
            found[heard[0]] = explored(heard[1])


def explored(what: ExploredRun | RunLost) -> Explored:
    """Convert the message of a worker into the run that it describes."""
    if isinstance(what, RunLost):
        if what.refused:
            return Explored(outcome=Outcome(void=True), refused=what.why)
        if what.slow:
            return Explored(outcome=Outcome(void=True), slow=True)
        name = TIME_LIMIT if what.late else f"the process: {what.why}"
        return Explored(outcome=Outcome(failure=name), failures=(name,))
    run = what.result
    if any(failure.what == SLOW for failure in run.failures):
        return Explored(outcome=Outcome(void=True), slow=True)
    void = is_void(run)
    failures = () if void else (TIME_LIMIT,) if is_late(run.ended, run.failures) else failures_of(run)
    outcome = Outcome(
        states=what.states,
        instants=what.instants,
        failure=failures[0] if failures else None,
        void=void,
    )
    return Explored(outcome=outcome, failures=failures, result=run, virtual=run.virtual)


def is_late(ended: str, failures: Sequence[Failure]) -> bool:
    """Return whether a run was ended because it took too long in real time."""
    return ended == "time limit" and any(failure.what == "the run" for failure in failures)
