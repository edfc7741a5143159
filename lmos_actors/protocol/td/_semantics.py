"""Semantic checks of descriptions, which the JSON schema of TD 1.1 cannot express.

They find undefined names, contradictory members, and unusable hrefs and templates. All checks accept plain
data of any shape. They skip members of the wrong type, because the schema check reports them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

from ._data_schemas import check_schema
from ._findings import Finding, near, shown, some_of
from ._model import (
    EXTENSIONS_PREFIX,
    SCHEMA_WORDS,
    TOOL_TYPES,
    ActionAffordance,
    Description,
    EventAffordance,
    Form,
    PropertyAffordance,
    Streams,
)
from ._reading import DescriptionError, Place, is_array, is_object, kind_of, struct
from ._uris import check_template, is_reference, is_uri, resolve, scheme_of, variables_of
from ._vocabulary import affordances, as_array, as_object, check_metadata, check_vocabulary, has_any, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_STREAMS: Final = f"{EXTENSIONS_PREFIX}:streams"
_PROGRESS: Final = f"{EXTENSIONS_PREFIX}:progress"
_KINDS: Final = {"properties": PropertyAffordance, "actions": ActionAffordance, "events": EventAffordance}
_SCHEMAS: Final = {
    "properties": (),
    "actions": ("input", "output", _PROGRESS),
    "events": ("subscription", "data", "dataResponse", "cancellation"),
}
_TRANSPORTS: Final = {
    "lmosprotocol": ("ws", "wss", "http", "https"),
    "webthingprotocol": ("ws", "wss"),
    "sse": ("http", "https"),
    "longpoll": ("http", "https"),
    "websub": ("http", "https"),
}


class _Context(NamedTuple):
    """Description under check, with facts that several checks need."""

    data: dict[str, Any]
    base: str | None
    is_tool: bool


class _Form(NamedTuple):
    """Form with the URI variables that its affordance and the thing declare."""

    data: dict[str, Any]
    place: Place
    variables: dict[str, Any]


def semantic_findings(data: dict[str, Any], source: str | None) -> Iterator[Finding]:
    """Yield the findings beyond the schema, in any order; `source` is the URL of the description."""
    base = source
    if (written := data.get("base")) is not None:  # not a text: there is a base, but none to resolve against
        base = resolve(source, written) if isinstance(written, str) else ""
    context = _Context(data, base, has_any(data.get("@type"), TOOL_TYPES))
    yield from check_vocabulary(data)
    yield from _misspelt_members(data, (), _members(Description))
    yield from check_metadata(data)
    yield from _base(context)
    yield from _security(data)
    yield from _schemas(data)
    yield from _extensions(context)
    yield from _forms(context, data, (), {})
    for kind, place, affordance in affordances(data):
        yield from _affordance(context, kind, place, affordance)


@cache
def _members(cls: type) -> list[str]:
    fields = attrs.fields(cls)
    known = [field.metadata["member"] for field in fields if "member" in field.metadata]
    return [*known, *(sorted(SCHEMA_WORDS) if cls is PropertyAffordance else ())]


def _misspelt_members(data: dict[str, Any], place: Place, known: list[str]) -> Iterator[Finding]:
    """Warn of unknown members without a prefix that resemble a known one."""
    for name in data:
        hint = "" if name in known or ":" in name or name.startswith("@") else near(name, known)
        if hint:
            fix = "correct it, or give it a prefix of your own"
            yield Finding((*place, name), f"TD 1.1 has no member {name!r} here{hint}", fix, "warning")


# --- security


def _security(data: dict[str, Any]) -> Iterator[Finding]:
    """Check that every named security scheme is defined, and that no combination contains itself."""
    defined = as_object(data.get("securityDefinitions"))
    if not defined:
        return  # the schema check reports it
    places: list[tuple[Place, Any]] = [(("security",), data.get("security"))]
    holders: list[tuple[Place, dict[str, Any]]] = [((), data)]
    holders += [(place, each) for _, place, each in affordances(data)]
    for place, holder in holders:
        for number, form in enumerate(as_array(holder.get("forms"))):
            if is_object(form):
                places.append(((*place, "forms", number, "security"), form.get("security")))
    for name, scheme in defined.items():
        for word in ("oneOf", "allOf"):
            places.append((("securityDefinitions", name, word), as_object(scheme).get(word)))
    for place, value in places:
        for number, name in enumerate(texts_of(value)):
            where = (*place, number) if is_array(value) else place
            if name not in defined:
                fix = f"define it there, or use {some_of(defined)}"
                yield Finding(where, f"securityDefinitions has no {name!r}{near(name, defined)}", fix)
            elif place[:2] == ("securityDefinitions", name):
                yield Finding(where, f"{name!r} combines itself", "name another scheme")


# --- affordances and their forms


def _affordance(context: _Context, kind: str, place: Place, data: dict[str, Any]) -> Iterator[Finding]:
    yield from _misspelt_members(data, place, _members(_KINDS[kind]))
    yield from _variables(data, place)
    yield from _forms(context, data, place, as_object(data.get("uriVariables")))
    for member in _SCHEMAS[kind]:
        yield from check_schema(data.get(member), (*place, member))
    if kind == "properties":
        yield from check_schema(data, place)
        yield from _access(data, place)
    if kind == "actions" and _STREAMS in data:
        yield from _streams(context, data[_STREAMS], (*place, _STREAMS))


def _extensions(context: _Context) -> Iterator[Finding]:
    """Check the extension members of the thing that refer to actions by name."""
    actions = as_object(context.data.get("actions"))
    for member in (_PROGRESS, _STREAMS):
        value = context.data.get(member)
        if value is not None and not is_object(value):
            message = f"{member} must be an object, is {kind_of(value)}"
            yield Finding((member,), message, "write one member for each action", tolerated=True)
        for name, each in as_object(value).items():
            if name not in actions:
                fix = "correct it, or leave it out"
                yield Finding(
                    (member, name), f"there is no action {name!r}{near(name, actions)}", fix, "warning"
                )
            if member == _STREAMS:
                yield from _streams(context, each, (member, name))
            else:
                yield from check_schema(each, (member, name))


def _streams(context: _Context, value: object, place: Place) -> Iterator[Finding]:
    if context.is_tool:
        yield Finding(place, "a tool has no streams", "make it an agent, or leave them out", "warning")
    try:
        struct(Streams)(value, place)
    except DescriptionError as exc:
        fix = 'write {"input": {"name": {"contentType": "..."}}, "output": {"contentType": "..."}}'
        yield Finding(exc.place, exc.message, fix)
        return
    streams = as_object(value)
    parts = [((*place, "input", name), each) for name, each in as_object(streams.get("input")).items()]
    for where, stream in [*parts, ((*place, "output"), streams.get("output"))]:
        yield from check_schema(as_object(stream).get("schema"), (*where, "schema"))


def _access(data: dict[str, Any], place: Place) -> Iterator[Finding]:
    """Check the operations in a property's forms against its flags."""
    read_only, write_only = data.get("readOnly") is True, data.get("writeOnly") is True
    ops = [(where, op) for where, op in _ops(data, place) if isinstance(op, str)]
    for where, op in ops:
        if op == "writeproperty" and read_only:
            yield Finding(where, "a form writes a property that is readOnly", "leave the operation out")
        if op == "readproperty" and write_only:
            yield Finding(where, "a form reads a property that is writeOnly", "leave the operation out")
        if op == "observeproperty" and data.get("observable") is not True:
            message = "a form observes a property that is not observable"
            yield Finding(where, message, 'add "observable": true, or leave the operation out', "warning")
    observed = any(op == "observeproperty" for _, op in ops)
    if data.get("observable") is True and as_array(data.get("forms")) and not observed:
        message = "the property is observable, and no form observes it"
        yield Finding((*place, "observable"), message, 'add the operation "observeproperty"', "warning")


