"""Streams that are poured: each item in the agent's own step, and every way in which that can end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, AgentDied, action, open_node
from lmos_actors.actors import Outlet, pour
from lmos_actors.testing import settle

if TYPE_CHECKING:
    from lmos_actors import Ref


class Counter(Agent):
    """Counts; `noted` gets each number, and how a stream ended."""

    noted: Any

    @action
    async def count(self, until: int) -> AsyncGenerator[int]:
        try:
            for number in range(until):
                self.noted.append(number)
                yield number
            self.noted.append("end")
        except BaseException as error:
            self.noted.append(type(error).__name__)
            raise

    @action
    async def fail(self, code: str) -> AsyncGenerator[int]:
        yield 1
        if code == "crash":
            raise ValueError(code)
        raise ActionFailed({"code": code})

    @action
    async def nothing(self) -> AsyncGenerator[int]:
        for number in ():
            yield number


class Reader:
    """Takes items, as many as it has room for; notes the task that hands each of them over."""

    def __init__(self, room: float = float("inf"), bad: int | None = None) -> None:
        self.room, self.bad = room, bad
        self.items: list[int] = []
        self.tasks: set[trio.lowlevel.Task] = set()
        self.outlet = Outlet(self.take)

    def take(self, item: int) -> bool:
        if len(self.items) >= self.room:
            return False
        self.tasks.add(trio.lowlevel.current_task())
        if item == self.bad:
            raise LookupError(f"no {item} is wanted")
        self.items.append(item)
        return True

    def more(self, room: float) -> None:
        self.room += room
        self.outlet.go_on()


@asynccontextmanager
async def counter(where: str, log: list[Any]) -> AsyncGenerator[Ref[Counter]]:
    """Start the agent in this node, or in another one."""
    async with open_node(listen="ws://127.0.0.1:0") as node:
        ref = await node.start(Counter, noted=log)
        if where == "near":
            yield ref
            return
        async with open_node() as other:
            yield await other.consume(
                Counter, f"{node.urls[0].replace('ws:', 'http:').rstrip('/')}/agents/counter"
            )


everywhere = pytest.mark.parametrize("where", ["near", "far"])


async def poured(ref: Ref[Counter], reader: Reader, until: int) -> None:
    async with ref.stream(Counter.count, until) as items:
        await pour(items, reader.outlet)


async def test_an_item_is_taken_in_the_step_of_the_agent(virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader()
    async with counter("near", log) as ref:
        await poured(ref, reader, 40)
    assert log[-1] == "end"
    assert reader.items == [*range(40)]
    assert trio.lowlevel.current_task() not in reader.tasks
    assert len(reader.tasks) == 1


async def test_the_run_waits_while_there_is_no_room(virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader(room=2)
    async with counter("near", log) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(poured, ref, reader, 5)
        await settle()
        assert (reader.items, log) == ([0, 1], [0, 1, 2])
        reader.more(1)
        await settle()
        assert (reader.items, log) == ([0, 1, 2], [0, 1, 2, 3])
        reader.outlet.go_on()  # though there is no more room
        await settle()
        assert reader.items == [0, 1, 2]
        reader.more(10)
    assert reader.items == [*range(5)]


@everywhere
async def test_a_reader_that_raises_ends_the_stream(where: str, virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader(bad=3)
    async with counter(where, log) as ref:
        with pytest.raises(LookupError, match="no 3 is wanted"):
            await poured(ref, reader, 100)
        await settle()
        assert log[-1] == "GeneratorExit"
    assert reader.items == [0, 1, 2]


@everywhere
async def test_a_reader_that_leaves_cancels_the_run(where: str, virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader(room=1)
    async with counter(where, log) as ref:
        with trio.move_on_after(1) as scope:
            await poured(ref, reader, 100)
        await settle()
        assert scope.cancelled_caught
        assert log[-1] == "GeneratorExit"
        reader.more(5)
        await settle()
    assert reader.items == [0]


@everywhere
@pytest.mark.parametrize(("code", "error"), [("no", ActionFailed), ("crash", AgentDied)])
async def test_the_error_of_the_run_comes_after_its_items(
    where: str, code: str, error: type[Exception], virtual_clock
) -> None:
    log: list[Any] = []
    reader = Reader()
    async with counter(where, log) as ref:
        with pytest.raises(error):
            async with ref.stream(Counter.fail, code) as items:
                await pour(items, reader.outlet)
    assert reader.items == [1]


async def test_a_run_that_never_waits_lets_others_run(virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader()
    async with counter("near", log) as ref, trio.open_nursery() as nursery:
        nursery.start_soon(poured, ref, reader, 1_000_000)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 0 < len(reader.items) < 1_000


@everywhere
async def test_items_that_came_before_are_taken_first(where: str, virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader()
    async with counter(where, log) as ref, ref.stream(Counter.count, 30) as items:
        await settle()  # sixteen wait now
        await pour(items, reader.outlet)
    assert reader.items == [*range(30)]


@everywhere
@pytest.mark.parametrize("room", [3, 16, 17])
async def test_items_that_came_before_wait_for_room(where: str, room: int, virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader(room=room)
    async with counter(where, log) as ref, ref.stream(Counter.count, 50) as items:
        await settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pour, items, reader.outlet)
            await settle()
            assert reader.items == [*range(room)]
            assert len(log) <= room + 18
            reader.more(100)
    assert reader.items == [*range(50)]


@everywhere
async def test_an_empty_stream_ends(where: str, virtual_clock) -> None:
    log: list[Any] = []
    reader = Reader()
    async with counter(where, log) as ref, ref.stream(Counter.nothing) as items:
        await pour(items, reader.outlet)
    assert reader.items == []


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("room", [10, 15, 16])
async def test_a_reader_that_stops_pouring_may_iterate_the_rest(
    room: int, queued: bool, virtual_clock
) -> None:
    log: list[Any] = []
    reader = Reader(room=room)
    async with counter("near", log) as ref, ref.stream(Counter.count, 50) as items:
        if queued:
            await settle()
        with trio.move_on_after(1):
            await pour(items, reader.outlet)
        with trio.fail_after(1):
            rest = [item async for item in items]
    assert reader.items + rest == [*range(50)]


async def test_a_reader_that_stops_pouring_between_two_items_loses_none(virtual_clock) -> None:
    log: list[Any] = []
    taken: list[int] = []
    scope = trio.CancelScope()

    def take(item: int) -> bool:
        taken.append(item)
        if item == 14:
            scope.cancel()
        return True

    async with counter("near", log) as ref, ref.stream(Counter.count, 50) as items:
        with scope:
            await pour(items, Outlet(take))
        with trio.fail_after(1):
            rest = [item async for item in items]
    assert taken + rest == [*range(50)]
