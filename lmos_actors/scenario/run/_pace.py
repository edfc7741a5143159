"""The pace of a watched run: how fast its virtual time passes, and whether it passes at all.

Virtual time jumps from instant to instant, as fast as the machine can. A `PaceKeeper` is called whenever a
record is made. It holds up the thread, in real time, before the first record of an instant that is not due
yet. This does not affect the simulated world: no task, timer or message is added, and the log is the same.
"""

from __future__ import annotations

import threading
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._guard import Guard

BEAT: Final = 0.2
"""Seconds of real time between two signs of life from a run that is held up."""

BEHIND: Final = 0.25
"""Seconds of real time that a slow run may catch up; a longer delay is not made up for."""


@attrs.frozen
class PaceOrder:
    """The pace of a run: virtual seconds per second of real time; None is as fast as possible.

    The live view has a separate class for this, which not every process of a run should import.
    """

    speed: float | None = 1.0
    is_paused: bool = False


NOISE: Final = 1e-9
"""Maximum error of sums of floats, in seconds."""


class PaceKeeper:
    """The pace of one run, which `set` and `step` change from another thread.

    `now` returns real time in seconds; `wait` waits for a change of the pace, up to a number of seconds.
    """

    def __init__(
        self,
        order: PaceOrder,
        *,
        now: Callable[[], float] = monotonic,
        wait: Callable[[threading.Condition, float], object] = threading.Condition.wait,
    ) -> None:
        self._now, self._wait = now, wait
        self._order = order
        self._changed = threading.Condition()
        self._steps = 0
        self._reached = 0.0
        """The last instant that the run was allowed to reach."""
        self._next: float | None = None
        """The instant before which the run is held up, None if it is not."""
        self._from = (0.0, now())
        """An instant of the run, and the real time at which it was due."""

    def set(self, order: PaceOrder) -> None:
        """Change the pace; the new pace counts from the run's present instant."""
        with self._changed:
            if self._next is not None and not self._order.is_paused and self._due() >= self._next - NOISE:
                self._steps += 1  # it is due and shown as reached, but its thread has not woken up yet
            self._from = self._here(), self._now()
            self._order = order
            self._changed.notify_all()

    def _here(self) -> float:
        """Return the run's present time, which is between two instants while the run is held up."""
        if self._next is None:
            return self._reached
        return max(self._reached, min(self._due(), self._next))

    def step(self) -> None:
        """Let a paused run go on to its next instant."""
        with self._changed:
            self._steps += 1
            self._changed.notify_all()

    def is_due(self, instant: float) -> bool:
        """Return whether the run may go on to an instant now; if not, `hold_up` waits until it may."""
        if instant <= self._reached:
            return True
        with self._changed:
            return self._let_go(instant)

    def hold_up(self, instant: float, guard: Guard, beat: Callable[[float], None]) -> None:
        """Wait until the run may go on to an instant. Blocks the thread.

        `beat` is called repeatedly with the run's present time, and may block.
        """
        with guard.held_up():
            while True:
                with self._changed:
                    if self._let_go(instant):
                        self._next = None
                        return
                    self._next = instant
                    here = self._here()
                beat(here)
                with self._changed:
                    if not self._may_go(instant):
                        self._wait(self._changed, min(BEAT, self._left(instant)))

    def _may_go(self, instant: float) -> bool:
        return self._steps > 0 if self._order.is_paused else self._due() >= instant - NOISE

    def _let_go(self, instant: float) -> bool:
        """Let the run go on to an instant if that is allowed; return whether it was."""
        if not self._may_go(instant):
            return False
        if self._order.is_paused:
            self._steps -= 1
        else:
            self._steps = 0
            speed = self._order.speed
            if speed is not None and self._due() - instant > BEHIND * speed:
                self._from = instant, self._now()
        self._reached = instant
        return True

    def _due(self) -> float:
        """Return the instant that is due now."""
        speed = self._order.speed
        if self._order.is_paused:
            return self._from[0]
        return inf if speed is None else self._from[0] + (self._now() - self._from[1]) * speed

    def _left(self, instant: float) -> float:
        speed = self._order.speed
        if self._order.is_paused or speed is None:
            return BEAT
        return max((instant - self._due()) / speed, 0.001)
