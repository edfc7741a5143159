"""JSON Schemas that strangers have written: compiled and applied without reading anything they point to.

jsonschema_rs, left alone, requests the URLs and opens the files that `$ref` names. So a server could use us
to reach hosts that it cannot reach itself. The regular expressions of a schema run with a limit of steps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

MOST_PLACES: Final = 10_000
"""The most places of a schema, those of its references included: a validator may visit each for one value."""

STEPS: Final = 100_000
"""Steps of one regular expression on one text."""

SHOWN: Final = 300
"""The most characters of a complaint."""


def schema_problem(schema: str) -> str | None:
    """Return why a text is not a JSON Schema, or None if it is one. An empty text counts as a schema."""
    try:
        _compiled(schema)
    except (ValueError, RecursionError) as error:
        return _brief(error)
    return None


def schema_complaint(schema: str, value: Any, *, formats: bool = False) -> str | None:
    """Return why a value does not match a schema, which is given as JSON text, or None if it matches.

    With `formats`, formats of texts such as `date` are checked too.
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


@lru_cache(maxsize=1_024)
def _compiled(schema: str, *, formats: bool = False) -> Any:
    from jsonschema_rs import FancyRegexOptions, validator_for

    decoded: dict[str, Any] = msgspec.json.decode(schema or "{}", type=dict[str, Any])
    if _places_of(decoded) > MOST_PLACES:
        raise ValueError(f"with what its references lead to it has more than {MOST_PLACES:,} places")
    return validator_for(
        decoded,
        retriever=_refuse,
        pattern_options=FancyRegexOptions(backtrack_limit=STEPS),
        validate_formats=formats,
    )


def _places_of(schema: dict[str, Any]) -> int:
    """Count the places of a schema. A reference counts as its target, a reference to itself as one place.

    References to names of the same document are followed, as strangers write `#/$defs/NAME`; a chain of a few
    lines, in which each leads to the next one twice, would take a validator minutes.
    """
    known: dict[str, int] = {}

    def count(part: Any) -> int:
        if isinstance(part, list):
            items: list[Any] = part  # pyright: ignore[reportUnknownVariableType]
            return 1 + sum(map(count, items))
        if not isinstance(part, dict):
            return 1
        members: dict[str, Any] = part  # pyright: ignore[reportUnknownVariableType]
        # definitions count where they are used; further in, such a name may name a property
        unused = ("$defs", "definitions") if members is schema else ()
        own = 1 + sum(count(each) for name, each in members.items() if name not in unused)
        target = members.get("$ref", members.get("$dynamicRef"))
        return own + (at(target) if isinstance(target, str) else 0)

    def at(reference: str) -> int:
        if reference not in known:
            known[reference] = 1  # as long as it is being counted: a reference to itself
            known[reference] = min(count(_at(schema, reference)), MOST_PLACES + 1)
        return known[reference]

    return count(schema)


def _at(schema: Any, reference: str) -> Any:
    """Return the part of a schema to which an internal reference leads, or None if there is none."""
    if not reference.startswith("#/"):
        return None
    for word in reference[2:].split("/"):
        name = word.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            members: dict[str, Any] = schema  # pyright: ignore[reportUnknownVariableType]
            schema = members.get(name)
        elif isinstance(schema, list) and name.isdecimal():
            items: list[Any] = schema  # pyright: ignore[reportUnknownVariableType]
            schema = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return schema


def _refuse(uri: str) -> NoReturn:
    raise ValueError("a schema must not refer to another document")


def _brief(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:SHOWN]
