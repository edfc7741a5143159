"""Descriptions to test with: those in `tests/wire/td`, and a good one to spoil."""

from __future__ import annotations

import json
from typing import Any

from tests.source import ROOT

WIRE = ROOT / "tests" / "wire" / "td"
NAMES = sorted(path.name for path in WIRE.glob("*.json"))
BROKEN = [name for name in NAMES if ".broken." in name]
READABLE = [name for name in NAMES if name not in BROKEN]


def text_of(name: str) -> str:
    return (WIRE / name).read_text(encoding="utf-8")


def data_of(name: str) -> dict[str, Any]:
    return json.loads(text_of(name))


def good() -> dict[str, Any]:
    """A description that uses most of what there is and has nothing wrong with it, also when strict."""
    return {
        "@context": [
            "https://www.w3.org/2022/wot/td/v1.1",
            {"lmos": "https://eclipse.dev/lmos/protocol/v1", "lmosx": "urn:lmos-actors:v1#"},
        ],
        "@type": "lmos:Agent",
        "id": "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77",
        "title": "Clerk",
        "version": {"instance": "1.0.0"},
        "created": "2026-03-01T08:00:00Z",
        "base": "https://clerk.example/",
        "lmos:metadata": {
            "lmos:vendor": {"lmos:name": "Example", "lmos:url": "https://example.com"},
            "lmos:model": {"lmos:name": "gpt-x", "lmos:provider": "Example"},
        },
        "lmosx:offers": ["streams"],
        "links": [{"rel": "icon", "href": "icon.png", "sizes": "16x16"}],
        "securityDefinitions": {
            "basic": {"scheme": "basic", "in": "header"},
            "key": {"scheme": "apikey", "in": "query", "name": "k"},
            "either": {"scheme": "combo", "oneOf": ["basic", "key"]},
        },
        "security": "either",
        "schemaDefinitions": {"problem": {"type": "object"}},
        "properties": {
            "mood": {
                "type": "string",
                "enum": ["good", "bad"],
                "default": "good",
                "observable": True,
                "forms": [
                    {
                        "op": ["readproperty", "observeproperty"],
                        "subprotocol": "lmosprotocol",
                        "href": "wss://clerk.example/ws",
                        "security": ["basic"],
                    }
                ],
            },
            "load": {
                "type": "object",
                "properties": {"cpu": {"type": "number", "minimum": 0, "maximum": 1}},
                "required": ["cpu"],
                "readOnly": True,
                "forms": [{"href": "load"}],
            },
        },
        "actions": {
            "find": {
                "input": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
                "output": {"oneOf": [{"type": "string"}, {"type": "null"}]},
                "uriVariables": {"limit": {"type": "integer", "minimum": 1}},
                "lmosx:streams": {"output": {"contentType": "audio/opus"}},
                "forms": [
                    {
                        "href": "find{?limit}",
                        "op": "invokeaction",
                        "additionalResponses": [{"schema": "problem"}],
                    }
                ],
            }
        },
        "events": {
            "closed": {
                "data": {"type": "string"},
                "forms": [
                    {"href": "closed", "op": ["subscribeevent", "unsubscribeevent"], "subprotocol": "sse"}
                ],
            }
        },
        "forms": [{"href": "all", "op": "readallproperties"}],
    }


def spoil(path: str, value: Any) -> dict[str, Any]:
    """The good one with one member set, or taken out where the value is `...`; the path has slashes."""
    data = good()
    at: Any = data
    *parents, last = path.split("/")
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
    if value is ...:
        del at[last]
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return data
