"""`node.dump()` and SIGUSR1: what a node is doing, as text; bounded, and never an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import (
    Agent,
    ChildSpec,
    MailboxOptions,
    Node,
    SupervisorSpec,
    action,
    every,
    open_node,
    open_node_in_thread,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LIMIT = 30.0  # seconds until a test that hangs is given up


HELPERS = ("echo", "delta", "charlie", "bravo", "alpha")


class Clerk(Agent, mailbox=MailboxOptions(size=2)):
    """Works for a time, with helpers or without, and files notes between."""

    @action
    async def work(self) -> None:
        await trio.sleep_forever()

    @action
    async def delegate(self) -> None:
        async with trio.open_nursery() as nursery:
            for name in HELPERS:
                nursery.start_soon(helper, 1e6, name=name)

    @action
    def note(self, text: str) -> None:
        if text == "crash":
            raise KeyError(text)

    @action
    def remind(self, seconds: float) -> None:
        self.after(seconds, self.reminded)

    def reminded(self) -> None:
        pass

    @action
    def hire(self) -> None:
        self.nursery.start_soon(helper, 1e6, name="employee")


async def helper(seconds: float) -> None:
    await trio.sleep(seconds)


def lines_about(text: str, name: str) -> list[str]:
    """The lines of one agent and what stands below it."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.lstrip().startswith(f"{name} ("))
    indent = len(lines[first]) - len(lines[first].lstrip())
    below = next(
        (n for n in range(first + 1, len(lines)) if len(lines[n]) - len(lines[n].lstrip()) <= indent),
        len(lines),
    )
    return lines[first:below]


async def test_mailboxes_accounts_timers_and_stacks(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("clerk", Clerk))
        await ref.invoke(Clerk.remind, 5.0)
        for _ in range(4):
            nursery.start_soon(ref.invoke, Clerk.work)
        nursery.start_soon(ref.invoke, Clerk.delegate)
        await settle()
        text = node.dump()
        about = lines_about(text, "clerk")
        assert about[0] == (
            "  clerk (Clerk), running #1, mailbox 2/2, 2 parked, 2 in line for a run, 1 running, 1 timers, "
            "the next in 5 s"
        )
        assert about[1] == "    accepted 4 = 1 handled + 2 waiting + 1 running"
        assert about[2] == "    run of 'work' for user code"
        assert about[3].endswith("in work")
        assert about[4].strip() == "await trio.sleep_forever()"
        assert len(about) == 5, "the runtime's own calls are left out"
        assert text.splitlines()[0].endswith(" UTC; agents: 1 running")
        assert "waits for room for one more run of 'work' in clerk" in text
        nursery.cancel_scope.cancel()


async def test_tasks_below_runs_and_in_nurseries(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await node.start(Clerk)
        await ref.invoke(Clerk.hire)
        nursery.start_soon(ref.invoke, Clerk.delegate)
        await settle()
        stripped = [line.strip() for line in lines_about(node.dump(), "clerk")]
        for name in (*HELPERS, "employee"):
            place = stripped.index(f"task '{name}'")
            assert stripped[place + 2] == "await trio.sleep(seconds)"
        tasks = [line for line in stripped if line.startswith("task")]
        assert tasks == [f"task '{name}'" for name in (*sorted(HELPERS), "employee")]
        nursery.cancel_scope.cancel()


async def test_dead_letters_restarts_and_depth(virtual_clock: VirtualClock) -> None:
    spec = SupervisorSpec("root", [SupervisorSpec("office", [ChildSpec("clerk", Clerk)])])
    async with open_test_node(spec) as node:
        ref = node.find(Clerk)
        for text in ("crash", "lost"):
            ref.tell_nowait(Clerk.note, text)
        await settle()
        text = node.dump()
        assert "  office (one_for_one), running #1, children: 1" in text
        assert "    clerk (Clerk), running #2" in text
        assert "dead letters: 1, the last 1:" in text
        assert "  'note' from user code to office/clerk: ('lost',) (KeyError: 'crash')" in text


class Boss(Agent):
    """Has a clerk of its own."""

    @action
    async def hire(self) -> None:
        clerk = await self.start(Clerk)
        await clerk.tell(Clerk.work)


async def test_children_of_agents(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        boss = await node.start(Boss)
        await boss.invoke(Boss.hire)
        await settle()
        about = lines_about(node.dump(), "boss")
        assert "    clerk (Clerk), running #1, mailbox 0/2, 1 running" in about
        assert "      run of 'work' for boss" in about


async def test_a_turn_in_progress(virtual_clock: VirtualClock) -> None:
    class Looking(Agent):
        @action
        def look(self) -> str:
            return found.dump()

    async with open_test_node() as found:
        ref = await found.start(Looking)
        lines = (await ref.invoke(Looking.look)).splitlines()
        place = lines.index("turn in progress: 'look' of looking")
        assert lines[place + 1].endswith("in look")
        assert lines[place + 2].strip() == "return found.dump()"
        assert lines[place + 3].startswith("root (")
        assert "turn in progress" not in found.dump()


async def test_a_lifespan_that_hangs(virtual_clock: VirtualClock) -> None:
    class Slow(Agent):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            await helper(30)
            yield

    async with open_test_node() as node, trio.open_nursery() as nursery:
        nursery.start_soon(node.start, Slow)
        await settle()
        stripped = [line.strip() for line in lines_about(node.dump(), "slow")]
        assert stripped[0] == "slow (Slow), starting #0, mailbox 0/64"
        assert "await helper(30)" in stripped
        assert "await trio.sleep(seconds)" in stripped
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_many_agents_are_counted_and_those_with_news_shown(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        refs = await node.root.start_many(ChildSpec("clerk", Clerk), 100_000)
        nursery.start_soon(refs[77].invoke, Clerk.work)
        await settle()
        lines = node.dump().splitlines()
        assert len(lines) < 20
        assert "  ... and 99999 Clerk" in lines
        assert "  clerk-78 (Clerk), running #1, mailbox 0/2, 1 running" in lines
        for ref in refs[:1000]:
            nursery.start_soon(ref.invoke, Clerk.work)
        await settle()
        lines = node.dump().splitlines()
        assert len(lines) < 1500
        assert "  ... and 99900 Clerk" in lines
        nursery.cancel_scope.cancel()


class Hostile(Agent):
    """Everything that may raise does."""

    secret: object = None

    def __repr__(self) -> str:
        raise ValueError("no")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    def __hash__(self) -> int:
        raise ValueError("no")

    @action
    async def work(self) -> None:
        await trio.sleep_forever()

    @action
    def note(self, text: str) -> None:
        raise KeyError(text)


async def test_agents_cannot_make_it_raise(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        ref = await node.start(Hostile)
        await ref.tell(Hostile.work)
        await settle()
        text = node.dump()
        assert "run of 'work' for user code" in text
        assert "cannot be read" not in text


async def test_what_cannot_be_read_is_said_and_the_rest_goes_on(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise LookupError

    async with open_test_node() as node:
        ref = await node.start(Clerk)
        await node.start(Hostile)
        ref.tell_nowait(Clerk.note, "crash")
        ref.tell_nowait(Clerk.note, "lost")
        await settle()
        with monkeypatch.context() as patch:
            patch.setattr("lmos_actors.actors.slot._slot.Slot.mailbox_statistics", broken)
            patch.setattr("lmos_actors.observe._dump.waiting_graph", broken)
            lines = node.dump().splitlines()
        assert lines.count("  ... an agent cannot be read: LookupError") == 2
        assert "... waiting cannot be read: LookupError" in lines
        assert "dead letters: 1, the last 1:" in lines


async def test_the_same_run_gives_the_same_dump() -> None:
    async def main() -> str:
        async with open_test_node(seed=3) as node, trio.open_nursery() as nursery:
            refs = [await node.start(Clerk) for _ in range(5)]
            for ref in refs:
                nursery.start_soon(ref.invoke, Clerk.delegate)
            await settle()
            text = node.dump()
            nursery.cancel_scope.cancel()
            return text

    texts = [await trio.to_thread.run_sync(lambda: trio.run(main, clock=VirtualClock())) for _ in range(2)]
    assert texts[0] == texts[1]


def test_a_node_of_another_thread_that_is_held_up() -> None:
    class Held(Agent):
        @action
        def block(self) -> None:
            inside.set()
            release.wait(LIMIT)

    inside, release = threading.Event(), threading.Event()
    nodes: list[Node] = []

    async def main() -> None:
        async with open_node() as node:
            nodes.append(node)
            ref = await node.start(Held)
            await ref.tell(Held.block)
            await ref.ready()
            await trio.lowlevel.checkpoint()

    def quiet() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trio.run(main)

    thread = threading.Thread(target=quiet)
    thread.start()
    try:
        assert inside.wait(LIMIT)
        text = nodes[0].dump()
    finally:
        release.set()
        thread.join(LIMIT)
    assert "turn in progress: 'block' of held" in text
    assert "release.wait(LIMIT)" in text


# ---- the signal

has_signal = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 on this system")

STUCK = """
import sys, trio
from lmos_actors import Agent, action, open_node

class Stuck(Agent):
    @action
    def spin(self):
        print("ready", flush=True)
        while True:
            pass

    @action
    async def wait(self):
        print("ready", flush=True)
        await trio.sleep_forever()

async def main():
    async with open_node() as node:
        ref = await node.start(Stuck)
        await ref.invoke(getattr(Stuck, sys.argv[1]))

trio.run(main)
"""


@pytest.mark.slow
@has_signal
@pytest.mark.parametrize(
    ("verb", "shown"), [("spin", "turn in progress: 'spin' of stuck"), ("wait", "run of 'wait'")]
)
def test_a_process_that_is_stuck_tells_why(verb: str, shown: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, verb],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        watch = threading.Timer(LIMIT, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGUSR1)
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line.rstrip("\n"))
                if shown in "\n".join(lines) and "stuck (Stuck)" in "\n".join(lines):
                    break
        finally:
            watch.cancel()
            process.kill()
    text = "\n".join(lines)
    assert shown in text
    assert "stuck (Stuck), running #1" in text
    assert text.count("node at ") == 1


@has_signal
async def test_the_handler_is_there_while_a_node_is_open(capfd: pytest.CaptureFixture[str]) -> None:
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    async with open_node():
        async with open_node() as inner:
            await inner.start(Clerk)
            signal.raise_signal(signal.SIGUSR1)
            assert capfd.readouterr().err.count("node at ") == 2, "each open node"
        signal.raise_signal(signal.SIGUSR1)
        assert capfd.readouterr().err.count("node at ") == 1
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@has_signal
def test_the_handler_is_there_for_a_node_in_a_thread_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    with open_node_in_thread() as portal:
        portal.start(Clerk)
        signal.raise_signal(signal.SIGUSR1)
        assert "clerk (Clerk), running #1" in capfd.readouterr().err
        other = open_node_in_thread()
        other.close()
        assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


class Ticking(Agent):
    @every(100.0)
    def tick(self) -> None:
        pass


async def test_timers_of_another_run_are_counted_and_not_dated() -> None:
    other = open_node_in_thread()
    try:
        await trio.to_thread.run_sync(other.portal.start, Ticking)
        async with open_node() as mine:
            await mine.start(Ticking)
            assert "1 timers, the next in " in mine.dump()
            assert "1 timers" in other.node.dump()
            assert "the next" not in other.node.dump()
    finally:
        other.close()


@has_signal
async def test_the_handlers_of_others_stay() -> None:
    def mine(*_: object) -> None:
        pass

    signal.signal(signal.SIGUSR1, mine)
    try:
        async with open_node():
            assert signal.getsignal(signal.SIGUSR1) is mine
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        async with open_node():
            signal.signal(signal.SIGUSR1, mine)
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@has_signal
async def test_on_virtual_time_and_in_other_threads_there_is_no_handler(virtual_clock: VirtualClock) -> None:
    async with open_test_node():
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@has_signal
def test_a_node_of_another_thread_sets_no_handler() -> None:
    async def main() -> object:
        async with open_node():
            return signal.getsignal(signal.SIGUSR1)

    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(trio.run(main)))
    thread.start()
    thread.join(LIMIT)
    assert found == [signal.SIG_DFL]
