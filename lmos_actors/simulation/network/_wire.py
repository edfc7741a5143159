"""A simulated network between agents of one node whose connections are real ones, over streams in memory.

As with a `SimulatedNetwork`, a node is a name, and a ref checks at each use which agent uses it. Here each
pair of nodes that communicate has its own WebSocket, with handshakes, frames, heartbeats and reconnects,
whose bytes take the time of the lines (`_streams.py`). All of them lead to the server of the one real node.

Odd but intended:

- The first connection of a pair is made when it is first used, in no time and whatever the state of the
  lines: it counts as already open, as in memory. Requests meanwhile are queued, and are sent in the same
  instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from lmos_actors.actors import LookupLink
from lmos_actors.bindings import Peer, RemoteLink, StreamTarget, TurnTell
from lmos_actors.errors import AgentUnavailable, ConfigError, ConnectFailed
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.supervision import class_at

from ._link import USER, NodeNetwork, Pair
from ._streams import HERE_ENDED, LineNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lmos_actors._core import Budget
    from lmos_actors.actors import ItemTarget, Runtime, TraceMembers, UnsentKind, UnsentMessage
    from lmos_actors.bindings import Headers, Peers, PendingRequest, RemoteThing, SentTell
    from lmos_actors.links import Links
    from lmos_actors.protocol.lmos import ConsumerSession
    from lmos_actors.transport import Connection, Ended, MemoryNetwork


class PeersOf(Protocol):
    """The connections of a node; see the node's `Connections`."""

    @property
    def peers(self) -> Peers: ...
    def peers_with(self, *, tls: None, credentials: None, network: Any, session: SessionOptions) -> Peers: ...


@attrs.frozen
class Place:
    """The real node: its network, the address of its sockets, and the ids of agents by path."""

    connections: PeersOf
    network: MemoryNetwork
    url: str
    id_of: Callable[[str], str]


class WireNetwork(NodeNetwork):
    """The connections between nodes, over lines; see the module docstring.

    `far_user`: messages that no agent sends go over lines too; otherwise they use a connection without lines.
    At most `most` pairs of nodes communicate.
    """

    def __init__(
        self,
        rt: Runtime,
        links: Links,
        label: Callable[[str], str],
        place: Place,
        *,
        far_user: bool = False,
        most: int = 4_096,
    ) -> None:
        super().__init__(rt, links, label)
        self._place = place
        self._far_user = far_user
        self._most = most
        self._peers: dict[tuple[str, str], NodePairPeer] = {}

    def toward(self, source: str, link: Any) -> RemoteLink:
        """Return the far link from a node to an agent or a pool. Raises AgentUnavailable, ConfigError."""
        cls = link.wanted.cls if isinstance(link, LookupLink) else None
        found = link.near() if isinstance(link, LookupLink) else link
        if cls is None and found is not None:
            cls = class_at(found)
        if cls is None:
            raise AgentUnavailable(link.path, "it has not started yet")
        return RemoteLink(self.thing(source, link.path), self._interface(cls))

    def thing(self, source: str, path: str) -> RemoteThing:
        """Return the thing by which a node reaches the agent at a path."""
        return self._peer(source, self._label(path)).thing(self._place.id_of(path))

    def _peer(self, source: str, target: str) -> Peer:
        place = self._place
        if source == USER and not self._far_user:
            return place.connections.peers.peer(place.url)
        found = self._peers.get((source, target))
        if found is None:
            found = self._peers[source, target] = self._made(source, target)
        return found

    def _made(self, source: str, target: str) -> NodePairPeer:
        if len(self._peers) >= self._most:
            raise ConfigError(f"no connection for one more pair of nodes: {self._most:,} are the most")
        place = self._place
        lines = LineNetwork(self._parts, place.network, source, target)
        peers = place.connections.peers_with(
            tls=None, credentials=None, network=lines, session=SessionOptions()
        )
        environment = PairEnvironment(peers, lines)
        made = NodePairPeer(environment, place.url, source, target)
        peers.kept(f"{source} > {target}", (), lambda: made)
        return made

    def _disconnect(self, selects: Callable[[str, str], bool], *, half_open: bool) -> int:
        found = [
            peer
            for (source, target), peer in self._peers.items()
            if selects(source, target) or selects(target, source)
        ]
        return sum(peer.lines.half_open() if half_open else peer.lines.reset() for peer in found)

    def _pairs(self) -> Iterable[tuple[tuple[str, str], Pair]]:
        return tuple(self._peers.items())

    def _look_at_lines(self) -> None:
        for peer in tuple(self._peers.values()):
            peer.lines.look_at_lines()


