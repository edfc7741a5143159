"""All cases for relays, in the order in which they are run, and the search for a relay."""

from __future__ import annotations

from contextlib import aclosing
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.conformance.card import RELAY_LEVELS
from lmos_actors.conformance.session import Failed, JudgingOptions, NoAnswer, cases_of
from lmos_actors.conformance.target import NotRun
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from . import _bad, _connections, _doors, _extensions, _messages
from ._context import Identity, Relay, relay_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.conformance.session import Case, Chapter
    from lmos_actors.transport import Network

    from ._context import RelayAgent, RelayContext

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


@attrs.frozen(kw_only=True)
class RelayConformOptions(JudgingOptions):
    """The options with which a relay is judged; see also `ConformOptions`.

    `agents` are identities for the kit, if it may not register any: the token of each, by its id. Two are
    needed, seven for all cases. If none are given, the kit registers agents with ids that begin with "kit-".

    `register_url` is where agents are registered, if not at `/register` beside the relay. `invitations` are
    used for registrations: each once, and the last one for all further agents. With `allow_unsafe` the kit
    also sends messages that have crashed relays, and more messages than a relay allows.

    Raises ConfigError for a pattern that matches no case, and for the level of kotlin-wot, which is no relay.
    """

    levels = RELAY_LEVELS
    judged = "relays"

    agents: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    register_url: str | None = None
    invitations: tuple[str, ...] = attrs.field(default=(), repr=False)

    @classmethod
    def known_cases(cls) -> tuple[Case[Any], ...]:
        """Return all cases for relays, in the order in which they are run."""
        return all_relay_cases()

    async def find(self, network: Network, url: str) -> Relay:
        """Connect two agents, and find out whether the relay sends welcomes and delivers direct messages.

        Raises Unreachable, ConfigError.
        """
        known = [Identity(id, token) for id, token in self.agents.items()]
        relay = Relay(
            network=network,
            options=self,
            url=url,
            register_url=self.register_url or relay_place(url, "/register"),
            invitations=self.invitations,
            known=tuple(known),
            spare=list(known),
        )
        async with aclosing(relay.context(Random(f"{self.seed}:"))) as context:
            try:
                one, other = await relay.connect(context), await context.agent("b", welcomed=False)
                relay.welcomes = await _comes_first(one) and await _comes_first(other)
                relay.direct = await _arrives(context.word(), one, other)
            except (NoAnswer, ConnectionGone, Refused) as why:
                raise Unreachable(url, str(why)) from None
            except NotRun as why:
                raise Unreachable(relay.register_url, str(why)) from None
        return relay


async def _comes_first(agent: RelayAgent) -> bool:
    """Return whether a new connection receives any frame. Raises ConnectionGone."""
    try:
        return await agent.next() is not None
    except Failed:  # it is no frame of the protocol, which cases judge
        return True


async def _arrives(word: str, one: RelayAgent, other: RelayAgent) -> bool:
    """Return whether a direct message from one agent to the other arrives. Raises ConnectionGone."""
    await one.say(word, other.id)
    try:
        await other.message(word)
    except (NoAnswer, Failed):
        return False
    return True
