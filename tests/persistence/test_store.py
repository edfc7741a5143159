"""What every store does: a table of behaviours, and random programs against a dict."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmos_actors.errors import StoreFailed, StoreInUse
from lmos_actors.persistence import (
    Check,
    Delete,
    DeleteRange,
    Expected,
    MemoryStore,
    Put,
    SimulatedStore,
    after,
    records_of,
)
from tests.matrix import examples, some
from tests.persistence.stores import KINDS, STORES, every_store
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from lmos_actors.persistence import Durability, Store, Write
    from tests.persistence.stores import Make

ABC = [Put("s", key, key.encode()) for key in "abc"]
GONE = Expected.NOTHING
DURABILITIES: tuple[Durability, ...] = ("process", "power")


def opened(make: Make, folder: Path) -> Store:
    store = make(folder)
    store.open()
    return store


@every_store
@pytest.mark.parametrize(
    ("batches", "conflicts", "content"),
    some([
        ([], [], {}),
        ([[]], [None], {}),
        ([ABC], [None], {"a": b"a", "b": b"b", "c": b"c"}),
        ([[*ABC, Put("s", "a", b"x")]], [None], {"a": b"x", "b": b"b", "c": b"c"}),
        ([ABC, [Put("s", "b", b"")]], [None, None], {"a": b"a", "b": b"", "c": b"c"}),
        ([ABC, [Delete("s", "b"), Delete("s", "x"), Delete("t", "a")]], [None] * 2, {"a": b"a", "c": b"c"}),
        ([ABC, [DeleteRange("s")]], [None, None], {}),
        ([ABC, [DeleteRange("t")]], [None, None], {"a": b"a", "b": b"b", "c": b"c"}),
        ([ABC, [DeleteRange("s", "b")]], [None, None], {"a": b"a"}),
        ([ABC, [DeleteRange("s", stop="b")]], [None, None], {"b": b"b", "c": b"c"}),
        ([ABC, [DeleteRange("s", "b", "c"), Put("s", "bb", b"")]], [None] * 2,
         {"a": b"a", "bb": b"", "c": b"c"}),
        ([ABC, [DeleteRange("s", "c", "a")]], [None, None], {"a": b"a", "b": b"b", "c": b"c"}),
        # expectations are of what was before the batch; one that fails leaves out its batch alone
        ([[Put("s", "a", b"1", GONE)]], [None], {"a": b"1"}),
        ([[Put("s", "a", b"1", b"")]], [("s", "a")], {}),
        ([[Put("s", "a", b"1")], [Put("s", "a", b"2", b"1")]], [None, None], {"a": b"2"}),
        ([[Put("s", "a", b"1")], [Put("s", "a", b"2", GONE)]], [None, ("s", "a")], {"a": b"1"}),
        ([[Put("s", "a", b"1"), Put("s", "b", b"1", b"x")], [Put("s", "c", b"1")]],
         [("s", "b"), None], {"c": b"1"}),
        ([[Put("s", "a", b"1", GONE), Put("s", "a", b"2", GONE)]], [None], {"a": b"2"}),
        ([ABC, [Delete("s", "a", b"a"), Delete("s", "x", GONE)]], [None, None], {"b": b"b", "c": b"c"}),
        ([ABC, [Delete("s", "b"), Delete("s", "a", b"b")]], [None, ("s", "a")],
         {"a": b"a", "b": b"b", "c": b"c"}),
        ([ABC, [Delete("s", "x", b"")]], [None, ("s", "x")], {"a": b"a", "b": b"b", "c": b"c"}),
        ([[Put("s", "a", b"1")], [Check("s", "a", b"1"), Put("s", "b", b"")]], [None, None],
         {"a": b"1", "b": b""}),
        ([[Check("s", "a", GONE), Check("s", "b", b"")]], [("s", "b")], {}),
        ([ABC, [Put("s", "d", b""), Check("s", "a", b"b")], [Check("s", "b", b"b")]],
         [None, ("s", "a"), None], {"a": b"a", "b": b"b", "c": b"c"}),
    ], of=3),
)  # fmt: skip
def test_a_commit(make: Make, batches: Any, conflicts: Any, content: Any, tmp_path: Path) -> None:
    for durability in DURABILITIES:
        folder = tmp_path / durability
        folder.mkdir()
        store = opened(make, folder)
        assert store.commit(batches, durability) == conflicts
        assert dict(records_of(store, "s")) == content
        store.close()
        store.open()
        assert list(records_of(store, "s")) == sorted(content.items())
        store.close()


@every_store
def test_reading(make: Make, tmp_path: Path) -> None:
    store = opened(make, tmp_path)
    keys = ["", "\0", "a", "a\0", "a\0b", "a/1", "ab", "b", "z", "é", "\u2028", "\uffff", "\U0001f600"]
    batch = [Put("s", key, key.encode()) for key in reversed(keys)]
    store.commit([batch, [Put("s2", "a", b"other")]], "process")
    pairs = [(key, key.encode()) for key in keys]
    assert store.scan("s", limit=100) == pairs, "in the order of their bytes"
    assert store.scan("s", limit=3) == pairs[:3]
    assert store.scan("s", start="a", stop="b", limit=100) == pairs[2:7]
    assert store.scan("s", start=after("a"), limit=1) == pairs[3:4]
    assert store.scan("s", start="b", stop="a", limit=9) == []
    assert store.scan("t", limit=9) == []
    assert store.get("s", ["b", "x", "\0", "b"]) == [b"b", None, b"\0", b"b"]
    assert store.get("t", ["b"]) == [None]
    assert store.get("s", []) == []
    assert list(records_of(store, "s", page=2)) == pairs
    store.close()


@every_store
@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (Put("s", "\ud800", b""), ValueError),
        (Put("\ud800", "a", b""), ValueError),
        (Put("s", "a", "text"), TypeError),  # type: ignore[arg-type]
        (Put("s", "a", None), TypeError),  # type: ignore[arg-type]
        (Delete("s", "\ud800"), ValueError),
        (DeleteRange("s", "", "\ud800"), ValueError),
    ],
)
def test_what_no_store_keeps(make: Make, write: Write, kind: type[Exception], tmp_path: Path) -> None:
    store = opened(make, tmp_path)
    with pytest.raises(kind):
        store.commit([ABC, [write]], "process")
    assert store.scan("s", limit=9) == [], "all or nothing"
    store.commit([ABC], "process")
    assert len(store.scan("s", limit=9)) == 3
    store.close()


@every_store
def test_a_store_that_is_closed(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    for _ in range(2):
        for call in (
            lambda: store.get("s", ["a"]),
            lambda: store.scan("s", limit=1),
            lambda: store.commit([ABC], "process"),
        ):
            with pytest.raises(StoreFailed, match="is closed"):
                call()
        store.open()
        with pytest.raises(StoreInUse, match="open already"):
            store.open()
        assert store.get("s", ["a"]) == [None], "the one that had it goes on"
        store.close()
        store.close()


def test_a_shared_store() -> None:
    """All that have it open see the commits of all, and it is open until the last one closes it."""
    disk = simulated_disk(1, shared=True)
    memory = MemoryStore(shared=True)
    pairs: list[tuple[Store, Store]] = [(SimulatedStore(disk), SimulatedStore(disk)), (memory, memory)]
    for first, second in pairs:
        for store in (first, second):
            store.open()
        assert first.commit([ABC], "process") == [None]
        assert second.commit([[Put("s", "a", b"2", b"a")]], "process") == [None]
        assert first.commit([[Put("s", "a", b"3", b"a")], [Put("s", "b", b"3")]], "process") == [
            ("s", "a"),
            None,
        ]
        first.close()
        assert second.get("s", ["a", "b"]) == [b"2", b"3"]
        second.close()
        with pytest.raises(StoreFailed, match="is closed"):
            second.get("s", ["a"])
        first.open()
        assert first.get("s", ["a", "b"]) == [b"2", b"3"]
        first.close()


keys = st.sampled_from(["", "a", "a\0", "aa", "ab", "b", "ba", "é", "\U0001f600"]) | st.text(max_size=3)
spaces = st.sampled_from(["s", "t", "s\0"])
values = st.binary(max_size=8)
expected = st.sampled_from([Expected.ANYTHING] * 4 + [Expected.NOTHING]) | values
writes = (
    st.builds(Put, spaces, keys, values, expected)
    | st.builds(Delete, spaces, keys, expected)
    | st.builds(DeleteRange, spaces, keys, st.none() | keys)
    | st.builds(Check, spaces, keys, expected)
)
Model = dict[str, dict[str, bytes]]


def applied(model: Model, batch: list[Write]) -> tuple[str, str] | None:
    for write in batch:
        if not isinstance(write, DeleteRange) and write.expect is not Expected.ANYTHING:
            value = model.get(write.space, {}).get(write.key)
            if value != (None if write.expect is Expected.NOTHING else write.expect):
                return write.space, write.key
    for write in batch:
        if isinstance(write, Check):
            continue
        space = model.setdefault(write.space, {})
        if isinstance(write, Put):
            space[write.key] = write.value
        elif isinstance(write, Delete):
            space.pop(write.key, None)
        else:
            for key in [key for key in space if in_range(key, write.start, write.stop)]:
                del space[key]
    return None


def in_range(key: str, start: str, stop: str | None) -> bool:
    return start.encode() <= key.encode() and (stop is None or key.encode() < stop.encode())


class StoreMachine(RuleBasedStateMachine):
    """Random commits, readings and restarts, against a dict."""

    make: Make

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.model: Model = {}
        self.store = self.make(Path(self.folder.name))
        self.store.open()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(batches=st.lists(st.lists(writes, max_size=6), max_size=4), power=st.booleans())
    def commit(self, batches: list[list[Write]], power: bool) -> None:
        found = self.store.commit(batches, "power" if power else "process")
        assert found == [applied(self.model, batch) for batch in batches]

    @rule(space=spaces, start=keys, stop=st.none() | keys, limit=st.integers(1, 5))
    def scan(self, space: str, start: str, stop: str | None, limit: int) -> None:
        content = sorted(self.model.get(space, {}).items(), key=lambda each: each[0].encode())
        fitting = [each for each in content if in_range(each[0], start, stop)]
        assert self.store.scan(space, start=start, stop=stop, limit=limit) == fitting[:limit]

    @rule(space=spaces, wanted=st.lists(keys, max_size=4))
    def get(self, space: str, wanted: list[str]) -> None:
        content = self.model.get(space, {})
        assert self.store.get(space, wanted) == [content.get(key) for key in wanted]

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store.open()

    @rule()
    def open_elsewhere(self) -> None:
        """Another object for the same file, as after a restart of the process."""
        if self.make is not STORES["memory"]:
            self.store.close()
            self.store = self.make(Path(self.folder.name))
            self.store.open()

    @invariant()
    def all_is_there(self) -> None:
        for space in ("s", "t", "s\0"):
            assert dict(records_of(self.store, space)) == self.model.get(space, {})


@pytest.mark.parametrize("most", [32_766, 999, 4])
def test_many_values_are_written_whatever_sqlite_was_built_for(
    most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, most)  # in a statement
        return db

    monkeypatch.setattr(sqlite3, "connect", connected)
    store = opened(STORES["sqlite"], tmp_path)
    content = {f"{number:04}": b"%d" % number for number in range(1_223)}
    store.commit([[Put("s", key, value)] for key, value in content.items()], "process")
    assert dict(records_of(store, "s")) == content
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_against_a_dict(kind: str) -> None:
    machine = type(f"{kind}_machine", (StoreMachine,), {"make": staticmethod(STORES[kind])})
    test = machine.TestCase()
    test.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
    test.runTest()
