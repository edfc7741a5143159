"""`python -m tests.benchmarks.groups [ready] [idle] [call] [failover]`: groups of a deployment as processes.

Each figure is of `up` on a file that is written here. What is forked and what is started anew take turns: an
`env` with PYTHONHASHSEED, which is read when a process starts, has each process of a group started anew.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import PIPE
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import open_node
from tests.benchmarks import grouped, wire
from tests.benchmarks.grouped import Desk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from lmos_actors import Ref

ROUNDS = 3
SIZES = {1: 3, 10: 3, 50: 1}
"""Numbers of groups, and the rounds of each."""
IDLE = 10.0
ASKS = 3_000
KILLS = 20
FORKED: dict[str, str] = {}
ANEW = {"PYTHONHASHSEED": "random"}
PATIENCE = "5m"
AGENTS = Path(grouped.__file__)


class Running:
    """A deployment that runs, as its launcher tells of it."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.is_ready = trio.Event()
        self.members: dict[str, dict[str, Any]] = {}
        self._changed = trio.Event()

    async def read(self) -> None:
        """Take the lines of `up --json`."""
        rest = b""
        assert self.process.stdout is not None
        async for piece in self.process.stdout:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "process":
            self.members[event["name"]] = event
        elif event["event"] == "ready":
            self.is_ready.set()
        self._changed.set()
        self._changed = trio.Event()

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the processes."""
        while not holds():
            await self._changed.wait()

    def pids(self) -> list[int]:
        """Return the numbers of the processes of groups."""
        return [int(each["pid"]) for each in self.members.values()]


def deployment(groups: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a deployment of these groups, whose agents have the names of their classes."""
    agents: dict[str, dict[str, Any]] = {
        name: {"from": "agent", "use": f"{AGENTS.name}:{name.rstrip('0123456789').capitalize()}"}
        for group in groups.values()
        for name in group.get("agents", ())
    }
    if "desk" in agents:
        agents["desk"] |= {"args": {"clerk": "$(agents.clerk)"}}
    usual = {"env": dict(environment), "ready": PATIENCE, "max_restarts": 1_000}
    return {
        "lmos": "deployment/v1",
        "name": "measured",
        "agents": agents,
        "groups": {name: {**usual, **group} for name, group in groups.items()},
        "launcher": {"max_restarts": 1_000},
    }


def project_of(data: Mapping[str, Any], folder: Path) -> Path:
    """Write a project with a deployment and its agents; return the file of the deployment."""
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    shutil.copy(AGENTS, folder)
    file = folder / "measured.json"
    file.write_text(json.dumps(data))
    return file


@asynccontextmanager
async def running(data: Mapping[str, Any], *options: str) -> AsyncGenerator[Running]:
    """Run a deployment for the block, which begins before anything is ready. `options` are those of `up`."""
    with tempfile.TemporaryDirectory() as folder:
        file = project_of(data, Path(folder, "project"))
        words = (sys.executable, "-m", "lmos_actors", "up", file, "--state", folder, "--json", *options)
        async with trio.open_nursery() as nursery:
            process = await trio.lowlevel.open_process(list(map(str, words)), stdout=PIPE)
            try:
                found = Running(process)
                nursery.start_soon(found.read)
                yield found
            finally:
                process.terminate()
                with trio.CancelScope(shield=True):
                    await process.wait()


# ---- what is measured


