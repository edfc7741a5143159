"""JSONPath (RFC 9535) over all descriptions of a directory, with bounds on everything that it can cost.

The library evaluates; here is what it works on: a sequence that makes each description of its text when it
is looked at, nodes that are counted, and regular expressions whose time is linear, whatever they say. What
costs too much ends as `TooMuch`. It runs in a thread, where nothing can end it from outside but `stop`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ._effort import Effort, Kept, Texts, TooMuch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._entries import Entry
    from ._options import DirectoryOptions

_ERROR: Final = 300  # characters of what is wrong with an expression


class BadQuery(Exception):
    """The expression is no JSONPath."""


def found_in(query: str, entries: Sequence[Entry], options: DirectoryOptions, effort: Effort) -> bytes:
    """Return the JSON array of all that an expression selects. Raises BadQuery, TooMuch."""
    path = compiled(query, options)
    parts: list[bytes] = []
    size = 2
    try:
        for value in path.select(Texts(entries, effort)):
            effort.spend()
            part = _encoded(value)
            size += len(part) + 1
            if size > options.max_answer_bytes:
                raise TooMuch(f"what it finds has more than {options.max_answer_bytes} bytes")
            parts.append(part)
    except RecursionError:
        raise TooMuch("it is nested too deeply") from None
    return b"[" + b",".join(parts) + b"]"


def _encoded(value: Any) -> bytes:
    if isinstance(value, Texts):
        return b"[" + b",".join([entry.told() for entry in value.entries]) + b"]"
    return msgspec.json.encode(dict(value) if isinstance(value, Kept) else value)


def compiled(query: str, options: DirectoryOptions) -> Any:
    """Return an expression ready for use, with a `select` of its own. Raises BadQuery."""
    if len(query) > options.max_query:
        raise BadQuery(f"it has more than {options.max_query} characters")
    from jsonpath import JSONPathError

    try:
        return _environment().compile(query)
    except (RecursionError, OverflowError):
        raise BadQuery("it is nested too deeply, or has too large a number") from None
    except (JSONPathError, ValueError) as error:
        # the library's own text draws the expression again, and fails for some
        why = str(error.args[0]) if error.args else "it is malformed"
        raise BadQuery(why[:_ERROR]) from None


@cache
def _environment() -> Any:
    """Make the library ours, when it is first used: it takes long to import."""
    from ._search_library import Environment

    return Environment(strict=True)
