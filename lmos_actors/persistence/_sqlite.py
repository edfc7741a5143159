"""The default store: one SQLite file, with a write-ahead log and one writer.

What this module guarantees:

- **One writer.** A lock beside the file (`_lock_file.py`) excludes all other writers. On a file system
  without locks, the writer's number does so: each opening takes the next number, and each commit checks that
  its number is still the newest. SQLite before 3.51.3 can lose commits when two connections write or
  checkpoint at the same instant; here only one may.
- **Backups can read the file**: SQLite's own locks are held during a transaction only.
- **A commit survives a `kill -9`**: it is in the log when `commit` returns. With "power" the log is also
  synced, including all earlier commits.
- **Damage is noticed.** SQLite has checksums in its log but none in the file, so here each record has one.
- **No foreign file is overwritten**: the kind of a file is checked before anything in it is changed.
- **Terms are found** by an index in the same file, made when it is first needed (`_sqlite_terms.py`).

The records are in a table with a row number and an index over space and key. Without the row number (`WITHOUT
ROWID`) the rows would be in the inner pages of the tree: writing values of 400 bytes took three times as
long, of 2,000 bytes five times, and the file was twice the size.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from zlib import crc32

from lmos_actors.errors import (
    StoreDamaged,
    StoreFailed,
    StoreFenced,
    StoreForeign,
    StoreFull,
    StoreInaccessible,
    StoreInUse,
    StoreNewer,
    StoreReplaced,
)

from ._lock_file import LockFile
from ._sqlite_terms import TermIndex
from ._store import Check, Delete, DeleteRange, Expected, Put

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._store import Batch, Conflict, Durability, Matching

APPLICATION: Final = 0x4C4D4F53
"""SQLite application id, which marks the files of stores: "LMOS"."""

VERSION: Final = 1
"""Version of the tables."""

TABLES: Final = (
    "CREATE TABLE records (space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,"
    " UNIQUE (space, key))",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO meta VALUES ('writer', 0)",
)

BUSY_SECONDS: Final = 1.0  # another program's transaction, such as that of a shell, is waited for

_ROWS: Final = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Records per statement, so that any number takes few statements: each releases the interpreter several
times, and waits 5 ms to get it back while the event loop computes."""

_PUT: Final = {
    rows: f"INSERT INTO records VALUES {', '.join(['(?, ?, ?, ?)'] * rows)}"
    " ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, sum = excluded.sum"
    for rows in _ROWS
}
_COUNT_SYNC: Final = "INSERT INTO meta VALUES ('syncs', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
"""A count that grows, as SQLite syncs only what it writes: equal values would sync nothing."""

_GET: Final = "SELECT value, sum FROM records WHERE space = ? AND key = ?"
_GET_SOME: Final = "SELECT key, value, sum FROM records WHERE space = ? AND key IN"
_SCAN: Final = "SELECT key, value, sum FROM records WHERE space = ? AND key >= ? ORDER BY key LIMIT ?"
_SCAN_TO: Final = (
    "SELECT key, value, sum FROM records WHERE space = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
)
_DELETE: Final = "DELETE FROM records WHERE space = ? AND key = ?"
_DELETE_FROM: Final = "DELETE FROM records WHERE space = ? AND key >= ?"
_DELETE_TO: Final = "DELETE FROM records WHERE space = ? AND key >= ? AND key < ?"

_KINDS: Final[dict[int, type[StoreFailed]]] = {
    sqlite3.SQLITE_BUSY: StoreInUse,
    sqlite3.SQLITE_LOCKED: StoreInUse,
    sqlite3.SQLITE_NOTADB: StoreForeign,
    sqlite3.SQLITE_CORRUPT: StoreDamaged,
    sqlite3.SQLITE_IOERR_SHORT_READ: StoreDamaged,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreInaccessible,
    sqlite3.SQLITE_CANTOPEN: StoreInaccessible,
    sqlite3.SQLITE_PERM: StoreInaccessible,
}
"""The meanings of SQLite's error codes: of extended codes, or else of their last byte, the primary code."""


