"""`find(Cls, id=...)`: a ref to the agent of a key, in whichever node holds its lease."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    Node,
    NotFound,
    OutcomeUnknown,
    Ref,
    StartFailed,
    SupervisorSpec,
    action,
    open_node,
    simulate,
)
from lmos_actors.actors import skew_clock
from lmos_actors.persistence import SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")

HUB = "http://hub:80"


class Till(Agent, durable=True):
    sold: int = 0

    @action
    def sell(self) -> int:
        self.sold += 1
        return self.sold

    @action
    def look(self) -> int:
        return self.sold


class Still(Till, serial=True):
    @action
    async def stand_still(self) -> None:
        await trio.sleep_forever()


class Slow(Till):
    @action(snapshot_safe=True)
    async def sell_slowly(self) -> int:
        await trio.sleep(8)
        return self.sell()


class Other(Agent, durable=True):
    @action
    def look(self) -> int:
        return -1


class Clerk(Agent):
    @action
    async def sell(self) -> int:
        return await self.find(Till, id="1").invoke(Till.sell)


@attrs.define
class Shop:
    """Two nodes that share a store and a directory, and one that only looks there."""

    hub: Node
    shops: list[Node]
    stores: list[SimulatedStore]
    looker: Node

    async def open_till(self, number: int, cls: type[Till] = Till) -> None:
        await self.shops[number].start_child(ChildSpec("till", cls, key="1"))
        await trio.sleep(2)  # until it is registered, and until there may be another look-up

    async def close_till(self, number: int) -> None:
        await self.shops[number].root.terminate_child("till")
        await self.shops[number].root.delete_child("till")

    async def leases(self) -> dict[str, Any]:
        found = await self.hub.find(Agent, "directory").read_all() and await self.looker.search(directory=HUB)
        return {each.url or "": each.epoch for each in found if each.epoch}


def play(story: Callable[[Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        disk, network = simulated_disk(1, shared=True), MemoryNetwork()
        stores = [SimulatedStore(disk), SimulatedStore(disk)]
        tree = SupervisorSpec("root", max_restarts=1_000)
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(
                open_node(listen="ws://hub:80", directory=True, network=network)
            )
            shops = [
                await stack.enter_async_context(
                    open_node(tree, listen=f"ws://{name}:80", register=HUB, store=store, network=network)
                )
                for name, store in zip(("a", "b"), stores, strict=True)
            ]
            looker = await stack.enter_async_context(open_node(lookup=HUB, network=network))
            await story(Shop(hub, shops, stores, looker))

    simulate(main)


def test_a_ref_follows_the_lease_from_node_to_node() -> None:
    async def story(shop: Shop) -> None:
        till = shop.looker.find(Till, id="1")
        with pytest.raises(NotFound, match="id '1'"):
            await till.invoke(Till.sell)
        clerk = await shop.looker.start(Clerk)
        for number in range(1, 5):
            await shop.open_till(number % 2)
            await till.ready()
            assert await till.invoke(Till.sell) == 2 * number - 1
            assert await clerk.invoke(Clerk.sell) == 2 * number
            assert set((await shop.leases()).values()) == {number}
            with pytest.raises(NotFound):
                await shop.looker.find(Till, id="2").invoke(Till.look)
            with pytest.raises(NotFound):
                await shop.looker.find(Other, id="1").invoke(Other.look)
            await shop.close_till(number % 2)
        with pytest.raises(AgentUnavailable, match="no other is known yet") as caught:
            await till.invoke(Till.sell)
        assert caught.value.retry_in == 1
        await trio.sleep(1.5)
        with pytest.raises(AgentUnavailable, match="none has come in its place yet") as caught:
            await till.invoke(Till.sell)
        assert caught.value.retry_in == 1
        await trio.sleep(60)
        with pytest.raises(NotFound, match="id '1'"):
            await till.invoke(Till.sell)

    play(story)


def test_an_entry_with_the_newest_epoch_is_used_though_an_older_one_is_there() -> None:
    async def story(shop: Shop) -> None:
        await shop.open_till(0)
        till = shop.looker.find(Till, id="1")
        assert await till.invoke(Till.sell) == 1
        shop.stores[0].is_cut_off = True
        await shop.open_till(1)
        assert await till.invoke(Till.sell) == 2
        shop.stores[0].is_cut_off = False
        await trio.sleep(10)
        assert list((await shop.leases()).values()) == [2], "what waits for a lease is not registered"
        near = shop.shops[0].find(Till, id="1")
        assert await near.invoke(Till.look) == 2, "its own agent waits, so it leads there"
        with pytest.raises(AgentUnavailable, match=r"holds the lease of the key '1' \(epoch 2\)") as caught:
            await shop.shops[0].find(Till, "till").invoke(Till.look)
        assert caught.value.retry_in is not None
        assert "ws://b " in str(caught.value)
        await shop.close_till(1)
        await trio.sleep(1)
        assert await till.invoke(Till.sell) == 3
        assert await near.invoke(Till.sell) == 4
        assert list((await shop.leases()).values()) == [3]

    play(story)


def test_after_a_request_that_was_given_up_the_next_one_goes_to_the_node_that_runs_the_agent_now() -> None:
    async def story(shop: Shop) -> None:
        await shop.open_till(0, Still)
        till = shop.looker.find(Still, id="1")
        assert await till.invoke(Still.sell) == 1
        skew_clock(shop.shops[0].find(Still, "till"), rate=0.001)  # it does not notice that its lease ends
        async with trio.open_nursery() as nursery:
            nursery.start_soon(till.invoke, Still.stand_still)
            await shop.open_till(1, Still)
            with trio.move_on_after(1) as first:
                await till.invoke(Still.sell)
            assert first.cancelled_caught, "it does not stand still"
            await trio.sleep(0.1)
            with trio.fail_after(1):
                assert await till.invoke(Still.sell) == 2
            nursery.cancel_scope.cancel("the story is told")

    play(story)


@pytest.mark.parametrize("view", ["id", "name"])
def test_a_request_without_a_deadline_ends_once_another_node_runs_the_agent(view: str) -> None:
    """Its node stands still: it answers nothing, and its connection stays open."""

    async def story(shop: Shop) -> None:
        await shop.open_till(0, Still)
        till = shop.looker.find(Still, id="1") if view == "id" else shop.looker.find(Still)
        assert await till.invoke(Still.sell) == 1
        skew_clock(shop.shops[0].find(Still, "till"), rate=0.001)
        ends: list[tuple[float, str]] = []

        async def wait() -> None:
            with pytest.raises(OutcomeUnknown, match="another node runs the agent by now") as caught:
                await till.invoke(Still.stand_still)
            ends.append((trio.current_time(), caught.value.agent))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(60)
            assert ends == [], "a request may take long"
            await shop.open_till(1, Still)
            granted = trio.current_time()
        assert 0 < ends[0][0] - granted < 7
        if view == "id":  # else it stays with the one that it has found
            assert await till.invoke(Still.sell) == 2

    play(story)


def test_a_request_is_answered_while_the_agent_moves_in_order() -> None:
    async def story(shop: Shop) -> None:
        await shop.open_till(0, Slow)
        till = shop.looker.find(Slow, id="1")
        answers: list[int] = []

        async def wait() -> None:
            answers.append(await till.invoke(Slow.sell_slowly))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            await shop.shops[0].drain()
            await shop.close_till(0)
            await shop.open_till(1, Slow)
        assert answers == [1]
        assert await till.invoke(Slow.sell) == 2

    play(story)


def test_near_agents_of_a_key() -> None:
    async def main() -> None:
        async with open_node(store="memory:") as node:
            till: Ref[Till] = node.find(Till, id="1")
            with pytest.raises(NotFound, match="id '1'"):
                await till.invoke(Till.look)
            await node.start_child(ChildSpec("1", Till))  # its path is a key, and not its own
            with pytest.raises(NotFound):
                await till.invoke(Till.look)
            await node.root.terminate_child("1")
            await node.start_child(ChildSpec("till", Till, key="1"))
            await till.ready()
            assert await till.invoke(Till.sell) == 1
            assert await node.find(Till, "till", id="1").invoke(Till.look) == 1
            for wrong in (node.find(Other, id="1"), node.find(Till, "x", id="1"), node.find(Till, id="2")):
                with pytest.raises(NotFound):
                    await wrong.invoke(Till.look)
            with pytest.raises(TypeError, match="id is that of one agent"):
                node.find(Till, id="1", spread="round_robin")
            with pytest.raises(TypeError, match="id must be a text"):
                node.find(Till, id=1)  # type: ignore[arg-type]

    simulate(main)


def test_a_holder_is_named_by_its_url() -> None:
    async def story(shop: Shop) -> None:
        await shop.open_till(0)
        with pytest.raises(StartFailed, match="ws://a holds the lease of the key '1'"):
            await shop.open_till(1)

    play(story)
