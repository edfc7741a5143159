"""Shops that have a bank charge their customers. Over a bad line some are charged twice."""

from __future__ import annotations

import attrs
import trio

from lmos_actors import Agent, AgentUnavailable, OutcomeUnknown, Property, Ref, action, prop


class Bank(Agent):
    """Charges orders, as often as it is asked to."""

    charges: dict[str, int] = attrs.field(factory=dict[str, int])
    most: Property[int] = prop(default=0, read_only=True, doc="Of all orders, the most charges of one.")

    @action
    def charge(self, order: str) -> None:
        """Charge the customer of an order."""
        self.charges[order] = self.charges.get(order, 0) + 1
        self.most = max(self.most, self.charges[order])


class RightBank(Bank):
    """A bank that knows which orders it has charged."""

    @action
    def charge(self, order: str) -> None:
        """Charge the customer of an order, unless that has been done."""
        self.charges[order] = self.most = 1


class Shop(Agent):
    """Sells something every two seconds, about.

    Planted: it takes a charge of which it does not know whether it was made for one that was not.
    """

    bank: Ref[Bank]
    sold: Property[int] = prop(default=0, read_only=True)

    def started(self) -> None:
        self.nursery.start_soon(self._sell)

    async def _sell(self) -> None:
        while True:
            await trio.sleep(1 + 2 * self.random.random())
            await self._charge(f"{self.path}-{self.sold}")
            self.sold += 1

    async def _charge(self, order: str) -> None:
        while True:
            try:
                return await self.bank.invoke(Bank.charge, order)
            except (AgentUnavailable, OutcomeUnknown):  # the line is bad
                await trio.sleep(0.5)
