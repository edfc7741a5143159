"""A wakeup point: one task waits there, any code of the same event loop wakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

if TYPE_CHECKING:
    import trio


class WakeupPoint:
    """A point where one task waits to be woken, cheaper than a new Event for every wait.

    Only one task at a time may wait here: that is not checked. A cancelled wait leaves nothing behind."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    @property
    def is_taken(self) -> bool:
        """Whether a task waits here."""
        return self._task is not None

    @enable_ki_protection
    async def park(self) -> None:
        """Wait for the next call of `wake`; an earlier one does not count, so check the condition first."""
        self._task = current_task()
        await wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> Abort:
        self._task = None
        return Abort.SUCCEEDED

    def wake(self) -> None:
        """Wake the task that waits here, if any."""
        task, self._task = self._task, None
        if task is not None:
            reschedule(task)
