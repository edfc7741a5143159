"""What the bare limits share: asks whose answer wakes the asker, alone or many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import outcome
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

if TYPE_CHECKING:
    import trio

SEATS = 64


class Full(Exception):
    """A bare mailbox has no seat."""


class Ask:
    """A request that carries its parked asker."""

    __slots__ = ("message", "task")

    def __init__(self, message: Any, task: Any) -> None:
        self.message = message
        self.task: Any = task

    def abort(self, _: object) -> Abort:
        self.task = None
        return Abort.SUCCEEDED

    def reply(self, value: Any) -> None:
        task = self.task
        if task is not None:
            self.task = None
            reschedule(task, outcome.Value(value))


class Gather:
    """The answers of many requests; wakes its task once, at the last."""

    __slots__ = ("left", "task", "values")

    def __init__(self, count: int) -> None:
        self.values: list[Any] = [None] * count
        self.left = count
        self.task: trio.lowlevel.Task | None = None

    def _abort(self, _: object) -> Abort:
        self.task = None
        return Abort.SUCCEEDED

    async def wait(self) -> list[Any]:
        if self.left:
            self.task = current_task()
            await wait_task_rescheduled(self._abort)
        return self.values


class AskOf(Ask):
    """One request of a gather."""

    __slots__ = ("place",)

    def __init__(self, message: Any, gather: Gather, place: int) -> None:
        super().__init__(message, gather)
        self.place = place

    def reply(self, value: Any) -> None:
        gather = self.task
        gather.values[self.place] = value
        gather.left -= 1
        if not gather.left and gather.task is not None:
            reschedule(gather.task)
            gather.task = None


ASKS = frozenset((Ask, AskOf))
