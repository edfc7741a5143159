"""A server of durable agents is killed (SIGKILL) at its commits, again and again: each request counts once.

Half of the kills come between the commit of a request and its answer, the other half just before the commit.
The callers repeat what has no answer, by `ref.retrying()`.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import AgentDied, AgentUnavailable, OutcomeUnknown, Ref, open_node
from lmos_actors.errors import ConnectFailed
from lmos_actors.facades import open_chat
from lmos_actors.transport import ConnectionOptions
from tests.matrix import few_or_all
from tests.persistence.killed_agents import Batches, Counter, Diary, Intake, JournalIntake
from tests.persistence.killed_server import AGENTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SOON = ConnectionOptions(reconnect_seconds=0.2)
KILLS = len(few_or_all(range(5), range(12)))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def live(path: Path, url: str, commits: int, when: str, started: trio.Event) -> None:
    """Run the server until it has killed itself."""
    command = [sys.executable, "-m", "tests.persistence.killed_server", str(path), url, str(commits), when]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(trio.run_process, command, stdout=subprocess.PIPE, capture_stdout=False, check=False)
        )
        try:
            assert process.stdout is not None
            async for _ in process.stdout:
                started.set()
            assert started.is_set(), "the server did not start"
        finally:
            process.kill()


@attrs.define
class Caller:
    """Counts at one agent; every second request has a key of its own."""

    agent: int
    stop: bool = False
    answers: list[int] = attrs.field(factory=list[int])
    by_key: dict[str, int] = attrs.field(factory=dict[str, int])

    async def run(self, ref: Ref[Counter]) -> None:
        action = Counter.count if self.agent % 2 else Counter.count_slowly
        while not self.stop:
            key = f"{self.agent}-{len(self.answers)}" if len(self.answers) % 2 else None
            n = await ref.retrying(attempts=None, seconds=None, key=key).invoke(action)
            self.answers.append(n)
            if key is not None:
                self.by_key[key] = n

    async def check(self, ref: Ref[Counter]) -> None:
        """The agent has counted each request once; and a caller that has just begun gets the same answers."""
        assert self.answers == list(range(1, len(self.answers) + 1))
        action = Counter.count if self.agent % 2 else Counter.count_slowly
        for key, n in list(self.by_key.items())[-5:]:
            assert await ref.retrying(key=key).invoke(action) == n
        assert (await ref.invoke(Counter.look))[0] == len(self.answers)


@attrs.define
class Feeder:
    """Sends rows to an agent that answers each by its number, as a stream that goes on until it breaks."""

    sent: int = 0
    seen: int = 0
    ends: int = 0
    stop: bool = False

    async def rows(self) -> AsyncIterator[int]:
        while not self.stop:
            self.sent += 1
            yield self.sent

    async def run(self, ref: Ref[Any], handle: Any) -> None:
        while not self.stop:
            try:
                async with ref.stream(handle, self.rows()) as numbers:
                    first = True
                    async for n in numbers:
                        if first:  # what was seen is kept, and no row counts twice
                            assert self.seen < n <= self.sent, (self.seen, n, self.sent)
                        else:
                            assert n == self.seen + 1
                        self.seen, first = n, False
            except (AgentDied, AgentUnavailable, OutcomeUnknown):
                self.ends += 1
                await ref.ready()


@attrs.define
class Batcher:
    """Sends rows five at a time: of each five all count, or none."""

    batches: int = 0
    n: int = 0
    ends: int = 0
    stop: bool = False

    async def five(self) -> AsyncIterator[int]:
        for row in range(5):
            yield row

    async def run(self, ref: Ref[Batches]) -> None:
        while not self.stop:
            self.batches += 1
            try:
                n = await ref.invoke(Batches.ingest, self.five())
                assert self.n < n <= 5 * self.batches, (self.n, n, self.batches)
                assert n % 5 == 0
                self.n = n
            except (AgentDied, AgentUnavailable, OutcomeUnknown):
                self.ends += 1
                await ref.ready()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_streams_into_agents_end_once_with_a_kill_and_no_row_counts_twice(tmp_path: Path) -> None:
    chance, url = random.Random(20), f"ws://127.0.0.1:{free_port()}"
    feeders, batcher = {Intake: Feeder(), JournalIntake: Feeder()}, Batcher()
    async with open_node(connection=SOON) as node, trio.open_nursery() as streams:
        for kill in range(KILLS + 1):
            started, last = trio.Event(), kill == KILLS
            commits = 1 << 40 if last else chance.randrange(20, 120)
            async with trio.open_nursery() as life:
                when = ("before", "after")[kill % 2]
                life.start_soon(live, tmp_path / "takers.db", url, commits, when, started)
                await started.wait()
                if not kill:
                    for cls, name in ((Intake, "intake"), (JournalIntake, "journal-intake")):
                        ref: Ref[Any] = await node.consume(cls, f"{url}/agents/{name}")
                        streams.start_soon(feeders[cls].run, ref, cls.take)
                    streams.start_soon(batcher.run, await node.consume(Batches, f"{url}/agents/batches"))
                if last:
                    for each in (*feeders.values(), batcher):
                        each.stop = True
                    await streams_ended(streams)
                    life.cancel_scope.cancel()
    assert all(1 <= each.ends <= KILLS for each in (*feeders.values(), batcher))  # none by a kill between two
    assert min(each.seen for each in feeders.values()) > 5 * KILLS
    assert batcher.n > 5 * KILLS


@attrs.define
class Talker:
    """Says one number after the other in one session, over Omnia's protocol."""

    url: str
    session: str | None = None
    said: int = 0
    answered: list[int] = attrs.field(factory=list[int])
    ends: int = 0
    stop: bool = False

    async def run(self) -> None:
        async with open_chat(self.url) as chat:
            while not self.stop:
                try:
                    self.said += 1
                    answer = await chat.say(str(self.said))
                    assert answer.text.endswith(f": {self.said}")
                    self.answered.append(self.said)
                    self.session = chat.session
                except (OutcomeUnknown, ConnectFailed):
                    self.ends += 1
                    await trio.sleep(0.05)

    async def check(self, ref: Ref[Diary]) -> None:
        """What was answered is in the history, nothing is there twice, and no question lacks its answer."""
        assert self.session is not None
        history = await ref.invoke(Diary.history, self.session)
        said = [int(each.text) for each in history if each.role == "user"]
        assert [each.role for each in history] == ["user", "agent"] * len(said)
        assert said == sorted(set(said))
        assert set(self.answered) <= set(said)
        answers = [each.text for each in history if each.role == "agent"]
        assert answers == [f"{n}: {each}" for n, each in enumerate(said, 1)], "the memory is as old as it"


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_an_answered_turn_of_a_conversation_is_in_its_history_however_often_its_server_is_killed(
    tmp_path: Path,
) -> None:
    chance, url = random.Random(21), f"ws://127.0.0.1:{free_port()}"
    talkers = [Talker(f"{url}/agents/diary") for _ in range(AGENTS)]
    async with trio.open_nursery() as talks:
        for kill in range(KILLS + 1):
            started, last = trio.Event(), kill == KILLS
            commits = 1 << 40 if last else chance.randrange(20, 120)
            async with trio.open_nursery() as life:
                when = ("before", "after")[kill % 2]
                life.start_soon(live, tmp_path / "diary.db", url, commits, when, started)
                await started.wait()
                if not kill:
                    for talker in talkers:
                        talks.start_soon(talker.run)
                if last:
                    for talker in talkers:
                        talker.stop = True
                    await streams_ended(talks)
                    async with open_node() as another:
                        for talker in talkers:
                            await talker.check(await another.consume(Diary, f"{url}/agents/diary"))
                    life.cancel_scope.cancel()
    assert all(talker.ends for talker in talkers)
    assert sum(len(talker.answered) for talker in talkers) > 10 * KILLS


