"""One series of a run while it grows, thinned to what can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._merge_patch import State

MOST_POINTS: Final = 1_000
CHUNK: Final = 100
"""Points in one member of the state: so a new point costs little to send."""


class SeriesKept:
    """The samples of one series: every n-th one, where n is a power of two, and the last one."""

    def __init__(self, aggregate: str) -> None:
        self._aggregate = aggregate
        self._points: list[tuple[float, float | None]] = []
        self._last: tuple[float, float | None] | None = None
        self._every = 1
        self._count = 0

    def add(self, samples: Iterable[tuple[float, float | None]]) -> None:
        """Add the next samples; if there are too many, every other one is dropped."""
        for sample in samples:
            self._last = sample
            if self._count % self._every == 0:
                self._points.append(sample)
                if len(self._points) > MOST_POINTS:
                    del self._points[1::2]
                    self._every *= 2
            self._count += 1

    def state(self) -> State:
        """Return the state of this series for the view `series`."""
        points = self._points
        if self._last is not None and points[-1][0] != self._last[0]:
            points = [*points, self._last]
        chunks = {
            str(at // CHUNK): [_shown(*point) for point in points[at : at + CHUNK]]
            for at in range(0, len(points), CHUNK)
        }
        state: State = {"agg": self._aggregate, "every": self._every, "chunks": chunks}
        if self._last is not None and self._last[1] is not None:
            state["last"] = self._last[1]
        return state


def _shown(at: float, value: float | None) -> list[float]:
    return [at] if value is None else [at, value]
