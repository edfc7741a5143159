"""Turns without end do not stop virtual time: timers fire, and a stop whose time is up ends the agent."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from lmos_actors import Agent, TraceLog, action, open_node, simulate
from lmos_actors.actors import _dispatcher


class Busy(Agent, behaviours=("a", "b")):
    turns: int = 0
    fired: tuple[float, ...] = ()

    @action
    def send_itself(self) -> None:
        self.turns += 1
        self.send(self.ref, Busy.send_itself)

    @action
    def flip(self) -> None:
        self.become("b" if self.behaviour == "a" else "a")
        self.stash()

    @action
    def set_timer(self, seconds: float) -> None:
        self.after(seconds, self.fire)

    def fire(self) -> None:
        self.fired = (*self.fired, trio.current_time())

    @action
    def when(self) -> tuple[float, ...]:
        return self.fired


def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dispatcher, "LIVELOCK_AFTER", 6)
    monkeypatch.setattr(_dispatcher, "LIVELOCK_RECHECK", 1)


async def story(handle: Any) -> tuple[float, tuple[float, ...]]:
    async with open_node() as node:
        busy = await node.start(Busy)
        await busy.invoke(Busy.set_timer, 1.0)
        busy.tell_nowait(handle)
        await trio.sleep(3)
        fired = await busy.invoke(Busy.when) if handle is Busy.send_itself else ()
    n = busy.statistics()
    assert n.accepted == n.handled + n.dead_lettered
    return trio.current_time(), fired


def test_time_goes_on_in_spite_of_turns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    short_patience(monkeypatch)
    ended, fired = simulate(story, Busy.send_itself)
    assert len(fired) == 1
    assert 1.0 <= fired[0] < 1.1
    assert 3 + 5 <= ended < 3 + 5 + 1  # the sleep, then `shutdown`


def test_time_goes_on_past_a_message_that_is_tried_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    short_patience(monkeypatch)
    ended, _ = simulate(story, Busy.flip)
    assert 3 + 5 <= ended < 3 + 5 + 1


@pytest.mark.slow
def test_it_goes_on_in_the_same_way_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    short_patience(monkeypatch)
    digests = []
    for _ in range(2):
        log = TraceLog()
        simulate(story, Busy.send_itself, seed=7, log=log)
        digests.append(log.digest())
    assert digests[0] == digests[1]


def test_many_turns_at_one_instant_stay_at_that_instant() -> None:
    async def main() -> float:
        async with open_node() as node:
            busy = await node.start(Busy)
            for _ in range(50):
                for _ in range(60):
                    await busy.tell(Busy.set_timer, 100.0)
                await trio.lowlevel.checkpoint()
            await busy.invoke(Busy.when)
            return trio.current_time()

    assert simulate(main) == 0.0
