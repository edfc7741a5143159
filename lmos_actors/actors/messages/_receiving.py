"""The consumer's side of an invocation with many outputs, near and far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import Abort, checkpoint, current_task, enable_ki_protection, wait_task_rescheduled

if TYPE_CHECKING:
    from collections import deque
    from typing import Self


class Receiving:
    """An async iterator over the outputs of an invocation; it ends as the invocation does.

    The code that adds an item wakes `_receiver`.
    """

    __slots__ = ()

    _items: deque[Any]
    _receiver: trio.lowlevel.Task | None
    _done: bool
    _error: Any  # an Exception, or None

    def _next(self) -> Any:
        """Remove and return the oldest item; there is one."""
        return self._items.popleft()

    def __aiter__(self) -> Self:
        return self

    @enable_ki_protection
    async def __anext__(self) -> Any:
        await checkpoint()
        while not self._items and not self._done:
            if self._receiver is not None:
                raise trio.BusyResourceError("another task is receiving from this stream")
            self._receiver = current_task()  # type: ignore[misc]  # of the class that has it

            def abort(_: object) -> Abort:
                self._receiver = None  # type: ignore[misc]
                return Abort.SUCCEEDED

            await wait_task_rescheduled(abort)
        if self._items:
            return self._next()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration
