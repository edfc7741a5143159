"""The peers of one node: one connection per address and credentials, however many refs use it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import TOTAL, Budget
from lmos_actors.protocol import lmos
from lmos_actors.transport import ConnectionOptions, connect, endpoint_of

from ..exposure._outward_network import OutwardNetwork
from ..http._options import HttpOptions
from ..lmos._peer import Habits, Headers, Peer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable

    from lmos_actors._core import SecretBytes
    from lmos_actors.actors import Runtime
    from lmos_actors.security import Credentials
    from lmos_actors.transport import Connection, Network

    from ..http_client._pool import WebPool
    from ..lmos._peer_requests import RemotePeer


def headers_with(credentials: Credentials | None, url: str, given: Headers = ()) -> Headers:
    """Return the headers of one request to a URL: the given ones, and the present credentials for the URL.

    A given header replaces one of the same name. May block briefly, to read a file. Raises ConfigError if a
    secret cannot be read.
    """
    if credentials is None:
        return given
    names = [name.lower() for name, _ in given]
    own = credentials.headers_for(url, trio.current_time())
    return (*given, *((name, value) for name, value in own if name not in names))


class StartSoon(Protocol):
    """A function that starts a task in the stage of a node that outlives its agents."""

    def __call__(self, async_fn: Callable[..., Awaitable[object]], /, *args: Any, name: str) -> None: ...


class Peers:
    """All addresses that a node is connected to, or tries to connect to.

    `start_soon` starts the task of each connection, in a stage that ends after the agents: a connection that
    is cancelled then closes with the code 1001, and its unanswered requests fail. `credentials` are presented
    at each connect, to the addresses they are for. `on_failure` receives exceptions of this package's own
    code that ended one connection.
    """

    def __init__(
        self,
        network: Network,
        rt: Runtime,
        start_soon: StartSoon,
        *,
        session: lmos.SessionOptions | None = None,
        connection: ConnectionOptions | None = None,
        http: HttpOptions | None = None,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        on_failure: Callable[[BaseException], None],
        budget: Budget | None = None,
    ) -> None:
        self.budget = Budget(TOTAL) if budget is None else budget
        options = lmos.SessionOptions() if session is None else session
        # A message that waits to be sent also counts as open in the session. So when the connection ends, the
        # session can tell for each one-way message whether it was sent.
        most = max(1, min(options.max_waiting, options.max_open - 1))
        self.network = OutwardNetwork(network)
        self.rt = rt
        self.session = attrs.evolve(options, max_waiting=most)
        self._connection = ConnectionOptions() if connection is None else connection
        self.reconnect_seconds = self._connection.reconnect_seconds
        self._http = HttpOptions() if http is None else http
        self.tls = tls
        self.credentials = credentials
        self.failed = on_failure
        self._start_soon = start_soon
        self._peers: dict[tuple[str, Headers, Habits], RemotePeer] = {}
        self._users: Counter[RemotePeer] = Counter()  # the number of refs and searches that use a peer
        self._names: dict[str, bytes] = {}
        self._web: WebPool | None = None

    def peer(self, url: str, headers: Headers = (), habits: Habits = "auto") -> Peer:
        """Return the peer at a WebSocket address, connected or not. Raises ConfigError for any other URL."""
        key = (endpoint_of(url).url, headers, habits)
        peer = self._kept(key, lambda: Peer(self, *key))
        assert isinstance(peer, Peer)
        return peer

    def kept(self, place: str, headers: Headers, make: Callable[[], RemotePeer]) -> RemotePeer:
        """Return the peer with a name that is no WebSocket address; `make` makes it at the first use."""
        return self._kept((place, headers, "auto"), make)

    def _kept(self, key: tuple[str, Headers, Habits], make: Callable[[], RemotePeer]) -> RemotePeer:
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = make()
            self._start_soon(self._run, key, found, name=f"peer {found.place}")
        return found

    def web_pool(self) -> WebPool:
        """Return the connections over HTTP of the node, made at the first use."""
        if self._web is None:
            from ..http_client._pool import WebPool  # a node that connects by addresses alone needs no HTTP

            self._web = WebPool(
                lambda: self.network,
                self._start_soon,
                tls=self.tls,
                headers_for=self.headers_for,
                options=self._http,
            )
        return self._web

    @enable_ki_protection
    async def _run(self, key: tuple[str, Headers, Habits], peer: RemotePeer) -> None:
        self.rt.outboxes[peer] = None
        try:
            await peer.run()
        finally:
            del self.rt.outboxes[peer]
            if self._peers.get(key) is peer:
                del self._peers[key]

    def hold(self, peer: RemotePeer) -> None:
        """Count one more user of a peer."""
        self._users[peer] += 1

    def release_peer(self, peer: RemotePeer) -> None:
        """Remove one user of a peer from the count; when none is left, stop the peer."""
        self._users[peer] -= 1
        if not self._users[peer]:
            del self._users[peer]
            self._peers = {key: each for key, each in self._peers.items() if each is not peer}
            peer.stop()

    async def connect(self, url: str, headers: Headers) -> Connection:
        """Connect to an address with this node's peer id (`LMOS-Peer`), so that servers recognise repeats."""
        place = endpoint_of(url)
        authority = f"{place.secure} {place.authority}"
        name = self._names.get(authority)
        if name is None:
            name = self._names[authority] = self.rt.entropy.new_id().replace("-", "").encode()
        own = ((b"LMOS-Peer", name), *self.headers_for(url, headers))
        return await connect(
            self.network,
            url,
            headers=own,
            tls=self.tls if place.secure else None,
            options=self._connection,
            budget=self.budget,
        )

    def be_unknown(self) -> None:
        """Forget the peer ids, so that servers see a new client in the next connections."""
        self._names.clear()

    def headers_for(self, url: str, given: Headers = ()) -> Headers:
        """Return the headers of one request to a URL; see `headers_with`.

        Call it anew for every request and every redirect: secrets change, and credentials belong to one
        address only.
        """
        return headers_with(self.credentials, url, given)

    def heeds(self, url: str) -> bool:
        """Return whether the node has credentials for an address."""
        return bool(self.headers_for(url)) or self.key_for(url) is not None

    def key_for(self, url: str) -> SecretBytes | None:
        """Return the API key for a URL; None if there is none. Raises ConfigError if it cannot be read."""
        known = self.credentials
        return None if known is None else known.key_for(url, trio.current_time())

    @property
    def known(self) -> Iterable[RemotePeer]:
        """All addresses that the node is connected to, or tries to connect to."""
        return self._peers.values()

    def statistics(self) -> dict[str, int]:
        """Return counts of addresses, of connected addresses, and of unanswered requests."""
        peers = self._peers.values()
        return {
            "peers": len(peers),
            "connected": sum(peer.is_connected for peer in peers),
            "open": sum(peer.open_requests for peer in peers),
        }
