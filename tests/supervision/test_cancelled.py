"""A cancellation at every single step of what a supervisor is asked, and of opening a node.

Whatever the step, afterwards the tree is in order, every resource that was taken has been given back,
nobody waits for ever, and everything still works.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import AgentUnavailable, NotFound, StartFailed
from lmos_actors.errors import NameTaken, WrongState
from lmos_actors.testing import open_test_node

from .world import Boom, Diary, Fussy, Worker, child, crash, living, run, settled, statuses, tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MOST_STEPS = 400


class Axe(trio.abc.Instrument):
    """Cancels its scope at the n-th step of any task from now on."""

    def __init__(self, step: int) -> None:
        self.scope = trio.CancelScope()
        self._left = step
        self.fell = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self.fell = True
            self.scope.cancel("the axe fell")

    async def over(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        """Run `fn` under the axe; give its value, or None if it was cancelled."""
        trio.lowlevel.add_instrument(self)
        try:
            with self.scope:
                return await fn()
        finally:
            trio.lowlevel.remove_instrument(self)


def at_every_step(scenario: Callable[[Axe], Awaitable[None]], *, least: int, seed: int = 0) -> None:
    """Run a scenario again and again, cancelled one step later each time, until it is not cancelled."""
    for step in range(1, MOST_STEPS):
        axe = Axe(step)
        run(partial(scenario, axe), seed=seed)
        if not axe.fell:
            assert step > least, "there were hardly any steps to be cancelled at"
            return
    raise AssertionError(f"it takes more than {MOST_STEPS} steps")


def balanced(diary: Diary) -> None:
    """What was entered has been left, never twice at one time."""
    held: set[str] = set()
    for line in diary.lines:
        verb, path = line.split()
        if verb == "enter":
            assert path not in held
            held.add(path)
        elif verb == "left":
            held.remove(path)
    assert held == set()


async def still_works(node: Any, *, others: int = 1) -> None:
    """Everything that was there before is there, the supervisor does its work, nothing hangs half started."""
    await settled()
    await trio.sleep(100.0)
    assert {status for status, _ in statuses(node.root).values()} <= {"running", "stopped"}
    for info in node.root.which_children():
        if info.status == "running" and info.kind == "agent":
            assert await node.root.child(info.name).invoke(Worker.hello) == 0
    probe = await node.start_child(child("probe"))
    await crash(probe)
    assert statuses(node.root)["probe"] == ("running", 2)
    assert await probe.invoke(Worker.hello) == 0


@pytest.mark.parametrize("waits", [False, True])
def test_start_child(waits: bool):
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        made = living(diary, entering=1.0, leaving=1.0) if waits else Worker
        async with open_test_node(tree(child("a", living(diary)))) as node:
            ref = await axe.over(partial(node.start_child, child("b", made)))
            await still_works(node)
            if ref is not None:
                assert statuses(node.root)["b"] == ("running", 1)
            else:
                try:  # whether or not it came to be, its name is as `which_children` says
                    await node.start_child(child("b", made))
                    assert "b" in statuses(node.root)
                except NameTaken:
                    assert statuses(node.root)["b"] == ("running", 1)
        balanced(diary)

    at_every_step(scenario, least=3 if waits else 0)


@pytest.mark.parametrize("waits", [False, True])
def test_start_many(waits: bool):
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        made = living(diary, entering=1.0) if waits else Worker
        async with open_test_node(tree(child("a", living(diary)))) as node:
            refs = await axe.over(partial(node.root.start_many, child("w", made), 4))
            await still_works(node)
            there = [name for name in statuses(node.root) if name.startswith("w-")]
            assert there in ([], [f"w-{n}" for n in range(1, 5)])
            assert refs is None or len(there) == 4
            assert len(await node.root.start_many(child("w", made), 2)) == 2
        balanced(diary)

    at_every_step(scenario, least=10 if waits else 0)


def test_start_many_that_fails():
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        makers = iter([living(diary, entering=1.0), living(diary), living(diary, enter_error=Boom("no"))])

        def made() -> Any:
            return next(makers)()

        async with open_test_node(tree(child("a", living(diary)))) as node:

            async def ask() -> None:
                with pytest.raises(StartFailed):
                    await node.root.start_many(child("w", made), 3)

            await axe.over(ask)
            await still_works(node)
            assert set(statuses(node.root)) == {"a", "probe"}
        balanced(diary)

    at_every_step(scenario, least=8)


def test_start_supervisor():
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        spec = tree(
            child("x", living(diary, entering=1.0)),
            tree(child("y", living(diary, leaving=1.0)), name="t"),
            child("z", living(diary, entering=1.0)),
            name="s",
        )
        async with open_test_node(tree(child("a", living(diary)))) as node:
            await axe.over(partial(node.start_supervisor, spec))
            await still_works(node)
            if "s" in statuses(node.root):
                sup = node.root.supervisor("s")
                assert [info.status for info in sup.which_children()] == ["running"] * 3
                assert await sup.supervisor("t").child("y").invoke(Worker.hello) == 0
        balanced(diary)

    at_every_step(scenario, least=10)


@pytest.mark.parametrize("shutdown", [2.0, "brutal", "infinity"])
def test_terminate_child(shutdown: Any):
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        spec = tree(child("a", living(diary)), child("b", living(diary, leaving=1.0), shutdown=shutdown))
        answers: list[str] = []

        async def ask(ref: Any) -> None:
            try:
                answers.append(str(await ref.invoke(Worker.sleep, 5.0)))
            except Exception as exc:
                answers.append(type(exc).__name__)

        async with trio.open_nursery() as nursery, open_test_node(spec) as node:
            ref = node.root.child("b")
            nursery.start_soon(ask, ref)
            await settled()
            await axe.over(partial(node.root.terminate_child, "b"))
            await still_works(node)
            assert len(answers) == 1
            if statuses(node.root)["b"][0] == "stopped":
                with pytest.raises(AgentUnavailable):
                    await ref.invoke(Worker.hello)
                await node.root.restart_child("b")
            assert await ref.invoke(Worker.hello) == 0
        balanced(diary)

    at_every_step(scenario, least=3)


def test_restart_child_and_delete_child():
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        async with open_test_node(tree(child("a"), child("b", living(diary, entering=1.0)))) as node:
            ref = node.root.child("b")
            await node.root.terminate_child("b")

            async def ask() -> None:
                await node.root.restart_child("b")
                await node.root.terminate_child("b")
                await node.root.delete_child("b")

            await axe.over(ask)
            await still_works(node)
            status = statuses(node.root).get("b")
            if status is None:
                with pytest.raises(NotFound):
                    await ref.invoke(Worker.hello)
            elif status[0] == "stopped":
                await node.root.restart_child("b")
                assert await ref.invoke(Worker.hello) == 0
        balanced(diary)

    at_every_step(scenario, least=6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fails", [False, True])
def test_open_node(fails: bool, seed: int):
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        last = [child("bad", partial(Fussy, plan=[Boom("no")]))] if fails else []
        spec = tree(
            child("a", living(diary, entering=1.0, leaving=1.0)),
            tree(child("x", living(diary, entering=1.0)), child("y"), name="s"),
            child("b", living(diary, leaving=1.0)),
            *last,
        )
        done = False

        async def use() -> None:
            nonlocal done
            try:
                async with open_test_node(spec) as node:
                    assert not fails
                    assert await node.root.child("a").invoke(Worker.hello) == 0
                    await node.root.child("b").invoke(Worker.sleep, 1.0)
                    await crash(node.root.supervisor("s").child("x"))
                    await node.root.child("b").invoke(Worker.sleep, 1.0)
            except StartFailed:
                assert fails
            done = True

        await axe.over(use)
        assert done or axe.fell
        assert trio.lowlevel.current_task().child_nurseries == []
        balanced(diary)
        entered = [line[6:] for line in diary.lines if line.startswith("enter")]
        left = [line[5:] for line in diary.lines if line.startswith("left")]
        if len(set(entered)) == len(entered):  # no restart
            assert left == entered[::-1]

    at_every_step(scenario, least=20, seed=seed)


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_a_node_that_is_cancelled_while_children_restart(strategy: Any):
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        inner = tree(
            child("x", living(diary, entering=1.0, leaving=1.0)),
            child("y", living(diary, entering=1.0, leaving=1.0)),
            name="s",
            strategy=strategy,
        )
        async with open_test_node(tree(child("a"), name="outer")) as outer:  # the node beside is untouched

            async def use() -> None:
                async with open_test_node(tree(inner)) as node:
                    await crash(node.root.supervisor("s").child("x"))
                    await trio.sleep(20.0)

            await axe.over(use)
            assert await outer.root.child("a").invoke(Worker.sleep, 1.0) == 1.0
        balanced(diary)

    at_every_step(scenario, least=20)


def test_a_supervisor_terminated_at_every_step_of_a_restart():
    """Not the asker is cancelled here, but what the supervisor is about."""
    outcomes: set[tuple[str, ...]] = set()
    for ticks in range(40):

        async def main() -> None:
            diary = Diary()
            inner = tree(
                child("x", living(diary)), child("y", living(diary)), name="s", strategy="one_for_all"
            )
            async with open_test_node(tree(inner, child("b"))) as node:
                sup = node.root.supervisor("s")
                x = sup.child("x")
                x.tell_nowait(Worker.crash)
                for _ in range(ticks):  # noqa: B023
                    await trio.lowlevel.checkpoint()
                await node.root.terminate_child("s")
                assert statuses(node.root) == {"s": ("stopped", 1), "b": ("running", 1)}
                assert set(statuses(sup).values()) <= {("stopped", 1), ("stopped", 2)}
                balanced(diary)
                outcomes.add(tuple(diary.lines))
                with pytest.raises(WrongState):
                    await sup.restart_child("x")
                await node.root.restart_child("s")
                assert await x.invoke(Worker.hello) == 0
            balanced(diary)

        run(main)
    assert len(outcomes) >= 3
