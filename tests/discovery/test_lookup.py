"""Callers of agents whose nodes are drained, killed, and begun anew, at the same address or another one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    Backoff,
    ChildSpec,
    Node,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    Ref,
    SupervisorSpec,
    action,
    open_node,
    simulate,
)
from lmos_actors.discovery import Registration
from lmos_actors.persistence import SimulatedStore
from lmos_actors.transport import MemoryNetwork
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

pytestmark = pytest.mark.filterwarnings("ignore::lmos_actors.errors.UnkeptRunWarning")

HUB = "http://hub:80"
OTHER = "http://other:80"


class Till(Agent, durable=True, serial=True):
    sold: int = 0

    @action
    async def sell(self, seconds: float = 0) -> int:
        await trio.sleep(seconds)
        self.sold += 1
        return self.sold

    @action(safe=True)
    def look(self) -> int:
        return self.sold


class Weather(Agent):
    @action(idempotent=True)
    def forecast(self) -> str:
        return "sunny"


class World:
    """A directory, nodes with a store in common, and a node that looks."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.disk = simulated_disk(1, shared=True)

    @asynccontextmanager
    async def node(self, name: str, *children: ChildSpec[Any], **options: Any) -> AsyncGenerator[Node]:
        tree = SupervisorSpec("root", children)
        options = {"store": SimulatedStore(self.disk), "register": HUB, **options}
        async with open_node(tree, listen=f"ws://{name}:80", network=self.network, **options) as node:
            await trio.sleep(1)
            yield node

    def kill(self, node: Node, name: str) -> None:
        """End a node as by SIGKILL, as far as others see: nothing is said, and its connections break."""
        self.network.sever(name, 80)
        node.force_stop()


