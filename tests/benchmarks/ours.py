"""The same work on this package: supervised agents, checked values and accounts, as everybody gets them."""

from __future__ import annotations

import gc
import os
from functools import partial
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    Node,
    Pool,
    Ref,
    SupervisorSpec,
    action,
    invoke_all,
    open_node,
    simulate,
)
from tests.benchmarks.limits_clock import SLEEPERS, sleepers
from tests.benchmarks.limits_dispatch import FAN, RING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import By

MINUTES_IDLE = 10
POOL = 8  # members


class Echo(Agent):
    @action
    def same(self, value: int) -> int:
        return value

    @action
    async def slowly(self, value: int) -> int:
        return value


class Counter(Agent):
    count: int = 0

    @action
    def add(self, _value: int, /) -> None:
        self.count += 1

    @action
    def total(self) -> int:
        return self.count


class Hop(Agent):
    following: Any = None
    done: Any = None

    @action
    def token(self, hops: int) -> None:
        if hops:
            self.send(self.following, Hop.token, hops - 1)
        else:
            self.done.set()


class Crasher(Agent):
    @action
    def crash(self) -> None:
        raise ValueError("a crash that was asked for")


class Ticker(Agent):
    left: int = 0
    done: Any = None

    def started(self) -> None:
        self.after(self.random.random() * 60, self.tick)

    def tick(self) -> None:
        self.left -= 1
        if self.left:
            self.after(self.random.random() * 60, self.tick)
        else:
            self.done()


async def tell(node: Node, n: int) -> float:
    ref = await node.start(Counter)
    tell_nowait, add = ref.tell_nowait, Counter.add
    began = clock()
    for i in range(n):
        try:
            tell_nowait(add, i)
        except trio.WouldBlock:
            await ref.tell(add, i)
    assert await ref.invoke(Counter.total) == n
    return n / (clock() - began)


async def ask(node: Node, n: int) -> float:
    ref = await node.start(Echo)
    invoke, same = ref.invoke, Echo.same
    began = clock()
    for i in range(n):
        await invoke(same, i)
    return n / (clock() - began)


async def pool_tell(node: Node, n: int) -> float:
    pool = await node.start_pool(Pool(Counter, POOL))
    tell_nowait, add = pool.tell_nowait, Counter.add
    began = clock()
    for i in range(n):
        try:
            tell_nowait(add, i)
        except trio.WouldBlock:
            await pool.tell(add, i)
    assert sum(await invoke_all(pool.members, Counter.total)) == n
    return n / (clock() - began)


async def pool_ask(node: Node, n: int, by: By = "round_robin") -> float:
    pool = await node.start_pool(Pool(Echo, POOL, by=by))
    invoke, same = pool.invoke, Echo.same
    began = clock()
    for i in range(n):
        await invoke(same, i)
    return n / (clock() - began)


async def ask_async(node: Node, n: int) -> float:
    ref = (await node.start(Echo)).within(10)
    began = clock()
    for i in range(n):
        await ref.invoke(Echo.slowly, i)
    return n / (clock() - began)


async def fan(node: Node, n: int) -> float:
    refs = await node.root.start_many(ChildSpec("echo", Echo), FAN)
    began = clock()
    for i in range(n):
        assert len(await invoke_all(refs, Echo.same, i)) == FAN
    return n * FAN / (clock() - began)


async def ring(node: Node, n: int) -> float:
    done = trio.Event()
    following = node.find(Hop, "first")
    for _ in range(RING - 1):
        following = await node.start(Hop, following=following, done=done)
    spec = ChildSpec("first", partial(Hop, following=following, done=done))
    first = await node.start_child(spec)
    began = clock()
    first.tell_nowait(Hop.token, n)
    await done.wait()
    return n / (clock() - began)


async def spawn(node: Node, n: int) -> float:
    began = clock()
    refs = await node.root.start_many(ChildSpec("echo", Echo), n)
    await refs[-1].invoke(Echo.same, 1)
    return n / (clock() - began)


async def start(node: Node, n: int) -> float:
    began = clock()
    for _ in range(n):
        ref = await node.start(Echo)
    await ref.invoke(Echo.same, 1)
    return n / (clock() - began)


async def stop(node: Node, n: int) -> float:
    supervisor = await node.start_supervisor(SupervisorSpec("group"))
    for i in range(n):
        await supervisor.start_child(ChildSpec(f"echo{i}", Echo))
    began = clock()
    for i in range(n):
        await supervisor.terminate_child(f"echo{i}")
    return n / (clock() - began)


