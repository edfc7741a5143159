"""A store in Redis whose server, network, disk and callers fail, each in the middle of what it does."""

from __future__ import annotations

import os
import resource
import signal
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from lmos_actors.errors import StoreFailed, StoreForeign, StoreFull, StoreInaccessible, StoreLost
from lmos_actors.persistence import (
    AsyncStore,
    Check,
    Expected,
    Put,
    open_writer,
    store_of,
)
from tests.persistence.stores import shared_server
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
    from pathlib import Path

pytestmark = needs_redis
PUT = [Put("s", "a", b"1")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, "--appendfsync", "always")
    yield server
    server.kill()


def store_at(url: str) -> AsyncStore:
    store = store_of(url)
    assert isinstance(store, AsyncStore)
    return store


# ---- callers that leave


class Steps(trio.abc.Instrument):
    """Cancels a scope at a step of its program, counted over all tasks."""

    def __init__(self, scope: trio.CancelScope, left: int) -> None:
        self._scope, self._left = scope, left

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


async def cancelled_after(steps: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Make a call, cancel it after so many steps of the program, and return whether that was too late."""
    with trio.CancelScope() as scope:
        instrument = Steps(scope, steps)
        trio.lowlevel.add_instrument(instrument)
        try:
            await call()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return not scope.cancelled_caught


@pytest.mark.parametrize("by", ["get", "scan", "commit"])
@pytest.mark.parametrize("connected", [True, False])
async def test_a_call_that_is_cancelled_at_any_step_leaves_the_store_whole(by: str, connected: bool) -> None:
    server = shared_server()
    store = store_at(server.url(f"steps-{by}-{connected}"))
    async with store.opened():
        await store.commit([PUT], "process")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: store.get("s", ["a"]),
            "scan": lambda: store.scan("s", limit=10),
            "commit": lambda: store.commit([[Put("s", "a", b"late")]], "process"),
        }
        steps, is_done = 1, False
        while not is_done:
            if not connected:
                server.send("CLIENT", "KILL", "TYPE", "normal")
            with suppress(StoreFailed):  # of a connection whose end is not noticed yet
                is_done = await cancelled_after(steps, calls[by])
            with trio.fail_after(10):
                if not connected:
                    with suppress(StoreFailed):
                        await store.get("s", ["a"])
                before = (await store.get("s", ["a"]))[0]
                assert before is not None
                assert await store.scan("s", limit=10) == [("a", before)]
                # nothing came late: what was just read is there still
                assert await store.commit([[Put("s", "a", b"%d" % steps, before)]], "process") == [None]
            steps += 1
    assert steps > 5


@pytest.mark.parametrize("steps", range(1, 60, 3))
async def test_an_opening_that_is_cancelled_leaves_nothing_open(steps: int) -> None:
    store = store_at(shared_server().url("opening"))

    async def open_it() -> None:
        async with store.opened():
            await store.get("s", ["a"])

    await cancelled_after(steps, open_it)
    async with store.opened():
        await store.commit([PUT], "process")


async def test_no_cancelled_commit_is_written_after_a_later_reading(server: RedisServer) -> None:
    store = store_at(server.url())
    async with store.opened():
        await store.commit([PUT], "process")
        os.kill(server.pid(), signal.SIGSTOP)
        with trio.move_on_after(0.1):
            await store.commit([[Put("s", "a", b"late")]], "process")
        os.kill(server.pid(), signal.SIGCONT)
        found = await store.get("s", ["a"])
        again = await store.get("s", ["a"])
        assert found == again
        assert await store.commit([[Check("s", "a", found[0] or Expected.NOTHING)]], "process") == [None]


# ---- the network


class Relay:
    """Bytes between a port of its own and a server, until they are held, or cut."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self._streams: list[trio.SocketStream] = []
        self._flows = trio.Event()
        self._flows.set()
        self.port = 0
        self.cuts_after: int | None = None
        """Bytes of answers after which the connection is cut."""
        self.delivers = trio.Event()
        """Set to let through what was held, however late that is."""
        self.delivered = trio.Event()
        """Set once some of it was let through to the server."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Relay]:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, self._carry, 0)
            self.port = listeners[0].socket.getsockname()[1]
            yield self
            nursery.cancel_scope.cancel()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}?prefix=lmos"

    def hold(self) -> None:
        """Let no byte through from now on, and no end either."""
        self._flows = trio.Event()

    def go_on(self) -> None:
        """Let new connections through; those that were held stay so."""
        self._flows = trio.Event()
        self._flows.set()

    def cut(self) -> None:
        """Reset all connections."""
        for stream in self._streams:
            stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            stream.socket.close()
        self._streams.clear()

    async def _carry(self, near: trio.SocketStream) -> None:
        flows = self._flows
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with await trio.open_tcp_stream("127.0.0.1", self.server.port) as far:
                self._streams += near, far
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._copy, near, far, flows, False)
                    nursery.start_soon(self._copy, far, near, flows, True)

    async def _copy(
        self, source: trio.SocketStream, sink: trio.SocketStream, flows: trio.Event, answers: bool
    ) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(65_536):
                if flows is not self._flows:  # half open: it is held
                    await self.delivers.wait()
                    await sink.send_all(data)
                    if not answers:
                        self.delivered.set()
                    continue
                await flows.wait()
                if answers and self.cuts_after is not None:
                    data, self.cuts_after = data[: self.cuts_after], max(self.cuts_after - len(data), 0)
                await sink.send_all(data)
                if answers and self.cuts_after == 0:
                    self.cuts_after = None
                    self.cut()
                    return


async def test_a_connection_that_is_cut_at_each_byte_of_an_answer(server: RedisServer) -> None:
    async with Relay(server).opened() as relay:
        store = store_at(relay.url)
        async with store.opened():
            await store.commit([[Put("s", "a", b"0")]], "process")
            value = 0
            for count in range(1, 12):
                relay.cuts_after = count
                kept = b"%d" % (value + 1)
                failed = True
                with suppress(StoreFailed):
                    await store.commit([[Put("s", "a", kept, b"%d" % value)]], "process")
                    failed = False
                relay.cuts_after = None
                found = (await store.get("s", ["a"]))[0]
                assert found in ((kept, b"%d" % value) if failed else (kept,))
                value = int(found or b"")
            assert value > 0


@pytest.mark.slow
async def test_a_half_open_connection_is_given_up(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis_connections.ANSWER_SECONDS", 0.3)
    async with Relay(server).opened() as relay:
        store = store_at(relay.url)
        async with store.opened():
            await store.commit([PUT], "process")
            for _ in range(6):
                relay.hold()
                for call in (
                    lambda: store.get("s", ["a"]),
                    lambda: store.commit([[Put("s", "a", b"2")]], "process"),
                ):
                    with pytest.raises(StoreFailed, match=r"has not answered for 0\.3 s"):
                        await call()
                relay.go_on()
                assert (await store.get("s", ["a"]))[0] in (b"1", b"2")
                await store.commit([PUT], "process")
            relay.cut()
            with suppress(StoreFailed):
                await store.get("s", ["a"])
            assert await store.get("s", ["a"]) == [b"1"]


async def test_a_commit_that_the_network_delivers_late_is_refused(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis_connections.ANSWER_SECONDS", 0.3)
    async with Relay(server).opened() as relay:
        store = store_at(relay.url)
        async with store.opened():
            await store.commit([PUT], "process")
            relay.hold()
            with pytest.raises(StoreFailed, match="has not answered"):
                await store.commit([[Put("s", "a", b"late"), Put("s", "b", b"late")]], "process")
            relay.go_on()
            await store.commit([[Put("s", "a", b"2", b"1")]], "process")
            before = server.send("INFO", "commandstats")
            relay.delivers.set()
            with trio.fail_after(10):
                await relay.delivered.wait()
                while calls_in(server.send("INFO", "commandstats")) == calls_in(before):  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert await store.get("s", ["a", "b"]) == [b"2", None]
            await store.commit([[Put("s", "a", b"3", b"2")]], "process")


def calls_in(stats: bytes) -> int:
    """Return how many scripts a server has run."""
    lines = stats.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("cmdstat_evalsha:")]
    return int(line.partition("calls=")[2].partition(",")[0])


# ---- the disk of the server


@pytest.mark.parametrize("sync", ["everysec", "always"])
async def test_a_server_whose_disk_is_full(tmp_path: Path, sync: str) -> None:
    """Redis refuses commits then; with `appendfsync always` it ends."""
    server = RedisServer(tmp_path, "--appendfsync", sync, "--no-appendfsync-on-rewrite", "no")
    try:
        async with open_writer(store_at(server.url())) as writer:
            value, written = b"x" * 65_536, 0
            await writer.submit(PUT).wait()
            _, hard = resource.prlimit(server.pid(), resource.RLIMIT_FSIZE)
            resource.prlimit(server.pid(), resource.RLIMIT_FSIZE, (2 << 20, hard))
            with pytest.raises(StoreFailed) as caught, trio.fail_after(30):  # noqa: PT012
                while True:
                    await writer.submit([Put("s", f"{written}", value)]).wait()
                    written += 1
            if sync == "always":
                server.kill()
                server.start()
            else:
                assert isinstance(caught.value, StoreFull)
                assert await writer.get("s", ["a"]) == [b"1"], "it can be read"
                resource.prlimit(server.pid(), resource.RLIMIT_FSIZE, (hard, hard))
            await writer.ready()
            await writer.submit([Put("s", "a", b"2", b"1")]).wait()
            if sync == "always":
                found = await writer.get("s", [f"{number}" for number in range(written)])
                assert found == [value] * written
    finally:
        server.kill()


# ---- fail-over


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_fail_over(server: RedisServer, tmp_path: Path, replicas: int) -> None:
    """The primary is killed, and its replica takes its place at the same address."""
    (tmp_path / "replica").mkdir()
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")

    async def live(url: str) -> None:
        async with open_writer(store_at(url)) as writer:
            await writer.submit(PUT).wait()
            while b"\r\n1\r\n" not in replica.send("HGET", "{lmos}:v:s", "a"):  # noqa: ASYNC110
                await trio.sleep(0.02)
            if not replicas:
                replica.send("REPLICAOF", "127.0.0.1", "1")  # it falls behind
            for number in range(2, 6):
                await writer.submit([Put("s", "a", b"%d" % number)]).wait()
            server.kill()
            replica.send("REPLICAOF", "NO", "ONE")
            relay.server = replica
            relay.cut()
            with suppress(StoreFailed):  # of a connection whose end is not noticed yet
                await writer.get("s", ["a"])
            assert await writer.get("s", ["a"]) == [b"5"]

    try:
        while b"master_link_status:up" not in replica.send("INFO", "replication"):  # noqa: ASYNC110
            await trio.sleep(0.02)
        with trio.fail_after(30):
            async with Relay(server).opened() as relay:
                if replicas:
                    await live(f"{relay.url}&replicas=1")
                else:
                    with pytest.raises(StoreLost, match="has lost the last 4 commits"):
                        await live(relay.url)
    finally:
        replica.kill()


async def test_a_server_that_becomes_a_replica_takes_no_commits_until_it_is_none(server: RedisServer) -> None:
    """The one that a writer is connected to, while another one was promoted in its place."""
    async with open_writer(store_at(server.url())) as writer:
        await writer.submit(PUT).wait()
        server.send("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreInaccessible, match=r"it is a replica.*name the server that it follows"):
            await writer.submit([Put("s", "a", b"2", b"1")]).wait()
        with pytest.raises(StoreInaccessible, match="it is a replica"):
            writer.submit([Put("s", "a", b"2", b"1")])
        server.send("REPLICAOF", "NO", "ONE")
        with trio.fail_after(30):
            await writer.ready()
        assert await writer.get("s", ["a"]) == [b"1"]
        await writer.submit([Put("s", "a", b"2", b"1")]).wait()


async def test_a_commit_waits_for_replicas_and_each_failure_gives_its_connection_back(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis_connections.CONFIRM_SECONDS", 0.05)
    store = store_at(server.url(replicas="1"))
    async with store.opened():
        for _ in range(8):
            with pytest.raises(StoreFailed, match="too few replicas"):
                await store.commit([PUT], "process")
        with trio.fail_after(10):
            assert await store.get("s", ["a"]) == [b"1"]


# ---- certificates


@pytest.mark.slow
async def test_certificates(tmp_path: Path) -> None:
    ca, other = trustme.CA(), trustme.CA()
    certificate = ca.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    pem = str(tmp_path / "server.pem")
    files = ("--tls-cert-file", pem, "--tls-key-file", pem, "--tls-ca-cert-file", str(tmp_path / "ca.pem"))
    server = RedisServer(tmp_path, "--tls-port", str(port), *files, "--tls-auth-clients", "no")
    try:
        async with open_writer(store_of(f"rediss://127.0.0.1:{port}?ca={tmp_path}/ca.pem")) as writer:
            await writer.submit(PUT).wait()
        for url, words in (
            (f"rediss://127.0.0.1:{port}?ca={tmp_path}/other.pem", "self-signed"),
            (f"rediss://localhost:{port}?ca={tmp_path}/ca.pem", "not valid for 'localhost'"),
            (f"redis://127.0.0.1:{port}", "cannot be reached"),
            (f"rediss://127.0.0.1:{server.port}?ca={tmp_path}/ca.pem", "cannot be reached"),
        ):
            with pytest.raises(StoreFailed, match=words), trio.fail_after(20):
                async with open_writer(store_of(url)):
                    pass
    finally:
        server.kill()


# ---- servers that are none, and rights that are missing


async def answering(answers: Callable[[bytes], bytes], task_status: Any) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            while data := await stream.receive_some(65_536):
                await stream.send_all(answers(data))

    await trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)


HELLO = b"%3\r\n$7\r\nversion\r\n$5\r\n7.0.1\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n"
INFO = b"# Server\r\nredis_version:7.0.1\r\nrole:master\r\naof_enabled:1\r\n"


def speaks(
    hello: bytes = HELLO, info: bytes = b"$%d\r\n%s\r\n" % (len(INFO), INFO), script: bytes = b""
) -> Any:
    def answer(data: bytes) -> bytes:
        if b"HELLO" in data:
            return hello
        if b"INFO" in data:
            return info
        if b"CONFIG" in data:
            return b"%1\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n"
        return script

    return answer


@pytest.mark.parametrize(
    "answers",
    [
        speaks(hello=b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        speaks(hello=b"\0\xff\r\n" * 10),
        speaks(hello=b"-ERR unknown command 'HELLO'\r\n"),
        speaks(hello=b"-NOPROTO unsupported protocol version\r\n"),
        speaks(hello=b":1\r\n"),
        speaks(hello=b"%0\r\n"),
        speaks(info=b":7\r\n"),
        speaks(info=b"*0\r\n"),
        speaks(info=b"$5\r\nhello\r\n", script=b":1\r\n"),
        speaks(info=b"_\r\n"),
        speaks(script=b":1\r\n"),
        speaks(script=b"*0\r\n"),
        speaks(script=b"*3\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n"),
        speaks(script=b"*3\r\n:1\r\n:1\r\n:1\r\n"),
        speaks(script=b"-NOSCRIPT No matching script\r\n"),
        speaks(script=b"_\r\n"),
        speaks(script=b"%1\r\n:1\r\n:1\r\n"),
        speaks(script=b"-BUSY Redis is busy running a script\r\n"),
        speaks(script=b"-\r\n"),
        speaks(script=b"$-5\r\n"),
    ],
)
async def test_what_is_no_redis_server_is_refused(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis_connections.ANSWER_SECONDS", 1.0)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(answering, answers)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(StoreFailed) as caught, trio.fail_after(20):
            async with open_writer(store_of(f"redis://127.0.0.1:{port}")):
                pass
        assert "look at" in str(caught.value)
        nursery.cancel_scope.cancel()


async def test_protected_mode_is_named() -> None:
    """A server without a password answers only its own machine; it says so, and closes the connection."""
    denied = b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n"

    async def deny(stream: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            await stream.send_all(denied)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, deny, 0)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(StoreFailed, match="protected mode"), trio.fail_after(20):
            async with open_writer(store_of(f"redis://127.0.0.1:{port}")):
                pass
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "script",
    [
        b":1\r\n",
        b"*0\r\n",
        b"*1\r\n:1\r\n",
        b"*2\r\n:1\r\n:1\r\n",
        b"*2\r\n:0\r\n:1\r\n",
        b"_\r\n",
        b"#t\r\n",
    ],
)
async def test_wrong_answers_later(script: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.persistence._redis_connections.ANSWER_SECONDS", 1.0)
    store: AsyncStore
    state = {"script": b"*3\r\n$1\r\n1\r\n:1\r\n$1\r\nz\r\n"}
    async with trio.open_nursery() as nursery:

        def answer(data: bytes) -> bytes:
            return bytes(speaks(script=state["script"])(data))

        listeners = await nursery.start(answering, answer)
        store = store_at(f"redis://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        async with store.opened():
            state["script"] = script
            for call in (
                lambda: store.get("s", ["a"]),
                lambda: store.scan("s", limit=1),
                lambda: store.commit([PUT], "process"),
                lambda: store.get("s", ["a"]),
            ):
                with pytest.raises(StoreFailed):
                    await call()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        ("-eval -evalsha", "NOPERM|permission"),
        ("-info", "NOPERM|permission"),
        ("-hset", "NOPERM|permission|can't run"),
        ("resetkeys ~other:*", "NOPERM|permission|access"),
    ],
)
async def test_rights_that_are_missing(
    server: RedisServer, rights: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    server.send("ACL", "SETUSER", "desk", "on", ">s3cret", "~*", "&*", "+@all", *rights.split())
    with pytest.raises(StoreInaccessible, match=words):
        async with open_writer(store_of(server.url(user="desk", password="env:SECRET"))):
            pass


async def test_settings_need_not_be_shown(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    server.send("ACL", "SETUSER", "desk", "on", ">s3cret", "~{lmos}*", "+@all", "-config")
    store = store_at(server.url(user="desk", password="env:SECRET"))
    async with store.opened():
        await store.commit([PUT], "process")
        assert not store.keeps_power, "it cannot be known"


async def test_keys_of_others_below_the_prefix(server: RedisServer) -> None:
    store = store_at(server.url())
    async with store.opened():
        await store.commit([PUT], "process")
        server.send("SET", "{lmos}:v:t", "x")
        with pytest.raises(StoreForeign):
            await store.get("t", ["a"])
        with pytest.raises(StoreForeign):
            await store.commit([[Put("t", "a", b"")]], "process")
        assert await store.get("s", ["a"]) == [b"1"]
