"""Topics and followings: the limits, which are bare loops that do the same, and ours."""

from __future__ import annotations

import gc
from collections import deque
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import Agent, ChildSpec, Event, Node, action, event
from tests.benchmarks.limits_dispatch import BareCounter, Dispatcher
from tests.benchmarks.ours import resident

if TYPE_CHECKING:
    from collections.abc import Iterable

LISTENERS = 1000
SIZE = 64


class Bell(Agent):
    rang: Event[int] = event()

    @action
    def ring(self, number: int) -> None:
        self.rang.emit(number)


class Ear(Agent):
    bell: Any = None
    heard: int = 0

    def started(self) -> None:
        if self.bell is not None:
            self.follow(self.bell, Bell.rang, self.hear)

    def hear(self, _number: int) -> None:
        self.heard += 1

    @action
    def total(self) -> int:
        return self.heard


def bare_topic(n: int) -> float:
    """Values a second that a bare loop puts into bounded queues, which are emptied as they fill."""
    queues = [deque[int](maxlen=SIZE) for _ in range(LISTENERS)]
    began = clock()
    for i in range(n):
        for queue in queues:
            queue.append(i)
        if i % SIZE == SIZE - 1 or i == n - 1:
            _drain_bare(queues)
    return n * LISTENERS / (clock() - began)


def _drain_bare(queues: Iterable[deque[int]]) -> None:
    for queue in queues:
        take = queue.popleft
        while queue:
            take()


async def topic(node: Node, n: int) -> float:
    """Values a second that subscribers of a topic are given, and take without waiting."""
    numbers = node.topic("numbers", int)
    contexts = [numbers.subscribe(size=SIZE) for _ in range(LISTENERS)]
    feeds = [await context.__aenter__() for context in contexts]
    began = clock()
    for i in range(n):
        numbers.publish(i)
        if i % SIZE == SIZE - 1 or i == n - 1:
            for feed in feeds:
                take = feed.receive_nowait
                for _ in range(i % SIZE + 1):
                    take()
    value = n * LISTENERS / (clock() - began)
    assert numbers.statistics().missed == 0
    for context in contexts:
        await context.__aexit__(None, None, None)
    return value


async def bare_follow(dispatcher: Dispatcher, n: int) -> float:
    """Events a second that a bare loop gives to bare agents and their dispatcher handles as turns."""
    agents = [BareCounter(dispatcher) for _ in range(LISTENERS)]
    for agent in agents:
        agent.count = 0
    began = clock()
    for i in range(n):
        for agent in agents:
            agent.tell(i)
        await agents[-1].ask("get")
    value = n * LISTENERS / (clock() - began)
    assert agents[0].count == n
    return value


async def follow(node: Node, n: int) -> float:
    """Events a second that followers of one agent handle as turns."""
    bell = await node.start(Bell)
    ears = await node.root.start_many(ChildSpec("ear", partial(Ear, bell=bell)), LISTENERS)
    began = clock()
    for i in range(n):
        await bell.invoke(Bell.ring, i)
        await trio.lowlevel.checkpoint()
        await ears[-1].invoke(Ear.total)
    value = n * LISTENERS / (clock() - began)
    assert await ears[0].invoke(Ear.total) == await ears[-1].invoke(Ear.total) == n
    return value


async def follow_memory(node: Node, n: int) -> float:
    """Bytes that following takes, beyond those of the agent, once one event has been handled."""
    bell = await node.start(Bell)
    sizes: list[float] = []
    for followed in (None, bell):
        gc.collect()
        before = resident()
        ears = await node.root.start_many(ChildSpec("ear", partial(Ear, bell=followed)), n)
        await bell.invoke(Bell.ring, 1)
        for ear in ears:
            assert await ear.invoke(Ear.total) == (followed is not None)
        gc.collect()
        sizes.append((resident() - before) / n)
    return max(0.0, sizes[1] - sizes[0])
