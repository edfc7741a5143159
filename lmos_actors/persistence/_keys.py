"""Keys of several parts, such as agent, owner and number, and the ranges of those that begin alike.

A NUL divides the parts. It is in none of them, and sorts before all that is: so the keys that go on behind
some parts stand together, and no key of other parts is among them.
"""

from __future__ import annotations

from typing import Final

SEPARATOR: Final = "\x00"
_BEHIND: Final = "\x01"


def key_of(*parts: str) -> str:
    """Return the key of some parts."""
    return SEPARATOR.join(parts)


def range_of(*parts: str) -> tuple[str, str]:
    """Return the ends of the range of all keys that go on behind some parts: `start` and `stop` of a scan.

    `start` is also the beginning of all these keys.
    """
    key = key_of(*parts)
    return key + SEPARATOR, key + _BEHIND


def parts_of(key: str, count: int) -> list[str]:
    """Return the parts of a key, as many as its records have; the last one may have separators itself.

    Parts that are missing, in a key that was written by hand, are "".
    """
    parts = key.split(SEPARATOR, count - 1)
    return parts + [""] * (count - len(parts))