class PairEnvironment:
    """The parts of the node that the peer of a pair uses; see `PeerEnvironment`."""

    def __init__(self, peers: Peers, lines: LineNetwork) -> None:
        self._peers = peers
        self.lines = lines
        self.rt = peers.rt
        self.session = peers.session
        self.reconnect_seconds = peers.reconnect_seconds
        self.budget: Budget = peers.budget
        self.failed = peers.failed
        self.release_peer = peers.release_peer
        self.be_unknown = peers.be_unknown
        self._attempt = trio.CancelScope()

    def heeds(self, url: str) -> bool:
        """Return True: all nodes come from one file."""
        return True

    async def connect(self, url: str, headers: Headers) -> Connection:
        """Return a new connection over the lines. Raises ConnectFailed."""
        with trio.CancelScope() as self._attempt:
            connection = await self._peers.connect(url, headers)
            try:
                await trio.sleep(self.lines.opening)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await connection.aclose()
                raise
            self.lines.stands()
            return connection
        raise ConnectFailed(url, HERE_ENDED)

    def abandon(self) -> None:
        """End an attempt to connect, because this node ends."""
        self._attempt.cancel(HERE_ENDED)


class NodePairPeer(Peer):
    """The connection from one node to another. Requests wait until it is first made."""

    def __init__(self, node: PairEnvironment, url: str, source: str, target: str) -> None:
        super().__init__(node, url, (), place=target, chance=node.lines.chance)
        self.lines = node.lines
        self.environment = node
        self._early: dict[PendingRequest, None] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up; before the first connection it counts as up."""
        return self.connection is not None or self._is_to_stand

    @property
    def _is_to_stand(self) -> bool:
        """Whether the first connection is about to be made and will not be refused."""
        return not self.tried and not self.lines.is_refused

    def post(self, request: PendingRequest) -> None:
        """Send or queue a request; see `RemotePeer`."""
        if self._is_to_stand:
            self._early[request] = None
        else:
            super().post(request)

    def tell(self, sent: SentTell, name: str, payload: Any, trace: TraceMembers) -> bool:
        """Send a one-way message; return False if there is no room or no credit. Raises as `post` does."""
        if not self._is_to_stand:
            return super().tell(sent, name, payload, trace)
        self._early[TurnTell(sent.far, sent.op.verb, name, payload, None, trace, sent=sent)] = None
        return True

    def withdraw(self, request: PendingRequest) -> None:
        """Remove a request from the queue, or cancel its run, without waiting, because the caller is gone."""
        if self._early.pop(request, self) is not None:  # the values are None
            super().withdraw(request)

    def holds_up(self, far: RemoteThing) -> bool:
        """Return whether messages to a thing already wait for room or for credit."""
        return bool(self._early) or super().holds_up(far)

    @property
    def open_requests(self) -> int:
        """The number of requests that wait for an answer or are queued."""
        return len(self._early) + super().open_requests

    def unsent(self) -> Iterator[tuple[UnsentKind, UnsentMessage]]:
        """Return the queued requests; see `Outbox` of the actors."""
        for request in self._early:
            yield "room", request
        yield from super().unsent()

    @property
    def session(self) -> ConsumerSession:
        """The session of the present connection."""
        assert self.connection is not None
        return self.connection.session

    def target(self, request: PendingRequest, name: str) -> ItemTarget:
        """Return the object to which the items of a request's input stream are sent."""
        return StreamTarget(self, request, name) if self._is_to_stand else super().target(request, name)

    # ---- a node that ends; see `Pair`

    def source_ended(self) -> None:
        """End the connection from this end, without answers to its requests: their sender ends too."""
        self.environment.abandon()
        self.lines.end_here()
        self._early.clear()
        self.environment.be_unknown()

    def target_ended(self) -> None:
        """End the connection from the other end."""
        self.lines.end_there()
        self.environment.be_unknown()  # it has forgotten what it has answered

    def begin_again(self) -> None:
        """Connect at once, as at the first use, unless this end still has an old connection."""
        if self.connection is not None:
            return
        self.tried = False
        self.failure = None
        self._random = self.environment.rt.entropy.stream(self.lines.chance)
        self._backoff = self.new_backoff()
        self.lines.begin_again()
        if self.lines.is_refused:  # the other node may begin again in the same instant, and then they connect
            self.environment.rt.timers.call_at(trio.current_time(), self._try_at_once)
        else:
            self._try_at_once()

    def _try_at_once(self) -> None:
        if self._pause is not None:
            self._pause.cancel("the node has begun again")

    def _began(self, connection: Connection) -> Any:
        standing = super()._began(connection)
        self._end_early(standing.post)
        return standing

    def _connection_ended(self, standing: Any, ended: Ended | None, lasted: float) -> None:
        if ended is not None:  # else it is the end of the node
            self.lines.has_ended()
        super()._connection_ended(standing, ended, lasted)

    def _connect_failed(self, failure: Any) -> None:
        super()._connect_failed(failure)
        self._end_early(lambda request: request.fail(self.unavailable(request.far.path)))

    def _end_early(self, end: Callable[[PendingRequest], None]) -> None:
        early, self._early = self._early, {}
        for request in early:
            end(request)
