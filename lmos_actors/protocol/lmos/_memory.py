"""Answers to repeat, so that a request sent twice is carried out once (DECISIONS C1).

One memory per peer, shared by its connections. Only requests that have an effect are in it. What is
remembered under a `messageID` is repeated for a request of the same content alone: peers that give every
message the same id are not confused by it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ._messages import Error, name_in

if TYPE_CHECKING:
    from ._asked import Asked
    from ._messages import Base

PAYLOADS: Final = ("input", "data")
LONG: Final = 4096  # bytes of a request


class Remembered(msgspec.Struct, eq=False):
    """A request and its final answer. `until` is set when the memory next learns the time."""

    message: Any
    final: Any
    size: int
    until: float | None = None


class AnswerMemory:
    """The last final answers to one peer, and what is being carried out for it.

    Who shares a memory may be given another's answers: share it among connections of one authenticated peer.

    At most `max_answers` of them, of `max_bytes` in all (requests and answers as text), each for `seconds`
    counted from the first request after it; an answer larger than all of that is not remembered. What is
    still being carried out is bounded by the sessions.
    """

    __slots__ = ("_answers", "_due", "_fresh", "_running", "bytes", "max_answers", "max_bytes", "seconds")

    def __init__(self, *, max_answers: int = 256, seconds: float = 60.0, max_bytes: int = 4 << 20) -> None:
        self.max_answers = max_answers
        self.seconds = seconds
        self.max_bytes = max_bytes
        self.bytes = 0
        self._answers: OrderedDict[str, Remembered] = OrderedDict()
        self._fresh: list[Remembered] = []  # those without a time
        self._due = math.inf  # nothing is over before
        self._running: dict[str, Asked] = {}

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def running(self) -> int:
        """How many requests are being carried out."""
        return len(self._running)

    def find(self, message: Base, now: float) -> Asked | Remembered | None:
        """Give what is known of a request of this id and content."""
        self.expire(now)
        known = self._running.get(message.message_id) or self._answers.get(message.message_id)
        return known if known is not None and same_content(known.message, message) else None

    def begin(self, asked: Asked) -> None:
        """Remember that a request is being carried out, and nothing else of its id any more."""
        key = asked.message.message_id
        self._drop(key)
        before = self._running.get(key)
        if before is not None:
            before.remembered = False
        self._running[key] = asked
        asked.remembered = True

    def settle(self, asked: Asked, final: Base, size: int) -> None:
        """Remember the final answer of a request that is being carried out. `size` in bytes of both.

        One that says that the request had not begun is not remembered: a repeat is to be carried out.
        """
        message = asked.message
        key = message.message_id
        if asked.remembered:
            asked.remembered = False
            del self._running[key]
        if size > self.max_bytes or (isinstance(final, Error) and final.started is False):
            return
        kept = Remembered(message if asked.size <= LONG else _compact(message, asked.size), final, size)
        self._answers[key] = kept
        self._fresh.append(kept)
        self.bytes += size
        while self.bytes > self.max_bytes or len(self._answers) > self.max_answers:
            self._drop(next(iter(self._answers)))

    def forget(self, asked: Asked) -> None:
        """Forget a request that is being carried out: a repeat is a request of its own."""
        if asked.remembered:
            asked.remembered = False
            del self._running[asked.message.message_id]

    def expire(self, now: float) -> None:
        """Forget the answers whose time is over; `now` in seconds, never less than before."""
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

    def close(self) -> None:
        """Remember nothing more: nobody can ask for it."""
        self.max_bytes = 0
        self._fresh.clear()
        for key in tuple(self._answers):
            self._drop(key)

    def _drop(self, key: str) -> None:
        kept = self._answers.pop(key, None)
        if kept is not None:
            self.bytes -= kept.size
            kept.message = kept.final = None  # it may still wait in the list of the fresh


def same_content(one: Base, other: Base) -> bool:
    """Whether two requests ask for the same: type, thing, affordance and payload."""
    return (
        type(one) is type(other)
        and one.thing_id == other.thing_id
        and name_in(one) == name_in(other)
        and _same(_payload(one), _payload(other))
    )


def _compact(message: Any, size: int) -> Any:
    """Give a long request with its payload as text: as objects that may take twenty times as much."""
    if size <= LONG:
        return message
    for member in PAYLOADS:
        payload = getattr(message, member, msgspec.UNSET)
        if payload is not msgspec.UNSET:
            return msgspec.structs.replace(message, **{member: msgspec.Raw(_text(payload))})
    return message


def _payload(message: Any) -> Any:
    for member in PAYLOADS:
        if hasattr(message, member):
            return getattr(message, member)
    return msgspec.UNSET


def _same(one: object, other: object) -> bool:
    """Whether two payloads are the same JSON; the first may be text.

    For Python 1, 1.0 and True are equal, so the text decides. It is made only of what Python finds equal, so
    that a short repeat of a long request costs little.
    """
    if one is msgspec.UNSET or other is msgspec.UNSET:
        return one is other
    if isinstance(one, msgspec.Raw):
        return bytes(one) == _text(other)
    return one == other and _text(one) == _text(other)


def _text(payload: object) -> bytes:
    return msgspec.json.encode(payload, order="sorted")
