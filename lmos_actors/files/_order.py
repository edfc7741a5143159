"""Canonical order of the keys in a file, by the structs that it is decoded into; `lmos-actors fmt` writes it.

Nothing is refused here: a mapping that fits no struct keeps the order of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

from ._tree import is_list, is_mapping
from ._types import branches, fields_of, is_struct, split, tag_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._source import DataPath


def key_orders(declared: Any, data: object, words: Sequence[str]) -> dict[DataPath, list[str]]:
    """Return the ordered keys of every mapping that is a struct, by its path.

    Keys in `words` come first in every mapping, in that order (`id` before `kind` and so on); then the
    struct's other keys in the order of declaration, then unknown ones. Open mappings, and those with names as
    keys, are left out: they keep the order of the file.
    """
    found: dict[DataPath, list[str]] = {}
    _walk(declared, data, (), {word: place for place, word in enumerate(words)}, found)
    return found


def _walk(
    declared: Any, data: object, path: DataPath, words: Mapping[str, int], found: dict[DataPath, list[str]]
) -> None:
    if is_mapping(data):
        struct = _struct(declared, data)
        if struct is not None:
            found[path] = _keys(struct, data, words)
        types = _types(struct, declared)
        for key, value in data.items():
            _walk(types.get(key, types.get("", object)), value, (*path, key), words, found)
    elif is_list(data):
        inner = _item(declared)
        for index, value in enumerate(data):
            _walk(inner, value, (*path, index), words, found)


def _struct(declared: Any, data: Mapping[str, Any]) -> Any:
    """Return the struct of a mapping: by its tag, else the one with most of its keys; None without any."""
    known = [split(part)[0] for part in branches(declared) if is_struct(part)]
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


def _types(struct: Any, declared: Any) -> dict[str, Any]:
    """Return the types of a mapping's values by key; the key "" stands for all others."""
    if struct is not None:
        return {field.key: field.type for field in fields_of(struct)}
    of_names = [split(part)[0] for part in branches(declared) if get_origin(split(part)[0]) is dict]
    return {"": get_args(of_names[0])[1]} if of_names else {}


def _item(declared: Any) -> Any:
    for part in branches(declared):
        inner = split(part)[0]
        if get_origin(inner) in (tuple, list):
            return get_args(inner)[0]
    return object
