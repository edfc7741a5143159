"""Validation of plain data against data schemas, and the targets of JSON paths. Pure functions.

The schemas are made by this package from Python types; they allow whatever they do not mention. `$(saved.x)`
is known only during the run, and fits every schema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmos_actors.files import did_you_mean, inside, is_list, is_mapping, mapped

from ._paths import path_problem
from ._values import same, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmos_actors.files import DataPath

Schema: TypeAlias = "Mapping[str, Any]"
Misfit: TypeAlias = "tuple[DataPath, str, bool]"
"""A problem: path, message, and whether the key (not its value) is wrong."""

ANYTHING: Final[Schema] = {}

_LATE = re.compile(r"(?<!\$)\$\((saved|agents|population)\.")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")
_PLAIN_PATH = re.compile(r"\$(?:\.[^.\[\]*?()@,:\s]+|\[\d+\]|\['(?:[^'\\]|\\.)*'\])*")
_TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}
_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "a mapping",
    "array": "a list",
}


def is_late(value: object) -> bool:
    """Return whether plain data contains a part that is known only during the run."""
    if isinstance(value, str):
        return "$(" in value and _LATE.search(value) is not None
    return any(is_late(part) for _, part in inside(value))


def is_whole_late(value: object) -> bool:
    """Return whether a value is a single reference that is filled in during the run."""
    return isinstance(value, str) and _LATE.match(value) is not None


def data_path(text: str) -> DataPath:
    """Parse a JSON path such as `$.items[2]['two words']` into a path of plain data."""
    found: list[str | int] = []
    for name, index, quoted in _STEP.findall(text):
        found.append(int(index) if index else name or quoted)
    return tuple(found)


# --- data


def unknown_members(value: object, schema: Schema, path: DataPath) -> Iterator[Misfit]:
    """Yield members that a schema does not name: consumers may send them, but files must not have them."""
    for option in _options(schema):
        if is_mapping(value) == ("properties" in option) and option is not schema:
            yield from unknown_members(value, option, path)
            return
    if is_mapping(value):
        known = mapped(schema.get("properties"))
        for key, inner in value.items():
            if key in known:
                yield from unknown_members(inner, known[key], (*path, key))
            elif is_closed(schema):
                yield (*path, key), f'unknown key "{key}"{did_you_mean(key, list(known))}', True
    elif is_list(value) and is_mapping(schema.get("items")):
        for index, inner in enumerate(value):
            yield from unknown_members(inner, schema["items"], (*path, index))


def is_closed(schema: Schema) -> bool:
    """Return whether a schema names every member that its objects may have."""
    return (
        schema.get("type") == "object"
        and "properties" in schema
        and not schema.get("additionalProperties", False)
    )


def misfits(value: object, schema: Schema, path: DataPath = ()) -> Iterator[Misfit]:
    """Yield the violations of a schema by a value, for example of an output's schema by `equals`."""
    if is_late(value) and not (is_mapping(value) or is_list(value)):
        return
    options = _options(schema)
    if options:
        tried = [list(misfits(value, option, path)) for option in options]
        if all(tried):
            yield from tried[0] if len(tried) == 1 else min(tried, key=_nearness)
        return
    if "enum" in schema and not any(same(value, word) for word in schema["enum"]):
        words = [str(word) for word in schema["enum"]]
        yield path, f"{show(value)} is none of its words{did_you_mean(str(value), words)}", False
    elif not _is_of(value, schema.get("type")):
        yield path, f"expected {_WORDS[schema['type']]}, saw {show(value)}", False
    elif is_mapping(value):
        yield from _members(value, schema, path)
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from misfits(inner, mapped(schema.get("items")), (*path, index))
    elif isinstance(value, (int, float)):
        yield from _bounds(value, schema, path)


def _nearness(found: list[Misfit]) -> tuple[int, int]:
    # the alternative that goes deepest into the value is the one that was meant
    return -max(len(path) for path, _, _ in found), len(found)


