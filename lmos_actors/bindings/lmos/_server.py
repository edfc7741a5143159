"""The LMOS server of a node: the WebSockets that are accepted, their connections, and the drain.

In a drain every connection is closed once nothing is open on it. The state that connections share while they
are open is in `_server_context.py`; the memories of answers are here, as they belong to peers and outlive
connections.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import Budget
from lmos_actors.errors import nearest
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.security import Refusal
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ..exposure._access_middleware import asks_nothing, presented_in, principal_of
from ..exposure._description_security import sees
from ..exposure._exposure import AGENTS, name_in_path, public_name
from ..exposure._served_connections import LEAVING, ServedConnections
from ._server_answers import lmos_offered
from ._server_connection import ServerConnection
from ._server_context import NAMES_COMPARED, ServerContext
from ._server_memories import AnswerMemories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors.actors import Runtime
    from lmos_actors.security import Admission, Guard
    from lmos_actors.transport import Connection, Upgrade

    from ..exposure._exposure import Exposure

SUBPROTOCOL: Final = "lmosprotocol"
PLACES: Final = ("/", "/ws")
"""Paths where clients get LMOS without offering a subprotocol, besides the addresses of agents."""

RELAY: Final = "/arc"
"""The path of a relay, if one is served, whatever subprotocol is offered."""

EXTENSIONS_HEADER: Final = b"LMOS-Extensions"
EXITED_OFFER: Final = "exited"


@attrs.frozen
class ServerStatistics:
    """Counts of connections and of their open requests; while `draining`, new ones are refused."""

    connections: int
    open: int
    draining: bool


class DrainingService(Protocol):
    """Another server of the node's agents, such as HTTP, that drains with this one."""

    def on_drain(self) -> None:
        """Begin the drain, or finish it without waiting for listeners; see `LmosServer`."""
        ...

    async def wait_done(self) -> None:
        """Wait until no request is open."""
        ...


