"""Values that cross: near must equal far, nothing that can change is shared, refusals say where."""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Meta

from lmos_actors.actors import Shape, shape_of
from lmos_actors.actors.values import check_property_type
from lmos_actors.errors import InvalidInput, LmosActorsError
from lmos_actors.protocol.td import SchemaError
from tests.matrix import examples
from tests.rows import each_row

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    HELLO = "hello"


class Right(Flag):
    READ = 1
    WRITE = 2


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float = 0.0


class Place(msgspec.Struct, frozen=True, rename="camel"):
    full_name: str
    at: Point
    tags: tuple[str, ...] = ()


class Bag(msgspec.Struct, frozen=True):
    items: list[int]


class Draft(msgspec.Struct):
    title: str
    size: int = 0


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Sparse(msgspec.Struct, omit_defaults=True):
    a: int | msgspec.UnsetType = msgspec.UNSET
    b: int = 3


class Row(msgspec.Struct, array_like=True, frozen=True):
    a: int
    b: str = "b"


class Cat(msgspec.Struct, tag="cat", frozen=True):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Left(msgspec.Struct, tag=1, array_like=True):
    a: int


class Rest(msgspec.Struct, tag=2, array_like=True):
    a: str
    b: list[int] = []


class Positive(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise ValueError("n must be positive")


class Pair(msgspec.Struct, Generic[T], frozen=True):
    first: T
    second: T


@attrs.frozen
class FrozenAttrs:
    name: str
    points: tuple[Point, ...] = ()


@attrs.define
class OpenAttrs:
    n: int = attrs.field(validator=attrs.validators.lt(10**6))
    notes: list[str] = attrs.Factory(list)


@dataclass(frozen=True)
class FrozenData:
    a: int
    b: Color = Color.RED


@dataclass
class OpenData:
    a: dict[str, int]
    child: Draft


class Named(NamedTuple):
    a: int
    b: list[int] | None = None


class Typed(TypedDict, total=False):
    a: int
    b: list[str]


class Opaque:
    """No plain data."""


@dataclass(frozen=True)
class Case:
    """A type, and values of it that must pass."""

    tp: Any
    values: st.SearchStrategy[Any]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=6)
INTS = st.integers(-(2**70), 2**70)
POINTS = st.builds(Point, NUMBERS, NUMBERS)
ZONES = st.sampled_from([dt.UTC, None, ZoneInfo("Europe/Berlin"), dt.timezone(dt.timedelta(hours=-3))])
YEARS = {"min_value": dt.datetime(2, 1, 1), "max_value": dt.datetime(9998, 1, 1)}
DRAFTS = st.builds(Draft, TEXTS, INTS)

