"""The plan of faults: this call of this action goes wrong, in this way, and no other does."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    ConfigError,
    DeadlineExceeded,
    Property,
    StartFailed,
    SupervisorSpec,
    action,
    prop,
)
from lmos_actors.errors import RestartIntensityExceeded
from lmos_actors.testing import FaultPlan, fake, open_test_node, run_test, settle
from tests.matrix import examples
from tests.testing.classes import Counter, Door, Weather


class Better(Counter):
    """Inherits most, overrides one."""

    @action
    def add(self, n: int = 1) -> int:
        self.count += 10 * n
        return self.count


async def tried(ref, handle, *args) -> object:
    try:
        value = await ref.invoke(handle, *args)
    except Exception as exc:
        await ref.ready()
        return type(exc)
    return value


async def test_the_third_call_of_an_action_raises(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        fault = node.faults.on(Counter.add, call=3, raises=KeyError("x"))
        assert [await tried(counter, Counter.add) for _ in range(5)] == [1, 2, AgentDied, 1, 2]
        assert (fault.calls, fault.times) == (5, 1)
        stats = counter.statistics()
        assert (stats.accepted, stats.handled, stats.restarts) == (5, 5, 1)


async def test_a_declared_failure_is_no_crash(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        node.faults.on(Counter.add, call=[1, 3], raises=ActionFailed("busy"))
        assert [await tried(counter, Counter.add) for _ in range(3)] == [ActionFailed, 1, ActionFailed]
        assert counter.statistics().restarts == 0


@pytest.mark.parametrize("handle", [Counter.add, Counter.add_slowly], ids=["def", "async def"])
async def test_before_the_effect_or_after_it(handle, virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        node.faults.on(handle, call=1, raises=ActionFailed("before"))
        node.faults.on(handle, call=2, raises=ActionFailed("after"), after=True)
        for effect, words in ((0, "before"), (1, "after")):
            with pytest.raises(ActionFailed, match=words):
                await counter.invoke(handle)
            assert await counter.read(Counter.count) == effect


async def test_calls_are_counted_over_all_agents_or_for_one(virtual_clock) -> None:
    tree = SupervisorSpec("root", [SupervisorSpec("s", [ChildSpec(name, Counter) for name in "ab"])])
    async with open_test_node(tree) as node:
        a, b = node.find(Counter, "s/a"), node.find(Counter, "s/b")
        every = node.faults.on(Counter.add, call=2, raises=ActionFailed)
        one = node.faults.on(Counter.add, call=2, raises=KeyError, agent="s/b")
        assert [await tried(ref, Counter.add) for ref in (a, b, a, b)] == [1, ActionFailed, 2, AgentDied]
        assert (every.calls, one.calls) == (4, 2)


async def test_a_subclass_is_meant_too(virtual_clock) -> None:
    async with open_test_node() as node:
        better = await node.start(Better)
        node.faults.on(Counter.add, call=1, raises=ActionFailed)
        node.faults.on(Better.add_slowly, call=1, raises=ActionFailed)
        assert [await tried(better, Counter.add) for _ in range(2)] == [ActionFailed, 10]
        assert await tried(better, Counter.add_slowly) is ActionFailed


async def test_delays_and_calls_that_are_never_answered(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        node.faults.on(Counter.add_slowly, call=1, delay=2.5)
        node.faults.on(Counter.add_slowly, call=2, delay=math.inf)
        assert await counter.invoke(Counter.add_slowly) == 1
        assert trio.current_time() == 3.5
        with pytest.raises(DeadlineExceeded):
            await counter.within(100).invoke(Counter.add_slowly)
        assert await counter.invoke(Counter.add_slowly) == 2


async def test_streams_go_wrong_too(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        node.faults.on(Counter.upto, call=1, raises=ActionFailed("after"), after=True)
        node.faults.on(Counter.upto, call=2, raises=ActionFailed("before"), delay=1)
        got: list[int] = []

        async def listen() -> None:
            async with counter.stream(Counter.upto, 2) as items:
                async for item in items:
                    got.append(item)

        for words in ("after", "before"):
            with pytest.raises(ActionFailed, match=words):
                await listen()
        assert got == [0, 1]
        assert trio.current_time() == 1


async def test_properties_go_wrong_too(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        node.faults.on(Counter.count, call=2, raises=AgentUnavailable("counter", "planned"))
        await counter.write(Counter.count, 5)
        with pytest.raises(AgentUnavailable, match="planned"):
            await counter.read(Counter.count)
        assert await counter.read(Counter.count) == 5


async def test_several_properties_at_once_go_wrong_too(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        entry = node.faults.on(Counter.count, call=[2, 3], raises=AgentUnavailable("counter", "planned"))
        await counter.write_many(Counter.count.to(5))
        with pytest.raises(AgentUnavailable, match="planned"):
            await counter.write_many(Counter.count.to(6))
        with pytest.raises(AgentUnavailable, match="planned"):
            await counter.read_all()
        assert await counter.read_all() == {"count": 5}
        await counter.write_many()
        assert entry.calls == 4, "it is none of these"


class Hidden(Agent):
    """Tells nobody its word."""

    word: Property[str] = prop(default="", write_only=True)
    shown: Property[int] = prop(default=0)


async def test_reading_all_reads_what_may_be_read(virtual_clock) -> None:
    async with open_test_node() as node:
        hidden = await node.start(Hidden)
        entry = node.faults.on(Hidden.word, call=2, raises=AgentUnavailable("hidden", "planned"))
        await hidden.read_all()
        await hidden.write(Hidden.word, "x")
        assert entry.calls == 1
        await hidden.write_many(Hidden.shown.to(1))
        with pytest.raises(AgentUnavailable, match="planned"):
            await hidden.write_many(Hidden.shown.to(2), Hidden.word.to("y"))
        assert await hidden.read(Hidden.shown) == 1


async def test_starts_fail(virtual_clock) -> None:
    async with open_test_node() as node:
        node.faults.on_start(Counter, start=[2, 3], raises=OSError("disk"))
        counter = await node.start(Counter)
        node.crash(counter, KeyError("x"))
        await counter.ready()
        assert counter.statistics().restarts == 1
        assert await counter.invoke(Counter.add) == 1


def test_a_first_start_that_fails() -> None:
    plan = FaultPlan()
    plan.on_start(Counter, start=1, raises=OSError("disk"), agent="c")

    async def main(node) -> None:
        raise AssertionError

    with pytest.raises(StartFailed, match="disk"):
        run_test(main, tree=SupervisorSpec("root", [ChildSpec("c", Counter)]), faults=plan)


def test_every_start_that_fails_ends_the_supervisor() -> None:
    async def main(node) -> None:
        counter = await node.start(Counter)
        node.faults.on_start(Counter, raises=OSError("disk"))
        node.crash(counter, KeyError("x"))
        await trio.sleep(10)

    with pytest.raises(RestartIntensityExceeded) as caught:
        run_test(main)
    assert [type(cause).__name__ for cause in caught.value.causes].count("OSError") >= 1


async def test_a_factory_that_does_not_tell_what_it_makes(virtual_clock) -> None:
    def make() -> Counter:
        return Counter(count=7)

    plan = FaultPlan()
    plan.on_start(Counter, start=1, raises=OSError("disk"))
    async with open_test_node(replace={Counter: fake(Counter, add=3)}, faults=plan) as node:
        with pytest.raises(StartFailed, match="disk"):
            await node.start(make)
        counter = await node.start(make)
        assert await counter.invoke(Counter.add) == 3


async def test_fakes_go_wrong_too(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(fake(Weather, forecast="sun"))
        node.faults.on(Weather.forecast, call=2, raises=ActionFailed)
        assert [await tried(weather, Weather.forecast, "x") for _ in range(3)] == ["sun", ActionFailed, "sun"]


async def test_concurrency_holds_over_a_change_of_plan(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        counter.tell_nowait(Counter.add_slowly)
        await settle()
        node.faults.on(Counter.add_slowly, call=2, raises=ActionFailed)
        counter.tell_nowait(Counter.add_slowly)
        await settle()
        assert (counter.statistics().running, counter.statistics().waiting) == (1, 1)
        await trio.sleep(3)
        with pytest.raises(ActionFailed):
            await counter.invoke(Counter.add_slowly)
        assert await counter.read(Counter.count) == 2


class Again(Agent):
    """Asks itself for what it does, and leaves it after a while."""

    @action
    async def again(self) -> None:
        await trio.sleep(1)
        with trio.move_on_after(1):
            await self.find(Again).invoke(Again.again)


async def test_a_circle_is_found_over_a_change_of_plan(virtual_clock) -> None:
    async with open_test_node() as node:
        agent = await node.start(Again)
        agent.tell_nowait(Again.again)
        await settle()
        node.faults.on(Again.again, call=1, raises=ActionFailed)
        await trio.sleep(1.5)
        ((edge,),) = node.waiting_graph().cycles()
        assert (edge.kind, edge.run, edge.affordance) == ("concurrency", "again", "again")
        await trio.sleep(1)
        with pytest.raises(ActionFailed):
            await agent.invoke(Again.again)


async def test_behaviours_go_on_as_they_are(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door = await node.start(Door)
        fault = node.faults.on(Door.enter, call=1, raises=ActionFailed)
        seen: list[object] = []

        async def enter() -> None:
            seen.append(await tried(door, Door.enter))

        for _ in range(2):
            nursery.start_soon(enter)
        await settle()
        assert (fault.calls, door.statistics().waiting) == (0, 2)
        await door.invoke(Door.unlock)
        await settle()
        assert set(seen) == {ActionFailed, 1}


def test_faults_are_recorded() -> None:
    seen: list[tuple[str, str, dict[str, object]]] = []

    class Seen:
        def record(self, kind, agent, fields) -> None:
            if kind == "fault":
                seen.append((kind, agent, fields))

    async def main(node) -> None:
        counter = await node.start(Counter)
        node.faults.on(Counter.add, call=2, raises=ActionFailed("x"))
        node.faults.on_start(Counter, start=1, raises=OSError("disk"))
        for _ in range(2):
            await tried(counter, Counter.add)
        with pytest.raises(StartFailed):
            await node.start(Counter)

    run_test(main, instrument=Seen())
    assert seen == [
        ("fault", "counter", {"affordance": "add", "call": 2, "raises": "ActionFailed('x')", "after": False}),
        ("fault", "counter-2", {"affordance": "start", "call": 1, "raises": "OSError('disk')"}),
    ]


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 1000), rate=st.floats(0.05, 1), calls=st.integers(1, 40))
def test_a_rate_follows_from_the_seed(seed: int, rate: float, calls: int) -> None:
    async def main(node) -> tuple[list[object], int]:
        counter = await node.start(Counter)
        fault = node.faults.on(Counter.add, rate=rate, raises=ActionFailed)
        outcomes = [await tried(counter, Counter.add) for _ in range(calls)]
        assert outcomes.count(ActionFailed) == fault.times
        assert fault.calls == calls
        stats = counter.statistics()
        assert stats.accepted == stats.handled == calls
        return outcomes, fault.times

    assert run_test(main, seed=seed) == run_test(main, seed=seed)
    if rate == 1:
        assert run_test(main, seed=seed)[1] == calls


def test_seeds_differ() -> None:
    async def main(node) -> list[object]:
        await node.start(Counter)
        node.faults.on(Counter.refuse, rate=0.5, raises=KeyError)
        root = SupervisorSpec("r", [ChildSpec("c", Counter)], max_restarts=100)
        await node.start_supervisor(root)
        return [await tried(node.find(Counter, "r/c"), Counter.refuse) for _ in range(20)]

    runs = [run_test(main, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert {AgentDied, ActionFailed} == set(runs[0])


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            lambda faults: faults.on(Counter.add, call=3, raises=KeyError),
            r"fault on add, call=\[3\]: only 2 came",
        ),
        (lambda faults: faults.on(Counter.upto, raises=KeyError), "fault on upto met no call at all"),
        (lambda faults: faults.on(Counter.add, call=1, raises=ActionFailed, agent="other"), "met no call"),
        (lambda faults: faults.on(Counter.upto, rate=0.1, raises=KeyError), "met no call at all"),
        (lambda faults: faults.on_start(Counter, start=2, raises=KeyError), "the start of Counter"),
    ],
)
def test_a_fault_that_never_came_fails_the_test(plan, words) -> None:
    async def main(node) -> None:
        plan(node.faults)
        counter = await node.start(Counter)
        for _ in range(2):
            await tried(counter, Counter.add)

    with pytest.raises(AssertionError, match=words):
        run_test(main)


def test_a_plan_counts_anew_in_each_node() -> None:
    plan = FaultPlan()
    fault = plan.on(Counter.add, call=2, raises=ActionFailed)

    async def main(node) -> list[object]:
        counter = await node.start(Counter)
        return [await tried(counter, Counter.add) for _ in range(2)]

    assert run_test(main, faults=plan) == run_test(main, faults=plan) == [1, ActionFailed]
    assert fault.calls == 2


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({}, "does nothing"),
        ({"raises": KeyError, "call": 0}, "count from 1"),
        ({"raises": KeyError, "call": []}, "count from 1"),
        ({"raises": KeyError, "call": True}, "count from 1"),
        ({"raises": KeyError, "rate": 0.0}, "rate must be above 0"),
        ({"raises": KeyError, "rate": 0.5, "call": 1}, "goes without numbers"),
        ({"delay": 1.0}, "only an async def action can be delayed"),
        ({"raises": KeyError, "delay": -1.0}, "delay"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(given_, words) -> None:
    with pytest.raises(ConfigError, match=words):
        FaultPlan().on(Counter.add, **given_)


def test_what_is_no_handle_is_refused() -> None:
    for wrong in ("add", Weather.asked, Counter):
        with pytest.raises(ConfigError, match="handle of an action or property"):
            FaultPlan().on(wrong, raises=KeyError)
    with pytest.raises(ConfigError, match="at least 0"):
        FaultPlan().on(Counter.add_slowly, delay=math.nan)


async def test_without_a_plan_the_table_is_the_classes_own(virtual_clock) -> None:
    async with open_test_node() as node:
        await node.start(Counter)
        slot = next(iter(node.root.children))
        assert slot.table is Counter.__contract__.table


class Starts(Agent):
    """For replacements."""


class StartsWithLife(Starts):
    @asynccontextmanager
    async def lifespan(self):
        yield


@pytest.mark.parametrize(
    ("replace", "words"),
    [
        ({Counter: Weather}, "no subclass, fake or probe"),
        (
            {Counter: fake(Weather)},
            r"replace\[Counter\]: Weather is .*give a subclass, fake\(Counter, \.\.\.\)",
        ),
        ({Counter: 3}, "no subclass"),
        ({Starts: StartsWithLife}, "has a lifespan"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(replace, words) -> None:
    async def main(node) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match=words):
        run_test(main, replace=replace)


def test_a_replacement_that_was_never_started_fails_the_test() -> None:
    async def main(node) -> None:
        await node.start(Counter)

    with pytest.raises(AssertionError, match="replace: no Weather was started"):
        run_test(main, replace={Weather: fake(Weather)})


def test_a_subclass_may_take_the_place() -> None:
    async def main(node) -> int:
        counter = await node.start(Counter, count=1)
        return await counter.invoke(Counter.add)

    assert run_test(main, replace={Counter: Better}) == 11
