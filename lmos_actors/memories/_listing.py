"""Listing and removal of memories, for commands, in a store that no node uses at the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import attrs
import msgspec

from lmos_actors.persistence import Delete, DeleteRange, Paged, Put, parts_of, range_of, records_of

from ._kept import (
    AGENTS,
    ORDER,
    OWNERS,
    TEXTS,
    VECTORS,
    Identities,
    KeptText,
    Owner,
    decoded,
    owner_key,
)
from ._memories import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.persistence import Write


class ReadStore(Paged, Protocol):
    """A store for reading, whose calls block; see `Store`."""

    name: str
    """The name in messages."""

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys."""
        ...


@attrs.frozen
class MemoryOwner:
    """An identity that has memories at an agent; "" is the identity without a name."""

    agent: str
    identity: str
    texts: int


def owners_in(store: ReadStore, agent: str | None, identity: str | None) -> Iterator[MemoryOwner]:
    """Yield the identities with memories, optionally of one agent or with one name. Raise StoreFailed."""
    for key, value in records_of(store, OWNERS):
        where, who = parts_of(key, 2)
        found = MemoryOwner(where, unquote(who), decoded(store.name, Owner, value).texts)
        if agent in (None, found.agent) and identity in (None, found.identity):
            yield found


def memories_in(store: ReadStore, owner: MemoryOwner) -> list[Memory]:
    """Return the memories of an owner, the newest first. Raise StoreFailed."""
    key = owner_key(owner.agent, owner.identity)
    start, stop = range_of(key)
    found: list[tuple[int, Memory]] = []
    for name, value in records_of(store, TEXTS, start, stop):
        kept = decoded(store.name, KeptText, value)
        found.append((kept.number, Memory(name.removeprefix(start), kept.text, kept.tags, kept.at)))
    return [memory for _, memory in sorted(found, key=lambda each: -each[0])]


def removal_of(store: ReadStore, owners: Sequence[MemoryOwner]) -> list[Write]:
    """Return the writes that remove all memories of some owners. Raise StoreFailed."""
    writes: list[Write] = []
    gone: dict[str, int] = {}
    for owner in owners:
        key = owner_key(owner.agent, owner.identity)
        gone[owner.agent] = gone.get(owner.agent, 0) + 1
        writes += [DeleteRange(space, *range_of(key)) for space in (TEXTS, ORDER, VECTORS)]
        writes.append(Delete(OWNERS, key))
    for agent, value in zip(gone, store.get(AGENTS, list(gone)), strict=True):
        if value is None:
            continue
        left = decoded(store.name, Identities, value).identities - gone[agent]
        kept = msgspec.json.encode(Identities(left))
        writes.append(Put(AGENTS, agent, kept, value) if left > 0 else Delete(AGENTS, agent, value))
    return writes
