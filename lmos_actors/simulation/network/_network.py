"""A simulated network between agents of one node, which stand for agents of many.

A *node* of the network is a name. `label` returns the node of an agent; messages that no agent sends come
from `USER`. A ref that the network has wrapped (`SimulatedNetwork.ref`) checks at each use which agent uses
it. Between agents of one node it acts as the near ref that it wraps. Between nodes its requests go over two
`Line`s, and behave like the requests of a far ref. The link of a far ref does that, with a peer that has no
socket: its requests are written as JSON, arrive after the delay of the line, and are taken by a `Serving`
there.

With `delivery="stream"` each pair of nodes that communicate has a connection (`_stream.py`); with "datagram"
each message is sent alone (`_datagram.py`).

What is not modelled: frames; the windows of streams beyond their credit; growing windows of one-way messages
(the largest is there at once). Connections with frames and handshakes are in `_wire.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lmos_actors.actors import LookupLink, outgoing_mark
from lmos_actors.bindings import RemoteLink
from lmos_actors.errors import AgentUnavailable
from lmos_actors.supervision import class_at

from ._datagram import DatagramPeer
from ._link import NodeNetwork, Pair
from ._stream import StreamPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmos_actors.actors import Runtime
    from lmos_actors.links import Links


Delivery: TypeAlias = Literal["stream", "datagram"]


class SimulatedNetwork(NodeNetwork):
    """The lines between nodes, and the connections over them; see the module docstring.

    `label` returns the node of the agent at a path.
    """

    def __init__(
        self,
        rt: Runtime,
        links: Links,
        label: Callable[[str], str],
        *,
        delivery: Delivery = "stream",
        near_user: bool = False,
    ) -> None:
        super().__init__(rt, links, label, near_user=near_user)
        self.delivery: Delivery = delivery
        self._peers: dict[tuple[str, str], StreamPeer | DatagramPeer] = {}

    def toward(self, source: str, link: Any) -> RemoteLink:
        """Return the far link from a node to an agent or a pool. Raises NotFound, AgentUnavailable."""
        link = link.choose() if isinstance(link, LookupLink) else link
        cls = class_at(link)
        if cls is None:
            raise AgentUnavailable(link.path, "it has not started yet")
        peer = self.peer(source, self.nodes.get(link) or self._label(link.path))
        return RemoteLink(peer.thing_of(link), self._interface(cls), outgoing_mark)

    def peer(self, source: str, target: str) -> StreamPeer | DatagramPeer:
        """Return the connection from one node to another."""
        found = self._peers.get((source, target))
        if found is None:
            made = StreamPeer if self.delivery == "stream" else DatagramPeer
            found = self._peers[source, target] = made(self._parts, source, target)
        return found

    def _disconnect(self, selects: Callable[[str, str], bool], *, half_open: bool) -> int:
        found = [
            peer
            for (source, target), peer in self._peers.items()
            if isinstance(peer, StreamPeer) and (selects(source, target) or selects(target, source))
        ]
        return sum(peer.half_open() if half_open else peer.reset() for peer in found)

    def end_node(self, node: str) -> None:
        """End a node of the network now; see `NodeNetwork`."""
        super().end_node(node)
        attempts = self._parts.limits.attempts
        for id, served in tuple(attempts.items()):
            if self._label(served.target.path) == node:
                del attempts[id]

    def _pairs(self) -> Iterable[tuple[tuple[str, str], Pair]]:
        return tuple(self._peers.items())

    def _look_at_lines(self) -> None:
        for peer in tuple(self._peers.values()):
            peer.look_at_lines()
