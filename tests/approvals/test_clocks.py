"""Clocks that stand still: deadlines are put off by that time, and by no more than a bound."""

from __future__ import annotations

import trio

from lmos_actors.approvals import Clock


async def test_a_clock_stands_still_for_so_many_seconds_at_most(autojump_clock: object) -> None:
    clock, began = Clock(most=5), trio.current_time()

    def deadline_of(scope: trio.CancelScope) -> float:
        return scope.deadline - began

    early, late = trio.CancelScope(deadline=began + 10), trio.CancelScope(deadline=began + 20)
    clock.add(early)
    clock.stop()
    assert deadline_of(early) == 15
    await trio.sleep(3)
    clock.go()
    assert (deadline_of(early), clock.stood) == (13, 3)
    clock.stop()
    await trio.sleep(4)  # two of which are above the bound
    clock.add(late)
    assert (deadline_of(early), deadline_of(late), clock.stood) == (15, 20, 5)
    clock.go()
    assert (deadline_of(early), deadline_of(late), clock.stood) == (15, 20, 5)
