"""Keys of several parts, such as agent, owner and number, and the ranges of keys with equal first parts.

The parts are separated by a NUL. No part contains it, and it sorts before all other characters: so all keys
that begin with the same parts follow one another, with no other key among them.
"""

from __future__ import annotations

from typing import Final

SEPARATOR: Final = "\x00"
_BEHIND: Final = "\x01"


def key_of(*parts: str) -> str:
    """Return the key that consists of some parts."""
    return SEPARATOR.join(parts)


def range_of(*parts: str) -> tuple[str, str]:
    """Return the range of all keys that begin with some parts: `start` and `stop` of a scan.

    `start` is also the beginning of all these keys.
    """
    key = key_of(*parts)
    return key + SEPARATOR, key + _BEHIND


def parts_of(key: str, count: int) -> list[str]:
    """Return the first `count` parts of a key; the last one may contain separators.

    A part that is missing, as in a key written by hand, is returned as "".
    """
    parts = key.split(SEPARATOR, count - 1)
    return parts + [""] * (count - len(parts))
