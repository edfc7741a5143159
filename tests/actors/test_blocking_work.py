"""`self.to_thread` and `self.to_process`: real threads and processes, told apart by events and their ids."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import trio
import trio.testing

from lmos_actors import (
    Agent,
    AgentDied,
    ConfigError,
    Property,
    SupervisorSpec,
    action,
    current_request,
    open_node,
    prop,
    simulate,
)
from lmos_actors.actors import _blocking_work
from lmos_actors.errors import ForbiddenCall, WorkerDied
from lmos_actors.testing import open_test_node
from tests.actors.outside_work import (
    Unloadable,
    double,
    failing,
    leaving,
    nothing,
    odd_failure,
    odd_result,
    say_and_wait,
    talkative,
    unspeakable,
)
from tests.processes import children_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 20.0
FORGIVING = SupervisorSpec("root", max_restarts=100)
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes are used as POSIX has them")


class Worker(Agent):
    noted: Property[str] = prop(default="")
    seen: ClassVar[Any] = None
    error: ClassVar[BaseException | None] = None

    @action(concurrency=100)
    async def thread(self, fn: int) -> None:
        type(self).seen = await self.to_thread(JOBS[fn])

    @action(concurrency=100)
    async def process(self, fn: int) -> None:
        try:
            type(self).seen = await self.to_process(JOBS[fn])
        except Exception as exc:
            type(self).error = exc
            raise

    @action
    async def abandoning(self, fn: int) -> None:
        await self.to_thread(JOBS[fn], abandon=True)

    @action
    async def twice(self, number: int) -> None:
        type(self).seen = await self.to_process(double, number)

    @action
    def turn(self, verb: str) -> None:
        getattr(self, verb)(os.getpid)


JOBS: list[Callable[[], Any]] = []


def job(fn: Callable[[], Any]) -> int:
    JOBS.append(fn)
    return len(JOBS) - 1


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Worker.seen = Worker.error = None
    yield
    JOBS.clear()


# ---- threads


async def test_a_thread_gives_its_value_and_the_node_goes_on_meanwhile() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def blocking() -> int:
        entered.set()
        assert go_on.wait(PATIENCE)
        return threading.get_ident()

    async with open_node() as node, trio.open_nursery() as nursery:
        worker = await node.start(Worker)
        nursery.start_soon(worker.invoke, Worker.thread, job(blocking))
        await trio.to_thread.run_sync(entered.wait)
        assert await worker.read(Worker.noted) == "", "turns go on beside it"
        go_on.set()
    assert Worker.seen not in (None, threading.get_ident())


async def test_an_exception_of_a_thread_is_the_agents() -> None:
    def failing() -> None:
        raise KeyError("in the thread")

    async with open_node(FORGIVING) as node:
        worker = await node.start(Worker)
        async with worker.monitor() as downs:
            with pytest.raises(AgentDied, match="KeyError") as caught:
                await worker.invoke(Worker.thread, job(failing))
            assert caught.value.started
            down = await downs.receive()
        assert isinstance(down.reason.error, KeyError)


async def test_context_variables_are_carried_and_changes_stay_there() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def look() -> tuple[str, str]:
        before = variable.get()
        variable.set("in the thread")
        return before, current_request().affordance

    class Carrying(Agent):
        @action
        async def go(self) -> tuple[str, str, str]:
            variable.set("in the run")
            return (*await self.to_thread(look), variable.get())

    async with open_node() as node:
        ref = await node.start(Carrying)
        assert await ref.invoke(Carrying.go) == ("in the run", "go", "in the run")


async def test_a_thread_of_a_task_is_not_told_of_another_agents_turn() -> None:
    entered, asked = threading.Event(), threading.Event()
    told: list[object] = []

    def look() -> None:
        entered.set()
        assert asked.wait(PATIENCE)
        try:
            told.append(current_request())
        except LookupError as exc:
            told.append(exc)

    class Tasking(Agent):
        def started(self) -> None:
            self.nursery.start_soon(self.to_thread, look)

        @action
        def hold(self) -> None:
            asked.set()
            while not told:
                pass

    async with open_node() as node:
        ref = await node.start(Tasking)
        await trio.to_thread.run_sync(entered.wait)
        await ref.invoke(Tasking.hold)
    assert isinstance(told[0], LookupError)


@pytest.mark.parametrize("abandon", [False, True])
async def test_a_cancelled_run_waits_for_its_thread_or_abandons_it(abandon: bool) -> None:
    entered, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def blocking() -> None:
        entered.set()
        assert go_on.wait(PATIENCE)
        ended.set()

    async with open_node(FORGIVING) as node:
        worker = await node.start(Worker)
        verb = Worker.abandoning if abandon else Worker.thread
        async with worker.begin(verb, job(blocking)):
            await trio.to_thread.run_sync(entered.wait)
        assert worker.statistics().cancelled == 1, "whoever asked does not wait"
        stopped = trio.Event()

        async def stop() -> None:
            await node.root.terminate_child("worker")
            stopped.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            if abandon:
                await stopped.wait()
                assert not ended.is_set(), "nobody waits for the thread"
            else:
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert not stopped.is_set(), "the run unwinds when the thread has ended"
            go_on.set()
        await trio.to_thread.run_sync(ended.wait)


async def test_threads_of_a_node_are_limited_and_its_own() -> None:
    release, most, lock = threading.Event(), [0, 0], threading.Lock()
    full = threading.Event()

    def blocking() -> None:
        with lock:
            most[0] += 1
            most[1] = max(most)
            if most[0] == 3:
                full.set()
        assert release.wait(PATIENCE)
        with lock:
            most[0] -= 1

    async with open_node(threads=3) as node:
        worker = await node.start(Worker)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(worker.invoke, Worker.thread, job(blocking))
            await trio.to_thread.run_sync(full.wait)
            assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
            release.set()
    assert most == [0, 3]


@pytest.mark.parametrize("verb", ["to_thread", "to_process"])
async def test_a_turn_cannot_await_them(verb: str) -> None:
    async with open_node(FORGIVING) as node:
        worker = await node.start(Worker)
        async with worker.monitor() as downs:
            with pytest.raises(AgentDied, match=rf"self\.{verb}\(\.\.\.\) has to be awaited"):
                await worker.invoke(Worker.turn, verb)
            assert isinstance((await downs.receive()).reason.error, RuntimeError)


@pytest.mark.parametrize("verb", ["to_thread", "to_process"])
@pytest.mark.parametrize("world", ["simulate", "open_test_node"])
def test_virtual_time_refuses_them_and_says_where(verb: str, world: str, virtual_clock: Any) -> None:
    class Reaching(Agent):
        @action
        async def reach(self) -> str:
            try:
                await getattr(self, verb)(os.getpid)
            except ForbiddenCall as exc:
                return str(exc)
            return "it was let out"

    async def main() -> str:
        opened = open_test_node() if world == "open_test_node" else open_node()
        async with opened as node:
            return await (await node.start(Reaching)).invoke(Reaching.reach)

    text = simulate(main) if world == "simulate" else trio.run(main, clock=virtual_clock)
    line = main.__code__.co_firstlineno - 5
    assert f"self.{verb}(...) of agent 'reaching'" in text
    assert f"{__file__}:{line};" in text
    assert "fake" in text


# ---- processes; what they call stands in tests/actors/outside_work.py


async def test_a_process_gives_its_value_and_is_used_again() -> None:
    async with open_node() as node:
        worker = await node.start(Worker)
        seen = []
        for number in range(3):
            await worker.invoke(Worker.twice, number)
            seen.append(Worker.seen)
    assert [value for _, value in seen] == [0, 2, 4]
    pids = {pid for pid, _ in seen}
    assert len(pids) == 1
    assert pids != {os.getpid()}


@pytest.mark.slow
async def test_what_can_go_wrong_in_a_process() -> None:
    async with open_node(FORGIVING) as node:
        worker = await node.start(Worker)
        for fn, kind, text in (
            (failing, ValueError, "in the process"),
            (odd_failure, RuntimeError, "OddError: one and two"),
            (unspeakable, RuntimeError, "Unspeakable"),
            (odd_result, TypeError, "cannot return the result of 'odd_result'"),
            (leaving, WorkerDied, "ended before it answered"),
            (lambda: 1, TypeError, "no lambda"),
            (Unloadable, TypeError, "cannot load what the worker process sent"),
            (partial(os.fspath, Unloadable()), TypeError, "cannot load its work"),
        ):
            Worker.error = None
            with pytest.raises(AgentDied, match=kind.__name__):
                await worker.invoke(Worker.process, job(fn))
            assert type(Worker.error) is kind, text
            assert text in str(Worker.error)
            await worker.ready()
            await worker.invoke(Worker.twice, 4)
            assert Worker.seen[1] == 8, "the next call is not troubled"
            Worker.seen = None


async def test_a_failure_says_where_in_the_process() -> None:
    async with open_node(FORGIVING) as node:
        worker = await node.start(Worker)
        with pytest.raises(AgentDied):
            await worker.invoke(Worker.process, job(failing))
    assert Worker.error is not None
    (note,) = Worker.error.__notes__
    assert note.startswith("raised in a worker process:")
    assert "in failing" in note
    assert "actors/_blocking_work.py" not in note, "not the runtime's own calls"
    assert Worker.error.args == ("in the process", 3)


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    """A named pipe: whoever opens it waits for the other side, so no time has to pass."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    return path


