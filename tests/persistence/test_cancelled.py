"""Callers of durable agents leave at every step: what is kept is whole, and nothing goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Ref, action, open_node, simulate
from lmos_actors.persistence import SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.matrix import few_or_all
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node


class Shop(Agent, durable=True):
    sold: int = 0
    rung: int = 0

    @action
    def sell(self) -> int:
        self.sold += 1
        return self.sold

    @action(snapshot_safe=True)
    async def sell_slowly(self) -> int:
        self.sold += 1
        await trio.sleep(0.001)
        self.after(0.01, self.ring, durable=True)
        return self.sold

    @action(snapshot_safe=True)
    async def sell_all(self, items: AsyncIterator[int]) -> AsyncIterator[int]:
        async for _ in items:
            self.sold += 1
            yield self.sold

    def ring(self) -> None:
        self.rung += 1

    @action
    def look(self) -> tuple[int, int]:
        return self.sold, self.rung


async def by_key(_: Node, shop: Ref[Shop]) -> None:
    await shop.retrying(key="one").invoke(Shop.sell)


async def slowly_by_key(_: Node, shop: Ref[Shop]) -> None:
    await shop.retrying(key="one").invoke(Shop.sell_slowly)


async def two_of_one_key(_: Node, shop: Ref[Shop]) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(shop.retrying(key="one").invoke, Shop.sell_slowly)


async def ask(_: Node, shop: Ref[Shop]) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(shop.invoke, Shop.sell_slowly)
            nursery.start_soon(shop.invoke, Shop.look)


async def feed(_: Node, shop: Ref[Shop]) -> None:
    async def items() -> AsyncIterator[int]:
        for item in range(3):
            await trio.lowlevel.checkpoint()
            yield item

    async with shop.stream(Shop.sell_all, items()) as numbers:
        assert [number async for number in numbers] == [1, 2, 3]


async def start(node: Node, _: Ref[Shop]) -> None:
    await node.start_child(ChildSpec("another", Shop))


async def start_many(node: Node, _: Ref[Shop]) -> None:
    await node.root.start_many(ChildSpec("several", Shop), 5)


WORKS = (by_key, slowly_by_key, two_of_one_key, ask, feed, start, start_many)
KEYED = {by_key: Shop.sell, slowly_by_key: Shop.sell_slowly, two_of_one_key: Shop.sell_slowly}
SOLD = {ask: 3, feed: 3}
"""How much is sold where that is not one."""


@pytest.mark.parametrize("way", ["near", "far"])
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_at_every_step(work: Callable[[Node, Ref[Shop]], Awaitable[None]], way: str) -> None:
    async def play(steps: int) -> bool:
        """Return whether the work ended before that step."""
        disk, network, ended = simulated_disk(1), MemoryNetwork(), trio.Event()
        async with (
            open_node(store=SimulatedStore(disk), listen="ws://shop", network=network) as node,
            open_node(network=network) as client,
        ):
            shop = await node.start_child(ChildSpec("shop", Shop))
            used = shop if way == "near" else await client.consume(Shop, "http://shop/agents/shop")

            async def do() -> None:
                await work(node, used)
                ended.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(do)
                for step in range(steps):  # time stands still between two checkpoints
                    if step % 4 == 3:
                        await trio.sleep(0.0003)
                    else:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await trio.sleep(1)
            store: Any = node.statistics().store
            assert (store.waiting, store.waiting_bytes) == (0, 0)
            counts = shop.statistics()
            assert counts.accepted == counts.handled + counts.cancelled + counts.dropped, counts
            sold, rung = await used.invoke(Shop.look)
            assert sold <= SOLD.get(work, 1)
            assert rung <= sold
            if work in KEYED:  # once, whether it was carried out or not
                first = await used.retrying(key="one").invoke(KEYED[work])
                assert first in (1, sold + 1)
                assert await used.retrying(key="one").invoke(KEYED[work]) == first
            await trio.sleep(1)
            found = await shop.invoke(Shop.look)
            assert node.connection_failures == client.connection_failures == ()
            assert not node.crash_reports
        async with open_node(store=SimulatedStore(disk)) as node:
            shop = await node.start_child(ChildSpec("shop", Shop))
            assert await shop.invoke(Shop.look) == found
            another = await node.start_child(ChildSpec("another", Shop))
            assert await another.invoke(Shop.sell) == 1
            several = await node.root.start_many(ChildSpec("several", Shop), 5)
            assert [await each.invoke(Shop.sell) for each in several] == [1] * 5
        return ended.is_set()

    steps = 0
    while not simulate(play, steps):
        steps += few_or_all(5, 1)
        assert steps < 200
    assert steps > 1
