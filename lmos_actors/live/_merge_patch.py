"""JSON merge patches (RFC 7396): what has changed between two states of a view.

A member that is an object is patched member by member; anything else is replaced as a whole, and `null`
removes a member. So states hold no `null`.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

State: TypeAlias = dict[str, Any]
"""An object of plain data without null."""


def without_null(value: Any) -> Any:
    """Return plain data without the members of its objects that are null."""
    if isinstance(value, dict):
        members = cast("State", value)
        return {name: without_null(item) for name, item in members.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [without_null(item) for item in cast("list[Any]", value)]
    return value


def patch_between(before: State, after: State) -> State:
    """Return the patch that turns one state into another; {} if they are equal."""
    patch: State = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            patch[name] = value
            continue
        known = before[name]
        if known is value or (type(known) is type(value) and known == value):
            continue
        if isinstance(value, dict) and isinstance(known, dict):
            inner = patch_between(cast("State", known), cast("State", value))
            if inner:
                patch[name] = inner
        else:
            patch[name] = value
    return patch


def patched(state: Any, patch: Any) -> Any:
    """Return a new state with a patch applied; both arguments stay unchanged."""
    if not isinstance(patch, dict):
        return patch
    result: State = dict(cast("State", state)) if isinstance(state, dict) else {}
    for name, value in cast("State", patch).items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result
