"""Memory of final answers, so that a request sent twice is carried out once.

There is one memory per peer, shared by its connections. It contains only requests that have an effect. An
answer that is remembered under a `messageID` is repeated only for a request with the same content, so a peer
that gives every message the same id gets no wrong answers.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from .._messages import (
    ActionStatus,
    Error,
    InvokeAction,
    PropertyReading,
    PropertyReadings,
    WriteAllProperties,
    WriteMultipleProperties,
    WriteProperty,
    name_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._messages import Base
    from ._requests import IncomingRequest

REQUESTED: Final[Mapping[type, str]] = {
    InvokeAction: "input",
    WriteProperty: "data",
    WriteMultipleProperties: "data",
    WriteAllProperties: "data",
}
"""The payload of a request that is remembered."""

ANSWERED: Final[Mapping[type, str]] = {
    ActionStatus: "output",
    PropertyReading: "value",
    PropertyReadings: "data",
    Error: "about",
}
"""The payload of a final answer."""

SHORT_TEXT: Final = 64  # characters
FEW: Final = 4  # members, or elements
BRIEF: Final = 256  # bytes of a text that is kept as it was read
OVERHEAD: Final = 2048
"""Approximate bytes that a remembered answer takes besides its texts: for the objects around them."""


class AnswerHolder(Protocol):
    """A holder of the answers of one connection or peer, within a bound that it shares with others."""

    @property
    def held(self) -> int:
        """The approximate bytes of memory that the holder's answers take."""
        ...

    def shrink(self) -> None:
        """Drop about half of the answers, the oldest first."""
        ...