async def ready(count: int, environment: Mapping[str, str], *options: str) -> tuple[float, float]:
    """Return the seconds from the command to all groups being ready, and the processor time to the end."""
    groups = {f"g{number}": {"agents": [f"clerk{number}"]} for number in range(count)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), clock()
    async with running(deployment(groups, environment), *options) as found:
        await found.is_ready.wait()
        taken = clock() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def idle(environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the MB of memory of a process of a group, shared parts in shares, and its wake-ups a second."""
    groups = {f"g{number}": {"agents": [f"clerk{number}"]} for number in range(10)}
    async with running(deployment(groups, environment)) as found:
        await found.is_ready.wait()
        await trio.sleep(1.0)
        before = sum(map(_switches, found.pids()))
        await trio.sleep(IDLE)
        woken = sum(map(_switches, found.pids())) - before
        memory = sum(map(_memory, found.pids()))
    return memory / 1e3 / len(groups), woken / IDLE / len(groups)


def _switches(pid: int) -> int:
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(number) for text in texts for number in re.findall(r"ctxt_switches:\s+(\d+)", text))


def _memory(pid: int) -> int:
    found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def _desk_and_clerk(replicas: int) -> dict[str, dict[str, Any]]:
    return {
        "registry": {"directory": True},
        "clerk": {"agents": ["clerk"], "register": "registry", "replicas": replicas},
        "desk": {"agents": ["desk"], "register": "registry"},
    }


@asynccontextmanager
async def desk_of(found: Running) -> AsyncGenerator[Ref[Desk]]:
    """Connect to the desk once all is ready."""
    await found.is_ready.wait()
    url = found.members["desk/1"]["urls"][0].replace("ws", "http", 1)
    async with open_node() as node:
        desk = await node.consume(Desk, f"{url}/agents/desk")
        await _answered(desk)  # `ready` says that it listens, and not yet that it is in the directory
        yield desk


async def call(*options: str) -> list[float]:
    """Return the rates of questions across groups; the first round warms up."""
    async with running(deployment(_desk_and_clerk(1), FORKED), *options) as found, desk_of(found) as desk:
        return [await desk.invoke(Desk.rate, ASKS) for _ in range(ROUNDS + 1)][1:]


async def failover(replicas: int, environment: Mapping[str, str]) -> list[float]:
    """Return the seconds from `kill -9` to the next answer, for each time."""
    taken: list[float] = []
    async with running(deployment(_desk_and_clerk(replicas), environment)) as found, desk_of(found) as desk:
        for number in range(KILLS):
            name = f"clerk/{number % replicas + 1}"
            victim = found.members[name]["pid"]
            os.kill(victim, signal.SIGKILL)
            began = clock()
            await _answered(desk)
            taken.append(clock() - began)
            await found.wait_until(partial(_is_back, found, name, victim))
    return sorted(taken)


async def _answered(desk: Ref[Desk]) -> None:
    while not await desk.invoke(Desk.once):  # noqa: ASYNC110 -- nothing says when it would
        await trio.sleep(0.001)


def _is_back(found: Running, name: str, before: int) -> bool:
    return found.members[name]["state"] == "ready" and found.members[name]["pid"] != before


# ---- the figures


def show(**figures: Any) -> None:
    """Print the figures of one line."""
    shown = {name: round(v, 3) if isinstance(v, float) else v for name, v in figures.items()}
    print(json.dumps(shown), flush=True)


def main(wanted: Sequence[str]) -> None:
    """Measure what is wanted, all if nothing is named."""
    if not wanted or "ready" in wanted:
        for count, times in SIZES.items():
            rounds = [(trio.run(ready, count, FORKED), trio.run(ready, count, ANEW)) for _ in range(times)]
            wall, cpu = (median(forked[n] for forked, _ in rounds) for n in (0, 1))
            wall_anew, cpu_anew = (median(anew[n] for _, anew in rounds) for n in (0, 1))
            ratios = {"ratio": wall / wall_anew, "cpu_ratio": cpu / cpu_anew}
            show(groups=count, forked=wall, anew=wall_anew, cpu=cpu, cpu_anew=cpu_anew, **ratios)
    if not wanted or "idle" in wanted:
        for name, environment in (("forked", FORKED), ("anew", ANEW)):
            memory, woken = trio.run(idle, environment)
            show(idle=name, megabytes=memory, wakeups=woken)
    if not wanted or "call" in wanted:
        wired = [wire.ask(ASKS) for _ in range(ROUNDS)]
        across = median(trio.run(call))
        wired += [wire.ask(ASKS) for _ in range(ROUNDS)]
        show(wire_ask=median(wired), across=across, ratio=across / median(wired))
    if not wanted or "failover" in wanted:
        for replicas, name, environment in ((1, "forked", FORKED), (1, "anew", ANEW), (2, "forked", FORKED)):
            taken = trio.run(failover, replicas, environment)
            show(failover=name, replicas=replicas, p50=median(taken), p99=taken[-1], times=len(taken))


if __name__ == "__main__":
    main(sys.argv[1:])
