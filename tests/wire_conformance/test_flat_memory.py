"""A stream of 64 MB over sockets of this machine to a consumer that is slow at first: memory stays flat."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio

from lmos_actors import Agent, action, open_node
from tests.benchmarks import wire

ITEM = 65_536
ITEMS = 1_024
BOUND = 8 << 20
"""Bytes that both sides may have at a time: credit for 16 items, buffers, and what Python adds."""


class Source(Agent):
    given: int = 0

    @action
    async def parts(self) -> AsyncIterator[bytes]:
        for number in range(ITEMS):
            self.given = number + 1
            yield number.to_bytes(2, "big") * (ITEM // 2)

    @action
    async def texts(self) -> AsyncIterator[str]:
        for number in range(ITEMS):
            self.given = number + 1
            yield chr(ord("a") + number % 26) * ITEM

    @action
    def how_many(self) -> int:
        return self.given


@pytest.mark.slow
@pytest.mark.parametrize("handle", [Source.parts, Source.texts], ids=["binary frames", "text frames"])
async def test_a_stream_of_64_mb_leaves_no_memory_behind(handle: Any) -> None:
    async with open_node() as ours, open_node(listen="ws://127.0.0.1:0") as theirs:
        await theirs.start(Source)
        far = await ours.consume(Source, f"{theirs.urls[0]}/agents/source")
        tracemalloc.start()
        try:
            began, _ = tracemalloc.get_traced_memory()
            size = 0
            async with far.stream(handle) as items:
                size += len(await anext(aiter(items)))
                ahead = 0
                for _ in range(50):  # as far ahead as it gets while nobody takes anything
                    ahead = await far.invoke(Source.how_many)
                assert 1 < ahead <= 1 + 2 * 16
                async for item in items:
                    size += len(item)
            assert size == ITEM * ITEMS
            _, peak = tracemalloc.get_traced_memory()
            assert peak - began < BOUND
        finally:
            tracemalloc.stop()


class Mirror(Agent):
    """Answers every part with its reverse."""

    taken: int = 0
    gate: trio.Event = attrs.field(factory=trio.Event)

    @action
    async def reverse(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in parts:
            self.taken += 1
            yield part[::-1]

    @action
    async def held(self, parts: AsyncIterator[bytes]) -> int:
        await self.gate.wait()
        return sum([len(part) async for part in parts])

    @action
    async def counted(self, parts: AsyncIterator[bytes]) -> int:
        return sum([len(part) async for part in parts])

    @action
    async def also(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in parts:
            yield part

    @action
    def open(self) -> None:
        self.gate.set()

    @action
    def how_many(self) -> int:
        return self.taken


@pytest.mark.slow
async def test_streams_both_ways_at_once_leave_no_memory_behind() -> None:
    given = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal given
        for number in range(ITEMS):
            given = number + 1
            yield number.to_bytes(2, "big") * (ITEM // 2)

    async with open_node() as ours, open_node(listen="ws://127.0.0.1:0") as theirs:
        await theirs.start(Mirror)
        far = await ours.consume(Mirror, f"{theirs.urls[0]}/agents/mirror")
        tracemalloc.start()
        try:
            began, _ = tracemalloc.get_traced_memory()
            size = 0
            async with far.stream(Mirror.reverse, parts()) as items:
                size += len(await anext(items))
                for _ in range(50):  # as far ahead as it gets while nobody takes anything
                    await far.invoke(Mirror.how_many)
                assert given <= 5 * 16
                async for item in items:
                    size += len(item)
            assert size == ITEM * ITEMS
            _, peak = tracemalloc.get_traced_memory()
            assert peak - began < BOUND
        finally:
            tracemalloc.stop()


async def test_a_slow_handler_holds_its_source_back_and_nobody_else() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield bytes(ITEM)

    async with (
        open_node() as ours,
        open_node(listen="ws://127.0.0.1:0") as theirs,
        trio.open_nursery() as nursery,
    ):
        await theirs.start(Mirror)
        far = await ours.consume(Mirror, f"{theirs.urls[0]}/agents/mirror")
        nursery.start_soon(far.invoke, Mirror.held, parts())
        async with far.stream(Mirror.reverse, parts()) as items:
            assert len([item async for item in items]) == 64
        assert len(nursery.child_tasks) == 1
        await far.invoke(Mirror.open)


async def test_a_slow_consumer_holds_back_handler_and_source_and_nobody_else() -> None:
    given = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(ITEMS):
            given += 1
            yield bytes(ITEM)

    async def few() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield bytes(ITEM)

    async with open_node() as ours, open_node(listen="ws://127.0.0.1:0") as theirs:
        await theirs.start(Mirror)
        far = await ours.consume(Mirror, f"{theirs.urls[0]}/agents/mirror")
        async with far.stream(Mirror.reverse, parts()) as slow:
            await anext(slow)
            for _ in range(50):  # meanwhile the same connection carries other requests and streams
                await far.invoke(Mirror.how_many)
            before = given
            assert await far.invoke(Mirror.counted, few()) == 64 * ITEM
            async with far.stream(Mirror.also, few()) as items:
                assert len([item async for item in items]) == 64
            assert given == before <= 5 * 16


@pytest.mark.long
@pytest.mark.timeout(0)
def test_1_gb_in_both_directions_at_once_leaves_no_memory_behind_in_either_process() -> None:
    assert wire.memory_both_ways(1_024) < 64
