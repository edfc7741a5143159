"""Random programs under random faults: the accounts add up, everybody gets one answer, seeds repeat."""

from __future__ import annotations

import math
from collections import Counter as Tally
from contextlib import suppress

import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    ActionFailed,
    AgentError,
    AgentUnavailable,
    ChildSpec,
    SupervisorSpec,
    TraceLog,
)
from lmos_actors.testing import FaultPlan, Probe, run_test, settle
from tests.testing.classes import Counter, Weather

HANDLES = (Counter.add, Counter.add_slowly, Counter.refuse)
ERRORS = (ActionFailed, KeyError, AgentUnavailable("planned"))

entries = st.fixed_dictionaries(
    {
        "handle": st.sampled_from(HANDLES),
        "raises": st.sampled_from(ERRORS),
        "after": st.booleans(),
        "rate": st.sampled_from([0.1, 0.5, 1.0]),
        "delay": st.sampled_from([0.0, 0.5, 3.0, math.inf]),
    }
)
steps = st.tuples(
    st.sampled_from(["ask", "tell", "crash", "wait", "give up"]), st.sampled_from(HANDLES), st.booleans()
)


def planned(chosen: list[dict[str, object]]) -> FaultPlan:
    plan = FaultPlan()
    for entry in chosen:
        options = {name: value for name, value in entry.items() if name != "handle"}
        if entry["handle"] is not Counter.add_slowly:
            options["delay"] = 0.0
        plan.on(entry["handle"], **options)
    for handle in HANDLES:  # nobody is to fail because an entry met no call
        plan.on(handle, rate=0.001, raises=ActionFailed)
    return plan


def adds_up(ref) -> bool:
    s = ref.statistics()
    gone = s.handled + s.cancelled + s.dropped + s.dead_lettered
    return bool(s.accepted == gone + s.waiting + s.running)


async def program(node, script, outcomes: list[str]) -> None:
    ref = node.find(Counter)
    for handle in HANDLES:  # so that each entry meets a call
        await attempt(ref, handle, outcomes)
    async with trio.open_nursery() as nursery:
        for verb, handle, pause in script:
            if verb == "ask":
                nursery.start_soon(attempt, ref, handle, outcomes)
            elif verb == "give up":
                nursery.start_soon(attempt, ref.within(0.3), handle, outcomes)
            elif verb == "wait":
                await trio.sleep(1)
            elif verb == "crash":
                node.crash(ref, OSError("outside"))
            else:
                await told(ref, handle)
            if pause:
                await settle()
                assert adds_up(ref)
        await trio.sleep(1)
    await settle()
    assert adds_up(ref)


async def attempt(ref, handle, outcomes: list[str]) -> None:
    with trio.move_on_after(20) as scope:
        try:
            outcomes.append(repr(await ref.invoke(handle)))
        except AgentError as exc:
            outcomes.append(type(exc).__name__)
    if scope.cancelled_caught:
        outcomes.append("cancelled")
    await ref.ready()


async def told(ref, handle) -> None:
    with suppress(trio.WouldBlock, AgentUnavailable):
        ref.tell_nowait(handle)


@given(chosen=st.lists(entries, max_size=4), script=st.lists(steps, max_size=12), seed=st.integers(0, 99))
def test_under_random_faults(chosen, script, seed) -> None:
    tree = SupervisorSpec("root", [ChildSpec("c", Counter)], max_restarts=1000)

    def once() -> tuple[list[str], str]:
        outcomes: list[str] = []
        log = TraceLog()
        run_test(program, script, outcomes, tree=tree, seed=seed, faults=planned(chosen), instrument=log)
        return outcomes, log.digest()

    outcomes, digest = once()
    assert len(outcomes) == len(HANDLES) + sum(verb in ("ask", "give up") for verb, *_ in script)
    assert once() == (outcomes, digest)


async def ask_and_answer(node, script, probe) -> Tally[str]:
    """A probe that is asked, told, crashed and given up on; the test answers what it expects."""
    asked: Tally[str] = Tally()

    async def ask(seconds: float) -> None:
        try:
            asked[await probe.ref.within(seconds).invoke(Weather.forecast, "Bonn")] += 1
        except AgentError as exc:
            asked[type(exc).__name__] += 1

    async with trio.open_nursery() as nursery:
        for verb, seconds in script:
            if verb == "ask":
                nursery.start_soon(ask, seconds)
            elif verb == "tell":
                probe.ref.tell_nowait(Weather.note, "x")
            elif verb == "crash":
                probe.crash(KeyError("x"))
                await probe.ref.ready()
            await trio.sleep(seconds / 2)
            assert adds_up(probe.ref)
        for message in probe.received:
            taken = await probe.expect(getattr(Weather, message.affordance))
            assert taken is message
            if not message.answered:
                message.answer("x")
    await probe.expect_no_message(1)
    assert adds_up(probe.ref)
    stats = probe.ref.statistics()
    assert stats.running == stats.waiting == 0
    return asked


acts = st.tuples(st.sampled_from(["ask", "tell", "crash"]), st.sampled_from([0.02, 1.0, 50.0]))


@given(script=st.lists(acts, max_size=12), seed=st.integers(0, 99))
def test_a_probe_among_crashes_and_deadlines(script, seed) -> None:
    def once() -> Tally[str]:
        probe: Probe[Weather] = Probe(Weather)
        tree = SupervisorSpec("root", [ChildSpec("w", Weather)], max_restarts=1000)
        return run_test(ask_and_answer, script, probe, tree=tree, seed=seed, replace={Weather: probe})

    asked = once()
    assert sum(asked.values()) == sum(verb == "ask" for verb, _ in script)
    assert set(asked) <= {"x", "AgentDied", "DeadlineExceeded", "AgentUnavailable"}
    assert once() == asked
