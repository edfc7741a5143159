"""Directories of networks: who is registered when, and what is found, in memory and over connections."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.reports import mermaid
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.matrix import few_or_all
from tests.scenario.project import Project
from tests.scenario.steps import at_once, heal, inject, invoke, records, wait

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

OFFICE = '''\
from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from lmos_actors import About, Agent, AgentError, Ref, action


class Weather(Agent, about=About(capabilities=("forecast",))):
    """Tells the weather of a place."""

    place: str = "rome"

    @action(idempotent=True)
    def forecast(self) -> str:
        return self.place


class Archive(Agent, private=True):
    """Is for its node alone."""


class Clerk(Agent):
    """Asks whatever it finds."""

    patience: float = 5.0

    @action(concurrency=10)
    async def ask(self, name: str | None = None) -> str:
        return await self._asked(self.find(Weather, name))

    @action(concurrency=10)
    async def ask_able(self, capability: str) -> str:
        return await self._asked(self.find(Weather, capability=capability))

    @action(concurrency=10)
    async def ask_all(self, times: int) -> list[str]:
        ref = self.find(Weather, spread="round_robin")
        await ref.ready()
        return sorted([await self._asked(ref) for _ in range(times)])

    @action(concurrency=10)
    async def wait(self) -> str:
        await self.find(Weather).ready()
        return await self.ask()

    @action
    async def hire(self) -> str:
        return (await self.start(Weather, place="attic")).path

    async def _asked(self, ref: Ref[Weather]) -> str:
        try:
            return await ref.within(self.patience).invoke(Weather.forecast)
        except AgentError as error:
            return type(error).__name__
'''

TTL = 30
LATENCY = 0.05
AGENTS: dict[str, Any] = {
    "weather": {"from": "agent", "use": "weather_office.py:Weather"},
    "clerk": {"from": "agent", "use": "weather_office.py:Clerk"},
}
both = pytest.mark.parametrize("world", ["memory", "wire"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an office."""
    root = tmp_path_factory.mktemp("office")
    project = Project(root)
    project.write("pyproject.toml", "")
    project.write("weather_office.py", OFFICE)
    return root


def ran(folder: Path, world: str, *steps: Any, network: Any = None, **more: Any) -> RunResult:
    """Run steps in a file with a directory, each a mapping, and check that none fails."""
    whole = {
        "lmos": "scenario/v1",
        "name": "office",
        "world": world,
        "timeout": "30m",
        "network": {"default": {"latency": "50ms"}}
        | ({"directory": {"ttl": f"{TTL}s"}} if network is None else network),
        "agents": AGENTS,
        "steps": list(steps),
        **more,
    }
    path = folder / f"{world}.yaml"
    path.write_text(json.dumps(whole), encoding="utf-8")
    resolved = load_scenario(path)
    result = run_cell(resolved, resolved.cells[0], 1)
    assert result.failures == (), result.failures
    return result


def ask(action: str = "ask", target: str = "clerk", **data: Any) -> dict[str, Any]:
    return invoke(action, target, input=data)


TOTAL = {"do": "read", "target": "directory", "property": "total"}
CUT = inject("partition", id="cut", sides=[["directory"], "rest"])
HEAL = heal("cut")


def answered(result: RunResult, *names: str) -> list[Any]:
    """Return what clerks have answered, and the totals of the directory, in their order."""
    wanted = names or ("ask", "ask_able", "ask_all", "wait", "total")
    return [
        each.get("value", each.get("error"))
        for each in records(result, "answered")
        if each["affordance"] in wanted
    ]


def times(result: RunResult, kind: str, affordance: str, sender: str | None = None) -> list[float]:
    """Return when the messages of a kind were recorded."""
    return [
        each["t"]
        for each in records(result, kind)
        if affordance in (each.get("affordance"), each.get("event")) and sender in (None, each.get("from"))
    ]


# ---- finding


@both
def test_an_agent_is_found_on_another_node(folder: Path, world: str) -> None:
    """The look-up takes a round trip, and what has been found is kept."""
    result = ran(folder, world, TOTAL, ask(), ask())
    assert answered(result) == [2, "rome", "rome"]
    assert times(result, "sent", "searchJSONPath") == [LATENCY]
    assert times(result, "answered", "ask") == pytest.approx([4 * LATENCY, 6 * LATENCY])


