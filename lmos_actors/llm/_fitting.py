"""Converter of an endpoint's events to the members that are read here.

Most events follow their format, and msgspec reads them. Any other event is read again, member by member: a
value of the wrong type is converted if it means the same, and left out otherwise. So no answer is lost for a
trifle such as null, a number as text, bytes that are not UTF-8, or half a character.
"""

from __future__ import annotations

import json
import types
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from lmos_actors._core import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T", bound=msgspec.Struct)

_NOTHING: Any = object()


class Fitting(Generic[T]):
    """A reader of one answer's events as `form`; `replaced` counts the bytes that were not UTF-8."""

    def __init__(self, form: type[T], decoder: msgspec.json.Decoder[T]) -> None:
        self.replaced = 0
        self._form = form
        self._decode = decoder.decode

    def read(self, data: bytes) -> Sequence[T]:
        """Return the objects in an event; there are several if the line ends between events are missing.

        Raises ValueError or RecursionError.
        """
        try:
            return (self._decode(data),)
        except ValueError:
            return self._read_again(data)

    def _read_again(self, data: bytes) -> Sequence[T]:
        if data.startswith(b"[DONE]"):  # some end other formats with it, too
            return ()
        text = data.decode("utf-8", "replace")
        try:
            value: Any = json.loads(text)
        except ValueError:
            lines = [line.removeprefix(b"data:").strip() for line in data.splitlines()]
            if len(lines) < 2:
                raise
            said = [line for line in lines if line and not line.startswith(b"[DONE]")]
            return [each for line in said for each in self.read(line)]
        self.replaced += text.count("\ufffd") - data.count("\ufffd".encode())
        value = next(iter(_listed(value)), None)  # some put the single object into a list
        if not isinstance(value, dict):
            raise ValueError("an event is no object")
        return (fitted(cast("Any", value), self._form),)


def fitted(value: Any, form: Any) -> Any:
    """Return a value converted to a type, or `_NOTHING` if it cannot be converted."""
    origin = get_origin(form)
    if form is Any:
        return value
    if origin in (types.UnionType, Union):
        found = (fitted(value, one) for one in sorted(get_args(form), key=lambda one: not _is(value, one)))
        return next((one for one in found if one is not _NOTHING), _NOTHING)
    if form is str:
        return _text(value)
    if form is int:
        return _number(value)
    if origin is list:
        members = _listed(value)
        found = (fitted(one, get_args(form)[0]) for one in members)
        return [one for one in found if one is not _NOTHING]
    if isinstance(value, dict) and isinstance(form, type) and issubclass(form, msgspec.Struct):
        said = cast("dict[str, Any]", value)
        hints = get_type_hints(form)
        pairs = {name: fitted(said[name], hint) for name, hint in hints.items() if name in said}
        return form(**{name: one for name, one in pairs.items() if one is not _NOTHING})
    return cast("Any", value) if _is(cast("Any", value), form) else _NOTHING


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]


def _is(value: object, form: Any) -> bool:
    kind = get_origin(form) or form
    return isinstance(value, kind) if isinstance(kind, type) else False


def _text(value: Any) -> Any:
    """Return a value as text, even if it is a number or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    parts = _listed(value)
    texts = [cast("dict[str, Any]", one).get("text") if type(one) is dict else one for one in parts]
    said = [text for text in texts if isinstance(text, str)]
    return "".join(said) if said or isinstance(value, list) else _NOTHING


def _number(value: object) -> Any:
    if isinstance(value, str):
        try:
            value = number_of(value)
        except ValueError:
            return _NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return _NOTHING
    return int(value)


class Halves:
    """A text in pieces, which may be cut anywhere, even between the halves of a surrogate pair."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def take(self, text: str) -> str:
        """Return the whole characters in a piece, including half a character left over from before."""
        if self._half:
            text, self._half = self._half + text, ""
        elif text.isascii():
            return text
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return paired(text)

    def rest(self) -> str:
        """Return the rest at the end: U+FFFD for half a character, or an empty text."""
        return "\ufffd" if self._half else ""


def paired(text: str) -> str:
    """Return a text with the halves of surrogate pairs joined, and single halves replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
