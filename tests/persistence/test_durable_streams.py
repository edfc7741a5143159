"""Durable agents with input streams: what is kept, what waits for that, what a crash leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, AgentDied, ChildSpec, InvalidInput, Ref, action, open_node
from lmos_actors.transport import MemoryNetwork
from tests.persistence.stores import StoreOfTest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.persistence import Store


class Added(msgspec.Struct, frozen=True):
    number: int


class Safe(Agent, durable=True):
    """Its state is whole at each await."""

    total: int = 0

    @action(snapshot_safe=True)
    async def ingest(self, rows: AsyncIterator[int]) -> int:
        async for row in rows:
            self.add(row)
        return self.total

    @action(snapshot_safe=True)
    async def running(self, rows: AsyncIterator[int]) -> AsyncIterator[int]:
        async for row in rows:
            self.add(row)
            yield self.total

    @action
    def get(self) -> int:
        return self.total

    def add(self, row: int) -> None:
        if row < 0:
            raise KeyError(row)
        self.total += row


class Serial(Agent, durable=True, serial=True):
    """Its state is whole at the ends of its runs."""

    total: int = 0

    @action
    async def ingest(self, rows: AsyncIterator[int]) -> int:
        async for row in rows:
            self.add(row)
        return self.total

    @action
    async def running(self, rows: AsyncIterator[int]) -> AsyncIterator[int]:
        async for row in rows:
            self.add(row)
            yield self.total

    @action
    def get(self) -> int:
        return self.total

    def add(self, row: int) -> None:
        if row < 0:
            raise KeyError(row)
        self.total += row


class Journal(Agent, durable="journal"):
    """Its facts are kept wherever they are recorded."""

    total: int = 0

    @action
    async def ingest(self, rows: AsyncIterator[int]) -> int:
        async for row in rows:
            self.add(row)
        return self.total

    @action
    async def running(self, rows: AsyncIterator[int]) -> AsyncIterator[int]:
        async for row in rows:
            self.add(row)
            yield self.total

    @action
    def get(self) -> int:
        return self.total

    def apply(self, fact: Added) -> None:
        self.total += fact.number

    def add(self, row: int) -> None:
        if row < 0:
            raise KeyError(row)
        self.record(Added(row))


class Teller(Agent, durable=True):
    """Streams into another agent what it has changed."""

    told: int = 0
    other: Ref[Safe] | None = None

    @action(snapshot_safe=True)
    async def tell(self, times: int) -> int:
        assert self.other is not None

        async def rows() -> AsyncIterator[int]:
            for _ in range(times):
                self.told += 1
                yield self.told

        return await self.other.invoke(Safe.ingest, rows())


KINDS = pytest.mark.parametrize("kind", [Safe, Serial, Journal])
WORLDS = pytest.mark.parametrize("far", [False, True], ids=["near", "frames"])


@asynccontextmanager
async def durable(kind: Any, store: Store | str, far: bool) -> AsyncGenerator[tuple[Ref[Any], Ref[Any]]]:
    """Start an agent; give the ref of its consumer, and a near one."""
    network = MemoryNetwork()
    async with open_node(store=store, listen="ws://here", network=network) as node:
        near = await node.start_child(ChildSpec("it", kind))
        if not far:
            yield near, near
            return
        async with open_node(network=network) as other:
            yield await other.consume(kind, "http://here/agents/it"), near


class Tap:
    """A source that notes its end."""

    def __init__(self, *rows: int, error: Exception | None = None, waits: bool = False) -> None:
        self.rows, self.error, self.waits = rows, error, waits
        self.given, self.closed = 0, False

    async def __aiter__(self) -> AsyncGenerator[int]:
        try:
            for row in self.rows:
                self.given += 1
                yield row
            if self.error is not None:
                raise self.error
            if self.waits:
                await trio.sleep_forever()
        finally:
            self.closed = True


async def take(stream: Any, seen: list[int]) -> None:
    """Put the items of a stream in a list."""
    async with stream as items:
        async for item in items:
            seen.append(item)


@KINDS
@WORLDS
async def test_what_a_stream_has_changed_is_kept(kind: Any, far: bool, autojump_clock: object) -> None:
    store = StoreOfTest()
    async with durable(kind, store, far) as (ref, _):
        assert await ref.invoke(kind.ingest, Tap(1, 2, 3)) == 6
        async with ref.stream(kind.running, Tap(10, 20)) as totals:
            assert [total async for total in totals] == [16, 36]
    async with durable(kind, store, far) as (ref, _):
        assert await ref.invoke(kind.get) == 36


@KINDS
@WORLDS
async def test_the_answer_of_a_stream_waits_for_its_state(kind: Any, far: bool) -> None:
    store, seen = StoreOfTest(), list[int]()

    async def ask(ref: Ref[Any]) -> None:
        seen.append(await ref.invoke(kind.ingest, Tap(*range(100))))

    async with durable(kind, store, far) as (ref, _), trio.open_nursery() as nursery:
        store.may_commit.clear()
        nursery.start_soon(ask, ref)
        with trio.move_on_after(0.1):
            await trio.sleep_forever()
        assert seen == []
        store.may_commit.set()
    assert seen == [4950]


@KINDS
async def test_items_of_a_serial_class_leave_at_once_and_others_wait(kind: Any) -> None:
    store, seen = StoreOfTest(), list[int]()

    async with durable(kind, store, far=False) as (ref, _), trio.open_nursery() as nursery:
        store.may_commit.clear()
        tap = Tap(1, 2, 3, waits=True)
        nursery.start_soon(take, ref.stream(kind.running, tap), seen)
        await wait_all_tasks_blocked()
        assert seen == ([1, 3, 6] if kind is Serial else [])
        store.may_commit.set()
        while len(seen) < 3:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert tap.closed


@KINDS
@WORLDS
async def test_a_crash_in_the_middle_gives_back_what_was_kept(
    kind: Any, far: bool, autojump_clock: object
) -> None:
    async with durable(kind, "memory:", far) as (ref, near):
        assert await ref.invoke(kind.ingest, Tap(1)) == 1
        tap, seen = Tap(2, 3, -1, waits=True), list[int]()
        with pytest.raises(AgentDied) as died:
            await take(ref.stream(kind.running, tap), seen)
        assert died.value.started
        assert tap.closed
        await near.ready()
        kept = await near.invoke(kind.get)
        assert kept == (1 if kind is Serial else 6)
        assert kind is Serial or seen[-1:] in ([], [3], [6])
        assert await ref.invoke(kind.ingest, Tap(10)) == kept + 10


@KINDS
@WORLDS
async def test_the_end_of_a_run_whose_source_has_failed_waits_for_its_state(kind: Any, far: bool) -> None:
    store, seen = StoreOfTest(), list[str]()

    async def ask(ref: Ref[Any], tap: Tap, error: type[Exception]) -> None:
        with pytest.raises(error):
            await ref.invoke(kind.ingest, tap)
        seen.append(error.__name__)

    async with durable(kind, store, far) as (ref, _), trio.open_nursery() as nursery:
        wrong: Any = "two"
        for tap, error in ((Tap(1, 2, error=OSError("gone")), OSError), (Tap(3, wrong), InvalidInput)):
            store.may_commit.clear()
            nursery.start_soon(ask, ref, tap, error)
            with trio.move_on_after(0.1):
                await trio.sleep_forever()
            assert error.__name__ not in seen
            store.may_commit.set()
            while error.__name__ not in seen:
                await trio.lowlevel.checkpoint()
    async with durable(kind, store, far) as (ref, _):
        assert await ref.invoke(kind.get) == 6


@pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")
@KINDS
@WORLDS
async def test_a_cancelled_stream_leaves_what_it_has_changed(
    kind: Any, far: bool, autojump_clock: object
) -> None:
    async with durable(kind, "memory:", far) as (ref, near):
        tap = Tap(1, 2, 3, waits=True)
        with trio.move_on_after(1):
            await ref.invoke(kind.ingest, tap)
        assert tap.closed
        assert await near.invoke(kind.get) == 6


@WORLDS
async def test_items_of_a_durable_caller_wait_for_its_state(far: bool) -> None:
    store, network = StoreOfTest(), MemoryNetwork()
    async with (
        open_node(listen="ws://there", network=network) as node,
        open_node(store="memory:", network=network, listen="ws://sums") as sums,
    ):
        safe = await sums.start_child(ChildSpec("sum", Safe))
        del node
        async with open_node(store=store, network=network) as own, trio.open_nursery() as nursery:
            other = await own.consume(Safe, "http://sums/agents/sum")
            teller = await own.start_child(ChildSpec("teller", lambda: Teller(other=other)))
            assert await teller.invoke(Teller.tell, 1) == 1  # kept: the next request need not wait
            store.may_commit.clear()
            nursery.start_soon(teller.invoke, Teller.tell, 2)
            with trio.move_on_after(0.1):
                await trio.sleep_forever()
            assert await safe.invoke(Safe.get) == 1
            store.may_commit.set()
            while await safe.invoke(Safe.get) < 6:
                await trio.lowlevel.checkpoint()
