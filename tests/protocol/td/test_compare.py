"""Every difference between a description and a class is named, with what it means for a consumer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from lmos_actors.protocol import td

from .samples import READABLE, good, spoil, text_of


def thing(**members: Any) -> td.Description:
    return td.load({"@type": "lmos:Agent", "title": "x", **members})


def told(offered: td.Description, expected: td.Description) -> list[tuple[str, str]]:
    return [(each.path, each.weight) for each in td.differences(offered, expected)]


@pytest.mark.parametrize("name", READABLE)
def test_a_description_does_not_differ_from_itself(name: str) -> None:
    assert td.differences(td.load(text_of(name)), td.load(text_of(name))) == ()


def test_where_it_is_served_is_no_part_of_the_contract() -> None:
    ours = td.load(good())
    served = td.with_forms(ours, "clerk", ["ws://h"])
    more = {"id": "urn:x", "base": "http://h", "security": "s", "created": "x", "version": {"instance": "2"}}
    assert td.differences(td.load({**td.dump(served), **more}), ours) == ()


# --- schemas: what is offered, what the class has, what that means for what is sent and for what is received

STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
LEFT: dict[str, Any] = {"type": "object", "properties": {"a": STRING, "b": INTEGER}, "required": ["a"]}


def left(**members: Any) -> dict[str, Any]:
    return {**LEFT, **members}


SCHEMAS: list[tuple[str, Any, Any, list[tuple[str, str, str]]]] = [
    # what it is | offered | expected | (where, weight when sent, weight when received)
    ("the same", LEFT, LEFT, []),
    ("type", STRING, NUMBER, [("/type", "breaks", "breaks")]),
    ("narrower type", INTEGER, NUMBER, [("/type", "breaks", "differs")]),
    ("wider type", NUMBER, INTEGER, [("/type", "differs", "breaks")]),
    ("anything instead", {}, STRING, [("/type", "differs", "breaks")]),
    ("something instead of anything", STRING, {}, [("/type", "breaks", "differs")]),
    ("type by its values", {"enum": ["a"]}, {"enum": [1]}, [("/type", "breaks", "breaks")]),
    ("lower limit raised", {**NUMBER, "minimum": 2}, {**NUMBER, "minimum": 1},
     [("/minimum", "breaks", "differs")]),
    ("lower limit lowered", {**NUMBER, "minimum": 1}, {**NUMBER, "minimum": 2},
     [("/minimum", "differs", "breaks")]),
    ("upper limit lowered", {**NUMBER, "maximum": 1}, {**NUMBER, "maximum": 2},
     [("/maximum", "breaks", "differs")]),
    ("limit added", {**STRING, "maxLength": 5}, STRING, [("/maxLength", "breaks", "differs")]),
    ("limit gone", STRING, {**STRING, "minLength": 1}, [("/minLength", "differs", "breaks")]),
    ("limit without its end", {**NUMBER, "exclusiveMinimum": 1}, {**NUMBER, "minimum": 1},
     [("/exclusiveMinimum", "breaks", "differs")]),
    ("value gone", {"enum": ["a"]}, {"enum": ["a", "b"]}, [("/enum", "breaks", "differs")]),
    ("value added", {"enum": ["a", "b"]}, {"enum": ["a"]}, [("/enum", "differs", "breaks")]),
    ("values exchanged", {"enum": ["a", "c"]}, {"enum": ["a", "b"]}, [("/enum", "breaks", "breaks")]),
    ("values in another order", {"enum": ["b", "a"]}, {"enum": ["a", "b"]}, []),
    ("values listed", {**STRING, "enum": ["a"]}, STRING, [("/enum", "breaks", "differs")]),
    ("values no longer listed", STRING, {**STRING, "enum": ["a"]}, [("/enum", "differs", "breaks")]),
    ("constant", {"const": "a"}, {"enum": ["a", "b"]}, [("/const", "breaks", "differs")]),
    ("pattern added", {**STRING, "pattern": "x"}, STRING, [("/pattern", "breaks", "differs")]),
    ("pattern gone", STRING, {**STRING, "pattern": "x"}, [("/pattern", "differs", "breaks")]),
    ("format exchanged", {**STRING, "format": "date"}, {**STRING, "format": "time"},
     [("/format", "breaks", "breaks")]),
    ("unit exchanged", {**NUMBER, "unit": "K"}, {**NUMBER, "unit": "C"}, [("/unit", "breaks", "breaks")]),
    ("unit not said", NUMBER, {**NUMBER, "unit": "C"}, [("/unit", "differs", "differs")]),
    ("default", {**STRING, "default": "b"}, {**STRING, "default": "a"}, [("/default", "differs", "differs")]),
    ("text", {**STRING, "description": "b"}, STRING, [("/description", "wording", "wording")]),
    # members
    ("optional member added", left(properties={**LEFT["properties"], "c": STRING}), LEFT,
     [("/properties/c", "differs", "differs")]),
    ("required member added", left(properties={**LEFT["properties"], "c": STRING}, required=["a", "c"]), LEFT,
     [("/properties/c", "breaks", "differs")]),
    ("optional member gone", left(properties={"a": STRING}), LEFT, [("/properties/b", "differs", "differs")]),
    ("required member gone", left(properties={"b": INTEGER}, required=[]), LEFT,
     [("/properties/a", "breaks", "breaks")]),
    ("optional member gone and closed", left(properties={"a": STRING}, additionalProperties=False), LEFT,
     [("/properties/b", "breaks", "differs"), ("/additionalProperties", "differs", "differs")]),
    ("member that must be given now", left(required=["a", "b"]), LEFT, [("/required", "breaks", "differs")]),
    ("member that need not be given now", left(required=[]), LEFT, [("/required", "differs", "breaks")]),
    ("member of another type", left(properties={"a": NUMBER, "b": INTEGER}), LEFT,
     [("/properties/a/type", "breaks", "breaks")]),
    ("member added for a closed class", left(properties={**LEFT["properties"], "c": STRING}),
     left(additionalProperties=False),
     [("/properties/c", "differs", "breaks"), ("/additionalProperties", "differs", "differs")]),
    ("members not said", {"type": "object"}, LEFT, [("/properties", "differs", "breaks")]),
    ("optional members not said", {"type": "object"}, left(required=[]),
     [("/properties", "differs", "differs")]),
    ("members now said", LEFT, {"type": "object"},
     [("/properties/a", "breaks", "differs"), ("/properties/b", "differs", "differs")]),
    ("values of a map", {"type": "object", "additionalProperties": NUMBER},
     {"type": "object", "additionalProperties": INTEGER},
     [("/additionalProperties/type", "differs", "breaks")]),
    ("values of a map not said", {"type": "object"}, {"type": "object", "additionalProperties": INTEGER},
     [("/additionalProperties", "differs", "breaks")]),
    # items
    ("items", {"type": "array", "items": STRING}, {"type": "array", "items": NUMBER},
     [("/items/type", "breaks", "breaks")]),
    ("items not said", {"type": "array"}, {"type": "array", "items": NUMBER},
     [("/items", "differs", "breaks")]),
    ("items by place", {"type": "array", "items": [STRING, NUMBER]},
     {"type": "array", "items": [STRING, INTEGER]},
     [("/items/1/type", "differs", "breaks")]),
    ("more items by place", {"type": "array", "items": [STRING]},
     {"type": "array", "items": [STRING, STRING]},
     [("/items", "breaks", "breaks")]),
    # alternatives
    ("alternative gone", STRING, {"oneOf": [STRING, NUMBER]}, [("/oneOf", "breaks", "differs")]),
    ("alternative added", {"oneOf": [STRING, NUMBER]}, STRING, [("/oneOf", "differs", "breaks")]),
    ("alternatives in another order", {"oneOf": [STRING, NUMBER]}, {"oneOf": [NUMBER, STRING]}, []),
    ("alternatives in other words",
     {"oneOf": [{**STRING, "title": "b"}, left(properties={"a": {**STRING, "title": "b"}, "b": INTEGER})]},
     {"oneOf": [LEFT, STRING]}, [("/oneOf", "wording", "wording")]),
    ("a member called title is no title",
     {"oneOf": [NUMBER, {"type": "object", "properties": {"title": STRING}}]},
     {"oneOf": [NUMBER, {"type": "object", "properties": {"title": {**STRING, "default": ""}}}]},
     [("/oneOf", "differs", "differs")]),
    ("a narrower alternative that is sent", {"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, NUMBER]},
     [("/oneOf", "breaks", "differs")]),
    ("default beside alternatives", {"oneOf": [STRING, NUMBER], "default": 1},
     {"oneOf": [STRING, NUMBER], "default": 2}, [("/default", "differs", "differs")]),
    ("text beside alternatives", {"oneOf": [STRING, NUMBER], "description": "b"},
     {"oneOf": [STRING, NUMBER]}, [("/description", "wording", "wording")]),
    ("unit beside alternatives", {"oneOf": [INTEGER, NUMBER], "unit": "K"},
     {"oneOf": [INTEGER, NUMBER], "unit": "C"}, [("/unit", "breaks", "breaks")]),
    ("unit of the only alternative", {"oneOf": [{**NUMBER, "unit": "K"}]}, {**NUMBER, "unit": "C"},
     [("/oneOf", "breaks", "breaks")]),
    ("required without a schema", {"type": "object", "required": ["k"]}, {"type": "object"},
     [("/properties/k", "breaks", "differs")]),
    ("type beside alternatives", {"type": "string", "oneOf": [{}, {"minLength": 3}]},
     {"oneOf": [NUMBER, STRING]}, [("/oneOf", "breaks", "differs")]),
    ("alternative exchanged", {"oneOf": [STRING, LEFT]}, {"oneOf": [STRING, NUMBER]},
     [("/oneOf", "breaks", "breaks")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "offered", "expected", "wanted"), SCHEMAS, ids=[each[0] for each in SCHEMAS]
)
def test_differences_of_schemas_are_named(
    name: str, offered: Any, expected: Any, wanted: list[tuple[str, str, str]]
) -> None:
    """The same two schemas as a subscription, as an event's data, and as a property read and written."""
    sent = told(*(thing(events={"e": {"subscription": each}}) for each in (offered, expected)))
    received = told(*(thing(events={"e": {"data": each}}) for each in (offered, expected)))
    both = told(*(thing(properties={"p": each}) for each in (offered, expected)))
    prefixes = ("/events/e/subscription", "/events/e/data")
    assert (sent, received) == tuple(
        [(f"{prefix}{where}", weights[n]) for where, *weights in wanted] for n, prefix in enumerate(prefixes)
    )
    expected_both = [
        (f"/properties/p{where}", "breaks" if "breaks" in weights else weights[0])
        for where, *weights in wanted
    ]
    assert list(dict.fromkeys(both)) == expected_both


