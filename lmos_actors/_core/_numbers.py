"""Numbers that people and peers write as text, and limits in records of options.

Such a text consists of ASCII decimal digits. `int`, `float` and `Decimal` accept more: `1_0`, spaces, digits
of other scripts. Other tools read those texts differently, or not at all.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container

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
    """Return the whole number that a text contains. Raises ValueError if the text is not one."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f'"{text[:_SHOWN]}" is not a whole number such as 10')
    return int(text)


def check_limits(record: object, optional: Container[str] = (), endless: Container[str] = ()) -> None:
    """Raise ConfigError, with the name of the field, if a number in an attrs record is not a valid limit.

    Fields whose default is a whole number accept whole numbers of at least 1, those whose default is a float
    accept finite numbers above 0, those whose default is a truth value accept truth values. `optional` fields
    also accept None, and `endless` fields also accept infinity. Other fields are not checked.
    """
    cls = type(record)
    for field in cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cast("Any", cls))):
        kind = type(field.default)  # pyright: ignore[reportUnknownVariableType]
        value: Any = getattr(record, field.name)
        if kind not in (int, float, bool) or (value is None and field.name in optional):
            continue
        if value == math.inf and field.name in endless:
            continue
        if kind is int and (type(value) is not int or value < 1):
            what = "a whole number of at least 1"
        elif kind is float and not (
            isinstance(value, int | float) and value is not True and 0 < value < math.inf
        ):
            what = "a number of seconds above 0" if field.name.endswith("_seconds") else "a number above 0"
        elif kind is bool and type(value) is not bool:
            what = "True or False"
        else:
            continue
        raise ConfigError(f"must be {what}, not {value!r}", f"{cls.__name__}.{field.name}")
