"""Clocks that stand still while a person is asked.

A time limit is meant for programs, and a person may take hours. So work under a time limit has a `Clock`,
which stands still while a question of this work waits: a question asked by the agent that does the work, or
by an agent that it has called. A chat turn that was started in the turn of another one is part of that turn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

import trio

from lmos_actors.actors import RUNTIME, current_run

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import TracebackType

    from lmos_actors.actors import OwnTask, Run


class Clock:
    """The time of one piece of work, which stands still for at most `most` seconds in all.

    Deadlines are on the clock of `trio.current_time()`.
    """

    def __init__(self, most: float = inf) -> None:
        self.asked = ""
        """The report of an untrusted node that it asks a person, as text; "" if there is none."""
        self._most = most
        self._left: dict[trio.CancelScope, float] = {}
        """The scopes under its deadlines, and the seconds that each has left while it stands still."""
        self._stops = 0
        self._since = 0.0
        self._stood = 0.0

    @property
    def stood(self) -> float:
        """The seconds for which this clock has stood still so far."""
        return self._stood + (self._still_until() - self._since if self._stops else 0.0)

    def scope(self, deadline: float) -> TimeLimit:
        """Return a cancel scope whose deadline is put off by the time for which this clock stands still."""
        return TimeLimit(self, deadline)

    def add(self, scope: trio.CancelScope) -> None:
        """Put off the deadline of a scope while this clock stands still, until `remove`."""
        self._left[scope] = 0.0
        if self._stops:
            self._hold(scope)

    def remove(self, scope: trio.CancelScope) -> None:
        """Undo `add`: put off the deadline no longer."""
        del self._left[scope]

    def stop(self) -> None:
        """Stand still until `go` has been called as often as `stop`."""
        self._stops += 1
        if self._stops == 1:
            self._since = trio.current_time()
            for scope in self._left:
                self._hold(scope)

    def go(self) -> None:
        """Undo one `stop`."""
        self._stops -= 1
        if not self._stops:
            until = self._still_until()
            self._stood += until - self._since
            for scope, left in self._left.items():
                scope.deadline = until + left

    def _hold(self, scope: trio.CancelScope) -> None:
        self._left[scope] = scope.deadline - self._still_until()
        scope.deadline = self._end() + self._left[scope]

    def _still_until(self) -> float:
        """Return the time up to which the clock has stood still since it was stopped."""
        return min(trio.current_time(), self._end())

    def _end(self) -> float:
        """Return the latest time at which the clock goes on."""
        return self._since + self._most - self._stood


class TimeLimit:
    """A cancel scope whose deadline is put off while its clock stands still."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock = clock
        self._scope = trio.CancelScope(deadline=deadline)

    def __enter__(self) -> trio.CancelScope:
        self._scope.__enter__()
        self._clock.add(self._scope)
        return self._scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._clock.remove(self._scope)
        return bool(self._scope.__exit__(kind, error, trace))


class Clocks:
    """The clocks of one node, by the runs that work under them; and the number of stops for each run."""

    def __init__(self) -> None:
        self._at: defaultdict[Run | OwnTask, list[Clock]] = defaultdict(list)
        self._above: dict[str, Run | OwnTask] = {}
        self._stops: Counter[Run | OwnTask] = Counter()

    @contextmanager
    def during(self, run: Run | OwnTask, clock: Clock) -> Generator[None]:
        """Inside this block, stop a clock while a question waits that was asked in the work of a run."""
        for _ in range(self._stops[run]):
            clock.stop()
        self._at[run].append(clock)
        try:
            yield
        finally:
            self._at[run].remove(clock)
            if not self._at[run]:
                del self._at[run]
            for _ in range(self._stops[run]):
                clock.go()

    @contextmanager
    def part_of(self, path: str, run: Run | OwnTask | None) -> Generator[None]:
        """Inside this block, count the work of the agent at a path as part of a run."""
        if run is not None:
            self._above[path] = run
        try:
            yield
        finally:
            self._above.pop(path, None)

    def run_above(self, path: str) -> Run | OwnTask | None:
        """Return the run that the work of the agent at a path is part of, or None."""
        return self._above.get(path)

    def stop(self, run: Run | OwnTask) -> None:
        """Let the clocks of a run stand still until `go` has been called as often as `stop`."""
        self._stops[run] += 1
        for clock in self._at.get(run, ()):
            clock.stop()

    def go(self, run: Run | OwnTask) -> None:
        """Undo one `stop`."""
        self._stops[run] -= 1
        if not self._stops[run]:
            del self._stops[run]
        for clock in self._at.get(run, ()):
            clock.go()

    def note(self, runs: Iterable[Run | OwnTask], text: str) -> None:
        """Set the text `asked` of the clocks of some runs, without stopping these clocks."""
        for clock in [clock for run in runs for clock in self._at.get(run, ())]:
            clock.asked = text


@contextmanager
def standing_still(clock: Clock) -> Generator[None]:
    """Inside this block, stop a clock while a question of the current run waits; see `Clocks`."""
    rt, run = RUNTIME.get(None), current_run()
    if rt is None or rt.approvals is None or run is None:
        yield
        return
    with rt.approvals.clocks.during(run, clock):
        yield
