"""Approvals in scenarios: the story answers them, and one that nobody answers fails the run by name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenario.project import Project
from tests.scenario.thinkers import fails, mistakes, passes, run

if TYPE_CHECKING:
    from collections.abc import Iterator

CAST = '''\
from lmos_actors import Agent, action


class Desk(Agent):
    """Pays money back, once a person agrees."""

    @action(concurrency=9)
    async def refund(self, order: str, seconds: float = 3600.0) -> bool:
        return await self.approve(f"Refund {order}", key=order, expires=seconds)


class Lasting(Agent, durable=True):
    """Does so on a node that restarts."""

    @action(concurrency=9, snapshot_safe=True)
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}", key=order, expires=3600.0)
'''
DESK = {"desk": {"from": "agent", "use": "cast.py:Desk"}}
ASK = {
    "do": "invoke",
    "id": "ask",
    "target": "desk",
    "action": "refund",
    "input": {"order": "o-1"},
    "wait": False,
}
WORLDS = ("memory", "wire", "websocket")


@pytest.fixture
def project(tmp_path: Any) -> Iterator[Project]:
    found = Project(tmp_path)
    found.write("cast.py", CAST)
    found.write("lmos-actors.toml", "")
    yield found
    sys.modules.pop("cast", None)


def is_answered(value: bool) -> dict[str, Any]:
    return {"do": "expect", "that": "output", "of": "ask", "equals": value}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("verb", "value"), [("approve", True), ("refuse", False)])
def test_a_story_answers(project: Project, world: str, verb: str, value: bool) -> None:
    answer = {"do": verb, "target": "desk", "note": "as agreed"}
    passes(project, [ASK, answer, is_answered(value)], DESK, world=world)


def test_a_step_waits_until_the_agent_asks_for_that_key(project: Project) -> None:
    other = {**ASK, "id": "other", "input": {"order": "o-2"}}
    late = [{"do": "wait", "for": "5s"}, other]
    answers = [{"do": "refuse", "target": "desk", "key": "o-2"}, {"do": "approve", "target": "desk"}]
    passes(project, [ASK, {"do": "parallel", "branches": [late, answers]}, is_answered(True)], DESK)


def test_what_nobody_answers_fails_by_name(project: Project) -> None:
    result = run(project, [ASK], DESK)
    assert result.ended == "time limit"  # the story waits for the answer of its request
    (found,) = [each for each in result.failures if each.what.startswith("approval")]
    assert found.what == 'approval "Refund o-1" of desk'
    assert found.expected == 'a step "do: approve" or "do: refuse"'
    assert found.saw == 'nobody has answered it (key "o-1")'
    brief = {**ASK, "input": {"order": "o-1", "seconds": 5.0}}
    said = fails(project, [brief, is_answered(False)], DESK)
    assert 'its deadline has refused it (key "o-1")' in said


def test_a_story_may_leave_it_to_the_deadline(project: Project) -> None:
    brief = {**ASK, "input": {"order": "o-1", "seconds": 5.0}}
    refused = {"do": "refuse", "target": "desk", "by": "deadline"}
    passes(project, [brief, refused, is_answered(False)], DESK)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"do": "approve", "target": "desk", "within": "2s"}], "it has asked nothing"),
        (
            [ASK, {"do": "approve", "target": "desk", "key": "o-9", "within": "2s"}],
            'it has asked "Refund o-1" (key "o-1", waiting)',
        ),
        ([ASK, {"do": "refuse", "target": "desk", "by": "deadline", "within": "2s"}], '(key "o-1", waiting)'),
    ],
)
def test_an_answer_to_what_is_not_asked_fails(project: Project, steps: list[Any], expected: str) -> None:
    said = fails(project, steps, DESK)
    assert "desk asks for an approval within 2" in said
    assert expected in said


def test_an_answer_outlives_the_crash_of_the_agent(project: Project) -> None:
    broken = {**ASK, "error": {"is": "AgentDied"}}
    again = {**ASK, "id": "again", "wait": True}
    crash = {"do": "inject", "fault": {"kind": "crash", "target": "desk", "with": "RuntimeError"}}
    passes(
        project,
        [
            broken,
            {"do": "wait", "for": "1s"},
            crash,
            {"do": "approve", "target": "desk"},
            again,
            {"do": "expect", "that": "output", "of": "again", "equals": True},
        ],
        DESK,
    )


def test_a_question_outlives_the_node(project: Project) -> None:
    cast = {"desk": {"from": "agent", "use": "cast.py:Lasting"}}
    broken = {**ASK, "error": {"is": "OutcomeUnknown"}}
    restart = {"do": "inject", "fault": {"kind": "restart", "down": "1s"}}
    again = {**ASK, "id": "again"}
    passes(
        project,
        [
            broken,
            {"do": "wait", "for": "1s"},
            restart,
            again,
            {"do": "approve", "target": "desk"},
            {"do": "expect", "that": "output", "of": "again", "equals": True},
        ],
        cast,
    )


def test_wrong_steps_are_mistakes_of_the_file(project: Project) -> None:
    for step, expected in (
        ({"do": "approve", "target": "dsek"}, 'did you mean "desk"'),
        ({"do": "approve", "target": "desk", "by": "deadline"}, "by"),
        ({"do": "refuse", "target": "desk", "by": "boss"}, "boss"),
        ({"do": "approve"}, "target"),
    ):
        said = mistakes(project, [step], DESK)
        assert any(expected in each for each in said), said
