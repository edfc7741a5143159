"""Replays that speak Omnia's protocol or that of a relay: recordings by hand, and what becomes of them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

HEAD = {"schema": "lmos-actors/trace/v1", "seed": None, "run": {"label": "recorded", "recorded": "ws://x"}}

Record = tuple[float, str, str, dict[str, Any]]


def request(
    agent: str, name: str, given: Any, begin: float, end: float | None, value: Any, number: int, **more: Any
) -> list[Record]:
    """Return the records of a request and its answer."""
    own = {"affordance": name, "id": number}
    sent = {**own, "from": "asker", "input": given, "trace": number, "verb": "invoke"}
    found: list[Record] = [(begin, "sent", agent, sent), (begin, "delivered", agent, own)]
    return found if end is None else [*found, (end, "answered", agent, {**own, "value": value, **more})]


def write(project: Project, *found: Record, whole: bool = True, recorded: bool = True) -> None:
    """Write a recording, in the order of time."""
    head = HEAD if recorded else {**HEAD, "run": {"label": "recorded"}}
    agents = dict.fromkeys(agent for _, _, agent, _ in found if agent)
    begun: list[Record] = [(0.0, "started", agent, {"incarnation": 1}) for agent in agents]
    lines = [json.dumps(head)]
    for number, (at, kind, agent, fields) in enumerate(
        [*begun, *sorted(found, key=lambda each: each[0])], start=1
    ):
        lines.append(json.dumps({"n": number, "t": at, "kind": kind, "agent": agent, **fields}))
    text = "\n".join(lines) + "\n"
    end = {"end": len(lines) - 1, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    project.write("log.jsonl", text + (json.dumps(end) + "\n" if whole else '{"n":99,"t":'))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    return made


def run(project: Project, agents: dict[str, Any], *steps: Any, **more: Any) -> RunResult:
    data = {"lmos": "scenario/v1", "name": "it", **more, "agents": agents, "steps": list(steps)}
    resolved = load_scenario(project.root / project.write("it.json", json.dumps(data)))
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


def failures(result: RunResult) -> list[tuple[str, str, str]]:
    return [(failure.what, failure.expected, failure.saw) for failure in result.failures]


HELPER: dict[str, Any] = {"from": "replay", "speaks": "relay", "log": "log.jsonl"}
BOT: dict[str, Any] = {"from": "replay", "speaks": "omnia", "log": "log.jsonl"}


def ask(payload: Any, **more: Any) -> dict[str, Any]:
    return {"do": "say", "type": "question", "to": "helper", "payload": payload, **more}


# --- on a hub

TALK = [
    *request("helper", "question", "how?", 1.0, 1.5, {"so": True}, 1),
    *request("helper", "question", None, 2.0, 2.0, "nothing", 2),
    *request("helper", "data", {"n": 1}, 3.0, 3.25, "seen", 3, type="thought"),
    (4.0, "event", "helper", {"event": "thought", "data": "by the way"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
def test_a_replay_on_a_hub_answers_and_says_what_was_recorded(project: Project, world: str) -> None:
    write(project, *TALK)
    heard = {"do": "expect", "that": "heard", "within": "10s"}
    result = run(
        project,
        {"helper": HELPER},
        ask("how?", id="a"),
        {"do": "expect", "that": "output", "of": "a", "equals": {"so": True}},
        ask(None, id="b"),
        {"do": "expect", "that": "output", "of": "b", "equals": "nothing", "match": {"$.type": "answer"}},
        {"do": "say", "type": "data", "to": "helper", "payload": {"n": 1}},
        {**heard, "equals": "seen", "match": {"$.type": "thought", "$.sender": "helper"}},
        {**heard, "equals": "by the way", "match": {"$.to[0]": "*"}},
        relay={},
        world=world,
    )
    assert failures(result) == []
    if world != "websocket":  # which is real time
        assert [step.end for step in result.step_results if step.what.startswith("expect heard")] == [
            0.75,
            4.0,
        ]


def test_what_was_not_recorded_fails_its_caller_and_the_run(project: Project) -> None:
    write(project, *TALK[:3])
    refused = {"error": {"is": "ActionFailed"}}
    result = run(project, {"helper": HELPER}, ask("how?"), ask("how?", **refused), relay={})
    assert failures(result) == [
        (
            "replay helper",
            'a recorded invoke question "how?" from user',
            "it was recorded once, and has been asked more often",
        )
    ]


def test_what_was_recorded_and_is_not_asked_for_fails_the_run(project: Project) -> None:
    write(project, *TALK[:6])
    result = run(project, {"helper": HELPER}, ask("how?"), relay={})
    assert failures(result) == [
        ("replay helper", "invoke question {}, as recorded", "no such request was made")
    ]
    allowed = {**HELPER, "unused": "allowed"}
    assert failures(run(project, {"helper": allowed}, ask("how?"), relay={})) == []


def test_a_broadcast_that_was_not_recorded_is_passed_over(project: Project) -> None:
    write(project, *TALK[:3])
    said = {"do": "say", "type": "data", "payload": 1}
    assert failures(run(project, {"helper": HELPER}, said, ask("how?"), relay={})) == []


# --- a chat agent

CHAT = [
    *request("bot", "message", {"content": "hi"}, 1.0, 1.5, "You said hi", 1),
    (1.1, "item", "bot", {"affordance": "message", "id": 1, "value": "You said "}),
    (1.4, "item", "bot", {"affordance": "message", "id": 1, "value": "hi"}),
    *request("bot", "message", {"content": "whole"}, 2.0, 2.5, "at once", 2),
    *request("bot", "message", {"content": "bad"}, 3.0, None, None, 3),
    (
        3.5,
        "answered",
        "bot",
        {"affordance": "message", "id": 3, "error": "ActionFailed: NO: no", "output": {"code": "NO"}},
    ),
]


def chat(content: str, **more: Any) -> dict[str, Any]:
    given = {"content": content, "session": "s", "new": True}
    return {"do": "stream", "target": "bot", "action": "chat", "input": given, **more}


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_replay_of_a_chat_agent_answers_piece_by_piece(project: Project, world: str) -> None:
    write(project, *CHAT)
    items = {"do": "expect", "that": "items"}
    result = run(
        project,
        {"bot": BOT},
        chat("hi", id="a"),
        {**items, "of": "a", "match": {"$.items[1].text": "You said ", "$.items[2].text": "hi"}},
        chat("whole", id="b"),
        {**items, "of": "b", "equals": {"type": "done", "text": "at once"}},
        chat("bad", error={"is": "ActionFailed", "contains": "NO"}),
        world=world,
    )
    assert failures(result) == []
    assert result.virtual == 1.5
    turn = [json.loads(line) for line in result.log if '"item"' in line and '"chunk"' in line]
    assert [each["t"] for each in turn if each["agent"] == "bot"][:2] == [0.1, 0.4]


def test_a_bridge_leads_to_a_replay_of_a_chat_agent(project: Project) -> None:
    write(project, *CHAT[:5])
    door = {"from": "bridge", "to": "bot", "speaks": "omnia"}
    step = {**chat("hi", id="a"), "target": "door"}
    done = {"type": "done", "text": "You said hi"}
    expected = {"do": "expect", "that": "items", "of": "a", "equals": done}
    assert failures(run(project, {"bot": BOT, "door": door}, step, expected)) == []


def test_what_was_not_said_to_the_chat_agent_is_a_failure(project: Project) -> None:
    write(project, *CHAT[:5])
    result = run(project, {"bot": BOT}, chat("hi"), chat("ho", error={"is": "ActionFailed"}))
    assert failures(result) == [
        (
            "replay bot",
            'a recorded invoke message {"content": "ho"} from user',
            'the nearest is {"content": "hi"} (log.jsonl:3), which has been used',
        )
    ]


# --- recordings that were cut, and mistakes of files


def test_only_a_recording_may_be_cut_short(project: Project) -> None:
    write(project, *CHAT[:5], whole=False)
    assert failures(run(project, {"bot": BOT}, chat("hi"))) == []
    write(project, *CHAT[:5], whole=False, recorded=False)
    with pytest.raises(FileError, match="cut short"):
        run(project, {"bot": BOT}, chat("hi"))


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"helper": {**HELPER, "use": "x.py:X"}}, {"relay": {}}, 'stands for no class: leave out "use"'),
    ({"bot": {**BOT, "use": "x.py:X"}}, {}, 'stands for no class: leave out "use"'),
    ({"helper": HELPER}, {}, "needs a hub"),
    ({"My_Helper": {**HELPER, "agent": "helper"}}, {"relay": {}}, "cannot be a name on a hub"),
    ({"helper": {**HELPER, "speaks": "omnja"}}, {"relay": {}}, "omnja"),
    ({"helper": {**HELPER, "agent": "helpr"}}, {"relay": {}}, 'no agent "helpr", did you mean "helper"?'),
    ({"helper": {**HELPER, "args": {"a": 1}}}, {"relay": {}}, '"args" needs "use"'),
]


@pytest.mark.parametrize(("agents", "more", "part"), WRONG, ids=lambda each: str(each)[:40])
def test_what_is_wrong_with_such_a_replay_is_said_at_its_place(
    project: Project, agents: dict[str, Any], more: dict[str, Any], part: str
) -> None:
    write(project, *TALK)
    with pytest.raises(FileError) as raised:
        run(project, agents, {"do": "wait", "for": "1s"}, **more)
    assert part in str(raised.value)