@both
def test_near_ones_come_first(folder: Path, world: str) -> None:
    near = {
        **AGENTS,
        "oslo": {"from": "agent", "use": "weather_office.py:Weather", "args": {"place": "oslo"}},
    }
    result = ran(folder, world, ask(), agents=near, nodes={"north": ["clerk", "oslo"]})
    assert (answered(result), times(result, "sent", "searchJSONPath")) == (["oslo"], [])


@both
def test_the_directory_asks_itself_near(folder: Path, world: str) -> None:
    result = ran(folder, world, ask(), nodes={"south": ["clerk", "directory"]})
    assert (answered(result), times(result, "sent", "searchJSONPath")) == (["rome"], [0.0])


@both
def test_by_name_and_by_capability(folder: Path, world: str) -> None:
    steps = (ask(name="weather"), ask(name="whether"), ask("ask_able", capability="forecast"))
    result = ran(folder, world, *steps, ask("ask_able", capability="hindsight"))
    assert answered(result) == ["rome", "NotFound", "rome", "NotFound"]


@both
def test_requests_are_spread_over_all_nodes(folder: Path, world: str) -> None:
    more = {
        **AGENTS,
        "oslo": {"from": "agent", "use": "weather_office.py:Weather", "args": {"place": "oslo"}},
    }
    more["bonn"] = {"from": "agent", "use": "weather_office.py:Weather", "args": {"place": "bonn"}}
    result = ran(folder, world, ask("ask_all", times=6), agents=more, nodes={"here": ["clerk", "bonn"]})
    assert answered(result) == [["bonn", "bonn", "oslo", "oslo", "rome", "rome"]]


@both
def test_pools_and_children_are_found(folder: Path, world: str) -> None:
    """A pool is registered as one; a child is on the node of the agent that has started it."""
    pool = {**AGENTS, "weather": {"from": "pool", "use": "weather_office.py:Weather", "size": 3}}
    assert answered(ran(folder, world, TOTAL, ask(), agents=pool)) == [2, "rome"]
    two = {"clerk": AGENTS["clerk"], "boss": AGENTS["clerk"]}
    result = ran(folder, world, ask(), ask("hire", "boss"), wait(1), TOTAL, ask(), agents=two)
    assert answered(result) == ["NotFound", 3, "attic"]


@both
def test_private_agents_are_not_registered(folder: Path, world: str) -> None:
    private = {**AGENTS, "archive": {"from": "agent", "use": "weather_office.py:Archive"}}
    crash = inject("crash", target="archive")
    assert answered(ran(folder, world, TOTAL, crash, wait(1), TOTAL, agents=private)) == [2, 2]


@both
def test_without_a_directory_what_is_looked_for_ends_at_the_node(folder: Path, world: str) -> None:
    weather = inject("crash", target="weather")
    assert answered(ran(folder, world, ask(), weather, network={})) == ["NotFound"]


# ---- registrations, and the loss of them


@both
@pytest.mark.parametrize(("seconds", "left"), [(8, 2), (TTL + 15, 0)])
def test_a_cut_longer_than_they_live_loses_registrations(
    folder: Path, world: str, seconds: float, left: int
) -> None:
    """They come back by themselves after it; a connection that was lost is made again first."""
    result = ran(folder, world, wait(1), CUT, wait(seconds), TOTAL, HEAL, wait(TTL + 30), TOTAL, ask())
    assert answered(result) == [left, 2, "rome"]
    gone = times(result, "event", "thingDeleted")
    assert len(gone) == 2 - left
    assert all(2 / 3 * TTL < instant <= 1 + TTL for instant in gone)


@both
def test_what_was_found_is_kept_while_the_directory_is_away(folder: Path, world: str) -> None:
    result = ran(folder, world, ask(), CUT, wait(TTL + 15), ask(), TOTAL)
    assert answered(result) == ["rome", "rome", 0]


@both
def test_what_is_not_found_yet_cannot_be_found_while_it_is_away(folder: Path, world: str) -> None:
    """Until the cut is noticed a look-up waits, five seconds as it owes an answer; then it fails at once."""
    patient = {**AGENTS, "clerk": {**AGENTS["clerk"], "args": {"patience": 30.0}}}
    result = ran(folder, world, CUT, ask(), wait(70), ask(), HEAL, ask("wait"), agents=patient)
    assert answered(result) == ["AgentUnavailable", "AgentUnavailable", "rome"]
    assert times(result, "answered", "ask")[:2] == [5.0, 75.0]
    hasty = {**AGENTS, "clerk": {**AGENTS["clerk"], "args": {"patience": 3.0}}}
    assert answered(ran(folder, world, CUT, ask(), agents=hasty)) == ["DeadlineExceeded"]


