"""The looks for life of both ends of a connection, without the pings: when a cut is noticed.

Each end of a WebSocket of ours looks every `BEAT` seconds. If it has heard something since its last look, all
is well; if not, it pings, and if at the next look it has still heard nothing, it gives up. The pings of an
idle connection are answered: that need not happen here to be known.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

BEAT: Final = 20.0
"""Seconds between two looks for life on a connection; see `ConnectionOptions`."""

OPENING: Final = 0.001
"""Seconds between the answer to a handshake and the moment from which the end that connected looks for life.

Without them each ping of the other end would come at the very instant of such a look, over a line of constant
latency, and nobody could say which of both is first.
"""

SLACK: Final = 1e-6
"""Seconds by which two instants may differ that are the same, after sums of others."""

LONG: Final = 100 * BEAT
"""Seconds of idle time of which the beginning is taken to be as regular as the rest."""


@attrs.define
class Heartbeats:
    """The looks for life of a connection. Index 0 is the end that connected, index 1 that which serves.

    `since`: the instants since which it stands for each. `heard`: when each has heard something for the last
    time; at first nothing, not even when it began.
    """

    since: tuple[float, float]
    heard: list[float] = attrs.field(init=False)
    next_ping: float = attrs.field(init=False)
    """The instant before which no end pings."""

    def __attrs_post_init__(self) -> None:
        self.heard = list(self.since)
        self.next_ping = min(self.since) + BEAT

    @property
    def takes(self) -> float:
        """The seconds of the way back, by the last handshake."""
        return max(self.since[0] - self.since[1], 2 * SLACK)

    def ping(self, end: int) -> float:
        """Return when an end pings, if it hears nothing more: at the second look from then on."""
        looks = math.ceil((self.heard[end] - self.since[end] - SLACK) / BEAT)
        return self.since[end] + (looks + 1) * BEAT

    def gives_up(self, end: int) -> float:
        """Return when an end gives up, if it hears nothing more."""
        return self.ping(end) + BEAT

    def hear(self, end: int, now: float) -> None:
        """Take note of what an end hears."""
        self.heard[end] = max(self.heard[end], now, self.since[end] + 2 * SLACK)  # after it began

    def pass_idle_time(self, now: float) -> None:
        """Take into account the pings until now; they have been answered."""
        takes = self.takes
        while True:
            end = 0 if self.ping(0) <= self.ping(1) else 1
            ping = self.ping(end)
            if ping >= now - SLACK:
                self.next_ping = ping
                return
            if now - ping > LONG:
                ping += 2 * BEAT * math.floor((now - ping - LONG / 2) / (2 * BEAT))
            self.hear(1 - end, ping + takes)
            self.hear(end, ping + 2 * takes)