PARAMETERS: list[tuple[str, Any, Any, list[tuple[str, str]]]] = [
    # what it is | offered | expected | where and what it means
    ("optional gone", left(properties={"a": STRING}), LEFT, [("/properties/b", "differs")]),
    (
        "optional added",
        left(properties={**LEFT["properties"], "c": STRING}),
        LEFT,
        [("/properties/c", "differs")],
    ),
    ("all optional, none taken", None, left(required=[]), [("", "differs")]),
    ("none, nor taken", None, {"type": "object"}, [("", "differs")]),
    ("not said", {"type": "object"}, left(required=[]), [("/properties", "differs")]),
    (
        "optional gone further in",
        left(properties={**LEFT["properties"], "b": {"type": "object", "properties": {}}}),
        left(properties={**LEFT["properties"], "b": {"type": "object", "properties": {"c": STRING}}}),
        [("/properties/b/properties", "differs")],
    ),
    (
        "one of two gone further in",
        left(properties={"a": STRING, "b": {"type": "object", "properties": {"d": {}}}}),
        left(properties={"a": STRING, "b": {"type": "object", "properties": {"c": STRING, "d": {}}}}),
        [("/properties/b/properties/c", "differs")],
    ),
]


@pytest.mark.parametrize(
    ("name", "offered", "expected", "wanted"), PARAMETERS, ids=[each[0] for each in PARAMETERS]
)
def test_a_parameter_that_is_gone_breaks_if_it_must_be_given(
    name: str, offered: Any, expected: Any, wanted: list[tuple[str, str]]
) -> None:
    """What need not be given is ignored on the wire by who does not know it."""
    found = told(*(thing(actions={"a": {"input": each}}) for each in (offered, expected)))
    assert found == [(f"/actions/a/input{where}", weight) for where, weight in wanted]


