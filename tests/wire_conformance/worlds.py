"""The worlds that the table is run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import open_node, simulate
from lmos_actors.protocol.lmos import SessionOptions
from tests.wire_conformance.agents import Helper, start_helper, tree
from tests.wire_conformance.bench import LIMIT, Bench, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node, Ref
    from tests.wire_conformance.bench import Behaviour


class Near(World):
    """The agents are in the same node."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        for ref in self.node.agents():
            if ref.path == name:
                return ref
        return self.node.find(cls, name)


class Far(World):
    """The agents are at the other end of a connection."""

    far = True

    def __init__(self, node: Node, base: str) -> None:
        self.node = node
        self.base = base

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        return await self.node.consume(cls, f"{self.base}/agents/{name}")


async def carried_out(row: Behaviour, world: World, helper: Ref[Helper]) -> Any:
    """Carry out one row with an agent of its own."""
    name = await helper.invoke(Helper.begin, row.kind.__name__)
    with trio.fail_after(LIMIT):
        return await row.run(Bench(world, helper, name))


async def over(base: str, row: Behaviour) -> Any:
    """Carry out a row with far refs."""
    async with open_node(tree()) as node:
        world = Far(node, base)
        got = await carried_out(row, world, await world.ref(Helper, "helper"))
        assert node.connection_failures == ()
        return got


def near(row: Behaviour) -> Any:
    """Carry out a row with near refs, on virtual time."""

    async def main() -> Any:
        async with open_node(tree()) as node:
            return await carried_out(row, Near(node), await start_helper(node))

    return simulate(main)


def in_memory(row: Behaviour, session: SessionOptions | None = None) -> Any:
    """Carry out a row with refs of another node, over streams in memory, on virtual time."""

    async def main() -> Any:
        async with open_node(tree(), listen="ws://here:0", session=session) as node:
            await start_helper(node)
            got = await over(node.urls[0], row)
            assert node.connection_failures == ()
            return got

    return simulate(main)


def plain(row: Behaviour) -> Any:
    """Carry out a row with refs of a node that offers none of our extensions."""
    return in_memory(row, SessionOptions(offers=()))


WORLDS: dict[str, Callable[[Behaviour], Any]] = {"near": near, "memory": in_memory, "plain": plain}
"""How a row is carried out where one process is enough."""


def over_tcp(base: str, row: Behaviour) -> Any:
    """Carry out a row with refs to agents in another process, over TCP, in real time."""
    return trio.run(over, base, row)
