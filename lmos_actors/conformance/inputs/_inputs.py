"""Values for data schemas: valid, at the bounds and invalid; made from a seed, checked by the schema.

Making values and judging them are kept apart. `Maker` and `proposals` support the common keywords and may be
wrong about the rest; a value is used only after the schema's validator has proved that it fits, or that it
does not. So a schema with unsupported keywords costs samples, but never leads to a wrong verdict on a server.

Descriptions come from others, so everything is bounded: the length of a schema, the levels of a value, the
attempts at making one. A schema of a few lines may refer to itself in a way that keeps a validator busy for
hours; `is_affordable` estimates that before anything is validated. References to other documents are not
followed.

The same schema and the same `Random` make the same values, so a report can be reproduced from its seed. Each
sample names what is special about it ("maximum of $.level"); therefore the values are made here and not by a
library for random data.
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
from jsonschema_rs import Draft7Validator, ValidationError

from ._bounds import Proposal, place_text, proposals
from ._schemas import given_values, same
from ._shapes import Maker, Unmakeable
from ._weights import depth_of, is_affordable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

Kind: TypeAlias = Literal["valid", "boundary", "invalid"]

_TRIES: Final = 40
_MAX_MESSAGE: Final = 300  # characters of a message


@attrs.frozen
class Sample:
    """A value, whether it is valid, and what is special about it, as in `maximum of $.level`."""

    value: Any
    kind: Kind
    why: str


def fits(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return what is wrong with a value for a data schema, and where, or None if the value fits.

    Every value fits an invalid schema, since other cases judge the description itself.
    """
    try:
        return _checked(_text(schema)).wrong(value)
    except ValueError:
        return None


def _text(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except RecursionError:
        raise ValueError("the data schema is nested too deeply") from None


class _Checked:
    """A compiled schema that validates values.

    Raises ValueError if it is invalid or split into several documents.
    """

    def __init__(self, text: str) -> None:
        schema = json.loads(text)
        if '"$id"' in text and '"$ref"' in text:
            raise ValueError("the data schema has references within several documents")
        try:
            self._validator = Draft7Validator(schema, offline=True)
        except Exception as error:
            raise ValueError(f"the data schema is none: {error}") from None
        self._schema = schema
        self._bearable: dict[int, bool] = {}  # by the number of levels of the value

    def proves(self, value: Any, *, valid: bool) -> bool:
        """Return whether it is proved that a value fits, or with `valid=False` that it does not fit.

        Returns False if the value cannot be sent, or cannot be validated.
        """
        try:
            return (self._error(value) is None) is valid
        except ValueError:
            return False

    def wrong(self, value: Any) -> str | None:
        """Return what is wrong with a value, and where, or None if nothing is. Raises ValueError."""
        found = self._error(value)
        if found is None:
            return None
        message = found.message if len(found.message) <= _MAX_MESSAGE else f"{found.message[:_MAX_MESSAGE]}…"
        return f"{message} at {place_text(tuple(found.instance_path))}"

    def _error(self, value: Any) -> ValidationError | None:
        """Return a value's first error, or None if it fits. Raises ValueError if it cannot be validated."""
        depth = depth_of(value)
        if depth not in self._bearable:
            self._bearable[depth] = is_affordable(self._schema, depth)
        if not self._bearable[depth]:
            raise ValueError("the data schema goes on and on")
        try:
            json.dumps(value, allow_nan=False).encode()
            return next(iter(self._validator.iter_errors(value)), None)
        except (RecursionError, OverflowError, TypeError) as error:
            raise ValueError(f"cannot be validated by the data schema: {error}") from None


@lru_cache(maxsize=256)
def _checked(schema: str) -> _Checked:
    """Return a compiled schema; references to other documents are not fetched. Raises ValueError."""
    return _Checked(schema)


def _makeable(schema: Mapping[str, Any]) -> _Checked:
    """Return a compiled schema that is short enough to make values for. Raises ValueError."""
    text = _text(schema)
    if len(text) > 65_536:
        raise ValueError(f"a data schema of {len(text)} characters is too long to make values for")
    return _checked(text)


def valid(schema: Mapping[str, Any], random: Random) -> Any:
    """Return one value that fits a schema. Raises ValueError if none can be made."""
    return _first(schema, (Maker(dict(schema), random) for _ in range(_TRIES)))


def largest(schema: Mapping[str, Any], random: Random) -> Any:
    """Return a value that fits, with every number in it as large as possible. Raises ValueError."""
    return _extreme(schema, random, "most")


def smallest(schema: Mapping[str, Any], random: Random) -> Any:
    """Return a value that fits, with every number in it as small as possible. Raises ValueError."""
    return _extreme(schema, random, "least")


def _extreme(schema: Mapping[str, Any], random: Random, end: Literal["most", "least"]) -> Any:
    try:
        return _first(schema, (Maker(dict(schema), random, end, "all") for _ in range(_TRIES)))
    except ValueError:
        return valid(schema, random)


def another(schema: Mapping[str, Any], value: Any, random: Random) -> Any:
    """Return a value that fits and is not equal to `value`. Raises ValueError if none can be made."""
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
    """Return the first made value that fits the schema and that `wanted` accepts. Raises ValueError."""
    why = "no value that fits can be made"
    checked, endless = _makeable(schema), 0
    for maker in makers:
        try:
            made = maker.make(dict(schema))
        except Unmakeable as error:
            why = f"no value that fits can be made: {error}"
            endless += error.endless
            if endless > 2:
                break
            continue
        if checked.proves(made, valid=True) and wanted(made):
            return deepcopy(made)
    for given in given_values(schema):
        if checked.proves(given, valid=True) and wanted(given):
            return deepcopy(given)
    raise ValueError(why)


# --- of all kinds


def samples(schema: Mapping[str, Any], random: Random, *, most: int = 12) -> tuple[Sample, ...]:
    """Return valid, boundary and invalid values, each checked by the schema; some kinds may be missing.

    There are at most `most`: valid ones first, then those at the bounds, then invalid ones. If there are
    more, `random` decides which are left out.
    """
    try:
        checked = _makeable(schema)
    except ValueError:
        return ()
    kinds: dict[Kind, list[Sample]] = {"valid": [], "boundary": [], "invalid": []}
    seen: list[Any] = []
    for each in (*_plain_ones(schema, random), *_proposed(schema, random)):
        proved = checked.proves(each.value, valid=each.kind != "invalid")
        if proved and not any(same(each.value, known) for known in seen):
            seen.append(each.value)
            kinds[each.kind].append(Sample(deepcopy(each.value), each.kind, each.why))
    return _chosen(kinds, random, most)


def _plain_ones(schema: Mapping[str, Any], random: Random) -> Iterable[Proposal]:
    """Yield valid values: with all members, with only the required ones, and with some optional ones."""
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
    return islice(proposals(dict(schema), base), 200)


def _chosen(kinds: dict[Kind, list[Sample]], random: Random, most: int) -> tuple[Sample, ...]:
    """Return at most `most` samples, with equal numbers of each kind as far as there are enough."""
    lists = list(kinds.values())
    shares = [0] * len(lists)
    for _ in range(min(most, sum(map(len, lists)))):
        left = [number for number, each in enumerate(lists) if shares[number] < len(each)]
        shares[min(left, key=lambda number: shares[number])] += 1
    found: list[Sample] = []
    for each, share in zip(lists, shares, strict=True):
        found += [each[number] for number in sorted(random.sample(range(len(each)), share))]
    return tuple(found)
