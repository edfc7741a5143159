"""Checks whether kotlin-wot can read a description.

kotlin-wot maps descriptions to fixed classes and refuses the whole description for one unexpected member. To
find the rules, its reader (May 2025) was given descriptions that differ in one member each. It ignores
unknown members of things, properties, events, forms and data schemas, and refuses unknown members of actions,
links and `version`. A property needs `type`. Integers in data schemas have 32 bits. Several members must be
arrays although TD 1.1 allows a text. A nested data schema without `type` counts as a string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ._findings import Finding, shown
from ._model import Description, dump
from ._reading import DescriptionError, Place, is_array, is_object, kind_of, plain_data
from ._vocabulary import as_array, as_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Check: TypeAlias = "Callable[[Any, Place], Iterator[Finding]]"

TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
ACTION_MEMBERS: Final = (
    "title", "titles", "description", "descriptions", "@type", "uriVariables", "forms", "input", "output",
    "safe", "idempotent", "synchronous",
)  # fmt: skip
LINK_MEMBERS: Final = ("href", "type", "rel", "anchor", "sizes", "hreflang")
VERSION_MEMBERS: Final = ("instance", "model")
SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "apikey": ("in", "name"),
    "basic": (),
    "bearer": (),
    "cert": ("identity",),
    "digest": ("in", "name", "qop"),
    "nosec": (),
    "oauth2": ("flow",),
    "pop": ("in", "name", "format", "authorization", "alg"),
    "psk": ("identity",),
    "public": ("identity",),
}
"""Security schemes that kotlin-wot supports, and the members that each of them needs."""
OPERATIONS: Final = frozenset(
    {
        "readproperty", "writeproperty", "observeproperty", "unobserveproperty", "readallproperties",
        "writeallproperties", "readmultipleproperties", "writemultipleproperties", "observeallproperties",
        "unobserveallproperties", "subscribeevent", "unsubscribeevent", "subscribeallevents",
        "unsubscribeallevents", "invokeaction", "queryaction", "cancelaction", "queryallactions",
    }
)  # fmt: skip
MIN_INT: Final = -(2**31)
MAX_INT: Final = 2**31 - 1

_NEVER_NULL: Final = (
    "id", "properties", "actions", "events", "forms", "security", "securityDefinitions", "links",
)  # fmt: skip
_SIZES: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": (
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "const",
        "default",
    ),
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
}
_ACCEPTED: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str, bool, int, float),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool, int),
    "array": (list,),
    "object": (dict,),
}
"""Values of `const` and `default` that its reader accepts for a type."""


def check_for_kotlin_wot(description: Description | str | bytes | Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return a finding for each part that kotlin-wot cannot read, in the order of the members. Never raise.

    The description is a `Description`, a JSON text or plain data. A single finding makes kotlin-wot refuse
    the whole description. Use `check` for mistakes that concern every reader.
    """
    try:
        data = plain_data(dump(description) if isinstance(description, Description) else description)
    except DescriptionError as exc:
        return (Finding(exc.place, exc.message, "correct this first: the rest cannot be read"),)
    return tuple(_thing(data))


def _thing(data: dict[str, Any]) -> Iterator[Finding]:
    for name in _NEVER_NULL:
        if name in data and data[name] is None:
            yield Finding((name,), f"{name} is null", "leave it out")
    if is_object(version := data.get("version")):
        yield from _unknown_members(version, VERSION_MEMBERS, ("version",), "version")
        yield from _missing_members(version, ("instance",), ("version",))
    for number, link in enumerate(as_array(data.get("links"))):
        yield from _link(as_object(link), ("links", number))
    for name, scheme in as_object(data.get("securityDefinitions")).items():
        yield from _scheme(as_object(scheme), ("securityDefinitions", name))
    yield from _each_member(data, "schemaDefinitions", (), _schema)
    yield from _each_member(data, "uriVariables", (), _schema)
    yield from _forms(data, ())
    yield from _each_member(data, "properties", (), _property)
    yield from _each_member(data, "actions", (), _action)
    yield from _each_member(data, "events", (), _event)


def _each_member(data: dict[str, Any], member: str, place: Place, check: Check) -> Iterator[Finding]:
    for name, each in as_object(data.get(member)).items():
        yield from check(each, (*place, member, name))


def _unknown_members(
    data: dict[str, Any], known: tuple[str, ...], place: Place, what: str
) -> Iterator[Finding]:
    for name in data:
        if name not in known:
            fix = "move it to the thing, where kotlin-wot ignores unknown members"
            yield Finding((*place, name), f"kotlin-wot does not support the member {name!r} of {what}", fix)


def _missing_members(data: dict[str, Any], needed: tuple[str, ...], place: Place) -> Iterator[Finding]:
    for name in needed:
        if data.get(name) is None:
            yield Finding(place, f"kotlin-wot needs the member {name!r}", f'add "{name}"')


def _arrays(data: dict[str, Any], names: tuple[str, ...], place: Place) -> Iterator[Finding]:
    for name in names:
        value = data.get(name)
        if value is not None and not is_array(value):
            message = f"{name} must be an array for kotlin-wot, is {kind_of(value)}"
            yield Finding((*place, name), message, "write an array, also of one")


