"""A read-only view of a store in a Redis server. It does not disturb nodes that have the store open."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import StoreDamaged, StoreFailed, StoreForeign

from ._redis_address import RedisAddress
from ._redis_connections import RedisConnections, ends_of, plain, values_of
from ._redis_failures import NO_REDIS
from ._redis_scripts import GET, SCAN, check_version

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from ._redis_scripts import Script

NOBODY = "", "", 0
"""The writer that scripts of reads are given: none, as a reader can miss no commits of its own."""


class RedisReader:
    """A reader of a store in a Redis server or its replica. Each page shows the state after one commit."""

    def __init__(self, url: str) -> None:
        """Prepare the store at a URL; see `RedisAddress`. Raise ConfigError."""
        self.address = RedisAddress.parse(url)
        self.name = self.address.name
        self.id = ""
        """The identifier of the store, once it is open."""
        self._server = RedisConnections(self.address)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Allow reads during a block. Raise StoreForeign if there is no store."""
        async with self._server.opened():
            answer = await self._server.answer(lambda client: client.hgetall(f"{self._server.prefix}:meta"))
            with self._server.understood():
                about = {plain(key): plain(value) for key, value in dict[Any, Any](answer).items()}
            if not about:
                raise StoreForeign(
                    self.name,
                    "there is no store with this prefix",
                    "look at the prefix and at the number of the database",
                )
            check_version(self.name, about.get("version", ""))
            self.id = about.get("id", "")
            yield

    async def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys; None for a key without a value. Raise StoreFailed."""
        return await values_of(keys, partial(self._read, GET, space))

    async def scan(
        self, space: str, *, start: str = "", stop: str | None = None, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return a page of records; see `Store`."""
        rows = await self._read(SCAN, space, *ends_of(start, stop), limit)
        found: list[tuple[str, bytes]] = []
        with self._server.understood():
            for key, value in zip(rows[::2], rows[1::2], strict=True):
                if key is None or value is None:
                    raise StoreDamaged(self.name, f"the record {plain(key)!r} in {space!r} has no value")
                found.append((key.decode(), value))
        return found

    async def spaces(self) -> list[str]:
        """Return the names of all spaces, sorted. This scans all keys of the database."""
        start, found, cursor = f"{self._server.prefix}:v:", set[str](), 0
        pattern = re.sub(r"([*?\[\]^\\-])", r"\\\1", start) + "*"
        while True:
            cursor, names = await self._page(cursor, pattern)
            found |= {name.removeprefix(start) for name in names}
            if not cursor:
                return sorted(found)

    async def _page(self, cursor: int, pattern: str) -> tuple[int, list[str]]:
        answer = await self._server.answer(lambda client: client.scan(cursor, match=pattern, count=1_000))
        with self._server.understood():
            return int(answer[0]), [plain(name) for name in answer[1]]

    async def problems(self) -> list[str]:
        """Return the problems of the store: each space whose numbers of values and keys differ."""
        counts = [(space, *await self._counts(space)) for space in await self.spaces()]
        return [
            f"the space {space!r} has {values} values, and {keys} keys"
            for space, values, keys in counts
            if values != keys
        ]

    async def _counts(self, space: str) -> tuple[int, int]:
        values, keys = f"{self._server.prefix}:v:{space}", f"{self._server.prefix}:k:{space}"
        return (
            await self._server.answer(lambda client: client.hlen(values)),
            await self._server.answer(lambda client: client.zcard(keys)),
        )

    async def _read(self, script: Script, space: str, *arguments: Any) -> list[bytes | None]:
        answer = await self._server.run(script, *NOBODY, space.encode(), *arguments)
        with self._server.understood():
            is_there, found = answer
            if is_there:
                return list(found)
        raise StoreFailed(self.name, *NO_REDIS)
