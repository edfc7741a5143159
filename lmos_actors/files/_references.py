"""References in text, `$(namespace.name)`: parsing and substitution.

`$$(` stands for the literal characters `$(`. A text that is exactly one reference becomes the value with its
type; a reference inside other text is replaced by the written form of its value.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

_FOUND = re.compile(r"\$\$\(|\$\(([^()\n]*)\)|\$\(")
_DOTTED = re.compile(r"([A-Za-z_][\w-]*)([.:])(.+)")
_NAME = re.compile(r"[^\W\d][\w-]*")

REPLICA: Final = "replica"
"""The one reference without a namespace: the number of a process in its group."""


@attrs.frozen
class Reference:
    """Reference such as `$(vars.city)`; `start` and `end` are offsets into its text.

    `name` is empty in `$(replica)`. It may hold dots: `$(matrix.policy.size)` names a member of a value.
    """

    namespace: str
    name: str
    start: int
    end: int


class BadReference(ValueError):
    """Malformed reference; `start` and `end` are offsets into the text."""

    def __init__(self, message: str, start: int, end: int) -> None:
        self.start = start
        self.end = end
        super().__init__(message)


class Keep:
    """Type of `KEEP`."""


KEEP: Final = Keep()
"""Result of a lookup for a reference that is substituted later, and stays as written."""

Lookup: TypeAlias = "Callable[[Reference], object]"


def pieces(text: str) -> list[str | Reference]:
    """Return the plain parts and references of a text, in order. Raises BadReference."""
    found: list[str | Reference] = []
    done = 0
    for hit in _FOUND.finditer(text):
        found.append(text[done : hit.start()])
        found.append("$(" if hit[0] == "$$(" else _reference(hit))
        done = hit.end()
    found.append(text[done:])
    return [piece for piece in found if piece != ""]


def references(text: str) -> list[Reference]:
    """Return the references in a text, in order. Raises BadReference."""
    return [piece for piece in pieces(text) if isinstance(piece, Reference)]


def _reference(hit: re.Match[str]) -> Reference:
    body = hit[1]
    if body is None:
        raise BadReference(
            "$( is not closed; write $$( for the characters themselves", hit.start(), hit.end()
        )
    parts = _DOTTED.fullmatch(body)
    if body == REPLICA:
        return Reference(REPLICA, "", hit.start(), hit.end())
    if parts is None:
        hint = f", did you mean $(vars.{body})?" if _NAME.fullmatch(body) else ", as in $(vars.city)"
        raise BadReference(f"$({body}) names no namespace{hint}", hit.start(), hit.end())
    if parts[2] == "." and not all(_NAME.fullmatch(name) for name in parts[3].split(".")):
        raise BadReference(f"{parts[3]!r} in $({body}) is not a name", hit.start(), hit.end())
    return Reference(parts[1], parts[3], hit.start(), hit.end())


def fill(text: str, lookup: Lookup, *, again: bool = False) -> object:
    """Return a text with its references replaced by values.

    A text that is exactly one reference becomes the value itself, of any type. Set `again` if the result will
    be filled once more: `$$(` is then kept and the text of values is escaped, so that a value never becomes a
    reference. Raises BadReference for a malformed reference, and for a mapping or list inside other text.
    """
    if "$(" not in text:
        return text
    parts = pieces(text)
    if len(parts) == 1 and isinstance(parts[0], Reference):
        value = lookup(parts[0])
        return text if value is KEEP else _escaped(value, again)
    return "".join(_written(part, text, lookup, again) for part in parts)


def _written(part: str | Reference, text: str, lookup: Lookup, again: bool) -> str:
    if isinstance(part, str):
        return str(_escaped(part, again))
    value = lookup(part)
    if value is KEEP:
        return text[part.start : part.end]
    if isinstance(value, str):
        return str(_escaped(value, again))
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise BadReference(
        f"{text[part.start : part.end]} is not text or a number and cannot stand inside other text",
        part.start,
        part.end,
    )


def _escaped(value: object, again: bool) -> object:
    return value.replace("$(", "$$(") if again and isinstance(value, str) else value
