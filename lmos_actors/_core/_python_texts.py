"""Messages of errors that Python itself raises: only this file depends on how each version words them."""

from __future__ import annotations

import json
import re
from typing import Final

_UNKNOWN_ARGUMENT: Final = re.compile(
    r"(.*) got an unexpected keyword argument '(.*?)'(?:\. Did you mean '.*'\?)?"
)
_UNHASHABLE: Final = re.compile(r"unhashable type: '.*?'")
_AFTER_A_COMMA: Final = {
    ("Expecting value", "]"): "array",
    ("Expecting property name enclosed in double quotes", "}"): "object",
}


def unknown_argument(error: BaseException) -> tuple[str, str] | None:
    """Return the function and the unexpected argument that a TypeError names; None for another error.

    The suggestion that Python 3.13 and later append is left out.
    """
    found = _UNKNOWN_ARGUMENT.fullmatch(str(error)) if type(error) is TypeError else None
    return None if found is None else (found[1], found[2])


def unhashable(error: TypeError) -> str:
    """Return why a value is not hashable, without the words that Python 3.14 and later add."""
    found = _UNHASHABLE.search(str(error))
    return str(error) if found is None else found[0]


def json_error(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """Return a JSON error as Python 3.13 and later word it: they report a trailing comma as such."""
    before = error.doc[: error.pos].rstrip()
    kind = _AFTER_A_COMMA.get((error.msg, error.doc[error.pos : error.pos + 1]))
    if kind is None or not before.endswith(","):
        return error
    return json.JSONDecodeError(f"Illegal trailing comma before end of {kind}", error.doc, len(before) - 1)
