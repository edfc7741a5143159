"""The simulated disk against SQLite on files: what is there after a kill, a loss of power, a torn write.

SQLite's files are copied while they are open, which is what a kill leaves; its log is then cut where a disk
that has not synced it may leave it.
"""

from __future__ import annotations

import os
import shutil
from random import Random
from typing import TYPE_CHECKING, Protocol

import pytest
import trio

from lmos_actors.errors import StoreFailed, StoreFenced, StoreFull
from lmos_actors.persistence import Put, SimulatedDisk, SimulatedStore, SqliteStore, open_writer, records_of
from lmos_actors.simulation import simulate
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.persistence import Durability, Store, WritesAtCrash

KEYS = ("a", "b", "c")


class Machine(Protocol):
    """A machine whose process or power ends."""

    def open(self) -> Store: ...
    def commit(self, number: int, durability: Durability) -> None: ...
    def crash(self, writes: WritesAtCrash) -> None: ...
    def close(self) -> None: ...


class FileMachine:
    """SQLite, real files, and the sizes of its log that a crash may leave."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / "store.db"
        self.random = Random(seed)
        self.store = SqliteStore(self.path)
        self.sizes: list[int] = []
        self.synced = 0

    def open(self) -> Store:
        self.store = SqliteStore(self.path)
        self.store.open()
        self.sizes, self.synced = [self.log_size()], 0
        return self.store

    def log_size(self) -> int:
        log = f"{self.path}-wal"
        return os.path.getsize(log) if os.path.exists(log) else 0

    def commit(self, number: int, durability: Durability) -> None:
        commit(self.store, number, durability)
        self.sizes.append(self.log_size())
        if durability == "power":
            self.synced = len(self.sizes) - 1

    def crash(self, writes: WritesAtCrash) -> None:
        left = self.path.parent / f"left-{self.random.getrandbits(32)}"
        left.mkdir()
        for name in ("store.db", "store.db-wal"):
            shutil.copy(self.path.parent / name, left)
        last = len(self.sizes) - 1
        self.store.close()
        self.path = left / "store.db"
        if writes == "kept" or last == self.synced:
            return
        if writes == "lost":
            size = self.sizes[self.random.randrange(self.synced, last)]
        else:
            size = self.random.randrange(self.sizes[last - 1] + 1, self.sizes[last])
        os.truncate(f"{self.path}-wal", size)

    def close(self) -> None:
        self.store.close()


class SimulatedMachine:
    """The simulated disk."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.disk = simulated_disk(seed)
        self.store = SimulatedStore(self.disk)

    def open(self) -> Store:
        self.store = SimulatedStore(self.disk)
        self.store.open()
        return self.store

    def commit(self, number: int, durability: Durability) -> None:
        commit(self.store, number, durability)

    def crash(self, writes: WritesAtCrash) -> None:
        self.disk.crash(writes)
        with pytest.raises(StoreFailed, match="is closed"):
            self.commit(99, "process")

    def close(self) -> None:
        self.store.close()


def commit(store: Store, number: int, durability: Durability) -> None:
    text = b"%d" % number
    store.commit([[Put("s", key, text + bytes(3_000 * len(key)))] for key in KEYS], durability)


def last_whole(store: Store) -> int:
    """Return the number of the newest commit that is there; all of it has to be."""
    found = {value.rstrip(b"\0") for _, value in records_of(store, "s")}
    assert len(found) <= 1, f"parts of several commits: {found}"
    return int(found.pop()) if found else 0


MACHINES = {"sqlite": FileMachine, "simulated": SimulatedMachine}


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize(
    ("durabilities", "writes", "outcomes"),
    [
        ("pppp", "kept", {4}),
        ("pPpp", "kept", {4}),
        ("pppp", "lost", {0, 1, 2, 3}),
        ("pPpp", "lost", {2, 3}),
        ("pppP", "lost", {4}),
        ("PPPp", "lost", {3}),
        ("pppp", "torn", {3}),
        ("pPpp", "torn", {3}),
        ("ppPp", "torn", {3}),
        ("pppP", "torn", {4}),
    ],
)
def test_what_a_crash_leaves(
    kind: str, durabilities: str, writes: WritesAtCrash, outcomes: set[int], tmp_path: Path
) -> None:
    """A small p is a commit that the end of the process leaves, a P one that the loss of power leaves too."""
    seen: set[int] = set()
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        machine: Machine = MACHINES[kind](folder, seed)
        machine.open()
        for number, durability in enumerate(durabilities, start=1):
            machine.commit(number, "power" if durability == "P" else "process")
        machine.crash(writes)
        store = machine.open()
        found = last_whole(store)
        seen.add(found)
        machine.commit(7, "power")
        machine.crash("lost")
        assert last_whole(machine.open()) == 7, "it goes on, and keeps what is synced from then on"
        machine.close()
    assert seen <= outcomes
    assert len(seen) > 1 or len(outcomes) == 1, "which ones are lost is chance"


