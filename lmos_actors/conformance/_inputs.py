"""Values for data schemas: valid, at the bounds, and wrong; invented by a seed and proved by the schema."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
from jsonschema_rs import Draft7Validator

from ._bounds import Proposal, place_text, proposals
from ._schemas import given_values, same
from ._shapes import Maker, Unending, Unmakeable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

Kind: TypeAlias = Literal["valid", "boundary", "invalid"]

_TRIES: Final = 40
_ENDLESS: Final = 5  # of them
_TOLD: Final = 300  # characters


@attrs.frozen
class Sample:
    """A value, whether it fits, and what is special about it, as in `maximum of $.level`."""

    value: Any
    kind: Kind
    why: str


def fits(schema: Mapping[str, Any], value: Any) -> str | None:
    """Hold a value against a data schema: give None, or what is wrong with it and where.

    A schema that is none itself has every value fit: that is for the description's own cases to judge.
    """
    try:
        found = next(iter(_validator(_text(schema)).iter_errors(value)), None)
    except ValueError:
        return None
    if found is None:
        return None
    told = found.message if len(found.message) <= _TOLD else f"{found.message[:_TOLD]}…"
    return f"{told} at {place_text(tuple(found.instance_path))}"


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Draft7Validator:
    """Compile a schema; what it refers to elsewhere is not fetched. Raises ValueError."""
    try:
        return Draft7Validator(json.loads(schema), offline=True)
    except Exception as error:
        raise ValueError(f"the data schema is none: {error}") from None


def valid(schema: Mapping[str, Any], random: Random) -> Any:
    """Give one plain value that fits. Raises ValueError if none can be made."""
    return _first(schema, (Maker(dict(schema), random) for _ in range(_TRIES)))


def largest(schema: Mapping[str, Any], random: Random) -> Any:
    """Give a value that fits with every number in it as large as may be. Raises ValueError."""
    return _extreme(schema, random, "most")


def smallest(schema: Mapping[str, Any], random: Random) -> Any:
    """Give a value that fits with every number in it as small as may be. Raises ValueError."""
    return _extreme(schema, random, "least")


def _extreme(schema: Mapping[str, Any], random: Random, end: Literal["most", "least"]) -> Any:
    try:
        return _first(schema, (Maker(dict(schema), random, end, "all") for _ in range(_TRIES)))
    except ValueError:
        return valid(schema, random)


def another(schema: Mapping[str, Any], value: Any, random: Random) -> Any:
    """Give a value that fits and is not equal to `value`. Raises ValueError if none can be made."""
    try:
        makers = (Maker(dict(schema), random) for _ in range(_TRIES))
        return _first(schema, makers, lambda made: not same(made, value))
    except ValueError:
        for sample in samples(schema, random):
            if sample.kind != "invalid" and not same(sample.value, value):
                return sample.value
        raise


def _anything(_: object) -> bool:
    return True


def _first(
    schema: Mapping[str, Any], makers: Iterable[Maker], wanted: Callable[[Any], bool] = _anything
) -> Any:
    """Give the first value made that fits and is wanted. Raises ValueError."""
    why = "no value that fits can be made"
    checked, endless = _validator(_text(schema)), 0
    for maker in makers:
        try:
            made = maker.make(dict(schema))
        except Unmakeable as error:
            why = f"no value that fits can be made: {error}"
            endless += isinstance(error, Unending)
            if endless > _ENDLESS:
                break
            continue
        if checked.is_valid(made) and wanted(made):
            return deepcopy(made)
    for given in given_values(schema):
        if checked.is_valid(given) and wanted(given):
            return deepcopy(given)
    raise ValueError(why)


# --- of all kinds


def samples(schema: Mapping[str, Any], random: Random, *, most: int = 12) -> tuple[Sample, ...]:
    """Give values of all three kinds, each held against the schema; what cannot be made is left out.

    At most `most`, valid ones first, then those at the bounds, then wrong ones; which of them are left out
    is up to `random`.
    """
    try:
        checked = _validator(_text(schema))
    except ValueError:
        return ()
    kinds: dict[Kind, list[Sample]] = {"valid": [], "boundary": [], "invalid": []}
    seen: list[Any] = []
    for each in (*_plain_ones(schema, random), *_proposed(schema, random)):
        proved = checked.is_valid(each.value) is (each.kind != "invalid")
        if proved and not any(same(each.value, known) for known in seen):
            seen.append(each.value)
            kinds[each.kind].append(Sample(deepcopy(each.value), each.kind, each.why))
    return _chosen(kinds, random, most)


def _plain_ones(schema: Mapping[str, Any], random: Random) -> Iterable[Proposal]:
    """Propose valid values: with all members, with those that are required alone, and others."""
    ways: tuple[tuple[Literal["some", "all", "none"], str], ...] = (
        ("some", "a value that fits"),
        ("all", "all that there may be"),
        ("none", "no more than there must be"),
        ("some", "another value that fits"),
    )
    for members, why in ways:
        try:
            made = _first(schema, (Maker(dict(schema), random, members=members) for _ in range(_TRIES)))
        except ValueError:
            continue
        if members == "some" or isinstance(made, dict | list):
            yield Proposal(made, "valid", why)


def _proposed(schema: Mapping[str, Any], random: Random) -> Iterable[Proposal]:
    try:
        base = _first(schema, (Maker(dict(schema), random, members="all") for _ in range(_TRIES)))
    except ValueError:
        return ()
    return proposals(dict(schema), base)


def _chosen(kinds: dict[Kind, list[Sample]], random: Random, most: int) -> tuple[Sample, ...]:
    """Share the room out: to each kind in turn, as long as it has some."""
    lists = list(kinds.values())
    shares = [0] * len(lists)
    for _ in range(min(most, sum(map(len, lists)))):
        left = [number for number, each in enumerate(lists) if shares[number] < len(each)]
        shares[min(left, key=lambda number: shares[number])] += 1
    found: list[Sample] = []
    for each, share in zip(lists, shares, strict=True):
        found += [each[number] for number in sorted(random.sample(range(len(each)), share))]
    return tuple(found)
