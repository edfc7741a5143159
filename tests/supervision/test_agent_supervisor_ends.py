"""How an agent and its children end: in which order, in what time, what is told, and that nothing is left."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

import gc
import weakref
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import AgentDied, AgentUnavailable, ChildSpec, Down, NotFound, StartFailed, action
from lmos_actors.actors import Slot
from lmos_actors.errors import NameTaken, RestartIntensityExceeded, StopFailed, WrongState
from lmos_actors.testing import open_test_node
from tests.matrix import examples

from .test_agent_supervisor import Boss, agent_of
from .test_cancelled import balanced
from .world import Boom, Diary, Worker, child, crash, living, run, settled, statuses, tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FOREVER = float("inf")
HOUR = 3600.0

KINDS = ["nothing", "lifespan", "nursery", "both"]


class Parent(Boss):
    """Has two children of `made`; a lifespan, a task of its own, runs that unwind slowly, as it is told."""

    diary: Diary
    made: Any
    tasks: bool = False

    def supervises(self) -> Any:
        return tree(child("a", self.made, shutdown="infinity"), child("b", self.made, shutdown="infinity"))

    def started(self) -> None:
        if self.tasks:
            self.nursery.start_soon(self.noting, "task", FOREVER)

    @action(concurrency=2)
    async def work(self, seconds: float) -> None:
        await self.noting("run", seconds)

    async def noting(self, what: str, seconds: float) -> None:
        """Whatever ends it, it takes half a second to unwind, and its children are still there."""
        try:
            await trio.sleep(seconds)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
                with suppress(WrongState):  # they have ended, and the agent for it
                    assert {kid.status for kid in self.children.which_children()} <= {"starting", "running"}
            self.diary.note(f"ended {what}")

    @action
    def finish(self) -> None:
        self.stop()


class Held(Parent):
    """The same with a lifespan."""

    leaving: float = 0.0

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        path = self.path
        self.diary.note(f"enter {path}")
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.leaving)
            self.diary.note(f"left {path}")


def parent(kind: str, diary: Diary, made: Any = None, **options: Any) -> ChildSpec[Any]:
    cls = Held if kind in ("lifespan", "both") else Parent
    made = made if made is not None else living(diary, leaving=1.0)
    spec = partial(cls, diary=diary, made=made, tasks=kind in ("nursery", "both"))
    return child("p", spec, **options)


def entered(kind: str) -> list[str]:
    return [*(["enter p"] if kind in ("lifespan", "both") else []), "enter p/a", "enter p/b", "started p/b"]


def told(diary: Diary) -> list[str]:
    """What was noted, but for the starts and ends that the instrument saw of the children."""
    return [line for line in diary.take() if not line.startswith(("started", "stopped p/", "crashed p/"))]


async def trouble(ref: Any, handle: Any, *args: Any, into: list[str]) -> None:
    try:
        into.append(f"value {await ref.invoke(handle, *args)}")
    except AgentDied as error:
        into.append(f"died started={error.started} at {trio.current_time()}")
    except AgentUnavailable:
        into.append(f"unavailable at {trio.current_time()}")


# ---- the order


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["terminate", "leave", "self"])
def test_told_to_stop_runs_end_then_tasks_then_children_then_the_lifespan(kind: str, how: str):
    diary = Diary()

    async def main() -> None:
        answers: list[str] = []
        async with trio.open_nursery() as nursery:
            spec = tree(parent(kind, diary, restart="transient"))
            async with open_test_node(spec, instrument=diary) as node:
                ref = node.root.child("p")
                nursery.start_soon(partial(trouble, ref, Parent.work, 2.0, into=answers))
                await settled()
                diary.take()
                if how == "terminate":
                    await node.root.terminate_child("p")
                elif how == "self":
                    await ref.invoke(Parent.finish)
                    await trio.sleep(1.0)
                    assert await node.find(Worker, "p/a").invoke(Worker.hello) == 0, "children stay meanwhile"
                    await trio.sleep(10.0)
        tasks = ["ended task"] if kind in ("nursery", "both") else []
        lifespan = ["left p"] if kind in ("lifespan", "both") else []
        assert told(diary) == ["ended run", *tasks, "left p/b", "left p/a", *lifespan, "stopped p"]
        assert answers == ["value None"]
        if how != "self":
            assert trio.current_time() == 2.5 + 0.5 * len(tasks) + 2.0

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_everything_unwinds_before_the_next_life(kind: str):
    diary = Diary()

    async def main() -> None:
        answers: list[str] = []
        async with open_test_node(tree(parent(kind, diary)), instrument=diary) as node:
            async with trio.open_nursery() as nursery:
                ref = node.root.child("p")
                nursery.start_soon(partial(trouble, ref, Parent.work, HOUR, into=answers))
                await settled()
                diary.take()
                nursery.start_soon(partial(trouble, ref, Parent.crash, into=answers))
            assert sorted(answers) == ["died started=True at 0.0"] * 2, "answered at once"
            with pytest.raises(AgentUnavailable):
                await ref.invoke(Parent.hello)
            await ref.ready()
            assert trio.current_time() == 2.5, "half a second for run and task, a second for each child"
            assert await ref.invoke(Parent.hello) == 0
        lines = told(diary)
        unwound = ["ended run", "ended task"] if kind in ("nursery", "both") else ["ended run"]
        assert sorted(lines[: len(unwound)]) == unwound
        lifespan = kind in ("lifespan", "both")
        rest = ["left p/b", "left p/a", *(["left p"] if lifespan else []), "crashed p"]
        again = [*(["enter p"] if lifespan else []), "enter p/a", "enter p/b"]
        end = [*(["ended task"] if len(unwound) == 2 else []), *rest[:-1], "stopped p"]
        assert lines[len(unwound) :] == [*rest, *again, *end]

    run(main)


def test_three_levels_end_from_the_leaves_up():
    diary = Diary()

    async def main() -> None:
        low = partial(Held, diary=diary, made=living(diary))
        top = partial(Held, diary=diary, made=partial(Held, diary=diary, made=low))
        async with open_test_node(tree(child("p", top))) as node:
            assert node.statistics().agents == 1 + 2 + 4 + 8
            assert node.statistics().supervisors == 1 + 1 + 2 + 4
            await settled()
            entries = [line.removeprefix("enter ") for line in diary.take()]
            await crash(node.find(Worker, "p/a/b"), "deep")
            inner = ["p/a/b", "p/a/b/a", "p/a/b/b"]
            again = [f"left {path}" for path in reversed(inner)] + [f"enter {path}" for path in inner]
            assert diary.take() == again, "the others are not touched"
        assert diary.take() == [f"left {path}" for path in reversed(entries)]

    run(main)


# ---- the time


@pytest.mark.parametrize(("shutdown", "ended"), [(3.0, 3.0), ("brutal", 0.0), ("infinity", 200.0)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_the_children_have_the_shutdown_time_of_their_agent(shutdown: Any, ended: float, kind: str, how: str):
    diary = Diary()
    slow = living(diary, leaving=100.0)

    async def main() -> None:
        spec = parent(kind.replace("nursery", "nothing").replace("both", "lifespan"), diary, slow)
        spec = child("p", spec.factory, shutdown=shutdown, restart="temporary")
        async with open_test_node(tree(spec)) as node:
            ref = node.root.child("p")
            if how == "stop":
                await node.root.terminate_child("p")
            else:
                await crash(ref)
                await trio.sleep(ended)
                await settled()
            assert node.agents() == []
            assert trio.current_time() == ended
        balanced(diary)

    run(main)


@pytest.mark.parametrize("when", ["in its run", "while its children end"])
@pytest.mark.parametrize("kind", ["nothing", "lifespan"])
def test_kill_reaches_the_children_of_an_agent_at_whatever_stage(when: str, kind: str):
    diary = Diary()
    made = partial(Parent, diary=diary, made=living(diary, leaving=FOREVER))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            answers: list[str] = []
            spec = parent(kind, diary, made, shutdown="infinity")
            async with open_test_node(tree(spec)) as node:
                root, ref = node.root, node.root.child("p")
                if when == "in its run":
                    nursery.start_soon(partial(trouble, ref, Parent.work, HOUR, into=answers))
                    await settled()
                nursery.start_soon(_kill_later, root)
        assert trio.current_time() == 5.0 + (0.5 if when == "in its run" else 0.0)
        balanced_entries(diary)

    run(main)


def balanced_entries(diary: Diary) -> None:
    held = [line.split()[1] for line in diary.lines if line.startswith("enter")]
    left = [line.split()[1] for line in diary.lines if line.startswith("left")]
    assert sorted(held) == sorted(left)
    assert len(held) >= 4


async def _kill_later(root: Any) -> None:
    await trio.sleep(5.0)
    root.kill()


# ---- what is told


def test_refs_to_children_are_void_once_their_agent_has_ended():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(tree(parent("nothing", diary, Worker))) as node:
            ref, kid = node.root.child("p"), node.find(Worker, "p/a")
            assert await kid.invoke(Worker.hello) == 0
            async with kid.monitor() as downs:
                await crash(ref)
                heard = [down async for down in downs]
            assert [(down.agent, str(down.reason)) for down in heard] == [("p/a", "shutdown")]
            with pytest.raises(NotFound):
                await kid.invoke(Worker.hello)
            new = node.find(Worker, "p/a")
            assert await new.invoke(Worker.hello) == 0
            assert new != kid, "a new child of that name has a new slot"

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_children_that_cannot_be_kept_are_a_crash_of_their_agent(kind: str):
    diary = Diary()

    async def main() -> None:
        downs: list[Down] = []
        async with open_test_node(tree(parent(kind, diary, Worker))) as node, trio.open_nursery() as nursery:
            ref = node.root.child("p")

            async def watch(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
                async with ref.monitor() as feed:
                    task_status.started()
                    downs.append(await anext(aiter(feed)))

            await nursery.start(watch)
            for count in range(4):
                await crash(node.find(Worker, "p/a"), f"boom {count}")
            await ref.ready()
            assert statuses(node.root) == {"p": ("running", 2)}
            assert await node.find(Worker, "p/a").invoke(Worker.hello) == 0
            error = downs[0].reason.error
            assert isinstance(error, RestartIntensityExceeded)
            assert error.path == "p"
            assert [str(cause) for cause in error.causes] == ["boom 0", "boom 1", "boom 2", "boom 3"]

    run(main)


def test_what_siblings_raise_while_their_supervisor_gives_up_is_among_the_causes():
    class Pair(Worker):
        def supervises(self) -> Any:
            return tree(child("a"), child("b", living(Diary(), leave_error=Boom("late"))), max_restarts=0)

    async def main() -> None:
        async with open_test_node() as node:
            pair = await node.start_child(child("pair", Pair, restart="temporary"))
            async with pair.monitor() as downs:
                await crash(node.find(Worker, "pair/a"))
                error = (await downs.receive()).reason.error
            assert isinstance(error, RestartIntensityExceeded)
            assert [str(cause) for cause in error.causes] == ["boom", "late"]

    run(main)


def test_the_causes_come_up_to_the_root():
    async def main() -> None:
        made = partial(Parent, diary=Diary(), made=Worker)
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node(tree(child("p", made), max_restarts=0)) as node:
                for _ in range(4):
                    await crash(node.find(Worker, "p/b"), "deep")
                await trio.sleep_forever()
        inner = caught.value.causes[0]
        assert isinstance(inner, RestartIntensityExceeded)
        assert (caught.value.path, inner.path, str(inner.causes[0])) == ("root", "p", "deep")

    run(main)


@pytest.mark.parametrize("stage", ["entering", "entered", "starting others"])
def test_children_that_cannot_be_kept_while_their_agent_starts_are_a_failed_start(stage: str):
    class Weak(Worker):
        def started(self) -> None:
            self.after(1.0, self.crash)

    class Early(Worker):
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            if stage != "starting others":
                await self.start(Weak)
            if stage == "entering":
                await trio.sleep_forever()
            yield

        def supervises(self) -> Any:
            weak = [child("weak", Weak)] if stage == "starting others" else []
            slow = [child("slow", living(Diary(), entering=FOREVER))] if stage == "starting others" else []
            return tree(*weak, *slow, max_restarts=0)

    async def main() -> None:
        async with open_test_node(tree(name="root", max_restarts=0)) as node:
            if stage == "entered":
                early = await node.start_child(child("early", Early, restart="temporary"))
                async with early.monitor() as downs:
                    down = await downs.receive()
                assert isinstance(down.reason.error, RestartIntensityExceeded)
            elif stage == "entering":
                with pytest.raises(StartFailed, match="early") as caught:
                    await node.start(Early)
                assert isinstance(caught.value.__cause__, RestartIntensityExceeded)
            else:  # as everywhere, a supervisor that is starting its children hears of nothing else
                with trio.move_on_after(5.0):
                    await node.start(Early)
            assert trio.current_time() == (5.0 if stage == "starting others" else 1.0)

    run(main)


def test_a_supervisor_whose_work_is_done_ends_its_agent():
    class Job(Worker):
        def supervises(self) -> Any:
            main = child("main", Worker, restart="transient", significant=True)
            return tree(main, child("helper"), auto_shutdown="any_significant")

        @action
        async def work(self) -> str:
            await trio.sleep(2.0)
            return "handled first"

    async def main() -> None:
        answers: list[str] = []
        async with open_test_node() as node, trio.open_nursery() as nursery:
            job = await node.start_child(child("job", Job, restart="transient"))
            nursery.start_soon(partial(trouble, job, Job.work, into=answers))
            await settled()
            async with job.monitor() as downs:
                await node.find(Worker, "job/main").invoke(Worker.finish)
                down = await downs.receive()
            assert (str(down.reason), trio.current_time()) == ("shutdown", 2.0)
            assert answers == ["value handled first"]
            assert statuses(node.root) == {"job": ("stopped", 1)}

    run(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["terminate", "leave", "crash", "self"])
def test_what_children_raise_while_they_are_stopped_arrives(kind: str, how: str):
    diary = Diary()
    late = living(diary, leave_error=Boom("late"))

    async def main() -> None:
        spec = tree(parent(kind, diary, late, restart="temporary"))
        if how == "leave":
            with pytest.raises(BaseExceptionGroup) as group:
                async with open_test_node(spec):
                    await settled()
            assert [str(error) for error in group.value.exceptions] == ["late", "late"]
            return
        async with open_test_node(spec) as node:
            ref = node.root.child("p")
            if how == "terminate":
                with pytest.raises(StopFailed) as failed:
                    await node.root.terminate_child("p")
                cause = failed.value.__cause__
            else:
                async with ref.monitor() as downs:
                    if how == "crash":
                        await crash(ref)
                    else:
                        await ref.invoke(Parent.finish)
                    cause = (await downs.receive()).reason.error
            assert isinstance(cause, BaseExceptionGroup)
            raised = ["late", "late"] if how != "crash" else ["boom", "late", "late"]
            assert [str(error) for error in cause.exceptions] == raised

    run(main)


def test_what_children_raise_while_a_start_is_undone_is_told():
    async def main() -> None:
        first = living(Diary(), leave_error=Boom("late"))

        class Doomed(Worker):
            def supervises(self) -> Any:
                return tree(child("a", first), child("b", living(Diary(), enter_error=Boom("no"))))

        async with open_test_node() as node:
            with pytest.raises(StartFailed) as failed:
                await node.start(Doomed)
            cause = failed.value.__cause__
            assert isinstance(cause, BaseExceptionGroup)
            start, late = cause.exceptions
            assert (str(start.__cause__), str(late)) == ("no", "late")

    run(main)


def test_the_accounts_of_children_hold_when_their_agent_dies():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(tree(parent("nothing", diary, Worker, restart="temporary"))) as node:
            kid = node.find(Worker, "p/a")
            answers: list[str] = []
            async with trio.open_nursery() as nursery:
                for seconds in (1.0, HOUR):
                    nursery.start_soon(partial(trouble, kid, Worker.sleep, seconds, into=answers))
                await settled()
                await crash(node.root.child("p"))
            numbers = kid.statistics()
            assert answers == ["value 1.0", "died started=True at 5.0"]
            assert (numbers.accepted, numbers.handled, numbers.cancelled) == (2, 1, 1)
            assert numbers.accepted == numbers.handled + numbers.cancelled + numbers.waiting + numbers.running

    run(main)


# ---- nothing is left


def test_a_thousand_agents_with_a_child_each():
    async def main() -> None:
        async with open_test_node() as node:
            before = trio.lowlevel.current_statistics().tasks_living
            refs = await node.root.start_many(child("boss", Boss, restart="temporary"), 1000)
            async with trio.open_nursery() as nursery:
                for ref in refs:
                    nursery.start_soon(ref.invoke, Boss.hire)
            assert node.statistics().agents == 2000
            for ref in refs[:500]:
                ref.tell_nowait(Boss.finish)
            await settled()
            assert node.statistics().supervisors == 501
            for ref in refs[:500]:
                with pytest.raises(NotFound):
                    await ref.invoke(Boss.hello)
            for info in node.root.which_children():
                await node.root.terminate_child(info.name)
            await settled()
            runners = 64
            assert trio.lowlevel.current_statistics().tasks_living <= before + runners

    run(main)


def test_lives_of_an_agent_leave_no_task_and_no_slot():
    async def main() -> None:
        async with open_test_node(tree(max_restarts=9)) as node:
            ref = await node.start(Boss)
            rt = agent_of(node, "boss")._slot.rt
            kids: list[Any] = []
            tasks: list[int] = []
            for _ in range(4):
                await ref.invoke(Boss.hire)
                kids.append(weakref.ref(agent_of(node, "boss/worker")))
                kids.append(weakref.ref(agent_of(node, "boss").children.loop))
                tasks.append(trio.lowlevel.current_statistics().tasks_living)
                await crash(ref)
                await trio.sleep(0.5)
            assert tasks == [tasks[0]] * 4
            gc.collect()
            assert [kid() for kid in kids] == [None] * 8
            slots = [each for each in gc.get_objects() if isinstance(each, Slot) and each.rt is rt]
            assert [slot.path for slot in slots] == ["boss"]

    run(main)


STEPS = st.sampled_from(
    ["hire", "crash", "crash kid", "finish", "terminate", "restart", "wait", "cancel", "nest"]
)
EXPECTED = (AgentUnavailable, AgentDied, NotFound, WrongState, NameTaken)


@settings(max_examples=examples(150))
@given(st.lists(STEPS, max_size=14), st.sampled_from(KINDS), st.integers(0, 3))
def test_whatever_happens_everything_is_given_back(steps: list[str], kind: str, seed: int) -> None:
    diary = Diary()

    async def main() -> None:
        made = living(diary, entering=0.5, leaving=0.5)
        spec = tree(parent(kind, diary, made), max_restarts=100)
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.shield = True
            async with open_test_node(spec) as node:
                before = trio.lowlevel.current_statistics().tasks_living

                async def quietly(fn: Any, *args: Any) -> None:
                    with suppress(*EXPECTED), trio.move_on_after(0.75):
                        await fn(*args)

                for step in steps:
                    p = next((s for s in node.root.children if s.label == "p"), None)
                    agent = p.agent if p is not None else None
                    kid = agent.children.children[0] if agent is not None and p.state == 2 else None
                    if step == "hire" and agent is not None:
                        nursery.start_soon(quietly, agent.start, made)
                    elif step == "cancel" and agent is not None:
                        nursery.start_soon(quietly, agent.start, living(diary, entering=FOREVER))
                    elif step == "nest" and agent is not None:
                        nursery.start_soon(quietly, agent.start_child, parent(kind, diary, made))
                    elif step == "crash kid" and kid is not None:
                        nursery.start_soon(quietly, node.find(Worker, kid.path).invoke, Worker.crash)
                    elif step in ("crash", "finish"):
                        nursery.start_soon(quietly, node.root.child("p").invoke, getattr(Parent, step))
                    elif step in ("terminate", "restart"):
                        nursery.start_soon(quietly, getattr(node.root, f"{step}_child"), "p")
                    if step == "wait":
                        await trio.sleep(0.4)
                    await settled()
                await trio.sleep(50.0)
                if "terminate" not in steps and "restart" not in steps:
                    assert statuses(node.root)["p"][0] == "running"
                    assert trio.lowlevel.current_statistics().tasks_living <= before + 40
        lines = [line for line in diary.lines if line.split()[0] in ("enter", "left")]
        diary.lines = lines
        balanced(diary)

    run(main, seed=seed)


# ---- as OTP does, and not


RECORDED = {
    "a child crashes": ("permanent", "-a +a | alive: a b boss"),
    "the agent is stopped": ("permanent", "-boss:shutdown -b -a | alive: "),
    "the agent crashes": ("permanent", "-boss:error +boss +a +b -b -a | alive: a b boss"),
    "its supervisor gives up": ("permanent", "-a +a -b -a -boss:shutdown +boss +a +b | alive: a b boss"),
    "its supervisor gives up, transient": ("transient", "-a +a -b -a -boss:shutdown | alive: "),
    "the agent is done": ("transient", "-boss:normal -b -a | alive: "),
}
"""What OTP 25 did with a gen_server that starts a linked supervisor of two workers, each of which takes some
time to end: the output of `otp/children.escript`, three times the same."""

OURS = {
    "the agent is stopped": "-b -a -boss:shutdown | alive: ",
    "the agent crashes": "-b -a -boss:error +boss +a +b | alive: a b boss",
    "its supervisor gives up": "-a +a -b -a -boss:error +boss +a +b | alive: a b boss",
    "its supervisor gives up, transient": "-a +a -b -a -boss:error +boss +a +b | alive: a b boss",
    "the agent is done": "-b -a -boss:normal | alive: ",
}
"""Where we differ, on purpose. An agent has ended when its children have: two lives never overlap, as those
of the second story do. A supervisor that gives up is a crash, which restarts a transient agent as well."""


class Noting(Worker):
    """A worker of the stories."""

    name: str
    diary: Diary

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self.diary.note(f"+{self.name}")
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)
            self.diary.note(f"-{self.name}")


class NotingBoss(Worker):
    """The gen_server of the stories."""

    diary: Diary

    def supervises(self) -> Any:
        self.diary.note("+boss")
        workers = [child(name, partial(Noting, name=name, diary=self.diary)) for name in "ab"]
        return tree(*workers, max_restarts=1, max_seconds=5.0)


@pytest.mark.parametrize("story", RECORDED)
def test_the_stories_that_otp_has_lived_through(story: str):
    restart, by_otp = RECORDED[story]
    diary = Diary()

    class Ends:
        """Notes the end of the agent as its supervisor is told it."""

        def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
            if kind in ("stopped", "crashed") and agent == "boss":
                reason = str(fields["reason"])
                diary.note(f"-boss:{reason if reason in ('normal', 'shutdown') else 'error'}")

    async def main() -> None:
        spec = child("boss", partial(NotingBoss, diary=diary), restart=restart)
        async with open_test_node(tree(spec, max_restarts=5), instrument=Ends()) as node:
            diary.take()
            boss = node.root.child("boss")
            if story == "a child crashes":
                await crash(node.find(Worker, "boss/a"))
            elif story == "the agent is stopped":
                await node.root.terminate_child("boss")
            elif story == "the agent crashes":
                await crash(boss)
            elif story == "the agent is done":
                await boss.invoke(Worker.finish)
            else:
                await crash(node.find(Worker, "boss/a"))
                await trio.sleep(0.2)
                await crash(node.find(Worker, "boss/b"))
            await trio.sleep(0.2)
            names = ["a" if ref.path == "boss/a" else "b" if ref.path == "boss/b" else "boss"
                     for ref in node.agents() if ref.statistics().state == "running"]  # fmt: skip
            seen = f"{' '.join(diary.take())} | alive: {' '.join(sorted(names))}"
        assert seen == OURS.get(story, by_otp)

    run(main)
