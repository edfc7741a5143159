"""What a kotlin-wot client sees of our agents: nothing that hangs it, nothing that it cannot read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, Event, Progress, Property, action, event, open_node, prop, simulate
from lmos_actors.bindings import fetch
from lmos_actors.transport import MemoryNetwork
from tests.protocol.td.kotlin_reader import Unreadable
from tests.wire_conformance.agents import Helper, Small, Subject, start_helper, tree
from tests.wire_conformance.bench import Bench
from tests.wire_conformance.kotlin_client import HANGS, KotlinClient
from tests.wire_conformance.sockets import connected
from tests.wire_conformance.worlds import Near

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node

Row = tuple[type[Subject], "Callable[[KotlinClient, Bench], Awaitable[Any]]", Any]
ROWS: dict[str, Row] = {}


def row(title: str, expected: Any, kind: type[Subject] = Subject) -> Callable[..., None]:
    """Put a row into the table."""

    def add(run: Callable[[KotlinClient, Bench], Awaitable[Any]]) -> None:
        assert title not in ROWS
        ROWS[title] = (kind, run, expected)

    return add


NO_PROPERTY = "error 404 not-found: Property Not Found"
NOT_ALLOWED = "error 405 operation-not-allowed: Operation Not Allowed"
INVALID = "error 400 invalid-input: Invalid Input"
FAILED = "error 500 internal-server-error: Internal Server Error"
DIED = "error 500 agent-died: Agent Died"


@row("properties are read", ["celsius", 3, None])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [await k.read(name) for name in ("units", "limit", "last")]


@row("what cannot be read is refused", [NO_PROPERTY, NOT_ALLOWED])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [await k.read("colour"), await k.read("secret")]


@row("a thing that is not there", ["error 404 not-found: Thing Not Found"] * 3)
async def _(k: KotlinClient, b: Bench) -> Any:
    k.thing = "nobody"
    return [await k.read("units"), await k.invoke("echo", {"text": "a"}), await k.subscribe("asked")]


@row("a write gives back what was written", ["kelvin", "kelvin", 0, None])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [
        await k.write("units", "kelvin"),
        await k.read("units"),
        await k.write("limit", 0),
        await k.write("last", None),
    ]


@row("what cannot be written is refused", [NO_PROPERTY, NOT_ALLOWED, INVALID, INVALID, "celsius"])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [
        await k.write("colour", "red"),
        await k.write("serial", "s-2"),
        await k.write("limit", 101),
        await k.write("units", 3),
        await k.read("units"),
    ]


@row("turns are invoked", ["a", "a a", None, "in"])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [
        await k.invoke("echo", {"text": "a"}),
        await k.invoke("echo", {"text": "a", "times": 2}),
        await k.invoke("unlock"),
        await k.invoke("enter"),
    ]


@row(
    "an action that cannot be invoked",
    ["error 404 not-found: Action Not Found", INVALID, INVALID, NOT_ALLOWED],
)
async def _(k: KotlinClient, b: Bench) -> Any:
    return [
        await k.invoke("fresh"),
        await k.invoke("echo", {"text": 3}),
        await k.invoke("echo"),
        await k.invoke("enter"),
    ]


@row("a failure is an error", [FAILED, FAILED])
async def _(k: KotlinClient, b: Bench) -> Any:
    await b.open("a")
    return [
        await k.invoke("fail", {"why": "no luck"}),
        await k.invoke("fall", {"gate": "a", "how": "failure"}),
    ]


@row("a crash is an error", [DIED, "again"])
async def _(k: KotlinClient, b: Bench) -> Any:
    died = await k.invoke("bug")
    await b.restarted()
    return [died, await k.invoke("echo", {"text": "again"})]


@row("a run has one status, the final one", ["worked"])
async def _(k: KotlinClient, b: Bench) -> Any:
    await b.open("step 1", "step 2", "end")
    return [await k.invoke("work", {"steps": 2})]


@row("a run that has to wait has one status too", ["through a", "through a"])
async def _(k: KotlinClient, b: Bench) -> Any:
    async with b.asking(k.invoke("line", {"gate": "a"}), k.invoke("line", {"gate": "a"})) as asked:
        await b.standing(waiting=1, running=1)
        await b.open("a")
    return asked.answers


@row("items are one array", [[1, 2, 3], [], FAILED])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [
        await k.invoke("count", {"up_to": 3}),
        await k.invoke("count", {"up_to": 0}),
        await k.invoke("count", {"up_to": 3, "how": "failure"}),
    ]


@row("no room", ["through a", "through a", "error 503 mailbox-full: Mailbox Full"], Small)
async def _(k: KotlinClient, b: Bench) -> Any:
    async with b.asking(*(k.invoke("line", {"gate": "a"}) for _ in range(3))) as asked:
        await b.standing(waiting=1, running=1, refused=1)
        await b.open("a")
    return asked.answers


@row("an observation: the value now, then each change", ["celsius", ["kelvin", "x"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    first = await k.observe("units")
    for value in ("kelvin", "x"):
        it = await b.subject()
        await it.write(Subject.units, value)
        await trio.sleep(1)
    return [first, k.readings["units"]]


@row("an observation made twice delivers once", ["celsius", "celsius", ["kelvin"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    told = [await k.observe("units"), await k.observe("units")]
    await k.write("units", "kelvin")
    await trio.sleep(1)
    return [*told, k.readings["units"]]


@row("an observation that is ended is acknowledged", ["celsius", "celsius", "celsius", ["kelvin"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    told = [await k.observe("units"), await k.unobserve("units"), await k.observe("units")]
    await k.write("units", "kelvin")
    await trio.sleep(1)
    return [*told, k.readings["units"]]


@row("what cannot be observed is refused", [NO_PROPERTY, NOT_ALLOWED])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [await k.observe("colour"), await k.observe("secret")]


@row("an observation outlives a crash", ["celsius", ["kelvin", "celsius", "x"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    first = await k.observe("units")
    it = await b.subject()
    await it.write(Subject.units, "kelvin")
    await trio.sleep(1)
    await b.crash()
    await b.restarted()
    await trio.sleep(1)
    await it.write(Subject.units, "x")
    await trio.sleep(1)
    return [first, k.readings["units"]]


@row("a subscription is acknowledged, its events come", ["subscribeevent", ["a", "b"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    told = await k.subscribe("asked")
    await (await b.subject()).invoke(Subject.tell_all, ["a", "b"])
    await trio.sleep(1)
    return [told, k.events["asked"]]


@row("a subscription made twice delivers once", ["subscribeevent", "subscribeevent", ["a"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    told = [await k.subscribe("asked"), await k.subscribe("asked")]
    await (await b.subject()).invoke(Subject.tell_all, ["a"])
    await trio.sleep(1)
    return [*told, k.events["asked"]]


@row("a subscription that is ended is acknowledged", ["subscribeevent"] * 3 + [["a"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    told = [await k.subscribe("asked"), await k.unsubscribe("asked"), await k.subscribe("asked")]
    await (await b.subject()).invoke(Subject.tell_all, ["a"])
    await trio.sleep(1)
    return [*told, k.events["asked"]]


@row("an unknown event is refused", ["error 404 not-found: Event Not Found"])
async def _(k: KotlinClient, b: Bench) -> Any:
    return [await k.subscribe("moved")]


@row("a subscription outlives a crash, and there is no gap", ["subscribeevent", ["a", "b"]])
async def _(k: KotlinClient, b: Bench) -> Any:
    told = await k.subscribe("asked")
    it = await b.subject()
    await it.invoke(Subject.tell_all, ["a"])
    await b.crash()
    await b.restarted()
    await it.invoke(Subject.tell_all, ["b"])
    await trio.sleep(1)
    return [told, k.events["asked"]]


@asynccontextmanager
async def talking(node: Node, network: MemoryNetwork, thing: str) -> AsyncGenerator[KotlinClient]:
    """Open a socket as it does: no subprotocol, nothing about itself."""
    async with connected(network, f"{node.urls[0]}/ws") as socket, trio.open_nursery() as nursery:
        client = KotlinClient(socket, thing)
        nursery.start_soon(client.listen)
        yield client
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("title", ROWS)
def test_it_understands_us(title: str) -> None:
    kind, run, expected = ROWS[title]

    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(tree(), listen="ws://here:0", network=network) as node:
            helper = await start_helper(node)
            name = await helper.invoke(Helper.begin, kind.__name__)
            async with talking(node, network, name) as client:
                got = await run(client, Bench(Near(node), helper, name))
                assert (got, client.dropped, client.closed) == (expected, [], None)
            assert node.connection_failures == ()

    simulate(main)


class Everything(Agent):
    """One of each sort of affordance, with what only this package says of them."""

    units: Property[str] = prop(default="celsius")
    note: Property[str | None] = prop(default=None)
    asked: Event[str] = event()

    @action
    async def wait(self, progress: Progress[float]) -> float:
        """Wait a little."""
        progress.report(0.5)
        return 1.0

    @action
    async def count(self, to: int) -> AsyncIterator[int]:
        """Count."""
        for number in range(to):
            yield number


class Readable(Everything):
    """The same without what it cannot read."""

    note: Property[str] = prop(default="")


def test_it_reads_our_descriptions_and_uses_what_they_describe() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen="ws://here:80", network=network) as node:
            await node.start(Everything)
            await node.start(Readable)
            async with talking(node, network, "nobody") as client:
                text, _ = await fetch(network, "http://here:80/agents/everything", None)
                with pytest.raises(Unreadable, match="/properties/note"):
                    client.consume(json.loads(text))
                text, _ = await fetch(network, "http://here:80/agents/readable", None)
                described = client.consume(json.loads(text))
                assert {"lmosx:progress", "lmosx:streams"} <= set(described)
                assert await client.read("units") == "celsius"
                assert await client.invoke("wait") == 1.0
                assert await client.invoke("count", {"to": 3}) == [0, 1, 2]
                assert (client.dropped, client.closed) == ([], None)

    simulate(main)


SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "readAllProperties": (
        {},
        {
            "messageType": "propertyReadings",
            "data": {"units": "celsius", "limit": 3, "serial": "s-1", "last": None},
        },
    ),
    "readMultipleProperties": (
        {"properties": ["units", "limit"]},
        {"messageType": "propertyReadings", "data": {"units": "celsius", "limit": 3}},
    ),
    "writeAllProperties": (
        {"data": {"units": "x"}},
        {"messageType": "propertyReadings", "data": {"units": "x"}},
    ),
}
"""What its mapper has, and its client does not wait for as others do: each is answered by one message."""


@pytest.mark.parametrize("kind", SAID)
def test_all_that_its_mapper_has_is_answered(kind: str) -> None:
    members, wanted = SAID[kind]

    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(tree(), listen="ws://here:0", network=network) as node:
            helper = await start_helper(node)
            name = await helper.invoke(Helper.begin, "Subject")
            async with talking(node, network, name) as client:
                assert await client.ask(kind, **members) == HANGS  # its reader knows no such answer
                (frame,) = client.dropped
                said = json.loads(frame)
                assert said["correlationId"] == "k1"
                assert {word: said[word] for word in wanted} == wanted

    simulate(main)
