"""Portals and the outside world: typed as refs are."""

from __future__ import annotations

import math
from typing import assert_type

from lmos_actors import (
    Agent,
    Event,
    Node,
    Portal,
    Progress,
    Property,
    Ref,
    action,
    event,
    open_node_in_thread,
    prop,
)


def blocking(city: str, days: int) -> list[str]:
    return [city] * days


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[int] = event()

    @action
    async def forecast(self, progress: Progress[float], city: str) -> list[str]:
        found = await self.to_thread(blocking, city, 3, abandon=True)
        assert_type(found, list[str])
        assert_type(await self.to_process(math.factorial, 3), int)
        return found

    @action
    def echo(self, number: int) -> int:
        return number


def from_a_thread(portal: Portal, weather: Ref[Weather]) -> None:
    assert_type(portal.invoke(weather, Weather.forecast, "Bonn"), list[str])
    assert_type(portal.invoke(weather, Weather.echo, number=1), int)
    assert_type(portal.read(weather, Weather.units), str)
    assert_type(portal.start(Weather, units="kelvin"), Ref[Weather])
    assert_type(portal.find(Weather), Ref[Weather])
    assert_type(portal.run(weather.read, Weather.units), str)
    portal.tell(weather, Weather.echo, 1)
    portal.write(weather, Weather.units, "kelvin")
    with (
        portal.subscribe(weather, Weather.asked, size=3) as asked,
        portal.observe(weather, Weather.units) as units,
    ):
        for number in asked:
            assert_type(number, int)
        assert_type(next(units), str)


async def from_asyncio(portal: Portal, weather: Ref[Weather]) -> None:
    aio = portal.aio
    assert_type(await aio.invoke(weather, Weather.forecast, "Bonn"), list[str])
    assert_type(await aio.read(weather, Weather.units), str)
    assert_type(await aio.start(Weather, units="kelvin"), Ref[Weather])
    assert_type(await aio.run(weather.read, Weather.units), str)
    await aio.tell(weather, Weather.echo, 1)
    await aio.write(weather, Weather.units, "kelvin")
    async with aio.subscribe(weather, Weather.asked) as asked, aio.observe(weather, Weather.units) as units:
        async for number in asked:
            assert_type(number, int)
        assert_type(await anext(units), str)


def of_a_node(node: Node) -> Portal:
    with open_node_in_thread() as portal:
        assert_type(portal, Portal)
    return node.portal()
