"""Hand-overs in scenarios: checks of them, and failures where the model of one of the agents has no rule."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenario.project import Project
from tests.scenario.thinkers import fails, passes, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

DESK = '''\
from lmos_actors.facades import ChatAgent
from lmos_actors.thinking import ThinkingAgent, hand_back, hand_over


class Billing(ThinkingAgent):
    """You know bills."""


class Parrot(ChatAgent):
    """Gives all conversations back."""

    async def reply(self, turn):
        await turn.use(hand_back, reason="no")


class Triage(ThinkingAgent):
    """You find out what people want."""

    tools = (hand_over(Billing, name="billing"), hand_over(Parrot))
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("hand_overs"))
    made.write("pyproject.toml", "")
    made.write("handed_desk.py", DESK)
    yield made
    sys.path[:] = path
    sys.modules.pop("handed_desk", None)


def cast(*rules: dict[str, Any]) -> dict[str, Any]:
    agents: dict[str, Any] = {
        name.lower(): {"from": "agent", "use": f"handed_desk.py:{name}"}
        for name in ("Triage", "Billing", "Parrot")
    }
    for name in ("triage", "billing"):
        agents[name]["args"] = {"model": "$(agents.model)"}
    return {"model": scripted(*rules), **agents}


def over(tool: str) -> dict[str, Any]:
    reply = [{"call": {"tool": tool, "arguments": {"reason": "a bill"}}}]
    return {"when": {"from": "triage", "contains": "bill"}, "reply": reply}


def chat(content: str = "My bill?", **more: Any) -> dict[str, Any]:
    said = {"content": content, "session": "s", "new": True}
    return {"do": "stream", "id": "chat", "target": "triage", "action": "chat", "input": said, **more}


def tools(**more: Any) -> dict[str, Any]:
    return {"checks": [{"check": "tools", "of": "chat", **more}]}


BILL = {"when": {"from": "billing", "contains": "bill"}, "output": "Ten euros."}


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_hand_over_that_was_taken_has_been_called(project: Project, world: str) -> None:
    agents = cast(over("billing"), BILL)
    called = {"tool": "billing", "match": {"$.reason": "a bill"}, "equals": 1}
    passes(project, [chat()], agents, world=world, **tools(called=[called], in_order=["billing"]))
    text = fails(project, [chat()], agents, world=world, **tools(never=["billing"]))
    assert 'billing {"reason": "a bill"} was called' in text


def test_one_that_came_back_has_failed(project: Project) -> None:
    sorry = {"when": {"match": {"$.errors.hand_over_to_Parrot": {"contains": "no"}}}, "output": "Sorry."}
    agents = cast(over("hand_over_to_Parrot"), sorry)
    failed = {"tool": "hand_over_to_Parrot", "failed": True}
    passes(project, [chat()], agents, **tools(called=[failed]))
    text = fails(project, [chat()], agents, **tools(called=["hand_over_to_Parrot"]))
    assert "hand_over_to_Parrot: 0 times" in text


def test_a_request_without_a_rule_is_reported_once_where_another_follows_from_it(project: Project) -> None:
    text = fails(project, [chat()], cast(over("billing")))
    assert text.count("a rule for generate") == 1
    assert "from billing (turn-1)" in text
    first = cast(over("billing"), BILL)
    text = fails(project, [chat("Hello"), chat("Good bye", id="other")], first)
    assert "from triage (turn-1)" in text
