"""Memory of events that wait for slow readers: counted once, bounded with all else, given back."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, ChildSpec, Event, Gap, SupervisorSpec, action, event, open_node
from lmos_actors._core import SMALL
from lmos_actors.actors import Backlog
from lmos_actors.transport import ConnectionOptions, MemoryNetwork, endpoint_of
from tests.bindings.server_connections import Line, serving
from tests.bindings.web import Web
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lmos_actors._core import Budget

HERE = "ws://here:80"


PLACE = 256
"""Bytes that an event takes in a queue beside its JSON."""


class Reader:
    """A slow reader with one backlog."""

    def __init__(self, sharing: Any, size: int = 64) -> None:
        self.memory = sharing.reader(self.drop)
        self.backlog = Backlog(size, self.memory)
        self.got = self.missed = 0

    def drop(self) -> None:
        self.backlog.drop_all()

    def take(self) -> None:
        news = self.backlog.popleft()
        if isinstance(news, Gap):
            self.missed += news.missed or 0
        else:
            self.got += 1

    def take_all(self) -> None:
        while self.backlog:
            self.take()


@asynccontextmanager
async def sharing_up_to(limit: int) -> AsyncGenerator[tuple[Any, Budget]]:
    """Make what the connections of a server share, and its budget."""
    async with open_node() as node, serving(node) as server:
        server.server.context.budget.limit = limit
        yield server.server.context.sharing, server.server.context.budget


def emit(readers: Sequence[Reader], sharing: Any, size: int) -> None:
    value = sharing.of("x" * (size - 2))
    for reader in readers:
        reader.backlog.append(value)


async def test_an_event_counts_once_however_many_readers_it_waits_for() -> None:
    async with sharing_up_to(1 << 30) as (sharing, budget):
        readers = [Reader(sharing) for _ in range(10)]
        for _ in range(20):
            emit(readers, sharing, 100_000)
        assert 0 <= 20 * 100_000 + 10 * 20 * PLACE - budget.statistics().bytes < 10 * SMALL
        for reader in readers[:9]:
            reader.take_all()
        assert budget.statistics().bytes == 20 * 100_000 + 20 * PLACE
        readers[9].take_all()
        assert budget.statistics().bytes == 0


async def test_what_a_full_backlog_drops_or_replaces_is_given_back() -> None:
    async with sharing_up_to(1 << 30) as (sharing, budget):
        reader = Reader(sharing, size=4)
        for _ in range(50):
            emit([reader], sharing, 10_000)
        assert budget.statistics().bytes == 4 * (10_000 + PLACE)
        reader.backlog.replace_latest(sharing.of("x" * 4_998))
        assert budget.statistics().bytes == 3 * 10_000 + 5_000 + 4 * PLACE
        reader.memory.close()
        assert budget.statistics().bytes == 0


async def test_readers_of_one_backlog_give_way_together_and_others_keep_theirs(
    autojump_clock: object,
) -> None:
    async with sharing_up_to(1_000_000) as (sharing, budget):
        slow, other, fast = [Reader(sharing) for _ in range(500)], Reader(sharing), Reader(sharing)
        emit([other], sharing, 50_000)
        await trio.sleep(1)
        for number in range(40):
            emit([*slow, fast], sharing, 50_000 if number < 10 else 10_000)
            fast.take_all()
            assert budget.statistics().bytes <= 1_000_000
        assert 1 <= budget.statistics().gave_way <= 3  # and not once for each reader
        assert (fast.got, fast.missed) == (40, 0)
        other.take_all()
        assert (other.got, other.missed) == (1, 0)
        for reader in slow:
            reader.take_all()
            assert reader.missed
            assert reader.got + reader.missed == 40
        assert budget.statistics().bytes == 0


async def test_an_event_larger_than_the_budget_is_a_gap() -> None:
    async with sharing_up_to(100_000) as (sharing, budget):
        readers = [Reader(sharing) for _ in range(3)]
        emit(readers, sharing, 150_000)
        for reader in readers:
            reader.take_all()
            assert (reader.got, reader.missed) == (0, 1)
        emit(readers, sharing, 50_000)
        for reader in readers:
            reader.take_all()
            assert (reader.got, reader.missed) == (1, 1)
        assert budget.statistics().bytes == 0


@pytest.mark.parametrize("seed", few_or_all(range(8), range(30)))
async def test_whatever_readers_do_the_sums_are_right(seed: int) -> None:
    chance = random.Random(seed)
    async with sharing_up_to(chance.choice((300_000, 1 << 30))) as (sharing, budget):
        readers = [Reader(sharing, size=chance.randint(1, 8)) for _ in range(6)]
        emitted = dict.fromkeys(readers, 0)
        for _ in range(400):
            some = chance.sample(readers, chance.randint(1, len(readers)))
            match chance.randrange(4):
                case 0 | 1:
                    hearing = [reader for reader in some for _ in range(chance.choice((1, 1, 2)))]
                    emit(hearing, sharing, chance.choice((10, 5_000, 40_000)))
                    for reader in hearing:  # twice, where it has two subscriptions
                        emitted[reader] += 1
                case 2:
                    for reader in some:
                        if reader.backlog:
                            reader.take()
                case _:
                    some[0].take_all()
            waiting = [
                event
                for reader in readers
                for event in (*reader.backlog._promised, *reader.backlog._newest)
                if not isinstance(event, Gap)
            ]
            held = sum(event.size() for event in set(waiting)) + PLACE * len(waiting)
            assert abs(budget.statistics().bytes - held) < SMALL * len(readers)
            assert budget.statistics().bytes <= budget.limit
        for reader in readers:
            reader.take_all()
            assert reader.got + reader.missed == emitted[reader]
        assert budget.statistics().bytes == 0


# ---- over connections


class Press(Agent):
    issued: Event[str] = event()

    @action
    def issue(self, number: int, size: int) -> None:
        self.issued.emit(f"{number:06}" + "n" * size)


EVENTS = 90
SIZE = 50_000
LIMIT = 2 << 20
WINDOW = 10_000
SPARE = 1.5
"""Bytes of memory for each byte of JSON that waits, at most: msgspec leaves room behind what it writes, which
the budget does not count."""
UNDER_WAY = 2 * SIZE + WINDOW
"""Bytes under way to one reader, which are not charged: an event as a frame, the same as it is sent or as it
is decoded, and what the network holds."""


async def listen(stack: AsyncExitStack, network: MemoryNetwork, count: int, path: str) -> list[Web]:
    found: list[Web] = []
    for _ in range(count):
        web = Web(await network.connect(endpoint_of(HERE), None), "/agents/press")
        stack.push_async_callback(web.leave)
        await web.listen(path)
        found.append(web)
    return found


class Heard:
    """What a reader has heard: numbers of events, and how many were missed."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.missed = 0
        self.all = trio.Event()

    async def read(self, web: Web) -> None:
        while len(self.numbers) + self.missed < EVENTS:
            heard = await web.heard()
            assert heard is not None
            if heard.name == "lmosx:gap":
                self.missed += heard.data["missed"]
            else:
                self.numbers.append(int(heard.data[:6]))
        self.all.set()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["events/issued", "events"])
