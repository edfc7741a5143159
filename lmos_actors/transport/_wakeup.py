"""Waiting for news: one task waits, whoever has news wakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

if TYPE_CHECKING:
    import trio


class WakeupPoint:
    """A place for one task to wait at."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    @property
    def is_taken(self) -> bool:
        """Whether a task waits here."""
        return self._task is not None

    @enable_ki_protection
    async def park(self) -> None:
        """Wait until somebody calls `wake`; a call before that was in vain, so look first."""
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
