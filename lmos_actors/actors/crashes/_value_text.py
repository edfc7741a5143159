"""Values as text for people: short, whatever they are, and without what is secret in them.

A `repr` is foreign code: it may raise, be endless, or reveal a secret. So containers and records of the
usual kinds are written here, field by field; of any other class the `repr` is called, and its text cut.
"""

from __future__ import annotations

import re
from inspect import unwrap
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from lmos_actors._core import HIDDEN

from ..values import MAPS, ROWS, UNREAD, UNREADABLE, WHOLE, conceal, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..values import Member, Secrecy, Secrets

LIMIT: Final = 512  # characters of one value
DEPTH: Final = 8  # containers inside one another
ITEMS: Final = 64  # of one container
SORTED: Final = 1000  # items of a set that are put in order
BITS: Final = 2048  # of a whole number

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_BRACKETS: Final[dict[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def show(value: Any, secrets: Secrets, secrecy: Secrecy = 0, limit: int = LIMIT) -> str:
    """Return a value as text of at most `limit` characters, safe to be printed; never raises."""
    if secrecy == WHOLE:
        return HIDDEN
    if secrecy == UNREAD:
        return UNREADABLE
    try:
        if not isinstance(secrecy, int):
            value = conceal(value, secrecy)
        text = _Writer(limit + secrets.margin).write(value, 0)
    except Exception:
        text = f"<{type(value).__name__}>"
    return printable(secrets.clean(text, limit))


def printable(text: str) -> str:
    """Return text for a terminal or a JSON file: all that is not printable, except newlines, is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


class _Writer:
    """Writes one value, and stops when its room is used up."""

    def __init__(self, room: int) -> None:
        self._room = room

    def write(self, value: Any, depth: int) -> str:
        kind = cast("Any", type(value))
        if kind is str or kind is bytes:
            return repr(value[: self._room])
        if kind is int:
            return str(value) if value.bit_length() <= BITS else f"<int of {value.bit_length()} bits>"
        if kind in ROWS or kind in MAPS:
            return self._container(value, kind, depth) if depth < DEPTH else "..."
        members = record_of(kind) if not _speaks_for_itself(kind) else None
        if members is None:
            return _foreign(value, self._room)
        if depth >= DEPTH:
            return f"{kind.__name__}(...)"
        shown = (f"{m.name}={self._field(value, m, depth)}" for m in members)
        return f"{kind.__name__}({self._join(shown, len(members))})"

    def _field(self, value: Any, m: Member, depth: int) -> str:
        return HIDDEN if m.secrecy >= UNREAD else self.write(getattr(value, m.name, None), depth + 1)

    def _container(self, value: Any, kind: type, depth: int) -> str:
        inner: Iterable[str]
        if kind in MAPS:
            inner = (f"{self.write(k, depth + 1)}: {self.write(v, depth + 1)}" for k, v in value.items())
            opening, closing = ("{", "}") if kind is dict else (f"{kind.__name__}({{", "})")
        else:
            inner = (self.write(item, depth + 1) for item in value)
            opening, closing = _BRACKETS.get(kind, (f"{kind.__name__}([", "])"))
        if kind in (set, frozenset):
            if len(value) > SORTED:
                return f"<{kind.__name__} of {len(value)}>"
            inner = sorted(inner)
            opening, closing = (opening, closing) if value else (f"{kind.__name__}(", ")")
        if kind is tuple and len(value) == 1:
            closing = ",)"
        return f"{opening}{self._join(inner, len(value))}{closing}"

    def _join(self, texts: Iterable[str], count: int) -> str:
        shown: list[str] = []
        room = self._room
        for text in texts:
            if room < 0 or len(shown) == ITEMS:
                shown.append(f"... {count - len(shown)} more")
                break
            shown.append(text)
            room -= len(text)
        return ", ".join(shown)


def _speaks_for_itself(kind: Any) -> bool:
    """Return whether a record class without secrets has a handwritten `repr`."""
    members = record_of(kind)
    if members is None or any(m.secrecy for m in members):
        return False
    write: Callable[..., Any] = kind.__repr__
    if write is msgspec.Struct.__repr__:
        return False
    code = getattr(unwrap(write), "__code__", None)
    return code is not None and not cast("str", code.co_filename).startswith("<")


def _foreign(value: Any, room: int) -> str:
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__} whose repr raises>"
    return _ADDRESS.sub("", str.__str__(text)[: room + 64])
