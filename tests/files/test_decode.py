"""Plain data into structs: every mistake, each at its place, with the word that was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pytest
from msgspec import UNSET, Meta, Struct, UnsetType, field

from lmos_actors.errors import ConfigError
from lmos_actors.files import UNKNOWN, Duration, FileError, Later, Size, decode, load, parse, schema_of_file
from tests.rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.files import DataPath


class Square(Struct, frozen=True, kw_only=True, tag_field="kind", tag="square"):
    side: Annotated[float, Meta(gt=0)]


class Circle(Struct, frozen=True, kw_only=True, tag_field="kind", tag="circle"):
    radius: float
    fill: Literal["red", "green"] = "red"
    later: ClassVar[Later] = Later("shadow")


Shape = Annotated[Square | Circle, Later("star")]


class File(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    shapes: tuple[Shape, ...] = ()
    groups: dict[str, tuple[Shape, ...]] = {}
    wait: Duration | Literal["never"] = "never"
    room: Annotated[Size, Meta(ge=1 << 10)] | None = None
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    flag: bool = False
    data: Any | UnsetType = UNSET
    as_: str = field(name="as", default="user")
    mode: Annotated[Literal["a", "b"], Later("c")] = "a"
    one: Literal[1, True] = 1
    words: list[str] = []


GOOD = """
name: x
shapes: [{kind: square, side: 2}, {kind: circle, radius: 1.5, fill: green}]
groups: {g: [{kind: square, side: 1}]}
wait: 40ms
room: 2KiB
count: 9
flag: true
data: {any: [thing, null]}
as: somebody
mode: b
words: [a]
"""


def test_a_good_file() -> None:
    value, mistakes = decode(parse(GOOD, name="f"), File)
    assert mistakes == ()
    assert value == File(
        name="x",
        shapes=(Square(side=2.0), Circle(radius=1.5, fill="green")),
        groups={"g": (Square(side=1.0),)},
        wait=Duration(0.04),
        room=Size(2048),
        count=9,
        flag=True,
        data={"any": ["thing", None]},
        as_="somebody",
        mode="b",
        words=["a"],
    )
    assert type(value.wait) is Duration
    assert type(value.room) is Size
    assert type(value.shapes[0].side) is float


@each_row(
    ("line", "column", "message"),
    [
        ("nam: x", 1, 'unknown key "nam", did you mean "name"?'),
        ("name: ''", 7, "expected text, not empty"),
        ("name: 12", 7, "expected text, saw the number 12; put it in quotes"),
        ("name: no\nname: x", 1, 'key "name" is given twice, first on line 1'),
        ("name: [x]", 7, "expected text, saw a list"),
        ("zzz: 1", 1, 'unknown key "zzz"'),
        (
            "wait: 5",
            7,
            "expected a duration such as 5s or 40ms or never, saw the number 5; the unit is missing",
        ),
        (
            "wait: nevr",
            7,
            'expected a duration such as 5s or 40ms or never, saw the text "nevr", did you mean "never"?',
        ),
        ("room: 5KB", 7, "'5KB' is not a size such as 64KiB or 512B (B, KiB, MiB, GiB)"),
        ("room: 5", 7, "expected a size such as 64KiB or 512B, saw the number 5; the unit is missing"),
        ("count: 0", 8, "expected at least 1, saw the number 0"),
        ("room: 5B", 7, "expected at least 1KiB, saw 5B"),
        ("count: 10", 8, "expected at most 9, saw the number 10"),
        ("count: 1.0", 8, "expected a whole number, saw the number 1.0"),
        ("count: true", 8, "expected a whole number, saw true"),
        ("flag: yes", 7, 'expected true or false, saw the text "yes"'),
        ("flag: 1", 7, "expected true or false, saw the number 1"),
        ("mode: aa", 7, 'unknown word "aa", did you mean "a"? (known: a, b)'),
        ("mode: c", 7, '"c" is not available yet'),
        ("mode:", 6, "expected one of a, b, saw nothing"),
        ("one: false", 6, 'unknown word "false" (known: 1, true)'),
        ("shapes: {}", 9, "expected a list, saw a mapping"),
        ("shapes: [x]", 10, 'expected a mapping, saw the text "x"'),
        ("shapes: [{kind: squar, side: 1}]", 17, 'unknown kind "squar", did you mean "square"?'),
        ("shapes: [{kind: star}]", 17, '"kind: star" is not available yet'),
        ("shapes: [{kind: 5}]", 17, "expected one of square, circle, saw the number 5"),
        ("shapes: [{side: 5}]", 10, 'missing key "kind" (one of: square, circle)'),
        ("shapes: [{kid: square, side: 5}]", 11, 'unknown key "kid", did you mean "kind"?'),
        ("shapes: [{kind: square}]", 10, 'missing key "side"'),
        ("shapes: [{kind: square, sid: 5}]", 25, 'unknown key "sid", did you mean "side"?'),
        ("shapes: [{kind: square, side: 0}]", 31, "expected more than 0, saw the number 0"),
        ("shapes: [{kind: square, side: " + "9" * 400 + "}]", 31, "is too large"),
        ("groups: {g: [{kind: circle, radius: 1, shadow: 2}]}", 40, '"shadow" is not available yet'),
        ("groups: {g: [{kind: circle, radius: 1, fill: rd}]}", 46, 'unknown word "rd", did you mean "red"?'),
        ("words: [a, 1]", 12, "expected text, saw the number 1"),
    ],
)
def test_each_mistake_has_its_place(line: str, column: int, message: str) -> None:
    text = line if line.startswith("nam") else f"{line}\nname: x"
    value, mistakes = decode(parse(text, name="f"), File)
    assert value is None
    (mistake,) = mistakes
    row = 2 if "twice" in message else 1
    assert (mistake.line, mistake.column) == (row, column)
    assert message in mistake.message
    assert (mistake.kind == "later") == ("not available yet" in message)


def test_the_root() -> None:
    assert [str(m) for m in decode(parse("- 1", name="f"), File)[1]] == [
        "f:1:1: expected a mapping, saw a list\n    1 | - 1\n      | ^"
    ]
    (mistake,) = decode(parse("mode: a", name="f"), File)[1]
    assert mistake.message == 'missing key "name"'


def test_all_mistakes_come_in_the_order_of_the_text() -> None:
    text = "mode: c\nshapes:\n  - {kind: square, side: x}\n  - {kind: oval}\nnam: x\n"
    _, mistakes = decode(parse(text, name="f"), File)
    assert [(m.line, m.column) for m in mistakes] == [(1, 7), (3, 26), (4, 12), (5, 1)]


def test_the_unknown_adds_no_mistake() -> None:
    document = parse(GOOD, name="f")
    assert decode(document, File, {"name": "x", "count": UNKNOWN, "data": {"a": [UNKNOWN]}}) == (None, ())


def test_part_of_a_document() -> None:
    document = parse("name: x\nshapes:\n  - {kind: square, side: x}\n", name="f")
    _, mistakes = decode(document, Shape, {"kind": "square", "side": "x"}, at=("shapes", 0))
    assert [m.place for m in mistakes] == ["f:3:26"]


def test_a_file_is_loaded_with_places_of_values_and_mistakes(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(GOOD + "# no\n")
    loaded = load(good, File)
    assert loaded.value.name == "x"
    assert loaded.document.place(("count",)) == f"{good}:7:8"
    (tmp_path / "bad.toml").write_text("name = 1\ncout = 2\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "bad.toml", File)
    assert isinstance(caught.value, FileError)
    assert [m.line for m in caught.value.mistakes] == [1, 2]
    assert caught.value.path.endswith("bad.toml:1:8")
    assert "did you mean" in str(caught.value)


def test_the_schema() -> None:
    schema = schema_of_file(File, title="t")
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
    members = schema["properties"]
    assert members["as"] == {"type": "string"}
    assert members["data"] == {}
    assert members["count"]["anyOf"] == [
        {"type": "integer", "minimum": 1, "maximum": 9},
        {"type": "string", "pattern": r"\$\("},
    ]
    reference = {"type": "string", "pattern": r"\$\("}
    shapes, other = members["shapes"]["anyOf"]
    assert other == reference
    told_apart, other = shapes["items"]["anyOf"]
    assert other == reference
    assert told_apart["required"] == ["kind"]
    assert told_apart["properties"] == {"kind": {"enum": ["square", "circle"]}}
    assert [each["then"] for each in told_apart["allOf"]] == [
        {"$ref": "#/$defs/Square"},
        {"$ref": "#/$defs/Circle"},
    ]
    assert schema["$defs"]["Square"]["properties"]["kind"] == {"const": "square"}
    assert schema["$defs"]["Square"]["required"] == ["kind", "side"]


def test_the_schema_of_one_of_several_kinds_of_file() -> None:
    schema = schema_of_file(Square | Circle)
    assert schema["required"] == ["kind"]
    assert schema["properties"] == {"kind": {"enum": ["square", "circle"]}}
    assert schema["allOf"][1] == {
        "if": {"required": ["kind"], "properties": {"kind": {"const": "circle"}}},
        "then": {"$ref": "#/$defs/Circle"},
    }


def test_structs_that_are_right_are_given_by_their_place() -> None:
    document = parse("shapes: [{kind: square, side: 1}, {kind: square, sid: 2}]\nname: x\n", name="f")
    made: dict[DataPath, Any] = {}
    assert decode(document, File, made=made)[0] is None
    assert list(made) == [("shapes", 0)]


def test_a_type_that_no_file_can_have() -> None:
    class Odd(Struct):
        x: complex

    with pytest.raises(TypeError, match="complex"):
        schema_of_file(Odd)
