"""Mocks that are language models: rules for what is said, and for results of tools."""

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
    said,
    scripted,
    write_desk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("models"))
    write_desk(made)
    yield made
    sys.path[:] = path
    sys.modules.pop("thinking_desk", None)


def items(result: RunResult) -> list[Any]:
    """Return what the model has said, item by item."""
    records = [json.loads(line) for line in result.log]
    return [one["value"] for one in records if one.get("kind") == "item" and one["agent"] == "model"]


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_rule_is_for_what_is_said_or_for_what_tools_have_answered(project: Project, world: str) -> None:
    steps = [ask(), said("It is on its way.")]
    result = passes(project, steps, agents(scripted(LOOK_UP, SHIPPED)), world=world)
    asked, end, text, last = items(result)
    assert asked["name"] == "look_up"
    assert asked["arguments"] == {"number": 17}
    assert (end["reason"], end["model"], last.get("reason")) == ("tools", "model", None)
    assert text == {"type": "text", "text": "It is on its way."}
    assert end["usage"]["input_tokens"] > 50
    assert last["usage"]["output_tokens"] == 5  # nineteen characters with their quotes, four each


def test_over_a_socket_too(project: Project) -> None:
    steps = [ask(), said("It is on its way.")]
    passes(project, steps, agents(scripted(LOOK_UP, SHIPPED)), world="websocket")


def test_an_answer_in_pieces_with_thoughts_waits_and_an_end(project: Project) -> None:
    reply = [
        {"reasoning": "Hm."},
        {"chunk": "It "},
        {"wait": "2s"},
        {"chunk": {"a": 1}},
        {"done": {"reason": "length", "input_tokens": 900, "output_tokens": 7}},
    ]
    steps = [ask(), said('It {"a": 1}')]
    result = passes(project, steps, agents(scripted({"when": {"any": True}, "reply": reply})))
    assert result.virtual == 2.0
    assert items(result) == [
        {"type": "reasoning", "text": "Hm."},
        {"type": "text", "text": "It "},
        {"type": "text", "text": '{"a": 1}'},
        {
            "type": "end",
            "reason": "length",
            "usage": {"type": "usage", "input_tokens": 900, "output_tokens": 7},
            "model": "model",
        },
    ]


def test_what_is_no_text_is_json(project: Project) -> None:
    steps = [ask(), said('{"number": 17}')]
    passes(project, steps, agents(scripted({"when": {"any": True}, "output": {"number": 17}})))


def test_two_tools_of_one_answer_are_waited_for(project: Project) -> None:
    both = {"when": {"contains": "order"}, "reply": [calls("look_up"), calls("refund")]}
    after = {"when": {"after": ["refund", "look_up"]}, "output": "Both."}
    passes(project, [ask(), said("Both.")], agents(scripted(both, after)))
    one = {"when": {"after": "look_up"}, "reply": [calls("refund")]}
    then = {"when": {"after": "refund"}, "output": "One by one."}
    passes(project, [ask(), said("One by one.")], agents(scripted(LOOK_UP, one, then)))


def test_results_since_what_was_said_are_seen_by_name(project: Project) -> None:
    first = {"when": {"contains": "order"}, "reply": [calls("look_up", 18)]}
    second = {"when": {"after": "look_up"}, "reply": [calls("refund")]}
    seen: dict[str, Any] = {"$.tools.look_up.state": "lost", "$.tools.refund": "refunded"}
    seen["$.offered"] = {"contains": "refund"}
    third = {"when": {"match": seen, "from": "desk", "contains": "lost"}, "output": "Paid back."}
    passes(project, [ask(), said("Paid back.")], agents(scripted(first, second, third)))


def test_a_tool_that_fails_is_for_a_rule_of_its_own(project: Project) -> None:
    asks = {"when": {"contains": "order"}, "reply": [calls("look_up", 404)]}
    sorry = {"when": {"match": {"$.errors.look_up": {"contains": "no such order"}}}, "output": "Sorry."}
    passes(project, [ask(), said("Sorry.")], agents(scripted(asks, sorry)))
    assert "rule 2" in (text := fails(project, [ask()], agents(scripted(asks, SHIPPED))))
    assert "look_up has failed: NO_ORDER: no such order" in text
    after = {"when": {"after": "look_up"}, "output": "It is on its way."}
    text = fails(project, [ask()], agents(scripted(LOOK_UP, after), fault="no calls"))
    assert "a rule for generate" in text
    assert "look_up has failed: not today" in text


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([LOOK_UP], "it is for what is said, and tools have answered last: look_up"),
        ([{"when": {"contains": "refund"}, "output": "x"}], "'refund' is nowhere in the input"),
        (
            [
                LOOK_UP,
                {**SHIPPED, "when": {"after": "refund"}},
                {**LOOK_UP, "reply": [calls("refund")], "when": {"contains": "nothing"}, "unused": "allowed"},
            ],
            "refund has not answered last",
        ),
    ],
)
def test_a_request_that_no_rule_fits_is_shown_with_what_keeps_it(
    project: Project, rules: list[Any], why: str
) -> None:
    text = fails(project, [ask()], agents(scripted(*rules)))
    assert why in text
    assert 'a rule for generate {"text": "Where is my order?"' in text


