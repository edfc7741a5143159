"""What is known of a request whose agent has ended, and letting go of what is gone: nothing happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    AgentDied,
    AgentError,
    AgentUnavailable,
    ChildSpec,
    Event,
    ExitReason,
    Pool,
    Property,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node, Ref


class Worker(Agent):
    """Notes what it has begun."""

    begun: list[str]
    units: Property[str] = prop(default="celsius")
    rang: Event[int] = event()

    @action
    async def work(self) -> None:
        self.begun.append("work")
        await trio.sleep_forever()

    @action
    async def many(self) -> AsyncIterator[int]:
        self.begun.append("many")
        yield 1
        await trio.sleep_forever()


class Killer(Agent):
    """Ends itself, and with it whoever is linked to it."""

    @action
    def crash(self) -> None:
        raise KeyError("crash")

    @action
    def leave(self) -> None:
        self.stop(ExitReason("shutdown", "enough"))

    @action
    def tie(self) -> None:
        self.link(self.find(Worker))


# ---- whether a line of the handler has run


async def ended(
    node: Node, how: Any, ask: Callable[[Ref[Worker]], Any], *, settled: bool
) -> tuple[AgentError, list[str], Ref[Worker]]:
    """Have an agent end with a request: after its first step, or in the step in which it is handed over."""
    begun: list[str] = []
    worker = await node.start_child(ChildSpec("worker", lambda: Worker(begun=begun), restart="temporary"))
    killer = await node.start_child(ChildSpec("killer", Killer, restart="temporary"))
    await killer.invoke(Killer.tie)
    async with ask(worker) as call:
        if settled:
            await wait_all_tasks_blocked()
        with suppress(AgentDied):
            await killer.invoke(how)  # a turn in this step: the task of the request has not begun to run
        with pytest.raises(AgentError) as caught:
            await call.result()
    await wait_all_tasks_blocked()
    return caught.value, begun, worker


ASKS = [lambda ref: ref.begin(Worker.work), lambda ref: ref.stream(Worker.many)]


@pytest.mark.parametrize("ask", ASKS)
async def test_a_request_that_was_handed_over_and_not_begun_may_be_repeated(ask: Any) -> None:
    async with open_node() as node:
        error, begun, worker = await ended(node, Killer.crash, ask, settled=False)
        assert begun == []
        assert isinstance(error, AgentDied)
        assert not error.started
        counts = worker.statistics()
        assert (counts.accepted, counts.dead_lettered, counts.running) == (1, 1, 0)


@pytest.mark.parametrize("ask", ASKS)
async def test_one_whose_first_line_has_run_may_not(ask: Any) -> None:
    async with open_node() as node:
        error, begun, _ = await ended(node, Killer.crash, ask, settled=True)
        assert len(begun) == 1
        assert isinstance(error, AgentDied)
        assert error.started


@pytest.mark.parametrize("ask", ASKS)
async def test_a_stop_before_the_first_line_is_as_one_in_the_queue(ask: Any) -> None:
    async with open_node() as node:
        error, begun, worker = await ended(node, Killer.leave, ask, settled=False)
        assert begun == []
        assert isinstance(error, AgentUnavailable)
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.running) == (1, 1, 0)


async def test_a_far_request_that_was_not_begun_says_so() -> None:
    network, begun = MemoryNetwork(), list[str]()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
        trio.open_nursery() as nursery,
    ):
        await server.start_child(ChildSpec("worker", lambda: Worker(begun=begun), restart="temporary"))
        killer = await server.start_child(ChildSpec("killer", Killer, restart="temporary"))
        await killer.invoke(Killer.tie)
        far = await client.consume(Worker, "http://server/agents/worker")
        errors: list[AgentDied] = []

        async def ask() -> None:
            with pytest.raises(AgentDied) as caught:
                await far.invoke(Worker.work)
            errors.append(caught.value)

        nursery.start_soon(ask)
        while not server.find(Worker, "worker").statistics().accepted:
            await trio.lowlevel.checkpoint()
        killer.tell_nowait(Killer.crash)
        await wait_all_tasks_blocked()
        assert [error.started for error in errors] == [bool(begun)]


# ---- letting go of what is gone


class Friend(Agent):
    """Lets go of others, whether they are there or not."""

    kept: dict[str, Any]
    heard: list[Any]

    def hear(self, value: Any) -> None:
        self.heard.append(value)

    @action
    def hold_on(self) -> None:
        worker = self.find(Worker, "worker")
        self.kept["ref"] = worker
        self.link(worker)
        self.kept["monitor"] = self.monitor(worker, self.hear)
        self.kept["following"] = self.follow(worker, Worker.rang, self.hear)
        self.kept["absent"] = self.follow(self.find(Worker, "nobody"), Worker.rang, self.hear)
        self.kept["timer"] = self.after(0, self.hear, "timer")
        self.join_group("workers")

    @action
    def let_go(self) -> None:
        self.unlink(self.kept["ref"])
        self.unlink(self.find(Worker, "worker"))
        self.unlink(self.find(Worker, "nobody"))
        self.unlink(self.find(Worker, "nobody").retrying())
        for name in ("monitor", "following", "absent", "timer"):
            self.kept[name].cancel()
        self.leave_group("workers")

    @action
    def unlink_a_pool(self) -> None:
        self.unlink(self.find(Worker, "pool"))


async def test_letting_go_of_what_is_gone_does_nothing(autojump_clock: object) -> None:
    async with open_node() as node:
        await node.start_child(ChildSpec("worker", lambda: Worker(begun=[]), restart="temporary"))
        kept: dict[str, Any] = {}
        heard: list[Any] = []
        friend = await node.start(Friend, kept=kept, heard=heard)
        await friend.invoke(Friend.hold_on)
        await trio.sleep(1)
        await node.root.terminate_child("worker")
        await wait_all_tasks_blocked()
        await friend.invoke(Friend.let_go)
        await friend.invoke(Friend.let_go)
        assert friend.statistics().state == "running"


async def test_unlinking_a_pool_is_a_mistake_still() -> None:
    async with open_node() as node:
        await node.start_pool(Pool(partial(Worker, begun=[]), 1, name="pool"))
        friend = await node.start(Friend, kept={}, heard=[])
        with pytest.raises(AgentDied, match="is a pool"):
            await friend.invoke(Friend.unlink_a_pool)


@pytest.mark.parametrize("far", [False, True])
async def test_leaving_a_block_of_what_is_gone_does_nothing(autojump_clock: object, far: bool) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        near = await server.start_child(ChildSpec("worker", lambda: Worker(begun=[]), restart="temporary"))
        ref = await client.consume(Worker, "http://server/agents/worker") if far else near
        async with (
            ref.subscribe(Worker.rang) as rings,
            ref.subscribe_all() as everything,
            ref.observe(Worker.units) as units,
            ref.monitor() as downs,
            ref.begin(Worker.work) as call,
            ref.stream(Worker.many) as items,
        ):
            await trio.sleep(1)
            await server.root.terminate_child("worker")
            await trio.sleep(1)
            assert (await call.cancel("late")).status == "failed"
            assert (await call.cancel("later")).status == "failed"
            assert (await call.query()).status == "failed"
            assert await units.receive() == "celsius"
            for feed in (rings, everything, units):
                with pytest.raises(trio.EndOfChannel):
                    await feed.receive()
            assert (await downs.receive()).agent == "worker"
            assert [item async for item in _until_error(items)] == [1]


async def _until_error(items: Any) -> AsyncIterator[int]:
    try:
        async for item in items:
            yield item
    except AgentError:
        return
