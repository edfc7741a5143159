"""Measured series for the HTML page: thinned series of single runs, and bands over all seeds."""

from __future__ import annotations

from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._results import RunResult, SeriesResult

MOST_POINTS = 600_000
"""Most points of all series on a page."""

POINTS = 1_000
"""Most points drawn of one series of one run."""


def points_each(lengths: Iterable[int]) -> int:
    """Return how many points of each series fit into the page."""
    lengths = [min(length, POINTS) for length in lengths]
    return POINTS if sum(lengths) <= MOST_POINTS else max(MOST_POINTS // len(lengths), 2)


def thinned(series: SeriesResult, most: int) -> dict[str, Any]:
    """Return a series as plain data; if it has more than `most` samples, keep every n-th one and the last."""
    times, values = list(series.times), list(series.values)
    whole = len(times)
    if whole > most:
        kept = [*range(0, whole - 1, ceil(whole / (most - 1))), whole - 1]
        times, values = [times[n] for n in kept], [values[n] for n in kept]
    return {"name": series.name, "agg": series.agg, "times": times, "values": values, "whole": whole}


def bands(runs: Sequence[tuple[str, RunResult]], most: int) -> list[dict[str, Any]]:
    """Return the bands to draw: one for each series and combination.

    `runs` are pairs of a combination and a run. For each of its `times`, a band has the number of runs
    measured then (`n`), and the minimum, quartiles and maximum over all runs. A run that has stopped keeps
    its last value from then on. Otherwise the slow runs alone would decide the median at the end, and the
    median could fall although no series ever falls.
    """
    found: dict[tuple[str, str, str], list[list[tuple[float, float | None]]]] = {}
    for combination, run in runs:
        for series in run.series:
            thin = thinned(series, most)
            points = [
                (time, value if value is not None and isfinite(value) else None)
                for time, value in zip(thin["times"], thin["values"], strict=True)
            ]
            found.setdefault((series.name, series.agg, combination), []).append(points)
    drawn: list[dict[str, Any]] = []
    for (name, agg, combination), members in found.items():
        values, measured = values_at(members)
        columns = [five_numbers(sorted(each)) for each in values.values()]
        band: dict[str, Any] = {"name": name, "agg": agg, "combination": combination}
        band |= {"times": list(values), "n": measured}
        for place, row in enumerate(("min", "q1", "median", "q3", "max")):
            band[row] = [column[place] for column in columns]
        drawn.append(band)
    return drawn


def values_at(
    members: Sequence[Sequence[tuple[float, float | None]]],
) -> tuple[dict[float, list[float]], list[int]]:
    """Return the values of several series at each instant, and the number of series measured then.

    A series that has ended keeps its last value from then on, but no longer counts as measured.
    """
    values: dict[float, list[float]] = {time: [] for time in sorted({t for each in members for t, _ in each})}
    measured = dict.fromkeys(values, 0)
    for points in members:
        known = dict(points)
        last = points[-1][0] if points else float("inf")
        for time, there in values.items():
            value = known[last] if time > last else known.get(time)
            if value is not None:
                there.append(value)
                measured[time] += time <= last
    return values, list(measured.values())


def five_numbers(values: Sequence[float]) -> tuple[float | None, ...]:
    """Return the least, lower quartile, median, upper quartile and greatest of sorted values.

    A quantile between two values is interpolated linearly. Without values all are None.
    """
    if not values:
        return (None,) * 5
    found: list[float] = []
    for quarters in range(5):
        place = quarters / 4 * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        found.append(values[below] + (values[above] - values[below]) * (place - below))
    return tuple(found)
