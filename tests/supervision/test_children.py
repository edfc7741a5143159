"""Children started, stopped, restarted and forgotten by hand, by the hundred, and those that matter."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
import trio

from lmos_actors import AgentUnavailable, ChildSpec, ConfigError, NotFound, StartFailed, open_node
from lmos_actors.errors import NameTaken, WrongState
from lmos_actors.supervision import Backoff, Supervisor
from lmos_actors.testing import open_test_node
from tests.benchmarks.counting import Walk

from .world import (
    Boom,
    Diary,
    Fussy,
    Living,
    Worker,
    child,
    crash,
    living,
    run,
    settled,
    statuses,
    tree,
)

STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
KINDS = ("permanent", "transient", "temporary")


# ---- children started, stopped and forgotten by hand


def test_the_life_of_a_dynamic_child():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(tree(child("a"))) as node:
            root = node.root
            ref = await root.start_child(child("d", living(diary)))
            assert [info.name for info in root.which_children()] == ["a", "d"]
            await root.terminate_child("d")
            assert diary.take() == ["enter d", "left d"]
            assert statuses(root)["d"] == ("stopped", 1)
            with pytest.raises(AgentUnavailable):
                await ref.invoke(Worker.hello)
            await root.terminate_child("d")  # as in OTP: fine, it is stopped
            await root.restart_child("d")
            assert await ref.invoke(Worker.hello) == 0
            assert statuses(root)["d"] == ("running", 2)
            await root.terminate_child("d")
            await root.delete_child("d")
            with pytest.raises(NotFound):
                await ref.invoke(Worker.hello)
            with pytest.raises(NotFound):
                await ref.ready()
            again = await root.start_child(child("d"))
            assert again != ref
            assert await again.invoke(Worker.hello) == 0

    run(main)


def test_answers_that_are_no():
    async def main() -> None:
        async with open_test_node(tree(child("a"), tree(name="s"))) as node:
            root = node.root
            for ask in (root.terminate_child, root.restart_child, root.delete_child):
                with pytest.raises(NotFound) as caught:
                    await ask("b")
                with pytest.raises(NotFound):
                    await ask("a-1")
                with pytest.raises(NotFound):
                    await ask("s/x")
                assert caught.value.name == "b"
            for ask in (root.restart_child, root.delete_child):
                for name in ("a", "s"):
                    with pytest.raises(WrongState) as wrong:
                        await ask(name)
                    assert (wrong.value.path, wrong.value.state) == (name, "running")
            for spec in (child("a"), child("s")):
                with pytest.raises(NameTaken):
                    await root.start_child(spec)
            for name in ("a", "s"):
                with pytest.raises(NameTaken):
                    await root.start_supervisor(tree(name=name))
            await root.terminate_child("a")
            with pytest.raises(NameTaken):
                await root.start_child(child("a"))
            with pytest.raises(ConfigError):
                await root.start_child(child("q", significant=True, restart="transient"))
            with pytest.raises(ConfigError):
                await root.start_many(child("q", significant=True, restart="transient"), 2)
            wrong_specs: list[Any] = [Worker, tree(name="t"), None, "a"]
            for spec in wrong_specs:
                with pytest.raises(ConfigError):
                    await root.start_child(spec)
                with pytest.raises(ConfigError):
                    await root.start_many(spec, 1)
            for spec in (tree, child("t"), None, "a"):
                with pytest.raises(ConfigError):
                    await root.start_supervisor(spec)  # type: ignore[arg-type]
            with pytest.raises(NotFound, match="agent"):
                root.child("s")
            with pytest.raises(NotFound, match="supervisor"):
                root.supervisor("a")
            with pytest.raises(NotFound, match="did you mean"):
                root.supervisor("ss")
            assert statuses(root) == {"a": ("stopped", 1), "s": ("running", 1)}

    run(main)


def test_a_temporary_child_is_forgotten_when_it_is_terminated():
    async def main() -> None:
        async with open_test_node(tree(child("t", restart="temporary"))) as node:
            ref = node.root.child("t")
            await node.root.terminate_child("t")
            assert node.root.which_children() == []
            with pytest.raises(NotFound):
                await node.root.restart_child("t")
            with pytest.raises(NotFound):
                await ref.invoke(Worker.hello)

    run(main)


def test_a_restart_by_hand_that_fails_keeps_the_spec():
    async def main() -> None:
        plan: list[BaseException | None] = [None, Boom("no"), None]
        async with open_test_node(tree(child("a", partial(Fussy, plan=plan)))) as node:
            await node.root.terminate_child("a")
            with pytest.raises(StartFailed) as caught:
                await node.root.restart_child("a")
            assert isinstance(caught.value.__cause__, Boom)
            assert statuses(node.root) == {"a": ("stopped", 1)}
            await node.root.restart_child("a")
            assert statuses(node.root) == {"a": ("running", 2)}

    run(main)


def test_children_are_counted_by_kind_and_activity():
    async def main() -> None:
        spec = tree(
            child("a"), child("t", restart="transient"), tree(child("x"), name="s"), child("b"), name="root"
        )
        async with open_test_node(spec) as node:
            assert node.root.count_children() == (4, 4, 1, 3)
            await node.root.terminate_child("b")
            node.root.child("t").tell_nowait(Worker.finish)
            await settled()
            await node.root.terminate_child("s")
            assert node.root.count_children() == (4, 1, 1, 3)
            info = {i.name: i for i in node.root.which_children()}
            assert [i.name for i in node.root.which_children()] == ["a", "t", "s", "b"]
            assert (info["s"].kind, info["s"].status, info["a"].kind) == ("supervisor", "stopped", "agent")
            assert info["s"].path == "s"
            await node.root.restart_child("s")
            assert node.root.supervisor("s").which_children()[0].path == "s/x"
            numbers = node.root.statistics()
            assert (numbers.specs, numbers.active, numbers.supervisors, numbers.workers) == (4, 2, 1, 3)

    run(main)


def test_counting_children_visits_none():
    async def main() -> None:
        calls: list[int] = []
        for count in (1, 200):
            async with open_test_node(tree(name="root")) as node:
                await node.root.start_many(child("w"), count)
                walk = Walk()
                with walk.counting():
                    assert node.root.statistics().active == count
                calls.append(walk.calls)
        assert calls[0] == calls[1]

    run(main)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_counts_agree_with_a_look_at_each_child(strategy: Any, seed: int):
    random = Random(seed)
    plan: list[BaseException | None] = []

    def fussy(name: str) -> ChildSpec[Any]:
        kind, later = random.choice(KINDS), random.choice([None, None, Backoff(initial=1.0)])
        is_optional = kind != "temporary" and random.random() < 0.2
        factory = partial(Fussy, plan=plan)
        return child(name, factory, restart=kind, optional=is_optional, backoff=later)

    async def one_step(root: Supervisor, number: int) -> None:
        some = random.choice(root.which_children())
        plan[:] = [Boom("no")] * (random.random() < 0.2)
        match random.randrange(9):
            case 0 | 1:
                await root.start_child(fussy(f"c{number}"))
            case 2:
                await root.start_many(child("m", restart=random.choice(KINDS)), 2)
            case 3:
                await root.start_supervisor(tree(child("x"), name=f"s{number}"))
            case 4 | 5:
                await root.terminate_child(some.name)
            case 6:
                await root.restart_child(some.name)
            case 7 if some.name != "a":
                await root.delete_child(some.name)
            case _:
                root.child(some.name).tell_nowait(Worker.crash)

    async def main() -> None:
        seen: set[int] = set()
        async with open_test_node(tree(child("a"), strategy=strategy, max_restarts=1000)) as node:
            for number in range(120):
                with suppress(NotFound, WrongState, StartFailed, AgentUnavailable):
                    await one_step(node.root, number)
                for seconds in (0.0, random.random()):
                    if seconds:
                        await trio.sleep(seconds)
                    children = node.root.which_children()
                    alive = sum(each.status not in ("stopped", "restarting") for each in children)
                    below = sum(each.kind == "supervisor" for each in children)
                    specs = len(children)
                    assert node.root.count_children() == (specs, alive, below, specs - below)
                    seen.add(specs - alive)
        assert len(seen) > 2

    run(main)


@pytest.mark.parametrize("waits", [False, True])
def test_many_of_one_spec(waits: bool):
    diary = Diary()

    async def main() -> None:
        made = living(diary) if waits else Worker
        async with open_test_node() as node:
            root = node.root
            first = await root.start_many(child("w", made), 3)
            second = await root.start_many(child("w", made), 2)
            names = [f"w-{n}" for n in range(1, 6)]
            assert [ref.path for ref in (*first, *second)] == names
            assert [info.name for info in root.which_children()] == names
            assert root.child("w-4") == second[0]
            for taken in ("w-1", "w-5"):
                with pytest.raises(NameTaken):
                    await root.start_child(child(taken))
            await crash(first[1])
            assert statuses(root)["w-2"] == ("running", 2)
            await root.terminate_child("w-3")
            await root.delete_child("w-3")
            with pytest.raises(NotFound):
                await first[2].ready()
            assert await root.start_many(child("w", made), 0) == []
            with pytest.raises(ValueError, match="count"):
                await root.start_many(child("w", made), -1)
            new = await root.start_many(child("w", made), 1)
            assert len({info.name for info in root.which_children()}) == 5
            assert await new[0].invoke(Worker.hello) == 0

    run(main)


@pytest.mark.parametrize("waits", [False, True])
def test_many_never_take_a_name_that_is_taken(waits: bool):
    diary = Diary()

    async def main() -> None:
        async with open_test_node(tree(child("w-2"))) as node:
            try:
                await node.root.start_many(child("w", living(diary) if waits else Worker), 3)
            except NameTaken:
                assert statuses(node.root) == {"w-2": ("running", 1)}
            names = [info.name for info in node.root.which_children()]
            assert len(names) == len(set(names))

    run(main)


@pytest.mark.parametrize("waits", [False, True])
def test_many_start_all_or_none(waits: bool):
    diary = Diary()

    class Picky(Living):
        plan: list[BaseException | None]

        def started(self) -> None:
            if (error := self.plan.pop(0)) is not None:
                raise error

    async def main() -> None:
        plan: list[BaseException | None] = [None, None, Boom("third")]
        made: Any = partial(Picky, diary=diary, plan=plan) if waits else partial(Fussy, plan=plan)
        async with open_test_node(tree(child("a"))) as node:
            with pytest.raises(StartFailed) as caught:
                await node.root.start_many(child("w", made), 5)
            assert isinstance(caught.value.__cause__, Boom)
            assert statuses(node.root) == {"a": ("running", 1)}
            if waits:
                entered = [f"enter w-{n}" for n in (1, 2, 3)]
                assert diary.take() == [*entered, "left w-3", "left w-2", "left w-1"]
            assert node.root.statistics().failed_starts == 1

    run(main)


# ---- significant children


@pytest.mark.parametrize("ending", ["finish", "crash"])
@pytest.mark.parametrize("auto", ["any_significant", "all_significant"])
def test_auto_shutdown(auto: Any, ending: str):
    diary = Diary()

    async def main() -> None:
        team = tree(
            child("a", restart="temporary", significant=True),
            child("b", restart="temporary", significant=True),
            child("c", living(diary)),
            name="team",
            auto_shutdown=auto,
            restart="temporary",
        )
        async with open_test_node(tree(team)) as node:
            sup = node.root.supervisor("team")
            handle = Worker.crash if ending == "crash" else Worker.finish
            sup.child("a").tell_nowait(handle)
            await settled()
            if auto == "all_significant":
                assert list(statuses(sup)) == ["b", "c"]
                sup.child("b").tell_nowait(handle)
                await settled()
            assert node.root.which_children() == []
            assert diary.take() == ["enter team/c", "left team/c"]

    run(main)


def test_a_significant_child_that_is_terminated_ends_nobody():
    async def main() -> None:
        team = tree(
            child("a", restart="transient", significant=True),
            child("b", restart="transient", significant=True),
            name="team", auto_shutdown="any_significant", restart="transient",
        )  # fmt: skip
        async with open_test_node(tree(team)) as node:
            sup = node.root.supervisor("team")
            await sup.terminate_child("a")
            await crash(sup.child("b"))
            assert statuses(sup) == {"a": ("stopped", 1), "b": ("running", 2)}
            sup.child("b").tell_nowait(Worker.finish)
            await settled()
            assert statuses(node.root) == {"team": ("stopped", 1)}

    run(main)


def test_auto_shutdown_of_the_root_ends_the_body_quietly():
    async def main() -> None:
        spec = tree(child("job", restart="transient", significant=True), auto_shutdown="any_significant")
        async with open_node(spec) as node:
            node.root.child("job").tell_nowait(Worker.finish)
            await trio.sleep_forever()

    run(main)
