"""The index of a SQLite store, which finds the keys that have a term. It uses SQLite's FTS5.

What this module guarantees:

- **Existing files stay unchanged.** The two tables are created in the transaction that writes the first value
  with terms. A program without this module reads and writes the records as before.
- **The index only finds keys.** Other code reads their values, and judges how well they match. So a missing
  or incomplete index costs time and changes no result; `Matching.indexed` reveals it.
- **No term is read as query syntax.** The tables hold the bytes of a term as hexadecimal digits.
- **Without FTS5** in this build of SQLite nothing is indexed. If another build has made the index of a file,
  the written keys are removed from it (`term_keys` is an ordinary table). Their terms remain under numbers
  that are never used again (`AUTOINCREMENT`), and so they are never found.

The row numbers here are independent of the row numbers of the records, which `VACUUM` may change.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final

from ._store import Check, Delete, Matching, Put

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._store import Write

TABLES: Final = (
    "CREATE TABLE term_keys (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, key TEXT NOT NULL,"
    " UNIQUE (space, key))",
    "CREATE VIRTUAL TABLE terms USING fts5 (words, tokenize = 'ascii', detail = 'none', columnsize = 0)",
)

_HAS_MODULE: Final = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
_ARE_MADE: Final = "SELECT count(*) FROM sqlite_master WHERE name IN ('term_keys', 'terms')"
_NEXT_SPACE: Final = "SELECT min(space) FROM term_keys WHERE space > ?"

_FIND: Final = (
    "SELECT term_keys.key FROM terms CROSS JOIN term_keys ON term_keys.id = terms.rowid"
    " WHERE terms MATCH ? AND term_keys.space = ? AND term_keys.key >= ? AND term_keys.key < ?"
)
"""`CROSS JOIN` makes SQLite look up the terms first; else it looks up each key of the range among them."""
_COUNT: Final = "SELECT count(*) FROM term_keys WHERE space = ? AND key >= ? AND key < ?"
_STRAY: Final = (
    "SELECT space, key FROM term_keys WHERE NOT EXISTS"
    " (SELECT 1 FROM records WHERE records.space = term_keys.space AND records.key = term_keys.key)"
)


class TermIndex:
    """The index of one open file. Its writes belong to the transaction of its caller."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        """Load the state of the tables. Raise sqlite3.Error."""
        self._db = db
        self._name = name
        self._has_module = _has_module(db)
        self._has_warned = False
        self._is_made = False
        self.spaces: set[str] = set()
        """The spaces with terms: writes to other spaces do not concern the index."""
        self.reload()

    def reload(self) -> None:
        """Read the state of the tables again, for example after a transaction was rolled back."""
        self._is_made = self._db.execute(_ARE_MADE).fetchone()[0] == len(TABLES)
        self.spaces = set()
        space = ""
        while self._is_made:
            (space,) = self._db.execute(_NEXT_SPACE, (space,)).fetchone()
            if space is None:
                return
            self.spaces.add(space)

    # ---- writing

    def note(self, write: Write) -> None:
        """Update the index for a write."""
        if isinstance(write, Check):
            return
        if isinstance(write, Put | Delete):
            self._remove("space = ? AND key = ?", (write.space, write.key))
            if isinstance(write, Put) and write.terms:
                self._add(write)
        elif write.stop is None:
            self._remove("space = ? AND key >= ?", (write.space, write.start))
        else:
            self._remove("space = ? AND key >= ? AND key < ?", (write.space, write.start, write.stop))

    def _remove(self, where: str, values: tuple[str, ...]) -> None:
        if not self._is_made or values[0] not in self.spaces:
            return
        if self._has_module:
            self._db.execute(
                f"DELETE FROM terms WHERE rowid IN (SELECT id FROM term_keys WHERE {where})", values
            )
        self._db.execute(f"DELETE FROM term_keys WHERE {where}", values)

    def _add(self, put: Put) -> None:
        if not self._has_module:
            self._warn()
            return
        if not self._is_made:
            for statement in TABLES:
                self._db.execute(statement)
            self._is_made = True
        self.spaces.add(put.space)
        made = self._db.execute("INSERT INTO term_keys (space, key) VALUES (?, ?)", (put.space, put.key))
        words = " ".join(map(_written, put.terms))
        self._db.execute("INSERT INTO terms (rowid, words) VALUES (?, ?)", (made.lastrowid, words))

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logging.getLogger("lmos_actors").warning(
                "the SQLite %s of this Python has no FTS5: searches in %s read all that is searched, which "
                "finds the same and takes longer",
                sqlite3.sqlite_version,
                self._name,
            )

    # ---- reading

    def matching(self, space: str, terms: Sequence[str], start: str, stop: str) -> Matching | None:
        """Return the keys in a range that have at least one of the terms, or None without FTS5."""
        if not self._has_module:
            return None
        if space not in self.spaces:
            return Matching(0, [])
        (count,) = self._db.execute(_COUNT, (space, start, stop)).fetchone()
        keys: list[str] = []
        if terms:
            asked = " OR ".join(f'"{_written(term)}"' for term in terms)
            keys = [key for (key,) in self._db.execute(_FIND, (asked, space, start, stop))]
        return Matching(count, keys)

    def problems(self) -> Iterator[str]:
        """Yield the errors in the index: keys that have no record."""
        if self._is_made:
            for space, key in self._db.execute(_STRAY):
                yield f"the index has {key!r} in {space!r}, and there is no such record"


def _has_module(db: sqlite3.Connection) -> bool:
    try:
        return bool(db.execute(_HAS_MODULE).fetchone()[0])
    except sqlite3.OperationalError:  # a build that cannot even be asked
        return False


def _written(term: str) -> str:
    return term.encode().hex()
