"""Search by JSONPath (RFC 9535) over all descriptions of a directory, bounded in time, work and size.

A library evaluates the expression; `_search_budget` bounds its work. The search runs in a worker thread,
which cannot be killed: only `SearchBudget.stop` ends it from outside.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ._search_budget import BudgetExceeded, CachedDescription, LazyDescriptions, SearchBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._entries import Entry
    from ._options import DirectoryOptions

_ERROR: Final = 300  # characters of the library's message


class BadQuery(Exception):
    """Invalid JSONPath expression."""


def found_in(query: str, entries: Sequence[Entry], options: DirectoryOptions, budget: SearchBudget) -> bytes:
    """Return the JSON array of all selected values. Raises BadQuery, BudgetExceeded."""
    path = compiled(query, options)
    parts: list[bytes] = []
    size = 2
    try:
        for value in path.select(LazyDescriptions(entries, budget)):
            budget.spend()
            part = _encoded(value)
            size += len(part) + 1
            if size > options.max_answer_bytes:
                raise BudgetExceeded(f"its result has more than {options.max_answer_bytes} bytes")
            parts.append(part)
    except RecursionError:
        raise BudgetExceeded("it is nested too deeply") from None
    return b"[" + b",".join(parts) + b"]"


def _encoded(value: Any) -> bytes:
    if isinstance(value, LazyDescriptions):
        return b"[" + b",".join([entry.encoded() for entry in value.entries]) + b"]"
    return msgspec.json.encode(dict(value) if isinstance(value, CachedDescription) else value)


def compiled(query: str, options: DirectoryOptions) -> Any:
    """Return a compiled expression, with a method `select`. Raises BadQuery."""
    if len(query) > options.max_query:
        raise BadQuery(f"it has more than {options.max_query} characters")
    from jsonpath import JSONPathError

    try:
        return _environment().compile(query)
    except (RecursionError, OverflowError):
        raise BadQuery("it is nested too deeply, or has too large a number") from None
    except (JSONPathError, ValueError) as error:
        # str(error) draws the expression, and fails for some
        why = str(error.args[0]) if error.args else "it is malformed"
        raise BadQuery(why[:_ERROR]) from None


@cache
def _environment() -> Any:
    """Return the library's environment, imported on first use."""
    from ._search_library import Environment

    return Environment(strict=True)
