"""What cannot be right about references between the children of a tree."""

from __future__ import annotations

from functools import partial

from lmos_actors import Agent, ChildSpec, Ref, action, sibling


class Weather(Agent):
    @action
    def forecast(self, city: str) -> str:
        return city


class Hotel(Agent):
    rooms: int = 0


class Concierge(Agent):
    weather: Ref[Weather]
    name: str = ""


ChildSpec("a", partial(Concierge, weather=sibling("weather", Hotel)))  # E
ChildSpec("b", partial(Concierge, name=sibling("weather"), weather=sibling("weather")))  # E
ChildSpec("c", partial(Concierge, weather=sibling(Weather)))  # E
ref: Ref[Weather] = sibling("hotel", Hotel)  # E
