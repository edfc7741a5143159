"""Registrations of a directory in memory: changes are decided in order, and visible once stored. No I/O.

Two states are kept. *Decided*: all changes so far, on which the next one is decided, so that concurrent
requests see each other (`_decided` over `_entries`). *Settled*: the changes in the store, which readers see.
`settle` moves changes from one to the other, `forget` drops the decided ones after a failed write.

Ends are kept in two heaps, as there are two clocks: a `ttl` counts in the runtime's monotonic time,
`expires` is a wall-clock time that may jump. Entries of the heaps are not removed when a registration
changes; they are skipped when they come up, and the heaps are rebuilt when outdated ones outnumber the
registrations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmos_actors.discovery import LEASE

from ._changes import Change, LoggedEvent
from ._entries import (
    SLACK_SECONDS,
    Fault,
    InvalidDescription,
    Moment,
    check_id,
    checked,
    decoded,
    ends_of,
    entry_of,
    split,
)
from ._merge_patch import TooDeep, check_depth, difference, merged, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._entries import Entry
    from ._options import DirectoryOptions

PURGED_AT_ONCE: Final = 1_000
"""Limit of expired registrations that are removed at once."""

BESIDE: Final = 450
"""Bytes of memory for an entry, beside its description and its id, as measured."""

Text = str | bytes | dict[str, Any]


class Missing(Exception):
    """Unknown id."""


class NotOwner(Exception):
    """Change of a registration that belongs to another principal."""


class NoLease(Exception):
    """Registration of an agent with a lease by a principal that may not register one."""


class Registrations:
    """Registrations of one directory."""

    def __init__(
        self, options: DirectoryOptions, entries: Iterable[Entry] = (), *, last: int = 0, order: int = 0
    ) -> None:
        self._options = options
        self._entries = {entry.id: entry for entry in entries}
        self.ids = sorted(self._entries)
        """Ids of all registrations, in code point order."""
        self.bytes = sum(map(self._size_of, self._entries.values()))
        """Bytes of all descriptions."""
        self.order = order
        """Number of the last event that changed the set of ids."""
        self._decided: dict[str, Change] = {}
        self._count = len(self.ids)
        self._decided_bytes = self.bytes
        self._last = self._settled_last = last
        self._ticks: list[tuple[float, str]] = []
        self._walls: list[tuple[float, str]] = []
        self._rebuild_heaps()

    # ---- reading

    def get(self, id: str, at: Moment) -> Entry:
        """Return the registration of an id. Raises Missing."""
        entry = self._entries.get(id)
        if entry is None or entry.is_due(at.wall, at.tick):
            raise Missing
        return entry

    def page(self, offset: int, limit: int | None, most_bytes: int | None = None) -> list[Entry]:
        """Return entries in the order of their ids, up to a number and a size; without a limit, all."""
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
        """Return the offset of the first entry after an id."""
        return bisect_right(self.ids, id)

    # ---- deciding: `who` is the principal that asks for a change, "" if none is known

    def put(self, id: str, text: Text, at: Moment, who: str = "") -> Change:
        """Return the change that creates or replaces a registration.

        Raises InvalidDescription, NotOwner, NoLease.
        """
        check_id(id)
        data, registration = split(decoded(text, self._options))
        before = self._current(id)
        owner = self._owner(before, who)
        if before is not None and before.anonymous:
            data = {"id": id, **data}  # its client did not give it an id, and may not repeat ours
        if data.get("id") != id:
            raise InvalidDescription(Fault("id", f"must be that of the request, {id[:200]!r}"))
        self._check_lease(data, who)
        ends = ends_of(registration, self._options, at, before)
        return self._changed(id, checked(data, self._options), ends, before, at, owner)

    def add(self, text: Text, id: str, at: Moment, who: str = "") -> Change:
        """Return the change that creates a registration under a new id.

        Raises InvalidDescription, NoLease.
        """
        data, registration = split(decoded(text, self._options))
        if data.get("id") is not None:
            raise InvalidDescription(
                Fault("id", "is registered by PUT at /things/{id}; POST is for descriptions without")
            )
        self._check_lease(data, who)
        ends = ends_of(registration, self._options, at)
        description = checked({**data, "id": id}, self._options)
        return self._changed(id, description, ends, None, at, who, anonymous=True)

    def patch(self, id: str, text: Text, at: Moment, who: str = "") -> Change:
        """Return the change of a merge patch; an empty patch renews the time to live.

        Raises Missing, InvalidDescription, NotOwner, NoLease.
        """
        patch = decoded(text, self._options)
        before = self._current(id)
        if before is None:
            raise Missing
        owner = self._owner(before, who)
        if not patch:
            return self._renewed(before, (before.ttl, before.expires), at, owner)
        try:
            check_depth(patch)
            data, registration = split(merged(before.data(), patch))
        except TooDeep as error:
            raise InvalidDescription(Fault("(root)", str(error))) from None
        if data.get("id") != id:
            raise InvalidDescription(Fault("id", "cannot be changed"))
        self._check_lease(data, who)
        ends = ends_of(registration, self._options, at, before)
        return self._changed(id, checked(data, self._options), ends, before, at, owner)

    def delete(self, id: str, at: Moment, who: str = "") -> Change:
        """Return the change that removes a registration. Raises Missing, NotOwner."""
        before = self._current(id)
        if before is None:
            raise Missing
        self._owner(before, who)
        return self._removed(before)

    def _owner(self, before: Entry | None, who: str) -> str:
        """Return the owner of a registration after a change. Raises NotOwner."""
        if before is None or (who and self._options.may_take_over(who)):
            return who
        if before.owner not in ("", who):
            raise NotOwner
        return before.owner

    def _check_lease(self, data: Mapping[str, Any], who: str) -> None:
        """Check that the principal may register an entry with a lease. Raises NoLease.

        Callers of an agent with a key follow the newest lease, so not every principal may register one.
        """
        options = self._options
        if LEASE in data and options.has_takeover and not options.may_take_over(who):
            raise NoLease

    def purge(self, at: Moment) -> list[Change]:
        """Return the changes that remove expired registrations, up to `PURGED_AT_ONCE`."""
        found: list[Change] = []
        for heap, now in ((self._ticks, at.tick), (self._walls, at.wall)):
            while heap and heap[0][0] <= now + SLACK_SECONDS and len(found) < PURGED_AT_ONCE:
                entry = self._current(heappop(heap)[1])
                if entry is not None and entry.is_due(at.wall, at.tick):
                    found.append(self._removed(entry))
        return found

    def next_end(self, at: Moment) -> float | None:
        """Return the seconds until the next registration expires; None if there is none to expire."""
        ends = [heap[0][0] - now for heap, now in ((self._ticks, at.tick), (self._walls, at.wall)) if heap]
        return max(0.0, min(ends)) if ends else None

    def _current(self, id: str) -> Entry | None:
        decided = self._decided.get(id)
        return self._entries.get(id) if decided is None else decided.after

    def _renewed(
        self, before: Entry, ends: tuple[float | None, float | None], at: Moment, owner: str
    ) -> Change:
        after = entry_of(
            before.id,
            before.description,
            created=before.created,
            modified=before.modified,
            ends=ends,
            at=at,
            anonymous=before.anonymous,
            number=before.number,
            owner=owner,
        )
        return self._decide(Change(before.id, after, None))

    def _changed(
        self,
        id: str,
        description: bytes,
        ends: tuple[float | None, float | None],
        before: Entry | None,
        at: Moment,
        owner: str,
        *,
        anonymous: bool = False,
    ) -> Change:
        if before is not None and _is_unchanged(before, description, ends):
            return self._renewed(before, ends, at, owner)
        self._check_room(self._held(id, len(description)) - self._size_of(before), is_new=before is None)
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
            owner=owner,
        )
        return self._decide(Change(id, after, _event(number, before, after)))

    def _removed(self, before: Entry) -> Change:
        event = LoggedEvent(self._last + 1, "thing_deleted", before.id, b"")
        return self._decide(Change(before.id, None, event))

    def _check_room(self, more: int, *, is_new: bool) -> None:
        options = self._options
        if is_new and self._count >= options.max_entries:
            raise InvalidDescription(
                status=507, detail=f"this directory is full: it has {options.max_entries} descriptions"
            )
        if more > 0 and self._decided_bytes + more > options.max_total_bytes:
            raise InvalidDescription(
                status=507, detail=f"this directory is full: it has {options.max_total_bytes} bytes"
            )

    def _decide(self, change: Change) -> Change:
        before = self._current(change.id)
        self._decided[change.id] = change
        self._count += (change.after is not None) - (before is not None)
        self._decided_bytes += self._size_of(change.after) - self._size_of(before)
        if change.event is not None:
            self._last = change.event.number
        after = change.after
        if after is not None:
            if after.due is not None:
                heappush(self._ticks, (after.due, after.id))
            elif after.expires is not None:
                heappush(self._walls, (after.expires, after.id))
            registrations = len(self._entries) + len(self._decided)
            if len(self._ticks) + len(self._walls) > 2 * registrations + 64:  # most ends are outdated
                self._rebuild_heaps()
        return change

    def _size_of(self, entry: Entry | None) -> int:
        return 0 if entry is None else self._held(entry.id, entry.cut)

    def _held(self, id: str, length: int) -> int:
        """Return the bytes of memory that a description of `length` bytes takes."""
        return (length + len(id) + BESIDE) * self._options.copies

    # ---- settling

    def settle(self, changes: Sequence[Change]) -> None:
        """Make stored changes visible to readers."""
        for change in changes:
            before = self._entries.get(change.id)
            self._apply(change, before)
            if change.event is not None:
                self._settled_last = change.event.number
                if (before is None) != (change.after is None):
                    self.order = change.event.number
            if self._decided.get(change.id) is change:
                del self._decided[change.id]

    def _apply(self, change: Change, before: Entry | None) -> None:
        self.bytes += self._size_of(change.after) - self._size_of(before)
        if change.after is not None:
            self._entries[change.id] = change.after
            if before is None:
                insort(self.ids, change.id)
        elif before is not None:
            del self._entries[change.id]
            del self.ids[bisect_left(self.ids, change.id)]

    def forget(self) -> None:
        """Drop decided changes that are not settled, after a failed write."""
        self._decided.clear()
        self._count = len(self._entries)
        self._decided_bytes = self.bytes
        self._last = self._settled_last
        self._rebuild_heaps()

    # ---- ends

    def _rebuild_heaps(self) -> None:
        """Rebuild the heaps, without outdated ends."""
        decided = {id: change.after for id, change in self._decided.items()}
        kept = [entry for entry in {**self._entries, **decided}.values() if entry is not None]
        self._ticks = [(entry.due, entry.id) for entry in kept if entry.due is not None]
        self._walls = [(e.expires, e.id) for e in kept if e.due is None and e.expires is not None]
        heapify(self._ticks)
        heapify(self._walls)


def _is_unchanged(before: Entry, description: bytes, ends: tuple[float | None, float | None]) -> bool:
    """Return whether a change only restarts an equal time to live, and so needs no event."""
    if ends[0] != before.ttl or (ends[0] is None and ends[1] != before.expires):
        return False
    old = before.description
    return old == description or same(msgspec.json.decode(old), msgspec.json.decode(description))


def _event(number: int, before: Entry | None, after: Entry) -> LoggedEvent:
    if before is None:
        return LoggedEvent(number, "thing_created", after.id, after.encoded())
    patch = difference(before.data(), after.data())
    return LoggedEvent(number, "thing_updated", after.id, msgspec.json.encode({**patch, "id": after.id}))
