"""The order of turns: the turns of one session run one after another, each with a place in a line."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from ._failures import failure
from ._items import RATE_LIMITED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

MAX_WAITING: Final = 8
"""Maximum messages of one session that wait behind the turn in progress."""


class _Line:
    """The turns of one session, each as an event: first the turn in progress, then the waiting turns."""

    __slots__ = ("ended", "places")

    def __init__(self) -> None:
        self.places: deque[trio.Event] = deque()
        self.ended = trio.Event()


class Lines:
    """The lines of the sessions of one agent, by owner and id."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}

    def __contains__(self, session: tuple[str, str]) -> bool:
        return session in self._lines

    @asynccontextmanager
    async def place(self, owner: str, id: str) -> AsyncGenerator[None]:
        """Wait until no other turn of the session is in progress. Raises ActionFailed if too many wait."""
        line = self._lines.get((owner, id))
        if line is not None and len(line.places) > MAX_WAITING:
            raise failure(RATE_LIMITED, "too many in-flight requests")
        place = self.join(owner, id)
        try:
            await place.wait()
            yield
        finally:
            self.leave(owner, id, place)

    def join(self, owner: str, id: str, *, is_next: bool = False) -> trio.Event:
        """Add a place at the end of the line, or right after the first; its event is set once it is first."""
        line = self._lines.setdefault((owner, id), _Line())
        place = trio.Event()
        line.places.insert(1 if is_next else len(line.places), place)
        if line.places[0] is place:
            place.set()
        return place

    def leave(self, owner: str, id: str, place: trio.Event) -> None:
        """Remove a place from any position in the line."""
        line = self._lines[owner, id]
        line.places.remove(place)
        if line.places:
            line.places[0].set()
        else:
            del self._lines[owner, id]
            line.ended.set()

    async def wait_empty(self, owner: str, id: str) -> None:
        """Wait until no turn of the session is in progress or waiting."""
        while (line := self._lines.get((owner, id))) is not None:
            await line.ended.wait()
