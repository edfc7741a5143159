"""Calls and streams on an agent of another node: requests whose answers are kept here until fetched.

They are made by `begin` of a far ref. The classes do not depend on the protocol: the peer (`far.peer`)
queries and cancels a run, over LMOS by messages (`_peer_connection.py`), over HTTP at the URL of the run. A
call that has ended answers `query` and `cancel` itself.

Cancelling a task in `result()` does not end the run; leaving the block of `begin` does (`leave`). If the
request has ended already, `far.withdraw` returns False. So a run ends once: by an answer, an error, its
deadline or `leave`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import trio
from msgspec import UNSET
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import (
    CURRENT,
    CUT_OFF,
    CallSources,
    CallStatus,
    Feed,
    OwnTask,
    Run,
    asked_of_person,
    awaited,
    comes_back,
    gate_of_caller,
    park_among,
    wake_all,
)
from lmos_actors.errors import (
    ActionCancelled,
    AgentError,
    DeadlineExceeded,
    MailboxFull,
    NotAllowed,
    RemoteProtocolError,
)
from lmos_actors.protocol import lmos
from lmos_actors.protocol.td import JSON

from ._peer_requests import PendingRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Self

    from lmos_actors._core import Timer
    from lmos_actors.actors import Operation, OutputQueue

    from ._remote_interface import RemoteInterface

MOST: Final = 1024
"""Items kept from a peer that knows no credit; with more of them the run is cancelled."""

BYTES: Final = "application/octet-stream"
"""The content type of input streams whose items go in binary frames."""

_STATUSES: Final[dict[str, Literal["pending", "in progress", "completed", "failed"]]] = {
    "pending": "pending",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "failed",
}


class RemoteRun(PendingRequest, eq=False, kw_only=True):
    """The common part of calls and streams: they can be queried and cancelled before they end; see `Call`."""

    op: Operation
    interface: RemoteInterface
    feed: Feed[Any]
    """The progress that the run reports."""
    sources: CallSources | None = None
    consumer: Run | OwnTask | None = msgspec.field(default_factory=CURRENT.get)
    """The run that has begun this one, None outside agents."""
    trace: tuple[int, int] | None = None
    """Number and trace of the request, if an instrument records it."""
    cancelled: bool = False
    reason: str | None = None
    _done: bool = False
    _value: Any = None
    _error: Exception | None = None
    _tasks: list[trio.lowlevel.Task] = msgspec.field(default_factory=list["trio.lowlevel.Task"])
    _timer: Timer | None = None

    # ---- the peer's side

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        receiver = self.feed.receiver
        waiting = self._tasks if self.sources is None else [*self._tasks, *self.sources.parked()]
        return waiting if receiver is None else (*waiting, receiver)

    def held_sources(self) -> Iterable[trio.lowlevel.Task]:
        return () if self.sources is None else self.sources.parked()

    def carry(self, args: tuple[Any, ...]) -> CallSources:
        """Connect the sources among the arguments with the agent's input streams, and return them.

        Raises RuntimeError for a source that another call iterates, NotAllowed if no streams can be sent.
        """
        op = self.op
        sources = self.sources = CallSources(self.far.rt.timers, op, args, gate_of_caller())
        try:
            for source in sources.sources:
                source.call = self
                source.target = self.far.peer.target(self, source.name)
        except NotAllowed:
            sources.release()
            raise
        params = (op.params[place] for place in op.streams)
        self.streams = {p.wire_name: BYTES if p.shape.exact is bytes else JSON for p in params}
        return sources

    def leaving(self) -> str | None:
        return CUT_OFF if comes_back(self.consumer) else None

    def on_room(self) -> None:
        if self.sources is not None:
            self.sources.go_on()

    def on_stopped(self, name: str) -> None:
        if self.sources is not None:
            self.sources.stop(name)

    def fail(self, error: Exception) -> None:
        self._error = error
        if isinstance(error, ActionCancelled):
            self.cancelled, self.reason = True, error.reason
        self._finish()

    def on_status(self, status: str, progress: Any, waits: dict[str, Any] | None) -> None:
        if waits is not None or self.question is not None:
            self.hear(waits)
        if progress is UNSET:
            return
        try:
            self.feed.push(self.interface.convert_progress(self.op, progress))
        except AgentError:
            self.feed.gap("progress of another type", 1)

    def _finish(self) -> None:
        self.ended = self._done = True
        if self.question is not None:
            self.hear(None)
        if self.sources is not None:
            self._error = self.sources.ended(self._error)
        if self.going is not None:
            self.going.ended(self._error)
        self.feed.close()
        if self._timer is not None:
            self._timer.cancel()
        wake_all(self.far.rt.timers, self._tasks)

    def begin_deadline(self) -> None:
        """Set a timer for the deadline, if any, which fails an unanswered run with `DeadlineExceeded`."""
        if self.deadline is not None and not self._done:
            self._timer = self.far.rt.timers.call_at(self.deadline, self._expire)

    def _expire(self) -> None:
        why = "" if self._done else asked_of_person(self)
        if not self._done and self.far.withdraw(self):
            self.fail(DeadlineExceeded(self.far.path, self.seconds or 0.0, why=why))

    async def _by_deadline(self, asked: Callable[[], Awaitable[CallStatus]]) -> CallStatus:
        """Return the status from `asked()`; if the run's deadline passes first, end the run instead."""
        if self.deadline is None or self._done:
            return await asked()
        with trio.move_on_at(self.deadline):
            return await asked()
        self._expire()
        return self._status()

    # ---- the consumer's side

    @property
    def stood_in_line(self) -> bool:
        """Whether the run had to wait for its action's concurrency, as far as its peer reports it."""
        return isinstance(self.pending, lmos.PendingRun) and self.pending.waited

    @property
    def progress(self) -> Feed[Any]:
        """The feed of the run's progress."""
        return self.feed

    @awaited("call.")
    async def result(self) -> Any:
        """Wait for the final answer and return it."""
        await checkpoint_if_cancelled()
        while not self._done:
            await park_among(self._tasks, self)
        if self._error is not None:
            raise self._error
        return self._value

    @awaited("call.")
    @enable_ki_protection
    async def query(self) -> CallStatus:
        """Return the status of the invocation; ask the agent unless it is known here.

        Raises MailboxFull if 16 queries of this call are open, OutcomeUnknown or AgentUnavailable if the
        connection ended before the answer, NotAllowed if its server offers no query.
        """
        return await self._by_deadline(self._query)

    async def _query(self) -> CallStatus:
        await checkpoint()
        standing = None if self._done else await self.far.peer.query(self)
        return self._status(standing)

    @awaited("call.")
    @enable_ki_protection
    async def cancel(self, reason: str | None = None) -> CallStatus:
        """Cancel the invocation if it is still open, and wait until the agent has confirmed.

        Over HTTP the server is asked to end the run, if the URL of the run is known. Otherwise the connection
        is closed, as HTTP has no other means.
        """
        return await self._by_deadline(partial(self._cancel, reason))

    async def _cancel(self, reason: str | None) -> CallStatus:
        await checkpoint()
        standing = None if self._done else await self.far.peer.cancel(self, reason)
        return self._status(standing)

    @enable_ki_protection
    def leave(self) -> None:
        """End the run if it is open, because the consumer is gone."""
        if not self._done and self.far.withdraw(self):
            self.fail(ActionCancelled("the consumer left"))

    def _status(self, standing: lmos.RunStatus | None = None) -> CallStatus:
        """Return the status known here, or else the peer's; an unknown status counts as "in progress"."""
        if self._done:
            return CallStatus("completed" if self._error is None else "failed", self.cancelled, self.reason)
        if standing is None:
            return CallStatus("pending")
        status = _STATUSES.get(standing.status, "in progress")
        return CallStatus(status, standing.cancelled, standing.reason)


