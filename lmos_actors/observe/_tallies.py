"""How many requests there were, and how long they took: by what was asked of which class, and in which way.

Numbers alone are kept, of a bounded number of kinds of requests: what comes after them is counted as `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from lmos_actors.errors import ActionCancelled, LmosActorsError

from ._exposition import Family, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ._exposition import Labels

OTHER: Final = "other"
"""In place of names, once there are too many."""

OK: Final = "2xx"
LEFT: Final = "cancelled"
FAILED: Final = "5xx"

VERBS: Final = (
    "read", "read all", "write", "write many", "invoke", "observe", "subscribe", "subscribe to all",
)  # fmt: skip
"""What may be asked for, in the words of `Operation.verb`."""

Key: TypeAlias = tuple[str, str, str, str]
"""Class, affordance, verb, way."""


def status_of(error: BaseException | None) -> str:
    """Return the class of the status that a request was answered with; `cancelled` where nobody waited."""
    if error is None:
        return OK
    if isinstance(error, ActionCancelled | trio.Cancelled | GeneratorExit):
        return LEFT
    if not isinstance(error, LmosActorsError):
        return FAILED
    return f"{number_of(error) // 100}xx"


def number_of(error: LmosActorsError) -> int:
    """Return the status that an error is answered with: its own where HTTP alone knows it, such as 406."""
    from lmos_actors.protocol.lmos import problem_of  # which nodes that tell no metrics need not

    own: int | None = getattr(error, "http_status", None)
    return problem_of(error).status if own is None else own


class Tally:
    """The requests of one kind: how many by status, how many were how fast, and their seconds in all."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self, buckets: int) -> None:
        self.buckets = [0] * buckets
        self.seconds = 0.0
        self.statuses: dict[str, int] = {}


class Tallies:
    """The requests in one direction. `bounds` are the upper bounds of the buckets, in seconds."""

    def __init__(self, bounds: Sequence[float], most: int) -> None:
        self._bounds = tuple(bounds)
        self._most = most
        self._by_key: dict[Key, Tally] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def take(self, key: Key, status: str, seconds: float) -> None:
        """Count one request that took so long."""
        tally = self._by_key.get(key) or self._new(key)
        tally.buckets[bisect_left(self._bounds, seconds)] += 1
        tally.seconds += seconds
        tally.statuses[status] = tally.statuses.get(status, 0) + 1

    def refuse(self, verb: str, way: str, status: str) -> None:
        """Count one of which it is not known whom it was for."""
        key = (OTHER, OTHER, verb if verb in VERBS else OTHER, way)
        tally = self._by_key.get(key) or self._new(key)
        tally.statuses[status] = tally.statuses.get(status, 0) + 1

    def _new(self, key: Key) -> Tally:
        if len(self._by_key) >= self._most:
            key = (OTHER, OTHER, key[2], key[3])
        return self._by_key.setdefault(key, Tally(len(self._bounds) + 1))

    # ---- as metrics

    def families(self, prefix: str, what: str) -> Iterator[Family]:
        """Return them as a counter and a histogram."""
        tallies = list(self._by_key.items())
        yield Family(f"{prefix}requests", "counter", f"{what}, by what came of them.", _counted(tallies))
        told = f"Seconds from taking to answering {what.lower()}."
        yield Family(f"{prefix}request_duration_seconds", "histogram", told, self._timed(tallies))

    def _timed(self, tallies: list[tuple[Key, Tally]]) -> Iterator[Sample]:
        names = [repr(float(bound)) for bound in self._bounds] + ["+Inf"]
        for key, tally in tallies:
            labels, reached = _labels(key), 0
            if not any(tally.buckets):  # nothing but refusals, which take no time
                continue
            for name, count in zip(names, tally.buckets, strict=True):
                reached += count
                yield Sample((*labels, ("le", name)), reached, "_bucket")
            yield Sample(labels, reached, "_count")
            yield Sample(labels, tally.seconds, "_sum")


def _counted(tallies: list[tuple[Key, Tally]]) -> Iterator[Sample]:
    for key, tally in tallies:
        for status, count in tally.statuses.items():
            yield Sample((*_labels(key), ("status", status)), count)


def _labels(key: Key) -> Labels:
    cls, affordance, verb, way = key
    return (("class", cls), ("affordance", affordance), ("verb", verb), ("way", way))
