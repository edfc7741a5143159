"""Values to be sent, as plain data with exactly one JSON form."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any, Final
from uuid import UUID

import msgspec

PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, UUID})
"""The types whose values `plain` returns unchanged: callers check these first where most values have one."""


def plain(value: Any) -> Any:
    """Return a value as plain data for a message: sets are sorted, and records become objects.

    Bytes stay bytes, and are base64 in JSON. Raises TypeError, ValueError or OverflowError for a value
    without a JSON form.
    """
    if type(value) in PLAIN:
        return value
    return msgspec.to_builtins(value, str_keys=True, order="deterministic")


def plain_members(values: dict[str, Any]) -> dict[str, Any]:
    """Return several values by name, each as `plain` returns it."""
    return {name: plain(value) for name, value in values.items()}
