"""Code that holds up the loop is named while it does: in processes of their own, in real time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import trio
import trio.lowlevel

from lmos_actors import Agent, action, open_node
from lmos_actors.actors import LoopWatch
from tests.source import ROOT

LIMIT = 60.0

PROGRAM = """
import threading, time, trio
from contextlib import asynccontextmanager
from lmos_actors import Agent, action, open_node
from lmos_actors.actors import _loop_watch
_loop_watch.LOOK = 0.02

def library():
    threading.Event().wait()

class Stuck(Agent):
    @action
    def turn(self):
        while True:
            pass

    @action
    async def run(self):
        await trio.sleep(0.1)
        library()

    @action
    async def timer(self):
        self.after(0.01, library)

    @action
    async def task(self):
        self.nursery.start_soon(self.other)

    async def other(self):
        library()

class Late(Agent):
    @asynccontextmanager
    async def lifespan(self):
        library()
        yield

class Quick(Agent):
    pass

async def main():
    async with open_node() as node:
        how = HOW
        await node.start(Quick)
        if how == "lifespan":
            await node.start(Late)
        elif how == "main":
            library()
        else:
            ref = await node.start(Stuck)
            await ref.tell(getattr(Stuck, how))
        await trio.sleep_forever()

trio.run(main)
"""

WAYS = {
    "turn": ("agent 'stuck' holds up its node, for 0.06 s so far:", "in turn"),
    "run": ("agent 'stuck' holds up its node", "in run"),
    "timer": ("agent 'stuck' holds up its node", "in library"),
    "task": ("agent 'stuck' holds up its node", "in other"),
    "lifespan": ("agent 'late' holds up its node", "in lifespan"),
    "main": ("the code of no agent holds up its node", "in main"),
}


@pytest.mark.slow
@pytest.mark.parametrize("warnings_are", ["default", "error"])
@pytest.mark.parametrize("way", WAYS)
def test_code_that_never_lets_go_is_named_while_it_runs(way: str, warnings_are: str) -> None:
    who, where = WAYS[way]
    with subprocess.Popen(
        [sys.executable, "-W", warnings_are, "-c", PROGRAM.replace("HOW", repr(way))],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        watch = threading.Timer(LIMIT, process.kill)
        watch.start()
        try:
            assert process.stderr is not None
            said = ""
            while where not in said and (line := process.stderr.readline()):
                said += line
        finally:
            watch.cancel()
            process.kill()
    assert who in said
    assert where in said


class Quick(Agent):
    @action
    async def work(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_nodes_of_a_run_have_one_thread_which_ends_with_the_last() -> None:
    def watching() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "lmos loop watch"]

    before = watching()
    async with open_node() as one:
        async with open_node() as other:
            for node in (one, other):
                await (await node.start(Quick)).invoke(Quick.work)
            (thread,) = [each for each in watching() if each not in before]
        await (await one.start(Quick)).invoke(Quick.work)
        assert thread.is_alive()
    thread.join(LIMIT)
    assert not thread.is_alive()


async def test_it_is_there_for_as_long_as_a_node_is() -> None:
    first = LoopWatch.join()
    assert LoopWatch.join() is first
    first.leave()
    first.leave()
    second = LoopWatch.join()
    assert second is not first
    second.leave()


@pytest.mark.slow
async def test_where_nothing_happens_the_thread_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask the loop fifteen times in these seconds."""
    token, asked = type(trio.lowlevel.current_trio_token()), list[Any]()
    ask = token.run_sync_soon

    def count(self: Any, call: Any, *args: Any, **more: Any) -> None:
        if threading.current_thread().name == "lmos loop watch":
            asked.append(call)
        ask(self, call, *args, **more)

    monkeypatch.setattr(token, "run_sync_soon", count)
    async with open_node() as node:
        await (await node.start(Quick)).invoke(Quick.work)
        await trio.sleep(3)
    assert 0 < len(asked) < 10
