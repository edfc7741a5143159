"""Durations and sizes with units: `40ms` in a file is a float of seconds, `64KiB` an int of bytes.

The unit is mandatory, so that no reader has to know the default one. Arithmetic is decimal, in whole
microseconds: as floats `0.1s` and `100ms` could differ.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import ClassVar, Final, Self

_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,12})?)(us|ms|s|m|h)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,18})(B|KiB|MiB|GiB)", re.ASCII)
_BARE = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_MICROSECONDS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LONGEST = 100_000 * 3_600_000_000
_LARGEST = 1 << 50


class Duration(float):
    """Duration in seconds, in whole microseconds; written `10us`, `40ms`, `1.5s`, `2m`, `1h`."""

    __slots__ = ()
    described: ClassVar = "a duration such as 5s or 40ms"
    pattern: ClassVar = r"^[0-9]{1,18}(\.[0-9]{1,12})?(us|ms|s|m|h)$"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the duration in a text. Raises ValueError, with the reason, for any other text."""
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ValueError(_no_unit(text, "s") or f"{text!r} is not {cls.described} (us, ms, s, m, h)")
        amount = Decimal(found[1]) * _MICROSECONDS[found[2]]
        if amount != amount.to_integral_value():
            raise ValueError(f"{text!r} is finer than a microsecond")
        if amount > _LONGEST:
            raise ValueError(f"{text!r} is longer than 100000h")
        return cls(int(amount) / 1_000_000)

    def __str__(self) -> str:
        left = round(self * 1_000_000)
        for unit in ("h", "m", "s", "ms"):
            if left and left % _MICROSECONDS[unit] == 0:
                return f"{left // _MICROSECONDS[unit]}{unit}"
        unit = "s" if left >= 1_000_000 or not left else "ms" if left >= 1_000 else "us"
        return f"{(Decimal(left) / _MICROSECONDS[unit]).normalize():f}{unit}"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


class Offset(Duration):
    """Duration that may be negative, in seconds; written `3s`, `-40ms`."""

    __slots__ = ()
    described: ClassVar = "a duration such as 5s or -40ms"
    pattern: ClassVar = r"^-?[0-9]{1,18}(\.[0-9]{1,12})?(us|ms|s|m|h)$"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the offset in a text. Raises ValueError, with the reason, for any other text."""
        amount = Duration.parse(text.removeprefix("-"))
        return cls(-amount if text.startswith("-") else amount)

    def __str__(self) -> str:
        return f"-{Duration(-self)}" if self < 0 else str(Duration(self))

    def __repr__(self) -> str:
        return f"Offset({str(self)!r})"


class Size(int):
    """Size in bytes; written `512B`, `64KiB`, `2MiB`, `1GiB`."""

    __slots__ = ()
    described: ClassVar = "a size such as 64KiB or 512B"
    pattern: ClassVar = r"^[0-9]{1,18}(B|KiB|MiB|GiB)$"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the size in a text. Raises ValueError, with the reason, for any other text."""
        found = _SIZE.fullmatch(text)
        if found is None:
            raise ValueError(_no_unit(text, "B") or f"{text!r} is not {cls.described} (B, KiB, MiB, GiB)")
        amount = int(found[1]) * _BYTES[found[2]]
        if amount > _LARGEST:
            raise ValueError(f"{text!r} is larger than {_LARGEST >> 30}GiB")
        return cls(amount)

    def __str__(self) -> str:
        for unit in ("GiB", "MiB", "KiB"):
            if self and self % _BYTES[unit] == 0:
                return f"{self // _BYTES[unit]}{unit}"
        return f"{int(self)}B"

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"


def _no_unit(text: str, unit: str) -> str | None:
    return f"{text!r} has no unit, did you mean {text + unit!r}?" if _BARE.fullmatch(text) else None
