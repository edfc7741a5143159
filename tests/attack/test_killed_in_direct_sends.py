"""Two processes, one of which is killed (SIGKILL) in the middle of many direct requests and one-way messages.

The one that is left has exactly one end for each request, which is true: its value, OutcomeUnknown, or that
it was not begun. The agent took each number once at most, in order, and the sums add up.
"""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import AgentUnavailable, ChildSpec, OutcomeUnknown, SupervisorSpec, open_node
from tests.attack.killed_process import Tally
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

ROUNDS = few_or_all(range(4), range(24))


@asynccontextmanager
async def process(*arguments: str) -> AsyncGenerator[trio.Process]:
    command = [sys.executable, "-m", "tests.attack.killed_process", *arguments]
    started = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        await started.wait()


def lines(path: Path) -> list[tuple[str, int]]:
    """Return the whole lines that a killed process has written."""
    text = path.read_text() if path.exists() else ""
    return [(line.split()[0], int(line.split()[1])) for line in text.split("\n")[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", ROUNDS)
async def test_of_a_killed_server_each_request_has_one_true_end(tmp_path: Path, seed: int) -> None:
    chance, path = random.Random(seed), tmp_path / "took"
    ends: dict[int, str] = {}
    told: list[int] = []
    async with process("server", str(path)) as server, open_node() as node:
        assert server.stdout is not None
        url = (await server.stdout.receive_some()).decode().strip()
        tally = await node.consume(Tally, url, thing="tally")
        numbers, alone = count(), seed % 2 == 0
        until = chance.randint(20, 400)

        def ended(number: int, how: str) -> None:
            assert number not in ends
            ends[number] = how
            if len(ends) == until:
                server.kill()

        async def ask() -> None:
            while True:
                number = next(numbers)
                action = Tally.take if alone else chance.choice((Tally.take, Tally.take_later))
                try:
                    value = await tally.invoke(action, number)
                except OutcomeUnknown:
                    ended(number, "unknown")
                except AgentUnavailable:
                    ended(number, "not begun")
                    return
                else:
                    assert value == number
                    ended(number, "taken")
                if alone and number % 5 == 0:
                    await tell()

        async def tell() -> None:
            number = next(numbers)
            try:
                await tally.tell(Tally.note, number)
            except AgentUnavailable:
                return
            told.append(number)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(1 if alone else 8):
                    nursery.start_soon(ask)
                if not alone:
                    for _ in range(50):
                        await tell()
        await server.wait()
    took = lines(path)
    asked = [number for kind, number in took if kind == "ask"]
    noted = [number for kind, number in took if kind == "tell"]
    assert len(asked) == len(set(asked))
    assert noted == sorted(set(noted))
    assert set(noted) <= set(told)
    assert {number for number, how in ends.items() if how == "taken"} <= set(asked)
    assert not {number for number, how in ends.items() if how == "not begun"} & set(asked)
    assert set(asked) <= {number for number, how in ends.items() if how != "not begun"}
    assert len([how for how in ends.values() if how == "taken"]) >= until - 1 - (not alone) * 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", ROUNDS)
async def test_of_a_killed_client_each_request_is_carried_out_once_or_never(
    tmp_path: Path, seed: int
) -> None:
    chance, path = random.Random(seed), tmp_path / "asked"
    taken: list[str] = []
    enough, until = trio.Event(), chance.randint(20, 400)

    class Watched(Tally):
        def _take(self, word: str) -> None:
            taken.append(word)
            if len(taken) == until:
                enough.set()

    tree = SupervisorSpec("root", [ChildSpec("tally", Watched)])
    async with open_node(tree, listen="ws://127.0.0.1:0") as node:
        with trio.fail_after(60):
            async with process("client", node.urls[0], str(path)) as client:
                await enough.wait()
                client.kill()
                await client.wait()
            while node.connections:
                await wait_all_tasks_blocked()
        begun = [number for kind, number in lines(path) if kind == "a"]
        answered = [number for kind, number in lines(path) if kind == "b"]
        asks = [int(word[4:]) for word in taken if word.startswith("ask ")]
        tells = [int(word[5:]) for word in taken if word.startswith("tell ")]
        assert [int(word.split()[1]) for word in taken] == sorted({*asks, *tells})
        assert set(answered) <= set(asks)
        assert {*asks, *tells} <= set(begun)
        assert len(begun) - len(asks) - len(tells) <= 300  # one-way messages under way, and one request
        memory = node.statistics().memory
        assert (memory.bytes, memory.granted) == (0, 0)
        async with open_node() as other:
            next_one = await other.consume(Tally, node.urls[0], thing="tally")
            assert await next_one.invoke(Tally.take, 10**6) == 10**6
