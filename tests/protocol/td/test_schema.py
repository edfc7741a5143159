"""Data schemas: each kind of type as TD words, what has none, and that the text never varies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from typing import Annotated, Any, Generic, Literal, NamedTuple, Required, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest
from msgspec import Meta

from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import SchemaError, schema_of, type_name
from tests.rows import each_row

T = TypeVar("T")

INTEGER = {"description": "Sent as it is, also beyond 2^53.", "type": "integer"}


class Color(Enum):
    """What is seen."""

    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Rights(IntFlag):
    READ = 1
    WRITE = 2


class Point(msgspec.Struct):
    """A place
    in the plane."""

    x: float
    y: float = 0.0


class Place(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    full_name: str
    at: Point | None = None
    tags: list[str] = []
    color: Color = Color.RED
    unset: str | msgspec.UnsetType = msgspec.UNSET


class Cat(msgspec.Struct, tag="cat"):
    lives: Annotated[int, Meta(ge=0, le=9)]


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Row(msgspec.Struct, array_like=True, tag=7):
    a: str
    b: bool = True


class Box(msgspec.Struct, Generic[T]):
    content: T


class Named(NamedTuple):
    a: str
    b: bool = False


class Typed(TypedDict, total=False):
    a: Required[str]
    b: bool


@attrs.frozen
class Attrs:
    """Made by attrs."""

    a: str
    b: dict[str, bool] = attrs.Factory(dict)


@dataclass
class Data:
    a: str = "a"
    b: list[bool] = field(default_factory=list)
    c: Any = field(default=...)


class Tree(msgspec.Struct):
    children: list[Tree]


@dataclass
class Hidden:
    _secret: int = 0


POINT = {
    "title": "Point",
    "description": "A place\nin the plane.",
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
    "required": ["x"],
}
COLOR = {"title": "Color", "description": "What is seen.", "type": "string", "enum": ["red", "blue"]}
CAT = {
    "title": "Cat",
    "type": "object",
    "properties": {
        "type": {"type": "string", "const": "cat"},
        "lives": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["type", "lives"],
}
DOG = {
    "title": "Dog",
    "type": "object",
    "properties": {"type": {"type": "string", "const": "dog"}, "name": {"type": "string"}},
    "required": ["type", "name"],
}

SINGLE: list[tuple[Any, dict[str, Any]]] = [
    (None, {"type": "null"}),
    (bool, {"type": "boolean"}),
    (int, INTEGER),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
    (bytes, {"type": "string", "contentEncoding": "base64"}),
    (bytearray, {"type": "string", "contentEncoding": "base64"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (date, {"type": "string", "format": "date"}),
    (time, {"type": "string", "format": "time"}),
    (timedelta, {"type": "string", "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Decimal, {"type": "string", "format": "decimal"}),
    (Any, {}),
    (object, {}),
    (object | None, {}),
    (Color, COLOR),
    (Level, {"title": "Level", "type": "integer", "enum": [1, 2]}),
    (Rights, {"title": "Rights", "type": "integer"}),
    (Literal["b", "a"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a", None, 2], {"enum": [None, 2, "a"]}),
    (Literal[None], {"type": "null"}),
]
LIMITED: list[tuple[Any, dict[str, Any]]] = [
    (Annotated[int, Meta(ge=0)], {**INTEGER, "minimum": 0}),
    (Annotated[int, Meta(ge=0, le=2**53)], {"type": "integer", "minimum": 0, "maximum": 2**53}),
    (Annotated[int, Meta(ge=0, le=2**53 + 1)], {**INTEGER, "minimum": 0, "maximum": 2**53 + 1}),
    (Annotated[int, Meta(description="Age.")], {"description": "Age.", "type": "integer"}),
    (
        Annotated[float, Meta(gt=0, lt=1, multiple_of=0.5)],
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5},
    ),
    (
        Annotated[str, Meta(min_length=1, max_length=3, pattern="^a")],
        {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
    ),
    (
        Annotated[bytes, Meta(min_length=1, max_length=4)],
        {"type": "string", "contentEncoding": "base64", "minLength": 4, "maxLength": 8},
    ),
    (
        Annotated[list[bool], Meta(min_length=1, max_length=2)],
        {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    ),
    (
        Annotated[dict[str, bool], Meta(max_length=2)],
        {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    ),
    (
        Annotated[float, Meta(title="T", description="D", examples=[1.5], extra_json_schema={"unit": "m"})],
        {"title": "T", "description": "D", "type": "number", "examples": [1.5], "unit": "m"},
    ),
    (
        Annotated[bool | None, Meta(description="D")],
        {"description": "D", "oneOf": [{"type": "boolean"}, {"type": "null"}]},
    ),
]
CONTAINERS: list[tuple[Any, dict[str, Any]]] = [
    (list, {"type": "array"}),
    (list[str], {"type": "array", "items": {"type": "string"}}),
    (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (set[Point], {"type": "array", "items": POINT, "uniqueItems": True}),
    (frozenset[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (
        tuple[str, bool],
        {"type": "array", "items": [{"type": "string"}, {"type": "boolean"}], "minItems": 2, "maxItems": 2},
    ),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
    (dict, {"type": "object"}),
    (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
    (dict[int, Any], {"type": "object", "propertyNames": {"pattern": "^(0|-?[1-9][0-9]*)$"}}),
    (dict[Level, Any], {"type": "object", "propertyNames": {"enum": ["1", "2"]}}),
    (
        dict[Annotated[str, Meta(max_length=2)], Any],
        {"type": "object", "propertyNames": {"maxLength": 2}},
    ),
]
OBJECTS: list[tuple[Any, dict[str, Any]]] = [
    (Point, POINT),
    (
        Place,
        {
            "title": "Place",
            "type": "object",
            "properties": {
                "fullName": {"type": "string"},
                "at": {"oneOf": [POINT, {"type": "null"}], "default": None},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                "color": {**COLOR, "default": "red"},
                "unset": {"type": "string"},
            },
            "required": ["fullName"],
            "additionalProperties": False,
        },
    ),
    (
        Row,
        {
            "title": "Row",
            "type": "array",
            "items": [
                {"type": "integer", "const": 7},
                {"title": "a", "type": "string"},
                {"title": "b", "type": "boolean", "default": True},
            ],
            "minItems": 2,
        },
    ),
    (
        Named,
        {
            "title": "Named",
            "type": "array",
            "items": [
                {"title": "a", "type": "string"},
                {"title": "b", "type": "boolean", "default": False},
            ],
            "minItems": 1,
            "maxItems": 2,
        },
    ),
    (
        Box[bool],
        {
            "title": "Box",
            "type": "object",
            "properties": {"content": {"type": "boolean"}},
            "required": ["content"],
        },
    ),
    (
        Typed,
        {
            "title": "Typed",
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}},
            "required": ["a"],
        },
    ),
    (
        Attrs,
        {
            "title": "Attrs",
            "description": "Made by attrs.",
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "object", "additionalProperties": {"type": "boolean"}, "default": {}},
            },
            "required": ["a"],
        },
    ),
    (
        Data,
        {
            "title": "Data",
            "type": "object",
            "properties": {
                "a": {"type": "string", "default": "a"},
                "b": {"type": "array", "items": {"type": "boolean"}, "default": []},
                "c": {},
            },
        },
    ),
]
UNIONS: list[tuple[Any, dict[str, Any]]] = [
    (str | None, {"oneOf": [{"type": "string"}, {"type": "null"}]}),
    (Cat | Dog | None, {"oneOf": [CAT, DOG, {"type": "null"}]}),
    (int | float, {"type": "number"}),
    (int | float | None, {"oneOf": [{"type": "number"}, {"type": "null"}]}),
    (Literal["a"] | str, {"type": "string"}),
    (
        Literal["a", 1, None] | str | None,
        {"oneOf": [{"type": "integer", "enum": [1]}, {"type": "string"}, {"type": "null"}]},
    ),
    (Literal[1] | float, {"type": "number"}),
    (Literal["a"] | bool, {"oneOf": [{"type": "string", "enum": ["a"]}, {"type": "boolean"}]}),
]


@each_row(("tp", "schema"), SINGLE + LIMITED + CONTAINERS + OBJECTS + UNIONS, ids=lambda part: str(part)[:40])
def test_a_type_has_its_schema_with_members_in_order(tp: Any, schema: dict[str, Any]) -> None:
    assert json.dumps(schema_of(tp)) == json.dumps(schema)


@pytest.mark.parametrize(
    ("tp", "reason"),
    [
        (Tree, "Tree: Tree contains itself; a recursive type has no schema without references"),
        (list[Tree], "Tree contains itself"),
        (type, "type: type is not plain data"),
        (dict[str, pytest.MonkeyPatch], "MonkeyPatch is not plain data"),
        (memoryview, "MemoryView is not plain data; use bytes"),
        (msgspec.Raw, "Raw is not plain data; use bytes"),
        (dict[float, str], "the keys of a dict must be str, int, or an Enum or Literal of either"),
        (dict[Literal[1, "a"], str], "the keys of a dict must be"),
        (set[tuple[list[int], ...]], "the items of a set must be hashable"),
        (list[int] | tuple[str, ...], "more than one array-like"),
        (Point | Cat, "all Struct types must be tagged"),
        (Hidden, "field _secret of Hidden is private and would not be sent"),
        (Annotated[str, Meta(extra_json_schema={"$ref": "#/x"})], "neither \\$ref nor anyOf"),
        ("Nowhere", "Nowhere"),
    ],
)
def test_a_type_without_a_schema_is_refused_with_the_reason(tp: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as caught:
        schema_of(tp)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ConfigError)


def test_a_schema_is_fresh_each_time() -> None:
    schema_of(Point)["properties"].clear()
    assert schema_of(Point) == POINT


@pytest.mark.parametrize(
    ("tp", "name"), [(int, "int"), (list[int], "list[int]"), (Any, "Any"), (str | None, "str | None")]
)
def test_a_type_has_a_short_name(tp: Any, name: str) -> None:
    assert type_name(tp) == name


class Endless(msgspec.Struct, frozen=True):
    least: float = -float("inf")
    no: float = float("nan")
    both: tuple[float, float] = (0.0, float("inf"))
    all: tuple[float, float] = (0.0, 1.0)


def test_a_default_without_a_json_form_is_left_out() -> None:
    members = schema_of(Endless)["properties"]
    assert [name for name, schema in members.items() if "default" in schema] == ["all"]
    json.dumps(schema_of(Endless), allow_nan=False)


PROGRAM = """
import json
from typing import Literal
from msgspec import Struct
from lmos_actors.protocol.td import schema_of

class Many(Struct):
    words: Literal["c", "b", "a", 3, 1, None]
    chosen: frozenset[str] = frozenset({"x", "y", "z", "w"})

print(json.dumps(schema_of(Many)))
"""


def test_the_text_of_a_schema_does_not_depend_on_the_hash_seed() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
