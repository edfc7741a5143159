"""Canonical order of the keys in a file, taken from its structs; `lmos-actors fmt` writes it.

Nothing is rejected here: a mapping that fits no struct keeps the order of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._tree import is_list, is_mapping
from ._types import Form, fields_of, form_of, tag_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._source import DataPath


def key_orders(declared: Any, data: object, words: Sequence[str]) -> dict[DataPath, list[str]]:
    """Return the ordered keys of every mapping that fits a struct, by the path of the mapping.

    Keys in `words` come first, in that order (`id` before `kind` and so on). The struct's other keys follow
    in the order of declaration, then the unknown keys. Open mappings, and mappings whose keys are names, are
    left out and so keep the order of the file.
    """
    found: dict[DataPath, list[str]] = {}
    _walk(form_of(declared), data, (), {word: place for place, word in enumerate(words)}, found)
    return found


def _walk(
    form: Form, data: object, path: DataPath, words: Mapping[str, int], found: dict[DataPath, list[str]]
) -> None:
    if is_mapping(data):
        struct = _struct(form, data)
        if struct is not None:
            found[path] = _keys(struct, data, words)
        forms = _forms(struct, form)
        for key, value in data.items():
            _walk(forms.get(key, forms.get("", _OPEN)), value, (*path, key), words, found)
    elif is_list(data):
        inner = _item(form)
        for index, value in enumerate(data):
            _walk(inner, value, (*path, index), words, found)


def _struct(form: Form, data: Mapping[str, Any]) -> Any:
    """Return the struct that a mapping fits: by its tag, or else the one with most of its keys, or None."""
    known = [part.inner for part in form.branches if part.is_struct]
    tags = [(tag_of(struct), struct) for struct in known]
    for tag, struct in tags:
        if tag is not None and data.get(tag.field) == tag.value:
            return struct
    plain = [struct for tag, struct in tags if tag is None]
    return max(plain, key=lambda struct: sum(field.key in data for field in fields_of(struct)), default=None)


def _keys(struct: Any, data: Mapping[str, Any], words: Mapping[str, int]) -> list[str]:
    declared = [field.key for field in fields_of(struct)]
    places = {key: len(words) + place for place, key in enumerate(declared)}
    last = len(words) + len(declared)
    known = [key for key in data if key in places or key in words]
    first = sorted(known, key=lambda key: words.get(key, places.get(key, last)))
    return [*first, *(key for key in data if key not in known)]


def _forms(struct: Any, form: Form) -> dict[str, Form]:
    """Return the types of a mapping's values by key; the key "" stands for all others."""
    if struct is not None:
        return {field.key: field.form for field in fields_of(struct)}
    of_names = [part for part in form.branches if part.origin is dict]
    return {"": form_of(of_names[0].args[1])} if of_names else {}


def _item(form: Form) -> Form:
    for part in form.branches:
        if part.origin in (tuple, list):
            return form_of(part.args[0])
    return _OPEN


_OPEN: Final = form_of(object)
