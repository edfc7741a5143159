"""Exponential backoff between attempts: capped, with full jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmos_actors._core import RandomStream

FIRST: Final = 0.1
"""Upper bound of the first wait, in seconds; each further wait has twice the bound. Waits are random."""


class Backoff:
    """The waits of one series of tries, each of at most `longest` seconds; `reset` begins a new one."""

    __slots__ = ("_longest", "_random", "_tries")

    def __init__(self, random: RandomStream, longest: float = 30.0) -> None:
        self._random = random
        self._longest = longest
        self._tries = 0

    def next(self) -> float:
        """Return the seconds to wait now."""
        most = min(self._longest, FIRST * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return round(most * self._random.random(), 6)

    def reset(self) -> None:
        """Begin a new series, because the last try was a success."""
        self._tries = 0
