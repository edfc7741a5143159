"""Limits for received texts: size, nesting, length of numbers. Checking them takes linear time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec

from lmos_actors._core import outside_strings
from lmos_actors.errors import LocalProtocolError

from ._dialects import message_type
from ._problems import TOO_LARGE, Problem, invalid

if TYPE_CHECKING:
    from ._messages import Message


_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DIGITS: Final = bytes(0x30 if chr(byte) in "0123456789.eE+-" else 0x20 for byte in range(256))

REQUEST: Final = 2048
"""Approximate bytes of memory that a request or a listening takes besides its frame."""


@attrs.frozen(kw_only=True)
class Limits:
    """Limits for a received text: bytes of UTF-8, levels of nesting, characters of one number.

    Nesting is checked in texts of more than 512 characters, numbers in texts longer than their limit.
    `strict` also refuses readable messages that deviate from the specification: see `irregularities`.
    """

    max_bytes: int = 4 << 20
    max_depth: int = 64
    max_digits: int = 1_000
    strict: bool = False


def beyond(text: str | bytes, limits: Limits) -> Problem | None:
    """Return the problem of a text that exceeds a limit, or None if it exceeds none."""
    if len(text) > limits.max_bytes:
        return _oversize(limits)
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    if len(data) > limits.max_bytes:
        return _oversize(limits)
    deep = data.count(b"{") + data.count(b"[") > limits.max_depth
    if not deep:
        # so long a number would stand at two of these places in a row
        places = data[:: max(1, limits.max_digits // 2)]
        if len(data) <= limits.max_digits or b"00" not in places.translate(_DIGITS):
            return None
    outside = outside_strings(data)
    if deep and _deeper(outside, limits.max_depth):
        return invalid(f"nested more than {limits.max_depth} levels deep, or brackets that do not match")
    if b"0" * (limits.max_digits + 1) in outside.translate(_DIGITS):
        return invalid(f"a number of more than {limits.max_digits} digits")
    return None


def _oversize(limits: Limits) -> Problem:
    detail = f"longer than {limits.max_bytes} bytes"
    return Problem(type=TOO_LARGE, title="Message Too Large", status=400, detail=detail)


def _deeper(outside: bytes, depth: int) -> bool:
    """Return whether brackets are nested more than `depth` levels deep, or do not match.

    Each pass of the loop removes the innermost level.
    """
    brackets = outside.translate(_BRACKETS, _OTHERS)
    if b"[" * (depth + 1) in brackets:
        return True
    for _ in range(depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


# --- numbers that JSON has no form for: they are refused and not written as null

_encode: Final = msgspec.json.Encoder().encode
PAYLOADS: Final = ("input", "data", "value", "output", "progress", "about")


class Checked(dict[str, Any]):
    """An input whose members are single values. A contract has checked each, so all numbers are finite."""

    __slots__ = ()


FINITE: Final = frozenset({str, int, bool, type(None), type(msgspec.UNSET), msgspec.Raw, Checked})
"""The types of payloads in which all numbers are finite."""


def check_finite(message: Message) -> None:
    """Raise LocalProtocolError for a message whose payload has a number that is not finite.

    Call it only if the message's JSON contains null, because JSON writes such a number as null.
    """
    if any(_has_infinite(getattr(message, name, None)) for name in PAYLOADS):
        name = message_type(message)
        raise LocalProtocolError(f"this {name} cannot be written as JSON: a number is not finite")


def written(value: Any) -> bytes:
    """Return the JSON of a value. Raises LocalProtocolError for a value without a JSON form."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise LocalProtocolError(f"this cannot be written as JSON: {type(error).__name__}") from error
    if b"null" in text and _has_infinite(value):
        raise LocalProtocolError("this cannot be written as JSON: a number is not finite")
    return text


def _has_infinite(payload: Any) -> bool:
    """Return whether a payload has a number that is not finite.

    The payload has been encoded before, so it has no cycles, and only types that have a JSON form.
    """
    if payload is None or payload is msgspec.UNSET or isinstance(payload, str | int | msgspec.Raw):
        return False
    todo: list[object] = [msgspec.to_builtins(payload)]
    while todo:
        one = todo.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return True
        if isinstance(one, dict):
            todo.extend(cast("dict[object, object]", one).values())
        elif isinstance(one, list | tuple):
            todo.extend(cast("list[object]", one))
    return False
