"""The virtual clock: time goes on only when nothing is left to do at the present instant.

trio asks a clock how long to sleep (`deadline_to_sleep_time`) only when no task can run. That is the moment
to jump. The clock fires the runtime's timers itself, one after another, over many instants, until one of them
has made a task runnable; then it returns 0, and trio checks at once. So a timer costs neither a task nor a
pass of trio's run loop.

The invariants of this file:

- Time never passes an instant at which something is due: a timer of the runtime, a sleeping task, a deadline
  of trio. At one instant timers come first, in the order of `call_at`, then sleepers and deadlines.
- Instants are whole microseconds, so that instants that ought to be equal are equal, whatever the last digit
  of the C library.
- Nothing depends on real time except how often the loop checks I/O and Ctrl-C, which appears in no record.

trio's own MockClock is unsuitable: it jumps while threads work, and the runtime's timers would need a task.
One heap for all timers is slow when there are very many, so later timers are kept in pages (lists by their
hundredth of a second or so) and moved to the heap page by page. The task that runs turns may let time go on
by itself (`go_on`) as long as it is the only task that has been woken.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import contextmanager
from functools import partial
from heapq import heapify, heappop, heappush
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

import trio
from trio.lowlevel import Abort, checkpoint_if_cancelled, current_task, reschedule, wait_task_rescheduled

from lmos_actors._core import BUDGET, Timer, TimerHeap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sized

_MANY_TIMERS = 2_048  # timers in one heap before those of later are kept apart
_PAGES_PER_SECOND = 128  # a second
_TIMERS_BETWEEN_LOOKS = 8  # timers fired between two looks at
_LONGEST_STRETCH = 0.01  # seconds of real time for which the run loop may be kept from I/O and Ctrl-C


class TrioDeadlines(Protocol):
    """The deadlines of trio's run loop."""

    def next_deadline(self) -> float:
        """Return the instant of the next deadline, infinity if there is none."""
        ...

    def expire(self, now: float, /) -> bool:
        """Cancel the scopes whose deadlines have passed, as trio's loop does after each pass."""
        ...


