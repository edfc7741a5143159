"""Store of a directory: registrations and events in SQLite, with a write-ahead log and an exclusive lock.

A commit survives the end of the process, also by SIGKILL. With `synchronous = NORMAL` a power failure may
lose the last commits, and never corrupts the database; a full sync would slow every batch, and clients
renew their entries anyway. The module is independent of trio: the caller guarantees one
call at a time, in any thread.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import LmosActorsError

from ._changes import LoggedEvent
from ._entries import Entry, Moment, entry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._changes import Change
    from ._options import DirectoryOptions

VERSION: Final = 1
"""Version of the tables."""

APPLICATION: Final = 0x4C4D4F44
"""SQLite application id, which marks the databases of directories."""

TABLES: Final = """
CREATE TABLE things (
    id TEXT PRIMARY KEY, description BLOB NOT NULL, created REAL NOT NULL, modified REAL NOT NULL,
    expires REAL, ttl REAL, anonymous INTEGER NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, told BLOB NOT NULL);
CREATE TABLE about (life TEXT NOT NULL, last INTEGER NOT NULL, thing_order INTEGER NOT NULL);
"""

_SPARE_EVENTS: Final = 256  # outdated events that are kept, so that not every commit has to delete some


class StoreFailed(LmosActorsError):
    """Failure to read or write the database of a directory; `path` is its file."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"the database of a directory, {path}, failed: {why}")


@attrs.frozen
class StoredState:
    """Content of a database: registrations, last events, and the state of their numbering."""

    life: str
    last: int
    order: int
    entries: list[Entry]
    events: list[LoggedEvent]


class Store:
    """Database of one directory."""

    def __init__(self, options: DirectoryOptions) -> None:
        self.path = ":memory:" if options.path is None else str(options.path)
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._deleted = 0  # events up to this number are deleted

    def open(self, life: str, at: Moment) -> StoredState:
        """Open or create the database, and return its content; `life` is the id of a new one.

        Raises StoreFailed.
        """
        try:
            if self._db is None:
                self._db = _connected(self.path)
            _prepare(self._db, life)
            self._file = _file_at(self.path)
            return self._read(self._db, at)
        except (sqlite3.Error, ValueError) as error:
            self.close(for_good=True)
            raise StoreFailed(self.path, _why(error)) from None

    def _read(self, db: sqlite3.Connection, at: Moment) -> StoredState:
        life, last, order = db.execute("SELECT life, last, thing_order FROM about").fetchone()
        events = db.execute("SELECT number, kind, id, told FROM events ORDER BY number")
        things = db.execute("SELECT * FROM things")
        return StoredState(
            life, last, order, [_entry(row, at) for row in things], [LoggedEvent(*row) for row in events]
        )

    def commit(self, changes: Sequence[Change], oldest: int) -> None:
        """Write changes, all or none; events before number `oldest` may be deleted. Raises StoreFailed."""
        db = self._db
        if db is None:
            raise StoreFailed(self.path, "it is closed")
        # the file may have been deleted or replaced: what goes into the open one would be lost at the end
        if _file_at(self.path) != self._file:
            raise StoreFailed(self.path, "the file was removed or replaced while it was open")
        try:
            with db:
                db.execute("BEGIN")
                self._write(db, changes, oldest)
        except sqlite3.Error as error:
            raise StoreFailed(self.path, _why(error)) from None

    def _write(self, db: sqlite3.Connection, changes: Sequence[Change], oldest: int) -> None:
        last: dict[str, Change] = {change.id: change for change in changes}
        gone = [(change.id,) for change in last.values() if change.after is None]
        rows_kept = [_row(change.after) for change in last.values() if change.after is not None]
        db.executemany("DELETE FROM things WHERE id = ?", gone)
        db.executemany("INSERT OR REPLACE INTO things VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows_kept)
        events = [change.event for change in changes if change.event is not None]
        if not events:
            return
        rows = [(event.number, event.kind, event.id, event.full) for event in events]
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        order = [event.number for event in events if event.kind != "thing_updated"]
        db.execute(
            "UPDATE about SET last = ?, thing_order = max(thing_order, ?)",
            (events[-1].number, order[-1] if order else 0),
        )
        if oldest - self._deleted > _SPARE_EVENTS:
            db.execute("DELETE FROM events WHERE number < ?", (oldest,))
            self._deleted = oldest

    def __del__(self) -> None:
        self.close(for_good=True)

    def close(self, *, for_good: bool = False) -> None:
        """Close the database; one in memory is kept for a restart of the agent, unless `for_good`."""
        if self._db is not None and (for_good or self.path != ":memory:"):
            db, self._db = self._db, None
            db.close()


def _connected(path: str) -> sqlite3.Connection:
    # the caller guarantees one call at a time; each may come from another thread
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        return db
    except BaseException:
        db.close()
        raise


def _prepare(db: sqlite3.Connection, life: str) -> None:
    """Create the tables if there are none. Raises ValueError for the database of another program."""
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = db.execute("PRAGMA application_id").fetchone()[0]
        if tables and application != APPLICATION:
            raise ValueError("it is the database of another program")
        if tables and version != VERSION:
            raise ValueError(f"its tables are of version {version}, this program has {VERSION}")
        if not tables:
            for statement in TABLES.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("INSERT INTO about VALUES (?, 0, 0)", (life,))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    # only now, as these change the file
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA journal_size_limit = 67108864")


def _row(entry: Entry) -> tuple[Any, ...]:
    ends = (entry.expires, entry.ttl)
    return (entry.id, entry.description, entry.created, entry.modified, *ends, entry.anonymous, entry.number)


def _entry(row: tuple[Any, ...], at: Moment) -> Entry:
    """Return the entry of a row. A time to live goes on, and never exceeds its whole length.

    Without that limit a clock that was set back while the directory was down would prolong entries.
    """
    id, description, created, modified, expires, ttl, anonymous, number = row
    entry = entry_of(
        id,
        description,
        created=created,
        modified=modified,
        ends=(None, expires) if ttl is None else (ttl, None),
        at=at if ttl is None else Moment(wall=expires - ttl, tick=at.tick),
        anonymous=bool(anonymous),
        number=number,
    )
    if ttl is None:
        return entry
    return attrs.evolve(entry, due=at.tick + min(expires - at.wall, ttl))


def _file_at(path: str) -> tuple[int, int] | None:
    """Return the identity of a file, None for a missing one and for a database in memory."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _why(error: Exception) -> str:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return "another process, or another directory, has it open"
    return str(error) or type(error).__name__