class SqliteStore:
    """A store in one SQLite file; a missing file or folder is made, with access for its owner alone.

    With `read_only` the file has to exist and nothing in it is changed; it is still locked.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.name = os.fspath(path)
        self.is_shared = False
        self._path = os.path.realpath(self.name)  # whatever link leads to it, the lock is the same
        self._read_only = read_only
        self._lock = LockFile(self._path)
        self._db: sqlite3.Connection | None = None
        self._terms: TermIndex | None = None
        self._file: os.stat_result | None = None
        self._writer = 0
        self._synced = False
        self._rows: list[int] = []  # as `_ROWS`, as far as SQLite was built for statements as long

    # ---- opening and closing

    def open(self) -> None:
        """Open or make the file; see `Store`."""
        if self._db is not None:
            raise StoreInUse(self.name, "it is open already")
        if not self._read_only:
            folder = os.path.dirname(self._path)
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError as error:
                why = f"its folder cannot be made: {error.filename or folder}: {error.strerror}"
                raise StoreInaccessible(self.name, why) from None
        self._take_lock()
        try:
            self._check_file()
            if not self._read_only:
                self._make_file()
            self._db = self._connected()
            self._file = os.stat(self._path)
            self._prepare(self._db)
            self._terms = TermIndex(self._db, self.name)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from None
            if isinstance(error, OSError):
                raise StoreInaccessible(self.name, error.strerror or str(error)) from None
            raise

    def close(self) -> None:
        """Close the file, and move the log into it; does nothing if it is closed."""
        db, self._db, self._terms = self._db, None, None
        try:
            if db is not None:
                with suppress(sqlite3.Error):  # what is committed is in the log
                    db.close()
            if self._read_only and self._lock.is_held:
                tidy(self._path)
        finally:
            self._lock.release()

    def _take_lock(self) -> None:
        try:
            free = self._lock.acquire()
        except OSError as error:
            if self._read_only and not os.path.exists(self._lock.path):
                return  # in a folder that cannot be written
            why = f"{os.path.dirname(self._path)}: {error.strerror}"
            raise StoreInaccessible(self.name, why) from None
        if not free:
            raise StoreInUse(self.name, f"{self._lock.owner()} has it open")

    def _check_file(self) -> None:
        if os.path.isdir(self._path):
            raise StoreForeign(self.name, "it is a folder")
        size = os.path.getsize(self._path) if os.path.exists(self._path) else None
        if self._read_only and not size:
            why = "there is no such file" if size is None else "it is empty"
            raise StoreForeign(self.name, why)
        log = f"{self._path}-wal"
        if not size and os.path.exists(log) and os.path.getsize(log):
            # SQLite would take the log for a left-over of another file, and remove it
            raise StoreDamaged(
                self.name, f"it is {'missing' if size is None else 'empty'}, but its log is there"
            )

    def _make_file(self) -> None:
        try:
            made = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return
        os.close(made)
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # a file whose name is not on the disk is lost with all its commits
        finally:
            os.close(folder)

    def _connected(self) -> sqlite3.Connection:
        # calls come one at a time, each from another thread; the module itself begins no transactions
        if not self._read_only:
            return sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        return connected_to_read(self._path)

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA trusted_schema = OFF")  # views and triggers that somebody has put in run nothing
        db.execute("PRAGMA cell_size_check = ON")  # damaged pages are noticed earlier
        if self._read_only:
            if not check_kind(db, self.name):
                raise StoreForeign(self.name, "it is an empty database")
            return
        db.execute("BEGIN IMMEDIATE")
        try:
            if not check_kind(db, self.name):
                for statement in TABLES:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("UPDATE meta SET value = value + 1 WHERE name = 'writer'")
            self._writer = self._newest_writer(db)
            db.execute("COMMIT")
        except BaseException:
            roll_back(db)
            raise
        # only now, as this changes the file: commits are appended to a log, and readers are not in the way
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreFailed(self.name, "its file system has no shared memory, which the log needs")
        db.execute("PRAGMA synchronous = NORMAL")  # no sync at a commit: see `commit`
        db.execute("PRAGMA fullfsync = ON")  # on macOS a sync alone does not reach the disk
        db.execute("PRAGMA journal_size_limit = 67108864")  # after a burst the log is cut to 64 MiB
        self._synced = False
        most = db.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // 4
        self._rows = [rows for rows in _ROWS if rows <= most]

    # ---- reading

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        db = self._opened()
        try:
            return [self._value(db, space, key) for key in keys]
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        db = self._opened()
        try:
            if stop is None:
                rows = db.execute(_SCAN, (space, start, limit))
            else:
                rows = db.execute(_SCAN_TO, (space, start, stop, limit))
            return [(key, self._checked(space, key, value, total)) for key, value, total in rows]
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def matching(self, space: str, terms: Sequence[str], *, start: str, stop: str) -> Matching | None:
        """Return the keys in a range whose values have at least one of the terms; see `IndexedStore`."""
        self._opened()
        try:
            return None if self._terms is None else self._terms.matching(space, terms, start, stop)
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def spaces(self) -> Iterator[str]:
        """Yield the names of all spaces, in their order. Raise StoreFailed."""
        db, last = self._opened(), None
        try:
            while True:
                where = "" if last is None else " WHERE space > ?"
                row = db.execute(f"SELECT min(space) FROM records{where}", () if last is None else (last,))
                last = row.fetchone()[0]
                if last is None:
                    return
                yield last
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def problems(self) -> Iterator[str]:
        """Yield the errors in the file: in its pages, its index, its records. Raise StoreFailed."""
        db = self._opened()
        try:
            found = [text for (text,) in db.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                yield from found
            rows = db.execute("SELECT space, key, value, sum FROM records")
            for space, key, value, total in rows:
                if sum_of(space, key, value) != total:
                    yield f"the record {key!r} in {space!r} has another content than was written"
            if self._terms is not None:
                yield from self._terms.problems()
        except sqlite3.DatabaseError as error:
            yield str(error)

    def _value(self, db: sqlite3.Connection, space: str, key: str) -> bytes | None:
        row = db.execute(_GET, (space, key)).fetchone()
        return None if row is None else self._checked(space, key, *row)

    def _checked(self, space: str, key: str, value: Any, total: int) -> bytes:
        if type(value) is not bytes or sum_of(space, key, value) != total:
            raise StoreDamaged(
                self.name, f"the record {key!r} in {space!r} has another content than was written"
            )
        return value

    # ---- writing

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches; see `Store`."""
        db = self._opened()
        if self._read_only:
            raise StoreInaccessible(self.name, "it was opened to be read only", "open it to write")
        self._check_place()
        try:
            at_commit = durability == "power"
            if at_commit != self._synced:  # NORMAL syncs the log only when it is moved into the file
                db.execute(f"PRAGMA synchronous = {'FULL' if at_commit else 'NORMAL'}")
                self._synced = at_commit
            db.execute("BEGIN IMMEDIATE")
            try:
                if self._newest_writer(db) != self._writer:
                    raise StoreFenced(self.name, "another writer has opened it since")
                puts = _Puts(db, self._rows)
                assert self._terms is not None
                checked = self._checked_ahead(db, batches)
                conflicts = [self._apply(puts, self._terms, batch, checked) for batch in batches]
                puts.write()
                if durability == "power":
                    db.execute(_COUNT_SYNC)
                db.execute("COMMIT")
            except BaseException:
                roll_back(db)
                self._reload_terms()
                raise
        except sqlite3.Error as error:
            raise self._failure(error) from None
        return conflicts

    def _reload_terms(self) -> None:
        if self._terms is not None:
            with suppress(sqlite3.Error):  # the next commit raises it
                self._terms.reload()

    def _check_place(self) -> None:
        """Raise StoreReplaced if the file was removed or replaced: writes would be lost once it is closed."""
        try:
            found = os.stat(self._path)
        except OSError:
            found = None
        if found is None or self._file is None or not os.path.samestat(found, self._file):
            raise StoreReplaced(self.name, f"it was {'removed' if found is None else 'replaced'} while open")

    def _newest_writer(self, db: sqlite3.Connection) -> int:
        row = db.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()
        if row is None:
            raise StoreDamaged(self.name, "the number of its writer is missing")
        return int(row[0])

    def _checked_ahead(self, db: sqlite3.Connection, batches: Sequence[Batch]) -> dict[str, dict[str, bytes]]:
        """Return the values that checks refer to, in the spaces to which no batch writes.

        They are read in few statements, because many batches of a commit may have checks.
        """
        checks = [write for batch in batches for write in batch if type(write) is Check]
        if not checks:
            return {}
        written = {write.space for batch in batches for write in batch if type(write) is not Check}
        keys: dict[str, dict[str, None]] = {}
        for write in checks:
            if write.space not in written:
                keys.setdefault(write.space, {})[write.key] = None
        return {space: self._values(db, space, list(wanted)) for space, wanted in keys.items()}

    def _values(self, db: sqlite3.Connection, space: str, keys: list[str]) -> dict[str, bytes]:
        most, found = 4 * self._rows[0] - 1, dict[str, bytes]()
        for start in range(0, len(keys), most):
            some = keys[start : start + most]
            rows = db.execute(f"{_GET_SOME} ({', '.join('?' * len(some))})", (space, *some))
            found |= {key: self._checked(space, key, value, total) for key, value, total in rows}
        return found

    def _apply(
        self, puts: _Puts, terms: TermIndex, batch: Batch, checked: dict[str, dict[str, bytes]]
    ) -> Conflict | None:
        for write in batch:
            if type(write) is DeleteRange or write.expect is Expected.ANYTHING:
                continue
            if type(write) is Check and write.space in checked:
                value = checked[write.space].get(write.key)
            else:
                puts.write()  # of batches before this
                value = self._value(puts.db, write.space, write.key)
            if value != (None if write.expect is Expected.NOTHING else write.expect):
                return write.space, write.key
        for write in batch:
            has_terms = write.space in terms.spaces
            if type(write) is Put:
                puts.add(write)
                has_terms = has_terms or bool(write.terms)
            elif type(write) is not Check:
                puts.write()
                _delete(puts.db, write)
            if has_terms:
                terms.note(write)
        return None

    # ---- errors

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreFailed(self.name, "it is closed", "open it first")
        return self._db

    def _failure(self, error: sqlite3.Error) -> StoreFailed:
        return failure_of(self.name, error)