# --- affordances

OBJECT = {"type": "object", "properties": {"a": STRING}}
NEEDED = {**OBJECT, "required": ["a"]}
AUDIO = {"contentType": "audio/opus"}

AFFORDANCES: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = [
    ("property gone", {}, {"properties": {"p": {}}}, [("/properties/p", "breaks")]),
    ("action gone", {}, {"actions": {"a": {}}}, [("/actions/a", "breaks")]),
    ("event gone", {}, {"events": {"e": {}}}, [("/events/e", "breaks")]),
    ("another kind", {"actions": {"p": {}}}, {"properties": {"p": {}}}, [("/actions/p", "breaks")]),
    ("both kinds", {"actions": {"p": {}}, "properties": {"p": {}}}, {"properties": {"p": {}}},
     [("/actions/p", "differs")]),
    ("property more", {"properties": {"p": {}}}, {}, [("/properties/p", "differs")]),
    ("read-only now", {"properties": {"p": {"readOnly": True}}}, {"properties": {"p": {}}},
     [("/properties/p/readOnly", "breaks")]),
    ("writable now", {"properties": {"p": {}}}, {"properties": {"p": {"readOnly": True}}},
     [("/properties/p/readOnly", "differs")]),
    ("write-only now", {"properties": {"p": {"writeOnly": True}}}, {"properties": {"p": {}}},
     [("/properties/p/writeOnly", "breaks")]),
    ("not observable", {"properties": {"p": {}}}, {"properties": {"p": {"observable": True}}},
     [("/properties/p/observable", "breaks")]),
    ("observable now", {"properties": {"p": {"observable": True}}}, {"properties": {"p": {}}},
     [("/properties/p/observable", "differs")]),
    ("a flag that is the default", {"properties": {"p": {"readOnly": False}}}, {"properties": {"p": {}}}, []),
    ("only read: wider", {"properties": {"p": {**NUMBER, "readOnly": True}}},
     {"properties": {"p": {**INTEGER, "readOnly": True}}}, [("/properties/p/type", "breaks")]),
    ("only read: narrower", {"properties": {"p": {**INTEGER, "readOnly": True}}},
     {"properties": {"p": {**NUMBER, "readOnly": True}}}, [("/properties/p/type", "differs")]),
    ("only written: narrower", {"properties": {"p": {**INTEGER, "writeOnly": True}}},
     {"properties": {"p": {**NUMBER, "writeOnly": True}}}, [("/properties/p/type", "breaks")]),
    ("no longer safe", {"actions": {"a": {}}}, {"actions": {"a": {"safe": True}}},
     [("/actions/a/safe", "breaks")]),
    ("idempotent now", {"actions": {"a": {"idempotent": True}}}, {"actions": {"a": {}}},
     [("/actions/a/idempotent", "differs")]),
    ("no longer idempotent", {"actions": {"a": {"idempotent": False}}},
     {"actions": {"a": {"idempotent": True}}},
     [("/actions/a/idempotent", "breaks")]),
    ("synchronous", {"actions": {"a": {"synchronous": False}}}, {"actions": {"a": {"synchronous": True}}},
     [("/actions/a/synchronous", "differs")]),
    ("synchronous not said", {"actions": {"a": {}}}, {"actions": {"a": {"synchronous": True}}}, []),
    ("input that must be given", {"actions": {"a": {"input": NEEDED}}}, {"actions": {"a": {}}},
     [("/actions/a/input", "breaks")]),
    ("input that need not be given", {"actions": {"a": {"input": OBJECT}}}, {"actions": {"a": {}}},
     [("/actions/a/input", "differs")]),
    ("whole input", {"actions": {"a": {"input": STRING}}}, {"actions": {"a": {}}},
     [("/actions/a/input", "breaks")]),
    ("input gone", {"actions": {"a": {}}}, {"actions": {"a": {"input": NEEDED}}},
     [("/actions/a/input", "breaks")]),
    ("input gone that need not be given", {"actions": {"a": {}}}, {"actions": {"a": {"input": OBJECT}}},
     [("/actions/a/input", "differs")]),
    ("output gone", {"actions": {"a": {}}}, {"actions": {"a": {"output": STRING}}},
     [("/actions/a/output", "breaks")]),
    ("output more", {"actions": {"a": {"output": STRING}}}, {"actions": {"a": {}}},
     [("/actions/a/output", "differs")]),
    ("data gone", {"events": {"e": {}}}, {"events": {"e": {"data": STRING}}}, [("/events/e/data", "breaks")]),
    ("subscription more", {"events": {"e": {"subscription": NEEDED}}}, {"events": {"e": {}}},
     [("/events/e/subscription", "breaks")]),
    ("progress gone", {"actions": {"a": {}}}, {"actions": {"a": {"lmosx:progress": NUMBER}}},
     [("/lmosx:progress/a", "differs")]),
    ("other progress of the thing", {"actions": {"a": {}}, "lmosx:progress": {"a": STRING}},
     {"actions": {"a": {"lmosx:progress": NUMBER}}}, [("/lmosx:progress/a/type", "breaks")]),
    ("the same progress elsewhere", {"actions": {"a": {"lmosx:progress": NUMBER}}},
     {"actions": {"a": {}}, "lmosx:progress": {"a": NUMBER}}, []),
    ("other stream of the thing", {"actions": {"a": {}}, "lmosx:streams": {"a": {"output": AUDIO}}},
     {"actions": {"a": {}}, "lmosx:streams": {"a": {"output": {"contentType": "audio/wav"}}}},
     [("/lmosx:streams/a/output/contentType", "breaks")]),
    ("other progress", {"actions": {"a": {"lmosx:progress": STRING}}},
     {"actions": {"a": {"lmosx:progress": NUMBER}}},
     [("/actions/a/lmosx:progress/type", "breaks")]),
    ("stream gone", {"actions": {"a": {}}}, {"actions": {"a": {"lmosx:streams": {"output": AUDIO}}}},
     [("/lmosx:streams/a/output", "breaks")]),
    ("stream in more", {"actions": {"a": {"lmosx:streams": {"input": {"v": AUDIO}}}}}, {"actions": {"a": {}}},
     [("/actions/a/lmosx:streams/input/v", "breaks")]),
    ("other stream", {"actions": {"a": {"lmosx:streams": {"output": AUDIO}}}},
     {"actions": {"a": {"lmosx:streams": {"output": {"contentType": "audio/wav"}}}}},
     [("/actions/a/lmosx:streams/output/contentType", "breaks")]),
    ("a tool", {"@type": "lmos:Tool"}, {}, [("/@type", "differs")]),
    ("the same with no prefix", {"@type": "Agent"}, {}, []),
    ("offers less", {}, {"lmosx:offers": ["acks"]}, [("/lmosx:offers", "differs")]),
    ("offers more", {"lmosx:offers": ["acks"]}, {}, []),
    ("title", {"title": "y"}, {}, [("/title", "wording")]),
    ("vendor", {"lmos:metadata": {"lmos:vendor": {"lmos:name": "a", "x:y": 1}}},
     {"lmos:metadata": {"lmos:vendor": {"lmos:name": "b", "x:y": 1}}},
     [("/lmos:metadata/lmos:vendor/lmos:name", "wording")]),
    ("metadata not said", {}, {"lmos:metadata": {"x:y": 1}}, [("/lmos:metadata/x:y", "wording")]),
    ("text of an affordance", {"actions": {"a": {"description": "y"}}}, {"actions": {"a": {}}},
     [("/actions/a/description", "wording")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "offered", "expected", "wanted"), AFFORDANCES, ids=[each[0] for each in AFFORDANCES]
)
def test_differences_of_affordances_are_named(
    name: str, offered: Any, expected: Any, wanted: list[tuple[str, str]]
) -> None:
    assert told(thing(**offered), thing(**expected)) == wanted


def test_a_difference_shows_both_sides() -> None:
    (found,) = td.differences(
        thing(actions={"a": {"input": {"type": "object", "properties": {"n": {**INTEGER, "minimum": 3}}}}}),
        thing(actions={"a": {"input": {"type": "object", "properties": {"n": {**INTEGER, "minimum": 1}}}}}),
    )
    assert (found.offered, found.expected, found.breaks) == (3, 1, True)
    assert found.place == ("actions", "a", "input", "properties", "n", "minimum")
    assert str(found) == "/actions/a/input/properties/n/minimum: has minimum 3, the class minimum 1"


def test_the_rule_of_contract_versions() -> None:
    """An added parameter with a default is fine, one that must be given is not."""
    data = good()
    data["actions"]["find"]["input"] = LEFT
    ours = td.load(data)
    added = {**LEFT["properties"], "c": {**STRING, "default": "x"}}
    data["actions"]["find"]["input"] = left(properties=added)
    assert [each.breaks for each in td.differences(td.load(data), ours)] == [False]
    data["actions"]["find"]["input"] = left(properties=added, required=["a", "c"])
    assert [each.breaks for each in td.differences(td.load(data), ours)] == [True]


# --- against values: what is called no break must be none

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "a", "bb"])
    | st.just([])
    | st.just({})
)
SIMPLE = st.one_of(
    st.just({}),
    st.sampled_from([{"type": word} for word in ("string", "integer", "number", "boolean", "null")]),
    st.builds(
        lambda a, b: {"type": "integer", "minimum": a, "maximum": b}, st.integers(-2, 2), st.integers(-2, 2)
    ),
    st.builds(lambda a: {"type": "number", "exclusiveMinimum": a}, st.integers(-2, 2)),
    st.builds(lambda a: {"type": "string", "minLength": a}, st.integers(0, 2)),
    st.builds(lambda a: {"enum": a}, st.lists(st.sampled_from(["a", "bb", 1, 2]), min_size=1, unique=True)),
)
DEEP = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda one, other: {"oneOf": [one, other]}, inner, inner),
        st.builds(
            lambda members, required: {
                "type": "object",
                "properties": members,
                "required": [name for name in required if name in members],
            },
            st.dictionaries(st.sampled_from("xy"), inner),
            st.lists(st.sampled_from("xy"), unique=True),
        ),
        st.builds(lambda values: {"type": "object", "additionalProperties": values}, inner),
    ),
    max_leaves=4,
)
NESTED = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """What a consumer's decoder does: alternatives are tried, members it does not know are ignored."""
    import jsonschema_rs

    loose = _with_any_of(schema)
    return jsonschema_rs.Draft7Validator(loose).is_valid(value)


