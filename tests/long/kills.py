"""python -m tests.long.kills [--pairs N] [--folder FOLDER] [--resume FILE]: kill -9 at every state change.

Runs a deployment of real processes with a fleet of clients, and restarts its groups again and again, process
by process. Each time one process is killed at one state change: the launcher, one that was there before, one
that has just been started, or the directory. The pairs are not listed: they are what the stories of
tests/deployment/processes/test_group.py go through, which reach every `State` and `Step` of the code.

After each kill the deployment has to be ready again with `up`, and at the end each request has to have ended
once, the counter to be exact, and no process to be left. Prints one line at the end. Without --pairs all.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter as Tally
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, get_args

import trio

from lmos_actors import open_node
from tests.deployment import fleet as agents
from tests.deployment.fleet import Counter, Fleet, Weather
from tests.deployment.processes.test_group import STORIES, Victim, cases
from tests.long.state import State, parser_of, say, verdict
from tests.processes import command_lines
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPLOYMENT = """
lmos: deployment/v1
name: fleet
agents:
  weather: {from: agent, use: "fleet.py:Weather", args: {file: begun}}
  counter: {from: agent, use: "fleet.py:Counter", key: main}
groups:
  registry: {directory: true, listen: "ws://127.0.0.1:PORT", max_restarts: 1000}
  weather:
    agents: [weather]
    register: registry
    replicas: 2
    drain: {timeout: 10s}
    max_restarts: 1000
  counter:
    agents: [counter]
    register: registry
    store: "sqlite:counter.db"
    max_restarts: 1000
"""
CLIENTS = 4
READY = 120.0
"""Seconds in which a deployment is ready after a kill, on a machine that is busy."""


def pairs() -> list[dict[str, Any]]:
    """Return each victim with each kind of change of each group, in both orders and with broken code."""
    found: dict[str, dict[str, Any]] = {}
    for name, story in STORIES.items():
        for victim in get_args(Victim):
            for change in cases(name, victim, has_fleet=False):
                command = {"order": story.order, "breaks": story.breaks, "victim": victim}
                command |= {"group": change.group, "what": change.what, "is_step": change.is_step}
                found.setdefault(json.dumps(command), command)
    return list(found.values())


class Kills:
    """One run."""

    def __init__(self, state: State, folder: Path, todo: list[dict[str, Any]]) -> None:
        self.state, self.folder, self.todo = state, folder, todo
        self.file = folder / "fleet.yaml"
        self.log = folder / "launcher.log"
        self.launchers = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    async def run(self) -> Tally[str]:
        """Go through all pairs. Returns the outcomes of requests. Raises AssertionError."""
        shutil.copy(agents.__file__, self.folder / "fleet.py")
        (self.folder / "pyproject.toml").write_text("")
        self.file.write_text(DEPLOYMENT.replace("PORT", str(self.port)))
        process = await self._launcher()
        async with open_node(lookup=f"http://127.0.0.1:{self.port}") as node:
            weather, counter = node.find(Weather, spread="round_robin"), node.find(Counter, id="main")
            fleet = Fleet(weather, counter, Random(1))
            await weather.ready()
            await counter.ready()
            async with trio.open_nursery() as nursery:
                for first in range(CLIENTS):
                    nursery.start_soon(fleet.ask, first)
                nursery.start_soon(fleet.add)
                for command in ({"order": order, "breaks": False} for order in ("start_first", "stop_first")):
                    await self._told(process, command)
                assert fleet.outcomes["unknown"] == fleet.outcomes["not found"] == 0, fleet.outcomes
                for command in self.todo:
                    process = await self._pair(process, command)
                    await fleet.go_on()
                await fleet.go_on()
                fleet.ending = True
            await counter.ready()
            total = await counter.invoke(Counter.read_total)
        assert process.stdin is not None
        await process.stdin.aclose()
        with trio.fail_after(READY):
            assert await process.wait() == 0
        assert self._left() == []
        assert total == fleet.added > 0
        self._check_accounts(fleet)
        return fleet.outcomes

    async def _pair(self, process: trio.Process, command: dict[str, Any]) -> trio.Process:
        answer = await self._told(process, command)
        name = json.dumps(command)
        if command["victim"] == "launcher":
            assert answer is None, f"{name}: {answer}"
            process = await self._launcher()
        else:
            assert answer is not None, f"{name}: the launcher has ended"
            assert answer["killed"], f"{name}: nobody was killed"
        self.state["done"].append(name)
        self.state.save()
        if len(self.state["done"]) % 10 == 0:
            say(f"{len(self.state['done'])} pairs, the last one {name}")
        return process

    async def _launcher(self) -> trio.Process:
        """Start a launcher; what is left of the one before ends first."""
        words = [sys.executable, "-m", "tests.long.killing_launcher", str(self.file)]
        with self.log.open("ab") as log:
            process = await trio.lowlevel.open_process(words, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=log)
        self.launchers += 1
        assert await self._line(process) == {"ready": True}, self.log.read_text()[-2000:]
        return process

    async def _told(self, process: trio.Process, command: dict[str, Any]) -> Any:
        assert process.stdin is not None
        await process.stdin.send_all(json.dumps(command).encode() + b"\n")
        return await self._line(process)

    async def _line(self, process: trio.Process) -> Any:
        """Return the next line of a launcher, None if it has ended."""
        assert process.stdout is not None
        text = b""
        with trio.fail_after(READY):
            while not text.endswith(b"\n"):
                piece = await process.stdout.receive_some()
                if not piece:
                    await process.wait()
                    return None
                text += piece
        return json.loads(text)

    def _left(self) -> list[str]:
        """Return the processes that were begun with the file."""
        file = os.fsencode(self.file)
        return [words.decode(errors="replace") for words in command_lines().values() if file in words]

    def _check_accounts(self, fleet: Fleet) -> None:
        begun = Tally(map(int, (self.folder / "begun").read_text().split()))
        assert set(begun.values()) == {1}
        assert set(begun) <= set(fleet.ended), "an accepted action has ended in silence"
        for number, outcome in fleet.ended.items():
            assert outcome == "unknown" or begun[number] == (outcome == "answered"), (number, outcome)


def main(args: Iterable[str] | None = None) -> int:
    """Be the command."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, help="so many of them, evenly chosen")
    parser.add_argument("--folder", type=Path, help="where the deployment is; a temporary one without it")
    given = parser.parse_args(None if args is None else list(args))
    every = pairs()
    step = 1 if given.pairs is None else max(1, len(every) // given.pairs)
    chosen = every[::step][: given.pairs]
    state = State(given.resume, {"pairs": given.pairs}, {"done": []})
    todo = [command for command in chosen if json.dumps(command) not in state["done"]]
    with tempfile.TemporaryDirectory() as temporary:
        run = Kills(state, (given.folder or Path(temporary)).resolve(), todo)
        outcomes = trio.run(run.run)
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(outcomes.items()))
    told = f"{len(state['done'])} of {len(every)} pairs, {run.launchers} launchers; requests: {counts}"
    return verdict(len(state["done"]) == len(chosen), f"{told}; {state.seconds:,.0f} s")


if __name__ == "__main__":
    sys.exit(main())
