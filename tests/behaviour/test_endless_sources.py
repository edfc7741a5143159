"""Sources of input streams that never end, or never yield: near, over frames, over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, DeadlineExceeded, Ref, action, open_node
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

WORLDS = pytest.mark.parametrize("world", ["near", "frames", "sockets"])


class Reader(Agent):
    """Takes all, some, or nothing."""

    @action(concurrency=4)
    async def total(self, rows: AsyncIterator[int]) -> int:
        return sum([row async for row in rows])

    @action(concurrency=4)
    async def some(self, rows: AsyncIterator[int], count: int) -> list[int]:
        taken: list[int] = []
        async for row in rows:
            taken.append(row)
            if len(taken) == count:
                break
        return taken

    @action(concurrency=4)
    async def nothing(self, rows: AsyncIterator[int]) -> None:
        await trio.sleep_forever()


class Tap:
    """A source without an end."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.given = 0
        self.fate = "untouched"

    async def __aiter__(self) -> AsyncGenerator[int]:
        self.fate = "goes on"
        try:
            if self.silent:
                await trio.sleep_forever()
            while True:
                self.given += 1
                yield self.given
        finally:
            self.fate = "closed"


@asynccontextmanager
async def reader(world: str) -> AsyncGenerator[Ref[Reader]]:
    network = None if world == "sockets" else MemoryNetwork()
    place = "ws://127.0.0.1:0" if world == "sockets" else "ws://here"
    async with open_node(listen=place, network=network) as node:
        near = await node.start(Reader)
        if world == "near":
            yield near
            return
        async with open_node(network=network) as other:
            yield await other.consume(Reader, f"{node.urls[0]}/agents/reader")


@WORLDS
async def test_a_source_that_never_yields_is_closed_at_the_deadline(world: str) -> None:
    async with reader(world) as ref:
        tap = Tap(silent=True)
        with pytest.raises(DeadlineExceeded):
            await ref.within(0.05).invoke(Reader.total, tap)
        assert tap.fate == "closed"
        with trio.move_on_after(0.05) as scope:
            await ref.invoke(Reader.total, again := Tap(silent=True))
        assert (scope.cancelled_caught, again.fate) == (True, "closed")
        assert await ref.invoke(Reader.some, Tap(silent=False), 1) == [1]


@WORLDS
async def test_a_source_that_never_ends_is_held_back_and_closed(world: str) -> None:
    async with reader(world) as ref:
        tap: Any = Tap(silent=False)
        assert await ref.invoke(Reader.some, tap, 100) == list(range(1, 101))
        assert (tap.fate, tap.given <= 100 + 2 * 16) == ("closed", True)
        held = Tap(silent=False)
        with pytest.raises(DeadlineExceeded):
            await ref.within(0.1).invoke(Reader.nothing, held)
        assert (held.fate, held.given <= 17) == ("closed", True)
        endless = Tap(silent=False)
        with pytest.raises(DeadlineExceeded):
            await ref.within(0.1).invoke(Reader.total, endless)
        assert endless.fate == "closed"
        assert await ref.invoke(Reader.some, Tap(silent=False), 1) == [1]
