"""Stores that a program without an event loop opens: a file, or a store in a server.

The calls of a store in a server are awaited: a thread runs the event loop that they need.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import trio

from lmos_actors.errors import ConfigError, StoreForeign

from .._address import SERVER, reader_of, store_of
from .._sqlite import SqliteStore
from .._store import AsyncStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from .._store import Batch, Conflict, Durability

T = TypeVar("T")


@contextmanager
def opened_to_read(place: str) -> Generator[SqliteStore | ServerStore]:
    """Open a store for reading during a block: a file, or the URL of a server. Raise StoreFailed."""
    if place.startswith(SERVER):
        with ServerStore(place).opened() as served:
            yield served
        return
    with opened_file(place) as store:
        yield store


@contextmanager
def opened_to_write(place: str) -> Generator[SqliteStore | ServerWriter]:
    """Open an existing store for writing during a block. Raise StoreFailed."""
    with opened_to_read(place):
        pass  # there is such a store: else it would be made below
    if place.startswith(SERVER):
        with _writing(place) as server:
            yield server
        return
    with opened_file(place, read_only=False) as store:
        yield store


@contextmanager
def opened_file(path: str, *, read_only: bool = True) -> Generator[SqliteStore]:
    """Open the file of a store for a block. Raise StoreFailed."""
    store = SqliteStore(path, read_only=read_only)
    store.open()
    try:
        yield store
    finally:
        store.close()


class ServerStore:
    """A reader of a store in a server, with the reading methods of `SqliteStore`."""

    def __init__(self, url: str) -> None:
        self._reader = reader_of(url)
        self._token: trio.lowlevel.TrioToken | None = None
        self.name = self._reader.name

    @property
    def id(self) -> str:
        """Identifier of the store."""
        return self._reader.id

    @contextmanager
    def opened(self) -> Generator[ServerStore]:
        """Allow reads during a block. Raise StoreFailed."""
        with _running(self._reader.opened) as self._token:
            yield self

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys. Raise StoreFailed."""
        return self._call(partial(self._reader.get, space, keys))

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records. Raise StoreFailed."""
        return self._call(partial(self._reader.scan, space, start=start, stop=stop, limit=limit))

    def spaces(self) -> Iterator[str]:
        """Return the names of all spaces. Raise StoreFailed."""
        return iter(self._call(self._reader.spaces))

    def problems(self) -> Iterator[str]:
        """Return the errors in the store. Raise StoreFailed."""
        return iter(self._call(self._reader.problems))

    def _call(self, ask: Callable[[], Awaitable[T]]) -> T:
        return trio.from_thread.run(ask, trio_token=self._token)


class ServerWriter:
    """A store in a server that is open for writing."""

    def __init__(self, store: AsyncStore, token: trio.lowlevel.TrioToken) -> None:
        self._store, self._token = store, token

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches, with "power" if the server can guarantee it. Raise StoreFailed."""
        kept: Durability = durability if self._store.keeps_power else "process"
        return trio.from_thread.run(self._store.commit, batches, kept, trio_token=self._token)


@contextmanager
def new_in_server(url: str) -> Generator[ServerWriter]:
    """Create a store in a server and keep it open for writing during a block.

    Raise StoreFailed. Raise ConfigError if the store already exists.
    """
    with suppress(StoreForeign), ServerStore(url).opened() as there:
        raise ConfigError("there is such a store already: --into writes to it", there.name)
    # the store is missing, or belongs to another program: the opening finds out
    with _writing(url) as writer:
        yield writer


@contextmanager
def _writing(url: str) -> Generator[ServerWriter]:
    store = store_of(url)
    assert isinstance(store, AsyncStore)  # it is that of a server
    with _running(store.opened) as token:
        yield ServerWriter(store, token)


@contextmanager
def _running(opened: Callable[[], AbstractAsyncContextManager[None]]) -> Generator[trio.lowlevel.TrioToken]:
    """Keep a context open during a block, in an event loop in another thread. Raise what `opened` raises."""
    begun: SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Event] | BaseException] = SimpleQueue()

    async def live() -> None:
        async with opened():
            ending = trio.Event()
            begun.put((trio.lowlevel.current_trio_token(), ending))
            await ending.wait()

    def run() -> None:
        try:
            trio.run(live)
        except BaseException as error:  # noqa: ASYNC103 -- raised below, in the thread that waits
            begun.put(error)

    thread = threading.Thread(target=run, name="store in a server", daemon=True)  # Ctrl-C leaves it behind
    thread.start()
    first = begun.get()
    if isinstance(first, BaseException):
        raise first
    token, ending = first
    try:
        yield token
    finally:
        trio.from_thread.run_sync(ending.set, trio_token=token)
        thread.join()
