"""Values marked secret: where they may be, their stand-ins, and how they are found in texts.

The type `Secret[T]` is `T` to code that computes with it. Code that shows a value to people (a crash report,
a dead letter, a record for the instrument, a refusal) uses this module first. A secret is found in two ways:
by its declared type, which is compiled to a `Secrecy` once per class, and by the class of a value, as the
fields of a record class may be secret wherever such a value occurs.
"""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict, defaultdict, deque
from functools import cached_property, lru_cache
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

import attrs
import msgspec

from lmos_actors._core import Unknown, types_of_class, types_of_function
from lmos_actors.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

UNREADABLE: Final = "*** (its type cannot be read at run time)"

OPEN, PARTS, UNREAD, WHOLE = range(4)
"""The secret part of a value of a type: nothing, some fields, all because it is unknown, or all."""

Secrecy: TypeAlias = "int | Mapping[str, int]"
"""The secrecy of a value; by member for a dict that the runtime itself hands over."""

ROWS: Final = (list, tuple, set, frozenset, deque)
MAPS: Final = (dict, OrderedDict, defaultdict)


class _Mark:
    __slots__ = ()

    def __repr__(self) -> str:
        return "SECRET"


Secret: TypeAlias = Annotated[T, _Mark()]
"""Marks a type: values of it are never shown in reports, records, dead letters and refusals."""


# ---- types


def secrecy_of(hint: Any) -> int:
    """Return how much of a value of this type is secret."""
    return _secrecy(hint, ())


def _secrecy(hint: Any, inside: tuple[Any, ...]) -> int:
    origin = get_origin(hint)
    if origin is Annotated:
        return WHOLE if _Mark in map(type, hint.__metadata__) else _secrecy(hint.__origin__, inside)
    if origin is Literal:
        return OPEN
    if isinstance(hint, Unknown):
        return WHOLE if re.search(r"\bSecret\b", hint.text) else UNREAD
    if isinstance(hint, (str, ForwardRef)):
        return UNREAD
    if isinstance(hint, (list, tuple)):  # the parameters of a Callable
        return _most(cast("Iterable[Any]", hint), inside)
    try:
        named = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)
    except NameError:  # of an alias, `type X = ...`, whose parts are not defined yet
        return UNREAD
    if named is not None:
        return _secrecy(named, inside)
    cls: Any = origin or hint
    if hasattr(cls, "_not_data"):  # a ref: the class in its brackets is no part of it
        return OPEN
    own = _of_class(cls, inside) if isinstance(cls, type) else OPEN
    return max(own, _most(parts, inside)) if (parts := get_args(hint)) else own


def _most(hints: Iterable[Any], inside: tuple[Any, ...]) -> int:
    most = OPEN
    for hint in hints:
        most = max(most, _secrecy(hint, inside))
    return most


def _of_class(cls: type, inside: tuple[Any, ...]) -> int:
    if cls in inside:
        return OPEN
    if is_typeddict(cls):
        return _most(types_of_class(cls).values(), (*inside, cls))
    if _names(cls) is None:
        return OPEN
    return PARTS if _most(types_of_class(cls).values(), (*inside, cls)) else OPEN


def secret_members(cls: Any) -> dict[str, int]:
    """Return which fields of a class whose values cross between agents are secret, and how much of each."""
    found = {name: secrecy_of(hint) for name, hint in types_of_class(get_origin(cls) or cls).items()}
    return {name: secrecy for name, secrecy in found.items() if secrecy}


@attrs.frozen
class Member:
    """A field of a record class: its Python name, its JSON name, and how much of it is secret."""

    name: str
    wire: str
    secrecy: int


def record_of(cls: Any) -> tuple[Member, ...] | None:
    """Return the fields of a struct, dataclass, attrs class or named tuple; None for any other class.

    A field that its class keeps out of its `repr` counts as secret.
    """
    try:
        return _known_record(cls)
    except _NotReadYet as unread:
        return unread.members


@lru_cache(maxsize=1024)
def _known_record(cls: Any) -> tuple[Member, ...] | None:
    """Return the fields of a record class. Raises _NotReadYet, so that an incomplete result is not cached."""
    names = _names(cls)
    if names is None:
        return None
    hints = types_of_class(cls)
    members = tuple(
        [Member(name, wire, secrecy_of(hints.get(name)) if shown else WHOLE) for name, wire, shown in names]
    )
    if UNREAD in [member.secrecy for member in members]:
        raise _NotReadYet(members)
    return members


class _NotReadYet(Exception):
    """Raised while some types of the members of a record class are not known yet."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members


def members_of(value: Any) -> tuple[Member, ...] | None:
    """Return the fields of a value whose class is a record class; None for any other value."""
    return record_of(cast("Any", type(value)))


def _names(cls: Any) -> list[tuple[str, str, bool]] | None:
    if is_agent_class(cls):  # an agent is no value
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


def is_agent_class(thing: object) -> bool:
    """Return whether a thing is an agent class, without reading the types that the class names."""
    if isinstance(thing, type):
        for part in thing.__mro__:  # a loop, as this is asked for each class that a description meets
            if "__contract__" in vars(part):
                return True
    return False


def hidden_fields(cls: type, types: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, int]:
    """Return which fields of an agent class are secret, and how much of each, by the types of its fields.

    Names in `reserved` are left out.
    """
    found = {name: secrecy_of(hint) for name, hint in types.items()}
    found |= {field.name: WHOLE for field in attrs.fields(cls) if field.repr is False}
    for part in reversed(cls.__mro__):  # what a cached property has found stands among the fields
        cached = {name: made.func for name, made in vars(part).items() if isinstance(made, cached_property)}
        found |= {name: secrecy_of(types_of_function(fn, part).get("return")) for name, fn in cached.items()}
    return {name: secrecy for name, secrecy in found.items() if secrecy and name not in reserved}


def guarded(take: Callable[..., Any], refusal: str = "Not of its declared type, which is secret") -> Any:
    """Return the same check of a value, but with errors that reveal nothing of the value."""

    def take_secret(value: object, path: str = "$", /) -> Any:
        try:
            return take(value, path)
        except InvalidInput:
            pass  # raised below, as an exception remembers the one it is raised in
        raise InvalidInput(refusal, path)

    return take_secret


class Discreet:
    """A turn whose only argument is secret, such as the turn of a follower of a secret event."""

    def __init__(self, fn: Callable[[Any], None], secrecy: int) -> None:
        self.fn = fn
        self.secrecy = secrecy
        self.__qualname__ = getattr(fn, "__qualname__", "a function")

    def __call__(self, value: Any) -> None:
        """Run the turn."""
        return self.fn(value)
