"""Messages of a turn to other chat agents, with keys, so that a resumed turn asks nothing twice.

A resumed turn starts from the beginning, and sends its messages again. Each message has a key, made from the
turn, the message, and how often the turn has sent that message since it last began. If an agent has seen the
key before, it returns its earlier answer, or resumes and joins the turn that it has begun for this message;
see `ChatAgent.chat`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2s
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import msgspec
from msgspec import Meta

from lmos_actors.actors import acts_again, current_run, place_of_caller
from lmos_actors.errors import NotAllowed, RepeatedCallWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from lmos_actors.actors import Slot
    from lmos_actors.persistence import OpenTurn

    from ._items import ChatPart

MOST_NAMED: Final = 1_000
"""Maximum actions that are named in one node: an action of a stranger may have any name."""

LONGEST_KEY: Final = 100
"""Characters of the key of a message."""

_Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY)]
Key: TypeAlias = Annotated[_Text | None, Meta(description="What tells the message if it comes again.")]


_MAY_REPEAT: Final = ContextVar("lmos_actors.may_repeat", default=False)


@contextmanager
def may_repeat() -> Generator[None]:
    """Suppress the warning about repeated requests in a block whose author declares them harmless."""
    token = _MAY_REPEAT.set(True)
    try:
        yield
    finally:
        _MAY_REPEAT.reset(token)


class TurnKeys:
    """The keys of a resumable turn's messages and requests, which are the same if the turn is resumed.

    `name` distinguishes the turn from all others; `goes_on` returns whether a turn that ends now is resumed.
    """

    def __init__(self, slot: Slot, turn: OpenTurn, name: str, goes_on: Callable[[], bool]) -> None:
        self.goes_on = goes_on
        self._slot = slot
        self._turn = turn
        self._name = name
        self._sent: Counter[bytes] = Counter()

    def check(self, link: Any, key: str) -> None:
        """Warn about the first request that would act again if the turn were resumed.

        See `RepeatedCallWarning`. With `strict_resume`, raise NotAllowed instead.
        """
        is_seen_to = self._turn.steps > 0 or self._turn.kept.is_too_large  # by its author, or it is given up
        if is_seen_to or _MAY_REPEAT.get() or not acts_again(link, key):
            return
        rt, cls = self._slot.rt, type(cast("object", self._slot.agent))
        text = (
            f"{cls.__name__}.reply asks {link.path!r} for {key!r}, and asks again if its turn is resumed "
            f"after the end of its process: have the turn record what it does (turn.record), or ask under a "
            f"key if the agent is durable (ref.retrying(key=...)); say @action(idempotent=True) if a repeat "
            f"has no further effect, or resumes = False in {cls.__name__} to end its turns with the process"
        )
        if rt.strict_resume:
            raise NotAllowed(text)
        if (cls, key) not in rt.repeated_calls and len(rt.repeated_calls) < MOST_NAMED:
            rt.repeated_calls |= {(cls, key)}
            warnings.warn_explicit(text, RepeatedCallWarning, *place_of_caller())

    def key_for(self, message: list[Any]) -> str:
        """Return the key of the message that the turn sends now; input streams do not affect the key."""
        plain = [each for each in message if not hasattr(each, "__aiter__")]
        digest = blake2s(msgspec.json.encode(plain)).digest()
        self._sent[digest] += 1
        named = f"{self._name}\n{self._sent[digest]}\n".encode("utf-8", "surrogatepass")
        return blake2s(named + digest, digest_size=16).hexdigest()


def kept_key(key: str, text: str, parts: Sequence[ChatPart]) -> str:
    """Return the key under which a message is kept, which differs for two messages sent with one key."""
    plain = msgspec.json.encode((key, text, parts))
    return blake2s(plain, digest_size=16).hexdigest()


def keyed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a message's arguments; in a resumable turn, fill in the last one, the key, if it is None."""
    *message, key = given
    agent = getattr(current_run(), "agent", None) if key is None else None
    keys = getattr(agent, "asks", None)
    return (*message, keys.key_for(message)) if isinstance(keys, TurnKeys) else given
