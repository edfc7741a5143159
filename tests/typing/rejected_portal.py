"""Wrong uses of portals and of the outside world."""

from __future__ import annotations

from lmos_actors import Agent, Event, Portal, Property, Ref, action, event, prop


def blocking(city: str) -> str:
    return city


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[int] = event()

    @action
    async def forecast(self, city: str) -> int:
        await self.to_thread(blocking, 3)  # E
        await self.to_process(blocking)  # E
        return await self.to_thread(blocking, city)  # E


class Other(Agent):
    @action
    def other(self) -> None: ...


def wrong(portal: Portal, weather: Ref[Weather], other: Ref[Other]) -> None:
    portal.invoke(weather, Weather.forecast, 3)  # E
    portal.invoke(weather, Weather.forecast)  # E
    portal.invoke(other, Weather.forecast, "Bonn")  # E
    portal.write(weather, Weather.units, 3)  # E
    portal.read(weather, Weather.asked)  # E
    number: int = portal.read(weather, Weather.units)  # E


async def wrong_asyncio(portal: Portal, weather: Ref[Weather]) -> None:
    await portal.aio.invoke(weather, Weather.forecast, 3)  # E
    number: str = await portal.aio.invoke(weather, Weather.forecast, "Bonn")  # E
