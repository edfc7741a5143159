"""Who is at the door: how many may be there, who gives way to whom, and how each one's visit ended."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import attrs
import trio

from lmos_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors._budget import Budget

    from ._certificates import ClientCertificate


@attrs.frozen(kw_only=True)
class DoorOptions:
    """Limits of a front door; all times in seconds. Raises ConfigError where one is not above zero.

    `head_seconds`: from the first moment, or the first byte of a later request, to the end of its head.
    `tls_seconds`: for the TLS handshake. `keep_alive_seconds`: silence between two requests.
    `body_seconds`: waiting for one request's body, all in all. `write_seconds`: one write that the peer does
    not take. `linger_seconds`: how long a peer has to read a refusal before its connection is closed.

    `max_connections` counts all that is open; past it the longest idle one between two HTTP requests is
    closed, else the longest half-open one, else the newcomer is answered 503. `max_half_open` counts
    connections whose first head is not there yet; past it the longest half-open one is closed.
    """

    head_seconds: float = 5.0
    tls_seconds: float = 10.0
    keep_alive_seconds: float = 5.0
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    linger_seconds: float = 1.0
    max_head_bytes: int = 16384
    max_headers: int = 100
    max_body_bytes: int = 4 << 20
    max_connections: int = 10_000
    max_half_open: int = 256

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            whole = name.startswith("max_")
            if type(value) not in ((int,) if whole else (int, float)) or not 0 < value < math.inf:
                kind = "an int of at least 1" if whole else "a finite number above 0"
                raise ConfigError(f"must be {kind}, not {value!r}", f"DoorOptions.{name}")


@attrs.frozen(kw_only=True)
class DoorStatistics:
    """What a front door has seen so far.

    Each connection ends in exactly one way: `accepted` is `open + served + left + failed` and the sum of
    `refused`, at any moment. `served`: it was a WebSocket, or its HTTP requests were answered. `left`: the
    peer was gone before its first request, or the door was closed. `failed`: what served it raised.
    `refused`: by reason, where the door answered itself ("malformed", "too large", "method", "version",
    "cut short", "slow head", "slow body", "upgrade", "route 404", "no app", "no place", "memory", "TLS on a
    plain port", "plain on a TLS port"), or closed the connection, TLS by an alert ("silent", "half open",
    "TLS", "client certificate", "slow TLS").
    Of those open, `half_open` have not shown their first request, `idle` are between two.
    """

    accepted: int
    open: int
    half_open: int
    idle: int
    served: int
    left: int
    failed: int
    refused: Mapping[str, int]
    requests: int
    upgrades: int


class Guest:
    """One connection while it is here."""

    __slots__ = ("account", "bare", "certificate", "end", "peer", "place", "requests", "scope")

    def __init__(self, peer: str, budget: Budget) -> None:
        self.peer = peer
        self.account = budget.open(bool)  # of what it holds in memory; it gives way by what serves it
        self.certificate: ClientCertificate | None = None
        self.scope = trio.CancelScope()
        self.requests = 0  # that were handed on
        self.bare = False  # the answer under way has no body: it is one to HEAD
        self.end = ""  # why it was refused, or "failed"
        self.place: dict[Guest, None] | None = None

    def turn_away(self, why: str) -> None:
        """End the connection from outside."""
        self.end = self.end or why
        self.scope.cancel()


class Guests:
    """All connections, by what they are doing; those that wait stand in the order in which they began to."""

    def __init__(self, options: DoorOptions) -> None:
        self._options = options
        self._half_open: dict[Guest, None] = {}
        self._idle: dict[Guest, None] = {}
        self._busy: dict[Guest, None] = {}
        self._parting: dict[Guest, None] = {}  # answered with a refusal, which they may read yet
        self._open = 0
        self._accepted = 0
        self._ends: Counter[str] = Counter()
        self.requests = 0
        self.upgrades = 0

    def admit(self, guest: Guest) -> bool:
        """Take a newcomer in, at the cost of one that is silent; False if there is no place."""
        self._accepted += 1
        self._open += 1
        if len(self._half_open) + len(self._idle) + len(self._busy) >= self._options.max_connections:
            silent = next(iter(self._idle or self._half_open), None)
            if silent is None:
                guest.end = "no place"
                self.part(guest)
                return False
            self._dismiss(silent, "no place")
        elif len(self._half_open) >= self._options.max_half_open:
            self._dismiss(next(iter(self._half_open)), "half open")
        self._move(guest, self._half_open)
        return True

    def wait(self, guest: Guest) -> None:
        """Take note that it is silent between two requests."""
        self._move(guest, self._idle)

    def serve(self, guest: Guest, *, upgrade: bool = False) -> None:
        """Take note that a request of its is handed on."""
        guest.requests += 1
        self.requests += not upgrade
        self.upgrades += upgrade
        self._move(guest, self._busy)

    def part(self, guest: Guest) -> None:
        """Take note that it has been refused; its place is free. Those who take long for it give way."""
        if guest.place is self._parting:
            return
        if len(self._parting) >= self._options.max_half_open:
            self._dismiss(next(iter(self._parting)), "")
        self._move(guest, self._parting)

    def leave(self, guest: Guest) -> None:
        """Take note that the connection is closed."""
        self._open -= 1
        self._ends[guest.end or ("served" if guest.requests else "left")] += 1
        self._move(guest, None)

    def end_idle(self) -> None:
        """Close what is silent between two requests."""
        for guest in list(self._idle):
            self._dismiss(guest, "")

    def _dismiss(self, guest: Guest, why: str) -> None:
        guest.turn_away("" if guest.requests else why)
        self._move(guest, None)

    def _move(self, guest: Guest, place: dict[Guest, None] | None) -> None:
        if guest.place is not None:
            del guest.place[guest]
        if place is not None:
            place[guest] = None
        guest.place = place

    def statistics(self) -> DoorStatistics:
        ends = self._ends.copy()
        return DoorStatistics(
            accepted=self._accepted,
            open=self._open,
            half_open=len(self._half_open),
            idle=len(self._idle),
            served=ends.pop("served", 0),
            left=ends.pop("left", 0),
            failed=ends.pop("failed", 0),
            refused=dict(sorted(ends.items())),
            requests=self.requests,
            upgrades=self.upgrades,
        )
