"""`from: process`: agents in processes that the run starts, and ends."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.commands import started, surroundings
from tests.processes import has_ended
from tests.scenario.steps import answers, invoke
from tests.scenario.test_processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

CODE = """
import os

from lmos_actors import Agent, Ref, action


class Clock(Agent):
    @action
    def process(self) -> int:
        return os.getpid()

    @action
    def name(self) -> str:
        return os.environ.get("CLOCK", "none")

    @action
    def leave(self) -> None:
        os._exit(7)


class Reader(Agent):
    clock: Ref[Clock]

    @action
    async def process(self) -> int:
        return await self.clock.invoke(Clock.process)
"""

SERVED: dict[str, Any] = {"from": "process", "use": "own.py:Clock"}
SAYS = """
import json
print("hello")
print(json.dumps({"event": "agent", "name": "elsewhere", "url": "ws://127.0.0.1:1/agents/elsewhere"}))
print(json.dumps({"event": "ready"}), flush=True)
input()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("own")
    (root / "own.py").write_text(CODE)
    (root / "says.py").write_text(SAYS)
    (root / "fails.py").write_text("raise SystemExit('no clock here')")
    return root


def written(folder: Path, entry: dict[str, Any], steps: Any, **keys: Any) -> Path:
    file = folder / "story.json"
    agents = {"clock": entry, **keys.pop("agents", {})}
    head = {"lmos": "scenario/v1", "name": "s", "world": "websocket", "timeout": "60s", "agents": agents}
    file.write_text(json.dumps({**head, "steps": steps, **keys}))
    return file


def run(file: Path) -> RunResult:
    (cell,) = (resolved := load_scenario(file)).cells
    return run_cell(resolved, cell, 1, real_limit=100.0)


def mistakes(file: Path) -> list[str]:
    with pytest.raises(FileError) as found:
        load_scenario(file)
    return str(found.value).splitlines()


@pytest.mark.slow
def test_steps_and_agents_use_an_agent_of_a_process_which_ends_with_the_run(project: Path) -> None:
    reader = {"from": "agent", "use": "own.py:Reader", "args": {"clock": "$(agents.clock)"}}
    steps = [
        invoke("process", "clock", id="one", save={"process": "$.output"}),
        invoke("process", "reader", id="two"),
        answers("two", "$(saved.process)"),
        invoke("name", "clock", id="named"),
        answers("named", "own"),
        {"do": "expect", "that": "value", "of": "$(saved.process)", "match": {"$": {"ne": 0}}},
        invoke("leave", "clock", error={"is": "OutcomeUnknown"}),
        {"do": "wait", "for": "500ms"},
    ]
    result = run(written(project, {**SERVED, "env": {"CLOCK": "own"}}, steps, agents={"reader": reader}))
    (failure,) = result.failures
    assert (failure.what, failure.saw) == ("process clock", "it ended with exit code 7")
    assert result.steps_done == len(steps)


@pytest.mark.slow
def test_any_program_may_serve_the_agent(project: Path, tmp_path: Path) -> None:
    serve = [
        sys.executable,
        "-m",
        "lmos_actors",
        "serve",
        "mine=own.py:Clock",
        "--listen",
        "ws://127.0.0.1:0",
    ]
    told = tmp_path / "process"
    (project / "tell.py").write_text(
        f"import os, sys, pathlib\npathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        f"os.execv(sys.executable, {serve!r})\n"
    )
    entry = {"from": "process", "command": [sys.executable, "tell.py"], "use": "own.py:Clock"}
    result = run(written(project, entry, [invoke("name", "clock", id="named"), answers("named", "none")]))
    assert result.failures == ()
    assert has_ended(int(told.read_text()))


@pytest.mark.slow
def test_a_process_does_not_outlive_its_run(project: Path, tmp_path: Path) -> None:
    told = tmp_path / "process"
    stays = (
        f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); time.sleep(90)"
    )
    entry = {"from": "process", "command": [sys.executable, "-c", stays], "url": "http://127.0.0.1:1"}
    file = written(project, entry, [invoke("name", "clock")])
    with started(["run", file.name], project, environment=surroundings()) as command:
        wait_until(lambda: told.exists() and bool(told.read_text()), 60)
        command.kill()
        command.wait()
    wait_until(lambda: has_ended(int(told.read_text())), 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "more", "why"),
    [
        (["fails.py"], {}, "its process ended with exit code 1: no clock here"),
        (["says.py"], {"thing": "clock"}, 'its process serves elsewhere, and no "clock": "thing" names the'),
        (["says.py"], {}, "cannot connect to"),
        (
            ["says.py"],
            {"url": "http://127.0.0.1:1", "ready": "500ms"},
            "its process was not ready within 500ms",
        ),
    ],
)
def test_a_process_that_serves_no_such_agent_is_no_run(
    project: Path, command: list[str], more: dict[str, Any], why: str
) -> None:
    entry = {"from": "process", "command": [sys.executable, *command], **more}
    result = run(written(project, entry, [invoke("name", "clock")]))
    assert result.ended == "could not run"
    (failure,) = result.failures
    assert why in failure.saw
    assert (
        failure.place.startswith("story.json:") or failure.place.endswith("story.json:1:88") or failure.place
    )


@pytest.mark.parametrize(
    ("entry", "keys", "why"),
    [
        ({"from": "process"}, {}, 'a process serves a class, "use", or is a program, "command"'),
        ({**SERVED, "url": "http://127.0.0.1:1"}, {}, '"url" is where a "command" serves its agent'),
        (
            {"from": "process", "command": ["x"], "url": "127.0.0.1:1"},
            {},
            '"127.0.0.1:1" begins with none of',
        ),
        (
            SERVED,
            {"world": "memory"},
            "a process of its own can be used in world: websocket, not in world: memory",
        ),
    ],
)
def test_mistakes(project: Path, entry: dict[str, Any], keys: dict[str, Any], why: str) -> None:
    found = mistakes(written(project, entry, [invoke("name", "clock")], **keys))
    assert any(why in each for each in found), found
