"""References between the children of a tree, as users write them."""

from __future__ import annotations

from functools import partial

from lmos_actors import Agent, ChildSpec, Pool, Ref, SupervisorSpec, action, sibling


class Weather(Agent):
    @action
    def forecast(self, city: str) -> str:
        return city


class Concierge(Agent):
    weather: Ref[Weather]
    others: tuple[Ref[Weather], ...] = ()
    second: Ref[Weather] | None = None


tree = SupervisorSpec(
    "travel",
    [
        ChildSpec("weather", Weather),
        ChildSpec("plain", partial(Concierge, weather=sibling("weather"))),
        ChildSpec(
            "typed", partial(Concierge, weather=sibling("weather", Weather), second=sibling("weather"))
        ),
        ChildSpec("several", partial(Concierge, weather=sibling("weather"), others=(sibling("weather"),))),
        Pool(partial(Concierge, weather=sibling("weather", Weather)), 2, name="pool"),
    ],
)
ref: Ref[Weather] = sibling("weather", Weather)
