"""Decoder of plain data into closed structs, which finds every mistake at its place.

msgspec's decoder is faster, but stops at the first mistake and leaves mapping keys out of its paths. Files
are small, so the type is walked next to the data, and the structs are built on the way. What it keeps true:

- **Closed**: unknown keys are mistakes, with the nearest known key as a hint.
- **All mistakes at once, none that follows from another.** An invalid part decodes to `_INVALID`, and the
  parts around it become invalid without a further mistake. A misspelt required key is reported as misspelt,
  not also as missing (`meant_keys`).
- **No conversions.** `"5"` is not a number and `1` not true; only an integer is accepted as a float.
- **A mistake concerns the right alternative.** In a union the tag chooses; without tags each alternative is
  tried, and if none fits, the mistakes of the nearest struct are reported.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, get_args, get_origin

import attrs

from lmos_actors.errors import hint_at, nearest

from ._document import Document, read
from ._source import FileError, did_you_mean, in_order
from ._tree import inside, is_list, is_mapping
from ._types import (
    Field,
    branches,
    describe,
    description_of,
    fields_of,
    has_text_form,
    is_open,
    is_quantity,
    is_struct,
    later_keys,
    later_words,
    limits,
    split,
    tag_of,
    words_of,
    written_form,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import msgspec

    from ._source import DataPath, Kind, Mistake
    from ._tree import Note

T = TypeVar("T")


_LARGEST_INTEGER = 10**300
_LIMITS: Final = (
    ("ge", "at least", operator.ge),
    ("gt", "more than", operator.gt),
    ("le", "at most", operator.le),
    ("lt", "less than", operator.lt),
)


class _Invalid:
    """Type of `_INVALID`, the result of a part with a mistake."""


_INVALID: Final = _Invalid()


class Unknown:
    """Type of `UNKNOWN`."""


UNKNOWN: Final = Unknown()
"""Stands in data for a value that could not be computed, with its mistake already recorded."""


@attrs.frozen
class Loaded(Generic[T]):
    """Valid file: its value, the document with places, and warnings."""

    value: T
    document: Document
    notes: tuple[Note, ...]


def load(path: str | os.PathLike[str], declared: type[T], *, limit: int | None = None) -> Loaded[T]:
    """Return a decoded file. Blocks on the disk. Raises FileError with all mistakes."""
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
    """Return the decoded value, or None, and the mistakes of a document, or of `data` in its place.

    The mistakes include those of reading. With `at`, `data` is the part at that path, and only its mistakes
    are returned. A part that is `UNKNOWN` is invalid without a further mistake. `made` collects every valid
    struct by its path, also where the whole is invalid.
    """
    walk = _Walk(document, made)
    value = walk.value(declared, document.data if data is UNKNOWN and not at else data, at)
    mistakes = in_order(walk.mistakes if at else [*document.mistakes, *walk.mistakes])
    return (None if mistakes or value is _INVALID else value), mistakes


def _key_for_any(takes: Iterable[Any]) -> str | None:
    """Return the first key of the first struct whose first key takes any data, such as `eq`; else None."""
    for part in takes:
        first = fields_of(split(part)[0])[:1] if is_struct(part) else ()
        if first and any(is_open(each) for each in branches(first[0].type)):
            return first[0].key
    return None


class _Walk:
    def __init__(self, document: Document, made: dict[DataPath, Any] | None) -> None:
        self.document = document
        self.mistakes: list[Mistake] = []
        self.made = {} if made is None else made

    def add_mistake(
        self, path: DataPath, message: str, kind: Kind = "shape", *, key: bool = False
    ) -> _Invalid:
        self.mistakes.append(self.document.mistake(path, message, kind, key=key))
        return _INVALID

    def value(self, declared: Any, data: Any, path: DataPath) -> Any:
        if data is UNKNOWN:
            return _INVALID
        kind: Any = type(data)  # pyright: ignore[reportUnknownVariableType]
        choice = _choice_of(declared, kind)
        if not choice.candidates:
            return self._mismatch(declared, data, path)
        if data is None and not is_open(choice.candidates[0]):
            return None
        if choice.kinds and is_mapping(data):
            return self._tagged(choice, data, path)
        return self._one_of(declared, choice, data, path)

    def _one_of(self, declared: Any, choice: _Choice, data: Any, path: DataPath) -> Any:
        candidates = choice.candidates
        if len(candidates) == 1:
            return self._branch(candidates[0], data, path, choice.later)
        for part in candidates:
            if is_mapping(data) and is_struct(part) and not _layout_of(split(part)[0]).keys.issuperset(data):
                continue  # what is wrong with it would not be reported
            attempt = _Walk(self.document, self.made)
            value = attempt._branch(part, data, path, frozenset())
            if not attempt.mistakes and value is not _INVALID:
                return value
        if isinstance(data, str) and data in choice.later:
            return self.add_mistake(path, f'"{data}" is not available yet', "later")
        if is_mapping(data) and all(map(is_struct, candidates)):
            return self._mistakes_of_nearest(candidates, data, path)
        words = [word for part in candidates for word in words_of(part) or () if isinstance(word, str)]
        hint = hint_at(str(data), words, '"')
        return self.add_mistake(path, f"expected {describe(declared)}, saw {description_of(data)}{hint}")

    def _mistakes_of_nearest(self, structs: list[Any], data: dict[str, Any], path: DataPath) -> _Invalid:
        """Record the mistakes of one of several structs without tags: the one with the first known key."""
        known = {field.key: struct for struct in structs for field in fields_of(split(struct)[0])}
        for key in data:
            if key in known:
                self._struct(split(known[key])[0], data, path)
                return _INVALID
        for key in data:
            return self.add_mistake((*path, key), f'unknown key "{key}"{did_you_mean(key, known)}', key=True)
        return self.add_mistake(path, f"expected one of the keys {', '.join(known)}")

    def _mismatch(self, declared: Any, data: object, path: DataPath) -> _Invalid:
        hint = ""
        takes = branches(declared)
        if any(is_quantity(part) for part in takes) and type(data) in (int, float):
            hint = "; the unit is missing"
        elif any(split(part)[0] is str for part in takes) and not (is_mapping(data) or is_list(data)):
            hint = "; put it in quotes" if data is not None else ""
        elif is_list(data) and (key := _key_for_any(takes)) is not None:
            hint = f"; write {{{key}: [...]}}"
        return self.add_mistake(path, f"expected {describe(declared)}, saw {description_of(data)}{hint}")

    def _branch(self, declared: Any, data: Any, path: DataPath, later: frozenset[str]) -> Any:
        form = _form_of(declared)
        inner = form.inner
        if form.words is not None:
            return self._word(form.words, data, path, later)
        if form.is_struct:
            return self._struct(inner, data, path)
        if form.has_text_form:
            return self._written(declared, data, path)
        if form.origin is dict:
            return self._mapping(declared, data, path)
        if form.origin in (list, tuple):
            return self._sequence(declared, data, path)
        if form.is_open:
            return _INVALID if _holds_unknown(data) else data
        if inner is float and abs(data) > _LARGEST_INTEGER:
            return self.add_mistake(path, f"{description_of(data)} is too large")
        return self._limited(declared, float(data) if inner is float else data, path)

    def _word(self, words: tuple[Any, ...], data: Any, path: DataPath, later: frozenset[str]) -> Any:
        for word in words:
            if type(word) is type(data) and word == data:
                return word
        if data in later:
            return self.add_mistake(path, f'"{data}" is not available yet', "later")
        written = written_form(data)
        hint = did_you_mean(written, [written_form(word) for word in words])
        return self.add_mistake(path, f'unknown word "{written}"{hint}')

    def _written(self, declared: Any, data: str, path: DataPath) -> Any:
        form = split(declared)[0]
        try:
            value = form.parse(data)
        except ValueError as error:
            return self.add_mistake(path, str(error))
        for limit in limits(declared):
            for sign, name, holds in _LIMITS:
                bound = getattr(limit, sign)
                if bound is not None and not holds(value, bound):
                    return self.add_mistake(path, f"expected {name} {form(bound)}, saw {value}")
        return value

    def _limited(self, declared: Any, data: Any, path: DataPath) -> Any:
        for limit in limits(declared):
            for sign, name, holds in _LIMITS:
                bound = getattr(limit, sign)
                if bound is not None and not holds(data, bound):
                    return self.add_mistake(path, f"expected {name} {bound}, saw {description_of(data)}")
            least, most = limit.min_length, limit.max_length
            if least is not None and len(data) < least:
                if least == 1:
                    return self.add_mistake(path, f"expected {describe(declared)}, not empty")
                word = "exactly" if least == most else "at least"
                return self.add_mistake(path, f"expected {word} {least} of them, saw {len(data)}")
            if most is not None and len(data) > most:
                word = "exactly" if least == most else "at most"
                return self.add_mistake(path, f"expected {word} {most} of them, saw {len(data)}")
        return data

    def _sequence(self, declared: Any, data: list[Any], path: DataPath) -> Any:
        form = _form_of(declared)
        item = form.args[0]
        found = [self.value(item, value, (*path, index)) for index, value in enumerate(data)]
        if self._limited(declared, data, path) is _INVALID or any(value is _INVALID for value in found):
            return _INVALID
        return tuple(found) if form.origin is tuple else found

    def _mapping(self, declared: Any, data: dict[str, Any], path: DataPath) -> Any:
        inner = _form_of(declared).args[1]
        found = {key: self.value(inner, value, (*path, key)) for key, value in data.items()}
        if self._limited(declared, data, path) is _INVALID:
            return _INVALID
        return _INVALID if any(value is _INVALID for value in found.values()) else found

    def _tagged(self, choice: _Choice, data: dict[str, Any], path: DataPath) -> Any:
        """Decode by the tag, whose key is the same in all members of a union (msgspec demands that)."""
        kinds, field = choice.kinds, choice.tag_field
        if field not in data:
            near = next((key for key in data if nearest(key, [field])), None)
            if near is None:
                return self.add_mistake(path, f'missing key "{field}" (one of: {", ".join(kinds)})')
            hint = f', did you mean "{field}"?'
            return self.add_mistake((*path, near), f'unknown key "{near}"{hint}', key=True)
        word = data[field]
        if word is UNKNOWN:
            return _INVALID
        if isinstance(word, str) and word in kinds:
            return self._struct(kinds[word], data, path)
        here = (*path, field)
        if isinstance(word, str) and word in choice.later:
            return self.add_mistake(here, f'"{field}: {word}" is not available yet', "later")
        if not isinstance(word, str):
            return self.add_mistake(here, f"expected one of {', '.join(kinds)}, saw {description_of(word)}")
        return self.add_mistake(here, f'unknown {field} "{word}"{did_you_mean(word, list(kinds))}')

    def _struct(self, struct: type[msgspec.Struct], data: dict[str, Any], path: DataPath) -> Any:
        layout = _layout_of(struct)
        fields = layout.fields
        before = len(self.mistakes)
        meant_keys = {
            self._unknown_key(struct, key, layout.known, data, path) for key in data if key not in layout.keys
        }
        found = {
            field.name: self._member(field, data[key], (*path, key))
            for key, field in fields.items()
            if key in data
        }
        for key, field in fields.items():
            if field.required and key not in data and key not in meant_keys:
                self.add_mistake(path, f'missing key "{key}"', key=bool(path))
        if len(self.mistakes) > before or any(value is _INVALID for value in found.values()):
            return _INVALID
        try:
            self.made[path] = struct(**found)
            return self.made[path]
        except (ValueError, TypeError) as error:
            return self.add_mistake(path, str(error))

    def _member(self, field: Field, data: Any, path: DataPath) -> Any:
        if data is None and field.is_left_out:
            return self.add_mistake(
                path, f'"{field.key}" is blank: give it a value, or leave it out', key=True
            )
        return self.value(field.type, data, path)

    def _unknown_key(
        self,
        struct: type[msgspec.Struct],
        key: str,
        known: tuple[str, ...],
        data: dict[str, Any],
        path: DataPath,
    ) -> str | None:
        """Record an unknown key. Return the known key that was probably meant, else None."""
        here = (*path, key)
        if key in later_keys(struct).words:
            self.add_mistake(here, f'"{key}" is not available yet', "later", key=True)
            return None
        free = [word for word in known if word not in data]
        near = nearest(key, free)
        hint = f', did you mean "{near}"?' if near else did_you_mean(key, known)
        self.add_mistake(here, f'unknown key "{key}"{hint}', key=True)
        return near


# ---- facts about a type, found together: hashing most types means hashing all that is in them


@attrs.frozen
class _Choice:
    """The members of a type that accept data of a Python type."""

    candidates: list[Any]
    kinds: dict[str, Any]
    """The tagged structs among them, by the words of their tags; `tag_field` is the key of the tags."""
    tag_field: str
    later: frozenset[str]


@attrs.frozen
class _Form:
    """One member of a type."""

    inner: Any
    origin: Any
    args: tuple[Any, ...]
    words: tuple[Any, ...] | None
    is_struct: bool
    has_text_form: bool
    is_open: bool


@attrs.frozen
class _Layout:
    """The keys of a struct: `known` are all in order, with its tag; `keys` are the same as a set."""

    fields: dict[str, Field]
    known: tuple[str, ...]
    keys: frozenset[str]


@cache
def _form_of(declared: Any) -> _Form:
    inner = split(declared)[0]
    return _Form(
        inner, get_origin(inner), get_args(inner), words_of(declared), is_struct(declared),
        has_text_form(declared), is_open(declared),
    )  # fmt: skip


@cache
def _layout_of(struct: type[msgspec.Struct]) -> _Layout:
    fields, tag = {field.key: field for field in fields_of(struct)}, tag_of(struct)
    known = (*([tag.field] if tag else []), *fields)
    return _Layout(fields, known, frozenset(known))


@cache
def _choice_of(declared: Any, kind: type) -> _Choice:
    """Return the members of a type that accept data of a Python type.

    Only the outermost type is compared, so that the result can be cached.
    """
    candidates = [part for part in branches(declared) if _fits(part, kind)]
    structs = [split(part)[0] for part in candidates if is_struct(part)]
    tags = {struct: tag for struct in structs if (tag := tag_of(struct)) is not None}
    field = next((tag.field for tag in tags.values()), "")
    return _Choice(
        candidates, {tag.value: struct for struct, tag in tags.items()}, field, later_words(declared)
    )


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
    return kind is (str if has_text_form(declared) else type(None) if inner is None else inner)


def _holds_unknown(data: Any) -> bool:
    return data is UNKNOWN or any(_holds_unknown(value) for _, value in inside(data))
