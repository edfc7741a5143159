"""The judging of servers: `conform`, and how a server of LMOS is found and addressed."""

from __future__ import annotations

from contextlib import aclosing
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from .card import LMOS_LEVELS, Card, Level, Result
from .cases import all_cases
from .session import (
    AS_IN_EXAMPLES,
    AS_KOTLIN,
    AS_WRITTEN,
    Case,
    Dialect,
    JudgingOptions,
    LmosServer,
    NoAnswer,
    chosen_of,
    judge,
)
from .target import Hints, find_target
from .wire import ConnectionGone, Refused, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.transport import Network

_WAYS: Final = (
    AS_WRITTEN,
    AS_IN_EXAMPLES,
    Dialect("Id", "property", "subscribeevent", offered=True),
    AS_KOTLIN,
    Dialect(offered=False),
)


@attrs.frozen(kw_only=True)
class ConformOptions(JudgingOptions):
    """The options with which a server of LMOS is judged.

    `patience`: how long an answer may take, in seconds. `idle`: how long a connection is left alone, to see
    whether it stays open. `cases`: patterns of ids, like file patterns; if there are none, all cases are run.
    `allow_unsafe`: unsafe actions are invoked too, and properties are set to other values. `thing`: the id of
    the thing, if a socket has several. `description`: the place of the thing's description, if the URL does
    not lead there. `headers` returns the headers of requests to a URL.

    Raises ConfigError for a pattern that matches no case (it names the nearest id), for times that are not
    above 0, and for a level of relays.
    """

    levels = LMOS_LEVELS
    judged = "servers of LMOS"

    hints: Hints = attrs.field(factory=Hints)
    thing: str | None = None
    description: str | None = None

    @classmethod
    def known_cases(cls) -> tuple[Case[Any], ...]:
        """Return all cases for servers of LMOS, in the order in which they are run."""
        return all_cases()

    async def find(self, network: Network, url: str) -> LmosServer:
        """Find the server, and the dialect that it understands. Raises Unreachable and ConfigError."""
        # a description may take longer than an answer: ten seconds at least
        access = attrs.evolve(self.access(network), patience=max(self.patience, 10.0))
        target = await find_target(url, access, thing=self.thing, description=self.description)
        if target.thing.description is not None:
            self.hints.check(properties=target.properties, actions=target.actions, events=target.events)
        server = LmosServer(
            network=network,
            options=self,
            title=str(target.thing.data.get("title", "")),
            thing=target.thing.id,
            target=target,
            hints=self.hints,
        )
        server.dialect = await _find_dialect(server)
        return server


def chosen(patterns: Sequence[str], kind: type[JudgingOptions] = ConformOptions) -> tuple[Case[Any], ...]:
    """Return the cases that match the patterns, or all cases if there are no patterns.

    `kind` is the class of options that knows the cases. Raises ConfigError for a pattern that matches no
    case.
    """
    return chosen_of(kind.known_cases(), patterns)


async def conform(
    network: Network,
    url: str,
    options: JudgingOptions | None = None,
    *,
    on_result: Callable[[Result], None] | None = None,
) -> Card:
    """Judge a server, and return its card. Every step waits for the server.

    The options decide what is judged. None, or `ConformOptions`: the LMOS server that a description names, or
    that is at a `ws://` or `wss://` URL. `ChatOptions`: the facade of an agent, at a WebSocket or HTTP URL.
    `RelayConformOptions`: a hub of AgentRelay, at the URL of its WebSocket.

    `on_result` is called with each result as soon as there is one. If the server cannot be reached any
    longer, nothing more is run; if it refuses every handshake, only cases that need no open WebSocket are
    run.

    Raises Unreachable if nothing is there, if no description can be found, or if another kind of server opens
    no WebSocket or registers no agent; ConfigError for an invalid URL. Whatever the server does after that is
    in the card.
    """
    return await judge(network, url, ConformOptions() if options is None else options, on_result)


async def _find_dialect(server: LmosServer) -> Dialect:
    """Return the first dialect in which a read is understood, or the first in which it is refused.

    Returns the specification's dialect if there is none.
    """
    if server.options.level is Level.KOTLIN_WOT:
        return AS_KOTLIN
    if server.target.socket is None:
        return AS_WRITTEN
    reached = False
    refused: list[Dialect] = []
    for dialect in _WAYS:
        async with aclosing(server.context(Random(server.options.seed))) as context:
            try:
                session = await context.session(dialect)
                reached = True
                name = next(iter(server.target.readable()), None) or server.target.unknown_property()
                received = await session.ask("readProperty", name=name)
                if received.kind == "propertyReading" or received.status == "404":
                    return dialect
                refused += [dialect] * (received.kind == "error")
            except Unreachable:
                if not reached and dialect is _WAYS[-1]:
                    raise
            except (Refused, ConnectionGone, NoAnswer):
                reached = True
    return refused[0] if refused else AS_WRITTEN
