"""Restarts of the node and faults of its disk: what callers see, what agents have, what files may say."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.actors import OutputGate
from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.matrix import few_or_all
from tests.scenario.project import Project
from tests.scenario.steps import inject
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.reports import RunResult

LEDGER = """\
from __future__ import annotations

import attrs
import trio

from lmos_actors import Agent, Event, Property, action, event, prop


class Book(Agent):
    total: Property[int] = prop(default=0)
    added: Event[int] = event()
    restored_at_start: Property[bool] = prop(default=False)

    def started(self) -> None:
        self.restored_at_start = bool(getattr(self, "restored", False))

    @action
    def add(self, amount: int = 1) -> int:
        self.total += amount
        self.added.emit(amount)
        return self.total


class Ledger(Book, durable=True):
    @action(snapshot_safe=True)
    async def slowly(self) -> int:
        self.total += 100
        await trio.sleep(1.0)
        return self.total


class Safe(Book, durable=True, durability="power"):
    pass


class Plain(Book):
    pass


@attrs.frozen
class Added:
    amount: int


class Journal(Agent, durable="journal", snapshot_every=2):
    total: Property[int] = prop(default=0)

    def apply(self, fact: Added) -> None:
        self.total += fact.amount

    @action
    def add(self, amount: int = 1) -> int:
        self.record(Added(amount))
        return self.total
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("project"))
    made.write("pyproject.toml", "")
    made.write("ledger.py", LEDGER)
    yield made
    sys.path[:] = path
    for name in ("ledger", "alarms"):
        sys.modules.pop(name, None)


def story(*steps: Any, cls: str = "Ledger", **more: Any) -> str:
    agents = {"book": {"from": "agent", "use": f"ledger.py:{cls}"}}
    whole = {"lmos": "scenario/v1", "name": "story", "agents": agents, "steps": list(steps), **more}
    return json.dumps(whole, indent=1)


def runs(project: Project, *steps: Any, **more: Any) -> list[RunResult]:
    file = project.root / project.write("story.yaml", story(*steps, **more))
    resolved = load_scenario(file)
    return [run_cell(resolved, cell, 1, real_limit=20) for cell in resolved.cells]


def passes(project: Project, *steps: Any, **more: Any) -> RunResult:
    (result,) = runs(project, *steps, **more)
    assert result.failures == ()
    assert result.ended == "passed"
    return result


def mistakes(project: Project, *steps: Any, **more: Any) -> list[str]:
    with pytest.raises(FileError) as caught:
        runs(project, *steps, **more)
    return [str(mistake) for mistake in caught.value.mistakes]


def add(**more: Any) -> dict[str, Any]:
    return {"do": "invoke", "target": "book", "action": "add", **more}


def total(number: int, **more: Any) -> list[dict[str, Any]]:
    read = {"do": "read", "id": "read", "target": "book", "property": "total"}
    return [read, {"do": "expect", "that": "output", "of": "read", "equals": number, **more}]


def unavailable() -> dict[str, Any]:
    return add(error={"is": "AgentUnavailable", "contains": "its node is down"})


WORLDS = pytest.mark.parametrize("world", ["memory", "wire"])
LATENCY = {"latency": "5ms"}


def test_a_store_may_say_nothing(project: Project) -> None:
    assert passes(project, add(), inject("restart"), *total(1), store={}).virtual == 1.0


# --- what callers see, and what is there


@WORLDS
def test_a_durable_agent_has_its_state_after_a_restart(project: Project, world: str) -> None:
    restored = {"do": "read", "id": "back", "target": "book", "property": "restored_at_start"}
    back = {"do": "expect", "that": "output", "of": "back", "equals": True}
    result = passes(
        project,
        add(input={"amount": 3}),
        inject("restart", id="outage", down="2s", wait=False),
        unavailable(),
        {"do": "wait", "until": {"agent": "book", "is": "running"}},
        *total(3),
        restored,
        back,
        world=world,
        store=LATENCY,
    )
    (fault,) = result.faults
    assert (fault.kind, fault.targets, fault.begin, fault.end) == ("restart", ("root",), 0.005, 2.005)
    records = [json.loads(line) for line in result.log[1:-1]]
    told = [record for record in records if record["kind"] in ("fault", "healed")]
    assert [(record["kind"], record["agent"], record["t"]) for record in told] == [
        ("fault", "root", 0.005),
        ("healed", "root", 2.005),
    ]
    between = records[records.index(told[0]) + 1 : records.index(told[1])]
    assert [(record["kind"], record["t"]) for record in between] == [("started", 2.005)], (
        "it ends without a word"
    )
    numbers = [record["id"] for record in records if record["kind"] == "sent"]
    assert numbers == sorted(set(numbers)), "the messages of both nodes are numbered through"


