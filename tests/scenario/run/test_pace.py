"""The pace of a run that somebody watches, on a clock that the test moves, and runs in processes."""

from __future__ import annotations

import json
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lmos_actors.reports import RunResult
from lmos_actors.scenario import Guard
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import PaceKeeper, PaceOrder, RunOrder, Worker, WorkerMessage, run_cell
from tests.scenario.project import CAST, Project, story

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from lmos_actors.scenario.format import Resolved


@attrs.define
class Clock:
    """Real time as the keeper has it: it goes on by what is waited for; `during` is called in each wait."""

    now: float = 100.0
    during: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def wait(self, _condition: threading.Condition, seconds: float) -> None:
        self.during()
        self.now += seconds


def held_up(keeper: PaceKeeper, instant: float, beats: list[float] | None = None) -> None:
    """Go on to an instant as a run does."""
    noted: list[float] = [] if beats is None else beats
    with Guard(60.0, lambda why, where: None) as guard:
        keeper.hold_up(instant, guard, noted.append)


def test_time_goes_by_at_the_pace() -> None:
    clock = Clock()
    keeper = PaceKeeper(PaceOrder(speed=2.0), now=clock, wait=clock.wait)
    beats: list[float] = []
    assert not keeper.is_due(3.0)
    held_up(keeper, 3.0, beats)
    assert clock.now == pytest.approx(101.5)
    assert beats == sorted(beats)
    assert beats[-1] <= 3.0
    assert keeper.is_due(3.0)
    keeper.set(PaceOrder(speed=0.5))
    held_up(keeper, 4.0)
    assert clock.now == pytest.approx(103.5)
    keeper.set(PaceOrder(speed=None))
    assert keeper.is_due(1e9)


def test_a_run_that_is_behind_does_not_hurry_to_make_it_good() -> None:
    clock = Clock()
    keeper = PaceKeeper(PaceOrder(speed=1.0), now=clock, wait=clock.wait)
    clock.now += 50.0
    assert keeper.is_due(1.0)
    held_up(keeper, 2.0)
    assert clock.now == pytest.approx(151.0)


def test_paused_it_goes_on_by_steps() -> None:
    clock = Clock()
    keeper = PaceKeeper(PaceOrder(is_paused=True), now=clock, wait=clock.wait)
    waits: list[float] = []

    def during() -> None:
        waits.append(clock.now)
        if len(waits) == 5:
            keeper.step()

    clock.during = during
    held_up(keeper, 7.0)
    assert len(waits) == 5
    assert keeper.is_due(7.0)
    assert not keeper.is_due(7.5)


def test_a_pause_between_two_instants_keeps_the_place() -> None:
    clock = Clock()
    keeper = PaceKeeper(PaceOrder(speed=1.0), now=clock, wait=clock.wait)

    def during() -> None:
        if clock.now == pytest.approx(104.0):
            keeper.set(PaceOrder(speed=1.0, is_paused=True))
        if clock.now == pytest.approx(110.0):
            keeper.set(PaceOrder(speed=1.0))

    clock.during = during
    held_up(keeper, 10.0)
    assert clock.now == pytest.approx(116.0)


def test_time_for_which_a_run_is_held_up_is_not_of_its_limit() -> None:
    keeper = PaceKeeper(PaceOrder(speed=1.0))
    with Guard(0.1, lambda why, where: None) as guard:
        with suppress(KeyboardInterrupt), guard.handling_interrupts():
            for instant in (0.3, 0.6):
                keeper.hold_up(instant, guard, lambda at: None)
        assert not guard.fired


NETWORK: dict[str, Any] = {
    "agents": {
        "actor": {"from": "agent", "use": "cast.py:Actor"},
        "pointing": {
            "from": "agent",
            "use": "cast.py:Pointing",
            "args": {"to": "$(agents.actor)", "need": 1},
        },
    },
    "network": {"default": {"latency": "20ms"}},
    "measure": {"every": "10ms", "series": {"level": {"agg": "max", "of": "actor", "expr": "state.level"}}},
}
ASK = {"do": "invoke", "target": "pointing", "action": "ask", "input": {"text": "hello"}}
WRITE = {"do": "write", "target": "actor", "property": "level", "value": 3}


