"""Bridges and mocks that speak Omnia's protocol: in every world, with one trace, and every mistake named."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from lmos_actors.security import Basic, Bearer, Security
from tests.commands import called
from tests.facades.desk import Desk
from tests.scenario.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

TALK = '''\
from lmos_actors import ActionFailed, Agent, Ref, action
from lmos_actors.facades import ChatAgent, ChatTurn, TurnDone, tool_of


class Orders(Agent):
    @action
    def look_up(self, number: int) -> str:
        return f"order {number} is sent"


class Desk(ChatAgent):
    """Looks up orders."""

    orders: Ref[Orders]

    async def reply(self, turn: ChatTurn):
        turn.memory["turns"] = turn.memory.get("turns", 0) + 1
        if turn.text == "fail":
            raise ActionFailed({"code": "CLOSED", "message": "come back tomorrow"})
        yield f"{turn.memory['turns']}: "
        yield await turn.use(tool_of(self.orders, Orders.look_up), number=int(turn.text))


class Asker(Agent):
    """Chats on behalf of others."""

    desk: Ref[ChatAgent]

    @action
    async def ask(self, text: str) -> str:
        async with self.desk.stream(ChatAgent.chat, text) as items:
            async for item in items:
                if isinstance(item, TurnDone):
                    return item.text
        return ""
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("talk.py", TALK)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield made
    sys.modules.pop("talk", None)


AGENTS: dict[str, Any] = {
    "orders": {"from": "agent", "use": "talk:Orders"},
    "desk": {"from": "agent", "use": "talk:Desk", "args": {"orders": "$(agents.orders)"}},
    "door": {"from": "bridge", "speaks": "omnia", "to": "desk"},
    "asker": {"from": "agent", "use": "talk:Asker", "args": {"desk": "$(agents.door)"}},
}


def chat(id: str, content: str, target: str = "door", **more: Any) -> dict[str, Any]:
    return {
        "do": "stream",
        "id": id,
        "target": target,
        "action": "chat",
        "input": {"content": content, **more},
    }


def expect(of: str, match: dict[str, Any], that: str = "items") -> dict[str, Any]:
    return {"do": "expect", "that": that, "of": of, "match": match}


def ran(project: Project, **file: Any) -> RunResult:
    data = {"lmos": "scenario/v1", "name": "talk", "agents": AGENTS, **file}
    project.write("talk.yaml", json.dumps(data))
    resolved = load_scenario(project.root / "talk.yaml")
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


STEPS = [
    chat("first", "17", session="s", new=True),
    expect("first", {"$.items[1].text": "1: ", "$.items[2].name": "look_up"}),
    expect("first", {"$.items[4].text": "order 17 is sent", "$.items[5].text": "1: order 17 is sent"}),
    {**chat("broken", "fail", session="s"), "error": {"is": "ActionFailed", "contains": "CLOSED"}},
    chat("second", "18", session="s"),
    expect("second", {"$.items[1].text": "2: "}),
    {"do": "invoke", "id": "asked", "target": "asker", "action": "ask", "input": {"text": "19"}},
    expect("asked", {"$.output": "1: order 19 is sent"}, "output"),
]


NETWORK: dict[str, Any] = {"default": {"latency": "50ms"}}


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_bridge_crosses_the_links_of_a_network(project: Project, world: str) -> None:
    """It connects for each turn, which takes two round trips; what is cut off is not reached."""
    cut = {"kind": "partition", "sides": [["shop"], "rest"]}
    failing = {**chat("cut", "18"), "error": {"is": "ActionFailed", "contains": "no connection within 10 s"}}
    steps = [chat("first", "17"), {"do": "inject", "id": "cut-off", "fault": cut}, failing]
    steps += [{"do": "heal", "of": "cut-off"}, chat("second", "18")]
    agents = {name: entry for name, entry in AGENTS.items() if name != "asker"}
    more = {"nodes": {"shop": ["desk", "orders"]}, "network": NETWORK, "agents": agents}
    result = ran(project, world=world, timeout="2m", steps=steps, **more)
    assert result.failures == (), result.failures
    took = [round(step.end - step.begin, 6) for step in result.step_results if step.what.startswith("stream")]
    assert took[0] == pytest.approx(8 * 0.05)
    assert took[1] == 10


def test_a_bridge_needs_a_connection(project: Project) -> None:
    with pytest.raises(FileError) as caught:
        ran(project, steps=[chat("first", "17")], network={**NETWORK, "delivery": "datagram"})
    assert 'the bridge "door" connects, and needs "delivery: stream"' in str(caught.value)


CHECKS = [
    {"check": "trace", "of": "first", "through": ["door", "desk", "orders"]},
    {"check": "trace", "of": "asked", "through": ["asker", "door", "desk", "orders"]},
    {"check": "restarts", "of": "desk", "equals": 0},
]


@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
def test_a_bridge_has_the_same_verdict_in_every_world(project: Project, world: str) -> None:
    result = ran(project, world=world, steps=STEPS, checks=CHECKS)
    assert result.failures == ()
    assert result.ended == "passed"


MOCK: dict[str, Any] = {
    "from": "mock",
    "speaks": "omnia",
    "rules": [
        {
            "when": {"action": "message", "contains": "weather"},
            "reply": [{"chunk": "Looking "}, {"wait": "1s"}, {"done": "It is sunny."}],
            "delay": "500ms",
        },
        {"when": {"match": {"$.content": "no"}}, "fail": {"code": "PROVIDER_ERROR", "message": "none"}},
        {"when": {"contains": "curse"}, "crash": "RuntimeError"},
        {"when": {"any": True}, "output": "what?", "times": 1},
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
@pytest.mark.parametrize("target", ["model", "door"])
def test_a_mock_is_a_chat_agent(project: Project, world: str, target: str) -> None:
    steps = [
        chat("weather", "the weather?", target),
        expect("weather", {"$.items[1].text": "Looking ", "$.items[3].text": "Looking It is sunny."}),
        {**chat("no", "no", target), "error": {"is": "ActionFailed", "contains": "PROVIDER_ERROR"}},
        {**chat("cursed", "a curse", target), "error": {"is": "ActionFailed", "contains": "INTERNAL"}},
        chat("other", "anything", target),
        expect("other", {"$.items[2].text": "what?"}),
    ]
    agents = {"model": MOCK, "door": {"from": "bridge", "speaks": "omnia", "to": "model"}}
    result = ran(project, world=world, agents=agents, steps=steps)
    assert result.failures == ()
    assert result.ended == "passed"


def test_what_no_rule_fits_and_what_nothing_uses_fails(project: Project) -> None:
    rules = [{"when": {"contains": "weather"}, "output": "sunny"}]
    agents = {"model": {"from": "mock", "speaks": "omnia", "rules": rules}}
    steps = [{**chat("odd", "hello", "model"), "error": {"is": "ActionFailed"}}]
    result = ran(project, agents=agents, steps=steps)
    assert result.ended == "failed"
    assert {failure.what for failure in result.failures} == {"mock model", "mock model, rule 1"}


def bad(**entry: Any) -> dict[str, Any]:
    return {**AGENTS, "door": {"from": "bridge", "speaks": "omnia", **entry}}


def bad_rule(**rule: Any) -> dict[str, Any]:
    return {"model": {"from": "mock", "speaks": "omnia", "rules": [{"when": {"any": True}, **rule}]}}


WRONG: list[tuple[dict[str, Any], str]] = [
    (bad(), '"to", or elsewhere, "url": give one of them'),
    (bad(to="desk", url="ws://127.0.0.1:1"), "give one of them"),
    (bad(to="dekc"), 'no agent "dekc", did you mean "desk"?'),
    (bad(to="orders"), '"orders" is Orders, which is no ChatAgent'),
    (bad(url="ws://127.0.0.1:1"), "a bridge leads elsewhere in world: websocket, not in world: memory"),
    (bad(url="127.0.0.1:1"), "begins with none of ws://"),
    (bad(to="desk", speaks="omnja"), 'did you mean "omnia"'),
    (bad(to="desk", speaks="relay"), "needs a hub, which the file has not"),
    (bad(to="desk", access="anyone"), '"access" goes with "speaks: relay"'),
    (bad(to="desk", follows=["user"]), '"follows" goes with "speaks: relay"'),
    (bad(to="desk", bearer="env:TOKEN"), '"bearer" goes with "url", a server elsewhere'),
    (bad(url="ws://example.org", basic="bob:env:TOKEN"), "insecure: true"),
    (bad(to="desk", use="talk:Desk"), '"use"'),
    ({"model": {**MOCK, "use": "talk:Desk"}}, 'stands for any chat agent: leave out "use"'),
    (bad_rule(when={"action": "mesage"}, output="x"), 'no action "mesage", did you mean "message"?'),
    (bad_rule(when={"from": "user"}, output="x"), '"from" is not known to a mock that speaks omnia'),
    (bad_rule(output=[1]), "output"),
    (bad_rule(reply=[{"chunk": 1}]), "chunk"),
    (bad_rule(reply=[{"progress": 1}, {"done": "x"}]), "has no progress"),
    (bad_rule(when={"match": {"$.text": "x"}}, output="x"), "$.text"),
    (bad_rule(output="x", emit={"noted": 1}), "noted"),
]


@pytest.mark.parametrize(("agents", "message"), WRONG, ids=[each[1] for each in WRONG])
def test_mistakes_have_their_place(project: Project, agents: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError) as caught:
        ran(project, agents=agents, steps=[])
    assert message in str(caught.value)


@pytest.mark.parametrize("access", [{}, {"bearer": "file:desk.token"}, {"basic": "bob:file:desk.token"}])
async def test_a_bridge_leads_to_any_facade(project: Project, access: dict[str, str]) -> None:
    project.write("desk.token", "a-long-token-of-the-desk")
    security = None
    if access:
        known = {"bob": f"file:{project.root}/desk.token"}
        security = Security(schemes=(Bearer(known) if "bearer" in access else Basic(known),))
    async with open_node(listen="ws://127.0.0.1:0", omnia=True, security=security) as node:
        await node.start(Desk)
        url = f"{node.urls[0]}/?agent=desk"
        agents = {"far": {"from": "bridge", "speaks": "omnia", "url": url, **access}}
        steps = [
            chat("first", "add 2", "far", session="s", new=True),
            expect("first", {"$.items[1].name": "add", "$.items[3].text": "sum 3"}),
            chat("second", "hello", "far", session="s"),
            expect("second", {"$.items[1].text": "2: hello"}),
            {
                **chat("third", "fail no", "far", session="s"),
                "error": {"is": "ActionFailed", "contains": "no"},
            },
        ]
        file = {"lmos": "scenario/v1", "name": "far", "world": "websocket", "agents": agents, "steps": steps}
        project.write("far.yaml", json.dumps(file))
        run = partial(called, ("run", "far.yaml"), project.root, timeout=60)
        ended = await trio.to_thread.run_sync(run)
    assert ended.returncode == 0, ended.stdout
