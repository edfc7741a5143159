"""SimPy: a message under way is a timeout with a callback.

There is no mailbox, no check and no log, and nothing is encoded.
"""

from __future__ import annotations

from time import perf_counter as clock
from typing import TYPE_CHECKING

import simpy

from tests.benchmarks.limits_story import Story

if TYPE_CHECKING:
    from collections.abc import Callable


def deliveries(n: int) -> float:
    story, world = Story(min(1_000, n), n), simpy.Environment()

    def at(delay: float, call: Callable[[int, int], None], i: int, sender: int) -> None:
        event = world.timeout(delay)
        event.callbacks.append(lambda _: call(i, sender))

    def hear(i: int, sender: int) -> None:
        if story.arrived(i, sender):
            at(story.pause(), forward, i, 0)

    def forward(i: int, _: int) -> None:
        for j, delay in story.forward(i):
            at(delay, hear, j, i)
        at(story.pause(), forward, i, 0)

    began = clock()
    hear(0, 0)
    while not story.over:
        world.step()
    return clock() - began