PLAIN = st.recursive(
    st.none() | st.booleans() | INTS | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SINGLE = [
    Case(None, st.none()),
    Case(bool, st.booleans()),
    Case(int, INTS),
    Case(float, NUMBERS),
    Case(str, TEXTS),
    Case(bytes, st.binary(max_size=9)),
    Case(dt.datetime, st.datetimes(**YEARS, timezones=ZONES)),
    Case(dt.date, st.dates()),
    Case(dt.time, st.times()),
    Case(dt.timedelta, st.timedeltas()),
    Case(UUID, st.uuids()),
    Case(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Case(Color, st.sampled_from(Color)),
    Case(Level, st.sampled_from(Level)),
    Case(Right, st.sampled_from([Right.READ, Right.WRITE, Right.READ | Right.WRITE])),
    Case(Literal["a", "b", 3, None], st.sampled_from(["a", "b", 3, None])),
    Case(Annotated[int, Meta(ge=-5, lt=2**40)], st.integers(-5, 2**40 - 1)),
    Case(Annotated[str, Meta(min_length=1, pattern="^[^x]*$")], st.text(alphabet="abc", min_size=1)),
    Case(Annotated[bool, Meta(description="Said only.")], st.booleans()),
    Case(int | str, INTS | TEXTS),
    Case(int | float | None, INTS | NUMBERS | st.none()),
    Case(Literal["a"] | str, TEXTS),
    Case(float | str, NUMBERS | TEXTS),
    Case(Literal["a"] | int | bool, st.sampled_from(["a", 1, True])),
    Case(Color | int | None, st.sampled_from([Color.RED, 7, None])),
]
SOLID = [
    Case(Point, POINTS),
    Case(Place, st.builds(Place, TEXTS, POINTS, st.lists(TEXTS, max_size=2).map(tuple))),
    Case(Row, st.builds(Row, INTS, TEXTS)),
    Case(Cat, st.builds(Cat, INTS)),
    Case(Pair[int], st.builds(Pair, INTS, INTS)),
    Case(FrozenAttrs, st.builds(FrozenAttrs, TEXTS, st.lists(POINTS, max_size=2).map(tuple))),
    Case(FrozenData, st.builds(FrozenData, INTS, st.sampled_from(Color))),
    Case(tuple[int, str], st.tuples(INTS, TEXTS)),
    Case(tuple[()], st.just(())),
]
MUTABLE = [
    Case(bytearray, st.binary(max_size=9).map(bytearray)),
    Case(Bag, st.builds(Bag, st.lists(INTS, max_size=3))),
    Case(Draft, DRAFTS),
    Case(Closed, st.builds(Closed, INTS)),
    Case(Sparse, st.builds(Sparse, INTS | st.just(msgspec.UNSET), INTS)),
    Case(Cat | Dog | None, st.builds(Cat, INTS) | st.builds(Dog, TEXTS) | st.none()),
    Case(Left | Rest | str, st.builds(Left, INTS) | st.builds(Rest, TEXTS) | TEXTS),
    Case(Draft | list[int] | int, DRAFTS | st.lists(INTS, max_size=3) | INTS),
    Case(Positive, st.builds(Positive, st.integers(min_value=1))),
    Case(Pair[list[int]], st.builds(Pair, st.lists(INTS, max_size=2), st.lists(INTS, max_size=2))),
    Case(OpenAttrs, st.builds(OpenAttrs, st.integers(max_value=9), st.lists(TEXTS, max_size=2))),
    Case(OpenData, st.builds(OpenData, st.dictionaries(TEXTS, INTS, max_size=2), DRAFTS)),
    Case(Named, st.builds(Named, INTS, st.lists(INTS, max_size=2))),
    Case(Typed, st.fixed_dictionaries({}, optional={"a": INTS, "b": st.lists(TEXTS, max_size=2)})),
    Case(Any, PLAIN),
    Case(object, PLAIN),
    Case(list, st.lists(PLAIN, max_size=2)),
    Case(dict, st.dictionaries(TEXTS, PLAIN, max_size=2)),
    Case(dict[int, str], st.dictionaries(INTS, TEXTS, max_size=3)),
    Case(dict[Color, int], st.dictionaries(st.sampled_from(Color), INTS, max_size=2)),
    Case(dict[Level, Point], st.dictionaries(st.sampled_from(Level), POINTS, max_size=2)),
    Case(Annotated[list[int], Meta(min_length=1, max_length=3)], st.lists(INTS, min_size=1, max_size=3)),
]


def around(cases: st.SearchStrategy[Case], *, solid: bool) -> st.SearchStrategy[Case]:
    """Containers of the cases; with `solid` only those that cannot change."""

    def rows(case: Case) -> st.SearchStrategy[Any]:
        return st.lists(case.values, max_size=3)

    frozen = [
        cases.map(lambda case: Case(tuple[case.tp, ...], rows(case).map(tuple))),
        cases.map(lambda case: Case(Pair[case.tp], st.builds(Pair, case.values, case.values))),
        st.tuples(cases, cases).map(lambda two: Case(tuple[two[0].tp, two[1].tp], values_of(two))),
    ]
    mutable = [
        cases.map(lambda case: Case(list[case.tp], rows(case))),
        cases.map(lambda case: Case(dict[str, case.tp], st.dictionaries(TEXTS, case.values, max_size=3))),
    ]
    return st.one_of(frozen if solid else frozen + mutable)


def values_of(cases: tuple[Case, Case]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(cases[0].values, cases[1].values)


HASHED = st.sampled_from([case for case in SINGLE if case.tp is not Decimal] + SOLID)
SETS = HASHED.flatmap(
    lambda case: st.sampled_from(
        [
            Case(set[case.tp], st.sets(case.values, max_size=3)),
            Case(frozenset[case.tp], st.frozensets(case.values, max_size=3)),
        ]
    )
)
CASES = st.recursive(
    st.sampled_from(SINGLE + SOLID + MUTABLE) | SETS, lambda inner: around(inner, solid=False), max_leaves=4
)
LASTING = st.recursive(
    st.sampled_from([case for case in SINGLE if case.tp not in (dt.datetime, dt.time)] + SOLID),
    lambda inner: around(inner, solid=True),
    max_leaves=4,
)
NATIVE = st.deferred(lambda: CASES.flatmap(lambda case: case.values))
STRANGE_VALUES: list[Any] = [
    float("nan"),
    float("inf"),
    "\ud800",
    10**1001,
    10**5000,
    -(10**1001),
    b"a",
    Color.RED,
    Level.LOW,
    Word.HELLO,
    Right.READ,
    {1, 2},
    {1: 2},
    {Color.RED: 1},
    {"type": "cat"},
    {"type": ["cat"]},
    [2, "x"],
    Point("x"),
    Point(float("nan")),
    Place("a", Point(1), ("\ud800",)),
    Draft(1),
    Sparse(b=msgspec.UNSET),
    Opaque(),
    Opaque,
    OrderedDict(a=1),
    Named(1),
    object(),
    Decimal("NaN"),
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=5, seconds=1))),
    dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5, seconds=1))),
    "1E+9999999999999999999999",
    "9" * 2000,
    "2020-01-01",
    "1",
    "",
    "YQ==",
    "yes",
]
STRANGE = st.sampled_from(STRANGE_VALUES)