def test_the_rules_that_are_shown_are_those_of_which_most_holds(project: Project) -> None:
    others = [{"when": {"contains": word}, "reply": [calls("refund")]} for word in ("a parcel", "an order")]
    after = [
        {"when": {"after": "refund", "contains": "order"}, "output": "Refunded."},
        {"when": {"after": ["refund", "look_up"]}, "output": "Both."},
        {"when": {"after": "look_up", "match": {"$.tools.look_up.state": "lost"}}, "output": "It is lost."},
        {
            "when": {"after": "look_up", "contains": "order", "match": {"$.text": "Where?"}},
            "output": "Where?",
        },
    ]
    text = fails(project, [ask()], agents(scripted(*others, LOOK_UP, *after)))
    shown = [int(rule.partition(" ")[0]) for rule in text.partition("none fits")[2].split("; rule ")[1:]]
    assert shown == [7, 6, 5]
    assert '$.tools.look_up.state to equal "lost" is not so' in text


def test_a_rule_that_cannot_be_read_is_the_only_mistake(project: Project) -> None:
    project.write(
        "live_tree.py",
        "from functools import partial\n"
        "from lmos_actors import ChildSpec, SupervisorSpec\n"
        "from lmos_actors.llm import OpenAIModel\n"
        'tree = SupervisorSpec("t", [ChildSpec("model", partial(OpenAIModel, model="m"))])\n',
    )
    wait = {"do": "wait", "for": "1s"}
    tree = {"tree": {"use": "live_tree.py:tree"}}
    for broken in (
        scripted({"when": {"contain": "order"}, "output": "x"}),
        {"from": "mock", "speaks": "model", "rulez": []},
    ):
        (mistake,) = mistakes(project, [wait], {"model": broken}, **tree)
        assert mistake.startswith("unknown key")
    (live,) = mistakes(project, [wait], {}, **tree)
    assert "a live model" in live


def test_instructions_and_offers_are_no_words_that_were_said(project: Project) -> None:
    text = fails(project, [ask("Hello")], agents(scripted({"when": {"contains": "kind"}, "output": "x"})))
    assert "'kind' is nowhere in the input" in text
    rule = {"when": {"match": {"$.instructions": {"contains": "kind"}}}, "output": "x"}
    passes(project, [ask("Hello"), said("x")], agents(scripted(rule)))


@pytest.mark.parametrize(
    ("broken", "rules", "why"),
    [
        ({"fault": "no calls"}, [LOOK_UP, SHIPPED], "look_up has failed: not today"),
        (
            {"fault": "renamed"},
            [LOOK_UP, SHIPPED],
            'a tool "look_up" that is offered: offered are find, refund',
        ),
        ({}, [{**LOOK_UP, "reply": [calls("look_up", "17")]}], "$.number: expected a whole number"),
        ({}, [{**LOOK_UP, "reply": [{"call": {"tool": "look_up"}}]}], '"number" is missing'),
        ({}, [{**LOOK_UP, "reply": [{"call": {"tool": "look_up", "arguments": "{"}}]}], "no JSON object"),
        ({}, [{**LOOK_UP, "reply": [calls("look_upp")]}], 'did you mean "look_up"?'),
    ],
)
def test_a_broken_agent_fails_the_run(
    project: Project, broken: dict[str, str], rules: list[Any], why: str
) -> None:
    assert why in fails(project, [ask(within="5s")], agents(scripted(*rules), **broken))


def test_a_model_may_be_wrong_where_its_rule_says_so(project: Project) -> None:
    wrong = [
        {"call": {"tool": "look_up", "arguments": "{", "unfit": "allowed"}},
        {"call": {"tool": "nothing", "unfit": "allowed", "id": "n"}},
    ]
    errors = {"$.errors.look_up": "that is no JSON", "$.errors.nothing": "no such tool"}
    rules = [{"when": {"contains": "order"}, "reply": wrong}, {"when": {"match": errors}, "output": "Oh."}]
    result = passes(project, [ask(), said("Oh.")], agents(scripted(*rules)))
    asked = [one for one in items(result) if one["type"] == "tool_request"]
    assert [(one["id"], one.get("unreadable")) for one in asked] == [("call-1", "{"), ("n", None)]


