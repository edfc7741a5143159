"""Kills at every state change of a rolling restart, on virtual time, with nodes as processes and a fleet.

The state changes are not listed here. A launcher reports each one to its `notice`: the states of processes
(`State`), and the steps of rolling restarts (`Step`). Each story is told once without a kill, and what was
reported is what the others are killed at. A state or a step that no story reaches fails
`test_the_stories_reach_every_state_and_step`.
"""

from __future__ import annotations

from collections import Counter as Tally
from contextlib import aclosing
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs
import pytest
import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.deployment.processes import (
    Launcher,
    ReplicaStatus,
    RolloutStatus,
    State,
    Step,
    open_launcher,
)
from lmos_actors.transport import MemoryNetwork
from tests.deployment.fleet import Counter, Fleet, Weather
from tests.deployment.machine import BROKEN, DIRECTORY, Machine, MachinePlace, NodeProcess
from tests.deployment.places import NoFiles, group, plan_of
from tests.matrix import few_or_all, slow, some
from tests.supervision.world import run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors.deployment.processes import LaunchPlan

Victim = Literal["launcher", "old", "new", "directory"]
"""Who is killed: a process that was there before the rolling restart, or one that it has started, ..."""


@attrs.frozen
class RolloutStory:
    """A rolling restart of all groups with agents; `breaks` is by a new plan that cannot be run."""

    order: Literal["start_first", "stop_first"]
    breaks: bool = False
    batch: int = 1

    def plan(self, *, broken: bool = False) -> LaunchPlan:
        options: dict[str, Any] = {"needs": {"registry": "ready"}, "max_restarts": 20, "content": "as it is"}
        weather = group("weather", 2, order=self.order, batch=self.batch, pause=0.5, ready=20.0, **options)
        if broken:
            code = "2" if self.order == "stop_first" else "3"  # the launcher gives up, or tries it again
            weather = attrs.evolve(weather, arguments=(BROKEN, code), content=BROKEN)
        registry = group("registry", max_restarts=20)
        return plan_of(registry, weather, group("counter", ready=20.0, **options))


STORIES = {
    "stop first": RolloutStory("stop_first"),
    "start first": RolloutStory("start_first"),
    "start first in one batch": RolloutStory("start_first", batch=2),
    "stop first, broken": RolloutStory("stop_first", breaks=True),
    "start first, broken": RolloutStory("start_first", breaks=True),
}


@attrs.frozen
class Change:
    """A state change, as it was reported: `place` is its number among all of a story."""

    place: int
    group: str
    what: State | Step
    of: tuple[int, ...]
    is_step: bool

    def __str__(self) -> str:
        return f"{self.place} {self.group}/{','.join(map(str, self.of))} {self.what.replace('_', ' ')}"


def change_of(place: int, name: str, change: ReplicaStatus | RolloutStatus) -> Change:
    if isinstance(change, RolloutStatus):
        return Change(place, name, change.step, change.processes, is_step=True)
    return Change(place, name, change.state, (change.number,), is_step=False)


