"""The OpenAPI document (3.1) of a node's HTTP interface, made from the descriptions of its agents.

The data schemas of Thing Descriptions are JSON Schema, and are copied as they are.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lmos_actors._core import Bounded
from lmos_actors.actors import KEY_LENGTH, describe
from lmos_actors.protocol.td import LINES, OCTETS, SCHEMA_WORDS, dump

from ..exposure._description_security import anything
from ..exposure._descriptions import LINKS, http_of, served_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lmos_actors.protocol.td import Description
    from lmos_actors.security import Security

    from ..exposure._description_security import Sees
    from ..exposure._descriptions import Descriptions, Listed, TaggedText

    JsonObject = dict[str, Any]

VERSION: Final = "3.1.0"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
PROBLEM_JSON: Final = "application/problem+json"
STREAMS: Final = "lmosx:streams"
ANSWERS: Final = "lmosx:answers"

_RATHER: Final = ("title", "description")
_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}

PROBLEM: Final = {
    "type": "object",
    "description": "Problem details (RFC 9457), with the members that an LMOS error has.",
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "instance": _TEXT,
        "path": {**_TEXT, "description": "The path of an invalid value in the input."},
        "started": {
            "type": "boolean",
            "description": "Whether the run had begun; if not, asking again is safe.",
        },
        "retryIn": {"type": "number", "description": "Seconds after which to ask again."},
        "about": {"type": "object"},
    },
    "required": ["type", "title", "status"],
}

FAILURE: Final = {
    "allOf": [{"$ref": "#/components/schemas/Problem"}],
    "type": "object",
    "description": "A failure that the action declares: problem details with its code and its data.",
    "properties": {
        "detail": {**_TEXT, "description": "What has happened, as text for people."},
        "code": {**_TEXT, "description": "What has happened, as a code for programs."},
    },
    "additionalProperties": True,
}

STATUS: Final = {
    "type": "object",
    "description": "The status of a run.",
    "properties": {
        "status": {"enum": ["pending", "running", "completed", "failed"]},
        "href": _TEXT,
        "timeRequested": _TIME,
        "timeEnded": _TIME,
        "progress": {},
        "output": {},
        "error": {"$ref": "#/components/schemas/Problem"},
    },
    "required": ["status", "href", "timeRequested"],
}

_STATUS_REF: Final = {"$ref": "#/components/schemas/ActionStatus"}
_NOTHING: Final = {"description": "Done."}
_UNCHANGED: Final = {"description": "It has not changed since the entity tag."}
_PROBLEM_REF: Final = {"$ref": "#/components/responses/Problem"}
_FAILURE_REF: Final = {"$ref": "#/components/responses/ActionFailure"}
_ALWAYS: Final = ("400", "401", "403", "404", "405", "406", "429", "500", "503")
"""Statuses with which any operation may be refused; `_BRINGING` has more, for requests with a body."""

_BRINGING: Final = ("412", "413", "415")

_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The key of the request. A repeat gets the answer that was kept, and is not carried out.",
    "schema": {"type": "string", "pattern": f"^[!#-~][!-~]{{0,{KEY_LENGTH - 1}}}$"},
}
_REUSED: Final = {"422": _PROBLEM_REF}
"""The response for a key that was used for another request."""


KEPT: Final = 8
"""Documents kept as text: one for each set of agents that clients may see."""


class OpenApi:
    """The document of one node, made again when the set of its agents has changed."""

    def __init__(self, descriptions: Descriptions) -> None:
        self._all = descriptions
        self._kept: Bounded[tuple[Any, ...], TaggedText] = Bounded(KEPT)

    def served(self, sees: Sees = anything, base: str | None = None) -> TaggedText:
        """Return the document of the first 1,000 agents that the client may see, with servers at `base`."""
        listed = list(islice(self._all.seen(sees), LINKS))
        base = self._all.bases[0] if base is None else base
        key = (base, *((each.name, each.cls) for each in listed))
        return self._kept.use(key, lambda: served_text(self._text(listed, base)))

    def _text(self, listed: Iterable[Listed], base: str) -> str:
        described = ((each.name, describe(each.cls)) for each in listed)
        return openapi_text(described, http_of(base), self._all.security)


def openapi_text(described: Iterable[tuple[str, Description]], base: str, security: Security | None) -> str:
    """Return the document for agents by their public names; `base` is the address for HTTP."""
    paths: JsonObject = {}
    for name, description in described:
        paths.update(_paths_of(name, dump(description)))
    schemes = _schemes(security)
    document: JsonObject = {
        "openapi": VERSION,
        "info": {"title": "Agents of an lmos_actors node", "version": "1"},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM, "ActionFailure": FAILURE, "ActionStatus": STATUS},
            "responses": {
                "Problem": _answer("The request was not carried out.", PROBLEM_JSON, "Problem"),
                "ActionFailure": _answer("The action has failed.", PROBLEM_JSON, "ActionFailure"),
            },
            **({"securitySchemes": schemes} if schemes else {}),
        },
    }
    if schemes and security is not None:
        anyone: list[JsonObject] = [{}] if security.admits_anonymous else []
        document["security"] = [*({name: []} for name in schemes), *anyone]
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _answer(description: str, media_type: str, schema: str) -> JsonObject:
    return {
        "description": description,
        "content": _content({"$ref": f"#/components/schemas/{schema}"}, media_type),
    }


def _content(schema: Any, media_type: str = JSON) -> JsonObject:
    return {media_type: {"schema": schema}}


# ---- security


def _schemes(security: Security | None) -> JsonObject:
    found = {} if security is None else security.definitions()
    return {name: made for name, each in found.items() if (made := _SCHEMES.get(each.scheme)) is not None}


_SCHEMES: Final[Mapping[str, JsonObject]] = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "auto": {"type": "mutualTLS"},
}


# ---- one agent


def _paths_of(agent: str, described: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    place = f"/agents/{quote(agent, safe='')}"
    writer = _OperationWriter(agent)
    text = {"type": "object"}
    read = writer.operation(
        "describe", "", "The description of the agent.", {"200": _response(text, "application/td+json")}
    )
    yield place, {"get": {**read, "responses": {**read["responses"], "304": _UNCHANGED}}}
    yield from _properties(writer, place, described.get("properties", {}))
    yield from _actions(
        writer,
        place,
        described.get("actions", {}),
        described.get(STREAMS, {}),
        keeps_answers=ANSWERS in described,
    )
    yield from _events(writer, place, described.get("events", {}))


class _OperationWriter:
    """A writer of the OpenAPI operations of one agent."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def operation(self, verb: str, name: str, summary: str, responses: JsonObject, **more: Any) -> JsonObject:
        """Return one operation in OpenAPI form, including the problems that may be its answer."""
        wrong: JsonObject = dict.fromkeys(_ALWAYS, _PROBLEM_REF)
        if "requestBody" in more:
            wrong |= dict.fromkeys(_BRINGING, _PROBLEM_REF)
        return {
            "operationId": ".".join(part for part in (self._agent, verb, name) if part),
            "tags": [self._agent],
            **({"summary": summary} if summary else {}),
            **more,
            "responses": {**responses, **wrong},
        }


