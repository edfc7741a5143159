"""Conversion of plain data to typed values and back, with limits and places of errors.

The metadata of a field of an attrs class name the member that the field holds (`member`) and the reader of
its value. Members without a field go into `extra` and are written again unchanged, so that reading and
writing loses nothing. msgspec's own structs are not used: they drop unknown members, and their errors name
Python types.

The data may come from anywhere, so it is first copied within limits of depth, count and digits
(`plain_data`). All later code may recurse over it.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, TypeVar, cast

import attrs
import msgspec

from lmos_actors._core import read_json
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Place: TypeAlias = tuple[str | int, ...]
Reader: TypeAlias = "Callable[[Any, Place], Any]"
T = TypeVar("T")
Key = TypeVar("Key", str, int)

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 100_000
MAX_BITS: Final = 3322  # of a number of 1,000 digits

is_lenient: Final = ContextVar("is_lenient", default=False)
"""Whether readers leave out the members and entries that they cannot read, in place of an error."""

_KINDS: Final[dict[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


class DescriptionError(ConfigError, ValueError):
    """Unreadable description; `place` holds keys and indices, `path` the same as a JSON pointer."""

    def __init__(self, message: str, place: Place = ()) -> None:
        self.place = place
        super().__init__(message, pointer(place))


def pointer(place: Place) -> str:
    """Return a place as a JSON pointer (RFC 6901), "" for the whole."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in place)


def kind_of(value: object) -> str:
    """Return the kind of a value with an article, as in `a text`."""
    return _KINDS.get(type(value), f"of type {type(value).__name__}")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether plain data is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether plain data is an array."""
    return isinstance(value, list)


# --- from text or data to plain data within limits


def plain_data(data: str | bytes | Mapping[str, Any], max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the object in a JSON text, or a copy of an object, within limits. Raises DescriptionError."""
    value: object = _parsed(data, max_bytes) if isinstance(data, str | bytes) else data
    found = _Copy().copy(value, ())
    if not is_object(found):
        raise DescriptionError(f"a description must be an object, this is {kind_of(found)}")
    return found


def _parsed(text: str | bytes, max_bytes: int) -> object:
    raw = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")  # the decoder refuses them
    if len(raw) > max_bytes:
        raise DescriptionError(f"longer than {max_bytes} bytes")
    raw = raw.removeprefix(BOM_UTF8)  # RFC 8259, 8.1 allows readers to ignore it
    try:
        return read_json(raw)
    except msgspec.DecodeError as exc:
        what, found, byte = str(exc).rpartition(" (byte ")
        if not found:
            raise DescriptionError(f"not JSON: {exc}") from None
        what, before = what.removeprefix("JSON is malformed: "), raw[: int(byte.rstrip(")"))]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise DescriptionError(f"not JSON: {what}, at line {line}, column {column}") from None
    except UnicodeError:
        raise DescriptionError("not a text in UTF-8") from None
    except RecursionError:
        raise DescriptionError(f"nested deeper than {MAX_DEPTH}") from None


