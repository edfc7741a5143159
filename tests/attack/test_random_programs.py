"""Random programs of agents under crashes, stops and cancels: what is promised holds at the end of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings, strategies as st

from lmos_actors import TraceLog, simulate
from tests.attack.agents import ASKED, AT_ONCE, COUNT, IN_TIME
from tests.attack.rogue import HOW, Deed, Stage, tasks_and_timers
from tests.matrix import examples

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

WHO = st.integers(0, COUNT - 1)
SECONDS = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 3.0])
DEEDS: SearchStrategy[Deed] = st.one_of(
    st.tuples(st.just("sleep"), SECONDS),
    st.tuples(st.just("do"), WHO, st.just(False), st.sampled_from(AT_ONCE), WHO, SECONDS),
    st.tuples(st.just("do"), WHO, st.just(True), st.sampled_from(IN_TIME), WHO, SECONDS),
    st.tuples(st.just("request"), WHO, st.sampled_from(HOW), st.sampled_from(ASKED), SECONDS),
    st.tuples(st.just("hold"), WHO, SECONDS),
    st.tuples(st.just("serve"), WHO, SECONDS, SECONDS),
    st.tuples(st.just("supervise"), WHO, st.sampled_from(["terminate", "resize", "ready"])),
)
PROGRAMS = st.lists(DEEDS, min_size=1, max_size=60)
STRATEGIES = st.sampled_from(["one_for_one", "rest_for_one", "one_for_all"])
EXAMPLES = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def play(deeds: list[Deed], strategy: Any) -> Stage:
    before = tasks_and_timers()
    stage = Stage()
    await stage.play(deeds, strategy)
    after = tasks_and_timers()
    assert after == before
    stage.check_empty()
    return stage


@EXAMPLES
@given(deeds=PROGRAMS, strategy=STRATEGIES)
def test_every_promise_holds_at_the_end_of_any_program(deeds: list[Deed], strategy: Any) -> None:
    simulate(play, deeds, strategy).check_forgotten()


@settings(EXAMPLES, max_examples=examples(60))
@given(deeds=PROGRAMS, strategy=STRATEGIES, after=SECONDS)
def test_cancelling_the_whole_program_leaves_nothing(deeds: list[Deed], strategy: Any, after: float) -> None:
    async def main() -> Stage:
        before = tasks_and_timers()
        stage = Stage()
        with trio.move_on_after(after):
            await stage.play(deeds, strategy)
        assert tasks_and_timers() == before
        stage.asked = sum(stage.outcomes.values())  # the rest were cancelled from outside
        stage.check_empty()
        return stage

    simulate(main).check_forgotten()


@settings(EXAMPLES, max_examples=examples(60))
@given(deeds=PROGRAMS, strategy=STRATEGIES, seed=st.integers(0, 1000))
def test_the_same_seed_gives_the_same_log(deeds: list[Deed], strategy: Any, seed: int) -> None:
    logs = []
    for _ in range(2):
        log = TraceLog()
        simulate(play, deeds, strategy, seed=seed, log=log)
        logs.append(log)
    assert logs[0].digest() == logs[1].digest()


@pytest.mark.parametrize("what", [*IN_TIME])
def test_each_deed_alone(what: str) -> None:
    for slowly in (False, True):
        if slowly or what in AT_ONCE:
            deeds = [("do", n, slowly, what, n + 1, 0.1) for n in range(COUNT)] * 2
            simulate(play, [*deeds, ("sleep", 1.0)], "one_for_one").check_forgotten()
