"""A store in memory: for tests, simulations, and data that need not outlive the process."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

import attrs

from lmos_actors.errors import StoreFailed, StoreInUse

from ._store import Check, DeleteRange, Expected, Put, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._store import Batch, Conflict, Durability, Write


@attrs.define
class _Space:
    """The records of one space, with a sorted list of the keys for range scans."""

    values: dict[str, bytes] = attrs.field(factory=dict[str, bytes])
    keys: list[str] = attrs.field(factory=list[str])

    def delete(self, start: int, stop: int) -> None:
        for key in self.keys[start:stop]:
            del self.values[key]
        del self.keys[start:stop]

    def place(self, key: str | None) -> int:
        return len(self.keys) if key is None else bisect_left(self.keys, key)


class Records:
    """The records of all spaces in memory: the content of a store, without methods to open and close it."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        found = self._space(space)
        return [found.values.get(key) for key in keys]

    def scan(self, space: str, start: str, stop: str | None, limit: int) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        found = self._space(space)
        first = found.place(start)
        return [(key, found.values[key]) for key in found.keys[first : min(found.place(stop), first + limit)]]

    def commit(self, batches: Sequence[Batch]) -> list[Conflict | None]:
        """Write batches; see `Store`."""
        for batch in batches:  # before the first write, as a commit is all or nothing
            for write in batch:
                size_of(write)
        return [self._apply(batch) for batch in batches]

    def copy(self) -> Records:
        """Return a copy, which later commits do not change."""
        copied = Records()
        for name, space in self._spaces.items():
            copied._spaces[name] = _Space(dict(space.values), list(space.keys))
        return copied

    def _apply(self, batch: Batch) -> Conflict | None:
        for write in batch:
            if isinstance(write, DeleteRange) or write.expect is Expected.ANYTHING:
                continue
            value = self._space(write.space).values.get(write.key)
            if value != (None if write.expect is Expected.NOTHING else write.expect):
                return write.space, write.key
        for write in batch:
            self._write(write)
        return None

    def _write(self, write: Write) -> None:
        if isinstance(write, Check):
            return
        space = self._spaces.setdefault(write.space, _Space())
        if isinstance(write, Put):
            if write.key not in space.values:
                insort(space.keys, write.key)
            space.values[write.key] = write.value
        elif isinstance(write, DeleteRange):
            space.delete(space.place(write.start), space.place(write.stop))
        elif write.key in space.values:
            first = space.place(write.key)
            space.delete(first, first + 1)

    def _space(self, name: str) -> _Space:
        return self._spaces.get(name) or _Space()


class MemoryStore:
    """A store in memory. Closing it keeps its content, so that it can be opened again.

    With `shared` several nodes of one process may have it open at once.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.name = "memory:"
        self.is_shared = shared
        self._records = Records()
        self._openings = 0
        self._lock = threading.Lock()  # the calls of each opening come from a thread of its own

    def wipe(self) -> None:
        """Remove all records, as if the process that held them had ended."""
        self._records = Records()

    def open(self) -> None:
        """Open the store. Raise StoreInUse if it is already open and not shared."""
        with self._lock:
            if self._openings and not self.is_shared:
                raise StoreInUse(self.name, "it is open already")
            self._openings += 1

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Store`."""
        with self._lock:
            return self._opened().get(space, keys)

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        with self._lock:
            return self._opened().scan(space, start, stop, limit)

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches; see `Store`."""
        with self._lock:
            return self._opened().commit(batches)

    def close(self) -> None:
        """Close the store, and keep its content; does nothing if it is closed."""
        with self._lock:
            self._openings = max(0, self._openings - 1)

    def _opened(self) -> Records:
        if not self._openings:
            raise StoreFailed(self.name, "it is closed", "open it first")
        return self._records
