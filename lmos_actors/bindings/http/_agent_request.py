"""One HTTP request as an agent sees it: an envelope in its mailbox, and the task that waits for the answer.

An HTTP answer is written by an ASGI application, which awaits. So each HTTP request has a task, which is
parked here. LMOS needs no such task, because it answers in the step of the turn.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

from lmos_actors.actors import Far, PoolLink, Seats, Slot, keyed_requests_of
from lmos_actors.errors import ActionCancelled, AgentError, AgentUnavailable, DeadlineExceeded

from ..exposure._access_middleware import nothing
from ..exposure._meter import came, ended, left

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Operation, RequestClient, RequestKey, Runtime
    from lmos_actors.security import Verb

    from ..lmos._server_requests import AgentOrPool, RequestedOperation

LONGEST: Final = 1e9
"""Seconds: for a longer time than this no deadline is set."""

WAY: Final = "http"
"""The binding's name in metrics and traces."""

ROOM: Final = 16
"""Items of a stream that may wait for a client that does not read; then its run waits."""


class RequestTracker(Protocol):
    """The open requests over HTTP, and the parts of the node that they use."""

    @property
    def rt(self) -> Runtime:
        """The runtime of the node's agents."""
        ...

    @property
    def open(self) -> dict[AgentRequest, None]:
        """The requests that have no answer yet."""
        ...

    @property
    def seats(self) -> Seats:
        """The mailbox seats that far requests take, by peer."""
        ...

    def settled(self) -> None:
        """Note that a request is no longer open."""
        ...

    def shown(self, error: Exception) -> Exception:
        """Return an error in the form that is sent over the network; see `ServerContext.shown`."""
        ...


