"""One LMOS connection on the agents' side: requests become envelopes, answers go straight back.

Everything here runs in the step of another task: the connection's reader or writer, the dispatcher, or a run.
So nothing waits and nothing raises. A failure in one request ends that request, with an error to the peer,
and a mistake of this program is also passed to `ServerContext.failed`.

The path of a request: `text` -> the protocol session -> `_handle_demands` -> `_ask` (draining, access, does
the agent exist) -> `_invoked`, a short path for the plain invocation with good input, or `_carry_out` for
everything else -> `_post` into the agent's mailbox. Answers return through `answered` and `failed`, in the
step of the turn that made them.

Two things are unusual but intended. If nothing else is open, the turn runs inside `text` (`_is_alone`) and
its answer is flushed in the same step, which saves a lone request the passes of the event loop in between. An
item of a lone stream is also flushed in the step of its run. And access is checked before existence, so that
a peer cannot discover what it may not see.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import SMALL
from lmos_actors.actors import CUT_OFF, Far, OneWay, PoolLink, Slot
from lmos_actors.errors import (
    AgentError,
    AgentUnavailable,
    DeadlineExceeded,
    LmosActorsError,
    LocalProtocolError,
    NotFound,
    Unauthorized,
    nearest,
)
from lmos_actors.protocol import lmos

from ..exposure._access_middleware import principal_of, rights_of
from ..exposure._exposure import EXITED, name_meant, public_name
from ..exposure._meter import came, ended, refused
from ..exposure._values import plain
from ._server_answers import ANSWERS, lmos_offered
from ._server_listeners import Listeners
from ._server_requests import PERMISSIONS, check_keyed, requested_operation
from ._server_tells import IncomingTells

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from lmos_actors._core import Timer
    from lmos_actors.security import Admission
    from lmos_actors.transport import Connection

    from ._server_context import ServerContext
    from ._server_listeners import Listener
    from ._server_requests import AgentOrPool, RequestedOperation

LONGEST: Final = 1e9
"""Seconds: for a longer time than this no deadline is set."""

STEP: Final = 32_768
"""Step, in bytes, by which the charge for a session falls while it still holds much."""

UNCHARGED: Final = range(SMALL)
"""Bytes that a session may hold without a charge."""

WAY: Final = "lmos"
"""The binding's name in metrics and traces."""

VERBS: Final[Mapping[str, str]] = {
    "read_all": "read all",
    "read_many": "read all",
    "write_many": "write many",
    "write_all": "write many",
    "subscribe_all": "subscribe to all",
    **{word: word for word in ("read", "write", "invoke", "observe", "subscribe")},
}
"""Verbs of operations, by the verb of a message."""

UNAUTHORIZED: Final = 3000
"""The close code for credentials that are no longer valid, as registered with IANA."""

TOO_SLOW: Final = 1008
RESTARTING: Final = 1012


