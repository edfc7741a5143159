"""Agents whose state is kept: turns that are answered once they are committed, starts, journals, memory."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import Agent, ChildSpec, action, invoke_all, open_node
from tests.benchmarks.ours import resident

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node


class Account(Agent, durable=True):
    owner: str
    balance: int = 0

    @action
    def pay_in(self, amount: int) -> int:
        self.balance += amount
        return self.balance


class SyncedAccount(Agent, durable=True, durability="power"):
    owner: str
    balance: int = 0

    @action
    def pay_in(self, amount: int) -> int:
        self.balance += amount
        return self.balance


@attrs.frozen
class Paid:
    amount: int


class Ledger(Agent, durable="journal", snapshot_every=1 << 30):
    balance: int = 0

    @action
    def pay_in(self, amount: int) -> None:
        for _ in range(amount):
            self.record(Paid(1))

    def apply(self, fact: Paid) -> None:
        self.balance += fact.amount

    @action
    def total(self) -> int:
        return self.balance


def on_store(program: Callable[..., Awaitable[float]], *args: Any) -> Callable[[int], float]:
    """Run a program in a new folder, for the store of its node."""

    def measured(n: int) -> float:
        with TemporaryDirectory() as folder:
            return trio.run(program, *args, f"sqlite:{Path(folder, 'node.db')}", n)

    return measured


async def started(node: Node, kind: Any, n: int, *, shared: bool = False) -> list[Any]:
    """So many accounts, which differ by their owner; in a shared store each has a key of its own."""
    return [
        await node.start_child(ChildSpec(name, Named(kind, name), key=name if shared else None))
        for name in (f"account-{number}" for number in range(n))
    ]


@attrs.frozen
class Named:
    """Factory of an account: less memory than a partial."""

    kind: Any
    owner: str

    def __call__(self) -> Any:
        return self.kind(owner=self.owner)


async def alone(kind: Any, store: str, n: int) -> float:
    """Turns a second of one agent, asked again once it has answered: each has a commit of its own."""
    async with open_node(store=store) as node:
        (ref,) = await started(node, kind, 1, shared=store.startswith("redis"))
        began = clock()
        for number in range(n):
            assert await ref.invoke(kind.pay_in, 1) == number + 1
        return n / (clock() - began)


async def together(kind: Any, agents: int, store: str, n: int) -> float:
    """Turns a second of many agents, all asked at once, again and again, by one task."""
    async with open_node(store=store) as node:
        refs = await started(node, kind, min(agents, n), shared=store.startswith("redis"))
        began = clock()
        for number in range(n // len(refs)):
            found = await invoke_all(refs, kind.pay_in, 1)
            assert found[-1] == number + 1
        return n // len(refs) * len(refs) / (clock() - began)


async def apart(kind: Any, agents: int, store: str, n: int) -> float:
    """Turns a second of many agents, each asked by a task of its own."""
    async with open_node(store=store) as node:
        refs = await started(node, kind, min(agents, n))

        async def ask(ref: Any) -> None:
            for number in range(n // len(refs)):
                assert await ref.invoke(kind.pay_in, 1) == number + 1

        began = clock()
        async with trio.open_nursery() as nursery:
            for ref in refs:
                nursery.start_soon(ask, ref)
        return n // len(refs) * len(refs) / (clock() - began)


async def start_stored(store: str, n: int) -> float:
    """Starts a second of agents that each have a state in the store, by a supervisor that starts them all."""
    spec = ChildSpec("account", Named(Account, "somebody"))
    async with open_node(store=store) as node:
        refs = await node.root.start_many(spec, n)
        await invoke_all(refs, Account.pay_in, 5)
    async with open_node(store=store) as node:
        began = clock()
        refs = await node.root.start_many(spec, n)
        seconds = clock() - began
        assert await invoke_all(refs[-3:], Account.pay_in, 1) == [6] * len(refs[-3:])
    return n / seconds


async def start_one_by_one(store: str, n: int) -> float:
    """The same, where each is asked for when the one before it runs."""
    async with open_node(store=store) as node:
        refs = await started(node, Account, n)
        await invoke_all(refs, Account.pay_in, 5)
    async with open_node(store=store) as node:
        began = clock()
        refs = await started(node, Account, n)
        seconds = clock() - began
        assert await invoke_all(refs[-3:], Account.pay_in, 1) == [6] * len(refs[-3:])
    return n / seconds


async def replay(store: str, n: int) -> float:
    """Facts a second that are read and applied at the start of an agent."""
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("ledger", Ledger))
        for _ in range(n // min(n, 1_000)):
            await ref.invoke(Ledger.pay_in, min(n, 1_000))
    async with open_node(store=store) as node:
        began = clock()
        ref = await node.start_child(ChildSpec("ledger", Ledger))
        seconds = clock() - began
        assert await ref.invoke(Ledger.total) == n // min(n, 1_000) * min(n, 1_000)
    return n / seconds


async def memory(store: str, n: int) -> float:
    """Bytes per idle agent that is kept, of one spec."""
    async with open_node(store=store) as node:
        gc.collect()
        before = resident()
        refs = await node.root.start_many(ChildSpec("account", Named(Account, "somebody")), n)
        await invoke_all(refs, Account.pay_in, 5)
        gc.collect()
        return (resident() - before) / n