def test_a_byte_that_is_not_what_was_written(tmp_path: Path) -> None:
    """A torn write may leave the length, and other bytes: both find that by the checksum."""
    disk = simulated_disk(1)
    store = SimulatedStore(disk)
    store.open()
    commit(store, 1, "process")
    first = len(disk.log)
    commit(store, 2, "process")
    disk.crash()
    for place in range(first, len(disk.log), 97):
        log = bytes(disk.log)
        disk.log[place] ^= 0xFF
        assert last_whole(opened(disk)) == 1
        disk.crash()
        disk.log[:] = log
    machine = FileMachine(tmp_path, 1)
    machine.open()
    machine.commit(1, "process")
    machine.commit(2, "process")
    machine.crash("kept")
    with open(f"{machine.path}-wal", "r+b") as log_file:
        log_file.seek((machine.sizes[1] + machine.sizes[2]) // 2)
        log_file.write(b"\xff" * 64)
    assert last_whole(machine.open()) == 1
    machine.close()


def opened(disk: SimulatedDisk) -> SimulatedStore:
    store = SimulatedStore(disk)
    store.open()
    return store


def test_a_full_disk() -> None:
    disk = simulated_disk(1)
    store = opened(disk)
    commit(store, 1, "process")
    disk.full = True
    with pytest.raises(StoreFull, match="make room on the disk"):
        commit(store, 2, "power")
    assert last_whole(store) == 1
    disk.full = False
    commit(store, 3, "process")
    disk.crash()
    assert last_whole(opened(disk)) == 3


def test_each_process_is_a_writer_of_its_own() -> None:
    disk = simulated_disk(1)
    first = opened(disk)
    commit(first, 1, "process")
    assert disk.writer == 1
    disk.writer += 1  # as where a file system has no locks
    with pytest.raises(StoreFenced):
        commit(first, 2, "process")
    disk.crash()
    assert last_whole(opened(disk)) == 1
    assert disk.writer == 3


def test_a_process_that_is_cut_off_from_a_shared_disk() -> None:
    """Its calls fail; a commit that was under way has been written or not, and the others see which."""

    async def main(seed: int) -> int:
        disk = simulated_disk(seed, lambda: 0.010, shared=True)
        other = opened(disk)
        store = SimulatedStore(disk)
        async with open_writer(store) as writer:
            ticket = writer.submit([Put("s", key, b"1") for key in KEYS])
            await trio.sleep(0.005)
            store.is_cut_off = True
            with pytest.raises(StoreFailed, match="cannot be reached"):
                await ticket.wait()
            with pytest.raises(StoreFailed, match="cannot be reached"):
                await writer.get("s", [KEYS[0]])
            store.is_cut_off = False
            await writer.ready()
            found = last_whole(other)
            await writer.submit([Put("s", key, b"2") for key in KEYS]).wait()
        assert last_whole(other) == 2
        return found

    assert {simulate(main, seed, seed=seed) for seed in range(20)} == {0, 1}


def test_a_log_is_moved_into_the_records_before_it_is_long() -> None:
    disk = simulated_disk(1)
    store = opened(disk)
    for _ in range(5):
        store.commit([[Put("s", "a", bytes(1 << 20))]], "process")
    assert len(disk.log) < 2 << 20
    disk.crash("lost")
    assert opened(disk).get("s", ["a"]) == [bytes(1 << 20)], "which syncs it"


@pytest.mark.parametrize("writes", ["kept", "lost", "torn"])
def test_a_crash_between_write_and_commit(writes: WritesAtCrash) -> None:
    """A settled ticket is kept; one that is under way is there as a whole or not at all."""

    async def main(seed: int) -> tuple[int, int]:
        disk = simulated_disk(seed, lambda: 0.010)
        done: list[int] = []
        async with open_writer(SimulatedStore(disk)) as writer:
            for number in range(1, 4):
                batch = [Put("s", key, b"%d" % number) for key in KEYS]
                writer.submit(batch, "power", lambda error, number=number: error or done.append(number))  # type: ignore[misc]
                await trio.sleep(0.006)
            assert trio.current_time() == pytest.approx(0.018), "one is done, and one is under way"
            disk.crash(writes)
        return max(done), last_whole(opened(disk))

    outcomes = {simulate(main, seed, seed=seed) for seed in range(20)}
    assert outcomes == ({(1, 1), (1, 2)} if writes == "kept" else {(1, 1)})
