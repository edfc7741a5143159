"""Thing Description of a directory itself, after the Thing Model of WoT Discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.protocol.td import OLD_TD_CONTEXT_URI, TD_CONTEXT_URI, SecurityScheme

from ._entries import DISCOVERY_URI

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TD_JSON: Final = "application/td+json"
LD_JSON: Final = "application/ld+json"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
PROBLEM: Final = "application/problem+json"
EVENTS: Final = "text/event-stream"

_ID: Final = {
    "id": {"@type": "ThingID", "title": "Id of the description", "type": "string", "format": "iri-reference"}
}
_THING: Final = {"type": "object", "description": "A Thing Description."}
_BAD: Final = (400, "The description is invalid, or cannot be registered.")
_GONE: Final = (404, "No description is registered under that id.")
_FULL: Final = (507, "The directory is full.")


def directory_td(
    base: str, prefix: str, definitions: Mapping[str, dict[str, Any]], security: Sequence[str]
) -> dict[str, Any]:
    """Return the description of a directory at `base`, a URL without a path; its API is below `prefix`."""
    return {
        # the context of TD 1.0 first, as for agents: without it node-wot does not recognise a directory
        "@context": [
            OLD_TD_CONTEXT_URI,
            TD_CONTEXT_URI,
            DISCOVERY_URI,
            {"htv": "http://www.w3.org/2011/http#"},
        ],
        "@type": "ThingDirectory",
        "id": f"{base}{prefix}/things",
        "title": "Thing Description Directory",
        "description": "Keeps the descriptions of things and agents, tells of changes, and searches them.",
        "version": {"instance": "1.0.0", "model": "1.0.0"},
        "base": f"{base}/",
        "securityDefinitions": dict(definitions),
        "security": list(security),
        "properties": {"things": _things(prefix)},
        "actions": _actions(prefix),
        "events": _events(prefix),
    }


def open_to_all() -> tuple[dict[str, SecurityScheme], tuple[str, ...]]:
    """Return the security of a directory without authentication."""
    return {"nosec_sc": SecurityScheme(scheme="nosec")}, ("nosec_sc",)


def _things(prefix: str) -> dict[str, Any]:
    listed = {"type": "array", "description": "The descriptions, in the order of their ids.", "items": _THING}
    members: dict[str, Any] = {
        "@context": {"type": "string", "const": DISCOVERY_URI},
        "@type": {"type": "string", "const": "ThingCollection"},
        "@id": {"type": "string", "description": "URI of this page."},
        "total": {"type": "integer", "description": "How many descriptions there are."},
        "members": listed,
        "next": {"type": "string", "description": "URI of the next page."},
    }
    return {
        "description": "All descriptions, or a page of them.",
        "readOnly": True,
        "oneOf": [listed, {"type": "object", "properties": members}],
        "uriVariables": {
            "offset": {"title": "Descriptions before the page", "type": "number", "default": 0},
            "limit": {"title": "Descriptions in a page", "type": "number"},
            "format": {
                "title": "An array, or an object around it",
                "type": "string",
                "enum": ["array", "collection"],
                "default": "array",
            },
        },
        "forms": [
            {
                "op": "readproperty",
                "href": f"{prefix}/things{{?offset,limit,format}}",
                "htv:methodName": "GET",
                "contentType": LD_JSON,
                "response": {
                    "contentType": LD_JSON,
                    "htv:statusCodeValue": 200,
                    "htv:headers": [{"htv:fieldName": "Link"}],
                },
                "additionalResponses": _problems((400, "The query cannot be read.")),
            }
        ],
    }


def _problems(*found: tuple[int, str]) -> list[dict[str, Any]]:
    return [
        {"description": why, "contentType": PROBLEM, "htv:statusCodeValue": status} for status, why in found
    ]


def _form(
    href: str,
    method: str,
    status: int,
    *problems: tuple[int, str],
    takes: str | None = None,
    returns: str | None = None,
    headers: Sequence[str] = (),
) -> dict[str, Any]:
    header_names = [{"htv:fieldName": name} for name in headers]
    return {
        "op": "invokeaction",
        "href": href,
        "htv:methodName": method,
        "contentType": takes or JSON,
        "response": {
            "contentType": returns or takes or JSON,
            "htv:statusCodeValue": status,
            **({"htv:headers": header_names} if header_names else {}),
        },
        "additionalResponses": _problems(*problems),
    }


def _actions(prefix: str) -> dict[str, Any]:
    one, all_ = f"{prefix}/things/{{id}}", f"{prefix}/things"
    return {
        "createThing": _action(
            "Registers a description.", _form(one, "PUT", 201, _BAD, _FULL, takes=TD_JSON)
        ),
        "createAnonymousThing": _action(
            "Registers a description without an id, and returns its location.",
            _form(all_, "POST", 201, _BAD, _FULL, takes=TD_JSON, headers=("Location",)),
            named=False,
        ),
        "retrieveThing": _action(
            "Returns a description.",
            _form(one, "GET", 200, _GONE, returns=TD_JSON),
            takes=False,
            returns=True,
        ),
        "updateThing": _action(
            "Replaces a description.", _form(one, "PUT", 204, _BAD, _FULL, takes=TD_JSON), idempotent=True
        ),
        "partiallyUpdateThing": _action(
            "Changes a part of a description; an empty patch renews its time to live.",
            _form(one, "PATCH", 204, _BAD, _GONE, _FULL, takes=MERGE_PATCH),
            idempotent=True,
        ),
        "deleteThing": _action(
            "Removes a description.", _form(one, "DELETE", 204, _GONE), takes=False, idempotent=True
        ),
        "searchJSONPath": _search(prefix),
    }


def _action(
    description: str,
    form: dict[str, Any],
    *,
    named: bool = True,
    takes: bool = True,
    returns: bool = False,
    idempotent: bool = False,
) -> dict[str, Any]:
    return {
        "description": description,
        **({"uriVariables": _ID} if named else {}),
        **({"input": _THING} if takes else {}),
        **({"output": _THING, "safe": True} if returns else {}),
        **({"idempotent": True} if returns or idempotent else {}),
        "synchronous": True,
        "forms": [form],
    }


def _search(prefix: str) -> dict[str, Any]:
    bad = (400, "The query is missing, is not a JSONPath, or exceeds the limits of a search.")
    return {
        "description": "Returns what a JSONPath expression (RFC 9535) selects in all descriptions.",
        "uriVariables": {"query": {"title": "A JSONPath expression", "type": "string"}},
        "output": {"type": "array", "description": "Descriptions, or parts of them."},
        "safe": True,
        "idempotent": True,
        "synchronous": True,
        "forms": [_form(f"{prefix}/search/jsonpath{{?query}}", "GET", 200, bad, returns=JSON)],
    }


def _events(prefix: str) -> dict[str, Any]:
    created = "A description was registered; with diff, as it is."
    updated = "A description was changed; with diff, as a JSON merge patch."
    deleted = "A description was removed, or has expired."
    return {
        "thingCreated": _event(prefix, "thing_created", created, diff=True),
        "thingUpdated": _event(prefix, "thing_updated", updated, diff=True),
        "thingDeleted": _event(prefix, "thing_deleted", deleted, diff=False),
    }


def _event(prefix: str, kind: str, description: str, *, diff: bool) -> dict[str, Any]:
    variables = {"diff": {"description": "Include the changed data, not only the id.", "type": "boolean"}}
    data = {"type": "object", "description": "At least the id of the description."}
    form = {
        "op": ["subscribeevent", "unsubscribeevent"],
        "href": f"{prefix}/events/{kind}{'{?diff}' if diff else ''}",
        "htv:methodName": "GET",
        "subprotocol": "sse",
        "contentType": EVENTS,
        "htv:headers": [{"htv:fieldName": "Last-Event-ID"}],
        "response": {"contentType": EVENTS, "htv:statusCodeValue": 200},
    }
    return {
        "description": description,
        **({"uriVariables": variables} if diff else {}),
        "data": data,
        "forms": [form],
    }
