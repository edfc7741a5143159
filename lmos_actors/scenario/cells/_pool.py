"""Worker processes for runs: started when needed, replaced when they die, ended with the command."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import attrs

from ..run import (
    PaceOrder,
    RunLost,
    RunOrder,
    RunProgress,
    Worker,
    WorkerMessage,
    WorkerReady,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.reports import RunResult

SPARE = 30.0
"""Seconds of real time that a process has beside those of a run."""


@attrs.frozen(eq=False)
class Task:
    """One run to do: the cell by its number, the trial, and whether it is the cell's `second` run."""

    cell: int
    trial: int
    second: bool = False


@attrs.define(eq=False)
class _Seat:
    """A process with its jobs; `errors` is the captured output of its agents."""

    worker: Worker
    second: bool
    errors: BinaryIO | None
    given: deque[tuple[Task, RunOrder]]
    ready: bool = False
    due: float = 0.0

    def give(self, task: Task, order: RunOrder) -> None:
        self.given.append((task, order))
        self.worker.begin(order)
        if len(self.given) == 1:
            self.wait_for_next()

    def wait_for_next(self) -> None:
        if self.given:
            self.due = monotonic() + SPARE + self.given[0][1].longest

    @property
    def due_at(self) -> float:
        """The time at which the run is given up, on the monotonic clock.

        A watched run may be held up, so its time is counted from its last message.
        """
        if self.given and self.given[0][1].pace is not None:
            return max(self.due, self.worker.heard_at + SPARE + self.given[0][1].longest)
        return self.due

    def last_line(self) -> str:
        """Return the last line of the process's output, to be shown if the process has died."""
        if self.errors is None:
            return ""
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def end(self) -> None:
        self.worker.end()
        if self.errors is not None:
            self.errors.close()


class Pool:
    """Processes that run cells; leaving the `with` block ends all of them.

    Processes for second runs have another hash seed. The output of agents in first runs goes to `errors`, or
    to standard error if that is None.
    """

    def __init__(self) -> None:
        self.errors: BinaryIO | None = None
        self.watched: Callable[[bytes, bytes], None] = lambda lines, news: None
        """Takes what comes of runs that somebody watches; see `Worker`."""
        own = os.environ.get("PYTHONHASHSEED", "")
        self._hash_seeds = (own if own.isdecimal() else "0", "2" if own == "1" else "1")
        self._inbox: SimpleQueue[WorkerMessage] = SimpleQueue()
        self._seats: list[_Seat] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        seats, self._seats = self._seats, []
        for seat in seats:
            seat.end()

    @property
    def busy(self) -> int:
        """The number of runs that are under way, or queued in a process behind another run."""
        return sum(len(seat.given) for seat in self._seats)

    def has_room(self, *, second: bool) -> bool:
        """Return whether a run can begin without waiting for another run to end or for processes to start.

        At most one process per processor starts at a time: short runs would be over before further processes
        were ready.
        """
        idle = any(not seat.given for seat in self._seats if seat.second is second)
        return idle or sum(not seat.ready for seat in self._seats) < (os.cpu_count() or 1)

    def prepare(self, *, second: bool) -> None:
        """Start a process in advance, so that it is ready when a run needs it."""
        self._start(second=second)

    def give(self, task: Task, order: RunOrder, *, beside: bool = True) -> None:
        """Assign a run to an idle or new process; without `beside`, to any process, behind its other runs."""
        mine = [seat for seat in self._seats if seat.second is task.second]
        idle = next((seat for seat in mine if not seat.given or not beside), None)
        (idle or self._start(task.second)).give(task, order)

    def _start(self, second: bool) -> _Seat:
        # the output of agents must not appear twice
        errors = cast("BinaryIO", tempfile.TemporaryFile()) if second else None  # noqa: SIM115 - the seat does
        seat = _Seat(
            Worker(self._hash_seeds[second], self._inbox, errors or self.errors, self._pass_on),
            second,
            errors,
            deque(),
        )
        self._seats.append(seat)
        return seat

    def _pass_on(self, lines: bytes, news: bytes) -> None:
        self.watched(lines, news)

    def set_pace(self, pace: PaceOrder, *, step: bool) -> None:
        """Change the pace of the watched run. May be called from any thread; never blocks."""
        for seat in tuple(self._seats):
            if not seat.second:
                seat.worker.set_pace(pace, step=step)

    def drop(self, task: Task) -> None:
        """Withdraw a run that has been assigned, if it is not over."""
        for seat in self._seats:
            if any(given is task for given, _ in seat.given):
                self._give_up(seat, [each for each in seat.given if each[0] is not task])
                return

    def take(self, *, wait: bool = True) -> tuple[Task, RunProgress | RunLost | RunResult] | None:
        """Wait a limited time for the next message about a run, and return it; None if there was none."""
        try:
            message = self._inbox.get(timeout=self._patience() if wait else 0.0)
        except Empty:
            return self._overdue()
        seat = next((seat for seat in self._seats if seat.worker is message.worker), None)
        if seat is None:
            return None
        return self._received(seat, message)

    def _received(
        self, seat: _Seat, message: WorkerMessage
    ) -> tuple[Task, RunProgress | RunLost | RunResult] | None:
        what: Any = message.what
        seat.ready = True
        if isinstance(what, WorkerReady):
            return None
        if isinstance(what, RunProgress):
            return (seat.given[0][0], what) if seat.given else None
        task = seat.given.popleft()[0] if seat.given else None
        if message.died:
            what = attrs.evolve(what, why=what.why + seat.last_line())
            self._give_up(seat, list(seat.given))
        else:
            seat.wait_for_next()
        return (task, what) if task is not None else None

    def _give_up(self, seat: _Seat, left: list[tuple[Task, RunOrder]]) -> None:
        """End a process, and pass its remaining runs to another process."""
        self._seats.remove(seat)
        seat.end()
        for task, order in left:
            self.give(task, order, beside=False)

    def _patience(self) -> float:
        return max(min((seat.due_at for seat in self._seats if seat.given), default=0.0) - monotonic(), 0.0)

    def _overdue(self) -> tuple[Task, RunLost] | None:
        now = monotonic()
        for seat in self._seats:
            if seat.given and seat.due_at <= now:
                task, order = seat.given.popleft()
                self._give_up(seat, list(seat.given))
                why = f"its process has been silent for {SPARE + order.longest:g} s"
                return task, RunLost(why, late=True, slow=order.of_processor)
        return None