def order_of(file: str, resolved: Resolved, pace: PaceOrder) -> RunOrder:
    """Return the order for the first run of a file, at a pace."""
    return RunOrder(
        file=file,
        settings={},
        seeds=None,
        cell=0,
        label=resolved.cells[0].label,
        trial=1,
        real_limit=20.0,
        pace=pace,
    )


def test_an_instant_that_was_due_before_a_pause_is_not_held_up() -> None:
    clock = Clock()
    keeper = PaceKeeper(PaceOrder(speed=1.0), now=clock, wait=clock.wait)
    waits: list[float] = []

    def wake_up_late() -> None:
        waits.append(clock.now)
        if len(waits) == 1:
            clock.now += 5.0
            keeper.set(PaceOrder(is_paused=True))
        else:
            keeper.step()

    clock.during = wake_up_late
    held_up(keeper, 3.0)
    assert len(waits) == 1
    assert not keeper.is_due(3.5)
    held_up(keeper, 3.5)  # which takes a step
    assert len(waits) == 2


def result_in(inbox: SimpleQueue[WorkerMessage]) -> RunResult:
    """Wait for the result of a run."""
    return next(
        what for what in iter(lambda: inbox.get(timeout=40).what, None) if isinstance(what, RunResult)
    )


@pytest.mark.slow  # its lines: the next test
def test_a_run_that_is_watched_has_the_log_of_one_that_is_not(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("watched_cast.py", CAST)  # a name of its own: this process imports it, and others a cast.py
    file = project.write(
        "story.yaml", story(ASK, WRITE, ASK, **NETWORK).replace("cast.py", "watched_cast.py")
    )
    resolved = load_scenario(str(tmp_path / file))
    alone = run_cell(resolved, resolved.cells[0], 1)
    assert alone.ok, alone.failures
    inbox: SimpleQueue[WorkerMessage] = SimpleQueue()
    passed_on: list[tuple[bytes, bytes]] = []
    worker = Worker("1", inbox, watched=lambda lines, news: passed_on.append((lines, news)))
    worker.begin(order_of(str(tmp_path / file), resolved, PaceOrder(speed=2.0)))
    try:
        result = result_in(inbox)
    finally:
        worker.end()
    assert result.digest == alone.digest
    assert b"".join(lines for lines, _ in passed_on).decode().splitlines() == list(alone.log)
    news = [json.loads(each) for _, each in passed_on if each]
    assert sum(len(each.get("series", {}).get("level", ())) for each in news) == len(alone.series[0].times)
    links = [link for each in news for link in each.get("links", ())]
    assert {(link[0], link[1]) for link in links} == {("pointing", "actor"), ("actor", "pointing")}
    assert [message[:3] for each in news for message in each.get("on_way", ())][:1] == [
        ["pointing", "actor", "note"]
    ]
    ended = {step[0]: step[3] for each in news for step in each.get("steps", ())}
    assert ended == {0: "passed", 1: "passed", 2: "passed"}


def test_a_pace_that_was_set_before_an_order_came_counts(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("paced_cast.py", CAST)  # a name of its own, as above
    file = project.write("story.yaml", story(ASK, **NETWORK).replace("cast.py", "paced_cast.py"))
    resolved = load_scenario(str(tmp_path / file))
    inbox: SimpleQueue[WorkerMessage] = SimpleQueue()
    worker = Worker("1", inbox)
    worker.set_pace(PaceOrder(speed=None))  # by somebody at the page, while the order was being written
    worker.begin(order_of(str(tmp_path / file), resolved, PaceOrder(is_paused=True)))
    try:
        assert result_in(inbox).ok
    finally:
        worker.end()
