"""The thread of a store: its calls, one after another, and what waits for them in a trio task.

`trio.to_thread` takes twice as long for a call: it looks for a free thread each time. Where one agent alone
waits for each of its commits, that is most of the time.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio
from trio.lowlevel import Abort

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@attrs.define(eq=False)
class _Call:
    """A call, and the task that waits for it, as long as there is one."""

    work: Callable[[], Any]
    task: trio.lowlevel.Task | None
    result: Any = None
    error: BaseException | None = None


class StoreThread:
    """Thread that makes calls in the order in which they were asked for; of one trio run."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._make_calls, name=name, daemon=True).start()

    async def call(self, work: Callable[[], T]) -> T:
        """Return what a call returns, or raise what it raises.

        A cancel is heeded at once: a call that has begun goes on, and its result is dropped; another one is
        not made.
        """
        call = _Call(work, trio.lowlevel.current_task())
        self._calls.put(call)

        def abort(_: object) -> Abort:
            call.task, call.work = None, _nothing
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def end(self, work: Callable[[], object]) -> None:
        """Make a last call, after the one that is under way, for which nobody waits; return at once."""
        self._calls.put(_Call(work, None))
        self._calls.put(None)

    def _make_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.result = call.work()
            except BaseException as error:  # noqa: ASYNC103 -- raised in the task that waits for it
                call.error = error
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(_wake, call)
            del call  # it refers to the task


def _nothing() -> None:
    """Stand in for a call that was cancelled."""


def _wake(call: _Call) -> None:
    if call.task is not None:
        task, call.task = call.task, None
        trio.lowlevel.reschedule(task)
