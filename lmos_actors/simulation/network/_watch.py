"""The watch over the other end of a simulated connection that owes an answer; see `PeerWatch` of real ones.

While an answer is owed, the end that connected checks every `LOOK` seconds whether anything has arrived, and
pings every `PING` seconds. Over intact lines these pings are always answered, so they are simulated only once
the lines are cut or slow, or lead to an end that is gone. Then the pings up to now are accounted for
(`settle`), and the later checks and pings do happen.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final, Protocol

import trio

from lmos_actors.bindings import LOOK, PING
from lmos_actors.transport import ConnectionOptions

from ._heartbeats import SLACK

if TYPE_CHECKING:
    from lmos_actors._core import Timer, Timers


SILENCE: Final = ConnectionOptions().answer_seconds


class Watched(Protocol):
    """The connection, reduced to the members that its watch uses."""

    @property
    def heard_at(self) -> float:
        """The instant at which the end that connected last received something."""
        ...

    @property
    def is_odd(self) -> bool:
        """Whether a ping may remain unanswered or take long."""
        ...

    def ping(self) -> None:
        """Send a ping from the end that connected."""
        ...

    def pong(self, at: float) -> None:
        """Record an answered ping that was sent at the instant `at`."""
        ...

    def leave(self, end: int) -> None:
        """End one end of the connection."""
        ...


class Watch:
    """The watch of one connection."""

    __slots__ = ("_began", "_free_since", "_timer", "_timers", "_watched")

    def __init__(self, timers: Timers, watched: Watched) -> None:
        self._timers = timers
        self._watched = watched
        self._began: float | None = None  # None while it is off
        self._free_since: float | None = None  # no answer is owed
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Start watching: an answer is owed from now on."""
        now = trio.current_time()
        self.settle(now)
        self._free_since = None
        if self._began is None:
            self._began = now
        self.look_again()

    def free(self) -> None:
        """Record that no answer is owed any more."""
        if self._free_since is None:
            self._free_since = trio.current_time()

    def settle(self, now: float) -> float | None:
        """Account for the pings up to now that were not simulated: all of them were answered.

        Return the instant since which the watch is on, or None if it is off.
        """
        began = self._began
        if began is None or self._timer is not None:
            return began
        last = now
        if self._free_since is not None:
            ended = began + LOOK * max(1, -floor((began - self._free_since) / LOOK + SLACK))
            if ended <= now + SLACK:  # at the first look that finds nothing owed
                last, self._began = ended - LOOK / 2, None  # that look pings no more
        pings = floor((last - began - LOOK + SLACK) / PING)
        if pings >= 0:
            self._watched.pong(began + LOOK + PING * pings)
        return self._began

    def look_again(self) -> None:
        """Start the real checks, if they may find something."""
        if self._began is not None and self._timer is None and self._watched.is_odd:
            now = trio.current_time()
            began = self.settle(now)
            if began is not None:
                looks = floor((now - began) / LOOK + SLACK) + 1
                self._timer = self._timers.call_at(began + LOOK * looks, self._look)

    def end(self) -> None:
        """End the watch, because its connection has ended."""
        self._began = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        began, now = self._began, trio.current_time()
        assert began is not None
        if self._free_since is not None:
            self._began = None
            return
        heard = max(self._watched.heard_at, began)
        noticed = began + LOOK * -floor((began - heard) / LOOK + SLACK)  # the first look after that
        if now - noticed >= SILENCE - SLACK:
            self._began = None
            self._watched.leave(0)
            return
        looks = round((now - began) / LOOK)
        if (looks - 1) % (PING / LOOK) == 0:
            self._watched.ping()
        if self._watched.is_odd:
            self._timer = self._timers.call_at(began + LOOK * (looks + 1), self._look)
