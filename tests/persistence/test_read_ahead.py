"""Starts of many durable agents: their states are read together, and never older than they are."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from lmos_actors import (
    Agent,
    ChildSpec,
    StartFailed,
    SupervisorSpec,
    action,
    invoke_all,
    open_node,
)
from lmos_actors.errors import StoreDamaged
from lmos_actors.persistence import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lmos_actors import Supervisor

MANY = 150


class Counter(Agent, durable=True):
    n: int = 0

    @action
    def add(self, n: int) -> int:
        self.n += n
        return self.n


class CountedStore(MemoryStore):
    """A store that notes what is read, and has one record damaged."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []
        self.damaged = ""

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        self.reads.append(len(keys))
        if self.damaged in keys:
            raise StoreDamaged(self.name, f"the record {self.damaged!r} has another content than was written")
        return super().get(space, keys)


async def test_states_of_agents_that_start_together_are_read_together() -> None:
    store = CountedStore()
    spec = ChildSpec("counter", Counter)
    async with open_node(store=store) as node:
        refs = await node.root.start_many(spec, MANY)
        for n, ref in enumerate(refs):
            await ref.invoke(Counter.add, n)
    store.reads.clear()
    async with open_node(store=store) as node:
        refs = await node.root.start_many(spec, MANY)
        assert await invoke_all(refs, Counter.add, 0) == list(range(MANY))
    assert sum(store.reads) == MANY
    assert len(store.reads) <= 4


def group(*between: ChildSpec[Agent]) -> SupervisorSpec:
    first, *others = (ChildSpec(f"counter-{number}", Counter) for number in range(3))
    return SupervisorSpec("group", [first, *between, *others])


async def test_children_of_a_supervisor_are_read_together() -> None:
    store = CountedStore()
    async with open_node(group(), store=store) as node:
        assert await node.find(Counter, "counter-2").invoke(Counter.add, 5) == 5
    store.reads.clear()
    async with open_node(group(), store=store) as node:
        assert await node.find(Counter, "counter-2").invoke(Counter.add, 1) == 6
    assert store.reads == [3]


async def test_a_state_that_another_agent_has_changed_since_is_read_again() -> None:
    others: Supervisor

    class Meddler(Agent):
        """Starts an agent with the key of a later child, changes its state, and stops it."""

        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            other = await others.start_child(ChildSpec("other", Counter, key="group/counter-2"))
            await other.invoke(Counter.add, 7)
            await others.terminate_child("other")
            yield

    async with open_node(store="memory:") as node:
        others = await node.start_supervisor(SupervisorSpec("others"))
        await node.start_supervisor(group(ChildSpec("meddler", Meddler)))
        assert await node.find(Counter, "group/counter-2").invoke(Counter.add, 1) == 8


async def test_a_damaged_record_concerns_its_own_agent_alone() -> None:
    store = CountedStore()
    async with open_node(store=store) as node:
        await node.root.start_many(ChildSpec("counter", Counter), 3)
        store.damaged = "other-2"
        with pytest.raises(StartFailed, match="other-2"):
            await node.root.start_many(ChildSpec("other", Counter), 3)
        store.damaged = ""
        refs = await node.root.start_many(ChildSpec("other", Counter), 3)
        assert await invoke_all(refs, Counter.add, 1) == [1, 1, 1]