@cache
def renewal(folder: Path, world: str) -> float:
    """Return when a registration is renewed for the first time."""
    return times(ran(folder, world, wait(TTL)), "sent", "partiallyUpdateThing", "weather")[0] - LATENCY


@both
@pytest.mark.parametrize("lasts", [5, 90])
@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("after", few_or_all([0.0, 0.05], [0.0, 0.025, 0.05, 0.075, 0.1]))
def test_a_partition_in_a_renewal(
    folder: Path, world: str, lasts: float, after: float, one_way: bool
) -> None:
    """Cut when it is sent, under way, there, or when it is answered; the agent is registered in the end."""
    renewed = renewal(folder, world)
    cut = inject("partition", id="cut", sides=[["directory"], ["weather"]], one_way=one_way)
    result = ran(folder, world, wait(renewed + after), cut, wait(lasts), TOTAL, HEAL, wait(2 * TTL), TOTAL)
    assert answered(result) == [1 if lasts > TTL else 2, 2]
    if lasts < TTL / 3:
        assert times(result, "event", "thingDeleted") == []


@both
def test_crashes_and_stops(folder: Path, world: str) -> None:
    """An agent that restarts, or is stopped for a while, stays registered; the directory keeps all."""
    steps = (inject("crash", target="weather"), TOTAL, ask(), inject("crash", target="directory"), TOTAL)
    stop, start = ({"do": do, "target": "weather"} for do in ("stop", "start"))
    result = ran(folder, world, *steps, stop, ask(), wait(1), TOTAL, start, ask())
    assert answered(result) == [2, "rome", 2, "AgentUnavailable", 2, "rome"]


@both
def test_what_is_gone_for_good_is_registered_no_more(folder: Path, world: str) -> None:
    """Who has found it waits for another in its place, for a while; then it is not found."""
    gone = {**AGENTS, "weather": {**AGENTS["weather"], "restart": "temporary"}}
    crash = inject("crash", target="weather")
    steps = (ask(), crash, ask(), ask(), TOTAL, wait(61), ask())
    assert answered(ran(folder, world, *steps, agents=gone)) == [
        "rome", "AgentUnavailable", "AgentUnavailable", 1, "NotFound",
    ]  # fmt: skip
    cut = inject("partition", id="cut", sides=[["directory"], ["weather"]])
    result = ran(folder, world, cut, crash, ask(), TOTAL, agents=gone)
    assert answered(result) == ["AgentUnavailable", 2]
    assert times(result, "answered", "ask") == pytest.approx([4 * LATENCY])


@both
def test_a_directory_that_is_stopped(folder: Path, world: str) -> None:
    stop, start = ({"do": do, "target": "directory"} for do in ("stop", "start"))
    result = ran(folder, world, stop, wait(TTL), ask(), start, wait(TTL), TOTAL, ask())
    assert answered(result) == ["AgentUnavailable", 2, "rome"]


@both
def test_a_restart_of_all_registers_all_again(folder: Path, world: str) -> None:
    result = ran(folder, world, ask(), inject("restart"), wait(1), TOTAL, ask())
    assert answered(result) == ["rome", 2, "rome"]


def test_datagrams_of_a_directory_may_get_lost(folder: Path) -> None:
    lossy = {"directory": {"ttl": f"{TTL}s"}, "delivery": "datagram", "default": {"loss": 0.3}}
    result = ran(folder, "memory", wait(10 * TTL), TOTAL, network=lossy)
    assert answered(result) == [2]
    assert any(json.loads(line).get("what") == "lost" for line in result.log[1:])


