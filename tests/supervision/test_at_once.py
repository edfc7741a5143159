"""Requests that need no waiting are carried out in the asker's step, and others still get their turn."""

from __future__ import annotations

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Down, NotFound, SupervisorSpec, action, open_node

PASSES = 640


class Idle(Agent):
    @action
    def ping(self) -> None:
        pass

    @action
    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)


async def test_others_run_while_one_starts_and_stops_children_without_end() -> None:
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with open_node() as node, trio.open_nursery() as nursery:
        supervisor = await node.start_supervisor(SupervisorSpec("group"))
        nursery.start_soon(count)
        for number in range(PASSES):
            await supervisor.start_child(ChildSpec(f"idle{number}", Idle))
        started = passes
        for number in range(PASSES):
            await supervisor.terminate_child(f"idle{number}")
        nursery.cancel_scope.cancel()
    assert started >= PASSES // 64 // 2
    assert passes - started >= PASSES // 64 // 2


async def test_a_cancelled_asker_stops_nobody() -> None:
    async with open_node() as node:
        ref = await node.root.start_child(ChildSpec("idle", Idle))
        with trio.CancelScope() as scope:
            scope.cancel()
            await node.root.terminate_child("idle")
        assert scope.cancelled_caught
        await ref.invoke(Idle.ping)


async def test_an_agent_at_rest_stops_as_any_other() -> None:
    async with open_node() as node:
        kept = await node.root.start_child(ChildSpec("kept", Idle))
        gone = await node.root.start_child(ChildSpec("gone", Idle, restart="temporary"))
        await node.root.terminate_child("kept")
        await node.root.terminate_child("gone")
        assert kept.statistics().state == "down"
        assert [child.name for child in node.root.which_children()] == ["kept"]
        with pytest.raises(NotFound):
            await gone.invoke(Idle.ping)
        await node.root.restart_child("kept")
        await kept.invoke(Idle.ping)


async def test_one_that_is_listened_to_or_at_work_is_waited_for(autojump_clock: trio.abc.Clock) -> None:
    async with open_node() as node, trio.open_nursery() as nursery:
        ref = await node.root.start_child(ChildSpec("busy", Idle))
        async with ref.monitor() as downs:
            nursery.start_soon(ref.invoke, Idle.wait, 2.0)
            await trio.sleep(1)
            await node.root.terminate_child("busy")
            assert trio.current_time() == pytest.approx(2)
            down = await downs.__anext__()
            assert isinstance(down, Down)
            assert str(down.reason) == "shutdown"


async def test_a_stop_that_takes_time_is_carried_out_even_if_its_asker_leaves(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with open_node() as node, trio.open_nursery() as nursery:
        ref = await node.root.start_child(ChildSpec("busy", Idle))
        nursery.start_soon(ref.invoke, Idle.wait, 2.0)
        await trio.sleep(0.5)
        with trio.move_on_after(0.5):
            await node.root.terminate_child("busy")
        await node.root.restart_child("busy")
        assert trio.current_time() == pytest.approx(2)
        await ref.invoke(Idle.ping)
