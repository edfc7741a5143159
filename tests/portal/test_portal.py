"""Portals: real threads and real event loops, told apart by events; nothing waits for the clock."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Event,
    InvalidInput,
    NodeThread,
    NotAllowed,
    NotFound,
    Portal,
    Property,
    StartFailed,
    SupervisorSpec,
    action,
    event,
    open_node,
    open_node_in_thread,
    prop,
)
from lmos_actors.errors import ActionCancelled, ForbiddenCall, RestartIntensityExceeded
from lmos_actors.testing import open_test_node
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors import Ref

PATIENCE = 20.0
FORGIVING = SupervisorSpec("root", max_restarts=100_000)


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    limit: Property[int] = prop(default=0, read_only=True)
    asked: Event[int] = event()

    @action
    def add(self, one: int, two: int = 1) -> int:
        return one + two

    @action
    def fail(self) -> None:
        raise ActionFailed({"why": "asked to"})

    @action
    def crash(self) -> None:
        raise KeyError("asked to")

    @action
    def ask(self, count: int) -> None:
        for number in range(count):
            self.asked.emit(number)

    @action(concurrency=100)
    async def hang(self) -> None:
        await trio.sleep_forever()

    @action
    def leave(self) -> None:
        raise SystemExit(3)

    @action
    def end(self) -> None:
        self.stop()


def balanced(*refs: Ref[Any]) -> bool:
    """M1, at an instant at which no turn runs."""
    for ref in refs:
        count = ref.statistics()
        ends = count.handled + count.cancelled + count.dropped + count.dead_lettered
        if count.accepted != ends + count.waiting + count.running:
            return False
    return True


def ours() -> list[str]:
    """The threads of nodes and portals that are alive; trio keeps idle ones of its own for a while."""
    return [thread.name for thread in threading.enumerate() if thread.name == "lmos node"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert ours() == []


async def in_thread(fn: Callable[..., Any], *args: Any) -> Any:
    return await trio.to_thread.run_sync(fn, *args)


# ---- threads


async def test_every_verb_from_a_thread() -> None:
    def outside(portal: Portal) -> None:
        weather = portal.start(Weather, units="kelvin")
        assert portal.find(Weather) == weather
        assert portal.read(weather, Weather.units) == "kelvin"
        portal.write(weather, Weather.units, "celsius")
        assert portal.read(weather, Weather.units) == "celsius"
        assert portal.invoke(weather, Weather.add, 2) == 3
        assert portal.invoke(weather, Weather.add, one=2, two=5) == 7
        portal.tell(weather, Weather.add, 1)
        assert portal.run(weather.read_all) == {"units": "celsius", "limit": 0}

    async with open_node() as node:
        await in_thread(outside, node.portal())
        assert node.statistics().handled == 7


async def test_errors_come_as_they_are() -> None:
    def outside(portal: Portal, weather: Ref[Weather]) -> None:
        with pytest.raises(ActionFailed) as failed:
            portal.invoke(weather, Weather.fail)
        assert failed.value.output == {"why": "asked to"}
        with pytest.raises(InvalidInput):
            portal.invoke(weather, Weather.add, "x")  # type: ignore[arg-type]
        with pytest.raises(NotAllowed):
            portal.write(weather, Weather.limit, 3)
        with pytest.raises(AgentDied):
            portal.invoke(weather, Weather.crash)
        with pytest.raises(NotFound):
            portal.invoke(portal.find(Weather, "nobody"), Weather.add, 1)
        with pytest.raises(TypeError, match="takes the handle of a property"):
            portal.read(weather, Weather.add)  # type: ignore[arg-type]
        with pytest.raises(DeadlineExceeded):
            portal.invoke(weather.within(0.02), Weather.hang)
        with pytest.raises(StartFailed):
            portal.start(Weather, colour="red")  # type: ignore[call-arg]

    async with open_node(FORGIVING) as node:
        weather = await node.start(Weather)
        await in_thread(outside, node.portal(), weather)
        assert balanced(weather)


async def test_a_call_while_a_turn_runs_is_not_taken_for_the_turns() -> None:
    """Whose turn runs is asked in the node's thread; another thread's call belongs to nobody."""
    turning, answered = threading.Event(), threading.Event()
    answers: list[object] = []

    async with open_node() as node:
        weather, portal = await node.start(Weather), node.portal()

        class Slow(Agent):
            @action
            def turn(self) -> None:
                turning.set()
                while not (portal._jobs._open or answered.is_set()):
                    pass

        def outside() -> None:
            assert turning.wait(PATIENCE)
            try:
                answers.append(portal.invoke(weather, Weather.add, 1))
            except RuntimeError as exc:
                answers.append(exc)
            answered.set()

        slow = await node.start(Slow)
        thread = threading.Thread(target=outside)
        thread.start()
        await slow.invoke(Slow.turn)
        await in_thread(thread.join, PATIENCE)
    assert answers == [2]


async def test_subscribe_and_observe_from_a_thread() -> None:
    def outside(portal: Portal, weather: Ref[Weather]) -> None:
        with portal.subscribe(weather, Weather.asked, size=4) as events:
            portal.invoke(weather, Weather.ask, 3)
            assert [next(events) for _ in range(3)] == [0, 1, 2]
            portal.invoke(weather, Weather.ask, 10)
            assert [next(events) for _ in range(4)] == [6, 7, 8, 9]
            assert events.missed == 6
        with portal.observe(weather, Weather.units) as units:
            assert next(units) == "celsius"
            portal.write(weather, Weather.units, "kelvin")
            portal.write(weather, Weather.units, "rankine")
            assert next(units) == "rankine"
            assert units.missed == 1
        with portal.subscribe(weather, Weather.asked) as events:
            portal.invoke(weather, Weather.ask, 2)
            portal.run(node.root.terminate_child, "weather")
            portal.run(node.root.delete_child, "weather")
            assert list(events) == [0, 1], "ends when the agent is gone for good"
        with pytest.raises(NotFound), portal.subscribe(weather, Weather.asked):
            pass

    async with open_node() as node:
        weather = await node.start(Weather)
        await in_thread(outside, node.portal(), weather)


async def test_leaving_ends_the_subscription() -> None:
    def outside(portal: Portal, weather: Ref[Weather]) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), portal.subscribe(weather, Weather.asked):
                raise ZeroDivisionError

    async with open_node() as node:
        weather = await node.start(Weather)
        await in_thread(outside, node.portal(), weather)
        more = weather._link.extra  # type: ignore[attr-defined]
        assert more.sinks.by_key == {}


async def test_in_the_nodes_own_thread_it_is_an_error_and_no_deadlock() -> None:
    async with open_node() as node:
        weather, portal = await node.start(Weather), node.portal()
        assert node.portal() is portal
        with pytest.raises(RuntimeError, match="the node's own thread"):
            portal.invoke(weather, Weather.add, 1)
        with pytest.raises(RuntimeError, match="none runs here"):
            await portal.aio.invoke(weather, Weather.add, 1)
        assert await weather.invoke(Weather.add, 1) == 2


async def test_after_the_end_it_is_a_clear_error() -> None:
    async with open_node() as node:
        weather, portal = await node.start(Weather), node.portal()

    def outside() -> None:
        for call in (
            lambda: portal.invoke(weather, Weather.add, 1),
            lambda: portal.read(weather, Weather.units),
            lambda: portal.start(Weather),
            lambda: asyncio.run(portal.aio.invoke(weather, Weather.add, 1)),
        ):
            with pytest.raises(AgentUnavailable, match="the node of this portal has ended"):
                call()
        with pytest.raises(AgentUnavailable), portal.subscribe(weather, Weather.asked):
            pass

    outside()  # in the thread that was the node's, too
    await in_thread(outside)


async def test_what_had_come_is_given_after_the_end() -> None:
    listening, ended = threading.Event(), threading.Event()
    got: dict[str, list[int]] = {}

    def blocking(portal: Portal, weather: Ref[Weather]) -> None:
        with portal.subscribe(weather, Weather.asked) as events:
            portal.invoke(weather, Weather.ask, 3)
            listening.set()
            assert ended.wait(PATIENCE)
            got["thread"] = list(events)

    async def awaiting(portal: Portal, weather: Ref[Weather]) -> None:
        async with portal.aio.subscribe(weather, Weather.asked) as events:
            await portal.aio.invoke(weather, Weather.ask, 3)
            listening.set()
            assert ended.wait(PATIENCE)
            got["asyncio"] = [event async for event in events]

    for kind in (blocking, lambda *args: asyncio.run(awaiting(*args))):
        listening.clear()
        ended.clear()
        async with open_node() as node:
            thread = threading.Thread(target=kind, args=(node.portal(), await node.start(Weather)))
            thread.start()
            await in_thread(listening.wait, PATIENCE)
        ended.set()
        await in_thread(thread.join, PATIENCE)
    assert got == {"thread": [0, 1, 2], "asyncio": [0, 1, 2]}


async def test_virtual_time_has_no_portal(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        with pytest.raises(ForbiddenCall, match="portal"):
            node.portal()


async def test_a_portal_that_was_never_served_refuses() -> None:
    """Made in the last step of the body: its service never takes a step, whoever called is answered."""
    async with open_node() as node:
        portal = node.portal()
        jobs, job = portal._jobs, Recorded()
        jobs.submit(job)
    assert [type(error) for error in job.errors] == [AgentUnavailable]


class Recorded:
    """Stands in for a job: what it was told."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        self.scope = trio.CancelScope()
        self.caller = self.context = None

    async def make(self) -> None:
        await trio.sleep_forever()

    def node_ended_error(self) -> AgentUnavailable:
        return AgentUnavailable("it", "ended")

    def deliver(self, value: Any, error: Any) -> None:
        self.errors.append(error)