def _link(data: dict[str, Any], place: Place) -> Iterator[Finding]:
    yield from _unknown_members(data, LINK_MEMBERS, place, "a link")
    yield from _missing_members(data, ("href",), place)
    yield from _arrays(data, ("hreflang",), place)


def _scheme(data: dict[str, Any], place: Place) -> Iterator[Finding]:
    scheme = data.get("scheme")
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        fix = f"serve it to kotlin-wot with one of {', '.join(SCHEMES)}"
        yield Finding(
            (*place, "scheme"), f"kotlin-wot does not support the security scheme {shown(scheme)}", fix
        )
        return
    yield from _missing_members(data, SCHEMES[scheme], place)
    yield from _arrays(data, ("scopes",), place)


# --- affordances and their forms


def _property(value: Any, place: Place) -> Iterator[Finding]:
    data = as_object(value)
    if is_object(value) and data.get("type") not in TYPES:
        kind = data.get("type")
        message = "a property needs one type for kotlin-wot" + (
            "" if kind is None else f", not {shown(kind)}"
        )
        fix = 'use a type that has one, such as an empty text for "none"; alternatives need one in common'
        yield Finding((*place, "type") if kind is not None else place, message, fix)
        return
    yield from _schema(value, place)
    yield from _interaction(data, place)


def _action(value: Any, place: Place) -> Iterator[Finding]:
    data = as_object(value)
    yield from _unknown_members(data, ACTION_MEMBERS, place, "an action")
    for name in ("input", "output"):
        yield from _schema(data.get(name), (*place, name))
    yield from _interaction(data, place)


def _event(value: Any, place: Place) -> Iterator[Finding]:
    data = as_object(value)
    for name in ("subscription", "data", "cancellation"):
        yield from _schema(data.get(name), (*place, name))
    yield from _interaction(data, place)


def _interaction(data: dict[str, Any], place: Place) -> Iterator[Finding]:
    if "forms" in data and data["forms"] is None:
        yield Finding((*place, "forms"), "forms is null", "leave it out")
    yield from _each_member(data, "uriVariables", place, _schema)
    yield from _forms(data, place)


def _forms(data: dict[str, Any], place: Place) -> Iterator[Finding]:
    for number, each in enumerate(as_array(data.get("forms"))):
        form, where = as_object(each), (*place, "forms", number)
        yield from _missing_members(form, ("href",), where)
        yield from _arrays(form, ("security", "scopes", "additionalResponses"), where)
        ops = form.get("op")
        for index, op in enumerate(ops if is_array(ops) else [ops] if isinstance(ops, str) else ()):
            if op not in OPERATIONS:
                at = (*where, "op", index) if is_array(ops) else (*where, "op")
                yield Finding(
                    at, f"kotlin-wot does not support the operation {shown(op)}", "leave it out of this form"
                )
        for name, value in form.items():
            if value is None and ":" in name:
                yield Finding((*where, name), f"{name} is null", "leave it out")


# --- data schemas


def _schema(value: Any, place: Place) -> Iterator[Finding]:
    if value is None:
        return
    if not is_object(value):
        message = f"a data schema must be an object for kotlin-wot, is {kind_of(value)}"
        fix = "write one schema for all items" if is_array(value) else "write an object"
        yield Finding(place, message, fix)
        return
    kind = value.get("type")
    kind = kind if isinstance(kind, str) and kind in TYPES else "string"
    yield from _numbers(value, kind, place)
    yield from _values(value, kind, place)
    yield from _arrays(value, ("oneOf", "enum"), place)
    for number, each in enumerate(as_array(value.get("oneOf"))):
        yield from _schema(each, (*place, "oneOf", number))
    if kind == "array":
        yield from _schema(value.get("items"), (*place, "items"))
    if kind == "object":
        yield from _arrays(value, ("required",), place)
        yield from _each_member(value, "properties", place, _schema)


def _numbers(schema: dict[str, Any], kind: str, place: Place) -> Iterator[Finding]:
    for word in _SIZES.get(kind, ()):
        number = schema.get(word)
        if isinstance(number, int | float) and not MIN_INT <= number <= MAX_INT:
            fix = f"stay between {MIN_INT} and {MAX_INT}, or leave it out"
            yield Finding((*place, word), f"{word} {shown(number)} has more than 32 bits", fix)


def _values(schema: dict[str, Any], kind: str, place: Place) -> Iterator[Finding]:
    taken = _ACCEPTED.get(kind)
    for word in ("const", "default"):
        value = schema.get(word)
        if value is not None and taken is not None and not isinstance(value, taken):
            reason = "" if "type" in schema else ", its type for a schema without one"
            message = f"{word} must be {_KINDS[kind]} for kotlin-wot{reason}, is {kind_of(value)}"
            yield Finding((*place, word), message, "add the type of the value, or leave it out")


_KINDS: Final = {
    "string": "a text",
    "integer": "a number",
    "number": "a number",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
}
