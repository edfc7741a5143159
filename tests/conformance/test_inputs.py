"""Values for data schemas, held against a validator of its own: valid, at the bounds, and wrong ones."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema_rs import Draft7Validator

from lmos_actors.conformance.inputs import (
    Sample,
    another,
    fits,
    largest,
    matching,
    same,
    samples,
    smallest,
    valid,
)
from tests.matrix import examples
from tests.rows import each_row

FORMATS = (
    "date", "time", "date-time", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri",
    "iri", "uri-reference", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex",
    "uuid", "duration", "of-nobody",
)  # fmt: skip
SCHEMAS: dict[str, Any] = {
    "anything": {},
    "integer": {"type": "integer", "minimum": 3, "maximum": 9},
    "one integer": {"type": "integer", "minimum": 3, "maximum": 3},
    "open integer": {"type": "integer"},
    "above": {"type": "integer", "exclusiveMinimum": 7},
    "below": {"type": "integer", "exclusiveMaximum": -7.5},
    "between": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
    "number": {"type": "number", "minimum": 0.5, "maximum": 1.5},
    "huge": {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308},
    "tens": {"type": "integer", "multipleOf": 10, "minimum": 1, "maximum": 35},
    "tenths": {"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 1},
    "halves": {"type": "integer", "multipleOf": 2.5, "minimum": 1, "maximum": 12},
    "no type": {"minimum": 5, "maximum": 6},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "text": {"type": "string", "minLength": 3, "maxLength": 5},
    "letter": {"type": "string", "minLength": 1, "maxLength": 1},
    "empty": {"type": "string", "maxLength": 0},
    "pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"},
    "strange pattern": {"type": "string", "pattern": "^(?=a)a+$", "examples": ["b", "aa"]},
    "enum": {"enum": ["a", "b", None, 7]},
    "numbers": {"type": "integer", "enum": [3, 5, 9]},
    "const": {"const": {"a": [1]}},
    "union": {"type": ["string", "integer", "null"], "minimum": 3, "minLength": 2},
    "one of": {"oneOf": [{"type": "string", "minLength": 2}, {"type": "object", "required": ["x"]}]},
    "one of numbers": {"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}], "type": "integer", "minimum": 1},
    "any of": {"anyOf": [{"type": "integer", "minimum": 10}, {"type": "boolean"}]},
    "all of": {"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 2}, {"minimum": 0}]},
    "array": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 4},
    "set": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 3},
    "set of texts": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 9},
    "tuple": {"type": "array", "items": [{"type": "string"}, {"type": "null"}], "minItems": 3},
    "contains": {"type": "array", "contains": {"const": "x"}, "items": {"type": "string"}, "minItems": 1},
    "open array": {"type": "array"},
    "object": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "places": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}},
                    "required": ["lat"],
                },
                "minItems": 1,
            },
            "mode": {"enum": ["text", "voice"]},
        },
        "required": ["places", "mode"],
    },
    "named": {"required": ["x", "a b"], "additionalProperties": {"type": "boolean"}},
    "some members": {"minProperties": 2, "maxProperties": 2, "properties": {"a": {}, "b": {}, "c": {}}},
    "more members": {"type": "object", "minProperties": 3, "additionalProperties": {"type": "integer"}},
    "reference": {
        "type": "object",
        "properties": {"next": {"$ref": "#/definitions/a~1b"}},
        "required": ["next"],
        "definitions": {"a/b": {"type": "integer", "minimum": 4, "maximum": 5}},
    },
    "tree": {"properties": {"child": {"$ref": "#"}, "n": {"type": "null"}}, "required": ["n"]},
    "base64": {"type": "string", "contentEncoding": "base64"},
    **{form: {"type": "string", "format": form} for form in FORMATS},
}  # fmt: skip

NOTHING: dict[str, Any] = {
    "bounds": {"type": "integer", "minimum": 5, "maximum": 4},
    "no enum": {"enum": []},
    "types": {"type": "integer", "enum": ["a"]},
    "long": {"type": "string", "minLength": 10**9},
    "many": {"type": "array", "minItems": 10**9},
    "not": {"not": {}},
    "loop": {"$ref": "#"},
    "wide loop": {"anyOf": [{"$ref": f"#/definitions/{n}"} for n in range(9)], "definitions": {
        str(n): {"anyOf": [{"$ref": f"#/definitions/{m}"} for m in range(9)]} for n in range(9)}},
    "wide and deep": {"type": "array", "minItems": 9, "items": {"anyOf": [{"$ref": "#"}] * 9}},
    "wide tree": {"type": "object", "required": list("abcdefghi"), "additionalProperties": {"$ref": "#"}},
    "endless": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "strange": {"type": "string", "pattern": "^(?!x)y$"},
    "multiple": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 10},
}  # fmt: skip
ONE_VALUE = ("const", "null", "empty", "one integer", "strange pattern", "base64", *FORMATS)
NO_SCHEMAS: tuple[dict[str, Any], ...] = ({"type": "text"}, {"minimum": "low"}, {"$ref": "http://far/away"})


def proved(schema: dict[str, Any], sample: Sample) -> bool:
    return Draft7Validator(schema).is_valid(sample.value) is (sample.kind != "invalid")


@pytest.mark.parametrize("name", SCHEMAS)
def test_samples_are_of_the_kind_that_they_say(name) -> None:
    for seed in range(8):
        found = samples(SCHEMAS[name], Random(seed))
        assert [sample for sample in found if not proved(SCHEMAS[name], sample)] == []
        assert found
        assert len(found) <= 12
        assert any(sample.kind == "valid" for sample in found)
        texts = [json.dumps(sample.value) for sample in found]
        assert len(set(texts)) == len(texts)


def test_something_is_wrong_in_every_schema_that_says_anything() -> None:
    for name in SCHEMAS.keys() - {"anything", "of-nobody"}:
        assert any(each.kind == "invalid" for each in samples(SCHEMAS[name], Random(1), most=100)), name


@pytest.mark.parametrize("make", [valid, largest, smallest])
def test_plain_values_fit(make) -> None:
    for name, schema in SCHEMAS.items():
        for seed in range(8):
            made = make(schema, Random(seed))
            assert fits(schema, made) is None, name
            assert same(made, make(schema, Random(seed))), name


def test_samples_are_the_same_for_the_same_seed() -> None:
    for name, schema in SCHEMAS.items():
        assert samples(schema, Random("5:x")) == samples(schema, Random("5:x")), name


def test_another_seed_makes_others() -> None:
    assert len({valid(SCHEMAS["open integer"], Random(seed)) for seed in range(8)}) > 3


@pytest.mark.parametrize("name", NOTHING)
def test_where_nothing_fits_nothing_is_made(name) -> None:
    for make in (valid, largest, smallest):
        with pytest.raises(ValueError, match="no value that fits can be made"):
            make(NOTHING[name], Random(1))
    assert all(sample.kind == "invalid" for sample in samples(NOTHING[name], Random(1)))


@pytest.mark.parametrize("schema", NO_SCHEMAS)
def test_what_is_no_schema_lets_everything_through_and_makes_nothing(schema) -> None:
    assert fits(schema, {"any": "thing"}) is None
    assert samples(schema, Random(1)) == ()
    with pytest.raises(ValueError, match="the data schema is none"):
        valid(schema, Random(1))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("integer", 4, None),
        ("integer", 4.0, None),
        ("integer", 10, "10 is greater than the maximum of 9 at $"),
        ("nested", {"places": [{"lat": 91}], "mode": "text"}, "at $.places[0].lat"),
        ("named", {"x": True, "a b": 1}, "at $['a b']"),
        ("date", "yesterday", "at $"),
    ],
)
def test_mistakes_are_reported_with_their_place(name, value, told) -> None:
    found = fits(SCHEMAS[name], value)
    assert found is None if told is None else found is not None and told in found


def test_messages_are_short() -> None:
    assert len(fits({"type": "integer"}, "x" * 100_000) or "") < 350


# --- which ones there are


def made(schema: dict[str, Any], kind: str) -> list[Any]:
    return [sample.value for sample in samples(schema, Random(1), most=100) if sample.kind == kind]


@pytest.mark.parametrize(
    ("name", "boundary", "invalid"),
    [
        ("integer", [3, 9], [2, 10, "nonsense"]),
        ("above", [8], [7]),
        ("below", [-8], [-7]),
        ("number", [0.5, 1.5], [-0.5, 2.5]),
        ("between", [], [0, 0.001]),
        ("boolean", [], ["nonsense"]),
        ("enum", ["a", 7], ["no such value"]),
        ("numbers", [3, 9], [10]),
        ("array", [], ["nonsense"]),
        ("tens", [], [45]),
    ],
)  # fmt: skip
def test_bounds_and_what_is_beyond_them(name, boundary, invalid) -> None:
    schema = SCHEMAS[name]
    everything = [*made(schema, "valid"), *made(schema, "boundary")]
    for value in boundary:
        assert any(same(value, each) for each in everything), value
    for value in invalid:
        assert any(same(value, each) for each in made(schema, "invalid")), value


def test_lengths_and_letters() -> None:
    assert {len(each) for each in made(SCHEMAS["text"], "boundary")} >= {3, 5}
    assert {len(each) for each in made(SCHEMAS["text"], "invalid") if isinstance(each, str)} == {2, 6}
    assert any(not each.isascii() for each in made(SCHEMAS["text"], "boundary"))
    assert "" in made({"type": "string"}, "boundary")


def test_members_that_are_missing_or_unknown_are_wrong() -> None:
    wrong = samples(SCHEMAS["object"], Random(1), most=100)
    told = [sample.why for sample in wrong if sample.kind == "invalid"]
    for why in ("$ is a text", "$ lacks city", "$ has a member that is not known", "$.days is a fraction"):
        assert why in told
    assert {"city"} in [set(each) for each in made(SCHEMAS["object"], "valid")]
    assert {"city", "days"} in [set(each) for each in made(SCHEMAS["object"], "valid")]
    deep = [sample.why for sample in samples(SCHEMAS["nested"], Random(1), most=100)]
    assert "$.places[0].lat is above its maximum" in deep


def test_null_is_wrong_only_where_something_must_be() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a"],
    }
    found = [sample for sample in samples(schema, Random(1), most=100) if sample.kind == "invalid"]
    told = [sample.why for sample in found if sample.why.endswith("is null")]
    assert told == ["$.a is null"]


@pytest.mark.parametrize(
    ("name", "least", "most"), [("integer", 3, 9), ("number", 0.5, 1.5), ("tens", 10, 30)]
)
def test_the_largest_and_the_smallest(name, least, most) -> None:
    assert smallest(SCHEMAS[name], Random(1)) == least
    assert largest(SCHEMAS[name], Random(1)) == most
    schema = {"type": "object", "properties": {"a": SCHEMAS[name], "b": {"type": "string"}}}
    assert largest(schema, Random(1))["a"] == most
    assert smallest(schema, Random(1))["a"] == least


def test_the_largest_below_an_excluded_bound() -> None:
    assert 0.0009 < largest(SCHEMAS["between"], Random(1)) < 0.001


def test_another_value_is_another() -> None:
    for name, schema in SCHEMAS.items():
        for seed in range(0 if name in ONE_VALUE else 5):
            value = valid(schema, Random(seed))
            for again in range(5):
                new = another(schema, value, Random(again))
                assert fits(schema, new) is None, name
                assert not same(new, value), name


@pytest.mark.parametrize(
    "schema", [{"const": 7}, {"type": "null"}, {"type": "integer", "minimum": 3, "maximum": 3}]
)
def test_there_is_no_other_value_than_the_only_one(schema) -> None:
    with pytest.raises(ValueError, match="no value"):
        another(schema, valid(schema, Random(1)), Random(1))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1.0, True), (1, True, False), (0, False, False), (None, None, True), ("1", 1, False),
        ([1, {"a": True}], [1.0, {"a": True}], True), ([1], [True], False), ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False), ({"a": 0}, {"a": False}, False),
    ],
)  # fmt: skip
def test_what_is_the_same_in_json(one, other, expected) -> None:
    assert same(one, other) is expected


# --- patterns


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Z]{3}-\d+$", r"^\+?[0-9 ]{5,20}$", r"^(foo|bar)(?:baz)*$", r"\S", "^$", "a|b|", ".",
        r"^[^@\s]+@[^@\s]+\.[^@\s]+$", r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", r"\u00e4\x41",
        r"^[\w.-]+?$", r"^[a-c\]\\-]{2,}$", r"^\t\n\D\W$", "(?:a){2}b?",
    ],
)  # fmt: skip
def test_patterns_are_matched(pattern) -> None:
    for seed in range(8):
        found = matching(pattern, Random(seed))
        assert found is not None
        assert re.search(pattern, found)


@each_row(
    "pattern",
    [
        "(?=x)x", "(?!x)y", "(?<=x)y", r"\bx", r"(a)\1", r"\p{L}", "[", "(", ")", "a{2,1}", "a{x}", "*", "[]",
        "a{20000}", "(((){999}){999}){999}", "^((a{1000}){1000})$", "[z-a]", "x{,3}", "\\", r"\xzz",
        "(" * 40 + ")" * 40,
    ],
)  # fmt: skip
def test_what_is_strange_in_a_pattern_makes_nothing(pattern) -> None:
    assert matching(pattern, Random(1)) is None


# --- whatever the schema


NUMBERS = st.integers(-50, 50) | st.floats(-50, 50, allow_nan=False).map(lambda number: round(number, 2))


def _numbers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    bounds = st.fixed_dictionaries(
        {"type": st.just(kind)},
        optional={
            "minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 7, 0.5, 0.1]),
        },
    )  # fmt: skip
    return bounds


TEXTS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 8), "maxLength": st.integers(0, 12),
        "pattern": st.sampled_from(["^a", "b$", "[0-9]", "^[a-z]{2,4}$"]),
        "format": st.sampled_from(["date", "uuid", "email", "of-nobody"]),
    },
)  # fmt: skip
VALUES = NUMBERS | st.text(max_size=3)
KINDS = st.sampled_from(["string", "null", "integer"])
LEAVES = st.one_of(
    st.just({}), st.just({"type": "boolean"}), st.just({"type": "null"}), _numbers("integer"),
    _numbers("number"), TEXTS,
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda kinds: {"type": kinds}, st.lists(KINDS, min_size=1, unique=True)),
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "long name", ""])


def _above(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={"minItems": st.integers(0, 3), "maxItems": st.integers(0, 4), "uniqueItems": st.booleans()},
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "minProperties": st.integers(0, 3), "maxProperties": st.integers(0, 4),
        },
    )  # fmt: skip
    several = st.builds(
        lambda word, parts: {word: parts},
        st.sampled_from(["oneOf", "anyOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    )
    return arrays | objects | several


@settings(max_examples=examples(100), deadline=None)
@given(st.recursive(LEAVES, _above, max_leaves=6), st.integers(0, 1000))
def test_whatever_is_made_is_proved(schema, seed) -> None:
    found = samples(schema, Random(seed))
    assert all(proved(schema, sample) for sample in found)
    assert [Sample(each.value, each.kind, each.why) for each in samples(schema, Random(seed))] == list(found)
    try:
        value = valid(schema, Random(seed))
    except ValueError:
        return
    assert Draft7Validator(schema).is_valid(value)
    json.dumps(value, allow_nan=False)
