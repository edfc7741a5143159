"""The cost of validating a value against a data schema, estimated beforehand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ._schemas import (
    as_list,
    as_object,
    is_array,
    is_object,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEAVIEST: Final = 100_000
"""Most schemas that are looked at for the deepest place of one value."""

DEEPEST: Final = 100
"""Most levels of a value that is compared with a schema."""

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_BELOW: Final = ("items", "additionalItems", "contains", "additionalProperties", "propertyNames")


def depth_of(value: object) -> int:
    """Return the number of levels of plain data, which is 0 unless it is an object or an array."""
    level: list[Any] = [value]
    depth = -1
    while level and depth <= DEEPEST:
        depth += 1
        level = [each for outer in level for each in _parts(outer)]
    return depth


def _parts(value: object) -> Iterator[Any]:
    if is_object(value):
        yield from value.values()
    elif is_array(value):
        yield from value


def is_affordable(schema: Mapping[str, Any], depth: int) -> bool:
    """Return whether values with `depth` levels can be validated by a schema in reasonable time.

    Schemas that refer to each other may be short and yet take almost forever to validate a value. A reference
    to a name, rather than to a place in the schema, is not followed.
    """
    try:
        root = dict(schema)
        return depth <= DEEPEST and _CostEstimate(root).of(root, depth) <= HEAVIEST
    except RecursionError:
        return False


class _CostEstimate:
    """The cost estimates for one schema and its parts."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], float] = {}
        self._parts: list[object] = []  # kept, so that no id comes twice

    def of(self, schema: object, depth: int) -> float:
        """Return how many schemas are applied to a value with `depth` levels: infinitely many in a cycle."""
        if not is_object(schema):
            return 1
        key = (id(schema), depth)
        if key not in self._known:
            self._parts.append(schema)
            self._known[key] = math.inf  # until it is known: a lookup meanwhile is a circle
            self._known[key] = 1 + self._in_place(schema, depth) + self._below(schema, depth - 1)
        return self._known[key]

    def _in_place(self, schema: dict[str, Any], depth: int) -> float:
        weight = 0.0
        if "$ref" in schema:
            reference = schema["$ref"]
            if not isinstance(reference, str):
                return math.inf
            weight += self.of(self._place(reference), depth)
        for word in _IN_PLACE:
            found: object = schema.get(word)
            weight += sum(self.of(each, depth) for each in (found if is_array(found) else [found]))
        return weight + sum(self.of(each, depth) for each in as_object(schema.get("dependencies")).values())

    def _below(self, schema: dict[str, Any], depth: int) -> float:
        if depth < 0:
            return 0
        named = [self.of(each, depth) for each in as_object(schema.get("properties")).values()]
        matched = as_object(schema.get("patternProperties")).values()
        listed = [self.of(each, depth) for each in as_list(schema.get("items"))]
        rest = [self.of(schema.get(word), depth) for word in _BELOW]
        # each of several members or items is a value of its own
        both = (max(named, default=0), max(listed, default=0), *rest)
        return sum(both) + sum(self.of(each, depth) for each in matched)

    def _place(self, reference: str) -> object:
        """Return the part of the schema that a reference leads to; a name is assumed to lead into a cycle."""
        place: Any = self._root
        if reference not in ("#", "") and not reference.startswith("#/"):
            return {"$ref": None}
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if is_array(place) and key.isdecimal() and len(key) < 9 and int(key) < len(place):
                place = place[int(key)]
            else:
                place = as_object(place).get(key)
        return place
