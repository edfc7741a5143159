"""Programs and servers of a store in Redis are killed (SIGKILL): nothing is lost, or counts twice."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import AgentDied, AgentUnavailable, ChildSpec, open_node
from lmos_actors.persistence import AsyncStore, records_of, store_of
from tests.matrix import few_or_all
from tests.persistence.killed_agents import Counter
from tests.persistence.killed_writer import WRITERS
from tests.persistence.stores import Blocking
from tests.persistence.test_killed_writer import acknowledged_until_killed
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors import Ref

pytestmark = [needs_redis, pytest.mark.timeout(600)]

KILLS = len(few_or_all(range(3), range(25)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, "--appendfsync", "always")
    yield server
    server.kill()


@pytest.mark.slow
def test_what_a_killed_program_has_acknowledged_survives(server: RedisServer) -> None:
    """Every other time the server is killed with it."""
    chance, url = random.Random(7), server.url()
    last, start = dict[str, int](), 1
    for turn in range(KILLS):
        last |= acknowledged_until_killed(url, start, chance.randrange(1, 600))
        if turn % 2:
            server.kill()
            server.start()
        store = store_of(url)
        assert isinstance(store, AsyncStore)
        blocking = Blocking(store)
        blocking.open()
        state = {key: value.decode() for key, value in records_of(blocking, "state")}
        copies = {key: value.decode() for key, value in records_of(blocking, "copy")}
        journals: dict[str, list[int]] = {}
        for key, value in records_of(blocking, "journal"):
            owner, number = key.split("/")
            assert value.decode() == number
            journals.setdefault(owner, []).append(int(number))
        blocking.close()
        assert len(state) == WRITERS
        for owner, text in state.items():
            assert last[owner] <= int(text) <= max(last[owner] + 1, start), "at most one was under way"
            assert copies[owner] == text * (1 + int(text) % 50)
            assert journals[owner][-1] == int(text)
        start = max(int(text) for text in state.values()) + 1


@pytest.mark.slow
async def test_agents_lose_nothing_and_count_nothing_twice_when_the_server_is_killed(
    server: RedisServer,
) -> None:
    chance, kills = random.Random(24), 0
    answers, failures = dict.fromkeys(range(8), 0), dict.fromkeys(range(8), 0)

    async def ask(i: int, counter: Ref[Counter]) -> None:
        known, since = 0, 0  # the last answer, and the calls after it of which nothing is known
        while kills < KILLS:
            try:
                n = await counter.invoke(Counter.count if i % 2 else Counter.count_slowly)
            except AgentUnavailable:
                await trio.lowlevel.checkpoint()
            except AgentDied:
                since += 1
                failures[i] += 1
            else:
                assert known < n <= known + since + 1, "no answer is lost, and no call counts twice"
                known, since = n, 0
                answers[i] += 1

    with trio.fail_after(500):
        async with open_node(store=server.url()) as node, trio.open_nursery() as nursery:
            for i in answers:
                spec = ChildSpec(f"counter-{i}", Counter, key=str(i))
                nursery.start_soon(ask, i, await node.start_child(spec))
            for _ in range(KILLS):
                before, wanted = sum(answers.values()), chance.randrange(1, 300)
                while sum(answers.values()) < before + wanted:  # noqa: ASYNC110
                    await trio.sleep(0.001)
                server.kill()
                server.start()
                kills += 1
    assert min(answers.values()) > 0
    assert sum(failures.values()) > 0 or KILLS < 10, "few kills may each come between two commits"
