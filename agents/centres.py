"""A shop with a site in each of two data centres: each takes orders by itself, and both know all of them.

A site answers its customers at once. What is new it sends to the other site in batches, again and again until
that has confirmed it: what it has heard nothing of may have come there or not, so the other one leaves out
what it knows. A slow line between the centres, or none, delays no customer, and no order is lost or counted
twice.
"""

from __future__ import annotations

import attrs
import trio

from lmos_actors import Agent, AgentError, Property, Ref, action, prop

BATCH = 50
"""Orders that are sent at once."""


class Site(Agent):
    """The shop in one data centre. `patience` and `pace` are in seconds."""

    neighbours: tuple[Ref[Site], ...] = ()
    pace: float = 0.25
    patience: float = 0.8
    known: Property[int] = prop(default=0, read_only=True, doc="Orders that it knows, of both sites.")
    waiting: Property[int] = prop(default=0, read_only=True, doc="Orders that the other site may not know.")
    orders: set[str] = attrs.field(factory=set[str])
    outbox: list[str] = attrs.field(factory=list[str])

    def started(self) -> None:
        self.nursery.start_soon(self._send_again_and_again)

    @action
    def order(self, number: str) -> None:
        """Take an order of a customer."""
        self.orders.add(number)
        self.outbox.append(number)
        self.known += 1
        self.waiting = len(self.outbox)

    @action
    def take(self, numbers: tuple[str, ...]) -> None:
        """Take orders of the other site."""
        new = [number for number in numbers if number not in self.orders]
        self.orders.update(new)
        self.known += len(new)

    @action
    def confirmed(self, count: int) -> None:
        """The other site has the oldest orders of the outbox."""
        del self.outbox[:count]
        self.waiting = len(self.outbox)

    async def _send_again_and_again(self) -> None:
        other = self.neighbours[0].within(self.patience)
        while True:
            await trio.sleep(self.pace)
            batch = tuple(self.outbox[:BATCH])
            if not batch:
                continue
            try:
                await other.invoke(Site.take, batch)
            except AgentError:  # it may have come there or not
                continue
            await self.ref.invoke(Site.confirmed, len(batch))


class Customer(Agent):
    """Orders `orders` times at the site that it is at, and notes how long the slowest answer took."""

    sites: tuple[Ref[Site], ...]
    at: int
    orders: int = 100
    pause: float = 0.3
    placed: Property[int] = prop(default=0, read_only=True)
    slowest: Property[float] = prop(default=0.0, read_only=True)

    def started(self) -> None:
        self.nursery.start_soon(self._shop)

    @action
    def served(self, seconds: float) -> None:
        """An order has been taken, after so many seconds."""
        self.placed += 1
        self.slowest = max(self.slowest, seconds)

    async def _shop(self) -> None:
        for number in range(self.orders):
            await trio.sleep(2 * self.pause * self.random.random())
            began = trio.current_time()
            await self.sites[self.at].invoke(Site.order, f"{self.path}-{number}")
            await self.ref.invoke(Customer.served, round(trio.current_time() - began, 6))
