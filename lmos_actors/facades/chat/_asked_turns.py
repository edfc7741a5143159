"""Messages that a turn sends to other chat agents: under keys, so that they are asked once over its lives.

A turn that is resumed begins again, and sends them again. Each has a key, of the turn, of what is asked, and
how often that was asked before in this life. An agent that knows the key answers as it has before, or goes on
with the turn that it has begun for it, and joins it; see `ChatAgent.chat`.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2s
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from lmos_actors.actors import current_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._items import ChatPart

LONGEST_KEY: Final = 100
"""Characters of the key of a message."""

_Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY)]
Key: TypeAlias = Annotated[_Text | None, Meta(description="What tells the message if it comes again.")]


class TurnKeys:
    """The keys of the messages of a turn that is resumed: in each of its lives the same.

    `name` tells the turn from all others; `goes_on` returns whether it has not ended for its caller.
    """

    def __init__(self, name: str, goes_on: Callable[[], bool]) -> None:
        self.goes_on = goes_on
        self._name = name
        self._sent: Counter[bytes] = Counter()

    def key_for(self, message: list[Any]) -> str:
        """Return the key of a message that the turn sends now; an input stream is no part of it."""
        plain = [each for each in message if not hasattr(each, "__aiter__")]
        digest = blake2s(msgspec.json.encode(plain)).digest()
        self._sent[digest] += 1
        named = f"{self._name}\n{self._sent[digest]}\n".encode("utf-8", "surrogatepass")
        return blake2s(named + digest, digest_size=16).hexdigest()


def kept_key(key: str, text: str, parts: Sequence[ChatPart]) -> str:
    """Return the key of a message as it is kept: another message under the same key has another."""
    plain = msgspec.json.encode((key, text, parts))
    return blake2s(plain, digest_size=16).hexdigest()


def keyed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a message with a key, which comes last, if a turn sends it and gives none."""
    *message, key = given
    agent = getattr(current_run(), "agent", None) if key is None else None
    keys = getattr(agent, "asks", None)
    return (*message, keys.key_for(message)) if isinstance(keys, TurnKeys) else given