def _with_any_of(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_any_of(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {"anyOf" if word == "oneOf" else word: _with_any_of(each) for word, each in schema.items()}


@given(DEEP, DEEP, NESTED)
def test_what_does_not_break_fits(offered: dict[str, Any], expected: dict[str, Any], value: Any) -> None:
    ways = {
        "sent": (thing(actions={"a": {"input": offered}}), thing(actions={"a": {"input": expected}})),
        "received": (thing(events={"e": {"data": offered}}), thing(events={"e": {"data": expected}})),
    }
    breaks = {way: any(each.breaks for each in td.differences(*pair)) for way, pair in ways.items()}
    source = {"sent": (expected, offered), "received": (offered, expected)}
    assume(not all(breaks.values()))
    for way, (made_by, taken_by) in source.items():
        if not breaks[way] and accepts(made_by, value):
            assert accepts(taken_by, value) or len(_named([offered, expected])) > 1


def _named(schemas: Any) -> dict[tuple[str, ...], None]:
    """The sets of members that objects name: one that the other side does not know is ignored there."""
    inner = schemas.values() if isinstance(schemas, dict) else schemas if isinstance(schemas, list) else ()
    found = {names: None for each in inner for names in _named(each)}
    if isinstance(schemas, dict) and schemas.get("type") == "object":
        found[tuple(sorted(schemas.get("properties", {})))] = None
    return found


def test_spoilt_fixtures_differ_where_they_were_spoilt() -> None:
    for path, value in [
        ("properties/mood/enum", ["good"]),
        ("actions/find/input/maxItems", 2),
        ("events/closed/data/type", "integer"),
    ]:
        found = td.differences(td.load(spoil(path, value)), td.load(good()))
        assert [each.path for each in found if each.breaks] == [f"/{path}"]
