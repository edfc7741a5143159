"""Counts and durations of requests, by class, affordance, verb and way.

Only numbers are kept, for a bounded number of kinds of requests; kinds beyond the bound are counted as
`other`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.errors import ActionCancelled, LmosActorsError

from ._exposition import Family, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.actors import RequestKind

    from ._exposition import Labels

OTHER: Final = "other"
"""Replaces names once there are too many."""

SUCCEEDED: Final = "2xx"
CANCELLED: Final = "cancelled"
FAILED: Final = "5xx"

VERBS: Final = (
    "read", "read all", "write", "write many", "invoke", "observe", "subscribe", "subscribe to all",
)  # fmt: skip
"""The kinds of request, as `Operation.verb` names them."""


def status_class(error: BaseException | None) -> str:
    """Return the status class of an answer, such as `4xx`; `cancelled` if the consumer has left."""
    if error is None:
        return SUCCEEDED
    if isinstance(error, ActionCancelled | trio.Cancelled | GeneratorExit):
        return CANCELLED
    if not isinstance(error, LmosActorsError):
        return FAILED
    return f"{status_number(error) // 100}xx"


def status_number(error: LmosActorsError) -> int:
    """Return the HTTP status for an error.

    An error that only HTTP has, such as 406, carries its own status.
    """
    from lmos_actors.protocol.lmos import problem_of  # nodes without metrics need not import it

    own: int | None = getattr(error, "status_code", None)
    return problem_of(error).status if own is None else own


class RequestCount:
    """The requests of one kind: counts by status, counts by bucket of duration, and the sum of seconds."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self, buckets: int) -> None:
        self.buckets = [0] * buckets
        self.seconds = 0.0
        self.statuses: dict[str, int] = {}


class RequestCounts:
    """Counts of requests in one direction, of at most `most` kinds.

    `bounds`: the upper bounds of the buckets, in seconds.
    """

    def __init__(self, bounds: Sequence[float], most: int) -> None:
        self._bounds = tuple(bounds)
        self._most = most
        self._by_key: dict[RequestKind, RequestCount] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def take(self, key: RequestKind, status: str, seconds: float) -> None:
        """Count one request and its duration in seconds."""
        count = self._by_key.get(key) or self._new(key)
        count.buckets[bisect_left(self._bounds, seconds)] += 1
        count.seconds += seconds
        count.statuses[status] = count.statuses.get(status, 0) + 1

    def refuse(self, verb: str, way: str, status: str) -> None:
        """Count a request that was refused before its agent was known."""
        key = (OTHER, OTHER, verb if verb in VERBS else OTHER, way)
        count = self._by_key.get(key) or self._new(key)
        count.statuses[status] = count.statuses.get(status, 0) + 1

    def _new(self, key: RequestKind) -> RequestCount:
        if len(self._by_key) >= self._most:
            key = (OTHER, OTHER, key[2], key[3])
        return self._by_key.setdefault(key, RequestCount(len(self._bounds) + 1))

    # ---- as metrics

    def families(self, prefix: str, what: str) -> Iterator[Family]:
        """Yield the counts as a counter and a histogram."""
        counts = list(self._by_key.items())
        counted = (
            Sample((*_labels(key), ("status", status)), number)
            for key, count in counts
            for status, number in count.statuses.items()
        )
        yield Family(f"{prefix}requests", "counter", f"{what}, by what came of them.", counted)
        text = f"Seconds from taking to answering {what.lower()}."
        yield Family(f"{prefix}request_duration_seconds", "histogram", text, self._timed(counts))

    def _timed(self, counts: list[tuple[RequestKind, RequestCount]]) -> Iterator[Sample]:
        names = [repr(float(bound)) for bound in self._bounds] + ["+Inf"]
        for key, count in counts:
            labels, reached = _labels(key), 0
            if not any(count.buckets):  # only refusals, which take no time
                continue
            for name, fallen in zip(names, count.buckets, strict=True):
                reached += fallen  # buckets of a histogram are cumulative
                yield Sample((*labels, ("le", name)), reached, "_bucket")
            yield Sample(labels, reached, "_count")
            yield Sample(labels, count.seconds, "_sum")


def _labels(key: RequestKind) -> Labels:
    cls, affordance, verb, way = key
    return (("class", cls), ("affordance", affordance), ("verb", verb), ("way", way))
