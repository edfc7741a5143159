"""Processes that a place forks: only in their parent they differ from those that are started anew."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.deployment.processes import LocalPlace, Order
from lmos_actors.errors import StartFailed
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from lmos_actors.deployment.processes import Process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing is forked on this system"),
]

PR_SET_CHILD_SUBREAPER = 36
MODULES = ("lmos_actors.actors._agent", "lmos_actors.cli._dispatch", "lmos_actors.cli.commands._serve")
SURROUNDINGS = """
import json, locale, os, random, re, resource, signal, sys, time
from pathlib import Path
from lmos_actors import Agent

IMPORTED_IN = os.getpid()
STATUS = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines())

def kinds() -> list[str]:
    links = [f"{number} {os.readlink('/proc/self/fd/' + number)}" for number in os.listdir("/proc/self/fd")
             if os.path.exists("/proc/self/fd/" + number)]
    return sorted(re.sub(r"\\[\\d+\\]", "", link) for link in links if int(link.split()[0]) < 64)

def stream(one):
    said = [one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty(), one.seekable()]
    return [one.fileno(), type(one.buffer).__name__, *said]

class Probe(Agent):
    def started(self) -> None:
        alike = {
            "argv": sys.argv, "path": sys.path, "flags": list(map(str, sys.flags)), "cwd": os.getcwd(),
            "main": [sys.modules["__main__"].__file__, sys.modules["__main__"].__name__],
            "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
            "own streams": [stream(one) for one in (sys.__stdin__, sys.__stdout__, sys.__stderr__)],
            "files": kinds(), "zone": time.tzname,
            "environment": {name: text for name, text in os.environ.items() if name != "LMOS_ACTORS_PROCESS"},
            "limits": [resource.getrlimit(number) for number in range(10)],
            "signals": {key: STATUS[key] for key in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")},
            "umask": STATUS["Umask"], "uids": STATUS["Uid"], "groups": STATUS["Groups"],
            "locale": locale.setlocale(locale.LC_ALL), "leader": os.getsid(0) == os.getpgrp() == os.getpid(),
            "imported here": IMPORTED_IN == os.getpid(),
            "shown": Path("/proc/self/cmdline").read_text().replace("\\0", " ").strip(),
        }
        own = {"parent": os.getppid(), "random": random.random(), "uuid": os.urandom(8).hex()}
        print(json.dumps({"alike": alike, "own": own}), flush=True)
"""
FILE = """
lmos: deployment/v1
name: probe
agents: {probe: {from: agent, use: "probe.py:Probe"}}
groups: {all: {directory: true, register: all, agents: [probe]}}
"""
LAUNCHER = """
import sys, trio
from pathlib import Path
from lmos_actors.deployment.processes import LocalPlace, Order
from lmos_actors.errors import StartFailed

async def main():
    place = LocalPlace(Path("records"), sys.argv[1:])
    words = ("serve", "probe.yaml", "--group", "all", "--launched")
    process = await place.start(Order(name="all/1", arguments=words))
    async for piece in process.output():
        print(piece.decode(), end="", flush=True)

trio.run(main)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "probe.py").write_text(SURROUNDINGS)
    (tmp_path / "probe.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@asynccontextmanager
async def place_in(folder: Path, *modules: str) -> AsyncGenerator[LocalPlace]:
    place = LocalPlace(folder / "records", modules)
    try:
        yield place
    finally:
        await place.aclose()


def order(*words: str, environment: Mapping[str, str] | None = None) -> Order:
    return Order(name="all/1", arguments=words, environment=environment or {})


SERVE = order("serve", "probe.yaml", "--group", "all", "--launched")


async def seen_in(process: Process) -> dict[str, Any]:
    """Read up to the line of the agent; where it listens is said before that."""
    said = b""
    async with aclosing(process.output()) as pieces:
        async for piece in pieces:
            said += piece
            *whole, _ = said.split(b"\n")
            if any(b'"alike"' in line for line in whole):
                break
    found: dict[str, Any] = json.loads(next(line for line in said.split(b"\n") if b'"alike"' in line))
    return found


async def all_of(process: Process) -> tuple[bytes, int | None]:
    said = b"".join([piece async for piece in process.output()])
    return said + b"".join([piece async for piece in process.errors()]), await process.wait()


def number_of(process: Process) -> int:
    return int(process.id)


def wait_gone(pid: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 30)[0], f"process {pid} did not end"
    finally:
        os.close(handle)


def wait_others_gone(server: int, pid: str) -> None:
    """Wait until a process has no child but one."""
    for other in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        if other != pid:
            wait_gone(int(other))


async def test_what_is_forked_is_as_what_is_started_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOTH", "\udcff ä")  # no text in UTF-8, which an environment may have
    asked = order(*SERVE.arguments, environment={"OWN": "x", "TZ": "Asia/Tokyo"})
    async with place_in(folder, *MODULES) as forking, place_in(folder) as plain:
        first, second, anew = [await place.start(asked) for place in (forking, forking, plain)]
        others = [await seen_in(process) for process in (first, second, anew)]
        for process in (first, second, anew):
            process.stop()
            assert await process.wait() == 0
    one, two, three = others
    assert one["alike"] == three["alike"]
    assert two["alike"] == three["alike"]
    assert one["own"]["parent"] == two["own"]["parent"] != os.getpid() == three["own"]["parent"]
    assert one["own"]["random"] != two["own"]["random"]
    wait_gone(one["own"]["parent"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--version"], 0, b"."),
        (["serv"], 2, b'did you mean "serve"?'),
        (["serve", "no.yaml", "--group", "x"], 2, b"no"),
    ],
)
async def test_output_and_exit_code(folder: Path, words: list[str], code: int, said: bytes) -> None:
    async with place_in(folder, *MODULES) as place:
        text, ended = await all_of(await place.start(order(*words)))
        assert ended == code
        assert said in text


async def test_signals_are_reported(folder: Path) -> None:
    async with place_in(folder, *MODULES) as place:
        killed, stopped = await place.start(SERVE), await place.start(SERVE)
        await seen_in(killed)
        await seen_in(stopped)
        killed.kill()
        assert await killed.wait() == -signal.SIGKILL
        killed.kill()  # which does nothing any more
        killed.stop()
        async with trio.open_nursery() as nursery:  # two wait, and one of them no longer
            nursery.start_soon(stopped.wait)
            with trio.move_on_after(0):
                await stopped.wait()
            stopped.stop()
            assert await stopped.wait() == 0


async def test_a_server_that_is_killed_ends_nothing(folder: Path) -> None:
    async with place_in(folder, *MODULES) as place:
        orphan = await place.start(SERVE)
        server = (await seen_in(orphan))["own"]["parent"]
        os.kill(server, signal.SIGKILL)
        other = await place.start(SERVE)
        assert (await seen_in(other))["own"]["parent"] not in (server, os.getpid())
        with trio.move_on_after(0.05) as scope:
            await orphan.wait()
        assert scope.cancelled_caught
        orphan.stop()
        assert await orphan.wait() is None  # it has ended, and its code is known to nobody
        other.stop()
        assert await other.wait() == 0


async def test_orphans_of_a_killed_server_are_reaped_by_a_launcher_that_gets_them(
    folder: Path,
) -> None:
    adopt = partial(ctypes.CDLL(None).prctl, PR_SET_CHILD_SUBREAPER)
    async with place_in(folder, *MODULES) as place:
        killed, stopped = await place.start(SERVE), await place.start(SERVE)
        server = (await seen_in(killed))["own"]["parent"]
        await seen_in(stopped)
        assert adopt(1, 0, 0, 0) == 0
        try:
            os.kill(server, signal.SIGKILL)
            killed.kill()
            assert await killed.wait() == -signal.SIGKILL
            stopped.stop()
            assert await stopped.wait() == 0
        finally:
            adopt(0, 0, 0, 0)
        assert not {killed.id, stopped.id}.intersection(os.listdir("/proc"))


async def test_a_server_that_cannot_begin_is_done_without(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with place_in(folder, "no_such_module") as place:
        process = await place.start(SERVE)
        assert (await seen_in(process))["own"]["parent"] == os.getpid()
        process.stop()
        assert await process.wait() == 0
    assert "No module named 'no_such_module'" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LANG"])
async def test_variables_that_are_read_at_a_start_have_one(folder: Path, name: str) -> None:
    async with place_in(folder, *MODULES) as place:
        process = await place.start(order(*SERVE.arguments, environment={name: "1"}))
        assert (await seen_in(process))["own"]["parent"] == os.getpid()
        process.stop()
        assert await process.wait() == 0


async def test_a_start_that_is_given_up_leaves_no_process(folder: Path) -> None:
    async with place_in(folder, *MODULES) as place:
        with trio.move_on_after(0.001) as scope:
            await place.start(SERVE)
        assert scope.cancelled_caught
        process = await place.start(SERVE)
        server = (await seen_in(process))["own"]["parent"]
        await trio.to_thread.run_sync(wait_others_gone, server, process.id)
        process.stop()
        assert await process.wait() == 0


async def test_a_start_without_free_descriptors_keeps_none(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with place_in(folder, *MODULES) as place:
        process = await place.start(SERVE)
        await seen_in(process)
        before = set(os.listdir("/proc/self/fd"))  # with one that is free again
        numbers = (number for number in range(len(before) + 20) if str(number) not in before)
        for _, limit in zip(range(1, 9), numbers, strict=False):  # it needs nine
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
            try:
                with pytest.raises(StartFailed, match=r"too many open files: .*ulimit -n"):
                    await place.start(SERVE)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert set(os.listdir("/proc/self/fd")) == before
        process.stop()
        assert await process.wait() == 0


async def test_the_last_descriptor_may_be_taken_before_the_answer(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with place_in(folder, *MODULES) as place:
        process = await place.start(SERVE)
        server = (await seen_in(process))["own"]["parent"]
        os.kill(server, signal.SIGSTOP)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refused_to, place)
                await trio.testing.wait_all_tasks_blocked()
                with open(os.devnull, "rb") as lowest:  # noqa: ASYNC230 - it does not block
                    free = lowest.fileno()
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
                os.kill(server, signal.SIGCONT)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await trio.to_thread.run_sync(wait_others_gone, server, process.id)
        process.stop()
        assert await process.wait() == 0


async def refused_to(place: LocalPlace) -> None:
    with pytest.raises(StartFailed, match="too many open files"):
        await place.start(SERVE)


@pytest.mark.parametrize("modules", [MODULES, ()], ids=["forked", "anew"])
def test_the_end_of_the_launcher_ends_all(folder: Path, modules: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", LAUNCHER, *modules]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        line = next(line for line in launcher.stdout if '"own"' in line)
        parent = json.loads(line)["own"]["parent"]
        process = int((folder / "records").read_text().split()[0])
        launcher.kill()
    wait_gone(process)
    if modules:
        wait_gone(parent)