class ServerConnection:
    """A connection being served: `Handler` of the transport, and `Asker` of the actors."""

    def __init__(
        self,
        context: ServerContext,
        connection: Connection,
        memory: lmos.AnswerMemory,
        thing: str | None,
        admission: Admission | None = None,
    ) -> None:
        self._context = context
        self.connection = connection
        self.label = connection.peer
        self.principal, self.allows = principal_of(admission), rights_of(admission)
        self._admission = admission  # None where all may do everything
        self._expelled = False
        self._expiry: Timer | None = None
        self.session = lmos.ThingSession(
            offered=lmos_offered(connection.offered),
            new_id=context.rt.entropy.new_id,
            options=context.options,
            memory=memory,
            wake=self._wake,
            thing=thing,
            grants=connection.account,
        )
        self._rt = context.rt
        self._listeners = Listeners(context.rt, self.session, self.check_end, context.failed, context.sharing)
        address = connection.peer.rpartition(":")[0]
        self._peer = (address, connection) if self.principal is None else (f"@{self.principal}", "")
        self._tells: IncomingTells | None = None  # made for the first one-way message
        self._runs_without_room: dict[Far, None] = {}  # without the peer's credit, or room to send
        self._over = self._giving_up = self._is_spent = False
        self.draining = context.draining  # takes no new requests, and ends once nothing is open
        self._is_alone = self._is_due = False  # only this request is open; something is to be sent after it
        self._charged = 0  # bytes charged to the connection's account
        self._near = UNCHARGED  # a change of the held bytes within this range is not charged
        self._counted: BaseException | None = None  # the refusal of a mailbox that was just counted
        if admission is not None:
            self._await_expiry(admission)

    def _wake(self) -> None:
        self._rt.timers.woke = True  # the instant is not over: there is something to send
        if self._is_alone:
            self._is_due = True
        else:
            self.connection.wake()

    # ---- messages in and out

    @enable_ki_protection
    def text(self, text: str) -> None:
        """Handle a text message. If nothing else is open, run the turn here and send its answer at once."""
        if self._expelled:
            return
        receive = self.session.receive
        if self.session.open or not self.connection.is_quiet:
            self._handle_demands(receive(text, trio.current_time()))
            return
        self._is_alone = True
        try:
            self._handle_demands(receive(text, trio.current_time()))
        finally:
            self._is_alone = False
            if self._is_due:
                self._is_due = False
                self.connection.flush()

    def binary(self, data: bytes) -> None:
        """Handle a binary message."""
        if self._expelled:
            return
        self._handle_demands(self.session.receive_binary(data))

    def is_behind(self) -> bool:
        """Return whether too many requests wait for turns, so that senders should hold back further ones."""
        return bool(self._rt.ready) and self.session.open > self._context.options.max_open // 2

    def frames(self, room: int) -> list[bytes]:
        """Return the messages to send, and resume runs that waited for room."""
        if self._admission is not None and not (self._expelled or self._admission.valid(trio.current_time())):
            self.end()  # this peer may no longer see the messages that wait to be sent
            self._close_unauthorized()
        self._listeners.send_waiting()
        frames = self.session.outbox.take(room)
        if frames and not self._over and (held := self.session.held) not in self._near:
            self._charge(held)  # the connection holds the frames that were taken, if anyone does
        if self._runs_without_room and not self._listeners.is_congested():
            givers, self._runs_without_room = self._runs_without_room, {}
            for far in givers:
                far.go_on()
        return frames

    def _handle_demands(self, demands: tuple[lmos.Demand, ...]) -> None:
        for demand in demands:
            match demand:
                case lmos.IncomingRequest():
                    self._ask(demand)
                case lmos.ItemArrived(stream=stream, item=item):
                    if stream.host is not None:
                        stream.host.take(item, self.session, stream)
                case lmos.RequestWithdrawn(request=asked, reason=reason):
                    (self._context.cut_off if reason == CUT_OFF else self._context.withdraw)(asked)
                    self._context.settled()
                case lmos.ListeningEnded(listening=listening):
                    self._listeners.leave(listening)
                case lmos.StreamStopped():
                    pass  # the peer wants no more items of an answer
                case lmos.WaitsAsked():
                    self._context.tell_waits(self.session, demand)
                case lmos.CreditArrived(run=run):
                    self._context.credited(run)
                case lmos.Close(code=code, reason=reason):
                    self.close(code, reason)
                case lmos.StreamFinished(stream=stream, reason=reason):
                    if stream.host is not None:
                        stream.host.end(reason)
        self.check_end()

    # ---- requests

    def _ask(self, asked: lmos.IncomingRequest) -> None:
        try:
            if self.draining:
                raise AgentUnavailable(asked.thing_id, "the node is shutting down")
            link = self._context.exposure.find(asked.message.thing_id)
            if self._admission is not None:
                self._check(self._admission, asked, link)
            if link is None:
                known = self._context.known_names(self._admission, PERMISSIONS[asked.verb.word])
                raise NotFound("agent", asked.thing_id, near=nearest(name_meant(asked.thing_id), known))
            if not self._invoked(asked, link):
                self._carry_out(asked, link)
        except AgentError as error:
            self._refused(asked, error)
            self.fail(asked, error)
        except Exception as error:
            self._refused(asked, error)
            self._broken(asked, error)

    def _refused(self, asked: lmos.IncomingRequest, error: Exception) -> None:
        """Count a request that did not reach a mailbox, unless `_post` has counted it already."""
        if error is not self._counted:
            refused(self._rt, WAY, VERBS[asked.verb.word], error)
        self._counted = None

    def _check(self, admission: Admission, asked: lmos.IncomingRequest, link: AgentOrPool | None) -> None:
        """Check that the peer may make a request, before anything else is done with it.

        The result is the same for an agent that does not exist. Raises Unauthorized, Forbidden, RateLimited.
        """
        name = name_meant(asked.thing_id) if link is None else public_name(link.path)
        now = trio.current_time()
        try:
            admission.check(name, PERMISSIONS[asked.verb.word], now)
        except Unauthorized:
            if not admission.valid(now):
                self._close_unauthorized()
            raise

    def _await_expiry(self, admission: Admission) -> None:
        """Set a timer for the expiry of the credentials, because an idle connection must end then, too."""
        if admission.until is None:
            return
        left = min(max(admission.until - self._rt.entropy.now().timestamp(), 0.0), LONGEST)
        # the two clocks are not the same: 10 ms later the instant has passed for sure
        self._expiry = self._rt.timers.call_at(trio.current_time() + left + 0.01, self._expired)

    def _expired(self) -> None:
        admission = self._admission
        if admission is None or self._over or self._expelled:
            return
        if admission.valid(trio.current_time()):
            self._await_expiry(admission)
            return
        self.end()
        self._close_unauthorized()

    def _close_unauthorized(self) -> None:
        """Close with 3000, because the credentials have expired and nothing more may be sent."""
        self._expelled = True
        self._listeners.close()
        self.connection.close(UNAUTHORIZED, "the credentials are no longer good")

    def _invoked(self, asked: lmos.IncomingRequest, link: AgentOrPool) -> bool:
        """Post in few steps a plain invocation with valid input; return False to leave it to `_carry_out`."""
        if asked.verb.word != "invoke" or isinstance(link, PoolLink):
            return False
        message = asked.message
        op = link.table.get(message.action)
        if op is None or op.name != message.action or asked.streams or message.remaining is not None:
            return False
        args = None if message.key is not None else op.taken(message.input)
        if args is None:
            return False
        if asked.tell is not None:
            self._post_tell(OneWay(link, op, args, self._teller(), asked))
            return True
        far = Far(link, op, args, self, asked)
        if self._post(far) and asked.open:
            self._tell(far, self.session.pending)
        return True

    def _carry_out(self, asked: lmos.IncomingRequest, link: AgentOrPool) -> None:
        requested = requested_operation(asked, link)
        if asked.listening is not None:
            self._listen(asked, link, requested[0])
            return
        remaining: Any = None if asked.tell is not None else getattr(asked.message, "remaining", None)
        if remaining is not None and not remaining > 0:
            raise DeadlineExceeded(link.path, max(remaining, 0.0))
        self._send(asked, link, requested, remaining)

    def _send(
        self,
        asked: lmos.IncomingRequest,
        link: AgentOrPool,
        requested: RequestedOperation,
        remaining: float | None,
        before: Far | None = None,
    ) -> None:
        key, args, kwargs = requested
        named_so: str | None = getattr(asked.message, "key", None)
        if named_so is not None:
            check_keyed(asked, link)
        slot = link if isinstance(link, Slot) else link.choose(key, args, kwargs)
        op = slot.operation(key)
        args, one_way = slot.bound(op, args, kwargs), asked.tell is not None
        far = OneWay(slot, op, args, self._teller(), asked) if one_way else Far(slot, op, args, self, asked)
        if before is not None:
            far.watch, far.trace = before.watch, before.trace
        if isinstance(link, PoolLink):
            far.again = partial(self._send_again, far, link, requested)
        if isinstance(far, OneWay):
            self._post_tell(far)
            return
        is_later = self._post(far, named_so)
        if not asked.open:
            return
        if remaining is not None and remaining < LONGEST:
            far.until = trio.current_time() + remaining
            self._rt.deadlines.add(far, remaining)
        if is_later and asked.verb.word == "invoke":
            self._tell(far, self.session.pending)

    def _send_again(self, far: Far, pool: PoolLink, requested: RequestedOperation) -> bool:
        """Let another member of the pool take a request that was not begun; return whether one takes it."""
        if not pool.replaces(far.slot):
            return False
        left = None if far.until is None else far.until - trio.current_time()
        try:
            self._send(far.asked, pool, requested, left, far)
        except AgentError:
            return False
        return True

    def _post(self, far: Far, key: str | None = None) -> bool:
        """Put a request into its agent's mailbox; return whether its answer is declared to come later.

        Raises MailboxFull, AgentUnavailable, NotFound; for a `key` InvalidInput, NotAllowed, KeyReused.
        """
        is_later = self._context.later.get(far.op)
        if is_later is None:
            is_later = self._context.answers_later(far)
        message = far.asked.message
        came(far, WAY, message.traceparent, message.tracestate)
        self._context.open[far.asked] = far  # before it is posted: it may be answered in this step
        try:
            if self._tells is not None:
                self._tells.check_order(far.slot)
            if key is None:
                far.post(self._context.seats, self._peer, now=self._is_alone and not is_later)
            else:
                self._context.post_keyed(far, key, self.principal, self.connection.headers, self._peer)
        except BaseException as error:
            self._context.open.pop(far.asked, None)
            ended(far, error)
            self._counted = error
            raise
        return is_later

    def _post_tell(self, tell: OneWay) -> None:
        """Put a one-way message into its agent's mailbox, or park it. Raises the same errors as `_post`."""
        message = tell.asked.message
        came(tell, WAY, message.traceparent, message.tracestate)
        try:
            self._teller().post(tell)
        except BaseException as error:
            ended(tell, error)
            self._counted = error
            raise

    def _teller(self) -> IncomingTells:
        """Return the one-way messages of this connection."""
        if self._tells is None:
            rt, waiting = self._rt, self._context.waiting_tells
            sender = self.label, self.principal, self._peer
            self._tells = IncomingTells(rt, self.session, waiting, sender, self)
            self._tells.stands, self._tells.rights = not self._over, self.allows
        return self._tells

    def tell_settled(self) -> None:
        """Note that a one-way message has begun, so that a draining connection can end."""
        if self.draining:
            self.check_end()

    # ---- answers: see `Asker` of the actors

    def answered(self, far: Far, value: Any) -> None:
        """Answer the request with the value."""
        asked = far.asked
        shared = bool(asked.also)
        self._context.open.pop(asked, None)
        try:
            if asked.listening is None:
                ANSWERS[asked.verb.word](self.session, far, value, self._rt.entropy.now)
            else:
                self._accept(asked, far.args[0], value, self._rt.entropy.now())
            if far.watch is not None:
                ended(far, None)
        except AgentError as error:
            ended(far, error)
            self.fail(asked, error)
        except Exception as error:
            ended(far, error)
            self._broken(asked, error)
        if shared or not self._is_alone:
            self._after_answer(shared=shared)

    def failed(self, far: Far, error: Exception) -> None:
        """Answer the request with the error."""
        asked = far.asked
        shared = bool(asked.also)
        self._context.open.pop(asked, None)
        if asked.listening is not None:
            far.args[0].leave()
        if not isinstance(error, AgentUnavailable) or far.again is None or not far.again():
            ended(far, error)
            self.fail(asked, error)
        self._after_answer(shared=shared)

    def waits(self, far: Far) -> None:
        """Report that the run waits for its action's concurrency."""
        self._tell(far, self.session.pending)

    def began(self, far: Far) -> None:
        """Report the run as in progress; an action declared asynchronous is first reported as pending."""
        if self._context.answers_later(far):
            self._tell(far, self.session.pending)
        self._tell(far, self.session.began)
        if far.op.streams:
            self._tell(far, self._begin_inputs)

    def _begin_inputs(self, asked: lmos.IncomingRequest) -> None:
        for stream in (asked.streams or {}).values():
            stream.host.begin(self.session, stream)

    def asks(self, far: Far, question: dict[str, Any] | None) -> None:
        """Report the question to a person that the run waits for; None means that it no longer waits."""
        shown = question and self._context.shown_question(question)
        self._tell(far, lambda asked: self.session.asks(asked, shown))
        self.check_end()

    def reported(self, far: Far, value: Any) -> None:
        """Report the progress of a run to the peer."""
        self._tell(far, lambda asked: self.session.progress(asked, plain(value)))
        self.check_end()

    def _tell(self, far: Far, tell: Callable[[lmos.IncomingRequest], object]) -> None:
        if far.asked.open:
            try:
                tell(far.asked)
            except Exception as error:
                self._context.failed(error)

    def has_room(self, far: Far) -> bool:
        """Return whether an item may be sent now, by the peer's credit and the messages that wait here."""
        if self._over or not far.asked.open:
            return True
        if self.session.room(far.asked) and not self._listeners.is_congested():
            return True
        self._runs_without_room[far] = None
        return False

    def send_item(self, far: Far, item: Any) -> bool:
        """Send an item of a stream; return whether more are wanted. A run without a consumer is ended."""
        asked = far.asked
        if self._over or not asked.open:
            return False
        self._is_alone = self.session.open == 1  # else others may send in this pass, and are sent together
        try:
            wanted = self.session.item(asked, plain(item))
        except Exception as error:
            ended(far, error)
            self._broken(asked, error)
            wanted = False
        finally:
            self._is_alone = False
        if not wanted:
            self._context.withdraw(asked)
        self.check_end()
        if self._is_due:
            self._is_due = False
            self.connection.flush()
        return wanted

    def fail(self, asked: lmos.IncomingRequest, error: Exception) -> None:
        try:
            if isinstance(error, LmosActorsError):
                self.session.fail(asked, self._context.shown(error))
            else:
                self._broken(asked, error)
        except Exception as bug:
            self._context.failed(bug)

    def _broken(self, asked: lmos.IncomingRequest, error: Exception) -> None:
        """Answer with an error for a mistake in this program, or a value that JSON cannot represent."""
        self._context.failed(error)
        try:
            if asked.open:
                self.session.fail(asked, LocalProtocolError("the answer could not be made"))
        except Exception as bug:
            self._context.failed(bug)

    def _accept(self, asked: lmos.IncomingRequest, listener: Listener, value: Any, now: datetime) -> None:
        if asked.verb.word == "observe":
            self._listeners.accept(asked, listener, plain(value), now)
        else:
            self._listeners.accept(asked, listener)

    def _after_answer(self, *, shared: bool) -> None:
        if not self._is_alone:  # else `text` looks at it, in this step
            self.check_end()
        if shared:  # its answer has gone out over other connections too
            self._context.settled()

    # ---- listening

    def _listen(self, asked: lmos.IncomingRequest, link: AgentOrPool, key: str) -> None:
        listener = self._listeners.make(asked, link, key, self._context.exited)
        if key == EXITED or not isinstance(link, Slot):
            self._listeners.accept(asked, listener)
        else:
            self._post(Far(link, link.operation(key), (listener,), self, asked))

    # ---- the end

    def close(self, code: int, reason: str) -> None:
        """Close this connection from this side, and drop all messages that wait to be sent."""
        self.end()
        self.connection.close(code, reason)

    def _give_up(self) -> None:
        self.close(TOO_SLOW, "too slow: too much waits to be sent")

    def end(self) -> None:
        """Take note that the connection has ended: withdraw its requests, except those that go on
        (`ServerContext.goes_on`)."""
        if self._over:
            return
        self._over = True
        if self._expiry is not None:
            self._expiry.cancel()
        if self._tells is not None:
            self._tells.close(is_spent=self._is_spent)
        left = self.session.closed(self._context.goes_on)
        for one in left:
            if isinstance(one, lmos.IncomingRequest):
                self._context.withdraw(one, is_cut_off=True)
        self._listeners.close()
        for far in tuple(self._runs_without_room):
            far.go_on()
        self._runs_without_room.clear()

    def check_end(self) -> None:
        """End the connection if the peer is too slow, or if it drains and nothing is open."""
        if self._over or self._giving_up:
            return  # everything held is released at once
        held = self.session.held
        if held not in self._near:
            self._charge(held)
        if self.session.outbox.full:
            # not at once: a turn of an agent may be running, whose other messages are to be withdrawn
            self._giving_up = True
            self._rt.timers.call_at(trio.current_time(), self._give_up)
        elif self.draining:
            counts = self.session.statistics()
            if not (counts.open or (counts.listening and not self._context.finishing)):
                self.session.give_credit()  # what is then neither credited nor failed was not taken
                self.connection.close(RESTARTING, "the node is shutting down")

    def _charge(self, held: int) -> None:
        """Charge the bytes that the session holds, in steps, so that few requests change the charge."""
        step = max(1024, held // 8)
        # the next step above the held bytes: else each further request would be charged anew
        charged = 0 if held < SMALL else (held // step + 1) * step
        more, self._charged = charged - self._charged, charged
        self._near = range(max(SMALL, charged - STEP), charged + 1) if charged else UNCHARGED
        self.connection.account.charge(more)

    def overdrawn(self) -> None:
        """End the connection soon, because all peers together hold too much, and this one holds most."""
        if not (self._over or self._giving_up):
            self._giving_up = self._is_spent = True
            self._rt.timers.call_at(trio.current_time(), self.end)  # as in `check_end`
