"""Validation of limits: the numbers in records of options that an operator may change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import attrs

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container


def check_limits(record: object, optional: Container[str] = ()) -> None:
    """Raise ConfigError, with the name of the field, for a number of an attrs record that is no limit.

    Fields whose default is a whole number take whole numbers of at least 1, those whose default is a float
    take finite numbers above 0; `optional` fields take None, too. Other fields are not checked.
    """
    cls = type(record)
    for field in cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cast("Any", cls))):
        kind, value = type(field.default), getattr(record, field.name)
        if kind not in (int, float) or (value is None and field.name in optional):
            continue
        if kind is int and (type(value) is not int or value < 1):
            what = "whole number of at least 1"
        elif kind is float and not (type(value) in (int, float) and 0 < value < math.inf):
            what = "number of seconds above 0" if field.name.endswith("_seconds") else "number above 0"
        else:
            continue
        raise ConfigError(f"must be a {what}, not {value!r}", f"{cls.__name__}.{field.name}")
