"""Code of another event loop in an agent, and code that virtual time cannot wait for: what its error says."""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
import requests
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, StartFailed, action, open_node, simulate
from lmos_actors.errors import WrongEventLoop
from lmos_actors.testing import run_test

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

NOWHERE = "http://127.0.0.1:1/"


class Foreign(Agent):
    """Does what needs asyncio. The line in question is marked."""

    @action
    async def sleeps(self) -> None:
        await asyncio.sleep(0.1)  # HERE

    @action
    async def gives_way(self) -> None:
        await asyncio.sleep(0)  # HERE

    @action
    async def asks_for_the_loop(self) -> None:
        asyncio.get_running_loop()  # HERE

    @action
    async def times_out(self) -> None:
        async with asyncio.timeout(1):  # HERE
            await trio.lowlevel.checkpoint()

    @action
    async def waits_for(self) -> None:
        event = asyncio.Event()
        await event.wait()  # HERE

    @action
    async def threads(self) -> None:
        await asyncio.to_thread(int)  # HERE

    @action
    async def connects(self) -> None:
        await asyncio.open_connection("127.0.0.1", 1)  # HERE

    @action
    async def in_a_nursery(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._helper)

    async def _helper(self) -> None:
        await asyncio.sleep(1)

    @action
    def in_a_turn(self) -> None:
        asyncio.get_running_loop()  # HERE


class Outward(Agent):
    """Does what a simulation cannot let it do."""

    @action
    async def httpx(self) -> None:
        async with httpx2.AsyncClient() as client:
            await client.get(NOWHERE)  # HERE

    @action
    async def anyio_thread(self) -> None:
        await anyio.to_thread.run_sync(int)  # HERE

    @action
    async def anyio_tcp(self) -> None:
        await anyio.connect_tcp("localhost", 1)  # HERE

    @action
    async def trio_thread(self) -> None:
        await trio.to_thread.run_sync(int)  # HERE

    @action
    async def trio_tcp(self) -> None:
        await trio.open_tcp_stream("localhost", 1)  # HERE

    @action
    async def own_thread(self) -> None:
        await self.to_thread(int)  # HERE

    @action
    def requests(self) -> None:
        requests.get(NOWHERE, timeout=1)  # HERE

    @action
    def urllib(self) -> None:
        urllib.request.urlopen(NOWHERE)  # HERE

    @action
    def sockets(self) -> None:
        socket.create_connection(("127.0.0.1", 1))  # HERE

    @action
    async def asyncio_run(self) -> None:
        with closing(asyncio.sleep(0)) as coroutine:
            asyncio.run(coroutine)  # HERE

    @action
    async def in_a_task_of_a_library(self) -> None:
        async with trio.open_nursery() as nursery:  # HERE
            nursery.start_soon(anyio.connect_tcp, "localhost", 1)


def line_of(cls: type, name: str) -> str:
    """Give the marked line of an action, or of its helper."""
    lines, first = inspect.getsourcelines(cls)
    wanted, mark = ("_helper", "asyncio.sleep") if name == "in_a_nursery" else (name, "# HERE")
    start = next(number for number, line in enumerate(lines) if f"def {wanted}(" in line)
    return f"{__file__}:{first + next(n for n, line in enumerate(lines) if n > start and mark in line)}"


def actions_of(cls: Any) -> list[str]:
    return list(cls.__contract__.actions)


