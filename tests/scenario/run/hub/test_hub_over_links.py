"""A hub in a file with a network: what is said there, and heard of it, crosses the links of its agents."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.matrix import some
from tests.scenario.project import Project
from tests.scenario.steps import at_once, heal, inject, records, wait

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

TALK = '''\
from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from lmos_actors import Agent, AgentError, Property, Ref, action, prop
from lmos_actors.facades import RelayMember, RelayMessage


class Weather(Agent):
    """Answers questions about the weather."""

    asked: Property[int] = prop(default=0)

    @action(answers=True)
    async def answer(self, question: str) -> str:
        """Answer in plain words."""
        self.asked += 1
        return "fine"


class Voter(Agent):
    """Asks, and hears."""

    relay: Ref[RelayMember]
    heard: Property[int] = prop(default=0)

    def started(self) -> None:
        self.follow(self.relay, RelayMember.heard, self.on_heard)

    def on_heard(self, message: RelayMessage) -> None:
        self.heard += message.payload == "hello"

    @action
    async def ask(self, whom: str = "weather-bot") -> str:
        try:
            answer = await self.relay.within(5).invoke(RelayMember.ask, "how?", [whom])
        except AgentError as error:
            return type(error).__name__
        return answer.payload


class Slow(Voter):
    """Takes its time to stop."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        yield
        await trio.sleep(3)