class AgentRequest:
    """A request to an agent; its envelope has this object as both its `asker` and its `asked`.

    It never waits for a seat: a full mailbox is answered at once. Once done, it has a `value` or an `error`.
    """

    __slots__ = (
        "_allows", "_far", "_task", "_tracker", "_way", "attributes", "client", "done", "error", "items",
        "key", "label", "message_id", "on_begun", "on_done", "on_question", "posted", "principal", "progress",
        "question", "running", "tells_progress", "traceparent", "tracestate", "value",
    )  # fmt: skip

    def __init__(
        self,
        tracker: RequestTracker,
        label: str,
        principal: str | None,
        traceparent: str | None,
        tracestate: str | None,
        way: str = WAY,
        allows: Callable[[str, Verb], bool] = nothing,
    ) -> None:
        self._tracker = tracker
        self._way = way  # the binding's name in metrics and traces
        self._far: Far | None = None
        self._task: trio.lowlevel.Task | None = None
        self.label = label
        self.principal = principal
        self._allows = allows
        self.traceparent = traceparent
        self.tracestate = tracestate
        self.attributes: Mapping[str, Any] | None = None  # attributes of its span, beside the usual ones
        self.message_id = tracker.rt.entropy.new_id()
        self.client: RequestClient | None = None  # where the client can be asked back
        self.key: RequestKey | None = None  # under which the agent keeps the answer
        self.posted = False
        self.running = False
        self.items: list[Any] | None = None  # the items of a stream, if they are read
        self.progress: Any = None
        self.question: dict[str, Any] | None = None
        self.tells_progress = False  # progress is reported when it comes, and not only kept
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.on_begun: Callable[[], None] | None = None
        self.on_question: Callable[[], None] | None = None
        self.on_done: Callable[[], None] | None = None

    # ---- asking

    def send(self, link: AgentOrPool, requested: RequestedOperation, remaining: float | None = None) -> None:
        """Put the request into an agent's mailbox.

        Raises MailboxFull, AgentUnavailable, NotFound, NotAllowed, InvalidInput, DeadlineExceeded.
        """
        key, args, kwargs = requested
        if isinstance(link, Slot):
            self.send_operation(link, link.operation(key), args, kwargs, remaining)
        else:
            self._send_to_one(link, requested, remaining, None)

    def _send_to_one(
        self, pool: PoolLink, requested: RequestedOperation, remaining: float | None, before: Far | None
    ) -> None:
        """Post to a member of a pool; `before` is the envelope, if any, that another member has not begun."""
        key, args, kwargs = requested
        slot = pool.choose(key, args, kwargs)
        _check_time(slot, remaining)
        op = slot.operation(key)
        far = Far(slot, op, slot.bound(op, args, kwargs), self, self)
        far.again = partial(self._send_again, far, pool, requested)
        if before is not None:
            far.watch, far.trace = before.watch, before.trace
        self._post(far, remaining)

    def send_operation(
        self,
        slot: Slot,
        op: Operation,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        remaining: float | None,
    ) -> None:
        """Post an operation to an agent. Raises the same errors as `send`."""
        _check_time(slot, remaining)
        self._post(Far(slot, op, slot.bound(op, args, kwargs), self, self), remaining)

    def send_good(self, link: Slot, op: Operation, args: tuple[Any, ...], remaining: float | None) -> None:
        """Post an operation whose arguments have been checked. Raises the same errors as `send`."""
        _check_time(link, remaining)
        self._post(Far(link, op, args, self, self), remaining)

    def _post(self, far: Far, remaining: float | None) -> None:
        tracker = self._tracker
        came(far, self._way, self.traceparent, self.tracestate, self.attributes)
        self.posted = True
        self._far, far.client = far, self.client
        tracker.open[self] = None
        try:
            address = self.label.rpartition(":")[0]
            peer = (address, self.label) if self.principal is None else (f"@{self.principal}", "")
            if self.key is None:
                far.post(tracker.seats, peer)
            else:
                keyed_requests_of(far.slot).post_far(self.key, far, tracker.seats, peer)
        except BaseException as error:
            ended(far, error)
            self._leave()
            raise
        if remaining is not None and remaining < LONGEST and not self.done:
            far.until = trio.current_time() + remaining
            tracker.rt.deadlines.add(far, remaining)

    def _send_again(self, far: Far, pool: PoolLink, requested: RequestedOperation) -> bool:
        """Let another member of the pool take a request that was not begun; return whether one takes it."""
        if not pool.replaces(far.slot):
            return False
        left = None if far.until is None else far.until - trio.current_time()
        try:
            self._send_to_one(pool, requested, left, far)
        except AgentError:
            return False
        return True

    async def result(self) -> Any:
        """Wait for the answer and return it. Call this only once.

        The request lives as long as its client reads, and so does not keep the value. If cancelled, withdraw
        the request: see `left`.
        """
        try:
            while not self.done:
                await self.something()
        except BaseException:
            self.left()
            raise
        value, self.value = self.outcome(), None
        return value

    def outcome(self) -> Any:
        """Return the value of the finished request, or raise its error."""
        if self.error is not None:
            raise self.error from None
        return self.value

    @enable_ki_protection
    async def something(self) -> None:
        """Wait until the request is done, or has an item, a question or progress that its client wants."""
        self._task = current_task()
        await wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> Abort:
        self._task = None
        return Abort.SUCCEEDED

    # ---- withdrawing

    def left(self) -> None:
        """Withdraw the request, as its client is gone. An action with `on_disconnect="finish"` goes on."""
        far, self.items = self._far, None
        if far is not None and far.op.on_disconnect != "finish":
            far.is_cut_off = True  # or the client left of its own will: HTTP does not say
            self._withdraw(far)
        elif far is not None:
            far.go_on()

    def cancel(self, reason: str | None) -> None:
        """Fail an unfinished request with ActionCancelled, because its result is not needed."""
        far = self._far
        if far is not None and self._withdraw(far):
            self.failed(far, ActionCancelled(reason))

    def _withdraw(self, far: Far) -> bool:
        open_still: bool = far.slot.withdraw(far)
        far.leave()
        left(far)
        self._leave()
        return open_still

    def _leave(self) -> None:
        self._far = None
        self._tracker.open.pop(self, None)
        self._tracker.settled()

    # ---- answers, as `Asker`

    def allows(self, agent: str, verb: Verb) -> bool:
        """See `Asker`."""
        return self._allows(agent, verb)

    def answered(self, far: Far, value: Any) -> None:
        """End the request with the value that the agent answers."""
        self.value = value
        ended(far, None)
        self._finish()

    def failed(self, far: Far, error: Exception) -> None:
        """End the request with an error, unless another member of a pool takes the request."""
        if not isinstance(error, AgentUnavailable) or far.again is None or not far.again():
            self.error = self._tracker.shown(error)
            ended(far, error)
            self._finish()

    def _finish(self) -> None:
        self.done = True
        self._leave()
        if self.on_done is not None:
            self.on_done()
        self.wake()

    def wake(self) -> None:
        """Wake the task that waits for this request, if any."""
        task, self._task = self._task, None
        if task is not None:
            self._tracker.rt.timers.woke = True
            reschedule(task)

    def waits(self, far: Far) -> None:
        """Do nothing: HTTP does not report that a run waits for its action's concurrency."""

    def began(self, far: Far) -> None:
        """Note that the run of the request has begun."""
        self.running = True
        if self.on_begun is not None:
            self.on_begun()

    def asks(self, far: Far, question: dict[str, Any] | None) -> None:
        """Store the question to a person that the run waits for, for queries; None if there is none."""
        self.question = question
        if self.on_question is not None:
            self.on_question()

    def reported(self, far: Far, value: Any) -> None:
        """Keep the progress of the run, for queries."""
        self.progress = value
        if self.tells_progress:
            self.wake()

    def has_room(self, far: Far) -> bool:
        """Return whether an item may be sent now; always True if nobody reads items."""
        return self.items is None or len(self.items) < ROOM

    def send_item(self, far: Far, item: Any) -> bool:
        """Keep an item until the client takes it; return False if nobody reads items."""
        if self.items is None:
            return False
        self.items.append(item)
        self.wake()
        return True

    def taken(self) -> list[Any]:
        """Return the waiting items, and let the run go on with more."""
        found = list(self.items or ())
        if self.items:
            self.items.clear()
        if self._far is not None:
            self._far.go_on()
        return found


def _check_time(slot: Slot, remaining: float | None) -> None:
    if remaining is not None and not remaining > 0:
        raise DeadlineExceeded(slot.path, max(remaining, 0.0))
