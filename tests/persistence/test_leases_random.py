"""Random programs of nodes that share a store: of the agent of a key one epoch at a time counts.

Three nodes have an agent with the same key. They are paused in the middle of commits, cut off from the store,
killed, and asked to stop the agent; the clocks of their agents go at rates of their own, far outside of what
leases allow for. So two of them often believe to hold the lease at once. Callers ask any of them, and repeat
by key what failed. What is checked:

- grants: each epoch is one more than the last, and each commit of the agent is of the newest;
- the counter: each request has counted once, whatever became of its attempts, and no two have one number;
- readings: none is older than what was answered before it was asked for;
- events: each number is that of one request.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Event,
    SupervisorSpec,
    action,
    event,
    open_node,
    simulate,
)
from lmos_actors.actors import end_skew, skew_clock
from lmos_actors.errors import LmosActorsError, NotFound, StartFailed, WrongState
from lmos_actors.persistence import Check, Put, SimulatedStore
from tests.matrix import few_or_all
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors import Node
    from lmos_actors.persistence import Batch, Conflict, Durability

SEEDS = few_or_all(range(1), range(100))
NODES = 3
CALLERS = 6
SECONDS = 300.0
RATES = (0.05, 0.3, 0.7, 1.0, 1.3, 4.0)


class Counter(Agent, durable=True):
    n: int = 0
    counted: dict[str, int] = attrs.field(factory=dict)
    happened: Event[tuple[int, str]] = event()

    @action
    def add(self, what: str) -> int:
        return self._add(what)

    @action(snapshot_safe=True, concurrency=3)
    async def add_slowly(self, what: str) -> int:
        await trio.sleep(0.5)
        return self._add(what)

    def _add(self, what: str) -> int:
        self.n += 1
        self.counted = {**self.counted, what: self.counted.get(what, 0) + 1}
        self.happened.emit((self.n, what))
        return self.n

    @action
    def look(self) -> int:
        return self.n


class Watched(SimulatedStore):
    """A way to the disk that looks at what is written there."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.disk)
        self._program = program

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        program, before = self._program, self._program.epoch
        conflicts = super().commit(batches, durability)
        program.refused += sum(each is not None for each in conflicts)
        for batch, conflict in zip(batches, conflicts, strict=True):
            if conflict is None:
                self._look_at(batch)
        assert program.epoch >= before
        return conflicts

    def _look_at(self, batch: Batch) -> None:
        program = self._program
        checks = [write for write in batch if isinstance(write, Check)]
        for write in batch:
            if isinstance(write, Put) and write.space == "leases":
                epoch = _epoch(write.value)
                assert epoch == program.epoch + 1, "each grant has the next number"
                program.epoch = epoch
            elif isinstance(write, Put) and write.space == "state":
                assert [_epoch(check.expect) for check in checks] == [program.epoch]


def _epoch(grant: Any) -> int:
    found: int = msgspec.json.decode(grant)["epoch"]
    return found


