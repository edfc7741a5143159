"""Events to many who listen over connections: what is the same for all is written once."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from trio.testing import wait_all_tasks_blocked

from lmos_actors import (
    Agent,
    ChildSpec,
    Event,
    Pool,
    Property,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.bindings.exposure import _shared_values
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.server_connections import Line, serving
from tests.bindings.web import Web

if TYPE_CHECKING:
    from lmos_actors import Node

HERE = "ws://here:80"


class Reading(msgspec.Struct):
    """Can be changed by whoever has it: each near listener gets a copy."""

    values: list[int]


class Station(Agent):
    units: Property[str] = prop(default="celsius")
    fixed: Event[tuple[int, ...]] = event()
    loose: Event[Reading] = event()
    odd: Event[Any] = event()

    @action
    def tell(self, count: int) -> None:
        self.fixed.emit(tuple(range(count)))

    @action
    def tell_loosely(self, count: int) -> None:
        self.loose.emit(Reading([*range(count)]))

    @action
    def tell_what_is_equal(self) -> None:
        for value in (1, True, 1.0, "", False):
            self.odd.emit(value)


@pytest.fixture
def writings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been written as JSON for those who listen."""
    found: list[Any] = []
    written = _shared_values.written

    def count(value: Any) -> bytes:
        found.append(value)
        return written(value)

    monkeypatch.setattr(_shared_values, "written", count)
    return found


async def readers(stack: AsyncExitStack, network: MemoryNetwork, number: int, path: str) -> list[Web]:
    found = []
    for _ in range(number):
        web = Web(await network.connect(endpoint_of(HERE), None), "/agents/station")
        stack.push_async_callback(web.leave)
        await web.listen(path)
        found.append(web)
    await wait_all_tasks_blocked()
    return found


async def heard(webs: list[Web]) -> list[Any]:
    found = []
    for web in webs:
        told = await web.heard()
        assert told is not None
        found.append(told.data)
    return found


@pytest.mark.parametrize("place", ["events/fixed", "events"])
async def test_many_readers_cost_one_writing(autojump_clock: object, writings: list[Any], place: str) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("station", Station)])
    async with open_node(tree, listen=HERE, network=network) as node, AsyncExitStack() as stack:
        station = node.find(Station)
        webs = await readers(stack, network, 20, place)
        for count in (3, 4):
            await station.invoke(Station.tell, count)
        assert await heard(webs) == [[0, 1, 2]] * 20
        assert await heard(webs) == [[0, 1, 2, 3]] * 20
        assert len(writings) == 2


@pytest.mark.parametrize("place", ["events/loose", "events"])
async def test_what_can_be_changed_is_written_once_and_copied_for_those_who_may(
    autojump_clock: object, writings: list[Any], place: str
) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("station", Station)])
    async with open_node(tree, listen=HERE, network=network) as node, AsyncExitStack() as stack:
        station = node.find(Station)
        webs = await readers(stack, network, 10, place)
        async with station.subscribe(Station.loose) as one, station.subscribe(Station.loose) as other:
            await station.invoke(Station.tell_loosely, 2)
            first, second = await one.receive(), await other.receive()
            first.values.append(99)
            assert second.values == [0, 1]
        assert await heard(webs) == [{"values": [0, 1]}] * 10
        assert len(writings) == 1


async def test_a_changed_property_is_written_once(autojump_clock: object, writings: list[Any]) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("station", Station)])
    async with open_node(tree, listen=HERE, network=network) as node, AsyncExitStack() as stack:
        webs = await readers(stack, network, 10, "properties/units/observable")
        everything = await readers(stack, network, 5, "properties")
        assert await heard([*webs, *everything]) == ["celsius"] * 15
        writings.clear()
        await node.find(Station).write(Station.units, "kelvin")
        assert await heard([*webs, *everything]) == ["kelvin"] * 15
        assert writings == ["kelvin"]


