"""The LMOS server of a node: which WebSockets are opened, and what all connections share.

It is the place of everything that outlives one connection: the open requests (a run may go on after its
connection has ended), the memories of answers, the seats that far requests take in mailboxes, and the
drain, in which every connection is closed once nothing is open on it.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import Budget
from lmos_actors.actors import Seats
from lmos_actors.errors import ActionCancelled
from lmos_actors.protocol.lmos import IncomingRequest, InvokeAction, SessionOptions
from lmos_actors.security import Refusal
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ..exposure._access_middleware import asks_nothing, presented_in, principal_of
from ..exposure._description_security import CRASHED, discreet, sees
from ..exposure._exposure import class_at, name_in_path, public_name
from ..exposure._meter import left
from ..exposure._values import SharedValues
from ._server_connection import ServerConnection, lmos_offered
from ._server_listeners import exited
from ._server_memories import AnswerMemories
from ._server_tells import WaitingTells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lmos_actors.actors import Down, Far, Operation, Runtime
    from lmos_actors.errors import AgentDied
    from lmos_actors.security import Admission, Guard, Verb
    from lmos_actors.transport import Connection, Upgrade

    from ..exposure._exposure import Exposure

E = TypeVar("E", bound=Exception)

SUBPROTOCOL: Final = "lmosprotocol"
PLACES: Final = ("/", "/ws")
"""Paths where LMOS is also spoken to clients that offer no subprotocol; agents' addresses are others."""

RELAY: Final = "/arc"
"""Where a relay is served, if one is, whatever subprotocol is offered."""

EXTENSIONS_HEADER: Final = b"LMOS-Extensions"
EXITED_OFFER: Final = "exited"
PATIENCE: Final = 60.0
"""Seconds for which a run goes on that its peer may ask for again."""

KNOWN: Final = 1024
"""Actions of which is kept whether they answer later."""

NAMES_COMPARED: Final = 100
"""Names that an unknown one is compared with: it takes time, and any peer may cause it."""


@attrs.frozen
class ServerStatistics:
    """How many connections there are, and how many of their requests are open; `draining` says whether new
    ones are refused."""

    connections: int
    open: int
    draining: bool


class DrainingService(Protocol):
    """Another server of the node's agents, such as HTTP, that drains with this one."""

    def on_drain(self) -> None:
        """The node drains, or finishes: see `LmosServer`."""
        ...

    async def wait_done(self) -> None:
        """Wait until nothing that was asked is open."""
        ...


