"""What others check of our descriptions: node-wot before it uses one, the TD playground whenever asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from agents.booking import Room
from agents.echo import Echo
from agents.voting import Acceptor
from agents.weather import WeatherAgent
from lmos_actors import open_node
from tests.wire_conformance.agents import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.web.foreign import Client

PATIENT = {"defaults": "warning", "jsonld": None}
"""What the validator says of members left to their defaults, and of what needs the network."""


async def documents(base: str) -> list[tuple[str, dict[str, Any]]]:
    """Give every description that a node serves, with where it is."""
    async with httpx2.AsyncClient(base_url=base) as client:
        array = (await client.get("/", headers={"Accept": "application/json"})).json()
        node = (await client.get("/.well-known/wot")).json()
    return [*((each["id"], each) for each in array), (f"{base}/.well-known/wot", node)]


def worse(report: dict[str, Any]) -> Iterator[str]:
    """What the validator found besides."""
    for name, found in report.items():
        if found != PATIENT.get(name, "passed"):
            yield f"{name}: {found}"


async def test_node_wot_and_the_playground_take_every_description(node_wot: Client) -> None:
    async with open_node(tree("subject"), listen="ws://127.0.0.1:0") as node:
        for cls in (Acceptor, Echo, Room, WeatherAgent):
            await node.start(cls)
        for url, td in await documents(node.urls[0].replace("ws:", "http:")):
            assert await node_wot.ask("consume", url=url) == td
            told = await node_wot.ask("validate", td=td)
            assert list(worse(told["report"])) == [], url
