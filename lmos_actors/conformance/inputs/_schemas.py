"""Simplified data schemas (JSON Schema draft 7, as used by TD 1.1), and typed access to JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Schema: TypeAlias = "dict[str, Any]"

MOST: Final = 4_000
"""Most steps of work on one value: schemas that are looked at, and values that are made."""

_WIDEST: Final = 16  # alternatives that are combined with others
_KINDS: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties", "maxProperties")),
    ("array", ("items", "minItems", "maxItems", "uniqueItems", "contains")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ("string", ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType")),
)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether plain data is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether plain data is an array."""
    return isinstance(value, list)


def as_object(value: object) -> Schema:
    """Return plain data if it is an object, else an empty object."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """Return plain data if it is an array, else an empty array."""
    return value if is_array(value) else []


def as_number(value: object) -> int | float | None:
    """Return plain data if it is a number of at most 1.7e308, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= 1.7e308 else None


def merged(first: Schema, second: Schema) -> Schema:
    """Return a schema for values that fit both schemas, as far as one schema can express it."""
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
        found["enum"] = [each for each in as_list(first["enum"]) if each in as_list(second["enum"])[:1_000]]
    return found


def _narrow(
    found: Schema, first: Schema, second: Schema, word: str, take: Callable[[float, float], float]
) -> None:
    left, right = as_number(first.get(word)), as_number(second.get(word))
    if left is not None and right is not None:
        found[word] = take(left, right)


class Budget:
    """A limit on the work for a schema, so that one that refers to itself does not take forever."""

    def __init__(self, left: int = MOST) -> None:
        self._left = left

    @property
    def is_spent(self) -> bool:
        """Whether more than the whole budget has been requested."""
        return self._left < 0

    def take(self, much: int = 1) -> bool:
        """Use up an amount; return False if there is not enough left."""
        self._left -= much
        return self._left >= 0


def branches(schema: object, root: Schema, budget: Budget | None = None) -> list[Schema]:
    """Return the plain schemas that a schema is equivalent to, without references and combinations.

    A value fits the schema if it fits one of them. If there are very many, some are left out.
    """
    return _Branches(root, budget or Budget()).of(schema, ())


class _Branches:
    """One walk through the alternatives of a schema."""

    def __init__(self, root: Schema, budget: Budget) -> None:
        self._root = root
        self._budget = budget

    def of(self, schema: object, under: tuple[str, ...]) -> list[Schema]:
        """Return the branches of a schema that was reached over the references `under`."""
        if not self._budget.take() or schema is False:
            return []
        plain = as_object(schema)
        reference = plain.get("$ref")
        if reference is not None:
            name = str(reference)
            return [] if name in under else self.of(_referred(name, self._root), (*under, name))
        found = [{word: value for word, value in plain.items() if word not in ("oneOf", "anyOf", "allOf")}]
        for part in as_list(plain.get("allOf")):
            found = self._both(found, self.of(part, under))
        for word in ("oneOf", "anyOf"):
            if word in plain:
                parts = [each for part in as_list(plain[word]) for each in self.of(part, under)]
                found = self._both(found, parts)
        return found

    def _both(self, left: list[Schema], right: list[Schema]) -> list[Schema]:
        pairs = [(one, other) for one in left[:_WIDEST] for other in right[:_WIDEST]]
        return [merged(*pair) for pair in pairs if self._budget.take(sum(map(_size, pair)))]


def _size(schema: Schema) -> int:
    lists = (schema.get("properties"), schema.get("required"), schema.get("enum"))
    return 1 + sum(len(each) for each in lists if is_object(each) or is_array(each)) // _WIDEST


def _referred(reference: str, root: Schema) -> object:
    """Return the part that a reference within the schema leads to, or False for any other reference."""
    if not reference.startswith("#"):
        return False
    place: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        place = as_object(place).get(key, False)
    return place


def kinds_of(schema: Schema) -> tuple[str, ...]:
    """Return the JSON types that a plain schema allows, by its `type` or by its other keywords."""
    given = schema.get("type")
    if isinstance(given, str):
        return (given,)
    if given is not None:
        return tuple(each for each in as_list(given) if isinstance(each, str))
    return tuple(kind for kind, words in _KINDS if any(word in schema for word in words))[:1]


def bounds_of(schema: Schema, *, whole: bool) -> tuple[int | float | None, int | float | None]:
    """Return the lower and upper bounds of numbers; unless `whole`, exclusive ones count as inclusive."""
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


def given_values(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that a schema contains: its default and its examples."""
    return [*([schema["default"]] if "default" in schema else []), *as_list(schema.get("examples"))]


def same(one: object, other: object) -> bool:
    """Return whether two plain values are equal in JSON: true is not 1, but 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
