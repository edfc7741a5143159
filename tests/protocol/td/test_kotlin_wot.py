"""Descriptions that kotlin-wot can read: ours, and what is said of those that it cannot.

The verdicts of the table are those of its reader of May 2025, to which each of these descriptions was given.
"""

from __future__ import annotations

import copy
import importlib
import pkgutil
import re
import sys
from types import ModuleType
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
from msgspec import Meta, Struct

import agents
from lmos_actors import About, Agent, Progress, Property, action, describe, prop
from lmos_actors.bindings import Descriptions
from lmos_actors.protocol.td import Link, check, check_for_kotlin_wot, dump, load, with_forms
from lmos_actors.security import Basic, Bearer, ClientCertificates, NoSec, Security
from tests.protocol.td.kotlin_reader import Unreadable, read
from tests.rows import each_row
from tests.source import ROOT

BASE = "ws://127.0.0.1:8080"
WS = [{"href": "ws://a/ws", "op": ["readproperty"]}]


def plain() -> dict[str, Any]:
    """Return a description with one of everything, which kotlin-wot reads."""
    return {
        "@context": ["https://www.w3.org/2022/wot/td/v1.1"],
        "id": "urn:x:y",
        "title": "T",
        "security": ["n"],
        "securityDefinitions": {"n": {"scheme": "nosec"}},
        "properties": {"p": {"type": "string", "forms": WS}},
        "actions": {
            "a": {"input": {"type": "object"}, "forms": [{"href": "ws://a", "op": ["invokeaction"]}]}
        },
        "events": {
            "e": {"data": {"type": "string"}, "forms": [{"href": "ws://a", "op": ["subscribeevent"]}]}
        },
    }


