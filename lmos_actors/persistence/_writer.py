"""The writer: it stores the data of many owners in one store, with few commits.

What this module guarantees:

- **Submitting never waits.** `submit` returns a ticket, which is settled when its commit has ended. All
  writes that are submitted while a commit is under way go into the next one, up to `BATCH` tickets and
  `BATCH_BYTES`: a single agent has a separate commit each time, a thousand agents share one.
- **Tickets are settled in the order in which they were submitted**, each exactly once, in the event loop: as
  soon as the thread reports, without waiting until the writer's task wakes.
- **A failure fails all that is pending**: the failed commit, and everything submitted after it, because later
  changes of an owner build on earlier ones. A conflict affects its own ticket only.
- **While the store fails nothing is accepted.** `submit` raises an error, and `retry_in` shows when the store
  is tried again: the writer itself tries a write, after growing waits, until one succeeds.
- **The event loop never waits for the disk.** A `Store` blocks, so a thread makes its calls
  (`_thread.py`); an `AsyncStore` is awaited. Waiting for a ticket or a read can be cancelled at any time,
  even if the store hangs: the commit continues, and the result of a read is dropped.
- **Some failures are final**: the store has lost confirmed commits, or has another writer now. They end
  the block of `open_writer`, because the code in it relies on content that is lost or has a new owner.
- **The end is bounded.** All submitted writes are committed, and the store is closed; a store that does not
  answer is abandoned after `ENDING_SECONDS`.
"""

from __future__ import annotations

import copy
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import msgspec
import trio

from lmos_actors.errors import ConfigError, StoreFailed, StoreFenced, StoreLost, WriteConflict

from ._store import AsyncStore, AttendedStore, Put, after, size_of
from ._thread import StoreInThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence
    from contextlib import AbstractAsyncContextManager

    from ._store import Conflict, Durability, Matching, Store, Write

BATCH: Final = 1_024
"""Maximum number of tickets in one commit."""

BATCH_BYTES: Final = 8 << 20
"""Bytes after which a commit takes no more tickets."""

ROOM: Final = 8_192
"""Number of pending tickets from which on `room` waits."""

ROOM_BYTES: Final = 64 << 20
"""Bytes of pending tickets from which on `room` waits."""

PAGE: Final = 500
"""Records that are read at once."""

ENDING_SECONDS: Final = 10.0
"""Seconds for the last commits."""

HANGS: Final = 1.0
"""Seconds of a commit after which restarts wait for its end outside their supervisor."""

FINAL: Final = StoreLost, StoreFenced
"""Failures after which a store is not tried again."""

PROBE: Final = Put("lmos-actors", "probe", b"")
"""The write that tries whether a store works again."""


