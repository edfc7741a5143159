"""An AgentRelay on a node: `/arc` for agents, beside it `/register`, `/revoke`, `/stats` and `/health`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.bindings import ServedConnections, presented_in
from lmos_actors.errors import StoreFailed
from lmos_actors.node import ROWS, NodeService
from lmos_actors.security import Refusal
from lmos_actors.supervision import ChildSpec
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ._admission import NAME, HubAdmission, agent_of
from ._delivery import AT_ONCE
from ._hub import RESTART, HubPlace, RelayHub
from ._options import RelayOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute

    from lmos_actors.node import ServiceHome, View
    from lmos_actors.persistence import NewIdentity, Refused
    from lmos_actors.protocol.relay import HubConnection
    from lmos_actors.transport import Connection, Upgrade

PATH: Final = "/arc"
SUBPROTOCOL: Final = "arc"
HTTP_PATHS: Final = ("/register", "/revoke", "/stats", "/health")
"""The HTTP paths of a hub, which its own guard judges."""

NO_TOKEN: Final = "a token of this relay is needed"


class RelayServer(NodeService):
    """A service that serves the hub of a node; see the module docstring."""

    name = "relay"

    def __init__(self, options: RelayOptions | None = None) -> None:
        self.options = options = RelayOptions() if options is None else options
        self.place = HubPlace(options)
        self._admission: HubAdmission | None = None
        self._served = ServedConnections[RelayConnection](options.connections)
        self._connection = ConnectionOptions(
            max_message_bytes=options.max_message,
            heartbeat_seconds=options.pong_seconds,
            write_seconds=options.write_seconds,
            needs_pongs=True,
        )

    def children(self) -> tuple[ChildSpec[RelayHub]]:
        """Return the hub as a child of the node's root."""
        return (ChildSpec(NAME, partial(RelayHub, place=self.place)),)

    @property
    def apart(self) -> tuple[str, ...]:
        """The paths of the HTTP routes that the hub's guard protects."""
        return HTTP_PATHS

    async def identify(self, id: str) -> NewIdentity | Refused:
        """Register an agent, and return its identity, or the reason for a refusal. Raise StoreFailed.

        This is for the program that hosts the hub. Raises RuntimeError while the hub is not running.
        """
        if self.place.hub is None:
            raise RuntimeError("the relay is not there")
        return await self.place.hub.identities.register(id)

    def open(self, home: ServiceHome) -> None:
        """Create the hub's admission for the listening node. Raises ConfigError; see `HubAdmission`."""
        self._admission = HubAdmission(self.place, home.guard_with, local=not home.rt.is_guarded)

    def routes(self) -> list[BaseRoute]:
        """Return the HTTP routes of the hub."""
        from ._routes import relay_routes  # imports Starlette

        assert self._admission is not None  # the node listens
        return relay_routes(self.place, self._admission)

    def views(self) -> dict[str, View]:
        """Return the agents on the relay, with the messages that wait for each."""
        return {"relay": self._view}

    def _view(self) -> dict[str, Any]:
        hub = self.place.hub
        if hub is None:
            return {"bridges": []}
        members = [
            {
                "agent": each.agent,
                "waiting_bytes": each.outbox.waiting_bytes,
                "dropped": each.outbox.dropped,
                **_quota(each.quota(trio.current_time())),
            }
            for each in hub.hub.connections[:ROWS]
        ]
        return {"bridges": [], "hub": {**attrs.asdict(hub.statistics()), "members": members}}

    # ---- which connections

    def accept(self, upgrade: Upgrade) -> Accept | Refuse | None:
        """Decide about an upgrade; return None for other addresses."""
        return self._accepted(upgrade) if upgrade.path == PATH else None

    def _accepted(self, upgrade: Upgrade) -> Accept | Refuse:
        hub = self.place.hub
        admission = self._admission
        if hub is None or admission is None or self._served.draining:
            return Refuse(503, "the relay is not there")
        found = admission.admit(presented_in(upgrade))
        if isinstance(found, Refusal):
            return Refuse(found.status, found.reason, found.headers)
        agent = agent_of(found)
        if agent is None:
            return Refuse(401, NO_TOKEN, admission.guard.challenges)
        full = self._served.refusal()
        if full is not None:
            return full
        chosen = SUBPROTOCOL if SUBPROTOCOL in upgrade.offered else None
        return Accept(chosen, partial(self._serve, hub, agent), options=self._connection)

    @enable_ki_protection
    async def _serve(self, hub: RelayHub, agent: str, connection: Connection) -> None:
        served = RelayConnection(connection, hub, agent)
        with self._served.served(served):
            try:
                # the time of the last use is not worth a connection, nor a wait for a store that hangs
                with trio.move_on_after(1.0), suppress(StoreFailed):
                    await hub.identities.use(agent)
                await connection.run(served)
            finally:
                served.leave()
                if served.is_last:
                    hub.identities.leave(agent)

    # ---- draining

    def on_drain(self) -> None:
        """Accept no more connections, and close the existing ones, so that agents connect elsewhere."""
        self._served.draining = True
        if self.place.hub is not None:
            self.place.hub.hub.end_all(*RESTART)

    async def wait_done(self) -> None:
        """Wait until the connections are closed."""
        await self._served.wait_done()


def _quota(left: Sequence[tuple[int, int, float]]) -> dict[str, Any]:
    """Return, for each rate, the frames that an agent may send at once, and its frames and seconds."""
    found = [{"frames": frames, "of_frames": most, "seconds": span} for frames, most, span in left]
    return {"quota": found} if found else {}


class RelayConnection:
    """The handler of one connection of an agent to the hub."""

    def __init__(self, connection: Connection, hub: RelayHub, agent: str) -> None:
        self._connection = connection
        self._hub = hub.hub
        self._delivery = hub.delivery
        # over TLS and in memory only its writer sends
        wake = partial(self._delivery.note, connection) if connection.is_direct else connection.wake
        charge = connection.account.charge
        self._in: HubConnection = self._hub.connect(agent, trio.current_time(), wake, charge)

    def text(self, text: str) -> None:
        """Handle a text frame from the agent."""
        self._take(text)

    def binary(self, data: bytes) -> None:
        """Handle a binary frame from the agent."""
        self._take(data)

    def _take(self, data: str | bytes) -> None:
        self._delivery.left = AT_ONCE if self._connection.is_quiet else 0
        try:
            self._in.receive(data, trio.current_time())
        finally:
            self._delivery.left = 0

    def frames(self, room: int) -> list[bytes]:
        """Return the frames to send; if there are none and the hub has ended the connection, close it."""
        found = self._in.frames(room)
        if not found and self._in.closing is not None:
            self._connection.close(*self._in.closing)
        return found

    def is_behind(self) -> bool:
        """Return False, as an agent's waiting messages are bounded, whatever it sends."""
        return False

    @property
    def is_last(self) -> bool:
        """Whether the agent has no newer connection."""
        return self._in.known.connection is None

    def leave(self) -> None:
        """Note that the connection has ended."""
        self._hub.disconnect(self._in, trio.current_time())
