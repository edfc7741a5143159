"""Incoming frames at a thing: `_HANDLERS` names the method for every type of message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmos_actors.errors import InvalidInput, LmosActorsError, MailboxFull

from .._codec import Unreadable
from .._dialects import message_type, unsupported
from .._frames import BadFrame
from .._messages import (
    MESSAGES,
    Acknowledgement,
    CancelAction,
    Credit,
    Error,
    InvokeAction,
    QueryAction,
    StreamCredit,
    StreamEnd,
    StreamItem,
    TellWindow,
    UnobserveProperty,
    UnsubscribeAllEvents,
    UnsubscribeEvent,
)
from .._peer import NO_THING, TOO_BIG, UNREADABLE_DATA, Close, correlation_of
from .._streams import CreditArrived, ItemArrived, StreamFinished, StreamStopped, StreamViolation, wire_size
from ._requests import (
    LISTENED,
    VERBS,
    IncomingRequest,
    Listening,
    ListeningEnded,
    RequestWithdrawn,
    State,
    WaitsAsked,
)
from ._runs import answer_query, cancel, end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._connection import ThingConnection

Demand: TypeAlias = (
    IncomingRequest
    | RequestWithdrawn
    | ListeningEnded
    | ItemArrived
    | StreamFinished
    | CreditArrived
    | StreamStopped
    | WaitsAsked
    | Close
)
"""A demand of a session on its host, as `ThingSession.receive` returns it."""

Demands: TypeAlias = tuple[Demand, ...]

_NEVER_ANSWERED: Final = (Error, Acknowledgement)
"""Types of messages that get no error in answer: two ends that answer each other's errors never stop."""


