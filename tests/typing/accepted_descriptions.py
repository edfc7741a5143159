"""What is said about a class for its description, and what `describe` gives."""

from __future__ import annotations

from typing import Annotated, assert_type

from msgspec import Meta

from lmos_actors import (
    About,
    Agent,
    Description,
    ModelInfo,
    Property,
    Ref,
    Unit,
    Vendor,
    action,
    describe,
    prop,
)
from lmos_actors.protocol.td import Link

ABOUT = About(
    vendor=Vendor(name="Acme", url="https://acme.example"),
    model=ModelInfo(name="small-1"),
    version="1.0.0",
    links=[Link(href="https://acme.example/manual")],
    more={"lmos:compliance": {"standard": "A"}},
)


class Sensor(Agent, rename="camel", about=ABOUT):
    warmth: Property[Annotated[float, Meta(ge=-273.15), Unit("celsius")]] = prop(default=20.0)

    @action(safe=True, synchronous=False)
    async def mean(self, hours: int = 1) -> Annotated[float, Unit("celsius")]:
        return 0.0


class Converter(Agent, tool=True, about=About(version="2.0.0")):
    @action(safe=True, idempotent=True, synchronous=True)
    def convert(self, degrees: float) -> float:
        return degrees


assert_type(describe(Sensor), Description)
assert_type(describe(Converter, id="urn:uuid:0").is_tool, bool)


async def use(sensor: Ref[Sensor]) -> None:
    assert_type(await sensor.read(Sensor.warmth), float)
    assert_type(await sensor.invoke(Sensor.mean, 2), float)