def story(random: Random) -> list[Any]:
    """Draw steps: questions, and what happens to the nodes meanwhile."""
    steps: list[Any] = []
    cuts: list[str] = []
    for number in range(random.randint(3, 10)):
        kind = random.choice(["ask", "ask", "ask", "wait", "wait", "cut", "heal", "crash", "reset"])
        if kind == "ask":
            steps += [ask(target=random.choice(["clerk", "boss"])), TOTAL]
        elif kind == "wait":
            steps.append(wait(random.choice([0.5, 3, 12, 25, 50, 70])))
        elif kind == "cut":
            sides = random.choice([
                [["directory"], "rest"], [["weather"], ["clerk", "boss"]], [["weather"], ["directory"]],
                [["clerk"], "rest"],
            ])  # fmt: skip
            cuts.append(f"cut-{number}")
            steps.append(inject("partition", id=cuts[-1], sides=sides))
        elif kind == "heal" and cuts:
            healed = cuts.pop(random.randrange(len(cuts)))
            steps += [{"do": "heal", "of": healed}, wait(random.choice([1, 40]))]
        elif kind == "crash":
            target = random.choice(["weather", "directory"])
            steps += [inject("crash", target=target), wait(6)]
        elif kind == "reset":
            steps += [inject("disconnect"), wait(random.choice([2, 5]))]
    return [*steps, TOTAL]


@pytest.mark.parametrize("seed", few_or_all(range(2), range(60)))
def test_random_stories_come_to_the_same_in_both_worlds(folder: Path, seed: int) -> None:
    agents = {**AGENTS, "boss": {**AGENTS["clerk"], "args": {"patience": 30.0}}}
    steps = story(Random(seed))
    memory, wire = (answered(ran(folder, world, *steps, agents=agents)) for world in ("memory", "wire"))
    assert memory == wire


# ---- what is recorded


@both
def test_messages_to_it_come_from_nodes(folder: Path, world: str) -> None:
    result = ran(folder, world, ask(), wait(TTL), nodes={"rome": ["weather"], "here": ["clerk"]})
    for sender in ("rome", "here"):
        assert times(result, "sent", "putThing", sender) == [0.0]
        assert len(times(result, "sent", "partiallyUpdateThing", sender)) == 3
    assert times(result, "sent", "searchJSONPath", "here") == [LATENCY]


@both
def test_nodes_renew_at_times_of_their_own(folder: Path, world: str) -> None:
    result = ran(folder, world, wait(TTL))
    first, second = (
        times(result, "sent", "partiallyUpdateThing", sender)[0] - LATENCY for sender in ("weather", "clerk")
    )
    assert first != second
    assert all(0.8 * TTL / 3 <= each <= TTL / 3 for each in (first, second))


@both
def test_renewals_are_in_the_log_but_tell_no_story(folder: Path, world: str) -> None:
    """One that fails does: there is somebody who has to register again."""
    result = ran(folder, world, ask(), wait(3 * TTL))
    assert len(times(result, "sent", "partiallyUpdateThing")) > 10
    drawn = mermaid(result, "office")
    assert "putThing" in drawn
    assert "partiallyUpdateThing" not in drawn
    assert "partiallyUpdateThing" not in "".join(result.last)
    lost = ran(folder, world, CUT, wait(TTL + 15), HEAL, wait(TTL))
    assert "partiallyUpdateThing failed: ActionFailed" in mermaid(lost, "office")


def test_a_check_that_breaks_in_a_cut_says_so(folder: Path) -> None:
    check = {"check": "always", "of": "directory", "expr": "state.revision <= 2"}
    path = folder / "broken.yaml"
    ran(folder, "memory", wait(1), CUT, wait(TTL + 1))
    whole = json.loads((folder / "memory.yaml").read_text(encoding="utf-8"))
    path.write_text(json.dumps({**whole, "checks": [check]}), encoding="utf-8")
    resolved = load_scenario(path)
    (failure,) = run_cell(resolved, resolved.cells[0], 1).failures
    assert failure.saw.endswith("; since 1 s directory is cut off from weather, clerk")


def test_a_series_and_a_check_of_it(folder: Path) -> None:
    more = {
        "measure": {
            "every": "1s",
            "series": {"there": {"agg": "sum", "of": "directory", "expr": "state.total"}},
        },
        "checks": [
            {"check": "always", "of": "directory", "expr": "state.total <= 2"},
            {"check": "always", "expr": "series.there == 2"},
            {"check": "restarts", "of": "directory", "equals": 0},
        ],
    }
    assert ran(folder, "memory", wait(TTL), **more).checks_passed == 3


# ---- mistakes

