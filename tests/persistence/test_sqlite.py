"""The SQLite store and the mishaps of files: a clear error each, nothing overwritten, and on it goes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.errors import (
    ConfigError,
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
from lmos_actors.persistence import MemoryStore, Put, SqliteStore, back_up, records_of, store_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parent / "samples"


@contextmanager
def opened(path: Path, *, read_only: bool = False) -> Iterator[SqliteStore]:
    store = SqliteStore(path, read_only=read_only)
    store.open()
    try:
        yield store
    finally:
        store.close()


def made(path: Path, count: int = 500) -> Path:
    with opened(path) as store:
        store.commit([[Put("s", f"{number:04}", bytes(100)) for number in range(count)]], "process")
    return path


def sql(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement).fetchall()


def folder_at(path: Path) -> None:
    path.mkdir()


def foreign_at(path: Path) -> None:
    sql(path, "CREATE TABLE records (space TEXT, key TEXT)")


def newer_at(path: Path) -> None:
    sql(made(path), "PRAGMA user_version = 2")


def cut_at(path: Path) -> None:
    os.truncate(made(path), 20_000)


def without_head_at(path: Path) -> None:
    with made(path).open("r+b") as file:
        file.write(bytes(100))


def emptied_at(path: Path) -> None:
    path.touch()
    path.with_name(f"{path.name}-wal").write_bytes(bytes(100))


def only_log_at(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(bytes(100))


def taken_apart_at(path: Path) -> None:
    sql(made(path), "DELETE FROM meta")


@pytest.mark.parametrize(
    ("spoil", "kind", "why"),
    [
        (folder_at, StoreForeign, "it is a folder"),
        (lambda path: path.write_text("some text " * 1000), StoreForeign, "file is not a database"),
        (foreign_at, StoreForeign, "the database of another program"),
        (without_head_at, StoreForeign, "not a database"),
        (newer_at, StoreNewer, "its tables are of version 2, this program knows 1"),
        (cut_at, StoreDamaged, "malformed"),
        (emptied_at, StoreDamaged, "it is empty, but its log is there"),
        (only_log_at, StoreDamaged, "it is missing, but its log is there"),
        (taken_apart_at, StoreDamaged, "the number of its writer is missing"),
    ],
)
def test_a_file_that_is_no_store_is_left_as_it_is(
    spoil: Any, kind: type[StoreFailed], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    spoil(path)
    before = {each.name: each.is_file() and each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(kind, match=why) as caught:
        SqliteStore(path).open()
    assert str(caught.value).startswith(f"the store {path} failed: ")
    assert str(caught.value).endswith(f"; {kind.WAY_OUT}")
    assert {each.name: each.is_file() and each.read_bytes() for each in tmp_path.iterdir()} == before


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        store.commit([[Put("s", "a", b"")]], "process")
        names = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
        assert names == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.db-lock"], 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["store.db"]


def test_a_file_has_one_owner(tmp_path: Path) -> None:
    path, link = tmp_path / "store.db", tmp_path / "link.db"
    link.symlink_to(path)
    with opened(path) as store:
        for other, read_only in ((path, False), (link, False), (link, True)):
            with pytest.raises(StoreInUse, match="this process has it open"):
                SqliteStore(other, read_only=read_only).open()
        store.commit([[Put("s", "a", b"")]], "process")
    with opened(link) as store:
        assert store.get("s", ["a"]) == [b""]


HOLDER = """
import sys
from lmos_actors.persistence import SqliteStore
store = SqliteStore(sys.argv[1])
store.open()
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_its_death_frees_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse, match=f"process {process.pid} has it open; close it there"):
            SqliteStore(path).open()
        process.kill()
    with opened(path):
        pass


def test_a_power_commit_is_synced_and_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*words: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*words, **options)
        db.set_trace_callback(said.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)
    with opened(tmp_path / "store.db") as store:
        for durability in ("process", "power", "power", "process"):
            store.commit([[Put("s", "a", durability.encode())]], durability)  # type: ignore[arg-type]
    kinds = [each for each in said if each == "COMMIT" or each.startswith("PRAGMA synchronous")]
    full, normal = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"
    assert kinds == ["COMMIT", normal, "COMMIT", full, "COMMIT", "COMMIT", normal, "COMMIT"]


def test_a_power_commit_is_synced_also_if_it_changes_nothing(tmp_path: Path) -> None:
    """SQLite syncs what it writes, and the log before it; of equal values it writes nothing."""
    path = tmp_path / "store.db"
    with opened(path) as store:
        sizes: list[int] = []
        batch = [Put("s", "a", b"same")]
        for batches, durability in (
            ([batch], "process"),
            ([batch], "process"),
            ([batch], "power"),
            ([], "power"),
        ):
            store.commit(batches, durability)  # type: ignore[arg-type]
            sizes.append(path.with_name("store.db-wal").stat().st_size)
        first, equal, power, empty = sizes
        assert first == equal < power < empty


