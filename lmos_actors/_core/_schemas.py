"""JSON Schemas that strangers have written: compiled and applied without reading anything they point to.

jsonschema_rs, left alone, requests the URLs and opens the files that `$ref` names. A server could so have us
ask hosts that it cannot reach itself. And its regular expressions run with a limit of steps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

MOST_CACHED: Final = 1_024
"""Compiled schemas that are kept."""

STEPS: Final = 100_000
"""Steps of one regular expression on one text."""

SHOWN: Final = 300
"""Characters of a complaint."""


def schema_problem(schema: str) -> str | None:
    """Return why a text is no JSON Schema; None if it is one. An empty text is one."""
    try:
        _compiled(schema)
    except (ValueError, RecursionError) as error:
        return _brief(error)
    return None


def schema_complaint(schema: str, value: Any, *, formats: bool = False) -> str | None:
    """Return what is wrong with a value by a schema as JSON text; None if nothing is.

    `formats` has the formats of texts count, such as that of a date.
    """
    if not schema:
        return None
    try:
        error = next(iter(_compiled(schema, formats=formats).iter_errors(value)), None)
    except (ValueError, RecursionError) as failed:
        return _brief(failed)
    if error is None:
        return None
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return f"{error.message[:SHOWN]} - at `${place}`"


@lru_cache(maxsize=MOST_CACHED)
def _compiled(schema: str, *, formats: bool = False) -> Any:
    from jsonschema_rs import FancyRegexOptions, validator_for

    decoded: dict[str, Any] = msgspec.json.decode(schema or "{}", type=dict[str, Any])
    return validator_for(
        decoded,
        retriever=_refuse,
        pattern_options=FancyRegexOptions(backtrack_limit=STEPS),
        validate_formats=formats,
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError("a schema must not refer to another document")


def _brief(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:SHOWN]
