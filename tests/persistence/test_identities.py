"""Identities of agents on a hub: one table of behaviours over every store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors.errors import StoreFailed
from lmos_actors.persistence import (
    Identities,
    IdentityOptions,
    MemoryStore,
    NewIdentity,
    open_writer,
)
from tests.persistence.stores import StoreOfTest, every_store
from tests.persistence.test_sessions import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.persistence.stores import Make


@asynccontextmanager
async def opened(store: Any, clock: Clock, hub: str = "hub", **options: Any) -> AsyncGenerator[Identities]:
    numbers = count(1)
    async with open_writer(store) as writer:
        found = Identities(
            writer,
            hub,
            IdentityOptions(**options),
            now=clock,
            random=lambda size: next(numbers).to_bytes(size, "big"),
            reserved=("relay",),
        )
        await found.load()
        yield found


async def made(identities: Identities, id: str | None = None) -> NewIdentity:
    found = await identities.register(id)
    assert isinstance(found, NewIdentity), found
    return found


@every_store
async def test_a_token_is_good_after_a_restart_and_is_not_in_the_store(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock) as identities:
        one, two = await made(identities, "agent-one"), await made(identities)
        assert (one.id, two.id.startswith("agent-")) == ("agent-one", True)
        assert one.token.startswith("tok_")
        assert len(one.token) == 4 + 64
        assert repr(one) == "NewIdentity(id='agent-one')"
        await identities.use("agent-one")
    async with opened(store, clock) as identities:
        assert (identities.find(one.token), identities.find(two.token)) == ("agent-one", two.id)
        assert identities.find(f"{one.token}0") is None
        assert identities.find("\ud800") is None
        assert identities.has("agent-one")
    async with opened(store, clock, "another hub") as identities:
        assert identities.find(one.token) is None
        await made(identities, "agent-one")
    secret = one.token.removeprefix("tok_").encode()
    assert not any(secret in data for data in await trio.to_thread.run_sync(contents, tmp_path))


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir()]


@pytest.mark.parametrize(
    "id", ["", "ab", "-abc", "abc-", "Abc", "a_c", "a c", "relay", "a" * 65, "ünd", "abc\n", "12"]
)
async def test_what_is_no_id(id: str) -> None:
    async with opened(MemoryStore(), Clock()) as identities:
        assert await identities.register(id) == "invalid"
        assert len(identities) == 0


@pytest.mark.parametrize("id", ["abc", "a1-", "a" * 64, "123", "a--b"])
async def test_what_is_an_id(id: str) -> None:
    async with opened(MemoryStore(), Clock()) as identities:
        found = await identities.register(id)
        assert found == "invalid" if id.endswith("-") else isinstance(found, NewIdentity)


@every_store
async def test_a_name_is_taken_until_it_is_free_again(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock, unused_seconds=10, kept_seconds=100) as identities:
        fresh, used = await made(identities, "fresh"), await made(identities, "used")
        await identities.use("used")
        assert await identities.register("fresh") == "taken"
        clock.now += 10
        assert (identities.find(fresh.token), identities.find(used.token)) == (None, "used")
        assert await identities.register("fresh") == "taken"  # for as long again
        clock.now += 10
        again = await made(identities, "fresh")
        assert identities.find(fresh.token) is None
        await identities.use("fresh")
        clock.now += 85
        await identities.use("fresh")
        assert identities.find(used.token) is None
        clock.now += 90
        assert await identities.register("used") == "taken"
    async with opened(store, clock, unused_seconds=10, kept_seconds=100) as identities:
        assert identities.find(again.token) == "fresh"
        assert await identities.register("used") == "taken"
        clock.now += 20
        await made(identities, "used")


async def test_a_name_that_nobody_used_is_refused_as_long_as_it_was_kept() -> None:
    clock = Clock()
    async with opened(MemoryStore(), clock, unused_seconds=100, kept_seconds=10) as identities:
        await made(identities, "fresh")
        clock.now += 100
        assert not identities.has("fresh")
        clock.now += 90
        assert await identities.register("fresh") == "taken"
        clock.now += 10
        await made(identities, "fresh")


@every_store
async def test_a_token_that_is_taken_away_is_good_no_more(make: Make, tmp_path: Path) -> None:
    store, clock = make(tmp_path), Clock()
    async with opened(store, clock) as identities:
        one = await made(identities, "agent-one")
        await identities.use("agent-one")
        assert await identities.revoke("agent-one")
        assert not await identities.revoke("agent-one")
        assert identities.find(one.token) is None
    async with opened(store, clock) as identities:
        assert identities.find(one.token) is None
        assert await identities.register("agent-one") == "taken"


async def test_there_are_so_many_and_no_more() -> None:
    clock = Clock()
    async with opened(MemoryStore(), clock, identities=3, unused_seconds=10) as identities:
        for _ in range(3):
            await made(identities)
        assert await identities.register() == "full"
        clock.now += 10
        for _ in range(3):
            await made(identities)
        assert len(identities) == 3


async def test_of_two_who_want_a_name_one_has_it() -> None:
    found: list[Any] = []

    async with opened(MemoryStore(), Clock()) as identities, trio.open_nursery() as nursery:

        async def register() -> None:
            found.append(await identities.register("same"))

        for _ in range(10):
            nursery.start_soon(register)
    assert sorted(isinstance(each, NewIdentity) for each in found) == [False] * 9 + [True]
    assert found.count("taken") == 9


async def test_a_store_that_fails_registers_nobody() -> None:
    store = StoreOfTest()
    async with opened(store, Clock()) as identities:
        store.fails = True
        with pytest.raises(StoreFailed):
            await identities.register("agent-one")
        assert not identities.has("agent-one")


@given(
    st.lists(st.tuples(st.sampled_from(("register", "use", "revoke", "wait", "restart")), st.integers(0, 3)))
)
def test_a_restart_changes_nothing(steps: list[tuple[str, int]]) -> None:
    """What is known before a restart is known after it, with every token; the times of use may be older."""

    async def main() -> None:
        store, clock = MemoryStore(), Clock()
        names = ("aaa", "bbb", "ccc", "ddd")
        tokens: dict[str, str] = {}
        seen: dict[str, str | None] = {}
        for number in range(len([1 for what, _ in steps if what == "restart"]) + 1):
            numbers = count(1_000 * number + 1)
            async with open_writer(store) as writer:
                known = Identities(
                    writer,
                    "hub",
                    IdentityOptions(unused_seconds=100, kept_seconds=1_000_000),
                    now=clock,
                    random=lambda size, numbers=numbers: next(numbers).to_bytes(size, "big"),  # type: ignore[misc]
                )
                await known.load()
                assert {name: known.find(token) for name, token in tokens.items()} == seen
                while steps:
                    what, which = steps.pop(0)
                    name = names[which]
                    if what == "register":
                        found = await known.register(name)
                        if isinstance(found, NewIdentity):
                            tokens[name] = found.token
                    elif what == "use":
                        await known.use(name)
                    elif what == "revoke":
                        await known.revoke(name)
                    elif what == "wait":
                        clock.now += 40
                    else:
                        break
                seen = {name: known.find(token) for name, token in tokens.items()}

    trio.run(main)
