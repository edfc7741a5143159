"""The peers of one node: a connection per address and credentials, whatever number of refs use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
from trio.lowlevel import enable_ki_protection

from lmos_actors.protocol import lmos
from lmos_actors.transport import connect, endpoint_of

from ._peer import Habits, Headers, Peer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import Runtime
    from lmos_actors.transport import Connection, ConnectionOptions, Network


class StartSoon(Protocol):
    """Starts a task of the stage of a node that outlives its agents."""

    def __call__(self, async_fn: Callable[..., Awaitable[object]], /, *args: Any, name: str) -> None: ...


class Peers:
    """All addresses that a node is connected to, or tries to be.

    `start_soon` starts the task of each connection, in a stage that ends after the agents: what is cancelled
    then ends with the close code 1001, and everything unanswered fails. `on_failure` is told of mistakes of
    ours that ended one connection.
    """

    def __init__(
        self,
        network: Network,
        rt: Runtime,
        start_soon: StartSoon,
        *,
        session: lmos.SessionOptions | None = None,
        connection: ConnectionOptions | None = None,
        tls: ssl.SSLContext | None = None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        options = lmos.SessionOptions() if session is None else session
        # what waits to be sent is among what the session knows: so of each one-way message it is told whether
        # it was sent when the connection ends
        most = max(1, min(options.max_waiting, options.max_open - 1))
        self.network = network
        self.rt = rt
        self.session = attrs.evolve(options, max_waiting=most)
        self.connection = connection
        self.tls = tls
        self.failed = on_failure
        self._start_soon = start_soon
        self._peers: dict[tuple[str, Headers, Habits], Peer] = {}
        self._names: dict[str, bytes] = {}

    def peer(self, url: str, headers: Headers = (), habits: Habits = "auto") -> Peer:
        """Give the peer at that address, connected or not. Raises ConfigError for no URL of that kind."""
        key = (endpoint_of(url).url, headers, habits)
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = Peer(self, key[0], headers, habits)
            self._start_soon(self._run, key, found, name=f"peer {found.place}")
        return found

    @enable_ki_protection
    async def _run(self, key: tuple[str, Headers, Habits], peer: Peer) -> None:
        try:
            await peer.run()
        finally:
            if self._peers.get(key) is peer:
                del self._peers[key]

    def hold(self, peer: Peer) -> None:
        """Somebody uses this peer from now on."""
        peer.users += 1

    def let_go(self, peer: Peer) -> None:
        """Somebody uses it no more; with the last one its connection ends."""
        peer.users -= 1
        if peer.users == 0:
            self._peers = {key: each for key, each in self._peers.items() if each is not peer}
            peer.scope.cancel("nobody uses this connection")

    async def connect(self, url: str, headers: Headers) -> Connection:
        """Connect to an address, telling it who we are (`LMOS-Peer`), so that repeats are known as such."""
        place = endpoint_of(url)
        authority = f"{place.secure} {place.authority}"
        name = self._names.get(authority)
        if name is None:
            name = self._names[authority] = self.rt.entropy.new_id().replace("-", "").encode()
        own = ((b"LMOS-Peer", name), *headers)
        return await connect(
            self.network, url, headers=own, tls=self.tls if place.secure else None, options=self.connection
        )

    def statistics(self) -> dict[str, int]:
        """Count: addresses, those connected now, requests without an answer."""
        peers = self._peers.values()
        return {
            "peers": len(peers),
            "connected": sum(peer.session is not None for peer in peers),
            "open": sum(peer.open_requests for peer in peers),
        }
