"""Programs that agents start do not outlive their process, however they were started and however it ends."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.commands import called
from tests.processes import command_lines, has_ended, soon

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

WAIT = 40.0

AGENTS = '''
import os
import subprocess
import sys
from contextlib import asynccontextmanager

from lmos_actors import Agent

DAEMON = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.execve("/bin/sleep", ["sleep", sys.argv[1]], {} if sys.argv[2] == "bare" else os.environ)
"""


class Weather(Agent):
    """Starts programs."""

    @asynccontextmanager
    async def lifespan(self):
        seconds = os.environ["SECONDS"]
        subprocess.Popen(["sleep", seconds])
        subprocess.Popen(["sleep", seconds], start_new_session=True)
        for how in ("bare", "marked"):
            subprocess.run([sys.executable, "-c", DAEMON, seconds, how], check=True)
        yield
'''

DESK = """
lmos: deployment/v1
name: desk
agents:
  weather: {from: agent, use: "desk.py:Weather"}
groups:
  weather:
    agents: [weather]
    env: {SECONDS: "%d"ENVIRONMENT}
"""

FORKED, ANEW = "", ', PYTHONUNBUFFERED: "1"'
"""Variables of a process that is forked, and of one that has to be started anew."""

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator[Path]:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "desk.py").write_text(AGENTS, encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    yield tmp_path
    called(["down", "--file", "desk.yaml"], tmp_path, timeout=WAIT)
    for pid in programs():
        os.kill(pid, signal.SIGKILL)


def seconds() -> int:
    """Return a number that no other program of a test has."""
    return 40_000 + os.getpid()


def programs() -> list[int]:
    words = b"sleep\0%d\0" % seconds()
    return [pid for pid, shown in command_lines().items() if shown == words and not has_ended(pid)]


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(called(["status", "desk.yaml", "--json"], folder, timeout=WAIT).stdout)
    return found


def down(folder: Path) -> None:
    assert called(["down", "desk.yaml"], folder, timeout=WAIT).returncode == 0


def launcher_killed(folder: Path) -> None:
    os.kill(status(folder)["launcher_pid"], signal.SIGKILL)


def killed_twice(folder: Path) -> None:
    for restarts in (1, 2):
        os.kill(status(folder)["groups"]["weather"]["replicas"][0]["pid"], signal.SIGKILL)
        soon(lambda restarts=restarts: replica(folder)["restarts"] == restarts)
        soon(lambda: replica(folder)["state"] == "ready")
    left = sorted(programs())
    assert len(left) == 4, "of the present process alone"
    down(folder)


def replica(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = status(folder)["groups"]["weather"]["replicas"][0]
    return found


@pytest.mark.parametrize("environment", [FORKED, ANEW], ids=["forked", "anew"])
@pytest.mark.parametrize("end", [down, launcher_killed])
def test_no_program_outlives_its_process(folder: Path, end: Any, environment: str) -> None:
    begun(folder, environment)
    end(folder)
    soon(lambda: not programs())


def test_no_program_outlives_a_process_that_was_killed(folder: Path) -> None:
    begun(folder, FORKED)
    killed_twice(folder)
    soon(lambda: not programs())


def begun(folder: Path, environment: str) -> None:
    text = (DESK % seconds()).replace("ENVIRONMENT", environment)
    (folder / "desk.yaml").write_text(text, encoding="utf-8")
    done = called(["up", "desk.yaml", "--detach"], folder, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    assert len(programs()) == 4
