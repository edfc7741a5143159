"""Values as text for people: always short, and without their secrets.

A `repr` is foreign code: it may raise, be endless, or reveal a secret. So containers and records of the usual
kinds are written here, field by field; for any other class the `repr` is called, and its text cut.

Inspecting living agents (`show_quietly`) calls no foreign code at all: a `repr` that sleeps would hold up the
node during the inspection. A class with its own `repr` is then shown by its name alone, without its fields,
as its `repr` may leave some of them out for a reason.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from inspect import unwrap
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from lmos_actors._core import HIDDEN, printable
from lmos_actors.errors import raise_interrupt

from ..values import MAPS, ROWS, UNREAD, UNREADABLE, WHOLE, conceal, field_of, record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..values import Member, Secrecy, Secrets

LIMIT: Final = 512  # characters of one value
DEPTH: Final = 8  # containers inside one another
ITEMS: Final = 64  # of one container
SORTED: Final = 1000  # items of a set that are put in order
BITS: Final = 2048  # of a whole number
STEPS: Final = 10_000  # values inside one value

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
    except BaseException as error:  # noqa: ASYNC103 -- not in trio: a value's own code raised it
        raise_interrupt(error)
        text = f"<{type(value).__name__}>"
    return printable(secrets.clean(text, limit), keep="\n")


def show_quietly(value: Any, secrets: Secrets, secrecy: Secrecy = 0, limit: int = LIMIT) -> str:
    """Return the same text as `show` without calling code of the value's class, in milliseconds at most."""
    if secrecy == WHOLE:
        return HIDDEN
    if secrecy == UNREAD:
        return UNREADABLE
    try:
        if isinstance(secrecy, Mapping):
            value = conceal(value, secrecy)
        text = _Writer(limit + secrets.margin, _named, _read_field).write(value, 0)
    except BaseException as error:  # noqa: ASYNC103 -- not in trio: a value's own code raised it
        raise_interrupt(error)
        text = f"<{type(value).__name__}>"
    return printable(secrets.clean(text, limit), keep="\n")


class _Writer:
    """A writer of one value as text, which stops at its limit.

    `foreign` returns the text of a value of any other class, `field` the value of a record's field.
    """

    def __init__(
        self,
        room: int,
        foreign: Callable[[Any, int], str] | None = None,
        field: Callable[[Any, str], Any] | None = None,
    ) -> None:
        self._room = room
        self._left = STEPS
        self._foreign = foreign or _foreign
        self._read = field or _attribute

    def write(self, value: Any, depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            return "..."
        kind = cast("Any", type(value))
        if kind is str or kind is bytes:
            return repr(value[: self._room])
        if kind is int:
            return str(value) if value.bit_length() <= BITS else f"<int of {value.bit_length()} bits>"
        if kind in ROWS or kind in MAPS:
            return self._container(value, kind, depth) if depth < DEPTH else "..."
        members = record_of(kind) if not _speaks_for_itself(kind) else None
        if members is None:
            return self._foreign(value, self._room)
        if depth >= DEPTH:
            return f"{kind.__name__}(...)"
        shown = (f"{m.name}={self._field(value, m, depth)}" for m in members)
        return f"{kind.__name__}({self._join(shown, len(members))})"

    def _field(self, value: Any, m: Member, depth: int) -> str:
        return HIDDEN if m.secrecy >= UNREAD else self.write(self._read(value, m.name), depth + 1)

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
    except BaseException as error:  # noqa: ASYNC103 -- not in trio: a value's own code raised it
        raise_interrupt(error)
        return f"<{type(value).__name__} whose repr raises>"
    return _ADDRESS.sub("", str.__str__(text)[: room + 64])


def _attribute(value: Any, name: str) -> Any:
    return getattr(value, name, None)


# ---- without foreign code

_SAFE: Final[frozenset[Any]] = frozenset(
    {bool, type(None), float, complex, range, date, timedelta, timezone, Decimal, Fraction, UUID}
    | {PurePosixPath, PureWindowsPath, PosixPath, WindowsPath}
)
"""The classes whose `repr` is quick, and is Python's own."""

_BASES: Final[tuple[Any, ...]] = (str, bytes, int, float)
_CONTAINERS: Final[tuple[Any, ...]] = (dict, list, tuple, set, frozenset, deque)
_ZONES: Final = (timezone, ZoneInfo)
_OURS: Final = f"{__name__.partition('.')[0]}."


def _read_field(value: Any, name: str) -> Any:
    """Return a field of a record without calling code of its class, or None for a computed field."""
    kind = cast("Any", type(value))
    return None if isinstance(getattr(kind, name, None), property) else field_of(value, name)


def _named(value: Any, room: int) -> str:
    """Return the text of a value of a known class, or only the name of any other class."""
    kind = cast("Any", type(value))
    write = kind.__repr__
    if kind in _SAFE:
        return repr(value)[:room]
    if kind is bytearray:
        return f"bytearray({bytes(value[:room])!r})"
    if kind in (datetime, time):
        zone = value.tzinfo
        plain = zone is None or type(zone) in _ZONES
        return repr(value) if plain else f"<{kind.__name__} {value.replace(tzinfo=None)}>"
    if kind in (FunctionType, MethodType):
        return f"<function {value.__qualname__}>"
    if issubclass(kind, type):
        return f"<class {type.__getattribute__(value, '__name__')}>"
    if issubclass(kind, Enum) and write is Enum.__repr__:
        return f"{kind.__name__}.{object.__getattribute__(value, '_name_')}"
    for base in _BASES:
        if issubclass(kind, base) and write is base.__repr__:
            if base is int:
                bits = int.bit_length(value)
                return int.__repr__(value) if bits <= BITS else f"<int of {bits} bits>"
            return str(base.__repr__(value if base is float else base.__getitem__(value, slice(room))))
    for base in _CONTAINERS:
        if issubclass(kind, base) and write is base.__repr__:
            return f"<{kind.__name__} of {base.__len__(value)}>"
    if str(getattr(write, "__module__", "")).startswith(_OURS):
        return repr(value)[:room]
    return f"<{kind.__name__}>"
