"""The connections of one service of a node: their limit, and the wait until the last one has ended.

Bounds, "full", the drain and the wait for the end are here, once for all services that take connections:
LMOS, Omnia's protocol, a relay, the pages of nodes and of runs. Each service decides what a drain does to a
connection: one closes it at once, another lets its open requests end first.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from lmos_actors.transport import Refuse

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterator

C = TypeVar("C", bound="Hashable")

LEAVING: Final = Refuse(503, "the node is shutting down")


class ServedConnections(Generic[C]):
    """The connections of a service, the oldest first; at most `most` of them, or any number for None.

    With `shared`, one principal has at most half of them. `full` is the reason for refusing one more.
    """

    def __init__(
        self, most: int | None = None, *, shared: bool = False, full: str = "there are too many connections"
    ) -> None:
        self.draining = False
        """Whether no more connections are taken, as the node ends."""
        self._most = most
        self._shared = shared
        self._full = Refuse(503, full)
        self._open: dict[C, str | None] = {}
        self._none_left = trio.Event()
        self._none_left.set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        return iter(tuple(self._open))

    def refusal(self, principal: str | None = None) -> Refuse | None:
        """Return why one more connection of a principal is refused; None if it is accepted."""
        if self.draining:
            return LEAVING
        return self._full if self.is_full(principal) else None

    def is_full(self, principal: str | None = None) -> bool:
        """Return whether there is no room for one more connection of a principal."""
        if self._most is None:
            return False
        mine = 0
        if self._shared and principal is not None:
            mine = sum(owner == principal for owner in self._open.values())
        return len(self._open) >= self._most or mine >= (self._most + 1) // 2

    @contextmanager
    def served(self, connection: C, principal: str | None = None) -> Generator[C]:
        """Count a connection as open inside this block."""
        self._open[connection] = principal
        if self._none_left.is_set():
            self._none_left = trio.Event()
        try:
            yield connection
        finally:
            del self._open[connection]
            if not self._open:
                self._none_left.set()

    async def wait_done(self) -> None:
        """Wait until no connection is left."""
        await self._none_left.wait()
