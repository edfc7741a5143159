"""Crowds: if very many connections arrive or leave at once, a few proceed in each pass of the event loop.

A new connection costs the node a millisecond until its first answer, and its end costs a third of that. If
thousands arrived or ended in one instant, all of that work would happen in a few passes of the loop, and
everybody else would wait for a second. So the first bytes of a connection, and its end, wait here for their
turn; data in between does not wait.

In each pass, `FEW` leaving connections may proceed. So may `FEW` newcomers while nothing else happens. While
other connections are busy, one newcomer proceeds for every two reads from them in the previous pass, if that
is more. Otherwise the last of a thousand newcomers that send request after request would wait for as many
rounds of the others.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import outcome
import trio
from trio.lowlevel import Abort, Task, checkpoint, current_task, reschedule

FEW: Final = 4
"""The number of connections that may end, and may at least begin, in one pass of the event loop."""

INSTANT: Final = 0.005
"""Seconds in which at most `FEW` connections may come, or leave, without waiting for others."""

WAITING: Final = 32
"""The most connections that wait for their turn: far fewer than a door allows to be half open."""


class Line:
    """The tasks that wait for their turn. The first one leads: after a pass it lets the next ones proceed."""

    __slots__ = ("_crowd", "_is_led", "_left", "_until", "waiting")

    def __init__(self, crowd: Crowd | None = None) -> None:
        self._crowd = crowd
        self._is_led = False
        self._left = FEW
        self._until = 0.0
        self.waiting: deque[Task] = deque()

    async def turn(self) -> None:
        """Wait for the caller's turn, without a checkpoint if only few callers have come."""
        if not self._is_led:
            now = trio.current_time()
            if now >= self._until:
                self._left, self._until = FEW, now + INSTANT
            if self._left > 0:
                self._left -= 1
                return
            if self._crowd is not None:
                self._crowd.news = 0
        elif not await self._called_to_lead():
            return
        await self._lead()

    async def _called_to_lead(self) -> bool:
        """Wait for the caller's turn; return whether the caller leads from then on."""
        task = current_task()
        self.waiting.append(task)

        def abort(_: object) -> Abort:
            self.waiting.remove(task)
            return Abort.SUCCEEDED

        leads: bool = await trio.lowlevel.wait_task_rescheduled(abort)
        return leads

    async def _lead(self) -> None:
        self._is_led = True
        most = 1  # the next one alone, if this one is cancelled
        try:
            await checkpoint()
            most = FEW if self._crowd is None else self._crowd.most()
        finally:
            for _ in range(min(most - 1, len(self.waiting))):
                reschedule(self.waiting.popleft(), outcome.Value(False))
            self._is_led = bool(self.waiting)
            if self.waiting:
                reschedule(self.waiting.popleft(), outcome.Value(True))


class Crowd:
    """The connections that arrive at one event loop, and the connections that leave it."""

    __slots__ = ("_arriving", "_leaving", "news")

    def __init__(self) -> None:
        self._arriving = Line(self)
        self._leaving = Line()
        self.news = 0
        """The number of reads in this pass from connections that are neither new nor at their end."""

    @property
    def is_full(self) -> bool:
        """Whether many connections are already waiting, so that no others should be accepted for now."""
        return len(self._arriving.waiting) >= WAITING

    async def arrive(self) -> None:
        """Wait for the turn of a connection whose first bytes have arrived."""
        await self._arriving.turn()

    async def leave(self) -> None:
        """Wait for the turn of a connection that has ended."""
        await self._leaving.turn()

    def most(self) -> int:
        """Return how many newcomers may proceed after a pass."""
        most, self.news = max(FEW, self.news // 2), 0
        return most


_crowd: trio.lowlevel.RunVar[Crowd] = trio.lowlevel.RunVar("crowd of connections")


def present_crowd() -> Crowd:
    """Return the crowd of this event loop, which is made at the first call."""
    try:
        return _crowd.get()
    except LookupError:
        crowd = Crowd()
        _crowd.set(crowd)
        return crowd