def _ops(data: dict[str, Any], place: Place) -> Iterator[tuple[Place, Any]]:
    for number, form in enumerate(as_array(data.get("forms"))):
        op = as_object(form).get("op")
        where = (*place, "forms", number, "op")
        yield from (((*where, i), each) for i, each in enumerate(op)) if is_array(op) else [(where, op)]


def _forms(
    context: _Context, data: dict[str, Any], place: Place, variables: dict[str, Any]
) -> Iterator[Finding]:
    declared = {**as_object(context.data.get("uriVariables")), **variables}
    seen: dict[tuple[Any, ...], int] = {}
    used: dict[str, None] = {}
    for number, each in enumerate(as_array(data.get("forms"))):
        form = _Form(as_object(each), (*place, "forms", number), declared)
        yield from _misspelt_members(
            form.data, form.place, [*_members(Form), "additionalResponses", "contentCoding"]
        )
        yield from _responses(context, form)
        yield from _duplicates(context, form, seen, number)
        if isinstance(href := form.data.get("href"), str):
            used |= dict.fromkeys(variables_of(href))
            yield from _href(context, form, href)
    for name in variables:
        if name not in used:
            message, fix = f"no href uses the variable {name!r}", f"add {{?{name}}} to one, or leave it out"
            yield Finding((*place, "uriVariables", name), message, fix, "warning")


