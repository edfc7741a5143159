"""Stores: the common interface for all stored data, and the writes that a store accepts.

A store is an ordered map from a space and a key to bytes, written in batches. That is all that states,
journals, answers, timers and directories need, and many databases offer it: nothing here needs SQLite.

- A **batch** is written as a whole or not at all. A commit has several batches, of different owners, and is
  itself one transaction: after a crash all of it is there, or nothing.
- A write may **expect** a value at its key, as it was before its batch. If the store has another value, the
  batch is left out, and the other batches of the commit are still written. A `Check` has an expectation and
  writes nothing.
- **Keys** are in the order of their UTF-8 bytes, which is the order of Python's text. A journal is a space
  whose keys end in a number of constant width: a scan replays it, and a `DeleteRange` truncates it.
- **Values** are bytes. Only their owner interprets them and decides when they expire.
- A value may be put with **terms**, words chosen by its owner. A store with an index (`IndexedStore`) finds
  the key by them; in other stores they have no effect, and the owner reads all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

Durability: TypeAlias = Literal["process", "power"]
"""The failure that a commit survives: the end of the process, even by SIGKILL; or also a power failure."""

MAX_KEY: Final = 16 << 10
"""Maximum bytes of a key, and of the name of a space."""

MAX_VALUE: Final = 256 << 20
"""Maximum bytes of a value."""


class Expected(Enum):
    """An expectation of a write about its key that names no value: either anything is allowed, or nothing."""

    ANYTHING = "anything"
    NOTHING = "nothing"


@final
class Put(msgspec.Struct, frozen=True, gc=False):
    """Write of a value; it replaces the value and the terms at its key."""

    space: str
    key: str
    value: bytes
    expect: bytes | Expected = Expected.ANYTHING
    terms: tuple[str, ...] = ()
    """The words by which an `IndexedStore` finds the key."""


@final
class Delete(msgspec.Struct, frozen=True, gc=False):
    """Removal of a key, which need not exist."""

    space: str
    key: str
    expect: bytes | Expected = Expected.ANYTHING


@final
class DeleteRange(msgspec.Struct, frozen=True, gc=False):
    """Removal of all keys with `start` <= key < `stop`, or from `start` on if `stop` is None."""

    space: str
    start: str = ""
    stop: str | None = None


@final
class Check(msgspec.Struct, frozen=True, gc=False):
    """An expectation about a key that writes nothing: the rest of its batch depends on it."""

    space: str
    key: str
    expect: bytes | Expected


Write: TypeAlias = Put | Delete | DeleteRange | Check
Batch: TypeAlias = Sequence[Write]
Conflict: TypeAlias = tuple[str, str]
"""Space and key at which a batch expected another value."""


class Store(Protocol):
    """A store whose calls block. They may come from several threads, one at a time.

    Every method but `close` raises `StoreFailed`; the subclass shows the kind of failure.
    """

    name: str
    """Its name in messages: the path of its file, if it has one."""
    is_shared: bool
    """Whether several writers may have it open at once. If not, an opening ends all earlier ones."""

    def open(self) -> None:
        """Open the store for a writer, and create it if it does not exist.

        Only a shared store can have several writers.
        """
        ...

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of `keys`, in the same order; None for a key without a value."""
        ...

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return the first `limit` records with `start` <= key < `stop`, in the order of their keys."""
        ...

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches in one transaction; return for each its first conflict, or None if it is written.

        Raise ValueError or TypeError if a key is not Unicode text or a value is not bytes. After this or any
        other error nothing is written. The caller checks all other limits: see `size_of`.
        """
        ...

    def close(self) -> None:
        """Close the store; does nothing if it is closed."""
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A store whose calls are awaited, such as a store in a server. Several calls may be under way at once.

    Every method raises `StoreFailed`; the subclass shows the kind of failure. A commit whose call is
    cancelled may still be written, but not once a later call of the same store has begun.
    """

    name: str
    """Its name in messages; it contains no secret."""

    @property
    def keeps_power(self) -> bool:
        """Whether the open store accepts commits with "power". If not, they raise StoreFailed."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether several writers may have the store open at once."""
        ...

    @property
    def id(self) -> str:
        """The identifier of the open store's content, "" if it has none. A recreated store has a new one."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep the store open for a block; make it if it does not exist. Closing takes a bounded time."""
        ...

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys as last committed; see `Store`."""
        ...

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        ...

    async def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """Write batches in one transaction; see `Store`."""
        ...


@runtime_checkable
class AttendedStore(Protocol):
    """A shared store that reports which writers are connected, so a killed process is noticed at once."""

    @property
    def sign(self) -> str:
        """The name under which others can ask whether this writer is connected, "" while they cannot."""
        ...

    def when_unattended(self, tell: Callable[[], object]) -> None:
        """Set the function to call whenever this writer loses its `sign`."""
        ...

    async def is_there(self, sign: str) -> bool:
        """Return whether a writer is connected, or True if that cannot be determined. Raise StoreFailed."""
        ...


class Matching(msgspec.Struct, frozen=True):
    """The result of an index query over a range of keys."""

    indexed: int
    """The number of keys of the range with terms in the index; it is incomplete if the range has more."""
    keys: list[str]
    """The keys with one of the wanted terms, in no order."""


@runtime_checkable
class IndexedStore(Protocol):
    """A `Store` that finds keys by the terms of their values. One transaction writes values and index."""

    def matching(self, space: str, terms: Sequence[str], *, start: str, stop: str) -> Matching | None:
        """Return the keys with `start` <= key < `stop` that have any of the terms, or None without an index.

        Raise StoreFailed.
        """
        ...


def size_of(write: Write) -> int:
    """Return the size of a write in bytes. Raise ValueError or TypeError if no store can keep it."""
    space = write.space
    if type(write) is DeleteRange:
        return _key_size(space) + _key_size(write.start) + _key_size(write.stop or "")
    key = write.key
    size = len(space) + len(key)
    if size > MAX_KEY or not (space.isascii() and key.isascii()):
        size = _key_size(space) + _key_size(key)
    if type(write) is Put:
        if type(write.value) is not bytes:
            raise TypeError(f"a value must be bytes, not {type(write.value).__name__}")
        if len(write.value) > MAX_VALUE:
            raise ValueError(f"a value must have at most {MAX_VALUE} bytes, not {len(write.value)}")
        size += len(write.value)
        if write.terms:
            size += sum(map(_key_size, write.terms))
    return size


def _key_size(key: str) -> int:
    # a UnicodeEncodeError, for one with half a character, is a ValueError
    size = len(key) if key.isascii() else len(key.encode())
    if size > MAX_KEY:
        raise ValueError(f"a key must have at most {MAX_KEY} bytes, not {size}")
    return size


class Paged(Protocol):
    """The part of a store, or of a reader of one, that reads records page by page."""

    def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        ...


def records_of(
    store: Paged, space: str, start: str = "", stop: str | None = None, *, page: int = 256
) -> Iterator[tuple[str, bytes]]:
    """Yield the records with `start` <= key < `stop`, read page by page. Raise StoreFailed."""
    while found := store.scan(space, start=start, stop=stop, limit=page):
        yield from found
        start = after(found[-1][0])


def after(key: str) -> str:
    """Return the first key that can follow a key."""
    return key + "\0"
