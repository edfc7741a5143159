"""The records of memories: in the store of a node, or in the process if the node has no store.

Both are used in the same way. The state that the tasks of one node share is here, too: the locks that let
changes of one identity happen one after another, and the embeddings that fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import trio

from lmos_actors.errors import WriteConflict
from lmos_actors.persistence import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.actors import Runtime
    from lmos_actors.persistence import Durability, Matching, Write


class Records(Protocol):
    """The records of a store: a `StoreWriter`, or `ProcessRecords`."""

    @property
    def name(self) -> str:
        """The name of the store in messages."""
        ...

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys. Raise StoreFailed."""
        ...

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records. Raise StoreFailed."""
        ...

    async def matching(self, space: str, terms: Sequence[str], *, start: str, stop: str) -> Matching | None:
        """Return the keys that have any of some terms; None without an index. Raise StoreFailed."""
        ...

    async def commit(self, writes: Sequence[Write], durability: Durability) -> None:
        """Write a batch; return once it is kept. Raise StoreFailed, WriteConflict."""
        ...


class ProcessRecords:
    """The records of a node without a store; they are lost when the node ends."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self._store.open()
        self.name = self._store.name

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; see `Records`."""
        await trio.lowlevel.checkpoint()
        return self._store.get(space, keys)

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Records`."""
        await trio.lowlevel.checkpoint()
        return self._store.scan(space, start=start, stop=stop, limit=limit)

    async def matching(self, space: str, terms: Sequence[str], *, start: str, stop: str) -> Matching | None:
        """Return None, as there is no index; see `Records`."""
        await trio.lowlevel.checkpoint()
        return None

    async def commit(self, writes: Sequence[Write], durability: Durability) -> None:
        """Write a batch; see `Records`."""
        await trio.lowlevel.checkpoint()
        (conflict,) = self._store.commit([writes], durability)
        if conflict is not None:
            raise WriteConflict(*conflict)


class NodeMemories:
    """The state that the memories of one node share."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.failing: set[tuple[str, str]] = set()
        """The embeddings that have failed last, by agent and name: each failure is logged once."""
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def lock(self, owner: str) -> trio.Lock:
        """Return the lock of an owner's changes, without which tasks of this node would lose updates."""
        lock = self._locks.get(owner)
        if lock is None:
            lock = self._locks[owner] = trio.Lock()
        return lock


_NODES: Final[WeakKeyDictionary[Runtime, NodeMemories]] = WeakKeyDictionary()


def memories_of_node(rt: Runtime) -> NodeMemories:
    """Return the state that the memories of a node share; the first call makes it."""
    found = _NODES.get(rt)
    if found is None:
        keeping = rt.keeping
        found = _NODES[rt] = NodeMemories(ProcessRecords() if keeping is None else keeping.writer)
    return found
