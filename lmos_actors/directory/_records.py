"""Records of a directory in a store: its registrations, its last events, and its id. No I/O.

Each change is one batch: the registration under its id, and the event under its number. Each event also
contains the number of the last event that changed the set of ids, so that no further record has to be written
with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from lmos_actors.persistence import Delete, DeleteRange, Put

from ._changes import Kind, LoggedEvent
from ._entries import Entry, Moment, entry_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmos_actors.persistence import Write

    from ._changes import Change

THINGS: Final = "directory.things"
"""Space of the registrations, by id."""

EVENTS: Final = "directory.events"
"""Space of the last events, by number."""

ABOUT: Final = "directory"
"""Space of the records about the whole directory."""

LIFE: Final = "life"
"""Key, in the space `ABOUT`, of the directory's id, for which the numbers of events are valid."""


class _Thing(msgspec.Struct):
    """Value of a registration."""

    description: msgspec.Raw
    created: float
    modified: float
    expires: float | None
    ttl: float | None
    anonymous: bool
    number: int
    owner: str = ""


class _Logged(msgspec.Struct):
    """Value of an event; `order` is the number of the last event so far that changed the set of ids."""

    kind: Kind
    id: str
    order: int
    full: msgspec.Raw = msgspec.Raw(b"null")


_encode: Final = msgspec.json.Encoder().encode
_thing_of: Final = msgspec.json.Decoder(_Thing).decode
_logged_of: Final = msgspec.json.Decoder(_Logged).decode


@attrs.frozen
class StoredState:
    """Content of a store: registrations, last events, and the state of their numbering."""

    last: int
    order: int
    entries: list[Entry]
    events: list[LoggedEvent]


def stored_state(
    things: Iterable[tuple[str, bytes]], events: Iterable[tuple[str, bytes]], at: Moment
) -> StoredState:
    """Return the state that is stored in the records of things and of events."""
    last = order = 0
    logged: list[LoggedEvent] = []
    for key, value in events:
        found = _logged_of(value)
        last, order = int(key, 16), found.order
        full = bytes(found.full)
        logged.append(LoggedEvent(last, found.kind, found.id, b"" if full == b"null" else full))
    return StoredState(last, order, [_entry(id, _thing_of(value), at) for id, value in things], logged)


def life_of(life: str) -> Put:
    """Return the write that stores a new directory's id."""
    return Put(ABOUT, LIFE, life.encode())


class Records:
    """Writes of a directory's changes, in the order in which they are decided."""

    def __init__(self, order: int) -> None:
        self._order = order
        self._deleted = 0  # events before this number are deleted

    def writes_of(self, changes: Sequence[Change], oldest: int) -> list[Write]:
        """Return the writes of changes; events before number `oldest` may be deleted."""
        writes: list[Write] = []
        for change in changes:
            after, event = change.after, change.event
            writes.append(
                Delete(THINGS, change.id) if after is None else Put(THINGS, change.id, _value(after))
            )
            if event is not None:
                writes.append(Put(EVENTS, _key(event.number), self._logged(event)))
        if oldest - self._deleted > 256:  # so that not every commit has to delete some
            writes.append(DeleteRange(EVENTS, stop=_key(oldest)))
            self._deleted = oldest
        return writes

    def forget(self, order: int) -> None:
        """Continue from the written state, after a failed write."""
        self._order = order
        self._deleted = 0

    def _logged(self, event: LoggedEvent) -> bytes:
        if event.kind != "thing_updated":
            self._order = event.number
        return _encode(_Logged(event.kind, event.id, self._order, msgspec.Raw(event.full or b"null")))


def _key(number: int) -> str:
    return f"{number:016x}"


def _value(entry: Entry) -> bytes:
    return _encode(
        _Thing(
            msgspec.Raw(entry.description),
            entry.created,
            entry.modified,
            entry.expires,
            entry.ttl,
            entry.anonymous,
            entry.number,
            entry.owner,
        )
    )


def _entry(id: str, thing: _Thing, at: Moment) -> Entry:
    """Return the entry of a record, with the rest of its time to live.

    The rest is never longer than the whole time to live. Without that limit, a clock that was set back while
    the directory was down would prolong entries.
    """
    ttl, expires, start = thing.ttl, thing.expires, at
    if ttl is not None and expires is not None:
        start = Moment(wall=expires - ttl, tick=at.tick)
    entry = entry_of(
        id,
        bytes(thing.description),
        created=thing.created,
        modified=thing.modified,
        ends=(None, expires) if ttl is None else (ttl, None),
        at=start,
        anonymous=thing.anonymous,
        number=thing.number,
        owner=thing.owner,
    )
    if ttl is None or expires is None:
        return entry
    return attrs.evolve(entry, due=at.tick + min(expires - at.wall, ttl))
