"""Turns follow one another without a pass of trio's run loop between them, and nothing else changes by it."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import Agent, ChildSpec, Ref, action, open_node, simulate
from lmos_actors.actors import BUDGET, set_service_time
from lmos_actors.simulation import TraceLog, VirtualClock, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

AGENTS = 3


class Scene:
    """What agents and tasks of one run share, and what has been seen in it."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []
        self.events = [trio.Event() for _ in range(AGENTS)]
        self.scopes = [trio.CancelScope() for _ in range(AGENTS)]
        self.clock: Any = trio.lowlevel.current_clock()

    def note(self, what: str) -> None:
        self.seen.append((trio.current_time(), what))

    def wake(self, doer: Ref[Doer], number: int) -> None:
        """A timer that gives an agent a turn and wakes a task: which comes first is for the seed to say."""
        self.events[number].set()
        doer.tell_nowait(Doer.hear, number)


class Doer(Agent):
    """Does one thing after another, each some time after the one before."""

    scene: Any = None
    number: int = 0
    plan: Any = ()

    def started(self) -> None:
        self.follow_plan(0)

    def follow_plan(self, place: int) -> None:
        if place < len(self.plan):
            delay, what = self.plan[place]
            self.after(delay, self.do, place, what)

    def do(self, place: int, what: str) -> None:
        scene, number = self.scene, self.number
        scene.note(f"{number} {what}")
        if what == "set":
            scene.events[number].set()
        elif what == "cancel":
            scene.scopes[number].cancel()
        elif what == "deadline":
            scene.scopes[number].deadline = trio.current_time() + 0.5
        elif what == "both":
            scene.clock.call_at(trio.current_time() + 0.25, partial(scene.wake, self.ref, number))
        elif what == "send":
            self.send(self.find(Doer, f"doer-{(number + 1) % AGENTS}"), Doer.hear, number)
        self.follow_plan(place + 1)

    @action
    def hear(self, number: int) -> None:
        self.scene.note(f"{self.number} hears {number}")


async def wait(scene: Scene, number: int) -> None:
    while True:
        await scene.events[number].wait()
        scene.events[number] = trio.Event()
        scene.note(f"task {number} was woken")
        await trio.lowlevel.checkpoint()
        scene.note(f"task {number} goes on")


async def sleep(scene: Scene, number: int) -> None:
    with scene.scopes[number]:
        await trio.sleep_forever()
    scene.note(f"scope {number} ended")


async def doze(scene: Scene, naps: list[float]) -> None:
    for nap in naps:
        await trio.sleep(nap)
        scene.note("slept")
    await settle()
    scene.note("settled")


Plan = list[list[tuple[float, str]]]


async def live(plan: Plan, naps: list[float], services: list[float]) -> list[tuple[float, str]]:
    scene = Scene()
    async with open_node() as node, trio.open_nursery() as nursery:
        for number in range(AGENTS):
            nursery.start_soon(wait, scene, number)
            nursery.start_soon(sleep, scene, number)
        nursery.start_soon(doze, scene, naps)
        for number, own in enumerate(plan):
            made = lambda number=number, own=own: Doer(scene=scene, number=number, plan=own)  # noqa: E731
            ref = await node.start_child(ChildSpec(f"doer-{number}", made))
            set_service_time(ref, services[number])
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    return scene.seen


def told(
    plan: Plan, naps: list[float], services: list[float], seed: int
) -> tuple[list[tuple[float, str]], list[str]]:
    log = TraceLog()
    return simulate(live, plan, naps, services, seed=seed, log=log), log.lines()


def by_the_loop(_: VirtualClock, _ready: Sized, _serve: Callable[[], None], /) -> bool:
    """What `go_on` does where nothing is known of deadlines."""
    return False


instants = st.sampled_from([0.0, 0.25, 0.5, 1.0])
doings = st.tuples(instants, st.sampled_from(["nothing", "set", "cancel", "deadline", "send", "both"]))
plans = st.lists(st.lists(doings, max_size=6), min_size=AGENTS, max_size=AGENTS)


@given(
    plans,
    st.lists(instants, max_size=6),
    st.lists(st.sampled_from([0.0, 0.0, 0.125, 0.25]), min_size=AGENTS, max_size=AGENTS),
    st.integers(0, 3),
)
def test_all_is_as_if_the_loop_had_come_round_every_time(
    plan: Plan, naps: list[float], services: list[float], seed: int
) -> None:
    quick = told(plan, naps, services, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VirtualClock, "go_on", by_the_loop)
        assert told(plan, naps, services, seed) == quick