async def streams_ended(nursery: trio.Nursery) -> None:
    while nursery.child_tasks:
        await trio.lowlevel.checkpoint()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_request_counts_once_however_often_its_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.actors.refs._retrying.LONGEST", 0.2)
    chance, url = random.Random(19), f"ws://127.0.0.1:{free_port()}"
    callers = [Caller(i) for i in range(AGENTS)]

    async def serve(commits: int, when: str, started: trio.Event) -> None:
        await live(tmp_path / "counters.db", url, commits, when, started)

    async with trio.open_nursery() as nursery:
        async with open_node(connection=SOON) as node, trio.open_nursery() as calls:
            for kill in range(KILLS):
                started = trio.Event()
                async with trio.open_nursery() as life:
                    life.start_soon(serve, chance.randrange(20, 120), ("before", "after")[kill % 2], started)
                    if not kill:
                        await started.wait()
                        for caller in callers:
                            agent = f"{url}/agents/counter-{caller.agent}"
                            calls.start_soon(caller.run, await node.consume(Counter, agent))
            started = trio.Event()
            nursery.start_soon(serve, 1 << 40, "after", started)
            await started.wait()
            for caller in callers:
                caller.stop = True
        async with open_node() as another:
            for caller in callers:
                agent = f"{url}/agents/counter-{caller.agent}"
                await caller.check(await another.consume(Counter, agent))
        nursery.cancel_scope.cancel()
    assert sum(len(caller.answers) for caller in callers) > 10 * KILLS