class VirtualClock(trio.abc.Clock, TimerHeap):
    """A clock that starts at 0.0 and jumps to the next instant at which anything is due.

    trio asks a clock how long to sleep only when no task can run: that is the moment to jump. The runtime's
    timers live in the clock itself, so that a timer costs neither a task nor a pass of trio's run loop:
    timers fire one after another, over many instants, until one has woken a task. At one instant timers come
    before trio's own deadlines, and among themselves in the order of `call_at`.

    Tasks that `sleep_until` are in a separate heap. They count as trio's deadlines do: all that are due at
    one instant wake in one pass of trio's loop, which orders them, after the timers of that instant. A cancel
    scope whose deadline is the same instant cancels the sleep.

    A heap of very many timers is slow: each costs some twenty comparisons all over memory. If there are many,
    later timers are in unordered lists by their hundredth of a second or so (pages). When the heap has no
    earlier timer left, the next page is put into it.

    `autojump_threshold` has the value of a `MockClock` whose time jumps at once: code that uses it to
    recognize virtual time, so as to give threads no work, works here too.

    `trio.testing.wait_all_tasks_blocked` does not work on this clock; use `settle` instead. A run that waits
    for sockets, threads or processes has to keep a `hold` open meanwhile.
    """

    autojump_threshold: Final = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        """The number of timers fired, deadlines jumped to and tasks made runnable so far."""
        self.on_deadlock: Callable[[], None] | None = None
        """Called whenever nothing can ever happen again: it wakes a task, or raises.

        None: trio then waits for I/O, for ever if none comes.
        """
        self.deadlines: TrioDeadlines = _UnknownDeadlines()
        """Trio's own deadlines; while they are unknown, every turn costs a pass of trio's run loop."""
        self._now = 0.0
        self._sleepers = _Sleepers()
        self._pages: dict[int, list[tuple[float, int, Timer]]] = {}
        self._numbers: list[int] = []  # of those pages, as a heap
        self._heap_horizon = math.inf  # what is due before this instant is in the heap
        self._put_off = 0  # how many timers are in pages
        self._holds = 0
        self._settling: deque[trio.lowlevel.Task] = deque()
        self._chore: Callable[[], None] = _nothing
        self._chore_every = 0
        self._chore_due = math.inf
        self._started = False
        self._idle_since = -1
        self._woken_tasks = 0
        self._timers_left = 0
        self._late_at = math.inf

    def start_clock(self) -> None:
        """Begin a run; trio calls this. A clock serves one run. Raises RuntimeError on a second."""
        if self._started:
            raise RuntimeError("a virtual clock serves one run only")
        self._started = True
        trio.lowlevel.add_instrument(_WakeWatch(self))

    def current_time(self) -> float:
        """Return the present instant, in virtual seconds since the run began."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Schedule a call of `callback` at `when`, rounded to whole microseconds.

        Rounding makes instants equal that ought to be, whatever the C library's last digit.
        """
        if not -math.inf < when < math.inf:
            raise ValueError(f"a timer needs a finite instant, not {when}")
        when = round(when * 1e6) / 1e6
        # as TimerHeap does, written out: most of what happens in a simulation begins here
        timer = Timer(when, callback, self)
        self._sequence = sequence = self._sequence + 1
        if when < self._heap_horizon:
            heap = self._heap
            heappush(heap, (when, sequence, timer))
            if len(heap) > _MANY_TIMERS and self._heap_horizon == math.inf:
                self._heap_horizon = (int(self._now * _PAGES_PER_SECOND) + 1) / _PAGES_PER_SECOND
        else:
            page = self._pages.get(int(when * _PAGES_PER_SECOND))
            if page is None:
                self._begin_page((when, sequence, timer))
            else:
                page.append((when, sequence, timer))
                self._put_off += 1
        return timer

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule a call of `callback` in `seconds` from now; duplicates the code of `call_at` for speed."""
        when = self._now + seconds
        if not -math.inf < when < math.inf:
            raise ValueError(f"a timer needs a finite instant, not {when}")
        when = round(when * 1e6) / 1e6
        timer = Timer(when, callback, self)
        self._sequence = sequence = self._sequence + 1
        if when < self._heap_horizon:
            heap = self._heap
            heappush(heap, (when, sequence, timer))
            if len(heap) > _MANY_TIMERS and self._heap_horizon == math.inf:
                self._heap_horizon = (int(self._now * _PAGES_PER_SECOND) + 1) / _PAGES_PER_SECOND
        else:
            page = self._pages.get(int(when * _PAGES_PER_SECOND))
            if page is None:
                self._begin_page((when, sequence, timer))
            else:
                page.append((when, sequence, timer))
                self._put_off += 1
        return timer

    def _begin_page(self, entry: tuple[float, int, Timer]) -> None:
        """Begin a new page, with the first timer that belongs to it."""
        number = int(entry[0] * _PAGES_PER_SECOND)
        self._pages[number] = [entry]
        heappush(self._numbers, number)
        self._put_off += 1

    def _turn_page(self) -> None:
        """Move the next page to the heap once it is due; without pages, the heap takes all timers."""
        heap, numbers = self._heap, self._numbers
        while not heap or heap[0][0] >= self._heap_horizon:
            if not numbers:
                self._heap_horizon = math.inf
                return
            page = self._pages.pop(heappop(numbers))
            self._put_off -= len(page)
            live = [entry for entry in page if entry[2].callback is not None]
            self._cancelled -= len(page) - len(live)
            if len(live) > len(heap) // 8:
                heap += live
                heapify(heap)
            else:
                for entry in live:
                    heappush(heap, entry)
            self._heap_horizon = numbers[0] / _PAGES_PER_SECOND if numbers else math.inf

    def __len__(self) -> int:
        """Return the number of pending timers."""
        return len(self._heap) + self._put_off - self._cancelled

    def forget(self) -> None:
        """Count a timer that has been cancelled, and remove cancelled timers when they are the majority."""
        self._cancelled += 1
        if self._cancelled * 2 > len(self._heap) + self._put_off:
            for entries in (self._heap, *self._pages.values()):
                entries[:] = [entry for entry in entries if entry[2].callback is not None]
            heapify(self._heap)
            self._put_off = sum(map(len, self._pages.values()))
            self._cancelled = 0
        self._drop_cancelled()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Stop virtual time while the block is open, for real I/O: the run then sleeps in real time."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    @trio.lowlevel.enable_ki_protection
    async def sleep_until(self, when: float) -> None:
        """Wait until `when`, a finite instant in the future: in a simulation `trio.sleep` calls this.

        Each sleep takes a timer and a reschedule, instead of trio's scope, deadline and exception.
        """
        timer = self._sleepers.call_at(when, partial(reschedule, current_task()))

        def abort(_: object) -> Abort:
            timer.cancel()
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        await checkpoint_if_cancelled()  # by another task, which has woken at the same instant and ran before

    async def settle(self) -> None:
        """Wait until nothing is left to do at the present instant: tasks are blocked, due timers have fired.

        Several tasks that settle are woken one by one, in order, each after the effects of the previous one.
        Virtual time stands still meanwhile.
        """
        # trio looks at tasks in wait_all_tasks_blocked only if it is about to sleep for longer than their
        # cushion; this clock never lets it sleep but jumps, so they would wake when the world has ended.
        task = current_task()

        def abort(_: object) -> Abort:
            self._settling.remove(task)
            return Abort.SUCCEEDED

        self._settling.append(task)
        await wait_task_rescheduled(abort)

    def every_events(self, count: int, chore: Callable[[], None]) -> None:
        """Call `chore` each time another `count` events have happened; it must wake no task."""
        self._chore = chore
        self._chore_every = count
        self._chore_due = self.events + count

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how long trio may sleep, after firing what is due or jumping to `deadline`.

        trio calls this when no task can run.

        Tasks may be rescheduled and cancellations delivered in here as anywhere else in trio's run: trio
        checks which tasks are runnable only after this call, and 0 makes it check at once.
        """
        heap = self._heap
        deadline = min(deadline, self._sleepers.first())
        self.woke = False
        self._woken_tasks = 0
        self._timers_left = BUDGET
        self._late_at = math.inf
        for _ in range(BUDGET):
            if not heap or heap[0][0] >= self._heap_horizon:
                self._turn_page()
            # `deadline` is as old as this pass: a callback that moves one sets `woke`
            if not heap or (when := heap[0][0]) > deadline:
                break
            if when > self._now:
                if self._settling or self._holds:
                    break
                self._now = when
            self.events += 1
            self._fire_first()
            if self.woke:
                self._wake_sleepers()
                return 0
        else:
            self._do_chore()
            self._wake_sleepers()
            return 0
        return self._advance(deadline)

    def go_on(self, ready: Sized, serve: Callable[[], None], /) -> bool:
        """Fire timers and call `serve` for what they put in `ready`, without a pass of trio's loop for each.

        The task that runs turns calls this when it has none left. Nothing happens if another task can run, if
        trio has to handle a deadline first, or after a fixed number of timers: then the loop goes on as
        usual. Return True if another task has been woken, or if `serve` has left turns: so the loop has to
        decide which comes first.
        """
        heap, sleepers, deadlines = self._heap, self._sleepers.heap, self.deadlines
        # since the loop has last found no task that could run, the caller alone has been woken
        while self._woken_tasks == 1 and self._timers_left:
            if not heap or heap[0][0] >= self._heap_horizon:
                self._turn_page()
                if not heap:
                    break
            when = heap[0][0]
            if when >= deadlines.next_deadline() or (sleepers and when >= sleepers[0][0]):
                return False
            if when > self._now:
                if self._settling or self._holds:
                    return False
                self._now = when
            self._timers_left -= 1
            if not self._timers_left % _TIMERS_BETWEEN_LOOKS and self._is_late():
                return False
            self.events += 1
            timer = heappop(heap)[2]
            callback, timer.callback = timer.callback, None
            if self._cancelled:
                self._drop_cancelled()
            if callback is not None:
                callback()
            if self.events >= self._chore_due:
                self._do_chore()
            if ready and self._woken_tasks == 1:
                serve()
                if ready:
                    return True
        return self._woken_tasks != 1

    def _is_late(self) -> bool:
        """Return whether it is time for the loop to check I/O and Ctrl-C.

        The time of this check appears in no record.
        """
        now = monotonic()
        if self._late_at == math.inf:
            self._late_at = now + _LONGEST_STRETCH
        return now > self._late_at

    def _advance(self, deadline: float) -> float:
        """Wake a settling task, or let time go on, or report a deadlock. No timer may be due."""
        self._do_chore()
        if deadline <= self._now:
            self._wake_sleepers()
            return 0
        if self._settling:
            reschedule(self._settling.popleft())
            return 0
        if self._holds:
            return math.inf
        if deadline < math.inf:
            self.events += 1
            self._now = deadline
            self._wake_sleepers()
            return 0
        if self.on_deadlock is None:
            return math.inf
        # trio itself waits for I/O at times, such as for `run_sync_soon`: let it look once more
        if self._idle_since == self.events:
            self.on_deadlock()
        self._idle_since = self.events
        return 0

    def _wake_sleepers(self) -> None:
        """Wake the tasks whose time has come, except those that a deadline of this instant cancels."""
        sleepers, now = self._sleepers, self._now
        if sleepers.first() <= now:
            if self.deadlines.next_deadline() <= now:
                self.deadlines.expire(now)
            sleepers.wake(now)

    def _do_chore(self) -> None:
        if self.events >= self._chore_due:
            self._chore_due = self.events + self._chore_every
            self._chore()

    def task_was_woken(self) -> None:
        """Record that a task has become runnable: the present instant is not over."""
        self.woke = True
        self._woken_tasks += 1
        self.events += 1
        if self.events >= self._chore_due:
            self._do_chore()