async def test_closing_answers_every_caller_once() -> None:
    """50 threads ask and hang and listen while the node closes under them."""
    answers: list[str] = []
    at_work = threading.Barrier(51)

    def outside(number: int, portal: Portal, weather: Ref[Weather]) -> None:
        at_work.wait(PATIENCE)
        try:
            while True:
                if number % 3 == 0:
                    portal.invoke(weather, Weather.hang)
                elif number % 3 == 1:
                    portal.invoke(weather, Weather.add, number)
                else:
                    with portal.subscribe(weather, Weather.asked) as events:
                        assert list(events) == []
        except Exception as exc:
            answers.append(type(exc).__name__)

    async with open_node() as node:
        spec = ChildSpec("weather", Weather, shutdown=0.0)
        weather, portal = await node.start_child(spec), node.portal()
        threads = [threading.Thread(target=outside, args=(n, portal, weather)) for n in range(50)]
        for thread in threads:
            thread.start()
        await in_thread(at_work.wait, PATIENCE)
    for thread in threads:
        await in_thread(thread.join, PATIENCE)
    assert len(answers) == 50
    assert set(answers) <= {"AgentUnavailable", "NodeEnded", "AgentDied", "NotFound", "ActionCancelled"}
    assert balanced(weather)
    assert weather.statistics().running == weather.statistics().waiting == 0