@WORLDS
def test_an_agent_that_is_not_durable_begins_anew(project: Project, world: str) -> None:
    passes(project, add(), inject("restart"), *total(0), world=world, cls="Plain")


@WORLDS
def test_who_waits_for_an_answer_does_not_know_what_became_of_it(project: Project, world: str) -> None:
    unknown = {"is": "OutcomeUnknown", "contains": "node has ended" if world == "memory" else "connection"}
    slowly = {"do": "invoke", "target": "book", "action": "slowly", "wait": False, "error": unknown}
    passes(
        project,
        slowly,
        {"do": "wait", "for": "500ms"},
        inject("restart", down="100ms"),
        {"do": "wait", "for": "3s"},
        world=world,
    )


@WORLDS
def test_who_listens_hears_the_next_node_too(project: Project, world: str) -> None:
    passes(
        project,
        {"do": "subscribe", "target": "book", "event": "added"},
        add(input={"amount": 1}),
        {"do": "wait", "for": "1s"},
        inject("restart"),
        {"do": "wait", "for": "1s"},
        add(input={"amount": 2}),
        {"do": "expect", "that": "event", "target": "user", "event": "added", "sequence": [1, 2]},
        world=world,
    )


@pytest.mark.parametrize(
    ("cls", "writes", "outcomes"),
    [
        ("Ledger", "kept", {6}),
        ("Ledger", "lost", {0, 1, 3}),
        ("Ledger", "torn", {3}),
        ("Journal", "kept", {6}),
        ("Journal", "lost", {0, 1, 3}),
        ("Journal", "torn", {3}),
        ("Safe", "kept", {6}),
        ("Safe", "lost", {6}),
        ("Safe", "torn", {6}),
    ],
)
def test_what_was_not_synced_may_be_gone(project: Project, cls: str, writes: str, outcomes: set[int]) -> None:
    """Three commits are done, and answered; which ones of those that vanish do, is by the seed."""
    steps = [*[add(input={"amount": amount}) for amount in (1, 2, 3)], inject("restart", writes=writes)]
    read = {"do": "read", "id": "read", "target": "book", "property": "total", "save": {"found": "$.value"}}
    expect = {"do": "expect", "that": "value", "of": "$(saved.found)", "le": 6}
    found: set[int] = set()
    for result in runs(project, *steps, read, expect, cls=cls, store=LATENCY, seeds={"from": 1, "count": 8}):
        assert result.failures == ()
        answers = [line for line in map(json.loads, result.log[1:-1]) if line["kind"] == "answered"]
        found |= {answer["value"] for answer in answers if answer["affordance"] == "total"}
    assert found <= outcomes
    assert len(found) > 1 or len(outcomes) == 1


def test_a_commit_under_way_is_kept_or_not_by_the_seed(project: Project) -> None:
    """It was not answered, so both are right; the gate has held its answer back."""
    asked = add(wait=False, error={"is": "OutcomeUnknown"})
    steps = [asked, {"do": "wait", "for": "2ms"}, inject("restart")]
    read = {"do": "read", "id": "read", "target": "book", "property": "total", "save": {"found": "$.value"}}
    expect = {"do": "expect", "that": "value", "of": "$(saved.found)", "le": 1}
    several = runs(project, *steps, read, expect, store=LATENCY, seeds={"from": 1, "count": 8})
    assert [result.failures for result in several] == [()] * 8
    assert len({result.digest for result in several}) > 1
    again = runs(project, *steps, read, expect, store=LATENCY, seeds={"from": 1, "count": 8})
    assert [result.digest for result in again] == [result.digest for result in several]


def test_counters_go_on_over_nodes_and_a_restart_is_none_of_an_agent(project: Project) -> None:
    crash = inject("crash", target="book")
    passes(
        project,
        add(),
        crash,
        inject("restart"),
        add(),
        crash,
        checks=[
            {"check": "restarts", "of": "book", "equals": 2},
            {"check": "statistics", "of": "book", "counter": "handled", "equals": 2},
        ],
    )


@WORLDS
def test_a_full_disk(project: Project, world: str) -> None:
    passes(
        project,
        add(),
        inject("full_disk", duration="1s", id="full"),
        add(error={"is": "AgentDied", "contains": "disk is full"}),
        add(error={"is": "AgentUnavailable"}),
        {"do": "wait", "for": "3s"},
        add(),
        *total(2),
        world=world,
        store=LATENCY,
        checks=[{"check": "restarts", "of": "book", "equals": 1}],
    )