@attrs.frozen(kw_only=True)
class WriterStatistics:
    """Counts of one writer: commits so far, and what is pending."""

    commits: int = 0
    tickets: int = 0
    """Committed tickets; divided by the commits: how many tickets share one."""
    writes: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Seconds that all commits took."""
    conflicts: int = 0
    failures: int = 0
    waiting: int = 0
    """Pending tickets, including those of the present commit."""
    waiting_bytes: int = 0
    waiting_seconds: float = 0.0
    """Seconds for which the present commit has been under way; they show a store that hangs."""


@attrs.define
class _Totals:
    """The counts of `WriterStatistics` over all commits so far."""

    commits: int = 0
    tickets: int = 0
    writes: int = 0
    bytes: int = 0
    seconds: float = 0.0
    conflicts: int = 0
    failures: int = 0


class Ticket(msgspec.Struct, eq=False):
    """Writes that were submitted together, and their outcome."""

    writes: Sequence[Write]
    durability: Durability
    size: int
    """Bytes of the writes."""
    _done: Callable[[StoreFailed | WriteConflict | None], None] | None
    settled: bool = False
    error: StoreFailed | WriteConflict | None = None
    """Why nothing of it is kept, once it is settled; None if it is kept."""
    _event: trio.Event | None = None

    async def wait(self) -> None:
        """Wait until writes are committed. Cancelling undoes no write. Raise StoreFailed, WriteConflict."""
        if not self.settled:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise copy.copy(self.error)

    def settle(self, error: StoreFailed | WriteConflict | None) -> None:
        """Record the outcome, and call the callback; only the writer calls this."""
        self.settled, self.error = True, error
        if self._event is not None:
            self._event.set()
        if self._done is not None:
            self._done(error)


class StoreWriter:
    """The only access to an open store, for all its users in a Trio run; made by `open_writer`.

    Only the thread of the event loop may call its methods.
    """

    def __init__(self, store: Store | AsyncStore, report: Callable[[str], None] = lambda text: None) -> None:
        self.name = store.name
        self._report = report
        self._store = store if isinstance(store, AsyncStore) else StoreInThread(store)
        self._attended = store if isinstance(store, AttendedStore) else None
        self._waiting: deque[Ticket] = deque()
        self._committing: list[Ticket] = []
        self._bytes = 0  # of all pending tickets
        self._began = 0.0  # of the present commit
        self._failure: StoreFailed | None = None
        self._probe_at = 0.0
        self._ending = False
        self._work = trio.Event()
        self._called = False  # the event is set: asked at each ticket, so without a call
        self._changed = trio.lowlevel.ParkingLot()
        self._totals = _Totals()

    @property
    def is_shared(self) -> bool:
        """Whether other writers may have the store open, too."""
        return self._store.is_shared

    @property
    def keeps_power(self) -> bool:
        """Whether a commit of the open store can survive a power failure."""
        return self._store.keeps_power

    @property
    def sign(self) -> str:
        """The name under which others ask whether this writer is connected, "" if the store has no names."""
        return "" if self._attended is None else self._attended.sign

    def when_unattended(self, tell: Callable[[], object]) -> None:
        """Set the function to call whenever the store no longer counts this writer as connected."""
        if self._attended is not None:
            self._attended.when_unattended(tell)

    async def is_there(self, sign: str) -> bool:
        """Return whether a writer is connected, or True if that cannot be determined. Raise StoreFailed."""
        if self._attended is None or not sign:
            await trio.lowlevel.checkpoint()
            return True
        with self._losses():
            return await self._attended.is_there(sign)

    # ---- reading

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys as last committed; None for a key without a value. Raise StoreFailed."""
        with self._losses():
            return await self._store.get(space, keys)

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return the first `limit` records with `start` <= key < `stop`, as last committed.

        Raise StoreFailed.
        """
        with self._losses():
            return await self._store.scan(space, start=start, stop=stop, limit=limit)

    async def records(self, space: str, start: str = "", stop: str | None = None) -> list[tuple[str, bytes]]:
        """Return all records with `start` <= key < `stop`, read page by page. Raise StoreFailed."""
        found: list[tuple[str, bytes]] = []
        while page := await self.scan(space, start=start, stop=stop, limit=PAGE):
            found += page
            start = after(page[-1][0])
        return found

    async def matching(self, space: str, terms: Sequence[str], *, start: str, stop: str) -> Matching | None:
        """Return the keys with `start` <= key < `stop` that have any of the terms, as last committed.

        Return None if the store has no index (`IndexedStore`). Raise StoreFailed.
        """
        if not isinstance(self._store, StoreInThread):
            await trio.lowlevel.checkpoint()
            return None
        return await self._store.matching(space, terms, start=start, stop=stop)

    @contextmanager
    def _losses(self) -> Generator[None]:
        """Stop the writer if a read in the block finds that the store is lost."""
        try:
            yield
        except FINAL as error:
            self._fail(error)
            self._work.set()
            raise

    # ---- writing

    def submit(
        self,
        writes: Sequence[Write],
        durability: Durability = "process",
        done: Callable[[StoreFailed | WriteConflict | None], None] | None = None,
    ) -> Ticket:
        """Submit a batch of writes, which is committed as a whole or not at all; return its ticket at once.

        `done` is called with the error, or None, once the ticket is settled. The call is made outside the
        owner's tasks and before later tickets are settled, and must not block or raise.

        Raise StoreFailed while the store is failing or closing, and ValueError or TypeError for writes that
        no store can keep. Then nothing is submitted.
        """
        size = 0
        for write in writes:
            size += size_of(write)
        ticket = Ticket(writes, durability, size, done)
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._ending:
            raise StoreFailed(self.name, "it is being closed", "submit before that")
        self._waiting.append(ticket)
        self._bytes += ticket.size
        if not self._called:
            self._called = True
            self._work.set()
        return ticket

    async def commit(self, writes: Sequence[Write], durability: Durability = "process") -> None:
        """Submit a batch of writes, and wait until it is stored. Cancelling does not undo the writes.

        Raise StoreFailed, WriteConflict, and what `submit` raises.
        """
        await self.submit(writes, durability).wait()

    async def settled(self) -> None:
        """Wait until all submitted writes are stored: reads do not show them before. Raise StoreFailed."""
        if self._waiting or self._committing:
            await self.submit([]).wait()

    def discard(self, owners: Callable[[Write], bool]) -> None:
        """Drop the writes that owners have submitted, unless a commit already contains them.

        A simulation calls this when the owners' process has ended. The tickets are still settled in their
        order.
        """
        for ticket in self._waiting:
            if any(map(owners, ticket.writes)):
                ticket.writes = ()

    @property
    def is_full(self) -> bool:
        """Whether `room` would wait."""
        return len(self._waiting) + len(self._committing) >= ROOM or self._bytes >= ROOM_BYTES

    async def room(self) -> None:
        """Wait until fewer than `ROOM` tickets and `ROOM_BYTES` are pending.

        `submit` has no limit, because a turn cannot wait. The code that runs the turns waits here before the
        next one.
        """
        await trio.lowlevel.checkpoint()
        while self.is_full:
            await self._changed.park()

    @property
    def retry_in(self) -> float | None:
        """Seconds until a failed store is tried again; None if it works."""
        return None if self._failure is None else max(0.0, self._probe_at - trio.current_time())

    async def ready(self) -> None:
        """Wait until the store works, and does not hang. Raise StoreFailed if it is closed before that."""
        await trio.lowlevel.checkpoint()
        while self._failure is not None or self._hangs:
            if self._failure is not None and self._ending:
                raise copy.copy(self._failure)
            await self._changed.park()

    @property
    def _hangs(self) -> bool:
        return bool(self._committing) and trio.current_time() - self._began >= HANGS

    def statistics(self) -> WriterStatistics:
        """Return the counts so far, and what is pending."""
        committing = bool(self._committing)
        return WriterStatistics(
            **attrs.asdict(self._totals),
            waiting=len(self._waiting) + len(self._committing),
            waiting_bytes=self._bytes,
            waiting_seconds=trio.current_time() - self._began if committing else 0.0,
        )

    # ---- the task

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        """Commit submitted writes until the end, when nothing is pending, or until the store is lost."""
        while (self._waiting or not self._ending) and not self._is_final:
            if not self._waiting:
                self._work, self._called = trio.Event(), False
                await self._work.wait()
                continue
            await self._commit_next()
            if self._failure is not None and not self._is_final:
                await self._probe()

    @property
    def _is_final(self) -> bool:
        return isinstance(self._failure, FINAL)

    async def _commit_next(self) -> None:
        waiting, batch = self._waiting, list[Ticket]()
        if len(waiting) <= BATCH and self._bytes <= BATCH_BYTES:
            batch += waiting
            waiting.clear()
        size = 0
        while waiting and len(batch) < BATCH and size < BATCH_BYTES:
            batch.append(waiting.popleft())
            size += batch[-1].size
        self._committing = batch
        durability: Durability = "power" if "power" in [each.durability for each in batch] else "process"
        self._began = trio.current_time()
        store, committed = self._store, partial(self._committed, batch)
        batches = [each.writes for each in batch]
        try:
            if isinstance(store, StoreInThread):
                await store.commit(batches, durability, committed)
            else:
                committed(await store.commit(batches, durability))
        except StoreFailed as error:
            self._fail(error)
        self._changed.unpark_all()

    def _committed(self, batch: list[Ticket], conflicts: Sequence[Conflict | None]) -> None:
        if self._committing is not batch:
            return  # a read has found meanwhile that the store is lost: all has been settled
        kept = [ticket for ticket, conflict in zip(batch, conflicts, strict=True) if conflict is None]
        totals = self._totals
        totals.commits += 1
        totals.seconds += trio.current_time() - self._began
        self._committing = []
        self._bytes -= sum([ticket.size for ticket in batch])
        totals.tickets += len(kept)
        totals.writes += sum([len(ticket.writes) for ticket in kept])
        totals.bytes += sum([ticket.size for ticket in kept])
        totals.conflicts += len(batch) - len(kept)
        for ticket, conflict in zip(batch, conflicts, strict=True):
            ticket.settle(None if conflict is None else WriteConflict(*conflict))

    def _fail(self, error: StoreFailed) -> None:
        """Refuse writes from now on, and settle all that is pending."""
        self._failure = error
        self._totals.failures += 1
        pending = [*self._committing, *self._waiting]
        self._committing = []
        self._waiting.clear()
        self._bytes = 0
        for ticket in pending:
            ticket.settle(error)
        self._report(f"{error}; agents that it keeps wait until it works")

    async def _probe(self) -> None:
        """Try writes after growing waits, until one succeeds or the end has come."""
        seconds = 0.1
        while not self._ending and not self._is_final:
            self._probe_at = trio.current_time() + seconds
            self._work = trio.Event()
            with trio.move_on_after(seconds):
                await self._work.wait()  # the end is the only thing that sets it: nothing can be submitted
                return
            try:
                await self._store.commit([[PROBE]], "process")
            except StoreFailed as error:
                self._failure = error
                seconds = min(2 * seconds, 5.0)
            else:
                self._failure = None
                self._report(f"the store {self.name} works again")
                self._changed.unpark_all()
                return

    # ---- the two ends

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def opened(self) -> AsyncGenerator[StoreWriter]:
        """Keep the store open for a block; see `open_writer`."""
        failure: BaseException | None = None
        async with self._store.opened(), trio.open_nursery(strict_exception_groups=True) as nursery:
            scope, ended, block = trio.CancelScope(shield=True), trio.Event(), trio.CancelScope()
            nursery.start_soon(self._run_until_end, scope, ended, block, name=f"writer of {self.name}")
            try:
                with block:
                    yield self
            except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the nursery
                failure = error
            finally:
                await self._end(ended)
                scope.cancel("the store has not answered")
        if failure is not None:
            raise failure
        if block.cancelled_caught and self._failure is not None:
            raise copy.copy(self._failure)

    async def _run_until_end(
        self, scope: trio.CancelScope, ended: trio.Event, block: trio.CancelScope
    ) -> None:
        try:
            with scope:
                await self._run()
        finally:
            if self._is_final:
                block.cancel("the store is lost to its writer")
            self._leave("its writer has ended")
            ended.set()

    async def _end(self, ended: trio.Event) -> None:
        """Commit the last tickets within a time limit."""
        self._ending = True
        self._work.set()
        with trio.move_on_after(ENDING_SECONDS, shield=True):
            await ended.wait()
            return
        self._leave(f"it has not answered within {ENDING_SECONDS:g} s")

    def _leave(self, why: str) -> None:
        """Settle all pending tickets, and accept no more."""
        self._ending = True
        if self._waiting or self._committing:
            self._fail(StoreFailed(self.name, f"{why}: what became of the last writes is unknown"))
        self._changed.unpark_all()


def check_only_writer(writer: StoreWriter, what: str) -> None:
    """Raise ConfigError if other nodes may write to the store, as `what` is kept there without a lease."""
    if writer.is_shared:
        raise ConfigError(
            f"{what} need a store that one node alone writes to, and {writer.name} is one that nodes share: "
            "add &writers=one, and a prefix of its own for each process, such as prefix=desk-$(replica)",
            "store",
        )


def open_writer(
    store: Store | AsyncStore, report: Callable[[str], None] = lambda text: None
) -> AbstractAsyncContextManager[StoreWriter]:
    """Open a store for a block; at its end, commit all submitted writes and close the store.

    `report` is called with a line of text for people when the store fails, and when it works again. Raise
    StoreFailed on entering the block if the store cannot be opened.
    """
    return StoreWriter(store, report).opened()
