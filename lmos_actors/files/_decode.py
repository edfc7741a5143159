"""Decoder of plain data into closed structs that reports every mistake with its place.

msgspec's decoder is faster, but it stops at the first mistake and leaves mapping keys out of its paths. Files
are small, so this decoder walks the type and the data in parallel and builds the structs on the way.
Guarantees:

- **Closed**: unknown keys are mistakes; the message suggests the nearest known key.
- **All mistakes at once, but no consequential ones.** An invalid part decodes to `_INVALID`, and the
  parts around it become invalid without a further mistake. A misspelt required key is reported as
  misspelt, not also as missing (`meant_keys`).
- **No conversions.** `"5"` is not a number and `1` is not true. The only exception is that an integer
  is accepted as a float.
- **Mistakes in a union are reported for the right alternative.** The tag selects it. Without tags each
  alternative is tried, and if none fits, the mistakes of the nearest struct are reported.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from lmos_actors.errors import hint_at, nearest

from ._document import Document, read
from ._source import FileError, did_you_mean, in_order
from ._tree import is_list, is_mapping
from ._types import describe, description_of, fields_of, form_of, later_keys, tag_of, written_form

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import msgspec

    from ._source import DataPath, Kind, Mistake
    from ._tree import Note
    from ._types import Field, Form

T = TypeVar("T")


_LARGEST_INTEGER = 10**300
_LIMITS: Final = (
    ("ge", "at least", operator.ge),
    ("gt", "more than", operator.gt),
    ("le", "at most", operator.le),
    ("lt", "less than", operator.lt),
)


class _Invalid:
    """The type of `_INVALID`, the value to which a part with a mistake decodes."""


_INVALID: Final = _Invalid()


class Unknown:
    """Type of `UNKNOWN`."""


UNKNOWN: Final = Unknown()
"""Stands in data for a value that could not be computed, with its mistake already recorded."""


@attrs.frozen
class Loaded(Generic[T]):
    """A valid file: the decoded value, the document with its places, and the warnings."""

    value: T
    document: Document
    notes: tuple[Note, ...]


def load(path: str | os.PathLike[str], declared: type[T], *, limit: int | None = None) -> Loaded[T]:
    """Read and decode a file. Blocks on the disk. Raises FileError with all mistakes."""
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
    """Decode a document, or only `data`. Return the value, or None, and all mistakes.

    The mistakes include those found while the document was read. With `at`, `data` is the part of the
    document at that path, and only the mistakes of this part are returned. A part that is `UNKNOWN` is
    invalid without a further mistake. `made` collects every valid struct by its path, even if the document as
    a whole is invalid.
    """
    walk = _Walk(document, made)
    value = walk.value(form_of(declared), document.data if data is UNKNOWN and not at else data, at)
    mistakes = in_order(walk.mistakes if at else [*document.mistakes, *walk.mistakes])
    return (None if mistakes or value is _INVALID else value), mistakes


def _key_for_any(takes: Iterable[Form]) -> str | None:
    """Return the first key, such as `eq`, of the first struct whose first key accepts any data, or None."""
    for part in takes:
        first = fields_of(part.inner)[:1] if part.is_struct else ()
        if first and first[0].form.is_open:
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

    def value(self, form: Form, data: Any, path: DataPath) -> Any:
        if data is UNKNOWN:
            return _INVALID
        kind: Any = type(data)  # pyright: ignore[reportUnknownVariableType]
        choice: _Choice = form.choices.get(kind) or _choice_of(form, kind)
        candidates = choice.candidates
        if not candidates:
            return self._mismatch(form, data, path)
        if choice.kinds and kind is dict:
            return self._tagged(choice, data, path)
        if data is None and not candidates[0].is_open:
            return None
        if len(candidates) == 1:
            return self._branch(candidates[0], data, path, choice.later)
        return self._one_of(form, choice, data, path)

    def _one_of(self, form: Form, choice: _Choice, data: Any, path: DataPath) -> Any:
        candidates = choice.candidates
        for part in candidates:
            if is_mapping(data) and part.is_struct and not _layout_of(part.inner).keys.issuperset(data):
                continue  # what is wrong with it would not be reported
            attempt = _Walk(self.document, self.made)
            value = attempt._branch(part, data, path, frozenset())
            if not attempt.mistakes and value is not _INVALID:
                return value
        if isinstance(data, str) and data in choice.later:
            return self.add_mistake(path, f'"{data}" is not available yet', "later")
        if is_mapping(data) and all(part.is_struct for part in candidates):
            return self._mistakes_of_nearest(candidates, data, path)
        words = [word for part in candidates for word in part.literals or () if isinstance(word, str)]
        hint = hint_at(str(data), words, '"')
        return self.add_mistake(path, f"expected {describe(form)}, saw {description_of(data)}{hint}")

    def _mistakes_of_nearest(self, structs: list[Form], data: dict[str, Any], path: DataPath) -> _Invalid:
        """Record the mistakes of the untagged struct that declares the first known key of `data`."""
        known = {field.key: each.inner for each in structs for field in fields_of(each.inner)}
        for key in data:
            if key in known:
                self._struct(known[key], data, path)
                return _INVALID
        for key in data:
            return self.add_mistake((*path, key), f'unknown key "{key}"{did_you_mean(key, known)}', key=True)
        return self.add_mistake(path, f"expected one of the keys {', '.join(known)}")

    def _mismatch(self, form: Form, data: object, path: DataPath) -> _Invalid:
        hint = ""
        takes = form.branches
        if any(part.is_quantity for part in takes) and type(data) in (int, float):
            hint = "; the unit is missing"
        elif any(part.inner is str for part in takes) and not (is_mapping(data) or is_list(data)):
            hint = "; put it in quotes" if data is not None else ""
        elif is_list(data) and (key := _key_for_any(takes)) is not None:
            hint = f"; write {{{key}: [...]}}"
        return self.add_mistake(path, f"expected {describe(form)}, saw {description_of(data)}{hint}")

    def _branch(self, form: Form, data: Any, path: DataPath, later: frozenset[str]) -> Any:
        inner = form.inner
        if form.literals is not None:
            return self._word(form.literals, data, path, later)
        if form.is_struct:
            return self._struct(inner, data, path)
        if form.has_text_form:
            return self._written(form, data, path)
        if form.origin is dict:
            return self._mapping(form, data, path)
        if form.origin in (list, tuple):
            return self._sequence(form, data, path)
        if form.is_open:
            return _INVALID if _holds_unknown(data) else data
        if inner is float and abs(data) > _LARGEST_INTEGER:
            return self.add_mistake(path, f"{description_of(data)} is too large")
        value = float(data) if inner is float else data
        return self._limited(form, value, path) if form.limits else value

    def _word(self, words: tuple[Any, ...], data: Any, path: DataPath, later: frozenset[str]) -> Any:
        for word in words:
            if type(word) is type(data) and word == data:
                return word
        if data in later:
            return self.add_mistake(path, f'"{data}" is not available yet', "later")
        written = written_form(data)
        hint = did_you_mean(written, [written_form(word) for word in words])
        return self.add_mistake(path, f'unknown word "{written}"{hint}')

    def _written(self, form: Form, data: str, path: DataPath) -> Any:
        try:
            value = form.inner.parse(data)
        except ValueError as error:
            return self.add_mistake(path, str(error))
        for limit in form.limits:
            for sign, name, holds in _LIMITS:
                bound = getattr(limit, sign)
                if bound is not None and not holds(value, bound):
                    return self.add_mistake(path, f"expected {name} {form.inner(bound)}, saw {value}")
        return value

    def _limited(self, form: Form, data: Any, path: DataPath) -> Any:
        for limit in form.limits:
            for sign, name, holds in _LIMITS:
                bound = getattr(limit, sign)
                if bound is not None and not holds(data, bound):
                    return self.add_mistake(path, f"expected {name} {bound}, saw {description_of(data)}")
            least, most = limit.min_length, limit.max_length
            if least is not None and len(data) < least:
                if least == 1:
                    return self.add_mistake(path, f"expected {describe(form)}, not empty")
                word = "exactly" if least == most else "at least"
                return self.add_mistake(path, f"expected {word} {least} of them, saw {len(data)}")
            if most is not None and len(data) > most:
                word = "exactly" if least == most else "at most"
                return self.add_mistake(path, f"expected {word} {most} of them, saw {len(data)}")
        return data

    def _sequence(self, form: Form, data: list[Any], path: DataPath) -> Any:
        item = form_of(form.args[0])
        found = [self.value(item, value, (*path, index)) for index, value in enumerate(data)]
        if (form.limits and self._limited(form, data, path) is _INVALID) or _INVALID in found:
            return _INVALID
        return tuple(found) if form.origin is tuple else found

    def _mapping(self, form: Form, data: dict[str, Any], path: DataPath) -> Any:
        item = form_of(form.args[1])
        found = {key: self.value(item, value, (*path, key)) for key, value in data.items()}
        if (form.limits and self._limited(form, data, path) is _INVALID) or _INVALID in found.values():
            return _INVALID
        return found

    def _tagged(self, choice: _Choice, data: dict[str, Any], path: DataPath) -> Any:
        """Decode by the tag. All members of a union have the same tag key (msgspec requires this)."""
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
        found: dict[str, Any] = {}
        for key, field in fields.items():
            if key not in data:
                continue
            if data[key] is None and field.is_left_out:
                why = f'"{key}" is blank: give it a value, or leave it out'
                found[field.name] = self.add_mistake((*path, key), why, key=True)
            else:
                found[field.name] = self.value(field.form, data[key], (*path, key))
        for key, field in fields.items():
            if field.required and key not in data and key not in meant_keys:
                self.add_mistake(path, f'missing key "{key}"', key=bool(path))
        if len(self.mistakes) > before or _INVALID in found.values():
            return _INVALID
        try:
            self.made[path] = struct(**found)
            return self.made[path]
        except (ValueError, TypeError) as error:
            return self.add_mistake(path, str(error))

    def _unknown_key(
        self,
        struct: type[msgspec.Struct],
        key: str,
        known: tuple[str, ...],
        data: dict[str, Any],
        path: DataPath,
    ) -> str | None:
        """Record an unknown key. Return the known key that was probably meant, or None."""
        here = (*path, key)
        if key in later_keys(struct).words:
            self.add_mistake(here, f'"{key}" is not available yet', "later", key=True)
            return None
        free = [word for word in known if word not in data]
        near = nearest(key, free)
        hint = f', did you mean "{near}"?' if near else did_you_mean(key, known)
        self.add_mistake(here, f'unknown key "{key}"{hint}', key=True)
        return near


# ---- facts about a type, found together


@attrs.frozen
class _Choice:
    """The members of a declared type that accept data of one Python type."""

    candidates: list[Form]
    kinds: dict[str, Any]
    """The tagged structs among them, by the words of their tags; `tag_field` is the key of the tags."""
    tag_field: str
    later: frozenset[str]


@attrs.frozen
class _Layout:
    """The keys of a struct: `known` lists all of them in order, with the tag's key; `keys` is their set."""

    fields: dict[str, Field]
    known: tuple[str, ...]
    keys: frozenset[str]


@cache
def _layout_of(struct: type[msgspec.Struct]) -> _Layout:
    fields, tag = {field.key: field for field in fields_of(struct)}, tag_of(struct)
    known = (*([tag.field] if tag else []), *fields)
    return _Layout(fields, known, frozenset(known))


def _choice_of(form: Form, kind: type) -> _Choice:
    """Return the members of a type that accept data of a Python type; `form` caches the result."""
    candidates = [part for part in form.branches if part.takes is None or kind in part.takes]
    kinds: dict[str, Any] = {}
    tag_field = ""
    for part in candidates:
        if part.is_struct and (tag := tag_of(part.inner)) is not None:
            kinds[tag.value] = part.inner
            tag_field = tag_field or tag.field
    choice = form.choices[kind] = _Choice(candidates, kinds, tag_field, form.later)
    return choice


def _holds_unknown(data: Any) -> bool:
    rest = [data]
    while rest:
        part = rest.pop()
        if part is UNKNOWN:
            return True
        kind: Any = type(part)  # pyright: ignore[reportUnknownVariableType]
        if kind is dict:
            rest += part.values()
        elif kind is list:
            rest += part
    return False