class Receiver:
    """A reader of frames, which turns them into demands on the host and answers that need no host."""

    def __init__(self, connection: ThingConnection) -> None:
        self._connection = connection
        self.closing = False

    def take_text(self, text: str | bytes, now: float) -> Demands:
        """Handle a text frame, and return the demands on the host."""
        if self.closing:
            return ()
        connection = self._connection
        message = connection.codec.decode(text)
        demands = _HANDLERS[type(message)](self, message, text, now)
        connection.counts.received += 1
        return demands

    def take_binary(self, data: bytes) -> Demands:
        """Handle a binary frame, and return the demands on the host."""
        if self.closing:
            return ()
        connection = self._connection
        connection.counts.received += 1
        if len(data) > connection.options.max_bytes:
            return self._close(TOO_BIG, f"a frame has {connection.options.max_bytes} bytes at most")
        if "streams" not in connection.options.offers:
            return self._close(UNREADABLE_DATA, "text frames only")
        news = connection.streams.take_frame(data)
        if isinstance(news, BadFrame):
            return self._close(UNREADABLE_DATA, news.detail)
        connection.counts.streamed += 1
        return self._news(news)

    def _close(self, code: int, reason: str) -> Demands:
        self._connection.counts.unreadable += 1
        self.closing = True
        return (Close(code, reason),)

    def _take_tell(self, message: InvokeAction, number: int, text: str | bytes) -> Demands:
        """Process a one-way message with a number."""
        connection = self._connection
        size, tells = wire_size(text), connection.tells
        wrong = tells.arrive(message.thing_id, number, size)
        if wrong is not None:
            connection.refuse(message, wrong)
            return ()
        request = connection.draft(message, text)
        request.size, request.tell = size, number
        connection.tells_weight += request.weight
        if tells.is_tight:
            connection.raise_window()
        return (request,)

    def take_window(self, message: TellWindow, _text: object, _now: float) -> Demands:
        """Process the confirmation of a lower window for one-way messages."""
        connection = self._connection
        if connection.kotlin or "tells" not in connection.options.offers:
            return self._unsupported(message)
        connection.confirm_window(Credit(items=message.messages, bytes=message.bytes))
        connection.counts.streamed += 1
        return ()

    def take_ask(self, message: Any, text: str | bytes, now: float) -> Demands:
        """Open a request for the host, unless it is a repeat, exceeds a limit, or is a one-way message."""
        connection, streams = self._connection, False
        if type(message) is InvokeAction:
            number = message.tell
            if number is not None and not connection.kotlin and "tells" in connection.options.offers:
                return self._take_tell(message, number, text)
            streams = message.streams is not None or message.credit is not None or message.binary
        memory = None if streams or not VERBS[type(message)].has_effect else connection.memory
        known = None if memory is None else memory.find(message, now)
        if known is not None:
            connection.repeated(message, known)
            return ()
        if not connection.has_room(message):
            return ()
        request = connection.draft(message, text)
        if streams:
            wrong = self._open_streams(request)
            if wrong is not None:
                connection.refuse(message, wrong)
                return ()
        connection.admit(request, request.correlation)
        if memory is not None:
            memory.begin(request)
        return (request,)

    def _open_streams(self, request: IncomingRequest) -> LmosActorsError | None:
        """Open the streams of an invocation; return an error if they are refused."""
        connection, message = self._connection, request.message
        offered = "streams" in connection.options.offers
        if message.streams and not offered:
            return InvalidInput("streams are not supported here", "$.streams")
        if message.streams:
            opened = connection.streams.accept(request, message.streams)
            if isinstance(opened, LmosActorsError):
                return opened
            request.streams = opened
        if offered and not connection.kotlin:
            request.out = connection.streams.answer(request, message.credit, binary=message.binary)
        return None

    def take_listen(self, message: Any, text: str | bytes, _now: float) -> Demands:
        """Open a request for a listening, which replaces an older listening to the same source."""
        connection = self._connection
        if not connection.has_room(message):
            return ()
        before = connection.listenings.get(message)
        if before is None and len(connection.listenings) >= connection.options.max_listening:
            connection.refuse(message, MailboxFull(message.thing_id, connection.options.max_listening))
            return ()
        if before is not None:
            connection.forget(before)
        listening = Listening(
            message, LISTENED[type(message)], correlation_of(message), connection, len(text)
        )
        connection.listenings.add(listening)
        request = connection.draft(message, listening=listening)
        connection.admit(request, request.correlation)
        return (request,) if before is None else (ListeningEnded(before), request)

    def take_leave(self, message: Any, _text: object, _now: float) -> Demands:
        """End a listening. The answer is a success even if there was no such listening."""
        connection = self._connection
        answer = connection.acknowledge(message, correlation_of(message))
        left = connection.listenings.left(message)
        for listening in left:
            connection.forget(listening)
        if answer is not None:
            connection.outbox.put(answer)
        connection.counts.answered += 1
        return tuple(ListeningEnded(listening) for listening in left)

    def take_query(self, message: QueryAction, _text: object, _now: float) -> Demands:
        """Answer a query, or return a demand to report what the run, or another request, waits for."""
        connection = self._connection
        if message.asked is not None and "waits" in connection.options.offers and not connection.kotlin:
            found = connection.runs.find(message, reversed(connection.open)) or connection.request_of(message)
            if isinstance(found, IncomingRequest):
                return (WaitsAsked(found, message),)
        answer_query(connection, message)
        return ()

    def take_cancel(self, message: CancelAction, _text: object, _now: float) -> Demands:
        """Cancel the run that a message names."""
        return cancel(self._connection, message)

    def take_stream(
        self, message: StreamItem | StreamEnd | StreamCredit, text: str | bytes, _now: float
    ) -> Demands:
        """Process an item, the end or credit of a stream."""
        connection = self._connection
        if "streams" not in connection.options.offers:
            return self._unsupported(message)
        connection.counts.streamed += 1
        if isinstance(message, StreamItem):
            news: Any = connection.streams.take_item(message, wire_size(text))
        elif isinstance(message, StreamEnd):
            news = connection.streams.take_end(message)
        else:
            news = connection.streams.take_credit(message)
        return () if news is None else self._news((news,))

    def _news(self, news: Iterable[Any]) -> Demands:
        """Return the streams' reports as demands. End a run if the peer has broken its streams' rules."""
        demands: list[Demand] = []
        for one in news:
            if isinstance(one, StreamViolation):
                request: Any = one.run
                end(request, InvalidInput(one.detail, "$.streams"), state=State.WITHDRAWN)
                demands.append(RequestWithdrawn(request, one.detail))
            else:
                demands.append(one)
        return tuple(demands)

    def take_foreign(self, message: Any, _text: object, _now: float) -> Demands:
        """Refuse a message that only things send."""
        connection = self._connection
        if not isinstance(message, _NEVER_ANSWERED):
            problem = unsupported(message_type(message))
            connection.outbox.put(connection.error(message.thing_id, problem, correlation_of(message)))
        connection.counts.strays += 1
        return ()

    def _unsupported(self, message: Any) -> Demands:
        self._connection.refuse(message, unsupported(message_type(message)))
        return ()

    def take_unreadable(self, found: Unreadable, _text: object, _now: float) -> Demands:
        """Answer an unreadable frame with an error, unless it is itself an answer."""
        connection = self._connection
        if found.oversize:
            return self._close(TOO_BIG, found.problem.detail)
        if found.type not in ("error", "acknowledgement"):
            about_run = found.type in ("queryAction", "cancelAction")
            correlation = found.correlation_id or found.message_id
            reply = found.message_id if about_run else None
            connection.outbox.put(
                connection.error(found.thing_id or NO_THING, found.problem, correlation, reply)
            )
        connection.counts.unreadable += 1
        return ()


_Handler: TypeAlias = "Callable[[Receiver, Any, str | bytes, float], Demands]"
_HANDLERS: Final[dict[type[Any], _Handler]] = {
    **dict.fromkeys(MESSAGES.values(), Receiver.take_foreign),
    **dict.fromkeys(VERBS, Receiver.take_ask),
    **{kind: Receiver.take_listen for kind in VERBS if kind in LISTENED},
    **dict.fromkeys((UnobserveProperty, UnsubscribeEvent, UnsubscribeAllEvents), Receiver.take_leave),
    **dict.fromkeys((StreamItem, StreamEnd, StreamCredit), Receiver.take_stream),
    TellWindow: Receiver.take_window,
    QueryAction: Receiver.take_query,
    CancelAction: Receiver.take_cancel,
    Unreadable: Receiver.take_unreadable,
}
