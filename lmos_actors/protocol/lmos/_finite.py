"""Numbers that JSON has no form for: they are refused and not written as null (DECISIONS V2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from lmos_actors._errors import LocalProtocolError

from ._dialects import message_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._messages import Message

_encode: Final = msgspec.json.Encoder().encode
PAYLOADS: Final = ("input", "data", "value", "output", "progress", "about")


def finite_only(encode: Callable[[Message], bytes]) -> Callable[[Message], bytes]:
    """Make an encoder that raises LocalProtocolError for a payload with a number that is not finite."""

    def write(message: Message) -> bytes:
        frame = encode(message)
        # where no null was written there was none; and few messages have one
        if b"null" in frame and any(_has_infinite(getattr(message, name, None)) for name in PAYLOADS):
            name = message_type(message)
            raise LocalProtocolError(f"this {name} cannot be written as JSON: a number is not finite")
        return frame

    return write


def written(value: Any) -> bytes:
    """Give the JSON of a value. Raises LocalProtocolError for one that JSON has no form for."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise LocalProtocolError(f"this cannot be written as JSON: {type(error).__name__}") from error
    if b"null" in text and _has_infinite(value):
        raise LocalProtocolError("this cannot be written as JSON: a number is not finite")
    return text


def _has_infinite(payload: Any) -> bool:
    """Look through a payload that has been written, so that it neither ends nowhere nor is odd."""
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
