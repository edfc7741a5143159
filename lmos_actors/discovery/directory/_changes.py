"""What has happened in a directory: changes as they are stored, and events as they are told. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import attrs
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._entries import Entry

Kind = Literal["thing_created", "thing_updated", "thing_deleted"]

KINDS: Final[tuple[Kind, ...]] = ("thing_created", "thing_updated", "thing_deleted")

PAGE_BYTES: Final = 256 << 10
"""Characters of the events that are told at once, but for the last."""

GAP: Final = "lmosx:gap"
"""The event that says that some before it are missing."""


@attrs.frozen
class Logged:
    """One event: its number, and what a subscriber is told with `diff`."""

    number: int
    kind: Kind
    id: str
    full: bytes

    @property
    def size(self) -> int:
        """The bytes it counts for."""
        return len(self.full) + len(self.id) + 64


@attrs.frozen
class Change:
    """One change: what is registered under an id from then on, None if nothing is, and what is told of it.

    One that only puts off the end of a registration is not told.
    """

    id: str
    after: Entry | None
    event: Logged | None


class EventPage(msgspec.Struct, frozen=True):
    """Events as they go out on a stream: frames of Server-Sent Events, and the id of the last event."""

    frames: tuple[str, ...]
    last: str
    more: bool = False


class EventLog:
    """The last events, as many as are kept. `life` names the database: in another, numbers mean nothing."""

    def __init__(self, life: str, *, most: int, most_bytes: int) -> None:
        self.life = life
        self._most = most
        self._most_bytes = most_bytes
        self._kept: list[Logged] = []
        self._gone = 0  # at its beginning, until it is worth while to move the rest
        self._bytes = 0
        self.last = 0
        """The number of the last event there was."""

    def add(self, events: Iterable[Logged]) -> None:
        """Take events in, and let the oldest go."""
        for event in events:
            self._kept.append(event)
            self._bytes += event.size
            self.last = event.number
        while self._count() > self._most or (self._bytes > self._most_bytes and self._count() > 1):
            self._bytes -= self._kept[self._gone].size
            self._gone += 1
        if self._gone * 2 > len(self._kept):
            del self._kept[: self._gone]
            self._gone = 0

    def _count(self) -> int:
        return len(self._kept) - self._gone

    @property
    def oldest(self) -> int:
        """The number of the oldest event that is kept, or of the next there will be."""
        return self.last + 1 - self._count()

    def id_of(self, number: int) -> str:
        """Return the id of an event, by which a client comes back."""
        return f"{self.life}-{number}"

    def after(self, id: str, kind: str, *, diff: bool, most: int) -> EventPage:
        """Return the events after that one, of a kind or all; "" stands for the last there was.

        What cannot be told any more, or is asked for by an id of another database, begins with a gap.
        """
        if not id:
            return EventPage((), self.id_of(self.last))
        life, _, said = id.rpartition("-")
        known = life == self.life and said.isascii() and said.isdigit() and len(said) < 16
        number = int(said) if known else -1
        frames: list[str] = []
        if not self.oldest - 1 <= number <= self.last:
            missed = self.oldest - 1 - number if 0 <= number < self.oldest else None
            number = self.oldest - 1
            frames.append(
                _frame(GAP, {"reason": "no longer kept here", "missed": missed}, self.id_of(number))
            )
        start = self._gone + number + 1 - self.oldest
        found = self._kept[start : start + most]
        room = PAGE_BYTES
        for event in found:
            if room < 0:
                break
            number = event.number
            if kind in ("", event.kind):
                frames.append(self._told(event, diff=diff))
                room -= len(frames[-1])
        return EventPage(tuple(frames), self.id_of(number), more=number < self.last)

    def _told(self, event: Logged, *, diff: bool) -> str:
        data = event.full.decode() if diff and event.full else msgspec.json.encode({"id": event.id}).decode()
        return f"event: {event.kind}\ndata: {data}\nid: {self.id_of(event.number)}\n\n"


def _frame(event: str, data: object, id: str) -> str:
    return f"event: {event}\ndata: {msgspec.json.encode(data).decode()}\nid: {id}\n\n"
