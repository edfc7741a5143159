"""All cases for relays, in the order in which they are run, and the options of a run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import RELAY_LEVELS, Level, check_level
from lmos_actors.conformance.session import cases_of, chosen_of
from lmos_actors.conformance.target import no_headers
from lmos_actors.errors import ConfigError

from . import _bad, _connections, _doors, _extensions, _messages

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from lmos_actors.conformance.session import Case, Chapter
    from lmos_actors.conformance.target import HeadersFor

    from ._context import RelayContext

_CHAPTERS: Final[tuple[Chapter[RelayContext], ...]] = (
    _doors.OPENING,
    _doors.REGISTRATION,
    _messages.SENDING,
    _messages.SENDERS,
    _messages.FOLLOWING,
    _messages.COMMANDS,
    _bad.BAD,
    _connections.BYTES,
    _connections.CONNECTIONS,
    _doors.PAGES,
    _extensions.EXTENSIONS,
    _bad.RATES,
    _bad.ENDING,
)


@cache
def all_relay_cases() -> tuple[Case[RelayContext], ...]:
    """Return all cases for relays, in the order in which they are run. Their ids never change."""
    return cases_of(_CHAPTERS)


def chosen_relay(patterns: Sequence[str]) -> tuple[Case[RelayContext], ...]:
    """Return the cases for relays that patterns name, all without patterns.

    Raises ConfigError for one that names none.
    """
    return chosen_of(all_relay_cases(), patterns)


@attrs.frozen(kw_only=True)
class RelayConformOptions:
    """The options with which a relay is judged; as those of `ConformOptions`.

    `agents` are those that the kit may be, where it may register none: the token of each, by its id. Two are
    needed, seven for all cases.
    `register_url` is where agents are registered, if not at `/register` beside the relay; `invitations` are
    those with which they are: each once, and the last one for all others. With `allow_unsafe` messages are
    sent, too, that have ended relays, and more of them than a relay allows.
    Raises ConfigError for a pattern that no case has, and for the level of kotlin-wot, which is no relay.
    """

    level: Level = Level.LENIENT
    patience: float = 2.0
    idle: float = 2.0
    seed: int = 0
    allow_unsafe: bool = False
    agents: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    cases: tuple[str, ...] = ()
    register_url: str | None = None
    invitations: tuple[str, ...] = attrs.field(default=(), repr=False)
    headers: HeadersFor = no_headers
    tls: ssl.SSLContext | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("patience", "idle"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)!r}")
        check_level(self.level, RELAY_LEVELS, "relays")
        chosen_relay(self.cases)
