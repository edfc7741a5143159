"""`run --watch` as a user has it: a process, its page, and a viewer over a real WebSocket."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.live import LiveClient, open_live
from tests.commands import RunningCommand, started
from tests.scenario.project import CAST, Project, story

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 60.0
"""Seconds after which a process is taken to hang."""

SLOWLY = {"do": "invoke", "target": "actor", "action": "slowly", "input": {"seconds": 20.0}}
NOTE = {"do": "invoke", "target": "actor", "action": "note", "input": {"text": "hi"}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    return made


def line_with(command: RunningCommand, text: str) -> str:
    """Read what the command prints up to a line with that text, and return it."""
    assert command.stderr is not None
    printed: list[str] = []
    for line in command.stderr:
        printed.append(line)
        if text in line:
            return line
    raise AssertionError("".join(printed))


async def until(client: LiveClient, view: str, test: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Wait until something is true of a view; return it."""
    with trio.fail_after(PATIENCE):
        while view not in client.views or not test(client.views[view]):
            assert not client.errors
            await client.wait()
    return client.views[view]


async def look_on(url: str) -> None:
    """Watch a run: hold it up, let it go on by a step, and to its end."""
    async with open_live(url) as client:
        assert client.hello is not None
        assert client.hello.kind == "runs"
        client.look("run", "run")
        client.look("runs", "runs")
        begun = await until(client, "run", lambda view: view.get("waits"))
        assert begun["speed"] == 1.0
        client.do("1", "pause")
        paused = await until(client, "run", lambda view: view["paused"])
        assert paused["time"] < 10.0  # the step takes 20 s of virtual time, in two halves
        client.do("2", "step")
        stepped = await until(client, "run", lambda view: view["time"] >= 10.0)
        assert stepped["time"] == 10.0
        for number in range(20):
            client.do(f"f{number}", "faster")
        client.do("3", "go")
        ended = await until(client, "run", lambda view: view["status"] == "passed")
        assert ended["speed"] == "max"
        assert (ended["steps_done"], ended["steps_total"]) == (2, 2)
        runs = await until(client, "runs", lambda view: view["counts"] == {"passed": 2})
        assert runs["order"] == ["1", "2"]


@pytest.mark.slow
def test_a_run_is_held_up_and_goes_on_and_its_page_stays(project: Project) -> None:
    file = project.write("story.yaml", story(SLOWLY, NOTE, seeds=[1, 2]))
    words = ("run", file, "--watch", "--log", "log.jsonl", "--time-limit", "30s")
    with started(words, project.root) as command:
        url = line_with(command, "watch at ").split()[-1]
        trio.run(look_on, url)
        with urllib.request.urlopen(urllib.request.Request(url, headers={"accept": "text/html"})) as page:
            assert b"live/page.js" in page.read()
        line_with(command, "stays until Ctrl-C")
        shown = project.command("tree", url, "--json")
        rows = [json.loads(line) for line in shown.out.splitlines()]
        assert [(row["path"], row["kind"]) for row in rows] == [("", "supervisor"), ("actor", "agent")]
        command.send_signal(signal.SIGINT)
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(PATIENCE)
        assert command.wait() == 0
    assert "2/2 runs passed" in out
    assert "same log in a second process: 1 of 1" in out
    log = [json.loads(line) for line in (project.root / "log.jsonl").read_text().splitlines()]
    assert sum("schema" in line for line in log) == 2


DYING = """
import os

from lmos_actors import Agent, action


class Actor(Agent):
    @action
    def note(self, text: str) -> str:
        os.kill(os.getpid(), 9)
        return text
"""


@pytest.mark.slow
def test_a_worker_that_dies_is_a_run_without_a_result(project: Project) -> None:
    project.write("cast.py", DYING)
    file = project.write("story.yaml", story(NOTE))
    words = ("run", file, "--watch", "--speed", "max", "--check-determinism", "off")
    with started(words, project.root) as command:
        line_with(command, "stays until Ctrl-C")
        command.terminate()
        out, _ = command.communicate(PATIENCE)
        assert command.wait() == 3
    assert "its process ended by signal SIGKILL" in out


def test_what_does_not_go_with_a_page_is_refused(project: Project) -> None:
    file = project.write("story.yaml", story(NOTE))
    for words, why in (
        (("run", file, "--watch", "-j", "4"), "-j: runs that are watched go one at a time"),
        (("run", file, "--port", "8080"), "--port: is the port of the page of --watch"),
        (("run", file, "--speed", "max"), "--speed: max is for --watch"),
        (("sim", file, "--speed", "10"), "--speed: takes --watch"),
        (("run", file, "--watch", "--update-recordings"), "--update-recordings: "),
    ):
        ran = project.command(*words)
        assert ran.code == 2
        assert why in ran.err
