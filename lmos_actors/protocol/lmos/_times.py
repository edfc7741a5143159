"""Times on the wire, written as RFC 3339 in UTC; RFC 9557 suffixes, offsets and numbers are also read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

MILLISECONDS: Final = 1e11
"""A number beyond this counts milliseconds: as seconds it would be after the year 5138."""

LONGEST = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_PART = r"(?!\.{1,2}[/\]])[A-Za-z._][A-Za-z0-9._+-]*"
_ZONE = rf"\[!?(?:{_PART}(?:/{_PART})*|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\]"
_TAG = r"\[!?[a-z_][a-z0-9_-]*=[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\]"
_SUFFIX = re.compile(rf"(?:{_ZONE})?(?:{_TAG})*")  # RFC 9557, 4.1: a zone at most, and then tags
_LEAP = re.compile(r"(?<=:[0-9]{2}:)60(?=[.Zz+-])")


def parse_time(value: object) -> datetime:
    """Parse a time: RFC 3339 text with `Z` or an offset, RFC 9557 text, or a number.

    A number is seconds since 1970, or milliseconds if it is beyond `MILLISECONDS`. A leap second is read as
    the following second, a fraction is rounded to microseconds, and RFC 9557 suffixes are ignored. The result
    is in UTC.

    Raise ValueError for anything else: a time without an offset, or outside of the years 1 to 9999, and a
    suffix that is marked as critical (`[!...]`), because suffixes have no effect.
    """
    if isinstance(value, str):
        try:
            time = msgspec.convert({"at": value}, _Instant).at
            return time if time.tzinfo is UTC else time.astimezone(UTC)
        except (msgspec.ValidationError, OverflowError):
            return _from_odd_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            micro = 1_000 if abs(value) > MILLISECONDS else 1_000_000
            return _EPOCH + timedelta(microseconds=round(value * micro))
        except (OverflowError, ValueError):
            raise ValueError("the number is out of the range of times") from None
    raise ValueError(f"a time is text or a number, not {type(value).__name__}")


def format_time(time: datetime) -> str:
    """Write a time as RFC 3339 in UTC with `Z`, with microseconds if there are any.

    Raises ValueError for a time that has no time zone.
    """
    return f"{in_utc(time).replace(tzinfo=None).isoformat()}Z"


def in_utc(time: datetime) -> datetime:
    """Return the same instant in UTC.

    Raises ValueError for a time without a time zone, or outside of the years 1 to 9999 in UTC.
    """
    if time.tzinfo is UTC:
        return time
    if time.utcoffset() is None:
        raise ValueError("a time without a time zone is no instant")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC the time is out of the years 1 to 9999") from None


class _Instant(Struct):
    """A single time in a struct, which msgspec converts several times faster than a bare type."""

    at: Annotated[datetime, Meta(tz=True)]


def _from_odd_text(text: str) -> datetime:
    plain, bracket, _ = text.partition("[")
    if bracket:
        suffix = text[len(plain) :]
        if len(suffix) > LONGEST or not _SUFFIX.fullmatch(suffix):
            raise ValueError(
                f"{suffix[:LONGEST]!r} is not a suffix of RFC 9557, such as [Europe/Paris][u-ca=hebrew]"
            )
        if "[!" in suffix:
            raise ValueError(f"the suffix {suffix!r} is critical, and is not understood")
    leap = _LEAP.search(plain) if len(plain) <= LONGEST else None
    if leap is not None:
        plain = f"{plain[: leap.start()]}59{plain[leap.end() :]}"
    try:
        time = msgspec.convert({"at": plain}, _Instant).at.astimezone(UTC)
        return time + _SECOND if leap is not None else time
    except (msgspec.ValidationError, OverflowError):
        raise ValueError(f"{text[:LONGEST]!r} is no RFC 3339 or RFC 9557 time with an offset") from None
