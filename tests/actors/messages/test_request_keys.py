"""Random programs of requests with keys: each key has one effect and one answer, whatever goes wrong."""

from __future__ import annotations

import random
from contextlib import suppress

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Ref,
    SupervisorSpec,
    action,
    open_node,
)
from tests.matrix import few_or_all
from tests.persistence.test_agent_states import StoreOfTest

SEEDS = few_or_all(range(10), range(300))
KEYS = 12


class Book(Agent, durable=True):
    """Counts how often each key had an effect that was kept."""

    effects: dict[str, int] = attrs.field(factory=dict)
    number: int = 0

    def effect(self, key: str) -> int:
        self.effects = {**self.effects, key: self.effects.get(key, 0) + 1}
        self.number += 1
        return self.number

    @action
    def write(self, key: str) -> int:
        return self.effect(key)

    @action
    def fail(self, key: str) -> None:
        raise ActionFailed({"number": self.effect(key)})

    @action(snapshot_safe=True, concurrency=3)
    async def write_slowly(self, key: str) -> int:
        await trio.sleep(0.3)
        return self.effect(key)

    @action
    def crash(self) -> None:
        self.effects = {}
        raise RuntimeError("crash")

    @action
    def look(self) -> dict[str, int]:
        return self.effects


class Program:
    """One random program: callers that repeat, give up and crash the agent, over a store that fails."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = StoreOfTest()
        self.answers: dict[str, list[int]] = {}
        self.handles = {
            str(key): self.chance.choice((Book.write, Book.fail, Book.write_slowly)) for key in range(KEYS)
        }

    async def run(self) -> None:
        tree = SupervisorSpec("root", [ChildSpec("book", Book)], max_restarts=1_000)
        for _ in range(2):
            async with open_node(tree, store=self.store) as node, trio.open_nursery() as nursery:
                book = node.find(Book)
                for _ in range(40):
                    nursery.start_soon(self.call, book)
                nursery.start_soon(self.disturb, book)
        async with open_node(tree, store=self.store) as node:
            book = node.find(Book)
            effects = await book.invoke(Book.look)
            for key, answers in self.answers.items():
                assert effects[key] == 1
                assert len(set(answers)) == 1
                assert await self.ask(book, key) == answers[0]
            assert set(effects.values()) <= {1}
            assert len(self.answers) > KEYS // 3
            assert await book.invoke(Book.look) == effects

    async def call(self, book: Ref[Book]) -> None:
        """Make a request at a random time, and give up after another."""
        await trio.sleep(self.chance.uniform(0, 3))
        key = str(self.chance.randrange(KEYS))
        patience = self.chance.choice((0.001, 0.1, 0.4, 30))
        with trio.move_on_after(patience), suppress(AgentDied, AgentUnavailable):
            answer = await self.ask(book, key)
            self.answers.setdefault(key, []).append(answer)

    async def ask(self, book: Ref[Book], key: str) -> int:
        try:
            return await book.retrying(key=key).invoke(self.handles[key], key)  # type: ignore[return-value]
        except ActionFailed as failed:
            number: int = failed.data["number"]
            return number

    async def disturb(self, book: Ref[Book]) -> None:
        """Crash the agent, and have the store fail."""
        for _ in range(6):
            await trio.sleep(self.chance.uniform(0, 0.6))
            if self.chance.random() < 0.5:
                with pytest.raises((AgentDied, AgentUnavailable)):
                    await book.invoke(Book.crash)
            else:
                self.store.fails = True
                await trio.sleep(self.chance.uniform(0, 0.4))
                self.store.fails = False


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_key_has_one_effect_and_one_answer(seed: int, autojump_clock: object) -> None:
    await Program(seed).run()