def _href(context: _Context, form: _Form, href: str) -> Iterator[Finding]:
    place = (*form.place, "href")
    try:
        check_template(href)
    except DescriptionError as exc:
        yield Finding(place, exc.message, "write it as in RFC 6570, such as /items/{id}{?unit}")
        return
    for name in variables_of(href):
        if name not in form.variables:
            message = f"uriVariables has no {name!r}{near(name, form.variables)}"
            yield Finding(place, message, f'add "uriVariables": {{"{name}": {{"type": "string"}}}}')
    if not is_reference(href):
        yield Finding(place, f"{shown(href)} is not a URI", "percent-encode the characters that URIs forbid")
    elif context.base is not None and not is_uri(context.base):
        return  # `_base` reports it
    elif not scheme_of(target := resolve(context.base, href)):
        fix = 'write an absolute URI, or add "base": "https://..."'
        yield Finding(place, f"{shown(href)} is relative, and there is no base", fix)
    else:
        yield from _transport(form, scheme_of(target))


def _transport(form: _Form, scheme: str) -> Iterator[Finding]:
    """Warn of a subprotocol on a scheme that cannot carry it, and of a WebSocket without a subprotocol."""
    name = form.data.get("subprotocol")
    if isinstance(name, str) and name in _TRANSPORTS and scheme not in _TRANSPORTS[name]:
        fix = f"use {' or '.join(_TRANSPORTS[name])}, or another subprotocol"
        message = f"the subprotocol {name!r} does not go over {scheme}:"
        yield Finding((*form.place, "subprotocol"), message, fix, "warning")
    elif name is None and scheme in ("ws", "wss"):
        message = "a WebSocket without a subprotocol: the messages on it are undefined"
        yield Finding(form.place, message, 'add "subprotocol": "lmosprotocol"', "warning")


def _responses(context: _Context, form: _Form) -> Iterator[Finding]:
    defined = as_object(context.data.get("schemaDefinitions"))
    for number, each in enumerate(as_array(form.data.get("additionalResponses"))):
        name = as_object(each).get("schema")
        if isinstance(name, str) and name not in defined:
            place = (*form.place, "additionalResponses", number, "schema")
            yield Finding(place, f"schemaDefinitions has no {name!r}{near(name, defined)}", "define it there")


def _duplicates(
    context: _Context, form: _Form, seen: dict[tuple[Any, ...], int], number: int
) -> Iterator[Finding]:
    """Warn of two forms with the same operation, href and protocol."""
    href = form.data.get("href")
    if not isinstance(href, str):
        return
    rest = [
        _hashed(form.data.get(word)) for word in ("subprotocol", "contentType", "htv:methodName", "security")
    ]
    for op in texts_of(form.data.get("op")) or [""]:
        first = seen.setdefault((resolve(context.base, href), op, *rest), number)
        if first != number:
            message = f"the same as form {first}{f' for {op}' if op else ''}"
            yield Finding(form.place, message, "leave one out", "warning")


def _hashed(value: object) -> object:
    return value if isinstance(value, str) else tuple(texts_of(value))


def _variables(data: dict[str, Any], place: Place) -> Iterator[Finding]:
    for name, schema in as_object(data.get("uriVariables")).items():
        where = (*place, "uriVariables", name)
        kind = as_object(schema).get("type")
        if kind in ("object", "array"):
            message = f"the variable {name!r} cannot be an {kind}: it stands in a URI"
            yield Finding((*where, "type"), message, "use string, number, integer or boolean")
        yield from check_schema(schema, where)


def _schemas(data: dict[str, Any]) -> Iterator[Finding]:
    yield from _variables(data, ())
    for name, schema in as_object(data.get("schemaDefinitions")).items():
        yield from check_schema(schema, ("schemaDefinitions", name))


def _base(context: _Context) -> Iterator[Finding]:
    if isinstance(context.data.get("base"), str) and not is_uri(context.base or ""):
        fix = 'write an absolute URI, as in "https://example.com/"'
        yield Finding(("base",), f"base {shown(context.base)} is not an absolute URI", fix)
