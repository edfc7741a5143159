"""How a node ends: by its body, from outside, by what is no exception; and what is left of it."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from lmos_actors import AgentDied, AgentUnavailable, NotFound, StartFailed, action
from lmos_actors.errors import WrongState
from lmos_actors.testing import open_test_node
from tests.supervision.world import Boom, Diary, Living, Worker, child, living, run, settled, tree

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


# ---- the body


def test_the_exception_of_the_body_comes_out_after_everything_has_ended():
    diary = Diary()

    async def main() -> None:
        with pytest.raises(Boom, match="body"):
            async with open_test_node(
                tree(child("a", living(diary, leaving=FOREVER)), child("b", living(diary)))
            ):
                raise Boom("body")
        assert trio.current_time() == 5.0
        assert diary.lines[2:] == ["left b", "left a"]

    run(main)


def test_a_group_of_the_body_stays_a_group():
    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with open_test_node():
                raise ExceptionGroup("mine", [Boom("1"), Boom("2")])
        assert caught.value.message == "mine"

    run(main)


@pytest.mark.parametrize("seed", range(5))
def test_a_body_cancelled_from_outside_ends_in_order(seed: int):
    diary = Diary()

    async def main() -> None:
        with trio.move_on_after(1.0) as scope:
            spec = tree(
                child("a", living(diary, leaving=3.0)),
                tree(child("x", living(diary, leaving=2.0)), name="s"),
                child("b", living(diary, leaving=1.0)),
            )
            async with open_test_node(spec) as node:
                try:
                    await node.root.child("a").invoke(Worker.sleep, HOUR)
                finally:
                    diary.note("body")
        assert scope.cancelled_caught
        assert trio.current_time() == 7.0
        assert diary.lines[3:] == ["body", "left b", "left s/x", "left a"]
        assert trio.lowlevel.current_task().child_nurseries == []

    run(main, seed=seed)


def test_cancelled_while_the_tree_starts():
    diary = Diary()

    async def main() -> None:
        spec = tree(
            child("a", living(diary, leaving=1.0)),
            tree(child("x", living(diary)), child("y", living(diary, entering=FOREVER)), name="s"),
        )
        with trio.move_on_after(5.0) as scope:
            async with open_test_node(spec):
                raise AssertionError("not reached")
        assert scope.cancelled_caught
        assert trio.current_time() == 6.0
        assert diary.lines == ["enter a", "enter s/x", "enter s/y", "left s/y", "left s/x", "left a"]

    run(main)


@pytest.mark.parametrize(
    "where", ["ask", "tell", "run", "started", "constructor", "timer", "task", "lifespan"]
)
@pytest.mark.parametrize("first", [True, False])
def test_ctrl_c_in_any_code_ends_the_node(where: str, first: bool):
    """The agent dies, whoever waits is answered, the exception leaves the node."""
    diary, error = Diary(), KeyboardInterrupt()

    class Fatal(Living):
        def __attrs_post_init__(self) -> None:
            if where == "constructor":
                raise error
            if where == "lifespan":
                self.enter_error = error

        def started(self) -> None:
            if where == "started":
                raise error

        @action
        def turn(self) -> None:
            raise error

        @action
        async def run(self) -> None:
            raise error

        @action
        def later(self) -> None:
            self.after(1.0, self.turn_now)

        @action
        def task(self) -> None:
            self.nursery.start_soon(self.fail)

        def turn_now(self) -> None:
            raise error

        async def fail(self) -> None:
            raise error

    async def main() -> None:
        made = partial(Fatal, diary=diary)
        at_start = where in ("started", "constructor", "lifespan")
        answers: list[str] = []

        async def ask(ref: Any) -> None:
            try:
                await ref.invoke(Worker.sleep, HOUR)
            except AgentDied as exc:
                answers.append(f"started={exc.started}")

        async with trio.open_nursery() as outside:
            spec = tree(child("a", living(diary)), *([child("f", made)] if first else []))
            with pytest.raises(type(error)) as caught:
                async with open_test_node(spec) as node:
                    if first:
                        ref = node.root.child("f")
                    else:
                        try:
                            ref = await node.start_child(child("f", made))
                        except StartFailed:
                            await trio.sleep_forever()
                    outside.start_soon(ask, ref)
                    await settled()
                    if where == "ask":
                        await ref.invoke(Fatal.turn)
                    handle: Any = {
                        "tell": Fatal.turn, "run": Fatal.run, "timer": Fatal.later, "task": Fatal.task
                    }[where]  # fmt: skip
                    ref.tell_nowait(handle)
                    await trio.sleep_forever()
        assert caught.value is error
        assert trio.current_time() in (0.0, 1.0)
        assert diary.lines[-1] == "left a"
        assert diary.lines.count("enter f") <= 1  # nobody is restarted when the end has come
        if not at_start:
            assert answers == ["started=True"]

    run(main)


def test_what_a_stopped_node_is_asked():
    async def main() -> None:
        async with open_test_node(tree(child("a"), tree(child("x"), name="s"))) as node:
            a, lazy, missing = node.root.child("a"), node.find(Worker, "s/x"), node.find(Worker, "nobody")
        for ref in (a, lazy):
            with pytest.raises((AgentUnavailable, NotFound)):
                await ref.invoke(Worker.hello)
        with pytest.raises(WrongState):
            await node.start(Worker)
        with pytest.raises(WrongState):
            await node.root.restart_child("a")
        for ref in (a, lazy, missing):
            with pytest.raises(NotFound):
                await ref.ready()
        await node.root.stop()

    run(main)


def test_those_who_listen_hear_the_end():
    async def main() -> None:
        heard: list[str] = []

        async def watch(ref: Any, task_status: Any) -> None:
            async with ref.monitor() as downs:
                task_status.started()
                heard.extend([str(down.reason) async for down in downs])
            heard.append("no more")

        spec = tree(child("a"), tree(child("x"), name="s"))
        async with trio.open_nursery() as nursery, open_test_node(spec) as node:
            for ref in node.agents():
                await nursery.start(watch, ref)
            waiting = node.find(Worker, "nobody")

            async def wait() -> None:
                with pytest.raises(NotFound):
                    await waiting.ready()
                heard.append("nobody")

            nursery.start_soon(wait)
            await settled()
        assert sorted(heard) == ["no more", "no more", "nobody", "shutdown", "shutdown"]

    run(main)
