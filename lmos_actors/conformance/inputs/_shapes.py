"""Values made to fit a data schema.

A value is a proposal: the caller checks it against the schema.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ._patterns import matching
from ._schemas import (
    Budget,
    as_list,
    as_number,
    as_object,
    bounds_of,
    branches,
    given_values,
    is_array,
    kinds_of,
    same,
)

if TYPE_CHECKING:
    from random import Random

    from ._schemas import Schema

LONGEST: Final = 10_000
"""Most characters of a text, or items of an array, that are made."""

_DEEPEST: Final = 12
_BARE: Final = 4  # below this depth objects get no optional members, so that recursive ones end
_SPAN: Final = 100
_WORDS: Final = ("hello", "one two", "test", "good day", "a", "text")
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


_ENDLESS: Final = "there is no end to it"


class Unmakeable(ValueError):
    """The error that no value can be made. `endless`: the schema is infinite, so do not try again."""

    def __init__(self, why: str, *, endless: bool = False) -> None:
        self.endless = endless
        super().__init__(why)


@attrs.frozen
class Maker:
    """A maker of values that should fit a schema.

    `numbers`: whether numbers are of any size, or as large or as small as possible. `members`: whether an
    object gets some, all or none of its optional members.
    """

    root: Schema
    random: Random
    numbers: Literal["some", "most", "least"] = "some"
    members: Literal["some", "all", "none"] = "some"
    _budget: Budget = attrs.field(factory=Budget, init=False)

    def make(self, schema: object, depth: int = 0) -> Any:
        """Make a value for a schema, a part of `root`. Raises Unmakeable."""
        if depth > _DEEPEST or not self._budget.take():
            raise Unmakeable(_ENDLESS, endless=True)
        found = branches(schema, self.root, self._budget)
        if not found:
            spent = self._budget.is_spent
            raise Unmakeable(_ENDLESS if spent else "nothing fits", endless=spent)
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
        """Return the wanted end of the range, or a number near it if the end is excluded."""
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
        self._budget.take(len(known) // 16)  # looking at them is work, too
        required = [each for each in as_list(schema.get("required")) if isinstance(each, str)]
        needed = frozenset(required)
        names = [name for name in known if name in needed or self._takes(known[name], depth)]
        names += [name for name in dict.fromkeys(required) if name not in known]
        found = {name: self.make(self._schema_of(name, schema), depth + 1) for name in names}
        self._fill(found, schema, known, depth)
        most = as_number(schema.get("maxProperties"))
        for name in [each for each in reversed(found) if each not in needed]:
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
        """Add members until there are as many as the schema demands."""
        least = int(as_number(schema.get("minProperties")) or 0)
        spare = [name for name in known if name not in found]
        for name in (*spare, *(f"extra{number}" for number in range(1, min(least, LONGEST) + 1))):
            if len(found) >= least:
                return
            found[name] = self.make(self._schema_of(name, schema), depth + 1)


def sized(text: str, schema: Schema) -> str:
    """Shorten or lengthen a text to a valid length. Raises Unmakeable."""
    least = int(as_number(schema.get("minLength")) or 0)
    most = as_number(schema.get("maxLength"))
    if least > LONGEST:
        raise Unmakeable(f"a text of {least} characters is too long to be made")
    if len(text) < least:
        text += "x" * (least - len(text))
    return text if most is None else text[: max(0, int(most))]