def test_failures_are_those_of_models(project: Project) -> None:
    rule = {"when": {"any": True}, "fail": {"code": "MODEL_BUSY", "message": "later"}}
    steps = [ask(error={"is": "ActionFailed", "contains": "MODEL_BUSY"})]
    passes(project, steps, agents(scripted(rule)))
    crash = {"when": {"any": True}, "crash": "OSError"}
    passes(project, [ask(error={"is": "AgentDied"})], agents(scripted(crash)))


def test_it_stands_for_a_model_of_a_tree(project: Project) -> None:
    project.write(
        "thinking_tree.py",
        "from functools import partial\n"
        "from lmos_actors import ChildSpec, SupervisorSpec, sibling\n"
        "from lmos_actors.llm import Model\n"
        "from thinking_desk import Desk, Orders\n"
        "class Real(Model):\n"
        "    key: str\n"
        "tree = SupervisorSpec('root', children=(\n"
        "    ChildSpec('orders', Orders), ChildSpec('model', partial(Real, key='k')),\n"
        "    ChildSpec('desk', partial(Desk, model=sibling('model'), orders=sibling('orders'))),\n"
        "))\n",
    )
    cast = {"model": scripted(LOOK_UP, SHIPPED)}
    steps = [ask(), said("It is on its way.")]
    passes(project, steps, cast, tree={"use": "thinking_tree.py:tree"})
    cast = {"orders": scripted({"when": {"any": True}, "output": "x"})}
    (found, *_) = mistakes(project, steps, cast, tree={"use": "thinking_tree.py:tree"})
    assert found == 'what takes the place of "orders" is a Orders, a language model is none'


ANY = {"when": {"any": True}}


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (
            scripted({**ANY, "output": "x"}, use="thinking_desk.py:Orders"),
            "a mock that speaks model stands for any",
        ),
        (
            scripted({"when": {"action": "generat"}, "output": "x"}),
            'no action "generat", did you mean "generate"?',
        ),
        (scripted({**ANY, "fail": {"message": "x"}}), '"FAILED" is no failure of a language model'),
        (scripted({**ANY, "fail": {"code": "MODEL_BUSSY"}}), 'did you mean "MODEL_BUSY"?'),
        (scripted({**ANY, "reply": [{"progress": 1}]}), "a language model has no progress"),
        (
            scripted({**ANY, "reply": [{"done": {"raeson": "stop"}}]}),
            'unknown key "raeson", did you mean "reason"?',
        ),
        (scripted({**ANY, "reply": [{"done": {"reason": "stopp"}}]}), 'did you mean "stop"?'),
        (scripted({**ANY, "reply": [{"call": {"tol": "x"}}]}), 'did you mean "tool"?'),
        (
            scripted(LOOK_UP, {"when": {"after": "lookup"}, "output": "x"}),
            'no rule of the mock calls "lookup"',
        ),
        (
            scripted(LOOK_UP, {"when": {"match": {"$.tools.lookup": 1}}, "output": "x"}),
            'did you mean "look_up"?',
        ),
        (scripted({"when": {"match": {"$.txt": "x"}}, "output": "x"}), 'did you mean "text"?'),
        (scripted({**ANY, "output": "x"}, LOOK_UP), "no request comes to this rule: number 1"),
        (
            {"from": "mock", "rules": [{"when": {"action": "generate"}, "reply": [calls("x")]}]},
            '"call" is for a mock with "speaks: model"',
        ),
        (
            {"from": "mock", "rules": [{"when": {"action": "generate", "after": "x"}, "output": "x"}]},
            '"after" is for a mock with "speaks: model"',
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_said(project: Project, entry: Any, found: str) -> None:
    said_of_it = mistakes(project, [ask()], agents(entry))
    assert any(found in message for message in said_of_it), said_of_it


def test_a_mock_that_is_a_model_is_no_other_agent(project: Project) -> None:
    cast = agents(scripted(LOOK_UP, SHIPPED))
    cast["desk"]["args"]["orders"] = "$(agents.model)"
    del cast["orders"]
    assert mistakes(project, [ask()], cast) == ['a ref to Orders is expected here, "model" is Model']
