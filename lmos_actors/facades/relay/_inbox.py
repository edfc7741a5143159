"""The events of an agent on a relay, which wait for a reader.

**A reader is not required.** Events wait for a reader within bounds. Beyond the bounds, the oldest broadcasts
are dropped, and a `gap` in front of the next event contains their number. So an agent that only asks is never
blocked.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.protocol.relay import RelayAnswer, RelayMessage

if TYPE_CHECKING:
    from lmos_actors.errors import ConnectFailed
    from lmos_actors.protocol.relay import RelayEvent

EVENTS: Final = 1_024
EVENT_BYTES: Final = 4 << 20
"""Maximum messages that wait for a reader."""


class Inbox:
    """A queue of waiting events, the oldest first."""

    def __init__(self) -> None:
        self._events: deque[tuple[RelayEvent, int]] = deque()
        self._bytes = 0
        self._lost = 0
        self._failure: ConnectFailed | None = None
        self._came = trio.Event()

    def put(self, event: RelayEvent, size: int) -> None:
        """Add an event and its size in bytes; if there is no room, drop the oldest broadcast or event."""
        self._events.append((event, size))
        self._bytes += size
        while len(self._events) > EVENTS or self._bytes > EVENT_BYTES:
            broadcasts = (
                each for each in self._events if isinstance(each[0], RelayMessage) and each[0].is_broadcast
            )
            oldest = next(broadcasts, self._events[0])
            self._events.remove(oldest)
            self._bytes -= oldest[1]
            self._lost += 1
        self._came.set()

    def end(self, failure: ConnectFailed) -> None:
        """Note that no event will follow: `next` returns the waiting events, and then raises the failure."""
        self._failure = failure
        self._came.set()

    async def next(self) -> RelayEvent:
        """Wait for the next event. Raise ConnectFailed at the end."""
        while True:
            if self._lost:
                lost, self._lost = self._lost, 0
                return RelayAnswer("gap", {"lost": lost})
            if self._events:
                event, size = self._events.popleft()
                self._bytes -= size
                await trio.lowlevel.checkpoint_if_cancelled()
                return event
            if self._failure is not None:
                raise self._failure
            self._came = trio.Event()
            await self._came.wait()
