"""A market: buyers go from seller to seller and bargain until they agree, or give up."""

from __future__ import annotations

from typing import Literal

import trio
from msgspec import Struct

from lmos_actors import ActionFailed, Agent, Property, Ref, action, prop


class Reply(Struct, frozen=True):
    """What a seller says to an offer: a deal, a counter-offer with its price, or that all is sold."""

    word: Literal["deal", "counter", "sold out"]
    price: int = 0


class Seller(Agent):
    """Sells `stock` pieces. Comes down from `asking`, a little with every offer, never below `floor`."""

    floor: int
    asking: int
    stock: int = 1
    patience: int = 10  # offers until the floor is reached
    sold: Property[int] = prop(default=0, read_only=True)
    income: Property[int] = prop(default=0, read_only=True)
    offers: int = 0

    @action
    def offer(self, price: int) -> Reply:
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
    """Buys one piece, never above `limit`: offers half of it at first, and more every time."""

    limit: int
    sellers: tuple[Ref[Seller], ...]
    comes_at: float = 0.0  # seconds after its start
    paid: Property[int] = prop(default=0, read_only=True)
    gave_up: Property[bool] = prop(default=False, read_only=True)

    def started(self) -> None:
        self.after(self.comes_at, self.come)

    def come(self) -> None:
        self.send(self.ref, Buyer.buy)

    @action
    async def buy(self) -> int:
        """Bargain until there is a deal, and give its price; fails if nobody sells at the limit."""
        price = self.limit // 2
        left = list(self.sellers)
        while left:
            seller = self.random.choice(left)
            reply = await seller.invoke(Seller.offer, price)
            if reply.word == "deal":
                self.paid = price
                return price
            if reply.word == "sold out" or price == self.limit:
                left.remove(seller)
            price = min(self.limit, price + max(1, self.limit // 20))
            await trio.sleep(self.random.uniform(0.5, 1.5))  # thinks it over
        self.gave_up = True
        raise ActionFailed(f"nobody sells for {self.limit}")
