"""The clock of an agent that differs from its world's: its date is off, or it goes faster or slower.

Such a clock belongs to the agent's place in the tree, over all incarnations. `Agent.now` returns its date,
and durable timers are kept by it; timers that begin from then on run at its rate. Waits of a run, such as
`trio.sleep`, and deadlines of requests use the clock of the world. An agent whose clock is right has no
`SkewedClock`.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import trio

if TYPE_CHECKING:
    from datetime import datetime


class ClockedSlot(Protocol):
    """The slot of the clock; see `Slot`, which is in a layer above this file."""

    @property
    def rt(self) -> Any: ...
    @property
    def extra(self) -> Any: ...


class SkewedClock:
    """The sum of the skews that make the clock of one agent wrong."""

    __slots__ = ("_skews", "rate")

    def __init__(self) -> None:
        self._skews: dict[object, tuple[float, float, float]] = {}
        self.rate = 1.0
        """Seconds that pass on it in one second of the world."""

    def add(self, skew: float, rate: float) -> object:
        """Add a skew in seconds, and a rate from now on; return the mark with which `remove` undoes both."""
        mark = object()
        self._skews[mark] = (skew, rate, trio.current_time())
        self._set_rate()
        return mark

    def remove(self, mark: object) -> bool:
        """Undo one `add`; return whether the clock is right again."""
        del self._skews[mark]
        self._set_rate()
        return not self._skews

    def _set_rate(self) -> None:
        self.rate = math.prod(sorted(rate for _, rate, _ in self._skews.values()))

    def ahead(self) -> float:
        """Return the seconds by which the clock's date is ahead of the world's."""
        now = trio.current_time()
        return sum(skew + (now - since) * (rate - 1) for skew, rate, since in self._skews.values())


def date_of(slot: ClockedSlot) -> datetime:
    """Return the date, in UTC, by the clock of an agent."""
    extra = slot.extra
    date: datetime = slot.rt.entropy.now()
    if extra is None or extra.clock is None:
        return date
    return date + timedelta(seconds=round(extra.clock.ahead(), 6))


def world_seconds(slot: ClockedSlot, seconds: float) -> float:
    """Convert `seconds` on the clock of an agent to seconds of the world."""
    extra = slot.extra
    if extra is None or extra.clock is None:
        return seconds
    own: float = seconds / extra.clock.rate
    return own


def clock_seconds(slot: ClockedSlot, seconds: float) -> float:
    """Convert `seconds` of the world to seconds on the clock of an agent."""
    extra = slot.extra
    if extra is None or extra.clock is None:
        return seconds
    own: float = seconds * extra.clock.rate
    return own
