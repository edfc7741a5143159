"""The looks for life of both ends of a connection, without the pings: when a cut is noticed.

Each end of a WebSocket of ours looks every `BEAT` seconds. If it has heard something since its last look, all
is well; if not, it pings, and if at the next look it has still heard nothing, it gives up. An idle connection
pings at every second look, and each ping is answered: that need not happen here to be known.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

BEAT: Final = 20.0
"""Seconds between two looks for life on a connection; see `ConnectionOptions`."""


@attrs.define
class Heartbeats:
    """The looks for life of a connection that stands since an instant. Index 0 is the end that connected."""

    since: float
    heard: list[float] = attrs.field(init=False)
    """When each end has heard something for the last time; at first nothing, not even when it began."""

    def __attrs_post_init__(self) -> None:
        self.heard = [self.since - BEAT, self.since - BEAT]

    def _ping(self, end: int) -> float:
        """Return when an end pings, if it hears nothing more: at the second look from then on."""
        looks = math.floor((self.heard[end] - self.since) / BEAT) + 1
        return self.since + (looks + 1) * BEAT

    def pass_idle_time(self, now: float) -> None:
        """Take into account the pings until now; they have been answered."""
        while True:
            ping = min(self._ping(0), self._ping(1))
            if ping >= now:
                return
            ping += 2 * BEAT * max(0, math.ceil((now - ping) / (2 * BEAT)) - 1)
            self.heard = [ping, ping]

    def ends_at(self, *, there: bool, back: bool) -> float:
        """Return when the first end gives up that hears nothing: the line there is cut, or that back.

        `pass_idle_time` was called when the cut began.
        """
        cut_off = [end for end, is_cut in ((1, there), (0, back)) if is_cut]
        return min(self._ping(end) for end in cut_off) + BEAT

    def healed(self, now: float) -> None:
        """Take note of the end of a cut: what was pinged during it is heard now."""
        if min(self._ping(0), self._ping(1)) < now:
            self.heard = [now, now]
