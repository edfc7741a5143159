"""Calls and streams on a near agent: envelopes whose answers are kept until they are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
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

from lmos_actors.errors import ActionCancelled, DeadlineExceeded

from .._parking import note_wait, park_among
from .._runtime import asked_of_person, awaited
from ..messages._input_streams import CallSources, InputStream, streams_among
from ..messages._invocation import CURRENT, gate_of_caller
from ..messages._mailbox import DONE, HELD_BACK, RUNNING, WORKED_ON, Envelope
from ..messages._observers import Feed
from ..messages._operation import STREAM, named
from ..messages._output_queue import OutputQueue
from ..refs._ref import STREAM_CREDIT, CallStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Self

    from lmos_actors._core import Timer

    from ..messages._mailbox import Request
    from ..messages._operation import Operation


class LocalCall(Envelope):
    """An invocation that its consumer may query before it ends; see `Call`."""

    __slots__ = (
        "_done", "_error", "_timer", "_value", "_waiting", "allows", "cancelled", "consumer", "deadline",
        "feed", "principal", "reason", "sources", "stood_in_line",
    )  # fmt: skip

    holds_sender = False  # the sender waits only in `result` and the like

    def __init__(self, slot: Any, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        super().__init__(slot, op, args, sender)
        self.sources: CallSources | None = None
        self._done = False
        self.stood_in_line = False
        self._value: Any = None
        self._error: Exception | None = None
        self._waiting: list[trio.lowlevel.Task] = []
        self._timer: Timer | None = None
        self.cancelled = False
        self.reason: str | None = None
        self.deadline: float | None = None
        self.principal: str | None = None
        self.allows: Callable[[str, Any], bool] | None = None
        self.feed: Feed[Any] = Feed(slot.rt.timers, conflate=True)
        self.feed.call = self
        self.consumer = CURRENT.get()

    # ---- the slot's side

    def on_pending(self) -> None:
        self.stood_in_line = True

    def began(self) -> None:
        if self.sources is not None:
            for stream in streams_among(self.op, self.args):
                stream.begun = True
            self.sources.go_on()

    def answer(self, value: Any) -> None:
        self._value = value
        self._finish()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self.phase = DONE
        self._done = True
        if self.sources is not None:
            self._error = self.sources.ended(self._error)
        self.feed.close()
        self.feed.call = None  # no cycle is left
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        self.slot.rt.timers.woke = True
        for task in waiting:
            reschedule(task)

    def expire_in(self, seconds: float) -> None:
        """Make the call fail with `DeadlineExceeded` if it is unanswered after `seconds`."""
        if self._done:
            return
        self.deadline = trio.current_time() + seconds

        def expire() -> None:
            why = asked_of_person(self)
            if self.slot.withdraw(self):
                self.fail(DeadlineExceeded(self.slot.path, seconds, why=why))

        self._timer = self.slot.rt.timers.call_at(self.deadline, expire)

    def request(self) -> Request:
        """Return the request of the call as agents see it, with its consumer and principal."""
        request = super().request()
        if self.principal is None and self.allows is None:
            return request
        return attrs.evolve(request, principal=self.principal, allows=self.allows)

    # ---- the consumer's side

    @property
    def progress(self) -> Feed[Any]:
        """The progress that the run reports."""
        return self.feed

    def held_sources(self) -> tuple[trio.lowlevel.Task, ...]:
        """Return the tasks whose sources wait until the handler takes an item; () before the run begins."""
        if self.sources is None or self._done or self.phase != RUNNING:
            return ()
        return tuple(self.sources.parked())

    def waiting_tasks(self) -> tuple[trio.lowlevel.Task, ...]:
        if self._done:
            return ()
        receiver = self.feed.receiver
        waiting = self._waiting if self.sources is None else [*self._waiting, *self.sources.parked()]
        return tuple(waiting) if receiver is None else (*waiting, receiver)

    @awaited("call.")
    @named("call.result")
    async def result(self) -> Any:
        """Wait for the final answer and return it."""
        await checkpoint_if_cancelled()
        while not self._done:
            await park_among(self._waiting, self)
        if self._error is not None:
            raise self._error
        return self._value

    @awaited("call.")
    @named("call.query")
    async def query(self) -> CallStatus:
        """Return the status of the invocation."""
        await checkpoint()
        return self._status()

    @awaited("call.")
    @named("call.cancel")
    @enable_ki_protection
    async def cancel(self, reason: str | None = None) -> CallStatus:
        """Cancel the invocation if it is still open."""
        await checkpoint()
        if self.slot.withdraw(self):
            self.cancelled = True
            self.reason = reason
            self.fail(ActionCancelled(reason))
        return self._status()

    @enable_ki_protection
    def leave(self) -> None:
        """Cancel the invocation if it is still open, as its consumer has left."""
        if not self._done and self.slot.withdraw(self):
            self.fail(ActionCancelled("the consumer left"))

    def _status(self) -> CallStatus:
        if self._done:
            return CallStatus("completed" if self._error is None else "failed", self.cancelled, self.reason)
        return CallStatus("in progress" if self.phase in (RUNNING, WORKED_ON, HELD_BACK) else "pending")


def with_sources(call: LocalCall, args: tuple[Any, ...]) -> CallSources:
    """Replace the sources in the arguments of a call by the streams for its handler; return the sources.

    Raises RuntimeError for a source that another call iterates.
    """
    op, timers = call.op, call.slot.rt.timers
    sources = call.sources = CallSources(timers, op, args, gate_of_caller())
    taken = list(args)
    for place, source in zip(op.streams, sources.sources, strict=True):
        stream = taken[place] = InputStream(timers, source.name)
        stream.call = source.call = call
        source.target, stream.on_taken = stream, source.go_on
    call.args = tuple(taken)
    return sources


@enable_ki_protection
async def ask_with_sources(
    slot: Any, op: Operation, args: tuple[Any, ...], sender: Any, seconds: float | None
) -> Any:
    """Ask for a run with input streams, and iterate their sources in this task until the run is over."""
    call = LocalCall(slot, op, args, sender)
    sources = with_sources(call, args)
    try:
        slot.post(call)
    except BaseException:
        sources.release()
        raise
    if seconds is not None:
        call.expire_in(seconds)
    return await sources.answer(call)


class Outlet:
    """A consumer that takes the items of a stream one by one, in the step in which they are sent.

    `take` is called with each item. It must not block; an error that it raises ends the stream and reaches
    the consumer. While `has_room` returns False the run waits; after that the consumer calls `go_on`.
    """

    __slots__ = ("go_on", "has_room", "take")

    def __init__(self, take: Callable[[Any], object], has_room: Callable[[], bool]) -> None:
        self.take = take
        self.has_room = has_room
        self.go_on: Callable[[], object] = bool  # until a stream is poured into it


async def pour(items: LocalStream | AsyncIterator[Any], outlet: Outlet) -> None:
    """Pour all items of a stream into an outlet, and return at the end of the stream.

    An item of a near agent needs no switch of tasks: it is passed on in the step in which the agent sends it,
    in the context of its run. Raises the error of the invocation, or one raised by the outlet.
    """
    if isinstance(items, LocalStream):
        await items.pour(outlet)
        return
    async for item in items:
        outlet.take(item)
        while not outlet.has_room():
            room = trio.Event()
            outlet.go_on = room.set
            await room.wait()


class LocalStream(LocalCall):
    """An invocation with many outputs, whose run waits while its consumer is 16 items behind."""

    __slots__ = ("_hear", "_outlet", "_outputs", "_poured", "_room", "_spilt", "opener")

    def __init__(self, slot: Any, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        super().__init__(slot, op, args, sender)
        self._outputs = OutputQueue(slot.rt.timers)
        self._outputs.call, self._outputs.on_taken = self, self._make_room
        self._room: trio.lowlevel.Task | None = None  # of the run, while it has no credit
        self._hear: Callable[[Any], bool] | None = None  # see `hear`
        self._outlet: Outlet | None = None
        self._poured = 0  # items that were passed on in the step of the run
        self._spilt: Exception | None = None  # what the outlet has raised
        self.opener = current_task()

    @property
    def room(self) -> trio.lowlevel.Task | None:
        """The task that waits for the consumer to take items: that of the run, or one that works for it."""
        return self._room

    def waiting_tasks(self) -> tuple[trio.lowlevel.Task, ...]:
        tasks, receiver = super().waiting_tasks(), self._outputs.receiver
        return tasks if receiver is None else (*tasks, receiver)

    def answer(self, value: Any) -> None:
        if self.op.kind != STREAM and value is not None:
            self._outputs.add(value)  # of an action with one output, which is then the only item
        super().answer(value)

    async def put(self, item: Any) -> None:
        """Send one item of the run; wait while there is no credit, or no room in the outlet."""
        await checkpoint_if_cancelled()
        if self._hear is not None and self._outputs.receiver is not None and self._hear(item):
            self._poured += 1
            if not self._poured % STREAM_CREDIT:
                await checkpoint()  # as below
            return
        while not self._done and (
            len(self._outputs.items) >= STREAM_CREDIT if self._outlet is None else not self._outlet.has_room()
        ):
            self._room = task = current_task()
            note_wait(task, self)
            await wait_task_rescheduled(self._leave_room)
        if self._outlet is not None:
            self._poured += 1
            if not self._poured % STREAM_CREDIT:
                await checkpoint()  # a run that waits for nothing else lets others run, as with a queue
        outlet = self._outlet
        if outlet is None:
            self._outputs.add(item)
            return
        if self._done:
            return
        try:
            outlet.take(item)
        except Exception as error:
            self._spilt = error
            self.leave()

    def put_nowait(self, item: Any) -> bool:
        """Send one item of the run if there is room for it now; return whether it was sent."""
        outlet = self._outlet
        if self._done or (
            len(self._outputs.items) >= STREAM_CREDIT if outlet is None else not outlet.has_room()
        ):
            return False
        if outlet is None:
            self._outputs.add(item)
            return True
        try:
            outlet.take(item)
        except Exception as error:
            self._spilt = error
            self.leave()
        return True

    def _leave_room(self, _: object) -> Abort:
        self._room = None
        return Abort.SUCCEEDED

    def _make_room(self) -> None:
        task = self._room
        if task is not None:
            self._room = None
            self.slot.rt.timers.woke = True
            reschedule(task)

    def _finish(self) -> None:
        super()._finish()
        self._outputs.end(self._error)
        self._outputs.call = self._outputs.on_taken = None
        self._make_room()

    # ---- the consumer's side

    def hear(self, hear: Callable[[Any], bool]) -> None:
        """Offer each item to a function while the consumer waits for one, in the step in which it is sent.

        If the function returns True, it has dealt with the item, and the consumer does not get it: so an item
        that needs no wait takes no step of the consumer's task. It runs in the context of the run; it must
        not block or raise. Once the consumer is cancelled, it gets no more items. If the stream is recorded,
        it gets none, as the records keep the order in which tasks take items.
        """
        if self.trace is None or self.slot.rt.instrument is None:
            self._hear = hear
            self._outputs.is_prompt = True

    async def pour(self, outlet: Outlet) -> None:
        """See the function `pour`."""
        await self._drain(outlet)
        self._outlet, outlet.go_on = outlet, self._make_room
        self._make_room()
        try:
            await self.result()
        except ActionCancelled:
            if self._spilt is None:
                raise
        finally:
            self._outlet = None
            self._make_room()  # a consumer that stops pouring may iterate the rest
        if self._spilt is not None:
            raise self._spilt
        await self._drain(outlet)  # what an action with one output has answered

    async def _drain(self, outlet: Outlet) -> None:
        while self._outputs.items:
            await checkpoint()
            outlet.take(self._outputs.items.popleft())

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Any]:
        return anext(self._outputs)
