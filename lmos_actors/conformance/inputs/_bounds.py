"""Values at the bounds of a data schema and beyond them, each inserted into a valid value."""

from __future__ import annotations

from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from ._schemas import (
    Budget,
    as_list,
    as_number,
    as_object,
    bounds_of,
    branches,
    is_array,
    is_object,
    kinds_of,
)
from ._shapes import LONGEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._schemas import Schema

Path: TypeAlias = tuple[str | int, ...]

_ITEMS: Final = 100
_BEYOND_ASCII: Final = "Grüße, 你好 🙂"
_OTHERS: Final[tuple[tuple[tuple[str, ...], str, Any], ...]] = (
    (("string",), "a text", "nonsense"),
    (("number", "integer"), "a number", 7),
    (("array",), "an array", ["nonsense"]),
    (("boolean",), "a boolean", True),
    (("object",), "an object", {"nonsense": 1}),
)


@attrs.frozen
class Proposal:
    """A value that should be valid, at a bound, or invalid; the schema decides whether it is."""

    value: Any
    kind: Literal["valid", "boundary", "invalid"]
    why: str


def proposals(schema: Schema, base: Any) -> Iterator[Proposal]:
    """Yield values at the bounds and invalid ones, each equal to `base` except in one place."""
    for path, part, is_needed in islice(_places(schema, (), schema, Budget()), 60):
        here = found_at(base, path)
        if here is _NOTHING:
            continue
        for each in _of_place(part, here, place_text(path), is_needed):
            yield attrs.evolve(each, value=_with(base, path, each.value))


class _Nothing:
    pass


_NOTHING: Final = _Nothing()


def place_text(path: Path) -> str:
    """Return a place in plain data as text, such as `$.city[0]`."""
    parts = (f".{each}" if isinstance(each, str) and each.isidentifier() else f"[{each!r}]" for each in path)
    return "$" + "".join(parts)


def found_at(value: Any, path: Path) -> Any:
    """Return what is at a place in plain data, or `_NOTHING` if there is no such place."""
    for part in path:
        if isinstance(part, str):
            if not is_object(value) or part not in value:
                return _NOTHING
            value = value[part]
        elif not is_array(value) or len(value) <= part:
            return _NOTHING
        else:
            value = value[part]
    return value


