"""Running supervisors: who is started, restarted, stopped, forgotten; in which order, with what answers."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    Backoff,
    ConfigError,
    Gap,
    NameTaken,
    NotFound,
    Property,
    RestartIntensityExceeded,
    StartFailed,
    SupervisorSpec,
    WrongState,
    action,
    open_node,
    prop,
)

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


# ---- order


def test_children_start_in_order_and_stop_in_reverse():
    diary = Diary()

    async def main() -> None:
        spec = tree(
            child("a", living(diary)),
            tree(child("x", living(diary)), child("y", living(diary)), name="s"),
            child("b", living(diary)),
        )
        async with open_node(spec):
            assert diary.take() == ["enter a", "enter s/x", "enter s/y", "enter b"]
        assert diary.take() == ["left b", "left s/y", "left s/x", "left a"]

    run(main)


def test_the_next_child_starts_only_when_the_one_before_is_there():
    diary = Diary()

    async def main() -> None:
        async with open_node(
            tree(child("slow", living(diary, entering=3.0)), child("quick")), instrument=diary
        ):
            assert trio.current_time() == 3.0
            assert diary.take() == ["enter slow", "started slow", "started quick"]

    run(main)


def test_the_next_child_stops_only_when_the_one_after_has_left():
    diary = Diary()

    async def main() -> None:
        async with open_node(tree(child("a", living(diary)), child("b", living(diary, leaving=2.0)))) as node:
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
        async with open_node(spec, instrument=diary if traced else None) as node:
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
        async with open_node(
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
        async with open_node(tree(child("a"), child("b"), strategy=strategy)) as node:
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
        async with open_node(tree(child("a", made))) as node:
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
            async with open_node(tree(child("a"), max_restarts=2, max_seconds=10.0)) as node:
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
        async with open_node(tree(child("a"), max_restarts=1, max_seconds=5.0)) as node:
            for _ in range(20):
                await crash(node.root.child("a"))
                await trio.sleep(5.001)
            assert node.root.statistics().restarts == 20

    run(main)


def test_restarts_at_the_edge_of_the_window_count():
    async def main() -> None:
        with pytest.raises(RestartIntensityExceeded):
            async with open_node(tree(child("a"), max_restarts=1, max_seconds=5.0)) as node:
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
            async with open_node(tree(middle, max_restarts=0)) as node:
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
        async with open_node(
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
        async with open_node(spec) as node:
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
            assert node.root.supervisor("s") is sup
            assert ref.statistics().incarnation == 2
            assert await ref.invoke(Worker.hello) == 0

    run(main)


def test_children_started_at_run_time_are_gone_when_their_supervisor_restarts():
    async def main() -> None:
        async with open_node(tree(tree(child("a"), name="s", max_restarts=0))) as node:
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
        async with open_node(tree(tree(child("a"), child("b"), name="s", max_restarts=0))) as node:
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


# ---- back-off


def test_back_off_delays_grow_and_are_spread_by_the_seed():
    def starts(seed: int, jitter: float) -> list[float]:
        async def main() -> list[float]:
            times: list[float] = []

            class Noted(Worker):
                def started(self) -> None:
                    times.append(trio.current_time())
                    self.after(0.0, self.crash_now)

                def crash_now(self) -> None:
                    raise Boom

            backoff = Backoff(initial=1.0, factor=2.0, max=8.0, jitter=jitter)
            async with open_node(tree(child("a", Noted, backoff=backoff), max_restarts=100)) as node:
                assert statuses(node.root) == {"a": ("running", 1)}
                await trio.sleep(0.5)
                assert statuses(node.root) == {"a": ("restarting", 1)}
                with pytest.raises(AgentUnavailable):
                    await node.root.child("a").invoke(Worker.hello)
                await trio.sleep(40.0)
            return times

        result: list[float] = run(main, seed=seed)
        return result

    assert starts(0, 0.0) == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0, 31.0, 39.0]
    spread = starts(0, 0.5)
    assert spread == starts(0, 0.5)
    assert spread != starts(1, 0.5)
    gaps = [b - a for a, b in pairwise(spread)]
    for gap, base in zip(gaps, [1.0, 2.0, 4.0, 8.0], strict=False):
        assert 0.5 * base <= round(gap, 6) <= min(8.0, 1.5 * base)


def test_a_back_off_under_way_is_ended_by_terminate_and_overtaken_by_restart():
    async def main() -> None:
        backoff = Backoff(initial=10.0, jitter=0.0)
        async with open_node(tree(child("a", backoff=backoff), max_restarts=100)) as node:
            ref = node.root.child("a")
            await crash(ref)
            with pytest.raises(WrongState, match="restarting"):
                await node.root.restart_child("a")
            with pytest.raises(WrongState, match="restarting"):
                await node.root.delete_child("a")
            await node.root.terminate_child("a")
            assert statuses(node.root) == {"a": ("stopped", 1)}
            await trio.sleep(100.0)
            assert statuses(node.root) == {"a": ("stopped", 1)}
            await node.root.restart_child("a")
            assert await ref.invoke(Worker.hello) == 0

    run(main)


def test_a_delay_that_nobody_waits_for_any_more_does_not_shorten_the_next():
    async def main() -> None:
        backoff = Backoff(initial=10.0, max=20.0, jitter=0.0)
        async with open_node(tree(child("a", backoff=backoff), max_restarts=100)) as node:
            ref = node.root.child("a")
            await crash(ref)  # again at 10
            await node.root.terminate_child("a")
            await node.root.restart_child("a")
            await trio.sleep(5.0)
            await crash(ref)  # second in a row: again at 25
            await trio.sleep(10.0)
            assert statuses(node.root) == {"a": ("restarting", 2)}
            await ref.ready()
            assert trio.current_time() == 25.0

    run(main)


def test_a_delay_does_not_reach_into_the_next_life_of_the_supervisor():
    async def main() -> None:
        backoff = Backoff(initial=10.0, max=20.0, jitter=0.0)
        spec = tree(child("a", backoff=backoff), child("b"), name="s", max_restarts=1)
        async with open_node(tree(spec)) as node:
            sup = node.root.supervisor("s")
            a = sup.child("a")
            await crash(a)  # again at 10
            await crash(sup.child("b"))
            assert sup.incarnation == 2
            await trio.sleep(5.0)
            await crash(a)  # again at 15
            await a.ready()
            assert trio.current_time() == 15.0

    run(main)


# ---- first starts that fail


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("how", ["constructor", "started", "before yield", "not an agent", "no yield"])
def test_a_first_start_that_fails_stops_what_has_started_and_says_why(how: str, below: bool):
    diary = Diary()

    class Unmade(Worker):
        def __attrs_post_init__(self) -> None:
            raise Boom("no")

    class NoYield(Worker):
        def lifespan(self) -> Any:
            return None

    factories: dict[str, Any] = {
        "constructor": Unmade,
        "started": partial(Fussy, plan=[Boom("no")]),
        "before yield": living(diary, enter_error=Boom("no")),
        "not an agent": lambda: 42,
        "no yield": NoYield,
    }

    async def main() -> None:
        bad = child("bad", factories[how])
        last = tree(child("x", living(diary)), bad, name="s") if below else bad
        with pytest.raises(StartFailed) as caught:
            async with open_node(tree(child("a", living(diary)), last, child("never", living(diary)))):
                raise AssertionError("the body is not reached")
        error = caught.value
        assert ("s/bad" if below else "bad") in str(error)
        if "no" in str(factories[how]) or how in ("constructor", "started", "before yield"):
            assert isinstance(error.__cause__, Boom)
        else:
            assert isinstance(error.__cause__, (TypeError, AttributeError))
        own = ["enter s/x"] if below else []
        entered = ["enter a", *own]
        tried = [f"{verb} {'s/bad' if below else 'bad'}" for verb in ("enter", "left")]
        middle = tried if how == "before yield" else []
        assert diary.take() == [*entered, *middle, *(["left s/x"] if below else []), "left a"]

    run(main)


@pytest.mark.parametrize("how", ["constructor", "started", "before yield", "not an agent", "class of state"])
def test_a_child_that_cannot_start_leaves_nothing(how: str):
    diary = Diary()

    class Unmade(Worker):
        def __attrs_post_init__(self) -> None:
            raise Boom("no")

    factories: dict[str, Any] = {
        "constructor": Unmade,
        "started": partial(Fussy, plan=[Boom("no") for _ in range(5)]),
        "before yield": living(diary, enter_error=Boom("no")),
        "not an agent": dict,
        "class of state": partial(Worker, wrong=1),
    }

    async def main() -> None:
        async with open_node(tree(child("a"))) as node:
            for _ in range(5):  # no window for first starts
                with pytest.raises(StartFailed, match="bad"):
                    await node.start_child(child("bad", factories[how]))
            assert statuses(node.root) == {"a": ("running", 1)}
            assert node.root.statistics().failed_starts == 5
            with pytest.raises(NotFound):
                node.root.child("bad")
            ref = await node.start_child(child("bad"))
            assert await ref.invoke(Worker.hello) == 0

    run(main)


def test_a_supervisor_that_cannot_start_leaves_nothing():
    diary = Diary()

    async def main() -> None:
        async with open_node() as node:
            spec = tree(child("x", living(diary)), child("bad", partial(Fussy, plan=[Boom("no")])), name="s")
            with pytest.raises(StartFailed) as caught:
                await node.start_supervisor(spec)
            assert isinstance(caught.value.__cause__, Boom)
            assert "s/bad" in str(caught.value)
            assert diary.take() == ["enter s/x", "left s/x"]
            assert node.root.which_children() == []
            with pytest.raises(NotFound):
                node.root.supervisor("s")
            await node.start_supervisor(tree(child("x"), name="s"))

    run(main)


# ---- restarts that fail


def test_each_failing_restart_counts_in_the_window():
    async def main() -> None:
        plan: list[BaseException | None] = [None, Boom("1"), Boom("2"), None]
        async with open_node(tree(child("a", partial(Fussy, plan=plan)), max_restarts=3)) as node:
            await crash(node.root.child("a"), "0")
            assert statuses(node.root) == {"a": ("running", 2)}
            assert plan == []

    run(main)


def test_restarts_that_go_on_failing_end_the_supervisor():
    async def main() -> None:
        plan: list[BaseException | None] = [None, *(Boom(str(n)) for n in range(1, 100))]
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_node(tree(child("a", partial(Fussy, plan=plan)), max_restarts=3)) as node:
                await crash(node.root.child("a"), "0")
                await trio.sleep_forever()
        assert [str(cause) for cause in caught.value.causes] == ["0", "1", "2", "3"]
        assert len(plan) == 96

    run(main)


@pytest.mark.parametrize("how", ["constructor", "before yield"])
def test_a_restart_fails_in_other_ways_too(how: str):
    diary = Diary()
    failures = 2

    class Sometimes(Living):
        def __attrs_post_init__(self) -> None:
            nonlocal failures
            if len(diary.lines) and failures:
                failures -= 1
                if how == "constructor":
                    raise Boom("no")
                self.enter_error = Boom("no")

    async def main() -> None:
        async with open_node(tree(child("a", partial(Sometimes, diary=diary)))) as node:
            await crash(node.root.child("a"))
            assert statuses(node.root) == {"a": ("running", 2)}
            assert node.root.statistics().restarts == 3
            assert node.root.statistics().failed_starts == 2

    run(main)


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_sibling_whose_restart_fails_is_tried_again_with_those_after_it(strategy: Any):
    async def main() -> None:
        plan: list[BaseException | None] = [None, Boom("no"), None]
        async with open_node(
            tree(child("a"), child("b", partial(Fussy, plan=plan)), child("c"), strategy=strategy)
        ) as node:
            await crash(node.root.child("a"))
            expected = {"one_for_all": 3, "rest_for_one": 2}[strategy]
            assert statuses(node.root) == {
                "a": ("running", expected),
                "b": ("running", 2),
                "c": ("running", 2),
            }

    run(main)


def test_a_supervisor_whose_restart_fails_counts_like_any_child():
    async def main() -> None:
        plan: list[BaseException | None] = [None, Boom("no"), None]
        inner = tree(child("a", partial(Fussy, plan=plan)), name="s", max_restarts=0)
        async with open_node(tree(inner)) as node:
            ref = node.root.supervisor("s").child("a")
            await crash(ref)
            assert statuses(node.root)["s"][0] == "running"
            assert await ref.invoke(Worker.hello) == 0
            assert node.root.statistics().failed_starts == 1

    run(main)


# ---- children started, stopped and forgotten by hand


def test_the_life_of_a_dynamic_child():
    diary = Diary()

    async def main() -> None:
        async with open_node(tree(child("a"))) as node:
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
        async with open_node(tree(child("a"), tree(name="s"))) as node:
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
        async with open_node(tree(child("t", restart="temporary"))) as node:
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
        async with open_node(tree(child("a", partial(Fussy, plan=plan)))) as node:
            await node.root.terminate_child("a")
            with pytest.raises(StartFailed) as caught:
                await node.root.restart_child("a")
            assert isinstance(caught.value.__cause__, Boom)
            assert statuses(node.root) == {"a": ("stopped", 1)}
            await node.root.restart_child("a")
            assert statuses(node.root) == {"a": ("running", 2)}

    run(main)


def test_counts():
    async def main() -> None:
        spec = tree(
            child("a"), child("t", restart="transient"), tree(child("x"), name="s"), child("b"), name="root"
        )
        async with open_node(spec) as node:
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


@pytest.mark.parametrize("waits", [False, True])
def test_many_of_one_spec(waits: bool):
    diary = Diary()

    async def main() -> None:
        made = living(diary) if waits else Worker
        async with open_node() as node:
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
        async with open_node(tree(child("w-2"))) as node:
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
        async with open_node(tree(child("a"))) as node:
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
        async with open_node(tree(team)) as node:
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
        async with open_node(tree(team)) as node:
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


# ---- while something else happens


def test_a_supervisor_that_ends_as_it_is_replaced_is_replaced_once():
    """It gives up in the very step in which its parent restarts it for a sibling's sake."""
    for seed in range(20):

        async def main() -> None:
            inner = tree(child("x"), child("y"), name="s", max_restarts=0)
            async with open_node(tree(inner, child("b"), strategy="one_for_all", max_restarts=5)) as node:
                sup = node.root.supervisor("s")
                async with trio.open_nursery() as nursery:
                    for _ in range(3):  # leaves parked runners behind
                        nursery.start_soon(sup.child("x").invoke, Worker.sleep, 1.0)
                for ticks in range(6):
                    before = sup.incarnation
                    sup.child("x").tell_nowait(Worker.crash)
                    for _ in range(ticks):
                        await trio.lowlevel.checkpoint()
                    with suppress(AgentUnavailable):  # it may be down for the sake of its sibling
                        node.root.child("b").tell_nowait(Worker.crash)
                    await settled()
                    assert sup.incarnation - before in (1, 2)
                    assert statuses(node.root)["s"][0] == "running"
                    assert await sup.child("x").invoke(Worker.hello) == 0
                    assert await sup.child("x").invoke(Worker.sleep, 1.0) == 1.0
                    assert await sup.start_child(child("extra"))
                    await trio.sleep(100.0)

        run(main, seed=seed)


