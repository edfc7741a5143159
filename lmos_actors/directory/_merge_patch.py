"""JSON merge patches (RFC 7396): application to a value, and computation from two values."""

from __future__ import annotations

from typing import Any, Final

from lmos_actors.discovery import is_array, is_object

MAX_DEPTH: Final = 48
"""Limit of the nesting of descriptions and patches."""


class TooDeep(ValueError):
    """Value nested deeper than `MAX_DEPTH`."""


def merged(target: Any, patch: Any, room: int = MAX_DEPTH) -> Any:
    """Return a patched value; neither argument is changed. Raises TooDeep."""
    if not is_object(patch):
        return patch
    if not room:
        raise TooDeep(f"nested deeper than {MAX_DEPTH}")
    result = dict(target) if is_object(target) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value, room - 1)
    return result


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the patch from `before` to `after`; null members count as absent, as no patch can set them."""
    patch: dict[str, Any] = {name: None for name in before if after.get(name) is None}
    for name, value in after.items():
        old = before.get(name)
        if value is None or same(old, value):
            continue
        patch[name] = difference(old, value) if is_object(old) and is_object(value) else value
    return patch


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; true differs from 1, and the order of members is ignored."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def check_depth(value: Any, room: int = MAX_DEPTH) -> None:
    """Raise TooDeep for a value nested deeper than `room`."""
    if not is_object(value) and not is_array(value):
        return
    if not room:
        raise TooDeep(f"nested deeper than {MAX_DEPTH}")
    for each in value.values() if is_object(value) else value:
        check_depth(each, room - 1)
