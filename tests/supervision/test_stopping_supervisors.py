"""How whole supervisors are stopped: in time, half started, with requests under way, twice."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from lmos_actors import AgentDied, AgentUnavailable, Backoff, action, open_node
from lmos_actors.errors import WrongState
from lmos_actors.testing import open_test_node

from .world import Diary, Living, Worker, child, crash, living, run, settled, statuses, tree

HOUR = 3600.0
FOREVER = float("inf")


async def outcome(ref: Any, handle: Any, *args: Any, into: list[str]) -> None:
    try:
        into.append(f"value {await ref.invoke(handle, *args)}")
    except AgentDied as exc:
        into.append(f"died {exc.reason} started={exc.started}")
    except AgentUnavailable as exc:
        into.append(f"unavailable started={exc.started}")


class Serial(Worker, serial=True):
    """One thing at a time: what comes during a run waits."""


# ---- supervisors


@pytest.mark.parametrize(("shutdown", "ended"), [(3.0, 3.0), ("brutal", 0.0), ("infinity", 50.0)])
@pytest.mark.parametrize("hang", ["run", "lifespan"])
def test_a_supervisor_has_its_shutdown_time_for_all_below_it(shutdown: Any, ended: float, hang: str):
    diary = Diary()

    async def main() -> None:
        made = living(diary, leaving=50.0) if hang == "lifespan" else Worker
        inner = tree(child("a", made, shutdown="infinity"), name="inner")
        outer = tree(inner, child("b"), name="outer", shutdown=shutdown)
        answers: list[str] = []
        async with trio.open_nursery() as nursery, open_test_node(tree(outer)) as node:
            sup = node.root.supervisor("outer")
            ref = sup.supervisor("inner").child("a")
            if hang == "run":
                nursery.start_soon(partial(outcome, ref, Worker.sleep, 50.0, into=answers))
                await settled()
            await node.root.terminate_child("outer")
            assert trio.current_time() == ended
            assert statuses(node.root) == {"outer": ("stopped", 1)}
            await node.root.restart_child("outer")
            assert await ref.invoke(Worker.hello) == 0
        assert statuses(sup) == {"inner": ("stopped", 2), "b": ("stopped", 2)}

    run(main)


def test_a_supervisor_stopped_while_a_restart_is_under_way():
    """Its child hangs while it enters its lifespan: it is cancelled, and what it holds given back."""
    diary = Diary()

    class Slow(Living):
        def __attrs_post_init__(self) -> None:
            self.entering = FOREVER if "enter s/a" in self.diary.lines else 0.0

    for how in ("leave", "terminate", "cancel"):

        async def main() -> None:
            inner = tree(child("x", living(diary)), child("a", partial(Slow, diary=diary)), name="s")
            with trio.CancelScope() as scope:
                async with open_test_node(tree(inner)) as node:
                    sup = node.root.supervisor("s")
                    await crash(sup.child("a"))
                    assert statuses(sup)["a"] == ("starting", 1)
                    if how == "terminate":  # noqa: B023
                        await node.root.terminate_child("s")
                        assert statuses(node.root) == {"s": ("stopped", 1)}
                    if how == "cancel":  # noqa: B023
                        scope.cancel()
                        await trio.sleep_forever()
            assert trio.current_time() == 0.0
            lines = diary.take()
            assert lines[2:] == ["left s/a", "enter s/a", "left s/a", "left s/x"]

        diary.take()
        run(main)


def test_a_supervisor_stopped_between_two_attempts_makes_no_more():
    async def main() -> None:
        spec = tree(child("a", backoff=Backoff(initial=10.0)), name="s")
        async with open_test_node(tree(spec)) as node:
            ref = node.root.supervisor("s").child("a")
            await crash(ref)
            await node.root.terminate_child("s")
            await trio.sleep(100.0)
            assert ref.statistics().incarnation == 1
            await node.root.restart_child("s")
            assert ref.statistics().incarnation == 2
            await trio.sleep(100.0)
            assert ref.statistics().incarnation == 2

    run(main)


def test_requests_to_a_stopping_supervisor_are_refused():
    diary = Diary()

    async def main() -> None:
        inner = tree(child("a", living(diary, leaving=5.0), shutdown="infinity"), name="s")
        async with open_test_node(tree(inner)) as node:
            sup = node.root.supervisor("s")
            refused: list[str] = []

            async def ask(what: Any, *args: Any) -> None:
                with pytest.raises(WrongState) as caught:
                    await what(*args)
                refused.append(caught.value.state)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.root.terminate_child, "s")
                await settled()
                nursery.start_soon(ask, sup.start_child, child("b"))
                nursery.start_soon(ask, sup.start_many, child("w"), 2)
                nursery.start_soon(ask, sup.start_supervisor, tree(name="t"))
                nursery.start_soon(ask, sup.terminate_child, "a")
                nursery.start_soon(ask, sup.restart_child, "a")
                await settled()
            assert trio.current_time() == 5.0
            assert len(refused) == 5
            await ask(sup.start_child, child("b"))
            assert statuses(sup) == {"a": ("stopped", 1)}

    run(main)


@pytest.mark.parametrize("what", ["child", "many", "supervisor"])
def test_a_request_under_way_is_refused_when_the_supervisor_is_stopped(what: str):
    diary = Diary()

    async def main() -> None:
        slow = child("late", living(diary, entering=FOREVER))
        async with open_test_node(tree(tree(child("a", living(diary)), name="s"))) as node:
            sup = node.root.supervisor("s")

            async def ask() -> None:
                with pytest.raises(WrongState):
                    if what == "child":
                        await sup.start_child(slow)
                    elif what == "many":
                        await sup.start_many(slow, 2)
                    else:
                        await sup.start_supervisor(tree(slow, name="t"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(1.0)
                await node.root.terminate_child("s")
            assert trio.current_time() == 1.0
            assert statuses(sup) == {"a": ("stopped", 1)}
            late = {"child": "s/late", "many": "s/late-1", "supervisor": "s/t/late"}[what]
            assert diary.lines == ["enter s/a", f"enter {late}", f"left {late}", "left s/a"]

    run(main)


# ---- twice


def test_stopping_twice_is_stopping_once():
    diary = Diary()

    async def main() -> None:
        async with open_node(tree(child("a", living(diary, leaving=2.0)))) as node:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(node.root.terminate_child, "a")
            assert trio.current_time() == 2.0
            assert diary.take() == ["enter a", "left a"]
            await node.root.restart_child("a")
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(node.root.stop)
            assert trio.current_time() == 4.0
            assert diary.take() == ["enter a", "left a"]
            await node.root.stop()

    run(main)


def test_stopped_from_inside_and_from_outside():
    class Leaving(Worker):
        @action
        def leave(self) -> None:
            self.stop()
            self.stop()

    async def main() -> None:
        async with open_test_node(tree(child("a", Leaving, restart="transient", shutdown=5.0))) as node:
            ref = node.root.child("a")
            answers: list[str] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(outcome, ref, Worker.sleep, HOUR, into=answers))
                await settled()
                await ref.invoke(Leaving.leave)
                await trio.sleep(2.0)
                await node.root.terminate_child("a")
                assert trio.current_time() == 5.0
            assert answers == ["died stopped started=True"]
            assert statuses(node.root) == {"a": ("stopped", 1)}

    run(main)


def test_a_crash_while_stopping_ends_it_at_once():
    async def main() -> None:
        async with open_test_node(tree(child("a", Serial, shutdown="infinity"))) as node:
            ref = node.root.child("a")
            answers: list[str] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(outcome, ref, Worker.sleep, 1.0, into=answers))
                await settled()
                ref.tell_nowait(Worker.crash)
                nursery.start_soon(partial(outcome, ref, Worker.hello, into=answers))
                await settled()
                nursery.start_soon(node.root.terminate_child, "a")
            assert sorted(answers) == ["died Boom: boom started=False", "value 1.0"]
            await settled()
            assert statuses(node.root) == {"a": ("stopped", 1)}

    run(main)


def test_brutal_after_patient():
    """Giving up patience ends what had all the time it wanted."""
    diary = Diary()

    async def main() -> None:
        made = living(diary, leaving=FOREVER)
        async with open_test_node(tree(tree(child("a", made, shutdown="infinity"), name="s"))) as node:
            sup = node.root.supervisor("s")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.root.terminate_child, "s")
                await trio.sleep(1.0)
                assert diary.lines == ["enter s/a"]
                sup.kill()
                await settled()
                assert diary.lines == ["enter s/a", "left s/a"]
            assert trio.current_time() == 1.0

    run(main)
