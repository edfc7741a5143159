"""What agents remember: texts kept a second, questions among a thousand texts, with an index or without."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import Agent, open_node
from lmos_actors.memories import Memories

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WORDS = [f"word{number}" for number in range(5_000)]
TEXT = 15
"""Words of a text, about 130 characters."""

EACH = 5
"""Texts of each of the other identities in the store."""


class Keeper(Agent):
    """An agent that the benchmark uses as its own code would."""

    def started(self) -> None:
        KEPT.append(self)


KEPT: list[Keeper] = []


def in_file(program: Callable[..., Awaitable[float]], *args: Any) -> Callable[[int], float]:
    """Run a program with an agent whose node has a store in a new folder."""

    def measured(n: int) -> float:
        with TemporaryDirectory() as folder:
            return trio.run(_on_node, f"sqlite:{Path(folder, 'node.db')}", program, *args, n)

    return measured


def in_memory(program: Callable[..., Awaitable[float]], *args: Any) -> Callable[[int], float]:
    """Run a program with an agent whose node has no store."""
    return lambda n: trio.run(_on_node, None, program, *args, n)


async def _on_node(store: str | None, program: Callable[..., Awaitable[float]], *args: Any) -> float:
    async with open_node(store=store) as node:
        await node.start(Keeper)
        return await program(KEPT.pop(), *args)


def _text(chance: Random) -> str:
    return " ".join(chance.sample(WORDS, TEXT))


async def remembered(keeper: Keeper, n: int) -> float:
    """Texts a second of one identity, each once the one before it is kept."""
    chance, memories = Random(1), Memories(keeper, "alice")
    texts = [_text(chance) for _ in range(n)]
    began = clock()
    for text in texts:
        await memories.remember(text)
    return n / (clock() - began)


async def recalled(keeper: Keeper, others: int, n: int) -> float:
    """Milliseconds of a question of three words among 1,000 texts, with so many other identities."""
    chance = Random(1)
    async with trio.open_nursery() as nursery:
        for number in range(min(others, n)):
            nursery.start_soon(
                _fill, Memories(keeper, f"user {number}"), [_text(chance) for _ in range(EACH)]
            )
    memories = Memories(keeper, "alice")
    await _fill(memories, [_text(chance) for _ in range(min(1_000, n))])
    questions = [" ".join(chance.sample(WORDS, 3)) for _ in range(n)]
    began = clock()
    for question in questions:
        await memories.recall(question)
    return (clock() - began) / n * 1e3


async def _fill(memories: Memories, texts: list[str]) -> None:
    for text in texts:
        await memories.remember(text)
