"""What comes in at a thing, message by message: `_HANDLERS` says for every type what is done with it."""

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
from .._streams import Arrived, Credited, Finished, Stopped, Violation, wire_size
from ._requests import LISTENED, VERBS, Asked, Listening, State, Unlistened, Withdrawn
from ._runs import answer_query, cancel, end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._desk import Desk

Demand: TypeAlias = Asked | Withdrawn | Unlistened | Arrived | Finished | Credited | Stopped | Close
"""What a session wants of its host."""

Demands: TypeAlias = tuple[Demand, ...]

_NEVER_ANSWERED: Final = (Error, Acknowledgement)
"""Two ends that answered each other's errors would never stop."""


class Intake:
    """Reads frames, and turns them into demands on the host and into answers that need no host."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.closing = False

    def take_text(self, text: str | bytes, now: float) -> Demands:
        """Take a text frame."""
        if self.closing:
            return ()
        desk = self._desk
        message = desk.codec.decode(text)
        demands = _HANDLERS[type(message)](self, message, text, now)
        desk.counts.received += 1
        return demands

    def take_binary(self, data: bytes) -> Demands:
        """Take a binary frame."""
        if self.closing:
            return ()
        desk = self._desk
        desk.counts.received += 1
        if len(data) > desk.options.max_bytes:
            return self._close(TOO_BIG, f"a frame has {desk.options.max_bytes} bytes at most")
        if "streams" not in desk.options.offers:
            return self._close(UNREADABLE_DATA, "text frames only")
        news = desk.streams.take_frame(data)
        if isinstance(news, BadFrame):
            return self._close(UNREADABLE_DATA, news.detail)
        desk.counts.streamed += 1
        return self._news(news)

    def _close(self, code: int, reason: str) -> Demands:
        self._desk.counts.unreadable += 1
        self.closing = True
        return (Close(code, reason),)

    def take_invoke(self, message: InvokeAction, text: str | bytes, now: float) -> Demands:
        """Open an invocation, or take a one-way message."""
        desk = self._desk
        if message.tell is None or desk.kotlin or "tells" not in desk.options.offers:
            return self.take_ask(message, text, now)
        size = wire_size(text)
        wrong = desk.tells.arrive(message.thing_id, message.tell, size)
        if wrong is not None:
            desk.refuse(message, wrong)
            return ()
        asked = desk.draft(message, text)
        asked.size, asked.tell = size, message.tell
        desk.tells_weight += asked.weight
        if desk.tells.is_tight:
            desk.raise_window()
        return (asked,)

    def take_window(self, message: TellWindow, _text: object, _now: float) -> Demands:
        """Take note that the peer has taken note of a lower window of its one-way messages."""
        desk = self._desk
        if desk.kotlin or "tells" not in desk.options.offers:
            return self._unsupported(message)
        desk.confirm_window(Credit(items=message.messages, bytes=message.bytes))
        desk.counts.streamed += 1
        return ()

    def take_ask(self, message: Any, text: str | bytes, now: float) -> Demands:
        """Open a request for the host, unless it is a repeat or one too many."""
        desk = self._desk
        streams = isinstance(message, InvokeAction) and _uses_streams(message)
        memory = None if streams or not VERBS[type(message)].has_effect else desk.memory
        known = None if memory is None else memory.find(message, now)
        if desk.repeated(message, known) or not desk.has_room(message):
            return ()
        asked = desk.draft(message, text)
        if streams:
            wrong = self._open_streams(asked)
            if wrong is not None:
                desk.refuse(message, wrong)
                return ()
        desk.admit(asked)
        if memory is not None:
            memory.begin(asked)
        return (asked,)

    def _open_streams(self, asked: Asked) -> LmosActorsError | None:
        """Open the streams of an invocation, or say why not."""
        desk, message = self._desk, asked.message
        offered = "streams" in desk.options.offers
        if message.streams and not offered:
            return InvalidInput("streams are not supported here", "$.streams")
        if message.streams:
            opened = desk.streams.accept(asked, message.streams)
            if isinstance(opened, LmosActorsError):
                return opened
            asked.streams = opened
        if offered and not desk.kotlin:
            asked.out = desk.streams.answer(asked, message.credit, binary=message.binary)
        return None

    def take_listen(self, message: Any, text: str | bytes, _now: float) -> Demands:
        """Open a request that makes a listening, in the place of an older one (D11)."""
        desk = self._desk
        if not desk.has_room(message):
            return ()
        before = desk.listenings.get(message)
        if before is None and len(desk.listenings) >= desk.options.max_listening:
            desk.refuse(message, MailboxFull(message.thing_id, desk.options.max_listening))
            return ()
        if before is not None:
            desk.forget(before)
        listening = Listening(message, LISTENED[type(message)], correlation_of(message), desk, len(text))
        desk.listenings.add(listening)
        asked = desk.draft(message, listening=listening)
        desk.admit(asked)
        return (asked,) if before is None else (Unlistened(before), asked)

    def take_leave(self, message: Any, _text: object, _now: float) -> Demands:
        """Unobserve or unsubscribe: a success at once, whether there was anything to leave or not (D11)."""
        desk = self._desk
        answer = desk.acknowledge(message, correlation_of(message))
        left = desk.listenings.left(message)
        for listening in left:
            desk.forget(listening)
        if answer is not None:
            desk.outbox.put(answer)
        desk.counts.answered += 1
        return tuple(Unlistened(listening) for listening in left)

    def take_query(self, message: QueryAction, _text: object, _now: float) -> Demands:
        """Answer a query."""
        answer_query(self._desk, message)
        return ()

    def take_cancel(self, message: CancelAction, _text: object, _now: float) -> Demands:
        """Cancel a run."""
        return cancel(self._desk, message)

    def take_stream(
        self, message: StreamItem | StreamEnd | StreamCredit, text: str | bytes, _now: float
    ) -> Demands:
        """Take what belongs to a stream."""
        desk = self._desk
        if "streams" not in desk.options.offers:
            return self._unsupported(message)
        desk.counts.streamed += 1
        if isinstance(message, StreamItem):
            news: Any = desk.streams.take_item(message, wire_size(text))
        elif isinstance(message, StreamEnd):
            news = desk.streams.take_end(message)
        else:
            news = desk.streams.take_credit(message)
        return () if news is None else self._news((news,))

    def _news(self, news: Iterable[Any]) -> Demands:
        return tuple(self._violated(one) if isinstance(one, Violation) else one for one in news)

    def _violated(self, violation: Violation) -> Withdrawn:
        """End the run whose streams the peer has misused: that run alone."""
        asked: Any = violation.run
        end(asked, InvalidInput(violation.detail, "$.streams"), state=State.WITHDRAWN)
        return Withdrawn(asked, violation.detail)

    def take_foreign(self, message: Any, _text: object, _now: float) -> Demands:
        """Refuse what only a thing sends."""
        desk = self._desk
        if not isinstance(message, _NEVER_ANSWERED):
            problem = unsupported(message_type(message), None)
            desk.outbox.put(desk.error(message.thing_id, problem, correlation_of(message)))
        desk.counts.strays += 1
        return ()

    def _unsupported(self, message: Any) -> Demands:
        self._desk.refuse(message, unsupported(message_type(message), None))
        return ()

    def take_unreadable(self, found: Unreadable, _text: object, _now: float) -> Demands:
        """Answer what cannot be read, but for what is itself an answer (D17)."""
        desk = self._desk
        if found.oversize:
            return self._close(TOO_BIG, found.problem.detail)
        if found.type not in ("error", "acknowledgement"):
            about_run = found.type in ("queryAction", "cancelAction")
            correlation = found.correlation_id or found.message_id
            reply = found.message_id if about_run else None
            desk.outbox.put(desk.error(found.thing_id or NO_THING, found.problem, correlation, reply))
        desk.counts.unreadable += 1
        return ()


def _uses_streams(message: InvokeAction) -> bool:
    return message.streams is not None or message.credit is not None or message.binary


_Handler: TypeAlias = "Callable[[Intake, Any, str | bytes, float], Demands]"
_HANDLERS: Final[dict[type[Any], _Handler]] = {
    **dict.fromkeys(MESSAGES.values(), Intake.take_foreign),
    **dict.fromkeys(VERBS, Intake.take_ask),
    **{kind: Intake.take_listen for kind in VERBS if kind in LISTENED},
    InvokeAction: Intake.take_invoke,
    **dict.fromkeys((UnobserveProperty, UnsubscribeEvent, UnsubscribeAllEvents), Intake.take_leave),
    **dict.fromkeys((StreamItem, StreamEnd, StreamCredit), Intake.take_stream),
    TellWindow: Intake.take_window,
    QueryAction: Intake.take_query,
    CancelAction: Intake.take_cancel,
    Unreadable: Intake.take_unreadable,
}
