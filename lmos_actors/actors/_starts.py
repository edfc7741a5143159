"""The starts of a node's agents that are not finished, as they wait for something such as a lifespan."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Generator


class Starts:
    """The agents that are being started: `first` for the first time, `again` after earlier lives."""

    __slots__ = ("_told", "again", "first")

    def __init__(self) -> None:
        self.first: dict[Any, None] = {}
        self.again: dict[Any, None] = {}
        self._told = trio.lowlevel.ParkingLot()

    def tell(self) -> None:
        """Wake the tasks that wait in `change`, as other agents may be down now."""
        self._told.unpark_all()

    async def change(self) -> None:
        """Wait until the set of agents that are down may have changed: a restart begins or is over."""
        await self._told.park()

    @contextmanager
    def under_way(self, what: Any, *, again: bool = False) -> Generator[None]:
        """Note that an agent is being started during the block."""
        there = self.again if again else self.first
        there[what] = None
        if again:
            self.tell()
        try:
            yield
        finally:
            there.pop(what, None)
            if again:
                self.tell()
