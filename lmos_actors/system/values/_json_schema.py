"""Validation of plain data against a JSON Schema in a file, with the keywords that answers need.

The schemas of actions describe what a class accepts. A schema here is read literally instead: members that it
does not require may be missing, and members that it does not name may exist.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.files import did_you_mean, is_list, is_mapping

from ._paths import regex_problem
from ._values import same, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lmos_actors.files import DataPath

_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "a mapping",
    "array": "a list",
}
_NUMBERS: Final[dict[str, tuple[str, Callable[[float, float], bool]]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
    "exclusiveMaximum": ("less than", operator.lt),
}
_SIZES: Final = {
    "minLength": ("text", "at least", "characters"),
    "maxLength": ("text", "at most", "characters"),
    "minItems": ("list", "at least", "items"),
    "maxItems": ("list", "at most", "items"),
}
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_NOTES: Final = ("$schema", "title", "description", "default", "examples")
KEYWORDS: Final = (
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", "pattern",
    *_NUMBERS, *_SIZES, *_CHOICES, *_NOTES,
)  # fmt: skip
"""All keywords that a schema may have."""


def schema_problems(schema: Any, path: DataPath = ()) -> Iterator[tuple[DataPath, str, bool]]:
    """Yield the mistakes in a schema: place, message, and whether the key (not its value) is wrong."""
    if not is_mapping(schema):
        yield path, f"a schema is a mapping, saw {show(schema)}", False
        return
    for key, value in schema.items():
        here = (*path, key)
        if key not in KEYWORDS:
            yield here, f'no keyword "{key}" of schemas{did_you_mean(key, KEYWORDS)}', True
        elif key == "type":
            for word in value if is_list(value) else [value]:
                if not isinstance(word, str) or word not in _WORDS:
                    yield here, f"no type {show(word)}{did_you_mean(str(word), list(_WORDS))}", False
        elif key == "properties" and is_mapping(value):
            for name, inner in value.items():
                yield from schema_problems(inner, (*here, name))
        elif key == "items" or (key == "additionalProperties" and not isinstance(value, bool)):
            yield from schema_problems(value, here)
        elif key in _CHOICES and is_list(value) and value:
            for index, inner in enumerate(value):
                yield from schema_problems(inner, (*here, index))
        else:
            problem = _problem_of(key, value)
            if problem:
                yield here, problem, False


def _problem_of(key: str, value: Any) -> str | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key in _NUMBERS and not is_number:
        return "a number is expected here"
    if key in _SIZES and (not is_number or value < 0):
        return "a number of at least 0 is expected here"
    if key in ("required", "enum", *_CHOICES) and not (is_list(value) and value):
        return "a list is expected here"
    if key == "properties":
        return "a mapping is expected here"
    if key == "pattern":
        return regex_problem(value) if isinstance(value, str) else "a text is expected here"
    return None


def schema_misfits(value: Any, schema: Mapping[str, Any], path: str = "$") -> Iterator[str]:
    """Yield the violations of a valid schema by a value."""
    if "const" in schema and not same(value, schema["const"]):
        yield f"{path}: expected {show(schema['const'])}, saw {show(value)}"
    if "enum" in schema and not any(same(value, word) for word in schema["enum"]):
        yield f"{path}: expected one of {show(schema['enum'])}, saw {show(value)}"
    kinds = schema.get("type")
    if kinds is not None:
        names = kinds if is_list(kinds) else [kinds]
        if not any(_is_of(value, name) for name in names):
            yield f"{path}: expected {' or '.join(_WORDS[name] for name in names)}, saw {show(value)}"
            return
    yield from _choices(value, schema, path)
    if is_mapping(value):
        yield from _members(value, schema, path)
    elif is_list(value):
        yield from _sized(value, schema, path, "list")
        for index, inner in enumerate(value if "items" in schema else ()):
            yield from schema_misfits(inner, schema["items"], f"{path}[{index}]")
    elif isinstance(value, str):
        yield from _sized(value, schema, path, "text")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: expected text like {schema['pattern']!r}, saw {show(value)}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for key, (words, holds) in _NUMBERS.items():
            if key in schema and not holds(value, schema[key]):
                yield f"{path}: expected {words} {schema[key]}, saw {show(value)}"


def _choices(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for inner in schema.get("allOf", ()):
        yield from schema_misfits(value, inner, path)
    for key in ("anyOf", "oneOf"):
        if key not in schema:
            continue
        tried = [list(schema_misfits(value, inner, path)) for inner in schema[key]]
        fitting = sum(not found for found in tried)
        if not fitting:
            yield from min(tried, key=len)
        elif key == "oneOf" and fitting > 1:
            yield f"{path}: {show(value)} fits {fitting} of the schemas of oneOf"


def _members(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}: {name} is missing"
    more = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in known:
            yield from schema_misfits(inner, known[name], f"{path}.{name}")
        elif more is False:
            yield f"{path}: {name} does not belong here"
        elif is_mapping(more):
            yield from schema_misfits(inner, more, f"{path}.{name}")


def _sized(value: Any, schema: Mapping[str, Any], path: str, kind: str) -> Iterator[str]:
    for key, (of, words, unit) in _SIZES.items():
        if key in schema and of == kind:
            bound = schema[key]
            if len(value) < bound if words == "at least" else len(value) > bound:
                yield f"{path}: expected {words} {bound} {unit}, saw {len(value)}"


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if name == "number":
        return isinstance(value, (int, float))
    kinds: dict[str, Any] = {"string": str, "null": type(None), "object": dict, "array": list}
    return name in kinds and isinstance(value, kinds[name])
