"""The results that wait for clients to read them, counted in bytes, in total and for each client.

A result is held in several copies until it has been sent: as text, as data, and in the messages of the SDK.
Without a bound, a client that calls and never reads would fill the memory, even with small results.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lmos_actors.errors import ActionCancelled

if TYPE_CHECKING:
    from ._exchange import Exchange


class Results:
    """The bytes of all unsent results: at most `most` together, half of them for one principal."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes: Counter[str] = Counter()

    def opened(self, exchange: Exchange, key: str) -> HeldResult:
        """Return an empty result for a client's request `key`, held until the answer has been sent."""
        held = self.begun(exchange)
        exchange.holds(key, held.close)
        return held

    def begun(self, exchange: Exchange) -> HeldResult:
        """Return an empty result that does not yet belong to a request of a client."""
        return HeldResult(self, exchange)

    def has_room(self, exchange: Exchange, size: int) -> bool:
        """Return whether a result of a client may have `size` bytes more."""
        if self._bytes.total() + size > self._most:
            return False
        return exchange.principal is None or self._bytes[exchange.owner] + size <= (self._most + 1) // 2

    def count(self, owner: str, size: int) -> None:
        """Count bytes as held for a client; a negative `size` counts them as released."""
        self._bytes[owner] += size
        if not self._bytes[owner]:
            del self._bytes[owner]

    @property
    def most(self) -> int:
        """The limit of bytes for all clients together."""
        return self._most


class HeldResult:
    """The bytes of one result."""

    def __init__(self, results: Results, exchange: Exchange) -> None:
        self._results = results
        self._exchange = exchange
        self._owner = exchange.owner
        self._size = 0
        self._is_closed = False

    def add(self, size: int) -> None:
        """Hold more bytes. Raise ActionCancelled if there is no room for them."""
        if self._is_closed:
            return
        if not self._results.has_room(self._exchange, size):
            most = self._results.most
            raise ActionCancelled(
                f"results that clients have not read yet have {most} bytes together: read them, and try again"
            )
        self._size += size
        self._results.count(self._owner, size)

    def close(self) -> None:
        """Release all bytes."""
        self._is_closed = True
        self._results.count(self._owner, -self._size)
        self._size = 0
