"""Distributions: what is wrong with one, and what is drawn."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.files import Duration
from lmos_actors.system.model import Constant, Empirical, Exponential, Lognormal, Normal, Uniform
from lmos_actors.system.values import LONGEST, Drawn, draw, is_time, problem_at, problem_of, sampler
from tests import seeded
from tests.rows import each_row

S = Duration(1.0)
MS = Duration(0.001)


@pytest.mark.parametrize(
    "given_",
    [
        Duration(0.0),
        S,
        Constant(value=S),
        Constant(value=-3.0),
        Uniform(min=MS, max=S),
        Uniform(min=S, max=S),
        Uniform(min=-3.0, max=2.0),
        Exponential(mean=S),
        Exponential(mean=0.0),
        Normal(mean=S, deviation=MS),
        Normal(mean=-1.0, deviation=0.0),
        Lognormal(median=MS, p99=S),
        Lognormal(median=S, p99=S),
        Empirical(values=(MS, S, S)),
        Empirical(values=(-1.0, 2.5)),
    ],
)
def test_nothing_is_wrong(given_: Drawn) -> None:
    assert problem_of(given_) is None
    assert not is_time(given_) or problem_of(given_, time=True) is None


@each_row(
    ("given_", "key", "why"),
    [
        (Uniform(min=S, max=MS), "max", '"max" is less than "min": 1ms and 1s'),
        (Uniform(min=2.0, max=1.0), "max", '"max" is less than "min": 1.0 and 2.0'),
        (Uniform(min=S, max=2.0), "max", '"max" has no unit: write 2s or 2ms'),
        (Uniform(min=2.0, max=S), "min", '"min" has no unit'),
        (Uniform(min=-math.inf, max=2.0), "min", "not a finite number"),
        (Constant(value=math.nan), "value", "not a finite number"),
        (Exponential(mean=-1.0), "mean", '"mean" is below zero'),
        (Normal(mean=1.0, deviation=-1.0), "deviation", '"deviation" is below zero'),
        (Normal(mean=S, deviation=1.0), "deviation", "no unit"),
        (Lognormal(median=0.0, p99=1.0), "median", '"median" has to be above zero'),
        (Lognormal(median=Duration(0.0), p99=S), "median", '"median" has to be above zero'),
        (Lognormal(median=S, p99=MS), "p99", '"p99" is less than "median": 1ms and 1s'),
        (Empirical(), "dist", '"values", or a "file"'),
        (Empirical(values=(MS,), file="a.txt"), "dist", '"values", or a "file"'),
        (Empirical(values=(MS,), unit="ms"), "unit", 'of values in a "file"'),
        (Empirical(values=(MS, 2.0)), "values", "no unit: write 2s or 2ms"),
        (Empirical(values=(2.0, math.inf)), "values", "not a finite number"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(given_: Drawn, key: str, why: str) -> None:
    found = problem_at(given_)
    assert found is not None
    assert found[0] == key
    assert why in found[1]
    assert problem_of(given_) == found[1]


def test_a_delay_needs_units() -> None:
    plain = Uniform(min=1.0, max=2.0)
    assert problem_of(plain) is None
    assert problem_of(plain, time=True) == '"min" has no unit: write 1s or 1ms'


def stream() -> Any:
    return seeded.stream(7)


def test_what_is_fixed_takes_nothing_of_the_stream() -> None:
    used, fresh = stream(), stream()
    assert draw(S, used) == 1.0
    assert draw(Constant(value=MS), used) == 0.001
    assert draw(Constant(value=3), used) == 3.0
    assert used.random() == fresh.random()


@pytest.mark.parametrize(
    ("given_", "takes"),
    [
        (Uniform(min=MS, max=S), 1),
        (Uniform(min=S, max=S), 1),
        (Exponential(mean=S), 1),
        (Exponential(mean=0.0), 1),
        (Normal(mean=S, deviation=Duration(0.0)), 2),
        (Normal(mean=S, deviation=S), 2),
        (Lognormal(median=MS, p99=S), 2),
        (Lognormal(median=S, p99=S), 2),
        (Empirical(values=(MS,)), 1),
        (Empirical(values=(MS, S)), 1),
    ],
)
def test_a_draw_takes_as_much_of_the_stream_whatever_comes_of_it(given_: Drawn, takes: int) -> None:
    for start in range(20):
        used, fresh = stream(), stream()
        for _ in range(start + takes):
            fresh.random()
        for _ in range(start):
            used.random()
        draw(given_, used)
        assert used.random() == fresh.random()


def drawn(given_: Drawn, count: int = 4_000) -> list[float]:
    numbers = stream()
    return sorted(draw(given_, numbers) for _ in range(count))


def test_measured_values_are_as_likely_as_one_another() -> None:
    found = drawn(Empirical(values=(S, MS, S, Duration(0.5))))
    assert set(found) == {0.001, 0.5, 1.0}
    assert found.count(1.0) / len(found) == pytest.approx(0.5, abs=0.03)
    numbers = stream()
    assert {sampler(Empirical(values=(3.0, -4.0)))(numbers) for _ in range(20)} == {3.0, -4.0}


def test_uniform_lies_between_and_everywhere() -> None:
    found = drawn(Uniform(min=Duration(0.9), max=Duration(1.1)))
    assert 0.9 <= found[0] < 0.901
    assert 1.099 < found[-1] <= 1.1
    assert found[len(found) // 2] == pytest.approx(1.0, abs=0.01)


def test_exponential_has_its_mean() -> None:
    found = drawn(Exponential(mean=Duration(10.0)))
    assert sum(found) / len(found) == pytest.approx(10.0, rel=0.05)
    assert found[len(found) // 2] == pytest.approx(10.0 * math.log(2), rel=0.05)


def test_normal_has_its_mean_and_deviation_and_no_negative_times() -> None:
    found = drawn(Normal(mean=5.0, deviation=2.0))
    mean = sum(found) / len(found)
    assert mean == pytest.approx(5.0, abs=0.1)
    assert math.sqrt(sum((x - mean) ** 2 for x in found) / len(found)) == pytest.approx(2.0, rel=0.05)
    assert found[0] < 0
    times = drawn(Normal(mean=Duration(5.0), deviation=Duration(4.0)))
    assert times[0] == 0.0
    assert times.count(0.0) == pytest.approx(0.1056 * len(times), rel=0.2)


def test_lognormal_has_its_median_and_one_in_a_hundred_above_p99() -> None:
    found = drawn(Lognormal(median=Duration(0.025), p99=Duration(0.25)))
    assert found[len(found) // 2] == pytest.approx(0.025, rel=0.05)
    assert sum(x > 0.25 for x in found) == pytest.approx(0.01 * len(found), rel=0.3)


AMOUNTS = st.floats(1e-300, 1e300)
TIMES = st.integers(0, 360_000_000_000_000).map(lambda n: Duration(n / 1_000_000))


def pairs(amounts: st.SearchStrategy[float]) -> st.SearchStrategy[Drawn]:
    two = st.tuples(amounts, amounts).map(sorted)
    return (
        two.map(lambda pair: Uniform(min=pair[0], max=pair[1]))
        | two.map(lambda pair: Normal(mean=pair[0], deviation=pair[1]))
        | two.map(lambda pair: Lognormal(median=pair[0], p99=pair[1]))
        | amounts.map(lambda mean: Exponential(mean=mean))
    )


@given(pairs(TIMES), st.integers(0, 2**64 - 1))
def test_times_are_whole_microseconds_within_bounds(given_: Drawn, key: int) -> None:
    if problem_of(given_, time=True) is not None:
        assert isinstance(given_, Lognormal)
        return
    value = draw(given_, seeded.stream(key))
    assert 0.0 <= value <= LONGEST
    assert value == round(value * 1_000_000) / 1_000_000
    assert value == draw(given_, seeded.stream(key))
    if isinstance(given_, Uniform):
        assert given_.min <= value <= given_.max


@given(pairs(AMOUNTS), st.integers(0, 2**64 - 1))
def test_numbers_of_any_size_are_drawn(given_: Drawn, key: int) -> None:
    assert problem_of(given_) is None
    value = draw(given_, seeded.stream(key))
    assert math.isfinite(value)
    if isinstance(given_, Uniform):
        assert given_.min <= value <= given_.max


@pytest.mark.parametrize(
    "given_",
    [
        S,
        Constant(value=-3.0),
        Uniform(min=MS, max=S),
        Uniform(min=-3.0, max=2.0),
        Exponential(mean=S),
        Normal(mean=MS, deviation=S),
        Lognormal(median=MS, p99=S),
        Lognormal(median=2.0, p99=3.0),
    ],
)
def test_a_sampler_draws_the_same_and_takes_as_much_of_its_stream(given_: Drawn) -> None:
    one, other = seeded.stream(7), seeded.stream(7)
    drawn = sampler(given_)
    assert [drawn(one) for _ in range(100)] == [draw(given_, other) for _ in range(100)]
    assert one.random() == other.random()
