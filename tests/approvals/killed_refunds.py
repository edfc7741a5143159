"""The program that `test_killed.py` kills: agents that ask a person, and then pay outside of the process.

Three agents pay in the three ways that the guide names. What the world sees is written to files at once:
`outside` has a line for each payment, `paid-ORDER` is there for one that has a key, and `log` has all else.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio

from lmos_actors import Agent, ChildSpec, Node, action, ephemeral, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.persistence import Put
from tests.lives import FatalStore, Outside

if TYPE_CHECKING:
    from lmos_actors import Ref
    from lmos_actors.persistence import Write


class World(Outside):
    """What is outside of the process."""

    paid: str = ""
    """The order that was paid last in this life."""

    def was_paid(self, order: str) -> bool:
        """Look, as a person would who has a list of what has left the account."""
        return order in self.lines("outside")

    def pay(self, order: str) -> None:
        self.reach("paying")
        self.append("outside", order, sync=True)
        self.reach("paid")
        self.paid = order

    def pay_by_key(self, order: str) -> None:
        """Pay at a bank that knows keys: a second payment of a key is none."""
        self.log("attempt", order)
        self.reach("paying")
        with suppress(FileExistsError):
            (self.folder / f"paid-{order}").touch(exist_ok=False)
        self.reach("paid")
        self.paid = order


class Plain(Agent, durable=True):
    """Pays, and then keeps that it has."""

    world: World = ephemeral()
    paid: list[str] = attrs.field(factory=list[str])

    @action(snapshot_safe=True, concurrency=99)
    async def refund(self, order: str) -> str:
        self.world.log("run", order)
        if not await self.approve(f"Refund {order}", key=order):
            return "refused"
        await self.to_thread(self.world.pay, order)
        self.paid.append(order)
        return "paid"


class Keyed(Agent, durable=True):
    """Pays by a key that the other side knows again."""

    world: World = ephemeral()
    paid: list[str] = attrs.field(factory=list[str])

    @action(snapshot_safe=True, concurrency=99)
    async def refund(self, order: str) -> str:
        self.world.log("run", order)
        if not await self.approve(f"Refund {order}", key=order):
            return "refused"
        await self.to_thread(self.world.pay_by_key, order)
        self.paid.append(order)
        return "paid"


@attrs.frozen
class Begun:
    """A payment is about to be made."""

    order: str


@attrs.frozen
class Paid:
    """A payment was made."""

    order: str


class Careful(Agent, durable="journal", snapshot_every=7):
    """Keeps that it is about to pay, and asks a person what became of it if it was killed then."""

    world: World = ephemeral()
    begun: dict[str, int] = attrs.field(factory=dict[str, int])
    paid: list[str] = attrs.field(factory=list[str])

    def apply(self, fact: Begun | Paid) -> None:
        if isinstance(fact, Begun):
            self.begun[fact.order] = self.begun.get(fact.order, 0) + 1
        else:
            self.paid.append(fact.order)

    @action(concurrency=99)
    async def refund(self, order: str) -> str:
        self.world.log("run", order)
        if not await self.approve(f"Refund {order}", key=order):
            return "refused"
        attempt = self.begun.get(order, 0)
        if not attempt or not await self.approve(f"Was {order} paid?", key=f"{order}:paid?{attempt}"):
            self.record(Begun(order))
            await self.to_thread(self.world.pay, order)
        self.record(Paid(order))
        return "paid"


WAYS: dict[str, Any] = {"plain": Plain, "keyed": Keyed, "careful": Careful}


def name_of(write: Write, world: World, order: str) -> str:
    """Return what is written, if a life may end there: of the last order alone."""
    if not isinstance(write, Put):
        return ""
    if write.space == "approvals":
        found: dict[str, str] = msgspec.json.decode(write.value)
        return f"{found['state']} question" if found["key"] == order else ""
    if order.encode() not in write.value:
        return ""
    return "payment" if world.paid == order else "mark"


async def decide(node: Node, world: World) -> None:
    """Decide what the agents ask, as a person who looks at the list."""
    approvals: Ref[Approvals] = node.find(Approvals)
    await approvals.ready()
    async with approvals.observe(Approvals.waiting) as numbers:
        async for _ in numbers:
            for each in await approvals.invoke(Approvals.entries):
                if each.state != "waiting":
                    continue  # its agent has not started yet
                order, _, about = each.key.partition(":")
                world.log("shown", each.key, each.id)
                world.reach("shown")
                verb = Approvals.accept if not about or world.was_paid(order) else Approvals.refuse
                await approvals.invoke(verb, each.id)
                world.log("decided", each.key, each.id)


async def main(folder: str, way: str, orders: list[str], end: str, seconds: float = 0.0) -> None:
    """Pay orders, all of which may have begun in an earlier life.

    In one way they are paid one after the other, and the life ends at a point of the last one. In all ways,
    for "", they are paid at once, and the life ends after so many seconds. Else it writes down what is kept.
    """
    world = World(Path(folder))
    if seconds:
        world.end_after(seconds)
    store = FatalStore(world, partial(name_of, world=world, order=orders[-1]))
    async with open_node(store=store, approvals=True) as node, trio.open_nursery() as nursery:
        nursery.start_soon(decide, node, world)
        async with trio.open_nursery() as paying:
            for each in [way] if way else WAYS:
                agent = await node.start_child(ChildSpec(each, partial(WAYS[each], world=world)))
                for order in orders:
                    if way:
                        world.end_at(end if order == orders[-1] else "")
                        await pay(agent, way, order, world)
                    else:
                        paying.start_soon(pay, agent, each, f"{each}-{order}", world)
        kept = await node.find(Approvals).invoke(Approvals.entries, "all", 10_000)
        (world.folder / "kept.json").write_bytes(msgspec.json.encode(kept))
        nursery.cancel_scope.cancel()


async def pay(agent: Any, way: str, order: str, world: World) -> None:
    answer = await agent.retrying(key=order).invoke(WAYS[way].refund, order)
    world.reach("answered")
    world.log("answer", order, answer)
