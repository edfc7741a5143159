"""Wrong uses: every line marked must be an error in both checkers, and no other line."""

from __future__ import annotations

from collections.abc import AsyncIterator

from lmos_actors import Agent, Event, MailboxOptions, Node, Progress, Property, Ref, action, event, prop


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()

    @action
    async def forecast(self, progress: Progress[float], city: str) -> str:
        progress.report("half")  # E
        self.asked.emit(7)  # E
        self.units = 7  # E
        return city

    @action
    def echo(self, number: int) -> int:
        return number

    @action
    async def count(self, to: int) -> AsyncIterator[int]:
        yield to


class Other(Agent):
    @action
    def other(self) -> None: ...


async def wrong(node: Node, weather: Ref[Weather], other: Ref[Other]) -> None:
    await weather.invoke(Weather.echo, "one")  # E
    await weather.invoke(Weather.echo)  # E
    await weather.invoke(Weather.echo, nummer=1)  # E
    await weather.invoke(Weather.units)  # E
    await weather.invoke(Weather.count, 1)  # E
    await weather.invoke(Other.other)  # E
    await other.invoke(Weather.echo, 1)  # E
    await weather.write(Weather.units, 7)  # E
    await weather.read(Weather.echo)  # E
    weather.stream(Weather.echo, 1)  # E
    weather.subscribe(Weather.units)  # E
    weather.observe(Weather.asked)  # E
    await node.start(Weather, unit="kelvin")  # E
    await node.start(Weather, asked="x")  # E
    Weather("celsius")  # E
    MailboxOptions(64, "block")  # E
    narrow: Ref[Other] = weather  # E
    await narrow.ready()
