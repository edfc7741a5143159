"""JSON Schema (2020-12) of a file's structs, for editors.

Every value may also be a `$(...)` reference, which is checked after substitution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._types import Form, fields_of, form_of, tag_of

if TYPE_CHECKING:
    import msgspec

_REFERENCE = {"type": "string", "pattern": r"\$\("}
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", None: "null", type(None): "null"}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def schema_of_file(declared: Any, *, title: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a struct, or of a tagged union of structs, in a stable order."""
    parts: dict[str, Any] = {}
    structs = [part.inner for part in form_of(declared).branches]
    root = _struct(structs[0], parts) if len(structs) == 1 else _choice(structs, parts)
    head: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if title:
        head["title"] = title
    return {**head, **root, "$defs": dict(sorted(parts.items()))}


def _choice(structs: list[Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tagged union; `if`/`then` makes editors check only the chosen kind."""
    tags = [tag for struct in structs if (tag := tag_of(struct)) is not None]
    field = tags[0].field
    chosen = [
        {
            "if": {"required": [field], "properties": {field: {"const": tag.value}}},
            "then": _part(form_of(struct), parts),
        }
        for struct, tag in zip(structs, tags, strict=True)
    ]
    words = {"enum": [tag.value for tag in tags]}
    return {"type": "object", "required": [field], "properties": {field: words}, "allOf": chosen}


def _struct(struct: type[msgspec.Struct], parts: dict[str, Any]) -> dict[str, Any]:
    fields = fields_of(struct)
    tag = tag_of(struct)
    members: dict[str, Any] = {tag.field: {"const": tag.value}} if tag else {}
    members.update({field.key: _value(field.form, parts, blank=not field.is_left_out) for field in fields})
    required = [*([tag.field] if tag else []), *(field.key for field in fields if field.required)]
    schema: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": False}
    if struct.__doc__:
        schema["description"] = " ".join(struct.__doc__.split())
    return {**schema, "required": required} if required else schema


def _value(form: Form, parts: dict[str, Any], *, blank: bool = True) -> dict[str, Any]:
    if form.is_open:
        return {}
    members = [part for part in form.branches if blank or not part.is_null]
    structs = [part.inner for part in members if part.is_struct and tag_of(part.inner) is not None]
    if len(structs) > 1:  # one choice, so that editors complete the tags, then the keys
        members = [part for part in members if part.inner not in structs]
    found = [_choice(structs, parts)] if len(structs) > 1 else []
    found += [_part(part, parts) for part in members]
    if not any(schema.get("type") == "string" for schema in found):
        found.append(_REFERENCE)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _part(form: Form, parts: dict[str, Any]) -> dict[str, Any]:
    inner = form.inner
    if form.literals is not None:
        return {"enum": list(form.literals)}
    if form.is_struct:
        if inner.__name__ not in parts:
            parts[inner.__name__] = {}
            parts[inner.__name__] = _struct(inner, parts)
        return {"$ref": f"#/$defs/{inner.__name__}"}
    if form.has_text_form:
        return {"type": "string", "pattern": rf"({inner.pattern})|\$\(", "description": inner.described}
    if form.origin is dict:
        members = {"type": "object", "additionalProperties": _value(form_of(form.args[1]), parts)}
        return {**members, **_sizes(form, "Properties")}
    if form.origin in (list, tuple):
        items = {"type": "array", "items": _value(form_of(form.args[0]), parts)}
        return {**items, **_sizes(form, "Items")}
    if inner not in _SCALARS:
        raise TypeError(f"no schema for {inner!r}")
    return {"type": _SCALARS[inner], **_bounds(form), **_sizes(form, "Length")}


def _sizes(form: Form, of: str) -> dict[str, Any]:
    least = [limit.min_length for limit in form.limits if limit.min_length is not None]
    most = [limit.max_length for limit in form.limits if limit.max_length is not None]
    return {**({f"min{of}": max(least)} if least else {}), **({f"max{of}": min(most)} if most else {})}


def _bounds(form: Form) -> dict[str, Any]:
    return {
        name: getattr(limit, sign)
        for limit in form.limits
        for sign, name in _LIMITS.items()
        if getattr(limit, sign) is not None
    }
