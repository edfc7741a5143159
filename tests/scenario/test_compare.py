"""Comparisons over the runs of a file."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.reports import RunResult
from lmos_actors.scenario import Compare
from lmos_actors.scenario.judge import judge_compared
from lmos_actors.scenario.model import Restarts
from tests.rows import each_row


def run(number: float | None, seed: int = 1, **values: Any) -> RunResult:
    label = " ".join(f"{name}={value}" for name, value in values.items())
    return RunResult(
        label=f"{label} seed={seed}",
        values=values,
        seed=seed,
        trial=1,
        ended="passed",
        steps=0,
        steps_done=0,
        checks=0,
        checks_passed=0,
        failures=(),
        virtual=1.0,
        real=1.0,
        digest="",
        metrics={"done.time": number},
    )


def compare(trend: Any, tolerance: float = 0.0, across: str = "fanout", metric: str = "done.time") -> Compare:
    return Compare(metric=metric, across=across, trend=trend, tolerance=tolerance)


def verdict(check: Compare, *runs: RunResult) -> Any:
    (found,) = judge_compared([check], runs, lambda index: f"s.yaml:{index + 1}:1")
    return found


@each_row(
    ("numbers", "trend", "tolerance", "ok"),
    [
        ([1, 2, 3], "increasing", 0, True),
        ([1, 2, 2], "increasing", 0, False),
        ([1, 3, 2], "increasing", 0, False),
        ([3, 2, 1], "increasing", 0, False),
        ([3, 2, 1], "decreasing", 0, True),
        ([3, 1, 2], "decreasing", 0, False),
        ([3, 3], "decreasing", 0, False),
        ([2, 2, 2], "constant", 0, True),
        ([2, 2, 2.1], "constant", 0, False),
        ([2, 2, 2.1], "constant", 0.2, True),
        ([2, 2.15, 2.3], "constant", 0.2, False),
        ([1, 3, 2.5], "increasing", 0.5, True),
        ([1, 3, 2.4], "increasing", 0.5, False),
        ([1, 1, 1.1], "increasing", 0.5, True),
        ([1, 1.2, 1], "increasing", 0.5, False),
        ([1, 0.9, 0.8], "increasing", 0.5, False),
        ([3, 3.2, 1], "decreasing", 0.5, True),
        ([3, 3.6, 1], "decreasing", 0.5, False),
        ([0], "constant", 0, False),
    ],
)
def test_numbers_have_a_trend_within_the_tolerance(
    numbers: list[float], trend: str, tolerance: float, ok: bool
) -> None:
    runs = [run(number, fanout=2**index) for index, number in enumerate(numbers)]
    found = verdict(compare(trend, tolerance), *reversed(runs))  # numbers are put in order
    assert found.ok is ok
    assert found.expected.startswith(f"done.time {trend} across fanout")


def test_all_is_told() -> None:
    found = verdict(compare("decreasing", 0.5), run(3.0, fanout=2), run(1.25, fanout=4))
    assert (found.name, found.kind, found.place) == (
        "compare done.time across fanout",
        "compare",
        "s.yaml:1:1",
    )
    assert found.expected == "done.time decreasing across fanout, give or take 0.5"
    assert found.saw == "3 at 2, 1.25 at 4"


def test_the_median_over_seeds_counts() -> None:
    runs = [run(number, seed, fanout=2) for seed, number in enumerate([9.0, 1.0, 2.0])]
    runs += [run(number, seed, fanout=4) for seed, number in enumerate([3.0, 3.0, 0.0])]
    found = verdict(compare("increasing"), *runs)
    assert (found.ok, found.saw) == (True, "2 at 2, 3 at 4")


def test_the_other_keys_are_held_fixed() -> None:
    runs = [run(fanout + 10 * loss, fanout=fanout, loss=loss) for fanout in (2, 4) for loss in (0.0, 0.1)]
    found = verdict(compare("increasing"), *runs)
    assert (found.ok, found.saw) == (True, "2 at 2, 4 at 4 (loss=0.0); 3 at 2, 5 at 4 (loss=0.1)")
    bad = verdict(compare("increasing"), *runs[:3], run(3.0, fanout=4, loss=0.1))
    assert (bad.ok, bad.saw) == (False, "3 at 2, 3 at 4 (loss=0.1)")


def test_many_bad_combinations_are_cut() -> None:
    runs = [run(1.0, fanout=fanout, loss=loss) for fanout in (2, 4) for loss in range(9)]
    assert verdict(compare("increasing"), *runs).saw.endswith("(loss=4); and 4 more combinations")


def test_words_stand_in_the_order_of_the_file() -> None:
    runs = [run(n, mode=mode) for n, mode in enumerate(["slow", "middling", "fast"])]
    assert verdict(compare("increasing", across="mode"), *runs).ok
    assert not verdict(compare("increasing", across="mode"), *runs[::-1]).ok
    assert verdict(compare("increasing", across="on"), run(1.0, on=True), run(2.0, on=False)).ok
    odd = [run(n, mode=mode) for n, mode in enumerate([True, 0, [1]])]
    found = verdict(compare("increasing", across="mode"), *odd)
    assert (found.ok, found.saw) == (True, "0 at true, 1 at 0, 2 at [1]")


@pytest.mark.parametrize(
    ("check", "runs", "saw"),
    [
        (
            compare("increasing"),
            [run(1.0, fanout=2), run(None, fanout=4)],
            "it cannot be computed: done.time has no value in the run fanout=4 seed=1",
        ),
        (
            compare("constant", metric="other.max"),
            [run(1.0, fanout=2), run(1.0, fanout=4)],
            "it cannot be computed: other.max has no value in the run fanout=2 seed=1",
        ),
        (
            compare("constant", across="loss"),
            [run(1.0, fanout=2)],
            "it cannot be computed: loss has no value in the run fanout=2 seed=1",
        ),
        (
            compare("constant"),
            [run(1.0, 1, fanout=2), run(1.0, 2, fanout=2)],
            "it cannot be computed: fanout has one value alone, 1 at 2",
        ),
        (compare("constant"), [], "no runs"),
    ],
)
def test_what_cannot_be_compared_fails(check: Compare, runs: list[RunResult], saw: str) -> None:
    found = verdict(check, *runs)
    assert (found.ok, found.saw) == (False, saw)


def test_only_comparisons_are_judged_each_at_its_place() -> None:
    checks = [Restarts(of="a", equals=1), compare("constant"), compare("increasing")]
    runs = [run(1.0, fanout=2), run(1.0, fanout=4)]
    found = judge_compared(checks, runs, lambda index: f"s.yaml:{index + 1}:1")
    assert [(check.ok, check.place) for check in found] == [(True, "s.yaml:2:1"), (False, "s.yaml:3:1")]


NUMBERS = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=2)


@given(NUMBERS, st.sampled_from(["increasing", "decreasing", "constant"]), st.integers(0, 2))
def test_trends_against_a_slow_judge(points: dict[int, list[int]], trend: str, tolerance: int) -> None:
    runs = [run(n, seed, fanout=x) for x, numbers in points.items() for seed, n in enumerate(numbers)]
    row = [median(points[x]) for x in sorted(points)]
    if trend == "decreasing":
        row = [-n for n in row]
    if trend == "constant":
        expected = all(abs(a - b) <= tolerance for a in row for b in row)
    elif tolerance:
        expected = row[-1] > row[0] and all(row[i + 1] >= row[i] - tolerance for i in range(len(row) - 1))
    else:
        expected = row == sorted(set(row))
    assert verdict(compare(trend, tolerance), *runs).ok is expected
