"""One of everything that LMOS has: what `lmos-actors conform` tries our own server with.

`lmos-actors serve agents/conformance.py:Conformance agents/conformance.py:ConformanceB` serves the same two things,
by the same names, as `lmos-actors conform --serve` does with the scripted server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import trio
from msgspec import Meta, Struct

from lmos_actors import ActionFailed, Agent, Event, Property, Unit, action, event, every, prop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANY = 64
"""How many runs of an action that takes time one agent may have at once."""


class Settings(Struct, frozen=True):
    """An object to be set as a whole."""

    mode: Literal["a", "b", "c"]
    ratio: Annotated[float, Meta(ge=0, le=1)]


class Text(Struct, frozen=True):
    """What `echo` gives back."""

    text: str


class Waited(Struct, frozen=True):
    """How long `wait` has waited, in seconds."""

    waited: float


class Rang(Struct, frozen=True):
    """What `ring` was invoked with, and how many times it was by now."""

    note: str
    number: Annotated[int, Meta(ge=1)]
