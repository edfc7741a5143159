"""Descriptions of the two things of the scripted server: one with every affordance, and a small one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME: Final = "conformance"
NAME_B: Final = "conformance-b"
ID: Final = "urn:uuid:8d1f5f0a-3c59-4c0e-9a53-7f1c2f6b4e11"
ID_B: Final = "urn:uuid:c2a7e9d4-61b8-4f3d-8e25-0b9d4a7c5f22"
OFFERS: Final = ("acks", "gaps", "streams", "deadlines", "retries", "tells", "keys")

KEPT_ANSWERS: Final = 1_000

_CONTEXT: Final = [
    "https://www.w3.org/2022/wot/td/v1.1",
    {"lmos": "https://eclipse.dev/lmos/protocol/v1", "lmosx": "urn:lmos-actors:v1#"},
]
_LEVEL: Final = {
    "description": "A whole number to be set.",
    "type": "integer",
    "minimum": 0,
    "maximum": 100,
    "observable": True,
}
_ECHO: Final = {
    "description": "Gives the text back, as many times as wanted.",
    "safe": True,
    "idempotent": True,
    "input": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 1, "maximum": 3}},
        "required": ["text"],
    },
    "output": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
_RING: Final = {
    "description": "Makes the event `rang` happen, with the note, before it answers.",
    "safe": True,
    "input": {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]},
}
_RANG: Final = {
    "description": "`ring` was invoked: its note, and how many times that was so.",
    "data": {
        "type": "object",
        "properties": {"note": {"type": "string"}, "number": {"type": "integer", "minimum": 1}},
        "required": ["note", "number"],
    },
}
_NUMBER: Final = {"type": "integer", "minimum": -1000, "maximum": 1000}

PROPERTIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "level": _LEVEL,
    "label": {
        "description": "A short text to be set.",
        "type": "string",
        "minLength": 1,
        "maxLength": 40,
        "observable": True,
    },
    "settings": {
        "description": "An object to be set as a whole.",
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["a", "b", "c"]},
            "ratio": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["mode", "ratio"],
    },
    "version": {"description": "A text that never changes.", "type": "string", "readOnly": True},
    "secret": {"description": "A text that is never given away.", "type": "string", "writeOnly": True},
    "uptime": {
        "description": "How long the thing has been there; observers get it every second.",
        "type": "number",
        "unit": "s",
        "minimum": 0,
        "readOnly": True,
        "observable": True,
    },
}
ACTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "echo": _ECHO,
    "add": {
        "description": "Gives the sum of two numbers.",
        "safe": True,
        "idempotent": True,
        "input": {"type": "object", "properties": {"a": _NUMBER, "b": _NUMBER}, "required": ["a", "b"]},
        "output": {"type": "integer"},
    },
    "wait": {
        "description": "Is pending at once, reports its progress, and is completed after so many seconds.",
        "safe": True,
        "synchronous": False,
        "input": {
            "type": "object",
            "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 60}},
            "required": ["seconds"],
        },
        "output": {"type": "object", "properties": {"waited": {"type": "number"}}, "required": ["waited"]},
    },
    "fail": {"description": "Fails, always.", "safe": True, "output": {}},
    "ring": _RING,
    "raise_alarm": {"description": "Makes the event `alarm` happen, before it answers.", "safe": True},
    "reset": {"description": "Puts all properties back as they were at first.", "safe": False},
    "count": {
        "description": "Gives the whole numbers from 0 to the one before `to`, one by one.",
        "safe": True,
        "input": {
            "type": "object",
            "properties": {"to": {"type": "integer", "minimum": 0, "maximum": 1000}},
            "required": ["to"],
        },
    },
    "total": {
        "description": "Gives the sum of the whole numbers that come as a stream.",
        "safe": True,
        "output": {"type": "integer"},
    },
    "repeat": {"description": "Gives each item of a stream of bytes back, as it comes.", "safe": True},
}
PROGRESS: Final[Mapping[str, Mapping[str, Any]]] = {"wait": {"type": "number", "minimum": 0, "maximum": 1}}
STREAMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "count": {"output": {"contentType": "application/json", "schema": {"type": "integer"}}},
    "total": {"input": {"numbers": {"contentType": "application/json", "schema": {"type": "integer"}}}},
    "repeat": {
        "input": {"said": {"contentType": "application/octet-stream"}},
        "output": {"contentType": "application/octet-stream"},
    },
}
EVENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "rang": _RANG,
    "alarm": {"description": "`raise_alarm` was invoked.", "data": {"type": "string"}},
}
VALUES: Final[Mapping[str, Any]] = {
    "level": 20,
    "label": "new",
    "settings": {"mode": "a", "ratio": 0.5},
    "version": "1.0",
    "secret": "none",
}
"""The first values of the properties."""

WITHOUT_HTTP: Final = ("wait", "count", "total", "repeat")
"""Actions without a form for HTTP, as they take long or have streams."""


def described(base: str) -> dict[str, Any]:
    """Return the description of the main thing, served at a base such as `ws://127.0.0.1:8080`."""
    document = _document(base, NAME, ID, "Conformance thing", (PROPERTIES, ACTIONS, EVENTS))
    document["description"] = "Offers one of everything, to try LMOS clients and kits with."
    return document


def described_b(base: str) -> dict[str, Any]:
    """Return the description of the second thing, on the same socket."""
    groups = ({"level": _LEVEL}, {"echo": _ECHO, "ring": _RING}, {"rang": _RANG})
    document = _document(base, NAME_B, ID_B, "Conformance thing B", groups)
    document["description"] = "Stands on the same socket as the conformance thing, with a state of its own."
    return document


def _document(
    base: str, name: str, thing_id: str, title: str, groups: tuple[Mapping[str, Mapping[str, Any]], ...]
) -> dict[str, Any]:
    place = f"http{base.removeprefix('ws')}/agents/{name}"
    properties, actions, events = groups
    return {
        "@context": _CONTEXT,
        "@type": "lmos:Agent",
        "id": thing_id,
        "title": title,
        "lmosx:offers": list(OFFERS),
        "lmosx:answers": {"seconds": 86400, "count": KEPT_ANSWERS, "bytes": KEPT_ANSWERS << 16},
        **_of_actions("lmosx:progress", PROGRESS, groups[1]),
        **_of_actions("lmosx:streams", STREAMS, groups[1]),
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "security": "nosec_sc",
        "properties": {key: _property(base, place, key, data) for key, data in properties.items()},
        "actions": {key: _action(base, place, key, data) for key, data in actions.items()},
        "events": {
            key: {**data, "forms": [_lmos(base, ("subscribeevent", "unsubscribeevent"))]}
            for key, data in events.items()
        },
        "forms": [
            _lmos(
                base,
                (
                    "readallproperties",
                    "readmultipleproperties",
                    "writeallproperties",
                    "writemultipleproperties",
                    "subscribeallevents",
                    "unsubscribeallevents",
                ),
            ),
            _http(f"{place}/properties", ("readallproperties", "writemultipleproperties")),
        ],
    }


def _of_actions(
    member: str, said: Mapping[str, Mapping[str, Any]], actions: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a description's member with the entries of `said` about these actions, or {} without any."""
    known = {name: dict(each) for name, each in said.items() if name in actions}
    return {member: known} if known else {}


def _property(base: str, place: str, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    reads = () if data.get("writeOnly") else ("readproperty",)
    asked = (*reads, *(() if data.get("readOnly") else ("writeproperty",)))
    received = ("observeproperty", "unobserveproperty") if data.get("observable") else ()
    forms = [_lmos(base, (*asked, *received)), _http(f"{place}/properties/{name}", asked)]
    return {**data, "forms": forms}


def _action(base: str, place: str, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    forms = [_lmos(base, ("invokeaction", "queryaction", "cancelaction"))]
    if name not in WITHOUT_HTTP:
        forms.append(_http(f"{place}/actions/{name}", ("invokeaction",)))
    return {**data, "forms": forms}


def _lmos(base: str, ops: Iterable[str]) -> dict[str, Any]:
    return {
        "href": f"{base}/ws",
        "contentType": "application/json",
        "subprotocol": "lmosprotocol",
        "op": list(ops),
    }


def _http(href: str, ops: Iterable[str]) -> dict[str, Any]:
    return {"href": href, "contentType": "application/json", "op": list(ops)}
