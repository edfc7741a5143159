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

    `take` is called with each item, and returns False if there is no room for it: the item then waits until
    the consumer calls `go_on`. It must not block; an error that it raises ends the stream and reaches the
    consumer.
    """

    __slots__ = ("go_on", "take")

    def __init__(self, take: Callable[[Any], bool]) -> None:
        self.take = take
        self.go_on: Callable[[], object] = bool  # until a stream is poured into it


async def pour(items: LocalStream | AsyncIterator[Any], outlet: Outlet) -> None:
    """Pour all items of a stream into an outlet, and return at the end of the stream.

    An item of a near agent needs no switch of tasks: it is passed on in the step in which the agent sends it,
    in the context of its run. Raises the error of the invocation, or one raised by the outlet. If it is
    cancelled, a near stream keeps its other items; a far one loses the item that waits for room.
    """
    near = items if isinstance(items, LocalStream) else None
    go_on = outlet.go_on = bool if near is None else near.go_on
    if near is not None:
        near.offer(outlet.take, ahead=0)
    try:
        async for item in items:
            while not outlet.take(item):
                room = trio.Event()
                outlet.go_on = room.set
                try:
                    await room.wait()
                except trio.Cancelled:
                    if near is not None:
                        near.put_back(item)
                    raise
            outlet.go_on = go_on
    finally:
        if near is not None:
            near.offer(None)  # a consumer that stops pouring may iterate the rest


class LocalStream(LocalCall):
    """An invocation with many outputs, whose run waits while its consumer is 16 items behind."""

    __slots__ = ("_ahead", "_offer", "_offered", "_outputs", "_room", "opener")

    def __init__(self, slot: Any, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        super().__init__(slot, op, args, sender)
        self._outputs = OutputQueue(slot.rt.timers)
        self._outputs.call, self._outputs.on_taken = self, self.go_on
        self._room: trio.lowlevel.Task | None = None  # of the run, while it has no credit
        self._ahead = STREAM_CREDIT  # so many items may wait for the consumer
        self._offer: Callable[[Any], bool] | None = None  # see `offer`
        self._offered = 0  # items that were sent since then
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
        """Send one item of the run; wait while there is no room for it."""
        await checkpoint_if_cancelled()
        while not self.put_nowait(item) and not self._done:
            self._room = task = current_task()
            note_wait(task, self)
            await wait_task_rescheduled(self._leave_room)
        if self._offer is not None:
            self._offered += 1
            if not self._offered % STREAM_CREDIT:
                await checkpoint()  # a run that waits for nothing else lets others run, as with a queue

    def put_nowait(self, item: Any) -> bool:
        """Send one item of the run if there is room for it now; return whether it was sent."""
        if self._done:
            return False
        outputs = self._outputs
        if self._offer is not None and outputs.receiver is not None:
            try:
                if self._offer(item):
                    return True
            except Exception as error:
                if not self.slot.withdraw(self):
                    raise
                self.fail(error)
                return True
        if len(outputs.items) >= self._ahead:
            return False
        outputs.items.append(item)
        if outputs.receiver is not None:
            outputs.wake()
        return True

    def _leave_room(self, _: object) -> Abort:
        self._room = None
        return Abort.SUCCEEDED

    def go_on(self) -> None:
        """Have the run try again to send the item for which there was no room."""
        task = self._room
        if task is not None:
            self._room = None
            self.slot.rt.timers.woke = True
            reschedule(task)

    def _finish(self) -> None:
        super()._finish()
        self._outputs.end(self._error)
        self._outputs.call = self._outputs.on_taken = None
        self.go_on()

    # ---- the consumer's side

    def offer(self, offer: Callable[[Any], bool] | None, ahead: int = STREAM_CREDIT) -> None:
        """Offer each item to a function while the consumer waits for one, in the step in which it is sent.

        If the function returns True, it has dealt with the item, and the consumer does not get it: so an item
        that needs no wait takes no step of the consumer's task. It runs in the context of the run, and must
        not block; an error that it raises ends the stream and reaches the consumer. Once the consumer is
        cancelled, it gets no more items. Of the items that it does not take, `ahead` wait for the consumer.
        """
        self._offer, self._ahead = offer, ahead
        self._outputs.is_prompt = offer is not None
        self.go_on()

    def put_back(self, item: Any) -> None:
        """Have an item that the consumer has just taken be the next one again."""
        self._outputs.items.appendleft(item)

    @property
    def is_recorded(self) -> bool:
        """Whether this invocation is recorded: the records keep the order in which tasks take items."""
        return self.trace is not None and self.slot.rt.instrument is not None

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Any]:
        return anext(self._outputs)
