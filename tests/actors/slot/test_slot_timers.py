"""Timers of agents: `self.after`, `@every` (DECISIONS R6)."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any, ClassVar

import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, action, current_request, every
from lmos_actors.actors import set_service_time
from lmos_actors.persistence import MemoryStore
from lmos_actors.testing import open_test_node, settle


class Clock(Agent):
    rung: ClassVar[list[str]] = []  # by any incarnation
    ticks: tuple[float, ...] = ()
    rings: tuple[tuple[float, str], ...] = ()

    @every(1.0)
    def tick(self) -> None:
        self.ticks += (trio.current_time(),)

    def ring(self, text: str = "ring") -> None:
        self.rings += ((trio.current_time(), text),)
        self.rung.append(text)

    def fail(self) -> None:
        raise KeyError("boom")

    @action
    def set(self, seconds: float, text: str) -> None:
        self.after(seconds, self.ring, text)

    @action
    def set_and_cancel(self, seconds: float) -> None:
        timer = self.after(seconds, self.ring)
        timer.cancel()
        timer.cancel()

    @action
    def set_failing(self, seconds: float) -> None:
        self.after(seconds, self.fail)

    @action
    def set_wrongly(self, seconds: float) -> str:
        try:
            self.after(seconds, self.ring)
        except (ValueError, TypeError) as exc:
            return type(exc).__name__
        return "accepted"

    @action
    def all_ticks(self) -> tuple[float, ...]:
        return self.ticks

    @action
    def all_rings(self) -> tuple[tuple[float, str], ...]:
        return self.rings

    @action
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)


class SerialClock(Clock, serial=True):
    pass


async def test_r6_every_counts_from_the_schedule(virtual_clock) -> None:
    async with open_test_node() as node:
        await trio.sleep(0.25)
        clock = await node.start(Clock)
        await trio.sleep(3.5)
        assert await clock.invoke(Clock.all_ticks) == (1.25, 2.25, 3.25)
        assert clock.statistics().accepted == 1, "firings are in no account"


async def test_r6_missed_firings_are_merged_and_never_queued_twice(virtual_clock) -> None:
    async with open_test_node() as node:
        clock = await node.start(SerialClock)
        await clock.invoke(SerialClock.work, 4.5)
        await trio.sleep(2)
        ticks = await clock.invoke(SerialClock.all_ticks)
        assert ticks == (4.5, 5.0, 6.0), "one for the four that were missed, then by the schedule"


async def test_r6_after(virtual_clock) -> None:
    async with open_test_node() as node:
        clock = await node.start(Clock)
        for seconds, text in ((2.0, "b"), (1.5, "a"), (2.0, "c"), (0.0, "now")):
            await clock.invoke(Clock.set, seconds, text)
        await clock.invoke(Clock.set_and_cancel, 1.0)
        await clock.invoke(Clock.set_and_cancel, 0.0)
        assert await clock.invoke(Clock.all_rings) == ((0.0, "now"),), "before the next message"
        await trio.sleep(3)
        rings = await clock.invoke(Clock.all_rings)
        assert rings == ((0.0, "now"), (1.5, "a"), (2.0, "b"), (2.0, "c"))


class Prompt(Agent, behaviours=("shut", "open")):
    """An agent whose requests set timers of no time."""

    seen: list[str]

    def note(self, text: str) -> None:
        self.seen.append(text)

    def again(self, left: int) -> None:
        self.seen.append("again")
        if left:
            self.after(0, self.again, left - 1)

    @action
    def soon(self, text: str) -> None:
        self.seen.append(f"to {text}")
        self.after(0, self.note, text)

    @action
    def repeat(self, count: int) -> None:
        self.again(count)

    @action
    def lift(self) -> None:
        self.after(0, self.note, "lifted")
        self.become("open")
        self.state_timeout(0, self.note, "still open")

    @action
    def wait(self, text: str) -> None:
        self.seen.append(text)

    @action(when="open", postpone=True)
    def enter(self, text: str) -> None:
        self.seen.append(text)
        self.after(0, self.note, f"{text} is in")


class PromptRuns(Prompt, serial=True):
    @action
    async def soon(self, text: str) -> None:
        self.seen.append(f"to {text}")
        self.after(0, self.note, text)


class Kept(Prompt, durable=True):
    pass


IN_ORDER: list[tuple[list[tuple[str, Any]], list[str]]] = [
    ([("soon", "a"), ("soon", "b"), ("wait", "c")], ["to a", "a", "to b", "b", "c"]),
    (
        [("enter", "a"), ("enter", "b"), ("lift", None), ("wait", "c")],
        ["a", "b", "lifted", "still open", "a is in", "b is in", "c"],
    ),
    ([("repeat", 3), ("wait", "c")], [*["again"] * 4, "c"]),
    ([("repeat", 99), ("wait", "c"), ("wait", "d")], [*["again"] * 65, "c", "d", *["again"] * 35]),
]


@pytest.mark.parametrize(("messages", "expected"), IN_ORDER)
@pytest.mark.parametrize("service", [0.0, 1.0])
@pytest.mark.parametrize("cls", [Prompt, PromptRuns, Kept])
async def test_a_time_of_0_comes_before_messages_that_were_not_taken(
    virtual_clock, cls: type[Prompt], service: float, messages: list[tuple[str, Any]], expected: list[str]
) -> None:
    async with open_test_node(store=MemoryStore()) as node:
        seen: list[str] = []
        agent = await node.start_child(ChildSpec("agent", partial(cls, seen=seen)))
        if service:
            set_service_time(agent, service)
        for name, value in messages:
            await agent.tell(getattr(cls, name), *(() if value is None else (value,)))
        await trio.sleep(200)
        assert seen == expected


async def test_an_agent_that_stops_takes_no_turn_of_a_timer_after_its_last_message(virtual_clock) -> None:
    async with open_test_node() as node:
        seen: list[str] = []
        agent = await node.start(Prompt, seen=seen)
        for _ in range(2):
            await agent.tell(Prompt.repeat, 1)
        await node.root.terminate_child("prompt")
        assert seen == ["again", "again", "again"]


async def test_r6_timers_end_with_the_incarnation(virtual_clock) -> None:
    async with open_test_node() as node:
        clock = await node.start(Clock)
        await clock.invoke(Clock.set, 2.0, "of an old incarnation")
        await clock.invoke(Clock.set_failing, 0.5)
        await trio.sleep(0.75)
        assert clock.statistics().restarts == 1
        await trio.sleep(3)
        assert "of an old incarnation" not in Clock.rung
        assert await clock.invoke(Clock.all_ticks) == (1.5, 2.5, 3.5), "and those of the class begin anew"
        await node.root.terminate_child("clock")
        events = virtual_clock.events
        await trio.sleep(100)
        assert virtual_clock.events - events < 5, "nothing fires for a stopped agent"


async def test_what_a_timer_raises_is_a_crash(virtual_clock) -> None:
    async with open_test_node() as node:
        clock = await node.start(Clock)
        async with clock.monitor() as downs:
            await clock.invoke(Clock.set_failing, 1.0)
            down = await downs.receive()
        assert isinstance(down.reason.error, KeyError)
        assert node.dead_letters == ()
        counts = clock.statistics()
        assert counts.accepted == counts.handled == 1


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [(-1.0, "ValueError"), (float("nan"), "ValueError"), (float("inf"), "ValueError"), (0.0, "accepted")],
)
async def test_after_takes_a_finite_time_from_now(virtual_clock, seconds: float, answer: str) -> None:
    """Called from a turn: a number that JSON cannot say does not even arrive (V2)."""

    class Odd(Agent):
        @action
        def set(self) -> str:
            try:
                self.after(seconds, self.ring)
            except ValueError:
                return "ValueError"
            return "accepted"

        def ring(self) -> None:
            pass

    async with open_test_node() as node:
        odd = await node.start(Odd)
        assert await odd.invoke(Odd.set) == answer


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1", None])
def test_every_takes_a_finite_number_above_zero(seconds) -> None:
    with pytest.raises(TypeError):
        every(seconds)


def test_every_goes_on_a_def() -> None:
    with pytest.raises(TypeError, match=r"Bad\.tick: @every goes on a def"):

        class Bad(Agent):
            @every(1.0)
            async def tick(self) -> None:
                pass


async def test_a_firing_knows_that_it_is_one(virtual_clock) -> None:
    seen: list[str] = []

    class Curious(Agent):
        def started(self) -> None:
            seen.append(current_request().affordance)
            self.after(1, self.look)

        def look(self) -> None:
            seen.append(current_request().affordance)

    async with open_test_node() as node:
        await node.start(Curious)
        await trio.sleep(2)
    assert seen == ["started", "timer"]


async def test_a_thousand_timers_of_one_agent(virtual_clock) -> None:
    async with open_test_node() as node:
        clock = await node.start(Clock)
        for n in range(1000):
            await clock.invoke(Clock.set, (n * 7 % 1000) / 1000, f"{n}")
        await trio.sleep(1)
        await settle()
        rings = await clock.invoke(Clock.all_rings)
        assert [when for when, _ in rings] == sorted(when for when, _ in rings)
        assert len(rings) == 1000


class Several(Agent):
    fired: ClassVar[list[int]] = []

    @action
    def set_four(self, cancelled: tuple[int, ...]) -> None:
        timers = [self.after(1.0, self.fired.append, number) for number in range(4)]
        for number in cancelled:
            timers[number].cancel()

    @action
    def crash(self) -> None:
        raise KeyError("boom")


@pytest.mark.parametrize("cancelled", [(), *permutations(range(4), 1), *permutations(range(4), 3)])
async def test_timers_are_cancelled_in_any_order(virtual_clock, cancelled: tuple[int, ...]) -> None:
    Several.fired.clear()
    async with open_test_node() as node:
        several = await node.start(Several)
        await several.invoke(Several.set_four, cancelled)
        await trio.sleep(2)
        left = [number for number in range(4) if number not in cancelled]
        assert Several.fired == left
        await several.invoke(Several.set_four, cancelled)
        with pytest.raises(AgentDied):
            await several.invoke(Several.crash)
        await trio.sleep(2)
        assert Several.fired == left, "a timer outlived its agent"


async def test_outside_its_life_an_agent_has_no_timers(virtual_clock) -> None:
    kept: list[Clock] = []

    class Kept(Clock):
        def started(self) -> None:
            kept.append(self)

        @action
        def crash(self) -> None:
            raise KeyError("boom")

    async with open_test_node() as node:
        ref = await node.start(Kept)
        with pytest.raises(AgentDied):
            await ref.invoke(Kept.crash)
        await ref.ready()
        with pytest.raises(Exception, match="has not started or has ended"):
            kept[0].after(1, kept[0].ring)


async def test_r6_a_turn_of_a_timer_cannot_be_async(virtual_clock) -> None:
    class Wrong(Agent):
        def started(self) -> None:
            self.after(1, self.later)

        async def later(self) -> None:
            pass

    async with open_test_node() as node:
        wrong = await node.start(Wrong)
        async with wrong.monitor() as downs:
            down = await downs.receive()
        assert "Wrong.later is async def, and a turn cannot wait" in str(down.reason)
