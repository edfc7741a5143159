"""Children of an agent: started by `self.start` and `supervises()`, looked at, restarted, refused."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    ConfigError,
    NotFound,
    Ref,
    StartFailed,
    Supervisor,
    SupervisorSpec,
    action,
)
from lmos_actors.errors import NameTaken, WrongState
from lmos_actors.testing import open_test_node

from .test_cancelled import Axe, at_every_step, balanced
from .world import Boom, Diary, Fussy, Living, Worker, child, crash, living, run, settled, statuses, tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FOREVER = float("inf")


class Boss(Worker):
    """Starts what it is told to."""

    @action(concurrency=10)
    async def hire(self) -> str:
        ref = await self.start(Worker, number=7)
        assert await ref.invoke(Worker.hello) == 7
        return ref.path

    @action
    def look(self) -> list[str]:
        return [f"{info.path} {info.status} #{info.incarnation}" for info in self.children.which_children()]


class Chief(Boss):
    """Has children from the beginning."""

    spec: Any = None
    diary: Any = None
    leaving: float = 0.0
    crash_after: float = 0.0
    also: Any = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        diary, path = self.diary or Diary(), self.path
        diary.note(f"enter {path}")
        try:
            if self.also is not None:
                await self.start(self.also)
            if self.crash_after:
                self.nursery.start_soon(self.crash_later)
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.leaving)
            diary.note(f"left {path}")

    async def crash_later(self) -> None:
        await trio.sleep(self.crash_after)
        raise Boom("task")

    def started(self) -> None:
        if self.diary is not None:
            self.diary.note(f"opened {self.path}")

    def supervises(self) -> Any:
        return self.spec


def agent_of(node: Any, path: str) -> Any:
    """The agent object itself, for its own verbs called from a test."""
    return next(slot.agent for slot in _slots(node) if slot.path == path)


def _slots(node: Any) -> list[Any]:
    return [ref._link for ref in node.agents()]


# ---- how they are started


def test_a_child_is_named_after_its_class_and_stands_below_its_agent():
    async def main() -> None:
        async with open_test_node() as node:
            boss = await node.start(Boss)
            assert await boss.invoke(Boss.hire) == "boss/worker"
            assert await boss.invoke(Boss.hire) == "boss/worker-2"
            other = await node.start(Worker)
            assert other.path == "worker", "names are per supervisor"
            assert node.tree().splitlines() == [
                "root (one_for_one, 3 in 5 s)",
                "  boss running #1 (one_for_one, 3 in 5 s)",
                "    worker running #1",
                "    worker-2 running #1",
                "  worker running #1",
            ]
            assert [ref.path for ref in node.agents()] == ["boss", "boss/worker", "boss/worker-2", "worker"]
            assert (node.statistics().agents, node.statistics().supervisors) == (4, 2)
            assert node.statistics().handled == 4, "two of the boss, one of each of its workers"
            assert await node.find(Worker, "boss/worker-2").invoke(Worker.hello) == 7
            assert node.find(Worker, "worker-2").path == "boss/worker-2", "by name, anywhere"
            found = node.find(Worker, "boss/worker")
            assert found == (await boss.invoke(Boss.hire), node.find(Worker, "boss/worker"))[1]
            for wrong in ("boss/none", "worker/x", "boss/worker/x", "none/worker"):
                with pytest.raises(NotFound):
                    await node.find(Worker, wrong).invoke(Worker.hello)

    run(main)


def test_an_agent_without_children_owns_no_task():
    async def main() -> None:
        async with open_test_node() as node:
            before = trio.lowlevel.current_statistics().tasks_living
            boss = await node.start(Boss)
            assert trio.lowlevel.current_statistics().tasks_living == before
            await boss.invoke(Boss.hello)
            assert node.statistics().supervisors == 1
            await boss.invoke(Boss.look)
            assert node.statistics().supervisors == 2

    run(main)


def test_specs_and_supervisors_three_levels_deep():
    class Founder(Boss):
        @action
        async def found(self) -> list[str]:
            clerk = await self.start_child(ChildSpec("clerk", partial(Boss, number=1), restart="transient"))
            desk: Supervisor = await self.start_supervisor(tree(child("x", Boss), name="desk"))
            late = await desk.start_child(child("late"))
            hired = await clerk.invoke(Boss.hire)
            deepest = await desk.child("x").invoke(Boss.hire)
            return [clerk.path, desk.path, late.path, hired, deepest]

    async def main() -> None:
        async with open_test_node() as node:
            founder: Ref[Founder] = await node.start(Founder)
            paths = ["founder/clerk", "founder/desk", "founder/desk/late"]
            paths += ["founder/clerk/worker", "founder/desk/x/worker"]
            assert await founder.invoke(Founder.found) == paths
            for path in (paths[0], *paths[2:]):
                assert await node.find(Worker, path).invoke(Worker.hello) in (0, 1, 7)
            assert node.statistics().supervisors == 5
            assert "      x running #1 (one_for_one, 3 in 5 s)" in node.tree().splitlines()
            with pytest.raises(AgentDied):
                await founder.invoke(Worker.crash)
            await founder.ready()
            assert [ref.path for ref in node.agents()] == ["founder"]

    run(main)


@pytest.mark.parametrize("verb", ["start", "start_child", "start_supervisor"])
@pytest.mark.parametrize("where", ["turn", "started"])
def test_a_def_turn_is_told_the_way_out(verb: str, where: str):
    arguments = {"start": Worker, "start_child": child("w"), "start_supervisor": tree(name="s")}

    class Hasty(Worker):
        @action
        def hire(self) -> str:
            with pytest.raises(RuntimeError, match=rf"self\.{verb}.*make the handler async def") as caught:
                getattr(self, verb)(arguments[verb])
            return str(caught.value)

        def started(self) -> None:
            if where == "started":
                self.hire()

    async def main() -> None:
        async with open_test_node() as node:
            hasty: Any = await node.start(Hasty)
            text = await hasty.invoke(Hasty.hire)
            assert "hasty" in text
            assert [ref.path for ref in node.agents()] == ["hasty"]

    run(main)


def test_a_turn_may_have_its_nursery_start_a_child():
    class Hasty(Worker):
        @action
        def hire(self) -> None:
            self.nursery.start_soon(self.start, Worker)

    async def main() -> None:
        async with open_test_node() as node:
            hasty = await node.start(Hasty)
            await hasty.invoke(Hasty.hire)
            assert await node.find(Worker, "hasty/worker").ready() is None
            assert await node.find(Worker, "hasty/worker").invoke(Worker.hello) == 0

    run(main)


def test_started_while_the_lifespan_is_entered_and_from_a_task_of_the_agent():
    class Early(Worker):
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            ref = await self.start(Worker)
            assert await ref.invoke(Worker.hello) == 0
            self.nursery.start_soon(self.task)
            yield
            assert ref.statistics().state == "gone", "they have ended before"
            with pytest.raises(WrongState, match="early is ending"):
                await self.start(Worker)

        async def task(self) -> None:
            await self.start_child(child("late"))

    async def main() -> None:
        async with open_test_node() as node:
            await node.start(Early)
            await settled()
            assert [ref.path for ref in node.agents()] == ["early", "early/worker", "early/late"]

    run(main)


# ---- children that an agent always has


def test_the_children_of_supervises_start_between_the_lifespan_and_the_first_turn():
    diary = Diary()
    spec = tree(child("a", living(diary, entering=1.0)), child("b", living(diary)))

    async def main() -> None:
        async with open_test_node() as node, trio.open_nursery() as nursery:
            nursery.start_soon(node.start, partial(Chief, spec=spec, diary=diary))
            await settled()
            chief = node.find(Chief)
            with pytest.raises(AgentUnavailable):
                await chief.invoke(Chief.hello)
            await chief.ready()
            assert trio.current_time() == 1.0
            assert diary.take() == [
                "enter chief",
                "enter chief/a",
                "enter chief/b",
                "opened chief",
            ]
            assert await chief.invoke(Chief.hire) == "chief/worker"
            assert node.find(Living, "chief/a").statistics().incarnation == 1
        assert diary.lines == ["left chief/b", "left chief/a", "left chief"]

    run(main)


class Bare(Worker):
    """Has children and no lifespan."""

    spec: Any
    diary: Any = None

    def supervises(self) -> Any:
        return self.spec


@pytest.mark.parametrize("cls", ["with lifespan", "without"])
@pytest.mark.parametrize("bad", [0, 1])
def test_a_child_that_cannot_start_is_a_failed_start_of_its_agent(bad: int, cls: str):
    diary = Diary()

    async def main() -> None:
        children = [child("ok", living(diary)), child("bad", living(diary, enter_error=Boom("no")))]
        spec = tree(*(children if bad else reversed(children)))
        made = partial(Chief, diary=diary, leaving=1.0) if cls == "with lifespan" else Bare
        async with open_test_node() as node:
            before = trio.lowlevel.current_statistics().tasks_living
            with pytest.raises(StartFailed, match=r"^bare|^chief") as caught:
                await node.start(made, spec=spec)
            assert isinstance(caught.value.__cause__, Boom)
            assert caught.value.path in ("bare", "chief")
            assert "bad could not start: no" in str(caught.value)
            assert node.agents() == []
            assert node.statistics().supervisors == 1
            assert trio.lowlevel.current_statistics().tasks_living == before
        balanced(diary)
        assert len(diary.lines) == 2 + 2 * bad + 2 * (cls == "with lifespan")

    run(main)


@pytest.mark.parametrize("spec", [None, [], Boom("not today")])
def test_supervises_that_gives_no_spec_is_a_failed_start(spec: Any):
    class Odd(Worker):
        def supervises(self) -> Any:
            if isinstance(spec, Exception):
                raise spec
            return spec

    async def main() -> None:
        async with open_test_node() as node:
            with pytest.raises(StartFailed) as caught:
                await node.start(Odd)
            assert isinstance(caught.value.__cause__, Boom if isinstance(spec, Boom) else ConfigError)
            assert node.agents() == []

    run(main)


def test_many_agents_with_children_are_started_at_once_or_not_at_all():
    spec = tree(child("w"))

    async def main() -> None:
        async with open_test_node() as node:
            refs = await node.root.start_many(child("chief", partial(Chief, spec=spec)), 3)
            assert node.statistics().agents == 6
            plans: Any = iter([spec, spec, None])

            def made() -> Any:
                return Chief(spec=next(plans))

            with pytest.raises(StartFailed):
                await node.root.start_many(child("other", made), 3)
            assert [ref.path for ref in refs] == ["chief-1", "chief-2", "chief-3"]
            assert node.statistics().agents == 6

    run(main)


@pytest.mark.parametrize(
    ("strategy", "after"),
    [
        ("one_for_one", {"a": 1, "b": 2, "c": 1}),
        ("rest_for_one", {"a": 1, "b": 2, "c": 2}),
        ("one_for_all", {"a": 2, "b": 2, "c": 2}),
    ],
)
def test_each_strategy_under_an_agent(strategy: Any, after: dict[str, int]):
    async def main() -> None:
        spec = tree(child("a"), child("b"), child("c"), strategy=strategy)
        async with open_test_node() as node:
            chief = await node.start(Chief, spec=spec)
            old = node.find(Worker, "chief/b")
            await crash(old)
            household = agent_of(node, "chief").children
            assert statuses(household) == {name: ("running", n) for name, n in after.items()}
            assert await old.invoke(Worker.hello) == 0, "a ref survives the restarts of its child"
            assert chief.statistics().restarts == 0
            assert f"  chief running #1 ({strategy}, 3 in 5 s)" in node.tree().splitlines()

    run(main)


def test_one_spec_serves_many_lives_and_dynamic_children_are_not_among_them():
    async def main() -> None:
        async with open_test_node() as node:
            chief = await node.start(Chief, spec=tree(child("a"), max_restarts=9, name="any"))
            await chief.invoke(Chief.hire)
            with pytest.raises(AgentDied):
                await chief.invoke(Chief.crash)
            await chief.ready()
            assert await chief.invoke(Chief.look) == ["chief/a running #1"]
            assert await chief.invoke(Chief.hire) == "chief/worker"
            assert "(one_for_one, 9 in 5 s)" in node.tree()

    run(main)


# ---- what may be asked


def test_children_is_the_supervisor_of_them():
    class Manager(Boss):
        @action
        async def manage(self) -> list[str]:
            kids: Supervisor = self.children
            await kids.start_many(child("t", restart="temporary"), 2)
            await kids.start_child(child("a"))
            await kids.terminate_child("a")
            seen = self.look()
            await kids.restart_child("a")
            await kids.terminate_child("t-1")
            with pytest.raises(NotFound):
                kids.child("t-1")
            assert kids.child("a").path == "manager/a"
            return seen + self.look()

    async def main() -> None:
        async with open_test_node() as node:
            manager = await node.start(Manager)
            assert await manager.invoke(Manager.manage) == [
                "manager/t-1 running #1",
                "manager/t-2 running #1",
                "manager/a stopped #1",
                "manager/t-2 running #1",
                "manager/a running #2",
            ]

    run(main)


def test_what_cannot_be_started_leaves_nothing():
    class Unlucky(Boss):
        @action
        async def attempt(self) -> list[str]:
            await self.start_child(child("a"))
            with pytest.raises(NameTaken):
                await self.start_child(child("a"))
            with pytest.raises(StartFailed, match="unlucky/fussy"):
                await self.start(Fussy, plan=[Boom("no")])
            with pytest.raises(StartFailed, match="unlucky/living"):
                await self.start(Living, diary=Diary(), enter_error=Boom("no"))
            with pytest.raises(StartFailed, match="unlucky/s"):
                await self.start_supervisor(tree(child("f", partial(Fussy, plan=[Boom("no")])), name="s"))
            with pytest.raises(ConfigError):
                await self.start_child(SupervisorSpec("s"))  # type: ignore[arg-type]
            return self.look()

    async def main() -> None:
        async with open_test_node() as node:
            unlucky = await node.start(Unlucky)
            assert await unlucky.invoke(Unlucky.attempt) == ["unlucky/a running #1"]

    run(main)


def test_an_agent_outside_a_tree_starts_nobody():
    with pytest.raises(AgentUnavailable):
        Boss().start(Worker)
    with pytest.raises(AgentUnavailable):
        _ = Boss().children


def test_the_names_are_the_agents_own():
    for name in ("start", "start_child", "start_supervisor", "children", "supervises"):
        with pytest.raises(TypeError, match=name):
            type("X", (Agent,), {"__annotations__": {name: "int"}, name: 0})


# ---- cancelled, or overtaken by the end of the agent


@pytest.mark.parametrize("kind", ["now", "waiting", "supervisor"])
def test_a_start_cancelled_at_any_step_is_undone(kind: str):
    async def scenario(axe: Axe) -> None:
        diary = Diary()
        made = living(diary, entering=1.0, leaving=1.0)
        async with open_test_node(tree(child("boss", Boss))) as node:
            boss = agent_of(node, "boss")

            async def start() -> Any:
                if kind == "now":
                    return await boss.start(Worker)
                if kind == "waiting":
                    return await boss.start_child(child("w", made))
                return await boss.start_supervisor(tree(child("v", made), child("w", made), name="s"))

            ref = await axe.over(start)
            assert len(boss.children.which_children()) == (0 if ref is None else 1)
            assert {info.status for info in boss.children.which_children()} <= {"running"}
            name = "worker-2" if ref and kind == "now" else "worker"
            assert await boss.ref.invoke(Boss.hire) == f"boss/{name}"
        balanced(diary)

    at_every_step(scenario, least=0 if kind == "now" else 3)


@pytest.mark.parametrize("how", ["stop", "crash", "brutal"])
def test_the_agent_ends_while_others_start_its_children(how: str):
    diary = Diary()

    async def main() -> None:
        errors: list[str] = []

        async def start(boss: Any, made: Any) -> None:
            try:
                await boss.start(made)
            except WrongState as error:
                errors.append(str(error))

        spec = child("boss", Boss, restart="temporary", shutdown="brutal" if how == "brutal" else 5.0)
        async with open_test_node(tree(spec)) as node, trio.open_nursery() as nursery:
            boss = agent_of(node, "boss")
            ref = boss.ref
            await boss.start(living(diary))
            for made in (living(diary, entering=FOREVER), Worker):
                nursery.start_soon(start, boss, made)
                await settled()
            if how == "crash":
                ref.tell_nowait(Boss.crash)
            else:
                await node.root.terminate_child("boss")
            await settled()
            assert errors == ["boss is stopping; it does nothing more"] * 2
            assert node.agents() == []
            with pytest.raises(AgentUnavailable):
                await boss.start(Worker)
        balanced(diary)
        assert trio.current_time() == 0.0

    run(main)


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("how", ["terminate", "leave"])
@pytest.mark.parametrize("cls", [Chief, Bare])
def test_a_start_of_the_agent_ended_at_any_stage_gives_everything_back(seconds: float, how: str, cls: Any):
    diary = Diary()
    spec = tree(*(child(name, living(diary, entering=1.0, leaving=0.25)) for name in "abc"))

    async def main() -> None:
        async def start(sup: Supervisor) -> None:
            with pytest.raises(WrongState):
                await sup.start_child(child("chief", partial(cls, spec=spec, diary=diary)))

        async with trio.open_nursery() as nursery, open_test_node(tree(tree(name="s"))) as node:
            nursery.start_soon(start, node.root.supervisor("s"))
            await trio.sleep(seconds)
            if how == "terminate":
                await node.root.terminate_child("s")
        balanced(diary)
        assert len(diary.lines) == 2 * (cls is Chief) + 2 * min(3, int(seconds + 1))

    run(main)


def test_a_crash_while_the_children_start_is_a_failed_start_and_no_more():
    diary = Diary()

    async def main() -> None:
        spec = tree(child("a", living(diary)), child("b", living(diary, entering=5.0)))
        made = partial(Chief, spec=spec, diary=diary, crash_after=1.0)
        async with open_test_node(tree(max_restarts=0)) as node:
            with pytest.raises(StartFailed, match="chief could not start: task") as caught:
                await node.start(made)
            assert isinstance(caught.value.__cause__, Boom)
            assert (node.agents(), trio.current_time()) == ([], 1.0)
            await trio.sleep(10.0)
            await node.start(Worker)
        balanced(diary)

    run(main)


def test_a_lifespan_that_has_started_children_and_fails():
    diary = Diary()

    async def main() -> None:
        class Torn(Chief):
            @asynccontextmanager
            async def lifespan(self) -> AsyncIterator[None]:
                await self.start(living(diary, leaving=1.0))
                raise Boom("torn")
                yield

        async with open_test_node() as node:
            with pytest.raises(StartFailed, match="torn could not start: torn"):
                await node.start(Torn, spec=tree(child("a", living(diary))))
            assert node.statistics().supervisors == 1
            assert diary.lines == [
                "enter torn/a",
                "enter torn/living",
                "left torn/living",
                "left torn/a",
            ], "who starts children while entering has those of supervises() first"

            bad = tree(child("bad", living(diary, enter_error=Boom("no"))))
            with pytest.raises(StartFailed) as caught:
                await node.start(Chief, spec=bad, also=Worker)
            assert isinstance(caught.value.__cause__, Boom), "whoever asks is told why"

    run(main)


def test_a_crash_while_the_children_start_again_counts_once():
    async def main() -> None:
        slow = tree(child("slow", living(Diary(), entering=5.0)))
        plans = iter([tree(child("a")), slow, tree(child("a")), tree(child("a"))])

        def made() -> Any:
            plan = next(plans)
            return Chief(spec=plan, crash_after=1.0 if plan is slow else 0.0)

        async with open_test_node(tree(child("chief", made), max_restarts=3)) as node:
            chief = node.root.child("chief")
            async with chief.monitor() as downs:
                await crash(chief)
                assert statuses(node.root)["chief"][0] == "starting"
                await trio.sleep(2.0)
                assert statuses(node.root)["chief"] == ("running", 2)
                await crash(chief)
                ends = [await downs.receive() for _ in range(2)]
            assert [(down.incarnation, str(down.reason)) for down in ends] == [
                (1, "Boom: boom"),
                (2, "Boom: boom"),
            ], "nobody is told of a life that never opened"

    run(main)


def test_chance_differs_from_life_to_life_of_the_agent_above():
    class Dice(Worker):
        @action
        def draw(self) -> float:
            return self.random.random()

    async def main() -> list[float]:
        drawn: list[float] = []
        spec = tree(tree(child("b", Dice), name="s"), child("a", Dice))
        async with open_test_node() as node:
            chief = await node.start(Chief, spec=spec)
            for _ in range(3):
                for path in ("chief/a", "chief/s/b"):
                    drawn.append(await node.find(Dice, path).invoke(Dice.draw))
                await crash(chief)
        return drawn

    drawn = run(main, seed=1)
    assert len(set(drawn)) == 6
    assert run(main, seed=1) == drawn
