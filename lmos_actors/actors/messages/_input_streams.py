"""Input streams: items that flow from a caller's source to the handler of an action, under credit.

Two objects, one at each end, as items cross between agents:

- A `Source` belongs to the call. It iterates the source that the caller passed, in a task of the caller: the
  task of `ref.invoke` itself, or one of a nursery that the block of `ref.begin` and `ref.stream` holds. It
  takes the next item only when there is room for it, checks it, and hands it to its target. Its iterator is
  closed in the task that iterated it, before the verb ends; nothing is left to the garbage collector.
- The handler iterates an `InputStream`. For a near caller it is the target itself; for a far caller a
  connection fills it.

The room is 16 items and 256 KiB. Within a node, only items that are bytes or text have a size: agents there
share one memory, and the size of other items could not be known without encoding them.

What this file keeps true:

1. A source is touched only once its run has begun, so a refused request leaves its source as it was.
2. Each call has one outcome. While the source goes on, that is the outcome of the run. Once the source has
   raised, or yielded an item of another type, the stream breaks off (`SourceFailed` in the handler), the call
   waits until the run is over, and the source's exception is its outcome, whatever the run has answered.
3. The end of the run ends its streams: a source in the middle of `__anext__` is cancelled there, any other
   is closed where it is. Nothing is drained.
4. A source is for one call at a time: two calls would divide its items between them, and each would close it.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import trio
from trio.lowlevel import (
    Abort,
    checkpoint_if_cancelled,
    current_task,
    disable_ki_protection,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from lmos_actors.errors import InvalidInput, SourceFailed, group_of, text_of

from .._parking import note_wait

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable

    from lmos_actors._core import Timers

    from ._operation import Operation, Parameter

ROOM_ITEMS: Final = 16
ROOM_BYTES: Final = 262_144

_IN_USE: Final[dict[int, Any]] = {}
"""The iterators in use by calls, by id: a generator takes no attribute, and channels compare equal."""


class ItemTarget(Protocol):
    """The receiver of the items of a source. Nothing here blocks or raises."""

    def has_room(self) -> bool:
        """Return whether there is room for an item; if not, `Source.go_on` is called once there is."""
        ...

    def put(self, item: Any) -> None:
        """Receive an item, for which there is room."""
        ...

    def finish(self) -> None:
        """Note that all items have been put."""
        ...

    def break_off(self, reason: str) -> None:
        """Note that no more items will come, although the source has not ended normally."""
        ...


class ItemGate(Protocol):
    """The output gate of a durable agent that sends items; see `OutputGate`."""

    async def wait_kept(self) -> None: ...


class StreamedCall(Protocol):
    """A call with input streams, whose sources are iterated; it calls `CallSources.ended` when it is over."""

    async def result(self) -> Any: ...
    def leave(self) -> None: ...


# ---- the handler's side


class InputStream:
    """The items of an input stream, which the handler of an action iterates, in one task and only once.

    `on_taken` is called for each item that the handler takes. Iterating raises SourceFailed after the items
    that came before a break, and when the call of the handler is over.
    """

    __slots__ = (
        "_bytes", "_failure", "_finished", "_items", "_receiver", "_take", "_timers", "begun", "call", "name",
        "on_taken",
    )  # fmt: skip

    def __init__(self, timers: Timers, name: str) -> None:
        self.name = name
        self.begun = False  # its run: until then there is no room
        self.call: Any = None  # the near call, while it is open
        self.on_taken: Callable[[], object] = bool
        self._timers = timers
        self._items: deque[Any] = deque()
        self._bytes = 0
        self._finished = False
        self._failure: SourceFailed | None = None
        self._receiver: trio.lowlevel.Task | None = None
        self._take: Callable[[Any], object] | None = None

    def __repr__(self) -> str:
        return f"<input stream {self.name!r}>"

    def __aiter__(self) -> Self:
        return self

    @enable_ki_protection
    async def __anext__(self) -> Any:
        await checkpoint_if_cancelled()  # no more: it parks once in so many items as there is room for
        while not self._items:
            if self._failure is not None:
                await checkpoint_if_cancelled()  # a cancelled run had an item in hand, which is dropped
                raise self._failure
            if self._finished:
                raise StopAsyncIteration
            if self._receiver is not None:
                raise trio.BusyResourceError("another task is receiving from this stream")
            self._receiver = task = current_task()
            if self.call is not None:
                note_wait(task, self.call)
                task.custom_sleep_data = self  # by the handler itself
            await wait_task_rescheduled(self._abort)
        item = self._items.popleft()
        self._bytes -= _size(item)
        self.on_taken()
        return item

    def pour(self, take: Callable[[Any], object]) -> None:
        """Pass every item to a function, in the step in which the item comes, instead of iterating in a task.

        The function must not block or raise. It is not called at the end of the stream, or at a break.
        """
        self._take = take
        items, self._bytes = [*self._items], 0
        self._items.clear()
        for item in items:
            take(item)
            self.on_taken()

    def _abort(self, _: object) -> Abort:
        self._receiver = None
        return Abort.SUCCEEDED

    @property
    def receiver(self) -> trio.lowlevel.Task | None:
        """The task that waits for an item now; for the waiting graph."""
        return self._receiver

    @property
    def failure(self) -> SourceFailed | None:
        """The error with which the stream broke off, or None."""
        return self._failure

    # ---- the target of a source

    def has_room(self) -> bool:
        """See `ItemTarget`."""
        return self.begun and len(self._items) < ROOM_ITEMS and self._bytes < ROOM_BYTES

    def put(self, item: Any) -> None:
        """See `ItemTarget`."""
        if self._failure is not None or self._finished:
            return
        if self._take is not None:
            self._timers.woke = True  # in a simulation: what it does may wake a task
            self._take(item)
            self.on_taken()
        else:
            self._items.append(item)
            self._bytes += _size(item)
            self._wake()

    def finish(self) -> None:
        """See `ItemTarget`."""
        self._finished = True
        self._wake()

    def break_off(self, reason: str) -> None:
        """See `ItemTarget`."""
        if not self._finished and self._failure is None:
            self._failure = SourceFailed(self.name, reason)
            self._wake()

    def close(self) -> None:
        """Drop the items that the handler has not taken, as the call is over."""
        self.call = None
        if self._items:
            self._items.clear()
            self._bytes = 0
            self._finished = False  # a handler that iterates on must not take these items for all
        self.break_off("its call is over")

    def _wake(self) -> None:
        task, self._receiver = self._receiver, None
        if task is not None:
            self._timers.woke = True
            reschedule(task)


def _size(item: Any) -> int:
    return len(item) if type(item) is bytes or type(item) is str else 0


def streams_among(op: Operation, args: tuple[Any, ...]) -> list[InputStream]:
    """Return the input streams among the arguments that a handler gets."""
    return [args[place] for place in op.streams]


def break_in(error: BaseException, op: Operation, args: tuple[Any, ...]) -> SourceFailed | None:
    """Return the break of an input stream that a handler let through, alone or in a group; else None."""
    group = group_of(error)
    if group is None:
        return next((stream.failure for stream in streams_among(op, args) if stream.failure is error), None)
    breaks = [break_in(each, op, args) for each in group.exceptions]
    return None if None in breaks else breaks[0]


# ---- the caller's side


class Source:
    """The source of an input stream, as passed by its caller, and the task that iterates it."""

    __slots__ = (
        "_begun",
        "_gate",
        "_is_over",
        "_iterator",
        "_parked",
        "_scope",
        "_shape",
        "_timers",
        "call",
        "name",
        "target",
        "task",
    )

    def __init__(
        self,
        timers: Timers,
        parameter: Parameter,
        source: AsyncIterable[Any],
        label: str,
        gate: ItemGate | None,
    ) -> None:
        self.name = parameter.wire_name
        self.target: ItemTarget
        self.task: trio.lowlevel.Task | None = None  # the task that iterates it; for the waiting graph
        self.call: Any = None  # the near call that it is for
        self._gate = gate
        self._timers = timers
        self._shape = parameter.shape
        self._iterator = aiter(source)
        self._scope: trio.CancelScope | None = None
        self._parked: trio.lowlevel.Task | None = None
        self._begun = False
        self._is_over = False
        if id(self._iterator) in _IN_USE:
            raise RuntimeError(
                f"{label}: the source given as {self.name!r} is iterated for another call already, "
                f"and a source is for one: {source!r}"
            )
        _IN_USE[id(self._iterator)] = self._iterator

    def release(self) -> None:
        """Allow other calls to use the source."""
        self.call = None
        _IN_USE.pop(id(self._iterator), None)

    @property
    def parked(self) -> trio.lowlevel.Task | None:
        """The task that waits for room."""
        return self._parked

    def go_on(self) -> None:
        """Wake the waiting task if there is room now, or if the call is over."""
        task = self._parked
        if task is not None and (self._is_over or self.target.has_room()):
            self._parked = None
            self._timers.woke = True
            reschedule(task)

    def stop(self) -> None:
        """Take no more items, as the call is over or the receiver wants no more."""
        self._is_over = True
        if self._scope is not None:
            self._timers.woke = True
            self._scope.cancel("the call is over")

    @disable_ki_protection
    async def carry(self) -> None:
        """Iterate the source until it ends or the call is over, then close it. Raises the source's errors."""
        self.task = current_task()
        try:
            with trio.CancelScope() as self._scope:
                await self._room()
                if not self._is_over:
                    await self._carry_items()
        except BaseException as exc:
            if not _is_cancel(exc):
                self.target.break_off(f"{type(exc).__name__}: {text_of(exc)}")
            raise
        finally:
            self._scope = self.task = None
            close = getattr(self._iterator, "aclose", None)
            if close is not None and self._begun:
                await close()

    async def _carry_items(self) -> None:
        target, take, count = self.target, self._shape.take, 0
        self._begun = True
        async for item in self._iterator:
            if self._is_over:
                return
            try:
                item = take(item)
            except InvalidInput:  # once more, with the path that the refusal names
                item = take(item, f"$.{self.name}[{count}]")
            if self._gate is not None:
                await self._gate.wait_kept()
            target.put(item)
            count += 1
            if not target.has_room():
                await self._room()
        target.finish()

    @enable_ki_protection
    async def _room(self) -> None:
        while not self._is_over and not self.target.has_room():
            self._parked = task = current_task()
            if self.call is not None:
                note_wait(task, self.call)

            def abort(_: object) -> Abort:
                self._parked = None
                return Abort.SUCCEEDED

            await wait_task_rescheduled(abort)