def failure_of(name: str, error: sqlite3.Error) -> StoreFailed:
    """Return the store failure for an SQLite error."""
    code = getattr(error, "sqlite_errorcode", 0)
    if not code and "decode to UTF-8" in str(error):  # of Python's module: a damaged key
        return StoreDamaged(name, str(error))
    kind = _KINDS.get(code) or _KINDS.get(code & 0xFF, StoreFailed)
    why = "another program is writing to it" if kind is StoreInUse else str(error) or type(error).__name__
    return kind(name, why)


def sum_of(space: str, key: str, value: bytes) -> int:
    """Return the checksum of a record."""
    return crc32(value, crc32(f"{space}\0{key}".encode()))


def roll_back(db: sqlite3.Connection) -> None:
    """Roll back the open transaction, if there is one: after some errors SQLite has already ended it."""
    if db.in_transaction:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def connected_to_read(path: str) -> sqlite3.Connection:
    """Return a connection that changes neither the file nor its log, even while another process writes."""
    uri = f"file:{quote(path)}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)


def tidy(path: str) -> None:
    """Remove the files that a reading connection leaves beside a store; the caller holds the store's lock."""
    with suppress(OSError):
        if os.path.getsize(f"{path}-wal") == 0:
            os.unlink(f"{path}-wal")
            os.unlink(f"{path}-shm")