class Passes(trio.abc.Instrument):
    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


class Ticker(Agent):
    """Has one turn a second, `turns` times; then `last` is called."""

    turns: int = 0
    last: Any = None

    def started(self) -> None:
        self.after(1.0, self.tick)

    def tick(self) -> None:
        self.turns -= 1
        if self.turns:
            self.after(1.0, self.tick)
        else:
            self.last()


def passes_of(turns: int) -> int:
    """Count the passes of the run loop in which an agent has so many turns of timers."""

    async def main() -> int:
        async with open_node() as node:
            done = trio.Event()
            await node.start(Ticker, turns=turns, last=done.set)
            passes = Passes()
            trio.lowlevel.add_instrument(passes)
            await done.wait()
            trio.lowlevel.remove_instrument(passes)
            return passes.count

    return simulate(main)


def test_turns_of_timers_need_few_passes_but_some_for_io() -> None:
    turns = 10 * BUDGET
    assert turns / BUDGET <= passes_of(turns) <= 3 * turns / BUDGET


def test_time_does_not_go_past_a_deadline_that_a_turn_has_just_set() -> None:
    async def main() -> list[float]:
        ended: list[float] = []

        async def sleeper() -> None:
            with scope:
                await trio.sleep_forever()
            ended.append(trio.current_time())

        scope, done = trio.CancelScope(), trio.Event()

        class Setter(Ticker):
            def tick(self) -> None:
                if self.turns == 2:
                    scope.deadline = trio.current_time() + 0.5
                super().tick()

        async with open_node() as node, trio.open_nursery() as nursery:
            nursery.start_soon(sleeper)
            await node.start(Setter, turns=5, last=done.set)
            await done.wait()
        return ended

    assert simulate(main) == [4.5]


def test_time_does_not_go_on_while_a_turn_lets_it_be_held() -> None:
    async def main() -> list[float]:
        clock: Any = trio.lowlevel.current_clock()
        seen: list[float] = []
        hold = clock.hold()

        class Holder(Ticker):
            def tick(self) -> None:
                seen.append(trio.current_time())
                if self.turns == 3:
                    hold.__enter__()
                    trio.lowlevel.current_trio_token().run_sync_soon(let_go)
                super().tick()

        def let_go() -> None:
            seen.append(-trio.current_time())
            hold.__exit__(None, None, None)

        async with open_node() as node:
            done = trio.Event()
            await node.start(Holder, turns=4, last=done.set)
            await done.wait()
        return seen

    assert simulate(main) == [1.0, 2.0, -2.0, 3.0, 4.0]


class Hearer(Agent):
    """Notes the instant of each message."""

    heard: Any = None

    @action
    def hear(self) -> None:
        self.heard.append(trio.current_time())


class Source(Agent):
    """Sends one message to each of many agents at 1 s, and notes the instants before and after."""

    hearers: Any = ()
    heard: Any = None

    def started(self) -> None:
        self.after(0.9, self.note)  # by this the dispatcher is awake, and the others need no pass
        self.after(1.0, self.pour)
        self.after(1.000001, self.note)

    def pour(self) -> None:
        for hearer in self.hearers:
            self.send(hearer, Hearer.hear)

    def note(self) -> None:
        self.heard.append(trio.current_time())


def test_turns_left_by_a_spent_budget_come_before_time_goes_on() -> None:
    many = 2 * BUDGET + 1

    async def main() -> tuple[list[float], int]:
        heard: list[float] = []
        async with open_node() as node:
            hearers = await node.root.start_many(ChildSpec("hearer", lambda: Hearer(heard=heard)), many)
            await node.start(Source, hearers=hearers, heard=heard)
            passes = Passes()
            await trio.sleep(0.5)
            trio.lowlevel.add_instrument(passes)
            await trio.sleep(1.0)
            return heard, passes.count

    heard, passes = simulate(main)
    assert heard == [0.9, *[1.0] * many, 1.000001]
    assert passes >= many // BUDGET + 1  # I/O is looked at in between


def test_turns_that_take_long_let_the_loop_look_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("lmos_actors.simulation._clock.monotonic", lambda: next(seconds))
    assert 160 / 16 <= passes_of(160) <= 160 / 4
