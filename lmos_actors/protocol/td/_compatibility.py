"""Compatibility of two data schemas: whether values of one are values of the other, and where they differ.

`offered` is the schema of the serving side, `expected` the schema that the consumer was written for. A value
that the consumer sends must fit the offered schema, so the offered schema must not be narrower. A value that
the consumer receives must fit the expected schema, so the offered schema must not be wider. `Flow` holds the
directions of a value; a property that is read and written has both.

Whether one JSON schema contains another is undecidable for keywords such as `pattern`, and costly to decide
for alternatives. So:

- Keywords with an order (limits, enumerations, required members, types) are compared by that order.
- Keywords without one (`pattern`, `format`, `multipleOf`, ...) count as narrower *and* wider when they
  differ. That errs on the side of `breaks`: a superfluous warning is better than a consumer that fails.
- Each alternative (`oneOf`) of one side is compared with each of the other, with the limits beside `oneOf`
  merged into every one. Two alternatives that only together cover a third are not recognised; descriptions of
  this package have none.
- A `unit` that changes breaks in either direction: the number still fits, but has another meaning.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from ._findings import shown
from ._reading import Place, is_array, is_object, pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ._schema import Schema

Weight: TypeAlias = Literal["breaks", "differs", "wording"]

WORDING: Final = ("title", "titles", "description", "descriptions", "@type", "examples")
_TYPES: Final[dict[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array",
}  # fmt: skip
_LOWER: Final = ("minimum", "exclusiveMinimum")
_UPPER: Final = ("maximum", "exclusiveMaximum")
_LEAST: Final = ("minLength", "minItems", "minProperties")
_MOST: Final = ("maxLength", "maxItems", "maxProperties")
_RANGES: Final[tuple[tuple[int, tuple[str, ...]], ...]] = (
    (1, _LOWER),
    (-1, _UPPER),
    *((1, (word,)) for word in _LEAST),
    *((-1, (word,)) for word in _MOST),
)
_NARROWING: Final = (
    "pattern", "format", "contentEncoding", "contentMediaType", "multipleOf", "uniqueItems", "propertyNames",
)  # fmt: skip
_LIMITS: Final = (
    *_LEAST, *_MOST, *_NARROWING, *_LOWER, *_UPPER, "type", "enum", "const", "unit", "properties", "required",
    "items", "additionalProperties",
)  # fmt: skip
_ELSEWHERE: Final = (*WORDING, *_LIMITS, "oneOf")


@attrs.frozen
class Difference:
    """A difference between a description and the class that a consumer was written for.

    `place` has keys and indices in the description, or in the class's description if the part is missing
    there; `path` is the same as a JSON pointer. `offered` and `expected` are both sides as plain data, None
    for an absent part. `weight` is the effect: `breaks` a consumer of the class, `differs` without breaking
    one, or concerns `wording` only (titles, descriptions, metadata).
    """

    place: Place
    message: str
    offered: Any = None
    expected: Any = None
    weight: Weight = "differs"

    @property
    def breaks(self) -> bool:
        """Whether a consumer of the class can fail because of this difference."""
        return self.weight == "breaks"

    @property
    def path(self) -> str:
        """The place as a JSON pointer (RFC 6901)."""
        return pointer(self.place)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Flow(NamedTuple):
    """Directions of a value, seen from the consumer."""

    sent: bool
    received: bool

    def weight(self, *, narrower: bool, wider: bool) -> Weight:
        """Return the effect of an offered schema that is narrower or wider than the expected one."""
        return "breaks" if (narrower and self.sent) or (wider and self.received) else "differs"


SENT: Final = Flow(True, False)
RECEIVED: Final = Flow(False, True)


def schema_differences(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    """Yield the differences of two data schemas, nested ones included, in the order of their keywords."""
    if offered == expected:
        return
    if is_array(offered.get("oneOf")) or is_array(expected.get("oneOf")):
        yield from _alternatives(offered, expected, place, flow)
        return
    kinds = _Sides(_types(offered), _types(expected))
    if kinds.offered and kinds.expected and not _overlap(kinds.offered, kinds.expected):
        yield _types_differ(kinds, place, narrower=True, wider=True, flow=flow)
        return
    narrower, wider = not _covers(*kinds), not _covers(kinds.expected, kinds.offered)
    if narrower or wider:
        yield _types_differ(kinds, place, narrower=narrower, wider=wider, flow=flow)
    for part in _COMPARISONS:
        yield from part(offered, expected, place, flow)


# --- types


class _Sides(NamedTuple):
    offered: Sequence[str]
    expected: Sequence[str]


def _types(schema: Schema) -> list[str]:
    """Return the types of a schema's values, or an empty list if any type is allowed."""
    if isinstance(kind := schema.get("type"), str):
        return [kind]
    values = _listed(schema)
    return [] if values is None else list(dict.fromkeys(_type_of(value) for value in values))


