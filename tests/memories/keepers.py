"""An agent whose memories a test uses as the agent's own code would, on each kind of store."""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import Agent, ChildSpec, open_node
from lmos_actors.memories import MemoryOptions
from lmos_actors.persistence import MemoryStore
from tests.persistence.stores import shared_server, simulated
from tests.redis_server import needs_redis

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors.memories import Memories


class Keeper(Agent):
    """Does nothing itself: the test uses it."""

    def started(self) -> None:
        KEEPERS[self.path] = self


KEEPERS: dict[str, Keeper] = {}


@asynccontextmanager
async def keeper_on(
    store: Any, *, name: str = "keeper", kind: type[Keeper] = Keeper
) -> AsyncGenerator[Keeper]:
    """Run an agent on a node with a store, or without one."""
    async with open_node(store=store) as node:
        await node.start_child(ChildSpec(name, kind))
        yield KEEPERS[name]


def with_options(**options: Any) -> type[Keeper]:
    """Return a class of agents with these options."""
    made: type[Keeper] = type("Bounded", (Keeper,), {"memory_options": MemoryOptions(**options)})
    return made


async def texts(memories: Memories, query: str = "", most: int = 5, tags: tuple[str, ...] = ()) -> list[str]:
    """Return the texts that are recalled."""
    return [each.text for each in await memories.recall(query, most, tags)]


def in_server(folder: Path) -> str:
    """Return the URL of a store in a real server, for any number of nodes."""
    prefix = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return shared_server().url(f"memories-{prefix}")


STORES: dict[str, Any] = {
    "none": lambda _: None,
    "memory": lambda _: MemoryStore(),
    "simulated": simulated,
    "sqlite": lambda folder: f"sqlite:{folder / 'kept.db'}",
    "redis": in_server,
}
"""What a node is given to keep its memories in, for a folder."""

every_store = pytest.mark.parametrize(
    "place",
    [pytest.param(STORES[kind], id=kind, marks=needs_redis if kind == "redis" else ()) for kind in STORES],
)
