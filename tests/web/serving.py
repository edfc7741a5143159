"""The weather agent as it is served to clients of others."""

from __future__ import annotations

from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from agents.weather import WeatherAgent
from lmos_actors import open_node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from lmos_actors import Ref

QUESTION = {"question": "What is it like in Berlin?", "interactionMode": "text"}
ANSWER = "It is windy in Berlin, 53 degrees fahrenheit."
MODEL = {"modelName": "none", "temperature": 0.0, "maxTokens": 256}


@asynccontextmanager
async def weather(**how: Any) -> AsyncGenerator[tuple[Ref[WeatherAgent], str]]:
    """Serve the weather agent; gives it, and where its description is."""
    async with open_node(listen="ws://127.0.0.1:0", **how) as node:
        yield await node.start(WeatherAgent), f"{node.urls[0].replace('ws:', 'http:')}/agents/weather-agent"


@asynccontextmanager
async def going_on(act: Callable[[], Awaitable[Any]]) -> AsyncGenerator[None]:
    """Do something again and again: who polls misses what happens between two polls."""

    async def again() -> None:
        while True:
            await act()
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        yield
        nursery.cancel_scope.cancel()


def units() -> Iterator[str]:
    """Yield units by chance: of two that take turns, a client that polls may hear the same each time."""
    chance = Random(5)
    while True:
        yield chance.choice(("fahrenheit", "celsius"))


def subprotocol_at(described: dict[str, Any], subprotocol: str) -> int:
    """The index of the form of an affordance for this way of listening."""
    return [each.get("subprotocol") for each in described["forms"]].index(subprotocol)