async def test_a_system_exit_in_a_turn_is_answered_and_ends_the_agent_alone() -> None:
    def outside(portal: Portal, weather: Ref[Weather]) -> None:
        try:
            portal.invoke(weather, Weather.leave)
        except AgentDied as exc:
            answers.append(exc)

    async def main() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            weather = await node.start(Weather)
            nursery.start_soon(in_thread, outside, node.portal(), weather)

    answers: list[AgentDied] = []
    await main()
    assert len(answers) == 1


async def test_a_system_exit_of_a_function_ends_the_node_and_is_answered() -> None:
    async def leave() -> None:
        raise SystemExit(4)

    def outside(portal: Portal) -> None:
        with pytest.raises(AgentDied) as caught:
            portal.run(leave)
        answers.append(caught.value)

    async def main() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, outside, node.portal())

    answers: list[AgentDied] = []
    with pytest.raises(SystemExit) as caught:
        await main()
    assert caught.value.code == 4
    assert len(answers) == 1


@pytest.mark.slow
async def test_attack_threads_while_agents_crash() -> None:
    """50 threads with 200 calls each, a crash in every fifth; every call one answer, the accounts add up."""
    answers: list[str] = []
    counted = threading.Lock()

    def outside(number: int, portal: Portal, refs: list[Ref[Weather]]) -> None:
        mine: list[str] = []
        for n in range(200):
            ref = refs[(number + n) % len(refs)]
            try:
                if n % 5 == 0:
                    portal.invoke(ref, Weather.crash)
                else:
                    assert portal.invoke(ref, Weather.add, n, number) == n + number
                    mine.append("value")
            except (AgentDied, AgentUnavailable) as exc:
                mine.append(type(exc).__name__)
        with counted:
            answers.extend(mine)

    async with open_node(FORGIVING) as node:
        refs = [await node.start(Weather) for _ in range(4)]
        portal = node.portal()
        async with trio.open_nursery() as nursery:
            limiter = trio.CapacityLimiter(50)
            for number in range(50):
                nursery.start_soon(
                    lambda n=number: trio.to_thread.run_sync(outside, n, portal, refs, limiter=limiter)
                )
        assert portal._jobs._open == {}
        assert balanced(*refs)
        total = node.statistics()
    assert len(answers) == 50 * 200
    assert answers.count("value") > 1000
    assert total.handled >= answers.count("value")