def _response(schema: Any, media_type: str = JSON) -> JsonObject:
    return {"description": "Its value.", "content": _content(schema, media_type)}


def _listening_responses(schema: Any) -> JsonObject:
    """Return the responses of an operation that listens: a long poll, or a stream of events."""
    content = {**_content(schema), **_content({}, EVENTS)}
    found = {"description": "The next value, or a stream of values.", "content": content}
    return {"200": found, "204": _NOTHING}


def _given(schema: Any, *, required: bool = True) -> JsonObject:
    return {"required": required, "content": _content(schema)}


def _schema_of(affordance: JsonObject) -> JsonObject:
    return {word: each for word, each in affordance.items() if word in SCHEMA_WORDS or word in _RATHER}


def _summary(affordance: JsonObject) -> str:
    return str(affordance.get("description", "")).strip().partition("\n")[0]


def _properties(
    writer: _OperationWriter, place: str, properties: JsonObject
) -> Iterator[tuple[str, JsonObject]]:
    if not properties:
        return
    schemas = {name: _schema_of(each) for name, each in properties.items()}
    readable = {name: schemas[name] for name, each in properties.items() if not each.get("writeOnly")}
    writable = {name: schemas[name] for name, each in properties.items() if not each.get("readOnly")}
    methods: JsonObject = {}
    if readable:
        all_of_them = {"type": "object", "properties": readable, "required": list(readable)}
        answers = {"200": _response(all_of_them), "304": _UNCHANGED}
        methods["get"] = writer.operation("readall", "", "All properties.", answers)
    if writable:
        some = {"type": "object", "properties": writable}
        methods["put"] = writer.operation(
            "writemany", "", "Write some properties.", {"204": _NOTHING}, requestBody=_given(some)
        )
    yield f"{place}/properties", methods
    for name, each in properties.items():
        yield from _property(writer, f"{place}/properties/{quote(name, safe='')}", name, each)


def _property(
    writer: _OperationWriter, place: str, name: str, affordance: JsonObject
) -> Iterator[tuple[str, JsonObject]]:
    schema, summary = _schema_of(affordance), _summary(affordance)
    methods: JsonObject = {}
    if not affordance.get("writeOnly"):
        methods["get"] = writer.operation(
            "read", name, summary, {"200": _response(schema), "304": _UNCHANGED}
        )
    if not affordance.get("readOnly"):
        methods["put"] = writer.operation(
            "write", name, summary, {"204": _NOTHING}, requestBody=_given(schema)
        )
    yield place, methods
    if affordance.get("observable"):
        responses = _listening_responses(schema)
        yield f"{place}/observable", {"get": writer.operation("observe", name, summary, responses)}


