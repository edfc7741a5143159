"""Durable agents of several nodes whose store is a real Redis server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import Agent, AgentDied, AgentUnavailable, ChildSpec, StartFailed, action, open_node
from lmos_actors.directory import DirectoryOptions, ThingDirectory, directory_spec
from lmos_actors.errors import StoreLost
from tests.directory.web import td
from tests.facades.chat.test_agent import said
from tests.facades.desk import Desk
from tests.persistence.stores import shared_server
from tests.persistence.test_leases_for_real import Till
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_redis
TILL = ChildSpec("till", Till, key="1")


class Careful(Agent, durable=True, durability="power"):
    """Keeps what it counts over a power failure."""

    sold: int = 0

    @action
    def sell(self) -> int:
        self.sold += 1
        return self.sold


async def test_an_agent_goes_on_wherever_it_is_started() -> None:
    url = shared_server().url("wherever")
    for number in range(3):
        async with open_node(store=url) as node:
            till = await node.start_child(TILL)
            assert await till.invoke(Till.sell) == number + 1


async def test_another_node_gets_the_agent_once_the_first_one_leaves_it() -> None:
    url = shared_server().url("leaves")
    found: list[int] = []

    async def take_over() -> None:
        again = await second.start_child(TILL)
        found.append(await again.invoke(Till.sell))

    async with open_node(store=url) as second, trio.open_nursery() as nursery, open_node(store=url) as first:
        till = await first.start_child(TILL)
        assert await till.invoke(Till.sell) == 1
        nursery.start_soon(take_over)
        assert await till.invoke(Till.sell) == 2
        assert found == []
    assert found == [3]


async def test_an_agent_without_a_key_is_refused() -> None:
    async with open_node(store=shared_server().url("keyless")) as node:
        with pytest.raises(StartFailed, match=r"needs a key of its own, ChildSpec\(key=...\)"):
            await node.start_child(ChildSpec("till", Till))


async def test_a_durability_that_the_server_cannot_keep_is_refused(tmp_path: Path) -> None:
    async with open_node(store=shared_server().url("careful")) as node:
        careful = await node.start_child(ChildSpec("till", Careful, key="1"))
        assert await careful.invoke(Careful.sell) == 1
    server = RedisServer(tmp_path, "--appendfsync", "everysec")
    try:
        async with open_node(store=server.url()) as node:
            with pytest.raises(StartFailed, match="config set appendfsync always"):
                await node.start_child(ChildSpec("till", Careful, key="1"))
            till = await node.start_child(TILL)
            assert await till.invoke(Till.sell) == 1
    finally:
        server.kill()


async def test_agents_wait_for_a_server_that_is_away_and_go_on(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--appendfsync", "always")
    try:
        async with open_node(store=server.url()) as node:
            till = await node.start_child(TILL)
            assert await till.invoke(Till.sell) == 1
            server.kill()
            with pytest.raises(AgentDied, match="was not kept"):
                await till.invoke(Till.sell)
            server.start()
            with trio.fail_after(30):
                while True:
                    try:
                        sold = await till.invoke(Till.sell)
                        break
                    except AgentUnavailable:
                        await trio.sleep(0.05)
            assert sold in (2, 3), "the one that was cut off may have been written"
            assert await till.invoke(Till.sell) == sold + 1
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_node_rides_out_a_server_that_is_away_for_longer_than_its_leases(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--appendfsync", "always")
    try:
        async with open_node(store=server.url()) as node:  # with the usual limits of restarts
            specs = [ChildSpec(f"till-{i}", Till, key=str(i)) for i in range(8)]
            tills = [await node.start_child(spec) for spec in specs]
            for till in tills:
                assert await till.invoke(Till.sell) == 1
            server.kill()
            await trio.sleep(15)  # the leases end, of agents that do nothing
            with pytest.raises(AgentUnavailable, match="its store fails") as caught:
                await tills[0].invoke(Till.sell)
            assert caught.value.retry_in is not None
            server.start()
            with trio.fail_after(30):
                for till in tills:
                    await till.ready()
                    assert await till.invoke(Till.sell) == 2
    finally:
        server.kill()


async def test_a_server_that_comes_back_empty_ends_the_node(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--appendonly", "no")
    try:
        with pytest.raises(StoreLost, match="all commits of this program"):  # noqa: PT012
            async with open_node(store=server.url(keeps="nothing")) as node:
                till = await node.start_child(TILL)
                assert await till.invoke(Till.sell) == 1
                server.kill()
                server.start()
                with pytest.raises(AgentDied, match="was not kept"):
                    await till.invoke(Till.sell)
                await trio.sleep_forever()
    finally:
        server.kill()


async def test_conversations_go_on_in_another_node() -> None:
    url = shared_server().url("one", writers="one")
    session = None
    for number in range(1, 3):
        async with open_node(store=url) as node:
            desk = await node.start_child(ChildSpec("desk", Desk))
            session, answer = await said(desk, "hello", session)
            assert answer == f"{number}: hello"
            till = await node.start_child(ChildSpec("till", Till))
            assert await till.invoke(Till.sell) == number, "nobody else writes, so it needs no key"


async def test_a_directory_goes_on_in_another_node() -> None:
    spec = directory_spec(DirectoryOptions(path=shared_server().url("entries", writers="one")))
    async with open_node() as node:
        directory = await node.start_child(spec)
        await directory.invoke(ThingDirectory.put_thing, "urn:lamp", td("urn:lamp"))
    many = directory_spec(DirectoryOptions(path=shared_server().url("many")))
    async with open_node() as node:
        directory = await node.start_child(spec)
        assert (await directory.invoke(ThingDirectory.retrieve_thing, "urn:lamp"))["title"] == td()["title"]
    async with open_node() as node:
        with pytest.raises(StartFailed, match="the entries of a directory need a store"):
            await node.start_child(many)


@pytest.mark.parametrize(
    ("change", "words"), [("chat", "sessions of chats"), ("relay", "identities of a hub")]
)
async def test_what_has_no_lease_is_refused_in_a_shared_store(change: str, words: str) -> None:
    url = shared_server().url("shared")
    with pytest.raises(StartFailed, match=f"{words} need a store that one node alone writes to"):
        async with open_node(store=url, listen="ws://127.0.0.1:0", relay=change == "relay") as node:
            await node.start_child(ChildSpec("desk", Desk))
