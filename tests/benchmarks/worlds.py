"""Worlds of files: populations that start, short scenarios in great number, a page of many messages."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from lmos_actors.reports import FileResult, html_page
from lmos_actors.scenario.format import resolve
from lmos_actors.scenario.run import run_cell
from tests.benchmarks.ours import resident
from tests.reports.sample_results import line, run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).resolve().parent / "files"


def _crowd(count: int, look: Callable[[], float]) -> float:
    found: list[float] = []
    before = look()
    resolved = resolve(FILES / "crowd.yaml", settings={"count": str(count)})
    ran = run_cell(
        resolved, resolved.cells[0], 1, on_start=lambda _: found.append(look() - before), whole_log=False
    )
    assert ran.ended == "passed", ran.failures
    return found[0]


def start(n: int) -> float:
    """Seconds from the file to a population of `n` that runs, in a world that logs and judges."""
    return _crowd(n, clock)


def memory(n: int) -> float:
    """Bytes of this process per agent of such a population."""
    return _crowd(n, lambda: float(resident())) / n


def short(n: int) -> float:
    """Seconds for a thousand short scenarios, one after another, in this process."""
    resolved = resolve(FILES / "short.yaml", seeds=range(n))
    began = clock()
    for cell in resolved.cells:
        ran = run_cell(resolved, cell, 1, whole_log=False)
        assert ran.ended == "passed", ran.failures
    return (clock() - began) * 1000 / n


def short_by_command(workers: int, n: int) -> float:
    """The same by the command, from its start to its end, with so many workers."""
    options = ["--seeds", f"1..{n}", "-j", str(workers)]
    command = [sys.executable, "-m", "lmos_actors", "run", str(FILES / "short.yaml"), *options]
    began = clock()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return (clock() - began) * 1000 / n


def explored(n: int) -> float:
    """Schedules of a search by `explore` for a second of processor time.

    It is the time of all its processes, from their start on. Nothing fails.
    """
    with TemporaryDirectory() as folder:
        file = shutil.copy(FILES / "explored.yaml", folder)
        Path(folder, "pyproject.toml").touch()
        command = [sys.executable, "-m", "lmos_actors", "explore", file, "--runs", str(n), "--json"]
        began = _of_children()
        ran = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        took = _of_children() - began
    assert json.loads(ran.stdout)["runs"] == n
    return n / took


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def page(n: int) -> float:
    """Milliseconds to make the HTML file of one run with `n` messages among a thousand agents."""
    log = ['{"schema":"lmos-actors/trace/v1","seed":1}']
    add: Callable[..., None] = partial(_add, log)
    for number in range(1, n + 1):
        agent, sender = f"peer/{number * 7 % 1000}", f"peer/{number * 3 % 1000}"
        said: dict[str, Any] = {"affordance": "rumour", "id": number}
        given = {"from": sender, "input": {"text": "the bridge is open"}, "trace": number, "verb": "tell"}
        add("sent", agent, **said, **given)
        add("delivered", agent, **said)
        add("answered", agent, **said, value=None)
    ran = run(log=tuple(log), logged=len(log) - 1)
    results = [FileResult(file="story.yaml", name="story", pass_rate=1.0, trials=1, cells=1, runs=[ran])]
    began = clock()
    text = html_page(results, title="story")
    took = clock() - began
    assert len(text) > n
    return took * 1000


def _add(log: list[str], kind: str, agent: str, **fields: Any) -> None:
    log.append(line(len(log), kind, agent, len(log) / 1000, **fields))
