"""Restarts that come later than the supervisor's strategy has them, once."""

from __future__ import annotations

import pytest
import trio

from lmos_actors import Agent, ChildSpec, ExitReason, NotFound, SupervisorSpec, action, open_node, simulate
from lmos_actors.actors import Ref, slot_of


class Child(Agent):
    @action
    def leave(self) -> None:
        self.stop()


def crash(ref: Ref[Child]) -> None:
    slot_of(ref).die(ExitReason("error", error=ValueError("broken")))


def test_once_and_only_after_an_end_that_is_followed_by_a_restart() -> None:
    async def main() -> None:
        async with open_node(SupervisorSpec("root", max_restarts=100)) as node:
            root = node.root
            ref = await node.start_child(ChildSpec("child", Child, restart="transient"))
            root.postpone_restart("child", 9.0)
            root.postpone_restart("child", 3.0)  # the last word counts
            crash(ref)
            await root.settled()
            assert [info.status for info in root.which_children()] == ["restarting"]
            await ref.ready()
            assert trio.current_time() == 3.0
            crash(ref)
            await ref.ready()
            assert trio.current_time() == 3.0

            root.postpone_restart("child", 3.0)
            await ref.invoke(Child.leave)  # a normal end of a transient child is followed by none
            await root.restart_child("child")
            crash(ref)
            await ref.ready()
            assert trio.current_time() == 3.0

            root.postpone_restart("child", 3.0)
            await root.terminate_child("child")
            await root.restart_child("child")
            crash(ref)
            await ref.ready()
            assert trio.current_time() == 3.0

    simulate(main)


def test_a_child_that_is_stopped_while_it_waits_is_not_restarted() -> None:
    async def main() -> None:
        async with open_node() as node:
            ref = await node.start_child(ChildSpec("child", Child))
            node.root.postpone_restart("child", 3.0)
            crash(ref)
            await node.root.settled()
            await node.root.terminate_child("child")
            await trio.sleep(10)
            assert [info.status for info in node.root.which_children()] == ["stopped"]

    simulate(main)


def test_others_are_restarted_meanwhile() -> None:
    async def main() -> None:
        async with open_node() as node:
            refs = [await node.start_child(ChildSpec(name, Child)) for name in ("one", "two")]
            node.root.postpone_restart("one", 3.0)
            for ref in refs:
                crash(ref)
            await refs[1].ready()
            assert trio.current_time() == 0.0
            await refs[0].ready()
            assert trio.current_time() == 3.0

    simulate(main)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_only_times_are_taken(seconds: float) -> None:
    async def main() -> None:
        async with open_node() as node:
            await node.start_child(ChildSpec("child", Child))
            with pytest.raises(ValueError, match="number of seconds"):
                node.root.postpone_restart("child", seconds)
            with pytest.raises(NotFound):
                node.root.postpone_restart("nobody", 1.0)

    simulate(main)
