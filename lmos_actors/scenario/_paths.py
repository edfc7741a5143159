"""JSON paths (RFC 9535) and regular expressions as files use them."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any


@cache
def _environment() -> Any:
    from jsonpath import JSONPathEnvironment  # late: it takes long, and many files need none

    return JSONPathEnvironment(strict=True)


@lru_cache(maxsize=1_000)
def _compiled(path: str) -> Any:
    return _environment().compile(path)


def path_problem(path: str) -> str | None:
    """Say what is wrong with a JSON path, or None."""
    if not path.startswith("$"):
        return f'"{path}" is not a JSON path: it begins with $, as in $.output'
    from jsonpath import JSONPathError

    try:
        _compiled(path)
    except JSONPathError as error:
        # The library's own text draws the path again, and fails for some of them.
        reason = str(error.args[0]) if error.args else "malformed"
        return f'"{path}" is not a JSON path: {reason}'
    return None


def regex_problem(pattern: str) -> str | None:
    """Say what is wrong with a regular expression, or None."""
    try:
        re.compile(pattern)
    except RecursionError:
        return "the regular expression is nested too deeply"
    except (re.error, OverflowError) as error:
        return f'"{pattern}" is not a regular expression: {error}'
    return None


def select(path: str, value: Any) -> list[Any]:
    """Give the parts of a value that a path, already found good, leads to; none if it leads nowhere."""
    return list(_compiled(path).findall(value))


def pick(path: str, value: Any) -> Any:
    """Give the one part that a path leads to. Raises LookupError for none and for several."""
    found = select(path, value)
    if len(found) != 1:
        raise LookupError(f"{path} leads to {len(found)} values" if found else f"there is nothing at {path}")
    return found[0]
