"""Plain values: how they are shown to people, compared as JSON, and searched for text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lmos_actors.files import is_list, is_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.files import DataPath

_LONGEST = 200


def show(value: object) -> str:
    """Return a value as text for people, shortened if it is long."""
    text = _text(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def is_shown_whole(value: object) -> bool:
    """Return whether a value is short enough to be shown as a whole."""
    return len(_text(value)) <= _LONGEST


def _text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def same(left: object, right: object) -> bool:
    """Return whether two plain values are equal as JSON: 1 equals 1.0, but true does not equal 1."""
    if is_mapping(left) and is_mapping(right):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if is_list(left) and is_list(right):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def holds(whole: object, part: object) -> bool:
    """Return whether `whole` contains `part`.

    Text contains its substrings. A list contains `part` if an item equals it or, for mappings, contains it. A
    mapping contains another one if it has each member of that mapping, with a value that equals or contains
    the value there.
    """
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if is_list(whole):
        return any(same(item, part) or (is_mapping(item) and holds(item, part)) for item in whole)
    if is_mapping(whole) and is_mapping(part):
        return all(
            key in whole and (same(whole[key], want) or _deeper(whole[key], want))
            for key, want in part.items()
        )
    return False


def _deeper(whole: object, part: object) -> bool:
    return is_mapping(whole) and is_mapping(part) and holds(whole, part)


def texts_at(value: str | Iterable[str], path: DataPath) -> Iterator[tuple[str, DataPath]]:
    """Yield a text and its place, or each text in a list of several with its place."""
    if isinstance(value, str):
        yield value, path
    else:
        yield from ((text, (*path, index)) for index, text in enumerate(value))
