"""JSON texts with one meaning: a text that two readers could take for different values is refused.

The decoder refuses most such texts: NaN, numbers beyond 64 bits of floating point, halves of surrogate pairs.
But if an object has a member twice, the decoder keeps the last one, while other readers keep the first. So
the decoded value is encoded again: if the result is the same text, no member occurs twice. In any other text
the colons outside of strings are counted, as each belongs to one member.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import msgspec

_DECODE: Final = msgspec.json.decode
_ENCODE: Final = msgspec.json.Encoder().encode
_ESCAPES: Final = (b"\\\\", b'\\"')
_INNER: Final = frozenset({dict, list})


def read_json(text: str | bytes | bytearray, type: Any = Any) -> Any:
    """Return the value of a JSON text, decoded as `type`.

    Raise msgspec.DecodeError or another ValueError for a text that is not JSON or has no single meaning, and
    RecursionError for one that is nested too deeply.
    """
    value = _DECODE(text, type=type)
    check_members(text, value if type is Any else _DECODE(text))
    return value


def check_members(text: str | bytes | bytearray, value: Any) -> None:
    """Raise msgspec.DecodeError if an object has a member twice in the text of this plain data."""
    data = text.encode() if isinstance(text, str) else text
    if b":" not in data or _ENCODE(value) == data:
        return
    members = _count_members(value)
    if data.count(b":") == members or outside_strings(data).count(b":") == members:
        return
    json.loads(data, object_pairs_hook=_name_repeated, parse_int=str, parse_float=str)


def _count_members(value: Any) -> int:
    """Count the members of all objects in a value."""
    count, todo = 0, [value]
    while todo:
        one: Any = todo.pop()
        if isinstance(one, dict):
            inner = cast("dict[str, Any]", one)
            count += len(inner)
            todo += [each for each in inner.values() if type(each) in _INNER]
        elif isinstance(one, list):
            items: list[Any] = one  # pyright: ignore[reportUnknownVariableType]
            todo += [each for each in items if type(each) in _INNER]
    return count


def _name_repeated(pairs: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise msgspec.DecodeError(f"an object has the member {name[:100]!r} twice")
        names.add(name)


def outside_strings(data: bytes | bytearray) -> bytes:
    """Return the parts of a JSON text that are outside of strings, in linear time."""
    for escape in _ESCAPES:
        data = data.replace(escape, b"")
    return b"".join(data.split(b'"')[::2])