class Program:
    """One random program."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = simulated_disk(seed, self.latency, shared=True)
        self.epoch = 0
        self.refused = 0
        self.nodes: dict[int, Node] = {}
        self.stores: dict[int, SimulatedStore] = {}
        self.answers: dict[str, int] = {}
        self.events: dict[int, str] = {}
        self.most = 0
        self.kills = 0

    def latency(self) -> float:
        """Return the time of a commit, now and then that of a node that is paused in the middle of it."""
        return self.chance.choice((8.0, 15.0, 40.0)) if self.chance.random() < 0.01 else 0.005

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(NODES):
                nursery.start_soon(self.keep_node, number)
            await trio.sleep(0.01)
            async with trio.open_nursery() as callers:
                for number in range(CALLERS):
                    callers.start_soon(self.call, number)
                for number in range(NODES):
                    callers.start_soon(self.disturb, number)
            nursery.cancel_scope.cancel("the callers are done")
        await self.look_at_the_end()

    # ---- nodes

    async def keep_node(self, number: int) -> None:
        while True:
            tree = SupervisorSpec("root", max_restarts=1_000_000)
            self.stores[number] = store = Watched(self)
            async with open_node(tree, store=store) as node:
                self.nodes[number] = node
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.keep_agent, node)
                    while store in self.disk.users:  # noqa: ASYNC110 -- nothing tells
                        await trio.sleep(0.5)
                    nursery.cancel_scope.cancel("it was killed")
                node.force_stop()
            await trio.sleep(self.chance.uniform(0.1, 20))

    async def keep_agent(self, node: Node) -> None:
        """Have the agent started, as a permanent child is where its start does not fail."""
        await trio.sleep(self.chance.uniform(0, 20))
        while True:
            with suppress(StartFailed, WrongState, NotFound):
                counter = await node.start_child(ChildSpec("counter", Counter, key="42"))
                skew_clock(counter, rate=self.chance.choice(RATES))
                await self.listen(counter)
            await trio.sleep(1)

    async def listen(self, counter: Any) -> None:
        while True:
            with suppress(AgentUnavailable, AgentDied):
                async with counter.subscribe(Counter.happened) as feed:
                    async for n, what in feed:
                        assert self.events.setdefault(n, what) == what, "an event of an older epoch"
            await trio.sleep(0.5)

    async def disturb(self, number: int) -> None:
        chance = self.chance
        while trio.current_time() < SECONDS:
            await trio.sleep(chance.uniform(5, 60))
            store, what = self.stores[number], chance.choice(("cut", "cut", "kill", "skew", "stop"))
            if what == "cut":
                store.is_cut_off = True
                await trio.sleep(chance.choice((0.5, 5.0, 12.0, 30.0)))
                store.is_cut_off = False
            elif what == "kill":
                self.kills += 1
                store.die(lands=chance.random() < 0.5)
            elif what == "skew":
                with suppress(LmosActorsError):
                    counter = self.nodes[number].find(Counter)
                    mark = skew_clock(counter, rate=chance.choice(RATES))
                    await trio.sleep(chance.uniform(1, 40))
                    end_skew(counter, mark)
            else:
                with suppress(LmosActorsError):
                    await self.nodes[number].root.terminate_child("counter")
                with suppress(LmosActorsError):
                    await self.nodes[number].root.delete_child("counter")

    # ---- callers

    async def call(self, number: int) -> None:
        chance = self.chance
        for count in range(1_000_000):
            if trio.current_time() >= SECONDS:
                return
            what, handle = f"{number}-{count}", chance.choice((Counter.add, Counter.add, Counter.add_slowly))
            while trio.current_time() < SECONDS:
                counter = self.nodes[chance.choice(sorted(self.nodes))].find(Counter)
                with suppress(AgentUnavailable, AgentDied, NotFound), trio.move_on_after(60):
                    if chance.random() < 0.3:
                        least = self.most
                        assert await counter.invoke(Counter.look) >= least, "a reading of an older epoch"
                    found = await counter.retrying(key=what).invoke(handle, what)
                    self.answers[what] = found
                    self.most = max(self.most, found)
                    break
                await trio.sleep(chance.uniform(0.1, 2))
            await trio.sleep(chance.uniform(0, 1))

    async def look_at_the_end(self) -> None:
        for store in self.stores.values():
            store.close()
        self.disk.seconds = float
        store = Watched(self)
        async with open_node(store=store) as node:
            await trio.sleep(100)
            counter = await node.start_child(ChildSpec("counter", Counter, key="42"))
            n = await counter.invoke(Counter.look)
            store_counted = msgspec.json.decode(store.get("state", ["42"])[0] or b"")["fields"]["counted"]
        assert set(store_counted.values()) == {1}
        assert len(store_counted) == n
        assert sorted(set(self.answers.values())) == sorted(self.answers.values())
        assert set(self.answers) <= set(store_counted)


def play(seed: int) -> Program:
    program = Program(seed)
    simulate(program.run, seed=seed)
    return program


@pytest.mark.parametrize("seed", SEEDS)
def test_one_epoch_counts(seed: int) -> None:
    program = play(seed)
    assert len(program.answers) > 50
    assert program.epoch > 3