class AnswerBound:
    """A limit on the bytes of kept answers over all connections. Beyond it, the largest holders shrink."""

    __slots__ = ("_holders", "bytes", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._holders: dict[AnswerHolder, None] = {}

    def changed(self, holder: AnswerHolder, size: int) -> None:
        """Add `size` to the bytes of a holder; `size` may be negative."""
        self.bytes += size
        if size > 0:
            self._holders[holder] = None
            if self.bytes > self.most:
                self._make_room()
        elif not holder.held:
            self._holders.pop(holder, None)

    def _make_room(self) -> None:
        """Free an eighth of the limit, so that not every new answer has to make room."""
        enough = self.most - self.most // 8
        while self.bytes > enough and self._holders:
            for holder in sorted(self._holders, key=_held, reverse=True):
                if self.bytes <= enough:
                    return
                holder.shrink()


def _held(holder: AnswerHolder) -> int:
    return holder.held


class RememberedAnswer(msgspec.Struct, eq=False):
    """A request and its final answer. `until` is set when `AnswerMemory.expire` is next called."""

    message: Any
    final: Any
    size: int
    until: float | None = None


class AnswerMemory:
    """The last final answers to one peer, and its requests that are being carried out.

    Connections that share a memory get each other's answers: share it only among the connections of one
    authenticated peer.

    The memory keeps at most `max_answers`, of `max_bytes` in all (requests and answers as text). Each is kept
    for `seconds` from the first request that comes after it; an answer of more than `max_bytes` is not
    remembered. The sessions limit the requests that are being carried out. `bound` applies to several
    memories together.
    """

    __slots__ = (
        "_answers", "_due", "_fresh", "_running", "bound", "bytes", "max_answers", "max_bytes", "seconds",
    )  # fmt: skip

    def __init__(
        self,
        *,
        max_answers: int = 256,
        seconds: float = 60.0,
        max_bytes: int = 4 << 20,
        bound: AnswerBound | None = None,
    ) -> None:
        self.max_answers = max_answers
        self.seconds = seconds
        self.max_bytes = max_bytes
        self.bytes = 0
        self.bound = bound
        self._answers: OrderedDict[str, RememberedAnswer] = OrderedDict()
        self._fresh: list[RememberedAnswer] = []  # those without a time
        self._due = math.inf  # nothing is over before
        self._running: dict[str, IncomingRequest] = {}

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def held(self) -> int:
        """The approximate bytes of memory that the answers take."""
        return self.bytes + len(self._answers) * OVERHEAD

    @property
    def running(self) -> int:
        """The number of requests that are being carried out."""
        return len(self._running)

    def find(self, message: Base, now: float) -> IncomingRequest | RememberedAnswer | None:
        """Return the answer to a request with this id and content, or the request itself while it is
        unanswered.

        Return None if neither is known.
        """
        self.expire(now)
        known = self._running.get(message.message_id) or self._answers.get(message.message_id)
        return known if known is not None and same_content(known.message, message) else None

    def begin(self, request: IncomingRequest) -> None:
        """Record that a request is being carried out, and forget any other request or answer with its id."""
        key = request.message.message_id
        if key in self._answers:
            self._drop(key)
        before = self._running.get(key)
        if before is not None:
            before.remembered = False
        self._running[key] = request
        request.remembered = True

    def settle(self, request: IncomingRequest, final: Base, size: int) -> None:
        """Store the final answer of a request that was being carried out. `size`: the bytes of both.

        A long `final` is already compacted, because the connection keeps it too. An error that reports that
        the request had not begun is not remembered: a repeat must be carried out.
        """
        message = request.message
        key = message.message_id
        if request.remembered:
            request.remembered = False
            del self._running[key]
        if size > self.max_bytes or (isinstance(final, Error) and final.started is False):
            return
        if request.size > BRIEF:
            message = compacted(message, REQUESTED, order="sorted")
        kept = RememberedAnswer(message, final, size)
        self._answers[key] = kept
        self._fresh.append(kept)
        self.bytes += size
        more = size + OVERHEAD
        while self.bytes > self.max_bytes or len(self._answers) > self.max_answers:
            more -= self._take_out(next(iter(self._answers)))
        if more and self.bound is not None:  # answers of one size, of which the oldest goes, change nothing
            self.bound.changed(self, more)

    def forget(self, request: IncomingRequest) -> None:
        """Forget a request that is being carried out, so that a repeat counts as a new request."""
        if request.remembered:
            request.remembered = False
            del self._running[request.message.message_id]

    def expire(self, now: float) -> None:
        """Forget the answers that have expired; `now` is in seconds, and never less than before."""
        if self._fresh:
            until = now + self.seconds
            for kept in self._fresh:
                kept.until = until
            self._fresh.clear()
            self._due = min(self._due, until)
        while now >= self._due:
            oldest = next(iter(self._answers.values()), None)
            if oldest is None or oldest.until is None or oldest.until > now:
                self._due = math.inf if oldest is None or oldest.until is None else oldest.until
                return
            self._drop(next(iter(self._answers)))

    def shrink(self) -> None:
        """Drop about half of the answers, the oldest first."""
        enough = self.held // 2
        while self._answers and self.held > enough:
            self._drop(next(iter(self._answers)))

    def close(self) -> None:
        """Forget everything and remember no more answers, because the peer has left."""
        self.max_bytes = 0
        self._fresh.clear()
        for key in tuple(self._answers):
            self._drop(key)

    def _drop(self, key: str) -> None:
        less = self._take_out(key)
        if less and self.bound is not None:
            self.bound.changed(self, -less)

    def _take_out(self, key: str) -> int:
        """Forget an answer, if there is one; return the bytes that it took."""
        kept = self._answers.pop(key, None)
        if kept is None:
            return 0
        self.bytes -= kept.size
        kept.message = kept.final = None  # it may still wait in the list of the fresh
        return kept.size + OVERHEAD


def same_content(one: Base, other: Base) -> bool:
    """Return whether two requests have the same type, thing, affordance and payload."""
    return (
        type(one) is type(other)
        and one.thing_id == other.thing_id
        and name_in(one) == name_in(other)
        and _same(_payload(one), _payload(other))
    )


def compacted(message: Base, members: Mapping[type, str], *, order: Literal["sorted"] | None) -> Any:
    """Return a message in the form in which it is kept, with a large payload as JSON text.

    Python's objects take up to twenty times as much memory as their text, so limits that count the text would
    not hold.
    """
    member = members.get(type(message))
    if member is None:
        return message
    payload = getattr(message, member)
    if isinstance(payload, dict):
        found: dict[str, object] = payload  # pyright: ignore[reportUnknownVariableType] # `cast` takes longer
        is_small = len(found) <= FEW and all(map(_is_scalar, found)) and all(map(_is_scalar, found.values()))
    else:
        is_small = _is_scalar(payload)
    if is_small:  # it takes no more memory than its text, or only little
        return message
    text = msgspec.Raw(msgspec.json.encode(payload, order=order))
    return msgspec.structs.replace(message, **{member: text})


def restored(message: Base) -> Any:
    """Return a kept answer in the form that it had before it was compacted."""
    member = ANSWERED.get(type(message))
    payload = None if member is None else getattr(message, member)
    if member is None or not isinstance(payload, msgspec.Raw):
        return message
    return msgspec.structs.replace(message, **{member: msgspec.json.decode(payload)})


def _is_scalar(payload: object) -> bool:
    """Return whether a value is a number, a constant, or a text about as large in memory as in UTF-8."""
    if isinstance(payload, str):  # one character outside of Latin-1 makes each take two or four bytes
        return len(payload) <= SHORT_TEXT or payload.isascii()
    return payload is None or payload is msgspec.UNSET or isinstance(payload, int | float | msgspec.Raw)


def _payload(message: Base) -> Any:
    member = REQUESTED.get(type(message))
    return msgspec.UNSET if member is None else getattr(message, member)


def _same(one: object, other: object) -> bool:
    """Return whether two payloads are the same JSON; the first may already be JSON text.

    To Python, 1, 1.0 and True are equal, so the JSON text decides. The text is made only for payloads that
    are equal in Python, so that a short repeat of a long request costs little.
    """
    if one is msgspec.UNSET or other is msgspec.UNSET:
        return one is other
    if isinstance(one, msgspec.Raw):
        return bytes(one) == _text(other)
    return one == other and _text(one) == _text(other)


def _text(payload: object) -> bytes:
    return msgspec.json.encode(payload, order="sorted")
