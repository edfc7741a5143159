"""Calls and streams on an agent of another node: runs elsewhere whose answers are kept here until fetched."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import trio
from msgspec import UNSET
from trio.lowlevel import (
    checkpoint,
    checkpoint_if_cancelled,
    enable_ki_protection,
)

from lmos_actors.actors import CallStatus, Feed, Receiving, awaited, park_among
from lmos_actors.errors import (
    ActionCancelled,
    AgentError,
    DeadlineExceeded,
    MailboxFull,
    NotFound,
    RemoteProtocolError,
)
from lmos_actors.protocol import lmos

from ._peer_requests import PendingRequest, RunQuestion, wake_all, wake_one

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lmos_actors._core import Timer
    from lmos_actors.actors import Operation

    from ._peer_requests import OutboundRequest
    from ._peer_things import RemoteThing
    from ._remote_interface import RemoteInterface

MOST: Final = 1024
"""Items that are kept of a peer that knows no credit; beyond it the run is cancelled."""

_STATUSES: Final[dict[str, Literal["pending", "in progress", "completed", "failed"]]] = {
    "pending": "pending",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "failed",
}


class RemoteCall(PendingRequest):
    """An invocation that can be queried and cancelled before it ends; see `Call`."""

    __slots__ = (
        "_cancel_question", "_done", "_error", "_going", "_interface", "_tasks", "_timer", "_value",
        "cancelled", "deadline", "feed", "op", "reason", "trace",
    )  # fmt: skip

    def __init__(
        self, far: RemoteThing, outbound: OutboundRequest, op: Operation, interface: RemoteInterface
    ) -> None:
        super().__init__(far, outbound)
        self.op = op
        self.trace: tuple[int, int] | None = None
        self.cancelled = False
        self.reason: str | None = None
        self.deadline: float | None = None
        self.feed: Feed[Any] = Feed(far.rt.timers, conflate=True)
        self._interface = interface
        self._done = False
        self._going = outbound.going
        self._value: Any = None
        self._error: Exception | None = None
        self._tasks: list[trio.lowlevel.Task] = []
        self._timer: Timer | None = None
        self._cancel_question: RunQuestion | None = None  # the cancel that is open

    # ---- the peer's side

    def waiting_tasks(self) -> Iterable[trio.lowlevel.Task]:
        return self._tasks

    def answer(self, value: Any) -> None:
        try:
            self._value = self._interface.convert_answer(self.op, value, self.far.path)
        except RemoteProtocolError as error:
            self._error = error
        self._finish()

    def fail(self, error: Exception) -> None:
        self._error = error
        if isinstance(error, ActionCancelled):
            self.cancelled, self.reason = True, error.reason
        self._finish()

    def on_status(self, status: str, progress: Any) -> None:
        if progress is UNSET:
            return
        try:
            self.feed.push(self._interface.convert_progress(self.op, progress))
        except AgentError:
            self.feed.gap("progress of another type", 1)

    def _finish(self) -> None:
        self.ended = self._done = True
        if self._going is not None:
            self._going.ended(self._error)
        self.feed.close()
        if self._timer is not None:
            self._timer.cancel()
        wake_all(self.far, self._tasks)

    def expire_in(self, seconds: float) -> None:
        """Fail the call with `DeadlineExceeded` if it is unanswered after `seconds`."""
        if self._done:
            return
        self.deadline = trio.current_time() + seconds
        self._timer = self.far.rt.timers.call_at(self.deadline, self._expire)

    def _expire(self) -> None:
        seconds = self.outbound.seconds if self.outbound is not None else None
        if not self._done and self.far.withdraw(self):
            self.fail(DeadlineExceeded(self.far.path, seconds or 0.0))

    async def _by_deadline(self, asked: Callable[[], Awaitable[CallStatus]]) -> CallStatus:
        """Return what a question about the run is answered with; at its deadline it ends, and so do they."""
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
            await park_among(self._tasks)
        if self._error is not None:
            raise self._error
        return self._value

    @awaited("call.")
    @enable_ki_protection
    async def query(self) -> CallStatus:
        """Return how the invocation stands; asks the agent unless that is known here.

        Raises MailboxFull: 16 queries of this call are open. OutcomeUnknown, AgentUnavailable: the connection
        ended before the answer.
        """
        return await self._by_deadline(self._query)

    async def _query(self) -> CallStatus:
        await checkpoint()
        pending = self._run()
        if pending is None:
            return self._status()
        question = RunQuestion(self.far)
        self.far.peer.ask_about(question, self.far.peer.query(pending))
        return await self._answered(question)

    @awaited("call.")
    @enable_ki_protection
    async def cancel(self, reason: str | None = None) -> CallStatus:
        """Cancel the invocation if it is still open, and wait until the agent has said so."""
        return await self._by_deadline(partial(self._cancel, reason))

    async def _cancel(self, reason: str | None) -> CallStatus:
        await checkpoint()
        pending = self._run()
        if pending is None:
            if self.far.withdraw(self):  # it stood in line
                self.fail(ActionCancelled(reason))
            return self._status()
        question = self._cancel_question
        if question is None or question.ended:
            asked = self.far.peer.cancel(pending, reason)
            if self._done:  # it had not been sent, or its peer cannot be asked
                return self._status()
            question = self._cancel_question = RunQuestion(self.far)
            self.far.peer.ask_about(question, asked)
        return await self._answered(question)

    def _run(self) -> lmos.PendingRun | None:
        """Return the run that the peer can be asked about, None where there is none."""
        pending = self.pending
        return pending if not self._done and isinstance(pending, lmos.PendingRun) else None

    async def _answered(self, question: RunQuestion) -> CallStatus:
        try:
            while not question.ended:
                await park_among(question.tasks)
        except BaseException:
            if not question.ended and not question.tasks:
                question.ended = True
                self.far.peer.forget(question)
            raise
        if question.error is not None and not self._done and not isinstance(question.error, NotFound):
            raise question.error
        standing = question.standing
        return self._status() if standing is None or self._done else told_status(standing)

    @enable_ki_protection
    def leave(self) -> None:
        """The consumer is gone."""
        if not self._done and self.far.withdraw(self):
            self.fail(ActionCancelled("the consumer left"))

    def _status(self) -> CallStatus:
        if self._done:
            return CallStatus("completed" if self._error is None else "failed", self.cancelled, self.reason)
        return CallStatus("pending")


def told_status(standing: lmos.RunStatus) -> CallStatus:
    """Return where a run stands by the words of its peer; those of its own mean that it goes on."""
    status = _STATUSES.get(standing.status, "in progress")
    return CallStatus(status, standing.cancelled, standing.reason)


class RemoteStream(RemoteCall, Receiving):
    """An invocation with many outputs: the agent is 16 items, or 256 KiB, ahead of its consumer at most."""

    __slots__ = ("_items", "_receiver")

    def __init__(
        self, far: RemoteThing, outbound: OutboundRequest, op: Operation, interface: RemoteInterface
    ) -> None:
        super().__init__(far, outbound, op, interface)
        self._items: deque[Any] = deque()
        self._receiver: trio.lowlevel.Task | None = None

    def item(self, output: Any) -> None:
        self._items.append(output)
        if len(self._items) > MOST:
            self.far.withdraw(self)
            self.fail(MailboxFull(self.far.path, MOST))
        else:
            wake_one(self, "_receiver")

    def answer(self, value: Any) -> None:
        """A value at the end is the last item: of a peer that knows no streams the only one."""
        if value is not UNSET and value is not None:
            self._items.append(value)
        self._finish()

    def _finish(self) -> None:
        super()._finish()
        wake_one(self, "_receiver")

    def _next(self) -> Any:
        raw = self._items.popleft()
        if isinstance(self.pending, lmos.PendingRun) and not self._done:
            self.far.peer.consumed(self.pending)
        try:
            return self._interface.convert_answer(self.op, raw, self.far.path)
        except RemoteProtocolError as error:
            self._items.clear()
            if self.far.withdraw(self):
                self.fail(error)
            self._error = error
            raise
