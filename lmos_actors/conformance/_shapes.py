"""Values made to fit a data schema (JSON Schema draft 7, as TD 1.1 uses it), and schemas made plain.

What is made is a proposal: whoever asks for it holds it against the schema.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard

import attrs

from ._patterns import matching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

Schema: TypeAlias = "dict[str, Any]"

LONGEST: Final = 10_000
"""Characters of a text, or items of an array, that are made at most."""

_DEEPEST: Final = 12
_BARE: Final = 4  # below this depth objects get no optional members, so that what is recursive ends
_MOST: Final = 2_000  # values in one, and schemas that are looked at for one
_WIDEST: Final = 16  # alternatives that are combined with others
_SPAN: Final = 100
_WORDS: Final = ("hello", "one two", "test", "good day", "a", "text")
_KINDS: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties", "maxProperties")),
    ("array", ("items", "minItems", "maxItems", "uniqueItems", "contains")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("string", ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType")),
)
_FORMATS: Final = {
    "date": "2026-02-28",
    "time": "12:30:00Z",
    "date-time": "2026-02-28T12:30:00Z",
    "email": "somebody@example.org",
    "idn-email": "somebody@example.org",
    "hostname": "example.org",
    "idn-hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/a?b=c",
    "uri-reference": "a/b?c=d",
    "iri": "https://example.org/a",
    "iri-reference": "a/b",
    "uri-template": "https://example.org/{a}",
    "json-pointer": "/a/0",
    "relative-json-pointer": "0/a",
    "regex": "a+",
    "uuid": "3e9f2f5c-7a0b-4d6e-9b1c-5a2d8f7e6c41",
    "duration": "PT5M",
}


class Unmakeable(ValueError):
    """No value can be made; the text says of what."""


# --- schemas made plain


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Say whether plain data is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Say whether plain data is an array."""
    return isinstance(value, list)


def as_object(value: object) -> Schema:
    """Give plain data that is an object, or an empty one."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """Give plain data that is an array, or an empty one."""
    return value if is_array(value) else []


def as_number(value: object) -> int | float | None:
    """Give plain data that is a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def merged(first: Schema, second: Schema) -> Schema:
    """Give a schema for what fits both, as well as that can be said in one."""
    found = {**first, **second}
    for word, take in (("minimum", max), ("minLength", max), ("minItems", max), ("maximum", min)):
        _narrow(found, first, second, word, take)
    for word in ("maxLength", "maxItems"):
        _narrow(found, first, second, word, min)
    if "required" in first and "required" in second:
        found["required"] = [*as_list(first["required"]), *as_list(second["required"])]
    if "properties" in first and "properties" in second:
        left, right = as_object(first["properties"]), as_object(second["properties"])
        both = {name: merged(as_object(left[name]), as_object(right[name])) for name in left if name in right}
        found["properties"] = {**left, **right, **both}
    if "enum" in first and "enum" in second:
        found["enum"] = [each for each in as_list(first["enum"]) if each in as_list(second["enum"])]
    return found


def _narrow(
    found: Schema, first: Schema, second: Schema, word: str, take: Callable[[float, float], float]
) -> None:
    left, right = as_number(first.get(word)), as_number(second.get(word))
    if left is not None and right is not None:
        found[word] = take(left, right)


def branches(schema: object, root: Schema) -> list[Schema]:
    """Give the schemas without references, alternatives or conjunctions that a schema stands for.

    Not all of them, where they are very many.
    """
    return _Branches(root).of(schema, ())