def test_a_slow_disk(project: Project) -> None:
    (result,) = runs(
        project,
        add(id="before"),
        inject("slow_disk", factor=10, duration="1s"),
        add(id="slow"),
        {"do": "wait", "for": "1s"},
        add(id="after"),
        store=LATENCY,
        checks=[
            {"check": "latency", "of": "before", "max": {"le": "5ms"}},
            {"check": "latency", "of": "slow", "max": {"le": "50ms"}},
            {"check": "latency", "of": "after", "max": {"le": "5ms"}},
        ],
    )
    assert result.failures == ()
    assert result.metrics["slow.max"] == 0.05


def test_a_node_that_is_down_cannot_be_restarted(project: Project) -> None:
    (result,) = runs(project, inject("restart", down="2s", wait=False), inject("restart"))
    (failure,) = result.failures
    assert (failure.expected, failure.saw) == ("a running node to restart", "it is down")


# --- what files may say


@pytest.mark.parametrize(
    ("step", "more", "expected"),
    [
        (inject("restart", target="book"), {}, 'unknown key "target"'),
        (inject("restart", writes="gone"), {}, "(known: kept, lost, torn)"),
        (inject("restart", write="lost"), {}, 'did you mean "writes"?'),
        (inject("restarts"), {}, 'did you mean "restart"?'),
        (inject("full_disk"), {}, '"duration"'),
        (inject("full_disk", duration="0s"), {}, "a fault of no duration does nothing"),
        (inject("slow_disk", factor=2, duration="1s"), {}, "commits take no time, there is nothing to slow"),
        (
            inject("restart", writes="kept"),
            {"cls": "Plain"},
            '"writes" does nothing: no agent of the file',
        ),
        (inject("full_disk", duration="1s"), {"cls": "Plain"}, '"kind: full_disk" does nothing'),
        (add(), {"cls": "Plain", "store": LATENCY}, '"store" does nothing: no agent of the file is durable'),
        (add(), {"store": {"latency": {"dist": "uniform", "min": 1, "max": 2}}}, '"min" has no unit'),
        (add(), {"store": {"latncy": "1ms"}}, 'did you mean "latency"?'),
        (add(), {"store": LATENCY, "world": "websocket"}, '"store" is for simulated nodes and disks'),
        (inject("restart"), {"world": "websocket"}, '"kind: restart" is for simulated nodes and disks'),
        (
            inject("crash", target="book", restart={"state": "kept"}),
            {},
            '"book" is durable: a restart finds what its store has',
        ),
    ],
)
def test_what_a_file_may_not_say(project: Project, step: Any, more: dict[str, Any], expected: str) -> None:
    found = mistakes(project, step, **more)
    assert any(expected in each for each in found), found
    assert all("story.yaml:" in each for each in found)


def test_a_timeline_has_the_same_rules(project: Project) -> None:
    def entry(**more: Any) -> dict[str, Any]:
        return {"at": "1s", "do": "fault", **more}

    whole = {
        "lmos": "simulation/v1",
        "name": "crowd",
        "stop": {"at": "5s"},
        "population": [{"id": "book", "count": 2, "use": "ledger.py:Ledger"}],
        "timeline": [
            {"at": "1s", "do": "tell", "target": "book/0", "action": "add"},
            entry(kind="restart", target="book"),
            entry(kind="restart", factor=2),
            entry(kind="pause", target="book", duration="1s", writes="lost"),
            entry(kind="crash", target="book", restart={"state": "lost"}),
        ],
    }
    file = project.root / project.write("crowd.yaml", json.dumps(whole, indent=1))
    with pytest.raises(FileError) as caught:
        load_scenario(file)
    assert [mistake.message for mistake in caught.value.mistakes] == [
        '"target" does not apply to "kind: restart", which is of the whole node',
        '"factor" does not apply to "kind: restart"',
        '"writes" does not apply to "kind: pause"',
        '"book" is durable: a restart finds what its store has',
    ]


# --- the shipped story


@pytest.mark.slow
@WORLDS
def test_the_bank_loses_no_money_and_makes_some_without_the_gate(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, world: str
) -> None:
    """Only the output gate is taken away: state is kept as before, but nothing waits for that."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = (ROOT / "scenarios/bank.yaml").read_text(encoding="utf-8")
    assert "world: memory" in text
    folder = tmp_path_factory.mktemp("bank")
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    shutil.copy(ROOT / "agents/bank.py", folder / f"bank_{world}.py")
    text = text.replace("agents.bank:", f"bank_{world}:").replace("world: memory", f"world: {world}")
    (folder / "bank.yaml").write_text(text, encoding="utf-8")
    resolved = load_scenario(folder / "bank.yaml")
    cell = next(cell for cell in resolved.cells if cell.seed == 2)
    assert run_cell(resolved, cell, 1, real_limit=60).failures == ()

    def let_go(self: OutputGate, outputs: list[Any]) -> None:
        self._last = self.state.keep() or self._last  # type: ignore[misc]
        for output in outputs:
            output.release()

    monkeypatch.setattr(OutputGate, "_seal", let_go)
    failed = run_cell(resolved, cell, 1, real_limit=60)
    assert "check never none_is_made" in [failure.what for failure in failed.failures]


# --- timers and answers that are kept

ALARMS = """\
from __future__ import annotations

