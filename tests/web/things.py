"""An agent with values of every kind, answered without delay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lmos_actors import Agent, Event, Property, action, event, prop


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somewhere."""

    town: Annotated[str, Meta(min_length=1, max_length=20)]
    height: float = 0.0
    tags: tuple[str, ...] = ()


class Desk(Agent, rename="camel"):
    """Takes and gives values of every kind."""

    level: Property[Annotated[int, Meta(ge=0, le=100)]] = prop(default=3)
    place: Property[Place | None] = prop(default=None)
    serial_number: Property[str] = prop(default="s-1", read_only=True)
    secret: Property[str] = prop(default="", write_only=True)
    moved: Event[Place] = event()

    @action(idempotent=True)
    def move(self, place: Place, on: date | None = None) -> Place:
        """Move to a place."""
        self.place = place
        self.moved.emit(place)
        return place

    @action(safe=True)
    def names(self, prefix: str = "", most: Annotated[int, Meta(ge=1, le=9)] = 3) -> list[str]:
        """List names."""
        return [f"{prefix[:9]}{number}" for number in range(most)]

    @action
    def count(self, /, values: dict[str, float]) -> float:
        """Add numbers up."""
        return sum(min(max(each, -1e9), 1e9) for each in values.values())

    @action
    def whole(self, value: Any, /) -> bool:
        """Say whether there is anything in a value."""
        return bool(value)

    @action
    async def steps(self, most: Annotated[int, Meta(ge=0, le=5)] = 2) -> AsyncIterator[int]:
        """Give numbers, one by one."""
        for number in range(most):
            yield number

    @action
    def reset(self) -> None:
        """Be as at first."""
        self.level, self.place = 3, None


class Till(Agent, durable=True):
    """Keeps answers, so a request for an action may have a key."""

    sold: int = 0

    @action
    def sell(self) -> int:  # without an input, as another one is refused under the same key
        """Sell something."""
        self.sold += 1
        return self.sold

    @action(snapshot_safe=True)
    async def steps(self) -> AsyncIterator[int]:
        """Give a number."""
        yield self.sold