P = "properties/p"
INNER = f"{P}|object|properties/x"
READ: list[tuple[str, Any]] = [
    ("lmosx:progress", {"a": {"type": "number"}}), (f"{P}/lmosx:x", 1), ("events/e/lmosx:x", 1),
    ("events/e/dataResponse", {"type": "string"}), (f"{P}/forms/0/htv:methodName", "GET"),
    (f"{P}/forms/0/scopes", ["a"]), (f"{P}/forms/0/op", "readproperty"),
    (f"{P}/forms/0/response", {"contentType": "x/y"}),
    (f"{P}/forms/0/additionalResponses", [{"contentType": "x/y"}]), ("security", "n"),
    ("securityDefinitions/n", {"scheme": "bearer", "format": "jwt", "in": "header", "lmosx:x": 1}),
    ("securityDefinitions/n", {"scheme": "basic", "in": "header", "name": "x"}),
    ("securityDefinitions/n", {"scheme": "oauth2", "flow": "code"}),
    (f"{P}/oneOf", [{"type": "string", "const": "a"}, {"type": "string"}]), (f"{P}/const", 1),
    (f"{P}/enum", ["a", None]), (f"{P}/enum", []), (f"{P}/default", None),
    (P, {"type": "integer", "minimum": 0.5}), (P, {"type": "number", "maximum": 1e300}),
    (P, {"type": "number", "multipleOf": 0.1}), (P, {"type": "string", "pattern": "(?P<x>"}),
    (P, {"type": "null"}), (P, {"type": "array"}), (P, {"type": "array", "items": {}}),
    (P, {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "null"}]}}),
    (P, {"type": "array", "default": []}), (P, {"type": "array", "uniqueItems": True}),
    (P, {"type": "object", "properties": {"b": {"oneOf": [{"type": "string"}, {"type": "null"}]}, "c": {}}}),
    (P, {"type": "object", "additionalProperties": {"type": "string"}}),
    (P, {"type": "object", "properties": {"a": {"minimum": 3}}}),
    (P, {"type": "object", "properties": {"a": {"const": 3}}}), (P, {"type": "object", "default": {}}),
    ("actions/a/input", {}), ("actions/a/input", {"oneOf": [{"type": "object"}, {"type": "null"}]}),
    ("actions/a/synchronous", None), ("actions/a/@type", "x:y"), ("actions/a/titles", {"en": "x"}),
    ("actions/a", None), ("links", [{"href": "http://a", "rel": "icon", "sizes": "1x1", "hreflang": ["en"]}]),
    ("version", {"instance": "1"}), ("profile", "http://x"), ("title", None), ("support", None),
    ("forms", [{"href": "ws://a", "op": ["queryallactions", "readallproperties", "subscribeallevents"]}]),
    (f"{P}/uriVariables", {"x": {"type": "string"}}), ("schemaDefinitions", {"y": {}}),
    (f"{P}/observable", None), (f"{P}/readOnly", None), ("actions/a/safe", None), (f"{P}/@type", ["a", "b"]),
    (f"{P}/format", "date-time"), (f"{P}/contentEncoding", "base64"), ("events/e/subscription", {}),
]  # fmt: skip
REFUSED: list[tuple[str, Any, str]] = [
    # member, value, where it is said
    ("actions/a/lmosx:progress", {"type": "number"}, "/actions/a/lmosx:progress"),
    ("actions/a/lmosx:streams", {}, "/actions/a/lmosx:streams"),
    ("actions/a/input", True, "/actions/a/input"),
    ("actions/a/input", {"default": {"a": 1}}, "/actions/a/input/default"),
    (P, {"type": "array", "items": True}, "/properties/p/items"),
    (P, {"type": "array", "items": [{"type": "string"}]}, "/properties/p/items"),
    (P, {"type": "array", "minItems": 5000000000}, "/properties/p/minItems"),
    (P, {"type": "boolean", "default": "x"}, "/properties/p/default"),
    ("events/e/forms", None, "/events/e/forms"),
    (f"{P}/forms/0/additionalResponses", {"contentType": "x/y"}, "/properties/p/forms/0/additionalResponses"),
    (f"{P}/forms", [{"op": ["readproperty"]}], "/properties/p/forms/0"),
    (f"{P}/forms/0/op", ["cancelallactions"], "/properties/p/forms/0/op/0"),
    (f"{P}/forms/0/scopes", "a", "/properties/p/forms/0/scopes"),
    (f"{P}/forms/0/security", "n", "/properties/p/forms/0/security"),
    (f"{P}/forms/0/htv:methodName", None, "/properties/p/forms/0/htv:methodName"),
    ("forms", None, "/forms"),
    ("id", None, "/id"),
    ("properties", None, "/properties"),
    (P, {"type": "integer", "maximum": 2**53 - 1}, "/properties/p/maximum"),
    (P, {"type": "integer", "default": 5000000000}, "/properties/p/default"),
    (P, {"type": "string", "maxLength": 5000000000}, "/properties/p/maxLength"),
    ("links", [{"href": "http://a", "hreflang": "en"}], "/links/0/hreflang"),
    ("links", [{"href": "http://a", "lmosx:x": "en"}], "/links/0/lmosx:x"),
    (P, {"type": "object", "properties": {"a": {"const": {"x": 3}}}}, "/properties/p/properties/a/const"),
    (P, {"type": "object", "properties": {"a": {"default": {"x": 3}}}}, "/properties/p/properties/a/default"),
    (P, {"type": "object", "required": "a"}, "/properties/p/required"),
    (f"{P}/const", {"a": 1}, "/properties/p/const"),
    (f"{P}/default", [1], "/properties/p/default"),
    (P, {"oneOf": [{"type": "string"}, {"type": "null"}]}, "/properties/p"),
    (f"{P}/type", ["string", "null"], "/properties/p/type"),
    ("securityDefinitions/n", {"scheme": "apikey", "in": "header"}, "/securityDefinitions/n"),
    ("securityDefinitions/n", {"scheme": "auto"}, "/securityDefinitions/n/scheme"),
    ("securityDefinitions/n", {"scheme": "cert"}, "/securityDefinitions/n"),
    ("securityDefinitions/n", {"scheme": "combo", "oneOf": ["a"]}, "/securityDefinitions/n/scheme"),
    (
        "securityDefinitions/n",
        {"scheme": "oauth2", "flow": "code", "scopes": "a"},
        "/securityDefinitions/n/scopes",
    ),
    ("securityDefinitions/n", {"scheme": "lmosx:cert"}, "/securityDefinitions/n/scheme"),
    ("version", {"model": "1"}, "/version"),
    ("version", {"instance": "1", "lmosx:x": "2"}, "/version/lmosx:x"),
]  # fmt: skip


def with_member(path: str, value: Any) -> dict[str, Any]:
    """Return the plain description with one member set."""
    data = copy.deepcopy(plain())
    *parents, last = path.split("/")
    at: Any = data
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = value
    return data


@each_row(("path", "value"), READ, ids=lambda each: str(each)[:50])
def test_what_kotlin_wot_reads_is_not_complained_of(path: str, value: Any) -> None:
    data = with_member(path, value)
    read(data)
    assert check_for_kotlin_wot(data) == ()


@each_row(("path", "value", "place"), REFUSED, ids=lambda each: str(each)[:50])
def test_what_kotlin_wot_refuses_is_named(path: str, value: Any, place: str) -> None:
    data = with_member(path, value)
    with pytest.raises(Unreadable):
        read(data)
    (finding,) = check_for_kotlin_wot(data)
    assert finding.path == place
    assert finding.fix


def agent_classes() -> list[type[Agent]]:
    """Return every agent class of the folder `agents`."""
    found: list[type[Agent]] = []
    for each in pkgutil.iter_modules(agents.__path__):
        module = importlib.import_module(f"agents.{each.name}")
        found += [
            cls for cls in vars(module).values()
            if isinstance(cls, type) and issubclass(cls, Agent) and cls.__module__ == module.__name__
        ]  # fmt: skip
    return found