class Talking(Agent):
    error: ClassVar[BaseException | None] = None

    @action
    async def talk(self, path: str) -> int:
        try:
            return await self.to_process(say_and_wait, path)
        except Exception as exc:
            type(self).error = exc
            raise

    @action
    async def who(self) -> int:
        return await self.to_process(nothing)


def heard(path: str) -> int:
    with open(path) as pipe:
        return int(pipe.readline())


def gone(pid: int) -> None:
    """Wait until the process has ended; it stays to be reaped by whom it belongs to."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.slow
@posix
async def test_a_cancel_kills_the_worker(pipe: str) -> None:
    async with open_node() as node:
        talking = await node.start(Talking)
        async with talking.begin(Talking.talk, pipe):
            pid = await trio.to_thread.run_sync(heard, pipe)
        await trio.to_thread.run_sync(gone, pid)
        assert await talking.invoke(Talking.who) != pid
        assert talking.statistics().cancelled == 1


@posix
async def test_a_worker_that_is_killed_is_a_clear_error(pipe: str) -> None:
    async with open_node(FORGIVING) as node:
        talking = await node.start(Talking)
        async with talking.begin(Talking.talk, pipe) as call:
            pid = await trio.to_thread.run_sync(heard, pipe)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(AgentDied, match="WorkerDied"):
                await call.result()
    assert isinstance(Talking.error, WorkerDied)
    assert str(pid) in str(Talking.error)


@pytest.mark.slow
@posix
async def test_an_idle_worker_that_is_killed_is_not_used() -> None:
    async with open_node() as node:
        talking = await node.start(Talking)
        pid = await talking.invoke(Talking.who)
        os.kill(pid, signal.SIGKILL)
        await trio.to_thread.run_sync(gone, pid)
        assert await talking.invoke(Talking.who) != pid


@posix
async def test_ctrl_c_is_not_the_workers_business() -> None:
    async with open_node() as node:
        worker = await node.start(Worker)
        await worker.invoke(Worker.twice, 1)
        pid = Worker.seen[0]
        os.kill(pid, signal.SIGINT)
        for number in range(5):
            await worker.invoke(Worker.twice, number)
            assert Worker.seen == (pid, 2 * number)


@pytest.mark.slow
@posix
async def test_a_worker_that_was_interrupted_before_is_sent_away() -> None:
    """Interrupted before it was told to ignore it, it answers each question with the answer before."""
    from anyio import to_process

    async with open_node() as node:
        stale = await to_process.run_sync(nothing)
        os.kill(stale, signal.SIGINT)
        worker = await node.start(Worker)
        for number in range(5):
            await worker.invoke(Worker.twice, number)
            assert Worker.seen[1] == 2 * number
            assert Worker.seen[0] != stale


async def test_a_worker_that_answers_something_else_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted, as what a pipe still holds cannot be arranged."""
    from anyio import to_process

    asked: list[str] = []

    async def scripted(fn: Any, *args: Any, **_: Any) -> Any:
        asked.append(fn.__name__)
        await trio.lowlevel.checkpoint()
        if fn is _blocking_work._greet:
            return (args[0] if len(asked) > 1 else -1), 7
        if fn is _blocking_work._leave:
            raise to_process.BrokenWorkerProcess
        return fn(*args)

    monkeypatch.setattr(to_process, "run_sync", scripted)
    async with open_node() as node:
        worker = await node.start(Worker)
        await worker.invoke(Worker.twice, 3)
    assert Worker.seen == (os.getpid(), 6)
    assert asked == ["_greet", "_leave", "_greet", "_work", "_leave"]


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "3"])
@pytest.mark.parametrize("what", ["threads", "processes"])
async def test_limits_are_numbers(what: Any, number: Any) -> None:
    with pytest.raises(ConfigError, match=f"{what}=.*at least 1"):
        async with open_node(**{what: number}):
            pass


