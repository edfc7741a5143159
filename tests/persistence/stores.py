"""The stores that every test of this folder is for: what one does, the others do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lmos_actors._core import RandomStream
from lmos_actors.errors import StoreFailed
from lmos_actors.persistence import MemoryStore, SimulatedDisk, SimulatedStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lmos_actors.persistence import Conflict, Durability, Store, Write

    Make = Callable[[Path], Store]

DISKS: dict[Path, SimulatedDisk] = {}


def simulated(folder: Path) -> SimulatedStore:
    """Return a store on the simulated disk of a folder."""
    return SimulatedStore(DISKS.setdefault(folder, SimulatedDisk(RandomStream(1))))


STORES: dict[str, Make] = {
    "memory": lambda _: MemoryStore(),
    "simulated": simulated,
    "sqlite": lambda folder: SqliteStore(folder / "store.db"),
}
"""How to make each kind of store in an empty folder; closed and opened again, it has kept its content."""

every_store = pytest.mark.parametrize("make", STORES.values(), ids=STORES)


class StoreOfTest(MemoryStore):
    """A store in memory that can be made to wait, and to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "the test's"
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.fails = False
        self.commits: list[Durability] = []

    def commit(
        self, batches: Sequence[Sequence[Write]], durability: Durability = "process"
    ) -> list[Conflict | None]:
        self.may_commit.wait(30)
        if self.fails:
            raise StoreFailed(self.name, "the disk is full")
        self.commits.append(durability)
        return super().commit(batches, durability)
