"""Declared types of files, and their parts: `_decode` walks them next to the data.

Types are closed msgspec structs (tagged or not), unions of them, `str`, `int`, `float`, `bool`, `None`,
`Literal`, `tuple[X, ...]`, `list[X]`, `dict[str, X]`, `Any` and `object` for open data, and classes with a
`TextForm`, such as `Duration`. `Annotated` carries `msgspec.Meta` limits and `Later` words.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Protocol, Union, get_args, get_origin, runtime_checkable

import attrs
import msgspec


@runtime_checkable
class TextForm(Protocol):
    """Type that files hold as text of a special form. `parse` raises ValueError with the reason."""

    described: ClassVar[str]
    pattern: ClassVar[str]

    @classmethod
    def parse(cls, text: str) -> object:
        """Return the value of a text."""
        ...


class Later:
    """Words that are planned and not available yet: `Annotated[Literal["memory"], Later("websocket")]`.

    On a union of tagged structs they are tags; as `later: ClassVar[Later]` of a struct they are keys.
    """

    def __init__(self, *words: str) -> None:
        self.words = frozenset(words)


NO_WORDS = Later()


@attrs.frozen
class Field:
    """Key of a struct: `name` in Python, `key` in the file."""

    name: str
    key: str
    type: Any
    required: bool
    is_left_out: bool
    """Whether None means an absent key, and is not a value that a file could hold."""


@attrs.frozen
class Tag:
    """Tag that distinguishes a struct in a union: `field` is the key, `value` the word."""

    field: str
    value: str


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the keys of a struct, in order."""
    found: list[Field] = []
    for field in msgspec.structs.fields(struct):
        holds_null = [part for part in branches(field.type) if is_open(part)]
        is_left_out = field.default is None and not holds_null
        found.append(Field(field.name, field.encode_name, field.type, field.required, is_left_out))
    return tuple(found)


@cache
def tag_of(struct: type[msgspec.Struct]) -> Tag | None:
    """Return the tag of a struct, None without one."""
    config = struct.__struct_config__
    return None if config.tag_field is None else Tag(config.tag_field, str(config.tag))


def later_keys(struct: type[msgspec.Struct]) -> Later:
    """Return the keys of a struct that are not available yet."""
    found = getattr(struct, "later", NO_WORDS)
    return found if isinstance(found, Later) else NO_WORDS


@cache
def split(declared: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without `Annotated`, and its annotations."""
    if get_origin(declared) is Annotated:
        inner, *notes = get_args(declared)
        return inner, tuple(notes)
    return declared, ()


@cache
def branches(declared: Any) -> tuple[Any, ...]:
    """Return the members of a union, flat, without UNSET; of any other type, itself."""
    inner, notes = split(declared)
    if get_origin(inner) in (Union, types.UnionType):
        found = [leaf for member in get_args(inner) for leaf in branches(member)]
        return tuple([leaf for leaf in found if leaf is not msgspec.UnsetType])
    return (declared,) if notes else (inner,)


@cache
def later_words(declared: Any) -> frozenset[str]:
    """Return the words of every `Later` on a type and on the members of a union."""
    inner, notes = split(declared)
    words = frozenset[str]().union(*(note.words for note in notes if isinstance(note, Later)))
    if get_origin(inner) in (Union, types.UnionType):
        return words.union(*(later_words(member) for member in get_args(inner)))
    return words


@cache
def limits(declared: Any) -> tuple[msgspec.Meta, ...]:
    """Return the `msgspec.Meta` limits on a type."""
    return tuple(note for note in split(declared)[1] if isinstance(note, msgspec.Meta))


@cache
def is_struct(declared: Any) -> bool:
    """Return whether a type is a msgspec struct."""
    inner = split(declared)[0]
    return isinstance(inner, type) and issubclass(inner, msgspec.Struct)


@cache
def has_text_form(declared: Any) -> bool:
    """Return whether a type is written as text in a special form."""
    inner = split(declared)[0]
    return isinstance(inner, type) and isinstance(inner, TextForm)


def is_quantity(declared: Any) -> bool:
    """Return whether a type is written as a number with a unit."""
    return has_text_form(declared) and issubclass(split(declared)[0], (int, float))


def is_open(declared: Any) -> bool:
    """Return whether a type accepts any plain data."""
    return split(declared)[0] in (Any, object)


@cache
def words_of(declared: Any) -> tuple[Any, ...] | None:
    """Return the members of a `Literal`, or None for another type."""
    inner = split(declared)[0]
    return get_args(inner) if get_origin(inner) is Literal else None


_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    None: "null",
}


def describe(declared: Any) -> str:
    """Return the description of a type for messages."""
    parts = [part for part in branches(declared) if part not in (None, type(None))]
    named = [_describe(part) for part in parts] or ["null"]
    return " or ".join(dict.fromkeys(named))


def _describe(declared: Any) -> str:
    inner = split(declared)[0]
    words = words_of(declared)
    if words is not None:
        return ("one of " if len(words) > 1 else "") + ", ".join(map(written_form, words))
    if has_text_form(declared):
        return str(inner.described)
    if inner in _NAMES:
        return _NAMES[inner]
    if get_origin(inner) in (list, tuple):
        return "a list"
    if is_struct(declared) or get_origin(inner) is dict:
        return "a mapping"
    return "a value"


def written_form(value: object) -> str:
    """Return a plain value as a file writes it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def description_of(value: object) -> str:
    """Return the description of a value for messages, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return written_form(value)
    if isinstance(value, str):
        return f'the text "{value[:60]}{"..." if len(value) > 60 else ""}"'
    if isinstance(value, (int, float)):
        return f"the number {str(value)[:60]}"
    return "a mapping" if isinstance(value, dict) else "a list"
