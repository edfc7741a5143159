"""A desk that answers questions about the weather and numbers its answers: a system for several processes."""

from __future__ import annotations

from agents.weather import WeatherAgent
from lmos_actors import Agent, Property, Ref, action, prop


class TallyAgent(Agent, durable=True):
    """Counts, and forgets nothing."""

    count: Property[int] = prop(default=0, read_only=True, doc="The last number.")

    @action
    def next(self) -> int:
        """Return the next number."""
        self.count += 1
        return self.count


class DeskAgent(Agent):
    """Asks the weather agent, and numbers its answers. Both may be away for a while."""

    weather: Ref[WeatherAgent]
    tally: Ref[TallyAgent]

    @action(concurrency=16)
    async def ask(self, town: str) -> str:
        """Answer what the weather is like in a town."""
        weather, tally = self.weather.retrying(), self.tally.retrying()
        report = await weather.invoke(WeatherAgent.get_weather, f"What is the weather in {town}?", "text")
        return f"{await tally.invoke(TallyAgent.next)}. {report}"