async def stop_all(node: Node, n: int) -> float:
    supervisor = await node.start_supervisor(SupervisorSpec("group"))
    await supervisor.start_many(ChildSpec("echo", Echo), n)
    began = clock()
    await node.root.terminate_child("group")
    return n / (clock() - began)


async def restart(node: Node, n: int) -> float:
    served = 0
    spec = SupervisorSpec("group", max_restarts=n)
    supervisor = await node.start_supervisor(spec)
    refs = await supervisor.start_many(ChildSpec("crasher", Crasher), min(n, 1000))
    other = await node.start(Echo)

    async def keep_asking() -> None:
        nonlocal served
        while True:
            served += await other.invoke(Echo.same, 1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_asking)
        began = clock()
        for _ in range(n // len(refs)):
            for ref in refs:
                await crash(ref)
            for ref in refs:
                await ref.ready()
        value = n // len(refs) * len(refs) / (clock() - began)
        nursery.cancel_scope.cancel()
    assert supervisor.statistics().restarts == n // len(refs) * len(refs)
    assert served
    return value


async def crash(ref: Ref[Crasher]) -> None:
    try:
        await ref.invoke(Crasher.crash)
    except AgentDied:
        return
    raise AssertionError("it did not crash")


def resident() -> int:
    """Bytes of this process that are in memory; Linux only."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory(node: Node, n: int) -> float:
    gc.collect()
    before = resident()
    refs = await node.root.start_many(ChildSpec("echo", Echo), n)
    for ref in refs:
        await ref.invoke(Echo.same, 1)
    gc.collect()
    return (resident() - before) / n


async def memory_specs(node: Node, n: int) -> float:
    gc.collect()
    before = resident()
    refs = [await node.root.start_child(ChildSpec(f"echo{i}", Echo)) for i in range(n)]
    for ref in refs:
        await ref.invoke(Echo.same, 1)
    gc.collect()
    return (resident() - before) / n


async def memory_started(node: Node, n: int) -> float:
    gc.collect()
    before = resident()
    refs = [await node.start(Echo) for _ in range(n)]
    for ref in refs:
        await ref.invoke(Echo.same, 1)
    gc.collect()
    return (resident() - before) / n


async def timers(node: Node, n: int) -> float:
    each, left, done = max(1, n // SLEEPERS), SLEEPERS, trio.Event()

    def one_done() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    await node.root.start_many(ChildSpec("ticker", partial(Ticker, left=each, done=one_done)), SLEEPERS)
    began = clock()
    await done.wait()
    return each * SLEEPERS / (clock() - began)


async def many(node: Node, n: int) -> float:
    began = clock()
    refs = await node.root.start_many(ChildSpec("echo", Echo), n)
    await refs[-1].invoke(Echo.same, 1)
    return clock() - began


async def many_memory(node: Node, n: int) -> float:
    before = resident()
    await node.root.start_many(ChildSpec("echo", Echo), n)
    return (resident() - before) / 1e6


class Passes(trio.abc.Instrument):
    """Counts the passes of trio's run loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def idle(node: Node, n: int) -> float:
    refs = await node.root.start_many(ChildSpec("echo", Echo), n)
    for ref in refs:
        await ref.invoke(Echo.same, 1)
    return await passes_in_minutes()


async def passes_in_minutes() -> float:
    """Passes that trio's run loop makes while this task sleeps for ten minutes."""
    await trio.sleep(5)
    passes = Passes()
    trio.lowlevel.add_instrument(passes)
    await trio.sleep(MINUTES_IDLE * 60)
    trio.lowlevel.remove_instrument(passes)
    return float(passes.count)


def idle_passes(n: int) -> float:
    """Passes that are made because of an idle node with `n` agents: more than without the node."""
    return on_simulated_node(idle, n) - simulate(passes_in_minutes)


def on_node(program: Callable[[Node, int], Awaitable[float]], n: int) -> float:
    """Run a program on a node in real time."""

    async def main() -> float:
        async with open_node() as node:
            return await program(node, n)

    return trio.run(main)


def on_simulated_node(program: Callable[[Node, int], Awaitable[float]], n: int) -> float:
    """Run a program on a node in a simulation."""

    async def main() -> float:
        async with open_node() as node:
            return await program(node, n)

    return simulate(main)


def simulated_sleepers(n: int) -> float:
    """Timer events a second of `trio.sleep` in a simulation."""
    return simulate(sleepers, n)
