"""Values for data schemas: valid, at the bounds, and wrong; invented by a seed and proved by the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

Kind: TypeAlias = Literal["valid", "boundary", "invalid"]


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
    raise NotImplementedError


def valid(schema: Mapping[str, Any], random: Random) -> Any:
    """Give one plain value that fits. Raises ValueError if none can be made."""
    raise NotImplementedError


def largest(schema: Mapping[str, Any], random: Random) -> Any:
    """Give a value that fits with every number in it as large as may be. Raises ValueError."""
    raise NotImplementedError


def smallest(schema: Mapping[str, Any], random: Random) -> Any:
    """Give a value that fits with every number in it as small as may be. Raises ValueError."""
    raise NotImplementedError


def another(schema: Mapping[str, Any], value: Any, random: Random) -> Any:
    """Give a value that fits and is not equal to `value`. Raises ValueError if none can be made."""
    raise NotImplementedError


def samples(schema: Mapping[str, Any], random: Random, *, most: int = 12) -> tuple[Sample, ...]:
    """Give values of all three kinds, each held against the schema; what cannot be made is left out."""
    raise NotImplementedError
