"""Timers of the runtime: callbacks at instants, without a task or a cancel scope for each.

`Timers` is the interface. `TaskTimers` fires them in real time, with one task for all of them; the virtual
clock of a simulated world fires them itself. A callback belongs to the runtime: it never blocks and never
raises.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Never, Protocol

import msgspec
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

BUDGET = 256
"""Callbacks between two passes of trio's run loop, so that a flood of timers starves nothing."""


class Timer(msgspec.Struct, eq=False):  # made in C: there are very many
    """A callback due at the instant `when` (seconds of the run's clock).

    A timer may be in the chain of its owner's pending timers, between `before` and `after`. It leaves the
    chain when it is cancelled; the callback of a timer that fires has to call `leave`. A chain takes less
    memory than a set, and there are very many owners.
    """

    when: float
    callback: Callable[[], None] | None
    heap: TimerHeap
    owner: TimerOwner | None = None
    before: Timer | None = None
    after: Timer | None = None

    def __repr__(self) -> str:
        return f"<Timer of {self.when:g} s>"

    def cancel(self) -> None:
        """Cancel the callback. Never blocks; late or repeated calls do nothing."""
        self.leave()
        if self.callback is not None:
            self.callback = None
            self.heap.forget()

    def join(self, owner: TimerOwner) -> None:
        """Put this timer at the front of an owner's chain."""
        first = owner.timers
        if first is not None:
            first.before = self
        self.owner, self.after = owner, first
        owner.timers = self

    def leave(self) -> None:
        """Remove this timer from its owner's chain, if it is in one."""
        owner = self.owner
        if owner is None:
            return
        before, after = self.before, self.after
        if before is None:
            owner.timers = after
        else:
            before.after = after
        if after is not None:
            after.before = before
        self.owner = self.before = self.after = None


class TimerOwner(Protocol):
    """The owner of pending timers, which end with their owner: an agent, for instance."""

    timers: Timer | None
    """The first of the chain."""


def timers_of(owner: TimerOwner) -> Iterator[Timer]:
    """Yield the pending timers of an owner, the newest first."""
    timer = owner.timers
    while timer is not None:
        yield timer
        timer = timer.after


class Timers(Protocol):
    """The timers that the runtime uses."""

    woke: bool
    """Set by a callback that woke a task or moved a cancel scope's deadline: the instant is not over yet."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `when`; equal instants fire in the order of these calls.

        An instant in the past counts as now. Raises ValueError if `when` is not finite.
        """
        ...

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` `seconds` from now, as `call_at` does."""
        ...

    def go_on(self, ready: Sized, serve: Callable[[], None], /) -> bool:
        """Let virtual time pass, and call `serve` for what a timer puts in `ready`.

        Called by the dispatcher when no turn is left. Return whether other tasks may run now, before what is
        left in `ready`. If nothing is left there, the dispatcher has to wait.
        """
        ...


class TimerHeap:
    """Timers by instant, then by order. The first entry is always live: the cancelled ones at the top go
    at once, the others when they fall due or when they have become more than half of all.
    """

    def __init__(self) -> None:
        self.woke = False
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        """Return the number of timers that are still to fire."""
        return len(self._heap) - self._cancelled

    def __bool__(self) -> bool:
        """Return True even without a timer, as `clock or …` tests whether there is a clock."""
        return True

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `when`."""
        if not -math.inf < when < math.inf:
            raise ValueError(f"a timer needs a finite instant, not {when}")
        timer = Timer(when, callback, self)
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, timer))
        return timer

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` `seconds` from now."""
        return self.call_at(trio.current_time() + seconds, callback)

    def go_on(self, ready: Sized, serve: Callable[[], None], /) -> bool:
        """Return False, as real time passes by itself; see `Timers.go_on`."""
        return False

    def forget(self) -> None:
        """Account for a timer that has been cancelled."""
        self._cancelled += 1
        heap = self._heap
        if self._cancelled * 2 > len(heap):
            heap[:] = [entry for entry in heap if entry[2].callback is not None]
            heapify(heap)
            self._cancelled = 0
        self._drop_cancelled()

    def _drop_cancelled(self) -> None:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
            self._cancelled -= 1

    def _fire_first(self) -> None:
        timer = heappop(self._heap)[2]
        callback, timer.callback = timer.callback, None
        if self._cancelled:
            self._drop_cancelled()
        if callback is not None:
            callback()


class TaskTimers(TimerHeap):
    """Timers in trio's own time. `run` is their task; with no timer left it sleeps without a wake-up."""

    def __init__(self) -> None:
        super().__init__()
        self._sleep: trio.CancelScope | None = None

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `when`, or as soon after that as the run loop allows."""
        timer = super().call_at(when, callback)
        self._set_alarm()
        return timer

    def forget(self) -> None:
        """Account for a timer that has been cancelled."""
        super().forget()
        self._set_alarm()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> Never:
        """Fire the timers as they fall due, until cancelled. To be run by one task at a time."""
        while True:
            with trio.CancelScope(deadline=self._next()) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
            now = trio.current_time()
            for _ in range(BUDGET):
                if self._next() > now:
                    break
                self._fire_first()

    def _next(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def _set_alarm(self) -> None:
        if self._sleep is not None and self._sleep.deadline != self._next():
            self._sleep.deadline = self._next()