def _members(value: dict[str, Any], schema: Schema, path: DataPath) -> Iterator[Misfit]:
    known = mapped(schema.get("properties"))
    for key, inner in value.items():
        if key in known:
            yield from misfits(inner, known[key], (*path, key))
        elif is_closed(schema):
            yield (*path, key), f'unknown key "{key}"{did_you_mean(key, list(known))}', True


def _bounds(value: float, schema: Schema, path: DataPath) -> Iterator[Misfit]:
    if value < schema.get("minimum", value):
        yield path, f"expected at least {schema['minimum']}, saw {show(value)}", False
    if value > schema.get("maximum", value):
        yield path, f"expected at most {schema['maximum']}, saw {show(value)}", False


def _is_of(value: object, declared: object) -> bool:
    if not isinstance(declared, str) or declared not in _TYPES:
        return True
    if isinstance(value, bool):
        return declared == "boolean"
    if declared == "integer" and isinstance(value, float):
        return value.is_integer()  # 1 equals 1.0
    return isinstance(value, _TYPES[declared])


def _options(schema: Schema) -> list[Schema]:
    return [*schema.get("oneOf", ()), *schema.get("anyOf", ())]


def is_numeric(schema: Schema) -> bool:
    """Return whether a schema allows numbers, so that its values can be compared by size."""
    options = _options(schema)
    if options:
        return any(map(is_numeric, options))
    if "enum" in schema:
        return any(isinstance(word, (int, float)) and not isinstance(word, bool) for word in schema["enum"])
    return schema.get("type") in (None, "integer", "number")


def is_textual(schema: Schema) -> bool:
    """Return whether a schema allows text."""
    options = _options(schema)
    if options:
        return any(map(is_textual, options))
    if "enum" in schema:
        return any(isinstance(word, str) for word in schema["enum"])
    return schema.get("type") in (None, "string")


def may_contain(schema: Schema, part: object) -> str | None:
    """Return the reason why no value of a schema can contain `part`, or None if one can."""
    options = _options(schema)
    if options:
        reasons = [may_contain(option, part) for option in options]
        return next((reason for reason in reasons if reason), None) if all(reasons) else None
    declared = schema.get("type")
    if is_late(part) or declared is None:
        return None
    if declared == "string" and not isinstance(part, str):
        return f"text contains text, saw {show(part)}"
    if declared == "object" and not is_mapping(part):
        return f"a mapping contains members, saw {show(part)}"
    if declared in ("integer", "number", "boolean", "null"):
        return f"{_WORDS[declared]} contains nothing"
    return None


# --- paths


def along(path: str, schema: Schema) -> tuple[Schema, str | None]:
    """Return the schema to which a JSON path leads within a schema, and the mistake in the path, if any.

    Parts that cannot be followed, such as filters and wildcards, lead to a schema that allows anything.
    """
    if problem := path_problem(path):
        return ANYTHING, problem
    if not _PLAIN_PATH.fullmatch(path):
        return ANYTHING, None
    for part in data_path(path):
        schema, problem = _inside(schema, part)
        if problem:
            return ANYTHING, f"{path} leads nowhere: {problem}"
    return schema, None


def _inside(schema: Schema, part: str | int) -> tuple[Schema, str | None]:
    options = _options(schema)
    if options:
        tried = [_inside(option, part) for option in options]
        good = [found for found, problem in tried if problem is None]
        if not good:
            return tried[0]
        return (good[0] if len(good) == 1 else {"anyOf": good}), None
    declared = schema.get("type")
    if isinstance(part, int):
        if declared in (None, "array"):
            return mapped(schema.get("items")), None
        return ANYTHING, f"{_WORDS.get(str(declared), 'it')} has no item {part}"
    if declared not in (None, "object"):
        return ANYTHING, f'{_WORDS.get(str(declared), "it")} has no member "{part}"'
    known = mapped(schema.get("properties"))
    if part in known:
        return known[part], None
    if is_closed(schema):
        return ANYTHING, f'no member "{part}"{did_you_mean(part, list(known))}'
    return mapped(schema.get("additionalProperties")), None
