"""One trace of a chat turn, whoever asks for it and however: its requests to others are in it."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from opentelemetry import trace

from lmos_actors import ActionFailed, Agent, action, open_node
from lmos_actors.facades import (
    ChatAgent,
    ChatTurn,
    RelayBridge,
    RelayMember,
    RelayOptions,
    join_relay,
    open_chat,
    open_relay,
)
from lmos_actors.security import Access, Security
from lmos_actors.transport import MemoryNetwork
from tests.bindings.http_client.test_link import consumed
from tests.facades.relay.test_hub import URL, asked
from tests.facades.relays import Shown
from tests.mcp.offering import client_of
from tests.observe.http_requests import samples
from tests.observe.test_tracing import TRACE, TRACEPARENT, Recorder, id_of, parent_of, traces

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from opentelemetry.sdk.trace import ReadableSpan

    from lmos_actors import Node

OWN = Recorder()
OPEN = Security(access={"assistant": Access(invoke="anyone")})
ASK: Any = RelayMember.ask  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
CHAT = "ws://desk/api/agents/assistant/ws"


class Weather(Agent):
    """Knows the weather, but not of Atlantis."""

    @action(answers=True)
    def forecast(self, city: str) -> str:
        """Forecast."""
        trace.get_current_span().set_attribute("city", city)
        if city == "Atlantis":
            raise ActionFailed("there is no weather")
        return f"sunny in {city}"


class Assistant(ChatAgent):
    """Asks an agent over LMOS, a bot on a relay by its ref, and that bot in plain words."""

    far: Any
    bot: Any
    member: Any

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        yield await self.far.invoke(Weather.forecast, turn.text)
        yield await self.bot.invoke(Weather.forecast, turn.text)
        yield (await self.member.invoke(ASK, turn.text, ["weather"])).payload


class World:
    """A hub, a node whose agent is on it, too, and a node with an assistant; all of them record spans."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.network = MemoryNetwork()
        self.tokens: dict[str, Any] = {}
        self.nodes: list[Node] = []

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[World]:
        options: Any = {"network": self.network, "tracing": self.recorder.provider, "metrics": True}
        async with AsyncExitStack() as stack:

            async def node(**more: Any) -> Node:
                found = await stack.enter_async_context(open_node(**options, **more))
                self.nodes.append(found)
                return found

            await node(listen=URL, relay=RelayOptions(extensions=("receipts",)))
            for id in ("weather", "assistant", "stranger", "desk"):
                found = await asked(self.network, "POST", "/register", {"agent_id": id})
                self.tokens[id] = Shown(found.json()["token"])
            bridge = RelayBridge(url=URL, credentials=self.tokens["weather"], agent="weather")
            there = await node(listen="ws://there", bridges=[bridge])
            await there.start(Weather)
            lead = RelayBridge(url=URL, credentials=self.tokens["desk"], agent="assistant")
            desk = await node(listen="ws://desk", omnia=True, bridges=[lead], security=OPEN)
            shown = self.tokens["assistant"]
            member = await join_relay(desk, URL, id="assistant", credentials=shown, peers=True)
            bot = desk.find(Weather, "weather")
            await bot.ready()
            far = await desk.consume(Weather, "http://there/agents/weather")
            await desk.start(Assistant, far=far, bot=bot, member=member)
            self.desk = desk
            client = await stack.enter_async_context(open_node(network=self.network))
            with TemporaryDirectory() as folder:
                path, url = Path(folder, "assistant.td.json"), "http://desk/agents/assistant"
                self.web = await consumed(client, self.network, url, path, cls=Assistant)
            await trio.testing.wait_all_tasks_blocked(0.1)
            self.recorder.took()
            yield self

    async def by_chat(self) -> None:
        async with open_chat(CHAT, network=self.network) as chat:
            await chat.say("Bonn")

    async def by_lmos(self) -> None:
        async with open_node(network=self.network) as node:
            desk = await node.consume(Assistant, "http://desk/agents/assistant")
            async with desk.stream(Assistant.chat, "Bonn") as items:
                _ = [item async for item in items]

    async def by_http(self) -> None:
        async with self.web.stream(Assistant.chat, "Bonn") as items:
            _ = [item async for item in items]

    async def by_mcp(self) -> None:
        async with client_of(self.desk) as client:
            await client.call_tool("assistant__chat", {"content": "Bonn"})

    async def by_relay(self) -> None:
        async with open_relay(URL, network=self.network, credentials=self.tokens["stranger"]) as relay:
            await relay.ask({"action": "chat", "input": {"content": "Bonn"}}, "desk")


