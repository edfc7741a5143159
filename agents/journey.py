"""A travel desk that thinks: six agents, among them a guide with a language model and a pool of clerks.

The guide talks with travellers. Its tools are the weather agent, the board, and what it does itself on behalf
of the traveller who is there: for whom a trip is booked is not up to the model. Clerks announce what they
have booked on a topic, which the board follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence  # noqa: TC003 -- types of an agent are read
from functools import partial
from typing import Final

import attrs
from msgspec import Struct

from agents.travel import Seller
from agents.weather import WeatherAgent
from lmos_actors import (
    Agent,
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
from lmos_actors.facades import ChatTurn  # noqa: TC001 -- likewise
from lmos_actors.llm import OpenAIModel
from lmos_actors.thinking import Budget, HandOver, ThinkingAgent, ToolLimits, ToolSource

TRIPS: Final = "trips"
"""The topic on which clerks announce what they have booked."""


class Journey(Struct, frozen=True):
    """A trip that was booked."""

    traveller: str
    town: str
    price: int


class Clerk(Agent):
    """Books trips. A traveller always has the same clerk, whose third trip is a tenth cheaper."""

    seller: Ref[Seller]
    asked: Event[str] = event(doc="The seller is asked for a trip to a town.")
    booked: dict[str, int] = attrs.field(factory=dict[str, int])

    @action(concurrency=4)
    async def book(self, traveller: str, town: str) -> Journey:
        """Book a trip for a traveller."""
        self.asked.emit(town)
        price = await self.seller.invoke(Seller.sell, town)
        self.booked[traveller] = self.booked.get(traveller, 0) + 1
        if self.booked[traveller] % 3 == 0:
            price -= price // 10
        journey = Journey(traveller, town, price)
        self.topic(TRIPS, Journey).publish(journey)
        return journey


class Board(Agent):
    """Shows what was booked."""

    journeys: tuple[Journey, ...] = ()
    count: Property[int] = prop(default=0, read_only=True)

    def started(self) -> None:
        self.follow(self.topic(TRIPS, Journey), self.on_journey)

    def on_journey(self, journey: Journey) -> None:
        self.journeys += (journey,)
        self.count = len(self.journeys)

    @action(safe=True)
    def popular_towns(self) -> list[str]:
        """Return the towns that most travel to, the most popular first."""
        return [town for town, _ in Counter(each.town for each in self.journeys).most_common(3)]

    @action(safe=True)
    def journeys_of(self, traveller: str) -> list[Journey]:
        """Return what was booked for a traveller."""
        return [each for each in self.journeys if each.traveller == traveller]


class Guide(ThinkingAgent):
    """You help people to travel.

    Ask for the weather in each town that comes into question before you advise. Book when the traveller has
    said yes, and say the price. If it is not known what became of a booking, look at my_journeys: do not
    book again what is there.
    """

    clerks: Ref[Clerk]
    board: Ref[Board]
    budget = Budget(tokens=30_000, calls=8, tools=12, seconds=60)
    limits = ToolLimits(seconds=10)

    def tools_for(self, turn: ChatTurn) -> Sequence[ToolSource | HandOver]:
        """Return the tools, and what the guide does for the traveller who is there.

        That is whom the access list of the node names. Where callers have no names it is the session.
        """
        traveller = turn.principal or turn.session

        async def book(town: str) -> Journey:
            """Book a trip to a town for the traveller."""
            return await self.clerks.invoke(Clerk.book, traveller, town)

        async def my_journeys() -> list[Journey]:
            """Return what was booked for the traveller."""
            return await self.board.invoke(Board.journeys_of, traveller)

        return (*self.tools, (self.board, Board.popular_towns), book, my_journeys)


tree = SupervisorSpec(
    "journey",
    [
        ChildSpec("model", partial(OpenAIModel, model="gpt-5-mini")),
        ChildSpec("weather", WeatherAgent),
        ChildSpec("seller", partial(Seller, prices={"Rome": 200, "Oslo": 340}, left=20)),
        Pool(partial(Clerk, seller=sibling("seller", Seller)), 3, by="key", key="traveller", name="clerks"),
        ChildSpec("board", Board),
        ChildSpec(
            "guide",
            partial(
                Guide,
                model=sibling("model"),
                clerks=sibling("clerks", Clerk),
                board=sibling("board", Board),
                tools=((sibling("weather", WeatherAgent), WeatherAgent.get_weather),),
            ),
        ),
    ],
)
