"""Waiting among others: tasks in a list, which whoever has news takes as a whole and wakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import Abort, current_task, enable_ki_protection, wait_task_rescheduled

if TYPE_CHECKING:
    import trio


@enable_ki_protection
async def park_among(waiting: list[trio.lowlevel.Task]) -> None:
    """Stand in the list until the task is rescheduled; whoever is cancelled leaves it."""
    me = current_task()
    waiting.append(me)

    def abort(_: object) -> Abort:
        if me in waiting:
            waiting.remove(me)
        return Abort.SUCCEEDED

    await wait_task_rescheduled(abort)