def tree_of(spans: list[ReadableSpan]) -> list[str]:
    """Return the spans as lines, each with its depth; the children of one in their order."""
    below: dict[str | None, list[ReadableSpan]] = {}
    known = {id_of(span) for span in spans}
    for span in spans:
        above = parent_of(span)
        below.setdefault(above if above in known else None, []).append(span)

    def lines(above: str | None, depth: int) -> list[str]:
        return [
            line
            for span in below.get(above, [])
            for line in (f"{'. ' * depth}{span.kind.name} {span.name}", *lines(id_of(span), depth + 1))
        ]

    return lines(None, 0)


TURN = [
    "CLIENT invoke Weather.forecast",
    ". SERVER invoke Weather.forecast",
    "CLIENT invoke Weather.forecast",
    ". SERVER pass on question",
    ". . SERVER invoke Weather.forecast",
    ". . SERVER pass on answer",
    "CLIENT ask question",
    ". SERVER pass on question",
    ". . SERVER invoke Weather.forecast",
    ". . SERVER pass on answer",
]
"""What the assistant asks in a turn, and what becomes of it."""


def below(line: str, lines: list[str]) -> list[str]:
    return [line, *(f". {each}" for each in lines)]


TURNS = below("SERVER invoke Assistant.chat", TURN)
CONVERSED = below("SERVER invoke Assistant.converse", TURN)  # the action of Omnia's clients
ENTRIES: dict[str, tuple[Callable[[World], Awaitable[None]], list[str]]] = {
    "chat": (World.by_chat, CONVERSED),
    "lmos": (World.by_lmos, TURNS),
    "http": (World.by_http, TURNS),
    "mcp": (World.by_mcp, TURNS),
    "relay": (World.by_relay, below("SERVER pass on question", [*TURNS, "SERVER pass on answer"])),
}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_turn_is_one_trace_however_it_was_entered(entry: str, autojump_clock: Any) -> None:
    enter, wanted = ENTRIES[entry]
    async with World().opened() as world:
        await enter(world)
        spans = world.recorder.took()
    assert tree_of(spans) == wanted
    assert len(traces(*spans)) == 1


@pytest.mark.parametrize("entry", ENTRIES)
async def test_clients_take_the_current_span(entry: str, autojump_clock: Any) -> None:
    async with World().opened() as world:
        with world.recorder.provider.get_tracer("program").start_as_current_span("main"):
            await ENTRIES[entry][0](world)
        spans = world.recorder.took()
    assert tree_of(spans) == below("INTERNAL main", ENTRIES[entry][1])


async def test_a_trace_that_the_caller_names_comes_before_the_current_one(autojump_clock: Any) -> None:
    async with World().opened() as world:
        with world.recorder.provider.get_tracer("program").start_as_current_span("main"):
            async with open_chat(CHAT, network=world.network) as chat:
                await chat.say("Bonn", metadata={"traceparent": TRACEPARENT})
        spans = world.recorder.took()
    assert traces(*(span for span in spans if span.name != "main")) == [TRACE]


class Caller(Agent):
    """Is a client of all three kinds."""

    world: Any

    @action
    async def chat(self) -> None:
        await self.world.by_chat()

    @action
    async def relay(self) -> None:
        await self.world.by_relay()


