"""What our refs make of a kotlin-wot server: every verb by what it knows, nothing that makes it close."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    Event,
    NotAllowed,
    NotFound,
    Property,
    Ref,
    action,
    event,
    open_node,
    prop,
    simulate,
)
from lmos_actors.cli._answers import AnswerPrinter
from lmos_actors.cli.remote._session import RemoteSession
from lmos_actors.cli.remote._subscriptions import event_subscription
from lmos_actors.transport import MemoryNetwork
from tests.protocol.lmos.kotlin_server import Closed as Unreadable, KotlinServer
from tests.wire_conformance.bench import Bench, World
from tests.wire_conformance.sockets import Server, Socket

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


THING = "kettle"


class Kettle(Agent):
    """What the thing of the server is to us."""

    unit: Property[str] = prop(default="")
    limit: Property[int] = prop(default=0, read_only=True)
    colour: Property[str] = prop(default="")
    rain: Event[dict[str, int]] = event()
    snow: Event[str] = event()

    @action
    def echo(self, text: str) -> dict[str, str]:
        """Give the input back."""
        return {"text": text}

    @action
    def fail(self) -> None:
        """Raise."""

    @action
    def missing(self) -> None:
        """Not be there."""


class Kotlin:
    """The server: what its things remember is for one connection, as a new one begins anew."""

    def __init__(self) -> None:
        self.machine = KotlinServer(THING)
        self.said: list[str] = []
        self.texts: list[dict[str, Any]] = []
        self.unreadable: list[str] = []
        self.mute = False
        self.server = Server(self.talk, self.document)

    async def talk(self, socket: Socket) -> None:
        """Serve one connection: one message after the other."""
        self.machine.observed.clear()
        self.machine.subscribed.clear()
        while True:
            text = await socket.receive()
            if isinstance(text, bytes) or self.mute:
                continue
            self.texts.append(json.loads(text))
            self.said.append(self.texts[-1]["messageType"])
            try:
                for answer in self.machine.take(text.encode()):
                    await socket.send(answer)
            except Unreadable:
                self.unreadable.append(text)
                await socket.close(1003, "Failed to read message")
                return

    def document(self, path: str) -> bytes | None:
        """Give the description: of one thing, or of all in an array."""
        forms = [{"href": f"ws://{self.server.address}/ws", "subprotocol": "lmosprotocol"}]

        def offering(*ops: str) -> list[dict[str, Any]]:
            return [{**form, "contentType": "application/json", "op": list(ops)} for form in forms]

        thing = {
            "@context": ["https://www.w3.org/2022/wot/td/v1.1"],
            "@type": "lmos:Agent",
            "id": THING,
            "title": "Kettle",
            "properties": {
                "unit": {
                    "type": "string",
                    "observable": True,
                    "forms": offering("readproperty", "writeproperty"),
                },
                "limit": {"type": "integer", "readOnly": True, "forms": offering("readproperty")},
            },
            "actions": {
                "echo": {"forms": offering("invokeaction")},
                "fail": {"forms": offering("invokeaction")},
            },
            "events": {"rain": {"forms": offering("subscribeevent", "unsubscribeevent")}},
        }
        return {"/": json.dumps([thing]).encode(), f"/{THING}": json.dumps(thing).encode()}.get(path)

    async def tell(self, frames: list[str]) -> None:
        """Send what happens by itself over the last connection."""
        for frame in frames:
            await self.server.sockets[-1].send(frame)

    async def cut(self) -> None:
        """Let the last connection go."""
        await trio.aclose_forcefully(self.server.sockets[-1].stream)


Row = tuple["Callable[[Ref[Kettle], Kotlin, Bench], Awaitable[Any]]", Any]
ROWS: dict[str, Row] = {}


def row(title: str, expected: Any) -> Callable[..., None]:
    """Put a row into the table."""

    def add(run: Callable[[Ref[Kettle], Kotlin, Bench], Awaitable[Any]]) -> None:
        assert title not in ROWS
        ROWS[title] = (run, expected)

    return add


@row("read", ["K", 3, "NotFound: no such luck [kind='property', name='colour']"])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    return [await b.said(it.read(each)) for each in (Kettle.unit, Kettle.limit, Kettle.colour)]


@row("write", [None, "C", "NotAllowed: no such luck []"])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    loose: Any = it
    return [
        await b.said(it.write(Kettle.unit, "C")),
        await b.said(it.read(Kettle.unit)),
        await b.said(loose.write(Kettle.limit, 7)),
    ]


@row("several at once", [None, {"unit": "C", "limit": 3}, ["writeProperty", "readAllProperties"]])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    return [await b.said(it.write_many(Kettle.unit.to("C"))), await b.said(it.read_all()), k.said]


@row(
    "invoke",
    [
        {"text": "a"},
        "ActionFailed: no such luck [output='no such luck']",
        "NotFound: no such luck [kind='action', name='missing']",
    ],
)
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    return [
        await b.said(it.invoke(Kettle.echo, "a")),
        await b.said(it.invoke(Kettle.fail)),
        await b.said(it.invoke(Kettle.missing)),
    ]


@row(
    "begin, query, progress",
    [{"text": "a"}, "CallStatus ('completed', False, None)", ["END"], ["invokeAction"]],
)
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async with it.begin(Kettle.echo, "a") as call:
        result = await b.said(call.result())
        return [result, await b.said(call.query()), await b.some(call.progress, 1), k.said]


@row(
    "cancel gives up here alone",
    [
        "CallStatus ('pending', False, None)",
        "CallStatus ('failed', True, 'enough')",
        "ActionCancelled: enough [reason='enough']",
        [],
    ],
)
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    k.mute = True
    async with it.begin(Kettle.echo, "a") as call:
        standing = await b.said(call.query())
        cancelled = await b.said(call.cancel("enough"))
        return [standing, cancelled, await b.said(call.result()), k.said]


@row("a caller that leaves", ["cancelled", {"text": "b"}, ["invokeAction", "invokeAction"]])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    k.mute = True
    async with b.asking(it.invoke(Kettle.echo, "a")) as asked:
        await trio.sleep(1)
        asked.scopes[0].cancel()
    k.mute = False
    k.said.append("invokeAction")
    return [*asked.answers, await b.said(it.invoke(Kettle.echo, "b")), k.said]


@row("a deadline", ["DeadlineExceeded: no answer from 'IT' within 5 s [seconds=5.0]"])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    k.mute = True
    return [await b.said(it.within(5).invoke(Kettle.echo, "a"))]


@row("one way", [None, ["invokeAction", "invokeAction"]])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    told = await b.said(it.tell(Kettle.echo, "a"))
    it.tell_nowait(Kettle.fail)
    await trio.sleep(1)
    return [told, k.said]


@row("observe", [["K"], ["C"], ["X"], ["observeProperty", "writeProperty", "unobserveProperty"]])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async with it.observe(Kettle.unit) as readings:
        seen = [await b.some(readings, 1)]
        await it.write(Kettle.unit, "C")
        seen.append(await b.some(readings, 1))
        await k.tell(k.machine.change("unit", "X"))
        seen.append(await b.some(readings, 1))
    await trio.sleep(1)
    return [*seen, k.said]


@row("observe what is not there", ["NotFound: no such luck [kind='property', name='colour']"])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async def listen() -> Any:
        async with it.observe(Kettle.colour) as readings:
            return await b.some(readings, 1)

    return [await b.said(listen())]


@row("subscribe", [[{"mm": 1}, {"mm": 2}], ["subscribeevent", "unsubscribeEvent"]])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async with it.subscribe(Kettle.rain) as drops:
        for mm in (1, 2):
            await k.tell(k.machine.happen("rain", {"mm": mm}))
        seen = await b.some(drops, 2)
    await trio.sleep(1)
    return [seen, k.said]


@row("subscribe again", [[{"mm": 1}], [{"mm": 2}]])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    seen: list[Any] = []
    for mm in (1, 2):
        async with it.subscribe(Kettle.rain) as drops:
            await k.tell(k.machine.happen("rain", {"mm": mm}))
            seen.append(await b.some(drops, 1))
    return seen


@row("subscribe to what is not there", ["NotFound: no such luck [kind='event', name='snow']"])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async def listen() -> Any:
        async with it.subscribe(Kettle.snow) as flakes:
            return await b.some(flakes, 1)

    return [await b.said(listen())]


@row("subscribe to all", ["NotAllowed: this peer does not support a subscription to all events []", []])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async def listen() -> Any:
        async with it.subscribe_all() as events:
            return await b.some(events, 1)

    return [await b.said(listen()), k.said]


@row("monitor: the end of the connection", ["Down: IT 0 shutdown: connection lost"])
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async with it.monitor() as downs:
        await k.cut()
        return await b.some(downs, 1)


@row(
    "a break: what was asked, what is listened to",
    [
        ["K"],
        [
            "OutcomeUnknown: what became of the request to 'IT' is unknown: "
            "the connection ended before the answer []"
        ],
        ["Gap: connection lost (None)", "K"],
        ["Gap: connection lost (None)", {"mm": 1}],
        "K",
    ],
)
async def _(it: Ref[Kettle], k: Kotlin, b: Bench) -> Any:
    async with it.observe(Kettle.unit, gaps=True) as readings, it.subscribe(Kettle.rain, gaps=True) as drops:
        seen: list[Any] = [await b.some(readings, 1)]
        k.mute = True
        async with b.asking(it.invoke(Kettle.echo, "a")) as asked:
            await trio.sleep(1)
            await k.cut()
        k.mute = False
        await it.ready()
        await trio.sleep(60)
        await k.tell(k.machine.happen("rain", {"mm": 1}))
        return [
            *seen,
            asked.answers,
            await b.some(readings, 2),
            await b.some(drops, 2),
            await b.said(it.read(Kettle.unit)),
        ]


@asynccontextmanager
async def served(network: MemoryNetwork) -> AsyncGenerator[Kotlin]:
    """Have the server for a block."""
    async with trio.open_nursery() as nursery:
        kotlin = Kotlin()
        await nursery.start(kotlin.server.serve, network, "kotlin")
        yield kotlin
        nursery.cancel_scope.cancel()


async def told(title: str, source: str, thing: str | None) -> Any:
    """Carry out a row; nothing was said that the server could not read."""
    run, _ = ROWS[title]
    network = MemoryNetwork()
    async with served(network) as kotlin, open_node(network=network) as node:
        it = await node.consume(Kettle, source.format(kotlin.server.address), thing=thing)
        with trio.fail_after(200):
            got = await run(it, kotlin, Bench(World(), it, "kettle"))
        assert kotlin.unreadable == []
        assert node.connection_failures == ()
        return got


class Plain(Agent):
    """What of the thing can be read."""

    unit: Property[str] = prop(default="")
    limit: Property[int] = prop(default=0, read_only=True)


async def read_all(status: str) -> None:
    network = MemoryNetwork()
    async with served(network) as kotlin, open_node(network=network) as node:
        it = await node.consume(Plain, f"ws://{kotlin.server.address}/ws", thing=THING)
        kotlin.machine.read_all_fails = status
        all_of_them, each = ["readAllProperties"], ["readProperty", "readProperty"]
        assert await it.read_all() == {"unit": "K", "limit": 3}
        assert kotlin.said == all_of_them + each
        assert await it.read_all() == {"unit": "K", "limit": 3}
        assert kotlin.said == all_of_them + each * 2  # it has shown that it cannot
        await kotlin.cut()
        await trio.sleep(60)
        await it.ready()
        kotlin.said.clear()
        assert await it.read_all() == {"unit": "K", "limit": 3}
        assert kotlin.said == all_of_them + each  # which is forgotten with the connection
        async with trio.open_nursery() as nursery:  # those that ask together have an answer each
            for _ in range(3):
                nursery.start_soon(it.read_all)
        kotlin.machine.read_all_fails = "405"
        await kotlin.cut()
        await trio.sleep(60)
        await it.ready()
        with pytest.raises(NotAllowed):
            await it.read_all()


@pytest.mark.parametrize("status", ["500", "404"])
def test_what_cannot_be_read_as_a_whole_is_read_one_by_one(status: str) -> None:
    simulate(read_all, status)


async def without_a_thing() -> None:
    network = MemoryNetwork()
    async with served(network) as kotlin, open_node(network=network) as node:
        it = await node.consume(Plain, f"ws://{kotlin.server.address}/ws", thing="nobody")
        with pytest.raises(NotFound):
            await it.read_all()
        assert kotlin.said == ["readAllProperties"]


def test_a_thing_that_is_not_there_is_not_asked_again() -> None:
    simulate(without_a_thing)


async def without_input() -> None:
    network = MemoryNetwork()
    async with served(network) as kotlin, open_node(network=network) as node:
        it = await node.consume_thing(f"http://{kotlin.server.address}/{THING}")
        assert await it.invoke("echo") is None
        await it.tell("echo")
        assert await it.invoke("echo", {"text": "a"}) == {"text": "a"}
        assert await it.within(5).invoke("echo") is None
        assert kotlin.texts[0]["input"] is None
        assert kotlin.texts[1]["input"] is None


def test_an_action_without_input_is_sent_null() -> None:
    simulate(without_input)


async def listen_to_all(capsys: Any) -> None:
    network = MemoryNetwork()
    async with served(network) as kotlin, open_node(network=network) as node:
        talk = RemoteSession(AnswerPrinter(json=True))
        talk.thing = await node.consume_thing(f"http://{kotlin.server.address}/{THING}")
        codes: list[int] = []
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                codes.append(await event_subscription(None, 2)(talk))

            nursery.start_soon(listen)
            await trio.sleep(1)
            for mm in (1, 2):
                await kotlin.tell(kotlin.machine.happen("rain", {"mm": mm}))
        assert codes == [0]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["data"]) for line in lines] == [("rain", {"mm": 1}), ("rain", {"mm": 2})]


def test_listen_without_a_name_hears_each_event_where_there_is_no_all(capsys: Any) -> None:
    simulate(listen_to_all, capsys)


@pytest.mark.parametrize("title", ROWS)
def test_we_understand_it(title: str) -> None:
    assert simulate(told, title, "ws://{}/ws", THING) == ROWS[title][1]


@pytest.mark.parametrize("title", ["read", "write", "invoke", "observe", "subscribe"])
@pytest.mark.parametrize(("path", "thing"), [(f"/{THING}", None), ("/", THING), ("/", None)])
@pytest.mark.filterwarnings("ignore::UserWarning")  # the description lacks what the class has
def test_its_descriptions_lead_to_it(title: str, path: str, thing: str | None) -> None:
    assert simulate(told, title, f"http://{{}}{path}", thing) == ROWS[title][1]
