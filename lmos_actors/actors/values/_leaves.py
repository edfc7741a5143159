"""Single values and plain JSON data: the leaves of the types that cross between agents.

A taker checks a value and returns what may cross in its place: the value itself where it cannot change. It
also takes a value in the form that it has in decoded JSON. It refuses with `InvalidInput` and a path.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias, TypeVar, cast
from uuid import UUID

import attrs
import msgspec
from msgspec import inspect as types

from lmos_actors._core import is_number
from lmos_actors.errors import InvalidInput, is_interrupt, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

T_co = TypeVar("T_co", covariant=True)

NESTING = 64  # V3: more containers inside one another are refused
NUMBER = 10**1000  # V3: from here on a number has more than a thousand digits
LEAST = -NUMBER
LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
WIRE_NAMES: dict[type, str] = {type(None): "null", list: "array", tuple: "array", dict: "object"}
KEY = "key"  # stands for the path while the key of a dict is checked


class Take(Protocol[T_co]):
    """Checks a value and returns what may cross; raises InvalidInput with a path that begins with `path`."""

    def __call__(self, value: object, path: str = "$", /) -> T_co: ...


AnyTake: TypeAlias = Take[Any]


@attrs.frozen
class Part:
    """A compiled type.

    `natives` are the classes of the values it takes, `mutable` names the part that can change (empty: none),
    a value whose class is `exact` needs no look at all, and `tag` is a tagged struct's member and its value.
    `passing` are the classes whose values pass as they are; of text and numbers, all but the rare ones do:
    a container looks at them itself, as a call for each member would cost more than the look.
    """

    take: AnyTake
    natives: tuple[type, ...]
    mutable: str = ""
    exact: type | None = None
    tag: tuple[str, object] | None = None
    passing: tuple[type, ...] = ()


def wrong(expected: str, value: object, path: str) -> InvalidInput:
    """Return the error for a value that is not of the declared type."""
    got = WIRE_NAMES.get(type(value)) or type(value).__name__
    return InvalidInput(f"Expected `{expected}`, got `{got}`", path)


def inside(bad: InvalidInput | RecursionError, path: str, step: str) -> InvalidInput:
    """Return the refusal with the position of the bad part in its container."""
    if isinstance(bad, RecursionError):
        return InvalidInput("Nested too deeply", path)
    if bad.path == KEY:
        return InvalidInput(f"{bad.message} as key", path + step)
    return InvalidInput(bad.message, f"{path}{step}{bad.path[1:]}")


def shown(value: object) -> str:
    """Return a short ASCII text that represents a foreign value in a message. Never raises."""
    if type(value) is str:
        return ascii(value[:64])
    if type(value) is int and -(10**64) < value < 10**64:
        return str(value)
    return f"<{type(value).__name__}>"


def member(key: object) -> str:
    """Return the step of a path that leads to a key, as in `.city` or `['two words']`."""
    return f".{key}" if type(key) is str and len(key) <= 64 and key.isidentifier() else f"[{shown(key)}]"


def convert(value: object, tp: Any, path: str) -> Any:
    """Convert or check a value with msgspec; its validation errors become InvalidInput."""
    try:
        return msgspec.convert(value, tp, str_keys=True)
    except msgspec.ValidationError as exc:
        message, _, inner = str(exc).partition(" - at `$")
        raise InvalidInput(message[:200], path + inner.rstrip("`")) from None
    except BaseException as exc:
        refuse_foreign(exc, path)
        raise


def refuse_foreign(error: BaseException, path: str) -> None:
    """Raise InvalidInput for an error of a value's own class that is neither an `Exception` nor an interrupt.

    So such a value ends only the request that it came with.
    """
    if not isinstance(error, Exception) and not is_interrupt(error):
        raise InvalidInput(f"{type(error).__name__}: {text_of(error)}", path) from error


def _take_none(value: object, path: str = "$", /) -> None:
    if value is not None:
        raise wrong("null", value, path)


def _take_bool(value: object, path: str = "$", /) -> bool:
    if value is True or value is False:
        return value
    raise wrong("bool", value, path)


def _take_int(value: object, path: str = "$", /) -> int:
    if type(value) is int:
        if LEAST < value < NUMBER:
            return value
        raise InvalidInput("Number of more than 1,000 digits", path)
    if isinstance(value, Enum) and type(value.value) is int:
        return _take_int(value.value, path)
    raise wrong("int", value, path)


def _take_float(value: object, path: str = "$", /) -> float:
    if type(value) is float:
        if value - value == 0.0:  # neither infinite nor NaN, and faster than a call
            return value
        raise InvalidInput("Number is not finite", path)
    number = _take_int(value, path) if type(value) is int or isinstance(value, Enum) else None
    if number is None:
        raise wrong("float", value, path)
    try:
        return float(number)
    except OverflowError:
        raise InvalidInput("Number out of range", path) from None


def take_str(value: object, path: str = "$", /) -> str:
    """Return the text of a value: text that UTF-8 can carry, or an enum's member with such a value."""
    if type(value) is str:
        if not value.isascii():
            _check_text(value, path)
        return value
    if isinstance(value, Enum) and type(value.value) is str:
        return take_str(value.value, path)
    raise wrong("str", value, path)


