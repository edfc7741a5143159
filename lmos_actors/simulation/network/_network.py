"""A simulated network between agents of one node, which stand for agents of many.

A *node* of the network is a name. `label` says of which one an agent is; what no agent sends is sent by
`USER`. A ref that the network has wrapped (`SimulatedNetwork.ref`) looks at each use who uses it: between
agents of one node it is the near ref that it wraps, and between nodes its requests go over two `Line`s, and
behave as those of a far ref do. The link of a far ref does that, with a peer that has no socket: what it is
asked is written as JSON, arrives when the line says so, and is taken by a `Serving` there.

With `delivery="stream"` each pair of nodes that talk has a connection (`_stream.py`); with "datagram" each
message is alone (`_datagram.py`).

What is not modelled: handshakes and frames; the windows of streams beyond their credit; growing windows of
one-way messages (the largest is there at once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import trio

from lmos_actors.actors import CURRENT, LookupLink, Ref
from lmos_actors.bindings import (
    ClassInterface,
    RemoteLink,
)
from lmos_actors.errors import (
    AgentUnavailable,
)
from lmos_actors.supervision import class_at

from ._datagram import DatagramPeer
from ._peer import NetworkParts
from ._stream import StreamPeer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.actors import (
        AgentStatistics,
        Attempt,
        Down,
        Feed,
        Invocation,
        MailboxStatistics,
        Runtime,
        Turns,
    )

    from ._links import LinkFault, Links


Delivery: TypeAlias = Literal["stream", "datagram"]

USER: Final = "user"
"""The node of what no agent sends."""


class SimulatedNetwork:
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
        self.links = links
        self.delivery: Delivery = delivery
        self.near_user = near_user
        """Whether what no agent sends is near to all nodes."""
        self._parts = NetworkParts(rt, links)
        self._label = label
        self._labels: dict[Any, str] = {}
        self._interfaces: dict[type[Any], ClassInterface] = {}
        self._peers: dict[tuple[str, str], StreamPeer | DatagramPeer] = {}

    def ref(self, ref: Ref[Any]) -> Ref[Any]:
        """Return a ref to the same agent, whose requests cross the network."""
        return Ref(NetworkLink(self, ref._link))  # pyright: ignore[reportPrivateUsage]

    def node_of(self, slot: Any) -> str:
        """Return the node of an agent, that of None."""
        if slot is None:
            return USER
        found = self._labels.get(slot)
        if found is None:
            found = self._labels[slot] = self._label(slot.path)
        return found

    def toward(self, source: str, link: Any) -> RemoteLink:
        """Return the far link from a node to an agent or a pool. Raise NotFound, AgentUnavailable."""
        link = link.resolve() if isinstance(link, LookupLink) else link
        cls = class_at(link)
        if cls is None:
            raise AgentUnavailable(link.path, "it has not started yet")
        interface = self._interfaces.get(cls)
        if interface is None:
            interface = self._interfaces[cls] = ClassInterface(cls.__contract__)
        peer = self.peer(source, self._label(link.path))
        return RemoteLink(peer.thing_of(link), interface)

    def peer(self, source: str, target: str) -> StreamPeer | DatagramPeer:
        """Return the connection from one node to another."""
        found = self._peers.get((source, target))
        if found is None:
            made = StreamPeer if self.delivery == "stream" else DatagramPeer
            found = self._peers[source, target] = made(self._parts, source, target)
            found.look_at_lines()  # it has stood from the beginning: perhaps it is cut by now
        return found

    @property
    def counts(self) -> Counter[str]:
        """The counts of what was `lost`, `doubled`, `late`, `disconnected` and `connected`."""
        return self._parts.counts

    # ---- faults

    def begin(self, fault: LinkFault) -> int:
        """Put a fault into force, and return its number."""
        number = self.links.begin(fault, trio.current_time())
        self._look_at_all()
        return number

    def heal(self, number: int) -> None:
        """End a fault; one that has ended already is passed over."""
        self.links.heal(number)
        self._look_at_all()

    def disconnect(self, selects: Callable[[str, str], bool]) -> int:
        """Reset connections between nodes, and return how many there were."""
        found = [
            peer
            for (source, target), peer in self._peers.items()
            if isinstance(peer, StreamPeer) and (selects(source, target) or selects(target, source))
        ]
        return sum(peer.reset() for peer in found)

    def _look_at_all(self) -> None:
        for peer in tuple(self._peers.values()):
            peer.look_at_lines()


class NetworkLink:
    """A link that is near between agents of one node, and far between nodes; see `Link`."""

    __slots__ = ("_network", "_node", "_ways", "near")

    def __init__(self, network: SimulatedNetwork, link: Any) -> None:
        self.near = link
        """The link to the agent itself."""
        self._network = network
        self._node: str | None = None
        self._ways: dict[str, RemoteLink] | None = None

    def way(self, sender: Any = None) -> Any:
        """Return the link to use for what the code that runs now sends, or an agent."""
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
    def rt(self) -> Runtime:
        """The machinery of the node."""
        rt: Runtime = self.near.rt
        return rt

    @property
    def turns(self) -> Turns:
        """The agent whose turn runs now."""
        turns: Turns = self.near.turns
        return turns

    @property
    def path(self) -> str:
        """The agent's path."""
        path: str = self.near.path
        return path

    @property
    def identity(self) -> tuple[object, int]:
        """The identity of a ref: the agent, whoever uses it."""
        identity: tuple[object, int] = self.near.identity
        return identity

    def look(self) -> Any:
        """Return the link that is used now; see `found_link`."""
        return self.way()

    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """See `Link`."""
        return await self.way().ask(key, args, kwargs, seconds, attempt)

    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        await self.way().tell(key, args, kwargs)

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.way().tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.way(sender).send_from(sender, key, args, kwargs)

    def open(self, invocation: Invocation) -> AbstractAsyncContextManager[Any]:
        """See `Link`."""
        opened: AbstractAsyncContextManager[Any] = self.way().open(invocation)
        return opened

    def listen(
        self, key: str, *, conflate: bool, gaps: bool, size: int
    ) -> AbstractAsyncContextManager[Feed[Any]]:
        """See `Link`."""
        listened: AbstractAsyncContextManager[Feed[Any]] = self.way().listen(
            key, conflate=conflate, gaps=gaps, size=size
        )
        return listened

    def watch(self) -> AbstractAsyncContextManager[Feed[Down]]:
        """See `Link`."""
        watched: AbstractAsyncContextManager[Feed[Down]] = self.way().watch()
        return watched

    def link(self) -> AbstractAsyncContextManager[None]:
        """See `Link`."""
        linked: AbstractAsyncContextManager[None] = self.way().link()
        return linked

    def sinks(self) -> Any:
        """Return the listeners of the agent for who uses the ref."""
        return self.way().sinks()

    async def wait_running(self) -> None:
        """See `Link`."""
        await self.way().wait_running()

    def unready(self) -> str:
        """See `Link`."""
        unready: str = self.way().unready()
        return unready

    def statistics(self) -> AgentStatistics:
        """See `Link`."""
        statistics: AgentStatistics = self.way().statistics()
        return statistics

    def mailbox_statistics(self) -> MailboxStatistics:
        """See `Link`."""
        statistics: MailboxStatistics = self.way().mailbox_statistics()
        return statistics
