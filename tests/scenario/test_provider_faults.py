"""Faults of the providers of models: what their callers get, in every world, and that they end."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenario.project import Project
from tests.scenario.thinkers import (
    LOOK_UP,
    SHIPPED,
    agents,
    ask,
    calls,
    fails,
    mistakes,
    passes,
    run,
    said,
    scripted,
    write_desk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

MODELS = '''\
from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import trio

from lmos_actors import Agent, Ref, action
from lmos_actors.llm import Model, ModelEnd, ModelItem, ModelRequest, TextDelta, UserMessage


class Echo(Model):
    """A model of the project."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        last: Any = request.messages[-1]
        for word in last.text.split():
            await trio.sleep(0.1)
            yield TextDelta(f"{word} ")
        yield ModelEnd()


class Asker(Agent):
    """Says what has come of an answer, and how it ended."""

    model: Ref[Model]

    @action(concurrency=8)
    async def say(self, text: str = "one two three") -> str:
        said = ""
        try:
            async with self.model.stream(Model.generate, [UserMessage(text)]) as items:
                async for item in items:
                    said += item.text if isinstance(item, TextDelta) else "."
        except Exception as error:
            return f"{said}! {error}"
        return said
'''

SAY = {"do": "invoke", "target": "asker", "action": "say"}
ECHO = {"from": "agent", "use": "thinking_models.py:Echo"}
REPLY = [{"chunk": "one "}, {"wait": "100ms"}, {"chunk": "two "}, {"wait": "100ms"}, {"done": "three "}]
WORDS = {"from": "mock", "speaks": "model", "rules": [{"when": {"any": True}, "reply": REPLY}]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("models"))
    write_desk(made)
    made.write("thinking_models.py", MODELS)
    yield made
    sys.path[:] = path
    for name in ("thinking_desk", "thinking_models"):
        sys.modules.pop(name, None)


def cast(model: Any) -> dict[str, Any]:
    asker = {"from": "agent", "use": "thinking_models.py:Asker", "args": {"model": "$(agents.model)"}}
    return {"asker": asker, "model": model}


def fault(status: Any, duration: str = "1s", **more: Any) -> dict[str, Any]:
    what = {"kind": "provider", "target": "model", "status": status, "duration": duration, **more}
    return {"do": "inject", "id": "down", "fault": what}


def heard(result: RunResult) -> list[str]:
    """Return what the asker has said, answer by answer."""
    records = [json.loads(line) for line in result.log]
    return [
        str(one["value"]) for one in records if one.get("kind") == "answered" and one.get("agent") == "asker"
    ]


@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
@pytest.mark.parametrize("model", [ECHO, WORDS], ids=["agent", "mock"])
@pytest.mark.parametrize(
    ("status", "says"),
    [
        (429, "! MODEL_BUSY: the provider refuses more requests (429)"),
        (500, "! MODEL_UNAVAILABLE: the provider fails (500)"),
        ("malformed", "! MODEL_MALFORMED: what came is no answer"),
        ("cut", "on! MODEL_CUT: the answer broke off"),
    ],
)
def test_a_provider_that_fails_and_is_there_again(
    project: Project, model: Any, status: Any, says: str, world: str
) -> None:
    steps = [fault(status, "400ms"), SAY, {"do": "wait", "for": "500ms"}, SAY]
    result = passes(project, steps, cast(model), world=world)
    first, second = heard(result)
    assert first.startswith(says)
    assert second == "one two three ."
    assert [(one.kind, one.targets) for one in result.faults] == [("provider", ("model",))]
    assert result.faults[0].end is not None


def test_a_slow_provider_is_late_with_each_piece(project: Project) -> None:
    late = [fault("slow", "60s", delay="3s"), SAY]
    result = passes(project, late, cast(ECHO))
    assert heard(result) == ["one two three ."]
    assert result.virtual == pytest.approx(12.3)
    assert passes(project, [fault("slow", "60s"), SAY], cast(ECHO)).virtual == pytest.approx(20.3)


def test_an_answer_that_goes_on_is_cut(project: Project) -> None:
    steps = [{**SAY, "wait": False}, {"do": "wait", "for": "150ms"}, fault("cut")]
    assert heard(passes(project, steps, cast(ECHO))) == ["one tw! MODEL_CUT: the answer broke off"]
    steps = [{**SAY, "wait": False}, {"do": "wait", "for": "150ms"}, fault(500)]
    assert heard(passes(project, steps, cast(ECHO))) == ["one two three ."]  # it had begun


def test_a_busy_provider_says_for_how_long(project: Project) -> None:
    said_to = {"messages": [{"role": "user", "text": "x"}]}
    step = {"do": "stream", "target": "model", "action": "generate", "input": said_to}
    steps = [fault(429, "10s"), {"do": "wait", "for": "4s"}, {**step, "error": {"is": "ActionFailed"}}]
    result = passes(project, steps, {"model": ECHO})
    (output,) = [one["output"] for line in result.log if (one := json.loads(line)).get("output")]
    assert output == {
        "code": "MODEL_BUSY",
        "message": "the provider refuses more requests (429)",
        "retry_after": 6.0,
    }


LOOKS = {"when": {"contains": "order"}, "times": 1, "reply": [calls("look_up")]}


@pytest.mark.parametrize("status", [429, 500, "malformed", "cut"])
def test_what_did_not_come_to_its_end_can_be_asked_again(project: Project, status: Any) -> None:
    steps = [fault(status, "1s"), ask(error={"is": "ActionFailed"}), {"do": "wait", "for": "2s"}, ask(id="b")]
    recorded = passes(project, [ask()], agents(scripted(LOOK_UP, SHIPPED)))
    project.write("asked.jsonl", "".join(f"{line}\n" for line in recorded.log))
    for model in (scripted(LOOKS, SHIPPED), {"from": "replay", "speaks": "model", "log": "asked.jsonl"}):
        passes(project, [*steps, said("It is on its way.", "b")], agents(model))


def test_an_agent_that_gives_up_fails(project: Project) -> None:
    text = fails(project, [fault(500), ask()], agents(scripted(LOOK_UP, SHIPPED)))
    assert "ActionFailed: MODEL_UNAVAILABLE: the provider fails (500)" in text


def test_a_model_that_starts_again_has_the_same_provider(project: Project) -> None:
    crash = {"do": "inject", "fault": {"kind": "crash", "target": "model"}}
    steps = [fault(500, "10s"), crash, {"do": "wait", "until": {"agent": "model", "is": "running"}}, SAY]
    assert heard(passes(project, steps, cast(ECHO)))[0].startswith("! MODEL_UNAVAILABLE")
    kill = {"do": "inject", "fault": {"kind": "restart"}}
    steps = [fault(500, "10s"), kill, SAY, {"do": "wait", "for": "10s"}, SAY]
    first, second = heard(passes(project, steps, cast(ECHO)))
    assert first.startswith("! MODEL_UNAVAILABLE")
    assert second == "one two three ."


def test_a_run_with_such_a_fault_is_the_same_again(project: Project) -> None:
    delay = {"dist": "exponential", "mean": "1s"}
    steps = [fault("slow", "60s", delay=delay), SAY, SAY]
    first, second = (run(project, steps, cast(ECHO)) for _ in range(2))
    assert first.digest == second.digest
    assert first.virtual != pytest.approx(8.6)


def test_it_strikes_in_a_simulation_at_its_instant(project: Project) -> None:
    at = {"do": "fault", "at": "1s", "id": "down", "kind": "provider", "target": "model", "status": 500}
    tell = {"do": "invoke", "target": "asker", "action": "say"}
    whole = {
        "lmos": "simulation/v1",
        "name": "down",
        "stop": {"at": "5s"},
        "agents": cast(ECHO),
        "population": [{"id": "more", "count": 2, "use": "thinking_models.py:Echo"}],
        "timeline": [{**at, "duration": "1s"}, *({**tell, "at": f"{n}ms"} for n in (500, 1500, 2500))],
        "checks": [{"check": "restarts", "of": "more", "equals": 0}],
    }
    project.write("down.yaml", json.dumps(whole))
    ran = project.command("sim", "down.yaml", "--log", "down.jsonl")
    assert ran.code == 0, ran.text
    lines = [
        json.loads(line) for line in (project.root / "down.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    answers = [one["value"] for one in lines if one.get("kind") == "answered" and one.get("agent") == "asker"]
    assert [one.split(":")[0] for one in answers] == [
        "one two three .",
        "! MODEL_UNAVAILABLE",
        "one two three .",
    ]


PATIENT = """\
import trio
from thinking_desk import Desk
from lmos_actors import ActionFailed, action

class Patient(Desk):
    @action(concurrency=64)
    async def ask(self, text: str) -> str:
        for _ in range(60):
            try:
                return await Desk.ask.__wrapped__(self, text)
            except ActionFailed:
                await trio.sleep(1)
        return "enough"
"""


@pytest.mark.slow
def test_explore_draws_it_and_finds_what_it_breaks(project: Project) -> None:
    fragile = {
        "lmos": "scenario/v1",
        "name": "fragile",
        "agents": agents(scripted(LOOK_UP, SHIPPED)),
        "explore": {"faults": [{"kind": "provider", "status": 500, "of": "model"}], "at_most": 1},
        "steps": [{"do": "wait", "for": "1s"}, ask(), {"do": "wait", "for": "1s"}, ask(id="again")],
    }
    project.write("fragile.yaml", json.dumps(fragile))
    ran = project.command("explore", "fragile.yaml", "--runs", "40", timeout=120)
    assert ran.code == 1, ran.text
    assert "provider" in ran.text
    found = (project.root / "fragile.found-1.yaml").read_text(encoding="utf-8")
    assert "status: 500" in found
    assert project.command("run", "fragile.found-1.yaml").code == 1
    project.write("patient_desk.py", PATIENT)
    cast_again = agents(scripted(LOOK_UP, SHIPPED))
    cast_again["desk"]["use"] = "patient_desk.py:Patient"
    patient = {**fragile, "agents": cast_again, "explore": {"faults": ["provider"], "at_most": 2}}
    project.write("patient.yaml", json.dumps(patient))
    ran = project.command("explore", "patient.yaml", "--runs", "40", timeout=120)
    assert ran.code == 0, ran.text


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ({"status": 503}, 'unknown word "503"'),
        ({"status": "sloww"}, 'did you mean "slow"?'),
        ({"target": "asker"}, '"asker" is Asker, which is no language model, and has no provider'),
        ({"delay": "1s"}, '"delay" is how late the pieces of an answer are with "status: slow"'),
        ({"duration": "0s"}, "a fault of no duration does nothing"),
    ],
)
def test_what_is_wrong_in_a_fault_is_said(project: Project, what: dict[str, Any], found: str) -> None:
    step = fault(500)
    step["fault"] |= what
    said_of_it = mistakes(project, [step, SAY], cast(ECHO))
    assert any(found in message for message in said_of_it), said_of_it
