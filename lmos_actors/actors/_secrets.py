"""Values marked secret: where they may be, what is shown in their place, and how they are found in texts.

`Secret[T]` is `T` to whoever computes with it. What shows a value to people (a crash report, a dead letter, a
record for the instrument, a refusal) asks here first. Two ways lead to a secret: its declared type, compiled
to a `Secrecy` once per class, and the class of a value, as the fields of a record class may be secret
wherever such a value turns up.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)
from uuid import UUID

import attrs
import msgspec

from lmos_actors._errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

HIDDEN: Final = "***"
UNREADABLE: Final = "*** (its type cannot be read at run time)"
SHORTEST: Final = 4  # characters: shorter secrets are not looked for in texts
LONGEST: Final = 4096  # characters of a secret that are looked for; what follows it is cut off
FORMS: Final = 256  # texts looked for; with more of them no text is shown at all
LOOKED_AT: Final = 5000  # values looked at for secrets in them

_OPEN, PARTS, UNREAD, WHOLE = range(4)
"""How much of a value of a type is secret: nothing, fields of it, all as nobody knows, all."""

Secrecy: TypeAlias = "int | Mapping[str, int]"
"""That of a value; of a dict by member for what the runtime itself hands over."""

_TEXTS: Final = (int, float, Decimal, UUID, date, time, timedelta)
ROWS: Final = (list, tuple, set, frozenset, deque)
MAPS: Final = (dict, OrderedDict, defaultdict)


class _Mark:
    __slots__ = ()

    def __repr__(self) -> str:
        return "SECRET"


_SECRET: Final[Any] = Annotated[Any, _Mark()]

Secret: TypeAlias = Annotated[T, _Mark()]
"""Marks a type: values of it are never shown in reports, records, dead letters and refusals."""


# ---- types


def secrecy_of(hint: Any) -> int:
    """Say how much of a value of that type is secret."""
    return _secrecy(hint, ())


def _secrecy(hint: Any, inside: tuple[Any, ...]) -> int:
    origin = get_origin(hint)
    if origin is Annotated:
        marked = any(isinstance(word, _Mark) for word in hint.__metadata__)
        return WHOLE if marked else _secrecy(hint.__origin__, inside)
    if origin is Literal:
        return _OPEN
    if isinstance(hint, (str, ForwardRef)):
        return UNREAD
    if isinstance(hint, (list, tuple)):  # the parameters of a Callable
        return _most(cast("Iterable[Any]", hint), inside)
    named = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)
    if named is not None:
        return _secrecy(named, inside)
    cls: Any = origin or hint
    own = _of_class(cls, inside) if isinstance(cls, type) else _OPEN
    return max(own, _most(get_args(hint), inside))


def _most(hints: Iterable[Any], inside: tuple[Any, ...]) -> int:
    return max((_secrecy(hint, inside) for hint in hints), default=_OPEN)


def _of_class(cls: type, inside: tuple[Any, ...]) -> int:
    if cls in inside:
        return _OPEN
    if is_typeddict(cls):
        return _most(annotations_of(cls).values(), (*inside, cls))
    if _names(cls) is None:
        return _OPEN
    return PARTS if _most(annotations_of(cls).values(), (*inside, cls)) else _OPEN


def annotations_of(cls: type, namespace: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Give the annotations of a class and its bases, read as far as they can be: else they stay text."""
    found: dict[str, Any] = {}
    for part in reversed(cls.__mro__):
        module = sys.modules.get(part.__module__)
        known = vars(module) if module is not None else {}
        for name, hint in inspect.get_annotations(part).items():
            found[name] = _read(hint, known, {**vars(part), **(namespace or {})})
    return found


def secret_members(cls: Any) -> dict[str, int]:
    """Say which fields of a class whose values cross between agents are secret, and how much of each."""
    found = {name: secrecy_of(hint) for name, hint in annotations_of(get_origin(cls) or cls).items()}
    return {name: secrecy for name, secrecy in found.items() if secrecy}


def annotations_of_function(fn: Any) -> dict[str, Any]:
    """Give the annotations of a function, read as far as they can be."""
    known: dict[str, Any] = getattr(fn, "__globals__", {})
    return {name: _read(hint, known, {}) for name, hint in inspect.get_annotations(fn).items()}


