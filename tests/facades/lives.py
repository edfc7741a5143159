"""Lives of a program whose store outlives them: what is killed there does nothing to it any more."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import simulate
from lmos_actors.errors import StoreFailed
from lmos_actors.persistence import MemoryStore, SqliteStore
from tests.persistence.stores import simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from lmos_actors.persistence import Batch, Conflict, Durability, Store, Write


def virtual(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on virtual time."""

    @wraps(test)
    def run(**given: Any) -> None:
        simulate(partial(test, **given))

    return run


STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "simulated": simulated,
    "sqlite": lambda folder: SqliteStore(folder / "store.db"),
}
every_store = pytest.mark.parametrize("kind", STORES)


class Mortal:
    """A store whose process can end: from then on it takes no more commits."""

    def __init__(self, inner: Store) -> None:
        self.name = inner.name
        self.is_shared = False
        self.is_dead = False
        self.fails = False
        self.commits: list[Write] = []
        self.before_commit: Callable[[Sequence[Write]], object] | None = None
        """Called with all writes of a commit before it is made; what it raises is the failure."""
        self._inner = inner

    def open(self) -> None:
        self._inner.open()

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        return self._inner.get(space, keys)

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        return self._inner.scan(space, start=start, stop=stop, limit=limit)

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        if self.before_commit is not None:
            self.before_commit([write for batch in batches for write in batch])
        if self.is_dead or self.fails:
            raise StoreFailed(self.name, "its process has ended")
        self.commits += [write for batch in batches for write in batch]
        return self._inner.commit(batches, durability)

    def close(self) -> None:
        self._inner.close()

    def at_rest(self, *writes: Write, space: str = "chat turns") -> list[tuple[str, bytes]]:
        """Write something between two lives, and return the records of a space."""
        self.open()
        try:
            if writes:
                self._inner.commit([writes], "process")
            return self.scan(space, limit=1_000)
        finally:
            self.close()

    @property
    def has_sessions(self) -> bool:
        return bool(self.at_rest(space="chats"))

    @property
    def is_clean(self) -> bool:
        """Whether there is no record of a turn in progress."""
        return not self.at_rest() and not self.at_rest(space="chat steps")


def in_memory() -> Mortal:
    return Mortal(MemoryStore())
