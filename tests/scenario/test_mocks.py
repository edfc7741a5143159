"""Mocks: rules, and that nothing of them is left unsaid."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from lmos_actors.scenario.doubles._rules import Request, has_text, is_from, misfits, nearest
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from lmos_actors.system.model import Condition, Rule, When
from tests.scenario.project import Project, story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

DESK = '''\
from __future__ import annotations

from typing import Any

from msgspec import Struct

from lmos_actors import Agent, Event, Progress, Property, Ref, action, event, prop


class Reply(Struct, frozen=True):
    text: str
    tokens: int = 0


class Model(Agent):
    """What a mock stands for."""

    temperature: Property[float] = prop(default=0.0)
    spent: Event[int] = event()

    @action
    async def message(self, progress: Progress[float], text: str, system: str = "") -> Reply:
        raise NotImplementedError

    @action
    def count(self, text: str) -> int:
        raise NotImplementedError

    @action
    async def tokens(self, text: str):
        raise NotImplementedError
        yield ""


class Desk(Agent):
    """Asks a model, by the names that it has."""

    llm: Ref[Any]

    @action(concurrency=8)
    async def ask(self, text: str) -> Any:
        return await self.llm.invoke(Model.message, text=text)

    @action
    async def collect(self, text: str) -> list[str]:
        async with self.llm.stream(Model.tokens, text=text) as items:
            return [item async for item in items]


class Typed(Agent):
    """Asks a model of a class."""

    llm: Ref[Model]

    @action(concurrency=8)
    async def ask(self, text: str) -> Reply:
        return await self.llm.invoke(Model.message, text)
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("mocks"))
    made.write("pyproject.toml", "")
    made.write("mock_desk.py", DESK)
    yield made
    sys.path[:] = path
    sys.modules.pop("mock_desk", None)


def run(project: Project, rules: list[Any], *steps: Any, seed: int = 1, **more: Any) -> RunResult:
    """Run steps with a desk, and a mock called `llm` with these rules."""
    desk = "Typed" if more.get("use") else "Desk"
    agents = {
        "desk": {"from": "agent", "use": f"mock_desk.py:{desk}", "args": {"llm": "$(agents.llm)"}},
        "llm": {"from": "mock", "rules": rules, **more},
    }
    if all(step.get("target") != "desk" for step in steps):
        del agents["desk"]  # nobody uses it
    file = project.root / project.write("story.yaml", story(*steps, agents=agents, seeds=[seed]))
    resolved = load_scenario(file)
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


def passes(project: Project, rules: list[Any], *steps: Any, **more: Any) -> RunResult:
    result = run(project, rules, *steps, **more)
    assert result.failures == ()
    assert result.ended == "passed"
    return result


def fails(project: Project, rules: list[Any], *steps: Any, **more: Any) -> list[tuple[str, str, str]]:
    result = run(project, rules, *steps, **more)
    assert result.ended == "failed"
    return [(failure.what, failure.expected, failure.saw) for failure in result.failures]


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"do": "invoke", "target": "desk", "action": "ask", "input": {"text": text}, **more}


def llm(action: str, data: Any = UNSET, **more: Any) -> dict[str, Any]:
    step = {"do": "invoke", "target": "llm", "action": action, **more}
    return step if data is UNSET else {**step, "input": data}


def gives(step: dict[str, Any], output: Any, name: str = "step") -> list[dict[str, Any]]:
    return [{**step, "id": name}, {"do": "expect", "that": "output", "of": name, "equals": output}]


MODEL = {"use": "mock_desk.py:Model"}


def answered(result: RunResult) -> list[tuple[float, Any]]:
    """Give when the mock has answered, and what."""
    records = [json.loads(line) for line in result.log]
    return [
        (record["t"], record.get("value", record.get("error")))
        for record in records
        if record.get("kind") == "answered" and record["agent"] == "llm"
    ]


# --- which rule


@pytest.mark.parametrize(
    ("when", "why"),
    [
        (When(any=True), []),
        (When(action="message"), []),
        (When(action="count"), ["the action is not count"]),
        (When(from_="desk"), []),
        (When(from_="user"), ["it is not from user"]),
        (When(contains="weather"), []),
        (When(contains="Weather"), ["'Weather' is nowhere in the input"]),
        (When(contains="text"), ["'text' is nowhere in the input"]),  # a key is no text
        (When(equals={"text": "the weather?", "n": 2.0}), []),
        (When(equals={"text": "the weather?"}), ['the input is not {"text": "the weather?"}']),
        (When(equals=None), ["the input is not null"]),
        (When(match={"$.n": 2}), []),
        (When(match={"$.n": Condition(ge=3)}), ["$.n at least 3 is not so"]),
        (When(match={"$.m": 1}), ["something at $.m is not so"]),
        (
            When(action="count", from_="user", contains="x"),
            ["the action is not count", "it is not from user", "'x' is nowhere in the input"],
        ),
    ],
)
def test_what_a_request_fits(when: When, why: list[str]) -> None:
    request = Request("message", {"text": "the weather?", "n": 2}, "office/desk")
    assert misfits(when, request, {"desk": "office/desk"}) == why


def test_a_sender_is_known_by_its_name_whatever_its_place() -> None:
    paths = {"desk": "office/desk", "peer": "peer"}
    assert is_from("office/desk", "desk", paths)
    assert is_from("office/desk/worker", "desk", paths)
    assert is_from("peer/12", "peer", paths)
    assert is_from("peer/12", "peer/12", paths)
    assert not is_from("peer/12", "peer/1", paths)
    assert not is_from("office/desk-2", "desk", paths)
    assert is_from("user", "user", paths)
    assert not is_from("user/x", "user", paths)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN, st.text(min_size=1, max_size=3))
def test_text_is_found_wherever_a_text_is(value: Any, text: str) -> None:
    def texts(data: Any) -> Iterator[str]:
        if isinstance(data, str):
            yield data
        for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
            yield from texts(part)

    assert has_text(value, text) == any(text in found for found in texts(value))


def test_the_nearest_rules_are_those_of_the_action_with_the_fewest_misfits() -> None:
    rules = [
        (Rule(when=When(action="count", contains="x"), output=1), 0),
        (Rule(when=When(action="message", contains="x", from_="desk"), output=1), 0),
        (Rule(when=When(action="message", contains="x"), output=1), 0),
        (Rule(when=When(any=True), output=1, times=2), 2),
    ]
    found = nearest(rules, Request("message", "y", "user"), {})
    assert [index for index, _ in found] == [2, 3, 1]
    assert found[1][1] == ["it has been used 2 of 2 times"]


# --- what it does


def test_a_mock_without_a_class_is_asked_by_names(project: Project) -> None:
    rules = [
        {"when": {"action": "message", "contains": "weather", "from": "desk"}, "output": {"text": "sunny"}},
        {"when": {"action": "message"}, "output": "no idea"},
        {"when": {"action": "ping", "equals": {}}, "output": "pong"},
        {"when": {"action": "echo-it", "equals": [1, 2]}, "output": None},
    ]
    passes(
        project,
        rules,
        *gives(ask("the weather?"), {"text": "sunny"}, "one"),
        *gives(llm("message", {"text": "the weather?"}), "no idea", "two"),
        *gives(llm("ping"), "pong", "three"),
        *gives(llm("echo-it", [1, 2]), None, "four"),
    )


def test_each_use_gives_data_of_its_own_and_times_are_counted(project: Project) -> None:
    rules = [
        {"when": {"action": "get"}, "output": {"a": [1]}, "times": 2},
        {"when": {"action": "get"}, "output": "spent"},
    ]
    passes(
        project,
        rules,
        *gives(llm("get"), {"a": [1]}, "one"),
        *gives(llm("get"), {"a": [1]}, "two"),
        *gives(llm("get"), "spent", "three"),
        *gives(llm("get"), "spent", "four"),
    )


def test_uses_are_counted_over_the_lives_of_a_mock(project: Project) -> None:
    rules = [
        {"when": {"action": "get"}, "crash": "KeyError", "times": 1},
        {"when": {"action": "get"}, "output": "second"},
    ]
    result = passes(
        project,
        rules,
        llm("get", error={"is": "AgentDied", "contains": "KeyError"}),
        {"do": "wait", "until": {"agent": "llm", "is": "running"}},
        *gives(llm("get"), "second"),
    )
    assert sum('"kind":"crashed"' in line for line in result.log) == 1


def test_a_reply_takes_its_time_and_is_put_together(project: Project) -> None:
    reply = [{"chunk": "It "}, {"wait": "20ms"}, {"chunk": "is "}, {"done": "sunny."}]
    rules = [{"when": {"action": "say"}, "reply": reply, "delay": "100ms"}]
    result = passes(project, rules, *gives(llm("say"), "It is sunny."))
    assert answered(result) == [(0.12, "It is sunny.")]


def test_progress_is_told_and_events_come_before_the_answer(project: Project) -> None:
    rules = [
        {
            "when": {"action": "message"},
            "reply": [{"progress": 0.5}, {"wait": "1s"}, {"done": {"text": "t"}}],
            "emit": {"spent": 7},
        }
    ]
    result = passes(
        project,
        rules,
        {"do": "subscribe", "target": "llm", "event": "spent"},
        llm("message", {"text": "x"}, id="ask", wait=False),
        {"do": "expect", "that": "status", "of": "ask", "sequence": ["in progress"], "within": "0ms"},
        {"do": "expect", "that": "event", "target": "user", "event": "spent", "equals": 7, "within": "0ms"},
        {"do": "expect", "that": "output", "of": "ask", "match": {"$.output.text": "t"}},
        **MODEL,
    )
    assert result.virtual == 1.0


def test_chunks_without_an_end_are_a_stream(project: Project) -> None:
    rules = [{"when": {"action": "tokens"}, "reply": [{"chunk": "a"}, {"wait": "1s"}, {"chunk": "b"}]}]
    collect = {"do": "invoke", "target": "desk", "action": "collect", "input": {"text": "x"}}
    assert passes(project, rules, *gives(collect, ["a", "b"])).virtual == 1.0


def test_delays_follow_from_the_seed_alone(project: Project) -> None:
    def times(seed: int, extra: int) -> list[float]:
        rules = [
            {"when": {"action": "get"}, "output": 1, "delay": {"dist": "uniform", "min": "0s", "max": "1s"}},
            *({"when": {"action": f"other{n}"}, "output": 1, "unused": "allowed"} for n in range(extra)),
        ]
        return [t for t, _ in answered(passes(project, rules, llm("get"), llm("get"), seed=seed))]

    assert times(1, 0) == times(1, 2)
    assert times(1, 0) != times(2, 0)
    assert len(dict.fromkeys(times(1, 0))) == 2


def test_a_failure_is_one_that_callers_can_expect(project: Project) -> None:
    rules = [{"when": {"action": "message"}, "fail": {"code": "PROVIDER_ERROR", "message": "no luck"}}]
    passes(project, rules, ask("x", error={"is": "ActionFailed", "contains": "PROVIDER_ERROR"}))


def test_a_mock_for_a_class_is_one(project: Project) -> None:
    rules = [{"when": {"action": "message", "match": {"$.system": ""}}, "output": {"text": "t", "tokens": 3}}]
    passes(
        project,
        rules,
        *gives(ask("x"), {"text": "t", "tokens": 3}),
        {"do": "read", "target": "llm", "property": "temperature", "save": {"t": "$.value"}},
        {"do": "expect", "that": "value", "of": "$(saved.t)", "equals": 0.5},
        state={"temperature": 0.5},
        **MODEL,
    )


def test_properties_of_a_mock_without_a_class_are_read_and_written(project: Project) -> None:
    passes(
        project,
        [{"when": {"action": "get"}, "output": 1, "unused": "allowed"}],
        {"do": "write", "target": "llm", "property": "place", "value": {"city": "Bonn"}},
        {"do": "read", "target": "llm", "property": "place", "save": {"p": "$.value.city"}},
        {"do": "expect", "that": "value", "of": "$(saved.p)", "equals": "Bonn"},
        state={"place": {"city": "Berlin"}},
    )


# --- that nothing passes by accident


def test_a_request_that_no_rule_fits_fails_the_run_even_if_its_caller_does_not_mind(project: Project) -> None:
    rules = [
        {"when": {"action": "message", "contains": "weather"}, "output": 1},
        {"when": {"action": "message"}, "output": 2, "times": 1},
    ]
    failures = fails(
        project,
        rules,
        ask("weather"),
        ask("x"),
        ask("news", error={"is": "ActionFailed", "contains": "no rule of mock llm fits"}),
    )
    ((what, expected, saw),) = failures
    assert what == "mock llm"
    assert expected == 'a rule for message {"text": "news"} from desk'
    assert "rule 1 (" in saw
    assert "story.yaml:15:5)" in saw
    assert "'weather' is nowhere in the input" in saw
    assert "it has been used 1 of 1 times" in saw


def test_requests_without_a_rule_are_shown_up_to_a_number(project: Project) -> None:
    rules = [{"when": {"action": "message", "contains": "x"}, "output": 1, "unused": "allowed"}]
    told = [ask(f"q{n}", error={"is": "ActionFailed"}) for n in range(5)]
    failures = fails(project, rules, *told)
    assert len(failures) == 4
    assert failures[-1][2] == "2 more that none fits"
    assert run(project, rules, *told, unmatched="allowed").ok


def test_an_unused_rule_fails_the_run_and_says_where_it_stands(project: Project) -> None:
    rules = [{"when": {"action": "message"}, "output": 1}, {"when": {"action": "never"}, "output": 2}]
    result = run(project, rules, ask("x"))
    (failure,) = result.failures
    assert (failure.what, failure.expected) == ("mock llm, rule 2", "to be used")
    assert failure.place.endswith("story.yaml:21:5")
    assert run(project, [rules[0], {**rules[1], "unused": "allowed"}], ask("x")).ok


def test_unused_rules_are_no_matter_where_the_story_broke_off(project: Project) -> None:
    rules = [{"when": {"action": "message"}, "output": 1}, {"when": {"action": "never"}, "output": 2}]
    failures = fails(project, rules, ask("x", error={"is": "MailboxFull"}))
    assert [what for what, _, _ in failures] == ["invoke desk.ask"]
