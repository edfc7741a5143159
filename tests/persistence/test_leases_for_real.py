"""Leases in real time: a process that stands still (SIGSTOP) and is killed, and a node that stands still."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from lmos_actors import AgentDied, ChildSpec, action, open_node
from lmos_actors.errors import LmosActorsError, StoreInUse
from lmos_actors.persistence import MemoryStore, SqliteStore
from tests.persistence.leased_till import Till
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def process_of(store: str) -> AsyncIterator[tuple[trio.Process, str]]:
    command = [sys.executable, "-m", "tests.persistence.leased_till", store]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.receive_some()).decode().strip()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def epoch_in(path: Path) -> int:
    store = SqliteStore(path)
    store.open()
    (grant,) = store.get("leases", ["1"])
    store.close()
    found: int = msgspec.json.decode(grant or b"")["epoch"]
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
async def test_a_process_that_stands_still_keeps_its_file_and_one_that_is_killed_leaves_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "till.db"
    sold = 0
    for _ in range(2):
        async with process_of(f"sqlite:{path}") as (process, url), open_node() as node:
            till = await node.consume(Till, f"{url}/agents/till")
            sold += 1
            assert await till.invoke(Till.sell) == sold
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(StoreInUse, match=r"process [0-9]+ has it open"):
                async with open_node(store=f"sqlite:{path}"):
                    pass
            process.send_signal(signal.SIGCONT)
            sold += 1
            assert await till.invoke(Till.sell) == sold
    assert epoch_in(path) == 2
    began = time.monotonic()
    async with open_node(store=f"sqlite:{path}") as node:
        till = await node.start_child(ChildSpec("till", Till, key="1"))
        assert await till.invoke(Till.sell) == sold + 1
    assert time.monotonic() - began < 5, "it does not wait for a lease that has ended with its process"
    assert epoch_in(path) == 3


class Still(Till):
    """Has its node stand still, longer than its lease lasts."""

    @action
    def stand_still(self, seconds: float) -> int:
        self.sold += 100
        time.sleep(seconds)
        return self.sold


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lmos_actors.errors.SlowTurnWarning")
def test_what_a_node_did_while_another_one_took_its_lease_is_not_kept() -> None:
    store, ready, taken = MemoryStore(shared=True), threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def first() -> None:
        async with open_node(store=store) as node:
            still = await node.start_child(ChildSpec("till", Still, key="1"))
            assert await still.invoke(Still.sell) == 1
            ready.set()
            with pytest.raises(AgentDied, match="another node"):
                await still.invoke(Still.stand_still, 13.0)
            assert taken.is_set()

    def in_thread() -> None:
        try:
            trio.run(first)
        except BaseException as error:  # noqa: ASYNC103 -- raised in the thread of the test
            failures.append(error)
            ready.set()

    async def second() -> None:
        async with open_node(store=store) as node:
            still = await node.start_child(ChildSpec("till", Still, key="1"))
            taken.set()
            for sold in range(2, 7):
                assert await still.invoke(Still.sell) == sold
                await trio.sleep(1)

    thread = threading.Thread(target=in_thread)
    thread.start()
    ready.wait(30)
    try:
        trio.run(second)
    finally:
        thread.join(60)
    assert failures == []


@pytest.mark.slow
@needs_redis
async def test_nothing_of_a_process_counts_that_stood_still_while_another_one_took_its_lease(
    tmp_path: Path,
) -> None:
    server = RedisServer(tmp_path)
    try:
        async with process_of(server.url()) as (process, url), open_node() as caller:
            old = await caller.consume(Till, f"{url}/agents/till")
            assert await old.invoke(Till.sell) == 1
            process.send_signal(signal.SIGSTOP)
            async with open_node(store=server.url()) as node, trio.open_nursery() as nursery:
                late: list[object] = []

                async def ask_the_old_one() -> None:
                    try:
                        late.append(await old.invoke(Till.sell))
                    except LmosActorsError as error:
                        late.append(type(error))

                nursery.start_soon(ask_the_old_one)
                till = await node.start_child(ChildSpec("till", Till, key="1"))
                assert await till.invoke(Till.sell) == 2
                process.send_signal(signal.SIGCONT)
                assert await till.invoke(Till.sell) == 3
                with trio.fail_after(20):
                    while not late:  # noqa: ASYNC110 -- until the other process has answered
                        await trio.sleep(0.05)
                assert late[0] not in (2, 3, 4), "what it computed is no answer"
                assert await till.invoke(Till.sell) == 4
    finally:
        server.kill()


@pytest.mark.slow
@needs_redis
async def test_the_agent_of_a_killed_process_is_elsewhere_in_three_seconds(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        async with open_node(store=server.url()) as node, open_node() as caller:
            for sold in (1, 3):
                async with process_of(server.url()) as (process, url):
                    old = await caller.consume(Till, f"{url}/agents/till")
                    assert await old.invoke(Till.sell) == sold
                    process.kill()
                    began = trio.current_time()
                    till = await node.start_child(ChildSpec("till", Till, key="1"))
                    assert await till.invoke(Till.sell) == sold + 1
                    assert trio.current_time() - began < 3
                    await node.root.terminate_child("till")
                    await node.root.delete_child("till")
    finally:
        server.kill()


@pytest.mark.slow
@needs_redis
async def test_a_holder_whose_connections_break_is_not_taken_for_ended(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        async with open_node(store=server.url()) as node, open_node(store=server.url()) as other:
            till = await node.start_child(ChildSpec("till", Till, key="1"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.start_child, ChildSpec("till", Till, key="1"))
                for sold in range(1, 5):
                    assert await till.invoke(Till.sell) == sold
                    assert b":" in server.send("CLIENT", "KILL", "TYPE", "pubsub")
                    await trio.sleep(1.5)
                    if sold == 2:
                        server.kill()
                        server.start()
                nursery.cancel_scope.cancel()
            assert await till.invoke(Till.sell) == 5
    finally:
        server.kill()
