"""`trio.sleep` on virtual time: a timer of the clock, and in all else what it is in trio."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st
from trio import sleep, sleep_until

from lmos_actors import Agent, action, open_node, simulate
from lmos_actors.simulation import TraceLog, _world, settle

Seen = list[tuple[float, str]]


def test_a_sleep_sets_no_deadline_of_trio() -> None:
    async def main() -> tuple[float, float]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5)
            nursery.start_soon(sleep, 6)
            nursery.start_soon(trio.sleep_until, 7)
            await settle()
            return trio.lowlevel.current_statistics().seconds_to_next_deadline, trio.current_time()

    assert simulate(main) == (math.inf, 0.0)


def test_each_spelling_sleeps_as_long() -> None:
    async def main() -> list[float]:
        woke: list[float] = []
        for nap in (
            partial(trio.sleep, 1.5),
            partial(sleep, 1.5),
            partial(trio.sleep_until, 4.0),
            partial(sleep_until, 5.0),
            partial(trio.sleep, 0),
            partial(trio.sleep_until, 2.0),  # is past
        ):
            await nap()
            woke.append(trio.current_time())
        return woke

    assert simulate(main) == [1.5, 3.0, 4.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize("seconds", [-1, math.nan])
def test_what_is_no_time_is_refused_as_ever(seconds: float) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=r"non-negative|NaN"):
            await trio.sleep(seconds)

    simulate(main)


def test_a_sleep_without_end_ends_with_its_scope() -> None:
    async def main() -> float:
        with trio.move_on_after(3):
            await trio.sleep(math.inf)
        return trio.current_time()

    assert simulate(main) == 3.0


def test_a_cancelled_sleep_moves_no_time() -> None:
    async def main() -> float:
        with trio.move_on_after(1) as scope:
            await trio.sleep(1_000)
        assert scope.cancelled_caught
        with trio.CancelScope() as cancelled:
            cancelled.cancel()
            await trio.sleep(1_000)
        assert cancelled.cancelled_caught
        await settle()
        return trio.current_time()

    assert simulate(main) == 1.0


def test_a_scope_whose_deadline_is_the_same_instant_cancels_the_sleep() -> None:
    async def main() -> bool:
        with trio.move_on_after(2) as scope:
            await trio.sleep(2)
            raise AssertionError("the sleep was over before its scope")
        return scope.cancelled_caught

    assert simulate(main) is True


@pytest.mark.parametrize("seed", range(4))
def test_who_wakes_at_the_same_instant_and_runs_first_may_still_cancel_the_sleep(seed: int) -> None:
    async def main() -> tuple[bool, bool]:
        scope = trio.CancelScope()
        slept = False

        async def nap() -> None:
            nonlocal slept
            with scope:
                await trio.sleep(1)
                slept = True

        async def cancel() -> None:
            await trio.sleep(1)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(nap)
            nursery.start_soon(cancel)
        return slept, scope.cancelled_caught

    slept, cancelled = simulate(main, seed=seed)
    assert slept is not cancelled


def test_a_shielded_sleep_goes_on() -> None:
    async def main() -> float:
        with trio.move_on_after(1), trio.CancelScope(shield=True):
            await trio.sleep(5)
        return trio.current_time()

    assert simulate(main) == 5.0


def test_those_who_wake_together_are_ordered_by_the_seed() -> None:
    async def main() -> tuple[int, ...]:
        woke: list[int] = []

        async def nap(number: int) -> None:
            await trio.sleep(1)
            woke.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(nap, number)
        return tuple(woke)

    orders = {simulate(main, seed=seed) for seed in range(8)}
    assert len(orders) > 4
    assert simulate(main, seed=3) == simulate(main, seed=3)


def test_an_ended_run_leaves_trio_as_it_was() -> None:
    before = trio.sleep_until

    async def main() -> bool:
        return trio.sleep_until is before

    assert simulate(main) is False
    assert trio.sleep_until is before
    with pytest.raises(ZeroDivisionError):
        simulate(_fail)
    assert trio.sleep_until is before


async def _fail() -> None:
    raise ZeroDivisionError


# ---- whatever a program does, it cannot tell


class Napper(Agent):
    """Sleeps in its actions, and has turns of timers at the same instants."""

    seen: Any = None

    @action
    async def nap(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.seen.append((trio.current_time(), "napped"))

    @action
    def remind(self, seconds: float) -> None:
        self.after(seconds, self.ring)

    def ring(self) -> None:
        self.seen.append((trio.current_time(), "rang"))


instants = st.sampled_from([0.0, 0.25, 0.5, 0.5000001, 1.0])
steps = st.tuples(st.sampled_from(["sleep", "until", "limit", "fail", "tell", "invoke", "cancel"]), instants)
programs = st.lists(st.lists(steps, max_size=5), min_size=1, max_size=4)


async def follow(program: list[tuple[str, float]], number: int, ref: Any, seen: Seen) -> None:
    for verb, seconds in program:
        if verb == "sleep":
            await trio.sleep(seconds)
        elif verb == "until":
            await trio.sleep_until(trio.current_time() + seconds)
        elif verb == "limit":
            with trio.move_on_after(0.5) as scope:
                await trio.sleep(seconds)
                seen.append((trio.current_time(), f"{number} slept within its limit"))
                await trio.sleep(seconds)
            seen.append((trio.current_time(), f"{number} {scope.cancelled_caught}"))
        elif verb == "fail":
            try:
                with trio.fail_after(0.6):
                    await ref.invoke(Napper.nap, seconds)
            except trio.TooSlowError:
                seen.append((trio.current_time(), f"{number} too slow"))
        elif verb == "tell":
            await ref.tell(Napper.remind, seconds)
        elif verb == "invoke":
            await ref.invoke(Napper.nap, seconds)
        else:
            with trio.CancelScope() as scope:
                trio.lowlevel.current_clock().call_at(  # type: ignore[attr-defined]
                    trio.current_time() + 0.5, scope.cancel
                )
                await trio.sleep(seconds)
                seen.append((trio.current_time(), f"{number} was not cancelled"))
        seen.append((trio.current_time(), f"{number} {verb}"))


async def live(plan: list[list[tuple[str, float]]]) -> Seen:
    seen: Seen = []
    async with open_node() as node:
        ref = await node.start(Napper, seen=seen)
        async with trio.open_nursery() as nursery:
            for number, program in enumerate(plan):
                nursery.start_soon(follow, program, number, ref, seen)
    return seen


def told(plan: list[list[tuple[str, float]]], seed: int) -> tuple[Seen, list[str]]:
    log = TraceLog()
    return simulate(live, plan, seed=seed, log=log), log.lines()


@given(programs, st.integers(0, 3))
def test_all_is_as_if_trio_had_slept(plan: list[list[tuple[str, float]]], seed: int) -> None:
    quick = told(plan, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_world, "_sleeping_on", lambda _: nullcontext())
        assert told(plan, seed) == quick
