"""The declared types of files, and their parts; `_decode` walks them in parallel with the data.

Types are closed msgspec structs (tagged or not), unions of them, `str`, `int`, `float`, `bool`, `None`,
`Literal`, `tuple[X, ...]`, `list[X]`, `dict[str, X]`, `Any` and `object` for open data, and classes with a
`TextForm`, such as `Duration`. `Annotated` carries `msgspec.Meta` limits and `Later` words.
"""

from __future__ import annotations

import types
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Protocol,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)

import attrs
import msgspec


@runtime_checkable
class TextForm(Protocol):
    """A type whose values are written in files as text of a special form.

    `parse` raises ValueError with the reason.
    """

    described: ClassVar[str]
    pattern: ClassVar[str]

    @classmethod
    def parse(cls, text: str) -> object:
        """Return the value of a text."""
        ...


class Later:
    """Words that are planned and not available yet: `Annotated[Literal["memory"], Later("websocket")]`.

    On a union of tagged structs the words are tags. As `later: ClassVar[Later]` of a struct they are keys.
    """

    def __init__(self, *words: str) -> None:
        self.words = frozenset(words)


NO_WORDS = Later()
_UNIONS: Final = (Union, types.UnionType)


@attrs.frozen
class Field:
    """Key of a struct: `name` in Python, `key` in the file."""

    name: str
    key: str
    form: Form
    required: bool
    is_left_out: bool
    """Whether None means an absent key, and is not a value that a file could hold."""


@attrs.frozen
class Tag:
    """Tag that distinguishes a struct in a union: `field` is the key, `value` the word."""

    field: str
    value: str


class Form:
    """The parts of a declared type, computed once because hashing a type hashes everything in it.

    `inner` is the type without `Annotated`. `literals` are the members of a `Literal`; None for another type.
    `limits` are the `msgspec.Meta` objects of the type. `branches` are the members of a union, flattened and
    without UNSET; for any other type, the form itself. `is_open` is true if the type or one of its branches
    accepts any plain data. `takes` are the Python types of the data that it accepts; None for a union and for
    open data. `later` has the words of every `Later` on the type and on its branches.
    """

    __slots__ = (
        "args", "branches", "choices", "has_text_form", "inner", "is_open", "is_struct", "later", "limits",
        "literals", "origin", "takes",
    )  # fmt: skip

    def __init__(self, declared: Any) -> None:
        inner, *notes = get_args(declared) if get_origin(declared) is Annotated else (declared,)
        self.inner: Any = inner
        self.origin, self.args = get_origin(inner), get_args(inner)
        is_class = isinstance(inner, type)
        self.literals = self.args if self.origin is Literal else None
        self.is_struct = is_class and issubclass(inner, msgspec.Struct)
        self.has_text_form = is_class and not self.is_struct and isinstance(inner, TextForm)
        self.is_open = inner in (Any, object)
        self.takes: tuple[type, ...] | None = None
        if self.literals is not None:
            self.takes = tuple(map(type, self.literals))
        elif self.is_struct or self.origin is dict:
            self.takes = (dict,)
        elif self.origin in (list, tuple):
            self.takes = (list,)
        elif inner is float:
            self.takes = (int, float)
        elif not self.is_open and self.origin not in _UNIONS:
            self.takes = (str if self.has_text_form else type(None) if inner is None else self.inner,)
        limits: list[msgspec.Meta] = []
        self.later = frozenset[str]()
        for note in notes:
            if isinstance(note, msgspec.Meta):
                limits.append(note)
            elif isinstance(note, Later):
                self.later |= note.words
        self.limits = tuple(limits)
        self.branches: tuple[Form, ...] = (self,)
        if self.origin in _UNIONS:
            self.branches = ()
            for member in self.args:
                form = form_of(member)
                self.later |= form.later
                self.is_open |= form.is_open
                self.branches += form.branches if member is not msgspec.UnsetType else ()
        self.choices: dict[type, Any] = {}
        """What a reader of data found out about each Python type of data."""

    @property
    def is_quantity(self) -> bool:
        """Whether the type is written as a number with a unit."""
        return self.has_text_form and issubclass(self.inner, (int, float))

    @property
    def is_null(self) -> bool:
        """Whether this is the type of null."""
        return self.inner in (None, type(None))


form_of: Final = cache(Form)
"""Return a declared type, taken apart."""


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the keys of a struct, in order."""
    found: list[Field] = []
    for field in msgspec.structs.fields(struct):
        form = form_of(field.type)
        is_left_out = field.default is None and not form.is_open
        found.append(Field(field.name, field.encode_name, form, field.required, is_left_out))
    return tuple(found)


@cache
def tag_of(struct: type[msgspec.Struct]) -> Tag | None:
    """Return the tag of a struct; None if it has no tag."""
    config = struct.__struct_config__
    return None if config.tag_field is None else Tag(config.tag_field, str(config.tag))


def later_keys(struct: type[msgspec.Struct]) -> Later:
    """Return the keys of a struct that are not available yet."""
    found = getattr(struct, "later", NO_WORDS)
    return found if isinstance(found, Later) else NO_WORDS


_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    None: "null",
}


def describe(form: Form) -> str:
    """Return the description of a type for messages."""
    named = [_describe(part) for part in form.branches if not part.is_null] or ["null"]
    return " or ".join(dict.fromkeys(named))


def _describe(form: Form) -> str:
    if form.literals is not None:
        return ("one of " if len(form.literals) > 1 else "") + ", ".join(map(written_form, form.literals))
    if form.has_text_form:
        return str(form.inner.described)
    if form.inner in _NAMES:
        return _NAMES[form.inner]
    if form.takes == (list,):
        return "a list"
    return "a mapping" if form.takes == (dict,) else "a value"


def written_form(value: object) -> str:
    """Return a plain value in the form in which a file contains it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def description_of(value: object) -> str:
    """Return a short description of a value for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return written_form(value)
    if isinstance(value, str):
        return f'the text "{value[:60]}{"..." if len(value) > 60 else ""}"'
    if isinstance(value, (int, float)):
        return f"the number {str(value)[:60]}"
    return "a mapping" if isinstance(value, dict) else "a list"
