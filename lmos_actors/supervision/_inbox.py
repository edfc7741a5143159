"""The inbox of a supervisor: ends of children, due restarts, and requests, in order.

Only the supervisor's own task takes items from it. The number of items needs no limit: there is at most one
end for each incarnation of a child, one due restart, and one request for each waiting asker.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

from lmos_actors.actors import ExitReason
from lmos_actors.errors import RestartIntensityExceeded, WrongState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lmos_actors._core import Timer, Timers


def with_raised(reason: ExitReason, path: str, raised: tuple[BaseException, ...]) -> ExitReason:
    """Add to a supervisor's exit reason the errors that its children raised while it stopped them."""
    error = reason.error
    if isinstance(error, RestartIntensityExceeded):
        causes = (*error.causes, *raised)
        both: BaseException = RestartIntensityExceeded(path, error.max_restarts, error.max_seconds, causes)
    else:
        both = merged_error(path, raised)
    return ExitReason(reason.kind, reason.detail, both)


def merged_error(path: str, raised: tuple[BaseException, ...]) -> BaseException:
    """Return the errors that children raised while their supervisor ended, as one error.

    A single exception is returned unchanged, several as a group.
    """
    return raised[0] if len(raised) == 1 else BaseExceptionGroup(f"raised while {path} ended", raised)


class Request:
    """A piece of work for the supervisor's own task, and the task that waits for its result.

    `cancellable`: when the asker is cancelled while the request is carried out, the request is cancelled too,
    and the asker waits for its end. Otherwise the request goes on without the asker.
    """

    __slots__ = ("_fn", "_raise_cancel", "_scope", "_timers", "error", "task", "value")

    def __init__(
        self, fn: Callable[[], Coroutine[Any, Any, Any]], timers: Timers, *, cancellable: bool = False
    ) -> None:
        self._fn = fn
        self._timers = timers
        self._scope: trio.CancelScope | None = trio.CancelScope() if cancellable else None
        self._raise_cancel: Callable[[], Any] | None = None
        self.task: trio.lowlevel.Task | None = None
        self.value: Any = None
        self.error: Exception | None = None

    async def carry_out(self, path: str) -> None:
        """Run the request and store its result. Raises only what is no `Exception`, as a cancellation."""
        try:
            if self._scope is None:
                self.value = await self._fn()
            else:
                with self._scope:
                    self.value = await self._fn()
        except Exception as exc:
            self.error = exc
        except BaseException:
            self.refuse(path)
            raise
        self._finish()

    def cancel(self, raise_cancel: Callable[[], Any]) -> Abort:
        """Handle the cancellation of the asker while the request is carried out."""
        if self._scope is None:
            self.task = None
            return Abort.SUCCEEDED
        self._raise_cancel = raise_cancel
        self._scope.cancel("the asker was cancelled")
        return Abort.FAILED

    def answer(self) -> Any:
        """Return the value of the request, or raise its error."""
        if self._scope is not None and self._scope.cancelled_caught and self._raise_cancel is not None:
            self._raise_cancel()
        if self.error is not None:
            raise self.error
        return self.value

    def refuse(self, path: str) -> None:
        """Fail the request, because the supervisor at `path` is stopping."""
        self.error = WrongState(path, "stopping", "it does nothing more")
        self._finish()

    def _finish(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            self._timers.woke = True
            reschedule(task)


class Inbox:
    """The queued items, and the supervisor's task while it waits for the next."""

    __slots__ = ("_items", "_task", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._items: deque[Any] = deque()
        self._task: trio.lowlevel.Task | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def idle(self) -> bool:
        """Whether the supervisor is waiting here with an empty inbox."""
        return self._task is not None and not self._items

    def put(self, item: Any) -> None:
        """Add an item. Never blocks, and never drops an item."""
        self._items.append(item)
        self.wake()

    def take(self) -> Any:
        """Remove the oldest item and return it."""
        return self._items.popleft()

    def clear(self) -> None:
        """Drop the items of a former incarnation of the supervisor."""
        self._items.clear()

    def wake(self) -> None:
        """Wake the supervisor's task, so that it checks its state again."""
        task, self._task = self._task, None
        if task is not None:
            self._timers.woke = True
            reschedule(task)

    async def park(self) -> None:
        """Wait until `wake` is called."""
        self._task = current_task()

        def abort(_: object) -> Abort:
            self._task = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    @enable_ki_protection
    async def ask(self, fn: Callable[[], Coroutine[Any, Any, Any]], *, cancellable: bool = False) -> Any:
        """Run `fn` in the supervisor's task and return its value. Cancelling removes a queued request."""
        request = Request(fn, self._timers, cancellable=cancellable)
        self.put(request)
        request.task = current_task()

        def abort(raise_cancel: Callable[[], Any]) -> Abort:
            if request not in self._items:
                return request.cancel(raise_cancel)
            self._items.remove(request)
            request.task = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return request.answer()


class Delays:
    """The children whose restart is to be tried again, at once or after a delay, by an `again` item."""

    __slots__ = ("_inbox", "_timers", "_waiting")

    def __init__(self, timers: Timers, inbox: Inbox) -> None:
        self._timers = timers
        self._inbox = inbox
        self._waiting: dict[Any, Timer] = {}

    def __contains__(self, child: object) -> bool:
        return child in self._waiting

    def put(self, child: Any, delay: float) -> None:
        """Schedule another attempt to restart a child after `delay` seconds; it replaces an older attempt."""

        def due() -> None:
            self._waiting.pop(child, None)
            self._inbox.put(("again", child))

        self.drop(child)
        if delay:
            self._waiting[child] = self._timers.call_at(trio.current_time() + delay, due)
        else:
            due()

    def drop(self, child: Any) -> None:
        """Cancel the pending attempt for a child, if there is one."""
        timer = self._waiting.pop(child, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Cancel all pending attempts."""
        for child in tuple(self._waiting):
            self.drop(child)