SIMULATION = """\
lmos: simulation/v1
name: office
stop: {at: 10s}
network:
  directory: {ttl: 30s}
  links: [{between: [directory, clerk], latency: 1ms}]
nodes: {here: [directory]}
agents:
  clerk: {from: agent, use: "weather_office.py:Clerk"}
population: [{id: weather, count: 10, use: "weather_office.py:Weather"}]
timeline:
  - {at: 1s, do: fault, kind: crash, target: directory, restart: {after: 1s}}
  - {at: 1s, do: tell, target: clerk, action: ask}
"""

MISTAKES = [
    ("ttl: 30s", "ttl: 2s", "5:20", "from 3 s to 366 days, not 2 s"),
    ("ttl: 30s", "ttl: 367h", "", ""),
    ("ttl: 30s", "tll: 30s", "5:15", 'did you mean "ttl"'),
    ("directory: {ttl", "directry: {ttl", "5:3", 'did you mean "directory"'),
    ("between: [directory,", "between: [directroy,", "6:22", 'did you mean "directory"'),
    ("  directory: {ttl: 30s}\n", "", "5:22", '"directory: {}" in it makes one'),
    ("  clerk: {", "  directory: {", "9:3", "an agent has another name"),
    ("id: weather", "id: directory", "10:19", "given twice, first at"),
    ("count: 10,", "count: 20000,", "5:3", "20,001 agents register in the directory: 10,000 are the most"),
    ("count: 10,", "count: 5000,", "5:3", "5,001 nodes register in the directory"),
    ("after: 1s}", "after: 1s, state: kept}", "12:78", "the directory keeps outlives its crash"),
    ("kind: crash,", "kind: slow, factor: 2, duration: 1s,", "12:70", "no service_time"),
    ("stop: {", "tree: {root: {children: [clerk, directory]}}\nstop: {", "3:33", "in no tree of the file"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "why"), MISTAKES)
def test_mistakes(folder: Path, old: str, new: str, place: str, why: str) -> None:
    text = SIMULATION.replace(old, new)
    assert text != SIMULATION
    path = folder / "file.yaml"
    path.write_text(text.replace("network:", "world: wire\nnetwork:") if "nodes reg" in why else text)
    found: list[Any] = []
    try:
        load_scenario(path)
    except FileError as error:
        found = list(error.mistakes)
    line = int(place.partition(":")[0] or 0) + ("nodes reg" in why)
    column = int(place.partition(":")[2] or 0)
    assert [each for each in found if (each.line, each.column) == (line, column) and why in each.message] or (
        not place and not found
    ), found


def test_agents_that_are_registered_are_used(folder: Path) -> None:
    path = folder / "file.yaml"
    path.write_text(SIMULATION)
    assert load_scenario(path).notes == ()


# ---- nodes that end


@both
def test_a_node_that_ends_takes_nothing_back_and_registers_again(folder: Path, world: str) -> None:
    """Its registration expires, as nobody has removed it."""
    result = ran(
        folder,
        world,
        inject("restart", of="weather", down="2s"),
        TOTAL,
        ask("wait"),
        at_once(
            [inject("restart", of="weather", down=f"{TTL + 20}s")],
            [wait(2), TOTAL, ask(), wait(TTL + 10), TOTAL, ask()],
        ),
        wait(10),
        TOTAL,
        ask("wait"),
    )
    assert answered(result, "ask", "total", "wait") == [
        2,
        "rome",
        2,
        "AgentUnavailable",
        1,
        "AgentUnavailable",
        2,
        "rome",
    ]


@both
def test_a_node_has_one_registrar_however_often_it_ends(folder: Path, world: str) -> None:
    ends = (inject("restart", id=f"r{n}", of="weather") for n in range(3))
    result = ran(folder, world, *ends, wait(10), TOTAL, wait(TTL), TOTAL)
    renewals = times(result, "sent", "partiallyUpdateThing", "weather")
    assert len(renewals) == len({round(instant, 1) for instant in renewals}) <= 4


@both
def test_a_directory_that_ends_has_forgotten_all_and_hears_of_them_again(folder: Path, world: str) -> None:
    result = ran(folder, world, TOTAL, inject("restart", of="directory"), TOTAL, wait(2 * TTL), TOTAL, ask())
    assert answered(result) == [2, 0, 2, "rome"]