def check_kind(db: sqlite3.Connection, name: str) -> bool:
    """Return whether a file has tables. Raise StoreForeign or StoreNewer if this program cannot use them."""
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not tables:
        return False
    if application != APPLICATION:
        raise StoreForeign(name, "it is the database of another program")
    if version > VERSION:
        raise StoreNewer(name, f"its tables are of version {version}, this program knows {VERSION}")
    return True


class _Puts:
    """Values to be written, in as few statements as possible."""

    def __init__(self, db: sqlite3.Connection, rows: Sequence[int]) -> None:
        self.db = db
        self._rows = rows
        self._parameters: list[Any] = []

    def add(self, put: Put) -> None:
        space, key, value = put.space, put.key, put.value
        self._parameters += (space, key, value, sum_of(space, key, value))
        if len(self._parameters) == 4 * self._rows[0]:
            self.write()

    def write(self) -> None:
        """Write the values added so far."""
        parameters, start = self._parameters, 0
        for rows in self._rows if parameters else ():
            while len(parameters) - start >= 4 * rows:
                self.db.execute(_PUT[rows], parameters[start : start + 4 * rows])
                start += 4 * rows
        self._parameters = []


def _delete(db: sqlite3.Connection, write: Delete | DeleteRange) -> None:
    space = write.space
    if isinstance(write, Delete):
        db.execute(_DELETE, (space, write.key))
    elif write.stop is None:
        db.execute(_DELETE_FROM, (space, write.start))
    else:
        db.execute(_DELETE_TO, (space, write.start, write.stop))