class LmosServer:
    """Serves LMOS connections: routes upgrades to itself, and carries requests to the agents exposed.

    `guard` says who is let in, and what they may do; without one everybody may do everything.
    `on_failure` is given what goes wrong here that is nobody's request to answer for; it must not raise.
    `budget` is what peers may hold in memory, over all connections and runs.
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
        self.rt = rt
        self.sharing = SharedValues()
        self.budget = Budget(ConnectionOptions().total_bytes) if budget is None else budget
        self.exposure = exposure
        self.options = SessionOptions() if options is None else options
        self.generation = rt.entropy.new_id()
        self.draining = False
        self.finishing = False
        self.open: dict[IncomingRequest, Far] = {}
        """Unanswered requests of all connections; a run may outlive its connection."""
        self.waiting_tells = WaitingTells(self.budget)
        """The one-way messages that wait, over all connections."""
        offers = ", ".join((*self.options.offers, EXITED_OFFER)).encode()
        self._headers = ((EXTENSIONS_HEADER, offers),)
        self._later: dict[Operation, bool] = {}
        self._guard = guard
        self._asks_nothing = guard is None or asks_nothing(guard)
        self.tells_crashes = guard is None or guard.security.tells_crashes
        self._on_failure = on_failure
        self._memories = AnswerMemories()
        self.seats = Seats()
        self._served: dict[ServerConnection, None] = {}
        self._services: list[DrainingService] = []
        self._empty = trio.Event()
        self._empty.set()

    # ---- connections

    def accept(self, upgrade: Upgrade) -> Accept | Refuse:
        """Return whether a WebSocket is opened at this path; 404 where something else is served.

        The guard comes first: principal, host name and origin page are checked before the path.
        """
        admission = self._admitted(upgrade)
        if isinstance(admission, Refusal):
            return Refuse(admission.status, admission.reason, admission.headers)
        offered = lmos_offered(upgrade.offered)
        place = upgrade.path in PLACES or self._is_agent(upgrade.path, admission)
        if upgrade.path == RELAY or not (offered or place):
            return Refuse(404, f"nothing is served over WebSocket at {upgrade.path[:200]}")
        if self.draining:
            return Refuse(503, "the node is shutting down")
        serve = self.serve if admission is None else partial(self.serve, admission=admission)
        return Accept(SUBPROTOCOL if offered else None, serve, self._headers)

    def _admitted(self, upgrade: Upgrade) -> Admission | Refusal | None:
        """Ask the guard; None where all may do everything, so that no request need be looked at."""
        if self._guard is None:
            return None
        admission = self._guard.admit(presented_in(upgrade), trio.current_time())
        return None if self._asks_nothing and not isinstance(admission, Refusal) else admission

    def _is_agent(self, path: str, admission: Admission | None) -> bool:
        """Return whether it is the address of an agent that the peer may see."""
        name = name_in_path(path)
        link = None if name is None else self.exposure.find(name)
        return link is not None and self._sees(admission, link.path)

    def _sees(self, admission: Admission | None, path: str) -> bool:
        if admission is None or (self._guard is not None and self._guard.security.public_descriptions):
            return True
        return sees(admission)(public_name(path))

    def thing_at(self, target: str, admission: Admission | None) -> str | None:
        """Return the thing that messages are for which name none; see `Exposure.thing_at`.

        A thing that the peer may not see is named like one that does not exist.
        """
        name = name_in_path(target.partition("?")[0])
        link = None if name is None else self.exposure.at(name)
        seen = link is None or self._sees(admission, link.path)
        return self.exposure.thing_at(target) if seen else name

    @enable_ki_protection
    async def serve(self, connection: Connection, admission: Admission | None = None) -> None:
        """Serve one connection until it has ended. Raises only what `connection.run` does."""
        with self._memories.of(connection.headers, principal_of(admission)) as memory:
            served = ServerConnection(self, connection, memory, admission)
            self._served[served] = None
            self._empty = self._empty if not self._empty.is_set() else trio.Event()
            try:
                await connection.run(served)
            finally:
                del self._served[served]
                served.end()
                if not self._served:
                    self._empty.set()

    def drain(self) -> None:
        """Take no new requests; close each connection with 1012 once nothing is open on it.

        1012 after the last answer tells a client that what is unanswered was not begun. Listeners still hear
        how agents stop: their connections stay until what they listen to is gone, or `finish`.
        """
        self.draining = True
        self._check_ends()

    def finish(self) -> None:
        """Drain, without waiting for connections that only listen."""
        self.finishing = True
        self.drain()

    def _check_ends(self) -> None:
        for served in tuple(self._served):
            served.check_end()
        for service in self._services:
            service.on_drain()

    def join(self, service: DrainingService) -> None:
        """Add a service that drains with this one, and is waited for."""
        self._services.append(service)

    async def wait_done(self) -> None:
        """Wait until nothing is open that others have been asked; what connections ask, they wait for."""
        for service in self._services:
            await service.wait_done()

    def shown(self, error: E) -> E | AgentDied:
        """Return an error as it goes over the network: crashes without their text, unless that is allowed."""
        return error if self.tells_crashes else discreet(error)

    def exited(self, down: Down) -> dict[str, Any]:
        """Return the end of an incarnation as plain data, with as much of the reason as peers may know."""
        data = exited(down, self.generation)
        if not self.tells_crashes and down.reason.error is not None:
            data["reason"]["text"] = CRASHED
        return data

    def settled(self) -> None:
        """Check other connections for their end: a shared answer has just gone out over several."""
        if self.draining:
            self._check_ends()

    async def wait_closed(self) -> None:
        """Wait until no connection is left."""
        await self._empty.wait()

    def statistics(self) -> ServerStatistics:
        """Count what there is now."""
        unanswered = len(self.open) + self.waiting_tells.messages
        return ServerStatistics(len(self._served), unanswered, self.draining)

    @property
    def not_let_in(self) -> Mapping[int, int]:
        """The number of clients that the guard refused, over HTTP too, by status."""
        return {} if self._guard is None else self._guard.refusals

    # ---- for its connections

    def withdraw(self, asked: IncomingRequest) -> None:
        """Take a request out of its agent's mailbox, or cancel its run: its caller is gone."""
        far = self.open.pop(asked, None)
        if far is not None:
            far.slot.withdraw(far)
            far.leave()
            left(far)

    def credited(self, run: object) -> None:
        """The peer has room for more items of a run."""
        far = self.open.get(run) if isinstance(run, IncomingRequest) else None
        if far is not None:
            far.go_on()

    def goes_on(self, asked: IncomingRequest) -> bool:
        """Return whether a request is carried out though its connection has ended.

        An action may say so (`on_disconnect="finish"`). One that the peer may send again goes on for as long
        as its answer would be remembered.
        """
        far = self.open.get(asked)
        if far is None or not isinstance(asked.message, InvokeAction):
            return False
        if far.op.on_disconnect == "finish":
            return True
        if asked.message.attempt is None or not asked.remembered:
            return False
        self.rt.timers.call_at(trio.current_time() + PATIENCE, lambda: self._give_up(asked))
        return True

    def _give_up(self, asked: IncomingRequest) -> None:
        """End a run whose peer has not come back."""
        far = self.open.get(asked)
        if far is not None and asked.connection.over and not asked.also:
            self.withdraw(asked)
            far.asker.failed(far, ActionCancelled("the consumer left"))

    def answers_later(self, far: Far) -> bool:
        """Return whether an action is declared `synchronous=False`: it is reported as pending at once."""
        later = self._later.get(far.op)
        if later is None:
            cls = class_at(far.slot)
            handle = None if cls is None else cls.__contract__.actions.get(far.op.name)
            later = handle is not None and handle.options.synchronous is False
            if len(self._later) >= KNOWN:  # classes come and go
                self._later.clear()
            self._later[far.op] = later
        return later

    def known_names(self, admission: Admission | None = None, verb: Verb = "read") -> Iterator[str]:
        """Return names to compare an unknown one with: those that the peer may use for this verb."""
        names = islice(self.exposure.names(), NAMES_COMPARED)
        return names if admission is None else (name for name in names if admission.allows(name, verb))

    def failed(self, error: BaseException) -> None:
        """Hand on what went wrong here."""
        self._on_failure(error)