def anatomy(value: Any) -> Any:
    """A hashable picture of a value in which `1`, `1.0` and `True` differ, as do lists and tuples."""
    if isinstance(value, dict):
        return dict, frozenset((anatomy(key), anatomy(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return type(value), frozenset(anatomy(item) for item in value)
    if isinstance(value, list | tuple):
        return type(value), tuple(anatomy(item) for item in value)
    names = field_names(value)
    if names is not None:
        return type(value), tuple(anatomy(getattr(value, name)) for name in names)
    return type(value), repr(value)


def field_names(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if attrs.has(type(value)):
        return tuple(field.name for field in attrs.fields(type(value)))
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return None


def ruin(value: Any) -> None:
    """Change everything in a value that lets itself be changed."""
    for name in field_names(value) or ():
        ruin(getattr(value, name))
        try:
            setattr(value, name, "ruined")
        except (AttributeError, TypeError):
            continue  # frozen, or validated
    if isinstance(value, dict | list | tuple | set | frozenset):
        for item in list(value.values() if isinstance(value, dict) else value):
            ruin(item)
    if isinstance(value, dict | list | set | bytearray):
        value.clear()


def far(value: Any, tp: Any) -> Any:
    """What a peer gets that decodes the JSON text."""
    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(value)), tp, str_keys=True)


def attempt(shape: Shape[Any], value: Any) -> Any:
    """What is taken, or the refusal; anything else is raised."""
    try:
        return shape.take(value)
    except InvalidInput as refusal:
        return refusal


EACH = pytest.mark.parametrize("case", SINGLE + SOLID + MUTABLE, ids=lambda case: str(case.tp))
FEW = settings(max_examples=examples(15))


@EACH
@FEW
@given(data=st.data())
def test_each_kind_of_value_arrives_near_as_it_does_far_and_shares_nothing(
    case: Case, data: st.DataObject
) -> None:
    value = data.draw(case.values)
    taken, wanted = shape_of(case.tp).take(value), anatomy(far(value, case.tp))
    assert anatomy(taken) == wanted
    ruin(value)
    assert anatomy(taken) == wanted


@EACH
@FEW
@given(data=st.data())
def test_each_kind_of_value_is_taken_from_json(case: Case, data: st.DataObject) -> None:
    plain = msgspec.json.decode(msgspec.json.encode(data.draw(case.values)))
    assert anatomy(shape_of(case.tp).take(plain)) == anatomy(msgspec.convert(plain, case.tp, str_keys=True))


@EACH
def test_each_strange_value_is_refused_or_arrives_near_as_it_does_far(case: Case) -> None:
    for value in STRANGE_VALUES:
        taken = attempt(shape_of(case.tp), value)
        if not isinstance(taken, InvalidInput):
            assert anatomy(taken) == anatomy(far(value, case.tp))


@given(CASES.flatmap(lambda case: st.tuples(st.just(case.tp), case.values)))
def test_a_value_of_the_type_arrives_near_as_it_does_far(pair: tuple[Any, Any]) -> None:
    tp, value = pair
    assert anatomy(shape_of(tp).take(value)) == anatomy(far(value, tp))


@given(CASES, NATIVE | PLAIN | STRANGE | st.lists(STRANGE, max_size=2) | st.dictionaries(TEXTS, STRANGE))
def test_any_value_is_refused_or_arrives_near_as_it_does_far(case: Case, value: Any) -> None:
    taken = attempt(shape_of(case.tp), value)
    if not isinstance(taken, InvalidInput):
        assert anatomy(taken) == anatomy(far(value, case.tp))


@given(CASES, st.data())
def test_json_is_taken_just_when_msgspec_takes_it(case: Case, data: st.DataObject) -> None:
    native = data.draw(case.values)
    other = data.draw(PLAIN)
    plain = data.draw(st.sampled_from([msgspec.json.decode(msgspec.json.encode(native)), other, [other]]))
    try:
        wanted = msgspec.convert(plain, case.tp, str_keys=True)
    except msgspec.ValidationError:
        with pytest.raises(InvalidInput):
            shape_of(case.tp).take(plain)
    else:
        assert anatomy(shape_of(case.tp).take(plain)) == anatomy(wanted)


@given(CASES.flatmap(lambda case: st.tuples(st.just(case.tp), case.values)))
def test_changing_the_input_afterwards_changes_nothing(pair: tuple[Any, Any]) -> None:
    tp, value = pair
    taken = shape_of(tp).take(value)
    before = anatomy(taken)
    ruin(value)
    assert anatomy(taken) == before


@given(LASTING.flatmap(lambda case: st.tuples(st.just(case.tp), case.values)))
def test_an_immutable_value_passes_as_it_is(pair: tuple[Any, Any]) -> None:
    shape = shape_of(pair[0])
    assert shape.immutable
    assert shape.take(pair[1]) is pair[1]


@given(CASES, NATIVE | STRANGE)
def test_a_value_of_the_exact_class_needs_no_look(case: Case, value: Any) -> None:
    shape = shape_of(case.tp)
    if type(value) is shape.exact:
        assert shape.take(value) is value


@pytest.mark.parametrize(
    ("tp", "exact"),
    [
        (bool, bool),
        (None, type(None)),
        (Color, Color),
        (bytes, bytes),
        (UUID, UUID),
        (int, None),
        (str, None),
        (float, None),
        (bool | None, None),
        (Annotated[bytes, Meta(max_length=1)], None),
        (dt.datetime, None),
    ],
)
def test_only_classes_whose_every_value_fits_are_exact(tp: Any, exact: type | None) -> None:
    assert shape_of(tp).exact is exact


@each_row("case", SINGLE + SOLID, ids=lambda case: str(case.tp))
def test_types_that_cannot_change_are_known(case: Case) -> None:
    assert shape_of(case.tp).immutable
    check_property_type(case.tp, "Weather.units")


@each_row("case", MUTABLE, ids=lambda case: str(case.tp))
def test_types_that_can_change_are_known(case: Case) -> None:
    assert not shape_of(case.tp).immutable
    assert not shape_of(tuple[case.tp, ...]).immutable


@pytest.mark.parametrize(
    ("tp", "hint"),
    [
        (list[int], "a list can be changed in place, use `tuple`"),
        (tuple[set[int], ...], "a set can be changed in place, use `frozenset`"),
        (dict[str, int] | None, "a dict can be changed in place, use a frozen struct or a tuple of pairs"),
        (Draft, "`Draft` can be changed in place, make it frozen"),
        (OpenAttrs, "`OpenAttrs` can be changed in place, make it frozen"),
        (Bag, "field `items` of `Bag`: a list can be changed in place, use `tuple`"),
        (Pair[Draft], "field `first` of `Pair[Draft]`: `Draft` can be changed in place, make it frozen"),
        (bytearray, "a bytearray can be changed in place, use `bytes`"),
        (Any, "`Any` may hold lists and dicts, name the type"),
    ],
)
def test_a_mutable_property_type_is_refused_with_what_to_use(tp: Any, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_property_type(tp, "Weather.units")
    assert isinstance(caught.value, LmosActorsError)
    assert str(caught.value).replace(f"{__name__}.", "") == (
        f"Weather.units: the type of a property must be immutable: {hint}"
    )


class Forecast(msgspec.Struct, rename="camel"):
    city: str
    rain_by_hour: list[float] = []
    by_name: dict[str, Point] = {}
    days: tuple[int, ...] = ()


@each_row(
    ("tp", "value", "message", "path"),
    [
        (int, "3", "Expected `int`, got `str`", "$"),
        (int, True, "Expected `int`, got `bool`", "$"),
        (int, 1.0, "Expected `int`, got `float`", "$"),
        (int, 10**1000, "Number of more than 1,000 digits", "$"),
        (float, True, "Expected `float`, got `bool`", "$"),
        (float, float("inf"), "Number is not finite", "$"),
        (float, 10**400, "Number out of range", "$"),
        (Decimal, Decimal("-Infinity"), "Number is not finite", "$"),
        (Decimal, "1_0", "Expected a number in decimal digits, got '1_0'", "$"),
        (Decimal, " 1", "Expected a number in decimal digits, got ' 1'", "$"),
        (Decimal, "\u0663", "Expected a number in decimal digits, got '\\u0663'", "$"),
        (Decimal, "NaN", "Expected a number in decimal digits, got 'NaN'", "$"),
        (Decimal, Decimal("1" * 1001), "Number of more than 1,000 digits", "$"),
        (str, None, "Expected `str`, got `null`", "$"),
        (str, "a\ud800", "Text with a lone surrogate", "$"),
        (str, Opaque(), "Expected `str`, got `Opaque`", "$"),
        (bytes, "=", "Invalid base64 encoded string", "$"),
        (Color, "blue", "Invalid enum value 'blue'", "$"),
        (Literal["a", 1], "b", "Expected one of 1, 'a'", "$"),
        (Literal["a", 1], True, "Expected `int | str`, got `bool`", "$"),
        (int | str, [], "Expected `int | str`, got `array`", "$"),
        (int | str, True, "Expected `int | str`, got `bool`", "$"),
        (Left, [2, 1], "Invalid value 2", "$[0]"),
        (Left | Rest, [True, 1], "Invalid value <bool>", "$[0]"),
        (Cat | Dog, {"type": Opaque()}, "Invalid value <Opaque>", "$.type"),
        (dict[str, int], {10**5000: 1}, "Expected `str`, got `int` as key", "$[<int>]"),
        (Any, {(1, 2): 1}, "Expected `str`, got `array` as key", "$[<tuple>]"),
        (Cat | Dog, {"type": ["cat"]}, "Invalid value <list>", "$.type"),
        (Cat | Dog, {"type": "cow"}, "Invalid value 'cow'", "$.type"),
        (Cat | Dog, {"type": 10**5000}, "Invalid value <int>", "$.type"),
        (Cat | Dog, {}, "Object missing required field `type`", "$"),
        (Cat, {"type": "dog"}, "Invalid value 'dog'", "$.type"),
        (Left | Rest, [3, 1], "Invalid value 3", "$[0]"),
        (Left | Rest, [2, 1], "Expected `str`, got `int`", "$[1]"),
        (list[int], {1}, "Expected `array`, got `set`", "$"),
        (list[int], [1, "a"], "Expected `int`, got `str`", "$[1]"),
        (tuple[int, ...], (1, 2, None), "Expected `int`, got `null`", "$[2]"),
        (set[int], {"a"}, "Expected `int`, got `str`", "$[...]"),
        (set[Any], [[]], "unhashable type: 'list'", "$"),
        (tuple[int, str], [1], "Expected `array` of length 2, got 1", "$"),
        (Named, [], "Expected `array` of length 1 to 2, got 0", "$"),
        (dict[str, list[int]], {"a b": [1, ""]}, "Expected `int`, got `str`", "$['a b'][1]"),
        (dict[int, str], {"01": ""}, "Expected `int`, got `str` as key", "$['01']"),
        (dict[int, str], {"9" * 1001: ""}, "Number of more than 1,000 digits as key", f"$['{'9' * 64}']"),
        (dict[int, str], {"9" * 5000: ""}, "Expected `int`, got `str` as key", f"$['{'9' * 64}']"),
        (dict[str, str], {"\ud800": ""}, "Text with a lone surrogate as key", "$['\\ud800']"),
        (Annotated[int, Meta(ge=1)], 0, "Expected `int` >= 1", "$"),
        (Annotated[list[int], Meta(min_length=1)], [], "Expected `array` of length >= 1", "$"),
        (Annotated[dict[str, int], Meta(max_length=0)], {"a": 1}, "Expected `object` of length <= 0", "$"),
        (Closed, {"a": 1, "b": 2}, "Object contains unknown field 'b'", "$"),
        (Row, [], "Expected `array` for `Row`, got one of length 0", "$"),
        (Positive, {"n": -1}, "n must be positive", "$"),
        (list[Positive], [{"n": 1}, {"n": -1}], "n must be positive", "$[1]"),
        (OpenAttrs, {"n": 10**6}, "'n' must be < 1000000: 1000000", "$"),
        (Forecast, {}, "Object missing required field `city`", "$"),
        (Forecast, {"city": 1}, "Expected `str`, got `int`", "$.city"),
        (Forecast, Forecast(2), "Expected `str`, got `int`", "$.city"),
        (Forecast, Forecast("a", [0, float("nan")]), "Number is not finite", "$.rainByHour[1]"),
        (Forecast, Forecast("a", by_name={"x": Point(None)}), "Expected `float`, got `null`", "$.byName.x.x"),
        (Place, Draft("a"), "Expected `Place`, got `Draft`", "$"),
        (Sparse, Sparse(b=msgspec.UNSET), "Expected `int`, got `UnsetType`", "$.b"),
        (Any, {"a": [1, Opaque()]}, "Expected plain JSON data, got `Opaque`", "$.a[1]"),
        (Any, {1: 2}, "Expected `str`, got `int` as key", "$[1]"),
    ],
)
def test_a_refusal_says_what_and_where(tp: Any, value: Any, message: str, path: str) -> None:
    refusal = attempt(shape_of(tp), value)
    assert isinstance(refusal, InvalidInput)
    assert (refusal.message, refusal.path) == (message, path)


def test_a_member_that_the_type_does_not_know_is_not_looked_at() -> None:
    assert shape_of(Point).take({"x": 1.0, "z": Opaque(), 10**5000: 1}) == Point(1.0)


def test_a_path_continues_the_one_it_is_given() -> None:
    with pytest.raises(InvalidInput) as caught:
        shape_of(list[int]).take([1, None], "$.days")
    assert caught.value.path == "$.days[1]"


def test_a_deleted_field_is_a_refusal() -> None:
    draft = Draft("a")
    del draft.size
    assert isinstance(attempt(shape_of(Draft), draft), InvalidInput)


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_64_levels_of_plain_data_pass_and_65_do_not() -> None:
    assert shape_of(Any).take(nested(64)) == nested(64)
    refusal = attempt(shape_of(Any), nested(65))
    assert isinstance(refusal, InvalidInput)
    assert (refusal.message, refusal.path) == ("Nested more than 64 deep", "$" + "[0]" * 64)


def test_the_levels_of_the_type_count_too() -> None:
    shape = shape_of(list[dict[str, Any]])
    shape.take([{"a": nested(62)}])
    assert isinstance(attempt(shape, [{"a": nested(63)}]), InvalidInput)


def test_a_type_of_64_levels_stands_and_one_of_65_does_not() -> None:
    tp: Any = int
    for _ in range(64):
        tp = list[tp]
    assert shape_of(tp).take(nested(64)) == nested(64)
    with pytest.raises(SchemaError, match="64"):
        shape_of(list[tp])


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert isinstance(attempt(shape_of(Any), endless), InvalidInput)


def test_no_recursion_error_escapes_where_the_stack_is_short() -> None:
    """Called ever nearer to the limit, it ends in a value, or a refusal, for as long as it can be called."""
    take = shape_of(Any).take
    value = nested(60)
    seen = set[str]()

    def descend() -> None:
        try:
            descend()
        except RecursionError:
            return
        try:
            take(value)
            seen.add("value")
        except InvalidInput:
            seen.add("refusal")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        descend()
    finally:
        sys.setrecursionlimit(limit)
    assert seen == {"value", "refusal"}


@each_row(
    ("tp", "value", "taken"),
    [
        (str, Color.RED, "red"),
        (str, Word.HELLO, "hello"),
        (int, Level.LOW, 1),
        (float, Level.LOW, 1.0),
        (int | str, Color.RED, "red"),
        (int | str, Level.HIGH, 2),
        (float | None, 1, 1.0),
        (float | str, 1, 1.0),
        (Literal["red", 1], Color.RED, "red"),
        (dict[str, int], {Color.RED: 1}, {"red": 1}),
        (dict[int, int], {Level.LOW: 1, "2": 2, -3: 3}, {1: 1, 2: 2, -3: 3}),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[int], [1, 1], {1}),
        (frozenset[float], {1}, frozenset({1.0})),
        (bytes, bytearray(b"a"), b"a"),
        (Decimal, 1.5, Decimal("1.5")),
        (Decimal, "-1.50E+3", Decimal("-1.50E+3")),
        (dt.time, dt.time(1, fold=1), dt.time(1)),
    ],
)
def test_what_stands_for_a_value_of_the_type_becomes_one(tp: Any, value: Any, taken: Any) -> None:
    assert anatomy(shape_of(tp).take(value)) == anatomy(taken)


def test_an_integer_becomes_a_float_where_one_is_declared() -> None:
    taken = shape_of(Point).take(Point(1, 2))
    assert anatomy(taken) == anatomy(Point(1.0, 2.0))


def test_an_instance_of_a_derived_class_is_refused() -> None:
    class Far(Point, frozen=True):
        z: float = 0.0

    assert isinstance(attempt(shape_of(Point), Far(1.0)), InvalidInput)


def test_a_zone_with_rules_arrives_as_an_offset() -> None:
    there = dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert shape_of(dt.datetime).take(there).tzinfo == dt.timezone(dt.timedelta(hours=2))


def test_a_shape_is_made_once() -> None:
    assert shape_of(list[int]) is shape_of(list[int])


def test_a_type_that_cannot_be_hashed_has_a_shape() -> None:
    shape = shape_of(Annotated[int, ["a note"]])
    assert shape.take(3) == 3


def test_a_shape_has_its_schema_and_name() -> None:
    shape = shape_of(list[bool])
    assert shape.schema == {"type": "array", "items": {"type": "boolean"}}
    assert shape.schema is shape.schema
    assert (shape.name, shape.type, repr(shape)) == ("list[bool]", list[bool], "Shape(list[bool])")


@pytest.mark.parametrize("tp", [Opaque, list[Opaque], type, list[int] | tuple[int, ...], dict[float, int]])
def test_a_type_that_is_no_plain_data_has_no_shape(tp: Any) -> None:
    with pytest.raises(SchemaError):
        shape_of(tp)