# ---- asyncio


def asyncio_in_thread(main: Callable[[], Any]) -> Any:
    return trio.to_thread.run_sync(lambda: asyncio.run(main()))


async def test_every_verb_from_asyncio() -> None:
    async with open_node() as node:
        portal = node.portal()

        async def main() -> None:
            aio = portal.aio
            weather = await aio.start(Weather, units="kelvin")
            assert aio.find(Weather) == weather
            assert await aio.read(weather, Weather.units) == "kelvin"
            await aio.write(weather, Weather.units, "celsius")
            assert await aio.invoke(weather, Weather.add, 2, two=3) == 5
            await aio.tell(weather, Weather.add, 1)
            assert await aio.run(weather.read, Weather.units) == "celsius"
            with pytest.raises(ActionFailed):
                await aio.invoke(weather, Weather.fail)
            async with aio.subscribe(weather, Weather.asked, size=2) as events:
                await aio.invoke(weather, Weather.ask, 3)
                assert [await anext(events), await anext(events)] == [1, 2]
                assert events.missed == 1
            async with aio.observe(weather, Weather.units) as units:
                await aio.write(weather, Weather.units, "kelvin")
                assert await anext(units) == "kelvin"
                await aio.run(node.root.terminate_child, "weather")
                await aio.run(node.root.delete_child, "weather")
                assert [value async for value in units] == []

        await asyncio_in_thread(main)


@pytest.mark.slow
async def test_2000_asyncio_calls_in_flight() -> None:
    class Gathering(Agent):
        waiting: int = 0
        gate: Any = None

        @action(concurrency=2000)
        async def meet(self, number: int) -> int:
            if self.gate is None:
                self.gate = trio.Event()
            self.waiting += 1
            if self.waiting == 2000:
                self.gate.set()
            await self.gate.wait()
            return number

    async with open_node() as node:
        ref, portal = await node.start(Gathering), node.portal()

        async def main() -> list[int]:
            return await asyncio.gather(*(portal.aio.invoke(ref, Gathering.meet, n) for n in range(2000)))

        assert await asyncio_in_thread(main) == list(range(2000))
        assert portal._jobs._open == {}
        assert balanced(ref)
        assert ref.statistics().handled == 2000


async def test_a_cancelled_asyncio_task_cancels_its_request() -> None:
    async with open_node() as node:
        weather, portal = await node.start(Weather), node.portal()

        async def main() -> None:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(portal.aio.invoke(weather, Weather.hang)) for _ in range(20)]
                while weather.statistics().running < 20:
                    await portal.aio.read(weather, Weather.units)
                for task in tasks:
                    task.cancel()
            assert all(task.cancelled() for task in tasks)
            await portal.aio.read(weather, Weather.units)

        await asyncio_in_thread(main)
        count = weather.statistics()
        assert (count.cancelled, count.running) == (20, 0)
        assert balanced(weather)
        assert portal._jobs._open == {}


async def test_a_cancelled_subscription_is_left() -> None:
    async with open_node() as node:
        weather, portal = await node.start(Weather), node.portal()

        async def listen() -> None:
            async with portal.aio.subscribe(weather, Weather.asked) as events:
                async for _ in events:
                    pass

        async def main() -> None:
            task = asyncio.create_task(listen())
            while not sinks(weather):
                await portal.aio.read(weather, Weather.units)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            while sinks(weather):
                await portal.aio.read(weather, Weather.units)

        await asyncio_in_thread(main)


def test_a_subscription_cancelled_before_the_node_came_to_it_is_left_at_once() -> None:
    held, release = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        release.wait(PATIENCE)

    async def main(portal: Portal, weather: Ref[Weather]) -> None:
        async def listen() -> None:
            async with portal.aio.subscribe(weather, Weather.asked):
                raise AssertionError("not reached")

        held.wait(PATIENCE)
        task = asyncio.create_task(listen())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
        assert not sinks(weather)

    with open_node_in_thread() as portal:
        weather = portal.start(Weather)
        thread = threading.Thread(target=portal.run, args=(hold,))
        thread.start()
        asyncio.run(main(portal, weather))
        thread.join(PATIENCE)
        assert portal._jobs._open == {}


def sinks(ref: Ref[Any]) -> bool:
    more = ref._link.extra  # type: ignore[attr-defined]
    return more is not None and more.sinks is not None and bool(more.sinks.by_key)


