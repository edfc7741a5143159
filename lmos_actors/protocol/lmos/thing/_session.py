"""The thing's session: the server's end of one LMOS connection. No I/O, no clock, no randomness.

`receive` returns demands, in order: requests to carry out, runs and listenings to end, or a `Close`. The host
meets them when it can, with the answering methods, and sends the frames that `frames` returns. Every request
ends exactly once: by a final answer, by the peer's cancel, or with the connection (`closed`). The session
never cancels a run itself: it demands this, and the host does it.

Every method takes constant time, except the search for a run that a peer does not name by its id, which takes
`max_open` steps at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.errors import LocalProtocolError

from .._limits import FINITE, REQUEST
from .._messages import (
    Credit,
    Event,
    Gap,
    InvokeAction,
    PropertyReading,
    PropertyReadings,
    ReadProperty,
    WriteProperty,
)
from .._outbox import within
from .._peer import SessionOptions
from .._times import in_utc
from ._connection import ThingConnection
from ._receiver import Receiver
from ._requests import EVENT, OPEN, PROPERTY, IncomingRequest, Listening, State, WaitsAsked
from ._runs import (
    complete,
    end,
    has_room,
    put_item,
    send_began,
    send_pending,
    send_progress,
    send_question,
    tell_waits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lmos_actors.errors import LmosActorsError

    from .._outbox import Sendable
    from .._streams import Incoming
    from .._tells import CreditGrants
    from ._answers import AnswerMemory
    from ._receiver import Demand
    from ._tables import ThingStatistics


class ThingSession:
    """One connection of a consumer, on the side of the things.

    No message of a peer makes a method raise. A call that breaks the rules raises LocalProtocolError. A call
    that comes too late (the peer has cancelled, or has disconnected) is ignored.
    """

    def __init__(
        self,
        *,
        offered: bool,
        new_id: Callable[[], str],
        options: SessionOptions | None = None,
        memory: AnswerMemory | None = None,
        wake: Callable[[], object] | None = None,
        thing: str | None = None,
        grants: CreditGrants | None = None,
    ) -> None:
        """Begin the session. `offered` is whether the peer offered `lmosprotocol`.

        `new_id` returns a new UUID as text, and never raises. `memory` is the peer's memory, shared by its
        connections; without it a repeat is carried out again.

        `wake` is called from within a method when a frame is added to an empty outbox, perhaps by an answer
        that was given on another connection of the peer. It must not call the session. `thing` is the thing
        for messages whose `thingID` is absent or empty; with None they are refused. `grants` decides how many
        one-way messages the peer may send ahead; None allows the maximum.
        """
        options = SessionOptions() if options is None else options
        self._connection = ThingConnection(offered, new_id, options, memory, wake, thing, grants)
        self._receiver = Receiver(self._connection)
        self.outbox = self._connection.outbox
        """The frames that wait to be sent; `frames` takes from it."""

    @property
    def held(self) -> int:
        """The approximate memory in bytes that the peer's requests, items, listenings and answers take."""
        connection, listenings = self._connection, self._connection.listenings
        listened = listenings.bytes + listenings.count * REQUEST
        asked = connection.open_weight + connection.tells_weight + connection.streams.held
        return asked + listened + self.outbox.bytes

    @property
    def habits(self) -> str:
        """The habits of the peer as far as they are known: `spec` or `kotlin-wot`."""
        return self._connection.dialect.habits

    # ---- what comes in

    def receive(self, text: str | bytes, now: float) -> tuple[Demand, ...]:
        """Process a text frame; return the demands, in order. `now` is in seconds, never less than before.

        Frames after a `Close` or `closed` are ignored.
        """
        return self._receiver.take_text(text, now)

    def receive_binary(self, data: bytes) -> tuple[Demand, ...]:
        """Process a binary frame; return the demands: a `Close` if it has another format."""
        return self._receiver.take_binary(data)

    # ---- answers

    def answer(self, request: IncomingRequest, value: Any, at: datetime) -> None:
        """Answer a read or write with the value, or, for several properties, with their values by name.

        `at` is when they were read. Raise LocalProtocolError if it has no time zone.
        """
        if not self._expect(request, "answer"):
            return
        make = _one if isinstance(request.message, ReadProperty | WriteProperty) else _many
        self._connection.settle(request, make(request, value, at))

    def accept(self, request: IncomingRequest, value: Any = UNSET, at: datetime | None = None) -> Listening:
        """Accept an observe, with the current `value` and its time, or a subscribe.

        Return the listening, for `reading` or `event`. It has already `ended` if the peer has ended it
        meanwhile, or if the value is longer than a message may be.
        """
        listening = request.listening
        is_wanted = self._expect(request, "accept")
        if listening is None:
            raise LocalProtocolError("there is nothing to listen to")
        if not is_wanted:
            return listening
        if listening.kind != PROPERTY:
            self._connection.settle(
                request, self._connection.acknowledge(request.message, request.correlation)
            )
        elif value is UNSET or at is None:
            raise LocalProtocolError("an observation is accepted with a value and its time")
        elif not self._connection.settle(request, _one(request, value, at)):
            self._connection.forget(listening)
        listening.active = not listening.ended
        return listening

    def pending(self, request: IncomingRequest) -> None:
        """Report that a run is waiting to begin, or that its action answers before the result is ready."""
        if self._expect(request, "pending"):
            send_pending(request)

    def began(self, request: IncomingRequest) -> None:
        """Report that a run has begun. Only peers that were sent `pending` get a message."""
        if self._expect(request, "began"):
            send_began(request)

    def progress(self, request: IncomingRequest, value: Any) -> None:
        """Report the progress of a run. It replaces older progress that is still waiting to be sent.

        Raise LocalProtocolError for a value without a JSON form, or longer than a message may be.
        """
        if self._expect(request, "progress"):
            send_progress(request, value)

    def asks(self, request: IncomingRequest, question: dict[str, Any] | None) -> None:
        """Report a run's question to a person, as plain data, or None once the run no longer waits."""
        if self._expect(request, "asks"):
            send_question(request, question)

    def room(self, request: IncomingRequest) -> bool:
        """Return whether an item may be sent now. If not, `CreditArrived` follows when there is room."""
        return not request.open or has_room(request)

    def item(self, request: IncomingRequest, output: Any) -> bool:
        """Send an item of the answer; bytes go in a binary frame if the peer accepts binary frames.

        Return False if no more items are wanted: the run has ended, or has sent more than its peer can take.
        Raise LocalProtocolError if there is no `room`, and for an item that is longer than a message may be.
        """
        return self._expect(request, "item") and put_item(request, output)

    def complete(self, request: IncomingRequest, output: Any = UNSET) -> None:
        """End a run that has succeeded, with its output, or without one after items."""
        # what `_expect` asks, without its calls: nearly every run ends so
        is_ours = request.connection is self._connection and "complete" in request.verb.answers
        if (is_ours and request.state in OPEN) or self._expect(request, "complete"):
            complete(request, output)

    def tell_waits(self, asked: WaitsAsked, waits: dict[str, Any]) -> None:
        """Answer a query with what its run waits for, as plain data."""
        if not self._connection.over:
            tell_waits(self._connection, asked, waits)

    def fail(self, request: IncomingRequest, error: LmosActorsError) -> None:
        """Answer any request with an error: ActionFailed and ActionCancelled end a run."""
        if request.tell is not None:
            self._check_ours(request)
            self._connection.tell_refused(request, error)
            return
        if not self._expect(request, "fail"):
            return
        if request.listening is not None:
            self._connection.forget(request.listening)
        if isinstance(request.message, InvokeAction):
            end(request, error)
        else:
            self._connection.settle(
                request, self._connection.error(request.thing_id, error, request.correlation)
            )

    def _expect(self, request: IncomingRequest, answer: str) -> bool:
        """Return whether a request still needs this answer. Raise LocalProtocolError if it is forbidden."""
        self._check_ours(request)
        if answer not in request.verb.answers:
            raise LocalProtocolError(f"{answer!r} does not answer {request.verb.word!r}")
        if request.state is State.ANSWERED:
            raise LocalProtocolError(f"this {request.verb.word!r} has its final answer")
        return request.open

    # ---- one-way messages

    def tell_begun(self, request: IncomingRequest) -> None:
        """Record that a one-way message has begun, so that its credit is returned. It has no other answer."""
        self._check_ours(request)
        self._connection.tell_begun(request)

    @property
    def owes_credit(self) -> bool:
        """Whether there is credit of one-way messages that has not been returned yet."""
        return self._connection.owes_credit

    def give_credit(self) -> None:
        """Return all credit of begun one-way messages at once, instead of in steps of half a window."""
        self._connection.give_credit()

    def _check_ours(self, request: IncomingRequest) -> None:
        if request.connection is not self._connection:
            raise LocalProtocolError("this was asked on another connection")

    # ---- listenings

    def reading(self, listening: Listening, value: Any, at: datetime) -> None:
        """Deliver a new value of an observed property, in place of an older value that is still waiting.

        Raise LocalProtocolError for a value that is longer than a message may be.
        """
        if listening.kind != PROPERTY:
            raise LocalProtocolError("readings are for observations")
        if not self._delivers(listening):
            return
        connection = self._connection
        message = PropertyReading(
            thing_id=listening.thing_id,
            message_id=connection.new_id(),
            correlation_id=None if connection.kotlin else listening.correlation,
            name=listening.name,
            value=value,
            timestamp=_instant(at),
        )
        connection.outbox.put_latest(listening.slot, message)

    def withdraw_reading(self, listening: Listening) -> None:
        """Drop a reading that is waiting to be sent, because a newer one will follow."""
        self._connection.outbox.drop(listening.slot)

    def event(
        self,
        listening: Listening,
        name: str,
        data: Any,
        at: datetime,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> None:
        """Deliver an event, with the trace in which it was emitted if there is one.

        Raise LocalProtocolError for an event that is longer than a message may be.
        """
        if listening.kind == PROPERTY:
            raise LocalProtocolError("events are for subscriptions")
        if listening.kind == EVENT and name != listening.name:
            raise LocalProtocolError(f"event {name!r} goes to a subscription to {listening.name!r}")
        if not self._delivers(listening):
            return
        message = Event(
            thing_id=listening.thing_id,
            message_id=self._connection.new_id(),
            correlation_id=listening.correlation,
            event=name,
            data=data,
            timestamp=_instant(at),
            traceparent=traceparent,
            tracestate=tracestate,
        )
        connection = self._connection
        frame = connection.encode(message, type(data) in FINITE)
        connection.outbox.put_frame(within(frame, connection.options.max_bytes))

    def gap(self, listening: Listening, reason: str, missed: int | None = None) -> None:
        """Report to a peer that asked for gaps that values are missing here."""
        connection = self._connection
        wanted = listening.message.gaps and "gaps" in connection.options.offers and not connection.kotlin
        if not self._delivers(listening) or not wanted:
            return
        listening.slot = object()  # what comes after must not take the place of what waits before
        message = Gap(
            thing_id=listening.thing_id,
            message_id=connection.new_id(),
            correlation_id=listening.correlation,
            reason=reason,
            missed=missed,
        )
        connection.outbox.put(message)

    def end(self, listening: Listening, error: LmosActorsError) -> None:
        """End a listening with an error from this side."""
        if self._delivers(listening):
            self._connection.listenings.remove(listening)
            self._connection.outbox.put(
                self._connection.error(listening.thing_id, error, listening.correlation)
            )

    def _delivers(self, listening: Listening) -> bool:
        if listening.connection is not self._connection:
            raise LocalProtocolError("this is listened to on another connection")
        if not listening.active and not listening.ended:
            raise LocalProtocolError("this listening has not been accepted")
        return not listening.ended

    # ---- input streams

    def ready(self, stream: Incoming) -> None:
        """Send the first credit of an input stream. The peer may send items from now on."""
        self._put(self._connection.streams.ready(stream))

    def consumed(self, stream: Incoming) -> None:
        """Count an input stream's oldest item as consumed. Its credit returns in steps of half a window."""
        self._put(self._connection.streams.consumed(stream))

    def stop(self, stream: Incoming, reason: str) -> None:
        """Refuse more items of an input stream. The run continues."""
        self._put(self._connection.streams.stop(stream, reason))

    def _put(self, frame: bytes | None) -> None:
        if frame is not None:
            self._connection.put_frame(frame)

    # ---- what goes out, and the end

    def frames(self, room: int = 65_536) -> list[Sendable]:
        """Remove and return frames to send, oldest first, until they have `room` bytes.

        At least one frame is returned if any is waiting. `Binary` objects are sent as binary frames, other
        bytes as text.
        """
        return self._connection.outbox.take(room)

    @property
    def full(self) -> bool:
        """Whether too much waits to be sent: the peer reads too slowly, so the connection should close."""
        return self.outbox.full

    @property
    def open(self) -> int:
        """The number of requests that wait for their answers."""
        return len(self._connection.open)

    @property
    def waiting(self) -> int:
        """The number of frames that wait to be sent."""
        return len(self._connection.outbox)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the frames that wait to be sent."""
        return self._connection.outbox.bytes

    def closed(
        self, keep: Callable[[IncomingRequest], bool] | None = None
    ) -> tuple[IncomingRequest | Listening, ...]:
        """End the session with its connection. Return open requests, then listenings: the host must end them.

        A request is not among them if `keep` is true for it, or if the peer has sent it again on another
        connection. It continues, and its answer goes to the memory and to those other connections. Answers to
        all other requests are ignored.
        """
        if self._connection.over:
            return ()
        self._receiver.closing = True
        return self._connection.close(_none_kept if keep is None else keep)

    @property
    def tell_credit(self) -> tuple[Credit, Credit] | None:
        """The window of the peer's one-way messages and its spent part, None before the first message."""
        return self._connection.tell_credit

    def statistics(self) -> ThingStatistics:
        """Return a snapshot of the counters."""
        return self._connection.statistics()


def _none_kept(_: IncomingRequest) -> bool:
    return False


def _one(request: IncomingRequest, value: Any, at: datetime) -> PropertyReading:
    return PropertyReading(
        thing_id=request.thing_id,
        message_id=request.connection.new_id(),
        correlation_id=request.correlation,
        name=request.name,
        value=value,
        timestamp=_instant(at),
    )


def _many(request: IncomingRequest, value: dict[str, Any], at: datetime) -> PropertyReadings:
    return PropertyReadings(
        thing_id=request.thing_id,
        message_id=request.connection.new_id(),
        correlation_id=request.correlation,
        data=value,
        timestamp=_instant(at),
    )


def _instant(at: datetime) -> datetime:
    try:
        return in_utc(at)
    except ValueError as error:
        raise LocalProtocolError(f"{at}: {error}") from None
