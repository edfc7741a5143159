"""An AgentRelay at a node: `/arc` for agents, `/register`, `/stats` and `/health` beside it.

An agent shows its token as `Authorization: Bearer` or as `?token=`; the header wins. The upgrade is refused
with 401 where it is none, and with 429 where an address guesses.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.bindings import presented_in
from lmos_actors.errors import StoreFailed
from lmos_actors.protocol.relay import STEP
from lmos_actors.security import Buckets, Guard, Rate, Refusal, Security
from lmos_actors.supervision import ChildSpec
from lmos_actors.transport import Accept, ConnectionOptions, Refuse

from ._hub import RESTART, HubPlace, RelayHub

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.routing import BaseRoute

    from lmos_actors.protocol.relay import Hub, HubConnection
    from lmos_actors.transport import Connection, Upgrade

    from ._options import RelayOptions

PATH: Final = "/arc"
SUBPROTOCOL: Final = "arc"
NAME: Final = "relay"
"""The name of the hub in the tree, right below the root."""

STORE_SECONDS: Final = 1.0
"""Seconds that a new connection waits for the store at most."""

GUESSES: Final = Rate(per_second=0.5, burst=20)
"""How often an address may show a token that is none."""

_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


class RelayServer:
    """Serves the hub of a node; see the module docstring."""

    def __init__(self, options: RelayOptions) -> None:
        self.options = options
        self.place = HubPlace(options)
        self._guard: Guard | None = None
        self._served: dict[RelayConnection, None] = {}
        self._guesses = Buckets(GUESSES)
        self._draining = False
        self._done = trio.Event()
        self._done.set()
        self._connection = ConnectionOptions(
            max_message_bytes=options.max_message,
            heartbeat_seconds=options.pong_seconds,
            write_seconds=options.write_seconds,
            needs_pongs=True,
        )

    def spec(self) -> ChildSpec[RelayHub]:
        """Return the hub as a child of the node's root."""
        return ChildSpec(NAME, partial(RelayHub, place=self.place))

    def listen(
        self, security: Security, hosts: Sequence[str], *, wall: Callable[[], float], local: bool
    ) -> None:
        """Take note of where the node listens, and of the pages that may use it.

        `local`: no other machine reaches it, so agents may register themselves unless the options say else.
        """
        self.place.registration_is_open = self.options.registration == "open" or (
            self.options.registration is None and local
        )
        # hosts and origins are checked as for the node; credentials are the tokens of the hub
        self._guard = Guard(Security(hosts=security.hosts, origins=security.origins), wall=wall, hosts=hosts)

    def routes(self) -> list[BaseRoute]:
        """Return the HTTP routes of the hub."""
        from ._routes import relay_routes  # imports Starlette

        return relay_routes(self.place)

    # ---- which connections

    def route(self, others: Callable[[Upgrade], Accept | Refuse], upgrade: Upgrade) -> Accept | Refuse:
        """Decide about an upgrade; `others` decide about other addresses."""
        return self._accepted(upgrade) if upgrade.path == PATH else others(upgrade)

    def _accepted(self, upgrade: Upgrade) -> Accept | Refuse:
        now, address = trio.current_time(), _address(upgrade.peer)
        if self._guard is not None:
            refusal = self._guard.admit(presented_in(upgrade), now)
            if isinstance(refusal, Refusal):
                return Refuse(refusal.status, refusal.reason, refusal.headers)
        wait = self._guesses.wait(address, now)
        if wait:
            return Refuse(429, "too many wrong tokens", ((b"retry-after", b"%d" % (wait + 1)),))
        hub = self.place.hub
        if hub is None or self._draining:
            return Refuse(503, "the relay is not there")
        token = _token_of(upgrade)
        if token is None:
            return Refuse(401, "Missing token", _CHALLENGE)
        agent = hub.identities.find(token)
        if agent is None:
            self._guesses.take(address, now)
            return Refuse(401, "Invalid or unregistered token", _CHALLENGE)
        if len(self._served) >= self.options.connections:
            return Refuse(503, "there are too many connections")
        chosen = SUBPROTOCOL if SUBPROTOCOL in upgrade.offered else None
        return Accept(chosen, partial(self._serve, hub, agent), options=self._connection)

    @enable_ki_protection
    async def _serve(self, hub: RelayHub, agent: str, connection: Connection) -> None:
        served = RelayConnection(connection, hub.hub, agent)
        self._served[served] = None
        self.place.connections += 1
        self._done = trio.Event() if self._done.is_set() else self._done
        try:
            # the time of the last use is not worth a connection, nor a wait for a store that hangs
            with trio.move_on_after(STORE_SECONDS), suppress(StoreFailed):
                await hub.identities.use(agent)
            await connection.run(served)
        finally:
            served.leave()
            del self._served[served]
            self.place.connections -= 1
            if not self._served:
                self._done.set()

    # ---- draining

    def on_drain(self) -> None:
        """Take no more connections, and close those there are: agents come back elsewhere."""
        self._draining = True
        if self.place.hub is not None:
            self.place.hub.hub.end_all(*RESTART)

    async def wait_done(self) -> None:
        """Wait until the connections are closed."""
        await self._done.wait()


class RelayConnection:
    """Handler of one connection of an agent."""

    def __init__(self, connection: Connection, hub: Hub, agent: str) -> None:
        self._connection = connection
        self._hub = hub
        self._charged = 0
        self._is_open = False
        self._in: HubConnection = hub.connect(agent, trio.current_time(), self._wake)
        self._is_open = True

    def _wake(self) -> None:
        if self._is_open:  # a welcome waits before the hub has returned the connection
            self._charge()
            self._connection.wake()

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

    def leave(self) -> None:
        """Take note that the connection has ended."""
        self._hub.disconnect(self._in, trio.current_time())


def _token_of(upgrade: Upgrade) -> str | None:
    """Return the token that is shown: of the header, else of the query."""
    for name, value in upgrade.headers:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    found = parse_qs(upgrade.query).get("token")
    return found[0] if found else None


def _address(peer: str) -> str:
    """Return the address of a peer without its port."""
    return peer.rpartition(":")[0] or peer
