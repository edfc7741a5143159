"""Delivery of waiting messages to the agents of a hub: one task sends them all.

A connection has a separate writer, but waking it takes a step of trio's loop, which costs more than the
system call that sends a short frame. During a broadcast to a thousand agents, the loop would do little else.
So the hub's connections with data to send are noted here, and one task makes each of them send as much as the
kernel accepts at once. If data is left, its writer sends the rest. Connections over TLS are not noted: their
writers send everything.

If an agent has sent a single frame, the first receivers get it in the same step that reads it. If an agent
has sent many frames, each receiver gets all of its frames in a few writes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from trio.lowlevel import ParkingLot, checkpoint

if TYPE_CHECKING:
    from lmos_actors.transport import Connection

AT_ONCE: Final = 64
"""Number of connections that send before other tasks have their turn."""


class Delivery:
    """The connections of a hub that have data to send, all of them direct; see the module docstring."""

    def __init__(self) -> None:
        self.left = 0
        """How many of the connections that are noted next send in the present step."""
        self._noted: deque[Connection] = deque()
        self._news = ParkingLot()
        self._is_over = False

    def note(self, connection: Connection) -> None:
        """Make a connection send its data now, or soon. Never blocks."""
        if self.left:
            left, self.left = self.left - 1, 0  # a connection that closes meanwhile is noted again
            connection.flush()
            self.left = left
            return
        if self._is_over:
            connection.wake()
            return
        if not self._noted:
            self._news.unpark()
        self._noted.append(connection)

    async def run(self) -> None:
        """Make the noted connections send, until cancelled; after that, each uses its own writer."""
        noted = self._noted
        try:
            while True:
                if not noted:
                    await self._news.park()
                for _ in range(min(len(noted), AT_ONCE)):
                    noted.popleft().flush()
                if noted:
                    await checkpoint()
        finally:
            self._is_over = True
            for connection in self._noted:
                connection.wake()
