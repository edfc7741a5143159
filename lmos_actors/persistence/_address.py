"""Names of stores, as people write them: `sqlite:PATH`, `redis://HOST`, `memory:`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from lmos_actors.errors import ConfigError, nearest

from ._memory import MemoryStore
from ._redis_address import PREFIX
from ._sqlite import SqliteStore

if TYPE_CHECKING:
    from ._redis_reader import RedisReader
    from ._store import AsyncStore, Store

SERVER: Final = ("redis://", "rediss://")
"""The URL schemes of stores in a server, which nodes share."""


def has_one_writer(text: str) -> bool:
    """Return whether a text names a store that only one process at a time can open."""
    query = parse_qsl(text.partition("?")[2])
    return text.startswith("sqlite:") or (text.startswith(SERVER) and ("writers", "one") in query)


def server_store(text: str) -> str | None:
    """Return a server store's URL without parameters other than the prefix; None for other stores.

    The text may have parts that are filled in later.
    """
    if not text.startswith(SERVER):
        return None
    place, _, query = text.partition("?")
    return f"{place.rstrip('/')}?prefix={dict(parse_qsl(query)).get('prefix', PREFIX)}"


def with_id(text: str, id: str) -> str:
    """Return the URL of a store in a server, with `id` as its required identifier if it has none yet."""
    _, mark, query = text.partition("?")
    if "id" in dict(parse_qsl(query)):
        return text
    return f"{text}{'&' if mark else '?'}id={id}"


def store_of(given: Store | AsyncStore | str) -> Store | AsyncStore:
    """Return the store that a text names, not yet open, or the given store. Raise ConfigError."""
    if not isinstance(given, str):
        return given
    if given.startswith(SERVER):
        from ._redis import RedisStore  # most programs have neither a server nor its client

        return RedisStore(given)
    kind, colon, path = given.partition(":")
    if kind == "sqlite" and path:
        return SqliteStore(path)
    if given == "memory:":
        return MemoryStore()
    near = nearest(kind, ("sqlite", "redis", "memory")) if colon else None
    hint = f", did you mean {near}:{path}?" if near and near != kind else ""
    raise ConfigError(f'"{given}" is no store; it is sqlite:PATH, redis://HOST or memory:{hint}', "store")


def reader_of(url: str) -> RedisReader:
    """Return a reader of the store in a server at a URL, not yet open. Raise ConfigError."""
    from ._redis_reader import RedisReader

    return RedisReader(url)
