"""python -m tests.benchmarks.failover_redis [TRIALS]: how long an agent waits for a killed server.

A trial kills the server (SIGKILL) under an agent that is asked again and again, and starts it again at once,
or after some seconds. It ends with the first answer after that: a durable turn that is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import Final

import trio

from lmos_actors import Agent, AgentDied, AgentUnavailable, ChildSpec, Ref, action, open_node
from tests.redis_server import RedisServer

TRIALS: Final = 30
AWAY: Final = (0.0, 3.0)
"""Seconds for which the server is away before it is started again."""


class Till(Agent, durable=True):
    """A till."""

    sold: int = 0

    @action
    def sell(self) -> int:
        """Sell something and return how much has been sold."""
        self.sold += 1
        return self.sold


async def answered(till: Ref[Till]) -> int:
    """Ask until there is an answer."""
    while True:
        try:
            return await till.invoke(Till.sell)
        except (AgentDied, AgentUnavailable):
            await trio.sleep(0.002)


async def trial(server: RedisServer, till: Ref[Till], away: float) -> tuple[float, float]:
    """Return the seconds from the kill, and from when the server answers again, to the next answer."""
    before = await answered(till)
    began = clock()
    server.kill()
    if away:
        await trio.sleep(away)
    is_back = 0.0

    async def start() -> None:
        nonlocal is_back
        await trio.to_thread.run_sync(server.start)
        is_back = clock()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        assert await answered(till) > before
        ended = clock()
    return ended - began, max(ended - is_back, 0.0)


async def main(trials: int) -> None:
    with TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), "--appendfsync", "always")
        try:
            async with open_node(store=server.url()) as node:
                till = await node.start_child(ChildSpec("till", Till, key="1"))
                for away in AWAY:
                    found = [await trial(server, till, away) for _ in range(trials)]
                    for what, seconds in zip(
                        ("from the kill", "from its answer"), zip(*found, strict=True), strict=True
                    ):
                        ordered = sorted(seconds)
                        late = ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
                        print(
                            f"away {away:g} s, {what}: p50 {median(ordered):.3f} s, p99 {late:.3f} s, "
                            f"most {ordered[-1]:.3f} s, of {trials}"
                        )
        finally:
            server.kill()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS)
