"""A stream of 64 MB over sockets of this machine to a consumer that is slow at first: memory stays flat."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lmos_actors import Agent, action, open_node

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
