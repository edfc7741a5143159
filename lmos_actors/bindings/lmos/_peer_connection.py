"""One LMOS connection on the consumer's side: requests and listenings, from the line to their answers.

A `PeerConnection` lives as long as its WebSocket: `Peer` makes one for each. Messages that an old connection
still delivers after the next one is made are dropped (`_is_over`).

What this file guarantees: the session bounds the open requests and the messages to be sent; requests without
room or credit stand in line (`_request_line.py`), and `_send_queued` sends those that fit whenever a message
has been answered or written.

At the end of the connection `lose` ends every open request (AgentUnavailable if it is certain that nothing
was begun, else OutcomeUnknown) and empties the line. The peer requests the listenings again on the next
connection.

To read this file, begin with `post` down to `_ask`, then `_send_queued`, then `_handlers`. Only questions
about runs await here.

One thing is unusual but intended: if nothing else is open, a request is written to the socket in its caller's
step (`_is_alone`), which saves a pass of the event loop. The request is noted here before it is written, as
its answer may come at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio
from msgspec import UNSET
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import SMALL
from lmos_actors.actors import Carried
from lmos_actors.errors import (
    AgentUnavailable,
    InvalidInput,
    LocalProtocolError,
    MailboxFull,
    OutcomeUnknown,
)
from lmos_actors.protocol import LMOS, lmos, spoken_in

from ..exposure._exposure import EXITED
from ._near_errors import as_near_error, means_unwell, refuses_whole
from ._peer_requests import RunQuestion
from ._peer_streams import HeldSources, note_flow
from ._peer_watch import PeerWatch
from ._request_line import RequestLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lmos_actors.actors import Runtime, TraceMembers, UnsentKind, UnsentMessage
    from lmos_actors.transport import Connection

    from ._peer_listening import SharedListening
    from ._peer_requests import PendingRequest, RemoteThing, SentTell, WaitsQuestion

NOT_BEGUN: Final = "the connection ended before the request was begun"


class PeerConnection:
    """One connection of a peer with `offers`: a `Handler` of the transport, with the consumer's session."""

    def __init__(
        self,
        rt: Runtime,
        connection: Connection,
        options: lmos.SessionOptions,
        habits: Any,
        offers: tuple[str, ...],
    ) -> None:
        self.session = lmos.ConsumerSession(
            selected=connection.subprotocol == "lmosprotocol",
            new_id=rt.entropy.new_id,
            habits=habits,
            options=options,
            offers=offers,
            wake=self._wake,
        )
        self._rt = rt
        self._connection = connection
        self._options = options
        self.offers = offers
        is_ours = bool(offers) and self.session.habits != "kotlin-wot"
        self.takes_keys = is_ours and "keys" in offers
        self._confirms = "acks" in offers or self.session.habits == "kotlin-wot"
        self._charged = 0  # bytes charged to the connection's account for unsent messages
        self._near = range(SMALL)  # a change of the unsent bytes within this range is not charged
        self._line = RequestLine(self)
        self._is_alone = False  # nothing else is open, so a request is sent in the step that posts it
        self._is_over = False
        self._text = ""  # the message that is being processed
        self.stranger = ""  # which other protocol the server speaks, in words
        self._open: dict[lmos.ConsumerRequest, PendingRequest] = {}
        self._watch = PeerWatch(rt.timers, connection, lambda: bool(self._open), is_ours=is_ours)
        self._feeds: dict[lmos.Feed, SharedListening] = {}
        self._unasked: dict[SharedListening, None] = {}
        self._singly: set[str] = set()  # ids of things that refuse to be read as a whole

    def _wake(self) -> None:
        if not self._is_alone:
            self._connection.wake()

    def close(self, code: int, reason: str) -> None:
        """Close the connection; messages that arrive later are ignored."""
        self._connection.close(code, reason)

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether messages to a thing already wait, for room or for credit."""
        return self._line.holds_up(far.thing_id)

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or stand in line."""
        return len(self._open) + len(self._line)

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the messages in line, and the sources that are held back; see `Outbox` of the actors."""
        yield from self._line.unsent()
        for request in self._open.values():
            if request.streams:
                yield "credit", HeldSources(request)

    # ---- requests

    def post(self, request: PendingRequest) -> None:
        """Send a request, or put it in line; see `RemotePeer`."""
        connection, line = self._connection, self._line
        # what `try_send` asks first: mostly nothing waits for credit
        send = self._put if request.sent is None and not line.by_thing else line.try_send
        if self._open or line.queue or not connection.is_direct:
            if line.queue or not send(request):
                line.wait(request)
            return
        self._is_alone = True
        try:
            if not send(request):
                line.wait(request)
        finally:
            self._is_alone = False
            connection.flush()

    def put(self, request: PendingRequest) -> bool:
        """Put a request into the outbox; return False without room. Raises the same errors as `post`."""
        sent = request.sent
        if sent is None:
            return self._put(request)
        if not self._tell(sent, request.name, request.payload, request.trace_context):
            return False
        request.on_sent()
        return True

    def may_tell(self, thing_id: str) -> bool:
        """Return whether there is credit for a one-way message to a thing."""
        return self.session.may_tell(thing_id)

    def _put(self, request: PendingRequest) -> bool:
        session = self.session
        try:
            if request.verb == "invoke" and request.deadline is None and request.attempt is None:
                pending: lmos.ConsumerRequest = session.invoke(  # as `_ask`, without the call
                    request.far.thing_id, request.name, request.payload,
                    credit=request.credit, streams=request.streams, binary=request.binary,
                    **request.trace_context,
                )  # fmt: skip
            else:
                pending = self._ask(request)
        except MailboxFull:
            if self._messages(request) > self._options.max_open:
                raise MailboxFull(request.far.path, self._options.max_open) from None  # room never comes
            return False
        except LocalProtocolError as error:  # a value without a form in JSON, or too long
            raise InvalidInput(str(error)) from None
        if session.outbox.bytes not in self._near:
            self._charge(session.outbox.bytes)
        request.pending = pending
        if pending.done:
            request.answer(pending.value)
        else:
            self._open[pending] = request
            if not self._watch.is_on:
                self._watch.begin()
        return True

    def _ask(self, request: PendingRequest) -> lmos.ConsumerRequest:
        """Let the session write the message of a request. Raises MailboxFull, LocalProtocolError."""
        session, thing = self.session, request.far.thing_id
        if request.verb == "invoke":
            deadline, made = request.deadline, request.attempt
            attempt: dict[str, Any] = {}
            if made is not None:
                attempt = {"attempt": made.number, "message_id": made.message_id, "key": made.key}
            return session.invoke(
                thing, request.name, request.payload,
                remaining=None if deadline is None else max(0.001, deadline - trio.current_time()),
                credit=request.credit, streams=request.streams, binary=request.binary,
                **attempt, **request.trace_context,
            )  # fmt: skip
        if request.verb == "read":
            return session.read(thing, request.name, **request.trace_context)
        if request.verb == "write":
            return session.write(thing, request.name, request.payload, **request.trace_context)
        if request.verb == "write many":
            return session.write_many(thing, request.payload, **request.trace_context)
        request.singly = thing in self._singly
        if request.names is None or self._reads_at_once(request):
            return session.read_all(thing, **request.trace_context)
        return session.read_many(thing, request.names, **request.trace_context)

    def _reads_at_once(self, request: PendingRequest) -> bool:
        """Return whether one message reads all properties.

        This holds for peers of this package, and for kotlin-wot unless it has refused.
        """
        return bool(self.offers) or (self.session.habits == "kotlin-wot" and not request.singly)

    def _messages(self, request: PendingRequest) -> int:
        """Return the number of protocol messages that a request takes, by the habits of the peer."""
        if request.verb == "write many" and self.session.habits == "kotlin-wot":
            return len(request.payload)
        return 1 if request.names is None or self._reads_at_once(request) else len(request.names)

    def _charge(self, waiting: int) -> None:
        """Charge the account for the bytes that wait to be sent now, or release it if they are fewer."""
        waiting = waiting if waiting >= SMALL else 0
        more, self._charged = waiting - self._charged, waiting
        slack = max(SMALL, waiting // 8)
        self._near = range(waiting - slack + 1, waiting + slack)
        self._connection.account.charge(more)

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; return False without room or credit. Raises the same errors as `post`."""
        thing, line = sent.link.far.thing_id, self._line
        if line.queue or (line.by_thing and thing in line.by_thing):
            return False
        return self._tell(sent, name, payload, trace)

    def _tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        try:
            self.session.tell(sent.link.far.thing_id, name, payload, host=sent, **trace)
        except MailboxFull:
            return False
        except LocalProtocolError as error:
            raise InvalidInput(str(error)) from None
        if self.session.outbox.bytes not in self._near:
            self._charge(self.session.outbox.bytes)
        return True

    def withdraw(self, request: PendingRequest) -> None:
        """Take a request out of the line, or cancel its run without waiting, because its caller is gone."""
        pending, session = request.pending, self.session
        if self._line.leave(request):
            return
        if pending is None or self._open.pop(pending, None) is None:
            return
        if isinstance(pending, lmos.PendingRun):
            with suppress(MailboxFull):  # a peer that answers no cancel has as many open as may be
                session.forget(session.cancel(pending, request.leaving()))
        session.forget(pending)
        self._send_queued()

    def _send_queued(self) -> None:
        """Send as much as there is room for: requests in line first, then subscriptions."""
        self._line.send()
        if self._unasked and not self._line.queue:
            self._ask_listenings()

    def _send_credited(self, _: object) -> None:
        self._line.send_credited()

    # ---- runs

    def ask(self, question: WaitsQuestion, control: lmos.ConsumerRequest) -> None:
        """Expect the answer to a question that the session has asked."""
        self._open[control] = question

    async def query(self, request: PendingRequest) -> lmos.RunStatus | None:
        """Query the status of a run; see `RemotePeer`."""
        run = request.pending
        if not isinstance(run, lmos.PendingRun):
            return None
        question = RunQuestion(request.far, "query", request.name)
        return await self._standing(request, question, self.session.query(run))

    async def cancel(self, request: PendingRequest, reason: str | None) -> lmos.RunStatus | None:
        """Cancel a request; see `RemotePeer`. A second cancel of a run waits for the answer to the first."""
        run = request.pending
        if not isinstance(run, lmos.PendingRun):  # the request stands in line, or is no run
            request.far.cancel(request, reason)
            return None
        control = self.session.cancel(run, reason)
        if run.done:  # the request had not been sent, or its peer knows no cancel
            if self._open.pop(run, None) is not None and run.error is not None:
                request.fail(run.error)
                self._send_queued()
            if request.ended:
                return None
        question = self._open.get(control)
        if not isinstance(question, RunQuestion):
            question = RunQuestion(request.far, "cancel", request.name)
        return await self._standing(request, question, control)

    async def _standing(
        self, request: PendingRequest, question: RunQuestion, control: lmos.ConsumerRequest
    ) -> lmos.RunStatus | None:
        """Wait for the answer to a question about a run; see `RunQuestion.wait`."""
        question.pending = control
        if control.done:  # the answer was known here
            known: lmos.RunStatus | None = control.value
            return known
        self._open[control] = question

        def leave() -> None:
            if self._open.pop(control, None) is not None:
                self.session.forget(control)

        return await question.wait(request, leave)

    def taken(self, request: PendingRequest) -> None:
        """Return to the server the credit for an item of a run, as its consumer has taken the item."""
        if isinstance(request.pending, lmos.PendingRun):
            self.session.consumed(request.pending)

    # ---- listening

    def listen(self, listenings: Iterable[SharedListening]) -> None:
        """Request the values of these listenings, now or when there is room."""
        for listening in listenings:
            self._unasked[listening] = None
        self._ask_listenings()

    def unlisten(self, listening: SharedListening) -> None:
        """Stop listening, because the last listener here has left."""
        self._unasked.pop(listening, None)
        feed = listening.feed
        if feed is not None and self._feeds.pop(feed, None) is not None:
            self.session.stop(feed)

    def _ask_listenings(self) -> None:
        while self._unasked and not self._is_over:
            listening = next(iter(self._unasked))
            if not self._ask_listening(listening):
                return
            self._unasked.pop(listening, None)
            if listening.feed is not None:
                self._feeds[listening.feed] = listening

    def _ask_listening(self, listening: SharedListening) -> bool:
        """Send the subscription; return False if the outbox has no room now."""
        if listening.name == EXITED and "exited" not in self.offers:
            listening.on_confirmed()  # nothing to ask for: the end of the connection stands for the exit
            return True
        try:
            feed = listening.ask(self.session)
        except MailboxFull as error:
            if not self.session.full:  # the limit of listenings is reached
                listening.on_refused(MailboxFull(listening.far.path, error.size))
            return not self.session.full
        except Exception as error:
            listening.on_refused(error)
            return True
        listening.feed = feed
        if feed.established or not self._confirms:
            listening.on_confirmed()
        return True

    # ---- messages in and out

    @enable_ki_protection
    def text(self, text: str) -> None:
        """Handle a text message from the peer."""
        if not self._is_over:
            self._text = text
            self._take(self.session.receive(text))
            self._text = ""

    @enable_ki_protection
    def binary(self, data: bytes) -> None:
        """Handle a binary message from the peer."""
        if not self._is_over:
            self._take(self.session.receive_binary(data))

    @enable_ki_protection
    def frames(self, room: int) -> list[bytes]:
        """Return the messages to send, and fill the outbox with further ones that now have room."""
        if self._is_over:
            return []
        outbox = self.session.outbox
        found = outbox.take(room)
        if self._line.queue or self._unasked or self._line.stalled:
            self._send_queued()
            if not found:  # the writer does not ask again after it was given nothing
                found = outbox.take(room)
        if outbox.bytes not in self._near:
            self._charge(outbox.bytes)
        return found

    def _take(self, outcomes: tuple[lmos.Outcome, ...]) -> None:
        for outcome in outcomes:
            handle = self._handlers.get(type(outcome))
            if handle is not None:
                handle(self, outcome)
        if self._line.queue or self._unasked or self._line.stalled:
            self._send_queued()

    def _answered(self, outcome: lmos.RequestAnswered) -> None:
        request = self._open.pop(outcome.pending, None)
        if request is not None:
            request.far.unwell = False
            request.answer(outcome.value)

    def _failed(self, outcome: lmos.RequestFailed) -> None:
        request = self._open.pop(outcome.pending, None)
        if request is None:
            return
        may_read_singly = request.verb == "read all" and request.names and not request.singly
        if may_read_singly and not self.offers and refuses_whole(outcome.error):
            # kotlin-wot answers a read of all by 404 or by 500: from now on each property is read alone
            self._singly.add(request.far.thing_id)
            self._line.wait(request)
            self._send_queued()
            return
        far = request.far
        far.unwell = means_unwell(outcome.error)
        request.fail(as_near_error(outcome.error, far.thing_id, far.path, request.seconds))

    def _forgotten_failed(self, outcome: lmos.ForgottenFailed) -> None:
        sent: SentTell | None = outcome.pending.host
        if sent is not None:
            sent.fail(as_near_error(outcome.error, sent.far.thing_id, sent.far.path))

    def _progressed(self, outcome: lmos.RunProgressed) -> None:
        request = self._open.get(outcome.pending)
        if request is not None:
            request.on_status(outcome.status, outcome.progress, outcome.waits)

    def _item(self, outcome: lmos.RunItem) -> None:
        request = self._open.get(outcome.pending)
        if request is not None:
            request.item(outcome.output)

    def _flows(self, outcome: lmos.CreditArrived | lmos.StreamStopped) -> None:
        note_flow(self._open, outcome)

    def _established(self, outcome: lmos.FeedEstablished) -> None:
        listening = self._feeds.get(outcome.feed)
        if listening is not None:
            listening.on_confirmed()

    def _read(self, outcome: lmos.PropertyRead) -> None:
        listening = self._feeds.get(outcome.feed)
        if listening is not None:
            listening.value(outcome.value, self._text)

    def _occurred(self, outcome: lmos.EventOccurred) -> None:
        listening = self._feeds.get(outcome.feed)
        if listening is not None:
            data = None if outcome.data is UNSET else outcome.data
            with Carried(self._rt, outcome.traceparent, outcome.tracestate):
                value = (outcome.event, data) if listening.kind == "events" else data
                listening.value(value, self._text)

    def _missed(self, outcome: lmos.ValuesMissed) -> None:
        listening = self._feeds.get(outcome.feed)
        if listening is not None:
            listening.gap(outcome.reason, outcome.missed)

    def _feed_ended(self, outcome: lmos.FeedEnded) -> None:
        listening = self._feeds.pop(outcome.feed, None)
        if listening is not None:
            error = outcome.error or AgentUnavailable(listening.far.path, "it ended the subscription")
            listening.on_refused(as_near_error(error, listening.far.thing_id, listening.far.path))

    def _stray(self, outcome: lmos.StrayMessage) -> None:
        spoken, known = spoken_in(self._text), self.session.statistics()
        if spoken not in (None, LMOS) and not known.answered + known.failed:
            self.stranger = f"it speaks {spoken}, not {LMOS}"
            self._connection.break_off(self.stranger)

    def _close(self, outcome: lmos.Close) -> None:
        self.close(outcome.code, outcome.reason)

    # ---- the end of the connection

    def lose(self, unavailable: Callable[[str], AgentUnavailable], *, drained: bool) -> None:
        """Fail all requests that are open or stand in line, because the connection is gone.

        The function `unavailable` makes the error for those in line. With `drained`, the peer has answered
        every request that it had begun.
        """
        self._is_over = True
        self._watch.end()
        for pending, sent in self.session.closed(drained=drained).pendings:
            left: PendingRequest | SentTell | None = self._open.pop(pending, None)
            if left is None:
                left = pending.host
            if left is not None:
                path = left.far.path
                left.fail(
                    OutcomeUnknown(path) if sent else AgentUnavailable(path, self.stranger or NOT_BEGUN)
                )
        for table in (self._open, self._feeds, self._unasked):
            table.clear()
        for request in self._line.end():
            request.fail(unavailable(request.far.path))

    # one table for all connections: of bound methods each connection would hold a dozen
    _handlers: ClassVar[Mapping[type, Callable[..., None]]] = {
        lmos.RequestAnswered: _answered,
        lmos.RequestFailed: _failed,
        lmos.RunProgressed: _progressed,
        lmos.RunItem: _item,
        lmos.CreditArrived: _flows,
        lmos.StreamStopped: _flows,
        lmos.ForgottenFailed: _forgotten_failed,
        lmos.FeedEstablished: _established,
        lmos.PropertyRead: _read,
        lmos.EventOccurred: _occurred,
        lmos.ValuesMissed: _missed,
        lmos.FeedEnded: _feed_ended,
        lmos.TellRoom: _send_credited,
        lmos.StrayMessage: _stray,
        lmos.Close: _close,
    }
