"""What consumers listen with: bounded feeds of readings, events, progress and ends.

A feed never holds its producer back. A conflating feed keeps the latest value alone; any other drops
its oldest and counts it. Both say how many are missing, as a number (`missed`) or, with `gaps=True`, as
a `Gap` in the place where they are missing.
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._timers import Timers

T_co = TypeVar("T_co", covariant=True)

FEED_SIZE: Final = 64


@attrs.frozen
class Gap:
    """Something is missing here: why, and how many values if that is known."""

    reason: str
    missed: int | None = None


@attrs.frozen
class Occurrence:
    """One event, as a subscriber to all events of an agent sees it."""

    event: str
    data: Any


class Sink(Protocol):
    """Where an agent's readings and events go."""

    def push(self, value: Any) -> None:
        """Take one value; never blocks, never raises."""
        ...

    def gap(self, reason: str, missed: int | None) -> None:
        """Take note that values are missing from here on."""
        ...

    def close(self) -> None:
        """There will be no more."""
        ...


class Feed(Generic[T_co]):
    """The receiving end: `async for value in feed`, or `await feed.receive()`.

    Ends (`trio.EndOfChannel`) when there can be no more values: the agent is gone for good. `missed`
    counts the values that were dropped because the receiver was slower than its bound allows, or
    replaced by a later one where values conflate.
    """

    __slots__ = ("_buffer", "_closed", "_conflate", "_gaps", "_size", "_task", "_timers", "missed")

    def __init__(
        self,
        timers: Timers,
        *,
        size: int = FEED_SIZE,
        conflate: bool = False,
        gaps: bool = False,
    ) -> None:
        if size < 1:
            raise ValueError(f"a feed needs a size of at least 1, not {size!r}")
        self._timers = timers
        self._buffer: deque[Any] = deque()
        self._size = size
        self._conflate = conflate
        self._gaps = gaps
        self._closed = False
        self._task: trio.lowlevel.Task | None = None
        self.missed = 0

    def push(self, value: Any) -> None:
        """Add a value; the runtime's side."""
        if self._closed:
            return
        buffer = self._buffer
        if self._conflate and buffer and type(buffer[-1]) is not Gap:
            buffer.pop()
            self.missed += 1
        elif len(buffer) >= self._size:
            self._drop_oldest()
        buffer.append(value)
        self._wake()

    def _drop_oldest(self) -> None:
        buffer = self._buffer
        gap = buffer.popleft() if type(buffer[0]) is Gap else None
        if buffer:
            buffer.popleft()
            self.missed += 1
        if self._gaps:
            before = (gap.missed or 0) if gap is not None else 0
            buffer.appendleft(Gap("slow consumer", before + 1))
            if len(buffer) >= self._size + 1:
                second = buffer[1]
                del buffer[1]
                if type(second) is not Gap:
                    self.missed += 1

    def gap(self, reason: str, missed: int | None) -> None:
        """Note that values are missing from here on; the runtime's side."""
        if missed:
            self.missed += missed
        if self._gaps and not self._closed:
            if len(self._buffer) >= self._size:
                self._drop_oldest()
            self._buffer.append(Gap(reason, missed))
            self._wake()

    def close(self) -> None:
        """Let the receiver end once it has taken what is here; the runtime's side."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        task = self._task
        if task is not None:
            self._task = None
            self._timers.woke = True
            reschedule(task)

    @property
    def receiver(self) -> trio.lowlevel.Task | None:
        """The task that waits for a value now; for the waiting graph."""
        return self._task

    def receive_nowait(self) -> T_co:
        """Give the next value, raise `trio.WouldBlock` if there is none yet.

        Raises:
            trio.EndOfChannel: there will be no more.
        """
        if self._buffer:
            value: T_co = self._buffer.popleft()
            return value
        if self._closed:
            raise trio.EndOfChannel
        raise trio.WouldBlock

    @enable_ki_protection
    async def receive(self) -> T_co:
        """Wait for the next value and give it.

        Raises:
            trio.EndOfChannel: there will be no more.
            trio.BusyResourceError: another task is receiving from this feed.
        """
        await checkpoint()
        while not self._buffer and not self._closed:
            if self._task is not None:
                raise trio.BusyResourceError("another task is receiving from this feed")
            self._task = current_task()
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
        """How many values wait here, how many may, how many were missed."""
        return FeedStatistics(waiting=len(self._buffer), size=self._size, missed=self.missed)


@attrs.frozen
class FeedStatistics:
    """Counts of one feed."""

    waiting: int
    size: int
    missed: int


class Sinks:
    """The listeners of one slot, by what they listen to; they outlive its incarnations (W2)."""

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[str, dict[Sink, None]] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Let a sink hear what is pushed under `key` from now on."""
        self.by_key.setdefault(key, {})[sink] = None

    def remove(self, key: str, sink: Sink) -> None:
        """Take a sink out; it may be gone already."""
        sinks = self.by_key.get(key)
        if sinks is not None and sink in sinks:
            del sinks[sink]
            if not sinks:
                del self.by_key[key]

    def push(self, key: str, value: Any, copy: Callable[[Any], Any] | None = None) -> None:
        """Give a value to every sink under `key`, each its own copy if `copy` is given."""
        for sink in tuple(self.by_key.get(key, ())):
            sink.push(value if copy is None else copy(value))

    def gap(self, reason: str) -> None:
        """Tell every sink that an incarnation has ended."""
        for key, sinks in tuple(self.by_key.items()):
            if key != MONITORS:
                for sink in tuple(sinks):
                    sink.gap(reason, None)

    def close(self) -> None:
        """The slot is empty for good."""
        for sinks in tuple(self.by_key.values()):
            for sink in tuple(sinks):
                sink.close()
        self.by_key.clear()


MONITORS: Final = "down"
ALL_EVENTS: Final = "!"


def event_key(name: str) -> str:
    """Where the subscribers of one event are."""
    return f"!{name}"


def property_key(name: str) -> str:
    """Where the observers of one property are."""
    return f"?{name}"
