"""Payments that people approve, while both nodes, of who asks and of who waits, are killed at random times.

A desk has a chat, in whose turns it has orders paid by an agent of another node, each under a key; both
nodes have stores. The invariant: there are no more acts than consents, and lives that were killed between an
act and its record. Every turn ends.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, Node, Ref, action, ephemeral, open_node, simulate
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.bindings import remote_ref
from lmos_actors.errors import ActionFailed, LmosActorsError
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.transport import MemoryNetwork
from tests.bindings.client_connections import peers_of
from tests.facades.lives import Mortal, in_memory
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS = 25
"""Of one world."""


@attrs.define
class Book:
    """What happens outside of both nodes."""

    acts: Counter[str] = attrs.field(factory=Counter[str])
    unrecorded: Counter[str] = attrs.field(factory=Counter[str])
    """Acts of lives that were killed before they were recorded."""
    acting: set[str] = attrs.field(factory=set[str])

    async def act(self, order: str) -> None:
        """Pay, which takes a while."""
        self.acts[order] += 1
        self.acting.add(order)
        await trio.sleep(0.5)


class Payments(Agent, durable=True):
    """Pays what a person approves."""

    book: Book = ephemeral()
    paid: list[str] = attrs.field(factory=list[str])

    @action(snapshot_safe=True, concurrency=99)
    async def pay(self, order: str) -> str:
        if order in self.paid:
            return "paid"
        if not await self.approve(f"Pay {order}?", key=order):
            return "refused"
        await self.book.act(order)
        self.paid.append(order)
        return "paid"


class Desk(ChatAgent):
    """Has orders paid."""

    payments: Ref[Any]
    patience: float = 0.0
    """Seconds after which it asks again, where requests have no keys; 0: they have."""
    pause: float = 1.0

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        order, asked = turn.text, self.payments.retrying(key=f"pay-{turn.text}")
        if self.patience:
            asked = self.payments.within(self.patience)
        while True:
            await self.payments.ready()
            try:
                yield await asked.invoke(Payments.pay, order)
                return
            except ActionFailed:
                raise
            except LmosActorsError:
                await trio.sleep(self.pause)


@attrs.define
class World:
    """Two nodes with stores, each of which has many lives, and people."""

    random: Random
    kills: bool
    pace: float = 1.0
    """How long what takes a second takes."""
    orders: int = ORDERS
    book: Book = attrs.field(factory=Book)
    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)
    stores: dict[str, Mortal] = attrs.field(factory=lambda: {"desk": in_memory(), "payments": in_memory()})
    nodes: dict[str, Node] = attrs.field(factory=dict[str, Node])
    lived: Counter[str] = attrs.field(factory=Counter[str])
    answers: dict[str, str] = attrs.field(factory=dict[str, str])
    kept: list[Approval] = attrs.field(factory=list[Approval])
    decided: dict[str, set[str]] = attrs.field(factory=dict[str, set[str]])
    """What people were told that they have decided, by the id of the question."""

    async def live(self, name: str) -> None:
        """Live again and again, until the last answer is there."""
        while len(self.answers) < self.orders:
            self.lived[name] += 1
            self.stores[name].is_dead = False
            options: Any = {"store": self.stores[name], "listen": f"ws://{name}", "network": self.network}
            async with open_node(**options, approvals=True) as node:
                await node.start_child(ChildSpec(name, self._agent_of(name, node), shutdown="brutal"))
                self.nodes[name] = node
                await self._until_it_ends()
                del self.nodes[name]
                if name == "payments" and len(self.answers) == self.orders:
                    self.kept = await node.find(Approvals).invoke(Approvals.entries, "all", 10_000)
                    return
                self.stores[name].is_dead = True
                node.force_stop()
            if name == "payments":
                kept = self.stores[name].at_rest(space="state")
                paid = [order for _, state in kept for order in json.loads(state)["fields"]["paid"]]
                self.book.unrecorded.update(self.book.acting.difference(paid))
                self.book.acting.clear()
            await trio.sleep(self.random.uniform(0, 10))

    def _agent_of(self, name: str, node: Node) -> Callable[[], Agent]:
        if name == "payments":
            return partial(Payments, book=self.book)
        far = remote_ref(peers_of(node), Payments, "ws://payments/ws", "http://payments/agents/payments")
        return partial(Desk, payments=far)

    async def _until_it_ends(self) -> None:
        """Wait for the kill, or the last answer."""
        until = trio.current_time() + (self.random.uniform(0.1, 90) if self.kills else 1e6)
        while trio.current_time() < until and len(self.answers) < self.orders:  # noqa: ASYNC110 -- nobody tells
            await trio.sleep(0.7)

    async def ask(self, order: str) -> None:
        """Have an order paid, in a session of its own; come back for the answer."""
        await self.sleep(0, 60)
        is_asked = False
        while order not in self.answers:
            await self.sleep(1.3, 1.3)
            with suppress(LmosActorsError, KeyError):
                desk: Ref[Any] = self.nodes["desk"].find(Desk)
                if not is_asked:
                    is_asked = True
                    async with desk.stream(Desk.chat, order, f"s-{order}", new=True) as items:
                        async for _ in items:
                            pass
                said = await desk.invoke(Desk.history, f"s-{order}", settled=True)
                is_asked = bool(said)
                for each in said:
                    if each.role == "agent" and each.failed is None:
                        self.answers[order] = each.text

    async def decide(self) -> None:
        """Look at what waits, and decide; now and then two people do, at once."""
        while len(self.answers) < self.orders:
            await self.sleep(1, 20)
            with suppress(LmosActorsError, KeyError):
                approvals = await self.approvals()
                for each in await approvals.invoke(Approvals.entries):
                    verbs = self.random.choices([Approvals.accept, Approvals.refuse], [4, 1], k=2)
                    async with trio.open_nursery() as nursery:
                        for verb in verbs[: self.random.choice([0, 1, 1, 2])]:
                            nursery.start_soon(self._decide, approvals, verb, each.id)

    async def approvals(self) -> Ref[Approvals]:
        """Return the list that people look at."""
        return self.nodes["payments"].find(Approvals)

    async def _decide(self, approvals: Ref[Approvals], verb: Any, id: str) -> None:
        with suppress(LmosActorsError):
            said: Approval = await approvals.invoke(verb, id)
            self.decided.setdefault(id, set()).add(said.state)

    async def sleep(self, least: float, most: float) -> None:
        """Sleep for a random time, at the pace of this world."""
        await trio.sleep(self.pace * self.random.uniform(least, most))

    async def run(self) -> None:
        """Have all orders paid or refused, and judge."""
        async with trio.open_nursery() as nursery:
            for name in self.stores:
                nursery.start_soon(self.live, name)
            nursery.start_soon(self.decide)
            for number in range(self.orders):
                nursery.start_soon(self.ask, f"o-{number}")
        self.judge_questions()
        consents = self.consents()
        for number in range(self.orders):
            order = f"o-{number}"
            assert self.book.acts[order] <= consents[order] + self.book.unrecorded[order], order
            assert self.book.acts[order] <= 1 + self.book.unrecorded[order], order
            assert self.answers[order] == ("paid" if self.book.acts[order] else "refused"), order
        assert sum(consents.values()) > self.orders / 2
        assert all(store.is_clean for store in self.stores.values())

    def consents(self) -> Counter[str]:
        """Return how often people have approved each order."""
        return Counter(each.key for each in self.kept if each.state == "approved")

    def judge_questions(self) -> None:
        """Each question that people were told of has one answer, that of which they were told."""
        kept = {each.id: each.state for each in self.kept}
        assert len(kept) == len(self.kept)
        assert set(kept.values()) <= {"approved", "refused"}
        assert {id: {kept[id]} for id in self.decided} == self.decided


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", few_or_all(range(1), range(20)))
def test_there_are_no_more_acts_than_consents(kills: bool, seed: int) -> None:
    world = World(Random(seed), kills)
    simulate(world.run, seed=seed)
    assert (sum(world.lived.values()) > 2) == kills