def test_a_supervisor_that_ends_as_it_is_terminated_can_be_restarted_at_once():
    for ticks in range(8):

        async def main() -> None:
            inner = tree(child("x"), name="s", max_restarts=0)
            async with open_node(tree(inner, max_restarts=5)) as node:
                root, sup = node.root, node.root.supervisor("s")
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(sup.child("x").invoke, Worker.sleep, 1.0)
                sup.child("x").tell_nowait(Worker.crash)
                for _ in range(ticks):  # noqa: B023
                    await trio.lowlevel.checkpoint()
                await root.terminate_child("s")
                await root.restart_child("s")
                await settled()
                assert statuses(root)["s"][0] == "running"
                assert await sup.child("x").invoke(Worker.hello) == 0
                assert await sup.child("x").invoke(Worker.sleep, 1.0) == 1.0

        run(main)


def test_requests_wait_for_a_restart_under_way():
    diary = Diary()

    async def main() -> None:
        async with open_node(tree(child("a", living(diary, entering=5.0)))) as node:
            ref = node.root.child("a")
            await crash(ref)
            assert statuses(node.root)["a"][0] == "starting"
            other = await node.start_child(child("b"))
            assert trio.current_time() == 10.0
            assert await other.invoke(Worker.hello) == 0

    run(main)


