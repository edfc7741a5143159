"""What our refs make of a thing that knows the LMOS text alone, in each way the text can be read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from lmos_actors import Agent, Event, Progress, Property, Ref, action, event, open_node, prop, simulate
from lmos_actors.transport import MemoryNetwork
from tests.wire_conformance import letter
from tests.wire_conformance.bench import Bench, World
from tests.wire_conformance.sockets import Server, Socket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

THING: Final = "urn:uuid:3f1d3a7a-4f97-4e6b-845f-f3c2e1c84c77"
READINGS: Final = ("correlation", "message", "none")
"""How the correlation of an answer can be read: the request's, the request's id, or not needed."""


class Lamp(Agent):
    """What the thing is to us."""

    power: Property[int] = prop(default=0)
    colour: Property[str] = prop(default="")
    broken: Property[str] = prop(default="")
    flashed: Event[int] = event()
    other: Event[int] = event()

    @action
    async def dim(self, progress: Progress[float], to: int) -> str:
        """Take a while."""
        return ""

    @action
    def fail(self) -> None:
        """Fail."""

    @action
    def wait(self) -> None:
        """Never end."""

    @action
    async def fade(self) -> AsyncIterator[int]:
        """Give items."""
        yield 1


class Text:
    """The thing: one connection after the other."""

    def __init__(self, reading: str) -> None:
        self.reading = reading
        self.values: dict[str, Any] = {"power": 5, "colour": "red"}
        self.said: list[str] = []
        self.listening: list[dict[str, Any]] = []
        self.server = Server(
            self.talk, choose=lambda offered: "lmosprotocol" if "lmosprotocol" in offered else None
        )
        self._ids = count(1)

    async def talk(self, socket: Socket) -> None:
        """Serve one connection."""
        self.listening.clear()
        while True:
            text = await socket.receive()
            assert isinstance(text, str)
            message = json.loads(text)
            assert letter.faults(message, letter.REQUESTS) == [], message
            self.said.append(message["messageType"])
            for answer in self.answers(message):
                assert letter.faults(answer, letter.ANSWERS) == [], answer
                await socket.send(json.dumps(answer))

    def say(self, kind: str, to: dict[str, Any], **members: Any) -> dict[str, Any]:
        """Make an answer."""
        raw = {
            "messageType": kind,
            "thingID": THING,
            "messageID": f"11111111-0000-4000-8000-{next(self._ids):012}",
        }
        if kind in ("propertyReading", "propertyReadings", "event"):
            raw["timestamp"] = "2025-01-20T19:00:00Z"
        correlations = {"correlation": to.get("correlationID"), "message": to["messageID"], "none": None}
        correlation = correlations[self.reading if kind != "event" else "correlation"]
        return raw | ({} if correlation is None else {"correlationID": correlation}) | members

    def answers(self, m: dict[str, Any]) -> list[dict[str, Any]]:
        """Answer a request by the tables of the text."""
        match m["messageType"]:
            case "readProperty" if m["name"] in self.values:
                return [self.say("propertyReading", m, name=m["name"], value=self.values[m["name"]])]
            case "writeProperty" if m["name"] in self.values:
                self.values[m["name"]] = m["data"]
                return [
                    self.say("propertyReadings", m, data={m["name"]: m["data"]}),
                    *self.changed(m["name"]),
                ]
            case "writeMultipleProperties":
                self.values.update(m["data"])
                return [self.say("propertyReadings", m, data=m["data"])]
            case "observeProperty" if m["name"] in self.values:
                self.listening.append(m)
                return [self.say("propertyReading", m, name=m["name"], value=self.values[m["name"]])]
            case "unobserveProperty" | "unsubscribeEvent" | "unsubscribeAllEvents":
                self.listening.clear()
                return []
            case "subscribeEvent" | "subscribeAllEvents" if m.get("event") != "other":
                self.listening.append(m)
                return []
            case "invokeAction":
                return self.run(m)
            case "queryAction" | "cancelAction":
                done = "in progress" if m["messageType"] == "queryAction" else "failed"
                return [self.say("actionStatus", m, action=m["action"], status=done)]
            case _:
                return [self.error(m, "404", "Not Found")]

    def changed(self, name: str) -> list[dict[str, Any]]:
        """Tell those who observe."""
        return [
            self.say("propertyReading", each, name=name, value=self.values[name])
            for each in self.listening
            if each.get("name") == name
        ]

    def run(self, m: dict[str, Any]) -> list[dict[str, Any]]:
        """Carry out an action."""
        name = m["action"]
        if name == "wait":
            return []
        if name == "fail":
            return [self.say("actionStatus", m, action=name, status="failed", output={"why": "dark"})]
        if name == "fade":
            items = [
                self.say("actionStatus", m, action=name, status="in progress", output=n) for n in (1, 2, 3)
            ]
            return [*items, self.say("actionStatus", m, action=name, status="completed")]
        told = [self.say("actionStatus", m, action=name, status=word) for word in ("pending", "in progress")]
        return [*told, self.say("actionStatus", m, action=name, status="completed", output="dimmed")]

    def error(self, m: dict[str, Any], status: str, title: str) -> dict[str, Any]:
        """Refuse something, with a problem type that nobody knows."""
        about = {
            "type": "https://example.com/e",
            "title": title,
            "status": status,
            "detail": "no",
            "instance": "urn:x",
        }
        return self.say("error", m, **about)

    async def happen(self, value: int) -> None:
        """Let the event happen."""
        for each in self.listening:
            told = self.say("event", each, event="flashed", data=value)
            told.setdefault("correlationID", each["messageID"])
            await self.server.sockets[-1].send(json.dumps(told))


ROWS: dict[str, tuple[Callable[[Ref[Lamp], Text, Bench], Awaitable[Any]], Any, tuple[str, ...]]] = {}


def row(title: str, expected: Any, readings: tuple[str, ...] = READINGS) -> Callable[..., None]:
    """Put a row into the table."""

    def add(run: Callable[[Ref[Lamp], Text, Bench], Awaitable[Any]]) -> None:
        assert title not in ROWS
        ROWS[title] = (run, expected, readings)

    return add


@row("read", [5, "NotFound: no [kind='affordance', name='broken']"])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    return [await b.said(it.read(Lamp.power)), await b.said(it.read(Lamp.broken))]


@row("write", [None, 7])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    return [await b.said(it.write(Lamp.power, 7)), await b.said(it.read(Lamp.power))]


@row("several at once", [None, 9, ["writeMultipleProperties", "readProperty"]])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    wrote = await b.said(it.write_many(Lamp.power.to(9), Lamp.colour.to("blue")))
    return [wrote, await b.said(it.read(Lamp.power)), t.said]


@row("invoke", ["dimmed", "ActionFailed: {\"why\": \"dark\"} [output={'why': 'dark'}]"])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    return [await b.said(it.invoke(Lamp.dim, 3)), await b.said(it.invoke(Lamp.fail))]


@row("items", [[1, 2, 3]])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.stream(Lamp.fade) as items:
        return [[item async for item in items]]


@row(
    "query and cancel",
    [
        "CallStatus ('in progress', False, None)",
        "CallStatus ('failed', False, None)",  # the text has no word for a run that was cancelled
        "ActionFailed: action failed []",
        ["invokeAction", "queryAction", "cancelAction"],
    ],
    ("correlation",),
)
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.begin(Lamp.wait) as call:
        standing = await b.said(call.query())
        cancelled = await b.said(call.cancel("enough"))
        return [standing, cancelled, await b.said(call.result()), t.said]


@row("observe", [[5], [6], ["observeProperty", "writeProperty", "unobserveProperty"]])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.observe(Lamp.power) as readings:
        seen = [await b.some(readings, 1)]
        await it.write(Lamp.power, 6)
        seen.append(await b.some(readings, 1))
    await trio.sleep(1)
    return [*seen, t.said]


@row("subscribe", [[1, 2], ["subscribeEvent", "unsubscribeEvent"]])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.subscribe(Lamp.flashed) as flashes:
        await trio.sleep(1)
        await t.happen(1)
        await t.happen(2)
        seen = await b.some(flashes, 2)
    await trio.sleep(1)
    return [seen, t.said]


@row("subscribe to all", [["flashed: 1"], ["subscribeAllEvents", "unsubscribeAllEvents"]])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.subscribe_all() as events:
        await trio.sleep(1)
        await t.happen(1)
        seen = await b.some(events, 1)
    await trio.sleep(1)
    return [seen, t.said]


@row(
    "a refusal comes with the first iteration",
    ["entered", "NotFound: no [kind='affordance', name='other']"],
    READINGS[:2],
)
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.subscribe(Lamp.other) as nothing:
        return ["entered", await b.said(nothing.receive())]


@row("monitor: the end of the connection", [["Down: IT 0 shutdown: connection lost"], []])
async def _(it: Ref[Lamp], t: Text, b: Bench) -> Any:
    async with it.monitor() as downs:
        await trio.aclose_forcefully(t.server.sockets[-1].stream)
        return [await b.some(downs, 1), t.said]


async def told(title: str, reading: str) -> Any:
    """Carry out a row."""
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery, open_node(network=network) as node:
        text = Text(reading)
        await nursery.start(text.server.serve, network, "text")
        it = await node.consume(Lamp, f"ws://{text.server.address}/ws", thing=THING)
        with trio.fail_after(200):
            got = await ROWS[title][0](it, text, Bench(World(), it, THING))
        assert node.connection_failures == ()
        nursery.cancel_scope.cancel()
    return got


CASES = [(title, reading) for title, (_, _, readings) in ROWS.items() for reading in readings]


@pytest.mark.parametrize(("title", "reading"), CASES)
def test_we_understand_it(title: str, reading: str) -> None:
    assert simulate(told, title, reading) == ROWS[title][1]