async def test_an_event_loop_that_closes_with_calls_in_flight_troubles_nobody() -> None:
    kept: list[Any] = []
    async with open_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather, shutdown=0.0))
        portal = node.portal()

        def outside() -> None:
            loop = asyncio.new_event_loop()

            async def begin() -> None:
                kept.append(loop.create_task(portal.aio.invoke(weather, Weather.hang)))
                await portal.aio.read(weather, Weather.units)

            loop.run_until_complete(begin())
            kept[0]._log_destroy_pending = False
            loop.close()

        await in_thread(outside)
    assert balanced(weather)


async def test_closing_answers_every_asyncio_caller() -> None:
    async with open_node() as node:
        spec = ChildSpec("weather", Weather, shutdown=0.0)
        weather, portal = await node.start_child(spec), node.portal()
        under_way, results = threading.Event(), []

        async def main() -> None:
            calls = [asyncio.ensure_future(portal.aio.invoke(weather, Weather.hang)) for _ in range(50)]
            await portal.aio.read(weather, Weather.units)
            under_way.set()
            results.extend(await asyncio.gather(*calls, return_exceptions=True))

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        await in_thread(under_way.wait, PATIENCE)
    await in_thread(thread.join, PATIENCE)
    assert len(results) == 50
    assert all(isinstance(result, AgentUnavailable | AgentDied | ActionCancelled) for result in results)


# ---- a node in a thread of its own


def test_a_node_in_a_thread() -> None:
    tree = SupervisorSpec("root", [ChildSpec("weather", Weather)])
    with open_node_in_thread(tree) as portal:
        assert ours() == ["lmos node"]
        weather = portal.find(Weather)
        assert portal.invoke(weather, Weather.add, 1) == 2
    with pytest.raises(AgentUnavailable):
        portal.invoke(weather, Weather.add, 1)


def test_started_and_closed_without_a_block() -> None:
    node = open_node_in_thread()
    spec = ChildSpec("weather", Weather)
    weather = node.portal.run(node.node.start_child, spec)
    assert node.portal.read(weather, Weather.units) == "celsius"
    node.close()
    node.close()


