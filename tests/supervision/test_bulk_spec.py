"""`BulkSpec`: many agents of one spec that keep their number over all incarnations of their supervisor."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, StartFailed, SupervisorSpec, action, open_node
from lmos_actors.actors import Ref
from lmos_actors.errors import ConfigError, NotFound
from lmos_actors.simulation import simulate
from lmos_actors.supervision import BulkSpec, Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors.actors import Slot
    from lmos_actors.node import Node

STARTED: list[tuple[str, float]] = []


class Member(Agent):
    """Notes when it starts."""

    fails_at: str = ""

    def started(self) -> None:
        STARTED.append((self.path, trio.current_time()))
        if self.path == self.fails_at:
            raise OSError("no room")

    @action
    async def work(self) -> None:
        await trio.sleep(2)

    @action
    def boom(self) -> None:
        raise ValueError("boom")


class Slow(Agent):
    """Needs waiting to start."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        await trio.sleep(0.5)
        STARTED.append((self.path, trio.current_time()))
        yield


def bulk(count: int, factory: Any = Member, **more: Any) -> BulkSpec:
    return BulkSpec("peer", member=ChildSpec("peer", factory), count=count, **{"max_restarts": 99, **more})


def in_world(main: Callable[[Node], Awaitable[None]], **more: Any) -> None:
    async def world() -> None:
        async with open_node(**more) as node:
            await main(node)

    STARTED.clear()
    simulate(world)


async def start(node: Node, spec: BulkSpec) -> Supervisor:
    return await node.start_supervisor(spec)


def members(supervisor: Supervisor) -> tuple[Slot, ...]:
    assert supervisor.numbered is not None
    return supervisor.numbered


def test_members_are_numbered_and_found_by_number() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(12))
        assert [path for path, _ in STARTED] == [f"peer/{n}" for n in range(12)]
        assert [child.label for child in supervisor.children] == [str(n) for n in range(12)]
        assert supervisor.child("11") == Ref(members(supervisor)[11])
        assert node.find(Member, "peer/3").path == "peer/3"
        for name in ("12", "-1", "01", "x", "", "1_0", "٣", "9" * 5_000):
            with pytest.raises(NotFound):
                supervisor.child(name)

    in_world(main)


def test_a_member_is_restarted_in_its_place() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(3))
        await supervisor.child("1").tell(Member.boom)
        await supervisor.child("1").ready()
        await supervisor.settled()
        assert [slot.incarnation for slot in members(supervisor)] == [1, 2, 1]
        assert [child.label for child in supervisor.children] == ["0", "1", "2"]

    in_world(main)


def test_it_keeps_its_size_in_another_life() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(3, max_restarts=0))
        before = members(supervisor)
        await supervisor.child("1").tell(Member.boom)
        await trio.sleep(1)
        assert supervisor.incarnation == 2
        assert members(supervisor) is before
        assert [slot.incarnation for slot in before] == [2, 2, 2]
        assert [slot.status for slot in before] == ["running"] * 3

    in_world(main)


def test_who_listens_to_a_member_hears_it_in_another_life() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(2, max_restarts=0))
        async with supervisor.child("0").monitor() as downs:
            await supervisor.child("1").tell(Member.boom)
            await trio.sleep(1)
            await supervisor.child("0").tell(Member.boom)
            assert [(await downs.receive()).incarnation for _ in range(2)] == [1, 2]

    in_world(main)


def test_a_temporary_member_that_ended_stays_away() -> None:
    async def main(node: Node) -> None:
        spec = BulkSpec(
            "peer", member=ChildSpec("peer", Member, restart="temporary"), count=3, max_restarts=0
        )
        supervisor = await start(node, spec)
        await supervisor.child("1").tell(Member.boom)
        await trio.sleep(1)
        assert [child.label for child in supervisor.children] == ["0", "2"]
        with pytest.raises(NotFound):
            supervisor.child("1")

    in_world(main)


def test_starts_are_spread_evenly() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(4, over=2.0))
        await trio.lowlevel.checkpoint()
        assert [slot.status for slot in members(supervisor)] == ["running", *["stopped"] * 3]
        await trio.sleep(5)
        assert STARTED == [("peer/0", 0.0), ("peer/1", 0.5), ("peer/2", 1.0), ("peer/3", 1.5)]

    in_world(main)


def test_starts_that_need_waiting_are_spread_too() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(3, Slow, over=3.0))
        await trio.sleep(5)
        assert STARTED == [("peer/0", 0.5), ("peer/1", 1.5), ("peer/2", 2.5)]
        assert [slot.status for slot in members(supervisor)] == ["running"] * 3

    in_world(main)


def test_in_another_life_all_start_at_once() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(3, over=3.0, max_restarts=0))
        await trio.sleep(0.5)
        await supervisor.child("0").tell(Member.boom)
        await trio.sleep(5)
        assert STARTED[0] == ("peer/0", 0.0)
        assert STARTED[1:] == [(f"peer/{n}", 0.5) for n in range(3)]

    in_world(main)


def test_who_was_started_before_its_time_is_left_alone() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(3, over=3.0))
        await supervisor.restart_child("2")
        await trio.sleep(5)
        assert STARTED == [("peer/0", 0.0), ("peer/2", 0.0), ("peer/1", 1.0)]

    in_world(main)


def test_a_node_that_ends_starts_no_more() -> None:
    async def main(node: Node) -> None:
        await start(node, bulk(3, over=3.0))
        await trio.sleep(1.5)

    in_world(main)
    assert STARTED == [("peer/0", 0.0), ("peer/1", 1.0)]


def test_a_bulk_that_waits_for_members_to_end_starts_no_more() -> None:
    async def main(node: Node) -> None:
        supervisor = await start(node, bulk(3, over=3.0))
        await supervisor.child("0").tell(Member.work)
        await trio.sleep(0.5)

    in_world(main)
    assert STARTED == [("peer/0", 0.0)]


def test_a_start_that_fails_fails_the_bulk() -> None:
    made = lambda: Member(fails_at="peer/1")  # noqa: E731

    async def at_once(node: Node) -> None:
        with pytest.raises(StartFailed, match="peer/1 could not start: no room"):
            await node.start_supervisor(bulk(3, made))
        assert [path for path, _ in STARTED] == ["peer/0", "peer/1"]

    async def later(node: Node) -> None:
        await node.start_supervisor(bulk(3, made, over=3.0))
        await trio.sleep(9)

    in_world(at_once)
    with pytest.raises(StartFailed, match="peer/1 could not start"):
        in_world(later)
    assert STARTED[-1] == ("peer/1", 1.0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"count": -1}, "count"),
        ({"count": True}, "count"),
        ({"over": -0.1}, "over"),
        ({"over": float("inf")}, "over"),
        ({"member": SupervisorSpec("x")}, "member"),
    ],
)
def test_specs_that_are_wrong(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BulkSpec("peer", **{"member": ChildSpec("peer", Member), "count": 1, **wrong})
