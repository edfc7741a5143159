"""The index of terms: which keys it finds, that it belongs to the values, and stores that have none."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.errors import StoreFailed
from lmos_actors.memories import Memories
from lmos_actors.persistence import (
    Check,
    Delete,
    DeleteRange,
    Expected,
    IndexedStore,
    MemoryStore,
    Put,
    SqliteStore,
    back_up,
    records_of,
)
from tests.matrix import examples
from tests.memories.keepers import keeper_on, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.persistence import Write


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    yield store
    store.close()


def put(key: str, *terms: str, space: str = "s", **more: Any) -> Put:
    return Put(space, key, b"value", terms=terms, **more)


def found(
    store: SqliteStore, *terms: str, start: str = "", stop: str = "\U0010ffff"
) -> tuple[int, list[str]]:
    matching = store.matching("s", terms, start=start, stop=stop)
    assert matching is not None
    return matching.indexed, sorted(matching.keys)


def tables_of(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_keys_are_found_by_their_terms(store: SqliteStore) -> None:
    assert isinstance(store, IndexedStore)
    assert not isinstance(MemoryStore(), IndexedStore)
    assert found(store, "tea") == (0, [])
    store.commit(
        [[put("a", "tea", "rain"), put("b", "tea"), put("c", "tea", space="t")], [put("d")]], "process"
    )
    assert found(store, "tea") == (2, ["a", "b"])
    assert found(store, "rain", "nothing") == (2, ["a"])
    assert found(store, "tea", start="b") == (1, ["b"])
    assert found(store, "tea", start="", stop="b") == (1, ["a"])
    assert found(store) == (2, [])
    store.close()
    store.open()
    assert found(store, "tea", "rain") == (2, ["a", "b"])


@pytest.mark.parametrize(
    ("write", "left"),
    [
        (put("a", "coffee"), (2, ["b"])),
        (put("a"), (1, ["b"])),
        (Delete("s", "a"), (1, ["b"])),
        (DeleteRange("s", "a", "b"), (1, ["b"])),
        (DeleteRange("s", "b"), (1, ["a"])),
        (DeleteRange("s"), (0, [])),
        (DeleteRange("t"), (2, ["a", "b"])),
        (Delete("s", "a", b"another"), (2, ["a", "b"])),
        (put("a", "coffee", expect=Expected.NOTHING), (2, ["a", "b"])),
        (Check("s", "a", b"value"), (2, ["a", "b"])),
    ],
)
def test_terms_go_with_their_values(store: SqliteStore, write: Write, left: Any) -> None:
    store.commit([[put("a", "tea"), put("b", "tea")]], "process")
    store.commit([[write]], "process")
    assert found(store, "tea") == left
    assert list(store.problems()) == []


TERMS = [
    "tea",
    "TEA",
    "a b",
    '"',
    "*",
    "OR",
    "tea*",
    "NEAR(a b)",
    "-",
    ":",
    "",
    "\0",
    "é",
    "e\u0301",
    "茶",
    "'",
]


@pytest.mark.timeout(300)
@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.sampled_from(TERMS), max_size=4), max_size=6), st.lists(st.sampled_from(TERMS)))
def test_a_term_is_no_language(tmp_path_factory: pytest.TempPathFactory, kept: Any, asked: list[str]) -> None:
    store = SqliteStore(tmp_path_factory.mktemp("terms") / "store.db")
    store.open()
    try:
        store.commit([[put(f"{number}", *terms) for number, terms in enumerate(kept)]], "process")
        _, keys = found(store, *asked)
        assert keys == [f"{number}" for number, terms in enumerate(kept) if {*terms} & {*asked} - {""}]
    finally:
        store.close()


def test_what_was_taken_back_is_not_found(store: SqliteStore) -> None:
    bad: Any = Put("s", "x", "no bytes", terms=("tea",))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises((TypeError, ValueError, AttributeError)):
        store.commit([[put("a", "tea")], [bad]], "process")
    assert found(store, "tea") == (0, [])
    store.commit([[put("a", "tea")]], "process")
    with pytest.raises((TypeError, ValueError, AttributeError)):
        store.commit([[Delete("s", "a"), bad]], "process")
    assert found(store, "tea") == (1, ["a"])


def test_a_file_without_terms_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.open()
    store.commit([[put("a")]], "process")
    assert store.matching("s", ["tea"], start="", stop="z") is not None
    store.close()
    assert tables_of(path) == {"records", "meta"}
    store.open()
    store.commit([[put("a", "tea")]], "process")
    store.close()
    assert {"term_keys", "terms"} <= tables_of(path)


def test_copies_have_the_index(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([[put(f"{number}", "tea", f"n{number}") for number in range(50)]], "process")
    back_up(store.name, str(tmp_path / "copy.db"))
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        db.execute("DELETE FROM records WHERE key < '2'")  # so that rows would be renumbered
        db.execute("DELETE FROM term_keys WHERE key < '2'")
        db.commit()
        db.execute("VACUUM")
    copy = SqliteStore(tmp_path / "copy.db")
    copy.open()
    try:
        indexed, keys = found(copy, "tea")
        assert indexed == len(keys) == len(list(records_of(copy, "s")))
        assert found(copy, "n30")[1] == ["30"]
    finally:
        copy.close()


def test_a_key_without_a_record_is_a_problem(store: SqliteStore) -> None:
    store.commit([[put("a", "tea")]], "process")
    with closing(sqlite3.connect(store.name)) as db:
        db.execute("DELETE FROM records")
        db.commit()
    assert list(store.problems()) == ["the index has 'a' in 's', and there is no such record"]


# ---- builds of SQLite without FTS5


class WithoutFts5(sqlite3.Connection):
    """A connection of a build without FTS5: the module is not there, under whatever name it is asked for."""

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        if " terms " in f"{sql} " and "term_keys" not in sql.replace("SELECT id FROM term_keys", ""):
            raise sqlite3.OperationalError("no such module: fts5")
        return super().execute(sql.replace("fts5", "no_such_module"), *rest)


@pytest.fixture
def without_fts5(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite3.connect

    def connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
        return real(*arguments, **{"factory": WithoutFts5, **more})

    monkeypatch.setattr(sqlite3, "connect", connect)


def test_without_fts5_there_is_no_index_and_one_warning(
    without_fts5: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    store.commit([[put("a", "tea")]], "process")
    store.commit([[put("b", "tea")]], "process")
    assert store.matching("s", ["tea"], start="", stop="z") is None
    assert list(records_of(store, "s")) == [("a", b"value"), ("b", b"value")]
    store.close()
    assert tables_of(tmp_path / "store.db") == {"records", "meta"}
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "has no FTS5" in warning.getMessage()


async def test_memories_without_fts5_and_with_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written by builds with and without it, all is found; then the index is whole again."""
    path = tmp_path / "kept.db"
    async with keeper_on(f"sqlite:{path}") as keeper:
        for text in ("likes tea", "hates tea", "tea at five"):
            await Memories(keeper, "alice").remember(text)
    with monkeypatch.context() as patched:
        real = sqlite3.connect
        patched.setattr(
            sqlite3, "connect", lambda *given, **more: real(*given, **{"factory": WithoutFts5, **more})
        )
        async with keeper_on(f"sqlite:{path}") as keeper:
            alice = Memories(keeper, "alice")
            (gone,) = await alice.recall("hates", 1)
            assert await alice.forget(gone.id)
            await alice.remember("tea without milk")
            await alice.remember("likes tea", ["again"])
            assert sorted(await texts(alice, "tea")) == ["likes tea", "tea at five", "tea without milk"]
    async with keeper_on(f"sqlite:{path}") as keeper:
        alice = Memories(keeper, "alice")
        assert sorted(await texts(alice, "tea")) == ["likes tea", "tea at five", "tea without milk"]
    store = SqliteStore(path)
    store.open()
    matching = store.matching("memories", [], start="", stop="z")
    assert matching is not None
    assert matching.indexed == 3, "the question has made it good"
    assert list(store.problems()) == []
    store.close()


async def test_a_store_around_another_that_hides_the_index_is_read_through(tmp_path: Path) -> None:
    class Wrapper:
        """A public store that passes on what a `Store` has, and no more."""

        def __init__(self, inner: SqliteStore) -> None:
            self.name, self.is_shared = inner.name, inner.is_shared
            self.open, self.close = inner.open, inner.close
            self.get, self.scan, self.commit = inner.get, inner.scan, inner.commit

    async with keeper_on(Wrapper(SqliteStore(tmp_path / "kept.db"))) as keeper:
        await Memories(keeper, "alice").remember("likes tea")
        assert await texts(Memories(keeper, "alice"), "tea") == ["likes tea"]


def test_a_closed_store_finds_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="it is closed"):
        SqliteStore(tmp_path / "store.db").matching("s", ["tea"], start="", stop="z")
