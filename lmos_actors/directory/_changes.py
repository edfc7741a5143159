"""Changes of a directory and the log of their events, in bounded memory. No I/O.

Events are numbered without gaps, and their ids contain the id of the database. So a `Last-Event-ID` from
another database, or from a deleted database, is recognised and answered with a gap event.
"""

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
"""Characters of a page of events, the last event not counted."""

GAP: Final = "lmosx:gap"
"""Event that stands for missing earlier ones."""


@attrs.frozen
class LoggedEvent:
    """Event: its number, kind and id, and its data for subscribers with `diff`."""

    number: int
    kind: Kind
    id: str
    full: bytes

    @property
    def size(self) -> int:
        """Bytes that count against the limit of the log: the data, the id, and 64 more."""
        return len(self.full) + len(self.id) + 64


@attrs.frozen
class Change:
    """Change of one registration: its entry after the change (None if removed), and its event.

    A change that only renews a time to live has no event.
    """

    id: str
    after: Entry | None
    event: LoggedEvent | None


class EventPage(msgspec.Struct, frozen=True):
    """Page of events for a stream: frames of Server-Sent Events, and the id of the last event."""

    frames: tuple[str, ...]
    last: str
    more: bool = False


class EventLog:
    """Log of the last events; `life` is the id of the database to which the event numbers belong."""

    def __init__(self, life: str, *, most: int, most_bytes: int) -> None:
        self.life = life
        self._most = most
        self._most_bytes = most_bytes
        self._kept: list[LoggedEvent] = []
        self._dropped = (
            0  # dropped at the beginning of the list; it is compacted when they are the larger half
        )
        self._bytes = 0
        self.last = 0
        """Number of the last event."""

    def add(self, events: Iterable[LoggedEvent]) -> None:
        """Append events, and drop the oldest beyond the limits."""
        for event in events:
            self._kept.append(event)
            self._bytes += event.size
            self.last = event.number
        while self._count() > self._most or (self._bytes > self._most_bytes and self._count() > 1):
            self._bytes -= self._kept[self._dropped].size
            self._dropped += 1
        if self._dropped * 2 > len(self._kept):
            del self._kept[: self._dropped]
            self._dropped = 0

    def _count(self) -> int:
        return len(self._kept) - self._dropped

    @property
    def oldest(self) -> int:
        """Number of the oldest kept event, or of the next one if none is kept."""
        return self.last + 1 - self._count()

    def id_of(self, number: int) -> str:
        """Return the id of an event, for `Last-Event-ID`."""
        return f"{self.life}-{number}"

    def after(self, id: str, kind: str, *, diff: bool, most: int) -> EventPage:
        """Return the page of events after an id, of one kind or of all kinds.

        An id of "" means the last event, so the page is empty. The page begins with a gap event if events
        after the id were dropped, or if the id belongs to another database.
        """
        if not id:
            return EventPage((), self.id_of(self.last))
        life, _, digits = id.rpartition("-")
        known = life == self.life and digits.isascii() and digits.isdigit() and len(digits) < 16
        number = int(digits) if known else -1
        frames: list[str] = []
        if not self.oldest - 1 <= number <= self.last:
            missed = self.oldest - 1 - number if 0 <= number < self.oldest else None
            number = self.oldest - 1
            frames.append(
                _frame(GAP, {"reason": "no longer kept here", "missed": missed}, self.id_of(number))
            )
        start = self._dropped + number + 1 - self.oldest
        found = self._kept[start : start + most]
        room = PAGE_BYTES
        for event in found:
            if room < 0:
                break
            number = event.number
            if kind in ("", event.kind):
                data = event.full if diff and event.full else msgspec.json.encode({"id": event.id})
                frames.append(f"event: {event.kind}\ndata: {data.decode()}\nid: {self.id_of(number)}\n\n")
                room -= len(frames[-1])
        return EventPage(tuple(frames), self.id_of(number), more=number < self.last)


def _frame(event: str, data: object, id: str) -> str:
    return f"event: {event}\ndata: {msgspec.json.encode(data).decode()}\nid: {id}\n\n"
