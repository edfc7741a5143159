"""Exceptions by the names that files use for them."""

from __future__ import annotations

import builtins
from functools import cache
from typing import Final

import lmos_actors.errors as errors

NOT_YET: Final = frozenset({"StoreError"})
"""Errors that no present world can cause."""


@cache
def error_names() -> tuple[str, ...]:
    """Return the names that `error: {is: ...}` may have."""
    found = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.AgentError)]
    return tuple(sorted(error.__name__ for error in found if error.__name__ not in NOT_YET))


def exception_class(name: str) -> type[Exception] | None:
    """Return the built-in exception with a name; None if a message alone does not suffice to make it."""
    found = getattr(builtins, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        found("injected")
    except TypeError:
        return None
    return found


@cache
def exception_names() -> tuple[str, ...]:
    """Return the names of all exceptions that a crash may use."""
    return tuple(word for word in vars(builtins) if word[0].isupper() and exception_class(word))