@pytest.mark.slow
def test_a_shell_that_writes_delays_and_does_not_break(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    with opened(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreInUse, match="another program is writing to it"):
            store.commit([[Put("s", "a", b"")]], "process")
        shell.execute("ROLLBACK")
        store.commit([[Put("s", "b", b"")]], "process")
        assert store.get("s", ["a", "b"]) == [None, b""]


def test_an_older_writer_is_fenced(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    with opened(path) as old:
        (tmp_path / "store.db-lock").unlink()  # as on a file system without locks
        with opened(path) as new:
            with pytest.raises(StoreFenced, match="another writer has opened it since"):
                old.commit([[Put("s", "a", b"old")]], "process")
            new.commit([[Put("s", "a", b"new")]], "process")
            assert new.get("s", ["a"]) == [b"new"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_goes_away_is_noticed(replaced: bool, tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    with opened(path) as store:
        path.rename(tmp_path / "aside.db")
        if replaced:
            path.write_text("another")
        with pytest.raises(StoreReplaced, match="replaced while open" if replaced else "removed while open"):
            store.commit([[Put("s", "a", b"")]], "process")
        if replaced:
            assert path.read_text() == "another"
        (tmp_path / "aside.db").rename(path)
        store.commit([[Put("s", "a", b"")]], "process")


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    with opened(path) as store:
        store.commit([[Put("s", "value", b"a very special value")]], "process")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"special", b"spezial"))
    with opened(path) as store:
        assert list(store.problems()) == ["the record 'value' in 's' has another content than was written"]
        for read in (lambda: store.get("s", ["value"]), lambda: list(records_of(store, "s"))):
            with pytest.raises(StoreDamaged, match="the record 'value' in 's' has another content"):
                read()
        store.commit([[Put("s", "value", b"right again")]], "process")
        assert list(store.problems()) == []


def test_damaged_pages_are_noticed(tmp_path: Path) -> None:
    """Whatever page is overwritten: an error of ours, at once or by `problems`, and nothing wrong is read."""
    whole = made(tmp_path / "store.db").read_bytes()
    right = {f"{number:04}": bytes(100) for number in range(500)}
    for start in range(4096, len(whole), 4096):
        for junk in (b"\xa5" * 4096, bytes(4096)):
            path = tmp_path / f"{start}-{junk[0]}.db"
            path.write_bytes(whole[:start] + junk + whole[start + 4096 :])
            try:
                with opened(path) as store:
                    problems = list(store.problems())
                    read = dict(records_of(store, "s"))
            except StoreDamaged:
                pass
            else:
                assert problems or read == right
                assert read.items() <= right.items()


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    path.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", path], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk), opened(disk / "store.db") as store:
        store.commit([[Put("s", "a", bytes(100_000))]], "process")
        rest = disk / "rest"
        rest.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))
        for durability in ("process", "power"):
            with pytest.raises(StoreFull, match="make room on the disk"):
                store.commit([[Put("s", "b", bytes(100_000)), Put("s", "a", b"new")]], durability)  # type: ignore[arg-type]
        assert store.get("s", ["a", "b"]) == [bytes(100_000), None]
        with pytest.raises(StoreFull, match=r"copy\.db failed"):
            back_up(str(disk / "store.db"), str(disk / "copy.db"))
        assert sorted(each.name for each in disk.iterdir()) == [
            "rest", "store.db", "store.db-lock", "store.db-shm", "store.db-wal",
        ]  # fmt: skip
        rest.unlink()
        store.commit([[Put("s", "b", b"there")]], "power")
        assert list(store.problems()) == []
        assert store.get("s", ["b"]) == [b"there"]


def test_a_disk_that_is_read_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk):
        made(disk / "store.db")
        with opened(disk / "other.db"):
            pass
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for name in ("store.db", "new.db"):
            with pytest.raises(StoreInaccessible, match="Read-only file system"):
                SqliteStore(disk / name).open()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_permission(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    path.chmod(0o400)
    with pytest.raises(StoreInaccessible):
        SqliteStore(path).open()
    with opened(path, read_only=True) as store:
        assert len(store.scan("s", limit=1000)) == 500


def test_a_folder_that_is_missing_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "too" / "store.db"
    with pytest.raises(StoreForeign, match="there is no such file"):
        SqliteStore(path, read_only=True).open()
    assert not path.parent.exists()
    made(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreInaccessible, match=f"its folder cannot be made: {tmp_path}/file: "):
        SqliteStore(tmp_path / "file" / "store.db").open()


@pytest.mark.slow
def test_a_commit_larger_than_a_file_may_be(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from lmos_actors.errors import StoreFailed\n"
        "from lmos_actors.persistence import Put, SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.open()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "store.commit([[Put('s', 'a', b'kept')]], 'power')\n"
        "try: store.commit([[Put('s', 'b', bytes(500_000))]], 'power')\n"
        "except StoreFailed as error: print(error)\n"
        "print(store.get('s', ['a', 'b']))\n"
        "store.commit([[Put('s', 'c', b'kept, too')]], 'power')\n"
        "print(store.get('s', ['c']))\n"
    )
    path = tmp_path / "store.db"
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        f"the store {path} failed: disk I/O error; look at the disk and at the log of the system",
        "[b'kept', None]",
        "[b'kept, too']",
    ]


