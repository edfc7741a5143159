"""Agents of two relays that ask each other onwards: questions count their hops, and loops end."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, action, open_node, simulate
from lmos_actors.facades import (
    RelayBridge,
    RelayMessage,
    RelayPeer,
    join_relay,
    open_relay,
    register_on_relay,
)
from lmos_actors.security import Access, Security
from lmos_actors.transport import MemoryNetwork
from tests.facades.relays import RAWK, REFERENCE, SEED_DAY, URL, Habits, Recorded, Shown, hub_with, served
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

FIRST, SECOND = "ws://first:80", "ws://second:80"
IDS = ("alpha", "beta", "mine", "asker")

RELAYS: dict[str, Habits | None] = {"ours": None, **{each.name: each for each in (REFERENCE, RAWK, SEED_DAY)}}
every_relay = pytest.mark.parametrize("relay", RELAYS)


class Onward(Agent):
    """Asks another agent what it is asked."""

    to: str
    way: str = "words"
    asked: int = 0

    @action(answers=True, concurrency=100)
    async def answer(self, question: str) -> str:
        """Ask on."""
        self.asked += 1
        if self.way == "words":
            return str(await self.find(RelayPeer, self.to).invoke(RelayPeer.ask, question))
        if self.way == "helper":
            return await self.find(Helper, "helper").invoke(Helper.ask, self.to, question)
        return await self.find(Onward, self.to).invoke(Onward.answer, question)


class Helper(Agent):
    """Asks for others."""

    @action(concurrency=100)
    async def ask(self, to: str, question: str) -> str:
        """Ask an agent on a relay."""
        return str(await self.find(RelayPeer, to).invoke(RelayPeer.ask, question))


@asynccontextmanager
async def relay_at(url: str, habits: Habits | None, network: MemoryNetwork) -> AsyncGenerator[dict[str, Any]]:
    """Serve a relay; yield the credentials of the agents on it."""
    if habits is not None:
        async with served(Recorded(habits).route, url, network):
            yield {id: Shown(id) for id in IDS}
        return
    async with open_node(listen=url, relay=True, network=network):
        made = {id: await register_on_relay(url, id, network=network) for id in IDS}
        yield {id: Shown(each.token) for id, each in made.items()}


async def looped(relay: str, way: str, **options: Any) -> tuple[dict[str, Any], list[int]]:
    """Have alpha on one relay and beta on another ask each other; return the answer, and their questions."""
    network = MemoryNetwork()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(relay_at(FIRST, RELAYS[relay], network))
        second = await stack.enter_async_context(relay_at(SECOND, RELAYS[relay], network))
        agents = []
        for name, other, here, url, there, place in (
            ("alpha", "beta", first, FIRST, second, SECOND),
            ("beta", "alpha", second, SECOND, first, FIRST),
        ):
            bridge = RelayBridge(url=url, agent=name, credentials=here[name])
            opened = open_node(
                listen=f"ws://{name}:80",
                network=network,
                bridges=[bridge],
                security=Security(access={name: Access(invoke="anyone")}),
                **options,
            )
            node = await stack.enter_async_context(opened)
            await node.start_child(ChildSpec("helper", Helper))
            agents.append(await node.start_child(ChildSpec(name, lambda o=other: Onward(to=o, way=way))))
            await join_relay(node, place, id="mine", credentials=there["mine"], peers=True)
        await trio.sleep(5)  # until they know each other
        asker = await stack.enter_async_context(
            open_relay(FIRST, id="asker", network=network, credentials=first["asker"])
        )
        with trio.fail_after(60):
            answer = await asker.ask("Who began?", "alpha")
        return answer.payload, [each.statistics().handled for each in agents]


@every_relay
@pytest.mark.parametrize("way", few_or_all(["words"], ["words", "helper", "typed"]))
def test_two_bridges_that_lead_to_each_other_end(relay: str, way: str) -> None:
    payload, handled = simulate(lambda: looped(relay, way))
    assert payload["error"]["code"] == "too_many_hops"
    assert payload["error"]["message"] == "the question has come through 9 agents, and 8 is the most"
    assert handled == [5, 4]


def test_where_spans_are_recorded_they_end_too() -> None:
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    payload, handled = simulate(lambda: looped("reference", "helper", tracing=provider))
    assert payload["error"]["code"] == "too_many_hops"
    assert handled == [5, 4]


@pytest.mark.parametrize(
    ("ref", "is_refused"),
    [
        ("hops-8-x", False),
        ("hops-9-x", True),
        ("hops-99999-", True),
        ("hops-9", False),
        ("hops--1-x", False),
        ("hops-9999999-x", False),
        ("m-17", False),
    ],
)
def test_the_count_is_in_the_ref(ref: str, *, is_refused: bool) -> None:
    class Echo(Agent):
        @action(answers=True)
        def answer(self, question: str) -> str:
            return question

    async def main() -> None:
        async with hub_with("echo", "asker") as (network, tokens):
            bridge = RelayBridge(url=URL, credentials=tokens["echo"])
            async with (
                open_relay(URL, network=network, credentials=tokens["asker"]) as asker,
                open_node(listen="ws://place:80", network=network, bridges=[bridge]) as node,
            ):
                await node.start(Echo)
                await trio.sleep(1)
                await asker.say("hello", "echo", type="question", ref=ref)
                async for heard in asker:
                    if isinstance(heard, RelayMessage) and heard.type == "answer":
                        assert (heard.payload != "hello") == is_refused
                        return

    simulate(main)


def test_a_fan_out_is_no_loop() -> None:
    """An agent may ask another as often as it likes for one question."""

    class Many(Agent):
        @action(answers=True)
        async def answer(self, question: str) -> int:
            found = [await self.find(RelayPeer, "beta").invoke(RelayPeer.ask, str(n)) for n in range(50)]
            return len(found)

    class Beta(Agent):
        @action(answers=True)
        def answer(self, question: str) -> str:
            return question

    async def main() -> None:
        async with hub_with("alpha", "beta", "mine", "asker") as (network, tokens):
            bridges = [
                RelayBridge(url=URL, agent=name, credentials=tokens[name]) for name in ("alpha", "beta")
            ]
            async with (
                open_node(listen="ws://place:80", network=network, bridges=bridges) as node,
                open_relay(URL, network=network, credentials=tokens["asker"]) as asker,
            ):
                await node.start_child(ChildSpec("alpha", Many))
                await node.start_child(ChildSpec("beta", Beta))
                await join_relay(node, URL, credentials=tokens["mine"], peers=True)
                await trio.sleep(5)
                assert (await asker.ask("how many?", "alpha")).payload == 50

    simulate(main)
