"""Plain data into closed structs; every mistake found, each at its place.

msgspec decodes faster, but stops at the first mistake and hides mapping keys in its paths. Files are small:
the type is walked beside the data, and the structs are built on the way.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, get_args, get_origin

import attrs

from lmos_actors.errors import nearest

from ._document import Document, read
from ._source import FileError, in_order
from ._tree import inside, is_list, is_mapping
from ._types import (
    Field,
    branches,
    describe,
    fields_of,
    is_open,
    is_struct,
    is_written,
    later_keys,
    later_words,
    limits,
    saw,
    spell,
    split,
    tag_of,
    words_of,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import msgspec

    from ._source import DataPath, Kind, Mistake
    from ._tree import Note

T = TypeVar("T")


_FEW = 8
_LARGEST_INTEGER = 10**300
_LIMITS: Final = (
    ("ge", "at least", operator.ge),
    ("gt", "more than", operator.gt),
    ("le", "at most", operator.le),
    ("lt", "less than", operator.lt),
)


class _Wrong:
    """The type of `_WRONG`, what a part with a mistake decodes to."""


_WRONG: Final = _Wrong()


class Unknown:
    """The type of `UNKNOWN`."""


UNKNOWN: Final = Unknown()
"""Stands in data for a value that could not be worked out; a mistake about it has been recorded already."""


@attrs.frozen
class Loaded(Generic[T]):
    """A file that is right: its value, the document for places, and warnings."""

    value: T
    document: Document
    notes: tuple[Note, ...]


def load(path: str | os.PathLike[str], declared: type[T], *, limit: int | None = None) -> Loaded[T]:
    """Read a file and decode it. Blocks on the disk. Raises FileError with every mistake found."""
    document = read(path, limit=limit)
    value, mistakes = decode(document, declared)
    if mistakes or value is None:
        raise FileError(mistakes)
    return Loaded(value, document, document.notes)


def decode(
    document: Document,
    declared: Any,
    data: Any = UNKNOWN,
    *,
    at: DataPath = (),
    made: dict[DataPath, Any] | None = None,
) -> tuple[Any, tuple[Mistake, ...]]:
    """Decode a document, or `data` that stands for it; the value is None when anything is wrong.

    Mistakes of reading the document are among those given. With `at` the data is the part that stands
    there, and the mistakes are those in it. A part that is `UNKNOWN` is wrong without another mistake:
    whoever put it there has recorded one. Every struct that is right in itself goes into `made`, by its
    place.
    """
    walk = _Walk(document, made)
    value = walk.value(declared, document.data if data is UNKNOWN and not at else data, at)
    mistakes = in_order(walk.mistakes if at else [*document.mistakes, *walk.mistakes])
    return (None if mistakes or value is _WRONG else value), mistakes


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known one, and all if they are few."""
    words = list(known)
    near = nearest(word, words)
    hint = f', did you mean "{near}"?' if near else ""
    return f"{hint} (known: {', '.join(words)})" if words and (len(words) <= _FEW or not near) else hint


