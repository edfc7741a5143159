"""JSON merge patches (RFC 7396): applied to a value, and made of two."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

DEEPEST: Final = 48
"""Objects and arrays inside one another, in a description and in a patch of one."""


class TooDeep(ValueError):
    """A value is nested deeper than `DEEPEST`."""


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def merged(target: Any, patch: Any, room: int = DEEPEST) -> Any:
    """Return what a patch makes of a value; neither is changed. Raises TooDeep."""
    if not is_object(patch):
        return patch
    if not room:
        raise TooDeep(f"nested deeper than {DEEPEST}")
    result = dict(target) if is_object(target) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value, room - 1)
    return result


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the patch that makes `after` of `before`; no patch says that a member is null: as if absent."""
    patch: dict[str, Any] = {name: None for name in before if after.get(name) is None}
    for name, value in after.items():
        old = before.get(name)
        if value is None or same(old, value):
            continue
        patch[name] = difference(old, value) if is_object(old) and is_object(value) else value
    return patch


def same(one: Any, other: Any) -> bool:
    """Return whether two values are one JSON value.

    True is not 1, and the order of members does not count.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def check_depth(value: Any, room: int = DEEPEST) -> None:
    """Raise TooDeep for what is nested deeper than that."""
    if not is_object(value) and not is_array(value):
        return
    if not room:
        raise TooDeep(f"nested deeper than {DEEPEST}")
    for each in value.values() if is_object(value) else value:
        check_depth(each, room - 1)
