"""Sessions of conversations: one table of behaviours over every store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.errors import StoreFailed
from lmos_actors.persistence import KeptMessage, SessionOptions, Sessions, open_writer
from tests.persistence.stores import StoreOfTest, every_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors.persistence import Session
    from tests.persistence.stores import Make


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(store: Any, clock: Clock, agent: str = "desk", **options: Any) -> AsyncGenerator[Sessions]:
    async with open_writer(store) as writer:
        sessions = Sessions(writer, agent, SessionOptions(**options), clock)
        await sessions.load()
        yield sessions


async def said(sessions: Sessions, owner: str, id: str, text: str, **memory: Any) -> Session:
    """Have one turn in a session."""
    found = await sessions.read(owner, id)
    assert found is not None
    found.head.memory |= memory
    await sessions.keep(found, [KeptMessage("user", text, 1.0), KeptMessage("agent", text.upper(), 2.0)])
    return found


async def texts(sessions: Sessions, owner: str, id: str) -> list[str] | None:
    found = await sessions.read(owner, id)
    return None if found is None else [each.text for each in found.messages]


@every_store
async def test_what_is_kept_is_there_after_a_restart(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock) as sessions:
        sessions.begin("alice", "s")
        assert await texts(sessions, "alice", "s") == []
        await said(sessions, "alice", "s", "a", n=1)
        await said(sessions, "alice", "s", "b", n=2)
        sessions.begin("alice", "never spoken in")
    async with opened(store, clock) as sessions:
        found = await sessions.read("alice", "s")
        assert found is not None
        assert [(each.role, each.text) for each in found.messages] == [
            ("user", "a"),
            ("agent", "A"),
            ("user", "b"),
            ("agent", "B"),
        ]
        assert found.head.memory == {"n": 2}
        assert [(each.id, each.messages) for each in sessions.of_owner("alice")] == [("s", 4)]
        await said(sessions, "alice", "s", "c")
        assert await texts(sessions, "alice", "s") == ["a", "A", "b", "B", "c", "C"]


ODD = ["", "a", "a\x00b", "a%00b", "ä/ö", "a" * 500, "..", "\U0001f600"]


@every_store
async def test_a_session_is_of_one_owner_and_one_agent(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock) as sessions:
        for owner in ODD:
            sessions.begin(owner, "s")
            await said(sessions, owner, "s", f"I am {owner!r}")
    async with opened(store, clock, agent="other") as sessions:
        assert not any(sessions.has(owner, "s") for owner in ODD)
    async with opened(store, clock) as sessions:
        for owner in ODD:
            assert (await texts(sessions, owner, "s") or [])[0] == f"I am {owner!r}"
        assert await sessions.read("somebody else", "s") is None
        assert await sessions.forget("a", "s")
        assert [sessions.has(owner, "s") for owner in ODD] == [owner != "a" for owner in ODD]


@every_store
async def test_sessions_expire_after_their_last_turn(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock, seconds=100.0) as sessions:
        for id in ("old", "kept on"):
            sessions.begin("alice", id)
            await said(sessions, "alice", id, "a")
        clock.now += 60
        await said(sessions, "alice", "kept on", "b")
        clock.now += 60
        assert await sessions.read("alice", "old") is None
        assert [each.id for each in sessions.of_owner("alice")] == ["kept on"]
    clock.now += 60
    async with opened(store, clock, seconds=100.0) as sessions:
        assert len(sessions) == 0
    async with open_writer(store) as writer:
        assert await writer.scan("chats", limit=100) == []
        assert await writer.scan("chat messages", limit=100) == []


@every_store
async def test_messages_are_bounded_by_number_and_bytes(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock, messages=4, bytes=1_000) as sessions:
        sessions.begin("alice", "s")
        for text in "abcde":
            await said(sessions, "alice", "s", text)
        assert await texts(sessions, "alice", "s") == ["d", "D", "e", "E"]
        await said(sessions, "alice", "s", "x" * 450)
        assert await texts(sessions, "alice", "s") == ["x" * 450, "X" * 450]
        await said(sessions, "alice", "s", "y" * 2_000)
        assert await texts(sessions, "alice", "s") == ["y" * 2_000, "Y" * 2_000], "the last turn is kept"
        await said(sessions, "alice", "s", "z")
        assert await texts(sessions, "alice", "s") == ["z", "Z"]
    async with open_writer(store) as writer:
        assert len(await writer.scan("chat messages", limit=100)) == 2


@every_store
async def test_one_owner_cannot_push_out_the_sessions_of_others(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock, sessions=4) as sessions:
        sessions.begin("alice", "a")
        await said(sessions, "alice", "a", "here")
        for number in range(20):
            clock.now += 1
            sessions.begin("mallory", str(number))
            await said(sessions, "mallory", str(number), "here")
        assert len(sessions) == 4
        assert [each.id for each in sessions.of_owner("mallory")] == ["17", "18", "19"]
        assert await texts(sessions, "alice", "a") == ["here", "HERE"]


@every_store
async def test_a_turn_of_a_session_that_is_gone_writes_nothing(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock) as sessions:
        sessions.begin("alice", "s")
        found = await sessions.read("alice", "s")
        assert found is not None
        assert await sessions.forget("alice", "s")
        await sessions.keep(found, [KeptMessage("user", "a", 1.0)])
        assert not sessions.has("alice", "s")
        assert not await sessions.forget("alice", "s")
    async with open_writer(store) as writer:
        assert await writer.scan("chat messages", limit=100) == []


async def test_a_turn_that_could_not_be_kept_changes_nothing() -> None:
    store, clock = StoreOfTest(), Clock()
    async with opened(store, clock) as sessions:
        sessions.begin("alice", "s")
        await said(sessions, "alice", "s", "a", n=1)
        store.fails = True
        with pytest.raises(StoreFailed, match="the disk is full"):
            await said(sessions, "alice", "s", "b", n=2)
        store.fails = False
        with trio.fail_after(30):
            while True:
                try:
                    await said(sessions, "alice", "s", "c")
                    break
                except StoreFailed:  # until the writer has tried again
                    await trio.sleep(0.01)
        found = await sessions.read("alice", "s")
        assert found is not None
        assert [each.text for each in found.messages] == ["a", "A", "c", "C"]
        assert found.head.memory == {"n": 1}
