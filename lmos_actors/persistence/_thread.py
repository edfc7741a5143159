"""A wrapper that makes a blocking store awaitable in Trio: a thread makes its calls, one after another.

On virtual time no threads are used, and the calling task makes the calls itself, as it does for a store in
memory, which does not block. A commit of a simulated store takes virtual time.

`trio.to_thread` would take twice as long for a call, because it looks for a free thread each time. This
matters if a single agent waits for each of its commits: there calls take up most of the time.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio
from trio.lowlevel import Abort

from lmos_actors._core import time_jumps

from ._memory import MemoryStore
from ._simulated import SimulatedStore
from ._store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ._store import Batch, Conflict, Durability, Matching, Store

CLOSING_SECONDS: Final = 10.0
"""Seconds for closing a store; a store that hangs is left, and its thread closes it if it ever returns."""

T = TypeVar("T")


@attrs.define(eq=False)
class _Call:
    """A call, and the task that waits for its result, if there still is one."""

    work: Callable[[], Any]
    task: trio.lowlevel.Task | None
    then: Callable[[Any], None] | None = None
    result: Any = None
    error: BaseException | None = None


class StoreThread:
    """A thread of one trio run, which makes calls in the order in which they were requested."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._make_calls, name=name, daemon=True).start()

    async def call(self, work: Callable[[], T], then: Callable[[T], None] | None = None) -> T:
        """Make a call in the thread; return its result, or raise its error.

        `then` is called with the result one pass of the event loop before the task resumes. Cancellation
        takes effect at once: a call that has begun continues, and its result is dropped; a call that has not
        begun is not made.
        """
        call = _Call(work, trio.lowlevel.current_task(), then)
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
        """Schedule a last call after all earlier ones, and return at once without waiting for it."""
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
    """Do nothing, in place of a call that was cancelled."""


def _wake(call: _Call) -> None:
    if call.task is not None:
        task, call.task = call.task, None
        trio.lowlevel.reschedule(task)
        if call.then is not None and call.error is None:
            try:
                call.then(call.result)
            except BaseException as error:  # noqa: ASYNC103 -- raised in the task: here it ends trio
                call.error = error


class StoreInThread:
    """A wrapper that offers a blocking store as an `AsyncStore`."""

    def __init__(self, store: Store) -> None:
        self.name = store.name
        self._store = store
        self._is_open = False
        self._thread: StoreThread | None = None  # stays None where the calling task makes the calls
        self._is_committing = False

    @property
    def keeps_power(self) -> bool:
        """See `AsyncStore`."""
        return True

    @property
    def is_shared(self) -> bool:
        """See `Store`."""
        return self._store.is_shared

    @property
    def id(self) -> str:
        """Always "": a file needs no identifier, as its lock shows any replacement; see `AsyncStore`."""
        return ""

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        return await self._call(partial(self._store.get, space, keys))

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        return await self._call(partial(self._store.scan, space, start=start, stop=stop, limit=limit))

    async def matching(self, space: str, terms: Sequence[str], *, start: str, stop: str) -> Matching | None:
        """Return the keys that have at least one of the terms; see `IndexedStore`.

        Return None if the store has no index.
        """
        if not isinstance(self._store, IndexedStore):
            await trio.lowlevel.checkpoint()
            return None
        return await self._call(partial(self._store.matching, space, terms, start=start, stop=stop))

    async def commit(
        self,
        batches: Sequence[Batch],
        durability: Durability,
        then: Callable[[list[Conflict | None]], None] | None = None,
    ) -> list[Conflict | None]:
        """Write batches; see `Store`. `then` is called with the conflicts; see `StoreThread.call`."""
        if isinstance(self._store, SimulatedStore):  # its commits take virtual time
            conflicts = await self._store.commit_in_time(batches, durability)
            if then is not None:
                then(conflicts)
            return conflicts
        return await self._call(partial(self._commit_store, batches, durability), then)

    def _commit_store(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        self._is_committing = True
        try:
            return self._store.commit(batches, durability)
        finally:
            self._is_committing = False

    async def _call(self, work: Callable[[], T], then: Callable[[T], None] | None = None) -> T:
        if self._thread is not None:
            return await self._thread.call(work, then)
        await trio.lowlevel.checkpoint()
        result = work()
        if then is not None:
            then(result)
        return result

    # ---- the two ends

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def opened(self) -> AsyncGenerator[None]:
        """Keep the store open for a block; see `AsyncStore`."""
        if not time_jumps() and type(self._store) is not MemoryStore:
            self._thread = StoreThread(f"store {self.name}")
        try:
            await self._call(self._open_store)
        except BaseException:
            self._end_thread()
            raise
        try:
            yield
        finally:
            with trio.move_on_after(CLOSING_SECONDS, shield=True):
                if not self._is_committing:  # else it hangs: its writer has waited long enough
                    await self._call(self._close_store)
            self._end_thread()

    def _open_store(self) -> None:
        self._store.open()
        self._is_open = True

    def _close_store(self) -> None:
        if self._is_open:  # else it may be another writer that has it open
            self._is_open = False
            self._store.close()

    def _end_thread(self) -> None:
        """Arrange the closing of an open store after the call that is under way, without waiting for it."""
        if self._thread is not None:
            self._thread.end(self._close_store)
        else:
            self._close_store()
