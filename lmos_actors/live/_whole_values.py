"""Values of messages as JSON, either whole or not at all, for logs made from a viewer's records.

Only plain values are written. No code of a value's own class is called, and nothing is shown that such a
class hides. Secrets are hidden, as everywhere.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, cast

import msgspec

from lmos_actors._core import HIDDEN
from lmos_actors.actors import PARTS, Secrets, record_of

WHOLE: Final = 2_000
"""Bytes of a value that is written."""

MOST_PARTS: Final = 500
DEEPEST: Final = 12

_SIMPLE: Final = frozenset({type(None), bool, int, float, str})


def whole_json(value: Any) -> str | None:
    """Return a value as JSON text; None if it is too large or not plain."""
    secrets = Secrets()
    secrets.look(value)
    try:
        plain = _Plain().of(value, 0)
        text = msgspec.json.encode(plain).decode()
    except (ValueError, TypeError, OverflowError, UnicodeError):
        return None
    if len(text.encode()) > WHOLE or secrets.too_many:
        return None
    clean = secrets.clean(text, 2 * WHOLE)
    if clean == text:
        return text
    try:
        msgspec.json.decode(clean)
    except msgspec.DecodeError:  # the hidden value was no text
        return None
    return clean


class _Plain:
    """The copying of one value; raises ValueError if the value is not plain, or is too large."""

    def __init__(self) -> None:
        self._left = MOST_PARTS
        self._room = WHOLE

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > DEEPEST:
            raise ValueError("too large")
        cls = cast("type[object]", type(value))
        if cls is float and not isfinite(value):
            raise ValueError("no number of JSON")
        if cls in _SIMPLE:
            return self._simple(value)
        if cls is dict:
            found: dict[str, Any] = {}
            for name, item in value.items():
                if type(name) is not str:
                    raise ValueError("no name of JSON")
                found[self._simple(name)] = self.of(item, depth + 1)
            return found
        if cls in (list, tuple):
            return [self.of(item, depth + 1) for item in value]
        if issubclass(cls, msgspec.Struct) and cls.__repr__ is msgspec.Struct.__repr__:
            return self._record(value, depth)
        raise ValueError("not plain")

    def _record(self, value: msgspec.Struct, depth: int) -> dict[str, Any]:
        """Copy a record with its secret fields hidden, as the text is not searched for short secrets."""
        return {
            member.wire: HIDDEN if member.secrecy > PARTS else self.of(getattr(value, member.name), depth + 1)
            for member in record_of(type(value)) or ()
        }

    def _simple(self, value: Any) -> Any:
        if type(value) is str:
            self._room -= len(value)
            if self._room < 0:
                raise ValueError("too large")
        return value
