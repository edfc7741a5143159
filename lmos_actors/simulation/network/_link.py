"""The base of simulated networks between agents of one node, with links that depend on the sender."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from lmos_actors.actors import CURRENT, ForwardingLink, Ref
from lmos_actors.bindings import ClassInterface

from ._peer import NetworkParts
from ._streams import LineNetwork

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping

    from lmos_actors.actors import Runtime
    from lmos_actors.bindings import RemoteLink
    from lmos_actors.links import LinkFault, Links
    from lmos_actors.transport import MemoryNetwork

    from ._peer import OnSent

USER: Final = "user"
"""The node of messages that no agent sends."""


class Pair(Protocol):
    """The path from one node to another, notified when either node ends; see `NodeNetwork.end_node`."""

    def source_ended(self) -> None:
        """Handle the end of the sending node: everything that it sent on this path stops."""
        ...

    def target_ended(self) -> None:
        """Handle the end of the receiving node."""
        ...

    def begin_again(self) -> None:
        """Begin as at the first use, because the sender has begun again.

        If the sender is the user, this is also called when the receiver has begun again.
        """
        ...


class NodeNetwork(ABC):
    """A network between simulated nodes, whose agents all run on one real node.

    `label` returns the node of the agent at a path.
    """

    def __init__(
        self, rt: Runtime, links: Links, label: Callable[[str], str], *, near_user: bool = False
    ) -> None:
        self.links = links
        self.near_user = near_user
        """Whether messages that no agent sends are near to all nodes."""
        self._parts = NetworkParts(rt, links)
        self._label = label
        self.nodes: dict[Any, str] = {}
        """The nodes of the agents that have been asked for."""
        self._interfaces: dict[type[Any], ClassInterface] = {}
        self._lines: list[tuple[str, str, LineNetwork]] = []

    @property
    def counts(self) -> Counter[str]:
        """The counts of messages and connections: `lost`, `doubled`, `late`, `connected` and so on."""
        return self._parts.counts

    def watch(self, on_sent: OnSent) -> None:
        """Call `on_sent` for each message on a line from now on."""
        self._parts.on_sent = on_sent

    def ref(self, ref: Ref[Any]) -> Ref[Any]:
        """Return a ref to the same agent whose requests cross the network."""
        return Ref(NetworkLink(self, ref._link))  # pyright: ignore[reportPrivateUsage]

    def node_of(self, slot: Any) -> str:
        """Return the node of an agent, or `USER` for None."""
        if slot is None:
            return USER
        found = self.nodes.get(slot)
        if found is None:
            found = self.nodes[slot] = self._label(slot.path)
        return found

    @abstractmethod
    def toward(self, source: str, link: Any) -> RemoteLink:
        """Return the far link from a node to an agent or a pool. Raises NotFound, AgentUnavailable."""

    def lines(self, network: MemoryNetwork, source: str, target: str) -> LineNetwork:
        """Return a network for a separate connection from one node to another, over their lines."""
        made = LineNetwork(self._parts, network, source, target)
        self._lines.append((source, target, made))
        return made

    def _interface(self, cls: type[Any]) -> ClassInterface:
        interface = self._interfaces.get(cls)
        if interface is None:
            interface = self._interfaces[cls] = ClassInterface(cls.__contract__)
        return interface

    # ---- faults

    def begin(self, fault: LinkFault) -> int:
        """Apply a fault from now on, and return its number."""
        number = self.links.begin(fault, trio.current_time())
        self._look()
        return number

    def heal(self, number: int) -> None:
        """End a fault; nothing happens if it has ended already."""
        self.links.heal(number)
        self._look()

    def _look(self) -> None:
        self._look_at_lines()
        for _, _, lines in self._lines:
            lines.look_at_lines()

    def disconnect(self, selects: Callable[[str, str], bool], *, half_open: bool = False) -> int:
        """Reset connections between nodes, and return how many there were.

        With `half_open`, the serving end of each ends without notice. The other end considers the connection
        open until one of its messages or pings is refused; connections that are being made go on.
        """
        own = [
            lines
            for source, target, lines in self._lines
            if selects(source, target) or selects(target, source)
        ]
        of_peers = self._disconnect(selects, half_open=half_open)
        return of_peers + sum(lines.half_open() if half_open else lines.reset() for lines in own)

    @abstractmethod
    def _disconnect(self, selects: Callable[[str, str], bool], *, half_open: bool) -> int:
        """End connections of peers, and return how many there were; see `disconnect`."""

    # ---- a node that ends

    def end_node(self, node: str) -> None:
        """End a node of the network now, as the end of its process does; the caller ends its agents next.

        From now on nothing reaches the node or leaves it. Other nodes see their connections end once they
        have been notified, and cannot connect again.
        """
        self._parts.end_node(node)
        for (source, target), peer in self._pairs():
            if source == node:
                peer.source_ended()
            elif target == node:
                peer.target_ended()
        for source, target, lines in self._lines:
            if source == node:
                lines.end_here()
            elif target == node:
                lines.end_there()

    def begin_node(self, node: str) -> None:
        """Make a node that has ended reachable again, without connections. The user is connected at once."""
        self._parts.away.pop(node, None)
        for (source, target), peer in self._pairs():
            if source == node or (source == USER and target == node):
                peer.begin_again()

    @abstractmethod
    def _pairs(self) -> Iterable[tuple[tuple[str, str], Pair]]:
        """Return the paths between nodes that are in use, each with the names of both nodes."""

    @abstractmethod
    def _look_at_lines(self) -> None:
        """Notify the connections of peers that the lines have changed."""


class NetworkLink(ForwardingLink):
    """A link that is near between agents of one node, and far between nodes; see `Link`."""

    __slots__ = ("_network", "_node", "_ways", "near")

    def __init__(self, network: NodeNetwork, link: Any) -> None:
        super().__init__(link.rt)
        self.near = link
        """The link to the agent itself."""
        self._network = network
        self._node: str | None = None
        self._ways: dict[str, RemoteLink] | None = None

    def choose(self, *_request: object, sender: Any = None) -> Any:
        """Return the link for messages of `sender`, by default of the agent whose code runs now."""
        if sender is None:
            run = CURRENT.get()
            sender = self.turns.slot if run is None else run.slot
        source = self._network.node_of(sender)
        if self._node is None:
            self._node = self._network.node_of(self.near)
        if source == self._node or (source == USER and self._network.near_user):
            return self.near
        if self._ways is None:
            self._ways = {}
        found = self._ways.get(source)
        if found is None:
            found = self._ways[source] = self._network.toward(source, self.near)
        return found

    @property
    def path(self) -> str:
        """The agent's path."""
        path: str = self.near.path
        return path

    @property
    def identity(self) -> tuple[object, int]:
        """The identity of a ref: that of its agent, whatever agent uses the ref."""
        identity: tuple[object, int] = self.near.identity
        return identity

    def look(self) -> Any:
        """Return the link that is in use now; see `found_link`."""
        return self.choose()

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        ways = self._ways
        known = None if ways is None else ways.get(self._network.nodes.get(sender, ""))
        (known or self.choose(sender=sender)).send_from(sender, key, args, kwargs)

    def sinks(self) -> Any:
        """Return the listeners of the agent, for the agent that uses the ref."""
        return self.choose().sinks()
