"""A wakeup point: one task waits there, and any code of the same event loop can wake it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

if TYPE_CHECKING:
    import trio


class WakeupPoint:
    """A point where one task waits to be woken, cheaper than a new Event for every wait.

    Only one task at a time may wait here: that is not checked. A cancelled wait leaves nothing behind."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        """The task that waits here, None without one."""

    @enable_ki_protection
    async def park(self) -> None:
        """Wait for the next call of `wake`; an earlier one does not count, so check the condition first."""
        self.task = current_task()
        await wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> Abort:
        self.task = None
        return Abort.SUCCEEDED

    def wake(self) -> None:
        """Wake the task that waits here, if any."""
        task, self.task = self.task, None
        if task is not None:
            reschedule(task)
