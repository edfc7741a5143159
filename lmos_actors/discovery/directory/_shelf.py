"""What a directory holds, and what becomes of it: decided one after another, seen once it is stored. No I/O.

A change is decided upon all that were decided before it, and is kept apart until the store has it: then it is
`settled`, and those who read see it. When the store fails, what was decided and is not settled is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ._changes import Change, Logged
from ._entries import SLACK, Fault, Moment, Unfit, check_id, checked, decoded, ends_of, entry_of, split
from ._merge import TooDeep, check_depth, difference, merged, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._entries import Entry
    from ._options import DirectoryOptions

PURGED_AT_ONCE: Final = 1_000
"""Registrations that one look at what has ended takes away."""

_STALE: Final = 64  # ends in a heap that are none any more, beside as many as there are registrations

Text = str | bytes | dict[str, Any]


class Missing(Exception):
    """Nothing is registered under that id."""


class Shelf:
    """The registrations of one directory."""

    def __init__(
        self, options: DirectoryOptions, entries: Iterable[Entry] = (), *, last: int = 0, order: int = 0
    ) -> None:
        self._options = options
        self._entries = {entry.id: entry for entry in entries}
        self.ids = sorted(self._entries)
        """Those of what is registered, in code point order."""
        self.bytes = sum(entry.cut for entry in self._entries.values())
        """The bytes of all descriptions."""
        self.order = order
        """The number of the last event that changed which ids there are."""
        self._decided: dict[str, Change] = {}
        self._count = len(self.ids)
        self._decided_bytes = self.bytes
        self._last = self._settled_last = last
        self._ticks: list[tuple[float, str]] = []
        self._walls: list[tuple[float, str]] = []
        self._note_all()

    # ---- reading

    def get(self, id: str, at: Moment) -> Entry:
        """Return what is registered under an id. Raises Missing."""
        entry = self._entries.get(id)
        if entry is None or entry.is_due(at.wall, at.tick):
            raise Missing
        return entry

    def page(self, offset: int, limit: int | None, most_bytes: int | None = None) -> list[Entry]:
        """Return so many entries in the order of their ids, until they have so many bytes; None: all."""
        entries = self._entries
        if limit is None:
            return [entries[id] for id in self.ids]
        found: list[Entry] = []
        room = most_bytes or 0
        for id in self.ids[offset : offset + limit]:
            found.append(entries[id])
            room -= len(entries[id].text)
            if most_bytes is not None and room < 0:
                break
        return found

    def place_after(self, id: str) -> int:
        """Return the offset of the first entry whose id comes after that one."""
        return bisect_right(self.ids, id)

    # ---- deciding

    def put(self, id: str, text: Text, at: Moment) -> Change:
        """Create or replace. Raises Unfit."""
        check_id(id)
        data, registration = split(decoded(text, self._options))
        before = self._current(id)
        if before is not None and before.anonymous:
            data = {"id": id, **data}  # whoever has registered it has no id for it
        if data.get("id") != id:
            raise Unfit(Fault("id", f"has to be that of the request, {id[:200]!r}"))
        ends = ends_of(registration, self._options, at, before)
        return self._changed(id, checked(data, self._options), ends, before, at)

    def add(self, text: Text, id: str, at: Moment) -> Change:
        """Create one that has no id of its own, under this one. Raises Unfit."""
        data, registration = split(decoded(text, self._options))
        if data.get("id") is not None:
            raise Unfit(Fault("id", "is registered by PUT at /things/{id}; POST is for descriptions without"))
        ends = ends_of(registration, self._options, at)
        description = checked({**data, "id": id}, self._options)
        return self._changed(id, description, ends, None, at, anonymous=True)

    def patch(self, id: str, text: Text, at: Moment) -> Change:
        """Change a part; nothing renews what has a time to live. Raises Missing, Unfit."""
        patch = decoded(text, self._options)
        before = self._current(id)
        if before is None:
            raise Missing
        if not patch:
            return self._renewed(before, (before.ttl, before.expires), at)
        try:
            check_depth(patch)
            data, registration = split(merged(before.data(), patch))
        except TooDeep as error:
            raise Unfit(Fault("(root)", str(error))) from None
        if data.get("id") != id:
            raise Unfit(Fault("id", "cannot be changed"))
        ends = ends_of(registration, self._options, at, before)
        return self._changed(id, checked(data, self._options), ends, before, at)

    def delete(self, id: str, at: Moment) -> Change:
        """Take one away. Raises Missing."""
        before = self._current(id)
        if before is None:
            raise Missing
        return self._removed(before)

    def purge(self, at: Moment) -> list[Change]:
        """Take away what has ended, up to a bound."""
        found: list[Change] = []
        for heap, now in ((self._ticks, at.tick), (self._walls, at.wall)):
            while heap and heap[0][0] <= now + SLACK and len(found) < PURGED_AT_ONCE:
                entry = self._current(heappop(heap)[1])
                if entry is not None and entry.is_due(at.wall, at.tick):
                    found.append(self._removed(entry))
        return found

    def next_end(self, at: Moment) -> float | None:
        """Return the seconds until the next registration ends, None if none does."""
        ends = [heap[0][0] - now for heap, now in ((self._ticks, at.tick), (self._walls, at.wall)) if heap]
        return max(0.0, min(ends)) if ends else None

    def _current(self, id: str) -> Entry | None:
        decided = self._decided.get(id)
        return self._entries.get(id) if decided is None else decided.after

    def _renewed(self, before: Entry, ends: tuple[float | None, float | None], at: Moment) -> Change:
        after = entry_of(
            before.id,
            before.description,
            created=before.created,
            modified=before.modified,
            ends=ends,
            at=at,
            anonymous=before.anonymous,
            number=before.number,
        )
        return self._decide(Change(before.id, after, None))

    def _changed(
        self,
        id: str,
        description: bytes,
        ends: tuple[float | None, float | None],
        before: Entry | None,
        at: Moment,
        *,
        anonymous: bool = False,
    ) -> Change:
        if before is not None and _is_the_same(before, description, ends):
            return self._renewed(before, ends, at)
        self._check_room(len(description) - _size(before), is_new=before is None)
        number = self._last + 1
        after = entry_of(
            id,
            description,
            created=at.wall if before is None else before.created,
            modified=at.wall,
            ends=ends,
            at=at,
            anonymous=anonymous if before is None else before.anonymous,
            number=number,
        )
        return self._decide(Change(id, after, _event(number, before, after)))

    def _removed(self, before: Entry) -> Change:
        event = Logged(self._last + 1, "thing_deleted", before.id, b"")
        return self._decide(Change(before.id, None, event))

    def _check_room(self, more: int, *, is_new: bool) -> None:
        options = self._options
        if is_new and self._count >= options.max_entries:
            raise Unfit(
                status=507, detail=f"this directory is full: it has {options.max_entries} descriptions"
            )
        if more > 0 and self._decided_bytes + more > options.max_total_bytes:
            raise Unfit(status=507, detail=f"this directory is full: it has {options.max_total_bytes} bytes")

    def _decide(self, change: Change) -> Change:
        before = self._current(change.id)
        self._decided[change.id] = change
        self._count += (change.after is not None) - (before is not None)
        self._decided_bytes += _size(change.after) - _size(before)
        if change.event is not None:
            self._last = change.event.number
        if change.after is not None:
            self._note(change.after)
        return change

    # ---- what becomes of decisions

    def settle(self, changes: Sequence[Change]) -> None:
        """Let those who read see changes: the store has them."""
        for change in changes:
            before = self._entries.get(change.id)
            self._place(change, before)
            if change.event is not None:
                self._settled_last = change.event.number
                if (before is None) != (change.after is None):
                    self.order = change.event.number
            if self._decided.get(change.id) is change:
                del self._decided[change.id]

    def _place(self, change: Change, before: Entry | None) -> None:
        self.bytes += _size(change.after) - _size(before)
        if change.after is not None:
            self._entries[change.id] = change.after
            if before is None:
                insort(self.ids, change.id)
        elif before is not None:
            del self._entries[change.id]
            del self.ids[bisect_left(self.ids, change.id)]

    def forget(self) -> None:
        """Forget what was decided and is not settled: the store has failed."""
        self._decided.clear()
        self._count = len(self._entries)
        self._decided_bytes = self.bytes
        self._last = self._settled_last
        self._note_all()

    # ---- ends

    def _note(self, entry: Entry) -> None:
        if entry.due is not None:
            heappush(self._ticks, (entry.due, entry.id))
        elif entry.expires is not None:
            heappush(self._walls, (entry.expires, entry.id))
        if len(self._ticks) + len(self._walls) > 2 * (len(self._entries) + len(self._decided)) + _STALE:
            self._note_all()

    def _note_all(self) -> None:
        """Write the ends down anew: those that were put off, or belong to what is gone, stay behind."""
        decided = {id: change.after for id, change in self._decided.items()}
        kept = [entry for entry in {**self._entries, **decided}.values() if entry is not None]
        self._ticks = [(entry.due, entry.id) for entry in kept if entry.due is not None]
        self._walls = [(e.expires, e.id) for e in kept if e.due is None and e.expires is not None]
        heapify(self._ticks)
        heapify(self._walls)


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else entry.cut


def _is_the_same(before: Entry, description: bytes, ends: tuple[float | None, float | None]) -> bool:
    """Return whether nothing would change but when a time to live, as long as it was, is over."""
    if ends[0] != before.ttl or (ends[0] is None and ends[1] != before.expires):
        return False
    old = before.description
    return old == description or same(msgspec.json.decode(old), msgspec.json.decode(description))


def _event(number: int, before: Entry | None, after: Entry) -> Logged:
    if before is None:
        return Logged(number, "thing_created", after.id, after.told())
    patch = difference(before.data(), after.data())
    return Logged(number, "thing_updated", after.id, msgspec.json.encode({**patch, "id": after.id}))
