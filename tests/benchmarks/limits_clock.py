"""The limit for virtual time: tasks that sleep at random on trio's own MockClock, which jumps when idle."""

from __future__ import annotations

import random
from time import perf_counter as clock

import trio
import trio.testing
from trio.lowlevel import checkpoint

SLEEPERS = 1000


async def sleepers(n: int) -> float:
    """Timer events a second: a thousand tasks that sleep `n` times between them, on whatever clock runs."""
    each = max(1, n // SLEEPERS)

    async def sleeper(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(each):
            await trio.sleep(chance.random() * 60)

    async with trio.open_nursery() as nursery:
        for seed in range(SLEEPERS):
            nursery.start_soon(sleeper, seed)
        await checkpoint()
        await checkpoint()
        began = clock()
    return each * SLEEPERS / (clock() - began)


def events(n: int) -> float:
    """Timer events a second on MockClock."""
    return trio.run(sleepers, n, clock=trio.testing.MockClock(autojump_threshold=0))