def test_reading_alone_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    before = path.read_bytes()
    with opened(path, read_only=True) as store:
        assert list(store.spaces()) == ["s"]
        assert list(store.problems()) == []
        with pytest.raises(StoreInaccessible, match="read only"):
            store.commit([[Put("s", "a", b"")]], "process")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"store.db": before}
    for name in ("missing.db", "empty.db"):
        if name == "empty.db":
            (tmp_path / name).touch()
        with pytest.raises(StoreForeign):
            SqliteStore(tmp_path / name, read_only=True).open()


def test_a_backup_of_a_store_that_is_in_use(tmp_path: Path) -> None:
    path, copy = made(tmp_path / "store.db"), tmp_path / "copy.db"
    with opened(path) as store:
        store.commit([[Put("s", "last", b"one")]], "process")
        back_up(str(path), str(copy))
        store.commit([[Put("s", "last", b"two")]], "process")
        with pytest.raises(ConfigError, match="there is such a file already"):
            back_up(str(path), str(copy))
    with opened(copy) as store:
        assert store.get("s", ["last"]) == [b"one"]
        assert list(store.problems()) == []
        assert len(store.scan("s", limit=1000)) == 501
    back_up(str(path), str(tmp_path / "of one that is closed.db"))
    (tmp_path / "of one that is closed.db").unlink()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "store.db"]
    for wrong in (tmp_path, tmp_path / "missing.db"):
        with pytest.raises(StoreForeign):
            back_up(str(wrong), str(tmp_path / "new.db"))
    with pytest.raises(StoreInaccessible, match="cannot be made"):
        back_up(str(path), str(tmp_path / "missing" / "new.db"))


def test_files_of_every_version_can_be_opened(tmp_path: Path) -> None:
    """Samples as they were written; a new version of the tables adds one, and changes none."""
    samples = sorted(SAMPLES.glob("version-*.db"))
    assert samples
    for sample in samples:
        path = Path(shutil.copy(sample, tmp_path))
        with opened(path) as store:
            assert list(store.problems()) == []
            assert list(records_of(store, "state")) == [("bank/1", b'{"owner": "Ada", "cents": 1700}')]
            assert store.get("journal", ["bank/1\x000000000000000001"]) == [b"\x00\xff"]
            store.commit([[Put("state", "bank/2", b"")]], "power")


@pytest.mark.slow
def test_what_a_killed_process_has_left_is_read_and_copied(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db")
    code = (
        "import os, sys\n"
        "from lmos_actors.persistence import Put, SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.open()\n"
        "store.commit([[Put('s', 'last', b'word')]], 'process')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    log = path.with_name("store.db-wal").read_bytes()
    assert b"word" in log
    back_up(str(path), str(tmp_path / "copy.db"))
    for each, read_only in ((path, True), (tmp_path / "copy.db", True), (path, False)):
        with opened(each, read_only=read_only) as store:
            assert store.get("s", ["last"]) == [b"word"]
            assert list(store.problems()) == []
        if read_only:
            assert path.with_name("store.db-wal").read_bytes() == log, "it is left for the next writer"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "store.db"]


def test_names_of_stores(tmp_path: Path) -> None:
    assert isinstance(store_of(f"sqlite:{tmp_path}/a:b.db"), SqliteStore)
    assert store_of(f"sqlite:{tmp_path}/a:b.db").name == f"{tmp_path}/a:b.db"
    assert isinstance(store_of("memory:"), MemoryStore)
    store = MemoryStore()
    assert store_of(store) is store
    for wrong, hint in (
        ("sqlit:node.db", "did you mean sqlite:node.db?"),
        ("memry:", "did you mean memory:?"),
        ("node.db", "it is sqlite:PATH, redis://HOST or memory:"),
        ("sqlite:", "it is sqlite:PATH, redis://HOST or memory:"),
        ("", "it is sqlite:PATH, redis://HOST or memory:"),
    ):
        with pytest.raises(ConfigError) as caught:
            store_of(wrong)
        assert str(caught.value).endswith(hint)
