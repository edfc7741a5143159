"""A market: buyers and sellers bargain in pairs until they agree, or one of them gives up."""

from __future__ import annotations

from typing import Literal

import trio
from msgspec import UNSET, Struct, UnsetType

from lmos_actors import ActionFailed, Agent, Event, Property, Ref, action, event, prop


class Reply(Struct, frozen=True):
    """What a seller says to an offer: a deal at that price, a counter-offer, or that all is sold."""

    word: Literal["deal", "counter", "sold out"]
    price: int | UnsetType = UNSET


class Deal(Struct, frozen=True):
    """A sale: who bought from whom, and at what price in cents."""

    buyer: str
    seller: str
    price: int


class Seller(Agent):
    """Sells `stock` pieces, never below `floor`. Comes down from `asking` a little with every offer."""

    floor: int
    asking: int
    stock: int = 1
    patience: int = 10
    sold: Property[int] = prop(default=0, read_only=True)
    income: Property[int] = prop(default=0, read_only=True)
    offers: int = 0

    @action
    def offer(self, buyer: str, price: int) -> Reply:
        """Take an offer, or say what would do instead."""
        if self.sold == self.stock:
            return Reply("sold out")
        self.offers += 1
        wanted = max(self.floor, self.asking - (self.asking - self.floor) * self.offers // self.patience)
        if price < wanted:
            return Reply("counter", wanted)
        self.sold += 1
        self.income += price
        return Reply("deal", price)


class Buyer(Agent):
    """Buys one piece, never above `limit`. Goes from seller to seller, and up a little with every offer."""

    name: str
    limit: int
    sellers: tuple[Ref[Seller], ...]
    comes_at: float | None = None  # in seconds after its start; else it waits to be told to buy
    opening: float = 0.5
    step: float = 0.05
    paid: Property[int] = prop(default=0, read_only=True)
    gave_up: Property[bool] = prop(default=False, read_only=True)
    bought: Event[Deal] = event()

    def started(self) -> None:
        if self.comes_at is not None:
            self.after(self.comes_at, self.come)

    def come(self) -> None:
        self.send(self.ref, Buyer.buy)

    @action
    async def buy(self) -> int:
        """Bargain until there is a deal, and give its price; fails if nobody sells for what there is."""
        if self.paid:
            raise ActionFailed("has bought already")
        price = int(self.limit * self.opening)
        open_to = list(self.sellers)
        while open_to:
            seller = self.random.choice(open_to)
            reply = await seller.invoke(Seller.offer, self.name, price)
            if reply.word == "deal":
                return self.close(seller, price)
            if reply.word == "sold out" or (price == self.limit and self.is_beyond(reply)):
                open_to.remove(seller)
            price = min(self.limit, price + max(1, int(self.limit * self.step)))
            await trio.sleep(self.random.uniform(0.5, 1.5))  # thinks it over
        self.gave_up = True
        raise ActionFailed(f"nobody sells for {self.limit}")

    def is_beyond(self, reply: Reply) -> bool:
        return isinstance(reply.price, int) and reply.price > self.limit

    def close(self, seller: Ref[Seller], price: int) -> int:
        self.paid = price
        self.bought.emit(Deal(self.name, str(seller), price))
        return price