def in_a_node(main: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        async with open_node() as node:
            return await main(node)

    return trio.run(run)


def in_a_simulation(main: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        async with open_node() as node:
            return await main(node)

    return simulate(run)


def died(run: Any, cls: Any, name: str) -> tuple[str, BaseException]:
    """Give how an agent died of an action: as its caller is told, and the exception in its report."""

    async def main(node: Any) -> tuple[str, BaseException]:
        agent = await node.start(cls)
        with pytest.raises(AgentDied) as caught:
            await agent.invoke(getattr(cls, name))
        await agent.ready()
        return caught.value.reason, node.crash_reports[-1].error

    found: tuple[str, BaseException] = run(main)
    return found


WORLDS = [in_a_node, run_test, in_a_simulation]
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


@pytest.mark.parametrize("name", actions_of(Foreign))
@pytest.mark.parametrize("run", WORLDS, ids=lambda run: run.__name__)
def test_asyncio_code_names_the_line_and_the_way_out(run: Any, name: str) -> None:
    reason, error = died(run, Foreign, name)
    assert reason.startswith(f"WrongEventLoop: asyncio code in an agent, at {line_of(Foreign, name)} in ")
    assert "await trio.sleep(...)" in reason
    assert ("node.portal().aio" in reason) is (run is in_a_node)
    assert ("`from: mock`" in reason) is (run is not in_a_node)
    assert isinstance(error, WrongEventLoop)
    assert isinstance(error.__cause__, (RuntimeError, TypeError, AttributeError, ExceptionGroup))
    place = line_of(Foreign, name)
    assert place in [f"{frame.filename}:{frame.lineno}" for frame in extract_tb(error.__traceback__)]


@pytest.mark.parametrize("name", actions_of(Outward))
@pytest.mark.parametrize("run", WORLDS[1:], ids=lambda run: run.__name__)
def test_what_virtual_time_cannot_wait_for_names_the_line_and_the_way_out(run: Any, name: str) -> None:
    reason, _ = died(run, Outward, name)
    assert "ForbiddenCall: " in reason or "ExceptionGroup" in reason
    if "ExceptionGroup" not in reason:
        assert f"called at {line_of(Outward, name)}" in reason
        assert "`from: mock`" in reason
    assert ("an event loop of asyncio" in reason) is (name == "asyncio_run")


def test_a_library_that_an_agent_calls_in_real_time_is_none_of_our_business() -> None:
    async def main(node: Any) -> None:
        agent = await node.start(Outward)
        for name in ("anyio_thread", "trio_thread", "own_thread", "asyncio_run"):
            await agent.invoke(getattr(Outward, name))
        with pytest.raises(AgentDied, match="ConnectError"):
            await agent.invoke(Outward.httpx)

    in_a_node(main)


class Mixed(Agent):
    """Does what fails by other words of asyncio, where trio does not run in a program's main thread alone."""

    @action
    def asks_for_its_loop(self) -> None:
        asyncio.get_event_loop()  # HERE

    @action
    async def runs(self) -> None:
        with closing(asyncio.sleep(0)) as coroutine:
            asyncio.run(coroutine)  # HERE

    @action
    async def runs_what_is_of_trio(self) -> None:
        asyncio.run(self._gives_way())

    async def _gives_way(self) -> None:
        await trio.lowlevel.checkpoint()  # HERE


def in_a_thread(main: Callable[[Any], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(in_a_node, main).result()


def as_a_guest(main: Callable[[Any], Any]) -> Any:
    """Run in the event loop of asyncio, as trio may."""

    async def run() -> Any:
        async with open_node() as node:
            return await main(node)

    async def host() -> Any:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            run,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
        )
        return (await ended).unwrap()

    return asyncio.run(host())


@pytest.mark.parametrize(
    ("run", "name"),
    [(in_a_thread, "asks_for_its_loop"), (as_a_guest, "runs"), (in_a_node, "runs_what_is_of_trio")],
)
def test_other_words_of_asyncio_are_known(run: Any, name: str) -> None:
    reason, _ = died(run, Mixed, name)
    assert reason.startswith(f"WrongEventLoop: asyncio code in an agent, at {line_of(Mixed, name)} in ")


def test_what_the_message_says_is_right() -> None:
    """The way out that the error names works: asyncio in a thread, and agents from there by a portal."""

    class Mender(Agent):
        node: Any

        @action
        def stamp(self) -> str:
            return "stamped"

        @action
        async def go(self) -> str:
            portal, me = self.node.portal(), self.ref

            async def main() -> str:
                await asyncio.sleep(0)
                return await portal.aio.invoke(me, Mender.stamp)

            return await self.to_thread(asyncio.run, main())

    async def main(node: Any) -> None:
        agent = await node.start(Mender, node=node)
        assert await agent.invoke(Mender.go) == "stamped"

    in_a_node(main)


def test_a_lifespan_and_a_first_turn_that_need_asyncio_say_so() -> None:
    class Entering(Agent):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            await asyncio.sleep(1)
            yield

    class Starting(Agent):
        def started(self) -> None:
            asyncio.get_running_loop()

    async def main(node: Any) -> None:
        for cls in (Entering, Starting):
            with pytest.raises(StartFailed, match=r"asyncio code in an agent, at .*test_wrong_loop\.py:"):
                await node.start(cls)

    in_a_node(main)


def test_errors_of_the_same_classes_stay_as_they_are() -> None:
    errors = (
        RuntimeError("no loop"),
        TypeError("x"),
        AttributeError("'NoneType' object has no attribute 'y'"),
        ExceptionGroup("z", [OSError()]),
    )

    class Plain(Agent):
        @action
        def fail(self, kind: int) -> None:
            raise errors[kind]

    async def main(node: Any) -> None:
        for kind, error in enumerate(errors):
            agent = await node.start_child(ChildSpec(f"plain-{kind}", Plain, restart="temporary"))
            with pytest.raises(AgentDied, match=type(error).__name__):
                await agent.invoke(Plain.fail, kind)
            assert node.crash_reports[-1].error is error

    run_test(main)


def test_time_sleep_in_a_simulation_says_what_takes_virtual_time() -> None:
    class Sleeper(Agent):
        @action
        def nap(self) -> None:
            time.sleep(1)

    reason, _ = died(in_a_simulation, Sleeper, "nap")
    assert "await trio.sleep(...) takes virtual time" in reason


def test_a_test_itself_may_use_threads_and_sockets_where_virtual_time_allows_it() -> None:
    async def main(node: Any) -> None:
        socket.socket().close()

    run_test(main)
