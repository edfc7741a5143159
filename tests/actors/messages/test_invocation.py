"""Runs: `async def` handlers, their concurrency, their cancellation, and stopping (B3, B5, R1, R4, R5)."""

from __future__ import annotations

import gc
import weakref
from contextvars import ContextVar

import attrs
import pytest
import trio
import trio.lowlevel

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    DeadlineExceeded,
    Ref,
    SupervisorSpec,
    action,
    current_request,
    open_node,
)
from lmos_actors.testing import open_test_node, settle

VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


class Worker(Agent):
    story: tuple[str, ...] = ()

    @action
    async def one(self, name: str = "one", seconds: float = 1.0) -> str:
        self.story += (f"+{name}",)
        await trio.sleep(seconds)
        self.story += (f"-{name}",)
        return name

    @action(concurrency=2)
    async def two(self, name: str = "two", seconds: float = 1.0) -> str:
        self.story += (f"+{name}",)
        await trio.sleep(seconds)
        self.story += (f"-{name}",)
        return name

    @action
    def look(self) -> tuple[str, ...]:
        return self.story

    @action
    async def hold(self) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.story += ("cancelled",)
            raise

    @action
    async def swallow(self) -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.story += ("swallowed",)
        return "for nobody"

    @action
    async def crash_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise KeyError("while being cancelled") from None

    @action
    async def fail_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ActionFailed("while being cancelled")

    @action
    async def unwind_slowly(self, seconds: float) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
            self.story += ("unwound",)

    @action
    async def fail_together(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fail, "first")

    async def _fail(self, output: str) -> None:
        await trio.sleep(1)
        raise ActionFailed(output)

    @action
    async def crash(self, seconds: float = 0.0) -> None:
        await trio.sleep(seconds)
        raise KeyError("boom")

    @action
    async def lie(self) -> int:
        await trio.lowlevel.checkpoint()
        return "seven"  # type: ignore[return-value]

    @action
    async def mark(self, value: str) -> str:
        before = VARIABLE.get()
        VARIABLE.set(value)
        await trio.lowlevel.checkpoint()
        return before

    @action
    async def deadline(self) -> float | None:
        await trio.lowlevel.checkpoint()
        return current_request().deadline

    @action
    def stop_now(self) -> str:
        self.stop()
        return "stopping"


async def outcome(outcomes: dict[str, object], name: str, verb, *args: object) -> None:
    try:
        outcomes[name] = await verb(*args)
    except Exception as exc:
        outcomes[name] = exc