def play(story: Callable[[World, Node], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        async with (
            open_node(listen="ws://hub:80", directory=True, network=world.network),
            open_node(lookup=HUB, network=world.network) as looker,
        ):
            await story(world, looker)

    simulate(main)


TILL = ChildSpec("till", Till, key="1")


def test_a_keyed_agent_is_unavailable_while_its_node_is_replaced() -> None:
    async def story(world: World, looker: Node) -> None:
        till = looker.find(Till, id="1")
        async with world.node("a", TILL):
            assert await till.invoke(Till.sell) == 1
        async with open_node(lookup=HUB, network=world.network) as other:
            for ref in (till, till, other.find(Till, id="1")):  # that one has never seen it
                with pytest.raises(AgentUnavailable) as caught:
                    await ref.invoke(Till.sell)
                assert caught.value.retry_in is not None
            async with trio.open_nursery() as nursery:
                answers: list[int] = []

                async def sell(ref: Ref[Till]) -> None:
                    answers.append(await ref.retrying().invoke(Till.sell))

                for ref in (till, other.find(Till, id="1")):
                    nursery.start_soon(sell, ref)
                await trio.sleep(5)
                async with world.node("b", TILL):
                    await trio.sleep(10)
                    assert sorted(answers) == [2, 3]
                nursery.cancel_scope.cancel()

    play(story)


def test_one_that_does_not_come_back_is_found_no_more() -> None:
    async def story(world: World, looker: Node) -> None:
        till = looker.find(Till, id="1")
        async with world.node("a", TILL):
            assert await till.invoke(Till.sell) == 1
        assert [each.key for each in await looker.search(Till)] == ["1"], "its lease stays known for a while"
        await trio.sleep(95)
        assert await looker.search(Till) == []
        with pytest.raises(NotFound):
            await till.invoke(Till.sell)

    play(story)


@pytest.mark.parametrize("again", ["a", "b"])
@pytest.mark.parametrize("key", ["1", None])
def test_a_durable_agent_that_was_found_is_asked_again_without_a_key(again: str, key: str | None) -> None:
    """Where it is certainly the same agent: by a key of its own, or at the same address."""

    async def story(world: World, looker: Node) -> None:
        ref, spec = looker.find(Till), ChildSpec("till", Till, key=key)
        world.disk = simulated_disk(1, shared=key is not None)
        outcome: list[object] = []

        async def sell() -> None:
            try:
                outcome.append(await ref.retrying(attempts=None).invoke(Till.sell, 3))
            except OutcomeUnknown as error:
                outcome.append(error)

        async with trio.open_nursery() as nursery:
            async with world.node("a", spec) as node:
                assert await ref.invoke(Till.sell) == 1
                nursery.start_soon(sell)
                await trio.sleep(1)
                world.kill(node, "a")
            async with world.node(again, spec):
                await trio.sleep(60)
                if key is None and again == "b":
                    assert isinstance(outcome[0], OutcomeUnknown), "another agent, for all that is known"
                    assert await ref.invoke(Till.look) == 1
                else:
                    assert outcome == [2]
                    assert await ref.invoke(Till.look) == 2

    play(story)


def test_what_may_be_repeated_is_repeated_at_any_that_is_found() -> None:
    async def story(world: World, looker: Node) -> None:
        ref = looker.find(Weather)
        async with world.node("a", ChildSpec("weather", Weather)) as node:
            assert await ref.invoke(Weather.forecast) == "sunny"
            world.kill(node, "a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.retrying().invoke, Weather.forecast)
            await trio.sleep(5)
            async with world.node("b", ChildSpec("weather", Weather)):
                await trio.sleep(10)

    play(story)


def test_a_key_of_the_callers_needs_an_agent_that_is_named() -> None:
    async def story(world: World, looker: Node) -> None:
        async with world.node("a", TILL):
            ref = looker.find(Till)
            with pytest.raises(NotAllowed, match=r"find it by id="):
                await ref.retrying(key="order-1").invoke(Till.sell)
            assert await looker.find(Till, id="1").retrying(key="order-1").invoke(Till.sell) == 1

    play(story)


@pytest.mark.parametrize("spread", [None, "round_robin"])
def test_a_group_without_processes_is_said_to_have_nobody_registered(spread: Any) -> None:
    async def story(world: World, looker: Node) -> None:
        ref = looker.find(Weather, spread=spread)
        with pytest.raises(NotFound, match="in its directories"):
            await ref.invoke(Weather.forecast)
        async with world.node("a", ChildSpec("weather", Weather)):
            await trio.sleep(2)
            assert await ref.invoke(Weather.forecast) == "sunny"
        await trio.sleep(2)
        for _ in range(3):
            with pytest.raises(
                AgentUnavailable, match="none is registered in http://hub:80 any more"
            ) as caught:
                await ref.invoke(Weather.forecast)
            assert caught.value.retry_in == 1
        await trio.sleep(60)
        with pytest.raises(NotFound, match="in its directories"):
            await ref.invoke(Weather.forecast)

    play(story)


def test_ready_looks_elsewhere_when_the_node_of_an_agent_that_does_not_run_ends() -> None:
    """It has waited there for the agent, whose supervisor pauses before it starts it again."""

    class Fragile(Agent):
        @action
        def crash(self) -> None:
            raise RuntimeError("broken")

        @action
        def where(self) -> str:
            return self.path

    async def story(world: World, looker: Node) -> None:
        spec = ChildSpec("fragile", Fragile, backoff=Backoff(initial=600, max=600))
        ref = looker.find(Fragile, spread="round_robin")
        async with trio.open_nursery() as nursery:
            async with world.node("a", spec) as node:
                with pytest.raises(AgentDied):
                    await ref.invoke(Fragile.crash)
                with pytest.raises(AgentUnavailable):
                    await ref.invoke(Fragile.where)
                ready = trio.Event()

                async def wait_ready() -> None:
                    await ref.ready()
                    ready.set()

                nursery.start_soon(wait_ready)
                await trio.sleep(5)
                assert not ready.is_set()
                world.kill(node, "a")
            async with world.node("b", spec):
                await trio.sleep(10)
                assert ready.is_set()
                assert await ref.invoke(Fragile.where) == "fragile"

    play(story)


@pytest.mark.parametrize("spread", [None, "round_robin"])
def test_a_directory_that_has_begun_anew_parts_nobody(spread: Any) -> None:
    async def story(world: World, looker: Node) -> None:
        weather, register = ChildSpec("weather", Weather), Registration(OTHER, ttl=300)
        directory = partial(open_node, listen="ws://other:80", directory=True, network=world.network)
        async with (
            world.node("a", weather, register=register) as a,
            world.node("b", weather, register=register) as b,
            open_node(lookup=OTHER, network=world.network) as other,
        ):
            ref = other.find(Weather, spread=spread)
            async with directory():
                await trio.sleep(10)
                for _ in range(2):
                    assert await ref.invoke(Weather.forecast) == "sunny"
            async with directory():
                for _ in range(40):  # longer than what was found is taken as it is
                    assert await ref.invoke(Weather.forecast) == "sunny"
                    await trio.sleep(1)
                assert await other.search(Weather, directory=OTHER) == [], "they have not registered anew yet"
                world.kill(a, "a")
                world.kill(b, "b")
                await trio.sleep(1)
                with pytest.raises(AgentUnavailable, match="none is registered"):
                    await ref.invoke(Weather.forecast)

    play(story)
