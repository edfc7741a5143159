"""The requests and listenings of one peer: queued for room, sent, and matched with what the session
receives.

What this file keeps true. Requests go out first come, first served: while one stands in `_queue`, nothing
overtakes it. The session bounds what may be open and what may wait to be sent; what it has no room for
stands in line, and `_send_queued` sends as much of it as fits whenever something has been answered or
written.

One-way messages need credit from their receiver. One without credit waits in a line of its thing
(`_queues_by_thing`), and so does everything to that thing behind it, for order. With one line for all, a
slow agent would hold up requests to all other agents of the peer.

A connection comes and goes, the peer stays: `lose_session` ends every open request (AgentUnavailable where
it is certain that nothing was begun, else OutcomeUnknown) and empties the line; listenings are asked for
again on the next connection.

Read `post` down to `_put`, then `_send_queued`, then the handlers named in `_takes`, one for each kind of
event that the session reports. Nothing here awaits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET

from lmos_actors._core import SMALL
from lmos_actors.actors import Carried
from lmos_actors.errors import (
    AgentDied,
    AgentUnavailable,
    InvalidInput,
    LocalProtocolError,
    MailboxFull,
    NotFound,
    OutcomeUnknown,
)
from lmos_actors.protocol import lmos

from ._peer_requests import PendingTell, SentTell, as_near_error, refuses_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.actors import Runtime, TraceMembers
    from lmos_actors.transport import Account

    from ._peer_listening import SharedListening
    from ._peer_requests import PendingRequest
    from ._peer_things import RemoteThing


NOT_BEGUN: Final = "the connection ended before the request was begun"


class Traffic:
    """The requests and listenings of one peer, over one connection after another."""

    def __init__(self, rt: Runtime, options: lmos.SessionOptions) -> None:
        self.rt = rt
        self.session: lmos.ConsumerSession | None = None
        self.account: Account | None = None
        """That of the connection, to which is charged what waits to be sent."""
        self._charged = 0
        self._near = range(SMALL)  # to that: what waits more or less is not worth counting
        self._options = options
        self._offers: tuple[str, ...] = ()
        self._queue: OrderedDict[PendingRequest, None] = OrderedDict()
        # by thing: what waits for credit, and what stands behind it
        self._queues_by_thing: dict[str, OrderedDict[PendingRequest, None]] = {}
        self._is_alone = False  # what is posted: nothing else is open, so that it is sent in its own step
        self._stalled = False  # there may be credit for those, and the outbox was full
        self._open: dict[lmos.ConsumerRequest, PendingRequest] = {}
        self._feeds: dict[lmos.Feed, SharedListening] = {}
        self._unasked: dict[SharedListening, None] = {}
        self._singly: set[str] = set()
        """Ids of things that refuse to be read as a whole; forgotten with the connection."""
        self._takes: dict[type, Callable[[Any], None]] = {
            lmos.RequestAnswered: self._answered,
            lmos.RequestFailed: self._failed,
            lmos.RunProgressed: self._moved,
            lmos.RunItem: self._item,
            lmos.ForgottenFailed: self._lost,
            lmos.FeedEstablished: self._established,
            lmos.PropertyRead: self._read,
            lmos.EventOccurred: self._occurred,
            lmos.ValuesMissed: self._missed,
            lmos.FeedEnded: self._feed_ended,
            lmos.TellRoom: self._send_credited,
            lmos.Close: self._close,
        }

    def unavailable(self, far: RemoteThing) -> AgentUnavailable:
        """Make the error for a request while there is no connection."""
        raise NotImplementedError

    def close_connection(self, code: int, reason: str) -> None:
        """Close the connection; the session wants it so."""
        raise NotImplementedError

    def is_direct(self) -> bool:
        """Whether the connection may send in its caller's step."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what waits, in this step if that is possible."""
        raise NotImplementedError

    def offers(self, word: str) -> bool:
        """Whether the peer offers an extension."""
        return word in self._offers

    @property
    def confirms(self) -> bool:
        """Whether the peer says that it has taken a subscription."""
        return self.session is not None and (self.session.habits == "kotlin-wot" or "acks" in self._offers)

    def holds_up(self, far: RemoteThing) -> bool:
        """Whether messages to a thing wait already, for room or for credit."""
        return bool(self._queue) or far.thing_id in self._queues_by_thing

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or stand in line."""
        return len(self._open) + len(self._queue) + sum(map(len, self._queues_by_thing.values()))

    def unsent(self) -> Iterator[tuple[Literal["credit", "room"], PendingRequest]]:
        """Return what stands in line; see `Outbox`."""
        for request in self._queue:
            yield "room", request
        for line in self._queues_by_thing.values():
            for request in line:
                yield "credit", request

    # ---- requests

    def post(self, request: PendingRequest) -> None:
        """Send a request, or let it stand in line for room.

        Raises AgentUnavailable while there is no connection, InvalidInput for what cannot be written or is
        too long, MailboxFull for what goes out as more messages than may ever be open.
        """
        session = self.session
        if session is None:
            raise self.unavailable(request.far)
        if self._open or self._queue or not self.is_direct():
            self._post(request, session)
            return
        self._is_alone = True
        try:
            self._post(request, session)
        finally:
            self._is_alone = False
            self.flush()

    def _post(self, request: PendingRequest, session: lmos.ConsumerSession) -> None:
        if self._queue or not self._try_send(request, session):
            self._queue[request] = None

    def _try_send(self, request: PendingRequest, session: lmos.ConsumerSession) -> bool:
        """Send a request, or let it wait for credit; False if there is no room for it."""
        thing = request.far.thing_id
        held = self._queues_by_thing.get(thing) if self._queues_by_thing else None
        if held is not None:
            held[request] = None
            return True
        if isinstance(request, PendingTell) and not session.may_tell(thing):
            self._queues_by_thing[thing] = OrderedDict({request: None})
            return True
        return self._put(request, session)

    def _put(self, request: PendingRequest, session: lmos.ConsumerSession) -> bool:
        outbound = request.outbound
        assert outbound is not None
        if isinstance(request, PendingTell):
            if not self._send_tell(session, request.sent, outbound.name, outbound.payload, outbound.trace):
                return False
            request.on_sent()
            return True
        outbound.singly = outbound.verb == "read all" and request.far.thing_id in self._singly
        try:
            pending = outbound.put(session, request.far.thing_id, is_ours=bool(self._offers))
        except MailboxFull:
            if self._messages(request, session) > self._options.max_open:
                raise MailboxFull(request.far.path, self._options.max_open) from None  # there never is room
            return False
        except LocalProtocolError as error:  # a value without a form in JSON, or too long
            raise InvalidInput(str(error)) from None
        if session.waiting_bytes not in self._near:
            self._charge(session.waiting_bytes)
        request.pending = pending
        if pending.done:
            request.answer(pending.value)
        else:
            self._open[pending] = request
        request.on_sent()
        return True

    def _charge(self, waiting: int) -> None:
        """Charge what waits to be sent now, where that is another amount than before."""
        waiting = waiting if waiting >= SMALL else 0
        more, self._charged = waiting - self._charged, waiting
        slack = max(SMALL, waiting // 8)
        self._near = range(waiting - slack + 1, waiting + slack)
        if self.account is not None:
            (self.account.charge if more > 0 else self.account.release)(abs(more))

    def _messages(self, request: PendingRequest, session: lmos.ConsumerSession) -> int:
        return 1 if request.outbound is None else request.outbound.count(session, is_ours=bool(self._offers))

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; False where there is no room, or no credit. Raises as `post` does."""
        session = self.session
        if session is None:
            raise self.unavailable(sent.link.far)
        if self._queue or (self._queues_by_thing and sent.link.far.thing_id in self._queues_by_thing):
            return False
        return self._send_tell(session, sent, name, payload, trace)

    def _send_tell(
        self, session: lmos.ConsumerSession, sent: SentTell, name: str, payload: Any, trace: TraceMembers
    ) -> bool:
        try:
            session.tell(sent.link.far.thing_id, name, payload, host=sent, **trace)
        except MailboxFull:
            return False
        except LocalProtocolError as error:
            raise InvalidInput(str(error)) from None
        if session.waiting_bytes not in self._near:
            self._charge(session.waiting_bytes)
        return True

    def ask_about(self, request: PendingRequest, pending: lmos.ConsumerRequest) -> None:
        """Wait for the answer to a query or a cancel, which has been put into the outbox."""
        request.pending = pending
        if pending.done:
            request.answer(pending.value)
        else:
            self._open[pending] = request

    def withdraw(self, request: PendingRequest) -> None:
        """Nobody waits for this any more: take it out of the line, or cancel what runs, without waiting."""
        pending, session = request.pending, self.session
        if self._queue.pop(request, self) is None:
            if session is not None and self._messages(request, session) > 1:
                self._send_queued()  # there may be room for those behind it, which are fewer
            return
        if self._queues_by_thing and self._leave_held(request):
            return
        if pending is None or self._open.pop(pending, None) is None or session is None:
            return
        if isinstance(pending, lmos.PendingRun):
            with suppress(MailboxFull):  # of a peer that answers no cancel, as many are open as may be
                session.forget(session.cancel(pending))
        session.forget(pending)
        self._send_queued()

    def _leave_held(self, request: PendingRequest) -> bool:
        """Take a request out of the line of its thing; whether it was there. Those behind it may go on."""
        thing = request.far.thing_id
        held = self._queues_by_thing.get(thing)
        if held is None or held.pop(request, self) is not None:
            return False
        if not held:
            del self._queues_by_thing[thing]
        self._send_credited()
        return True

    def forget(self, request: PendingRequest) -> None:
        """Nobody waits for the answer to this query or cancel."""
        pending, session = request.pending, self.session
        if pending is not None and self._open.pop(pending, None) is not None and session is not None:
            session.forget(pending)

    def query(self, pending: lmos.PendingRun) -> lmos.ConsumerRequest:
        """Ask where a run stands; its connection stands. Raises MailboxFull."""
        assert self.session is not None
        return self.session.query(pending)

    def cancel(self, pending: lmos.PendingRun, reason: str | None) -> lmos.ConsumerRequest:
        """Ask to end a run; its connection stands. Raises MailboxFull."""
        assert self.session is not None
        found = self.session.cancel(pending, reason)
        request = self._open.pop(pending, None) if pending.done else None
        if (
            request is not None and pending.error is not None
        ):  # it had not been sent, or its peer knows no cancel
            request.fail(pending.error)
            self._send_queued()
        return found

    def asked_about(self, pending: lmos.ConsumerRequest) -> PendingRequest | None:
        """Return the request that waits for an answer, None without one."""
        return self._open.get(pending)

    def is_waiting(self, request: PendingRequest) -> bool:
        """Whether a request stands in line."""
        return request in self._queue or request in self._queues_by_thing.get(request.far.thing_id, ())

    def consumed(self, pending: lmos.PendingRun) -> None:
        """An item of a run has been used up."""
        if self.session is not None:
            self.session.consumed(pending)

    def _send_queued(self) -> None:
        """Send what there is room for: requests in line first, then subscriptions."""
        session = self.session
        while self._queue and session is not None:
            request = next(iter(self._queue))
            try:
                if not self._try_send(request, session):
                    return
            except (InvalidInput, MailboxFull) as error:
                del self._queue[request]
                request.fail(error)
            else:
                del self._queue[request]
        if self._stalled:
            self._send_credited()
        if self._unasked:
            self._ask_listenings()

    def _send_credited(self, _: object = None) -> None:
        """Send what credit allows: one message for each waiting thing in turn."""
        self._stalled = False
        things = deque(self._queues_by_thing)
        while things and (session := self.session) is not None:
            thing = things.popleft()
            held = self._queues_by_thing[thing]
            request = next(iter(held))
            if isinstance(request, PendingTell) and not session.may_tell(thing):
                continue
            try:
                if self._queue or not self._put(request, session):
                    self._stalled = True
                    return
            except (InvalidInput, MailboxFull) as error:
                request.fail(error)
            del held[request]
            if held:
                things.append(thing)
            else:
                del self._queues_by_thing[thing]

    # ---- listening

    def listen(self, listening: SharedListening) -> None:
        """Ask for something to be listened to, now or when that is possible."""
        self._unasked[listening] = None
        if self.session is not None:
            self._ask_listenings()

    def listen_again(self, listening: SharedListening) -> None:
        """Ask again for what was refused for the time being."""
        if listening.taps:
            self.listen(listening)

    def unlisten(self, listening: SharedListening) -> None:
        """Nobody here listens any more."""
        far, key = listening.far, (listening.kind, listening.name)
        if far.listenings.get(key) is listening:
            del far.listenings[key]
        self._unasked.pop(listening, None)
        feed, session = listening.feed, self.session
        if feed is not None and session is not None and self._feeds.pop(feed, None) is not None:
            session.stop(feed)

    def _ask_listenings(self) -> None:
        session = self.session
        while self._unasked and session is not None:
            listening = next(iter(self._unasked))
            if not listening.ask(session):
                return
            self._unasked.pop(listening, None)
            if listening.feed is not None:
                self._feeds[listening.feed] = listening

    # ---- what comes in

    def text(self, text: str) -> None:
        """Take a text message."""
        if self.session is not None:
            self._take(self.session.receive(text))

    def binary(self, data: bytes) -> None:
        """Take a binary message."""
        if self.session is not None:
            self._take(self.session.receive_binary(data))

    def frames(self, room: int) -> list[bytes]:
        """Return what is to be sent; what that makes room for goes into the outbox."""
        session = self.session
        if session is None:
            return []
        found: list[bytes] = [*session.frames(room)]
        if self._queue or self._unasked or self._stalled:
            self._send_queued()
            if not found:  # nobody asks again after being given nothing
                found = [*session.frames(room)]
        if session.waiting_bytes not in self._near:
            self._charge(session.waiting_bytes)
        return found

    def _take(self, happenings: tuple[lmos.Outcome, ...]) -> None:
        for each in happenings:
            take = self._takes.get(type(each))
            if take is not None:
                take(each)
        if self._queue or self._unasked or self._stalled:
            self._send_queued()

    def _answered(self, each: lmos.RequestAnswered) -> None:
        request = self._open.pop(each.pending, None)
        if request is not None:
            request.far.unwell = False
            request.answer(each.value)

    def _failed(self, each: lmos.RequestFailed) -> None:
        request = self._open.pop(each.pending, None)
        if request is not None and self._reads_singly(request, each.error):
            self._singly.add(request.far.thing_id)
            self._queue[request] = None
            self._send_queued()
        elif request is not None:
            request.far.unwell = _unwell(each.error)
            request.fail(as_near_error(each.error, request.far.thing_id, request.far.path, request.outbound))

    def _reads_singly(self, request: PendingRequest, error: Exception) -> bool:
        """Whether a read of all properties that has failed is to be made anew as a read of each.

        Servers of kotlin-wot answer it by 404 or by 500, which says nothing of the properties.
        """
        outbound = request.outbound
        if (
            outbound is None
            or outbound.verb != "read all"
            or not outbound.names
            or outbound.singly
            or self._offers
        ):
            return False
        return refuses_whole(error)

    def _lost(self, each: lmos.ForgottenFailed) -> None:
        sent: SentTell | None = each.pending.host
        if sent is not None:
            far = sent.link.far
            sent.fail(as_near_error(each.error, far.thing_id, far.path))

    def _moved(self, each: lmos.RunProgressed) -> None:
        request = self._open.get(each.pending)
        if request is not None:
            request.on_status(each.status, each.progress)

    def _item(self, each: lmos.RunItem) -> None:
        request = self._open.get(each.pending)
        if request is not None:
            request.item(each.output)

    def _established(self, each: lmos.FeedEstablished) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            listening.on_confirmed()

    def _read(self, each: lmos.PropertyRead) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            listening.value(each.value)

    def _occurred(self, each: lmos.EventOccurred) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            data = None if each.data is UNSET else each.data
            with Carried(self.rt, each.traceparent, each.tracestate):
                listening.value((each.event, data) if listening.kind == "events" else data)

    def _missed(self, each: lmos.ValuesMissed) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            listening.gap(each.reason, each.missed)

    def _feed_ended(self, each: lmos.FeedEnded) -> None:
        listening = self._feeds.pop(each.feed, None)
        if listening is not None:
            error = each.error or AgentUnavailable(listening.far.path, "it ended the subscription")
            listening.on_refused(as_near_error(error, listening.far.thing_id, listening.far.path))

    def _close(self, each: lmos.Close) -> None:
        self.close_connection(each.code, each.reason)

    # ---- the end of a connection

    def lose_session(self, *, drained: bool) -> None:
        """Tell all whose requests are open, or stand in line, that the connection is gone."""
        session, self.session = self.session, None
        self.account, self._charged, self._near = None, 0, range(SMALL)
        if session is None:
            return
        left = session.closed(drained=drained)
        for pending, sent in left.pendings:
            self._leave(pending, sent=sent)
        for table in (self._open, self._feeds, self._unasked, self._singly):
            table.clear()
        self.empty_line()

    def _leave(self, pending: lmos.ConsumerRequest, *, sent: bool) -> None:
        request = self._open.pop(pending, None)
        whose: PendingRequest | SentTell | None = pending.host if request is None else request
        if whose is None:
            return
        path = whose.far.path
        error = OutcomeUnknown(path) if sent else AgentUnavailable(path, NOT_BEGUN)
        whose.fail(error)

    def empty_line(self) -> None:
        """Fail everything that stands in line: there is no connection."""
        line, self._queue = self._queue, OrderedDict()
        held, self._queues_by_thing = self._queues_by_thing, {}
        for request in (*line, *(request for each in held.values() for request in each)):
            request.fail(self.unavailable(request.far))


def _unwell(error: Exception) -> bool:
    """Return whether an answer is one of an agent that does not run now."""
    gone = isinstance(error, NotFound) and error.kind == "agent"
    return gone or isinstance(error, AgentUnavailable | AgentDied)