async def test_agents_have_a_span_for_each_request_to_others(autojump_clock: Any) -> None:
    async with World().opened() as world:
        caller = await world.desk.start(Caller, world=world)
        await caller.invoke(Caller.chat)
        spans = world.recorder.took()
        assert tree_of(spans) == below("CLIENT invoke_agent assistant", CONVERSED)
        went, came = spans[:2]
        await caller.invoke(Caller.relay)
        question = ENTRIES["relay"][1]
        assert tree_of(world.recorder.took()) == below("CLIENT ask question", question)
        counted = samples(await world.desk.metrics())
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "assistant",
        "lmos.way": "omnia",
    }
    assert dict(went.attributes or {}) == attributes
    assert (came.attributes or {}).items() >= {
        **attributes, "rpc.service": "Assistant", "rpc.method": "converse",
    }.items()  # fmt: skip
    client, server = "lmos_actors_client_requests_total", "lmos_actors_requests_total"
    assert counted[client, "turn", "chat", "2xx", "invoke", "omnia"] == 1
    assert counted[client, "question", "relay", "2xx", "ask", "relay"] == 3  # two of them in turns
    assert counted[server, "converse", "Assistant", "2xx", "invoke", "omnia"] == 1
    assert counted[server, "chat", "Assistant", "2xx", "invoke", "relay"] == 1


async def test_a_hub_counts_what_it_passes_on(autojump_clock: Any) -> None:
    async with World().opened() as world:
        async with open_relay(URL, network=world.network, credentials=world.tokens["stranger"]) as relay:
            await relay.say("hm", ["weather"], type="thought")
            await relay.say("x", ["weather"], type="of our own", members={"traceparent": 5})
        spans = world.recorder.took()
        counted = samples(await world.nodes[0].metrics())
    assert [span.name for span in spans] == ["pass on thought", "pass on other"]
    assert [(span.attributes or {})["messaging.system"] for span in spans] == ["agentrelay"] * 2
    for type in ("thought", "other"):
        assert counted["lmos_actors_requests_total", type, "relay", "2xx", "pass on", "relay"] == 1


async def test_a_turn_that_fails_is_counted_and_marked(autojump_clock: Any) -> None:
    async with World().opened() as world:
        async with open_chat(CHAT, network=world.network) as chat:
            with pytest.raises(ActionFailed):
                await chat.say("Atlantis")
        spans = world.recorder.took()
        counted = samples(await world.desk.metrics())
    assert (spans[0].attributes or {})["error.type"] == "ActionFailed"
    assert counted["lmos_actors_requests_total", "converse", "Assistant", "4xx", "invoke", "omnia"] == 1


class Spontaneous(Agent):
    """Asks of its own accord."""

    weather: Any
    done: Any

    def started(self) -> None:
        self.nursery.start_soon(self.look)

    async def look(self) -> None:
        await self.weather.invoke(Weather.forecast, "Bonn")
        self.done.set()


async def test_agents_are_not_in_the_span_that_opened_their_node(autojump_clock: Any) -> None:
    recorder, done = Recorder(), trio.Event()
    async with open_node(listen="ws://there", tracing=recorder.provider) as there:
        await there.start(Weather)
        with recorder.provider.get_tracer("program").start_as_current_span("main"):
            async with open_node() as node:
                weather = await node.consume(Weather, "http://there/agents/weather")
                await node.start(Spontaneous, weather=weather, done=done)
                await done.wait()
    assert sorted(tree_of(recorder.took())) == ["INTERNAL main", "SERVER invoke Weather.forecast"]


async def test_calls_of_another_thread_are_in_its_trace(autojump_clock: Any) -> None:
    recorder = Recorder()

    def work(portal: Any, weather: Any) -> None:
        with recorder.provider.get_tracer("program").start_as_current_span("thread"):
            portal.invoke(weather, Weather.forecast, "Bonn")

    async with (
        open_node(listen="ws://there", tracing=recorder.provider) as there,
        open_node() as node,
    ):
        await there.start(Weather)
        weather = await node.consume(Weather, "http://there/agents/weather")
        await trio.to_thread.run_sync(work, node.portal(), weather)
    assert tree_of(recorder.took()) == ["INTERNAL thread", ". SERVER invoke Weather.forecast"]
