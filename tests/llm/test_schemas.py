"""Schemas of tools as they are sent to each family, against a provider that is as strict as the strictest."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors.llm import ToolOffer
from tests.llm.asking import END, HI, items, model_of
from tests.llm.strict import refusal, strict
from tests.rows import each_row

FAMILIES = ("openai", "anthropic", "gemini", "mistral", "ollama")
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
A_NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": TEXT}}
CHAIN: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(50)}
WIDE: dict[str, Any] = {
    f"d{n}": {"type": "object", "properties": {x: {"$ref": f"#/$defs/d{n + 1}"} for x in "abcd"}}
    for n in range(50)
}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


# what is offered, and what openai, anthropic and gemini get of it: None leaves the tool out, `...` is any
ROWS: list[tuple[str, dict[str, Any], Any, Any, Any]] = [
    ("nothing", {}, of(), of(), None),
    ("an object without properties", {"type": "object"}, of(), of(), None),
    ("properties without a type", {"properties": {"a": TEXT}}, ..., ..., {"a": TEXT}),
    ("null as a type of all", {"type": ["object", "null"], "properties": {"a": TEXT}}, ..., ..., {"a": TEXT}),
    ("a plain one", of(a=TEXT, b=NUMBER), of(a=TEXT, b=NUMBER), of(a=TEXT, b=NUMBER), ...),
    ("an array without items", of(a={"type": "array"}), {"a": {"type": "array", "items": {}}}, ..., ...),
    ("a tuple", of(a={"type": "array", "items": [TEXT, NUMBER]}), ..., ..., ...),
    ("true", of(a=True), {"a": {}}, {"a": {}}, {"a": TEXT}),
    ("false", of(a=False), {"a": {"not": {}}}, ..., ...),
    ("a list of types", of(a={"type": ["string", "null"]}), ..., ..., {"a": {**TEXT, "nullable": True}}),
    (
        "types of several kinds",
        of(a={"type": ["array", "string"], "items": NUMBER}),
        ...,
        ...,
        {"a": {"anyOf": [{"type": "array", "items": NUMBER}, TEXT]}},
    ),
    (
        "an optional one of pydantic",
        of(a={"anyOf": [TEXT, {"type": "null"}], "default": None, "title": "A"}),
        ...,
        ...,
        {"a": {**TEXT, "nullable": True, "title": "A"}},
    ),
    ("a constant", of(a={"const": "x"}), ..., ..., {"a": {**TEXT, "enum": ["x"]}}),
    ("numbers to choose from", of(a={"type": "integer", "enum": [1, 2]}), ..., ..., {"a": NUMBER}),
    ("a format", of(a={"type": "string", "format": "uri"}), ..., ..., {"a": TEXT}),
    ("names of arguments", of(**{"a b": TEXT}), {"a b": TEXT}, "'a b'", {"a b": TEXT}),
    ("any members", of(a={"type": "object"}), {"a": {"type": "object"}}, ..., "of any members"),
    ("a reference", {**of(a={"$ref": "#/$defs/t"}), "$defs": {"t": TEXT}}, ..., ..., {"a": TEXT}),
    (
        "a reference to itself",
        {**of(a={"$ref": "#/$defs/node"}), "$defs": {"node": A_NODE}},
        ...,
        ...,
        "itself",
    ),
    (
        "a reference at the top",
        {"$ref": "#/$defs/t", "$defs": {"t": of(a=TEXT)}},
        {"a": TEXT},
        ...,
        {"a": TEXT},
    ),
    ("a reference without an end", {"$ref": "#"}, "without an end", "without an end", "without an end"),
    ("a reference to nothing", of(a={"$ref": "#/$defs/no"}), "not in it", "not in it", "not in it"),
    ("a reference elsewhere", of(a={"$ref": "https://x.example/a"}), "not in it", "not in it", "not in it"),
    ("a text", TEXT, "no object", "no object", "no object"),
    ("a text or an object", {"anyOf": [TEXT, of(a=TEXT)]}, "no object", "no object", "no object"),
    ("too deep", {**of(a={"$ref": "#/$defs/d0"}), "$defs": {**CHAIN, "d50": TEXT}}, ..., ..., "too deeply"),
    ("too wide", {**of(a={"$ref": "#/$defs/d40"}), "$defs": {**WIDE, "d50": TEXT}}, ..., ..., "too large"),
    ("what is no schema", {"properties": [1], "required": "a", "type": "object"}, of(), of(), None),
    (
        "alternatives at the top",
        {"oneOf": [of(kind={"const": "a"}, a=TEXT), of(kind={"const": "b"}, b=NUMBER)]},
        {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "a": TEXT, "b": NUMBER},
        ...,
        {"kind": {"anyOf": [{**TEXT, "enum": [each]} for each in "ab"]}, "a": TEXT, "b": NUMBER},
    ),
    (
        "one of two arguments",
        {
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ...,
        ...,
    ),
    ("all of two", {"allOf": [of(a=TEXT), of(b=TEXT)]}, of(a=TEXT, b=TEXT), ..., of(a=TEXT, b=TEXT)),
    ("a condition", {**of(a=TEXT), "if": {}, "then": {}, "not": {}}, of(a=TEXT), of(a=TEXT), of(a=TEXT)),
]


def is_as(wanted: Any, got: Any, said: str) -> bool:
    """Judge what was sent of a tool: its schema, None for none, or its properties; False: not the tool."""
    if isinstance(wanted, str):
        return got is False and "the tool 'odd_" in said and wanted in said
    if wanted is ...:
        return True
    if got and "type" in wanted:
        return {"required": [], **got} == {"required": [], **wanted} and not said
    return (got["properties"] if got else got) == wanted and not said


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_schema_as_a_family_takes_it(family: str, caplog: Any) -> None:
    native = family == "anthropic"
    wrong: dict[str, Any] = {}
    async with model_of("anthropic" if native else "openai", **({} if native else {"family": family})) as (
        server,
        model,
    ):
        server.default = strict(family)
        for number, (name, schema, *wanted) in enumerate(ROWS):
            caplog.clear()
            tools = [ToolOffer(f"odd_{number}", "Odd.", schema), ToolOffer("plain", "Not odd.", of(a=TEXT))]
            end = (await items(model, HI, tools=tools))[-1]
            sent = [each if native else each["function"] for each in server.requests[-1].body["tools"]]
            got = sent[0].get("input_schema" if native else "parameters") if len(sent) == 2 else False
            said = "\n".join(each.getMessage() for each in caplog.records)
            if end != END or not is_as([*wanted, ..., ...][FAMILIES.index(family)], got, said):
                wrong[name] = (end, got, said)
    assert wrong == {}


async def test_an_argument_that_cannot_be_told_is_left_out_and_said_once(caplog: Any) -> None:
    schema = {"type": "object", "properties": {"a": TEXT, "more": {"type": "object"}}, "required": ["a"]}
    tools = [ToolOffer("look", "", schema), ToolOffer("look", "", of(b=TEXT))]
    async with model_of("openai", family="gemini") as (server, model):
        server.default = strict("gemini")
        for _ in range(2):
            assert (await items(model, tools=tools))[-1] == END
    assert [each["function"]["parameters"] for each in server.requests[1].body["tools"]] == [of(a=TEXT)]
    said = [each.getMessage() for each in caplog.records if "is not told of" in each.getMessage()]
    assert len(said) == 2
    assert "the argument 'more' of the tool 'look': it is an object of any members" in said[0]
    assert "one of two tools 'look': they cannot be told apart" in said[1]


@each_row(
    ("family", "schema", "why"),
    [
        ("openai", {"type": "string"}, "type 'object'"),
        ("openai", {**of(a=TEXT), "oneOf": []}, "union at the top"),
        ("openai", {"type": "object"}, "missing properties"),
        ("openai", of(a={"type": "array"}), "missing items"),
        ("openai", of(a=True), "no object"),
        ("openai", of(a={"$ref": "#/$defs/a"}), "leads nowhere"),
        ("anthropic", of(**{"a b": TEXT}), "property keys"),
        ("gemini", of(a={"type": ["string", "null"]}), "not a list"),
        ("gemini", of(a={"type": "object"}), "non-empty"),
        ("gemini", of(a={"const": 1}), "unknown names"),
        ("openai", of(a=TEXT), None),
    ],
)
def test_the_provider_is_strict_with_schemas(family: str, schema: dict[str, Any], why: str | None) -> None:
    tools = [{"function": {"name": "look", "parameters": schema}}]
    said = refusal(family, {"messages": [{"role": "user", "content": "hi"}], "tools": tools})
    assert said == why if why is None else why in (said or "")
