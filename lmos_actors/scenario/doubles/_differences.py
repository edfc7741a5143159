"""Differences between recorded and requested data, by path. Pure functions.

Lists of items with names, such as the tools offered to a model, are compared by name, so that an added tool
does not make all later ones differ. Of long texts, the part around the first difference is shown.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._core import HIDDEN
from lmos_actors.files import is_list, is_mapping
from lmos_actors.system.values import same, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NOTHING: Final = object()
"""Stands for what is on one side only."""

SHOWN: Final = 3
"""Most differences that are shown; the others are counted."""

LONGEST: Final = 60
"""Most characters of a text that are shown."""

COMPARED: Final = 200
"""Most characters of a text that are compared to find the most similar one."""


@attrs.frozen
class Difference:
    """One difference, at a path such as `$.tools[look_up].description`; a missing value is `NOTHING`."""

    path: str
    recorded: Any
    asked: Any

    def __str__(self) -> str:
        if self.recorded is NOTHING:
            return f"at {self.path} nothing is recorded, and asked was {show(self.asked)}"
        if self.asked is NOTHING:
            return f"at {self.path} recorded is {show(self.recorded)}, and nothing was asked"
        if isinstance(self.recorded, str) and isinstance(self.asked, str):
            recorded, asked = _around(self.recorded, self.asked)
        else:
            recorded, asked = show(self.recorded), show(self.asked)
        return f"at {self.path} recorded is {recorded}, and asked was {asked}"


def differences(recorded: Any, asked: Any, path: str = "$") -> Iterator[Difference]:
    """Yield the differences of two values, in the order of the recorded one.

    Hidden parts of the recorded value match anything.
    """
    if isinstance(recorded, str) and (recorded == HIDDEN or fits_around(recorded, asked)):
        return
    if is_mapping(recorded) and is_mapping(asked):
        yield from _by_key(recorded, asked, path + ".{}")
    elif is_list(recorded) and is_list(asked):
        one, other = _by_name(recorded), _by_name(asked)
        if one is None or other is None:
            one, other = _by_place(recorded), _by_place(asked)
        yield from _by_key(one, other, path + "[{}]")
    elif not same(recorded, asked):
        yield Difference(path, recorded, asked)


def fits_around(recorded: str, asked: Any) -> bool:
    """Return whether a text equals a recorded one, except for the hidden parts of the recorded one."""
    if HIDDEN not in recorded or not isinstance(asked, str):
        return False
    parts = map(re.escape, recorded.split(HIDDEN))
    return re.fullmatch(".*".join(parts), asked, re.DOTALL) is not None


def _by_key(recorded: Mapping[str, Any], asked: Mapping[str, Any], place: str) -> Iterator[Difference]:
    """Yield the differences of the members of two mappings; `place` is their path, with `{}` for the key."""
    for key, value in recorded.items():
        here = place.replace("{}", key)
        if key in asked:
            yield from differences(value, asked[key], here)
        else:
            yield Difference(here, value, NOTHING)
    for key, value in asked.items():
        if key not in recorded:
            yield Difference(place.replace("{}", key), NOTHING, value)


def _by_place(values: list[Any]) -> dict[str, Any]:
    return {str(number): value for number, value in enumerate(values)}


def _by_name(values: list[Any]) -> dict[str, Any] | None:
    """Return the items of a list by name; None if an item has no name, or two have the same name.

    Messages, which have a `role`, are not compared by name either.
    """
    found: dict[str, Any] = {}
    for value in values:
        name = value.get("name") if is_mapping(value) else None
        if not isinstance(name, str) or name in found or "role" in value:
            return None
        found[name] = value
    return found


def distance(recorded: Any, asked: Any) -> float:
    """Return the sum of the differences of two values.

    Each difference of two texts counts at most 1, any other the size of both values.
    """
    return sum(_weight(found) for found in differences(recorded, asked))


def _weight(found: Difference) -> float:
    if isinstance(found.recorded, str) and isinstance(found.asked, str):
        one, other = found.recorded[:COMPARED], found.asked[:COMPARED]
        return 1.0 - 0.9 * SequenceMatcher(None, one, other, autojunk=False).ratio()
    return float(_size(found.recorded) + _size(found.asked))


def _size(value: Any) -> int:
    if value is NOTHING:
        return 0
    if is_mapping(value):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if is_list(value) else 1


def listing(found: Iterable[Difference]) -> str:
    """Return the first differences as text, with the number of those left out."""
    every = list(found)
    more = f"; and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return "; ".join(map(str, every[:SHOWN])) + more


def _around(one: str, other: str) -> tuple[str, str]:
    """Return two texts around the place at which they begin to differ."""
    if len(one) <= LONGEST and len(other) <= LONGEST:
        return show(one), show(other)
    alike = next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None
    )
    differs = min(len(one), len(other)) if alike is None else alike
    begin = max(0, differs - 20)  # so many characters before it are shown
    return _cut(one, begin), _cut(other, begin)


def _cut(text: str, begin: int) -> str:
    part = text[begin : begin + LONGEST]
    return show(("…" if begin else "") + part + ("…" if begin + LONGEST < len(text) else ""))
