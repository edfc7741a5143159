"""JSON paths (RFC 9535) and regular expressions as files use them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from lmos_actors._core import i_regexp, use_i_regexps

_PLAIN: Final = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:0|[1-9][0-9]{0,8})\])*")
"""Paths of names and indices only, which we follow ourselves: importing the library takes long."""
_PART: Final = re.compile(r"[A-Za-z_]\w*|\d+")
_NOTHING: Final = object()
_SHOWN: Final = 60


@cache
def _environment() -> Any:
    from jsonpath import (
        JSONPathEnvironment,
        JSONPathTypeError,
    )  # late: it takes long, and many files need none
    from jsonpath.filter import StringLiteral

    class Environment(JSONPathEnvironment):
        def setup_function_extensions(self) -> None:
            super().setup_function_extensions()
            use_i_regexps(self)

        def check_well_typedness(self, token: Any, func: Any, args: list[Any]) -> None:
            super().check_well_typedness(token, func, args)
            pattern = args[-1] if token.value in ("match", "search") else None
            if isinstance(pattern, StringLiteral) and i_regexp(pattern.value, whole=True) is None:
                why = f'"{pattern.value[:_SHOWN]}" is not a regular expression of RFC 9485'
                raise JSONPathTypeError(why, token=token)

    return Environment(strict=True)


@lru_cache(maxsize=1_000)
def _compiled(path: str) -> Any:
    return _environment().compile(path)


@lru_cache(maxsize=1_000)
def _parts(path: str) -> tuple[str | int, ...] | None:
    """Return the names and indices of a plain path, or None for any other path."""
    if _PLAIN.fullmatch(path) is None:
        return None
    return tuple([int(part) if part.isdecimal() else part for part in _PART.findall(path)])


def _child(value: Any, part: str | int) -> Any:
    whole: Any = value  # a check of its type would make type checkers ask for more than can be known
    if isinstance(part, str):
        return whole.get(part, _NOTHING) if isinstance(value, Mapping) else _NOTHING
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return whole[part] if listed and part < len(whole) else _NOTHING


def path_problem(path: str) -> str | None:
    """Return the mistake in a JSON path, or None."""
    if not path.startswith("$"):
        return f'"{path}" is not a JSON path: it begins with $, as in $.output'
    if _parts(path) is not None:
        return None
    from jsonpath import JSONPathError

    try:
        _compiled(path)
    except (RecursionError, ValueError):  # a number of thousands of digits
        return f'"{path[:_SHOWN]}..." is not a JSON path: it is too deep, or has too large a number'
    except JSONPathError as error:
        # The library's own text prints the path again, and fails for some paths.
        reason = str(error.args[0]) if error.args else "malformed"
        return f'"{path}" is not a JSON path: {reason}'
    return None


def regex_problem(pattern: str) -> str | None:
    """Return the mistake in a regular expression, or None."""
    try:
        re.compile(pattern)
    except RecursionError:
        return "the regular expression is nested too deeply"
    except (re.error, OverflowError) as error:
        return f'"{pattern}" is not a regular expression: {error}'
    return None


def select(path: str, value: Any) -> list[Any]:
    """Return the parts of a value that a valid path leads to; none if the path leads nowhere."""
    parts = _parts(path)
    if parts is None:
        # the library would read a text as JSON; only the plain path $ leads to one
        return [] if isinstance(value, str) else list(_compiled(path).findall(value))
    for part in parts:
        value = _child(value, part)
        if value is _NOTHING:
            return []
    return [value]


def pick(path: str, value: Any) -> Any:
    """Return the only part to which a path leads. Raises LookupError if there are none or several."""
    found = select(path, value)
    if len(found) != 1:
        raise LookupError(f"{path} leads to {len(found)} values" if found else f"there is nothing at {path}")
    return found[0]
