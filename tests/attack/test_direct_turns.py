"""Turns in the step of a connection's reader: fairness, questions over one connection, unknown agents."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    MailboxFull,
    Node,
    NotFound,
    Ref,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.errors import ConnectFailed
from tests.attack.test_direct_sends_everywhere import SocketPairs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

URL = "ws://server:80"
MOST = {"one after another": 8, "many at once": 200, "one-way": 200}
"""Turns of others between an attempt of a client that asks one at a time, and its end: two full mailboxes."""


class Counter(Agent):
    took: list[str] = attrs.field(factory=list)

    @action
    def take(self, name: str) -> int:
        self.took.append(name)
        return len(self.took)


class Asker(Agent):
    """Asks itself, over the connection that the question came by."""

    others: ClassVar[list[Ref[Asker]]] = []

    @action(concurrency=100)
    async def ask_back(self, depth: int) -> int:
        return 1 + await self.others[0].invoke(Asker.ask_back, depth - 1) if depth else 0


@asynccontextmanager
async def served(*specs: ChildSpec[Any]) -> AsyncGenerator[tuple[Node, SocketPairs]]:
    network = SocketPairs()
    async with open_node(
        SupervisorSpec("root", list(specs)), listen=URL, network=network, insecure=True
    ) as node:
        yield node, network


def play(body: Any) -> None:
    async def in_time() -> None:
        with trio.fail_after(1000):
            await body()

    trio.run(in_time, clock=MockClock(autojump_threshold=0.02))


@pytest.mark.slow
@pytest.mark.parametrize("how", MOST)
def test_a_client_that_asks_one_at_a_time_waits_for_few_turns_of_a_greedy_one(how: str) -> None:
    async def body() -> None:
        async with (
            served(ChildSpec("counter", Counter)) as (server, network),
            open_node(network=network) as greedy,
            open_node(network=network) as modest,
            trio.open_nursery() as nursery,
        ):
            much = await greedy.consume(Counter, URL, thing="counter")
            little = await modest.consume(Counter, URL, thing="counter")

            async def flood() -> None:
                while True:
                    with suppress(MailboxFull):
                        await (much.tell if how == "one-way" else much.invoke)(Counter.take, "greedy")

            for _ in range(200 if how == "many at once" else 1):
                nursery.start_soon(flood)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            for _ in range(50):
                before, attempts = await server.find(Counter).invoke(Counter.take, "near"), 0
                while True:
                    attempts += 1
                    with suppress(MailboxFull):  # the mailbox is full of messages that cannot be displaced
                        after = await little.invoke(Counter.take, "modest")
                        break
                assert attempts <= 20
                assert after - before <= attempts * MOST[how]
            nursery.cancel_scope.cancel()

    play(body)


@pytest.mark.parametrize("depth", [1, 2, 7, 40])
def test_a_turn_asks_over_the_connection_that_its_own_question_came_by(depth: int) -> None:
    async def body() -> None:
        async with served(ChildSpec("asker", Asker)) as (node, _):
            far = await node.consume(Asker, URL, thing="asker")
            Asker.others[:] = [far]
            assert await far.invoke(Asker.ask_back, depth) == depth
            assert await far.invoke(Asker.ask_back, 0) == 0
            assert node.connections == 1

    play(body)


def test_one_way_messages_to_agents_that_are_gone_are_reported_and_hold_up_nobody() -> None:
    async def body() -> None:
        async with (
            served(ChildSpec("counter", Counter)) as (server, network),
            open_node(network=network) as client,
        ):
            for number in range(3):
                await server.start_child(ChildSpec(f"gone-{number}", Counter))
            gone = [await client.consume(Counter, URL, thing=f"gone-{number}") for number in range(3)]
            far = await client.consume(Counter, URL, thing="counter")
            for number in range(3):
                await server.root.terminate_child(f"gone-{number}")
                await server.root.delete_child(f"gone-{number}")
            for number in range(200):
                for ref in gone:
                    await ref.tell(Counter.take, str(number))
                await far.tell(Counter.take, str(number))
            assert await far.invoke(Counter.take, "last") == 201
            with pytest.raises(NotFound):
                await gone[0].invoke(Counter.take, "x")
            await trio.sleep(2)
            assert len(client.dead_letters) == 600
            memory = server.statistics().memory
            assert memory.bytes == 0

    play(body)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_cuts_in_mid_credit_of_many_connections_leave_nothing_and_carry_out_nothing_twice(seed: int) -> None:
    async def body() -> None:
        chance = random.Random(seed)
        names = [f"counter-{number}" for number in range(5)]
        tallies = {name: list[str]() for name in names}
        specs = [ChildSpec(name, partial(Counter, took=tallies[name])) for name in names]
        sent: dict[str, list[int]] = {}

        go, middle = trio.Event(), trio.Event()

        async def tell(network: SocketPairs, client: str, *, task_status: trio.TaskStatus[None]) -> None:
            async with open_node(network=network) as node:
                refs = {name: await node.consume(Counter, URL, thing=name) for name in names}
                task_status.started()
                await go.wait()
                for number in range(400):
                    name = chance.choice(names)
                    with suppress(AgentUnavailable, ConnectFailed):
                        await refs[name].tell(Counter.take, f"{client} {number}")
                        sent.setdefault(f"{name} {client}", []).append(number)
                    if number == 200:
                        middle.set()

        async with served(*specs) as (server, network):
            async with trio.open_nursery() as nursery:
                for client in range(30):
                    await nursery.start(tell, network, str(client))
                go.set()
                await middle.wait()
                network.cut()
            while server.connections:
                await wait_all_tasks_blocked(0.005)
            memory = server.statistics().memory
            assert (memory.bytes, memory.granted, memory.gave_way) == (0, 0, 0)
            for name in names:
                took: dict[str, list[int]] = {}
                for word in tallies[name]:
                    client_name, number = word.split()
                    took.setdefault(client_name, []).append(int(number))
                for client_name, numbers in took.items():
                    assert numbers == sorted(set(numbers))
                    assert set(numbers) <= set(sent[f"{name} {client_name}"])
            assert all(tallies.values())

    play(body)