class RemoteCall(RemoteRun, eq=False):
    """An invocation with one output; see `Call`."""

    def answer(self, value: Any) -> None:
        try:
            self._value = self.interface.convert_answer(self.op, value, self.far.path)
        except RemoteProtocolError as error:
            self._error = error
        self._finish()


class RemoteStream(RemoteRun, eq=False, kw_only=True):
    """An invocation with many outputs: the agent is at most 16 items, or 256 KiB, ahead of its consumer."""

    outputs: OutputQueue

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        tasks, receiver = super().waiting_tasks(), self.outputs.receiver
        return tasks if receiver is None else (*tasks, receiver)

    def item(self, output: Any) -> None:
        self.outputs.add(output)
        if len(self.outputs.items) > MOST:
            self.far.withdraw(self)
            self.fail(MailboxFull(self.far.path, MOST))

    def answer(self, value: Any) -> None:
        """Add a final value as the last item; a peer without streams sends only this one."""
        if value is not UNSET and value is not None:
            self.outputs.add(value)
        self._finish()

    def _finish(self) -> None:
        super()._finish()
        self.outputs.call = None  # no cycle is left
        self.outputs.end(self._error)

    def __aiter__(self) -> Self:
        return self

    @enable_ki_protection
    async def __anext__(self) -> Any:
        raw = await anext(self.outputs)
        if not self._done:
            self.far.peer.taken(self)
        try:
            return self.interface.convert_answer(self.op, raw, self.far.path)
        except RemoteProtocolError as error:
            if self.far.withdraw(self):
                self.fail(error)
            self._error = error
            self.outputs.end_at_once(error)  # what follows an item of another type cannot be trusted either
            raise