class _Walk:
    def __init__(self, document: Document, made: dict[DataPath, Any] | None) -> None:
        self.document = document
        self.mistakes: list[Mistake] = []
        self.made = {} if made is None else made

    def wrong(self, path: DataPath, message: str, kind: Kind = "shape", *, key: bool = False) -> _Wrong:
        self.mistakes.append(self.document.mistake(path, message, kind, key=key))
        return _WRONG

    def value(self, declared: Any, data: Any, path: DataPath) -> Any:
        if data is UNKNOWN:
            return _WRONG
        fitting, tagged = _fitting(declared, _sort(data))
        if data is None and fitting and not is_open(fitting[0]):
            return None
        if tagged and is_mapping(data):
            return self._tagged(declared, tagged, data, path)
        if not fitting:
            return self._mismatch(declared, data, path)
        return self._one_of(declared, fitting, data, path)

    def _one_of(self, declared: Any, fitting: list[Any], data: Any, path: DataPath) -> Any:
        if len(fitting) == 1:
            return self._single(fitting[0], data, path, later_words(declared))
        for part in fitting:
            attempt = _Walk(self.document, self.made)
            value = attempt._single(part, data, path, frozenset())
            if not attempt.mistakes and value is not _WRONG:
                return value
        if isinstance(data, str) and data in later_words(declared):
            return self.wrong(path, f'"{data}" is not available yet', "later")
        if is_mapping(data) and all(map(is_struct, fitting)):
            return self._meant(fitting, data, path)
        words = [word for part in fitting for word in words_of(part) or () if isinstance(word, str)]
        near = nearest(str(data), words)
        hint = f', did you mean "{near}"?' if near else ""
        return self.wrong(path, f"expected {describe(declared)}, saw {saw(data)}{hint}")

    def _meant(self, structs: list[Any], data: dict[str, Any], path: DataPath) -> _Wrong:
        """Return what is wrong with the struct that is nearest to what is there; none of them has a tag."""
        known = {field.key: struct for struct in structs for field in fields_of(split(struct)[0])}
        for key in data:
            if key in known:
                self._struct(split(known[key])[0], data, path)
                return _WRONG
        for key in data:
            return self.wrong((*path, key), f'unknown key "{key}"{did_you_mean(key, known)}', key=True)
        return self.wrong(path, f"expected one of the keys {', '.join(known)}")

    def _mismatch(self, declared: Any, data: object, path: DataPath) -> _Wrong:
        hint = ""
        takes = branches(declared)
        if any(is_written(part) for part in takes) and type(data) in (int, float):
            hint = "; the unit is missing"
        elif any(split(part)[0] is str for part in takes) and not (is_mapping(data) or is_list(data)):
            hint = "; put it in quotes" if data is not None else ""
        return self.wrong(path, f"expected {describe(declared)}, saw {saw(data)}{hint}")

    def _single(self, declared: Any, data: Any, path: DataPath, later: frozenset[str]) -> Any:
        inner = split(declared)[0]
        words = words_of(declared)
        if words is not None:
            return self._word(words, data, path, later)
        if is_struct(declared):
            return self._struct(inner, data, path)
        if is_written(declared):
            return self._written(inner, data, path)
        if get_origin(inner) is dict:
            return self._mapping(declared, data, path)
        if get_origin(inner) in (list, tuple):
            return self._sequence(declared, data, path)
        if is_open(declared):
            return self._open(data)
        if inner is float and abs(data) > _LARGEST_INTEGER:
            return self.wrong(path, f"{saw(data)} is too large")
        return self._limited(declared, float(data) if inner is float else data, path)

    def _open(self, data: Any) -> Any:
        return _WRONG if _holds_unknown(data) else data

    def _word(self, words: tuple[Any, ...], data: Any, path: DataPath, later: frozenset[str]) -> Any:
        for word in words:
            if type(word) is type(data) and word == data:
                return word
        if data in later:
            return self.wrong(path, f'"{data}" is not available yet', "later")
        return self.wrong(
            path, f'unknown word "{spell(data)}"{did_you_mean(spell(data), [spell(w) for w in words])}'
        )

    def _written(self, declared: Any, data: str, path: DataPath) -> Any:
        try:
            return declared.parse(data)
        except ValueError as error:
            return self.wrong(path, str(error))

    def _limited(self, declared: Any, data: Any, path: DataPath) -> Any:
        for limit in limits(declared):
            for sign, name, holds in _LIMITS:
                bound = getattr(limit, sign)
                if bound is not None and not holds(data, bound):
                    return self.wrong(path, f"expected {name} {bound}, saw {saw(data)}")
            if limit.min_length is not None and len(data) < limit.min_length:
                return self.wrong(path, f"expected {describe(declared)}, not empty")
        return data

    def _sequence(self, declared: Any, data: list[Any], path: DataPath) -> Any:
        inner = split(declared)[0]
        item = get_args(inner)[0]
        found = [self.value(item, value, (*path, index)) for index, value in enumerate(data)]
        if self._limited(declared, data, path) is _WRONG or any(value is _WRONG for value in found):
            return _WRONG
        return tuple(found) if get_origin(inner) is tuple else found

    def _mapping(self, declared: Any, data: dict[str, Any], path: DataPath) -> Any:
        found = {
            key: self.value(get_args(split(declared)[0])[1], value, (*path, key))
            for key, value in data.items()
        }
        if self._limited(declared, data, path) is _WRONG:
            return _WRONG
        return _WRONG if any(value is _WRONG for value in found.values()) else found

    def _tagged(self, declared: Any, structs: list[Any], data: dict[str, Any], path: DataPath) -> Any:
        """Choose by the tag. Its key has one name in all members of a union: msgspec's rule, and ours."""
        kinds = {tag.value: split(part)[0] for part in structs if (tag := tag_of(split(part)[0])) is not None}
        field = _tag_field(structs)
        if field not in data:
            return self._no_tag(field, list(kinds), data, path)
        word = data[field]
        if word is UNKNOWN:
            return _WRONG
        if isinstance(word, str) and word in kinds:
            return self._struct(kinds[word], data, path)
        here = (*path, field)
        if isinstance(word, str) and word in later_words(declared):
            return self.wrong(here, f'"{field}: {word}" is not available yet', "later")
        if not isinstance(word, str):
            return self.wrong(here, f"expected one of {', '.join(kinds)}, saw {saw(word)}")
        return self.wrong(here, f'unknown {field} "{word}"{did_you_mean(word, list(kinds))}')

    def _no_tag(self, field: str, kinds: list[str], data: dict[str, Any], path: DataPath) -> _Wrong:
        for key in data:
            if nearest(key, [field]):
                return self.wrong((*path, key), f'unknown key "{key}", did you mean "{field}"?', key=True)
        return self.wrong(path, f'missing key "{field}" (one of: {", ".join(kinds)})')

    def _struct(self, struct: type[msgspec.Struct], data: dict[str, Any], path: DataPath) -> Any:
        fields = {field.key: field for field in fields_of(struct)}
        tag = tag_of(struct)
        known = [*([tag.field] if tag else []), *fields]
        before = len(self.mistakes)
        meant = {self._unknown_key(struct, key, known, data, path) for key in data if key not in known}
        found = {
            field.name: self._member(field, data[key], (*path, key))
            for key, field in fields.items()
            if key in data
        }
        self._missing(fields, data, meant, path)
        if len(self.mistakes) > before or any(value is _WRONG for value in found.values()):
            return _WRONG
        try:
            self.made[path] = struct(**found)
            return self.made[path]
        except (ValueError, TypeError) as error:
            return self.wrong(path, str(error))

    def _member(self, field: Field, data: Any, path: DataPath) -> Any:
        if data is None and field.is_left_out:
            return self.wrong(path, f'"{field.key}" is blank: give it a value, or leave it out', key=True)
        return self.value(field.type, data, path)

    def _missing(
        self, fields: dict[str, Field], data: dict[str, Any], meant: set[str | None], path: DataPath
    ) -> None:
        for key, field in fields.items():
            if field.required and key not in data and key not in meant:
                self.wrong(path, f'missing key "{key}"', key=bool(path))

    def _unknown_key(
        self, struct: type[msgspec.Struct], key: str, known: list[str], data: dict[str, Any], path: DataPath
    ) -> str | None:
        """Record an unknown key; return the known one it was probably meant to be."""
        here = (*path, key)
        if key in later_keys(struct).words:
            self.wrong(here, f'"{key}" is not available yet', "later", key=True)
            return None
        free = [word for word in known if word not in data]
        near = nearest(key, free)
        hint = f', did you mean "{near}"?' if near else did_you_mean(key, known)
        self.wrong(here, f'unknown key "{key}"{hint}', key=True)
        return near


def _tag_field(structs: list[Any]) -> str:
    tag = tag_of(split(structs[0])[0])
    return tag.field if tag else ""


def _sort(data: object) -> Any:
    return type(data)


@cache
def _fitting(declared: Any, kind: type) -> tuple[list[Any], list[Any]]:
    """Return the members of a type that take data of that sort, before looking inside.

    And the tagged ones.
    """
    fitting = [part for part in branches(declared) if _fits(part, kind)]
    return fitting, [part for part in fitting if is_struct(part) and tag_of(split(part)[0])]


def _fits(declared: Any, kind: type) -> bool:
    inner = split(declared)[0]
    words = words_of(declared)
    if words is not None:
        return any(type(word) is kind for word in words)
    if is_open(declared):
        return True
    if is_struct(declared) or get_origin(inner) is dict:
        return kind is dict
    if get_origin(inner) in (list, tuple):
        return kind is list
    if inner is float:
        return kind in (int, float)
    return kind is (str if is_written(declared) else type(None) if inner is None else inner)


def _holds_unknown(data: Any) -> bool:
    return data is UNKNOWN or any(_holds_unknown(value) for _, value in inside(data))
