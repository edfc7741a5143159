"""Members of one pool, and children of one `start_many`, end together; other siblings in reverse order."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Pool, SupervisorSpec, action
from lmos_actors.supervision import BulkSpec
from lmos_actors.testing import open_test_node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node

COUNT = 1000


class Slow(Agent):
    """An agent that takes a second to end."""

    ends: list[tuple[float, str]]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        yield
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        self.ends.append((trio.current_time(), self.path.rpartition("/")[2]))

    @action
    def fail(self) -> None:
        raise RuntimeError("wanted")


async def pool(node: Node, make: Any, **options: Any) -> None:
    await node.start_pool(Pool(make, COUNT, name="slow", **options))


async def many(node: Node, make: Any, **options: Any) -> None:
    await node.root.start_many(ChildSpec("slow", make, **options), COUNT)


async def bulk(node: Node, make: Any, **options: Any) -> None:
    await node.root.start_supervisor(BulkSpec("slow", member=ChildSpec("slow", make, **options), count=COUNT))


async def listed(node: Node, make: Any, **options: Any) -> None:
    for name in ("a", "b", "c"):
        await node.start_child(ChildSpec(name, make, **options))


async def unnamed(node: Node, make: Any, **options: Any) -> None:
    for _ in range(3):
        await node.start(make)


START: list[tuple[Callable[..., Awaitable[None]], list[float]]] = [
    (pool, [1.0] * COUNT),
    (many, [1.0] * COUNT),
    (bulk, [1.0] * COUNT),
    (listed, [1.0, 2.0, 3.0]),
    (unnamed, [1.0, 2.0, 3.0]),
]


@pytest.mark.parametrize(("start", "expected"), START)
async def test_a_crowd_ends_in_the_time_of_its_slowest_and_siblings_one_by_one(
    virtual_clock: Any, start: Callable[..., Awaitable[None]], expected: list[float]
) -> None:
    ends: list[tuple[float, str]] = []
    async with open_test_node() as node:
        await start(node, partial(Slow, ends=ends))
    assert [when for when, _ in ends] == expected
    if len(ends) == 3:
        names = [name for _, name in ends]
        assert names == sorted(names, reverse=True)


async def test_two_crowds_end_in_reverse_order(virtual_clock: Any) -> None:
    ends: list[tuple[float, str]] = []
    async with open_test_node() as node:
        for name in ("first", "second"):
            await node.root.start_many(ChildSpec(name, partial(Slow, ends=ends)), 2)
    assert [(when, name.rpartition("-")[0]) for when, name in ends] == [
        (1.0, "second"), (1.0, "second"), (2.0, "first"), (2.0, "first"),
    ]  # fmt: skip


async def test_the_time_to_stop_is_that_of_the_whole_crowd(virtual_clock: Any) -> None:
    class Busy(Agent):
        @action
        async def work(self) -> None:
            await trio.sleep(100)

    async with open_test_node() as node:
        for ref in await node.root.start_many(ChildSpec("busy", Busy, shutdown=2.5), COUNT):
            await ref.tell(Busy.work)
    assert trio.current_time() == 2.5


async def test_a_crowd_is_stopped_together_for_a_restart_too(virtual_clock: Any) -> None:
    ends: list[tuple[float, str]] = []
    async with open_test_node() as node:
        await node.root.start_supervisor(SupervisorSpec("above", strategy="one_for_all"))
        above = node.root.supervisor("above")
        refs = await above.start_many(ChildSpec("slow", partial(Slow, ends=ends)), 4)
        await refs[0].tell(Slow.fail)
        await trio.sleep(10)
        assert [when for when, _ in ends] == [1.0] * 3
        assert [child.status for child in above.which_children()] == ["running"] * 4
