"""Restarts, ends and requests that come at one time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ConfigError,
    SupervisorSpec,
    action,
)
from lmos_actors.testing import open_test_node

from .world import (
    Boom,
    Diary,
    Living,
    Worker,
    child,
    crash,
    living,
    run,
    settled,
    statuses,
    tree,
)

STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
KINDS = ("permanent", "transient", "temporary")


# ---- while something else happens


class Census(trio.abc.Instrument):
    """Counts how many tasks of a name there are, at most, at one time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._there = 0
        self.most = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self._there += task.name == self._name
        self.most = max(self.most, self._there)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._there -= task.name == self._name


def test_a_supervisor_that_ends_as_it_is_replaced_is_replaced_once():
    """It gives up in the very step in which its parent restarts it for a sibling's sake."""
    for seed in range(20):

        async def main() -> None:
            census = Census("supervisor s")
            trio.lowlevel.add_instrument(census)
            inner = tree(child("x"), child("y"), name="s", max_restarts=0)
            async with open_test_node(
                tree(inner, child("b"), strategy="one_for_all", max_restarts=5)
            ) as node:
                sup = node.root.supervisor("s")
                async with trio.open_nursery() as nursery:
                    for _ in range(3):  # leaves parked runners behind
                        nursery.start_soon(sup.child("x").invoke, Worker.sleep, 1.0)
                for ticks in range(6):
                    before = sup.incarnation
                    sup.child("x").tell_nowait(Worker.crash)
                    for _ in range(ticks):
                        await trio.lowlevel.checkpoint()
                    with suppress(AgentUnavailable):  # it may be down for the sake of its sibling
                        node.root.child("b").tell_nowait(Worker.crash)
                    await settled()
                    assert sup.incarnation - before in (1, 2)
                    assert statuses(node.root)["s"][0] == "running"
                    assert await sup.child("x").invoke(Worker.hello) == 0
                    assert await sup.child("x").invoke(Worker.sleep, 1.0) == 1.0
                    assert await sup.start_child(child("extra"))
                    await trio.sleep(100.0)
            assert census.most == 1

        run(main, seed=seed)


def test_a_supervisor_that_ends_as_it_is_terminated_can_be_restarted_at_once():
    for ticks in range(8):

        async def main() -> None:
            inner = tree(child("x"), name="s", max_restarts=0)
            async with open_test_node(tree(inner, max_restarts=5)) as node:
                root, sup = node.root, node.root.supervisor("s")
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(sup.child("x").invoke, Worker.sleep, 1.0)
                sup.child("x").tell_nowait(Worker.crash)
                for _ in range(ticks):  # noqa: B023
                    await trio.lowlevel.checkpoint()
                await root.terminate_child("s")
                await root.restart_child("s")
                await settled()
                assert statuses(root)["s"][0] == "running"
                assert await sup.child("x").invoke(Worker.hello) == 0
                assert await sup.child("x").invoke(Worker.sleep, 1.0) == 1.0

        run(main)


def test_requests_wait_for_a_restart_under_way():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(tree(child("a", living(diary, entering=5.0)))) as node:
            ref = node.root.child("a")
            await crash(ref)
            assert statuses(node.root)["a"][0] == "starting"
            other = await node.start_child(child("b"))
            assert trio.current_time() == 10.0
            assert await other.invoke(Worker.hello) == 0

    run(main)


def test_a_request_that_was_given_up_before_its_turn_is_not_carried_out():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(tree(child("a", living(diary, entering=5.0)), child("b"))) as node:
            await crash(node.root.child("a"))
            with trio.move_on_after(1.0) as scope:
                await node.root.terminate_child("b")
            assert scope.cancelled_caught
            await node.root.child("a").ready()
            await settled()
            assert statuses(node.root) == {"a": ("running", 2), "b": ("running", 1)}

    run(main)


