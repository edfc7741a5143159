"""A store in a real Redis server: its settings, its faults, its losses, and what a late commit meets."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.errors import (
    ConfigError,
    StoreFailed,
    StoreFenced,
    StoreForeign,
    StoreFull,
    StoreInaccessible,
    StoreLost,
    StoreNewer,
)
from lmos_actors.persistence import AsyncStore, Put, open_writer, reader_of, store_of
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_redis
PUT = [Put("s", "a", b"1")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, "--appendfsync", "always")
    yield server
    server.kill()


def store_at(server: RedisServer, **parameters: str) -> AsyncStore:
    store = store_of(server.url(**parameters))
    assert isinstance(store, AsyncStore)
    return store


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://", "is written redis://HOST"),
        ("redis://host/db", "is written redis://HOST"),
        ("redis://host:x", "its port"),
        ("redis://:secret@host", "does not belong in a URL"),
        ("redis://host?pasword=env:P", "no parameter.*did you mean password"),
        ("redis://host?password=secret", "a reference to a secret is needed"),
        ("redis://host?prefix=a&prefix=b", "twice"),
        ("redis://host?prefix={a}", "prefix must be"),
        ("redis://host?replicas=no", "replicas must be"),
        ("redis://host?keeps=all", "keeps has one value"),
        ("redis://host?ca=ca.pem", "write rediss://"),
        ("redis://host?id=7", "id must be 16 hexadecimal digits"),
        ("rediss://host?cert=c.pem", "cert and key go together"),
        ("rdis:host", "did you mean redis:host"),
    ],
)
def test_urls_that_are_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        store_of(url)
    assert "secret@" not in str(caught.value)


async def test_a_commit_outlives_the_server(server: RedisServer) -> None:
    async with open_writer(store_at(server)) as writer:
        await writer.submit(PUT).wait()
        server.kill()
        with pytest.raises(StoreFailed, match="cannot be reached"):
            await writer.get("s", ["a"])
        with pytest.raises(StoreFailed, match="cannot be reached"):
            await writer.submit(PUT).wait()
        server.start()
        await writer.ready()
        assert await writer.get("s", ["a"]) == [b"1"]
        await writer.submit([Put("s", "a", b"2", b"1")]).wait()
    async with open_writer(store_at(server)) as writer:
        assert await writer.get("s", ["a"]) == [b"2"]


@pytest.mark.parametrize("by", ["read", "commit"])
async def test_what_a_server_has_lost_ends_what_runs_with_it(server: RedisServer, by: str) -> None:
    with pytest.raises(StoreLost, match="has lost all commits"):  # noqa: PT012
        async with open_writer(store_at(server)) as writer:
            await writer.submit(PUT).wait()
            server.send("FLUSHALL")
            with pytest.raises(StoreLost):
                await (writer.get("s", ["a"]) if by == "read" else writer.submit(PUT).wait())
            await trio.sleep_forever()
    async with open_writer(store_at(server)) as writer:
        assert await writer.get("s", ["a"]) == [None]


async def test_the_last_commits_are_lost(server: RedisServer, tmp_path: Path) -> None:
    """As after a fail-over to a replica that was behind."""
    with pytest.raises(StoreLost, match="has lost the last 3 commits of this"):  # noqa: PT012
        async with open_writer(store_at(server)) as writer:
            for number in range(5):
                await writer.submit([Put("s", "a", b"%d" % number)]).wait()
            entries = server.send("HGETALL", "{lmos}:writers").decode().split("\r\n")
            token, opening, commits = entries[4].split()
            assert commits == "5"
            server.send("HSET", "{lmos}:writers", entries[2], f"{token} {opening} 2")
            await writer.submit(PUT).wait()


async def test_an_emptied_server_and_another_one_are_refused_by_the_id_of_the_store(
    server: RedisServer,
) -> None:
    store = store_at(server)
    async with store.opened():
        await store.commit([PUT], "process")
    same = store.id
    async with open_writer(store_at(server, id=same)) as writer:
        assert await writer.get("s", ["a"]) == [b"1"]
    server.send("FLUSHALL")
    for there in ("nothing is there, as on an emptied server", "it is another store, [0-9a-f]{16}"):
        for _ in range(2):
            with pytest.raises(StoreLost, match=f"the store {same}, and {there}.*leave out id="):
                async with store_at(server, id=same).opened():
                    pass
        assert (b"version" in server.send("HGETALL", "{lmos}:meta")) == ("another" in there)
        async with store_at(server).opened():  # begun anew, on purpose
            pass


async def test_a_writer_that_is_open_is_not_forgotten_however_many_come_later(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis.MAX_WRITERS", 5)
    async with open_writer(store_at(server)) as writer:
        await writer.submit(PUT).wait()
        for number in range(1_000, 1_020):  # they were killed long ago
            server.send("HSET", "{lmos}:writers", str(number), "0123456789abcdef 1 3")
            server.send("ZADD", "{lmos}:seen", str(number), str(number))
        for _ in range(10):
            async with store_at(server).opened():
                pass
        await writer.submit([Put("s", "a", b"2", b"1")]).wait()
        assert await writer.get("s", ["a"]) == [b"2"]
        assert server.send("HLEN", "{lmos}:writers") == server.send("ZCARD", "{lmos}:seen") == b":1\r\n"


async def test_a_writer_that_writes_nothing_says_that_it_is_there(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis.SEEN_SECONDS", 0.05)
    async with store_at(server).opened():
        server.send("ZADD", "{lmos}:seen", "1", "1")
        with trio.fail_after(10):
            while server.send("ZSCORE", "{lmos}:seen", "1") == b"$1\r\n1\r\n":  # noqa: ASYNC110
                await trio.sleep(0.02)
    assert server.send("ZCARD", "{lmos}:seen") == b":0\r\n"


async def test_a_reader_reads_any_number_of_keys(server: RedisServer) -> None:
    async with open_writer(store_at(server)) as writer:
        await writer.submit(PUT).wait()
        reader = reader_of(server.url())
        async with reader.opened():
            for store in (writer, reader):
                assert await store.get("s", []) == []
                assert await store.get("s", ["a", *map(str, range(20_000))]) == [b"1"] + 20_000 * [None]


async def test_a_late_commit_is_refused(server: RedisServer) -> None:
    """One that was cut off, and reaches the server only after its writer has gone on."""
    late, store = store_at(server), store_at(server)
    async with store.opened():
        await store.commit([PUT], "process")
        vars(late).update(vars(store))  # what the program sent before it was cut off
        store.__dict__["_is_in_doubt"] = True
        await store.commit([[Put("s", "a", b"2", b"1")]], "process")
        with pytest.raises(StoreLost):
            await late.commit([[Put("s", "a", b"late")]], "process")
        assert await store.get("s", ["a"]) == [b"2"]


async def test_a_server_that_hangs(server: RedisServer) -> None:
    async with open_writer(store_at(server)) as writer:
        await writer.submit(PUT).wait()
        os.kill(server.pid(), signal.SIGSTOP)
        try:
            ticket = writer.submit([Put("s", "a", b"2")])
            for call in (ticket.wait, lambda: writer.get("s", ["a"])):
                with trio.move_on_after(0.2) as scope:
                    await call()
                assert scope.cancelled_caught, "waiting for it ends at once"
        finally:
            os.kill(server.pid(), signal.SIGCONT)
        await ticket.wait()
        assert await writer.get("s", ["a"]) == [b"2"]


async def test_a_server_without_room(server: RedisServer) -> None:
    async with open_writer(store_at(server)) as writer:
        await writer.submit(PUT).wait()
        server.send("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreFull, match="its memory is full"):
            await writer.submit([Put("s", "b", b"")]).wait()
        assert await writer.get("s", ["a", "b"]) == [b"1", None]
        server.send("CONFIG", "SET", "maxmemory", "0")
        await writer.ready()
        await writer.submit([Put("s", "b", b"")]).wait()


@pytest.mark.parametrize("by", ["read", "commit", "commit in doubt"])
async def test_an_opening_ends_the_only_writer_before_it(server: RedisServer, by: str) -> None:
    url = server.url(writers="one")
    with pytest.raises(StoreFenced, match="another writer has opened it since"):  # noqa: PT012
        async with open_writer(store_of(url)) as first:
            await first.submit(PUT).wait()
            async with open_writer(store_of(url)) as second:
                assert not second.is_shared
                if by == "commit in doubt":
                    vars(first)["_store"]._is_in_doubt = True
                with pytest.raises(StoreFenced):
                    await (first.get("s", ["a"]) if by == "read" else first.submit(PUT).wait())
                await second.submit([Put("s", "a", b"2", b"1")]).wait()
            await trio.sleep_forever()
    for parameters, words in (
        ({}, "made for one writer;"),
        ({"writers": "one", "prefix": "m"}, "for many writers"),
    ):
        with pytest.raises(StoreForeign, match=words):
            async with (
                open_writer(store_of(server.url(prefix="m"))),
                open_writer(store_at(server, **parameters)),
            ):
                pass


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        (("--appendonly", "no"), StoreFailed, "in memory only.*appendonly yes"),
        (("--maxmemory-policy", "allkeys-lru"), StoreFailed, "drops any key.*noeviction"),
        (("--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes"), StoreInaccessible, "a replica"),
        (("--requirepass", "x"), StoreInaccessible, "user of its URL"),
        (("--min-replicas-to-write", "1"), StoreFailed, "(?i)not enough good replicas"),
    ],
)
async def test_servers_that_are_refused(
    tmp_path: Path, settings: tuple[str, ...], kind: type[StoreFailed], words: str
) -> None:
    server = RedisServer(tmp_path, *settings)
    try:
        with pytest.raises(kind, match=words):
            async with open_writer(store_at(server)):
                pass
    finally:
        server.kill()


async def test_a_server_that_may_lose_all(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--appendonly", "no")
    try:
        async with open_writer(store_at(server, keeps="nothing")) as writer:
            await writer.submit(PUT).wait()
            with pytest.raises(StoreFailed, match="over a power failure"):
                await writer.submit(PUT, "power").wait()
    finally:
        server.kill()


async def test_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RedisServer(tmp_path, "--requirepass", "s3cret")
    try:
        monkeypatch.setenv("RIGHT", "s3cret")
        monkeypatch.setenv("WRONG", "0ther")
        async with open_writer(store_at(server, password="env:RIGHT")) as writer:
            await writer.submit(PUT).wait()
        for reference in ("env:WRONG", "env:MISSING"):
            with pytest.raises(StoreInaccessible, match=r"password") as caught:
                async with open_writer(store_at(server, password=reference)):
                    pass
            assert "0ther" not in str(caught.value)
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (("HSET", "{lmos}:meta", "version", "2"), StoreNewer, "version 2"),
        (("HSET", "{lmos}:meta", "version", "0"), StoreForeign, "version 0.*an older version of the program"),
        (("HSET", "{lmos}:meta", "version", "x"), StoreForeign, "another program"),
        (("SET", "{lmos}:meta", "x"), StoreForeign, "another program"),
        (("SET", "{lmos}:writers", "x"), StoreForeign, "another program"),
    ],
)
async def test_a_prefix_of_others(server: RedisServer, command: Any, kind: Any, words: str) -> None:
    server.send(*command)
    with pytest.raises(kind, match=words):
        async with open_writer(store_at(server)):
            pass
    async with open_writer(store_at(server, prefix="other")) as writer:
        await writer.submit(PUT).wait()


@pytest.mark.slow
async def test_replicas_confirm(server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")
    try:
        while b"master_link_status:up" not in replica.send("INFO", "replication"):  # noqa: ASYNC110
            await trio.sleep(0.02)
        async with open_writer(store_at(server, replicas="1")) as writer:
            await writer.submit(PUT).wait()
        assert b"\r\n1\r\n" in replica.send("HGET", "{lmos}:v:s", "a")
    finally:
        replica.kill()


async def attended(store: Any, wanted: bool = True) -> None:
    """Wait until a store knows that its writer is counted as connected, or that it is not."""
    with trio.fail_after(10):
        while bool(store.sign) is not wanted:  # noqa: ASYNC110 -- nobody is told of it
            await trio.sleep(0.01)


async def test_a_writer_whose_subscription_breaks_is_told_and_is_there_again(server: RedisServer) -> None:
    store: Any = store_at(server)
    other: Any = store_at(server)
    told: list[str] = []
    async with store.opened(), other.opened():
        store.when_unattended(lambda: told.append(store.sign))
        sign = store.sign
        assert await other.is_there(sign)
        server.send("CLIENT", "KILL", "TYPE", "pubsub")
        await attended(store, wanted=False)
        assert (told, await other.is_there(sign)) == ([""], False)
        await attended(store)
        assert await other.is_there(store.sign)
    assert told == [""]  # its own end tells nobody


async def test_a_writer_is_there_until_its_block_has_ended(server: RedisServer) -> None:
    """Also one that is cancelled: what drains there still holds its leases."""
    store: Any = store_at(server)
    other: Any = store_at(server)
    async with other.opened():
        with trio.CancelScope() as scope:
            async with store.opened():
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.2)
                    assert store.sign
                    assert await other.is_there(store.sign)
        assert not store.sign