class LmosServer:
    """The server of LMOS connections, which accepts WebSockets and carries requests to exposed agents.

    The `guard` decides which peers are let in, and what they may do; without one every peer may do
    everything. `on_failure` receives errors that belong to no request; it must not raise. `budget` is the
    memory that peers may hold, over all connections and runs.
    """

    def __init__(
        self,
        rt: Runtime,
        exposure: Exposure,
        *,
        options: SessionOptions | None = None,
        guard: Guard | None = None,
        on_failure: Callable[[BaseException], object],
        budget: Budget | None = None,
    ) -> None:
        options = SessionOptions() if options is None else options
        self.context = ServerContext(
            rt,
            exposure,
            options,
            Budget(ConnectionOptions().total_bytes) if budget is None else budget,
            sends_crash_details=guard is None or guard.security.sends_crash_details,
            on_failure=on_failure,
            on_settled=self._check_ends,
        )
        offers = ", ".join((*options.offers, EXITED_OFFER)).encode()
        self._headers = ((EXTENSIONS_HEADER, offers),)
        self._exposure = exposure
        self._guard = guard
        self._asks_nothing = guard is None or asks_nothing(guard)
        self._memories = AnswerMemories(options)
        self._served = ServedConnections[ServerConnection]()
        self._services: list[DrainingService] = []

    # ---- connections

    def accept(self, upgrade: Upgrade) -> Accept | Refuse:
        """Accept or refuse a WebSocket; a path at which none is served is refused with 404.

        The guard comes first: principal, host name and origin page are checked before the path.
        """
        admission = self._admitted(upgrade)
        if isinstance(admission, Refusal):
            return Refuse(admission.status, admission.reason, admission.headers)
        offered = lmos_offered(upgrade.offered)
        name = name_in_path(upgrade.path)
        link = None if name is None else self._exposure.find(name)
        is_agent = link is not None and self._sees(admission, link.path)
        place = is_agent or upgrade.path in PLACES
        if upgrade.path == RELAY or not (offered or place):
            return Refuse(404, self._nothing_at(upgrade.path, admission))
        if self.context.leaving or self.context.draining:
            return LEAVING
        serve = self.serve if admission is None else partial(self.serve, admission=admission)
        return Accept(SUBPROTOCOL if offered else None, serve, self._headers)

    def _admitted(self, upgrade: Upgrade) -> Admission | Refusal | None:
        """Return the guard's decision; None if all peers may do everything, so that no request is checked."""
        if self._guard is None:
            return None
        admission = self._guard.admit(presented_in(upgrade), trio.current_time())
        return None if self._asks_nothing and not isinstance(admission, Refusal) else admission

    def _nothing_at(self, path: str, admission: Admission | None) -> str:
        """Return the text of a 404, with a hint at a similar name that the peer may see."""
        name = name_in_path(path)
        names = islice(self._exposure.names(), NAMES_COMPARED)
        near = name and nearest(name, (each for each in names if self._sees(admission, each)))
        hint = f", did you mean {AGENTS}{quote(near, safe='')}?" if near else ""
        return f"nothing is served over WebSocket at {path[:200]}{hint}"

    def _sees(self, admission: Admission | None, path: str) -> bool:
        if admission is None or (self._guard is not None and self._guard.security.public_descriptions):
            return True
        return sees(admission)(public_name(path))

    def _thing_at(self, target: str, admission: Admission | None) -> str | None:
        """Return the id of the thing that a message without an id means; see `Exposure.thing_at`.

        A thing that the peer may not see is treated like one that does not exist.
        """
        name = name_in_path(target.partition("?")[0])
        link = None if name is None else self._exposure.at(name)
        seen = link is None or self._sees(admission, link.path)
        return self._exposure.thing_at(target) if seen else name

    @enable_ki_protection
    async def serve(self, connection: Connection, admission: Admission | None = None) -> None:
        """Serve one connection until it has ended. Raises only the errors of `connection.run`."""
        with self._memories.of(connection.headers, principal_of(admission)) as memory:
            thing = self._thing_at(connection.target, admission)
            served = ServerConnection(self.context, connection, memory, thing, admission)
            with self._served.served(served):
                try:
                    await connection.run(served)
                finally:
                    served.end()

    async def leave(self, seconds: float) -> None:
        """Refuse new connections, and drain the open ones one after another over `seconds`.

        This way their peers do not all connect elsewhere in one instant. Call `drain` afterwards.
        """
        self.context.leaving = True
        standing = tuple(self._served)
        for served in standing:
            served.draining = True
            served.check_end()
            await trio.sleep(seconds / len(standing))

    def drain(self) -> None:
        """Take no new requests; close each connection with 1012 once nothing is open on it.

        The code 1012 after the last answer shows a client that unanswered requests were not begun. Listeners
        still receive the ends of agents: their connections stay until those agents are gone, or until
        `finish`.
        """
        self.context.draining = True
        for served in self._served:
            served.draining = True
        self._check_ends()

    def finish(self) -> None:
        """Drain, without waiting for connections that only listen."""
        self.context.finishing = True
        self.drain()

    def _check_ends(self) -> None:
        for served in self._served:
            served.check_end()
        for service in self._services:
            service.on_drain()

    def join(self, service: DrainingService) -> None:
        """Add a service that drains with this one; `wait_done` also waits for it."""
        self._services.append(service)

    async def wait_done(self) -> None:
        """Wait until the joined services have no open request; connections wait for their own requests."""
        for service in self._services:
            await service.wait_done()

    async def wait_closed(self) -> None:
        """Wait until no connection is left."""
        await self._served.wait_done()

    @property
    def served(self) -> Iterable[ServerConnection]:
        """The open connections."""
        return self._served

    def statistics(self) -> ServerStatistics:
        """Return the present counts."""
        unanswered = len(self.context.open) + self.context.waiting_tells.messages
        return ServerStatistics(len(self._served), unanswered, self.context.draining)

    @property
    def not_let_in(self) -> Mapping[int, int]:
        """The number of clients that the guard refused, over HTTP too, by status."""
        return {} if self._guard is None else self._guard.refusals