FORKED = """
import os, sys
from lmos_actors import Agent, AgentUnavailable, action, event, Event, open_node_in_thread

class Weather(Agent):
    asked: Event[int] = event()

    @action
    def add(self, one: int) -> int:
        return one + 1

node = open_node_in_thread()
weather = node.portal.start(Weather)
with node.portal.subscribe(weather, Weather.asked) as events:
    child = os.fork()
    if not child:
        try:
            node.portal.invoke(weather, Weather.add, 1)
        except AgentUnavailable:
            assert list(events) == []
            sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), node.portal.invoke(weather, Weather.add, 1))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_no_node_and_says_so() -> None:
    """It ends, too, although nobody has closed the node in it."""
    call = [sys.executable, "-c", FORKED]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.stdout == "7 2\n", done.stderr


def test_a_thread_that_cannot_be_started_leaves_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError, match="new thread"):
            open_node_in_thread()
    assert at_exit == []


def test_its_own_thread_cannot_close_it() -> None:
    with open_node_in_thread() as portal:
        thread = next(t for t in threading.enumerate() if t.name == "lmos node")
        held: NodeThread = thread._target.__self__  # type: ignore[attr-defined]

        async def close() -> None:
            held.close()

        with pytest.raises(RuntimeError, match="own thread"):
            portal.run(close)


def test_a_tree_that_cannot_start_is_raised_at_once() -> None:
    tree = SupervisorSpec("root", [ChildSpec("a", lambda: 1 / 0)])  # type: ignore[arg-type, return-value]
    with pytest.raises(StartFailed):
        open_node_in_thread(tree)


def end_the_node(portal: Portal) -> None:
    with pytest.raises(AgentDied):
        portal.invoke(portal.find(Weather), Weather.crash)


def one_life() -> NodeThread:
    return open_node_in_thread(SupervisorSpec("root", [ChildSpec("weather", Weather)], max_restarts=0))


def test_what_ends_the_node_is_raised_at_the_end_of_the_block() -> None:
    def script() -> None:
        with one_life() as portal:
            end_the_node(portal)
            while True:
                portal.invoke(portal.find(Weather), Weather.add, 1)

    with pytest.raises(RestartIntensityExceeded) as caught:
        script()
    assert isinstance(caught.value.__context__, AgentUnavailable | NotFound)


def test_an_error_of_the_body_comes_out_as_itself_or_with_the_nodes() -> None:
    def script() -> None:
        with one_life() as portal:
            end_the_node(portal)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), open_node_in_thread():
        raise ZeroDivisionError
    with pytest.raises(BaseExceptionGroup) as caught:
        script()
    both = [type(error) for error in caught.value.exceptions]
    assert both == [ZeroDivisionError, RestartIntensityExceeded]


@contextmanager
def interrupts(when: Callable[[], Any]) -> Iterator[None]:
    """Have Ctrl-C come to the main thread once `when` returns, in another thread."""

    def send() -> None:
        when()
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


def test_ctrl_c_cancels_the_request_of_the_calling_thread() -> None:
    began, unwound = threading.Event(), threading.Event()

    class Held(Agent):
        @action
        async def hold(self) -> None:
            began.set()
            try:
                await trio.sleep_forever()
            finally:
                unwound.set()

    with open_node_in_thread() as portal:
        ref = portal.start(Held)
        with interrupts(began.wait), pytest.raises(KeyboardInterrupt):
            portal.invoke(ref, Held.hold)
        assert unwound.wait(PATIENCE)
        assert portal.run(_statistics, ref).cancelled == 1


async def _statistics(ref: Ref[Any]) -> Any:
    return ref.statistics()


def test_ctrl_c_while_it_closes_gives_nobody_more_time() -> None:
    leaving = threading.Event()

    class Lingering(Agent):
        @action
        async def linger(self) -> None:
            leaving.set()
            await trio.sleep_forever()

    tree = SupervisorSpec("root", [ChildSpec("a", Lingering, shutdown="infinity")])
    node = open_node_in_thread(tree)
    node.portal.tell(node.portal.find(Lingering), Lingering.linger)
    assert leaving.wait(PATIENCE)
    leave = node._leave
    closing = threading.Event()

    def told() -> None:
        leave()
        closing.set()

    node._leave = told
    with interrupts(closing.wait), pytest.raises(KeyboardInterrupt):
        node.close()


def test_ctrl_c_while_the_tree_starts() -> None:
    entering, left = threading.Event(), threading.Event()

    class Slow(Agent):
        async def _enter(self) -> None:
            entering.set()
            try:
                await trio.sleep_forever()
            finally:
                left.set()

        @asynccontextmanager
        async def lifespan(self) -> Any:
            await self._enter()
            yield

    with interrupts(entering.wait), pytest.raises(KeyboardInterrupt):
        open_node_in_thread(SupervisorSpec("root", [ChildSpec("slow", Slow)]))
    assert left.is_set()


def test_nodes_in_several_threads() -> None:
    nodes = [open_node_in_thread() for _ in range(5)]
    refs = [node.portal.start(Weather) for node in nodes]
    assert [n.portal.invoke(ref, Weather.add, 1) for n, ref in zip(nodes, refs, strict=True)] == [2] * 5
    for node in nodes:
        node.close()


# ---- notebooks

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def run_notebook(text: str, printed: pytest.CaptureFixture[str]) -> None:
    """Run the cells in one namespace and one event loop, with `await` at the top level, as IPython does.

    What a cell prints must be what its stored output says.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}

    async def run_cells() -> None:
        for number, cell in enumerate(json.loads(text)["cells"]):
            if cell["cell_type"] == "code":
                code = compile(
                    "".join(cell["source"]),
                    f"cell {number}",
                    "exec",
                    flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                    dont_inherit=True,
                )
                printed.readouterr()
                result = eval(code, namespace)
                if inspect.isawaitable(result):
                    await result
                stored = "".join(line for out in cell["outputs"] for line in out.get("text", ()))
                assert printed.readouterr().out == stored, f"cell {number}"

    asyncio.run(run_cells())


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run(path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_notebook(path.read_text(encoding="utf-8"), capsys)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def cells(*sources: str, output: str = "") -> str:
    outputs = [{"output_type": "stream", "name": "stdout", "text": [output]}] if output else []
    return json.dumps({"cells": [{"cell_type": "code", "source": [s], "outputs": outputs} for s in sources]})


def test_a_notebook_that_fails_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    run_notebook(cells("import asyncio\nx = await asyncio.sleep(0, 3)\nprint(x)", output="3\n"), capsys)
    with pytest.raises(ZeroDivisionError):
        run_notebook(cells("x = 0", "1 / x"), capsys)
    with pytest.raises(AssertionError, match="cell 0"):
        run_notebook(cells("print(1)", output="2\n"), capsys)
