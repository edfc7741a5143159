"""The virtual clock by itself."""

from __future__ import annotations

import itertools
import math
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from lmos_actors.actors import BUDGET
from lmos_actors.simulation import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run(body: Callable[[VirtualClock], Awaitable[None]]) -> VirtualClock:
    clock = VirtualClock()
    trio.run(body, clock, clock=clock)
    return clock


def test_starts_at_zero_and_jumps() -> None:
    async def body(clock: VirtualClock) -> None:
        assert clock.current_time() == trio.current_time() == 0.0
        await trio.sleep(86_400.0)
        assert clock.current_time() == 86_400.0

    before = time.monotonic()
    run(body)
    assert time.monotonic() - before < 60


def test_time_stands_still_while_a_task_can_run() -> None:
    async def body(clock: VirtualClock) -> None:
        clock.call_at(1.0, lambda: None)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert clock.current_time() == 0.0

    run(body)


def test_timers_and_deadlines_share_one_order() -> None:
    story: list[tuple[float, str]] = []

    async def sleeper(clock: VirtualClock, when: float) -> None:
        await trio.sleep_until(when)
        story.append((clock.current_time(), "deadline"))

    async def body(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            for when in (1.0, 2.0, 3.0):
                nursery.start_soon(sleeper, clock, when)
            for when in (3.0, 2.5, 1.0, 0.5):
                clock.call_at(when, lambda: story.append((clock.current_time(), "timer")))

    run(body)
    assert story == [
        (0.5, "timer"),
        (1.0, "timer"),
        (1.0, "deadline"),
        (2.0, "deadline"),
        (2.5, "timer"),
        (3.0, "timer"),
        (3.0, "deadline"),
    ]


def test_a_callback_that_wakes_a_task_ends_the_draining() -> None:
    """The woken task runs at the instant of the callback, before later timers, and so do its effects."""
    story: list[tuple[str, float]] = []

    async def body(clock: VirtualClock) -> None:
        event = trio.Event()
        clock.call_at(1.0, event.set)
        clock.call_at(2.0, lambda: story.append(("timer", clock.current_time())))
        await event.wait()
        story.append(("task", clock.current_time()))
        clock.call_at(1.5, lambda: story.append(("between", clock.current_time())))
        await trio.sleep(5)

    run(body)
    assert story == [("task", 1.0), ("between", 1.5), ("timer", 2.0)]


def test_a_callback_may_reschedule_cancel_and_spawn() -> None:
    """What trio promises of its run, it keeps when called while it asks the clock."""
    story: list[tuple[str, float]] = []

    async def child() -> None:
        story.append(("spawned", trio.current_time()))

    async def body(clock: VirtualClock) -> None:
        task = trio.lowlevel.current_task()
        clock.call_at(1.0, lambda: trio.lowlevel.reschedule(task))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        story.append(("rescheduled", trio.current_time()))
        with trio.CancelScope() as scope:
            clock.call_at(2.0, scope.cancel)
            await trio.sleep_forever()
        story.append(("cancelled", trio.current_time()))
        async with trio.open_nursery() as nursery:
            clock.call_at(3.0, lambda: nursery.start_soon(child))
            await trio.sleep(10)

    run(body)
    assert story == [("rescheduled", 1.0), ("cancelled", 2.0), ("spawned", 3.0)]


def test_a_callback_that_moves_a_deadline_says_so() -> None:
    async def body(clock: VirtualClock) -> None:
        with trio.CancelScope(deadline=100) as scope:

            def hurry() -> None:
                scope.deadline = 5.0
                clock.woke = True

            clock.call_at(1.0, hurry)
            clock.call_at(50.0, lambda: None)
            await trio.sleep_forever()
        assert clock.current_time() == 5.0

    run(body)


def test_many_timers_leave_room_for_io() -> None:
    """At most so many timers fire between two looks at I/O."""
    fired = 0
    looks: list[int] = []

    class Looks(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            looks.append(fired)

    async def body() -> None:
        def fire() -> None:
            nonlocal fired
            fired += 1

        for n in range(10 * BUDGET):
            clock.call_at(n / 1000, fire)
        await trio.sleep(100)

    clock = VirtualClock()
    trio.run(body, clock=clock, instruments=[Looks()])
    assert fired == 10 * BUDGET
    assert max(b - a for a, b in itertools.pairwise(looks)) == BUDGET


def test_instants_are_whole_microseconds() -> None:
    fired: list[str] = []

    async def body(clock: VirtualClock) -> None:
        timer = clock.call_at(0.1 + 0.2, lambda: fired.append("sum"))
        clock.call_at(0.3, lambda: fired.append("constant"))
        assert timer.when == 0.3
        assert clock.call_at(1.000_000_4, lambda: None).when == 1.0
        await trio.sleep(5)

    run(body)
    assert fired == ["sum", "constant"]


def test_time_never_goes_back() -> None:
    seen: list[float] = []

    async def body(clock: VirtualClock) -> None:
        await trio.sleep(1.000_000_4)
        clock.call_at(trio.current_time(), lambda: seen.append(clock.current_time()))
        clock.call_at(-7.0, lambda: seen.append(clock.current_time()))
        await trio.sleep(1)

    run(body)
    assert seen == [1.000_000_4] * 2


@pytest.mark.parametrize("when", [math.inf, math.nan])
def test_an_instant_is_finite(when: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        VirtualClock().call_at(when, lambda: None)


def test_a_cancelled_timer_moves_no_time() -> None:
    async def body(clock: VirtualClock) -> None:
        clock.call_at(1.0, lambda: None)
        clock.call_at(50.0, lambda: None).cancel()
        await clock.settle()
        with trio.CancelScope() as scope:
            clock.on_deadlock = scope.cancel
            await trio.sleep_forever()
        assert clock.current_time() == 1.0

    run(body)


def test_hold_lets_real_io_happen_while_time_stands_still() -> None:
    async def body(clock: VirtualClock) -> None:
        fired: list[float] = []
        clock.call_at(1.0, lambda: fired.append(clock.current_time()))
        with trio.move_on_after(2.0) as scope:
            with clock.hold():
                await trio.to_thread.run_sync(time.sleep, 0.02)
                assert (clock.current_time(), fired) == (0.0, [])
                clock.call_at(0.0, lambda: fired.append(clock.current_time()))
                await trio.to_thread.run_sync(time.sleep, 0.02)
                assert fired == [0.0]
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert fired == [0.0, 1.0]

    run(body)


def test_without_hold_time_jumps_over_a_thread() -> None:
    """Why `hold` is there: the same wait without it ends at its virtual deadline."""

    async def body(clock: VirtualClock) -> None:
        started = trio.Event()

        async def thread() -> None:
            started.set()
            await trio.to_thread.run_sync(time.sleep, 0.05)

        with trio.move_on_after(1000.0) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(thread)
                await started.wait()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert clock.current_time() == 1000.0

    run(body)


def test_holds_nest() -> None:
    async def body(clock: VirtualClock) -> None:
        with clock.hold():
            with clock.hold():
                pass
            clock.call_at(1.0, lambda: None)
            await trio.to_thread.run_sync(time.sleep, 0.01)
            assert clock.current_time() == 0.0

    run(body)


def test_settle_waits_for_everything_at_this_instant() -> None:
    story: list[str] = []

    async def busy(clock: VirtualClock) -> None:
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        story.append("busy")
        clock.call_at(clock.current_time(), lambda: story.append("timer"))

    async def body(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy, clock)
            clock.call_at(1.0, lambda: story.append("later"))
            await clock.settle()
            story.append("settled")
            assert clock.current_time() == 0.0
            await trio.sleep(2)

    run(body)
    assert story == ["busy", "timer", "settled", "later"]


def test_settling_tasks_wake_one_by_one() -> None:
    story: list[str] = []

    async def one(clock: VirtualClock, name: str) -> None:
        await clock.settle()
        story.append(name)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        story.append(name)

    async def body(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                await nursery.start(started, one, clock, name)

    async def started(
        one: Callable[..., Awaitable[None]],
        clock: VirtualClock,
        name: str,
        task_status: trio.TaskStatus[None],
    ) -> None:
        task_status.started()
        await one(clock, name)

    run(body)
    assert [a for a, b in zip(story[::2], story[1::2], strict=True) if a == b] == story[::2]
    assert sorted(story[::2]) == ["a", "b", "c"]


def test_settle_can_be_cancelled() -> None:
    async def body(clock: VirtualClock) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await clock.settle()
        assert scope.cancelled_caught
        await clock.settle()

    run(body)


def test_why_settle_and_not_wait_all_tasks_blocked() -> None:
    """trio's own wait lets the world's time run out first. If this fails, `settle` can go."""

    async def body(clock: VirtualClock) -> None:
        with trio.move_on_after(1000.0):
            await trio.testing.wait_all_tasks_blocked()
        assert clock.current_time() == 1000.0

    run(body)


def test_on_deadlock_is_called_when_nothing_can_happen() -> None:
    called: list[float] = []

    async def body(clock: VirtualClock) -> None:
        def deadlocked() -> None:
            called.append(clock.current_time())
            scope.cancel()

        clock.on_deadlock = deadlocked
        clock.call_at(3.0, lambda: None)
        with trio.CancelScope() as scope:
            await trio.sleep_forever()
        await trio.sleep(2)

    run(body)
    assert called == [3.0]


def test_what_waits_for_trios_own_wake_up_is_no_deadlock() -> None:
    async def body(clock: VirtualClock) -> None:
        def deadlocked() -> None:
            raise AssertionError("a call was under way")

        clock.on_deadlock = deadlocked
        event = trio.Event()
        trio.lowlevel.current_trio_token().run_sync_soon(event.set)
        await event.wait()

    run(body)


def test_a_hold_is_no_deadlock() -> None:
    async def body(clock: VirtualClock) -> None:
        def deadlocked() -> None:
            raise AssertionError("a thread was under way")

        clock.on_deadlock = deadlocked
        with clock.hold():
            await trio.to_thread.run_sync(time.sleep, 0.02)

    run(body)


@given(st.integers(0, 2**32), st.sampled_from([0, 100, 2500]))
@settings(max_examples=12)
def test_very_many_timers_fire_in_order(seed: int, many: int) -> None:
    """Those of later wait in pages; some are cancelled, and those that fire set others."""
    random = Random(seed)
    wanted: dict[int, tuple[float, int]] = {}
    timers: dict[int, Any] = {}
    fired: list[int] = []
    numbers = itertools.count()

    async def body(clock: VirtualClock) -> None:
        def set_one(seconds: float) -> None:
            number = next(numbers)
            wanted[number] = (
                max(clock.current_time(), round((clock.current_time() + seconds) * 1e6) / 1e6),
                number,
            )
            timers[number] = clock.call_after(seconds, lambda: fire(number))

        def fire(number: int) -> None:
            assert clock.current_time() == wanted[number][0]
            fired.append(number)
            assert wanted.pop(number) <= min(wanted.values(), default=(math.inf, 0))
            if len(fired) < 200:
                for _ in range(random.choice([0, 1, 2])):
                    set_one(random.choice([0, 0.002, 1 / 128, random.random(), 40 * random.random()]))
                for other in random.sample(sorted(wanted), min(len(wanted), random.choice([0, 1, 30]))):
                    timers[other].cancel()
                    del wanted[other]
            assert len(clock) == len(wanted)
            if len(fired) >= 300:
                for other in wanted:
                    timers[other].cancel()
                wanted.clear()

        for _ in range(many + 3):
            set_one(random.random() * random.choice([1, 30]))
        await trio.sleep_until(100_000)
        assert len(clock) == 0

    run(body)


def test_chores_are_done_every_so_many_events() -> None:
    done: list[int] = []

    async def body(clock: VirtualClock) -> None:
        clock.every_events(100, lambda: done.append(clock.events))
        for n in range(1000):
            clock.call_at(n, lambda: None)
        await trio.sleep(2000)
        for _ in range(1000):
            await trio.lowlevel.checkpoint()

    clock = run(body)
    assert clock.events >= 2000
    assert 6 <= len(done) <= clock.events // 100
    assert all(b - a >= 100 for a, b in itertools.pairwise(done))


def test_a_clock_serves_one_run() -> None:
    async def body(clock: VirtualClock) -> None:
        pass

    clock = run(body)
    with pytest.raises(RuntimeError, match="one run"):
        clock.start_clock()


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["timer", "sleep", "cancelled"])), max_size=40))
def test_everything_happens_at_its_instant_in_order(plan: list[tuple[int, str]]) -> None:
    story: list[tuple[float, float]] = []

    async def sleeper(when: float) -> None:
        await trio.sleep_until(when)
        story.append((when, trio.current_time()))

    async def body(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            for tenths, kind in plan:
                when = tenths / 10
                if kind == "sleep":
                    nursery.start_soon(sleeper, when)
                    continue
                timer = clock.call_at(when, lambda when=when: story.append((when, clock.current_time())))
                if kind == "cancelled":
                    timer.cancel()
            await trio.sleep(10)

    run(body)
    assert all(due == happened for due, happened in story)
    assert [happened for _, happened in story] == sorted(t / 10 for t, kind in plan if kind != "cancelled")