class Telling:
    """One story told: the rolling restart with at most one kill in it, and what has to hold then."""

    def __init__(
        self,
        story: RolloutStory,
        victim: Victim | None = None,
        at: Change | None = None,
        *,
        has_fleet: bool = True,
    ) -> None:
        self.seen: dict[Change, set[Victim]] = {}
        """The state changes, and who could be killed at each."""
        self.least_ready = 2
        """The smallest number of processes of `weather` that were ready at a change."""
        self.refused = ""
        """Why the rolling restart was not done."""
        self._story = story
        self._has_fleet = has_fleet
        self._victim = victim
        self._at = at
        self._is_rolling = False
        self._before: list[NodeProcess] = []
        self._fleet_ended = trio.Event()

    async def run(self) -> None:
        """Tell it. Raises AssertionError, and TooSlowError for what takes longer than it may."""
        async with trio.open_nursery() as nursery:
            self.machine = Machine(nursery, self._has_fleet)
            async with trio.open_nursery() as clients:
                self._clients = clients
                await self._launched(self._rolled)
                if self._place.is_gone:
                    await self.machine.wait_left()
                    await self._launched(self._finished)
            assert self.machine.running() == []
        if self._has_fleet:
            self._check_accounts()

    # ---- the launchers

    async def _launched(self, body: Callable[[Launcher], Awaitable[None]]) -> None:
        """Run a launcher until it is killed, or the body has ended."""
        self._place, self._scope = MachinePlace(self.machine), trio.CancelScope()
        launcher = Launcher(self._story.plan(), self._place, NoFiles(Path("nowhere")), self._note)
        try:
            with self._scope:
                async with open_launcher(launcher, MemoryNetwork()):
                    self._launcher = launcher
                    with trio.fail_after(LONG):
                        await launcher.wait_ready()
                    await body(launcher)
        except Exception:
            if not self._place.is_gone:  # what is left of a dead one finds that it can start nothing
                raise

    async def _rolled(self, launcher: Launcher) -> None:
        if self._has_fleet:
            await self._clients.start(self._run_fleet)
        self._before, self._is_rolling = self.machine.running(), True
        try:
            await self._roll(launcher)
        except ActionFailed as error:
            self.refused = error.output
        self._is_rolling = False
        await self._again(launcher)
        await self._finished(launcher)

    async def _roll(self, launcher: Launcher) -> None:
        if self._story.breaks:
            async with launcher.at_work("up"):
                await taken(launcher.apply(self._story.plan(broken=True)))
            return
        for name in ("weather", "counter"):
            async with launcher.at_work(f"restart --rolling {name}"):
                await taken(launcher.restart_rolling(launcher.group(name)))

    async def _again(self, launcher: Launcher) -> None:
        """Say `up` again with the file as it was: whatever has failed before, all is there then."""
        async with launcher.at_work("up"):
            await taken(launcher.apply(self._story.plan()))
        with trio.fail_after(LONG):
            await launcher.wait_ready()

    async def _finished(self, launcher: Launcher) -> None:
        if self._has_fleet:
            await self.fleet.go_on()
            self.fleet.ending = True
            with trio.fail_after(LONG):
                await self._fleet_ended.wait()
        assert {each.state for group in launcher.status().groups for each in group.replicas} == {"ready"}

    # ---- the fleet

    async def _run_fleet(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_node(lookup=f"http://{DIRECTORY}", network=self.machine.network) as node:
            weather, counter = node.find(Weather, spread="round_robin"), node.find(Counter, id="main")
            self.fleet = Fleet(weather, counter, Random(1), seconds=1.0, rest=few_or_all(0.01, 0.0))
            await weather.ready()
            await counter.ready()
            async with trio.open_nursery() as nursery:
                for first in range(4):
                    nursery.start_soon(self.fleet.ask, first)
                nursery.start_soon(self.fleet.add)
                task_status.started()
            await counter.ready()
            self._total = await counter.invoke(Counter.read_total)
        self._fleet_ended.set()

    def _check_accounts(self) -> None:
        """Each request has ended once, as far as its agent knows of it, too; the counter counts exactly."""
        fleet, begun = self.fleet, Tally(self.machine.begun)
        assert self._total == fleet.added > 0
        assert set(begun.values()) == {1}
        assert set(begun) <= set(fleet.ended), "an accepted action has ended in silence"
        for number, outcome in fleet.ended.items():
            assert outcome == "unknown" or begun[number] == (outcome == "answered"), (number, outcome)

    # ---- the kill

    def _note(self, name: str, change: ReplicaStatus | RolloutStatus) -> None:
        if not self._is_rolling or self._place.is_gone:
            return
        found = change_of(len(self.seen), name, change)
        there: dict[Victim, NodeProcess | None] = {
            "launcher": None,
            **{
                "directory" if each.group == "registry" else self._age(each): each
                for each in self.machine.running()
                if each.group in ("registry", name)
            },
        }
        self.seen[found] = set(there)
        weather = self._launcher.groups["weather"].members.values()
        self.least_ready = min(self.least_ready, sum(each.state == "ready" for each in weather))
        if found == self._at and self._victim is not None:
            process = there[self._victim]
            if process is not None:
                process.kill()
            else:
                self._place.kill_launcher()
                self._scope.cancel("kill -9")

    def _age(self, process: NodeProcess) -> Victim:
        return "old" if process in self._before else "new"


LONG = 100.0
"""Seconds in which a deployment is ready, whatever has happened before."""


async def taken(lines: AsyncGenerator[str]) -> None:
    """Have a launcher do something to its end."""
    async with aclosing(lines) as texts:
        async for _ in texts:
            await trio.lowlevel.checkpoint()


@cache
def told(name: str, *, has_fleet: bool) -> Telling:
    """Return a story that was told without a kill."""
    telling = Telling(STORIES[name], has_fleet=has_fleet)
    run(telling.run)
    return telling


def killed(name: str, victim: Victim, change: Change, *, has_fleet: bool) -> None:
    """Tell a story with a kill."""
    telling = Telling(STORIES[name], victim, change, has_fleet=has_fleet)
    try:
        run(telling.run)
    except BaseException as error:
        error.add_note(f"{victim} was killed at {change} of the story {name}")
        raise
    assert change in telling.seen, f"{change} of the story {name} is not always in its place"


def cases(name: str, victim: Victim, *, has_fleet: bool) -> list[Change]:
    """Return all state changes of a story at which somebody can be killed."""
    seen = told(name, has_fleet=has_fleet).seen
    return [change for change, victims in seen.items() if victim in victims]


@pytest.mark.slow  # its lines: the next test but for the fleet; test_hosts.py
@pytest.mark.parametrize("name", STORIES)
def test_drained_restarts_have_no_unknown_outcome(name: str) -> None:
    telling = told(name, has_fleet=True)
    outcomes = telling.fleet.outcomes
    assert outcomes["answered"] > 20
    assert outcomes["unknown"] == outcomes["not found"] == 0
    assert telling.refused.endswith("weather was rolled back") == STORIES[name].breaks
    if STORIES[name].order == "start_first":
        assert telling.least_ready == 2


def test_the_stories_reach_every_state_and_step() -> None:
    seen = {(change.what, change.is_step) for name in STORIES for change in told(name, has_fleet=False).seen}
    every: set[tuple[str, bool]] = {(step, True) for step in get_args(Step)}
    assert seen == every | {(state, False) for state in get_args(State)}


# the first story kills each of them, too; the others are told whole by the test above
@pytest.mark.parametrize("victim", get_args(Victim))
@pytest.mark.parametrize(
    "name", slow(STORIES, [name for name in STORIES if not name.startswith("stop first")])
)
def test_who_is_killed_at_any_state_change_is_back_with_the_next_up(name: str, victim: Victim) -> None:
    found = cases(name, victim, has_fleet=False)
    assert found
    for change in some(found, of=9):
        killed(name, victim, change, has_fleet=False)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("victim", get_args(Victim))
def test_no_request_of_a_fleet_ends_in_silence_whoever_is_killed(victim: Victim) -> None:
    pairs = [(name, change) for name in STORIES for change in cases(name, victim, has_fleet=True)]
    for name, change in some(pairs, of=70, matrix=9):
        killed(name, victim, change, has_fleet=True)
