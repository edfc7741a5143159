"""Agents by wire names and plain data: `Thing`, acting as an agent, and a supervisor that has settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec import Struct

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    Event,
    InvalidInput,
    NotAllowed,
    NotFound,
    Property,
    SupervisorSpec,
    action,
    current_request,
    event,
    prop,
)
from lmos_actors.actors import ExitReason, Thing, acting_as
from lmos_actors.testing import open_test_node

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.simulation import VirtualClock


class Point(Struct, frozen=True):
    x: int
    y: int = 0


class Robot(Agent, rename="camel"):
    top_speed: Property[int] = prop(default=3)
    serial_number: Property[str] = prop(default="r2", read_only=True)
    has_moved: Event[Point] = event()

    @action
    def move_to(self, *, new_place: Point, wait_a_moment: bool = False) -> Point:
        self.has_moved.emit(new_place)
        return new_place

    @action
    def whole(self, point: Point, /) -> int:
        return point.x

    @action
    async def slowly(self) -> str:
        await trio.sleep(1)
        return "done"

    @action
    async def many(self) -> Any:
        yield 1

    @action
    def who(self) -> str | None:
        return current_request().consumer


async def answer(opening: AbstractAsyncContextManager[Any]) -> Any:
    async with opening as call:
        return await call.result()


async def test_every_verb_by_wire_names_and_plain_data(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        thing = Thing(await node.start(Robot))
        assert await answer(thing.reading("topSpeed")) == 3
        await answer(thing.writing("topSpeed", 4))
        async with thing.observe("topSpeed") as readings, thing.subscribe("hasMoved") as moves:
            assert await readings.receive() == 4
            assert await answer(thing.invoking("moveTo", {"newPlace": {"x": 1}})) == Point(1)
            await thing.tell("moveTo", {"newPlace": {"x": 2}, "waitAMoment": True})
            assert [await moves.receive(), await moves.receive()] == [Point(1), Point(2)]
        assert await answer(thing.invoking("whole", {"x": 7})) == 7
        assert await answer(thing.invoking("slowly")) == "done"


@pytest.mark.parametrize(
    ("name", "data", "path"),
    [
        ("moveTo", {"newPlace": {"x": "a"}}, "$.newPlace.x"),
        ("moveTo", {"new_place": {"x": 1}}, "$.new_place"),
        ("moveTo", {}, "$.newPlace"),
        ("moveTo", [1], "$"),
        ("whole", {"y": 1}, "$"),
        ("slowly", {"any": 1}, "$.any"),
    ],
)
async def test_an_input_that_does_not_fit_is_refused_and_counted(
    name: str, data: Any, path: str, virtual_clock: VirtualClock
) -> None:
    async with open_test_node() as node:
        ref = await node.start(Robot)
        with pytest.raises(InvalidInput) as caught:
            await answer(Thing(ref).invoking(name, data))
        assert caught.value.path == path
        assert (ref.statistics().accepted, ref.statistics().handled) == (1, 1)


async def test_what_is_not_there_is_not_found_with_the_nearest(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        thing = Thing(await node.start(Robot))
        with pytest.raises(NotFound, match="did you mean 'topSpeed'"):
            thing.reading("topSped")
        with pytest.raises(NotFound, match="no property 'moveTo'"):
            thing.writing("moveTo", 1)
        with pytest.raises(NotFound, match="did you mean 'moveTo'"):
            thing.invoking("moveToo")
        with pytest.raises(NotFound, match="no action 'topSpeed'"):
            thing.invoking("topSpeed")
        with pytest.raises(NotFound, match="no action 'many'"):
            thing.invoking("many")
        with pytest.raises(NotFound, match="did you mean 'hasMoved'"):
            thing.subscribe("hasMovd")
        with pytest.raises(NotFound):
            thing.invoking("?topSpeed")
        with pytest.raises(NotAllowed):
            await answer(thing.writing("serialNumber", "c3po"))


async def test_acting_as_an_agent_goes_as_far_as_its_block_and_its_life(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        robot, other = Thing(await node.start(Robot)), await node.start_child(ChildSpec("other", Robot))
        with acting_as(other):
            assert await answer(robot.invoking("who")) == "other"
        assert await answer(robot.invoking("who")) is None
        await node.root.terminate_child("other")
        with pytest.raises(AgentUnavailable, match="code cannot act as it"), acting_as(other):
            pytest.fail("it does not live")


async def test_a_call_knows_whether_it_stood_in_line(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        thing = Thing(await node.start(Robot))
        async with thing.invoking("slowly") as first, thing.invoking("slowly") as second:
            assert await second.result() == "done"
            assert (first.stood_in_line, second.stood_in_line) == (False, True)


async def test_a_supervisor_has_settled_when_those_above_have(virtual_clock: VirtualClock) -> None:
    crew = SupervisorSpec("crew", (ChildSpec("robot", Robot),), max_restarts=1)
    async with open_test_node(SupervisorSpec("root", (crew,))) as node:
        thing = Thing(node.find(Robot, "crew/robot"))
        supervisor = node.root.supervisor("crew")
        for crashes, lives in ((1, 1), (2, 2)):
            thing.slot.die(ExitReason("error", error=RuntimeError("x")))
            await supervisor.settled()
            assert thing.slot.statistics().state == "running"
            assert (thing.slot.statistics().restarts, supervisor.incarnation) == (crashes, lives)
