"""Ctrl-C: real processes, real signals, real time, told apart by what they say over a pipe."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.commands import script_started

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 40.0  # seconds after which a process is taken to hang; none needs a tenth of it

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX has them")

PRELUDE = """
import sys
from contextlib import asynccontextmanager
from functools import partial

import trio

from lmos_actors import *

def say(*words):
    print(*words, flush=True)

class Worker(Agent):
    @action
    def hello(self) -> str:
        return "hello"

    @action
    async def sleep(self) -> None:
        await trio.sleep_forever()

    @action
    def spin(self) -> None:
        say("spinning")
        while True:
            pass

class Living(Worker):
    hang: str = ""

    @asynccontextmanager
    async def lifespan(self):
        try:
            if self.hang == "entering":
                say("entering", self.path)
                await trio.sleep_forever()
            yield
        finally:
            say("leaving", self.path)
            if self.hang == "leaving":
                try:
                    with trio.CancelScope(shield=False):
                        await trio.sleep_forever()
                finally:
                    say("left", self.path)

def spec(name, hang="", **options):
    return ChildSpec(name, partial(Living, hang=hang), **options)

"""

EPILOGUE = """
try:
    trio.run(main)
except KeyboardInterrupt:
    say("interrupted")
except BaseException as exc:
    say("ended with", type(exc).__name__, *map(repr, getattr(exc, "exceptions", ())))
    raise
else:
    say("ended well")
