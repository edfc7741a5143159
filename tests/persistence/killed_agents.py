"""The process that `test_killed_agents.py` kills: durable agents that count, each answer written down."""

from __future__ import annotations

import os
import sys

import attrs
import trio

from lmos_actors import Agent, ChildSpec, Ref, action, open_node

AGENTS = 8


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


async def main(path: str) -> None:
    async with open_node(store=f"sqlite:{path}") as node, trio.open_nursery() as nursery:
        refs = [await node.start_child(ChildSpec(f"counter-{i}", Counter)) for i in range(AGENTS)]
        for i, ref in enumerate(refs):
            n, numbers = await ref.invoke(Counter.look)
            assert numbers == list(range(n - len(numbers) + 1, n + 1)), (n, numbers)
            os.write(1, f"found {i} {n}\n".encode())
        for i, ref in enumerate(refs):
            nursery.start_soon(ask, i, ref)


async def ask(i: int, ref: Ref[Counter]) -> None:
    while True:
        n = await ref.invoke(Counter.count if i % 2 else Counter.count_slowly)
        os.write(1, f"answer {i} {n}\n".encode())


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