async def settle() -> None:
    """Wait until nothing is left to do at the present instant of a simulated world.

    Raises RuntimeError in a run whose clock is not a VirtualClock.
    """
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, VirtualClock):
        raise RuntimeError(f"only a simulated world settles, and this run goes by a {type(clock).__name__}")
    await clock.settle()


class _Sleepers(TimerHeap):
    """The timers of sleeping tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.heap = self._heap  # the same list for ever, for a look without a call

    def first(self) -> float:
        """Return the instant at which the first task is to wake, or infinity if no task sleeps."""
        heap = self._heap
        return heap[0][0] if heap else math.inf

    def wake(self, now: float) -> None:
        """Wake all tasks whose instant has come, in the order in which they went to sleep."""
        while self.first() <= now:
            self._fire_first()


class _WakeWatch(trio.abc.Instrument):
    """An instrument that informs the clock of every task that becomes runnable.

    A turn may set an event that is unknown to the runtime; going on to later timers would then let the woken
    task run too late.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._woken = clock.task_was_woken

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._woken()


def _nothing() -> None:
    pass


class _UnknownDeadlines:
    """A substitute for trio's deadlines if they are unknown: one may be due at any instant."""

    def next_deadline(self) -> float:
        return -math.inf

    def expire(self, now: float, /) -> bool:
        return False
