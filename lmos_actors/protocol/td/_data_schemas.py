"""Checks of data schemas: contradictions, so that no value fits, and keywords without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ._findings import Finding, Severity, near, shown
from ._reading import Place, is_array, is_object, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOUNDS: Final = (
    ("minimum", "maximum"), ("minimum", "exclusiveMaximum"), ("exclusiveMinimum", "maximum"),
    ("exclusiveMinimum", "exclusiveMaximum"), ("minLength", "maxLength"), ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)  # fmt: skip
_WORDS: Final = {
    "minimum": ("number", "integer"), "maximum": ("number", "integer"),
    "exclusiveMinimum": ("number", "integer"), "exclusiveMaximum": ("number", "integer"),
    "multipleOf": ("number", "integer"), "minLength": ("string",), "maxLength": ("string",),
    "pattern": ("string",), "contentEncoding": ("string",), "items": ("array",), "minItems": ("array",),
    "maxItems": ("array",), "uniqueItems": ("array",), "properties": ("object",), "required": ("object",),
    "additionalProperties": ("object",), "propertyNames": ("object",),
}  # fmt: skip
_CHECKED_VALUES: Final[tuple[tuple[str, Severity], ...]] = (("const", "error"), ("default", "warning"))
_MISSING: Final = object()


def check_schema(value: object, place: Place) -> Iterator[Finding]:
    """Yield the findings about a data schema and its nested ones. Do nothing for anything but an object.

    `properties`, `items`, `oneOf` and `additionalProperties` nest. The reader limits the depth
    (`_reading.MAX_DEPTH`), and so the recursion.
    """
    if not is_object(value):
        return
    yield from _bounds(value, place)
    yield from _values(value, place)
    yield from _required(value, place)
    yield from _irrelevant_words(value, place)
    if value.get("readOnly") is True and value.get("writeOnly") is True:
        yield Finding((*place, "writeOnly"), "readOnly and writeOnly at once", "leave one out")
    for where, inner in _subschemas(value, place):
        yield from check_schema(inner, where)


def _subschemas(schema: dict[str, Any], place: Place) -> Iterator[tuple[Place, Any]]:
    """Yield the schemas directly inside a schema."""
    properties = schema.get("properties")
    if is_object(properties):
        yield from (((*place, "properties", name), each) for name, each in properties.items())
    for word in ("items", "oneOf"):
        several = schema.get(word)
        if is_array(several):
            yield from (((*place, word, number), each) for number, each in enumerate(several))
        else:
            yield (*place, word), several
    yield (*place, "additionalProperties"), schema.get("additionalProperties")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bounds(schema: dict[str, Any], place: Place) -> Iterator[Finding]:
    for low, high in _BOUNDS:
        if low not in schema:
            continue
        least, most = schema[low], schema.get(high)
        if not _is_number(least) or not _is_number(most):
            continue
        if least > most or (least == most and (low + high).count("exclusive")):
            message = f"no value fits: {low} {shown(least)}, {high} {shown(most)}"
            yield Finding((*place, high), message, "change one of the two")


def _values(schema: dict[str, Any], place: Place) -> Iterator[Finding]:
    """Check that listed values fit the type, and that `const` and `default` fit the type and `enum`.

    A `const` of another type is an error, because no value fits. For a default TD 1.1 uses only "should", and
    it has no rule about `enum`, so those are warnings.
    """
    kind, listed = schema.get("type"), schema.get("enum")
    for number, value in enumerate(listed if is_array(listed) else []):
        if not _fits(value, kind):
            where, message = (*place, "enum", number), f"{shown(value)} is not of type {kind}"
            yield Finding(where, message, "leave it out, or change the type", "warning")
    for word, severity in _CHECKED_VALUES:
        value = schema.get(word, _MISSING)
        if value is _MISSING:
            continue
        if value is None and not _fits(value, kind):
            yield Finding((*place, word), f"{word} is null", "leave it out", tolerated=True)
        elif not _fits(value, kind):
            message = f"{word} {shown(value)} is not of type {kind}"
            yield Finding((*place, word), message, "change the value or the type", severity)
        elif is_array(listed) and not any(_same(value, each) for each in listed):
            fix = "add it there, or use one of those"
            yield Finding((*place, word), f"{word} {shown(value)} is not in enum", fix, severity)


def _same(one: object, other: object) -> bool:
    """Return whether two values are equal in JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _fits(value: object, kind: object) -> bool:
    """Return whether a value is of a type; an unknown type fits every value."""
    if kind == "integer":
        return _is_number(value) and value == value // 1
    checks = {
        "boolean": isinstance(value, bool),
        "number": _is_number(value),
        "string": isinstance(value, str),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "null": value is None,
    }
    return checks.get(str(kind), True)


def _required(schema: dict[str, Any], place: Place) -> Iterator[Finding]:
    properties, required = schema.get("properties"), schema.get("required")
    if properties is not None and not is_object(properties):
        message = f"properties must be an object, is {kind_of(properties)}"
        yield Finding((*place, "properties"), message, f"write an object instead of {shown(properties)}")
        return
    known = properties or {}
    for number, name in enumerate(required if is_array(required) else []):
        if isinstance(name, str) and name not in known:
            message = f"{name!r} is required, and properties does not have it{near(name, known)}"
            fix = "describe it there, or leave it out here"
            yield Finding((*place, "required", number), message, fix, "warning")


def _irrelevant_words(schema: dict[str, Any], place: Place) -> Iterator[Finding]:
    """Warn of limits that have no effect on values of the type."""
    kind = schema.get("type")
    if not isinstance(kind, str):
        return
    for word in schema:
        kinds = _WORDS.get(word)
        if kinds is not None and kind not in kinds:
            message = f"{word} has no effect on type {kind}"
            yield Finding(
                (*place, word), message, f"use type {' or '.join(kinds)}, or leave it out", "warning"
            )
