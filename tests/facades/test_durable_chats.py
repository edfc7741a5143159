"""Durable chat agents: pieces of an answer leave at once, its end when what the turn changed is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from typing import Any

import msgspec
import pytest
import trio

from lmos_actors import ChildSpec, action, open_node
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.facades.chat import TextChunk, TurnDone
from tests.facades.lives import in_memory, virtual
from tests.persistence.stores import StoreOfTest


class Counted(msgspec.Struct, frozen=True):
    number: int


class Journaled(ChatAgent, durable="journal", snapshot_every=1):
    """Counts turns, in a journal."""

    total: int = 0

    def apply(self, fact: Counted) -> None:
        self.total += fact.number

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        self.record(Counted(1))
        yield f"{self.total}"

    @action
    def get(self) -> int:
        return self.total


class Serial(ChatAgent, durable=True, serial=True):
    """Counts turns, one at a time."""

    total: int = 0

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        self.total += 1
        yield f"{self.total}"

    @action
    def get(self) -> int:
        return self.total


KINDS = pytest.mark.parametrize("cls", [Journaled, Serial])


@KINDS
async def test_pieces_leave_at_once_and_the_end_waits_for_the_store(cls: Any) -> None:
    store, seen = StoreOfTest(), list[Any]()
    chunk = trio.Event()

    async def ask(desk: Any) -> None:
        async with desk.stream(cls.chat, "hello") as items:
            async for item in items:
                seen.append(item)
                if isinstance(item, TextChunk):
                    chunk.set()

    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        desk = await node.start_child(ChildSpec("desk", cls))
        store.may_commit.clear()
        before = len(store.commits)
        nursery.start_soon(ask, desk)
        await chunk.wait()
        assert len(store.commits) == before, "the store has not gone on by itself"
        assert not any(isinstance(item, TurnDone) for item in seen)
        store.may_commit.set()
    assert isinstance(seen[-1], TurnDone)


@KINDS
@virtual
async def test_who_has_got_the_end_finds_all_that_the_turn_has_changed(cls: Any) -> None:
    store, texts = in_memory(), []
    for _ in range(3):
        async with open_node(store=store) as node:
            desk: Any = await node.start_child(ChildSpec("desk", cls, shutdown="brutal"))
            async with desk.stream(cls.chat, "hello") as items:
                async for item in items:
                    if isinstance(item, TurnDone):
                        texts.append(item.text)
                        store.is_dead = True
                        node.force_stop()
                        break
        store.is_dead = False
    assert texts == ["1", "2", "3"]