def _type_of(value: object) -> str:
    return _TYPES.get(type(value), "null")


def _covers(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Return whether `wide` types include all `narrow` ones. Integers are numbers; empty means any type."""
    if not wide or not narrow:
        return not wide
    return all(each in wide or (each == "integer" and "number" in wide) for each in narrow)


def _overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    return any(_covers([each], [more]) or _covers([more], [each]) for each in one for more in other)


def _types_differ(kinds: _Sides, place: Place, *, narrower: bool, wider: bool, flow: Flow) -> Difference:
    offered, expected = (" or ".join(each) or "anything" for each in kinds)
    weight = flow.weight(narrower=narrower, wider=wider)
    message = f"is {offered}, the class has {expected}"
    return Difference((*place, "type"), message, _one(kinds.offered), _one(kinds.expected), weight)


def _one(types: Sequence[str]) -> object:
    return types[0] if len(types) == 1 else [*types] or None


# --- alternatives


def _alternatives(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    """Compare alternatives: those sent must fit an offered one, and those received an expected one."""
    both = is_array(offered.get("oneOf")) and is_array(expected.get("oneOf"))
    beside = tuple(word for word in _LIMITS if word != "unit" or not both)
    theirs, ours = _alternatives_of(offered, beside), _alternatives_of(expected, beside)
    lost = [one for one in ours if flow.sent and not any(_fit(other, one, SENT) for other in theirs)]
    new = [one for one in theirs if flow.received and not any(_fit(one, other, RECEIVED) for other in ours)]
    where = (*place, "oneOf")
    for one in lost:
        yield Difference(where, f"does not accept {shown(one)}", None, one, "breaks")
    for one in new:
        yield Difference(where, f"may be {shown(one)}, which the class does not have", one, None, "breaks")
    if not lost and not new and not _same_set(theirs, ours):
        in_words = _same_set(
            [_without_texts(each) for each in theirs], [_without_texts(each) for each in ours]
        )
        message = (
            "words its alternatives otherwise" if in_words else "has other alternatives, all of which fit"
        )
        yield Difference(where, message, theirs, ours, "wording" if in_words else "differs")
    if both:
        yield from _units(offered, expected, place)
    yield from _other_words(offered, expected, place, flow)


def _alternatives_of(schema: Schema, words: Sequence[str]) -> list[Schema]:
    """Return the alternatives, each merged with the limits beside `oneOf`."""
    alternatives = schema.get("oneOf")
    if not is_array(alternatives):
        return [schema]
    beside = {word: value for word, value in schema.items() if word in words}
    return [{**beside, **each} for each in alternatives if is_object(each)]


def _same_set(some: list[Any], others: list[Any]) -> bool:
    return all(each in others for each in some) and all(each in some for each in others)


def _without_texts(value: Any) -> Any:
    """Return a schema, or a list of schemas, without titles and descriptions."""
    if not is_object(value):
        return [_without_texts(each) for each in value] if is_array(value) else value
    found = {word: each for word, each in value.items() if word not in WORDING}
    for word in ("oneOf", "items", "additionalProperties"):
        if word in found:
            found[word] = _without_texts(found[word])
    if is_object(properties := found.get("properties")):
        found["properties"] = {name: _without_texts(each) for name, each in properties.items()}
    return found


def _fit(offered: Schema, expected: Schema, flow: Flow) -> bool:
    return not any(each.breaks for each in schema_differences(offered, expected, (), flow))


# --- words of one schema


def _listed(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if is_array(values) else None


def _values(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    theirs, ours = _listed(offered), _listed(expected)
    if theirs is None and ours is None:
        return
    missing = [] if theirs is None or ours is None else [each for each in ours if each not in theirs]
    more = [] if theirs is None or ours is None else [each for each in theirs if each not in ours]
    narrower, wider = bool(missing) or ours is None, bool(more) or theirs is None
    if not narrower and not wider:
        return
    message = "is any value" if theirs is None else f"is only {shown(theirs)}"
    if missing or more:
        parts = [f"lacks {shown(missing)}"] * bool(missing) + [f"adds {shown(more)}"] * bool(more)
        message = " and ".join(parts)
    word = "const" if "const" in offered else "enum"
    weight = flow.weight(narrower=narrower, wider=wider)
    yield Difference(
        (*place, word),
        f"{message}, the class has {'any' if ours is None else shown(ours)}",
        theirs,
        ours,
        weight,
    )


def _ranges(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    for sign, words in _RANGES:
        theirs, ours = _limit(offered, words, sign), _limit(expected, words, sign)
        if theirs[:2] == ours[:2]:
            continue
        narrower = theirs > ours
        word = theirs.word or ours.word
        message = f"has {theirs.text or 'no ' + word}, the class {ours.text or 'none'}"
        weight = flow.weight(narrower=narrower, wider=not narrower)
        yield Difference((*place, word), message, offered.get(theirs.word), expected.get(ours.word), weight)


class _Limit(NamedTuple):
    """The tightest limit of a schema on one side. A greater limit is tighter; a missing one is the least."""

    tight: float
    exclusive: bool
    word: str
    text: str


def _limit(schema: Schema, words: Sequence[str], sign: int) -> _Limit:
    found = [
        _Limit(value * sign, word.startswith("exclusive"), word, f"{word} {shown(value)}")
        for word in words
        if isinstance(value := schema.get(word), int | float) and not isinstance(value, bool)
    ]
    return max(found, default=_Limit(-math.inf, False, "", ""))


def _narrowings(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    """Compare keywords without an order, such as two patterns: neither is known to be the narrower one."""
    for word in _NARROWING:
        theirs, ours = offered.get(word), expected.get(word)
        if theirs != ours:
            weight = flow.weight(narrower=bool(theirs), wider=bool(ours))
            yield Difference((*place, word), _contrast(word, theirs, ours), theirs, ours, weight)
    yield from _units(offered, expected, place)


def _units(offered: Schema, expected: Schema, place: Place) -> Iterator[Difference]:
    unit, other = offered.get("unit"), expected.get("unit")
    if unit != other:
        meaning: Weight = "breaks" if unit and other else "differs"
        yield Difference((*place, "unit"), _contrast("unit", unit, other), unit, other, meaning)


def _contrast(word: str, theirs: object, ours: object) -> str:
    offered, expected = ("no " + word if each is None else f"{word} {shown(each)}" for each in (theirs, ours))
    return f"has {offered}, the class {expected}"


# --- objects and arrays


def _members(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    theirs, ours = _members_of(offered), _members_of(expected)
    if ours and not theirs and offered.get("additionalProperties") is not False:
        weight = flow.weight(narrower=False, wider=bool(_required(expected)))
        yield Difference((*place, "properties"), "names no members", None, ours, weight)
        return
    offered_required, expected_required = (
        dict.fromkeys(_required(offered)),
        dict.fromkeys(_required(expected)),
    )
    for name in dict.fromkeys((*ours, *theirs)):
        where = (*place, "properties", name)
        here, there = name in offered_required, name in expected_required
        if name not in theirs:  # dropped where it is sent, missing where it is received
            is_closed = offered.get("additionalProperties") is False
            breaks = (there and (flow.sent or flow.received)) or (is_closed and flow.sent)
            message = f"is missing, the class {'requires' if there else 'has'} it"
            yield Difference(where, message, None, ours[name], "breaks" if breaks else "differs")
        elif name not in ours:  # breaks where it is required, or where the class is closed
            is_closed = expected.get("additionalProperties") is False
            breaks = (here and flow.sent) or (is_closed and flow.received)
            if flow.sent:
                text = "and is required" if here else "and is optional"
            else:
                text = "which accepts no other members" if is_closed else "which ignores it"
            message = f"is not in the class, {text}"
            yield Difference(where, message, theirs[name], None, "breaks" if breaks else "differs")
        else:
            yield from schema_differences(_object(theirs[name]), _object(ours[name]), where, flow)
            if here != there:
                weight = flow.weight(narrower=here, wider=not here)
                text = "required, in the class it is not" if here else "not required, in the class it is"
                yield Difference((*place, "required"), f"{name!r} is {text}", here, there, weight)


def _members_of(schema: Schema) -> dict[str, Any]:
    """Return the members that a schema names. A member that is only in `required` may be of any type."""
    properties = _object(schema.get("properties"))
    return {**properties, **{name: {} for name in _required(schema) if name not in properties}}


def _object(value: object) -> dict[str, Any]:
    return value if is_object(value) else {}


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if is_array(names) else []


def _inner(offered: Schema, expected: Schema, place: Place, flow: Flow) -> Iterator[Difference]:
    """Compare `items`, and `additionalProperties` for members that are not named."""
    for word in ("items", "additionalProperties"):
        theirs, ours = offered.get(word), expected.get(word)
        if theirs == ours:
            continue
        where = (*place, word)
        if is_object(theirs) and is_object(ours):
            yield from schema_differences(theirs, ours, where, flow)
        elif is_array(theirs) and is_array(ours) and len(theirs) == len(ours):
            for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
                yield from schema_differences(_object(one), _object(other), (*where, number), flow)
        else:
            weight = flow.weight(narrower=_is_limited(theirs), wider=_is_limited(ours))
            yield Difference(where, _contrast(word, theirs, ours), theirs, ours, weight)


def _is_limited(value: object) -> bool:
    """Return whether `items` or `additionalProperties` limits anything."""
    return is_array(value) or bool(_object(value))


def _other_words(offered: Schema, expected: Schema, place: Place, _flow: Flow) -> Iterator[Difference]:
    """Compare keywords that do not limit values, then titles and descriptions."""
    for word in dict.fromkeys((*expected, *offered)):
        theirs, ours = offered.get(word), expected.get(word)
        if word not in _ELSEWHERE and theirs != ours:
            yield Difference((*place, word), _contrast(word, theirs, ours), theirs, ours)
    yield from texts_differ(offered, expected, place)


def texts_differ(offered: Schema, expected: Schema, place: Place) -> Iterator[Difference]:
    """Yield the differences of titles, descriptions and examples, which never break a consumer."""
    for word in WORDING:
        theirs, ours = offered.get(word), expected.get(word)
        if theirs != ours:
            yield Difference((*place, word), _contrast(word, theirs, ours), theirs, ours, "wording")


_COMPARISONS: Final[tuple[Callable[[Schema, Schema, Place, Flow], Iterator[Difference]], ...]] = (
    _values, _ranges, _narrowings, _members, _inner, _other_words,
)  # fmt: skip
