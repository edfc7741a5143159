"""All cases for facades, in the order in which they are run, and the search for a facade."""

from __future__ import annotations

from contextlib import aclosing, suppress
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.conformance.card import CHAT_LEVELS
from lmos_actors.conformance.session import JudgingOptions, cases_of
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from . import _frames, _media, _turns
from ._context import ChatHints, Facade, facade_url

if TYPE_CHECKING:
    from lmos_actors.conformance.session import Case
    from lmos_actors.transport import Network

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


@attrs.frozen(kw_only=True)
class ChatOptions(JudgingOptions):
    """The options with which a facade is judged; see also `ConformOptions`.

    `hints` are the messages to the agent. Raises ConfigError for a pattern that matches no case, and for the
    level of kotlin-wot, which has no facade.
    """

    levels = CHAT_LEVELS
    judged = "facades"

    hints: ChatHints = attrs.field(factory=ChatHints)

    @classmethod
    def known_cases(cls) -> tuple[Case[Any], ...]:
        """Return all cases for facades, in the order in which they are run."""
        return all_chat_cases()

    async def find(self, network: Network, url: str) -> Facade:
        """Open a connection, and find out whether a session is announced. Raises Unreachable, ConfigError."""
        facade = Facade(network=network, options=self, url=facade_url(url), hints=self.hints)
        async with aclosing(facade.context(Random(self.seed))) as context:
            try:
                talk = await facade.connect(context)
                with suppress(ConnectionGone):  # which the cases judge
                    facade.announces = await talk.socket.next_message(self.patience) is not None
            except Refused as refused:
                raise Unreachable(facade.url, str(refused)) from None
        return facade
