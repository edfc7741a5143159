"""Runs of actions on the consumer's side: their statuses, queries and cancels.

The subject of a status, by the members it carries (a control is an open query or cancel):

    inReplyTo of a query     that query
    inReplyTo of a cancel    that cancel and, if the status is final, its run
    the run's correlation    the run; from a peer that does not know inReplyTo its oldest control as well, and
                             all of them if the status is final
    the control's own id     that control and, if it says that the run was ended, its run
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    LocalProtocolError,
    MailboxFull,
    NotAllowed,
    RemoteProtocolError,
)

from .._dialects import FINAL, canonical_status
from .._messages import CancelAction, QueryAction, name_in
from .._pending import PendingRun, RunControl, RunStatus
from .._problems import UNSUPPORTED, error_of, invalid
from .._streams import CreditArrived, ItemArrived, StreamStopped, StreamViolation, wire_size
from ._outcomes import RunItem, RunProgressed
from ._requests import MAX_QUERIES
from ._streams import offers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.errors import LmosActorsError

    from .._messages import ActionStatus, Credit, Error
    from .._pending import ConsumerRequest
    from .._streams import StreamFinished
    from ._connection import ConsumerConnection
    from ._outcomes import Outcomes
    from ._requests import Requests
    from ._streams import ConsumerStreams


class Runs:
    """The invocations of one connection, their queries and cancels."""

    __slots__ = ("_connection", "_requests", "_streams")

    def __init__(self, connection: ConsumerConnection, requests: Requests, streams: ConsumerStreams) -> None:
        self._connection = connection
        self._requests = requests
        self._streams = streams

    # -- asking

    def ask_streaming(
        self, run: PendingRun, credit: Credit | None, kinds: Mapping[str, str], *, binary: bool
    ) -> PendingRun:
        """Request a run, with streams if the peer supports them.

        Raise NotAllowed for input streams if the peer does not support streams.
        """
        if "streams" not in self._connection.known:
            if kinds:
                raise NotAllowed("this peer takes no input streams")
            return self._requests.ask(run)
        self._requests.check_room(run)
        run.inputs = self._streams.offer(run, kinds)
        run.answer = self._streams.expect(run, credit)
        streams = offers(run.inputs) or None
        run.request = msgspec.structs.replace(run.request, credit=credit, streams=streams, binary=binary)
        try:
            return self._requests.ask(run)
        except LocalProtocolError:
            self._streams.drop(run)
            raise

    def query(self, run: ConsumerRequest, asked: list[str] | None = None) -> RunControl:
        """Ask the peer for the status of a run, or answer with the last known status if that is impossible.

        With `asked` the query may be about another request, which has no status. Raise MailboxFull if too
        many queries of this run are open.
        """
        self._check(run)
        control = RunControl(QueryAction(**self._about(run), asked=asked), run=run)
        if not self._can_ask(run):
            return self._known(control)
        controls = run.controls if isinstance(run, PendingRun) else self._requests.controls_of(run)
        if sum(1 for other in controls if other.verb == "queryAction") >= MAX_QUERIES:
            raise MailboxFull(run.thing_id, MAX_QUERIES)
        return self._send(control)

    def cancel(self, run: PendingRun, reason: str | None) -> RunControl:
        """Ask to end a run. A run that is unsent, or that the peer cannot cancel, ends here at once."""
        self._check(run)
        merged = next((other for other in run.controls if other.verb == "cancelAction"), None)
        if merged is not None:
            return merged
        control = RunControl(CancelAction(**self._about(run), reason=reason), run=run)
        unsent = not run.done and self._requests.drop(run)
        if not unsent and self._can_ask(run):
            return self._send(control)
        if not run.done:
            self._end_here(run, reason, unsent=unsent)
        return self._known(control)

    def _check(self, run: ConsumerRequest) -> None:
        """Raise LocalProtocolError if the session is closed, or the run is another session's."""
        self._connection.check_open()
        if not run.done and not run.forgotten and self._requests.find(run.message_id) is not run:
            raise LocalProtocolError("this run belongs to another connection")

    def _about(self, run: ConsumerRequest) -> dict[str, str]:
        """Return the members that a query and a cancel have in common."""
        return {
            "thing_id": run.thing_id,
            "message_id": self._connection.new_id(),
            "correlation_id": run.message_id,
            "action": name_in(run.request),
        }

    def _can_ask(self, run: ConsumerRequest) -> bool:
        """Return whether the peer accepts a query or cancel: kotlin-wot closes the connection over one."""
        return not self._connection.kotlin and not run.done

    def _send(self, control: RunControl) -> RunControl:
        self._requests.ask_control(control)
        controls_of(control.run).append(control)
        return control

    def _known(self, control: RunControl) -> RunControl:
        run = control.run
        control.done = True
        control.value = run.standing() if isinstance(run, PendingRun) else RunStatus("completed")
        return control

    def _end_here(self, run: PendingRun, reason: str | None, *, unsent: bool) -> None:
        run.status, run.cancelled, run.reason = "failed", True, reason
        self._streams.drop(run)
        if run.forgotten:
            run.done = True
            return
        self._requests.fail(run, ActionCancelled(reason))
        if not unsent:
            self._requests.expect_late(run)

    def forget(self, run: PendingRun) -> None:
        """Stop waiting for a run and processing its items."""
        self._streams.drop(run)
        run.controls.clear()

    # -- statuses

    def take_status(self, message: ActionStatus, text: str | bytes) -> Outcomes:
        """Process a status of a run; `text` is the frame that contained it."""
        if message.in_reply_to is not None:
            return self._take_reply(message)
        found = self._requests.find(message.correlation_id) or self._guess_of(message)
        if isinstance(found, PendingRun):
            involved = message.cancelled or found.controls or found.inputs or found.answer is not None
            if message.status == "completed" and not involved:  # the common case, as `_moved` in fewer steps
                found.status, found.reason, found.output = "completed", message.reason, message.output
                return self._requests.answer(found, message.output)
            return self._moved(found, message, text)
        if isinstance(found, RunControl):
            return self._control_outcomes(found, message)
        if found is not None:
            return self._connection.stray(message, f"no answer to {found.verb}")
        return self._of_forgotten(message.correlation_id, message)

    def _take_reply(self, message: ActionStatus) -> Outcomes:
        control = self._requests.find_control(message.in_reply_to)
        if control is not None and (control.verb == "queryAction" or not is_final(message)):
            return self._control_outcomes(control, message)
        over = self._over(message) if is_final(message) else None
        if control is not None:
            return (*(over or ()), *self._control_outcomes(control, message))
        return self._of_forgotten(message.in_reply_to, message) if over is None else over

    def _over(self, message: ActionStatus) -> Outcomes | None:
        """End the run with this correlation by a final status; return None if there is no such run."""
        run = self._requests.find(message.correlation_id)
        if isinstance(run, PendingRun):
            return self._ended(run, message)
        if self._requests.find_forgotten(message.correlation_id) is None:
            return None
        return self._of_forgotten(message.correlation_id, message)

    def _of_forgotten(self, correlation: str | None, message: ActionStatus) -> Outcomes:
        forgotten = self._requests.find_forgotten(correlation)
        if correlation is None:
            forgotten = self._requests.take_unnamed(message.thing_id, message.action)
        if forgotten is None:
            return self._connection.stray(message, "no run of this correlation is open")
        if not is_final(message):
            return self._connection.come_late()
        return self._requests.come_for_forgotten(forgotten, None)

    def _guess_of(self, message: ActionStatus) -> ConsumerRequest | None:
        if message.correlation_id is not None:
            return None
        thing, action = message.thing_id, message.action
        return self._requests.guess(
            lambda pending: (
                isinstance(pending, PendingRun)
                and (pending.thing_id, pending.request.action) == (thing, action)
            )
        )

    def _moved(self, run: PendingRun, message: ActionStatus, text: str | bytes) -> Outcomes:
        """Process a status of the run itself. A peer without `inReplyTo` also answers controls with it."""
        final = is_final(message)
        controls = run.controls[: None if final else 1] if run.controls and not self._connection.ours else ()
        found = self._ended(run, message) if final else self._went_on(run, message, text)
        more = [one for control in controls for one in self._control_outcomes(control, message)]
        return (*found, *more) if more else found

    def _went_on(self, run: PendingRun, message: ActionStatus, text: str | bytes) -> Outcomes:
        status, progress = canonical_status(message.status), message.progress
        run.waited = run.waited or status == "pending"
        question = message.waits if "questions" in self._connection.known else None
        found: Outcomes = ()
        if status != run.status or progress is not UNSET or question is not None or run.asks:
            found = (RunProgressed(run, status, progress, question),)
            run.asks = question is not None
            run.status = status
            run.progress = progress if progress is not UNSET else run.progress
        if message.output is UNSET:
            return found
        if run.answer is None:
            return (*found, RunItem(run, message.output))
        news = self._streams.take_output(run.answer, message.output, wire_size(text))
        return (*found, *self.stream_outcomes(news))

    def _ended(self, run: PendingRun, message: ActionStatus) -> Outcomes:
        standing = standing_in(message)
        run.status, run.cancelled, run.reason = standing.status, standing.cancelled, standing.reason
        run.output = message.output
        self._streams.drop(run)
        if standing.status == "completed":
            return self._requests.answer(run, message.output)
        if standing.cancelled:
            return self._requests.fail(run, ActionCancelled(standing.reason))
        output = None if message.output is UNSET else message.output
        return self._requests.fail(run, ActionFailed(output))

    def _control_outcomes(self, control: RunControl, message: ActionStatus) -> Outcomes:
        """Answer a query or cancel; if a cancel has ended its run, the run ends here as well."""
        standing = standing_in(message)
        run = control.run
        self._leave(control)
        found = self._requests.answer(control, standing)
        over = control.verb == "cancelAction" and standing.status in ("failed", "cancelled")
        if over and isinstance(run, PendingRun) and not run.done and not run.forgotten:
            return (*self._ended(run, message), *found)
        return found

    def _leave(self, control: RunControl) -> None:
        controls = controls_of(control.run)
        if control in controls:
            controls.remove(control)

    # -- errors

    def take_error(self, run: PendingRun, message: Error) -> Outcomes:
        """Process an error about a run. From a peer without `inReplyTo` it may be about a query or cancel."""
        controls = [] if self._connection.ours else list(run.controls)
        if controls and message.type == UNSUPPORTED:
            return self.take_control_error(controls[0], message)
        return self.fail(run, error_of(message, run.request))

    def take_control_error(self, control: RunControl, message: Error) -> Outcomes:
        """Process an error as the answer to a query or a cancel."""
        return self.fail_control(control, error_of(message, control.request))

    def fail(self, run: PendingRun, error: LmosActorsError) -> Outcomes:
        """End a run with an error; end its controls, too, if the same error answers them."""
        self._streams.drop(run)
        found = self._requests.fail(run, error)
        for control in () if self._connection.ours else tuple(run.controls):
            found = (*found, *self.fail_control(control, error))
        return found

    def fail_control(self, control: RunControl, error: LmosActorsError) -> Outcomes:
        """End a query or a cancel with an error."""
        self._leave(control)
        return self._requests.fail(control, error)

    # -- streams

    def stream_outcomes(
        self, news: ItemArrived | StreamFinished | CreditArrived | StreamStopped | StreamViolation | None
    ) -> Outcomes:
        """Return a report of the streams as outcomes of this session."""
        if isinstance(news, StreamViolation):
            return self._broken(news)
        if isinstance(news, ItemArrived) and isinstance(news.run, PendingRun):
            return (RunItem(news.run, news.item),)
        return (news,) if isinstance(news, CreditArrived | StreamStopped) else ()

    def _broken(self, news: StreamViolation) -> Outcomes:
        """Fail a run whose stream rules the peer has broken, and send the peer a cancel of it."""
        run = news.run
        if not isinstance(run, PendingRun) or run.done:
            return ()
        error = RemoteProtocolError(invalid(news.detail))
        found = self._requests.fail(run, error)
        self._requests.expect_late(run)
        self._connection.outbox.put(CancelAction(**self._about(run), reason=news.detail))
        return found


def controls_of(run: ConsumerRequest) -> list[RunControl]:
    """Return the open queries and cancels of a run, and an empty list for requests of other kinds."""
    return run.controls if isinstance(run, PendingRun) else []


def is_final(message: ActionStatus) -> bool:
    """Return whether this is the last status of a run."""
    return canonical_status(message.status) in FINAL


def standing_in(message: ActionStatus) -> RunStatus:
    """Return the status of a run that a message reports."""
    status = canonical_status(message.status)
    cancelled = message.cancelled or status == "cancelled"
    return RunStatus(status, message.progress, message.output, cancelled, message.reason, message.waits)