async def test_many_slow_readers_of_large_events_hold_no_more_than_the_budget(
    autojump_clock: object, path: str
) -> None:
    network = MemoryNetwork(WINDOW)
    tree = SupervisorSpec("root", [ChildSpec("press", Press)])
    narrow = ConnectionOptions(total_bytes=LIMIT)
    async with (
        open_node(tree, listen=HERE, network=network, connection=narrow) as node,
        AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
    ):
        press = node.find(Press)
        slow = await listen(stack, network, 10, path)
        fast = await listen(stack, network, 3, path)
        ears = [Heard() for _ in fast]
        for ear, web in zip(ears, fast, strict=True):
            nursery.start_soon(ear.read, web)
        await wait_all_tasks_blocked()
        tracemalloc.start()
        for number in range(EVENTS):
            await press.invoke(Press.issue, number, SIZE)
            await trio.sleep(0.01)
            assert node.statistics().memory.bytes <= LIMIT
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < SPARE * LIMIT + (10 + 3) * UNDER_WAY
        for ear in ears:
            await ear.all.wait()
            assert ear.numbers == [*range(EVENTS)]
        assert node.statistics().memory.gave_way > 0
        for web in slow:
            late = Heard()
            await late.read(web)
            assert late.missed
            assert late.numbers == sorted(set(late.numbers))
            assert len(late.numbers) + late.missed == EVENTS
        await wait_all_tasks_blocked()
        assert node.statistics().memory.bytes == 0


