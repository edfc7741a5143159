"""Names of stores, as people write them: `sqlite:PATH`, `memory:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.errors import ConfigError, nearest

from ._memory import MemoryStore
from ._sqlite import SqliteStore

if TYPE_CHECKING:
    from ._store import Store


def store_of(given: Store | str) -> Store:
    """Return the store that a text names, not open, or the given one. Raise ConfigError."""
    if not isinstance(given, str):
        return given
    kind, colon, path = given.partition(":")
    if kind == "sqlite" and path:
        return SqliteStore(path)
    if given == "memory:":
        return MemoryStore()
    near = nearest(kind, ("sqlite", "memory")) if colon else None
    hint = f", did you mean {near}:{path}?" if near and near != kind else ""
    raise ConfigError(f'"{given}" is no store; it is sqlite:PATH or memory:{hint}', "store")
