"""Delays written as one word on a command line: `20ms`, or a distribution such as `lognormal:25ms:250ms`."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from lmos_actors.errors import hint_at
from lmos_actors.files import Duration

from ..model import (
    Constant,
    Delay,
    Distribution,
    Empirical,
    Exponential,
    Lognormal,
    Normal,
    Uniform,
    measured_times,
)
from ._dist import problem_of_delay

_KINDS: Final[dict[str, type[Distribution]]] = {
    "constant": Constant,
    "uniform": Uniform,
    "exponential": Exponential,
    "normal": Normal,
    "lognormal": Lognormal,
    "empirical": Empirical,
}


def delay_in(word: str) -> Delay:
    """Parse a delay from one word; a distribution's amounts are in the order of its keys.

    An empirical distribution lists its values, or is `empirical:@FILE`, with one value on each line of the
    file; reading it blocks on the disk. Raises ValueError with the reason, and FileError.
    """
    name, colon, rest = word.partition(":")
    if not colon:
        return Duration.parse(name)
    kind: Any = _KINDS.get(name)
    if kind is None:
        hint = hint_at(name, _KINDS, '"') or f": one of {', '.join(_KINDS)}"
        raise ValueError(f'no distribution "{name}"{hint}')
    if kind is Empirical and rest.startswith("@"):
        made: Distribution = Empirical(values=measured_times(rest[1:]))
    elif kind is Empirical:
        made = Empirical(values=tuple(map(Duration.parse, rest.split(":"))))
    else:
        texts = rest.split(":")
        keys = [field.name for field in structs.fields(kind)]
        if len(texts) != len(keys):
            example = ":".join((name, *keys)).upper().replace(name.upper(), name, 1)
            raise ValueError(f'"{name}" is written {example}')
        given: dict[str, Any] = dict(zip(keys, map(Duration.parse, texts), strict=True))
        made = kind(**given)
    problem = problem_of_delay(made)
    if problem is not None:
        raise ValueError(problem[1])
    return made