def _check_text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("Text with a lone surrogate", path) from None


SCALARS: dict[type[types.Type], Part] = {
    types.NoneType: Part(_take_none, (type(None),), exact=type(None), passing=(type(None),)),
    types.BoolType: Part(_take_bool, (bool,), exact=bool, passing=(bool,)),
    types.IntType: Part(_take_int, (int,), passing=(int,)),
    types.FloatType: Part(_take_float, (float,)),
    types.StrType: Part(take_str, (str,), passing=(str,)),
}


def _scalar(tree: types.Type) -> Part:
    part, limited = SCALARS[type(tree)], _limited(tree)
    return part if limited is None else _within(part, limited)


def _within(part: Part, limited: Any) -> Part:
    take = part.take
    holder = msgspec.defstruct("Holder", [("value", limited)])  # msgspec caches the types of a struct

    def take_within(value: object, path: str = "$", /) -> Any:
        taken = take(value, path)
        try:
            msgspec.convert({"value": taken}, holder)
        except msgspec.ValidationError as exc:
            raise InvalidInput(str(exc).partition(" - at `$")[0], path) from None
        return taken

    return attrs.evolve(part, take=take_within, exact=None, passing=())


def _limited(tree: types.Type) -> Any | None:
    """Return the type with the limits that `Meta` sets, for msgspec to check; None without limits."""
    found = {name: limit for name in LIMITS if (limit := getattr(tree, name, None)) is not None}
    return Annotated[CLASSES[type(tree)], msgspec.Meta(**found)] if found else None


def _always(value: Any) -> bool:
    return True


def _placed(value: Any) -> bool:
    """Return whether a time can be written as text without loss; a zone with rules would become an offset."""
    return value.fold == 0 and (value.tzinfo is None or value.tzinfo is dt.UTC)


CLASSES: dict[type[types.Type], type] = {
    types.IntType: int,
    types.FloatType: float,
    types.StrType: str,
    types.BytesType: bytes,
    types.ByteArrayType: bytearray,
    types.DateTimeType: dt.datetime,
    types.TimeType: dt.time,
    types.DateType: dt.date,
    types.TimeDeltaType: dt.timedelta,
    types.UUIDType: UUID,
    types.DecimalType: Decimal,
}


def _text(tree: types.Type) -> Part:
    """Compile a type whose values are text in JSON: times and ids."""
    cls: Any = CLASSES[type(tree)]
    limited = _limited(tree)
    lasting: Callable[[Any], bool] = _placed if cls in (dt.datetime, dt.time) else _always

    def take(value: object, path: str = "$", /) -> Any:
        if type(value) is cls:
            if lasting(value):
                return value
            return convert(msgspec.to_builtins(value), cls, path)
        if type(value) is not str:
            raise wrong(cls.__name__, value, path)
        return convert(take_str(value, path), cls, path)

    part = Part(take, (cls, str), exact=cls if lasting is _always else None)
    return part if limited is None else _within(part, limited)


def _take_decimal(value: object, path: str = "$", /) -> Decimal:
    if not isinstance(value, Decimal | str | int | float) or isinstance(value, bool):
        raise wrong("decimal", value, path)
    if isinstance(value, str) and not is_number(value):
        raise InvalidInput(f"Expected a number in decimal digits, got {shown(value)}", path)
    takers: dict[type, AnyTake] = {str: take_str, int: _take_int, float: _take_float}
    take = takers.get(type(value))
    if take is None and type(value) is not Decimal:
        raise wrong("decimal", value, path)
    plain = value if take is None else take(value, path)
    number: Decimal = convert(plain, Decimal, path)
    if not number.is_finite():
        raise InvalidInput("Number is not finite", path)
    if len(number.as_tuple().digits) > 1000:
        raise InvalidInput("Number of more than 1,000 digits", path)
    return number


