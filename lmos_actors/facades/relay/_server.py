"""An AgentRelay at a node: `/arc` for agents, `/register`, `/stats` and `/health` beside it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.bindings import ServedConnections, presented_in
from lmos_actors.errors import StoreFailed
from lmos_actors.protocol.relay import STEP
from lmos_actors.security import Refusal
from lmos_actors.supervision import ChildSpec
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ._admission import NAME, HubAdmission, agent_of
from ._hub import RESTART, HubPlace, RelayHub

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.routing import BaseRoute

    from lmos_actors.persistence import NewIdentity, Refused
    from lmos_actors.protocol.relay import HubConnection
    from lmos_actors.security import Guard
    from lmos_actors.transport import Connection, Upgrade

    from ._options import RelayOptions

PATH: Final = "/arc"
SUBPROTOCOL: Final = "arc"
STORE_SECONDS: Final = 1.0
"""Seconds that a new connection waits for the store at most."""

HTTP_PATHS: Final = ("/register", "/revoke", "/stats", "/health")
"""The HTTP paths of a hub, which its own guard judges."""

NO_TOKEN: Final = "a token of this relay is needed"


class RelayServer:
    """Serves the hub of a node; see the module docstring."""

    def __init__(self, options: RelayOptions) -> None:
        self.options = options
        self.place = HubPlace(options)
        self._admission: HubAdmission | None = None
        self._served = ServedConnections[RelayConnection](options.connections)
        self._connection = ConnectionOptions(
            max_message_bytes=options.max_message,
            heartbeat_seconds=options.pong_seconds,
            write_seconds=options.write_seconds,
            needs_pongs=True,
        )

    def spec(self) -> ChildSpec[RelayHub]:
        """Return the hub as a child of the node's root."""
        return ChildSpec(NAME, partial(RelayHub, place=self.place))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the HTTP routes, which the guard of the hub judges."""
        return HTTP_PATHS

    async def identify(self, id: str) -> NewIdentity | Refused:
        """Register an agent, and return its identity, or the reason for a refusal. Raise StoreFailed.

        For a program that has the hub; raises RuntimeError while it is not there.
        """
        if self.place.hub is None:
            raise RuntimeError("the relay is not there")
        return await self.place.hub.identities.register(id)

    def listen(self, guard: Callable[[HubPlace], Guard], *, local: bool) -> list[BaseRoute]:
        """Take note of where the node listens; return the HTTP routes of the hub. See `HubAdmission`."""
        from ._routes import relay_routes  # imports Starlette

        self._admission = HubAdmission(self.place, guard, local=local)
        return relay_routes(self.place, self._admission)

    # ---- which connections

    def route(self, others: Callable[[Upgrade], Accept | Refuse], upgrade: Upgrade) -> Accept | Refuse:
        """Decide about an upgrade; `others` decide about other addresses."""
        return self._accepted(upgrade) if upgrade.path == PATH else others(upgrade)

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
                with trio.move_on_after(STORE_SECONDS), suppress(StoreFailed):
                    await hub.identities.use(agent)
                await connection.run(served)
            finally:
                served.leave()
                if served.is_last:
                    hub.identities.leave(agent)

    # ---- draining

    def on_drain(self) -> None:
        """Take no more connections, and close those there are: agents come back elsewhere."""
        self._served.draining = True
        if self.place.hub is not None:
            self.place.hub.hub.end_all(*RESTART)

    async def wait_done(self) -> None:
        """Wait until the connections are closed."""
        await self._served.wait_done()


class RelayConnection:
    """Handler of one connection of an agent."""

    def __init__(self, connection: Connection, hub: RelayHub, agent: str) -> None:
        self._connection = connection
        self._hub = hub.hub
        self._delivery = hub.delivery
        self._charged = 0
        self._is_open = False
        self._in: HubConnection = self._hub.connect(agent, trio.current_time(), self._wake)
        self._is_open = True

    def _wake(self) -> None:
        if self._is_open:  # a welcome waits before the hub has returned the connection
            self._charge()
            self._delivery.note(self._connection)

    def text(self, text: str) -> None:
        """Take a text frame."""
        self._in.receive(text, trio.current_time())

    def binary(self, data: bytes) -> None:
        """Take a binary frame."""
        self._in.receive(data, trio.current_time())

    def frames(self, room: int) -> list[bytes]:
        """Return the frames that are to be sent; where nothing is left, and the end is due, close."""
        found = self._in.frames(room)
        self._charge()
        if self._in.closing is not None and not found:
            self._connection.close(*self._in.closing)
        return found

    def is_behind(self) -> bool:
        """Return False: what waits for an agent is bounded, whatever it sends."""
        return False

    def _charge(self) -> None:
        charged = self._in.outbox.waiting_bytes // STEP * STEP
        more, self._charged = charged - self._charged, charged
        if more > 0:
            self._connection.account.charge(more)
        elif more:
            self._connection.account.release(-more)

    @property
    def is_last(self) -> bool:
        """Whether the agent has no newer connection."""
        return self._in.known.connection is None

    def leave(self) -> None:
        """Take note that the connection has ended."""
        self._hub.disconnect(self._in, trio.current_time())
