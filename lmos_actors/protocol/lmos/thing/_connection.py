"""The state of one connection at a thing: open requests, and the path of final answers.

Every request ends exactly once, in `settle`. There it is removed from the table of open requests and its
answer is sent, and the memory of the peer keeps the answer if the request had an effect. All answers are
encoded before anything else changes, so a value without a JSON form raises while the request is still open
and answerable.

Several connections of one peer may wait for a run: the connection that asked for it first
(`request.connection`), and the connections over which the same request came again (`request.also`), after a
reconnect for example. The final answer goes to all that are still open. So `settle` is called on the first
connection, and also changes the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lmos_actors._core import weight as weight_of
from lmos_actors.errors import ActionCancelled, ActionFailed, MailboxFull

from .._codec import Codec
from .._dialects import Dialect
from .._limits import REQUEST, Limits
from .._messages import (
    Acknowledgement,
    ActionStatus,
    CancelAction,
    Error,
    InvokeAction,
    QueryAction,
    TellCredit,
    TellWindow,
)
from .._outbox import Outbox
from .._peer import correlation_of
from .._problems import INTERNAL, Problem, error_message, kotlin_problem_of, problem_of
from .._tells import FIRST, ReceivedTells, size_of
from ._answers import ANSWERED, BRIEF, RememberedAnswer, compacted, restored
from ._requests import VERBS, IncomingRequest, Listening, State
from ._streams import ThingStreams
from ._tables import FrameCounts, ListeningTable, Runs, ThingStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.errors import LmosActorsError

    from .._messages import Base, Credit, Message
    from .._peer import SessionOptions
    from .._tells import CreditGrants
    from ._answers import AnswerMemory

_ABOUT_RUNS: Final = (QueryAction, CancelAction)


class ThingConnection:
    """One connection: its dialect, codec, outbox and tables. It opens requests and sends final answers."""

    def __init__(
        self,
        offered: bool,
        new_id: Callable[[], str],
        options: SessionOptions,
        memory: AnswerMemory | None,
        wake: Callable[[], object] | None,
        thing: str | None,
        grants: CreditGrants | None = None,
    ) -> None:
        self.options = options
        self.new_id = new_id
        self.memory = memory if "retries" in options.offers else None
        self.dialect = Dialect.of_thing(offered)
        self.codec = Codec(self.dialect, Limits(max_bytes=options.max_bytes, strict=options.strict), thing)
        self.encode = self.codec.encode
        self.outbox = Outbox(
            self.encode,
            wake=wake,
            max_waiting=options.max_waiting,
            max_bytes=options.max_waiting_bytes,
            max_frame=options.max_bytes,
        )
        self.streams = ThingStreams(
            encode=self.encode,
            new_id=new_id,
            window=options.credit,
            max_frame=options.max_bytes,
            max_open=options.max_streams,
        )
        self.open: dict[IncomingRequest, str] = {}  # with the correlation of the answer on this connection
        self.open_bytes = self.open_weight = 0
        self._tells: ReceivedTells | None = None
        self.tells_weight = 0
        self.grants = grants
        self.listenings = ListeningTable()
        bound = None if memory is None else memory.bound
        self.runs = Runs(options.remembered_runs, options.max_bytes, bound)
        self.counts = FrameCounts()
        self.over = False

    @property
    def kotlin(self) -> bool:
        """Whether the peer has the habits of kotlin-wot."""
        return self.dialect.habits == "kotlin-wot"

    # ---- requests that are opened

    def repeated(self, message: Base, known: IncomingRequest | RememberedAnswer) -> None:
        """Answer a repeated request from memory, or join it to the same request that is being carried out."""
        if isinstance(known, RememberedAnswer):
            self._send_again(known, message)
        elif known in self.open:
            self.counts.merged += 1
        elif self.has_room(message):
            known.also = (*known.also, self)
            self.admit(known, correlation_of(message))

    def _send_again(self, known: RememberedAnswer, message: Base) -> None:
        final = self._final_for_peer(known.final, correlation_of(message))
        frame = self.encode(final)
        self.outbox.put_frame(frame)
        self.counts.answered += 1
        if isinstance(message, InvokeAction):
            self.runs.keep(message, correlation_of(message), _compact_if_long(final, frame), len(frame))

    def has_room(self, message: Base) -> bool:
        """Return whether one more request may be open. If not, refuse the message."""
        held = self.open_bytes + self.listenings.bytes
        if len(self.open) < self.options.max_open and held < self.options.max_open_bytes:
            return True
        self.refuse(message, MailboxFull(message.thing_id, self.options.max_open))
        return False

    def draft(
        self, message: Base, text: str | bytes = "", listening: Listening | None = None
    ) -> IncomingRequest:
        """Return a new request that is not open yet; `text` is the frame that contained it."""
        size = len(text)
        # In 512 characters there are too few objects to be counted. Objects count twice: they are there as
        # they were read, and once more as the agent takes them.
        weight = size + REQUEST + (2 * weight_of(text) if size > 512 else 0)
        correlation = message.correlation_id or message.message_id  # as `correlation_of`, without the call
        verb = VERBS[type(message)]
        return IncomingRequest(message, verb, correlation, size, weight, self, listening=listening)

    def admit(self, request: IncomingRequest, correlation: str) -> None:
        """Open a request, whose answer on this connection will have this `correlation`."""
        self.open[request] = correlation
        self.open_bytes += request.size
        self.open_weight += request.weight
        if isinstance(request.message, InvokeAction):
            self.runs.begin(request)

    # ---- one-way messages

    @property
    def tells(self) -> ReceivedTells:
        """The state of one-way messages, made on first use because most connections have none."""
        tells = self._tells
        if tells is None:
            tells = self._tells = ReceivedTells()
            if self.grants is not None:
                self.grants.on_shortage(self.lower_window)
        return tells

    @property
    def tell_credit(self) -> tuple[Credit, Credit] | None:
        """The window of one-way messages and its spent part, None before the first message."""
        return None if self._tells is None else (self._tells.window, self._tells.spent)

    @property
    def waiting_tells(self) -> int:
        """The number of one-way messages that have neither begun nor been refused."""
        return 0 if self._tells is None else self._tells.waiting

    @property
    def owes_credit(self) -> bool:
        """Whether there is credit of one-way messages that has not been returned yet."""
        return self._tells is not None and self._tells.owes

    def tell_begun(self, request: IncomingRequest) -> None:
        """Record that a one-way message has begun, or ended without an error, and return its credit."""
        if request.open and not self.over:
            self.counts.answered += 1
            self.tells_weight -= request.weight
            if self.tells.begin(request.message.thing_id, request.message.tell, request.size):
                self.give_credit()
        request.state = State.ANSWERED

    def tell_refused(self, request: IncomingRequest, error: LmosActorsError) -> None:
        """Refuse a one-way message that does not begin. The error also returns its credit."""
        if request.open and not self.over:
            self.counts.answered += 1
            self.tells_weight -= request.weight
            self.tells.refused(request.message.thing_id, request.size)
            self.outbox.put(self.error(request.thing_id, error, request.correlation))
        request.state = State.ANSWERED

    def give_credit(self) -> None:
        """Return to the peer all credit of one-way messages that have begun."""
        if self.over or not self.owes_credit:
            return
        begun = self.tells.due()
        message = TellCredit(thing_id=self.tells.thing, message_id=self.new_id(), begun=begun)
        self.outbox.put(message)

    def raise_window(self) -> None:
        """Allow the peer to send more one-way messages ahead, if memory is granted for them."""
        wider = self.tells.wider()
        if wider is None:
            return
        if self.grants is None or self.grants.grant(self.tells.size_of(wider, self.tells_weight)):
            self.tells.widen(wider)
            self._tell_window(wider)

    def lower_window(self) -> bool:
        """Ask the peer to give up unused credit of one-way messages; return whether there is any."""
        narrower = None if self.over else self.tells.narrow()
        if narrower is None:
            return False
        self.give_credit()
        self._tell_window(narrower)
        return True

    def confirm_window(self, window: Credit) -> None:
        """Apply a lower window that the peer has confirmed, and release the memory granted beyond it."""
        if self.tells.confirm(window) and self.grants is not None:
            self.grants.grant(0 if window == FIRST else size_of(window))

    def _tell_window(self, window: Credit) -> None:
        new_id, thing = self.new_id(), self.tells.thing
        self.outbox.put(
            TellWindow(thing_id=thing, message_id=new_id, messages=window.items, bytes=window.bytes)
        )

    # ---- answers

    def refuse(self, message: Base, error: LmosActorsError | Problem) -> None:
        """Refuse a message without involving the host."""
        about_run = isinstance(message, _ABOUT_RUNS)
        correlation = message.message_id if about_run and self.kotlin else correlation_of(message)
        in_reply_to = message.message_id if about_run else None
        self.outbox.put(self.error(message.thing_id, error, correlation, in_reply_to))
        self.counts.refused += 1

    def error(
        self,
        thing_id: str,
        error: BaseException | Problem,
        correlation: str | None,
        in_reply_to: str | None = None,
    ) -> Error:
        """Return an `error` message in the peer's habits."""
        to_problem = kotlin_problem_of if self.kotlin else problem_of
        return error_message(
            error if isinstance(error, Problem) else to_problem(error),
            thing_id=thing_id,
            message_id=self.new_id(),
            instance_id=self.new_id(),
            correlation_id=correlation,
            in_reply_to=in_reply_to,
        )

    def acknowledge(self, message: Any, correlation: str) -> Acknowledgement | None:
        """Return the acknowledgement of a message, None if this peer gets none."""
        options = self.options
        if not (self.kotlin or options.acks or (message.ack and "acks" in options.offers)):
            return None
        return Acknowledgement(
            thing_id=message.thing_id,
            message_id=self.new_id(),
            correlation_id=correlation,
            message=self.dialect.literal(message),
        )

    def request_of(self, message: QueryAction) -> IncomingRequest | None:
        """Return the open request that a query names by its id, None if there is none."""
        wanted = message.correlation_id, message.thing_id
        return next((one for one in self.open if (one.message.message_id, one.thing_id) == wanted), None)

    def status(self, request: IncomingRequest, status: str, **members: Any) -> ActionStatus:
        """Return a status of a run, with the correlation that it has on this connection."""
        return ActionStatus(
            thing_id=request.thing_id,
            message_id=self.new_id(),
            correlation_id=self.open.get(request, request.correlation),
            action=request.name,
            status=status,
            **members,
        )

    def readdressed(self, final: Any, correlation: str, in_reply_to: str | None = None) -> Any:
        """Return a copy of a final answer, as the answer to another request."""
        final = restored(final)
        changed: dict[str, Any] = {"message_id": self.new_id(), "correlation_id": correlation}
        if isinstance(final, ActionStatus | Error):
            changed["in_reply_to"] = in_reply_to
        return replace(final, **changed)

    def _final_for_peer(self, final: Any, correlation: str, in_reply_to: str | None = None) -> Any:
        """Return a copy of a final answer in the form of the peer's habits.

        For kotlin-wot a failed status becomes an error, because its client takes any status as success.
        """
        if not self.kotlin or not isinstance(final, ActionStatus) or final.status != "failed":
            return self.readdressed(final, correlation, in_reply_to)
        final = restored(final)
        error = ActionCancelled(final.reason) if final.cancelled else ActionFailed(final.output)
        return self.error(final.thing_id, error, correlation)

    def settle(
        self,
        request: IncomingRequest,
        final: Message | None,
        *,
        state: State = State.ANSWERED,
        completed: bool = False,
        checked: bool = False,
        reply: tuple[ThingConnection, str] | None = None,
    ) -> bool:
        """End a request that was first received here with its final answer; None is a success without a
        message.

        With `completed` the request's streams end normally. For `checked` see `Encode`. `reply` names a
        connection and a cancel received on it, which this answers as well. Return False if the answer is too
        long; then an error has been sent in its place.
        """
        # what cannot be made or encoded raises before all else
        answer, frame = self._answer(request, final, reply, checked)
        others = (
            [(connection, *connection._answer(request, final, reply, checked)) for connection in request.also]
            if request.also
            else ()
        )
        request.state = state
        if request.streams is not None or request.out is not None:
            if completed:
                for ending in self.streams.complete(request):
                    self.put_frame(ending)
            else:
                self.streams.drop(request)
        fits = not isinstance(answer, Error) or isinstance(final, Error)
        if request.remembered and self.memory is not None and final is not None:
            to_cancel = reply is not None and reply[0] is self  # then this connection gets another one
            kept = (
                answer if answer is not None and not (fits and to_cancel) else _compact_if_long(final, frame)
            )
            self.memory.settle(request, kept, request.size + len(frame))
        self._send_answer(request, answer, frame)
        for connection, *theirs in others:
            connection._send_answer(request, *theirs)
        request.also = ()
        return fits

    def put_frame(self, frame: bytes) -> None:
        """Send an encoded frame, unless the connection is over."""
        if not self.over:
            self.outbox.put_frame(frame)

    def _answer(
        self,
        request: IncomingRequest,
        final: Message | None,
        reply: tuple[ThingConnection, str] | None,
        checked: bool,
    ) -> tuple[Message | None, bytes]:
        """Return a final answer in the form that this connection keeps, and its text."""
        if final is None:
            return None, b""
        in_reply_to = reply[1] if reply is not None and reply[0] is self else None
        answer: Message = final
        if request.connection is not self or in_reply_to is not None:
            answer = self._final_for_peer(final, self.open.get(request, request.correlation), in_reply_to)
        frame = self.encode(answer, checked)
        most = self.options.max_bytes
        if len(frame) > most:
            # the peer would close the connection over it, and every other request would be lost
            detail = f"the answer has {len(frame)} bytes, {most} is the most"
            problem = Problem(
                type=INTERNAL, title="Internal Server Error", status=500, detail=detail, started=True
            )
            answer = self.error(request.thing_id, problem, answer.correlation_id, in_reply_to)
            frame = self.encode(answer)
        return (answer if len(frame) <= BRIEF else _compact_if_long(answer, frame)), frame

    def _send_answer(self, request: IncomingRequest, answer: Message | None, frame: bytes) -> None:
        correlation = self.open.pop(request, None)
        if correlation is None:
            return  # this connection is over
        self.open_bytes -= request.size
        self.open_weight -= request.weight
        self.counts.answered += 1
        if answer is None:
            return
        self.outbox.put_frame(frame)
        if isinstance(request.message, InvokeAction):
            self.runs.keep(request.message, correlation, answer, len(frame), request)

    # ---- the end

    def forget(self, listening: Listening) -> None:
        """End a listening, and drop its reading that still waits to be sent."""
        self.listenings.remove(listening)
        self.outbox.drop(listening.slot)

    def close(self, keep: Callable[[IncomingRequest], bool]) -> tuple[IncomingRequest | Listening, ...]:
        """End the connection; return the requests and listenings that no other connection needs."""
        left: list[IncomingRequest] = []
        for request in self.open:
            request.also = tuple(connection for connection in request.also if connection is not self)
            began_elsewhere = request.connection is not self and not request.connection.over
            if not request.also and not began_elsewhere and not keep(request):
                left.append(request)
        for request in left:
            request.state = State.WITHDRAWN
            if self.memory is not None:
                self.memory.forget(request)
        listenings = self.listenings.all()
        for one in listenings:
            self.listenings.remove(one)
        self.counts.abandoned += len(self.open) + self.waiting_tells
        self._tells = None
        self.tells_weight = 0
        self.open.clear()
        self.open_bytes = self.open_weight = 0
        self.streams.close()
        self.outbox.clear()
        self.runs.close()
        self.over = True
        return (*left, *(one for one in listenings if one.active))

    def statistics(self) -> ThingStatistics:
        """Return a snapshot of the counters."""
        counts = self.counts
        return ThingStatistics(
            received=counts.received,
            answered=counts.answered,
            refused=counts.refused,
            merged=counts.merged,
            abandoned=counts.abandoned,
            streamed=counts.streamed,
            strays=counts.strays,
            unreadable=counts.unreadable,
            open=len(self.open) + self.waiting_tells,
            listening=len(self.listenings),
            remembered=len(self.runs),
            streams=len(self.streams),
            late=self.streams.ignored,
            waiting=len(self.outbox),
            waiting_bytes=self.outbox.bytes,
        )


def _compact_if_long(final: Any, frame: bytes) -> Any:
    """Return a final answer as it is kept: a long one as JSON text, which all tables share."""
    return final if len(frame) <= BRIEF else compacted(final, ANSWERED, order=None)