def _decimal(tree: types.Type) -> Part:
    return Part(_take_decimal, (Decimal, str))


def _bytes(tree: types.Type) -> Part:
    cls = CLASSES[type(tree)]
    limited = _limited(tree)

    def take(value: object, path: str = "$", /) -> Any:
        if type(value) is bytes and cls is bytes:
            return value
        if isinstance(value, bytes | bytearray):
            return cls(value)
        if type(value) is str:
            return convert(take_str(value, path), cls, path)
        raise wrong(cls.__name__, value, path)

    frozen = cls is bytes
    mutable = "" if frozen else "a bytearray can be changed in place, use `bytes`"
    part = Part(take, (bytes, bytearray, str), mutable, bytes if frozen else None)
    return part if limited is None else _within(part, limited)


def _enum(tree: types.EnumType) -> Part:
    cls: Any = tree.cls
    sent: tuple[type, ...] = tuple({type(value.value): None for value in cls})

    def take(value: object, path: str = "$", /) -> Any:
        if type(value) is cls:
            return value
        plain = value.value if isinstance(value, Enum) else value
        if type(plain) not in sent:
            raise wrong(cls.__name__, value, path)
        return convert(PLAIN[type(plain)](plain, path), cls, path)

    return Part(take, (cls, *sent), exact=cls)


def _literal(tree: types.LiteralType) -> Part:
    kinds = tuple({type(value): None for value in tree.values})
    known = {(type(value), value) for value in tree.values}
    listed = ", ".join(repr(value) for value in tree.values)

    def take(value: object, path: str = "$", /) -> Any:
        plain = value.value if isinstance(value, Enum) else value
        if type(plain) not in kinds:
            raise wrong(" | ".join(kind.__name__ for kind in kinds), value, path)
        if (type(plain), plain) not in known:
            raise InvalidInput(f"Expected one of {listed}", path)
        return plain

    return Part(take, kinds)


LEAVES: dict[type[types.Type], Callable[[Any], Part]] = {
    **dict.fromkeys(SCALARS, _scalar),
    types.BytesType: _bytes,
    types.ByteArrayType: _bytes,
    types.DateTimeType: _text,
    types.TimeType: _text,
    types.DateType: _text,
    types.TimeDeltaType: _text,
    types.UUIDType: _text,
    types.DecimalType: _decimal,
    types.EnumType: _enum,
    types.LiteralType: _literal,
}

PLAIN: dict[type, AnyTake] = {native: part.take for part in SCALARS.values() for native in part.natives}


def plain_data(room: int) -> Part:
    """Compile the type of any JSON value with at most `room` container levels; values are always copied."""

    def take(value: object, path: str = "$", /) -> Any:
        return _take_plain(value, path, room)

    passing = tuple(each for part in SCALARS.values() for each in part.passing)
    return Part(take, (), "`Any` may hold lists and dicts, name the type", passing=passing)


def _take_plain(value: object, path: str, room: int) -> Any:
    take = PLAIN.get(type(value))
    if take is not None:
        return take(value, path)
    if not isinstance(value, list | tuple | dict):
        raise InvalidInput(f"Expected plain JSON data, got `{type(value).__name__}`", path)
    if room == 0:
        raise InvalidInput(f"Nested more than {NESTING} deep", path)
    if isinstance(value, dict):
        return _take_plain_dict(cast("dict[object, object]", value), path, room - 1)
    taken: list[Any] = []
    try:
        for item in cast("list[object]", value):
            taken.append(_take_plain(item, "$", room - 1))
    except (InvalidInput, RecursionError) as bad:
        raise inside(bad, path, f"[{len(taken)}]") from None
    return taken


def _take_plain_dict(value: dict[object, object], path: str, room: int) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    key: object = None
    try:
        for key, item in value.items():
            name = key if type(key) is str and key.isascii() else take_str(key, KEY)
            taken[name] = item if type(item) is str and item.isascii() else _take_plain(item, "$", room)
    except (InvalidInput, RecursionError) as bad:
        raise inside(bad, path, member(key)) from None
    return taken
