"""The outputs of an invocation that its consumer has not taken yet, for near and far agents."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from .._parking import note_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timers


class OutputQueue:
    """A queue of outputs, which one task takes with `anext`; it ends when no more will come."""

    __slots__ = ("_error", "_is_ended", "_timers", "call", "is_prompt", "items", "on_taken", "receiver")

    def __init__(self, timers: Timers) -> None:
        self.call: Any = None  # the near call that its consumer waits for, while it is open
        self.on_taken: Callable[[], object] | None = None  # called when the consumer takes an output
        self._timers = timers
        self.items: deque[Any] = deque()
        self.receiver: trio.lowlevel.Task | None = None  # who waits for an output now
        self.is_prompt = False  # its consumer lets others run only where it waits, and says so to `on_taken`
        self._is_ended = False
        self._error: Exception | None = None

    def add(self, item: Any) -> None:
        """Add an output."""
        self.items.append(item)
        self.wake()

    def end(self, error: Exception | None) -> None:
        """End the queue, with an error if given, once the consumer has taken the outputs in it."""
        self._is_ended, self._error = True, error
        self.wake()

    def end_at_once(self, error: Exception) -> None:
        """Drop the outputs in the queue, and end it with an error."""
        self.items.clear()
        self.end(error)

    def wake(self) -> None:
        """Wake the task that waits for an output, if there is one."""
        task = self.receiver
        if task is not None:
            self.receiver = None
            self._timers.woke = True
            reschedule(task)

    def __aiter__(self) -> OutputQueue:
        return self

    @enable_ki_protection
    async def __anext__(self) -> Any:
        if self.is_prompt:
            await checkpoint_if_cancelled()
        else:
            await checkpoint()
        while not self.items and not self._is_ended:
            if self.receiver is not None:
                raise trio.BusyResourceError("another task is receiving from this stream")
            self.receiver = task = current_task()
            if self.call is not None:
                note_wait(task, self.call)
            if self.is_prompt and self.on_taken is not None:
                self.on_taken()
            await wait_task_rescheduled(self._abort)
        if self.items:
            item = self.items.popleft()
            if self.on_taken is not None:
                self.on_taken()
            return item
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def _abort(self, _: object) -> Abort:
        self.receiver = None
        return Abort.SUCCEEDED
