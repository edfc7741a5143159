"""All cases for facades, in the order in which they are run, and the options of a run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import CHAT_LEVELS, Level, check_level
from lmos_actors.conformance.session import cases_of, chosen_of
from lmos_actors.conformance.target import no_headers
from lmos_actors.errors import ConfigError

from . import _frames, _media, _turns
from ._context import ChatHints

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from lmos_actors.conformance.session import Case
    from lmos_actors.conformance.target import HeadersFor

    from ._context import ChatContext

_CHAPTERS: Final = (
    _turns.OPENING,
    _turns.TURNS,
    _turns.SESSIONS,
    _frames.BAD,
    _media.TOOLS,
    _media.UPLOADS,
    _media.CALLS,
    _frames.BYTES,
)


@cache
def all_chat_cases() -> tuple[Case[ChatContext], ...]:
    """Return all cases for facades, in the order in which they are run. Their ids never change."""
    return cases_of(_CHAPTERS)


def chosen_chat(patterns: Sequence[str]) -> tuple[Case[ChatContext], ...]:
    """Return the cases for facades that patterns name, all without patterns.

    Raises ConfigError for one that names none.
    """
    return chosen_of(all_chat_cases(), patterns)


@attrs.frozen(kw_only=True)
class ChatOptions:
    """The options with which a facade is judged; as those of `ConformOptions`.

    `hints` is what to say to the agent. Raises ConfigError for a pattern that no case has, and for the level
    of kotlin-wot, which has no facade.
    """

    level: Level = Level.LENIENT
    patience: float = 2.0
    idle: float = 2.0
    seed: int = 0
    allow_unsafe: bool = False
    hints: ChatHints = attrs.field(factory=ChatHints)
    cases: tuple[str, ...] = ()
    headers: HeadersFor = no_headers
    tls: ssl.SSLContext | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("patience", "idle"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)!r}")
        check_level(self.level, CHAT_LEVELS, "facades")
        chosen_chat(self.cases)
