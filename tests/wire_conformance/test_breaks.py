"""Servers that go away under load: every call gets exactly one answer, what is heard goes on after a gap."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import AgentUnavailable, Gap, OutcomeUnknown, open_node, simulate
from lmos_actors.transport import MemoryNetwork
from tests.wire_conformance.agents import Helper, Subject, start_helper, tree
from tests.wire_conformance.other_process import started

if TYPE_CHECKING:
    from lmos_actors import Node, Ref

CALLERS = 20


class Load:
    """Callers that ask again and again, and what each call came to."""

    def __init__(self, it: Ref[Subject], pause: float = 0.005) -> None:
        self.it = it
        self.pause = pause  # where time is virtual, it stands still while anybody has something to do
        self.began = 0
        self.ended: Counter[str] = Counter()
        self.odd: list[BaseException] = []
        self.answered = trio.Event()

    async def call(self, index: int) -> None:
        """Ask without end."""
        while True:
            await self._once(f"{index} {self.began}")
            await trio.sleep(self.pause)

    async def _once(self, text: str) -> None:
        self.began += 1
        try:
            assert await self.it.invoke(Subject.echo, text) == text
        except (OutcomeUnknown, AgentUnavailable, trio.Cancelled) as error:
            self.ended[type(error).__name__] += 1
            if isinstance(error, trio.Cancelled):
                raise
        except BaseException as error:
            self.odd.append(error)
            raise
        else:
            self.ended["value"] += 1
            self.answered.set()

    async def answers(self) -> None:
        """Wait until one more call is answered by a value."""
        self.answered = trio.Event()
        await self.answered.wait()


async def heard(feed: Any, seen: list[Any]) -> None:
    """Take all that is heard."""
    async for value in feed:
        seen.append(value)


def check(load: Load) -> None:
    """Every call that was begun has ended once, in one of the ways there are."""
    assert load.odd == []
    assert load.began == sum(load.ended.values())
    assert load.ended["Cancelled"] <= CALLERS
    assert load.ended["value"] > 0


# ---- a process that is killed, and another one that takes its place


@pytest.mark.slow
async def test_a_killed_process_and_its_successor() -> None:
    seen: list[Any] = []
    async with open_node() as node:
        with trio.fail_after(50):
            async with started(0, "steady") as (process, base), trio.open_nursery() as nursery:
                it = await node.consume(Subject, f"{base}/agents/steady")
                load = Load(it)
                feed = await _listening(nursery, it, seen)
                for index in range(CALLERS):
                    nursery.start_soon(load.call, index)
                await load.answers()
                process.send_signal(signal.SIGKILL)
                await process.wait()
                port = int(base.rpartition(":")[2])
                async with started(port, "steady") as (_, again):
                    assert again == base
                    await load.answers()
                    while Gap("connection lost") not in seen or seen[-1] != "celsius":  # noqa: ASYNC110
                        await trio.sleep(0.01)
                    nursery.cancel_scope.cancel()
        assert node.connection_failures == ()
        assert feed == "celsius"
    check(load)
    assert seen.count(Gap("connection lost")) == 1
    assert load.ended["OutcomeUnknown"] <= CALLERS
    assert load.ended["AgentUnavailable"] > 0


async def _listening(nursery: trio.Nursery, it: Ref[Subject], seen: list[Any]) -> Any:
    async def listen(*, task_status: trio.TaskStatus[Any]) -> None:
        async with it.observe(Subject.units, gaps=True) as readings:
            task_status.started(await readings.receive())
            await heard(readings, seen)

    return await nursery.start(listen)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
async def test_a_process_that_stands_still_is_waited_for() -> None:
    async with started(0, "steady") as (process, base), open_node() as node:
        it = await node.consume(Subject, f"{base}/agents/steady")
        process.send_signal(signal.SIGSTOP)
        with trio.move_on_after(0.2) as scope:
            await it.invoke(Subject.echo, "a")
        assert scope.cancelled_caught
        process.send_signal(signal.SIGCONT)
        assert await it.invoke(Subject.echo, "b") == "b"


# ---- connections that break, again and again, on virtual time


@pytest.mark.parametrize("times", [1, 5])
def test_connections_that_are_cut_under_load(times: int) -> None:
    async def main() -> Load:
        network = MemoryNetwork()
        seen: list[Any] = []
        async with open_node(tree(), listen="ws://here:0", network=network) as server:
            helper = await start_helper(server)
            name = await helper.invoke(Helper.begin, "Subject")
            async with open_node(network=network) as node, trio.open_nursery() as nursery:
                it = await node.consume(Subject, f"{server.urls[0]}/agents/{name}")
                load = Load(it, pause=0.5)
                await _listening(nursery, it, seen)
                for index in range(CALLERS):
                    nursery.start_soon(load.call, index)
                for _ in range(times):
                    await load.answers()
                    port = int(server.urls[0].rpartition(":")[2])
                    assert network.sever("here", port) == 1
                    await load.answers()
                    await trio.sleep(10)
                nursery.cancel_scope.cancel()
            assert node.connection_failures == server.connection_failures == ()
            await quiet(server)
        assert seen == [Gap("connection lost"), "celsius"] * times
        return load

    check(simulate(main))


async def quiet(node: Node) -> None:
    """Wait until nothing is left of anybody."""
    server: Any = node._connections._server
    while server.statistics().connections or server.statistics().open:  # noqa: ASYNC110 -- nothing tells
        await trio.sleep(0.1)


# ---- a server that says good-bye


def test_a_server_that_drains_leaves_no_outcome_unknown() -> None:
    async def main() -> tuple[Load, list[Any]]:
        network = MemoryNetwork()
        seen: list[Any] = []
        results: list[Any] = []
        async with open_node(network=network) as node, trio.open_nursery() as nursery:
            async with open_node(tree(), listen="ws://here:7000", network=network) as server:
                helper = await start_helper(server)
                name = await helper.invoke(Helper.begin, "Subject")
                it = await node.consume(Subject, f"{server.urls[0]}/agents/{name}")
                load = Load(it, pause=0.5)
                await _listening(nursery, it, seen)

                async def hold() -> None:
                    results.append(await it.invoke(Subject.hold, "a"))

                nursery.start_soon(hold)
                for index in range(CALLERS):
                    nursery.start_soon(load.call, index)
                await helper.invoke(Helper.until, name, "begun hold")
                await load.answers()
                nursery.start_soon(server.drain)
                await trio.sleep(1)
                await helper.invoke(Helper.open, name, "a")
                await trio.sleep(1)
                assert results == ["through a"]
            async with open_node(tree(), listen="ws://here:7000", network=network) as server:
                helper = await start_helper(server)
                assert await helper.invoke(Helper.begin, "Subject") == name
                await load.answers()
                await trio.sleep(60)
                nursery.cancel_scope.cancel()
        assert node.connection_failures == ()
        return load, seen

    load, seen = simulate(main)
    check(load)
    assert load.ended["OutcomeUnknown"] == 0
    assert load.ended["AgentUnavailable"] > 0
    assert seen[-1] == "celsius"
    assert Gap("connection lost") in seen
