"""The reader of descriptions of kotlin-wot (May 2025): its classes, member by member, and what they refuse.

It knows nothing of this package's own check. Each class has its members, each with what reads it; a member
that a class does not know is passed over or refused, as the class has it. `read` raises `Unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reader = Callable[[Any, str], None]


class Unreadable(Exception):
    """Its mapper refuses the whole description for this."""


def read(description: Any) -> None:
    """Read a description as its mapper does."""
    THING(description, "")


def refuse(place: str, why: str) -> None:
    """Refuse the description."""
    raise Unreadable(f"{place or '/'}: {why}")


class Mapped:
    """A class that a JSON object is mapped to."""

    def __init__(
        self, *, needed: tuple[str, ...] = (), never_null: tuple[str, ...] = (), lenient: bool = True
    ) -> None:
        self.members: dict[str, Reader] = {}
        self.needed = needed
        self.never_null = never_null
        self.lenient = lenient

    def __call__(self, value: Any, place: str) -> None:
        """Read an object, or null, which is no object at all."""
        if value is None:
            return
        if not isinstance(value, dict):
            refuse(place, "no object")
        for name in self.needed:
            if value.get(name) is None:
                refuse(place, f"{name} is missing")
        for name, each in value.items():
            if name in self.members:
                if each is None and name in self.never_null:
                    refuse(f"{place}/{name}", "null")
                self.members[name](each, f"{place}/{name}")
            elif not self.lenient:
                refuse(f"{place}/{name}", "unrecognized")


def scalar(value: Any, place: str) -> None:
    if isinstance(value, dict | list):
        refuse(place, "no text")


def anything(value: Any, place: str) -> None:
    """Take it."""


def flag(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, bool | int):
        refuse(place, "no boolean")


def int32(value: Any, place: str) -> None:
    if value is None:
        return
    if not isinstance(value, int | float):
        refuse(place, "no number")
    if not -(2**31) <= value < 2**31:
        refuse(place, "out of range of int")


def number(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, int | float):
        refuse(place, "no number")


def array(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, list):
        refuse(place, "no array")


def mapping(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, dict):
        refuse(place, "no object")


def list_of(each: Reader) -> Reader:
    def reader(value: Any, place: str) -> None:
        array(value, place)
        for index, item in enumerate(value or []):
            each(item, f"{place}/{index}")

    return reader


def map_of(each: Reader) -> Reader:
    def reader(value: Any, place: str) -> None:
        mapping(value, place)
        for name, item in (value or {}).items():
            each(item, f"{place}/{name}")

    return reader


def one_or_list(value: Any, place: str) -> None:
    list_of(scalar)(value if isinstance(value, list | None) else [value], place)


# ---- data schemas: the type chooses the class

CONSTANTS: dict[str, Reader] = {
    "string": scalar, "integer": int32, "number": number, "boolean": flag, "array": array, "object": mapping,
    "null": anything,
}  # fmt: skip


def schema(value: Any, place: str) -> None:
    """Read a schema; without a type, or with one that nobody knows, it is a string's."""
    kind = value.get("type") if isinstance(value, dict) else None
    SCHEMAS[kind if isinstance(kind, str) and kind in SCHEMAS else "string"](value, place)


def property_(value: Any, place: str) -> None:
    """Read a property: its type is the only way to know its class."""
    if value is None:
        return
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in SCHEMAS:
        refuse(place, "missing type id property 'type'")
    SCHEMAS[kind](value, place)
    INTERACTION(value, place)


SCHEMAS = {kind: Mapped() for kind in CONSTANTS}
for kind, made in SCHEMAS.items():
    made.members = {
        "title": scalar, "titles": map_of(scalar), "description": scalar, "descriptions": map_of(scalar),
        "const": CONSTANTS[kind], "default": CONSTANTS[kind], "unit": scalar, "oneOf": list_of(schema),
        "enum": array, "readOnly": flag, "writeOnly": flag, "format": scalar,
    }  # fmt: skip
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
SCHEMAS["integer"].members |= dict.fromkeys(LIMITS, int32)
SCHEMAS["number"].members |= dict.fromkeys(LIMITS, number)
SCHEMAS["string"].members |= {"minLength": int32, "maxLength": int32, "pattern": scalar}
SCHEMAS["array"].members |= {"items": schema, "minItems": int32, "maxItems": int32}
SCHEMAS["object"].members |= {"properties": map_of(schema), "required": list_of(scalar)}