async def test_b3_runs_are_carried_by_few_tasks_and_an_idle_agent_has_none(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        before = trio.lowlevel.current_statistics().tasks_living
        for n in range(10):
            assert await worker.invoke(Worker.one, f"{n}", 0) == f"{n}"
        assert trio.lowlevel.current_statistics().tasks_living <= before + 1


async def test_b3_nothing_leaks_from_run_to_run(virtual_clock) -> None:
    """B3: a run's context is its agent's, not the last run's, nor the asker's."""
    async with open_test_node() as node:
        worker = await node.start(Worker)
        VARIABLE.set("the asker's")
        assert [await worker.invoke(Worker.mark, name) for name in "abc"] == ["unset"] * 3
        assert VARIABLE.get() == "the asker's"


@attrs.frozen
class Parcel:
    number: int


class Depot(Agent):
    taken: tuple[weakref.ref[Parcel], ...] = ()

    @action
    async def take(self, parcel: Parcel) -> None:
        self.taken += (weakref.ref(parcel),)
        await trio.sleep(parcel.number)

    @action
    def kept(self) -> int:
        return sum(parcel() is not None for parcel in self.taken)


async def test_b3_a_run_that_has_ended_is_gone_without_a_garbage_collection(virtual_clock) -> None:
    async with open_node() as node:
        depot = await node.start(Depot)
        gc.collect()
        gc.disable()
        try:
            await depot.within(10).invoke(Depot.take, Parcel(0))
            await depot.tell(Depot.take, Parcel(1))
            await depot.tell(Depot.take, Parcel(1))  # in line behind the other
            assert await depot.invoke(Depot.kept) == 1
            await trio.sleep(3)
            assert await depot.invoke(Depot.kept) == 0
        finally:
            gc.enable()


async def test_r1_concurrency_is_one_by_default_and_per_action(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start(Worker)
        for name in "ab":
            nursery.start_soon(worker.invoke, Worker.one, name)
        for name in "xyz":
            nursery.start_soon(worker.invoke, Worker.two, name)
        await settle()
        log = await worker.invoke(Worker.look)
        assert sorted(len(entry) for entry in log) == [2, 2, 2]
        assert sum(entry[1] in "ab" for entry in log) == 1
        assert sum(entry[1] in "xyz" for entry in log) == 2
        await trio.sleep(1.5)
        assert len(await worker.invoke(Worker.look)) == 8, "three have ended, the next two begun"
        assert worker.statistics().running == 2


async def test_r1_turns_go_on_beside_a_run(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start(Worker)
        nursery.start_soon(worker.invoke, Worker.one)
        await settle()
        assert await worker.invoke(Worker.look) == ("+one",)
        assert trio.current_time() == 0


async def test_r1_serial_means_one_at_a_time_over_all_actions(virtual_clock) -> None:
    class Server(Worker, serial=True):
        pass

    async with open_test_node() as node, trio.open_nursery() as nursery:
        server = await node.start(Server)
        outcomes: dict[str, object] = {}
        for name, handle in (("a", Server.one), ("b", Server.two), ("c", Server.two)):
            nursery.start_soon(outcome, outcomes, name, server.invoke, handle, name)
            await settle()
        nursery.start_soon(outcome, outcomes, "look", server.invoke, Server.look)
        await trio.sleep(2.5)
        assert outcomes == {"a": "a", "b": "b"}
        await trio.sleep(1)
        assert outcomes["look"] == ("+a", "-a", "+b", "-b", "+c", "-c"), "turns wait too"


async def test_r5_a_cancelled_caller_cancels_the_run_and_does_not_wait(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        with trio.move_on_after(2) as scope:
            await worker.invoke(Worker.unwind_slowly, 10)
        assert scope.cancelled_caught
        assert trio.current_time() == 2, "the caller does not wait"
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.running) == (1, 1, 0)
        await trio.sleep(11)
        assert await worker.invoke(Worker.look) == ("unwound",)


async def test_r5_the_next_run_waits_until_the_cancelled_one_has_unwound(virtual_clock) -> None:
    """R1, R5: concurrency 1 means that two never overlap, cancelled or not."""
    async with open_test_node() as node:
        worker = await node.start(Worker)
        with trio.move_on_after(2):
            await worker.invoke(Worker.unwind_slowly, 10)
        with trio.move_on_after(20) as scope:
            await worker.invoke(Worker.unwind_slowly, 0)
        assert scope.cancelled_caught
        await settle()
        assert await worker.invoke(Worker.look) == ("unwound", "unwound")


async def test_r5_a_cancelled_caller_of_a_queued_request_frees_its_seat(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start(Worker)
        nursery.start_soon(worker.invoke, Worker.one, "running", 5)
        await settle()
        with trio.move_on_after(1):
            await worker.invoke(Worker.one, "pending")
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.waiting, counts.running) == (2, 1, 0, 1)
        await trio.sleep(10)
        assert await worker.invoke(Worker.look) == ("+running", "-running")


async def test_a_handler_that_swallows_its_cancellation_answers_nobody(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        for _ in range(2):
            with trio.move_on_after(1) as scope:
                await worker.invoke(Worker.swallow)
            assert scope.cancelled_caught
        await settle()
        assert await worker.invoke(Worker.look) == ("swallowed", "swallowed")
        counts = worker.statistics()
        assert (counts.cancelled, counts.handled, counts.accepted) == (2, 1, 3)
        assert await worker.invoke(Worker.one) == "one", "the runner is as good as new"


async def test_an_exception_while_being_cancelled_is_a_crash(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        async with worker.monitor() as downs:
            with trio.move_on_after(1) as scope:
                await worker.invoke(Worker.crash_when_cancelled)
            assert scope.cancelled_caught
            assert isinstance((await downs.receive()).reason.error, KeyError)
        await worker.ready()
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.restarts) == (1, 1, 1)


async def test_a_declared_failure_while_being_cancelled_is_none(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        with trio.move_on_after(1):
            await worker.invoke(Worker.fail_when_cancelled)
        assert await worker.invoke(Worker.one) == "one"
        assert worker.statistics().restarts == 0


async def test_t3_failures_of_runs(virtual_clock) -> None:
    """T3: a group of ActionFailed counts as its first leaf; anything else is a crash."""
    async with open_test_node() as node:
        worker = await node.start(Worker)
        with pytest.raises(ActionFailed, match="first"):
            await worker.invoke(Worker.fail_together)
        assert worker.statistics().restarts == 0
        for handle, text in ((Worker.crash, "KeyError: 'boom'"), (Worker.lie, "not its declared int")):
            with pytest.raises(AgentDied, match=text) as caught:
                await worker.invoke(handle)
            assert caught.value.started
            await worker.ready()
        counts = worker.statistics()
        assert (counts.accepted, counts.handled, counts.restarts) == (3, 3, 2)


async def test_m1_runs_lost_to_somebody_elses_crash(virtual_clock) -> None:
    """M1: dead-lettered, reason agent-died; a tell that ran leaves a record, a request an answer."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start(Worker)
        outcomes: dict[str, object] = {}
        nursery.start_soon(outcome, outcomes, "asked", worker.invoke, Worker.one, "asked", 9)
        worker.tell_nowait(Worker.two, "told", 9)
        await settle()
        with pytest.raises(AgentDied):
            await worker.invoke(Worker.crash, 1)
        await settle()
        error = outcomes["asked"]
        assert isinstance(error, AgentDied)
        assert error.started
        (letter,) = node.dead_letters
        assert (letter.affordance, letter.agent) == ("two", "worker")
        counts = worker.statistics()
        assert (counts.accepted, counts.handled, counts.dead_lettered) == (3, 1, 2)


@pytest.mark.parametrize("shutdown", [0.0, 3.0])
async def test_an_async_def_that_never_returns_is_stopped(virtual_clock, shutdown: float) -> None:
    """R4: its run is cancelled after `shutdown`; its caller is answered."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start_child(ChildSpec("worker", Worker, shutdown=shutdown))
        outcomes: dict[str, object] = {}
        nursery.start_soon(outcome, outcomes, "held", worker.invoke, Worker.hold)
        await settle()
        await node.root.terminate_child("worker")
        assert trio.current_time() == shutdown
        await settle()
        assert isinstance(outcomes["held"], AgentDied)
        assert outcomes["held"].started
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.state) == (1, 1, "down")


@pytest.mark.parametrize("shutdown", ["brutal", 3.0, "infinity"])
async def test_r4_stopping(virtual_clock, shutdown) -> None:
    """R4: closed to new; what waits is still handled within `shutdown`, then answered AgentUnavailable."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start_child(ChildSpec("worker", Worker, shutdown=shutdown))
        outcomes: dict[str, object] = {}
        for name in ("first", "second", "third"):
            nursery.start_soon(outcome, outcomes, name, worker.invoke, Worker.one, name, 2)
            await settle()
        nursery.start_soon(node.root.terminate_child, "worker")
        await settle()
        for verb in (worker.invoke, worker.tell, worker.within(9).invoke):
            for handle in (Worker.look, Worker.two):
                with pytest.raises(AgentUnavailable):
                    await verb(handle)
        with pytest.raises(AgentUnavailable):
            worker.tell_nowait(Worker.look)
        await trio.sleep(10)
        kinds = [type(outcomes[name]) for name in ("first", "second", "third")]
        counts = worker.statistics()
        if shutdown == "brutal":
            assert kinds == [AgentDied, AgentUnavailable, AgentUnavailable]
            assert (counts.handled, counts.cancelled, counts.dead_lettered) == (0, 1, 2)
        elif shutdown == "infinity":
            assert kinds == [str, str, str]
            assert (counts.handled, counts.cancelled, counts.dead_lettered) == (3, 0, 0)
        else:
            assert kinds == [str, AgentDied, AgentUnavailable]
            assert (counts.handled, counts.cancelled, counts.dead_lettered) == (1, 1, 1)
        assert node.dead_letters == ()


async def test_r4_timers_and_own_messages_are_still_handled_while_stopping(virtual_clock) -> None:
    seen: list[str] = []

    class Closing(Agent):
        @action
        async def work(self) -> None:
            self.after(1, self.tick)
            await trio.sleep(2)
            self.send(self.ref, Closing.note, "own")
            await trio.sleep(1)

        def tick(self) -> None:
            seen.append("tick")

        @action
        def note(self, text: str) -> None:
            seen.append(text)

    async with open_test_node() as node:
        closing = await node.start(Closing)
        closing.tell_nowait(Closing.work)
        await settle()
        await node.root.terminate_child("closing")
        assert trio.current_time() == 3
        assert seen == ["tick", "own"]
        counts = closing.statistics()
        assert counts.accepted == counts.handled == 2


async def test_stop_ends_with_the_reason_normal_after_what_waits(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        spec = ChildSpec("worker", Worker, restart="transient")
        worker = await node.start_child(spec)
        async with worker.monitor() as downs:
            outcomes: dict[str, object] = {}
            nursery.start_soon(outcome, outcomes, "running", worker.invoke, Worker.one)
            await settle()
            assert await worker.invoke(Worker.stop_now) == "stopping"
            with pytest.raises(AgentUnavailable):
                await worker.invoke(Worker.look)
            down = await downs.receive()
        assert down.reason.kind == "normal"
        assert trio.current_time() == 1
        await settle()
        assert outcomes == {"running": "one"}
        assert worker.statistics().state == "down"


async def test_b5_within(virtual_clock) -> None:
    """B5: DeadlineExceeded is an AgentError and a TimeoutError, cancels the run, to 10 ms."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        worker = await node.start(Worker)
        with pytest.raises(DeadlineExceeded, match=r"'worker' within 2 s") as caught:
            await worker.within(2).invoke(Worker.hold)
        assert isinstance(caught.value, TimeoutError)
        assert 2 <= trio.current_time() <= 2.02
        await settle()
        assert await worker.within(1).invoke(Worker.look) == ("cancelled",), "in time"
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.handled) == (2, 1, 1)

        start = trio.current_time()
        nursery.start_soon(worker.invoke, Worker.one, "long", 5)
        await settle()
        with pytest.raises(DeadlineExceeded):
            await worker.within(1).invoke(Worker.one, "queued")
        assert trio.current_time() - start <= 1.02
        assert worker.statistics().waiting == 0
        async with worker.within(1).begin(Worker.one, "called") as call:
            with pytest.raises(DeadlineExceeded):
                await call.result()
        assert trio.current_time() - start <= 2.04
        await trio.sleep(9)
        assert "+queued" not in (log := await worker.invoke(Worker.look))
        assert "+called" not in log


async def test_b5_the_run_knows_its_deadline(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        assert await worker.invoke(Worker.deadline) is None
        await trio.sleep(10)
        assert await worker.within(5).invoke(Worker.deadline) == pytest.approx(15, abs=0.02)
        async with worker.within(5).begin(Worker.deadline) as call:
            assert await call.result() == 15


async def test_b5_within_is_for_calls_that_give_one_answer_in_time(virtual_clock) -> None:
    async with open_test_node() as node:
        worker = await node.start(Worker)
        for _ in range(600):
            assert await worker.within(1).invoke(Worker.look) == ()
        for seconds in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="within"):
                worker.within(seconds)
        with pytest.raises(TypeError):
            worker.within("soon")


async def test_b5_within_takes_keyword_only_arguments(virtual_clock) -> None:
    class Picky(Agent):
        @action
        def turn(self, *, name: str, times: int = 2) -> str:
            return name * times

        @action
        async def run(self, *, name: str, times: int = 2) -> str:
            await trio.lowlevel.checkpoint()
            return name * times

    async with open_test_node() as node:
        picky = await node.start(Picky)
        for ref in (picky, picky.within(1)):
            assert await ref.invoke(Picky.turn, name="a") == "aa"
            assert await ref.invoke(Picky.run, name="a", times=3) == "aaa"


async def test_many_runs_at_once(virtual_clock) -> None:
    class Wide(Agent):
        @action(concurrency=1000)
        async def work(self, n: int) -> int:
            await trio.sleep(1)
            return n

    async with open_test_node() as node:
        wide: Ref[Wide] = await node.start(Wide)
        values: list[int] = []

        async def ask(n: int) -> None:
            values.append(await wide.invoke(Wide.work, n))

        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for n in range(500):
                    nursery.start_soon(ask, n)
        assert sorted(values) == sorted(list(range(500)) * 3)
        assert trio.current_time() == 3


async def test_b3_a_run_cancelled_between_hand_over_and_first_step_never_runs(virtual_clock) -> None:
    async with open_test_node(SupervisorSpec("root")) as node:
        worker = await node.start(Worker)
        with trio.CancelScope() as scope:
            async with worker.begin(Worker.one):
                scope.cancel()
        await settle()
        assert await worker.invoke(Worker.look) == ()
        counts = worker.statistics()
        assert (counts.accepted, counts.cancelled, counts.handled) == (2, 1, 1)
        assert await worker.invoke(Worker.one) == "one"
