"""Checks of agents that think: each passes for one that works, and fails for one that is broken."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.scenario.format import load_scenario
from tests.scenario.project import Project, story
from tests.scenario.thinkers import (
    LOOK_UP,
    SHIPPED,
    agents,
    ask,
    calls,
    fails,
    mistakes,
    passes,
    scripted,
    write_desk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

WORLDS = ("memory", "wire", "websocket")
CAN = scripted(LOOK_UP, SHIPPED)
FAILED = {"when": {"match": {"$.errors.look_up": {"regex": "."}}}, "output": "It is on its way."}
"""What a model says that makes the answer up."""

MADE_UP = scripted(LOOK_UP, FAILED)
BROKEN: dict[str, Any] = {"fault": "no calls"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("models"))
    write_desk(made)
    yield made
    sys.path[:] = path
    sys.modules.pop("thinking_desk", None)


def tools(of: str = "ask", **more: Any) -> dict[str, Any]:
    return {"checks": [{"check": "tools", "of": of, **more}]}


def budget(of: str = "ask", **more: Any) -> dict[str, Any]:
    return {"checks": [{"check": "budget", "of": of, **more}]}


def answer(of: str = "ask", **more: Any) -> dict[str, Any]:
    return {"checks": [{"check": "answer", "of": of, **more}]}


# --- tools


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("of", ["ask", "desk", "model"])
def test_a_tool_that_was_called(project: Project, world: str, of: str) -> None:
    called = {"tool": "look_up", "match": {"$.number": {"ge": 17}}, "equals": 1}
    checks = tools(of, called=["look_up", called], in_order=["look_up"], never=["refund"], only=["look_up"])
    result = passes(project, [ask()], agents(CAN), world=world, **checks)
    assert result.judged[0].name == f"tools {of}"
    assert result.judged[0].saw == 'called: look_up {"number": 17}'


@pytest.mark.parametrize("world", WORLDS)
def test_an_agent_that_calls_no_tool_fails_though_it_says_the_right_words(
    project: Project, world: str
) -> None:
    checks = tools(called=["look_up"])
    text = fails(project, [ask()], agents(MADE_UP, **BROKEN), world=world, **checks)
    assert 'look_up: 0 times; called: look_up {"number": 17} (failed: not today)' in text


TWO = scripted(
    {"when": {"contains": "order"}, "reply": [calls("look_up", 18)]},
    {"when": {"after": "look_up"}, "reply": [calls("refund", 18)]},
    {"when": {"after": "refund"}, "output": "Paid back."},
)


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ({"in_order": ["look_up", "refund"]}, ""),
        ({"in_order": ["refund", "look_up"]}, "look_up was not called in that order"),
        ({"never": ["refund"]}, 'refund {"number": 18} was called'),
        ({"never": [{"tool": "refund", "match": {"$.number": 17}}]}, ""),
        ({"only": ["look_up"]}, 'refund {"number": 18} was called'),
        ({"only": ["look_up", "refund"]}, ""),
        ({"called": [{"tool": "refund", "match": {"$.number": 17}}]}, "refund with $.number 17: 0 times"),
        ({"called": [{"tool": "refund", "match": {"$.nmber": 18}}]}, "0 times"),
        ({"called": [{"tool": "refund", "le": 0}]}, "refund at most 0 times: 1 times"),
        ({"called": [{"tool": "refund", "ge": 2}]}, "refund at least 2 times: 1 times"),
        ({"called": [{"tool": "refund", "failed": True}]}, "refund failed: 0 times"),
        ({"never": ["refnd"]}, 'no model was offered a tool "refnd", did you mean "refund"?'),
        ({"called": [{"tool": "lookup", "le": 1}]}, 'no model was offered a tool "lookup"'),
    ],
)
def test_what_of_the_calls_is_not_as_it_should_be(project: Project, check: dict[str, Any], why: str) -> None:
    if not why:
        passes(project, [ask()], agents(TWO), **tools(**check))
    else:
        assert why in fails(project, [ask()], agents(TWO), **tools(**check))


def test_ids_of_calls_may_come_again(project: Project) -> None:
    def asked(number: int) -> dict[str, Any]:
        return {"call": {"tool": "look_up", "arguments": {"number": number}, "id": "1"}}

    twice = scripted(
        {"when": {"contains": "order"}, "reply": [asked(404)]},
        {"when": {"match": {"$.errors.look_up": {"contains": "NO_ORDER"}}}, "reply": [asked(17)]},
        SHIPPED,
    )
    both = [
        {"tool": "look_up", "match": {"$.number": 404}, "failed": True, "equals": 1},
        {"tool": "look_up", "match": {"$.number": 17}, "equals": 1},
    ]
    passes(project, [ask()], agents(twice), **tools(called=both))


def test_what_was_sent_counts_as_called_whatever_the_model_hears(project: Project) -> None:
    project.write(
        "hiding_desk.py",
        "from typing import Any\n"
        "from thinking_desk import Desk, Orders\n"
        "from lmos_actors.llm import ToolMessage\n"
        "class Hiding(Desk):\n"
        "    async def _call(self, one: Any) -> ToolMessage:\n"
        "        await self.orders.invoke(Orders.refund, **one.arguments)\n"
        "        return ToolMessage(one.id, one.name, error='not allowed')\n",
    )
    asks = {"when": {"contains": "order"}, "reply": [calls("refund")]}
    sorry = {"when": {"match": {"$.errors.refund": {"regex": "."}}}, "output": "Sorry."}
    cast = agents(scripted(asks, sorry))
    passes(project, [ask()], agents(scripted(asks, sorry), **BROKEN), **tools(never=["refund"]))
    cast["desk"]["use"] = "hiding_desk.py:Hiding"
    text = fails(project, [ask()], cast, **tools(never=["refund"]))
    assert "desk has sent what the tool refund does" in text


def test_each_run_of_a_step_is_judged(project: Project) -> None:
    hello = {"when": {"contains": "Hello"}, "output": "Hi."}
    steps = [{"do": "repeat", "times": 3, "steps": [ask()]}]
    passes(project, steps, agents(CAN), **tools(called=[{"tool": "look_up", "equals": 1}]))
    once = scripted({**LOOK_UP, "times": 1}, SHIPPED, {"when": {"contains": "order"}, "output": "Hm."}, hello)
    once["rules"][-1]["unused"] = "allowed"
    text = fails(project, steps, agents(once), **tools(called=["look_up"]))
    assert "run 2 of ask: look_up: 0 times; called: no tool" in text


@pytest.mark.parametrize("check", [tools(never=["refund"]), budget(calls={"le": 5})])
def test_what_asks_no_model_is_not_judged(project: Project, check: dict[str, Any]) -> None:
    cast = agents(scripted({"when": {"any": True}, "output": "x"}))
    step = {"do": "invoke", "id": "ask", "target": "orders", "action": "refund", "input": {"number": 1}}
    text = fails(project, [step, ask(id="other")], cast, **check)
    assert "ask has asked no model" in text


# --- budget


@pytest.mark.parametrize("world", WORLDS)
def test_a_budget(project: Project, world: str) -> None:
    amounts: dict[str, Any] = {"calls": {"equals": 2}, "tools": {"le": 1}, "tokens": {"le": 1000, "ge": 100}}
    result = passes(project, [ask()], agents(CAN), world=world, **budget(**amounts))
    assert "calls 2, tools 1" in result.judged[0].saw
    passes(
        project, [ask(), ask(id="again")], agents(CAN), world=world, **budget("model", calls={"equals": 4})
    )


@pytest.mark.parametrize(
    ("amounts", "why"),
    [
        ({"calls": {"le": 1}}, "calls 2"),
        ({"tools": {"equals": 0}}, "tools 1"),
        ({"tokens": {"le": 10}}, "tokens at most 10: tokens "),
        ({"output_tokens": {"le": 3}}, "output_tokens at most 3: output_tokens "),
        ({"input_tokens": {"le": 3}}, "input_tokens at most 3: input_tokens "),
    ],
)
def test_a_budget_that_is_exceeded(project: Project, amounts: dict[str, Any], why: str) -> None:
    assert why in fails(project, [ask()], agents(CAN), **budget(**amounts))


def test_a_model_that_does_not_count_fails_a_budget_of_tokens(project: Project) -> None:
    free = {
        "when": {"any": True},
        "reply": [{"chunk": "x"}, {"done": {"input_tokens": 0, "output_tokens": 0}}],
    }
    passes(project, [ask()], agents(scripted(free)), **budget(calls={"le": 1}))
    text = fails(project, [ask()], agents(scripted(free)), **budget(tokens={"le": 1000}))
    assert "answers of model that do not say how many tokens they took: 1" in text


# --- answers


PLAN = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("output", "check", "why"),
    [
        (
            "It is ON its  way.",
            {"words": ["on its way", "it"], "any_of": ["way", "x"], "without": ["order"]},
            "",
        ),
        ("It is on its way.", {"words": ["on", "wa"]}, '"wa" is not in'),
        ("It is on its way.", {"any_of": ["lost", "late"]}, "none of them is in"),
        ("It is on its way.", {"without": ["WAY"]}, '"WAY" is in'),
        ({"n": 1}, {"schema": PLAN, "match": {"$.n": {"le": 1}}}, ""),
        ({"n": 0}, {"schema": PLAN}, "$.n: expected at least 1, saw 0"),
        ({"m": 0}, {"schema": PLAN}, "$: n is missing"),
        ("n", {"schema": PLAN}, "it is no JSON"),
        ({"n": 1}, {"match": {"$.n": 2}}, "$.n to equal 2 is not so"),
    ],
)
@pytest.mark.parametrize("world", ["memory", "wire"])
def test_an_answer(project: Project, output: Any, check: dict[str, Any], why: str, world: str) -> None:
    cast = agents(scripted({"when": {"any": True}, "output": output}))
    if not why:
        passes(project, [ask()], cast, world=world, **answer(**check))
    else:
        assert why in fails(project, [ask()], cast, world=world, **answer(**check))


def test_a_step_without_an_answer_is_not_judged(project: Project) -> None:
    rule = {"when": {"any": True}, "fail": {"code": "MODEL_BUSY"}}
    step = ask(error={"is": "ActionFailed"})
    assert "ask has had no answer" in fails(project, [step], agents(scripted(rule)), **answer(without=["x"]))


# --- secrets


SAFE = """\
from msgspec import Struct

