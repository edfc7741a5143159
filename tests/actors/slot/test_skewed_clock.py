"""Clocks of agents that are wrong: the dates that they see, and how long their timers take."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, every, open_node, simulate
from lmos_actors.actors import end_skew, skew_clock, slot_of
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Ref


class Clocked(Agent, behaviours=("day", "night")):
    fired: dict[str, float]

    def note(self, what: str) -> None:
        self.fired.setdefault(what, trio.current_time())

    @action
    def ahead(self) -> float:
        """Return the seconds by which the date here is ahead of the world's."""
        return round((self.now() - self._place().rt.entropy.now()) / timedelta(seconds=1), 6)

    @action
    def begin(self, seconds: float) -> None:
        self.after(seconds, self.note, "after")
        self.send_after(seconds, self.ref, Clocked.hear)
        self.state_timeout(seconds, self.note, "state timeout")

    @action
    def hear(self) -> None:
        self.note("message")

    @action
    async def sleep(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return trio.current_time()

    @action
    def crash(self) -> None:
        raise RuntimeError("as asked")


class Ticking(Agent):
    ticks: list[float]

    @every(1.0)
    def tick(self) -> None:
        self.ticks.append(trio.current_time())


class Keeping(Agent, durable=True):
    @action
    def plan(self, seconds: float) -> str:
        return str(self.after(seconds, self.note, FIRED, durable=True).due - self._place().rt.entropy.now())

    def note(self, what: list[float]) -> None:
        FIRED.append(trio.current_time())

    @every(1.0, durable=True)
    def tick(self) -> None:
        BEATS.append(trio.current_time())


FIRED: list[float] = []
BEATS: list[float] = []


def play(
    story: Callable[[Ref[Any]], Awaitable[None]], cls: type[Agent], store: str | None = None, **args: Any
) -> None:
    async def main() -> None:
        root = SupervisorSpec("root", [ChildSpec("one", partial(cls, **args))], max_restarts=9)
        async with open_node(root, store=store) as node:
            await story(node.find(cls, "one"))

    simulate(main)


def test_the_date_is_ahead_behind_or_drifts_away() -> None:
    async def story(one: Ref[Clocked]) -> None:
        assert await one.invoke(Clocked.ahead) == 0
        marks = [skew_clock(one, 3.0), skew_clock(one, -5.0), skew_clock(one, rate=1.5)]
        assert await one.invoke(Clocked.ahead) == -2
        await trio.sleep(4)
        assert await one.invoke(Clocked.ahead) == 0
        end_skew(one, marks[1])
        assert await one.invoke(Clocked.ahead) == 5
        end_skew(one, marks[2])
        assert await one.invoke(Clocked.ahead) == 3
        end_skew(one, marks[0])
        assert await one.invoke(Clocked.ahead) == 0
        extra = slot_of(one).extra
        assert extra is not None
        assert extra.clock is None

    play(story, Clocked, fired={})


def test_timers_that_begin_go_by_the_clock() -> None:
    fired: dict[str, float] = {}

    async def story(one: Ref[Clocked]) -> None:
        marks = [skew_clock(one, 100.0, rate=4.0), skew_clock(one, rate=0.5)]
        await one.invoke(Clocked.begin, 10.0)
        await trio.sleep(1)
        for mark in marks:
            end_skew(one, mark)  # what has begun keeps its time
        await trio.sleep(20)
        assert fired == {"after": 5.0, "message": 5.0, "state timeout": 5.0}

    play(story, Clocked, fired=fired)


def test_what_waits_in_a_run_goes_by_the_clock_of_the_world() -> None:
    async def story(one: Ref[Clocked]) -> None:
        skew_clock(one, rate=2.0)
        assert await one.invoke(Clocked.sleep, 3.0) == 3.0

    play(story, Clocked, fired={})


def test_a_wrong_clock_outlasts_a_crash() -> None:
    async def story(one: Ref[Clocked]) -> None:
        mark = skew_clock(one, 3.0)
        with pytest.raises(Exception, match="as asked"):
            await one.invoke(Clocked.crash)
        await trio.sleep(1)  # it is started again
        assert await one.invoke(Clocked.ahead) == 3
        end_skew(one, mark)
        assert await one.invoke(Clocked.ahead) == 0

    play(story, Clocked, fired={})


def test_a_rhythm_goes_faster_from_its_next_turn_on() -> None:
    ticks: list[float] = []

    async def story(one: Ref[Ticking]) -> None:
        await trio.sleep(1.5)
        mark = skew_clock(one, rate=4.0)
        await trio.sleep(1.5)
        end_skew(one, mark)
        await trio.sleep(2.0)

    play(story, Ticking, ticks=ticks)
    assert ticks == [1.0, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 4.25]


def test_durable_timers_are_kept_by_the_date_that_the_agent_sees() -> None:
    FIRED.clear()
    BEATS.clear()

    async def story(one: Ref[Keeping]) -> None:
        mark = skew_clock(one, 7.0, rate=2.0)
        assert await one.invoke(Keeping.plan, 10.0) == "0:00:17"
        await trio.sleep(6)
        end_skew(one, mark)
        assert FIRED == [5.0]
        assert BEATS[:6] == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]

    play(story, Keeping, store="memory:")


@pytest.mark.parametrize(
    ("skew", "rate", "message"),
    [
        (float("inf"), 1.0, "skew: must be a finite number of seconds, not inf"),
        (0.0, 0.0, "rate: must be a finite number above 0, not 0.0"),
        (0.0, float("nan"), "rate: must be a finite number above 0, not nan"),
    ],
)
def test_a_clock_has_to_go_forward(skew: float, rate: float, message: str) -> None:
    async def story(one: Ref[Clocked]) -> None:
        with pytest.raises(ConfigError, match=message):
            skew_clock(one, skew, rate)

    play(story, Clocked, fired={})