async def lines_of(node: Node, number: int, kinds: list[str], stack: AsyncExitStack) -> list[Line]:
    server = await stack.enter_async_context(serving(node))
    lines = []
    for place in range(number):
        line = await server.line()
        kind = kinds[place % len(kinds)]
        if kind == "all":
            line.put("subscribeAllEvents", thingID="station")
        elif kind == "Id":
            line.handler.text(
                json.dumps(
                    {
                        "messageType": "subscribeEvent",
                        "thingId": "station",
                        "messageId": "m",
                        "event": "fixed",
                    }
                )
            )
        else:
            line.put("subscribeEvent", thingID="station", event="fixed" if kind == "one" else kind)
        lines.append(line)
    await wait_all_tasks_blocked()
    for line in lines:
        line.take()
    return lines


@pytest.mark.parametrize("kinds", [["one"], ["all"], ["Id"], ["one", "all", "Id"]])
async def test_many_sockets_cost_one_writing_in_every_spelling(writings: list[Any], kinds: list[str]) -> None:
    async with open_node() as node, AsyncExitStack() as stack:
        station = await node.start_child(ChildSpec("station", Station))
        lines = await lines_of(node, 12, kinds, stack)
        await station.invoke(Station.tell, 3)
        told = [line.take() for line in lines]
        assert [one["data"] for (one,) in told] == [[0, 1, 2]] * 12
        assert {one["event"] for (one,) in told} == {"fixed"}
        assert len({one.get("messageID") or one["messageId"] for (one,) in told}) == 12
        assert len(writings) == 1


@pytest.mark.parametrize("kind", ["loose", "all"])
async def test_what_can_be_changed_is_written_once_for_sockets(writings: list[Any], kind: str) -> None:
    async with open_node() as node, AsyncExitStack() as stack:
        station = await node.start_child(ChildSpec("station", Station))
        lines = await lines_of(node, 8, [kind], stack)
        await station.invoke(Station.tell_loosely, 2)
        assert [one["data"] for line in lines for one in line.take()] == [{"values": [0, 1]}] * 8
        assert len(writings) == 1


@pytest.mark.parametrize("kind", ["odd", "all"])
async def test_values_that_are_equal_are_not_the_same(kind: str) -> None:
    async with open_node() as node, AsyncExitStack() as stack:
        station = await node.start_child(ChildSpec("station", Station))
        lines = await lines_of(node, 3, [kind], stack)
        await station.invoke(Station.tell_what_is_equal)
        for line in lines:
            assert [repr(one["data"]) for one in line.take()] == ["1", "True", "1.0", "''", "False"]


async def test_a_slow_socket_is_told_the_same(writings: list[Any]) -> None:
    async with open_node() as node, AsyncExitStack() as stack:
        station = await node.start_child(ChildSpec("station", Station))
        lines = await lines_of(node, 2, ["one"], stack)
        for count in range(100):
            await station.invoke(Station.tell, count)
        for line in lines:
            assert [one["data"] for one in line.take()] == [[*range(count)] for count in range(100)]
        assert len(writings) == 100


async def test_one_alone_is_written_as_it_ever_was(writings: list[Any]) -> None:
    async with open_node() as node, AsyncExitStack() as stack:
        station = await node.start_child(ChildSpec("station", Station))
        (line,) = await lines_of(node, 1, ["one"], stack)
        await station.invoke(Station.tell, 3)
        ((one,),) = [line.take()]
        assert one["data"] == [0, 1, 2]
        assert writings == []


async def test_the_members_of_a_pool_are_written_once(autojump_clock: object, writings: list[Any]) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [Pool(Station, 2, name="station")])
    async with open_node(tree, listen=HERE, network=network) as node, AsyncExitStack() as stack:
        webs = await readers(stack, network, 6, "events/loose")
        pool = node.find(Station, "station")
        async with pool.subscribe(Station.loose) as one, pool.subscribe(Station.loose) as other:
            await pool.invoke(Station.tell_loosely, 2)
            first, second = await one.receive(), await other.receive()
            first.values.append(99)
            assert second.values == [0, 1]
        assert await heard(webs) == [{"values": [0, 1]}] * 6
        assert len(writings) == 1