'''

AGENTS: dict[str, Any] = {
    "weather": {"from": "agent", "use": "hub_talk.py:Weather"},
    "weather-bot": {"from": "bridge", "speaks": "relay", "to": "weather"},
    "anna": {"from": "bridge", "speaks": "relay"},
    "voter": {"from": "agent", "use": "hub_talk.py:Voter", "args": {"relay": "$(agents.anna)"}},
    "ben": {
        "from": "mock",
        "speaks": "relay",
        "rules": [{"when": {"action": "question"}, "output": "I am ben", "unused": "allowed"}],
    },
}
NODES = {"home": ["anna", "voter"]}
LATENCY = 0.05
both = pytest.mark.parametrize("world", ["memory", "wire"])
ASK = {"do": "invoke", "target": "voter", "action": "ask"}
ASK_BEN = {**ASK, "input": {"whom": "ben"}}
HEARD = {"do": "read", "target": "voter", "property": "heard"}
SAY = {"do": "say", "payload": "hello"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    Project(root).write("pyproject.toml", "")
    Project(root).write("hub_talk.py", TALK)
    return root


def written(folder: Path, world: str, *steps: Any, **more: Any) -> Path:
    whole = {
        "lmos": "scenario/v1",
        "name": "hub",
        "world": world,
        "timeout": "20m",
        "relay": {},
        "network": {"default": {"latency": "50ms"}},
        "nodes": NODES,
        "agents": AGENTS,
        "steps": list(steps),
        **more,
    }
    path = folder / f"{world}.yaml"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


def ran(folder: Path, world: str, *steps: Any, **more: Any) -> RunResult:
    resolved = load_scenario(written(folder, world, *steps, **more))
    result = run_cell(resolved, resolved.cells[0], 1)
    assert result.failures == (), result.failures
    return result


CUT = inject("partition", id="cut", sides=[["home"], "rest"])
HEAL = heal("cut")


def answered(result: RunResult) -> list[Any]:
    return [each["value"] for each in records(result, "answered") if each["agent"] == "voter"]


@both
def test_a_question_crosses_two_links_and_its_answer_too(folder: Path, world: str) -> None:
    result = ran(folder, world, ASK, ASK_BEN)
    assert answered(result) == ["fine", "I am ben"]
    first, second = (each["t"] for each in records(result, "answered") if each["agent"] == "voter")
    assert (first, second - first) == pytest.approx((4 * LATENCY, 4 * LATENCY))


@both
def test_those_on_the_node_of_the_hub_are_near_it(folder: Path, world: str) -> None:
    """A bridge is on the node of its agent."""
    result = ran(folder, world, ASK, nodes={**NODES, "city": ["relay", "weather"]})
    (answered,) = (each["t"] for each in records(result, "answered") if each["agent"] == "voter")
    assert answered == pytest.approx(2 * LATENCY)
    near = ran(folder, world, ASK, nodes={"home": ["anna", "voter", "relay", "weather"]})
    (answered,) = (each["t"] for each in records(near, "answered") if each["agent"] == "voter")
    assert answered == 0


@both
def test_user_is_near_unless_it_is_named(folder: Path, world: str) -> None:
    result = ran(folder, world, SAY, wait(1), HEARD)
    assert (answered(result), len(records(result, "network"))) == ([1], 0)
    late = {"links": [{"between": ["user", "relay"], "latency": "5s"}]}
    assert answered(ran(folder, world, {**SAY, "wait": False}, wait(4), HEARD, network=late)) == [0]
    assert answered(ran(folder, world, {**SAY, "wait": False}, wait(6), HEARD, network=late)) == [1]


@both
@pytest.mark.parametrize(("lasts", "heard"), [(10, 1), (100, 0)])
def test_what_is_said_in_a_cut_comes_after_a_short_one(
    folder: Path, world: str, lasts: float, heard: int
) -> None:
    """A long one ends the connection, and what was under way with it; the agent comes back by itself."""
    steps = (CUT, SAY, ASK, wait(lasts), HEAL, wait(60), HEARD, ASK, SAY, wait(1), HEARD)
    result = ran(folder, world, *steps)
    assert answered(result) == ["DeadlineExceeded", heard, "fine", heard + 1]
    happened = [each["what"] for each in records(result, "network")]
    assert happened == ([] if heard else ["disconnected", "connected"])


FAULTS = [
    inject("disconnect"),
    inject("crash", target="relay"),
    inject("restart"),
    inject("restart", of="home"),
    inject("restart", of="weather"),
    inject("restart", of="relay"),
    inject("restart", of=["home", "relay"]),
    inject("restart", of=["weather", "relay"]),
]


@pytest.mark.parametrize(
    ("fault", "world"),
    some(
        product(FAULTS, ("memory", "wire")), of=3, besides=lambda case: case == (inject("restart"), "memory")
    ),
)
def test_agents_come_back_after_a_fault(folder: Path, world: str, fault: Any) -> None:
    result = ran(folder, world, ASK, fault, wait(10), ASK, SAY, wait(1), HEARD)
    assert answered(result) == ["fine", "fine", 1]
    assert "connected" in {each["what"] for each in records(result, "network")}


@both
@pytest.mark.parametrize("of", ["relay", "ben"])
def test_a_bridge_that_comes_back_without_its_hub_holds_up_nobody(folder: Path, world: str, of: str) -> None:
    """The hub is away with its node, or behind a cut; its supervisor starts others, the hub too."""
    cut = inject("partition", sides=[["weather"], ["relay"]], duration="60s")
    result = ran(
        folder,
        world,
        *([cut] if of == "ben" else []),
        at_once(
            [inject("restart", id="other", of=of, down="15s")],
            [wait(1), inject("restart", of="weather")],
        ),
        wait(100),
        ASK,
    )
    assert answered(result) == ["fine"]
    (back,) = [each.end for each in result.faults if each.id == "other"]
    assert back == pytest.approx(15, abs=0.2)  # a mock connects first


@both
def test_a_node_that_ends_does_not_note_its_own_connections(folder: Path, world: str) -> None:
    result = ran(folder, world, ASK, inject("restart", of="home"), wait(10), ASK)
    between = [each["what"] for each in records(result, "network") if each["to"] == "relay"]
    assert between == ["connected"]


@both
def test_the_end_of_a_run_is_no_loss_of_connections(folder: Path, world: str) -> None:
    """The hub says goodbye first, and who comes back then finds nobody."""
    slow = {**AGENTS, "voter": {**AGENTS["voter"], "use": "hub_talk.py:Slow"}}
    assert records(ran(folder, world, ASK, agents=slow), "network") == []


def test_both_worlds_come_to_the_same(folder: Path) -> None:
    steps = (ASK, CUT, SAY, ASK, wait(70), HEAL, wait(40), ASK, inject("disconnect"), wait(5), ASK_BEN, HEARD)
    memory, wire = (ran(folder, world, *steps) for world in ("memory", "wire"))
    assert answered(memory) == answered(wire)
    assert [each["t"] for each in records(memory, "network")] == [
        each["t"] for each in records(wire, "network")
    ]


def test_changed_bytes_end_a_connection(folder: Path) -> None:
    corrupt = {"links": [{"between": ["home", "relay"], "corrupt": 0.05}]}
    steps = [step for _ in range(40) for step in (ASK, wait(5))]
    result = ran(folder, "wire", *steps, network=corrupt)
    happened = {each["what"] for each in records(result, "network")}
    assert happened == {"corrupted", "disconnected", "connected"}
    assert answered(result).count("fine") > 20


MISTAKES = [
    ({"nodes": {**NODES, "city": ["weather-bot"]}}, 'is on the node of its agent "weather", which is not'),
    ({"network": {"delivery": "datagram"}}, '"relay" needs "delivery: stream"'),
    ({"network": {"links": [{"between": ["home", "rely"], "latency": "1s"}]}}, 'did you mean "relay"?'),
    (
        {"network": {"links": [{"between": ["weather", "weather-bot"], "latency": "1s"}]}},
        "are on one node",
    ),
]


@pytest.mark.parametrize(("more", "why"), MISTAKES)
def test_mistakes(folder: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(FileError) as caught:
        load_scenario(written(folder, "memory", ASK, **more))
    assert why in str(caught.value)
