"""Thousands of agents that crash in one instant."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

import gc
from typing import Any
from weakref import WeakSet

import pytest
import trio

from lmos_actors import Backoff
from lmos_actors.actors import slot_of
from lmos_actors.errors import RestartIntensityExceeded
from lmos_actors.testing import open_test_node

from .world import Boom, Diary, Worker, child, living, run, settled, tree

MANY = 10_000


def crash_all(refs: list[Any]) -> None:
    for number, ref in enumerate(refs):
        ref.tell_nowait(Worker.crash, f"number {number}")


def balanced(numbers: Any) -> bool:
    left = numbers.handled + numbers.cancelled + numbers.dropped + numbers.dead_lettered
    return bool(numbers.accepted == left + numbers.waiting + numbers.running)


@pytest.mark.slow
def test_ten_thousand_crash_at_once_and_all_are_back_while_others_are_served():
    starts = 0

    class Counted(Worker):
        def started(self) -> None:
            nonlocal starts
            starts += 1

    async def main() -> None:
        spec = tree(child("bystander"), tree(name="crowd", max_restarts=MANY), child("elsewhere"))
        async with open_test_node(spec) as node:
            crowd = node.root.supervisor("crowd")
            refs = await crowd.start_many(child("w", Counted), MANY)
            inside = await crowd.start_child(child("inside"))
            served: list[int] = []

            async def ask(ref: Any) -> None:
                while starts < 2 * MANY:
                    await ref.invoke(Worker.sleep, 0.0)
                    await ref.invoke(Worker.hello)
                    served.append(starts - MANY)

            async with trio.open_nursery() as nursery:
                for ref in (node.root.child("bystander"), node.root.child("elsewhere"), inside):
                    nursery.start_soon(ask, ref)
                crash_all(refs)
            assert len({n for n in served if 0 < n < MANY}) > 20
            assert {ref.statistics().incarnation for ref in refs} == {2}
            assert {info.status for info in crowd.which_children()} == {"running"}
            assert [await ref.invoke(Worker.hello) for ref in refs[::100]] == [0] * (MANY // 100)
            assert crowd.statistics().restarts == MANY
            assert inside.statistics().incarnation == 1
            assert node.statistics().dead_letters == 0
            assert balanced(node.statistics())
            assert trio.current_time() == 0.0

    run(main)


def test_ten_thousand_crash_at_once_under_the_default_and_the_root_ends_with_the_causes():
    async def main() -> None:
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node() as node:
                refs = await node.root.start_many(child("w"), MANY)
                crash_all(refs)
                await trio.sleep_forever()
        error = caught.value
        assert error.path == "root"
        assert [str(cause) for cause in error.causes] == [f"number {n}" for n in range(4)]
        assert all(isinstance(cause, Boom) for cause in error.causes)
        assert all(balanced(ref.statistics()) for ref in refs)
        assert {ref.statistics().handled for ref in refs} == {1}

    run(main)


def test_errors_of_a_storm_are_not_all_kept():
    """An error has a hold on its agent: with many restarts allowed, all agents of the window would stay."""

    async def main() -> None:
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node(tree(max_restarts=350)) as node:
                refs = await node.root.start_many(child("w"), 100)
                seen = WeakSet[Any]()
                for _ in range(4):
                    seen.update(slot_of(ref).agent for ref in refs)
                    gc.collect()
                    assert (
                        len(seen) <= 300
                    )  # those of now, and those that an error, or a report, has a hold on
                    crash_all(refs)
                    await settled()
        assert len(caught.value.causes) == 100

    run(main)


def test_a_storm_below_ends_that_part_first_and_the_root_in_the_end():
    async def main() -> None:
        storms = 0
        with pytest.raises(RestartIntensityExceeded) as caught:
            async with open_test_node(tree(tree(*(child(f"w{n}") for n in range(100)), name="s"))) as node:
                sup = node.root.supervisor("s")
                refs = [sup.child(f"w{n}") for n in range(100)]
                while True:
                    storms += 1
                    crash_all(refs)
                    await settled()
                    assert {ref.statistics().state for ref in refs} == {"running"}
                    assert sup.incarnation == storms + 1
        assert storms == 4
        assert [len(cause.causes) for cause in caught.value.causes] == [4] * 4  # type: ignore[attr-defined]

    run(main)


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_storm_counts_once_where_all_are_replaced_together(strategy: Any):
    """Ends of incarnations that have been replaced meanwhile are no news, as in OTP."""

    async def main() -> None:
        specs = [child(f"w{n}") for n in range(500)]
        async with open_test_node(tree(*specs, strategy=strategy, max_restarts=1)) as node:
            refs = node.agents()
            crash_all(refs)
            await settled()
            assert {ref.statistics().incarnation for ref in refs} == {2}
            assert node.root.statistics().restarts == 500

    run(main)


def test_a_storm_with_back_off_comes_back_spread_over_time():
    async def main() -> None:
        backoff = Backoff(initial=1.0, jitter=1.0)
        async with open_test_node(tree(name="root", max_restarts=1000)) as node:
            refs = await node.root.start_many(child("w", backoff=backoff), 1000)
            crash_all(refs)
            await settled()
            assert node.root.count_children().active == 0
            seen = set()
            while trio.current_time() < 2.0:
                await trio.sleep(0.1)
                seen.add(node.root.count_children().active)
            assert len(seen) > 10
            await trio.sleep(0.001)
            assert {ref.statistics().incarnation for ref in refs} == {2}

    run(main)


def test_a_storm_of_agents_with_resources_never_holds_one_twice():
    diary = Diary()
    held: set[str] = set()

    async def main() -> None:
        async with open_test_node(tree(name="root", max_restarts=1000)) as node:
            refs = await node.root.start_many(child("w", living(diary, leaving=1.0)), 300)
            for round_ in range(3):
                crash_all(refs)
                await settled()
                for ref in refs:
                    await ref.ready()
                assert {ref.statistics().incarnation for ref in refs} == {round_ + 2}
        for line in diary.take():
            verb, path = line.split()
            assert (path in held) == (verb == "left")
            (held.add if verb == "enter" else held.remove)(path)
        assert held == set()

    run(main)


def test_temporary_agents_that_crash_at_once_are_all_gone():
    async def main() -> None:
        async with open_test_node() as node:
            refs = await node.root.start_many(child("w", restart="temporary"), MANY)
            crash_all(refs)
            await settled()
            assert node.root.which_children() == []
            assert {ref.statistics().state for ref in refs} == {"gone"}

    run(main)


def test_a_child_that_crashes_in_every_first_turn_gives_others_their_turns():
    """Restarts of one child go on only in turns with everything else that is to be done."""

    class Doomed(Worker):
        def started(self) -> None:
            self.send(self.ref, Worker.crash)

    async def main() -> None:
        spec = tree(
            child("a"), tree(child("doomed", Doomed), name="s", max_restarts=1000, restart="temporary")
        )
        async with open_test_node(spec) as node:
            answered = 0
            while node.root.count_children().supervisors:
                await node.root.child("a").invoke(Worker.sleep, 0.0)
                answered += 1
            assert answered > 10
            assert trio.current_time() == 0.0

    run(main)
