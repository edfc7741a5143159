"""Numbers that people and peers write as text: decimal digits of ASCII.

`int`, `float` and `Decimal` take more: `1_0`, spaces, digits of other scripts. Other tools read such texts
differently, or not at all.
"""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SHOWN: Final = 40


def is_number(text: str) -> bool:
    """Return whether a text is a number in decimal digits, with or without a fraction and an exponent."""
    return _NUMBER.fullmatch(text) is not None


def number_of(text: str) -> float:
    """Return the number in a text. Raise ValueError for another text; a number may be infinite."""
    if not is_number(text):
        raise ValueError(f'"{text[:_SHOWN]}" is not a number such as 2 or 0.5')
    return float(text)


def whole_number_of(text: str) -> int:
    """Return the whole number in a text. Raise ValueError for another text."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f'"{text[:_SHOWN]}" is not a whole number such as 10')
    return int(text)
