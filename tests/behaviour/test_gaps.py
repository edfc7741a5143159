"""A slow listener that is told of gaps: one gap, then the newest that fit; the same wherever it listens."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, AgentDied, ChildSpec, Event, Gap, SupervisorSpec, action, event, open_node
from lmos_actors.actors import set_service_time
from lmos_actors.bindings import fetch
from lmos_actors.cli.remote._subscriptions import event_subscription
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.server_connections import serving
from tests.bindings.web import Web
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors import Ref

THING = "http://server/agents/weather"
HOUR = 3600.0


class Bell(Agent):
    """Rings with a number."""

    rang: Event[int] = event()

    @action
    def ring(self, number: int) -> None:
        self.rang.emit(number)

    @action
    def crash(self) -> None:
        raise KeyError("crash")


@attrs.frozen
class Ear:
    """A listener: the bell that it hears, and what takes the next thing heard, None if there is none."""

    bell: Ref[Bell]
    take: Callable[[], Awaitable[Any]]


def from_feed(feed: Any) -> Callable[[], Awaitable[Any]]:
    async def take() -> Any:
        await wait_all_tasks_blocked()
        try:
            return feed.receive_nowait()
        except trio.WouldBlock:
            return None

    return take


# ---- where one can listen


@asynccontextmanager
async def near(_: Path) -> AsyncGenerator[Ear]:
    async with open_node() as node:
        bell = await node.start(Bell)
        async with bell.subscribe(Bell.rang, gaps=True) as feed:
            yield Ear(bell, from_feed(feed))


@asynccontextmanager
async def near_all(_: Path) -> AsyncGenerator[Ear]:
    async with open_node() as node:
        bell = await node.start(Bell)
        async with bell.subscribe_all(gaps=True) as feed:
            take = from_feed(feed)

            async def data() -> Any:
                found = await take()
                return found if found is None or isinstance(found, Gap) else found.data

            yield Ear(bell, data)


@asynccontextmanager
async def following(_: Path) -> AsyncGenerator[Ear]:
    """An agent that is busy for an hour with each message, which the listener takes by letting it go by."""
    heard: list[Any] = []

    class Follower(Agent):
        def started(self) -> None:
            self.follow(self.find(Bell), Bell.rang, heard.append, on_gap=heard.append)

    async with open_node() as node:
        bell, follower = await node.start(Bell), await node.start(Follower)
        set_service_time(follower, HOUR)

        async def take() -> Any:
            await wait_all_tasks_blocked()
            await trio.sleep(HOUR)
            await wait_all_tasks_blocked()
            assert len(heard) <= 1
            return heard.pop() if heard else None

        yield Ear(bell, take)


@asynccontextmanager
async def two() -> AsyncGenerator[tuple[Ref[Bell], Any, Any]]:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("weather", Bell)])
    async with (
        open_node(tree, listen="ws://server", network=network) as server,
        open_node(network=network) as client,
    ):
        yield server.find(Bell), client, network


@asynccontextmanager
async def far(_: Path) -> AsyncGenerator[Ear]:
    async with two() as (bell, client, _network):
        ref = await client.consume(Bell, THING)
        async with ref.subscribe(Bell.rang, gaps=True) as feed:
            yield Ear(bell, from_feed(feed))


@asynccontextmanager
async def sse(path: Path) -> AsyncGenerator[Ear]:
    async with two() as (bell, client, network):
        text, _ = await fetch(network, THING, None)
        await trio.Path(path / "bell.td.json").write_text(only_web(text))
        ref = await client.consume(Bell, path / "bell.td.json")
        async with ref.subscribe(Bell.rang, gaps=True) as feed:
            yield Ear(bell, from_feed(feed))


@asynccontextmanager
async def listen_command(_: Path) -> AsyncGenerator[Ear]:
    """`lmos-actors listen` with an output that takes one line when the test does."""
    send, lines = trio.open_memory_channel[Any](0)

    class AnswerPrinter:
        async def print(self, *said: Any) -> None:
            for each in said:
                await send.send(each.members)

        def note(self, text: str) -> None:
            pass

    class RemoteSession:
        answers: Any = AnswerPrinter()
        thing: Any = None

        def about(self, kind: str, name: str) -> None:
            pass

    async with two() as (bell, client, _network), trio.open_nursery() as nursery:
        session: Any = RemoteSession()
        session.thing = await client.consume_thing(THING)
        nursery.start_soon(event_subscription("rang", None), session)

        async def take() -> Any:
            await wait_all_tasks_blocked()
            try:
                line = lines.receive_nowait()
            except trio.WouldBlock:
                return None
            return Gap(line["gap"], line["missed"]) if "gap" in line else line["data"]

        await wait_all_tasks_blocked()
        yield Ear(bell, take)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def slow_socket(_: Path) -> AsyncGenerator[Ear]:
    """A connection that takes one frame when the test does."""
    async with open_node() as node:
        bell = await node.start_child(ChildSpec("weather", Bell))
        async with serving(node) as server:
            line = await server.line()
            line.put("subscribeEvent", event="rang", gaps=True)
            await wait_all_tasks_blocked()

            async def take() -> Any:
                await wait_all_tasks_blocked()
                for frame in line.handler.frames(1):
                    told = json.loads(frame)
                    if told["messageType"] == "gap":
                        return Gap(told["reason"], told.get("missed"))
                    return told["data"]
                return None

            yield Ear(bell, take)


@asynccontextmanager
async def slow_sse(_: Path) -> AsyncGenerator[Ear]:
    """A stream of events over a connection that holds little, of which the test reads one at a time."""
    network = MemoryNetwork(buffer=512)
    tree = SupervisorSpec("root", [ChildSpec("weather", Bell)])
    async with open_node(tree, listen="ws://here:80", network=network) as node:
        web = Web(await network.connect(endpoint_of("ws://here:80"), None))
        await web.listen("events/rang")

        async def take() -> Any:
            found = None
            with trio.move_on_after(1):
                found = await web.heard()
            if found is None:
                return None
            return Gap(**found.data) if found.name == "lmosx:gap" else found.data

        yield Ear(node.find(Bell), take)
        await web.leave()


def only_web(text: bytes) -> str:
    """Leave out of a description what is for LMOS."""
    found = json.loads(text)
    for owner in (found, *found["actions"].values(), *found["events"].values()):
        owner["forms"] = [form for form in owner["forms"] if form.get("subprotocol") != "lmosprotocol"]
    return json.dumps(found)


WORLDS = [near, near_all, following, far, sse, listen_command, slow_socket, slow_sse]


async def heard_slowly(ear: Ear, numbers: int, each: int) -> list[Any]:
    """Ring so often, the listener taking one thing after each so many; then take what is left."""
    heard: list[Any] = []
    for number in range(numbers):
        await ear.bell.invoke(Bell.ring, number)
        if number % 32 == 31:
            await wait_all_tasks_blocked()  # what carries events is not slow, but the listener
        if number % each == each - 1:
            heard.append(await ear.take())
    while (found := await ear.take()) is not None:
        heard.append(found)
    return [each for each in heard if each is not None]


def check_places(heard: list[Any], total: int) -> None:
    """Check that nothing came twice or out of order, and that each gap counts what is missing there."""
    expected = 0
    for each in heard:
        if isinstance(each, Gap):
            assert each.reason == "slow consumer"
            assert each.missed
            expected += each.missed
        else:
            assert each == expected
            expected += 1
    assert expected == total


world = pytest.mark.parametrize("where", WORLDS, ids=lambda where: where.__name__)


@world
@pytest.mark.parametrize("each", few_or_all([10], [2, 10, 100]))
async def test_a_slow_listener_hears_values_and_few_gaps(
    autojump_clock: object, tmp_path: Path, where: Any, each: int
) -> None:
    async with where(tmp_path) as ear:
        heard = await heard_slowly(ear, 3000, each)
    check_places(heard, 3000)
    gaps = sum(isinstance(each, Gap) for each in heard)
    assert 1 <= gaps <= len(heard) / 20


@world
async def test_one_that_stands_still_hears_one_gap_and_the_newest(
    autojump_clock: object, tmp_path: Path, where: Any
) -> None:
    async with where(tmp_path) as ear:
        heard = await heard_slowly(ear, 2000, 100_000)
    check_places(heard, 2000)
    gaps = [place for place, each in enumerate(heard) if isinstance(each, Gap)]
    assert 1 <= len(gaps) <= (2 if where is slow_sse else 1)  # a first one may be on its way by then
    newest = heard[gaps[-1] + 1 :]
    assert newest == [*range(2000 - len(newest), 2000)]
    assert len(newest) >= 64


@world
async def test_one_that_keeps_up_hears_no_gap(autojump_clock: object, tmp_path: Path, where: Any) -> None:
    async with where(tmp_path) as ear:
        assert await heard_slowly(ear, 300, 1) == [*range(300)]


@world
async def test_the_end_of_an_incarnation_keeps_its_place(
    autojump_clock: object, tmp_path: Path, where: Any
) -> None:
    async with where(tmp_path) as ear:
        for number in range(3):
            await ear.bell.invoke(Bell.ring, number)
        with pytest.raises(AgentDied):
            await ear.bell.invoke(Bell.crash)
        await ear.bell.ready()
        for number in range(3, 6):
            await ear.bell.invoke(Bell.ring, number)
        heard = [await ear.take() for _ in range(7)]
        assert heard[:3] + heard[4:] == [*range(6)]
        assert heard[3] == Gap("KeyError: 'crash'")
        assert await ear.take() is None
