"""The process that `test_killed_agents.py` kills: agents that count, and write down what others see."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from functools import partial

import attrs
import trio

from lmos_actors import Agent, ChildSpec, Ref, action, ephemeral, open_node
from lmos_actors.facades import ChatAgent, ChatTurn, SessionOptions

AGENTS = 8
JOURNALS = 4


class Diary(ChatAgent):
    """Writes down what is said; the answer says how often something was."""

    session_options = SessionOptions(messages=1_000_000, bytes=1 << 40)

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        turn.memory["count"] = count = turn.memory.get("count", 0) + 1
        yield f"{count}: "
        yield turn.text


class Counter(Agent, durable=True):
    """Counts, and keeps each number in a list too, so that half a change would show."""

    n: int = 0
    numbers: list[int] = attrs.field(factory=list)

    @action
    def count(self) -> int:
        self.n += 1
        self.numbers = [*self.numbers[-9:], self.n]
        return self.n

    @action(snapshot_safe=True)
    async def count_slowly(self) -> int:
        await trio.lowlevel.checkpoint()
        return self.count()

    @action
    def look(self) -> tuple[int, list[int]]:
        return self.n, self.numbers


@attrs.frozen
class Counted:
    """A fact of a journal."""

    n: int


class Witness(Agent):
    """Writes down what it is told: what others have seen of a journal's agent."""

    @action
    def see(self, i: int, n: int) -> None:
        os.write(1, f"saw {i} {n}\n".encode())


class Journal(Agent, durable="journal", snapshot_every=7):
    """Counts by facts that its runs record, two a run, and tells of the first before the second."""

    n: int = 0
    witness: Ref[Witness] | None = ephemeral(default=None)

    def apply(self, fact: Counted) -> None:
        assert fact.n == self.n + 1, (fact, self.n)
        self.n = fact.n

    @action
    async def count_twice(self, i: int) -> int:
        assert self.witness is not None
        self.record(Counted(self.n + 1))
        await self.witness.invoke(Witness.see, i, self.n)
        self.record(Counted(self.n + 1))
        self.send(self.witness, Witness.see, i, self.n)
        return self.n

    @action
    def look(self) -> int:
        return self.n


class Intake(Agent, durable=True):
    """Counts the rows of streams, and answers each by its number."""

    n: int = 0

    @action(snapshot_safe=True)
    async def take(self, rows: AsyncIterator[int]) -> AsyncIterator[int]:
        async for _ in rows:
            self.n += 1
            yield self.n


class JournalIntake(Agent, durable="journal", snapshot_every=7):
    """Does the same by facts."""

    n: int = 0

    def apply(self, fact: Counted) -> None:
        assert fact.n == self.n + 1, (fact, self.n)
        self.n = fact.n

    @action
    async def take(self, rows: AsyncIterator[int]) -> AsyncIterator[int]:
        async for _ in rows:
            self.record(Counted(self.n + 1))
            yield self.n


class Batches(Agent, durable=True, serial=True):
    """Counts the rows of a stream, all or none."""

    n: int = 0

    @action
    async def ingest(self, rows: AsyncIterator[int]) -> int:
        async for _ in rows:
            self.n += 1
        return self.n


async def main(store: str) -> None:
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        refs = [await node.start_child(ChildSpec(f"counter-{i}", Counter)) for i in range(AGENTS)]
        for i, ref in enumerate(refs):
            n, numbers = await ref.invoke(Counter.look)
            assert numbers == list(range(n - len(numbers) + 1, n + 1)), (n, numbers)
            os.write(1, f"found {i} {n}\n".encode())
        witness = await node.start_child(ChildSpec("witness", Witness))
        journals = {
            i: await node.start_child(ChildSpec(f"journal-{i}", partial(Journal, witness=witness)))
            for i in range(AGENTS, AGENTS + JOURNALS)
        }
        for i, journal in journals.items():
            os.write(1, f"found {i} {await journal.invoke(Journal.look)}\n".encode())
        for i, ref in enumerate(refs):
            nursery.start_soon(ask, i, ref)
        for i, journal in journals.items():
            nursery.start_soon(ask_journal, i, journal)


async def ask(i: int, ref: Ref[Counter]) -> None:
    while True:
        n = await ref.invoke(Counter.count if i % 2 else Counter.count_slowly)
        os.write(1, f"answer {i} {n}\n".encode())


async def ask_journal(i: int, ref: Ref[Journal]) -> None:
    while True:
        n = await ref.invoke(Journal.count_twice, i)
        os.write(1, f"answer {i} {n}\n".encode())


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
