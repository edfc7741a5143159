"""Crowds: many connections that come or leave at once hold up nobody who is there already."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors.transport import TcpNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Pairs = list[tuple[trio.abc.Stream, trio.abc.Stream]]

MANY = 200
FEW = 4
"""Let on in a pass of the event loop: each takes as long as some requests of others."""


class Passes:
    """The number of passes of the event loop, and what happened in which.

    Tasks of one pass run in any order, the one that counts among them: what happens in one has one number or
    the next.
    """

    def __init__(self) -> None:
        self.number = 0
        self.ends: list[int] = []
        self.begins: list[int] = []
        self.news: list[int] = []

    async def count(self) -> None:
        while True:
            self.number += 1
            await trio.lowlevel.checkpoint()

    async def take(self, stream: trio.abc.Stream) -> None:
        """Receive all that comes, and note when."""
        seen = self.begins
        try:
            while await stream.receive_some():
                seen.append(self.number)
                seen = self.news
        except trio.BrokenResourceError:
            pass
        self.ends.append(self.number)

    async def until(self, seen: list[int], count: int) -> None:
        with trio.fail_after(20):
            while len(seen) < count:
                await trio.lowlevel.checkpoint()


def most_in_one(seen: list[int]) -> int:
    return max(seen.count(number) for number in set(seen))


@asynccontextmanager
async def connected(count: int) -> AsyncIterator[tuple[Pairs, Passes]]:
    """Give pairs of streams, of which the second was accepted, and count passes."""
    network, pairs = TcpNetwork(), list[tuple[trio.abc.Stream, trio.abc.Stream]]()
    listener = await network.listen(endpoint_of("ws://127.0.0.1:0"))
    where = endpoint_of(f"ws://127.0.0.1:{listener.addresses[0][1]}")
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                pairs.append((await network.connect(where, None), (await listener.accept())[0]))
            passes = Passes()
            nursery.start_soon(passes.count)
            for _, served in pairs:
                nursery.start_soon(passes.take, served)
            yield pairs, passes
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await listener.aclose()
            for pair in pairs:
                for stream in pair:
                    await trio.aclose_forcefully(stream)


async def test_those_that_come_go_on_a_few_at_a_time() -> None:
    async with connected(MANY) as (pairs, passes):
        for client, _ in pairs:
            await client.send_all(b"hello")
        await passes.until(passes.begins, MANY)
        assert most_in_one(passes.begins) <= 2 * FEW


@pytest.mark.parametrize("how", ["in order", "by a reset"])
async def test_who_is_there_does_not_wait_for_those_that_leave(how: str) -> None:
    async with connected(MANY) as (pairs, passes):
        for client, _ in pairs:
            await client.send_all(b"hello")
        await passes.until(passes.begins, MANY)
        async with trio.open_nursery() as nursery:
            for client, _ in pairs[:-1]:
                if how == "by a reset":
                    client.break_now()  # type: ignore[attr-defined]
                else:
                    nursery.start_soon(trio.aclose_forcefully, client)
        await pairs[-1][0].send_all(b"here")
        await passes.until(passes.news, 1)
        await passes.until(passes.ends, MANY - 1)
        assert most_in_one(passes.ends) <= 2 * FEW
        assert sum(end < passes.news[0] for end in passes.ends) < MANY / 2


async def test_who_is_there_does_not_wait_for_those_that_come() -> None:
    async with connected(MANY) as (pairs, passes):
        await pairs[0][0].send_all(b"hello")
        await passes.until(passes.begins, 1)
        for client, _ in pairs[1:]:
            await client.send_all(b"hello")
        for number in range(1, 6):
            await pairs[0][0].send_all(b"here")
            await passes.until(passes.news, number)
        assert len(passes.begins) < MANY / 2


async def test_of_more_the_more_there_is_to_do() -> None:
    """So the last of many that come, and ask again and again, do not wait for all rounds of the others."""
    async with connected(2 * MANY) as (pairs, passes):
        for client, _ in pairs[:MANY]:
            await client.send_all(b"hello")
        await passes.until(passes.begins, MANY)
        began = len(passes.begins)
        for client, _ in pairs[MANY:]:
            await client.send_all(b"hello")
        for client, _ in pairs[:MANY]:
            await client.send_all(b"here")
        await passes.until(passes.begins, 2 * MANY)
        assert most_in_one(passes.begins[began:]) > 10 * FEW


async def test_those_that_are_cancelled_while_they_wait_leave_the_line() -> None:
    async with connected(MANY) as (pairs, passes):
        for client, _ in pairs:
            await client.send_all(b"hello")
        await passes.until(passes.begins, 1)
    assert len(passes.begins) < MANY
    async with connected(1) as (pairs, passes):
        await pairs[0][0].send_all(b"hello")
        await passes.until(passes.begins, 1)