class _Copy:
    """A copier of data, which counts values against the limit in a single pass."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_VALUES

    def copy(self, value: object, place: Place) -> Any:
        self.left -= 1
        if self.left < 0:
            raise DescriptionError(f"more than {MAX_VALUES} values", place)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _text(value, place)
        if isinstance(value, int | float):
            return _number(value, place)
        return self._inner(value, place)

    def _inner(self, value: object, place: Place) -> Any:
        if len(place) >= MAX_DEPTH:
            raise DescriptionError(f"nested deeper than {MAX_DEPTH}", place)
        if isinstance(value, dict):
            members = cast("dict[object, object]", value)
            return {_key(key, place): self.copy(each, (*place, str(key))) for key, each in members.items()}
        if isinstance(value, list | tuple):
            items = cast("list[object]", value)
            return [self.copy(each, (*place, number)) for number, each in enumerate(items)]
        raise DescriptionError(f"{type(value).__name__} is not plain data", place)


def _text(value: str, place: Place) -> str:
    try:
        value.encode()
    except UnicodeError:
        raise DescriptionError("a text with half of a surrogate pair", place) from None
    return str(value)


def _number(value: float, place: Place) -> float:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise DescriptionError("a number of more than 1000 digits", place)
    elif not math.isfinite(value):
        raise DescriptionError("not a finite number", place)
    return value


def _key(key: object, place: Place) -> str:
    if not isinstance(key, str):
        raise DescriptionError(f"the key {key!r} is not a text", place)
    return _text(key, place)


# --- readers of members: from plain data to the value of a field


def fail(value: object, expected: str, place: Place) -> DescriptionError:
    """Return the error for a value of the wrong kind."""
    return DescriptionError(f"must be {expected}, is {kind_of(value)}", place)


def text(value: Any, place: Place) -> str:
    """Return a text. Raises DescriptionError for anything else."""
    if not isinstance(value, str):
        raise fail(value, "a text", place)
    return value


def flag(value: Any, place: Place) -> bool:
    """Return a boolean. Raises DescriptionError for anything else."""
    if not isinstance(value, bool):
        raise fail(value, "true or false", place)
    return value


def texts(value: Any, place: Place) -> str | tuple[str, ...]:
    """Return a text, or an array of texts as a tuple. Raises DescriptionError for anything else."""
    if isinstance(value, str):
        return value
    if not is_array(value):
        raise fail(value, "a text or an array of texts", place)
    return tuple(text(each, (*place, number)) for number, each in enumerate(value))


def text_list(value: Any, place: Place) -> tuple[str, ...]:
    """Return an array of texts as a tuple. Raises DescriptionError for anything else."""
    if not is_array(value):
        raise fail(value, "an array of texts", place)
    return tuple(text(each, (*place, number)) for number, each in enumerate(value))


def anything(value: Any, _place: Place) -> Any:
    """Return any value as it is."""
    return value


def members(value: Any, place: Place) -> dict[str, Any]:
    """Return an object with any members. Raises DescriptionError for anything else."""
    if not is_object(value):
        raise fail(value, "an object", place)
    return value


def map_of(reader: Callable[[Any, Place], T]) -> Callable[[Any, Place], dict[str, T]]:
    """Return a reader of objects that applies `reader` to every member."""

    def read(value: Any, place: Place) -> dict[str, T]:
        return dict(_entries(reader, members(value, place).items(), place))

    return read


def list_of(reader: Callable[[Any, Place], T]) -> Callable[[Any, Place], tuple[T, ...]]:
    """Return a reader of arrays that applies `reader` to every item."""

    def read(value: Any, place: Place) -> tuple[T, ...]:
        if not is_array(value):
            raise fail(value, "an array", place)
        return tuple(each for _, each in _entries(reader, enumerate(value), place))

    return read


def _entries(
    reader: Callable[[Any, Place], T], entries: Iterable[tuple[Key, Any]], place: Place
) -> Iterator[tuple[Key, T]]:
    """Yield entries as `reader` reads them. Raise DescriptionError for an unreadable one, unless lenient."""
    for key, each in entries:
        try:
            yield key, reader(each, (*place, key))
        except DescriptionError:
            if not is_lenient.get():
                raise


def member(name: str, reader: Reader, *, lax: bool = False) -> dict[str, Any]:
    """Return the metadata of a field. With `lax` an unreadable value stays in `extra` without an error."""
    return {"member": name, "reader": reader, "lax": lax}


# --- classes whose fields are members


def struct(cls: type[T]) -> Callable[[Any, Place], T]:
    """Return a reader that turns an object into an instance of an attrs class."""

    def read(value: Any, place: Place) -> T:
        return read_struct(cls, members(value, place), place)

    return read


def read_struct(cls: type[T], data: Mapping[str, Any], place: Place) -> T:
    """Return an instance of a class made from members. Raise DescriptionError.

    Members without a field go into `extra`. Null counts as absent, and stays in `extra`.
    """
    left, found, fields = dict(data), dict[str, Any](), attrs.fields(cast("Any", cls))
    for field in fields:
        how, name = field.metadata, field.metadata.get("member")
        if left.get(name) is None:
            continue
        try:
            found[field.name] = how["reader"](left[name], (*place, name))
        except DescriptionError:
            if not (how["lax"] or is_lenient.get()):
                raise
        else:
            del left[name]
    for field in fields:
        if field.default is attrs.NOTHING and field.name not in found:
            raise DescriptionError(f"{field.metadata['member']!r} is missing", place)
    return cast("Callable[..., T]", cls)(**found, extra=left)


def write(value: Any) -> Any:
    """Return values from readers as plain data: fields in their order, then `extra`."""
    if isinstance(value, dict):
        return {key: write(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [write(each) for each in cast("list[Any]", value)]
    return _fields_as_data(value) if attrs.has(_class(value)) else value


def _class(value: object) -> type[Any]:
    return type(value)


def _fields_as_data(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in attrs.fields(_class(value)):
        content = getattr(value, field.name)
        if field.metadata.get("flat"):
            found.update(write(content))
        elif "member" in field.metadata and content is not None:
            found[field.metadata["member"]] = write(content)
    more = {name: write(each) for name, each in value.extra.items() if name not in found}
    return {**found, **more}