def _with(base: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    whole = deepcopy(base)
    found_at(whole, path[:-1])[path[-1]] = value
    return whole


def _places(
    schema: object, path: Path, root: Schema, budget: Budget, is_needed: bool = False
) -> Iterator[tuple[Path, Schema, bool]]:
    """Yield the places in a value that a schema restricts, the whole value first.

    Each place is marked as required or not: where no value is required, null may count as no value.
    """
    if len(path) > 4:
        return
    for plain in branches(schema, root, budget):
        yield path, plain, is_needed
        required = as_list(plain.get("required"))
        for name, each in as_object(plain.get("properties")).items():
            yield from _places(each, (*path, name), root, budget, name in required)
        if isinstance(plain.get("items"), dict):
            yield from _places(plain["items"], (*path, 0), root, budget, True)


def _of_place(schema: Schema, here: Any, place: str, is_needed: bool) -> Iterator[Proposal]:
    kinds = kinds_of(schema)
    for words, name, value in _OTHERS:
        if not any(word in kinds for word in words):
            yield Proposal(deepcopy(value), "invalid", f"{place} is {name}")
            break  # one value of another type
    if is_needed:
        yield Proposal(None, "invalid", f"{place} is null")
    if "const" in schema or "enum" in schema:
        yield from _of_enum(schema, place)
    elif isinstance(here, bool):
        yield Proposal(True, "boundary", f"{place} is true")
        yield Proposal(False, "boundary", f"{place} is false")
    elif as_number(here) is not None:
        yield from _of_number(schema, here, place)
    elif isinstance(here, str):
        yield from _of_text(schema, here, place)
    elif is_array(here):
        yield from _of_array(schema, here, place)
    elif is_object(here):
        yield from _of_object(schema, here, place)


def _of_enum(schema: Schema, place: str) -> Iterator[Proposal]:
    listed = [schema["const"]] if "const" in schema else as_list(schema["enum"])
    for name, value in (("first", listed[:1]), ("last", listed[-1:])):
        yield from (Proposal(each, "boundary", f"{name} of the values of {place}") for each in value)
    numbers = [each for each in listed if as_number(each) is not None]
    other = max(numbers) + 1 if numbers and len(numbers) == len(listed) else "no such value"
    yield Proposal(other, "invalid", f"{place} is none of its values")


def _of_number(schema: Schema, here: float, place: str) -> Iterator[Proposal]:
    whole = kinds_of(schema) == ("integer",)
    low, high = bounds_of(schema, whole=whole)
    step = as_number(schema.get("multipleOf")) or 1
    if low is not None:
        yield Proposal(low, "boundary", f"minimum of {place}")
        yield Proposal(low - step, "invalid", f"{place} is below its minimum")
    if high is not None:
        yield Proposal(high, "boundary", f"maximum of {place}")
        yield Proposal(high + step, "invalid", f"{place} is above its maximum")
    if low is not None and not whole and "exclusiveMinimum" in schema:
        yield Proposal(low, "invalid", f"{place} is at its exclusive minimum")
    if high is not None and not whole and "exclusiveMaximum" in schema:
        yield Proposal(high, "invalid", f"{place} is at its exclusive maximum")
    yield Proposal(0, "boundary", f"{place} is zero")
    if whole:
        yield Proposal(here + 0.5, "invalid", f"{place} is a fraction")
    elif "multipleOf" in schema:
        yield Proposal(here + step / 2, "invalid", f"{place} is no multiple")


def _of_text(schema: Schema, here: str, place: str) -> Iterator[Proposal]:
    least, most = as_number(schema.get("minLength")), as_number(schema.get("maxLength"))
    if least is not None and least <= LONGEST:
        yield Proposal(_long(here, int(least)), "boundary", f"{place} is as short as may be")
        yield Proposal(here[: max(0, int(least) - 1)], "invalid", f"{place} is too short")
    else:
        yield Proposal("", "boundary", f"{place} is empty")
    if most is not None and most <= LONGEST:
        yield Proposal(_long(here, int(most)), "boundary", f"{place} is as long as may be")
        yield Proposal(_long(here, int(most) + 1), "invalid", f"{place} is too long")
    beyond = _BEYOND_ASCII if most is None else _BEYOND_ASCII[: int(most)]
    yield Proposal(_long(beyond, max(len(beyond), int(least or 0))), "boundary", f"{place} is beyond ASCII")
    if "pattern" in schema:
        yield Proposal("\u2400", "invalid", f"{place} does not match its pattern")
        yield Proposal("", "invalid", f"{place} does not match its pattern")


def _long(text: str, length: int) -> str:
    return (text + "x" * (length - len(text)))[:length]


def _of_array(schema: Schema, here: list[Any], place: str) -> Iterator[Proposal]:
    least, most = as_number(schema.get("minItems")), as_number(schema.get("maxItems"))
    if least is None:
        yield Proposal([], "boundary", f"{place} is empty")
    elif len(here) >= least > 0:
        yield Proposal(here[: int(least)], "boundary", f"{place} has as few items as may be")
        yield Proposal(here[: int(least) - 1], "invalid", f"{place} has too few items")
    if most is not None and most <= _ITEMS and here:
        yield Proposal(_many(here, int(most)), "boundary", f"{place} has as many items as may be")
        yield Proposal(_many(here, int(most) + 1), "invalid", f"{place} has too many items")
    if schema.get("uniqueItems") is True and here:
        yield Proposal([here[0], here[0]], "invalid", f"{place} has an item twice")


def _many(items: list[Any], count: int) -> list[Any]:
    return [deepcopy(items[number % len(items)]) for number in range(count)]


def _of_object(schema: Schema, here: dict[str, Any], place: str) -> Iterator[Proposal]:
    required = [each for each in as_list(schema.get("required")) if each in here]
    bare = {name: value for name, value in here.items() if name in required}
    yield Proposal(bare, "boundary", f"{place} has only what is required")
    for missing in required[:20]:
        rest = {name: value for name, value in here.items() if name != missing}
        yield Proposal(rest, "invalid", f"{place} lacks {missing}")
    least, most = as_number(schema.get("minProperties")), as_number(schema.get("maxProperties"))
    if least is not None and len(here) >= least > 0:
        some = dict(list({**bare, **here}.items())[: int(least) - 1])
        yield Proposal(some, "invalid", f"{place} has too few members")
    if most is not None and most <= _ITEMS:
        many = {f"nonsense{number}": 1 for number in range(int(most) + 1)}
        yield Proposal({**here, **many}, "invalid", f"{place} has too many members")
    if schema.get("additionalProperties") is False:
        yield Proposal({**here, "nonsense": 1}, "invalid", f"{place} has a member that is not known")
