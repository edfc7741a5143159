"""Feeds: bounded buffers by which consumers listen to readings, events, progress and ends.

A feed never holds its producer back. A conflating feed keeps only the latest value; any other feed drops its
oldest value and counts it. Both report how many values are missing, as a number (`missed`) or, with
`gaps=True`, as a `Gap` where they are missing.

A receiver that stays slower than its producer should not receive gaps alone. So when a gap is taken, the
values behind it are promised to the receiver (`Backlog`): values that come meanwhile and find no room are
reported by one more gap, behind the promised values. So a gap is followed by as many values as fit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import attrs
import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from .._parking import note_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timers

T_co = TypeVar("T_co", covariant=True)

FEED_SIZE: Final = 64
SLOW: Final = "slow consumer"
"""The reason of a gap in place of dropped values."""


@attrs.frozen
class Gap:
    """A mark for missing values: the reason, and their number if it is known."""

    reason: str
    missed: int | None = None


@attrs.frozen
class Occurrence:
    """One event, as a subscriber to all events of an agent sees it."""

    event: str
    data: Any


class BacklogHolder(Protocol):
    """The owner of the memory for the values of a backlog or feed; not called for gaps."""

    def hold(self, value: Any) -> None:
        """Count a value that begins to wait; this may drop all waiting values."""
        ...

    def release(self, value: Any) -> None:
        """Count a value as no longer held, as it was taken, replaced or dropped."""
        ...


class Backlog:
    """The values, at most `size`, that wait for a slow receiver that sees gaps, and the dropped ones.

    In order: the promised values, a gap for those that were dropped since, and the newest. With size 1 it
    keeps two values, promised and newest. Its `holder` is called last, when all else is consistent.
    """

    __slots__ = ("_dropped", "_holder", "_newest", "_promised", "_size")

    def __init__(self, size: int, holder: BacklogHolder | None = None) -> None:
        self._size = size
        self._holder = holder
        self._promised: Any = _NOTHING  # a deque takes 700 bytes: it is made when it is needed
        self._dropped: int | None = None
        """The number of values that the coming gap stands for, None without such a gap."""
        self._newest: Any = _NOTHING

    def __len__(self) -> int:
        return len(self._promised) + len(self._newest) + (self._dropped is not None)

    def append(self, value: Any) -> int:
        """Add a value, or a `Gap`; return how many values had to be dropped for it."""
        newest, missed = self._newest, 0
        oldest: Any = None
        if newest and len(self._promised) + len(newest) >= self._size:
            oldest = newest.popleft()
            missed = 0 if type(oldest) is Gap else 1
            count = (oldest.missed or 0) if type(oldest) is Gap else 1
            self._dropped = (self._dropped or 0) + count
        elif newest is _NOTHING:
            newest = self._newest = deque[Any]()
        newest.append(value)
        if self._holder is not None:
            if missed:
                self._holder.release(oldest)
            if type(value) is not Gap:
                self._holder.hold(value)
        return missed

    def replace_latest(self, value: Any) -> bool:
        """Replace the latest value; return False if no value waits or the latest item is a gap."""
        for waiting in (self._newest, self._promised):
            if waiting:
                before = waiting[-1]
                if type(before) is Gap:
                    return False
                waiting[-1] = value
                if self._holder is not None:
                    self._holder.release(before)
                    self._holder.hold(value)
                return True
        return False

    def popleft(self) -> Any:
        """Remove and return the oldest value or gap. Raises IndexError if nothing waits."""
        dropped = self._dropped
        if self._promised or dropped is None:
            value = (self._promised or self._newest).popleft()
            if self._holder is not None and type(value) is not Gap:
                self._holder.release(value)
            return value
        self._dropped = None
        self._promised, self._newest = self._newest, _NOTHING
        if len(self._promised) >= max(2, self._size):  # else there would be no room for newer values
            self._newest = deque((self._promised.pop(),))
        return Gap(SLOW, dropped or None)

    def drop_all(self) -> int:
        """Drop all values, with one gap in their place; return how many were dropped."""
        waiting = (*self._promised, *self._newest)
        self._promised = self._newest = _NOTHING
        if not waiting:
            return 0
        values = [each for each in waiting if type(each) is not Gap]
        known = sum(each.missed or 0 for each in waiting if type(each) is Gap)
        self._dropped = (self._dropped or 0) + known + len(values)
        if self._holder is not None:
            for value in values:
                self._holder.release(value)
        return len(values)

    def clear(self) -> None:
        """Remove all values and gaps."""
        self.drop_all()
        self._dropped = None


_NOTHING: Final[tuple[Any, ...]] = ()


class Sink(Protocol):
    """A receiver of an agent's readings and events."""

    def push(self, value: Any) -> None:
        """Receive one value; never blocks, never raises."""
        ...

    def gap(self, reason: str, missed: int | None) -> None:
        """Note that values are missing from here on."""
        ...

    def close(self) -> None:
        """Close the sink, as no more values will come."""
        ...


