"""A full-text index in memory, ranked by BM25. It uses SQLite's FTS5, which comes with Python."""

from __future__ import annotations

import re
import sqlite3
import weakref
from typing import Any, Final, cast

import msgspec

from lmos_actors.errors import ConfigError

WORDS: Final = 32
"""Limit on the words of a query: the first ones count."""

LONGEST_WORD: Final = 64
LONGEST_TEXT: Final = 16 << 10
"""Limit on the characters of a text: the first ones count."""

_WORD: Final = re.compile(r"\w+")


class TextIndex:
    """An index of texts by number. The constructor raises ConfigError if this Python's SQLite has no FTS5."""

    def __init__(self) -> None:
        # no other thread uses it; simulations run it in the thread that made it, too
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)  # hubs have no end; Python 3.13 warns of one left open
        try:
            self._database.execute("CREATE VIRTUAL TABLE texts USING fts5(words)")
        except sqlite3.OperationalError as error:
            raise ConfigError(f"this Python's SQLite has no full-text search (FTS5): {error}") from None

    def add(self, number: int, text: str) -> None:
        """Add a text."""
        words = " ".join(_WORD.findall(text[:LONGEST_TEXT]))
        self._database.execute("INSERT INTO texts(rowid, words) VALUES (?, ?)", (number, words))

    def remove(self, number: int) -> None:
        """Remove a text, which need not exist."""
        self._database.execute("DELETE FROM texts WHERE rowid = ?", (number,))

    def search(self, query: str, *, every: bool, limit: int) -> list[tuple[int, float]]:
        """Return the numbers of the best texts and their scores, the highest first.

        With `every` a text must have all words of the query, otherwise at least one.
        """
        words = [word[:LONGEST_WORD] for word in _WORD.findall(query[:LONGEST_TEXT])[:WORDS]]
        if not words:
            return []
        asked = (" AND " if every else " OR ").join(f'"{word}"' for word in words)
        found = self._database.execute(
            "SELECT rowid, -bm25(texts) FROM texts WHERE texts MATCH ?"
            " ORDER BY bm25(texts), rowid DESC LIMIT ?",
            (asked, limit),
        )
        return cast("list[tuple[int, float]]", found.fetchall())


def text_of(value: Any) -> str:
    """Return a payload as one text, with the names of its members."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode("utf-8", "replace").replace("\\n", " ")