def test_a_request_under_way_is_carried_out_though_its_asker_is_gone():
    diary = Diary()

    async def main() -> None:
        async with open_test_node() as node:
            with trio.move_on_after(1.0) as scope:
                await node.start_child(child("a", living(diary, entering=5.0)))
            assert scope.cancelled_caught
            await node.find(Living, "a").ready()
            assert trio.current_time() == 5.0
            assert statuses(node.root) == {"a": ("running", 1)}

    run(main)


def test_agents_start_and_stop_others_under_their_own_supervisor():
    class Boss(Worker):
        root: Any = None

        @action
        async def hire(self, name: str) -> str:
            ref = await self.root.start_child(child(name))
            return str(ref.path)

        @action
        async def fire(self, name: str) -> None:
            await self.root.terminate_child(name)
            await self.root.delete_child(name)

    async def main() -> None:
        async with open_test_node() as node:
            boss = await node.start_child(child("boss", partial(Boss, root=node.root)))
            assert await boss.invoke(Boss.hire, "w") == "w"
            await boss.invoke(Boss.fire, "w")
            assert list(statuses(node.root)) == ["boss"]

    run(main)


def test_an_agent_that_stops_in_its_first_turn_has_started():
    class Brief(Worker):
        def started(self) -> None:
            self.stop()

    async def main() -> None:
        async with open_test_node(tree(child("t", Brief, restart="transient"))) as node:
            await settled()
            assert statuses(node.root) == {"t": ("stopped", 1)}
            await node.start_child(child("gone", Brief, restart="temporary"))
            await settled()
            assert statuses(node.root) == {"t": ("stopped", 1)}

    run(main)


def test_a_supervisor_without_children_lives():
    async def main() -> None:
        async with open_test_node(tree(SupervisorSpec("empty"))) as node:
            ref = await node.root.supervisor("empty").start_child(child("a"))
            assert await ref.invoke(Worker.hello) == 0
            assert ref.path == "empty/a"

    run(main)


def test_an_agent_is_no_child_without_a_spec():
    class Plain(Agent):
        pass

    with pytest.raises(ConfigError):
        SupervisorSpec("root", [Plain])  # type: ignore[list-item]


def test_a_child_that_crashes_while_its_siblings_are_still_being_restarted():
    diary = Diary()

    class Weak(Worker):
        """Crashes half a second into its second life."""

        def started(self) -> None:
            if self.ref.statistics().incarnation == 2:
                self.after(0.5, self.crash_now)

        def crash_now(self) -> None:
            raise Boom

    async def main() -> None:
        spec = tree(child("a", Weak), child("b", living(diary, entering=1.0)), strategy="one_for_all")
        async with open_test_node(spec) as node:
            assert trio.current_time() == 1.0
            await crash(node.root.child("a"))
            await trio.sleep(1.0)
            await settled()
            assert statuses(node.root) == {"a": ("running", 3), "b": ("starting", 2)}
            await trio.sleep(10.0)
            assert statuses(node.root) == {"a": ("running", 3), "b": ("running", 3)}
            assert diary.lines == ["enter b", *["left b", "enter b"] * 2]

    run(main)


@pytest.mark.parametrize("shutdown", ["brutal", 10.0])
def test_a_child_that_is_terminated_while_it_unwinds_from_a_crash(shutdown: Any):
    async def main() -> None:
        async with open_test_node(tree(child("a", shutdown=shutdown))) as node:
            ref = node.root.child("a")
            ref.tell_nowait(Worker.stubborn, 3.0)
            await settled()
            await crash(ref)
            await trio.sleep(1.0)
            await node.root.terminate_child("a")
            assert trio.current_time() == 3.0
            await trio.sleep(10.0)
            assert statuses(node.root) == {"a": ("stopped", 1)}
            assert node.root.statistics().restarts == 0
            await node.root.restart_child("a")
            assert await ref.invoke(Worker.hello) == 0

    run(main)
