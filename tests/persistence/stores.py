"""The stores that every test of this folder is for: what one does, the others do."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import threading
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio

from lmos_actors.errors import StoreFailed, StoreInUse
from lmos_actors.persistence import (
    AsyncStore,
    MemoryStore,
    SimulatedDisk,
    SimulatedStore,
    SqliteStore,
    store_of,
)
from tests.redis_server import RedisServer, needs_redis
from tests.seeded import simulated_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmos_actors.persistence import Conflict, Durability, Store, Write

    Make = Callable[[Path], Store]
    Place = Callable[[Path], Store | str]

T = TypeVar("T")

DISKS: dict[Path, SimulatedDisk] = {}


def simulated(folder: Path) -> SimulatedStore:
    """Return a store on the simulated disk of a folder."""
    return SimulatedStore(DISKS.setdefault(folder, simulated_disk(1)))


class Blocking:
    """An `AsyncStore` as a `Store`: while it is open, a thread runs the event loop that its calls need."""

    def __init__(self, store: AsyncStore) -> None:
        self.name = store.name
        self.is_shared = store.is_shared
        self._store = store
        self._calls: SimpleQueue[Callable[[], Awaitable[object]] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def _live(self) -> None:
        """Open the store, make the calls one after another, and close it, all in one task."""
        try:
            async with self._store.opened():
                self._answers.put((None, None))
                while (ask := await trio.to_thread.run_sync(self._calls.get)) is not None:
                    try:
                        self._answers.put((await ask(), None))
                    except BaseException as error:
                        self._answers.put((None, error))
        except BaseException as error:
            self._answers.put((None, error))

    def _call(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._thread is None:
            return trio.run(ask)
        self._calls.put(ask)
        return self._answered()

    def _answered(self) -> Any:
        answer, error = self._answers.get()
        if error is not None:
            raise error
        return answer

    def open(self) -> None:
        if self._thread is not None:
            raise StoreInUse(self.name, "it is open already")
        thread = threading.Thread(target=trio.run, args=(self._live,), daemon=True)
        thread.start()
        self._answered()
        self._thread = thread

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        return self._call(partial(self._store.get, space, keys))

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        return self._call(partial(self._store.scan, space, start=start, stop=stop, limit=limit))

    def commit(self, batches: Sequence[Sequence[Write]], durability: Durability) -> list[Conflict | None]:
        return self._call(partial(self._store.commit, batches, durability))

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            thread.join()


@cache
def shared_server() -> RedisServer:
    """Return the server that all tests of this process share."""
    folder = Path(tempfile.mkdtemp(prefix="redis"))
    server = RedisServer(folder, "--appendfsync", "always")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server


def in_redis(folder: Path, **parameters: str) -> Blocking:
    """Return a store of a folder in a real server."""
    prefix = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    store = store_of(shared_server().url(prefix, **parameters))
    assert isinstance(store, AsyncStore)
    return Blocking(store)


STORES: dict[str, Make] = {
    "memory": lambda _: MemoryStore(),
    "simulated": simulated,
    "sqlite": lambda folder: SqliteStore(folder / "store.db"),
    "redis": in_redis,
    "redis, one writer": partial(in_redis, writers="one"),
}
"""How to make each kind of store in an empty folder; closed and opened again, it has kept its content."""

MARKS: dict[str, Any] = {"redis": needs_redis, "redis, one writer": [needs_redis, pytest.mark.matrix]}
KINDS = [pytest.param(kind, marks=MARKS.get(kind, ()), id=kind) for kind in STORES]
every_store = pytest.mark.parametrize(
    "make", [pytest.param(STORES[each.values[0]], marks=each.marks, id=each.id) for each in KINDS]
)


def url_in_redis(folder: Path) -> str:
    """Return the URL of a store in a real server, which one node at a time has, as with a file."""
    prefix = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return shared_server().url(f"nodes-{prefix}", writers="one")


PLACES: dict[str, Place] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: f"sqlite:{folder / 'kept.db'}",
    "redis": url_in_redis,
}
"""What nodes that come one after another are given to keep the same state, for each kind of store."""

every_place = pytest.mark.parametrize(
    "place",
    [pytest.param(PLACES[kind], marks=needs_redis if kind == "redis" else (), id=kind) for kind in PLACES],
)


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
