"""The judge of clients of any protocol, which serves until they have left and returns their card.

A protocol contributes its options (a subclass of `ClientJudgingOptions`), which have the cases and make the
server that judges the traffic.

No message makes a client stop, so its departure is inferred: with `once` the run ends when no connection has
been open for a while. The time is longer if a challenge requires a client to reconnect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs
import trio

from lmos_actors.conformance.card import KitOptions

from ._log import ClientNotes

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.card import Card
    from lmos_actors.transport import Endpoint, Network

    from ._cases import ClientCases
    from ._visits import Visits


class ClientsHost(Protocol):
    """A server for the clients that are judged, on a network."""

    visits: Visits

    async def run(self, network: Network, endpoint: Endpoint, *, task_status: trio.TaskStatus[str]) -> Any:
        """Serve, and report the address once the server listens. Raises ConfigError."""
        ...

    def place(self, base: str) -> str:
        """Return the URL for clients, from the server's address."""
        ...

    def facts(self, base: str) -> dict[str, str]:
        """Return facts for the card, from the server's address: `spoken`, and perhaps `title` and `thing`."""
        ...


@attrs.frozen(kw_only=True)
class ClientJudgingOptions(KitOptions, ABC):
    """The options with which all kinds of clients are judged.

    With `once` the run is over when all clients have left and none is expected to reconnect. Raises
    ConfigError for a level that does not apply to clients.
    """

    role = "client"
    cases: ClassVar[ClientCases]

    once: bool = False

    @abstractmethod
    def host(self, notes: ClientNotes) -> ClientsHost:
        """Return a server that judges its clients."""


async def judge_clients(
    network: Network,
    endpoint: Endpoint,
    options: ClientJudgingOptions,
    *,
    stop: trio.Event | None = None,
    announce: Callable[[str], object] | None = None,
) -> Card:
    """Serve with the given options, judge the clients that connect, and return their card.

    With `ClientOptions` it serves the scripted thing with its challenges; with `RelayClientOptions` it is a
    hub of AgentRelay. It ends when `stop` is set, or with `once` when the clients have left. `announce` is
    called with the URL of the description, or of the hub, once it is served. Raises ConfigError if the
    address cannot be used.
    """
    notes = ClientNotes(options.level, options.cases)
    host = options.host(notes)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        base = await nursery.start(host.run, network, endpoint)
        if announce is not None:
            announce(host.place(base))
        for event in (stop, host.visits.left if options.once else None):
            if event is not None:
                nursery.start_soon(_end_with, event, nursery.cancel_scope)
    subject = ", ".join(host.visits.agents) or "clients"
    return options.card(subject, notes.results(), began=began, **host.facts(base))


async def _end_with(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