class _Branches:
    """One walk through the alternatives of a schema, of bounded length."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST

    def of(self, schema: object, under: tuple[str, ...]) -> list[Schema]:
        """Give the branches of a schema; `under` are the references that have led to it."""
        self._left -= 1
        if self._left < 0 or schema is False:
            return []
        plain = as_object(schema)
        reference = plain.get("$ref")
        if reference is not None:
            name = str(reference)
            return [] if name in under else self.of(_referred(name, self._root), (*under, name))
        found = [{word: value for word, value in plain.items() if word not in ("oneOf", "anyOf", "allOf")}]
        for part in as_list(plain.get("allOf")):
            found = _both(found, self.of(part, under))
        for word in ("oneOf", "anyOf"):
            if word in plain:
                found = _both(found, [each for part in as_list(plain[word]) for each in self.of(part, under)])
        return found


def _both(left: list[Schema], right: list[Schema]) -> list[Schema]:
    return [merged(one, other) for one in left[:_WIDEST] for other in right[:_WIDEST]]


def _referred(reference: str, root: Schema) -> object:
    """Give what a reference within the schema leads to; there are no others here."""
    if not reference.startswith("#"):
        return False
    place: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        place = as_object(place).get(key, False)
    return place


def kinds_of(schema: Schema) -> tuple[str, ...]:
    """Give the types of JSON that a plain schema lets through, as it says or as its words have it."""
    said = schema.get("type")
    if isinstance(said, str):
        return (said,)
    if said is not None:
        return tuple(each for each in as_list(said) if isinstance(each, str))
    return tuple(kind for kind, words in _KINDS if any(word in schema for word in words))[:1]


def bounds_of(schema: Schema, *, whole: bool) -> tuple[int | float | None, int | float | None]:
    """Give the least and the greatest number that fit, those excluded too unless it is `whole`."""
    low, high = as_number(schema.get("minimum")), as_number(schema.get("maximum"))
    above, below = as_number(schema.get("exclusiveMinimum")), as_number(schema.get("exclusiveMaximum"))
    if whole:
        lows = [math.ceil(each) for each in (low,) if each is not None]
        lows += [math.floor(each) + 1 for each in (above,) if each is not None]
        highs = [math.floor(each) for each in (high,) if each is not None]
        highs += [math.ceil(each) - 1 for each in (below,) if each is not None]
        return max(lows, default=None), min(highs, default=None)
    least = [each for each in (low, above) if each is not None]
    most = [each for each in (high, below) if each is not None]
    return max(least, default=None), min(most, default=None)


# --- values


@attrs.frozen
class Maker:
    """Makes values that should fit a schema.

    `numbers`: of any size, or as large or as small as may be. `members`: which optional ones an object gets.
    """

    root: Schema
    random: Random
    numbers: Literal["some", "most", "least"] = "some"
    members: Literal["some", "all", "none"] = "some"
    _spent: list[None] = attrs.field(factory=list[None], init=False)

    def make(self, schema: object, depth: int = 0) -> Any:
        """Make a value. Raises Unmakeable."""
        self._spent.append(None)
        if depth > _DEEPEST or len(self._spent) > _MOST:
            raise Unmakeable("there is no end to it")
        found = branches(schema, self.root)
        if not found:
            raise Unmakeable("nothing fits")
        plain = self.random.choice(found)
        if "const" in plain:
            return plain["const"]
        if "enum" in plain:
            return self._choice(as_list(plain["enum"]))
        return self._of_kind(plain, depth)

    def _choice(self, values: list[Any]) -> Any:
        if not values:
            raise Unmakeable("nothing fits")
        return self.random.choice(values)

    def _of_kind(self, schema: Schema, depth: int) -> Any:
        kind = self._choice(list(kinds_of(schema) or ("string",)))
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("number", "integer"):
            return self._number(schema, whole=kind == "integer")
        if kind == "boolean":
            return self.random.random() < 0.5
        if kind == "null":
            return None
        return self._text(schema)

    # --- numbers

    def _number(self, schema: Schema, *, whole: bool) -> int | float:
        low, high = self._range(*bounds_of(schema, whole=whole))
        step = as_number(schema.get("multipleOf"))
        if step is not None and step > 0:
            return self._multiple(low, high, step, whole=whole)
        if self.numbers != "some":
            return self._end(schema, low, high, whole=whole)
        if whole:
            return self._whole(low, high)
        share = self.random.random()
        for digits in (2, 4, 8):
            found = round(low + share * (high - low), digits)
            if low < found < high:
                return found
        return low / 2 + high / 2

    @staticmethod
    def _range(low: int | float | None, high: int | float | None) -> tuple[int | float, int | float]:
        if low is None and high is None:
            return 0, _SPAN
        if low is None:
            return (high or 0) - _SPAN, high or 0
        return low, low + _SPAN if high is None else high

    def _end(self, schema: Schema, low: float, high: float, *, whole: bool) -> int | float:
        """Give the end of the range that is wanted; where it is excluded, something near it."""
        bound = "exclusiveMaximum" if self.numbers == "most" else "exclusiveMinimum"
        end, other = (high, low) if self.numbers == "most" else (low, high)
        return end if whole or bound not in schema else end + (other - end) / 1024

    def _whole(self, low: float, high: float) -> int:
        if low > high:
            raise Unmakeable(f"no whole number is between {low} and {high}")
        return self.random.randint(math.ceil(low), math.floor(high))

    def _multiple(self, low: float, high: float, step: float, *, whole: bool) -> int | float:
        exact = Fraction(str(step))
        if whole:
            exact = Fraction(exact.numerator)  # whole multiples of a fraction in lowest terms
        first, last = math.ceil(Fraction(low) / exact), math.floor(Fraction(high) / exact)
        if first > last:
            raise Unmakeable(f"no multiple of {step} is between {low} and {high}")
        wanted = {"most": last, "least": first}
        times = wanted.get(self.numbers)
        found = exact * (self.random.randint(first, last) if times is None else times)
        return int(found) if found.denominator == 1 else float(found)

    # --- texts

    def _text(self, schema: Schema) -> str:
        given = [each for each in given_values(schema) if isinstance(each, str)]
        if isinstance(pattern := schema.get("pattern"), str):
            found = matching(pattern, self.random)
            if found is not None:
                return sized(found, schema) if "$" not in pattern else found
            return str(self._choice(given))
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS:
            return _FORMATS[form]
        if schema.get("contentEncoding") is not None:
            return "aGVsbG8="
        return sized(self.random.choice(given or _WORDS), schema)

    # --- arrays

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        least = int(as_number(schema.get("minItems")) or 0)
        most = as_number(schema.get("maxItems"))
        if least > LONGEST:
            raise Unmakeable(f"an array of {least} items is too long to be made")
        wanted = self._count(least, least + 2 if most is None else int(most))
        items: object = schema.get("items", True)
        schemas: list[object] = [*as_list(items)]
        schemas += [schema.get("additionalItems", True) if is_array(items) else items] * wanted
        found = [self.make(each, depth + 1) for each in schemas[:wanted]]
        if "contains" in schema and len(found) > 0:
            found[0] = self.make(schema["contains"], depth + 1)
        if schema.get("uniqueItems") is True:
            found = self._distinct(found, schemas, depth)
        return found

    def _count(self, least: int, most: int) -> int:
        if self.members == "none":
            return least
        if self.members == "all":
            return min(max(least, 1), max(most, least))
        return self.random.randint(least, max(least, min(most, least + 2)))

    def _distinct(self, found: list[Any], schemas: list[object], depth: int) -> list[Any]:
        kept: list[Any] = []
        for number, value in enumerate(found):
            tries = 0
            new = value
            while any(same(new, each) for each in kept) and tries < _SPAN:
                tries += 1
                new = self.make(schemas[number], depth + 1)
                new = f"{new}{tries}" if isinstance(new, str) and tries > len(_WORDS) else new
            kept.append(new)
        return kept

    # --- objects

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        known = as_object(schema.get("properties"))
        required = [each for each in as_list(schema.get("required")) if isinstance(each, str)]
        names = [name for name in known if name in required or self._takes(known[name], depth)]
        names += [name for name in dict.fromkeys(required) if name not in known]
        found = {name: self.make(self._schema_of(name, schema), depth + 1) for name in names}
        self._fill(found, schema, known, depth)
        most = as_number(schema.get("maxProperties"))
        for name in [each for each in reversed(found) if each not in required]:
            if most is not None and len(found) > most:
                del found[name]
        return found

    def _takes(self, schema: object, depth: int) -> bool:
        if schema is False or depth > _BARE:
            return False
        return self.random.random() < 0.5 if self.members == "some" else self.members == "all"

    @staticmethod
    def _schema_of(name: str, schema: Schema) -> object:
        known = as_object(schema.get("properties"))
        return known[name] if name in known else schema.get("additionalProperties", True)

    def _fill(self, found: dict[str, Any], schema: Schema, known: Schema, depth: int) -> None:
        """Add members until there are as many as are demanded."""
        least = int(as_number(schema.get("minProperties")) or 0)
        spare = [name for name in known if name not in found]
        for name in (*spare, *(f"extra{number}" for number in range(1, min(least, LONGEST) + 1))):
            if len(found) >= least:
                return
            found[name] = self.make(self._schema_of(name, schema), depth + 1)


def given_values(schema: Mapping[str, Any]) -> list[Any]:
    """Give the values that a schema itself names as such."""
    return [*([schema["default"]] if "default" in schema else []), *as_list(schema.get("examples"))]


def sized(text: str, schema: Schema) -> str:
    """Bring a text to a length that fits. Raises Unmakeable."""
    least = int(as_number(schema.get("minLength")) or 0)
    most = as_number(schema.get("maxLength"))
    if least > LONGEST:
        raise Unmakeable(f"a text of {least} characters is too long to be made")
    if len(text) < least:
        text += "x" * (least - len(text))
    return text if most is None else text[: max(0, int(most))]


def same(one: object, other: object) -> bool:
    """Say whether two plain values are the same as JSON has it: true is not 1, but 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