class CallSources:
    """The sources of one call, and the errors that they raised.

    The constructor raises RuntimeError for a source that another call iterates; then the object has to be
    released. The call calls `go_on` when there may be room, and `ended` when it is over. `gate` is the output
    gate of a durable agent that makes the call: each item rests on state that has to be kept first.
    """

    __slots__ = ("_errors", "_is_left", "_raised", "sources")

    def __init__(
        self, timers: Timers, op: Operation, args: tuple[Any, ...], gate: ItemGate | None = None
    ) -> None:
        self.sources: list[Source] = []
        self._errors: dict[Source, Exception] = {}
        self._raised: list[Exception] = []  # the errors that the call raised as its outcome
        self._is_left = False  # by its consumer, before it was over
        try:
            for place in op.streams:
                self.sources.append(Source(timers, op.params[place], args[place], op.label, gate))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Allow other calls to use the sources."""
        for source in self.sources:
            source.release()

    def parked(self) -> list[trio.lowlevel.Task]:
        """Return the tasks that wait for room."""
        return [source.parked for source in self.sources if source.parked is not None]

    def go_on(self) -> None:
        """Wake the tasks that wait for room, if there is room now."""
        for source in self.sources:
            source.go_on()

    def stop(self, name: str) -> None:
        """Take no more items from one source, as the agent wants no more while its run goes on."""
        for source in self.sources:
            if source.name == name:
                source.stop()

    def ended(self, error: Exception | None) -> Exception | None:
        """Note that the call is over, with this error or None; return the error that is its outcome."""
        for source in self.sources:
            source.stop()
        if self._is_left or not self._errors:
            return error
        self._raised = self._all_errors()
        return _as_one(self._raised)

    def _all_errors(self) -> list[Exception]:
        """Return the errors that the sources have raised, in the order of the parameters."""
        return [self._errors[source] for source in self.sources if source in self._errors]

    async def answer(self, call: StreamedCall) -> Any:
        """Iterate the sources in this task, and return the answer of the call.

        Raises a source's error once the call is over, or else the error of the call.
        """
        try:
            if len(self.sources) == 1:
                await self._carry(self.sources[0])
            else:
                async with trio.open_nursery() as nursery:
                    for source in self.sources:
                        nursery.start_soon(self._carry, source, name=f"source of {source.name}")
            if not self._errors:
                return await call.result()
            with suppress(Exception):  # it is that of the source, or follows from it
                await call.result()
            raise _as_one(self._all_errors())
        finally:
            call.leave()
            self.release()

    async def _carry(self, source: Source) -> None:
        try:
            await source.carry()
        except Exception as exc:
            self._errors[source] = exc

    @asynccontextmanager
    @enable_ki_protection
    async def carried(self, call: StreamedCall) -> AsyncGenerator[None]:
        """Iterate the sources in separate tasks until the block is left, which ends the call.

        Raises the block's error, or else a source's error that the call has not raised.
        """
        raised: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                for source in self.sources:
                    nursery.start_soon(self._carry, source, name=f"source of {source.name}")
                try:
                    yield
                except BaseException as exc:  # noqa: ASYNC103 -- raised below, in no group of this nursery
                    raised = exc
                self._is_left = True
                call.leave()
        except BaseException as exc:  # noqa: ASYNC103 -- a cancel gives way to the exception of the block, below
            if not isinstance(raised, Exception) or not _is_cancel(exc):
                raise
        finally:
            self.release()
        if raised is not None:
            raise raised
        late = [error for error in self._all_errors() if error not in self._raised]
        if late:
            raise _as_one(late)


def _as_one(errors: list[Exception]) -> Exception:
    return errors[0] if len(errors) == 1 else ExceptionGroup("several sources have raised", errors)


def _is_cancel(error: BaseException) -> bool:
    group = group_of(error)
    return isinstance(error, trio.Cancelled) if group is None else all(map(_is_cancel, group.exceptions))
