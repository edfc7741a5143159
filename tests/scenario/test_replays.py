"""Replays: what a log says of an agent, and an agent that says it again."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.files import FileError
from lmos_actors.scenario.doubles._recordings import Exchange, fits, most_similar, read_recording
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project, story
from tests.scenario.steps import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

MODEL = '''\
from __future__ import annotations

from typing import Any

import trio
from msgspec import Struct

from lmos_actors import ActionFailed, Agent, Event, Progress, Property, Ref, Secret
from lmos_actors import action, event, every, prop


class Reply(Struct, frozen=True):
    text: str
    tokens: int = 0


class Model(Agent):
    """The real one."""

    temperature: Property[float] = prop(default=0.0)
    name: Property[str] = prop(default="m", read_only=True)
    spent: Event[int] = event()
    asked: int = 0

    @action(concurrency=4)
    async def message(self, progress: Progress[float], text: str, system: str = "") -> Reply:
        self.asked += 1
        progress.report(0.5)
        await trio.sleep(0.3)
        self.spent.emit(self.asked)
        await trio.sleep(0.3)
        return Reply(f"{text}? ({self.asked})", 3)

    @action
    def count(self, text: str) -> int:
        if not text:
            raise ActionFailed({"why": "empty"})
        return len(text)

    @action
    def crash(self) -> None:
        raise KeyError("lost")

    @action
    async def tokens(self, text: str):
        for word in text.split():
            await trio.sleep(0.1)
            yield word

    @action
    async def hang(self) -> None:
        await trio.sleep_forever()

    @action
    def login(self, password: Secret[str]) -> str:
        return "in"


class Clock(Agent):
    """Tells the time by itself."""

    ticked: Event[int] = event()
    ticks: Property[int] = prop(default=0)

    @every(1.0)
    def tick(self) -> None:
        self.ticks += 1
        self.ticked.emit(self.ticks)

    @action
    def ping(self) -> str:
        return "pong"


class Moody(Agent):
    """Begins each of its lives with another mood."""

    mood: Property[int] = prop(default=0)

    def started(self) -> None:
        self.mood = self.random.randint(1, 1_000_000)

    @action
    def crash(self) -> None:
        raise KeyError("lost")


class Desk(Agent):
    """Asks a model."""

    llm: Ref[Model]

    @action(concurrency=8)
    async def ask(self, text: str) -> Reply:
        return await self.llm.invoke(Model.message, text)

    @action
    async def collect(self, text: str) -> list[str]:
        async with self.llm.stream(Model.tokens, text) as items:
            return [item async for item in items]
'''

REAL: dict[str, Any] = {"from": "agent", "use": "replay_model.py:Model"}
REPLAY: dict[str, Any] = {"from": "replay", "log": "log.jsonl", "use": "replay_model.py:Model"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("replays"))
    made.write("pyproject.toml", "")
    made.write("replay_model.py", MODEL)
    yield made
    sys.path[:] = path
    sys.modules.pop("replay_model", None)


def run(project: Project, llm: dict[str, Any], *steps: Any, **more: Any) -> RunResult:
    agents: dict[str, Any] = {"llm": llm}
    if any(step.get("target") == "desk" for step in steps):
        agents["desk"] = {"from": "agent", "use": "replay_model.py:Desk", "args": {"llm": "$(agents.llm)"}}
    file = project.root / project.write("story.yaml", story(*steps, agents=agents, **more))
    resolved = load_scenario(file)
    return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


def record(
    project: Project, *steps: Any, use: str = "Model", name: str = "log.jsonl", **more: Any
) -> RunResult:
    """Run the real agent, and write the log."""
    result = run(project, {**REAL, "use": f"replay_model.py:{use}"}, *steps, **more)
    assert result.failures == ()
    project.write(name, "".join(line + "\n" for line in result.log))
    return result


def passes(project: Project, *steps: Any, llm: dict[str, Any] = REPLAY) -> RunResult:
    result = run(project, llm, *steps)
    assert result.failures == ()
    assert result.ok
    return result


def fails(project: Project, *steps: Any, llm: dict[str, Any] = REPLAY) -> list[tuple[str, str, str]]:
    result = run(project, llm, *steps)
    assert result.ended == "failed"
    return [(failure.what, failure.expected, failure.saw) for failure in result.failures]


def invoke(action: str, data: Any = None, target: str = "llm", **more: Any) -> dict[str, Any]:
    step = {"do": "invoke", "target": target, "action": action, **more}
    return step if data is None else {**step, "input": data}


WHOLE: list[dict[str, Any]] = [
    {"do": "observe", "target": "llm", "property": "temperature", "id": "t"},
    {"do": "subscribe", "target": "llm", "event": "spent"},
    invoke("ask", {"text": "a"}, "desk", save={"a": "$.output"}),
    {"do": "expect", "that": "value", "of": "$(saved.a)", "equals": {"text": "a? (1)", "tokens": 3}},
    invoke("ask", {"text": "a"}, "desk", save={"b": "$.output.text"}),
    {"do": "expect", "that": "value", "of": "$(saved.b)", "equals": "a? (2)"},
    {"do": "write", "target": "llm", "property": "temperature", "value": 0.5},
    {"do": "read", "target": "llm", "property": "temperature", "save": {"t": "$.value"}},
    {"do": "expect", "that": "value", "of": "$(saved.t)", "equals": 0.5},
    {"do": "expect", "that": "reading", "of": "t", "sequence": [0.0, 0.5]},
    {"do": "expect", "that": "event", "target": "user", "event": "spent", "sequence": [1, 2]},
    {"do": "write", "target": "llm", "property": "name", "value": "x", "error": {"is": "NotAllowed"}},
    invoke("count", {"text": "four"}, save={"n": "$.output"}),
    {"do": "expect", "that": "value", "of": "$(saved.n)", "equals": 4},
    invoke("count", {"text": ""}, error={"is": "ActionFailed", "contains": "empty"}),
    invoke("collect", {"text": "b c d"}, "desk", save={"words": "$.output"}),
    {"do": "expect", "that": "value", "of": "$(saved.words)", "equals": ["b", "c", "d"]},
    {"do": "tell", "target": "llm", "action": "count", "input": {"text": "told"}},
    invoke("crash", error={"is": "AgentDied", "contains": "lost"}),
    {"do": "wait", "until": {"agent": "llm", "is": "running"}},
    invoke("login", {"password": "geheim"}, save={"l": "$.output"}),
    {"do": "expect", "that": "value", "of": "$(saved.l)", "equals": "in"},
    invoke("message", {"text": "late"}, id="late", wait=False),
    {"do": "expect", "that": "status", "of": "late", "sequence": ["in progress"], "within": "0ms"},
    {"do": "expect", "that": "output", "of": "late", "match": {"$.output.text": "late? (1)"}},
    invoke("hang", id="hang", wait=False, error={"is": "ActionCancelled"}),
    {"do": "cancel", "of": "hang"},
]


def test_a_replay_is_the_agent_again(project: Project) -> None:
    """Every verb, every sort of answer, over a crash: the same records in the same order."""
    real = record(project, *WHOLE)
    again = passes(project, *WHOLE)
    assert records(again) == records(real)
    assert "geheim" not in "".join(again.log)


def test_a_replay_without_a_class_is_asked_by_names(project: Project) -> None:
    """The same at the same instants; that an action is one step is not in the log."""
    asked = ("collect", "ask", "spent", "$(saved.a)", "$(saved.b)", "$(saved.words)")
    steps = [step for step in WHOLE if not any(word in str(step) for word in asked)]
    real = record(project, *steps)
    again = passes(project, *steps, llm={"from": "replay", "log": "log.jsonl"})
    left_out = ("n", "id", "trace", "input", "report")  # defaults of parameters are the class's
    told = [
        sorted(str({name: r[name] for name in sorted(r) if name not in left_out}) for r in records(result))
        for result in (again, real)
    ]
    assert told[0] == told[1]


def test_what_an_agent_did_by_itself_happens_at_its_instants(project: Project) -> None:
    steps = [
        {"do": "subscribe", "target": "llm", "event": "ticked"},
        {"do": "observe", "target": "llm", "property": "ticks", "id": "ticks"},
        invoke("ping"),
        {"do": "wait", "for": "2500ms"},
        {"do": "expect", "that": "event", "target": "user", "event": "ticked", "sequence": [1, 2]},
        {"do": "expect", "that": "reading", "of": "ticks", "sequence": [0, 1, 2]},
    ]
    real = record(project, *steps, use="Clock")
    again = passes(project, *steps, llm={**REPLAY, "use": "replay_model.py:Clock"})
    assert records(again) == records(real)


def test_each_life_begins_with_the_values_that_it_had(project: Project) -> None:
    crash = [
        invoke("crash", error={"is": "AgentDied"}),
        {"do": "wait", "until": {"agent": "llm", "is": "running"}},
    ]
    steps = [{"do": "observe", "target": "llm", "property": "mood", "id": "m"}, *crash, *crash]
    steps.append({"do": "expect", "that": "reading", "of": "m", "times": 3, "ge": 1, "within": "1s"})
    real = record(project, *steps, use="Moody")
    again = passes(project, *steps, llm={**REPLAY, "use": "replay_model.py:Moody"})
    assert len({r["value"] for r in records(real) if r["kind"] == "changed"}) == 2
    assert records(again) == records(real)


def test_a_request_that_was_not_recorded_fails_and_names_the_nearest(project: Project) -> None:
    record(project, invoke("count", {"text": "four"}), invoke("count", {"text": "something else"}))
    failures = fails(
        project,
        invoke("count", {"text": "four"}),
        invoke(
            "count", {"text": "something elsewhere"}, error={"is": "ActionFailed", "contains": "recording"}
        ),
    )
    assert failures[0][:2] == (
        "replay llm",
        'a recorded invoke count {"text": "something elsewhere"} from user',
    )
    nearest, _, way = failures[0][2].partition("; if that is wanted: lmos-actors run ")
    assert nearest == 'the nearest is {"text": "something else"} (log.jsonl:6)'
    assert way.endswith("story.yaml --update-recordings")
    assert failures[1] == (
        "replay llm",
        'invoke count {"text": "something else"}, as recorded',
        "no such request was made",
    )


@pytest.mark.parametrize(
    ("step", "saw"),
    [
        (invoke("count", {"text": "four"}), "it was recorded once, and has been asked more often"),
        (
            {"do": "read", "target": "llm", "property": "temperature"},
            "recorded are invoke count",
        ),
        (
            {"do": "observe", "target": "llm", "property": "temperature"},
            "recorded are invoke count",
        ),
        (
            invoke("message", {"text": "x"}),
            "recorded are invoke count",
        ),
    ],
)
def test_a_miss_is_never_a_live_call(project: Project, step: dict[str, Any], saw: str) -> None:
    record(project, invoke("count", {"text": "four"}))
    again = {**step, "error": {"is": "ActionFailed"}}
    if step["do"] == "observe":
        again["id"] = "o"
    found = fails(project, invoke("count", {"text": "four"}), again)
    assert [what.partition("; if that is wanted: ")[0] for _, _, what in found] == [saw]


def test_what_is_recorded_and_never_asked_fails_unless_allowed(project: Project) -> None:
    record(project, *[invoke("count", {"text": "x" * n}) for n in range(1, 7)])
    found = fails(project, invoke("count", {"text": "x"}))
    assert len(found) == 4
    assert found[-1][2] == "2 more unused"
    passes(project, invoke("count", {"text": "x"}), llm={**REPLAY, "unused": "allowed"})


def test_a_value_that_the_class_cannot_give_any_more_is_no_silent_pass(project: Project) -> None:
    result = record(project, invoke("count", {"text": "four"}))
    lines = [line.replace('"value":4', '"value":"four"') for line in result.log[:-1]]
    project.write("log.jsonl", "".join(line + "\n" for line in [*lines, _end(lines)]))
    failures = fails(project, invoke("count", {"text": "four"}, error={"is": "AgentDied"}))
    assert failures[0][:2] == ("replay llm", "an output that Model.count can have")


def _end(lines: list[str]) -> str:
    text = "".join(line + "\n" for line in lines)
    return json.dumps({"end": len(lines) - 1, "sha256": hashlib.sha256(text.encode()).hexdigest()})


def test_a_crash_that_was_injected_is_left_to_who_injects(project: Project) -> None:
    steps = [
        invoke("hang", wait=False, error={"is": "AgentDied"}),
        {"do": "inject", "fault": {"kind": "crash", "target": "llm"}},
    ]
    record(project, *steps)
    result = passes(project, *steps)
    assert sum('"kind":"crashed"' in line for line in result.log) == 1


# --- which log, which run, which agent


def load(project: Project, llm: dict[str, Any], **more: Any) -> None:
    file = project.write("story.yaml", story(invoke("count", {"text": "x"}), agents={"llm": llm}, **more))
    load_scenario(project.root / file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: None, "log.jsonl: no such file, run --update-recordings writes it"),
        (lambda text: "", "log.jsonl: is empty"),
        (lambda text: "lmos: scenario/v1\n", "log.jsonl:1:1: is not a message log"),
        (lambda text: text[:-100], "the log was cut short"),
        (lambda text: text.replace("four", "five"), "the log was changed after it was written"),
        (lambda text: text + text, 'there are two runs "seed=1" in it'),
        (lambda text: text.replace("trace/v1", "trace/v9"), "is of the schema"),
    ],
)
def test_a_log_that_is_none_is_a_mistake_of_the_file(project: Project, change: Any, message: str) -> None:
    result = record(project, invoke("count", {"text": "four"}))
    text = change("".join(line + "\n" for line in result.log))
    (project.root / "log.jsonl").unlink()
    if text is not None:
        project.write("log.jsonl", text)
    with pytest.raises(FileError) as caught:
        load(project, REPLAY)
    (mistake,) = caught.value.mistakes
    assert message in mistake.message
    assert mistake.line == 7  # where the log is named


def test_the_run_of_the_same_label_is_taken_else_the_only_one(project: Project) -> None:
    one = record(project, invoke("count", {"text": "x"}), seeds=[1])
    two = record(project, invoke("count", {"text": "x"}), seeds=[2])
    load(project, REPLAY, seeds=[7])  # there is but one
    project.write("log.jsonl", "".join(line + "\n" for line in [*one.log, *two.log]))
    load(project, REPLAY, seeds=[1, 2])
    with pytest.raises(FileError, match=r'log\.jsonl has no run "seed=3"; it has seed=1, seed=2'):
        load(project, REPLAY, seeds=[1, 2, 3])


def test_an_agent_is_named_by_its_path_or_the_end_of_it(project: Project) -> None:
    record(project, invoke("count", {"text": "x"}))
    load(project, {**REPLAY, "agent": "llm"})
    with pytest.raises(FileError, match=r'log\.jsonl has no agent "lm", did you mean "llm"'):
        load(project, {**REPLAY, "agent": "lm"})


def test_a_recording_is_read_as_it_is(project: Project) -> None:
    record(project, invoke("message", {"text": "x"}), name="one.jsonl")
    recorded = read_recording(project.root / "one.jsonl", "one").agent("seed=1", "llm")
    (exchange,) = recorded.exchanges
    assert (exchange.verb, exchange.affordance, exchange.input) == (
        "invoke",
        "message",
        {"system": "", "text": "x"},
    )
    assert exchange.ended == 0.6
    assert exchange.effects == [(0.0, "progress", 0.5), (0.3, "event", ("spent", 1))]


# --- matching

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_an_input_fits_itself_and_what_is_hidden_fits_anything(value: Any) -> None:
    assert fits(value, value)
    assert fits("***", value)
    assert fits({"a": "***", "b": [value]}, {"a": value, "b": [value]})
    assert not fits({"a": value}, {"a": value, "b": 1})


@given(st.lists(PLAIN, max_size=5), PLAIN)
def test_the_most_alike_is_the_same_if_it_is_there(others: list[Any], asked: Any) -> None:
    exchanges = [Exchange(n, "invoke", "a", value) for n, value in enumerate([*others, asked])]
    found = most_similar(iter(exchanges), asked)
    assert found is not None
    assert json.dumps(found.input, sort_keys=True) == json.dumps(asked, sort_keys=True)
    assert most_similar(iter(()), asked) is None
