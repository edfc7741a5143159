"""The waiting graph of input streams: handlers that wait for items, sources that are held back, circles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Ref, action, open_node
from lmos_actors.testing import open_test_node, settle
from lmos_actors.transport import MemoryNetwork
from lmos_actors.types import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node
    from lmos_actors.simulation import VirtualClock


async def silent() -> AsyncIterator[int]:
    await trio.sleep_forever()
    yield 1


async def endless() -> AsyncIterator[int]:
    while True:
        yield 1


class Reader(Agent, serial=True):
    """Takes rows, or does not."""

    @action
    async def take(self, rows: AsyncIterator[int]) -> int:
        return sum([row async for row in rows])

    @action
    async def ignore(self, rows: AsyncIterator[int]) -> None:
        await trio.sleep_forever()

    @action
    async def echo(self, rows: AsyncIterator[int]) -> AsyncIterator[int]:
        async for row in rows:
            yield row

    @action
    def note(self) -> int:
        return 1


class Feeder(Agent):
    """Streams into a reader."""

    reader: Ref[Reader]

    @action
    async def say_nothing(self) -> None:
        await self.reader.invoke(Reader.take, silent())

    @action
    async def say_too_much(self) -> None:
        await self.reader.invoke(Reader.ignore, endless())

    @action
    async def talk(self) -> None:
        async with self.reader.stream(Reader.echo, silent()) as rows:
            async for _ in rows:
                pass

    async def _asked(self) -> AsyncIterator[int]:
        yield await self.reader.invoke(Reader.note)

    @action
    async def ask_between(self) -> None:
        await self.reader.invoke(Reader.take, self._asked())

    @action
    async def ask_between_beside(self) -> None:
        async with self.reader.begin(Reader.take, self._asked()) as call:
            await call.result()


async def both(node: Node) -> tuple[Ref[Feeder], Ref[Reader]]:
    reader = await node.start_child(ChildSpec("reader", Reader))
    return await node.start_child(ChildSpec("feeder", partial(Feeder, reader=reader))), reader


ITEM = Waiting("reader", "feeder", "item", "take", "take", why="rows")


@pytest.mark.parametrize(
    ("handle", "edges"),
    [
        (Feeder.say_nothing, [ITEM]),
        (Feeder.say_too_much, [Waiting("feeder", "reader", "seat", "ignore", "say_too_much")]),
        (
            Feeder.talk,
            [
                Waiting("reader", "feeder", "item", "echo", "echo", why="rows"),
                Waiting("feeder", "reader", "answer", "echo", "talk"),
            ],
        ),
    ],
)
async def test_what_can_go_on_is_no_circle(
    virtual_clock: VirtualClock, handle: Any, edges: list[Waiting]
) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        feeder, _ = await both(node)
        nursery.start_soon(feeder.invoke, handle)
        await settle()
        graph = node.waiting_graph()
        assert [edge for edge in graph.edges if edge.waiter is not None] == edges
        assert graph.cycles() == ()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("handle", [Feeder.ask_between, Feeder.ask_between_beside])
async def test_a_source_that_waits_for_its_reader_is_a_circle(
    virtual_clock: VirtualClock, handle: Any
) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        feeder, _ = await both(node)
        nursery.start_soon(feeder.invoke, handle)
        await settle()
        graph = node.waiting_graph()
        name = handle.name
        assert (ITEM, Waiting("feeder", "reader", "answer", "note", name)) in graph.cycles()
        assert "reader (run of 'take') waits for the next item of 'rows' from feeder" in str(graph)
        nursery.cancel_scope.cancel()


async def test_user_code_is_seen_as_a_source(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        _, reader = await both(node)
        nursery.start_soon(partial(reader.invoke, Reader.take, silent()), name="the mouth")
        await settle()
        assert node.waiting_graph().edges == (Waiting("reader", None, "item", "take", "take", why="rows"),)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("handle", "source", "here", "there"),
    [
        (Reader.take, silent, [], [Waiting("reader", None, "item", "take", "take", why="rows")]),
        (Reader.ignore, endless, [("credit", "reader", "ignore", "the mouth")], []),
    ],
)
async def test_each_node_sees_its_side(
    autojump_clock: object,
    handle: Any,
    source: Callable[[], AsyncIterator[int]],
    here: list[tuple[str, ...]],
    there: list[Waiting],
) -> None:
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://there", network=network) as far,
        open_node(network=network) as near,
        trio.open_nursery() as nursery,
    ):
        await far.start_child(ChildSpec("reader", Reader))
        reader = await near.consume(Reader, "http://there/agents/reader")
        nursery.start_soon(partial(reader.invoke, handle, source()), name="the mouth")
        await trio.sleep(1)
        seen = [(e.kind, e.target, e.affordance, e.run) for e in near.waiting_graph().edges]
        assert seen == here
        assert list(far.waiting_graph().edges) == there
        nursery.cancel_scope.cancel()
