"""Scheduled calls that need no tasks: the owner provides the clock and calls `tick`."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMERS: Final = 1024  # below this number, cancelled ones are not searched for


@attrs.define(eq=False)
class Timer:
    """A call at a time, unless it is cancelled."""

    at: float
    act: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the call."""
        self.cancelled = True


class Scheduler:
    """A schedule of calls. `clock` returns seconds, and never goes back.

    The owner calls `tick` at the time that `due` returns; `wake` is called when that time may have changed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.wake: Callable[[], object] = lambda: None
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._most_timers = _TIMERS

    def after(self, seconds: float, act: Callable[[], object]) -> Timer:
        """Schedule a call after a number of seconds."""
        if len(self._timers) > self._most_timers:
            self._timers = [each for each in self._timers if not each[2].cancelled]
            heapq.heapify(self._timers)
            self._most_timers = max(_TIMERS, 2 * len(self._timers))
        timer = Timer(self.clock() + seconds, act)
        heapq.heappush(self._timers, (timer.at, next(self._numbers), timer))
        self.wake()
        return timer

    def due(self) -> float | None:
        """Return the time of the next `tick` on the clock, or None if no call is scheduled."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def tick(self) -> None:
        """Make the calls that are due."""
        while (at := self.due()) is not None and at <= self.clock():
            heapq.heappop(self._timers)[2].act()
