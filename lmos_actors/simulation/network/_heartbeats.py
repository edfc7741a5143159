"""The liveness checks of both ends of a connection: when a cut is noticed, computed without sending pings.

Each end of our WebSockets checks every `BEAT` seconds whether it has received anything since its last check.
If not, it pings; if at the next check it has still received nothing, it gives up. The pings of an idle
connection are always answered, so they need not be simulated.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

BEAT: Final = 20.0
"""Seconds between two looks of an end for life on a connection; see `ConnectionOptions`."""

OPENING: Final = 0.001
"""Seconds between the answer to a handshake and the moment when the connecting end begins to look for life.

Without them each ping of the other end would come at the very instant of such a look, over a line of constant
latency, and nobody could say which comes first.
"""

SLACK: Final = 1e-6
"""Seconds by which two equal instants may differ, as both are sums of floats."""

LONG: Final = 100 * BEAT
"""Seconds of idle time beyond which pings are skipped: they are taken to be as regular as the rest."""


@attrs.define(weakref_slot=False)
class Heartbeats:
    """The liveness checks of a connection. End 0 is the end that connected, end 1 the end that serves.

    `since`, `served_since`: when the connection began for either end. `heard`, `served_heard`: when it last
    received something; at first the instant at which it began, although it has received nothing.
    """

    since: float
    served_since: float
    heard: float = attrs.field(init=False)
    served_heard: float = attrs.field(init=False)
    next_ping: float = attrs.field(init=False)
    """The instant before which neither end pings."""

    def __attrs_post_init__(self) -> None:
        self.heard, self.served_heard = self.since, self.served_since
        self.next_ping = min(self.since, self.served_since) + BEAT

    @property
    def takes(self) -> float:
        """The seconds that a message from the serving end takes, as measured by the last handshake."""
        return max(self.since - self.served_since, 2 * SLACK)

    def ping(self, end: int) -> float:
        """Return when an end pings if nothing more arrives: at its second check after the last arrival."""
        since, heard = (self.served_since, self.served_heard) if end else (self.since, self.heard)
        looks = math.ceil((heard - since - SLACK) / BEAT)
        return since + (looks + 1) * BEAT

    def gives_up(self, end: int) -> float:
        """Return when an end gives the connection up if it receives nothing more."""
        return self.ping(end) + BEAT

    def hear(self, end: int, now: float) -> None:
        """Record that an end has received something now."""
        if end:
            self.served_heard = max(self.served_heard, now, self.served_since + 2 * SLACK)  # after it began
        else:
            self.heard = max(self.heard, now, self.since + 2 * SLACK)

    def pass_idle_time(self, now: float) -> None:
        """Account for the pings up to now, all of which have been answered."""
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
