"""The process that `test_killed_agents.py` kills: each durable timer of its agents sets the next one."""

from __future__ import annotations

import os
import sys

import trio

from lmos_actors import Agent, ChildSpec, Ref, action, open_node
from tests.persistence.killed_agents import AGENTS


class Chain(Agent, durable=True):
    """Counts by timers alone: the argument of the one that fires is the number that is due."""

    n: int = 0

    @action
    def begin(self) -> tuple[int, list[int]]:
        if not self.n and not self.durable_timers:
            self.after(0.001, self.count, 1, durable=True)
        return self.n, [timer.arguments["number"] for timer in self.durable_timers]

    def count(self, number: int) -> None:
        if number != self.n + 1:
            os.write(1, b"wrong 0 0\n")
        self.n = number
        self.after(0.001 if number % 3 else 0, self.count, number + 1, durable=True)

    @action
    def look(self) -> int:
        return self.n


async def main(store: str) -> None:
    async with open_node(store=store) as node, trio.open_nursery() as nursery:
        refs = [await node.start_child(ChildSpec(f"chain-{i}", Chain)) for i in range(AGENTS)]
        for i, ref in enumerate(refs):
            n, due = await ref.invoke(Chain.begin)
            assert due == [n + 1], (n, due)
            os.write(1, f"found {i} {n}\n".encode())
        for i, ref in enumerate(refs):
            nursery.start_soon(ask, i, ref)


async def ask(i: int, ref: Ref[Chain]) -> None:
    while True:
        n = await ref.invoke(Chain.look)
        os.write(1, f"answer {i} {n}\n".encode())
        await trio.sleep(0.002)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