def readme_classes() -> list[type[Agent]]:
    """Return every agent class that the README defines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found: list[type[Agent]] = []
    for block in blocks:
        if "(Agent" in block:
            module = sys.modules[f"readme_{len(found)}"] = ModuleType(f"readme_{len(found)}")
            classes = block.partition("\ntrio.run(")[0]  # which would serve them
            exec(compile(classes, "README.md", "exec"), vars(module))
            found += [
                cls for cls in vars(module).values()
                if isinstance(cls, type) and issubclass(cls, Agent) and cls is not Agent
            ]  # fmt: skip
    return found


@each_row("cls", [*agent_classes(), *readme_classes()], ids=lambda cls: cls.__name__)
def test_kotlin_wot_reads_our_agents_as_they_are_served(cls: type[Agent]) -> None:
    served = served_of(cls)
    read(served)
    assert check_for_kotlin_wot(served) == ()


@attrs.frozen
class Listed:
    """An agent as a node lists it."""

    cls: type[Agent]
    name: str = "it"
    thing_id: str = "urn:x:it"


@attrs.frozen
class Lone:
    """The catalogue of a node with one agent."""

    listed: Listed

    def __iter__(self) -> Any:
        return iter([self.listed])

    def named(self, name: str) -> None:
        return None


def served_of(cls: type[Agent], security: Security | None = None) -> dict[str, Any]:
    """The description of an agent as a node serves it."""
    listed = Listed(cls=cls)
    data: dict[str, Any] = msgspec.json.decode(
        Descriptions(Lone(listed), [BASE], security).served(listed).text
    )
    return data


def test_the_readme_has_agents() -> None:
    assert readme_classes()


class Cat(Struct, frozen=True, tag=True):
    """A cat."""

    lives: int = 9


class Dog(Struct, frozen=True, tag=True):
    """A dog."""

    name: str


class Everything(
    Agent,
    about=About(
        version="1.0",
        links=(
            Link(href="https://a.example", rel="service-doc", hreflang="en"),
            Link(href="https://b.example", extra={"hreflang": "de"}),
            Link(href="https://c.example", hreflang=("en", "fr")),
        ),
    ),
):
    """One of everything that could be said in a way that kotlin-wot does not read."""

    pet: Property[Cat | Dog] = prop(default=Cat())
    number: Property[int | float] = prop(default=0)
    colour: Property[Literal["red"] | Literal["blue"]] = prop(default="red")
    place: Property[tuple[float, float]] = prop(default=(0.0, 0.0))
    share: Property[Annotated[float, Meta(ge=0, le=1)]] = prop(default=0.0)

    @action
    async def wait(self, progress: Progress[float], seconds: float) -> Cat | Dog | None:
        """Wait."""

    @action
    async def count(self, to: int):  # type: ignore[no-untyped-def]
        """Count."""
        for number in range(to):
            yield number


def test_readable_schemas_are_produced_where_possible() -> None:
    data = served_of(Everything)
    read(data)
    assert check(data, strict=True) == ()
    assert [each.get("hreflang") for each in data["links"]] == [["en"], ["de"], ["en", "fr"]]
    assert data["properties"]["pet"]["type"] == "object"
    assert data["properties"]["place"]["items"] == {"type": "number"}
    assert list(data["lmosx:progress"]) == ["wait"]
    assert list(data["lmosx:streams"]) == ["count"]


def test_our_members_are_read_at_the_thing_and_at_the_action() -> None:
    at_thing = with_forms(describe(Everything, id="urn:x:it"), "it", [BASE])
    data = dump(at_thing)
    for member in ("lmosx:progress", "lmosx:streams"):
        for name, each in data.pop(member).items():
            data["actions"][name][member] = each
    at_action = load(data)
    assert dump(at_action) == data
    for name in ("wait", "count"):
        assert at_action.progress_of(name) == at_thing.progress_of(name)
        assert at_action.streams_of(name) == at_thing.streams_of(name)
    assert at_thing.progress_of("wait") is not None
    assert at_thing.streams_of("count") is not None
    assert at_thing.streams_of("gone") is None
    assert with_forms(at_action, "it", [BASE]).actions == at_action.actions


@pytest.mark.parametrize(
    ("schemes", "place"),
    [
        ((Basic({"a": "env:A"}),), None),
        ((Bearer({"a": "env:A"}), NoSec()), None),
        ((Basic({"a": "env:A"}), Bearer({"b": "env:B"})), "/securityDefinitions/any_sc/scheme"),
        ((ClientCertificates({"a": "name:a"}),), "/securityDefinitions/certificate_sc/scheme"),
    ],
)
def test_one_scheme_is_readable_and_what_is_not_is_named(schemes: tuple[Any, ...], place: str | None) -> None:
    security = Security(schemes=schemes)
    served = served_of(Everything, security)
    found = [finding.path for finding in check_for_kotlin_wot(served)]
    assert found == ([] if place is None else [place])
    if place is None:
        read(served)


def test_the_description_of_a_node_is_readable() -> None:
    data = msgspec.json.decode(Descriptions(Lone(Listed(cls=Everything)), [BASE]).own().text)
    read(data)
    assert check_for_kotlin_wot(data) == ()
