"""How agents are stopped: what runs, what waits and what they hold has its time and no more."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import AgentDied, AgentUnavailable, Down, action
from lmos_actors.errors import StopFailed
from lmos_actors.testing import open_test_node

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
            async with open_test_node(tree(inner)) as node:
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
        async with open_test_node(tree(child("a", Serial, shutdown="infinity"))) as node:
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
        async with open_test_node(tree(child("a", shutdown="brutal"))) as node:
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
        async with open_test_node(tree(child("a", living(diary, leaving=100.0), shutdown=shutdown))):
            pass
        assert trio.current_time() == ended
        assert diary.lines == ["enter a", "left a"]

    run(main)


def test_a_run_and_then_the_lifespan_have_their_time_one_after_the_other():
    """R4: what runs has `shutdown` seconds, and leaving as much again."""
    diary = Diary()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            async with open_test_node(tree(child("a", living(diary, leaving=HOUR), shutdown=5.0))) as node:
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
            async with open_test_node(tree(child("a", made, shutdown=shutdown))) as node:  # noqa: B023
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
            with pytest.raises(Boom, match="late") if how == "leave" else nullcontext():
                async with open_test_node(spec, instrument=diary) as node:
                    await nursery.start(watch, node.root.child("a"))
                    if how == "terminate":
                        with pytest.raises(StopFailed) as raised:
                            await node.root.terminate_child("a")
                        assert isinstance(raised.value.__cause__, Boom)
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
        async with open_test_node(tree(child("a", Sour))) as node:
            ref = node.root.child("a")
            async with ref.monitor() as downs:
                await crash(ref, "first")
                down = await anext(aiter(downs))
            error = down.reason.error
            assert isinstance(error, BaseExceptionGroup)
            assert [str(part) for part in error.exceptions] == ["first", "late"]
            assert statuses(node.root) == {"a": ("running", 2)}

    with pytest.raises(Boom, match="late"):  # the second incarnation leaves, too
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
        async with open_test_node(spec) as opened:
            node = opened
        assert said == [0, 1.0]

    run(main)
