"""A client that behaves, in a process: `python -m tests.wire_conformance.good_client URL REQUESTS`.

It asks an agent over LMOS and over HTTP in turns, tells it something in between, and writes how many of its
requests were answered as they should be. One that is not ends it with a traceback.
"""

from __future__ import annotations

import sys
from typing import Final

import trio

from lmos_actors import Agent, action, open_node

WHY: Final = "because " * 2_500  # so that each request takes some of the memory that all peers may hold


class Counter(Agent):
    """Counts what it is told."""

    told: int = 0

    @action
    async def double(self, number: int, why: str) -> int:
        await trio.sleep(0.01)
        return 2 * number

    @action
    def note(self) -> None:
        self.told += 1

    @action
    def noted(self) -> int:
        return self.told


async def ask(url: str, requests: int) -> int:
    """Make so many requests one after another; return how many were answered well."""
    answered = 0
    async with open_node() as node:
        far = await node.consume(Counter, f"{url}/agents/counter")
        plain = await node.consume(Counter, f"{url.replace('ws:', 'http:')}/agents/counter")
        for number in range(requests):
            await far.tell(Counter.note)
            ref = plain if number % 4 == 0 else far
            answered += await ref.invoke(Counter.double, number, WHY) == 2 * number
        while await far.invoke(Counter.noted) < requests:  # noqa: ASYNC110 -- nothing tells
            await trio.sleep(0.01)
    return answered


if __name__ == "__main__":
    sys.stdout.write(f"{trio.run(ask, sys.argv[1], int(sys.argv[2]))}\n")
