"""Running supervisors: who is started, restarted and stopped, in which order, and where a storm ends."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from lmos_actors import AgentUnavailable, Gap, NotFound, Property, action, prop
from lmos_actors.errors import RestartIntensityExceeded, WrongState
from lmos_actors.testing import open_test_node

from .world import (
    Boom,
    Diary,
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


# ---- order


def test_children_start_in_order_and_stop_in_reverse():
    diary = Diary()

    async def main() -> None:
        spec = tree(
            child("a", living(diary)),
            tree(child("x", living(diary)), child("y", living(diary)), name="s"),
            child("b", living(diary)),
        )
        async with open_test_node(spec):
            assert diary.take() == ["enter a", "enter s/x", "enter s/y", "enter b"]
        assert diary.take() == ["left b", "left s/y", "left s/x", "left a"]

    run(main)


def test_the_next_child_starts_only_when_the_one_before_is_there():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(
            tree(child("slow", living(diary, entering=3.0)), child("quick")), instrument=diary
        ):
            assert trio.current_time() == 3.0
            assert diary.take() == ["enter slow", "started slow", "started quick"]

    run(main)


def test_the_next_child_stops_only_when_the_one_after_has_left():
    diary = Diary()

    async def main() -> None:
        async with open_test_node(
            tree(child("a", living(diary)), child("b", living(diary, leaving=2.0)))
        ) as node:
            b = node.root.child("b")
            diary.take()
            async with trio.open_nursery() as nursery:

                async def look() -> None:
                    await trio.sleep(1.0)
                    assert diary.take() == []
                    with pytest.raises(AgentUnavailable):
                        await b.invoke(Worker.hello)

                nursery.start_soon(look)
                nursery.start_soon(node.root.stop)
        assert diary.take() == ["left b", "left a"]

    run(main)


# ---- strategy, restart kind, exit reason


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("ending", ["crash", "finish"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_is_restarted(strategy: Any, kind: Any, ending: str, traced: bool):
    diary = Diary()

    async def main() -> None:
        spec = tree(child("a"), child("b", restart=kind), child("c"), strategy=strategy)
        async with open_test_node(spec, instrument=diary if traced else None) as node:
            diary.take()
            ref = node.root.child("b")
            ref.tell_nowait(Worker.crash if ending == "crash" else Worker.finish)
            await settled()
            restarted = kind == "permanent" or (kind == "transient" and ending == "crash")
            expected = dict.fromkeys("abc", ("running", 1))
            if restarted:
                scope = {"one_for_one": "b", "one_for_all": "abc", "rest_for_one": "bc"}[strategy]
                expected |= dict.fromkeys(scope, ("running", 2))
            elif kind == "transient":
                expected["b"] = ("stopped", 1)
            else:
                del expected["b"]
            assert statuses(node.root) == expected
            if traced:
                assert diary.take() == lines(strategy, ending, restarted)
            if restarted:
                assert await ref.invoke(Worker.hello) == 0
            else:
                with pytest.raises(NotFound if kind == "temporary" else AgentUnavailable):
                    await ref.invoke(Worker.hello)
            assert node.root.statistics().restarts == sum(i - 1 for _, i in expected.values())

    def lines(strategy: str, ending: str, restarted: bool) -> list[str]:
        first = f"{'crashed' if ending == 'crash' else 'stopped'} b"
        if not restarted:
            return [first]
        return [
            first,
            *{
                "one_for_one": ["started b"],
                "rest_for_one": ["stopped c", "started b", "started c"],
                "one_for_all": ["stopped c", "stopped a", "started a", "started b", "started c"],
            }[strategy],
        ]

    run(main)


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_temporary_siblings_go_down_with_a_restart_and_stay_away(strategy: Any):
    async def main() -> None:
        async with open_test_node(
            tree(child("a"), child("t", restart="temporary"), child("c"), strategy=strategy)
        ) as node:
            t = node.root.child("t")
            await crash(node.root.child("a"))
            assert statuses(node.root) == {"a": ("running", 2), "c": ("running", 2)}
            with pytest.raises(NotFound):
                await t.invoke(Worker.hello)
            with pytest.raises(NotFound):
                node.root.child("t")
            assert await node.start_child(child("t")) != t

    run(main)


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_sibling_that_was_stopped_by_hand_comes_back_with_a_restart_of_all(strategy: Any):
    """As in OTP: restarting the others starts whoever has a spec."""

    async def main() -> None:
        async with open_test_node(tree(child("a"), child("b"), strategy=strategy)) as node:
            await node.root.terminate_child("b")
            await crash(node.root.child("a"))
            assert statuses(node.root) == {"a": ("running", 2), "b": ("running", 2)}

    run(main)


@pytest.mark.parametrize("ending", ["body", "run", "task", "lifespan", "timer"])
def test_every_way_of_crashing_restarts(ending: str):
    class Fragile(Worker):
        @action
        async def run_crash(self) -> None:
            raise Boom

        @action
        def task_crash(self) -> None:
            self.nursery.start_soon(self.fail)

        @action
        def timer_crash(self) -> None:
            self.after(1.0, self.crash_now)

        def crash_now(self) -> None:
            raise Boom

        async def fail(self) -> None:
            await trio.sleep(1.0)
            raise Boom

    diary = Diary()

    async def main() -> None:
        made = partial(Living, diary=diary) if ending == "lifespan" else Fragile
        async with open_test_node(tree(child("a", made))) as node:
            ref = node.root.child("a")
            async with ref.monitor() as downs:
                if ending == "run":
                    ref.tell_nowait(Fragile.run_crash)
                elif ending == "task":
                    ref.tell_nowait(Fragile.task_crash)
                elif ending == "timer":
                    ref.tell_nowait(Fragile.timer_crash)
                else:
                    ref.tell_nowait(Worker.crash)
                down = await anext(aiter(downs))
                assert isinstance(down.reason.error, Boom)
                assert (down.agent, down.incarnation) == ("a", 1)
            await ref.ready()
            assert ref.statistics().incarnation == 2

    run(main)


# ---- escalation


def test_the_root_ends_with_the_causes_when_it_gives_up():
    async def main() -> None:
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node(tree(child("a"), max_restarts=2, max_seconds=10.0)) as node:
                for text in ("one", "two", "three"):
                    await crash(node.root.child("a"), text)
                    await trio.sleep(1.0)
                raise AssertionError("the body goes on")
        error = caught.value
        assert [str(cause) for cause in error.causes] == ["one", "two", "three"]
        assert (error.path, error.max_restarts, error.max_seconds) == ("root", 2, 10.0)
        assert isinstance(error.__cause__, BaseExceptionGroup)
        assert error.__cause__.exceptions == error.causes

    run(main)


def test_restarts_that_are_old_enough_no_longer_count():
    async def main() -> None:
        async with open_test_node(tree(child("a"), max_restarts=1, max_seconds=5.0)) as node:
            for _ in range(20):
                await crash(node.root.child("a"))
                await trio.sleep(5.001)
            assert node.root.statistics().restarts == 20

    run(main)


def test_restarts_at_the_edge_of_the_window_count():
    async def main() -> None:
        with pytest.raises(RestartIntensityExceeded):
            async with open_test_node(tree(child("a"), max_restarts=1, max_seconds=5.0)) as node:
                await crash(node.root.child("a"))
                await trio.sleep(5.0)
                await crash(node.root.child("a"))
                await trio.sleep_forever()

    run(main)


def test_escalation_climbs_to_the_root_with_paths_and_causes():
    async def main() -> None:
        inner = tree(child("a"), name="inner", max_restarts=0)
        middle = tree(inner, name="middle", max_restarts=1)
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node(tree(middle, max_restarts=0)) as node:
                ref = node.root.supervisor("middle").supervisor("inner").child("a")
                await crash(ref, "first")
                assert statuses(node.root) == {"middle": ("running", 1)}
                assert statuses(node.root.supervisor("middle")) == {"inner": ("running", 2)}
                assert await ref.invoke(Worker.hello) == 0
                await crash(ref, "second")
                await trio.sleep_forever()
        root = caught.value
        assert root.path == "root"
        (below,) = root.causes
        assert isinstance(below, RestartIntensityExceeded)
        assert below.path == "middle"
        assert [cause.path for cause in below.causes] == ["middle/inner", "middle/inner"]  # type: ignore[attr-defined]
        assert [str(cause.causes[0]) for cause in below.causes] == ["first", "second"]  # type: ignore[attr-defined]

    run(main)


@pytest.mark.parametrize(("kind", "status"), [("transient", ("stopped", 1)), ("temporary", None)])
def test_a_supervisor_over_its_limit_exits_shutdown(kind: Any, status: object):
    """A transient supervisor is not restarted then: `shutdown` is no error."""

    async def main() -> None:
        async with open_test_node(
            tree(tree(child("a"), name="s", max_restarts=0, restart=kind), child("b"), max_restarts=0)
        ) as node:
            sup = node.root.supervisor("s")
            ref = sup.child("a")
            await crash(ref)
            assert statuses(node.root).get("s") == status
            with pytest.raises((AgentUnavailable, NotFound)):
                await ref.invoke(Worker.hello)
            with pytest.raises(WrongState):
                await sup.start_child(child("late"))

    run(main)


def test_refs_survive_the_restart_of_their_supervisor():
    class Keeper(Worker):
        units: Property[str] = prop(default="kelvin")

    async def main() -> None:
        spec = tree(tree(child("a", Keeper), child("b"), name="s", max_restarts=0))
        async with open_test_node(spec) as node:
            ref, sup = node.root.supervisor("s").child("a"), node.root.supervisor("s")
            async with ref.observe(Keeper.units, gaps=True) as units:
                values = aiter(units)
                assert await anext(values) == "kelvin"
                await ref.write(Keeper.units, "celsius")
                assert await anext(values) == "celsius"
                await crash(sup.child("b"))
                assert isinstance(await anext(values), Gap)
                assert await anext(values) == "kelvin"
            assert ref == node.root.supervisor("s").child("a")
            assert node.root.supervisor("s") == sup
            assert ref.statistics().incarnation == 2
            assert await ref.invoke(Worker.hello) == 0

    run(main)


def test_children_started_at_run_time_are_gone_when_their_supervisor_restarts():
    async def main() -> None:
        async with open_test_node(tree(tree(child("a"), name="s", max_restarts=0))) as node:
            sup = node.root.supervisor("s")
            extra = await sup.start_child(child("extra"))
            many = await sup.start_many(child("w"), 3)
            below = await sup.start_supervisor(tree(child("deep"), name="below"))
            deep = below.child("deep")
            await crash(sup.child("a"))
            assert statuses(sup) == {"a": ("running", 2)}
            for ref in (extra, *many, deep):
                with pytest.raises(NotFound):
                    await ref.invoke(Worker.hello)
                with pytest.raises(NotFound):
                    await ref.ready()
            assert await sup.start_child(child("extra")) != extra
            assert len(await sup.start_many(child("w"), 2)) == 2

    run(main)


def test_a_child_deleted_by_hand_comes_back_as_another_when_its_supervisor_restarts():
    async def main() -> None:
        async with open_test_node(tree(tree(child("a"), child("b"), name="s", max_restarts=0))) as node:
            sup = node.root.supervisor("s")
            old = sup.child("b")
            await sup.terminate_child("b")
            await sup.delete_child("b")
            await crash(sup.child("a"))
            assert statuses(sup) == {"a": ("running", 2), "b": ("running", 1)}
            assert sup.child("b") != old
            with pytest.raises(NotFound):
                await old.ready()

    run(main)
