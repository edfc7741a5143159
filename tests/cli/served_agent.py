"""An agent for the tests of the commands, served where they run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    Event,
    Progress,
    Property,
    action,
    current_request,
    event,
    open_node,
    prop,
)

SAID: list[str] = []


@attrs.frozen
class Place:
    lat: float
    lon: float


class Weather(Agent):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")
    level: Property[int] = prop(default=3)
    place: Property[Place] = prop(default=Place(50.7, 7.1), read_only=True)
    secret: Property[str] = prop(default="", write_only=True)
    asked: Event[str] = event()
    warned: Event[dict[str, int]] = event()
    pace: float = 1.0

    @action
    async def forecast(self, progress: Progress[float], city: str, days: int = 1) -> str:
        """Forecast tomorrow for one city."""
        SAID.append(f"asked for {city}")
        self.asked.emit(city)
        try:
            for tenth in range(1, 11):
                await trio.sleep(self.pace)
                progress.report(tenth / 10)
        except trio.Cancelled:
            SAID.append("cancelled")
            raise
        return f"{city} is sunny for {days}"

    @action
    async def hours(self, count: int) -> AsyncIterator[dict[str, int]]:
        """Give the temperature of each hour."""
        for hour in range(count):
            await trio.sleep(self.pace)
            yield {"hour": hour}

    @action
    async def stubborn(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    @action
    def left(self) -> float | None:
        request = current_request()
        ends = request.deadline if request is not None else None
        return None if ends is None else round(ends - trio.current_time())

    @action
    def warn(self, times: int) -> None:
        for n in range(times):
            self.warned.emit({"level": n})

    @action
    def refuse(self) -> None:
        raise ActionFailed({"why": "closed", "until": 7})

    @action
    def crash(self) -> None:
        raise KeyError("a bug")

    @action
    def echo(self, value: Any) -> Any:
        return value

    @action
    def speak(self, text: str, /) -> str:
        return text.upper()

    @action
    async def change(self, units: str, times: int = 1) -> None:
        for n in range(times):
            self.units = f"{units}{n or ''}"
            await trio.sleep(self.pace)


@asynccontextmanager
async def open_far(target: Any, opened: Any, background: Any = None) -> AsyncIterator[Any]:
    """Serve an agent in the same run and reach it; on virtual time the network is one in memory."""
    async with open_node(listen="ws://127.0.0.1:0") as node, trio.open_nursery() as nursery:
        weather = await node.start(Weather)
        place = node.urls[0].partition("://")[2]
        if background is not None:
            nursery.start_soon(background, weather, node)
        url = target.server.url.replace("127.0.0.1:8080", place)
        async with opened(attrs.evolve(target, server=target.server._replace(url=url))) as thing:
            yield thing
        nursery.cancel_scope.cancel()
