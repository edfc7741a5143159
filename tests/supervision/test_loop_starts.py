"""Starts that fail: the first ones, and those of a restart."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import NotFound, StartFailed
from lmos_actors.errors import RestartIntensityExceeded
from lmos_actors.testing import open_test_node

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
    statuses,
    tree,
)

STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
KINDS = ("permanent", "transient", "temporary")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


# ---- first starts that fail


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize(
    "how", ["constructor", "started", "before yield", "not an agent", "no yield", "empty"]
)
def test_a_first_start_that_fails_stops_what_has_started_and_says_why(how: str, below: bool):
    diary = Diary()

    class Unmade(Worker):
        def __attrs_post_init__(self) -> None:
            raise Boom("no")

    class NoYield(Worker):
        def lifespan(self) -> Any:
            return None

    class Empty(Worker):
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            if self.number:
                yield

    factories: dict[str, Any] = {
        "constructor": Unmade,
        "started": partial(Fussy, plan=[Boom("no")]),
        "before yield": living(diary, enter_error=Boom("no")),
        "not an agent": lambda: 42,
        "no yield": NoYield,
        "empty": Empty,
    }

    async def main() -> None:
        bad = child("bad", factories[how])
        last = tree(child("x", living(diary)), bad, name="s") if below else bad
        with pytest.raises(StartFailed) as caught:
            async with open_test_node(tree(child("a", living(diary)), last, child("never", living(diary)))):
                raise AssertionError("the body is not reached")
        error = caught.value
        assert ("s/bad" if below else "bad") in str(error)
        if "no" in str(factories[how]) or how in ("constructor", "started", "before yield"):
            assert isinstance(error.__cause__, Boom)
        else:
            assert isinstance(error.__cause__, (TypeError, AttributeError, RuntimeError))
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
        async with open_test_node(tree(child("a"))) as node:
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
        async with open_test_node() as node:
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
        async with open_test_node(tree(child("a", partial(Fussy, plan=plan)), max_restarts=3)) as node:
            await crash(node.root.child("a"), "0")
            assert statuses(node.root) == {"a": ("running", 2)}
            assert plan == []

    run(main)


def test_restarts_that_go_on_failing_end_the_supervisor():
    async def main() -> None:
        plan: list[BaseException | None] = [None, *(Boom(str(n)) for n in range(1, 100))]
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node(tree(child("a", partial(Fussy, plan=plan)), max_restarts=3)) as node:
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
        async with open_test_node(tree(child("a", partial(Sometimes, diary=diary)))) as node:
            await crash(node.root.child("a"))
            assert statuses(node.root) == {"a": ("running", 2)}
            assert node.root.statistics().restarts == 3
            assert node.root.statistics().failed_starts == 2

    run(main)


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_sibling_whose_restart_fails_is_tried_again_with_those_after_it(strategy: Any):
    async def main() -> None:
        plan: list[BaseException | None] = [None, Boom("no"), None]
        async with open_test_node(
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
        async with open_test_node(tree(inner)) as node:
            ref = node.root.supervisor("s").child("a")
            await crash(ref)
            assert statuses(node.root)["s"][0] == "running"
            assert await ref.invoke(Worker.hello) == 0
            assert node.root.statistics().failed_starts == 1

    run(main)
