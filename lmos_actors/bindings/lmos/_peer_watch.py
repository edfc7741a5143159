"""The watch over a peer that owes an answer: it sends pings, and ends the connection if the peer hangs.

A peer that hangs, because its host is gone or its process stopped, sends nothing, and its connection stays
open. On an idle connection it may take a minute until that is noticed; a caller who waits for an answer
should not wait that long. So while a request is unanswered the peer is pinged every `PING` seconds. Once
nothing has come from it for `answer_seconds` (of `ConnectionOptions`), the connection is broken off, and the
caller gets OutcomeUnknown. Any data from the peer is a sign of life.

Only time in which this process ran counts. A check that comes late shows that the event loop was held up, or
the process stopped. Data that the peer has sent meanwhile may be unread, so that time is not counted.

Peers that do not run this package are not watched: some of them answer nothing, not even a ping, while they
work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timer, Timers
    from lmos_actors.transport import Connection

LOOK: Final = 1.0
"""Seconds between two checks."""

PING: Final = 2.0
"""Seconds between two pings; the first comes with the first check, for peers that are far away."""

LATE: Final = 0.5
"""Seconds by which a check may be late; if it is later, the time since the last check is not counted."""


class PeerWatch:
    """The watch over one connection; `owes` returns whether the peer owes an answer.

    While `is_on` is set, it watches already, or must never watch, so `begin` must not be called.
    """

    __slots__ = (
        "_connection",
        "_heard",
        "_longest",
        "_looked_at",
        "_owes",
        "_pings_in",
        "_silence",
        "_timer",
        "_timers",
        "is_on",
    )

    def __init__(
        self, timers: Timers, connection: Connection, owes: Callable[[], bool], *, is_ours: bool
    ) -> None:
        self.is_on = not is_ours
        self._timers = timers
        self._connection = connection
        self._longest = connection.options.answer_seconds  # of silence
        self._owes = owes
        self._timer: Timer | None = None
        self._heard = 0
        self._silence = self._pings_in = self._looked_at = 0.0

    def begin(self) -> None:
        """Begin to watch, because a request has been sent. The watch ends once no answer is owed."""
        self.is_on = True
        self._heard = self._connection.bytes_in
        self._silence, self._pings_in = 0.0, LOOK
        self._look_later()

    def end(self) -> None:
        """Stop watching permanently, at the end of the connection."""
        self.is_on = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._looked_at = trio.current_time()
        self._timer = self._timers.call_after(LOOK, self._look)

    def _look(self) -> None:
        if not self._owes():
            self.is_on, self._timer = False, None
            return
        heard = self._connection.bytes_in
        if heard != self._heard:
            self._heard, self._silence = heard, 0.0
        elif trio.current_time() - self._looked_at < LOOK + LATE:
            self._silence += LOOK
        if self._silence >= self._longest:
            self._connection.break_off(f"it owes an answer, and has sent nothing for {self._longest:g} s")
            return
        self._pings_in -= LOOK
        if self._pings_in <= 0:
            self._pings_in = PING
            self._connection.ping()
        self._look_later()
