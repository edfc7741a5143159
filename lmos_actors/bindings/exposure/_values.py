"""Values on their way out, as plain data with exactly one JSON form."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any, Final
from uuid import UUID

import msgspec

from lmos_actors.protocol.lmos import written

_AS_IT_IS: Final = frozenset({str, int, float, bool, type(None), bytes, datetime, date, time, UUID})


def plain(value: Any) -> Any:
    """Return a value for a message: sets sorted, records as objects; bytes stay bytes, base64 in JSON.

    Raises TypeError, ValueError or OverflowError for what JSON cannot say.
    """
    if type(value) in _AS_IT_IS:
        return value
    return msgspec.to_builtins(value, str_keys=True, order="deterministic")


class SharedValue:
    """A value for several listeners over connections, encoded as JSON once, at its first use."""

    __slots__ = ("_json", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._json: bytes | None = None

    def json(self) -> bytes:
        """Return it as JSON. Raises LocalProtocolError, or what `plain` does, for what JSON cannot say."""
        if self._json is None:
            self._json = written(plain(self.value))
        return self._json


class SharedValues:
    """The `SharedValue` of a value pushed to several listeners in one step; keeps the last one."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = SharedValue(None)

    def of(self, value: Any) -> SharedValue:
        """Return the shared form of a value that does not change any more."""
        if self._last.value is not value:
            self._last = SharedValue(value)
        return self._last


def plain_members(values: dict[str, Any]) -> dict[str, Any]:
    """Return several values by name."""
    return {name: plain(value) for name, value in values.items()}
