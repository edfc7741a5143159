"""Agents of one node that stand for agents of many: what a network does to their requests."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Event,
    Gap,
    NotAllowed,
    OutcomeUnknown,
    Property,
    Ref,
    action,
    event,
    open_node,
    prop,
    simulate,
)
from lmos_actors.links import LinkFault, LinkRules, Links, between_sides
from lmos_actors.simulation import TraceLog
from lmos_actors.simulation.network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node
    from lmos_actors.simulation.network import Delivery

LATENCY = 0.05
TRIP = 2 * LATENCY


class Counter(Agent):
    """Is asked by agents of other nodes."""

    value: Property[int] = prop(default=0)
    changed: Event[int] = event()
    begun: int = 0

    @action
    def add(self, by: int) -> int:
        self.value += by
        self.changed.emit(self.value)
        return self.value

    @action(idempotent=True)
    async def slowly(self) -> int:
        self.begun += 1
        await trio.sleep(70)
        return self.begun

    @action
    async def items(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    @action
    def how_often(self) -> int:
        return self.begun


class Shelf(Agent):
    """Keeps what it is told."""

    kept: list[Any]

    @action
    def keep(self, text: str, number: float, count: int, sure: bool | None = None) -> None:
        self.kept.append((text, number, count, sure))

    @action
    def keep_list(self, items: list[int]) -> None:
        items.append(0)
        self.kept.append(items)


class Asker(Agent):
    """Does what a test has it do, as an agent of its own node."""

    counter: Ref[Counter]
    jobs: Any

    @action(concurrency=100)
    async def carry_out(self, number: int) -> None:
        self.jobs[number] = await self.jobs[number](self.counter)


class Follower(Agent):
    """Hears what another agent counts."""

    counter: Ref[Counter]
    heard: list[Any]

    def started(self) -> None:
        self.follow(self.counter, Counter.changed, self.heard.append, on_gap=self.miss)

    def miss(self, gap: Gap) -> None:
        self.heard.append(gap.reason)


@attrs.frozen
class World:
    node: Node
    network: SimulatedNetwork
    counter: Ref[Counter]
    """Near."""
    asker: Ref[Asker]
    log: TraceLog
    jobs: dict[int, Any]

    async def as_asker(self, what: Callable[[Ref[Counter]], Awaitable[Any]]) -> Any:
        number = len(self.jobs)
        self.jobs[number] = what
        await self.asker.invoke(Asker.carry_out, number)
        return self.jobs[number]

    @asynccontextmanager
    async def cut(self, *, after: float = 0.0) -> AsyncGenerator[int]:
        await trio.sleep(after)
        number = self.network.begin(LinkFault(selects=between_sides([["asker"], ["counter"]]), cuts=True))
        yield number
        self.network.heal(number)


def run(
    body: Callable[[World], Awaitable[None]],
    *,
    delivery: Delivery = "stream",
    node_of: Callable[[str], str] = str,
    **rules: Any,
) -> TraceLog:
    log = TraceLog()

    async def main() -> None:
        async with open_node(instrument=None) as node:
            rt = node.root.rt
            given = LinkRules(**{"latency": lambda _: LATENCY, **rules})
            made = Links(lambda *_: given, rt.entropy.stream)
            network = SimulatedNetwork(rt, made, node_of, delivery=delivery)
            counter = await node.start_child(ChildSpec("counter", Counter))
            jobs: dict[int, Any] = {}
            made_asker = lambda: Asker(counter=network.ref(counter), jobs=jobs)  # noqa: E731
            asker = await node.start_child(ChildSpec("asker", made_asker))
            with trio.fail_after(10_000):
                await body(World(node, network, counter, asker, log, jobs))

    simulate(main, log=log)
    return log


def test_a_request_takes_two_ways() -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> float:
            began = trio.current_time()
            assert await counter.invoke(Counter.add, 2) == 2
            return trio.current_time() - began

        assert await world.as_asker(ask) == pytest.approx(TRIP)

    run(body)


def test_agents_of_one_node_are_near() -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> float:
            began = trio.current_time()
            assert await counter.invoke(Counter.add, 2) == 2
            return trio.current_time() - began

        assert await world.as_asker(ask) == 0

    run(body, node_of=lambda _: "one")


def test_refs_are_equal_whoever_uses_them() -> None:
    async def body(world: World) -> None:
        assert world.network.ref(world.counter) == world.counter

    run(body)


@pytest.mark.parametrize("lasts", [1.0, 2.0])
def test_a_short_cut_is_a_delay(lasts: float) -> None:
    async def body(world: World) -> None:
        found: list[float] = []

        async def ask(counter: Ref[Counter]) -> None:
            began = trio.current_time()
            assert await counter.invoke(Counter.add, 1) == 1
            found.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery, world.cut():
            nursery.start_soon(world.as_asker, ask)
            await trio.sleep(lasts)
        assert lasts < found[0] < 3 * lasts + TRIP

    run(body)


@pytest.mark.parametrize("after", [0.0, 5.0, 19.9, 35.0])
def test_a_long_cut_ends_what_is_open_and_is_over_after_a_while(after: float) -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> list[str]:
            began, told = trio.current_time(), list[str]()
            with pytest.raises(OutcomeUnknown):
                await counter.invoke(Counter.add, 1)
            assert trio.current_time() - began == 5
            with pytest.raises(AgentUnavailable, match="no connection to counter") as caught:
                await counter.invoke(Counter.add, 1)
            assert caught.value.retry_in is not None
            await counter.ready()
            assert await counter.invoke(Counter.add, 1) == 1  # what was held is gone with its connection
            return told

        async with trio.open_nursery() as nursery, world.cut(after=after):
            nursery.start_soon(world.as_asker, ask)
            await trio.sleep(100)

    log = run(body)
    told = [line for line in log.lines() if '"kind":"network"' in line]
    assert [("disconnected" in line, "connected" in line) for line in told] == [(True, True), (False, True)]


def test_a_run_is_cancelled_with_its_connection_unless_its_caller_comes_back() -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> int:
            return await counter.retrying(seconds=1_000).invoke(Counter.slowly)

        found: list[int] = []

        async def ask_and_keep() -> None:
            found.append(await world.as_asker(ask))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_and_keep)
            await trio.sleep(1)
            world.network.disconnect(lambda *_: True)
        assert found == [1]  # the second attempt has joined the first
        assert await world.counter.invoke(Counter.how_often) == 1

    run(body)


def test_listeners_get_a_gap_and_hear_again() -> None:
    async def body(world: World) -> None:
        async def listen(counter: Ref[Counter]) -> list[Any]:
            heard: list[Any] = []
            async with counter.subscribe(Counter.changed, gaps=True) as feed:
                async for each in feed:
                    heard.append(each if isinstance(each, int) else type(each))
                    if each == 3:
                        break
            return heard

        found: list[Any] = []

        async def keep() -> None:
            found.extend(await world.as_asker(listen))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            await trio.sleep(1)
            await world.counter.invoke(Counter.add, 1)
            await trio.sleep(1)
            world.network.disconnect(lambda *_: True)
            await world.counter.invoke(Counter.add, 1)  # nobody there hears it
            await trio.sleep(10)
            await world.counter.invoke(Counter.add, 1)
        assert found == [1, Gap, 3]

    run(body)


@pytest.mark.parametrize(
    ("node_of", "expected"),
    [(str, [1, "connection lost", 3]), (lambda _: "one", [1, 2, 3])],
    ids=["far", "near"],
)
def test_a_follower_hears_over_the_network(node_of: Callable[[str], str], expected: list[Any]) -> None:
    async def body(world: World) -> None:
        heard: list[Any] = []
        made = lambda: Follower(counter=world.network.ref(world.counter), heard=heard)  # noqa: E731
        await world.node.start_child(ChildSpec("follower", made))
        await trio.sleep(1)
        await world.counter.invoke(Counter.add, 1)
        await trio.sleep(1)
        world.network.disconnect(lambda *_: True)
        await world.counter.invoke(Counter.add, 1)
        await trio.sleep(10)
        await world.counter.invoke(Counter.add, 1)
        await trio.sleep(1)
        assert heard == expected

    run(body, node_of=node_of)


def test_one_way_messages_are_held_to_a_credit() -> None:
    async def body(world: World) -> None:
        async def tell(counter: Ref[Counter]) -> float:
            began = trio.current_time()
            for _ in range(600):
                await counter.tell(Counter.add, 1)
            return trio.current_time() - began

        taken = await world.as_asker(tell)
        assert taken == pytest.approx(2 * TRIP)  # 256 each time, and a way back of the credit
        await trio.sleep(1)
        assert await world.counter.read(Counter.value) == 600

    run(body)


def test_one_way_messages_are_lost_with_their_connection_and_give_their_credit_back() -> None:
    async def body(world: World) -> None:
        kept: list[Any] = []
        shelf = world.network.ref(await world.node.start_child(ChildSpec("shelf", partial(Shelf, kept=kept))))

        async def tell(counter: Ref[Counter]) -> None:
            for number in range(100):
                await counter.tell(Counter.add, 1)
                await shelf.tell(Shelf.keep, "", 0.0, number)

        async def tell_more(counter: Ref[Counter]) -> float:
            began = trio.current_time()
            for number in range(256):
                await counter.tell(Counter.add, 1)
                await shelf.tell(Shelf.keep, "", 0.0, number)
            return trio.current_time() - began

        await world.as_asker(tell)
        assert world.network.disconnect(lambda *_: True) == 1
        await trio.sleep(10)
        letters = [(each.agent, each.sender) for each in world.node.dead_letters]
        assert letters == [(path, "asker") for path in ("counter", "shelf") for _ in range(100)]
        assert await world.as_asker(tell_more) == 0
        await trio.sleep(10)
        assert await world.counter.read(Counter.value) == len(kept) == 256
        assert await world.as_asker(tell_more) == 0

    run(body, node_of=lambda path: "here" if path == "asker" else "there")


def test_a_pair_of_nodes_that_has_talked_once_takes_little_memory() -> None:
    pairs, found = 200, list[int]()

    async def body(world: World) -> None:
        kept: list[Any] = []
        shelves = [
            world.network.ref(
                await world.node.start_child(ChildSpec(f"shelf-{number}", partial(Shelf, kept=kept)))
            )
            for number in range(pairs)
        ]

        async def tell(_: object) -> None:
            for shelf in shelves:
                await shelf.tell(Shelf.keep, "", 0.0, 0)

        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await world.as_asker(tell)
        await trio.sleep(0.5)  # all have come, and their credit has not gone back
        gc.collect()
        found.append((tracemalloc.get_traced_memory()[0] - before) // pairs)
        assert len(kept) == pairs

    tracemalloc.start()
    try:
        run(body)
    finally:
        tracemalloc.stop()
    assert found[0] < 4_000


def test_datagrams_get_lost_and_come_twice() -> None:
    async def body(world: World) -> None:
        async def tell(counter: Ref[Counter]) -> int:
            lost = 0
            for _ in range(200):
                await counter.tell(Counter.add, 1)
                try:
                    await counter.within(1.0).invoke(Counter.add, 0)
                except DeadlineExceeded:
                    lost += 1
            return lost

        lost = await world.as_asker(tell)
        assert 60 < lost < 130  # of both ways a quarter
        value = await world.counter.read(Counter.value)
        assert 180 < value < 260  # three quarters, and of these two fifths twice

    log = run(body, delivery="datagram", loss=0.25, duplicate=0.4)
    assert sum('"what":"lost"' in line for line in log.lines()) > 50
    assert sum('"what":"doubled"' in line for line in log.lines()) > 50


@pytest.mark.parametrize(("delivery", "times"), [("datagram", 2), ("stream", 1)])
def test_each_one_way_message_has_values_of_its_own(delivery: Delivery, times: int) -> None:
    async def body(world: World) -> None:
        kept: list[Any] = []
        shelf = world.network.ref(await world.node.start(Shelf, kept=kept))

        async def tell(_: object) -> None:
            items = [1, 2]
            await shelf.tell(Shelf.keep, "ü\u2028", 3, 10**40)
            await shelf.tell(Shelf.keep, "", -0.0, -1, True)
            await shelf.tell(Shelf.keep_list, items)
            items.append(3)

        await world.as_asker(tell)
        await trio.sleep(1)
        told = ("ü\u2028", 3.0, 10**40, None), ("", -0.0, -1, True), [1, 2, 0]
        assert repr(kept) == repr([each for each in told for _ in range(times)])

    run(body, delivery=delivery, duplicate=1.0)


def test_a_datagram_meets_the_line_as_it_is_when_it_is_sent() -> None:
    async def body(world: World) -> None:
        async def tell(counter: Ref[Counter]) -> None:
            await counter.tell(Counter.add, 1)
            async with world.cut():
                await counter.tell(Counter.add, 10)
            await counter.tell(Counter.add, 100)

        await world.as_asker(tell)
        await trio.sleep(1)
        assert await world.counter.read(Counter.value) == 101

    run(body, delivery="datagram")


def test_a_doubled_request_runs_once() -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> list[int]:
            return [await counter.within(1.0).invoke(Counter.add, 1) for _ in range(20)]

        assert await world.as_asker(ask) == list(range(1, 21))

    run(body, delivery="datagram", duplicate=1.0)


NOT_ALONE: dict[str, Callable[[Ref[Counter]], Any]] = {
    "begin": lambda counter: counter.begin(Counter.slowly),
    "stream": lambda counter: counter.stream(Counter.items, 3),
    "subscribe": lambda counter: counter.subscribe(Counter.changed),
    "observe": lambda counter: counter.observe(Counter.value),
    "monitor": lambda counter: counter.monitor(),
}


@pytest.mark.parametrize("verb", NOT_ALONE)
def test_datagrams_carry_single_messages(verb: str) -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> None:
            with pytest.raises(NotAllowed, match="needs `delivery: stream`"):
                async with NOT_ALONE[verb](counter):
                    pass

        await world.as_asker(ask)

    run(body, delivery="datagram")


def test_what_may_get_lost_is_not_waited_for_without_a_deadline() -> None:
    async def body(world: World) -> None:
        async def ask(counter: Ref[Counter]) -> int:
            with pytest.raises(NotAllowed, match="may get lost, and is waited for without a deadline"):
                await counter.invoke(Counter.add, 1)
            with trio.fail_after(1):
                return await counter.invoke(Counter.add, 1)

        assert await world.as_asker(ask) == 1

    run(body, delivery="datagram")


def test_a_slow_line_holds_its_sender_back() -> None:
    async def body(world: World) -> None:
        async def tell(counter: Ref[Counter]) -> float:
            began = trio.current_time()
            for _ in range(30):
                await counter.tell(Counter.add, 1)
            return trio.current_time() - began

        # a message takes a third of a second, and ten of them wait for the line
        assert 6 < await world.as_asker(tell) < 7.5

    run(body, bandwidth=1_000, queue=3_300)


def test_the_same_seed_gives_the_same_log() -> None:
    async def body(world: World) -> None:
        async def tell(counter: Ref[Counter]) -> None:
            for _ in range(50):
                await counter.tell(Counter.add, 1)

        await world.as_asker(tell)
        await trio.sleep(10)

    def log() -> str:
        return run(body, loss=0.3, jitter=lambda random: random.uniform(0, 0.1)).digest()

    assert log() == log()
