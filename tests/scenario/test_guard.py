"""More hostility: agents that end the process, what comes after the verdict, paths and interrupts."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario import Guard
from lmos_actors.scenario.format import resolve
from tests.commands import started
from tests.processes import has_ended
from tests.scenario.project import CAST, Project, story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
GO = {"do": "invoke", "id": "go", "target": "actor", "action": "go"}
OFF = ("--check-determinism", "off")
PRELUDE = "import os\nimport trio\nfrom lmos_actors import Agent, action\n"
FINE = "class X(Agent):\n    @action\n    def go(self): pass\n"
PATIENCE = 40.0  # seconds after which a process is taken to hang; none needs a tenth of it


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    yield made
    sys.path[:] = path
    for name in ("cast", "own"):
        if name not in modules:
            sys.modules.pop(name, None)


def with_agent(project: Project, code: str, *steps: Any, **more: Any) -> str:
    project.write("own.py", PRELUDE + textwrap.dedent(code))
    agents = {"actor": {"from": "agent", "use": "own.py:X"}}
    return project.write("own.yaml", story(*(steps or [GO]), agents=agents, **more))


# --- agents


@pytest.mark.parametrize(
    "call", ["os.execv('/bin/true', ['true'])", "os.execlp('true', 'true')", "os.system('true')"]
)
def test_an_agent_cannot_put_a_process_in_our_place(project: Project, call: str) -> None:
    """Else the command would end as that process does: with 0."""
    code = f"class X(Agent):\n    @action\n    def go(self): {call}\n"
    ran = project.command("run", with_agent(project, code), *OFF)
    assert ran.code == 1
    assert "reaches out of the simulated world" in ran.out


@pytest.mark.parametrize("call", ["os._exit(0)", "os.execv('/bin/true', ['true'])"])
@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_module_cannot_end_us_with_success(project: Project, call: str, command: str) -> None:
    ran = project.command(command, with_agent(project, f"{call}\n{FINE}"))
    assert ran.code == 3
    assert "failed at own.py:4: RuntimeError: os." in ran.err


def test_a_module_may_fork_and_its_child_may_end(project: Project) -> None:
    fork = "child = os.fork()\nif not child: os._exit(7)\nassert os.waitpid(child, 0)[1] == 7 << 8\n"
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"  # newer versions warn: a thread is watching
    ran = project.command("validate", with_agent(project, quiet + fork + FINE))
    assert (ran.code, ran.err) == (0, "")


def test_what_breaks_after_the_verdict_fails_the_run(project: Project) -> None:
    code = """
        async def bad(): raise ValueError("in a task of its own")
        class X(Agent):
            @action
            def go(self): trio.lowlevel.spawn_system_task(bad)
    """
    ran = project.command("run", with_agent(project, code), *OFF)
    assert ran.code == 1
    assert "saw      ValueError: in a task of its own at own.py:5" in ran.out
    assert "0/1 runs passed" in ran.out


# --- interrupts


def test_what_a_run_has_changed_is_put_back_without_an_interrupt() -> None:
    """A second interrupt while the world is taken down left its lock held: no further run could begin."""
    said: list[str] = []
    with Guard(0.05, lambda why, where: said.append(why)) as guard:
        with guard.handling_interrupts():
            pass
        while not guard.fired:
            time.sleep(0.01)
        time.sleep(0.1)
    assert said == []


@pytest.mark.slow
def test_workers_of_a_parent_that_was_killed_end_without_a_word(project: Project, tmp_path: Path) -> None:
    project.write("own.py", PRELUDE + textwrap.dedent(BUSY))
    agents = {"actor": {"from": "agent", "use": "own.py:X"}}
    often = {"do": "repeat", "times": 1_000_000, "steps": [GO]}
    file = project.write("long.yaml", story(often, seeds=[1, 2], agents=agents))
    with (tmp_path / "errors").open("wb") as errors:
        process = started(("run", file, "-j", "2", *OFF), project.root, stderr=errors.fileno())
    with process:
        due = time.monotonic() + PATIENCE
        while len(begun := list(project.root.glob("begun-*"))) < 2:
            assert process.poll() is None
            assert time.monotonic() < due
            time.sleep(0.05)
        workers = [int(file.name.partition("-")[2]) for file in begun]
        process.kill()
        process.wait(timeout=PATIENCE)
    _wait_until_gone(workers)
    assert (tmp_path / "errors").read_text() == ""


BUSY = """
    class X(Agent):
        @action
        def go(self): open(f"begun-{os.getpid()}", "w").close()
"""


def _wait_until_gone(pids: list[int]) -> None:
    due = time.monotonic() + PATIENCE
    for pid in pids:
        while not has_ended(pid):
            assert time.monotonic() < due, f"{pid} is still there"
            time.sleep(0.05)


# --- paths


@pytest.mark.parametrize("path", ["$[" + "9" * 5000 + "]", "$[?" + "!" * 3000 + "@.a]"])
def test_paths_that_the_library_chokes_on(project: Project, path: str) -> None:
    expect = {"do": "expect", "that": "output", "of": "note", "match": {path: 1}}
    file = project.write("s.json", story(NOTE, expect))
    with pytest.raises(FileError, match="is not a JSON path: it is too deep"):
        resolve(project.root / file, fitted=True)


# --- logs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "key", "value"),
    [(1, "t", "x"), (1, "t", None), (1, "n", None), (1, "kind", []), (0, "run", "x")],
)
def test_logs_with_parts_of_another_type(project: Project, line: int, key: str, value: object) -> None:
    file = project.write("s.yaml", story(NOTE))
    project.command("run", file, *OFF, "--log", "log.jsonl")
    lines = (project.root / "log.jsonl").read_text().splitlines()
    data = json.loads(lines[line])
    data[key] = {**data[key], "seed": value} if key == "run" else value
    lines[line] = json.dumps(data)
    project.write("bad.jsonl", "\n".join(lines) + "\n")
    ran = project.command("replay", "bad.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert f"bad.jsonl:{line + 1}:1: is not a" in ran.err