# ---- forms, links, security

OPS = frozenset(
    {
        "readproperty", "writeproperty", "observeproperty", "unobserveproperty", "readallproperties",
        "writeallproperties", "readmultipleproperties", "writemultipleproperties", "observeallproperties",
        "unobserveallproperties", "subscribeevent", "unsubscribeevent", "subscribeallevents",
        "unsubscribeallevents", "invokeaction", "queryaction", "cancelaction", "queryallactions",
    }
)  # fmt: skip


def ops(value: Any, place: str) -> None:
    for op in value if isinstance(value, list) else [value] if isinstance(value, str) else []:
        if op not in OPS:
            refuse(place, f"unknown operation {op}")


FORM = Mapped(needed=("href",))
FORM.members = {
    "href": scalar, "contentType": scalar, "contentCoding": scalar, "security": list_of(scalar),
    "scopes": list_of(scalar), "response": mapping, "additionalResponses": list_of(mapping),
    "subprotocol": scalar, "op": ops,
}  # fmt: skip


def form(value: Any, place: str) -> None:
    """Read a form: members it does not know go into a map, which takes no null."""
    FORM(value, place)
    for name, each in (value or {}).items():
        if each is None and name not in FORM.members:
            refuse(f"{place}/{name}", "null")


INTERACTION = Mapped(never_null=("forms",))
INTERACTION.members = {"forms": list_of(form), "uriVariables": map_of(schema), "@type": anything}

ACTION = Mapped(lenient=False, never_null=("forms",))
ACTION.members = {
    **INTERACTION.members, "title": scalar, "titles": map_of(scalar), "description": scalar,
    "descriptions": map_of(scalar), "input": schema, "output": schema, "safe": flag, "idempotent": flag,
    "synchronous": flag,
}  # fmt: skip

EVENT = Mapped(never_null=("forms",))
EVENT.members = {
    **INTERACTION.members, "title": scalar, "titles": map_of(scalar), "description": scalar,
    "descriptions": map_of(scalar), "data": schema, "subscription": schema, "cancellation": schema,
}  # fmt: skip

LINK = Mapped(needed=("href",), lenient=False)
LINK.members = dict.fromkeys(("href", "type", "rel", "anchor", "sizes"), scalar) | {
    "hreflang": list_of(scalar)
}

VERSION = Mapped(needed=("instance",), lenient=False)
VERSION.members = {"instance": scalar, "model": scalar}

SCHEMES = {
    "apikey": ("in", "name"), "basic": (), "bearer": (), "cert": ("identity",),
    "digest": ("in", "name", "qop"), "nosec": (), "oauth2": ("flow",),
    "pop": ("in", "name", "format", "authorization", "alg"),
    "psk": ("identity",), "public": ("identity",),
}  # fmt: skip


def scheme(value: Any, place: str) -> None:
    if not isinstance(value, dict) or value.get("scheme") not in SCHEMES:
        refuse(place, "could not resolve the type id of the scheme")
    made = Mapped(needed=SCHEMES[value["scheme"]])
    made.members = {"scopes": list_of(scalar)}
    made(value, place)


# ---- the thing

THING = Mapped(
    never_null=(
        "id", "properties", "actions", "events", "forms", "security", "securityDefinitions", "links",
    )
)  # fmt: skip
THING.members = {
    "id": scalar, "title": scalar, "titles": map_of(scalar), "description": scalar,
    "descriptions": map_of(scalar), "properties": map_of(property_), "actions": map_of(ACTION),
    "events": map_of(EVENT), "forms": list_of(form), "security": one_or_list,
    "securityDefinitions": map_of(scheme), "base": scalar, "version": VERSION, "created": scalar,
    "modified": scalar, "support": scalar, "links": list_of(LINK), "profile": one_or_list,
    "schemaDefinitions": map_of(schema), "uriVariables": map_of(schema),
}  # fmt: skip
