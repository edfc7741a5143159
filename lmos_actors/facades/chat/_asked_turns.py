"""Messages that a turn sends to other chat agents: under keys, so that they are asked once over its lives.

A turn that is resumed begins again, and sends them again. Each has a key, of the turn, of what is asked, and
how often that was asked before in this life. An agent that knows the key answers as it has before, or goes on
with the turn that it has begun for it, and joins it; see `ChatAgent.chat`.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from lmos_actors.actors import current_run

if TYPE_CHECKING:
    from ._turn import ChatTurn

LONGEST_KEY: Final = 100
"""Characters of the key of a message."""

_Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY)]
Key: TypeAlias = Annotated[_Text | None, Meta(description="What tells the message if it comes again.")]


def turn_of_run(run: Any) -> ChatTurn | None:
    """Return the turn that is resumed if its process ends, and whose code runs in a run; None without one."""
    turn: Any = getattr(getattr(run, "agent", None), "turn", None)
    return turn if getattr(turn, "is_kept", False) else None


def keyed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a message with a key, which comes last, if a turn sends it and gives none."""
    *asked, key = given
    turn = turn_of_run(current_run()) if key is None else None
    return given if turn is None else (*asked, turn.key_for(_digest(asked)))


def _digest(asked: list[Any]) -> bytes:
    plain = [each for each in asked if not hasattr(each, "__aiter__")]  # an input stream is none of it
    return blake2s(msgspec.json.encode(plain)).digest()
