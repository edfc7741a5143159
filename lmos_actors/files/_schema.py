"""JSON Schema (2020-12) of a file's structs, for editors.

Every value may also be a `$(...)` reference, which is checked after substitution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

from ._types import (
    branches,
    fields_of,
    has_text_form,
    is_open,
    is_struct,
    limits,
    split,
    tag_of,
    words_of,
)

if TYPE_CHECKING:
    import msgspec

_REFERENCE = {"type": "string", "pattern": r"\$\("}
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", None: "null", type(None): "null"}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def schema_of_file(declared: Any, *, title: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a struct, or of a tagged union of structs, in a stable order."""
    parts: dict[str, Any] = {}
    structs = [split(part)[0] for part in branches(declared)]
    root = _struct(structs[0], parts) if len(structs) == 1 else _choice(structs, parts)
    head: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if title:
        head["title"] = title
    return {**head, **root, "$defs": dict(sorted(parts.items()))}


def _choice(structs: list[Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return a choice by the tag; with `if`/`then` an editor reports errors of the chosen kind only."""
    tags = [tag for struct in structs if (tag := tag_of(struct)) is not None]
    field = tags[0].field
    chosen = [
        {
            "if": {"required": [field], "properties": {field: {"const": tag.value}}},
            "then": _part(struct, parts),
        }
        for struct, tag in zip(structs, tags, strict=True)
    ]
    words = {"enum": [tag.value for tag in tags]}
    return {"type": "object", "required": [field], "properties": {field: words}, "allOf": chosen}


def _struct(struct: type[msgspec.Struct], parts: dict[str, Any]) -> dict[str, Any]:
    fields = fields_of(struct)
    tag = tag_of(struct)
    members: dict[str, Any] = {tag.field: {"const": tag.value}} if tag else {}
    members.update({field.key: _value(field.type, parts, blank=not field.is_left_out) for field in fields})
    required = [*([tag.field] if tag else []), *(field.key for field in fields if field.required)]
    schema: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": False}
    if struct.__doc__:
        schema["description"] = " ".join(struct.__doc__.split())
    return {**schema, "required": required} if required else schema


def _value(declared: Any, parts: dict[str, Any], *, blank: bool = True) -> dict[str, Any]:
    if any(is_open(part) for part in branches(declared)):
        return {}
    members = [part for part in branches(declared) if blank or split(part)[0] not in (None, type(None))]
    structs = [split(part)[0] for part in members if is_struct(part) and tag_of(split(part)[0]) is not None]
    if len(structs) > 1:  # one choice, so that editors complete the tags, then the keys
        members = [part for part in members if split(part)[0] not in structs]
    found = [_choice(structs, parts)] if len(structs) > 1 else []
    found += [_part(part, parts) for part in members]
    if not any(schema.get("type") == "string" for schema in found):
        found.append(_REFERENCE)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _part(declared: Any, parts: dict[str, Any]) -> dict[str, Any]:
    inner = split(declared)[0]
    words = words_of(declared)
    if words is not None:
        return {"enum": list(words)}
    if is_struct(declared):
        if inner.__name__ not in parts:
            parts[inner.__name__] = {}
            parts[inner.__name__] = _struct(inner, parts)
        return {"$ref": f"#/$defs/{inner.__name__}"}
    if has_text_form(declared):
        return {"type": "string", "pattern": rf"({inner.pattern})|\$\(", "description": inner.described}
    if get_origin(inner) is dict:
        members = {"type": "object", "additionalProperties": _value(get_args(inner)[1], parts)}
        return {**members, **_sizes(declared, "Properties")}
    if get_origin(inner) in (list, tuple):
        items = {"type": "array", "items": _value(get_args(inner)[0], parts)}
        return {**items, **_sizes(declared, "Items")}
    if inner not in _SCALARS:
        raise TypeError(f"no schema for {inner!r}")
    return {"type": _SCALARS[inner], **_bounds(declared), **_sizes(declared, "Length")}


def _sizes(declared: Any, of: str) -> dict[str, Any]:
    least = [limit.min_length for limit in limits(declared) if limit.min_length is not None]
    most = [limit.max_length for limit in limits(declared) if limit.max_length is not None]
    return {**({f"min{of}": max(least)} if least else {}), **({f"max{of}": min(most)} if most else {})}


def _bounds(declared: Any) -> dict[str, Any]:
    return {
        name: getattr(limit, sign)
        for limit in limits(declared)
        for sign, name in _LIMITS.items()
        if getattr(limit, sign) is not None
    }
