"""Delays before restarts, and what becomes of them when something else comes first."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from lmos_actors import AgentUnavailable, Backoff
from lmos_actors.errors import WrongState
from lmos_actors.testing import open_test_node

from .world import (
    Boom,
    Worker,
    child,
    crash,
    run,
    statuses,
    tree,
)

STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
KINDS = ("permanent", "transient", "temporary")


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
            async with open_test_node(tree(child("a", Noted, backoff=backoff), max_restarts=100)) as node:
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
        async with open_test_node(tree(child("a", backoff=backoff), max_restarts=100)) as node:
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
        async with open_test_node(tree(child("a", backoff=backoff), max_restarts=100)) as node:
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
        async with open_test_node(tree(spec)) as node:
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


def test_a_sibling_that_waits_for_its_delay_is_restarted_with_the_others_and_not_again():
    async def main() -> None:
        backoff = Backoff(initial=10.0, jitter=0.0)
        spec = tree(child("a"), child("b", backoff=backoff), strategy="rest_for_one", max_restarts=100)
        async with open_test_node(spec) as node:
            await crash(node.root.child("b"))
            assert statuses(node.root) == {"a": ("running", 1), "b": ("restarting", 1)}
            await crash(node.root.child("a"))
            assert statuses(node.root) == {"a": ("running", 2), "b": ("running", 2)}
            await trio.sleep(100.0)
            assert statuses(node.root) == {"a": ("running", 2), "b": ("running", 2)}

    run(main)


def test_with_a_delay_those_who_go_down_together_go_at_once_and_come_back_together():
    async def main() -> None:
        backoff = Backoff(initial=10.0, jitter=0.0)
        spec = tree(child("a", backoff=backoff), child("b"), child("c"), strategy="rest_for_one")
        async with open_test_node(spec) as node:
            await crash(node.root.child("a"))
            assert [status for status, _ in statuses(node.root).values()] == [
                "restarting",
                "stopped",
                "stopped",
            ]
            await trio.sleep(9.999)
            assert {number for _, number in statuses(node.root).values()} == {1}
            await trio.sleep(0.002)
            assert set(statuses(node.root).values()) == {("running", 2)}

    run(main)
