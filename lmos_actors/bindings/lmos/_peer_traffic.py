"""What goes to a peer and comes from it: requests, what is listened to, and what the session makes of frames.

What the session holds no room for stands in line, first come, first served: its seats are the requests that
may be open, and the outbox. One-way messages without credit, and what comes behind them, wait in a line of
their thing, so that one slow agent holds up nobody who asks others.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

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

from ._peer_requests import FarTell, Note, at_home, refuses_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime, TraceMembers
    from lmos_actors.transport import Account

    from ._peer_listening import Listening
    from ._peer_requests import Want
    from ._peer_things import FarThing


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
        self._line: OrderedDict[Want, None] = OrderedDict()
        self._held: dict[str, OrderedDict[Want, None]] = {}  # by thing: behind one that waits for credit
        self._is_alone = False  # what is posted: nothing else is open, so that it is sent in its own step
        self._stalled = False  # there may be credit for those, and the outbox was full
        self._open: dict[lmos.Pending, Want] = {}
        self._feeds: dict[lmos.Feed, Listening] = {}
        self._unasked: dict[Listening, None] = {}
        self._singly: set[str] = set()
        """Ids of things that refuse to be read as a whole; forgotten with the connection."""
        self._takes: dict[type, Callable[[Any], None]] = {
            lmos.Answered: self._answered,
            lmos.Failed: self._failed,
            lmos.Moved: self._moved,
            lmos.Item: self._item,
            lmos.Lost: self._lost,
            lmos.Established: self._established,
            lmos.Read: self._read,
            lmos.Occurred: self._occurred,
            lmos.Missed: self._missed,
            lmos.Ended: self._feed_ended,
            lmos.TellRoom: self._tell_on,
            lmos.Close: self._close,
        }

    def unavailable(self, far: FarThing) -> AgentUnavailable:
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

    def holds_up(self, far: FarThing) -> bool:
        """Whether somebody waits for room, or for credit, before one more message to a thing."""
        return bool(self._line) or far.thing_id in self._held

    @property
    def open_requests(self) -> int:
        """How many requests wait for an answer, or stand in line."""
        return len(self._open) + len(self._line) + sum(map(len, self._held.values()))

    # ---- requests

    def post(self, want: Want) -> None:
        """Send a request, or let it stand in line for room.

        Raises AgentUnavailable while there is no connection, InvalidInput for what cannot be written or is
        too long, MailboxFull for what goes out as more messages than may ever be open.
        """
        session = self.session
        if session is None:
            raise self.unavailable(want.far)
        if self._open or self._line or not self.is_direct():
            self._post(want, session)
            return
        self._is_alone = True
        try:
            self._post(want, session)
        finally:
            self._is_alone = False
            self.flush()

    def _post(self, want: Want, session: lmos.ConsumerSession) -> None:
        if self._line or not self._sent(want, session):
            self._line[want] = None

    def _sent(self, want: Want, session: lmos.ConsumerSession) -> bool:
        """Send a request, or let it wait for credit; False if there is no room for it."""
        thing = want.far.thing_id
        held = self._held.get(thing) if self._held else None
        if held is not None:
            held[want] = None
            return True
        if isinstance(want, FarTell) and not session.may_tell(thing):
            self._held[thing] = OrderedDict({want: None})
            return True
        return self._put(want, session)

    def _put(self, want: Want, session: lmos.ConsumerSession) -> bool:
        said = want.said
        assert said is not None
        if isinstance(want, FarTell):
            if not self._told(session, want.note, said.name, said.payload, said.trace):
                return False
            want.posted()
            return True
        said.singly = said.verb == "read all" and want.far.thing_id in self._singly
        try:
            pending = said.put(session, want.far.thing_id, is_ours=bool(self._offers))
        except MailboxFull:
            if self._messages(want, session) > self._options.max_open:
                raise MailboxFull(want.far.path, self._options.max_open) from None  # there never is room
            return False
        except LocalProtocolError as error:  # a value without a form in JSON, or too long
            raise InvalidInput(str(error)) from None
        if session.waiting_bytes not in self._near:
            self._charge(session.waiting_bytes)
        want.pending = pending
        if pending.done:
            want.answer(pending.value)
        else:
            self._open[pending] = want
        want.posted()
        return True

    def _charge(self, waiting: int) -> None:
        """Charge what waits to be sent now, where that is another amount than before."""
        waiting = waiting if waiting >= SMALL else 0
        more, self._charged = waiting - self._charged, waiting
        slack = max(SMALL, waiting // 8)
        self._near = range(waiting - slack + 1, waiting + slack)
        if self.account is not None:
            (self.account.charge if more > 0 else self.account.release)(abs(more))

    def _messages(self, want: Want, session: lmos.ConsumerSession) -> int:
        return 1 if want.said is None else want.said.count(session, is_ours=bool(self._offers))

    def tell(self, note: Note, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; False where there is no room, or no credit. Raises as `post` does."""
        session = self.session
        if session is None:
            raise self.unavailable(note.link.far)
        if self._line or (self._held and note.link.far.thing_id in self._held):
            return False
        return self._told(session, note, name, payload, trace)

    def _told(
        self, session: lmos.ConsumerSession, note: Note, name: str, payload: Any, trace: TraceMembers
    ) -> bool:
        try:
            session.tell(note.link.far.thing_id, name, payload, host=note, **trace)
        except MailboxFull:
            return False
        except LocalProtocolError as error:
            raise InvalidInput(str(error)) from None
        if session.waiting_bytes not in self._near:
            self._charge(session.waiting_bytes)
        return True

    def ask_about(self, want: Want, pending: lmos.Pending) -> None:
        """Wait for the answer to a query or a cancel, which has been put into the outbox."""
        want.pending = pending
        if pending.done:
            want.answer(pending.value)
        else:
            self._open[pending] = want

    def withdraw(self, want: Want) -> None:
        """Nobody waits for this any more: take it out of the line, or cancel what runs, without waiting."""
        pending, session = want.pending, self.session
        if self._line.pop(want, self) is None:
            if session is not None and self._messages(want, session) > 1:
                self._go_on()  # there may be room for those behind it, which are fewer
            return
        if self._held and self._leave_held(want):
            return
        if pending is None or self._open.pop(pending, None) is None or session is None:
            return
        if isinstance(pending, lmos.Call):
            with suppress(MailboxFull):  # of a peer that answers no cancel, as many are open as may be
                session.forget(session.cancel(pending))
        session.forget(pending)
        self._go_on()

    def _leave_held(self, want: Want) -> bool:
        """Take a request out of the line of its thing; whether it was there. Those behind it may go on."""
        thing = want.far.thing_id
        held = self._held.get(thing)
        if held is None or held.pop(want, self) is not None:
            return False
        if not held:
            del self._held[thing]
        self._tell_on()
        return True

    def forget(self, want: Want) -> None:
        """Nobody waits for the answer to this query or cancel."""
        pending, session = want.pending, self.session
        if pending is not None and self._open.pop(pending, None) is not None and session is not None:
            session.forget(pending)

    def query(self, pending: lmos.Call) -> lmos.Pending:
        """Ask where a run stands; its connection stands. Raises MailboxFull."""
        assert self.session is not None
        return self.session.query(pending)

    def cancel(self, pending: lmos.Call, reason: str | None) -> lmos.Pending:
        """Ask to end a run; its connection stands. Raises MailboxFull."""
        assert self.session is not None
        found = self.session.cancel(pending, reason)
        want = self._open.pop(pending, None) if pending.done else None
        if want is not None and pending.error is not None:  # it had not been sent, or nobody can be asked
            want.fail(pending.error)
            self._go_on()
        return found

    def asked_about(self, pending: lmos.Pending) -> Want | None:
        """Return who waits for an answer, None if nobody does."""
        return self._open.get(pending)

    def is_waiting(self, want: Want) -> bool:
        """Whether a request stands in line."""
        return want in self._line or want in self._held.get(want.far.thing_id, ())

    def consumed(self, pending: lmos.Call) -> None:
        """An item of a run has been used up."""
        if self.session is not None:
            self.session.consumed(pending)

    def _go_on(self) -> None:
        """There may be room: for those in line, then for what is to be listened to."""
        session = self.session
        while self._line and session is not None:
            want = next(iter(self._line))
            try:
                if not self._sent(want, session):
                    return
            except (InvalidInput, MailboxFull) as error:
                del self._line[want]
                want.fail(error)
            else:
                del self._line[want]
        if self._stalled:
            self._tell_on()
        if self._unasked:
            self._ask_listenings()

    def _tell_on(self, _: object = None) -> None:
        """There may be credit: each thing for which somebody waits has one message sent in turn."""
        self._stalled = False
        things = deque(self._held)
        while things and (session := self.session) is not None:
            thing = things.popleft()
            held = self._held[thing]
            want = next(iter(held))
            if isinstance(want, FarTell) and not session.may_tell(thing):
                continue
            try:
                if self._line or not self._put(want, session):
                    self._stalled = True
                    return
            except (InvalidInput, MailboxFull) as error:
                want.fail(error)
            del held[want]
            if held:
                things.append(thing)
            else:
                del self._held[thing]

    # ---- listening

    def listen(self, listening: Listening) -> None:
        """Ask for something to be listened to, now or when that is possible."""
        self._unasked[listening] = None
        if self.session is not None:
            self._ask_listenings()

    def listen_again(self, listening: Listening) -> None:
        """Ask again for what was refused for the time being."""
        if listening.taps:
            self.listen(listening)

    def unlisten(self, listening: Listening) -> None:
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
        if self._line or self._unasked or self._stalled:
            self._go_on()
            if not found:  # nobody asks again after being given nothing
                found = [*session.frames(room)]
        if session.waiting_bytes not in self._near:
            self._charge(session.waiting_bytes)
        return found

    def _take(self, happenings: tuple[lmos.Happening, ...]) -> None:
        for each in happenings:
            take = self._takes.get(type(each))
            if take is not None:
                take(each)
        if self._line or self._unasked or self._stalled:
            self._go_on()

    def _answered(self, each: lmos.Answered) -> None:
        want = self._open.pop(each.pending, None)
        if want is not None:
            want.far.unwell = False
            want.answer(each.value)

    def _failed(self, each: lmos.Failed) -> None:
        want = self._open.pop(each.pending, None)
        if want is not None and self._reads_singly(want, each.error):
            self._singly.add(want.far.thing_id)
            self._line[want] = None
            self._go_on()
        elif want is not None:
            want.far.unwell = _unwell(each.error)
            want.fail(at_home(each.error, want.far.thing_id, want.far.path, want.said))

    def _reads_singly(self, want: Want, error: Exception) -> bool:
        """Whether a read of all properties that has failed is to be made anew as a read of each.

        Servers of kotlin-wot answer it by 404 or by 500, which says nothing of the properties.
        """
        said = want.said
        if said is None or said.verb != "read all" or not said.names or said.singly or self._offers:
            return False
        return refuses_whole(error)

    def _lost(self, each: lmos.Lost) -> None:
        note: Note | None = each.pending.host
        if note is not None:
            far = note.link.far
            note.fail(at_home(each.error, far.thing_id, far.path))

    def _moved(self, each: lmos.Moved) -> None:
        want = self._open.get(each.pending)
        if want is not None:
            want.moved(each.status, each.progress)

    def _item(self, each: lmos.Item) -> None:
        want = self._open.get(each.pending)
        if want is not None:
            want.item(each.output)

    def _established(self, each: lmos.Established) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            listening.stands()

    def _read(self, each: lmos.Read) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            listening.value(each.value)

    def _occurred(self, each: lmos.Occurred) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            data = None if each.data is UNSET else each.data
            with Carried(self.rt, each.traceparent, each.tracestate):
                listening.value((each.event, data) if listening.kind == "events" else data)

    def _missed(self, each: lmos.Missed) -> None:
        listening = self._feeds.get(each.feed)
        if listening is not None:
            listening.gap(each.reason, each.missed)

    def _feed_ended(self, each: lmos.Ended) -> None:
        listening = self._feeds.pop(each.feed, None)
        if listening is not None:
            error = each.error or AgentUnavailable(listening.far.path, "it ended the subscription")
            listening.refused(at_home(error, listening.far.thing_id, listening.far.path))

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

    def _leave(self, pending: lmos.Pending, *, sent: bool) -> None:
        want = self._open.pop(pending, None)
        whose: Want | Note | None = pending.host if want is None else want
        if whose is None:
            return
        path = whose.far.path
        error = OutcomeUnknown(path) if sent else AgentUnavailable(path, NOT_BEGUN)
        whose.fail(error)

    def empty_line(self) -> None:
        """Tell those who stand in line that there is no connection."""
        line, self._line = self._line, OrderedDict()
        held, self._held = self._held, {}
        for want in (*line, *(want for each in held.values() for want in each)):
            want.fail(self.unavailable(want.far))


def _unwell(error: Exception) -> bool:
    """Return whether an answer is one of an agent that does not run now."""
    gone = isinstance(error, NotFound) and error.kind == "agent"
    return gone or isinstance(error, AgentUnavailable | AgentDied)
