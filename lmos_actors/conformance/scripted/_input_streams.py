"""Input streams of the scripted server: their numbers, their credit, and their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ._messages import is_object
from ._thing import Json, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW: Final = (16, 262_144)
"""Items and bytes of a stream that may be on their way."""

HELD_BACK: Final = 16
"""The most items of an answer that may wait for credit while the input still gets some."""

_MOST: Final = 16
_HIGHEST: Final = 2**32 - 1
_JSON: Final = "application/json"


@attrs.define(eq=False)
class Input:
    """An input stream of a run.

    `credit`: the remaining credit in items and bytes; `used`: what was used and has not been granted again.
    `window`: the items and bytes that may be in transit, all of which count as used at first. `next`: the
    number of the next item. `is_over`: whether its end has arrived. `is_stopped`: no more items are wanted,
    and further ones are ignored.
    """

    name: str
    number: int
    is_binary: bool
    schema: Json
    window: tuple[int, int] = WINDOW
    credit: list[int] = attrs.field(factory=lambda: [0, 0])
    used: list[int] = attrs.field(default=attrs.Factory(lambda self: list(self.window), takes_self=True))
    next: int = 0
    is_over: bool = False
    is_stopped: bool = False

    @property
    def path(self) -> str:
        """The place of the stream in the input."""
        return f"$.{self.name}"

    def grant(self) -> tuple[int, int] | None:
        """Return the credit to grant, or None before half of the window is used."""
        if 2 * self.used[0] < self.window[0] and 2 * self.used[1] < self.window[1]:
            return None
        items, size = self.used
        self.used = [0, 0]
        self.credit = [self.credit[0] + items, self.credit[1] + size]
        return items, size

    def check(self, sequence: Any, size: int) -> None:
        """Count an item. Raises Problem if there is no credit for it, or if it is out of sequence."""
        if self.is_over:
            raise invalid("an item after the end of its stream", self.path)
        if min(self.credit) <= 0:
            raise invalid("an item without credit", self.path)
        if sequence != self.next:
            raise invalid(f"item {self.next} is next", self.path)
        self.next = (self.next + 1) % 2**32
        self.credit = [self.credit[0] - 1, self.credit[1] - size]
        self.used = [self.used[0] + 1, self.used[1] + size]

    def check_end(self, sequence: Any) -> None:
        """Raise Problem if the stream has already ended, or if its number of items is wrong."""
        if self.is_over:
            raise invalid("this stream had ended", self.path)
        if sequence != self.next:
            raise invalid(f"the stream had {self.next} items", self.path)


def highest_in(offers: Any) -> int:
    """Return the highest stream number that a request offers, even if the offer is invalid."""
    numbers = [each.get("stream") for each in offers.values()] if is_object(offers) else []
    return max((each for each in numbers if type(each) is int and each <= _HIGHEST), default=0)


def inputs_of(offers: Any, described: Mapping[str, Json], used: int) -> dict[int, Input]:
    """Return the input streams of a request by number; numbers must be above `used`. Raises Problem."""
    if offers is None:
        offers = {}
    if not is_object(offers):
        raise invalid("streams are an object", "$.streams")
    if offers and not described:
        raise invalid("this action takes no streams", "$.streams")
    if len(offers) > _MOST:
        raise invalid(f"there are {_MOST} streams at most", "$.streams")
    for name in offers:
        if name not in described:
            raise invalid(f"the action takes no stream {name!r}", f"$.streams.{name}")
    missing = [name for name in described if name not in offers]
    if missing:
        raise invalid(f"the stream {missing[0]!r} is missing", "$.streams")
    found: dict[int, Input] = {}
    for name, offer in sorted(offers.items(), key=_number_in):
        number = _number_in((name, offer))
        if number % 2 == 0 or not used < number <= _HIGHEST:
            raise invalid(f"an odd number above {used} is needed", f"$.streams.{name}.stream")
        used = number
        is_binary = offer.get("contentType", _JSON) != _JSON
        if is_binary != (described[name]["contentType"] != _JSON):
            raise invalid("the stream has another content type", f"$.streams.{name}.contentType")
        found[number] = Input(name, number, is_binary, described[name].get("schema", {}))
    return found


def _number_in(offer: tuple[str, Any]) -> int:
    """Return the number of an offered stream, or 0 if it has none."""
    number = offer[1].get("stream") if is_object(offer[1]) else None
    return number if type(number) is int else 0