"""


class Process:
    """A script that runs, what it says, and what it is told."""

    def __init__(self, body: str) -> None:
        self._process = script_started(PRELUDE + textwrap.dedent(body) + EPILOGUE, ROOT)
        self._dog = threading.Timer(PATIENCE, self._process.kill)
        self._dog.start()
        self.said: deque[str] = deque()

    def wait_for(self, line: str) -> None:
        """Read until it says so."""
        assert self._process.stdout is not None
        while (heard := self._process.stdout.readline().strip()) != line:
            assert heard, f"it ended, having said {list(self.said)}: {self._errors()}"
            self.said.append(heard)
        self.said.append(line)

    def _errors(self) -> str:
        self._process.kill()
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[list[str], int]:
        """Give all that it said, and its exit code."""
        out, _ = self._process.communicate()
        self.said.extend(out.split("\n")[:-1])
        return list(self.said), self._process.wait()

    def close(self) -> None:
        self._dog.cancel()
        self._process.kill_all()
        self._process.close()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    for process in running:
        process.close()


@pytest.fixture
def start(processes: list[Process]):
    def begin(body: str) -> Process:
        processes.append(Process(body))
        return processes[-1]

    return begin


@pytest.mark.parametrize("how", ["asleep", "asking"])
def test_ctrl_c_stops_in_order(start, how: str):
    asking = how == "asking"
    process = start(f"""
        async def main():
            children = [spec("a"), spec("b"), spec("c", shutdown=0.0)]
            async with open_node(SupervisorSpec("root", children)) as node:
                try:
                    say("ready")
                    await {'node.root.child("c").invoke(Worker.sleep)' if asking else "trio.sleep_forever()"}
                finally:
                    say("body ends")
    """)
    process.wait_for("ready")
    process.interrupt()
    said, code = process.end()
    assert said == ["ready", "body ends", "leaving c", "leaving b", "leaving a", "interrupted"]
    assert code == 0


@pytest.mark.parametrize("shutdown", ["'infinity'", "3600.0"])
def test_a_second_ctrl_c_gives_nobody_more_time(start, shutdown: str):
    process = start(f"""
        async def main():
            children = [spec("a"), spec("b", "leaving", shutdown={shutdown}), spec("c")]
            async with open_node(SupervisorSpec("root", children)):
                say("ready")
                await trio.sleep_forever()
    """)
    process.wait_for("ready")
    process.interrupt()
    process.wait_for("leaving b")
    process.interrupt()
    said, code = process.end()
    assert said == ["ready", "leaving c", "leaving b", "left b", "leaving a", "interrupted"]
    assert code == 0


def test_a_second_ctrl_c_ends_runs_deep_in_the_tree(start):
    process = start("""
        async def main():
            inner = SupervisorSpec("s", [spec("a", shutdown="infinity"), spec("b")])
            async with open_node(SupervisorSpec("root", [inner, spec("c")])) as node:
                ref = node.root.supervisor("s").child("a")
                ref.tell_nowait(Worker.sleep)
                say("ready")
                await trio.sleep_forever()
    """)
    process.wait_for("ready")
    process.interrupt()
    process.wait_for("leaving s/b")
    process.interrupt()
    said, _ = process.end()
    assert said == ["ready", "leaving c", "leaving s/b", "leaving s/a", "interrupted"]


def test_a_second_ctrl_c_counts_whatever_code_it_hits(start):
    process = start("""
        class Asking(Worker):
            @asynccontextmanager
            async def lifespan(self):
                yield
                await self.find(Living, "b").invoke(Worker.spin)

        async def main():
            hanging = spec("d", "leaving", shutdown="infinity")
            children = [spec("a"), hanging, spec("b"), ChildSpec("c", Asking)]
            async with open_node(SupervisorSpec("root", children)):
                say("ready")
                await trio.sleep_forever()
    """)
    process.wait_for("ready")
    process.interrupt()
    process.wait_for("spinning")
    process.interrupt()
    said, _ = process.end()
    assert said[:2] == ["ready", "spinning"]
    assert set(said[2:-1]) == {"leaving b", "leaving d", "left d", "leaving a"}  # at once, in any order
    assert said[-1] == "interrupted"


def test_ctrl_c_while_the_tree_starts(start):
    process = start("""
        async def main():
            async with open_node(SupervisorSpec("root", [spec("a"), spec("b", "entering")])):
                say("never")
    """)
    process.wait_for("entering b")
    process.interrupt()
    said, _ = process.end()
    assert said == ["entering b", "leaving b", "leaving a", "interrupted"]


def test_ctrl_c_in_a_turn_ends_the_agent_and_leaves_the_run(start):
    """T5: the agent dies, whoever waits is answered."""
    process = start("""
        async def main():
            async def ask(ref, handle):
                try:
                    await ref.invoke(handle)
                except AgentDied as exc:
                    say("answered", handle.name, exc.started)
                except AgentUnavailable as exc:
                    say("answered", handle.name, exc.started)

            async with trio.open_nursery() as nursery:
                async with open_node(SupervisorSpec("root", [spec("a"), spec("b")])) as node:
                    ref = node.root.child("b")
                    nursery.start_soon(ask, ref, Worker.sleep)
                    await trio.testing.wait_all_tasks_blocked()
                    ref.tell_nowait(Worker.spin)
                    nursery.start_soon(ask, ref, Worker.hello)
                    await trio.sleep_forever()

        import trio.testing
    """)
    process.wait_for("spinning")
    process.interrupt()
    said, _ = process.end()
    assert said[0] == "spinning"
    assert set(said[1:-1]) == {"answered sleep True", "answered hello False", "leaving a", "leaving b"}
    assert said.index("leaving b") < said.index("leaving a")
    assert said[-1] in ("interrupted", "ended with BaseExceptionGroup KeyboardInterrupt()")


def test_ctrl_c_in_a_turn_that_the_body_asked_for(start):
    process = start("""
        async def main():
            async with open_node(SupervisorSpec("root", [spec("a"), spec("b")])) as node:
                await node.root.child("b").invoke(Worker.spin)
    """)
    process.wait_for("spinning")
    process.interrupt()
    said, _ = process.end()
    assert said == ["spinning", "leaving b", "leaving a", "interrupted"]


@pytest.mark.parametrize("where", ["constructor", "factory", "started"])
def test_ctrl_c_in_a_start_that_never_ends(start, where: str):
    process = start(f"""
        def loop(where):
            if where == {where!r}:
                say("making")
                while True:
                    pass

        class Slow(Worker):
            def __attrs_post_init__(self):
                loop("constructor")

            def started(self):
                loop("started")

        def factory():
            loop("factory")
            return Slow()

        async def main():
            async with open_node(SupervisorSpec("root", [spec("a"), ChildSpec("b", factory)])):
                say("never")
    """)
    process.wait_for("making")
    process.interrupt()
    said, _ = process.end()
    assert said == ["making", "leaving a", "interrupted"]


@pytest.mark.parametrize("where", ["timer", "periodic", "followed", "task"])
def test_ctrl_c_in_a_turn_that_nobody_asked_for(start, where: str):
    process = start(f"""
        class Source(Worker):
            news: Event[int] = event()

            @action
            def tick(self) -> None:
                self.news.emit(1)

        class Busy(Worker):
            where: str

            def started(self):
                if self.where == "timer":
                    self.after(0.001, self.loop)
                if self.where == "followed":
                    self.follow(self.find(Source), Source.news, self.heard)
                if self.where == "task":
                    self.nursery.start_soon(self.task)

            @every(0.001)
            def often(self):
                if self.where == "periodic":
                    self.loop()

            def heard(self, _):
                self.loop()

            async def task(self):
                self.loop()

            def loop(self):
                say("spinning")
                while True:
                    pass

        async def main():
            busy = ChildSpec("busy", partial(Busy, where={where!r}))
            async with open_node(SupervisorSpec("root", [spec("a"), ChildSpec("s", Source), busy])) as node:
                await node.root.child("s").tell(Source.tick)
                await trio.sleep_forever()
    """)
    process.wait_for("spinning")
    process.interrupt()
    said, _ = process.end()
    assert said == ["spinning", "leaving a", "interrupted"]


def test_a_node_in_a_task_of_its_own_is_stopped_in_order_too(start):
    process = start("""
        async def run_node():
            async with open_node(SupervisorSpec("root", [spec("a"), spec("b")])):
                say("ready")
                await trio.sleep_forever()

        async def main():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_node)
    """)
    process.wait_for("ready")
    process.interrupt()
    said, _ = process.end()
    assert said[:-1] == ["ready", "leaving b", "leaving a"]
    assert said[-1] == "ended with BaseExceptionGroup KeyboardInterrupt()"