def test_agents_start_and_stop_others_under_their_own_supervisor():
    class Boss(Worker):
        root: Any = None

        @action
        async def hire(self, name: str) -> str:
            ref = await self.root.start_child(child(name))
            return str(ref.path)

        @action
        async def fire(self, name: str) -> None:
            await self.root.terminate_child(name)
            await self.root.delete_child(name)

    async def main() -> None:
        async with open_node() as node:
            boss = await node.start_child(child("boss", partial(Boss, root=node.root)))
            assert await boss.invoke(Boss.hire, "w") == "w"
            await boss.invoke(Boss.fire, "w")
            assert list(statuses(node.root)) == ["boss"]

    run(main)


def test_an_agent_that_stops_in_its_first_turn_has_started():
    class Brief(Worker):
        def started(self) -> None:
            self.stop()

    async def main() -> None:
        async with open_node(tree(child("t", Brief, restart="transient"))) as node:
            await settled()
            assert statuses(node.root) == {"t": ("stopped", 1)}
            await node.start_child(child("gone", Brief, restart="temporary"))
            await settled()
            assert statuses(node.root) == {"t": ("stopped", 1)}

    run(main)


def test_a_supervisor_without_children_lives():
    async def main() -> None:
        async with open_node(tree(SupervisorSpec("empty"))) as node:
            ref = await node.root.supervisor("empty").start_child(child("a"))
            assert await ref.invoke(Worker.hello) == 0
            assert ref.path == "empty/a"

    run(main)


def test_an_agent_is_no_child_without_a_spec():
    class Plain(Agent):
        pass

    with pytest.raises(ConfigError):
        SupervisorSpec("root", [Plain])  # type: ignore[list-item]
