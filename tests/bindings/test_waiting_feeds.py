"""Memory of remote values that wait for slow receivers here: counted, bounded with all else, given back."""

from __future__ import annotations

import json
import random
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, ChildSpec, Event, Gap, Node, Property, Ref, action, event, open_node, prop
from lmos_actors._core import SMALL, Budget, LooseAccount
from lmos_actors.transport import ConnectionOptions, MemoryNetwork
from tests.bindings.http_client.test_link import KINDS, fetch
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from lmos_actors.actors import Feed

SIZE = 100_000
LIMIT = 1 << 20


class Press(Agent):
    issued: Event[str] = event()
    latest: Property[str] = prop(default="")

    @action
    def issue(self, number: int) -> None:
        self.issued.emit(f"{number:04}" + "n" * SIZE)

    @action
    def write(self, number: int) -> None:
        self.latest = f"{number:04}" + "n" * SIZE


@asynccontextmanager
async def listening_node(path: Path | None = None) -> AsyncGenerator[tuple[Ref[Press], Node, Ref[Press]]]:
    """Serve a press; give it, a node with little memory, and the press as that node knows it."""
    network = MemoryNetwork()
    async with (
        open_node(listen="ws://server", network=network) as server,
        open_node(network=network, connection=ConnectionOptions(total_bytes=LIMIT)) as client,
    ):
        press = await server.start_child(ChildSpec("press", Press))
        url = "http://server/agents/press"
        if path is not None:
            found = json.loads((await fetch(network, url, None))[0])
            for owner in (found, *(each for kind in KINDS for each in found.get(kind, {}).values())):
                forms = owner.get("forms", ())
                owner["forms"] = [form for form in forms if form.get("subprotocol") != "lmosprotocol"]
            await trio.Path(path).write_text(json.dumps(found))
        far = await client.consume(Press, url if path is None else path)
        await far.ready()
        yield press, client, far


async def issue(press: Ref[Press], client: Node, count: int) -> None:
    for number in range(count):
        await press.invoke(Press.issue, number)
        await wait_all_tasks_blocked()
        assert client.statistics().memory.bytes <= LIMIT


async def taken(feed: Feed[Any]) -> tuple[list[int], int]:
    """Take all that waits: the numbers of the events, and how many the gaps say are missing."""
    numbers, missed = list[int](), 0
    while True:
        try:
            news = feed.receive_nowait()
        except trio.WouldBlock:
            return numbers, missed
        if isinstance(news, Gap):
            assert news.missed is not None
            missed += news.missed
        else:
            numbers.append(int(news[:4]))


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_slow_receiver_holds_no_more_than_the_budget(autojump_clock: object, *, gaps: bool) -> None:
    async with listening_node() as (press, client, far):
        async with far.subscribe(Press.issued, gaps=gaps) as feed:
            await issue(press, client, 5)
            assert 5 * SIZE <= client.statistics().memory.bytes < 6 * SIZE
            numbers, missed = await taken(feed)
            assert (numbers, missed, feed.missed) == ([*range(5)], 0, 0)
            assert client.statistics().memory.bytes == 0
            await issue(press, client, 60)
            assert client.statistics().memory.gave_way >= 1
            numbers, missed = await taken(feed)
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == 59
            assert len(numbers) + feed.missed == 60
            assert missed == (feed.missed if gaps else 0)
            assert client.statistics().memory.bytes == 0
            await issue(press, client, 3)
            assert client.statistics().memory.bytes >= 3 * SIZE
        assert client.statistics().memory.bytes == 0


async def test_the_greediest_feed_gives_way_and_others_miss_nothing(autojump_clock: object) -> None:
    async with (
        listening_node() as (press, _, far),
        far.subscribe(Press.issued, gaps=True) as slow,
        far.subscribe(Press.issued, gaps=True) as fast,
    ):
        for number in range(40):
            await press.invoke(Press.issue, number)
            await wait_all_tasks_blocked()
            assert await taken(fast) == ([number], 0)
        numbers, missed = await taken(slow)
        assert missed
        assert len(numbers) + missed == 40


async def test_of_a_property_the_latest_reading_counts(autojump_clock: object) -> None:
    async with listening_node() as (press, client, far), far.observe(Press.latest) as feed:
        for number in range(20):
            await press.invoke(Press.write, number)
            await wait_all_tasks_blocked()
        assert SIZE <= client.statistics().memory.bytes < 2 * SIZE
        assert await taken(feed) == ([19], 0)
        assert client.statistics().memory.bytes == 0


async def test_events_over_http_count(autojump_clock: object, tmp_path: Path) -> None:
    async with listening_node(tmp_path / "press.td.json") as (press, client, far):
        async with far.subscribe(Press.issued, gaps=True) as feed:
            await issue(press, client, 30)
            assert client.statistics().memory.gave_way >= 1
            numbers, missed = await taken(feed)
            assert len(numbers) + missed == 30
        await wait_all_tasks_blocked()
        assert client.statistics().memory.bytes < SIZE


@pytest.mark.parametrize("seed", few_or_all(range(3), range(10)))
async def test_whatever_happens_to_a_feed_the_sums_are_right(autojump_clock: object, seed: int) -> None:
    chance = random.Random(seed)
    size, gaps = chance.randint(1, 15), chance.random() < 0.5
    async with listening_node() as (press, client, far):
        async with far.subscribe(Press.issued, size=size, gaps=gaps) as feed:
            pushed, got = 0, 0
            for _ in range(100):
                if chance.random() < 0.7:
                    await press.invoke(Press.issue, pushed)
                    await wait_all_tasks_blocked()
                    pushed += 1
                else:
                    with suppress(trio.WouldBlock):
                        got += not isinstance(feed.receive_nowait(), Gap)
                held = SIZE * (pushed - got - feed.missed)
                assert abs(client.statistics().memory.bytes - held) < SMALL + 1500 * size
        assert client.statistics().memory.bytes == 0


def test_a_loose_account_counts_in_steps_and_goes_on_after_an_eviction() -> None:
    budget = Budget(100_000, lambda: 0.0)
    gone: deque[int] = deque()
    held = 0

    def give_way() -> None:
        nonlocal held
        gone.append(held)
        loose.add(-held)
        held = 0

    loose = LooseAccount(budget, give_way)
    for _ in range(250):
        held += 1000
        loose.add(1000)
        assert budget.statistics().bytes <= held < budget.statistics().bytes + SMALL or not held
    assert len(gone) == 2
    loose.add(-held)
    assert budget.statistics().bytes == 0
    loose.add(50_000)
    loose.close()
    loose.add(50_000)
    assert budget.statistics().bytes == 0
