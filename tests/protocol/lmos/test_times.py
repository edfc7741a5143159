"""Times on the wire."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol.lmos import format_time, parse_time
from tests.protocol.lmos.wire import times
from tests.rows import each_row

NOON = datetime(2025, 1, 20, 12, tzinfo=UTC)


@each_row(
    ("value", "time"),
    [
        ("2025-01-20T12:00:00Z", NOON),
        ("2025-01-20t12:00:00z", NOON),
        ("2025-01-20T13:00:00+01:00", NOON),
        ("2025-01-20T06:30:00-05:30", NOON),
        ("2025-01-20T12:00:00-00:00", NOON),
        ("2025-01-20T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2025-01-20T12:00:00.123456789Z", NOON + timedelta(microseconds=123457)),
        ("2025-01-20T12:00:00Z[Europe/Berlin]", NOON),
        ("2025-01-20T13:00:00+01:00[Europe/Berlin][u-ca=hebrew]", NOON),
        ("2025-01-20T12:00:00Z[+01:00]", NOON),
        ("2025-01-20T12:00:00Z[_foo=bar-baz]", NOON),
        ("2025-01-20T11:59:60Z", NOON),
        ("2025-01-20T12:59:60.25+01:00", NOON + timedelta(milliseconds=250)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1737374400, NOON),
        (1737374400.25, NOON + timedelta(milliseconds=250)),
        (1737374400250, NOON + timedelta(milliseconds=250)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (1e11, datetime(5138, 11, 16, 9, 46, 40, tzinfo=UTC)),
        (100_000_000_001, datetime(1973, 3, 3, 9, 46, 40, 1000, tzinfo=UTC)),
    ],
)
def test_a_time_is_read(value: object, time: datetime) -> None:
    assert parse_time(value) == time
    assert parse_time(value).tzinfo is UTC


@each_row(
    "value",
    [
        *("", "now", "2025-01-20", "2025-01-20T12:00:00", "2025-13-20T12:00:00Z", "2025-02-30T12:00:00Z"),
        *("2025-01-20T24:00:00Z", "2025-01-20T12:00:61Z", "2025-01-20T12:60:00Z", "0000-01-01T00:00:00Z"),
        *("2025-01-20T12:00:00+25:00", "9999-12-31T23:59:60Z", "9999-12-31T23:59:59-01:00"),
        *("2025-01-20T12:00:00Z[!Europe/Berlin]", "2025-01-20T12:00:00Z[u-ca=hebrew][!foo=bar]"),
        *("2025-01-20T12:00:00Z[", "2025-01-20T12:00:00Z[]", "2025-01-20T12:00:00Z[a b]", "[Europe/Berlin]"),
        *(
            "2025-01-20T12:00:00Z" + "[a]" * 10_000,
            "1" * 100_000,
            "2025-01-20T12:00:00Z\n",
            "\u0662025-01-20",
        ),
        *(1e300, -1e300, 10**400, float("nan"), float("inf"), True, None, [], {}),
    ],
    ids=repr,
)
def test_no_other_value_is_a_time(value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_time(value)


SUFFIXES = (
    *(
        "[Europe/Paris]",
        "[UTC]",
        "[Etc/GMT+8]",
        "[+08:00]",
        "[-00:00]",
        "[_a.b/...]",
        "[America/Argentina/Salta]",
    ),
    *(
        "[u-ca=hebrew]",
        "[u-ca=islamic-civil]",
        "[_x-1=A1]",
        "[Europe/Paris][u-ca=hebrew][_x=y]",
        "[a=b][a=c]",
    ),
)
NO_SUFFIXES = (
    *("[]", "[!]", "[", "[a", "a]", "[a]b", "[[a]]", "[!!a]", "[a b]", "[Europe/Paris] ", " [Europe/Paris]"),
    *("[1a]", "[+8:00]", "[+24:00]", "[+0800]", "[/a]", "[a/]", "[a//b]", "[.]", "[..]", "[a/..]", "[a/./b]"),
    *("[Europe/Paris][Europe/Berlin]", "[u-ca=hebrew][Europe/Paris]", "[\u00e9]", "[\u0663]"),
    *("[u-ca=]", "[=a]", "[U-CA=hebrew]", "[1u=a]", "[-u=a]", "[u-ca=a-]", "[u-ca=-a]", "[u-ca=a--b]"),
    *("[u-ca=a_b]", "[u-ca=a=b]", "[u.ca=a]", "[u-ca=hebrew,b]"),
)


@each_row("suffix", SUFFIXES)
def test_suffixes_of_rfc_9557_are_read_past(suffix: str) -> None:
    text = f"2025-01-20T12:00:00Z{suffix}"
    assert parse_time(text) == NOON
    with pytest.raises(ValueError, match="is critical"):
        parse_time(text.replace("[", "[!", 1))


@each_row("suffix", NO_SUFFIXES)
def test_what_is_no_suffix_of_rfc_9557_is_refused(suffix: str) -> None:
    with pytest.raises(ValueError, match="RFC 9557"):
        parse_time(f"2025-01-20T12:00:00Z{suffix}")


@given(time=times, offset=st.integers(-1439, 1439))
def test_a_time_that_is_written_is_read_again(time: datetime, offset: int) -> None:
    text = format_time(time)
    assert text.endswith("Z")
    assert parse_time(text) == time == parse_time(f"{text}[Europe/Berlin]")
    away = time.astimezone(timezone(timedelta(minutes=offset))) if offset else time
    assert format_time(away) == text
    assert json.loads(msgspec.json.encode(time)) == text


@given(value=st.text(max_size=40) | st.floats() | st.integers())
def test_whatever_it_is_it_is_a_time_or_a_value_error(value: Any) -> None:
    with suppress(ValueError):
        assert parse_time(value).tzinfo is UTC


def test_a_time_without_a_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="no instant"):
        format_time(datetime(2025, 1, 20))
