"""Stories of processes: `world: process`, with faults of real processes, and nothing left of them."""

from __future__ import annotations

import json
import os
import signal
import socket
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError, parse
from lmos_actors.scenario.format import load_scenario, resolve
from lmos_actors.scenario.run import run_cell
from lmos_actors.system import accepts
from tests.commands import started, surroundings
from tests.processes import command_lines, state_of
from tests.scenario.format.test_used_system import ASKED, CODE, SYSTEM
from tests.scenario.steps import inject, invoke, wait
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

COUNTED = """

import os


class Tally(Agent, durable=True):
    count: Property[int] = prop(default=0, read_only=True)

    @action
    def next(self) -> int:
        self.count += 1
        return self.count

    @action
    def leave(self) -> None:
        os._exit(7)


class Teller(Agent):
    @action(safe=True)
    def process(self) -> int:
        return os.getpid()
"""

KEPT = SYSTEM.replace(
    "groups:\n",
    "  tally: {from: agent, use: processed:Tally}\ngroups:\n"
    "  books: {agents: [tally], register: registry, store: sqlite:kept/tally.db}\n",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("processes")
    (root / "processed.py").write_text(
        CODE.replace("Agent, Ref, action", "Agent, Property, Ref, action, prop") + COUNTED
    )
    return root


def written(folder: Path, steps: Any, system: str = KEPT, **keys: Any) -> Path:
    (folder / "desk.yaml").write_text(system.replace("deployed:", "processed:"))
    file = folder / "story.json"
    head = {"lmos": "scenario/v1", "name": "s", "system": "desk.yaml", "world": "process", "timeout": "90s"}
    file.write_text(json.dumps({**head, "steps": steps, **keys}))
    return file


def run(file: Path) -> RunResult:
    resolved = load_scenario(file)
    (cell,) = resolved.cells
    return run_cell(resolved, cell, 1, real_limit=240.0)


def processes_of(folder: Path) -> list[int]:
    """The processes that serve the file of a folder."""
    file = os.fsencode(folder / "desk.yaml")
    return [process for process, words in command_lines().items() if file in words]


@pytest.mark.slow
def test_faults_of_processes(project: Path) -> None:
    observed = {"do": "observe", "id": "seen", "target": "tally", "property": "count"}
    steps = [
        *ASKED,
        observed,
        invoke("next", "tally"),
        inject("kill", of="books", id="killed"),
        invoke("next", "tally", id="second"),
        {"do": "expect", "that": "output", "of": "second", "equals": 2},
        inject("stop", of="weather", duration="1s"),
        {**ASKED[0], "id": "slow"},
        {"do": "expect", "that": "output", "of": "slow", "equals": "grey in Bonn"},
        inject("stop", of=["desk"], id="stopped"),
        {**ASKED[0], "id": "held", "wait": False},
        wait(0.5),
        inject("cont", of="front"),
        {"do": "expect", "that": "output", "of": "held", "equals": "grey in Bonn"},
        inject("restart", of=["books"], down="100ms"),
        {"do": "wait", "until": {"agent": "tally", "is": "running"}},
        invoke("next", "tally", id="third"),
        {"do": "expect", "that": "output", "of": "third", "equals": 3},
        {"do": "expect", "that": "reading", "of": "seen", "equals": 3},
    ]
    result = run(written(project, steps))
    assert result.failures == ()
    assert result.ok
    assert [(fault.kind, fault.targets) for fault in result.faults] == [
        ("kill", ("books",)),
        ("stop", ("weather",)),
        ("stop", ("front",)),
        ("restart", ("books",)),
    ]
    assert all(fault.end is not None for fault in result.faults)
    assert processes_of(project) == []
    assert not (project / "kept").exists()


CROWDED = (
    KEPT.replace(
        "  registry: {directory: true}",
        "  registry: {directory: true, listen: ws://127.0.0.1:PORT, public_url: ws://desk.invalid}",
    )
    .replace("agents: [weather]", "agents: [weather, teller]")
    .replace("groups:\n", "  teller: {from: agent, use: processed:Teller}\ngroups:\n", 1)
)


@pytest.mark.slow
def test_faults_of_links_and_of_single_processes(project: Path) -> None:
    """With a directory whose port another program has: that of the run is another one."""
    told = [invoke("process", "teller", save={name: "$.output"}) for name in ("one", "two", "three")]
    steps = [
        *told,
        {"do": "expect", "that": "value", "of": "$(saved.three)", "equals": "$(saved.one)"},
        {"do": "expect", "that": "value", "of": "$(saved.two)", "match": {"$": {"ne": "$(saved.one)"}}},
        inject("partition", id="cut", sides=[["weather"], ["front"]]),
        {**ASKED[0], "id": "held", "wait": False},
        invoke("forecast", "weather", city="Rome"),  # nobody else is cut off from anybody
        invoke("next", "tally"),
        {"do": "query", "of": "held", "save": {"then": "$.status"}},
        {"do": "expect", "that": "value", "of": "$(saved.then)", "equals": "in progress"},
        {"do": "heal", "of": "cut"},
        {"do": "expect", "that": "output", "of": "held", "equals": "grey in Bonn"},
        inject("disconnect", id="reset", between=["weather", "front"]),
        *ASKED,
        inject("disconnect", id="forgotten", how="half_open", between=["weather", "front"]),
        {**ASKED[0], "id": "then"},
        inject("latency", id="slow", delay="20ms", between=["user", "weather"]),
        inject("kill", id="killed", of="weather/2"),
        {**ASKED[0], "id": "last"},
        {"do": "expect", "that": "output", "of": "last", "equals": "grey in Bonn"},
    ]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        system = CROWDED.replace("PORT", str(taken.getsockname()[1]))
        result = run(written(project, steps, system=system, network={"default": {"latency": "1ms"}}))
    assert result.failures == ()
    assert result.ok
    assert [(fault.kind, fault.targets) for fault in result.faults] == [
        ("partition", ("weather", "front")),
        ("disconnect", ("weather", "front")),
        ("disconnect", ("weather", "front")),
        ("latency", ("user", "weather")),
        ("kill", ("weather/2",)),
    ]
    starts = [row.split()[::2][:2] for row in result.tree if row.startswith("weather/")]
    assert starts == [["weather/1", "1"], ["weather/2", "2"]]


@pytest.mark.slow
def test_a_process_that_does_not_begin_is_no_run(project: Path) -> None:
    broken = KEPT.replace("metrics: true", "cwd: nowhere")
    result = run(written(project, ASKED, system=broken))
    assert result.ended == "could not run"
    (failure,) = result.failures
    assert failure.place.endswith(f"desk.yaml:{len(broken.splitlines())}:3")
    assert "front/1 could not start: it " in failure.saw
    assert processes_of(project) == []


@pytest.mark.slow
def test_a_process_that_ends_by_itself_fails_the_run(project: Path) -> None:
    steps = [
        invoke("leave", "tally", error={"is": "OutcomeUnknown"}),
        {"do": "wait", "until": {"agent": "tally", "is": "running"}},
    ]
    result = run(written(project, steps))
    (failure,) = result.failures
    assert (failure.what, failure.saw) == ("process books/1", "it ended with exit code 7")
    assert (result.ended, result.steps_done) == ("failed", 2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(
    project: Path, tmp_path: Path, number: signal.Signals
) -> None:
    steps = [inject("stop", of="weather"), {**ASKED[0], "wait": False}, wait(80)]
    file = written(project, steps)
    environment = {**surroundings(), "TMPDIR": str(tmp_path)}
    with started(["run", file.name], project, environment=environment) as command:
        wait_until(lambda: "T" in map(state_of, processes_of(project)), 60)
        command.send_signal(number)
        command.wait()
    wait_until(lambda: processes_of(project) == [], 20)
    folders = list(tmp_path.glob("lmos-actors-run-*"))
    assert len(folders) == (number == signal.SIGKILL)  # nobody is left to remove it


def wait_until(holds: Any, seconds: float) -> None:
    """Wait for processes, which say nothing to this one."""
    end = monotonic() + seconds
    while not holds():
        assert monotonic() < end
        sleep(0.1)


CUT = inject("partition", id="cut", sides=[["books", "weather"], ["front"]], duration="1s")


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("world", ["memory", "wire", pytest.param("process", marks=pytest.mark.slow)])
def test_the_shipped_story_has_one_verdict(world: str, is_cut: bool) -> None:
    """Also where the groups are cut off from each other before it asks again and again."""
    judge_shipped(world, [CUT] if is_cut else [])


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_and_with_a_simulated_directory(world: str) -> None:
    judge_shipped(world, [CUT], network={"directory": {}})


def judge_shipped(world: str, more: list[dict[str, Any]], **keys: Any) -> None:
    """Run the shipped story with some steps more, before it asks again and again."""
    file = ROOT / "scenarios/desk.yaml"
    data: Any = parse(file.read_text(), name="desk.yaml").data
    place = [step["do"] for step in data["steps"]].index("repeat")
    data["steps"][place:place] = more
    del data["matrix"]
    text = json.dumps({**data, "world": world, **keys})
    (cell,) = (resolved := resolve(file, text=text, accepts=accepts, fitted=True)).cells
    result = run_cell(resolved, cell, 1, real_limit=240.0)
    assert result.failures == ()
    assert result.ok
    assert result.checks_passed == result.checks == 1
    assert [fault.kind for fault in result.faults] == ["restart", *["partition" for _ in more]]
    if more:
        first = next(step for step in result.step_results if step.what == "invoke desk.ask (next)")
        assert result.faults[-1].begin <= first.begin
        assert (result.faults[-1].end or 0) <= first.end  # it was held until then


def test_what_looks_into_models_is_refused_and_answers_are_judged(project: Path) -> None:
    asked = {**ASKED[0], "id": "asked"}
    steps = [asked, inject("provider", target="weather", status=500, duration="1s")]
    checks = [
        {"check": "tools", "of": "asked", "never": ["x"]},
        {"check": "budget", "of": "asked", "calls": {"le": 1}},
        {"check": "secrets"},
        {"check": "answer", "of": "asked", "words": ["grey"]},
    ]
    with pytest.raises(FileError) as refused:
        load_scenario(written(project, steps, checks=checks))
    found = [mistake.message for mistake in refused.value.mistakes]
    inside = "in world: process steps are outside of the agents, and"
    assert found[0].startswith(f'{inside} "kind: provider" is inside')
    for message, kind in zip(found[1:], ("tools", "budget", "secrets"), strict=True):
        assert message.startswith(f'{inside} "check: {kind}" looks into them')


@pytest.mark.slow
def test_answers_of_processes_are_judged(project: Path) -> None:
    steps = [{**ASKED[0], "id": "asked"}]
    check = {"check": "answer", "of": "asked", "words": ["grey in Bonn"]}
    assert run(written(project, steps, checks=[check])).ok
    broken = run(written(project, steps, checks=[{**check, "words": ["sunny"]}]))
    assert [failure.what for failure in broken.failures] == ["check answer asked"]
