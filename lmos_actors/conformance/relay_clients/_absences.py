"""The absence of a client whose connection was ended: whether and when the client reconnects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.scripted import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.clients import ClientNotes, ConnectionLog
    from lmos_actors.conformance.scripted import Reply

NEVER: Final = 5.0
"""Seconds in which a client must not come back."""

BUSY: Final = 2.0
"""Seconds in which an agent is refused by 503, and seconds that 429 tells it to wait."""

ATTEMPTS: Final = 10
"""Most attempts of an agent while it is refused by 503."""


class Absence:
    """An agent that was cut off and is expected to reconnect in time.

    `over` is called as soon as nothing more is expected of the agent.
    """

    seconds = 30.0  # a client may take longer each time

    def __init__(self, case: str, notes: ClientNotes, log: ConnectionLog, over: Callable[[], object]) -> None:
        self.case = case
        self.attempts = 0
        self._notes = notes
        self._log = log
        self._over = over

    def attempt(self, now: float) -> Reply | None:
        """Judge an attempt to connect; return the reply that refuses it, or None to accept it."""
        self._notes.tried(self.case)
        self._over()
        return None

    def expired(self) -> None:
        """Judge an agent that has not tried to reconnect in time."""
        self._notes.wrong(self.case, f"no connection within {self.seconds:g} s", self._log)
        self._over()


class Unavailable(Absence):
    """An agent that is refused with a 503 for a while."""

    _since = 0.0

    def attempt(self, now: float) -> Reply | None:
        """Judge an attempt to connect; return the reply that refuses it, or None to accept it."""
        self.attempts += 1
        if self.attempts == 1:
            self._since = now
        if now - self._since < BUSY:
            return refusal(503, "come back later")
        if self.attempts > ATTEMPTS + 1:
            self._notes.wrong(self.case, f"{self.attempts - 1} attempts in {BUSY:g} s", self._log)
        return super().attempt(now)


class RetryAfter(Absence):
    """An agent that is refused with a 429 and a Retry-After, which it must respect."""

    _until = 0.0

    def attempt(self, now: float) -> Reply | None:
        """Judge an attempt to connect; return the reply that refuses it, or None to accept it."""
        self.attempts += 1
        early = self._until - now
        if self.attempts == 1:
            self._until = now + BUSY
        elif early > 0.05:  # clocks may differ by so much
            self._notes.wrong(self.case, f"an attempt {early:.1f} s too early", self._log)
        else:
            return super().attempt(now)
        reply = refusal(429, "come back later")
        return attrs.evolve(reply, headers=(*reply.headers, ("Retry-After", f"{BUSY:g}")))


class Farewell(Absence):
    """An agent that must not reconnect."""

    seconds = NEVER

    def attempt(self, now: float) -> Reply | None:
        """Judge an attempt to connect; return the reply that refuses it, or None to accept it."""
        self._notes.wrong(self.case, f"another connection within {self.seconds:g} s", self._log)
        return super().attempt(now)

    def expired(self) -> None:
        """Judge an agent that has stayed away as expected."""
        self._notes.tried(self.case)
        self._over()
