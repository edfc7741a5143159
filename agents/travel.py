"""A travel desk: eight agents in one tree, which is served, tested and told stories about as it stands here.

The concierge asks the weather agent, and hands bookings to a pool of clerks: to the same clerk for the same
customer. A clerk asks two sellers, and enters what it booked in the ledger, which it finds by its class.
"""

from __future__ import annotations

from functools import partial

import attrs
import trio
from msgspec import Struct

from agents.weather import WeatherAgent
from lmos_actors import (
    ActionFailed,
    Agent,
    AgentError,
    ChildSpec,
    Event,
    Pool,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    prop,
    sibling,
)


class Trip(Struct, frozen=True):
    """What a customer gets."""

    customer: str
    town: str
    price: int
    number: int
    weather: str = "unknown"


class Seller(Agent):
    """Sells one thing in several towns, as long as there is some."""

    prices: dict[str, int]
    left: Property[int] = prop(default=10, read_only=True)

    @action
    async def sell(self, town: str) -> int:
        """Sell one, and say what it costs; refused where there is none."""
        await trio.sleep(0.05)
        if town not in self.prices or self.left == 0:
            raise ActionFailed(f"nothing to be had in {town}")
        self.left -= 1
        return self.prices[town]


class Ledger(Agent):
    """Numbers the bookings."""

    bookings: Property[int] = prop(default=0, read_only=True)
    booked: Event[str] = event(doc="Who has booked a trip.")

    @action
    def enter(self, customer: str) -> int:
        """Enter a booking, and give its number."""
        self.bookings += 1
        self.booked.emit(customer)
        return self.bookings


class Clerk(Agent):
    """Books a flight and a room. A customer always has the same clerk, who knows what came before."""

    flights: Ref[Seller]
    hotels: Ref[Seller]
    trips: dict[str, int] = attrs.field(factory=dict[str, int])

    @action(concurrency=4)
    async def book(self, customer: str, town: str) -> Trip:
        """Book a trip; the third one of a customer is a tenth cheaper."""
        price = await self.flights.invoke(Seller.sell, town) + await self.hotels.invoke(Seller.sell, town)
        number = await self.find(Ledger).invoke(Ledger.enter, customer)
        self.trips[customer] = self.trips.get(customer, 0) + 1
        if self.trips[customer] == 3:
            price -= price // 10
        return Trip(customer, town, price, number)


class Concierge(Agent):
    """Whom customers speak to."""

    weather: Ref[WeatherAgent]
    clerks: Ref[Clerk]

    @action(concurrency=8)
    async def plan_trip(self, customer: str, town: str) -> Trip:
        """Book a trip, and say what the weather is like there, if anybody knows."""
        trip = await self.clerks.invoke(Clerk.book, customer, town)
        question = f"What is the weather in {town}?"
        try:
            weather = await self.weather.within(1.0).invoke(WeatherAgent.get_weather, question, "text")
        except AgentError:
            return trip
        return Trip(customer, town, trip.price, trip.number, weather)


tree = SupervisorSpec(
    "travel",
    [
        ChildSpec(
            "concierge",
            partial(Concierge, weather=sibling("weather"), clerks=sibling("back-office/clerks", Clerk)),
        ),
        ChildSpec("weather", WeatherAgent),
        ChildSpec("flights", partial(Seller, prices={"Rome": 120, "Oslo": 210})),
        ChildSpec("hotels", partial(Seller, prices={"Rome": 80, "Oslo": 130})),
        SupervisorSpec(
            "back-office",
            [
                ChildSpec("ledger", Ledger),
                Pool(
                    partial(
                        Clerk, flights=sibling("../flights", Seller), hotels=sibling("../hotels", Seller)
                    ),
                    3,
                    by="key",
                    key="customer",
                    name="clerks",
                ),
            ],
            strategy="rest_for_one",
        ),
    ],
)