async def test_readers_that_leave_give_back_what_waited_for_them(autojump_clock: object) -> None:
    network = MemoryNetwork(1000)
    tree = SupervisorSpec("root", [ChildSpec("press", Press)])
    async with open_node(tree, listen=HERE, network=network) as node, AsyncExitStack() as stack:
        webs = await listen(stack, network, 10, "events/issued")
        for number in range(40):
            await node.find(Press).invoke(Press.issue, number, SIZE)
            await wait_all_tasks_blocked()
        # each sends two events that are its own by then; the others are there once
        held = node.statistics().memory.bytes
        assert 38 * SIZE < held < (40 + 10 * 3) * SIZE
        for web in webs:
            await web.leave()
        await wait_all_tasks_blocked()
        assert node.statistics().memory.bytes == 0


def sums(frames: list[dict[str, Any]]) -> tuple[list[int], int]:
    """The numbers of the events among some messages, and how many are missing."""
    numbers = [int(one["data"][:6]) for one in frames if "data" in one]
    gaps = [one["missed"] for one in frames if "data" not in one]
    return numbers, sum(gaps)


@pytest.mark.parametrize(
    "kinds", [("subscribeEvent",), ("subscribeAllEvents",), ("subscribeEvent", "subscribeAllEvents")]
)
async def test_many_slow_sockets_hold_no_more_than_the_budget(kinds: tuple[str, ...]) -> None:
    async with open_node() as node, serving(node) as server:
        press = await node.start_child(ChildSpec("press", Press))
        budget = server.server.context.budget
        budget.limit = 20 * SIZE
        lines: list[Line] = []
        for _ in range(12):
            line = await server.line(offered=("lmosprotocol",))
            for kind in kinds:
                name = {"event": "issued"} if kind == "subscribeEvent" else {}
                line.put(kind, thingID="press", gaps=True, **name)
            lines.append(line)
        await wait_all_tasks_blocked()
        for line in lines:
            line.take()
        slow, fast = lines[:10], lines[10:]
        heard = dict.fromkeys(fast, 0)
        for number in range(EVENTS):
            await press.invoke(Press.issue, number, SIZE)
            await wait_all_tasks_blocked()
            assert budget.statistics().bytes <= budget.limit
            for line in fast:
                numbers, missed = sums(line.take())
                assert (numbers, missed) == ([number] * len(kinds), 0)
                heard[line] += len(numbers)
        assert budget.statistics().gave_way > 0
        for line in slow:
            numbers, missed = sums(line.take())
            assert missed
            assert len(numbers) + missed == EVENTS * len(kinds)
        assert budget.statistics().bytes == 0
        for line in lines:
            line.leave()


async def test_sockets_that_leave_give_back_what_waited_for_them() -> None:
    async with open_node() as node, serving(node) as server:
        press = await node.start_child(ChildSpec("press", Press))
        lines = [await server.line() for _ in range(5)]
        for line in lines:
            line.put("subscribeEvent", thingID="press", event="issued")
        await wait_all_tasks_blocked()
        for number in range(40):
            await press.invoke(Press.issue, number, SIZE)
        held = server.server.context.budget.statistics().bytes
        assert 30 * SIZE < held < 41 * SIZE
        lines[0].put("unsubscribeEvent", thingID="press", event="issued")
        await wait_all_tasks_blocked()
        for line in lines[1:]:
            line.leave()
        await wait_all_tasks_blocked()
        lines[0].leave()
        await wait_all_tasks_blocked()
        assert server.server.context.budget.statistics().bytes == 0