from lmos_actors import Agent, Property, Ref, Secret, action, prop
from lmos_actors.llm import Model, TextDelta, UserMessage

class Account(Struct):
    name: str
    pin: Secret[str] = "pin-4711"


class Safe(Agent):
    model: Ref[Model]
    code: Secret[str]
    word: Property[Secret[str]] = prop(default="open-up")
    account: Account = Account("bob")
    key: str = ""
    leak: str = ""

    @action
    async def ask(self, text: str, password: Secret[str] = "") -> str:
        said = [text]
        if self.leak == "to the model":
            said.append(password)
        answer = ""
        async with self.model.stream(Model.generate, [UserMessage(" ".join(said))]) as items:
            async for item in items:
                if isinstance(item, TextDelta):
                    answer += item.text
        leaks = {"to the user": self.code, "a property": self.word, "a part": self.account.pin}
        return answer + leaks.get(self.leak, "")
"""


def safe(**args: Any) -> dict[str, Any]:
    args = {"model": "$(agents.model)", "code": "sesame-7", "key": "env:SAFE_KEY", **args}
    return {
        "safe": {"from": "agent", "use": "safe_desk.py:Safe", "args": args},
        "model": scripted({"when": {"any": True}, "output": args.pop("says", "Hello.")}),
    }


SECRETS = {"checks": [{"check": "secrets"}]}
TELL = {
    "do": "invoke",
    "target": "safe",
    "action": "ask",
    "input": {"text": "Hi", "password": 'swordfish "8"'},
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_secret_is_in_an_answer(project: Project, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("safe_desk.py", SAFE)
    monkeypatch.setenv("SAFE_KEY", "sk-123456")
    result = passes(project, [TELL], safe(), world=world, **SECRETS)
    assert result.judged[0].saw == "none of 5 in 1 answers and 1 requests to models"
    text = fails(project, [TELL], safe(leak="to the user"), world=world, **SECRETS)
    assert "code of safe is in the answer of invoke safe.ask" in text
    text = fails(project, [TELL], safe(leak="a property"), world=world, **SECRETS)
    assert "word of safe is in the answer of invoke safe.ask" in text
    text = fails(project, [TELL], safe(leak="a part"), world=world, **SECRETS)
    assert "account of safe is in the answer of invoke safe.ask" in text
    text = fails(project, [TELL], safe(leak="to the model"), world=world, **SECRETS)
    assert "an input of safe is in what safe asks model" in text
    text = fails(project, [TELL], safe(says="It is sk-123456."), world=world, **SECRETS)
    assert "env:SAFE_KEY is in the answer of" in text
    assert "sk-123456" not in text


def test_where_nothing_is_secret_nothing_is_judged(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing is secret" in fails(project, [ask()], agents(CAN), **SECRETS)
    values = {"checks": [{"check": "secrets", "values": ["env:DESK_KEY"]}]}
    monkeypatch.delenv("DESK_KEY", raising=False)
    assert "nothing is secret" in fails(project, [ask()], agents(CAN), **values)
    monkeypatch.setenv("DESK_KEY", "on its way")
    assert "env:DESK_KEY is in the answer of ask" in fails(project, [ask()], agents(CAN), **values)


# --- files that are wrong


@pytest.mark.parametrize(
    ("checks", "found"),
    [
        (tools(), "nothing is checked: one of called, in_order, never, only"),
        (tools("aks", never=["x"]), 'no step and no agent "aks", did you mean "ask"?'),
        (tools(caled=["x"]), 'unknown key "caled", did you mean "called"?'),
        (tools(in_order=[{"tool": "x", "ge": 1}]), '"ge" counts calls, which "called" does'),
        (tools(called=[{"tool": "x", "ge": 3, "le": 2}]), "nothing can be both ge: 3 and le: 2"),
        (tools(called=["x"], never=["x"]), '"x" is never to be called'),
        (budget(), "nothing is checked: one of tokens"),
        (budget(tokens={}), "nothing is checked: one of equals, ge, le"),
        (budget(token={"le": 1}), 'unknown key "token", did you mean "tokens"?'),
        (answer(), "nothing is checked: one of schema, words"),
        (answer("desk", words=["x"]), 'no step "desk"'),
        (answer(schema={"typ": "object"}), 'no keyword "typ" of schemas, did you mean "type"?'),
        (answer(schema={"type": "strin"}), 'did you mean "string"?'),
        (answer(schema={"type": [{"object": 1}]}), "no type {"),
        (answer(schema={"properties": {"a": {"minimum": "x"}}}), "a number is expected here"),
        (answer(words=["x"], without=["X"]), '"x" is not to be there'),
        ({"checks": [{"check": "secrets", "values": ["sk-1"]}]}, "a reference to a secret"),
        ({"checks": [{"check": "tols", "of": "ask"}]}, 'did you mean "tools"?'),
    ],
)
def test_what_is_wrong_in_a_check_is_said(project: Project, checks: dict[str, Any], found: str) -> None:
    said_of_it = mistakes(project, [ask()], agents(CAN), **checks)
    assert any(found in message for message in said_of_it), said_of_it


def test_agents_that_are_tools_of_another_are_used(project: Project) -> None:
    project.write(
        "tooled_desk.py",
        "from lmos_actors.thinking import ThinkingAgent\n"
        "from thinking_desk import Desk, Orders\n"
        "class Tooled(ThinkingAgent):\n"
        "    tools = ((Orders, Orders.look_up),)\n",
    )
    cast = agents(CAN)
    cast["desk"] = {"from": "agent", "use": "tooled_desk.py:Tooled", "args": {"model": "$(agents.model)"}}
    step = {"do": "stream", "id": "ask", "target": "desk", "action": "chat"}
    steps = [{**step, "input": {"content": "Where is my order?"}}]
    result = passes(project, steps, cast, **tools(called=["look_up"]))
    assert result.judged[0].saw == 'called: look_up {"number": 17}'
    file = project.root / "story.yaml"
    assert [note.message for note in load_scenario(file).notes] == []
    del cast["desk"]["args"]  # it finds the model
    passes(project, steps, cast, **tools(called=["look_up"]))
    assert [note.message for note in load_scenario(file).notes] == []
    cast["desk"]["args"] = {"model": "$(agents.model)"}
    cast["spare"] = cast["model"]
    project.write("story.yaml", story(*steps, agents=cast))
    assert [note.message for note in load_scenario(file).notes] == [
        'nothing in the file names the agent "spare"; perhaps Tooled finds it'
    ]


def test_a_step_and_an_agent_of_one_name_are_told_apart(project: Project) -> None:
    said_of_it = mistakes(project, [ask(id="desk")], agents(CAN), **tools("desk", never=["refund"]))
    assert said_of_it == ['"desk" is a step and an agent: call the step something else']
