"""How children are stopped: in time, at once, without limit, twice, half started, from outside."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    AgentDied,
    AgentUnavailable,
    Backoff,
    Down,
    NotFound,
    StartFailed,
    WrongState,
    action,
    open_node,
)

from .world import Boom, Diary, Living, Worker, child, crash, living, run, settled, statuses, tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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


# ---- shutdown kinds and hanging runs


@pytest.mark.parametrize("ending", ["terminate", "leave", "supervisor"])
@pytest.mark.parametrize("shutdown", [0.0, 5.0, "brutal", "infinity"])
@pytest.mark.parametrize("seconds", [3.0, HOUR])
def test_a_run_has_its_shutdown_time_and_no_more(shutdown: Any, seconds: float, ending: str):
    async def main() -> None:
        answers: list[str] = []
        async with trio.open_nursery() as nursery:
            inner = tree(child("a", Serial, shutdown=shutdown), name="s")
            async with open_node(tree(inner)) as node:
                sup = node.root.supervisor("s")
                ref = sup.child("a")
                nursery.start_soon(partial(outcome, ref, Worker.sleep, seconds, into=answers))
                await settled()
                nursery.start_soon(partial(outcome, ref, Worker.hello, into=answers))
                await settled()
                if ending == "terminate":
                    await sup.terminate_child("a")
                elif ending == "supervisor":
                    await node.root.terminate_child("s")
                ended = trio.current_time()
            if ending == "leave":
                ended = trio.current_time()
        limit = {"brutal": 0.0, "infinity": FOREVER}.get(shutdown, shutdown)
        assert ended == min(limit, seconds)
        done = seconds <= limit
        run_answer = f"value {seconds}" if done else "died stopped started=True"
        queued_answer = "value 0" if done else "unavailable started=False"
        assert sorted(answers) == sorted([run_answer, queued_answer])

    run(main)


def test_what_comes_while_stopping_is_refused():
    async def main() -> None:
        async with open_node(tree(child("a", Serial, shutdown="infinity"))) as node:
            ref = node.root.child("a")
            answers: list[str] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(outcome, ref, Worker.sleep, 10.0, into=answers))
                await settled()
                nursery.start_soon(node.root.terminate_child, "a")
                await settled()
                assert statuses(node.root) == {"a": ("stopping", 1)}
                with pytest.raises(AgentUnavailable):
                    await ref.invoke(Worker.hello)
                with pytest.raises(AgentUnavailable):
                    await ref.tell(Worker.hello)
                with pytest.raises(AgentUnavailable):
                    ref.tell_nowait(Worker.hello)
            assert answers == ["value 10.0"]
            numbers = ref.statistics()
            assert (numbers.accepted, numbers.handled, numbers.refused) == (1, 1, 3)

    run(main)


def test_a_run_that_cannot_be_cancelled_is_waited_for():
    """Two incarnations never run at the same time, whatever the shutdown time says."""

    async def main() -> None:
        async with open_node(tree(child("a", shutdown="brutal"))) as node:
            ref = node.root.child("a")
            answers: list[str] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(outcome, ref, Worker.stubborn, 7.0, into=answers))
                await settled()
                await node.root.terminate_child("a")
                assert trio.current_time() == 7.0
                assert answers == ["died stopped started=True"]
                nursery.start_soon(partial(outcome, ref, Worker.hello, into=answers))
                await settled()
            await node.root.restart_child("a")
            assert await ref.invoke(Worker.hello) == 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(outcome, ref, Worker.stubborn, 3.0, into=answers))
                await settled()
                await crash(ref)
                assert statuses(node.root)["a"] == ("running", 2)  # its end has not been reported
                with pytest.raises(AgentUnavailable):
                    await ref.invoke(Worker.hello)
                await ref.ready()
                assert trio.current_time() == 10.0

    run(main)


# ---- lifespans


@pytest.mark.parametrize(
    ("shutdown", "ended"), [(0.0, 0.0), (5.0, 5.0), ("brutal", 0.0), ("infinity", 100.0)]
)
def test_leaving_a_lifespan_has_its_time_too(shutdown: Any, ended: float):
    diary = Diary()

    async def main() -> None:
        async with open_node(tree(child("a", living(diary, leaving=100.0), shutdown=shutdown))):
            pass
        assert trio.current_time() == ended
        assert diary.lines == ["enter a", "left a"]

    run(main)


def test_a_run_and_then_the_lifespan_have_their_time_one_after_the_other():
    """R4: what runs has `shutdown` seconds, and leaving as much again."""
    diary = Diary()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            async with open_node(tree(child("a", living(diary, leaving=HOUR), shutdown=5.0))) as node:
                answers: list[str] = []
                nursery.start_soon(partial(outcome, node.root.child("a"), Worker.sleep, HOUR, into=answers))
                await settled()
            assert trio.current_time() == 10.0
            assert answers == ["died stopped started=True"]

    run(main)


def test_the_lifespan_is_left_after_runs_and_tasks_even_if_brutally():
    diary = Diary()

    class Busy(Living):
        @action
        def begin(self) -> None:
            self.nursery.start_soon(self.slowly, "task")

        @action
        async def work(self) -> None:
            await self.slowly("run")

        async def slowly(self, what: str) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(2.0)
                self.diary.note(f"end of {what}")

    for shutdown in ("brutal", 1.0):

        async def main() -> None:
            made = partial(Busy, diary=diary)
            async with open_node(tree(child("a", made, shutdown=shutdown))) as node:  # noqa: B023
                ref = node.root.child("a")
                await ref.invoke(Busy.begin)
                ref.tell_nowait(Busy.work)
                await settled()
            lines = diary.take()
            assert lines[0] == "enter a"
            assert sorted(lines[1:3]) == ["end of run", "end of task"]
            assert lines[3:] == ["left a"]

        run(main)


@pytest.mark.parametrize("how", ["terminate", "leave"])
def test_what_leaving_a_lifespan_raises_arrives_somewhere(how: str):
    diary = Diary()

    async def main() -> None:
        downs: list[Down] = []

        async def watch(ref: Any, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            async with ref.monitor() as feed:
                task_status.started()
                downs.append(await anext(aiter(feed)))

        async with trio.open_nursery() as nursery:
            spec = tree(child("a", living(diary, leave_error=Boom("late"))), child("b"))
            async with open_node(spec, instrument=diary) as node:
                await nursery.start(watch, node.root.child("a"))
                if how == "terminate":
                    await node.root.terminate_child("a")
                    assert statuses(node.root) == {"a": ("stopped", 1), "b": ("running", 1)}
        assert [str(down.reason.error) for down in downs] == ["late"]
        assert "crashed a" in diary.lines

    run(main)


def test_what_leaving_raises_joins_the_crash_that_it_followed():
    class Sour(Worker):
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            try:
                yield
            finally:
                raise Boom("late")

    async def main() -> None:
        async with open_node(tree(child("a", Sour))) as node:
            ref = node.root.child("a")
            async with ref.monitor() as downs:
                await crash(ref, "first")
                down = await anext(aiter(downs))
            error = down.reason.error
            assert isinstance(error, BaseExceptionGroup)
            assert [str(part) for part in error.exceptions] == ["first", "late"]
            assert statuses(node.root) == {"a": ("running", 2)}

    run(main)


def test_others_are_still_there_while_a_lifespan_is_left():
    """Services end after all children: what is left first can still use what was started first."""
    said: list[int] = []

    class Polite(Worker):
        other: Callable[[str], Any]

        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            yield
            first = self.other("first")
            said.append(await first.invoke(Worker.hello))
            said.append(await first.invoke(Worker.sleep, 1.0))
            with pytest.raises(AgentUnavailable):
                await self.other("last").invoke(Worker.hello)

    async def main() -> None:
        node: Any = None

        def other(name: str) -> Any:
            return node.root.child(name)

        spec = tree(child("first"), child("polite", partial(Polite, other=other)), child("last"))
        async with open_node(spec) as opened:
            node = opened
        assert said == [0, 1.0]

    run(main)


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
        async with trio.open_nursery() as nursery, open_node(tree(outer)) as node:
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
                async with open_node(tree(inner)) as node:
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
        async with open_node(tree(spec)) as node:
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
        async with open_node(tree(inner)) as node:
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
        async with open_node(tree(child("a", Leaving, restart="transient", shutdown=5.0))) as node:
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
        async with open_node(tree(child("a", Serial, shutdown="infinity"))) as node:
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
        async with open_node(tree(tree(child("a", made, shutdown="infinity"), name="s"))) as node:
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


# ---- the body


def test_the_exception_of_the_body_comes_out_after_everything_has_ended():
    diary = Diary()

    async def main() -> None:
        with pytest.raises(Boom, match="body"):
            async with open_node(tree(child("a", living(diary, leaving=FOREVER)), child("b", living(diary)))):
                raise Boom("body")
        assert trio.current_time() == 5.0
        assert diary.lines[2:] == ["left b", "left a"]

    run(main)


def test_a_group_of_the_body_stays_a_group():
    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with open_node():
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
            async with open_node(spec) as node:
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
            async with open_node(spec):
                raise AssertionError("not reached")
        assert scope.cancelled_caught
        assert trio.current_time() == 6.0
        assert diary.lines == ["enter a", "enter s/x", "enter s/y", "left s/y", "left s/x", "left a"]

    run(main)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize(
    "where", ["ask", "tell", "run", "started", "constructor", "timer", "task", "lifespan"]
)
@pytest.mark.parametrize("first", [True, False])
def test_what_is_no_exception_ends_the_node(error: BaseException, where: str, first: bool):
    """T5: the agent dies, whoever waits is answered, the exception leaves the node."""
    diary = Diary()

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
                async with open_node(spec) as node:
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
        if not at_start:
            assert answers == ["started=True"]

    run(main)


def test_what_a_stopped_node_is_asked():
    async def main() -> None:
        async with open_node(tree(child("a"), tree(child("x"), name="s"))) as node:
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
        async with trio.open_nursery() as nursery, open_node(spec) as node:
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
