"""A client and a server that have different versions of one agent: what fits works, what does not is told."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import (
    Agent,
    ChildSpec,
    Event,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
    simulate,
)
from tests.wire_conformance.bench import Bench, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class One(Agent):
    """The first version."""

    units: Property[str] = prop(default="celsius")
    limit: Property[int] = prop(default=3)
    asked: Event[str] = event()

    @action
    def forecast(self, city: str) -> str:
        """Tell the weather of a city."""
        self.asked.emit(city)
        return f"sunny in {city}"

    @action
    def average(self, days: int) -> float:
        """Give a number."""
        return days / 2

    @action
    def ask(self, city: str) -> None:
        """Have the event happen."""
        self.asked.emit(city)


class Two(Agent):
    """The second: a parameter more, one of another type, a property less, values of other types."""

    limit: Property[str] = prop(default="three")
    pressure: Property[float] = prop(default=1.0)
    asked: Event[int] = event()

    @action
    def forecast(self, city: str, days: int = 1) -> str:
        """Tell the weather of a city, for several days."""
        return f"sunny in {city} for {days}"

    @action
    def average(self, days: str) -> str:
        """Give a text."""
        return f"about {days}"

    @action
    def ask(self, city: str, loud: bool) -> None:
        """Have the event happen."""
        self.asked.emit(len(city))

    @action
    def shout(self) -> None:
        """Have the event happen."""
        self.asked.emit(3)


ROWS: dict[str, tuple[type[Agent], type[Agent], Callable[[Ref[Any], Bench], Awaitable[Any]], list[Any]]] = {}


def row(title: str, here: type[Agent], there: type[Agent], expected: list[Any]) -> Callable[..., None]:
    """Put a row into the table: the client's class, the server's, and what comes of it."""

    def add(run: Callable[[Ref[Any], Bench], Awaitable[Any]]) -> None:
        assert title not in ROWS
        ROWS[title] = (here, there, run, expected)

    return add


def wrong(name: str, declared: str, found: str) -> str:
    """Say what is told of an answer of another type than the client's class declares."""
    text = f"IT answered {name!r} with what is no {declared}: Expected `{declared}`, got `{found}` - at $"
    return f"RemoteProtocolError: Wrong Type: {text} []"


@row("a parameter that the client does not know has its default", One, Two, ["sunny in Bonn for 1"])
async def _(it: Ref[One], b: Bench) -> Any:
    return [await b.said(it.invoke(One.forecast, "Bonn"))]


@row("a parameter that the server does not know is passed over", Two, One, ["sunny in Bonn", "sunny in Rome"])
async def _(it: Ref[Two], b: Bench) -> Any:
    return [await b.said(it.invoke(Two.forecast, "Bonn")), await b.said(it.invoke(Two.forecast, "Rome", 3))]


@row(
    "a parameter that is missing",
    One,
    Two,
    ["InvalidInput: Two.ask needs 'loud' - at $.loud [path='$.loud']"],
)
async def _(it: Ref[One], b: Bench) -> Any:
    return [await b.said(it.invoke(One.ask, "Bonn"))]


@row(
    "a parameter of another type",
    One,
    Two,
    ["InvalidInput: Expected `str`, got `int` - at $.days [path='$.days']"],
)
async def _(it: Ref[One], b: Bench) -> Any:
    return [await b.said(it.invoke(One.average, 3))]


@row(
    "a result of another type",
    Two,
    One,
    [
        "InvalidInput: Expected `int`, got `str` - at $.days [path='$.days']",
        wrong("limit", "str", "int"),
    ],
)
async def _(it: Ref[Two], b: Bench) -> Any:
    return [await b.said(it.invoke(Two.average, "3")), await b.said(it.read(Two.limit))]


@row(
    "what was taken away",
    One,
    Two,
    ["NotFound: no property 'units' on IT [kind='property', name='units']"] * 3,
)
async def _(it: Ref[One], b: Bench) -> Any:
    async def listen() -> Any:
        async with it.observe(One.units) as readings:
            return await b.some(readings, 1)

    return [await b.said(it.read(One.units)), await b.said(it.write(One.units, "x")), await b.said(listen())]


@row(
    "what is new",
    Two,
    One,
    [
        "NotFound: no property 'pressure' on IT [kind='property', name='pressure']",
        "NotFound: no action 'shout' on IT [kind='action', name='shout']",
    ],
)
async def _(it: Ref[Two], b: Bench) -> Any:
    return [await b.said(it.read(Two.pressure)), await b.said(it.invoke(Two.shout))]


@row(
    "a property of another type",
    One,
    Two,
    [
        wrong("limit", "int", "str"),
        "InvalidInput: Expected `str`, got `int` - at $ [path='$']",
        wrong("limit", "int", "str"),
    ],
)
async def _(it: Ref[One], b: Bench) -> Any:
    async def listen() -> Any:
        async with it.observe(One.limit) as readings:
            return await b.some(readings, 1)

    return [await b.said(it.read(One.limit)), await b.said(it.write(One.limit, 4)), await b.said(listen())]


@row(
    "an event of another type",
    Two,
    One,
    [wrong("asked", "int", "str")],
)
async def _(it: Ref[Two], b: Bench) -> Any:
    async def listen() -> Any:
        async with it.subscribe(Two.asked) as numbers:
            await it.invoke(Two.ask, "Bonn", True)
            return await b.some(numbers, 1)

    return [await b.said(listen())]


async def told(title: str) -> Any:
    """Carry out a row: by an address, where nobody compares."""
    here, there, run, _ = ROWS[title]
    tree = SupervisorSpec("root", [ChildSpec("weather", there)])
    async with open_node(tree, listen="ws://here:0") as server, open_node() as node:
        it = await node.consume(here, f"{server.urls[0]}/agents/weather")
        got = await run(it, Bench(World(), it, "weather"))
        assert node.connection_failures == server.connection_failures == ()
        assert server.statistics().restarts == 0
        return got


@pytest.mark.parametrize("title", ROWS)
def test_of_two_versions(title: str) -> None:
    assert simulate(told, title) == ROWS[title][3]


@pytest.mark.parametrize(("here", "there"), [(One, Two), (Two, One)])
def test_who_consumes_a_description_is_warned(here: type[Agent], there: type[Agent]) -> None:
    async def main() -> list[str]:
        tree = SupervisorSpec("root", [ChildSpec("weather", there)])
        async with open_node(tree, listen="ws://here:0") as server, open_node() as node:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                await node.consume(here, f"{server.urls[0].replace('ws', 'http')}/agents/weather")
            return [str(each.message) for each in caught]

    (text,) = simulate(main)
    assert text.startswith(f"'{there.__name__}' is not what {here.__name__} expects: ")
    for word in ("/properties/limit/type", "units" if here is One else "pressure", "more"):
        assert word in text


def test_who_consumes_its_own_version_is_not_warned() -> None:
    async def main() -> None:
        tree = SupervisorSpec("root", [ChildSpec("weather", One)])
        async with open_node(tree, listen="ws://here:0") as server, open_node() as node:
            await node.consume(One, f"{server.urls[0].replace('ws', 'http')}/agents/weather")

    simulate(main)
