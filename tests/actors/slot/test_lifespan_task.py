"""`self.nursery`, `lifespan()`, `started()` (DECISIONS B3, R2, R3, R4)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, Ref, StartFailed, action
from lmos_actors.errors import StopFailed
from lmos_actors.testing import open_test_node, settle


class Nest(Agent):
    """Starts tasks in its nursery, from turns and runs."""

    story: ClassVar[list[str]] = []

    @action
    def begin(self, name: str, seconds: float) -> None:
        self.nursery.start_soon(self.task, name, seconds)

    @action
    async def begin_and_wait(self, name: str) -> str:
        return await self.nursery.start(self.service, name)

    @action
    def begin_failing(self, seconds: float) -> None:
        self.nursery.start_soon(self.fail, seconds)

    @action
    def begin_two_failing(self) -> None:
        self.nursery.start_soon(self.fail, 1.0)
        self.nursery.start_soon(self.fail, 1.0)

    @action
    def tasks(self) -> int:
        return len(self.nursery.child_tasks)

    @action
    def crash(self) -> None:
        raise KeyError("turn")

    @action
    def cancel_all(self) -> None:
        self.nursery.cancel_scope.cancel()

    @action
    async def run(self) -> None:
        await trio.sleep_forever()

    async def task(self, name: str, seconds: float) -> None:
        self.story.append(f"+{name}")
        try:
            await trio.sleep(seconds)
        finally:
            self.story.append(f"-{name}")

    async def service(self, name: str, task_status: trio.TaskStatus[str]) -> None:
        await trio.sleep(1)
        task_status.started(f"{name} is ready")
        await trio.sleep_forever()

    async def fail(self, seconds: float) -> None:
        await trio.sleep(seconds)
        raise ValueError("task")


@pytest.fixture
def story():
    Nest.story.clear()
    yield Nest.story
    Nest.story.clear()


async def test_r2_start_soon_from_a_turn_is_carried_out_by_the_holder(virtual_clock, story) -> None:
    async with open_test_node() as node:
        nest = await node.start(Nest)
        idle = trio.lowlevel.current_statistics().tasks_living
        await nest.invoke(Nest.begin, "a", 5)
        await nest.invoke(Nest.begin, "b", 1)
        await settle()
        assert story == ["+a", "+b"] or story == ["+b", "+a"]
        assert trio.lowlevel.current_statistics().tasks_living == idle + 3
        assert await nest.invoke(Nest.tasks) == 2
        await trio.sleep(10)
        assert await nest.invoke(Nest.tasks) == 0, "a normal end is nothing"
        assert nest.statistics().restarts == 0
        assert await nest.invoke(Nest.begin_and_wait, "c") == "c is ready"


async def test_r2_an_exception_in_a_task_is_a_crash(virtual_clock, story) -> None:
    async with open_test_node() as node:
        nest = await node.start(Nest)
        async with nest.monitor() as downs:
            await nest.invoke(Nest.begin, "a", 100)
            await nest.invoke(Nest.begin_failing, 2)
            down = await downs.receive()
            assert trio.current_time() == 2
            assert isinstance(down.reason.error, ValueError), "alone, not in a group"
            assert story == ["+a", "-a"]
            await nest.ready()
            await nest.invoke(Nest.begin_two_failing)
            error = (await downs.receive()).reason.error
        leaves = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else [error]
        assert {type(leaf) for leaf in leaves} == {ValueError}
        assert nest.statistics().state in ("running", "down")


async def test_r2_tasks_end_with_the_agent(virtual_clock, story) -> None:
    async with open_test_node() as node:
        nest = await node.start(Nest)
        await nest.invoke(Nest.begin, "a", 100)
        await settle()
        with pytest.raises(AgentDied):
            await nest.invoke(Nest.crash)
        await nest.ready()
        assert story == ["+a", "-a"]
        await nest.invoke(Nest.begin, "b", 100)
        await settle()
        await node.root.terminate_child("nest")
        assert story == ["+a", "-a", "+b", "-b"]
        assert trio.current_time() == 0, "tasks are cancelled, not waited for"


async def test_r2_cancelling_the_nurserys_scope_is_no_crash(virtual_clock, story) -> None:
    async with open_test_node() as node:
        nest = await node.start(Nest)
        await nest.invoke(Nest.begin, "a", 100)
        await settle()
        await nest.invoke(Nest.cancel_all)
        await settle()
        assert story == ["+a", "-a"]
        await nest.invoke(Nest.begin, "b", 1)
        await trio.sleep(2)
        assert story == ["+a", "-a", "+b", "-b"], "later tasks are none of it"
        await node.root.terminate_child("nest")
        assert nest.statistics().restarts == 0


class Library(Agent):
    """Holds a resource for its life."""

    story: ClassVar[list[str]] = []
    fail_at: str = ""
    slow_at: str = ""

    @asynccontextmanager
    async def lifespan(self):
        await self.reach("entering")
        try:
            yield
        except BaseException as exc:
            self.story.append(f"saw {type(exc).__name__}")
            if self.fail_at != "swallowing":
                raise
        finally:
            with trio.CancelScope(shield=self.slow_at == "leaving shielded"):
                await self.reach("leaving")

    async def reach(self, place: str) -> None:
        self.story.append(place)
        if self.slow_at.startswith(place):
            await trio.sleep(60)
        if self.fail_at == place:
            raise OSError(place)
        self.story.append(f"done {place}")

    def started(self) -> None:
        self.story.append("started")
        if self.fail_at == "started":
            raise OSError("started")

    @action
    def read(self) -> str:
        return "page"

    @action
    def crash(self) -> None:
        raise KeyError("boom")

    @action
    async def run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
            self.story.append("run unwound")


@pytest.fixture
def library_story():
    Library.story.clear()
    yield Library.story
    Library.story.clear()


def library(**options: object) -> ChildSpec[Library]:
    shutdown = options.pop("shutdown", 5.0)
    return ChildSpec("library", lambda: Library(**options), shutdown=shutdown)  # type: ignore[arg-type]


LIFE = ["entering", "done entering", "started"]
END = ["leaving", "done leaving"]


async def test_r3_order_of_a_life(virtual_clock, library_story) -> None:
    """R3: entered as part of the start, left after all runs and tasks have ended."""
    async with open_test_node() as node:
        ref = await node.start_child(library())
        assert library_story == LIFE
        assert await ref.invoke(Library.read) == "page"
        ref.tell_nowait(Library.run)
        await settle()
        await node.root.terminate_child("library")
        assert library_story == [*LIFE, "run unwound", *END]
        assert trio.current_time() == 7, "five for the run to end by itself, two for it to unwind"


async def test_r3_an_agent_without_lifespan_has_no_task(virtual_clock) -> None:
    async with open_test_node() as node:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(10):
            await node.start(Nest)
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_r3_a_crash_passes_through_lifespan_and_cannot_be_swallowed(
    virtual_clock, library_story
) -> None:
    async with open_test_node() as node:
        ref = await node.start_child(library(fail_at="swallowing"))
        async with ref.monitor() as downs:
            with pytest.raises(AgentDied):
                await ref.invoke(Library.crash)
            down = await downs.receive()
        assert isinstance(down.reason.error, KeyError)
        await ref.ready()
        assert library_story == [*LIFE, "saw KeyError", *END, *LIFE]


@pytest.mark.parametrize("place", ["entering", "started"])
async def test_r3_a_failure_to_enter_is_a_failed_start(virtual_clock, library_story, place: str) -> None:
    async with open_test_node() as node:
        with pytest.raises(StartFailed, match=f"library could not start: {place}") as caught:
            await node.start_child(library(fail_at=place))
        assert isinstance(caught.value.__cause__, OSError)
        assert node.agents() == []
        if place == "started":
            assert library_story[-2:] == END, "what was entered is left"


async def test_r3_a_failure_to_leave_arrives_in_the_reason(virtual_clock, library_story) -> None:
    """R3: it restarts nobody; monitors see it in the reason, whoever asked for the stop is told."""
    async with open_test_node() as node:
        ref = await node.start_child(library(fail_at="leaving"))
        async with ref.monitor() as downs:
            with pytest.raises(StopFailed) as raised:
                await node.root.terminate_child("library")
            down = await downs.receive()
        assert raised.value.__cause__ is down.reason.error
        assert isinstance(down.reason.error, OSError)
        async with ref.monitor() as downs:
            await node.root.restart_child("library")
            with pytest.raises(AgentDied):
                await ref.invoke(Library.crash)
            error = (await downs.receive()).reason.error
        leaves = set()
        todo = [error]
        while todo:
            exc = todo.pop()
            if isinstance(exc, BaseExceptionGroup):
                todo += exc.exceptions
            else:
                leaves.add(type(exc))
        assert leaves == {KeyError, OSError}, "neither is lost"
        with pytest.raises(StopFailed):
            await node.root.terminate_child("library")


@pytest.mark.parametrize("shutdown", [3.0, "infinity"])
async def test_r4_leaving_has_shutdown_seconds(virtual_clock, library_story, shutdown) -> None:
    async with open_test_node() as node:
        await node.start_child(library(slow_at="leaving", shutdown=shutdown))
        await node.root.terminate_child("library")
        assert trio.current_time() == (3.0 if shutdown == 3.0 else 60.0)
        assert ("done leaving" in library_story) is (shutdown == "infinity")


async def test_r4_brutal_gives_leaving_no_time(virtual_clock, library_story) -> None:
    async with open_test_node() as node:
        await node.start_child(library(slow_at="leaving", shutdown="brutal"))
        await node.root.terminate_child("library")
        assert trio.current_time() == 0


async def test_r3_a_start_that_is_cancelled_leaves_nothing(virtual_clock, library_story) -> None:
    async with open_test_node() as node:
        with trio.move_on_after(1) as scope:
            await node.start_child(library(slow_at="entering"))
        assert scope.cancelled_caught
        await trio.sleep(100)
        assert [child.name for child in node.root.which_children() if child.status == "starting"] == []


async def test_r3_messages_wait_for_nobody_while_starting(virtual_clock, library_story) -> None:
    """A ref found while the agent enters its lifespan gets AgentUnavailable; `ready` waits."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        nursery.start_soon(node.start_child, library(slow_at="entering"))
        await trio.sleep(1)
        ref: Ref[Library] = node.find(Library, "library")
        with pytest.raises(Exception, match=r"starting|no agent|empty"):
            await ref.invoke(Library.read)
        await ref.ready()
        assert trio.current_time() == 60
        assert await ref.invoke(Library.read) == "page"


