"""Bare SQLite: the rows and transactions of a node's store, without agents, trio or threads."""

from __future__ import annotations

import sqlite3
from tempfile import TemporaryDirectory
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[str, str, bytes, int]

TABLE = (
    "CREATE TABLE records (space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,"
    " UNIQUE (space, key))"
)
PUT = " ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, sum = excluded.sum"
TOGETHER = 125  # rows of a statement: faster than `executemany`


def connected(path: str, *, synced: bool = False) -> sqlite3.Connection:
    """A new database with the PRAGMAs of a store."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
    db.execute("PRAGMA journal_size_limit = 67108864")
    db.execute(TABLE)
    return db


def row(key: str, balance: int) -> Row:
    """What a store writes for one turn of an account."""
    value = (
        b'{"class":"tests.benchmarks.durable:Account","version":1,"at":1790000000.123456,'
        b'"fields":{"owner":"%s","balance":%d},"facts":0}' % (key.encode(), balance)
    )
    return "state", key, value, crc32(value, crc32(f"state\0{key}".encode()))


def put(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write rows in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    for start in range(0, len(rows), TOGETHER):
        page = rows[start : start + TOGETHER]
        values: list[Any] = [value for each in page for value in each]
        db.execute(f"INSERT INTO records VALUES {', '.join(['(?, ?, ?, ?)'] * len(page))}{PUT}", values)
    db.execute("COMMIT")


def rows_written(agents: int, n: int, *, synced: bool = False) -> float:
    """Rows a second: `n` of them, one for each of `agents` in each transaction."""
    names = [f"account-{number}" for number in range(min(agents, n))]
    with TemporaryDirectory() as folder:
        db = connected(f"{folder}/bare.db", synced=synced)
        began = clock()
        for balance in range(n // len(names)):
            put(db, [row(name, balance) for name in names])
        seconds = clock() - began
        db.close()
        return n // len(names) * len(names) / seconds


def rows_read(n: int) -> float:
    """Rows a second, each read by its key and decoded."""
    with TemporaryDirectory() as folder:
        db = connected(f"{folder}/bare.db")
        put(db, [row(f"account-{number}", number) for number in range(n)])
        began = clock()
        for number in range(n):
            key = "state", f"account-{number}"
            (value,) = db.execute("SELECT value FROM records WHERE space = ? AND key = ?", key).fetchone()
            msgspec.json.decode(value)
        seconds = clock() - began
        db.close()
        return n / seconds


def rows_scanned(n: int) -> float:
    """Rows a second of a journal, read a thousand at a time and decoded."""
    fact = b'{"version":1,"fact":{"is":"Paid","amount":1}}'
    with TemporaryDirectory() as folder:
        db = connected(f"{folder}/bare.db")
        put(db, [("journal", f"ledger\0{number:016x}", fact, 0) for number in range(1, n + 1)])
        began, last, found = clock(), "", 0
        while page := db.execute(
            "SELECT key, value FROM records WHERE space = ? AND key > ? ORDER BY key LIMIT 1000",
            ("journal", last),
        ).fetchall():
            for _, value in page:
                msgspec.json.decode(value)
            last, found = page[-1][0], found + len(page)
        seconds = clock() - began
        db.close()
        assert found == n
        return n / seconds