def _actions(
    writer: _OperationWriter, place: str, actions: JsonObject, streams: JsonObject, *, keeps_answers: bool
) -> Iterator[tuple[str, JsonObject]]:
    # a request has one body
    actions = {
        name: each for name, each in actions.items() if len(streams.get(name, {}).get("input", {})) <= 1
    }
    if not actions:
        return
    runs = {"type": "object", "additionalProperties": {"type": "array", "items": _STATUS_REF}}
    yield (
        f"{place}/actions",
        {"get": writer.operation("queryall", "", "The status of all runs.", {"200": _response(runs)})},
    )
    for name, each in actions.items():
        where = f"{place}/actions/{quote(name, safe='')}"
        yield from _action(writer, where, name, each, streams.get(name, {}), keeps_answers=keeps_answers)


def _action(
    writer: _OperationWriter,
    place: str,
    name: str,
    affordance: JsonObject,
    streams: JsonObject,
    *,
    keeps_answers: bool,
) -> Iterator[tuple[str, JsonObject]]:
    summary = _summary(affordance)
    more = _streamed_body(affordance, streams["input"]) if "input" in streams else _body_of(affordance)
    outcomes = {**_outcomes(affordance, streams), "409": _FAILURE_REF}
    if keeps_answers and not streams:
        more, outcomes = {"parameters": [_KEY], **more}, {**outcomes, **_REUSED}
    invoke = writer.operation("invoke", name, summary, outcomes, **more)
    if streams:  # such a run ends with its response, so there is nothing to query
        yield place, {"post": invoke}
        return
    stands = {"200": _response(_STATUS_REF)}
    query = writer.operation("query", name, "The status of the newest run.", stands)
    cancel = writer.operation("cancel", name, "Cancel the newest run.", {"204": _NOTHING})
    yield place, {"post": invoke, "get": query, "delete": cancel}
    run = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
    yield (
        f"{place}/{{id}}",
        {
            "parameters": [run],
            "get": writer.operation("queryrun", name, "The status of a run.", stands),
            "delete": writer.operation("cancelrun", name, "Cancel a run.", {"204": _NOTHING}),
        },
    )


def _body_of(affordance: JsonObject) -> JsonObject:
    schema = affordance.get("input")
    if schema is None:
        return {}
    if schema.get("type") == "object" and not schema.get("required"):  # null counts as no input
        return {"requestBody": _given({"anyOf": [schema, {"type": "null"}]}, required=False)}
    return {"requestBody": _given(schema)}


def _streamed_body(affordance: JsonObject, inputs: JsonObject) -> JsonObject:
    """Return the request of an action that takes a stream: the stream is the body, the rest in the query."""
    (stream,) = inputs.values()
    kinds = (LINES, OCTETS) if stream["contentType"] == OCTETS else (LINES,)
    content: JsonObject = {}
    for kind in kinds:
        content |= _content(stream.get("schema", {}) if kind == LINES else {}, kind)
    schema = affordance.get("input", {})
    required = schema.get("required", ())
    parameters = [
        {"name": name, "in": "query", "required": name in required, **_in_query(each)}
        for name, each in schema.get("properties", {}).items()
    ]
    body = {"required": True, "description": "The items, one on each line.", "content": content}
    return {**({"parameters": parameters} if parameters else {}), "requestBody": body}


def _in_query(schema: JsonObject) -> JsonObject:
    """Return the OpenAPI form of an input member in the query: arrays and objects are written as JSON."""
    return {"content": _content(schema)} if schema.get("type") in ("array", "object") else {"schema": schema}


def _outcomes(affordance: JsonObject, streams: JsonObject) -> JsonObject:
    if "output" in streams:
        content = {**_content({}, EVENTS), **_content(streams["output"].get("schema", {}), LINES)}
        return {"200": {"description": "The items of the output.", "content": content}}
    later = {"201": _answer("The run has begun; its status is at Location.", JSON, "ActionStatus")}
    output = affordance.get("output")
    whole = {"204": _NOTHING} if output is None else {"200": _response(output)}
    return whole if streams else {**whole, **later}


def _events(writer: _OperationWriter, place: str, events: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    if not events:
        return
    stream = {"200": {"description": "A stream of all events.", "content": _content({}, EVENTS)}}
    yield f"{place}/events", {"get": writer.operation("subscribeall", "", "All events.", stream)}
    for name, each in events.items():
        schema = each.get("data", {})
        answers = _listening_responses(schema)
        yield (
            f"{place}/events/{quote(name, safe='')}",
            {"get": writer.operation("subscribe", name, _summary(each), answers)},
        )