class Feed(Generic[T_co]):
    """The receiving end of a stream of values: `async for value in feed`, or `await feed.receive()`.

    A feed ends (`trio.EndOfChannel`) when no more values can come, as the agent has ended permanently. Over a
    wire it may instead end with an error that the agent answered. `missed` counts the values that were
    dropped because the receiver was too slow for the feed's size, or replaced by a later value in a
    conflating feed.
    """

    __slots__ = (
        "_buffer", "_closed", "_conflate", "_error", "_holder", "_size", "_task", "_timers", "call",
        "missed",
    )  # fmt: skip

    def __init__(
        self,
        timers: Timers,
        *,
        size: int = FEED_SIZE,
        conflate: bool = False,
        gaps: bool = False,
        holder: BacklogHolder | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"a feed needs a size of at least 1, not {size!r}")
        self._timers = timers
        self._buffer: deque[Any] | Backlog = Backlog(size, holder) if gaps else deque()
        self._size = size
        self._holder = None if gaps else holder  # else the backlog calls it
        self._conflate = conflate
        self._closed = False
        self._error: Exception | None = None
        self._task: trio.lowlevel.Task | None = None
        self.call: Any = None  # of progress: the near call, while it is open
        self.missed = 0

    def push(self, value: Any) -> None:
        """Add a value; for the runtime."""
        if self._closed:
            return
        buffer = self._buffer
        if type(buffer) is deque:
            holder = self._holder
            if buffer and (self._conflate or len(buffer) >= self._size):
                dropped = buffer.popleft()
                self.missed += 1
                if holder is not None:
                    holder.release(dropped)
            buffer.append(value)
            if holder is not None:
                holder.hold(value)
        else:
            self._put(buffer, value)
        if self._task is not None:  # without a call: most are awake
            self._wake()

    def _put(self, backlog: Any, value: Any) -> None:
        """Add a value to a backlog, which keeps gaps."""
        if self._conflate and backlog.replace_latest(value):
            self.missed += 1
        else:
            self.missed += backlog.append(value)

    def gap(self, reason: str, missed: int | None) -> None:
        """Note that values are missing from here on; for the runtime."""
        if missed:
            self.missed += missed
        if type(self._buffer) is Backlog and not self._closed:
            self.missed += self._buffer.append(Gap(reason, missed))
            self._wake()

    def drop_waiting(self) -> None:
        """Drop all waiting values, with one gap in their place if the feed has gaps; for the runtime."""
        buffer = self._buffer
        if type(buffer) is Backlog:
            self.missed += buffer.drop_all()
            return
        self.missed += len(buffer)
        while buffer:
            value = buffer.popleft()
            if self._holder is not None:
                self._holder.release(value)

    def close(self) -> None:
        """End the feed once the receiver has taken the waiting values; for the runtime."""
        self._closed = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the feed with an error once the receiver has taken the waiting values; for the runtime."""
        if not self._closed:
            self._error = error
            self.close()

    def _wake(self) -> None:
        task = self._task
        if task is not None:
            self._task = None
            self._timers.woke = True
            reschedule(task)

    @property
    def receiver(self) -> trio.lowlevel.Task | None:
        """The task that waits for a value now, as shown in the waiting graph."""
        return self._task

    def receive_nowait(self) -> T_co:
        """Return the next value, or raise `trio.WouldBlock` if there is none yet.

        Raises:
            trio.EndOfChannel: no more values will come.
        """
        if self._buffer:
            value: T_co = self._buffer.popleft()
            if self._holder is not None:
                self._holder.release(value)
            return value
        if self._error is not None:
            raise self._error
        if self._closed:
            raise trio.EndOfChannel
        raise trio.WouldBlock

    @enable_ki_protection
    async def receive(self) -> T_co:
        """Wait for the next value and return it.

        Raises:
            trio.EndOfChannel: no more values will come.
            trio.BusyResourceError: another task is receiving from this feed.
        """
        await checkpoint()
        while not self._buffer and not self._closed:
            if self._task is not None:
                raise trio.BusyResourceError("another task is receiving from this feed")
            self._task = task = current_task()
            if self.call is not None:
                note_wait(task, self.call)
            await wait_task_rescheduled(self._abort)
        return self.receive_nowait()

    def _abort(self, _: object) -> Abort:
        self._task = None
        return Abort.SUCCEEDED

    def __aiter__(self) -> Feed[T_co]:
        return self

    async def __anext__(self) -> T_co:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def statistics(self) -> FeedStatistics:
        """Return the number of waiting values, the most that may wait, and the number of missed values."""
        return FeedStatistics(waiting=len(self._buffer), size=self._size, missed=self.missed)


@attrs.frozen
class FeedStatistics:
    """Counts of one feed."""

    waiting: int
    size: int
    missed: int


class SinkTable(Protocol):
    """The listeners of an agent or a pool, by the key of the values that they receive."""

    def add(self, key: str, sink: Sink) -> None:
        """Add a sink for the values that are pushed under `key` from now on."""
        ...

    def remove(self, key: str, sink: Sink) -> None:
        """Remove a sink, if it has not been removed already."""
        ...

    def count(self, key: str) -> int:
        """Return how many sinks are under `key`."""
        ...


class Sinks:
    """The listeners of one slot, by the key of their values; they outlive its incarnations."""

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[str, dict[Sink, None]] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Add a sink for the values that are pushed under `key` from now on."""
        self.by_key.setdefault(key, {})[sink] = None

    def remove(self, key: str, sink: Sink) -> None:
        """Remove a sink, if it has not been removed already."""
        sinks = self.by_key.get(key)
        if sinks is not None and sink in sinks:
            del sinks[sink]
            if not sinks:
                del self.by_key[key]

    def push(
        self,
        key: str,
        value: Any,
        copy: Callable[[Any], Any] | None = None,
        among: tuple[Sink, ...] | None = None,
    ) -> None:
        """Pass a value to every sink under `key`, or a separate copy to each if `copy` is given.

        Sinks that only read their values, for example to write them to connections, share one copy. With
        `among`, only the sinks in it get the value.
        """
        present = self.by_key.get(key, ())
        sinks = tuple(present) if among is None else tuple(sink for sink in among if sink in present)
        if copy is None:
            for sink in sinks:
                sink.push(value)
            return
        shared: list[Any] = []
        for sink in sinks:
            if getattr(sink, "only_reads", False):
                shared = shared or [copy(value)]
                sink.push(shared[0])
            else:
                sink.push(copy(value))

    def count(self, key: str) -> int:
        """Return how many sinks are under `key`."""
        return len(self.by_key.get(key, ()))

    def gap(self, reason: str) -> None:
        """Report the end of an incarnation to every sink."""
        for key, sinks in tuple(self.by_key.items()):
            if key != MONITORS:
                for sink in tuple(sinks):
                    sink.gap(reason, None)

    def close(self) -> None:
        """Close and remove all sinks, as the slot is permanently empty."""
        for sinks in tuple(self.by_key.values()):
            for sink in tuple(sinks):
                sink.close()
        self.by_key.clear()


MONITORS: Final = "down"
ALL_EVENTS: Final = "!"


def event_key(name: str) -> str:
    """Return the key of the subscribers of one event."""
    return f"!{name}"


def property_key(name: str) -> str:
    """Return the key of the observers of one property."""
    return f"?{name}"