async def test_a_worker_is_not_disturbed_by_what_is_printed() -> None:
    async with open_node() as node:
        worker = await node.start(Worker)
        await worker.invoke(Worker.process, job(talkative))
        assert Worker.seen == 0
        await worker.invoke(Worker.twice, 2)
        assert Worker.seen[1] == 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts open files as Linux shows them")
async def test_nodes_leave_no_processes_and_no_open_files() -> None:
    counts, before = [], children_of(os.getpid()).items()  # other tests may have left some that they share
    for _ in range(2):
        async with open_node() as node:
            worker = await node.start(Worker)
            await worker.invoke(Worker.twice, 1)
        counts.append(len(os.listdir("/proc/self/fd")))
        assert children_of(os.getpid()).items() <= before
    assert len(set(counts)) == 1


async def test_a_script_without_a_guard_starts_no_chain_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_node() as node:
        worker = await node.start(Worker)
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "__main__")  # so it is where a worker imports the script
            with pytest.raises(AgentDied):
                await worker.invoke(Worker.process, job(nothing))
    assert "__main__" in str(Worker.error)
    assert isinstance(Worker.error, RuntimeError)


async def test_a_cancel_while_the_worker_starts_leaves_none_half_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, seen = [], threading.Event()
    begin = subprocess.Popen.__init__

    def counted(self: Any, *args: Any, **options: Any) -> None:
        started.append(self)
        seen.set()
        begin(self, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    async with open_node() as node:
        talking = await node.start(Talking)
        async with talking.begin(Talking.who):
            await trio.to_thread.run_sync(seen.wait)
        assert await talking.invoke(Talking.who) == started[0].pid, "it is kept for the next"
        assert len(started) == 1


async def test_no_worker_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", sys.executable + "-is-not-there")
    async with open_node(FORGIVING) as node:
        worker = await node.start(Worker)
        with pytest.raises(AgentDied, match="WorkerDied"):
            await worker.invoke(Worker.process, job(nothing))
    assert "could be started" in str(Worker.error)


@pytest.mark.slow
@posix
async def test_workers_end_with_the_last_node_that_used_them() -> None:
    async with open_node() as outer:
        one = await outer.start(Talking)
        first = await one.invoke(Talking.who)
        async with open_node() as inner:
            two = await inner.start(Talking)
            assert await two.invoke(Talking.who) == first, "one pool for the run"
        assert await one.invoke(Talking.who) == first, "it is still in use"
    await trio.to_thread.run_sync(gone, first)


@posix
async def test_no_worker_is_left_by_a_node_that_closes_while_they_work(pipe: str) -> None:
    async with open_node() as node:
        talking = await node.start(Talking)
        await talking.tell(Talking.talk, pipe)
        pid = await trio.to_thread.run_sync(heard, pipe)
        node.root.kill()
    await trio.to_thread.run_sync(gone, pid)


@pytest.mark.slow
async def test_processes_of_a_node_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [0, 0]
    call = _blocking_work.Pool.call

    async def counted(self: Any, work: bytes) -> Any:
        busy[0] += 1
        busy[1] = max(busy)
        try:
            return await call(self, work)
        finally:
            busy[0] -= 1

    monkeypatch.setattr(_blocking_work.Pool, "call", counted)
    async with open_node(processes=2) as node:
        worker = await node.start(Worker)
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(worker.invoke, Worker.process, job(nothing))
        assert worker.statistics().handled == 8
    assert busy == [0, 2]