async def test_r3_started_is_the_first_turn(virtual_clock) -> None:
    """Before the mailbox opens, and after the lifespan was entered; it may send, time and stop."""
    story: list[str] = []

    class Early(Agent):
        def started(self) -> None:
            story.append("started")
            self.send(self.ref, Early.note, "own")
            self.after(0, self.tick)

        def tick(self) -> None:
            story.append("tick")

        @action
        def note(self, text: str) -> None:
            story.append(text)

    class Brief(Agent):
        def started(self) -> None:
            self.stop()

    async with open_test_node() as node:
        await node.start(Early)
        await settle()
        assert story == ["started", "tick", "own"], "a time of 0 comes before what waits"
        brief = await node.start_child(ChildSpec("brief", Brief, restart="transient"))
        await settle()
        assert brief.statistics().state == "down"


def test_started_is_a_def() -> None:
    with pytest.raises(TypeError, match=r"Bad\.started must be a def"):

        class Bad(Agent):
            async def started(self) -> None:
                pass


async def test_a_lifespan_that_leaves_by_itself_is_a_crash(virtual_clock) -> None:
    class Leaver(Agent):
        @asynccontextmanager
        async def lifespan(self):
            with trio.move_on_after(2):
                yield

    async with open_test_node() as node:
        leaver = await node.start_child(ChildSpec("leaver", Leaver, restart="temporary"))
        async with leaver.monitor() as downs:
            down = await downs.receive()
        assert trio.current_time() == 2
        assert isinstance(down.reason.error, RuntimeError)
        assert "lifespan" in str(down.reason)


async def test_a_task_that_starts_tasks_while_ending_is_told(virtual_clock) -> None:
    refused: list[str] = []

    class Stubborn(Agent):
        @action
        def begin(self) -> None:
            self.nursery.start_soon(self.hold)

        async def hold(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                try:
                    self.nursery.start_soon(self.hold)
                except RuntimeError as exc:
                    refused.append(str(exc))

    async with open_test_node() as node:
        stubborn = await node.start(Stubborn)
        await stubborn.invoke(Stubborn.begin)
        await settle()
        await node.root.terminate_child("stubborn")
    assert refused == ["the agent is ending: its nursery takes no more tasks"]


async def test_what_a_task_raises_while_the_agent_stops_arrives_once(virtual_clock) -> None:
    class Sore(Agent):
        @action
        def begin(self) -> None:
            self.nursery.start_soon(self.hold)

        async def hold(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("while ending")

    async with open_test_node() as node:
        sore = await node.start(Sore)
        await sore.invoke(Sore.begin)
        await settle()
        async with sore.monitor() as downs:
            with pytest.raises(StopFailed):
                await node.root.terminate_child("sore")
            down = await downs.receive()
        assert down.reason.kind == "error"
        assert isinstance(down.reason.error, ValueError)
