"""Timers carried by one task, on trio's own virtual clock."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from lmos_actors._core import BUDGET, TaskTimers, TimerHeap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def with_timers(body: Callable[[TaskTimers], Awaitable[None]], *instruments: trio.abc.Instrument) -> None:
    async def main() -> None:
        timers = TaskTimers()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await body(timers)
            nursery.cancel_scope.cancel()

    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(main, clock=clock, instruments=instruments)


def test_fires_at_its_instant_and_equal_instants_in_order() -> None:
    fired: list[tuple[str, float]] = []

    async def body(timers: TaskTimers) -> None:
        start = trio.current_time()

        def note(name: str) -> Callable[[], None]:
            return lambda: fired.append((name, trio.current_time() - start))

        timers.call_at(start + 2, note("late"))
        for name in "abc":
            timers.call_at(start + 1, note(name))
        timers.call_at(start - 5, note("past"))
        await trio.sleep(3)

    with_timers(body)
    assert fired == [("past", 0), ("a", 1), ("b", 1), ("c", 1), ("late", 2)]


def test_an_earlier_timer_moves_the_alarm() -> None:
    fired: list[float] = []

    async def body(timers: TaskTimers) -> None:
        start = trio.current_time()
        timers.call_at(start + 100, lambda: fired.append(trio.current_time() - start))
        await trio.sleep(1)
        timers.call_at(start + 2, lambda: fired.append(trio.current_time() - start))
        await trio.sleep(10)
        assert fired == [2]
        await trio.sleep(100)

    with_timers(body)
    assert fired == [2, 100]


def test_cancel_is_idempotent_and_harmless_after_firing() -> None:
    fired: list[str] = []

    async def body(timers: TaskTimers) -> None:
        now = trio.current_time()
        kept = timers.call_at(now + 1, lambda: fired.append("kept"))
        gone = timers.call_at(now + 1, lambda: fired.append("gone"))
        gone.cancel()
        gone.cancel()
        assert len(timers) == 1
        await trio.sleep(2)
        kept.cancel()
        assert len(timers) == 0

    with_timers(body)
    assert fired == ["kept"]


def test_a_callback_may_set_and_cancel_timers() -> None:
    fired: list[str] = []

    async def body(timers: TaskTimers) -> None:
        now = trio.current_time()

        def first() -> None:
            fired.append("first")
            second.cancel()
            timers.call_at(now + 1, lambda: fired.append("third"))

        timers.call_at(now + 1, first)
        second = timers.call_at(now + 1, lambda: fired.append("second"))
        await trio.sleep(5)

    with_timers(body)
    assert fired == ["first", "third"]


def test_a_flood_lets_other_tasks_run() -> None:
    fired = 0
    seen: list[int] = []

    async def body(timers: TaskTimers) -> None:
        now = trio.current_time()

        def fire() -> None:
            nonlocal fired
            fired += 1
            if fired < 20 * BUDGET:
                timers.call_at(now, fire)

        timers.call_at(now, fire)
        while fired < 20 * BUDGET:
            await trio.lowlevel.checkpoint()
            seen.append(fired)

    with_timers(body)
    steps = [b - a for a, b in itertools.pairwise(seen)]
    assert max(steps) <= 2 * BUDGET
    assert len(seen) >= 20


class _Passes(trio.abc.Instrument):
    """Counts the run loop's passes that wake the task of the timers."""

    def __init__(self) -> None:
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += "TaskTimers.run" in task.name


def test_no_timer_no_wake_up() -> None:
    passes = _Passes()

    async def body(timers: TaskTimers) -> None:
        await trio.testing.wait_all_tasks_blocked()
        now = trio.current_time()
        for timer in [timers.call_at(now + n, lambda: None) for n in (5, 1, 3)]:
            timer.cancel()
        await trio.testing.wait_all_tasks_blocked()
        before = passes.steps
        await trio.sleep(600)
        assert passes.steps == before

    with_timers(body, passes)
    assert passes.steps > 0


@pytest.mark.parametrize("when", [math.inf, -math.inf, math.nan])
def test_an_instant_is_finite(when: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        TimerHeap().call_at(when, lambda: None)


def test_cancelled_timers_do_not_pile_up() -> None:
    heap = TimerHeap()
    keep = [heap.call_at(n, lambda: None) for n in range(100)]
    for n in range(10_000):
        heap.call_at(1000 + n, lambda: None).cancel()
        assert len(heap._heap) <= 2 * len(keep) + 1
    assert len(heap) == len(keep)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60))
def test_heap_fires_the_live_ones_by_instant_then_order(plan: list[tuple[int, bool]]) -> None:
    heap = TimerHeap()
    fired: list[int] = []

    def note(n: int) -> Callable[[], None]:
        return lambda: fired.append(n)

    timers = [heap.call_at(when, note(n)) for n, (when, _) in enumerate(plan)]
    for timer, (_, cancelled) in zip(timers, plan, strict=True):
        if cancelled:
            timer.cancel()
    expected = [n for n, (_, cancelled) in enumerate(plan) if not cancelled]
    assert len(heap) == len(expected)
    while heap._heap:
        heap._fire_first()
    assert fired == sorted(expected, key=lambda n: plan[n][0])
    assert len(heap) == 0
