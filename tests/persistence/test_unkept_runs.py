"""A long run of which nothing is kept before its end is named, once for each action. Virtual time."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, Ref, action, open_node, simulate
from lmos_actors.errors import UnkeptRunWarning
from lmos_actors.persistence import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Importer(Agent, durable=True, serial=True):
    rows: int = 0

    @action
    async def load(self, seconds: float) -> int:
        self.rows += 1
        await trio.sleep(seconds)
        self.rows += 1
        return self.rows

    @action
    async def look_on(self, seconds: float) -> AsyncIterator[int]:
        await trio.sleep(seconds)
        yield self.rows

    @action
    async def clean_up(self, seconds: float) -> None:
        try:
            await trio.sleep(60.0)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)

    @action
    async def crash(self, seconds: float) -> None:
        await trio.sleep(seconds)
        raise ValueError("a crash that was asked for")


class Exporter(Agent, durable=True, serial=True):
    @action
    async def load(self, seconds: float) -> None:
        await trio.sleep(seconds)


class Safe(Agent, durable=True):
    @action(snapshot_safe=True)
    async def load(self, seconds: float) -> None:
        await trio.sleep(seconds)


@attrs.frozen
class Loaded:
    """A fact of a journal."""


class Journal(Agent, durable="journal", serial=True):
    def apply(self, fact: Loaded) -> None: ...

    @action
    async def load(self, seconds: float) -> None:
        await trio.sleep(seconds)


class Plain(Agent, serial=True):
    @action
    async def load(self, seconds: float) -> None:
        await trio.sleep(seconds)


def warned(main: Callable[[], Awaitable[None]]) -> list[str]:
    """Simulate it, and return the warnings that were issued."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        simulate(main)
    assert all(each.category is UnkeptRunWarning for each in caught)
    return [str(each.message) for each in caught]


def test_each_action_is_named_once_with_the_way_out() -> None:
    async def main() -> None:
        async with open_node(store=MemoryStore()) as node:
            first: Ref[Importer] = await node.start_child(ChildSpec("first", Importer))
            second: Ref[Importer] = await node.start_child(ChildSpec("second", Importer))
            exporter: Ref[Exporter] = await node.start_child(ChildSpec("exporter", Exporter))
            for _ in range(3):
                assert await first.invoke(Importer.load, 0.9) % 2 == 0
            for _ in range(2):
                await first.invoke(Importer.load, 1.1)
                await second.invoke(Importer.load, 1.1)
                await exporter.invoke(Exporter.load, 1.1)
            async with second.stream(Importer.look_on, 2.0) as items:
                assert [item async for item in items] == [4]

    found = warned(main)
    runs = [("load", "first"), ("load", "exporter"), ("look_on", "second")]
    assert [text.partition(" has been open for 1 s")[0] for text in found] == [
        f"the run {name!r} of agent {agent!r}" for name, agent in runs
    ]
    assert "class Exporter has durable=True and serial=True" in found[1]
    for way in ('durable="journal"', "self.record(...) and apply(...)", "@action(snapshot_safe=True)"):
        assert all(way in text for text in found)


@pytest.mark.parametrize("cls", [Safe, Journal, Plain])
def test_what_is_kept_inside_a_run_or_not_at_all_is_not_named(cls: Any) -> None:
    async def main() -> None:
        async with open_node(store=MemoryStore()) as node:
            agent = await node.start_child(ChildSpec("agent", cls))
            await agent.invoke(cls.load, 60.0)

    assert warned(main) == []


def test_a_run_that_ends_with_its_incarnation_is_not_named() -> None:
    async def main() -> None:
        async with open_node(store=MemoryStore()) as node:
            spec = ChildSpec("importer", Importer, shutdown="brutal")
            importer: Ref[Importer] = await node.start_child(spec)
            with pytest.raises(AgentDied):
                await importer.invoke(Importer.crash, 0.9)
            await importer.ready()
            with trio.move_on_after(0.9):
                await importer.invoke(Importer.load, 60.0)
            await trio.sleep(60.0)
            await importer.tell(Importer.clean_up, 60.0)
            await trio.sleep(0.9)
            await node.root.terminate_child("importer")
            await trio.sleep(60.0)

    assert warned(main) == []


async def test_where_warnings_are_errors_it_ends_the_node(autojump_clock: object) -> None:
    async def main() -> None:
        async with open_node(store=MemoryStore()) as node:
            importer: Ref[Importer] = await node.start_child(ChildSpec("importer", Importer))
            await importer.invoke(Importer.load, 60.0)

    with pytest.raises(UnkeptRunWarning, match="'load' of agent 'importer'"):
        await main()