def _read(hint: Any, known: dict[str, Any], namespace: Mapping[str, Any]) -> Any:
    if isinstance(hint, ForwardRef):
        hint = hint.__forward_arg__
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, known, dict(namespace))
    except Exception:
        return _SECRET if re.search(r"\bSecret\b", hint) else hint


@attrs.frozen
class Member:
    """A field of a record class: its name here and in JSON, and how secret it is."""

    name: str
    wire: str
    secrecy: int


@lru_cache(maxsize=1024)
def record_of(cls: Any) -> tuple[Member, ...] | None:
    """Give the fields of a struct, dataclass, attrs class or named tuple; None for any other class.

    A field that its class keeps out of its `repr` counts as secret.
    """
    names = _names(cls)
    if names is None:
        return None
    hints = annotations_of(cls)
    return tuple(
        Member(name, wire, secrecy_of(hints.get(name)) if shown else WHOLE) for name, wire, shown in names
    )


def members_of(value: Any) -> tuple[Member, ...] | None:
    """Give the fields of a value whose class is a record class; None for any other."""
    return record_of(cast("Any", type(value)))


def _names(cls: Any) -> list[tuple[str, str, bool]] | None:
    if hasattr(cls, "__contract__"):  # an agent is no value
        return None
    if issubclass(cls, msgspec.Struct):
        both = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
        return [(name, wire, True) for name, wire in both]
    if dataclasses.is_dataclass(cls):
        return [(field.name, field.name, field.repr) for field in dataclasses.fields(cast("Any", cls))]
    if attrs.has(cls):
        found: tuple[attrs.Attribute[Any], ...] = attrs.fields(cast("Any", cls))
        return [(field.name, field.name, field.repr is not False) for field in found]
    if issubclass(cls, tuple):
        names = cast("tuple[str, ...]", getattr(cast("Any", cls), "_fields", ()))
        return [(name, name, True) for name in names] or None
    return None


def hidden_fields(cls: type, namespace: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, int]:
    """Say which fields of an agent class are secret, and how much of each; `reserved` names are no fields."""
    found = {name: secrecy_of(hint) for name, hint in annotations_of(cls, namespace).items()}
    found |= {field.name: WHOLE for field in attrs.fields(cls) if field.repr is False}
    return {name: secrecy for name, secrecy in found.items() if secrecy and name not in reserved}


def guarded(take: Callable[..., Any], refusal: str = "Not of its declared type, which is secret") -> Any:
    """Give the same check of a value, whose refusals say nothing about the value."""

    def take_secret(value: object, path: str = "$", /) -> Any:
        try:
            return take(value, path)
        except InvalidInput:
            pass  # raised below, as an exception remembers the one it is raised in
        raise InvalidInput(refusal, path)

    return take_secret


class Discreet:
    """A turn whose one argument is secret: that of who follows a secret event."""

    def __init__(self, fn: Callable[[Any], None], secrecy: int) -> None:
        self.fn = fn
        self.secrecy = secrecy
        self.__qualname__ = getattr(fn, "__qualname__", "a function")

    def __call__(self, value: Any) -> None:
        """Run the turn."""
        return self.fn(value)


# ---- values


def conceal(value: Any, secrecy: Secrecy) -> Any:
    """Give a value, or what may be shown of it: dicts for records, `***` for what is secret."""
    if secrecy in (WHOLE, UNREAD):
        return HIDDEN
    if not secrecy:
        return value
    if isinstance(secrecy, Mapping):
        if not isinstance(value, dict):
            return HIDDEN
        members = cast("dict[str, Any]", value)
        return {name: conceal(item, secrecy.get(name, _OPEN)) for name, item in members.items()}
    if isinstance(value, dict):
        return {key: conceal(item, PARTS) for key, item in value.items()}  # pyright: ignore
    record = members_of(value)
    if record is not None:
        return {m.wire: conceal(getattr(value, m.name, None), m.secrecy) for m in record}
    if isinstance(value, ROWS):
        return [conceal(item, PARTS) for item in cast("Iterable[Any]", value)]
    return value


