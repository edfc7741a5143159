"""`$(namespace.name)` inside text: found, placed, filled in.

`$$(` stands for the two characters `$(` themselves. When a text is one reference and nothing else, the
value takes its place with its type; inside other text it is written out.
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


@attrs.frozen
class Reference:
    """One `$(vars.city)`; `start` and `end` are offsets into the text it stands in.

    `name` may have dots in it: `$(matrix.policy.size)` names a member of a value.
    """

    namespace: str
    name: str
    start: int
    end: int


class BadReference(ValueError):
    """Something begins like a reference and is none; `start` and `end` are offsets into the text."""

    def __init__(self, message: str, start: int, end: int) -> None:
        self.start = start
        self.end = end
        super().__init__(message)


class Keep:
    """The type of `KEEP`."""


KEEP: Final = Keep()
"""What a lookup gives for a reference that is to be filled in later, and stays as it is written."""

Lookup: TypeAlias = "Callable[[Reference], object]"


def pieces(text: str) -> list[str | Reference]:
    """Cut text into plain parts and references. Raises BadReference."""
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
    if parts is None:
        hint = f", did you mean $(vars.{body})?" if _NAME.fullmatch(body) else ", as in $(vars.city)"
        raise BadReference(f"$({body}) names no namespace{hint}", hit.start(), hit.end())
    if parts[2] == "." and not all(_NAME.fullmatch(name) for name in parts[3].split(".")):
        raise BadReference(f"{parts[3]!r} in $({body}) is not a name", hit.start(), hit.end())
    return Reference(parts[1], parts[3], hit.start(), hit.end())


def fill(text: str, lookup: Lookup, *, again: bool = False) -> object:
    """Return the text with its references filled in.

    A text that is one reference becomes the looked-up value, type kept. `again` says that the result will
    be filled once more, so `$$(` stays and the text of values is escaped. Raises BadReference for a
    malformed reference and for a value that cannot be written inside text.
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
