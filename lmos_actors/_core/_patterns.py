"""Regular expressions of RFC 9485 (I-Regexp) for the functions `match` and `search` of JSONPath.

The linear-time engine of jsonschema_rs decides, as `re` would allow exponential backtracking, and has no
`\\p{Lu}`. It takes a little more than RFC 9485 (`\\d` for digits of ASCII), and refuses lookaround. `^`
and `$` are anchors, as the test suite of JSONPath wants it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

MAX_PATTERN: Final = 1_000  # characters
_DOT: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


@lru_cache(maxsize=64)
def i_regexp(pattern: str, *, whole: bool) -> Any:
    """Return a linear-time matcher of a regular expression, or None if it is invalid or too large."""
    from jsonschema_rs import Draft202012Validator, RegexOptions

    if len(pattern) > MAX_PATTERN:
        return None
    # RFC 9485, 5.3: a dot is anything but the ends of lines
    dotted = _DOT.sub(lambda found: r"[^\n\r]" if found[0] == "." else found[0], pattern)
    parts = [{"pattern": dotted}, {"pattern": f"^(?:{dotted})$"}]  # the first one: is it valid by itself?
    limits = RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
    try:
        return Draft202012Validator({"allOf": parts[: 1 + whole]}, pattern_options=limits).is_valid
    except ValueError:
        return None


def use_i_regexps(environment: Any) -> None:
    """Set the functions `match` and `search` of an environment of the JSONPath library.

    Both return false unless they get a text and a valid pattern. The library's own functions depend on which
    packages are installed.
    """
    from jsonpath.function_extensions import ExpressionType, FilterFunction

    class Matches(FilterFunction):
        def __init__(self, *, whole: bool) -> None:
            self._whole = whole

        @property
        def arg_types(self) -> list[ExpressionType]:
            return [ExpressionType.VALUE, ExpressionType.VALUE]

        @property
        def return_type(self) -> ExpressionType:
            return ExpressionType.LOGICAL

        def __call__(self, value: object, pattern: object) -> bool:
            if not isinstance(value, str) or not isinstance(pattern, str):
                return False
            fits = i_regexp(pattern, whole=self._whole)
            return fits is not None and bool(fits(value))

    functions = {"match": Matches(whole=True), "search": Matches(whole=False)}
    environment.function_extensions.update(functions)
