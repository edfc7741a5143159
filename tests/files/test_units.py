"""Durations and sizes: what is written, what is refused, and that writing and reading agree."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from lmos_actors.files import Duration, Size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5.0),
        ("40ms", 0.04),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("10us", 0.00001),
        ("1.5s", 1.5),
        ("0s", 0.0),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("512B", 512), ("64KiB", 65536), ("2MiB", 2 << 20), ("1GiB", 1 << 30)]
)
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert Size.parse(text) == size


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("5", "did you mean '5s'"),
        ("1.5", "did you mean '1.5s'"),
        ("5 s", "is not a duration"),
        ("-5s", "is not a duration"),
        ("5S", "is not a duration"),
        ("1h30m", "is not a duration"),
        ("", "is not a duration"),
        ("5d", "is not a duration"),
        ("\u0665s", "is not a duration"),
        ("0.5us", "finer than a microsecond"),
        ("999999h", "longer than"),
        ("9" * 5000 + "s", "is not a duration"),
        ("5s\n", "is not a duration"),
    ],
)
def test_what_is_no_duration(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("64", "did you mean '64B'"),
        ("64KB", "is not a size"),
        ("1.5MiB", "is not a size"),
        ("9999999GiB", "larger"),
    ],
)
def test_what_is_no_size(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Size.parse(text)


@given(st.integers(0, 100_000 * 3_600_000_000))
def test_a_duration_written_is_read_again(microseconds: int) -> None:
    duration = Duration(microseconds / 1_000_000)
    again = Duration.parse(str(duration))
    assert again == duration
    assert str(again) == str(duration)


@given(st.integers(0, 1 << 50))
def test_a_size_written_is_read_again(size: int) -> None:
    assert Size.parse(str(Size(size))) == size


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (7, "7us"),
        (1_500_000, "1500ms"),
        (15_003_053, "15.003053s"),
        (3_053, "3.053ms"),
        (100_000_000, "100s"),
    ],
)
def test_a_duration_is_written_shortly(micros: int, text: str) -> None:
    assert str(Duration(micros / 1e6)) == text


@given(st.integers(0, 10**6), st.sampled_from(["us", "ms", "s"]))
def test_units_are_a_thousand_apart(amount: int, unit: str) -> None:
    finer = {"s": "ms", "ms": "us"}
    if unit in finer:
        assert Duration.parse(f"{amount}{unit}") == Duration.parse(f"{amount * 1000}{finer[unit]}")
    assert round(Duration.parse(f"{amount}{unit}") * 1e6) == amount * {"us": 1, "ms": 1000, "s": 10**6}[unit]


@given(st.text())
def test_any_other_text_is_refused_or_read_exactly(text: str) -> None:
    for unit in (Duration, Size):
        with suppress(ValueError):
            value = unit.parse(text)
            assert unit.parse(str(value)) == value