def conceal_all(args: tuple[Any, ...], secrecies: tuple[Secrecy, ...] | None) -> tuple[Any, ...]:
    """Give the arguments of a message, or what may be shown of each; None: nothing of them is secret."""
    if secrecies is None:
        return args
    return tuple(conceal(value, secrecy) for value, secrecy in zip(args, secrecies, strict=False))


class Secrets:
    """The secrets found in some values, and texts without them.

    The work is bounded: where more is to be looked for than is looked for, `clean` shows nothing.
    """

    def __init__(self) -> None:
        self._forms: dict[str, None] = {}
        self._left = LOOKED_AT  # at what is declared to hold secrets
        self._spare = LOOKED_AT  # at anything else
        self._pattern: re.Pattern[str] | None = None

    @property
    def too_many(self) -> bool:
        """There may be secrets that have not been found."""
        return self._left < 0 or len(self._forms) > FORMS

    @property
    def margin(self) -> int:
        """How much of a text after its last character shown has to be looked at."""
        return max(map(len, self._forms), default=0)

    def look(self, value: Any, secrecy: Secrecy = _OPEN) -> None:
        """Find what is secret in a value; one that cannot be looked at counts as too much to look at.

        Where the type declares no secrets, those of records in it are found as far as the look goes.
        """
        if not secrecy:
            self._glance(value)
            return
        try:
            self._look(value, secrecy)
        except Exception:
            self._left = -1

    def _glance(self, value: Any) -> None:
        left, self._left, known = self._left, self._spare, len(self._forms)
        with suppress(Exception):
            self._look(value, PARTS)
        self._spare = self._left
        cut_short = self._spare < 0 and len(self._forms) > known
        self._left = -1 if cut_short else left

    def _look(self, value: Any, secrecy: Secrecy) -> None:
        self._left -= 1
        if self._left < 0 or secrecy == UNREAD:
            return
        if secrecy == WHOLE:
            self._keep(value)
            return
        if isinstance(secrecy, Mapping):
            if isinstance(value, dict):
                for name, item in cast("dict[str, Any]", value).items():
                    self._look(item, secrecy.get(name, _OPEN))
            return
        members = members_of(value)
        if members is not None:
            for m in members:
                self._look(getattr(value, m.name, None), m.secrecy or PARTS)
            return
        for item in _items(value):
            self._look(item, PARTS)

    def _keep(self, value: Any) -> None:
        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, Enum):
            value = value.value
        if type(value) is bool:
            return
        if isinstance(value, str):
            self._keep_text(str.__str__(value))
        elif isinstance(value, (bytes, bytearray)):
            self._keep_text(repr(bytes(value))[2:-1])
            self._keep_text(bytes(value).decode("utf-8", "replace"))
        elif isinstance(value, _TEXTS):
            self._keep_text(_written(value))
        else:
            members = members_of(value)
            inner = _items(value) if members is None else [getattr(value, m.name, None) for m in members]
            for item in inner:
                self._keep(item)

    def _keep_text(self, text: str) -> None:
        if len(text) < SHORTEST:
            return
        self._pattern = None
        json = msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()
        for form in (text, repr(text)[1:-1], ascii(text)[1:-1], json[1:-1]):
            self._forms[form[:LONGEST]] = None

    def clean(self, text: str, limit: int) -> str:
        """Give at most `limit` characters of a text, with `***` in the place of every secret in it."""
        if self.too_many:
            return HIDDEN
        text = str.__str__(text)
        if not self._forms:
            return text if len(text) <= limit else text[: limit - 1] + "…"
        shown: list[str] = []
        at = 0
        for found in self._compiled().finditer(text, 0, limit + self.margin):
            if found.start() >= limit:
                break
            shown += (text[at : found.start()], HIDDEN)
            at = found.end()
            if len(found[0]) == LONGEST:  # it may go on
                at = len(text)
                break
        shown.append(text[at:limit])
        whole = "".join(shown)
        return whole if max(at, limit) >= len(text) and len(whole) <= limit else whole[: limit - 1] + "…"

    def _compiled(self) -> re.Pattern[str]:
        if self._pattern is None:
            longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._pattern


def _items(value: Any) -> list[Any]:
    """Give what is in a container of the usual kinds."""
    if type(value) in MAPS:
        return [*value.keys(), *value.values()]
    return list(value) if type(value) in ROWS else []


def _written(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than are ever written
        return ""