import attrs

from lmos_actors import Agent, Ref, action, every


class Alarm(Agent, durable=True):
    sets: int = 0
    rung: list[str] = attrs.field(factory=list)
    twice: int = 0
    ticks: int = 0

    @action
    def set(self, name: str) -> int:
        self.sets += 1
        self.after(0.7, self.ring, name, durable=True)
        return self.sets

    def ring(self, name: str) -> None:
        self.twice += name in self.rung
        self.rung.append(name)

    @every(0.5, durable=True)
    def tick(self) -> None:
        self.ticks += 1


class Asker(Agent, durable=True):
    alarm: Ref[Alarm]
    answers: dict[str, int] = attrs.field(factory=dict)
    changed: int = 0

    @action(snapshot_safe=True)
    async def ask(self, name: str) -> None:
        n = await self.alarm.retrying(key=f"set-{name}").invoke(Alarm.set, name)
        self.changed += self.answers.setdefault(name, n) != n
"""


@pytest.mark.slow
@WORLDS
@pytest.mark.parametrize("writes", ["kept", "lost", "torn"])
def test_timers_fire_once_and_each_request_of_a_key_counts_once_over_restarts(
    project: Project, world: str, writes: str
) -> None:
    project.write("alarms.py", ALARMS)
    ask = {"do": "tell", "target": "asker/0", "action": "ask"}
    timeline: list[dict[str, Any]] = []
    for number in range(8):
        timeline += [  # what the last ones asked for, too, before and after the restart
            {
                "at": f"{400 * number + (0, 1, 100)[each]}ms",
                **ask,
                "input": {"name": f"n{max(0, number - each)}"},
            }
            for each in range(3)
        ]
        fault = {"do": "fault", "kind": "restart", "writes": writes, "down": "50ms"}
        timeline.append({"at": f"{400 * number + 3 * number + 2}ms", **fault})
    timeline += [{"at": f"{4000 + each}ms", **ask, "input": {"name": f"n{each}"}} for each in range(8)]
    series = {
        name: {"agg": "sum", "of": of, "expr": expr}
        for name, of, expr in (
            ("sets", "alarm", "state.sets"),
            ("rung", "alarm", "len(state.rung)"),
            ("twice", "alarm", "state.twice"),
            ("ticks", "alarm", "state.ticks"),
            ("answers", "asker", "len(state.answers)"),
            ("changed", "asker", "state.changed"),
        )
    }
    whole = {
        "lmos": "simulation/v1",
        "name": "alarms",
        "seeds": {"from": 1, "count": few_or_all(3, 40)},
        "world": world,
        "stop": {"at": "6s"},
        "population": [
            {"id": "alarm", "count": 1, "use": "alarms.py:Alarm"},
            {"id": "asker", "count": 1, "use": "alarms.py:Asker", "args": {"alarm": "$(agents.alarm)"}},
        ],
        "store": {"latency": {"dist": "uniform", "min": "1ms", "max": "15ms"}},
        "timeline": timeline,
        "measure": {"every": "50ms", "series": series},
        "checks": [
            {
                "check": "never",
                "name": "an_answer_changes",
                "when": {"expr": "series.changed > 0", "fault_free": True},
            },
            {
                "check": "never",
                "name": "a_key_counts_twice",
                "when": {"expr": "series.sets > 8", "fault_free": True},
            },
            {
                "check": "never",
                "name": "a_timer_fires_twice",
                "when": {"expr": "series.twice > 0", "fault_free": True},
            },
            {
                "check": "eventually",
                "name": "all_is_done",
                "expr": "series.rung == 8 and series.sets == 8 and series.answers == 8 and series.ticks >= 8",
                "by": "6s",
            },
        ],
    }
    resolved = load_scenario(project.root / project.write("alarms.yaml", json.dumps(whole, indent=1)))
    for cell in resolved.cells:
        result = run_cell(resolved, cell, 1, real_limit=20)
        assert result.failures == ()
        assert result.ended == "passed"
