"""The network of one run: the nodes of its agents, the behaviour of links, and the faults of both.

In `world: memory` the messages of agents go through a `SimulatedNetwork`. In `wire` they go over the
connections of a `WireNetwork`, one for each pair of nodes that exchange messages. Steps, and messages that no
agent sends, belong to the node `user`, whose links are perfect unless the file names them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.actors import Slot
from lmos_actors.links import Links
from lmos_actors.simulation.network import USER, SimulatedNetwork, WireNetwork
from lmos_actors.supervision import Supervisor, agents_of
from lmos_actors.system.model import DIRECTORY

from ..._worlds import wait_until_idle
from ...model import INSTANT, MOST_CONNECTIONS, Disconnect, kind_of_fault
from .._step_text import faults_in
from ._network_rules import NetworkRules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lmos_actors._core import Entropy
    from lmos_actors.actors import Ref
    from lmos_actors.node import Node
    from lmos_actors.simulation.network import Delivery, LineNetwork, OnSent
    from lmos_actors.transport import MemoryNetwork

    from ...format import Cell
    from ...model import Directory, OfNetwork
    from ._directory import NetworkDirectory


class RunNetwork:
    """The network of one run; see the module docstring."""

    def __init__(self, cell: Cell, entropy: Entropy) -> None:
        network = cell.scenario.network
        assert network is not None
        self._rules = NetworkRules(cell, entropy)
        self.names = self._rules.names
        self._delivery: Delivery = network.delivery
        self._directory: Directory | None = network.directory
        self._discovery: NetworkDirectory | None = None
        self.ends_nodes = any(map(_ends_nodes, faults_in(cell.scenario)))
        """Whether faults end nodes of the network."""
        self.has_user = self._rules.names_user or (self.ends_nodes and network.delivery == "stream")
        """Whether steps cross the network: if links or faults name `user`, or faults end connections."""
        self.links = Links(self._rules.between, entropy.stream)
        self._network: SimulatedNetwork | WireNetwork | None = None
        self._before: Counter[str] = Counter()  # the counts of networks whose nodes were killed
        self._in_force: dict[str, list[int]] = {}
        self._on_sent: OnSent | None = None

    def open(self, node: Node, network: MemoryNetwork | None) -> None:
        """Carry the messages between the agents of a node from now on.

        `network` is the network on which the node listens in `world: wire`; in other worlds it is None.
        """
        if self._network is not None:
            self._before += self._network.counts
        rt, label = node.root.rt, self.names.of_path
        rt.nodes = self  # lookups of agents are for their own node only
        if network is None:
            near_user = not self.has_user
            self._network = SimulatedNetwork(
                rt, self.links, label, delivery=self._delivery, near_user=near_user
            )
            self._watch()
            return
        from ..wire import place_of  # for worlds with wires: few files need it

        place = place_of(node, network)
        self._network = WireNetwork(
            rt, self.links, label, place, far_user=self.has_user, most=MOST_CONNECTIONS
        )
        self._watch()

    def watch(self, on_sent: OnSent) -> None:
        """Call a function for each further message on a line, even after the node has been replaced."""
        self._on_sent = on_sent
        self._watch()

    def _watch(self) -> None:
        if self._network is not None and self._on_sent is not None:
            self._network.watch(self._on_sent)

    @asynccontextmanager
    async def registering(self, node: Node) -> AsyncGenerator[None]:
        """Start the directory of the network on a node, if the file has one, and make all agents use it."""
        if self._directory is None:
            yield
            return
        from lmos_actors.directory import DirectoryOptions, ThingDirectory, directory_spec
        from lmos_actors.persistence import MemoryStore

        from ._directory import NetworkDirectory  # few files need it

        assert self._network is not None
        store = MemoryStore()
        await node.start_child(directory_spec(DirectoryOptions(), DIRECTORY, store))
        connections = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._discovery = NetworkDirectory(
            node,
            self._network,
            node.find(ThingDirectory, DIRECTORY),
            store=store,
            label=self.names.of_path,
            start_soon=connections.start_soon,
            ttl=float(self._directory.ttl),
            has_begun=self._discovery is not None,
        )
        self._discovery.register(self.names.all())
        try:
            yield
        finally:
            self._discovery.close()

    async def wait_registered(self) -> None:
        """If there is a directory, wait at the start of the run until the started agents are registered."""
        if self._discovery is not None and not self._discovery.has_begun:
            await wait_until_idle()
            self._discovery.has_begun = True

    def of_path(self, path: str) -> str:
        """Return the node of the agent at a path."""
        return self.names.of_path(path)

    # ---- nodes that end and begin again

    def end_node(self, node: str) -> None:
        """Cut a node off, as if its process had ended: no message reaches it or comes from it."""
        assert self._network is not None
        self._network.end_node(node)
        if self._discovery is not None:
            self._discovery.end_node(node)

    def begin_node(self, node: str) -> None:
        """Make a node reachable again, because its agents start now."""
        assert self._network is not None
        self._network.begin_node(node)
        if self._discovery is not None:
            self._discovery.begin_node(node)

    def parts_of(self, node: str, root: Supervisor) -> list[tuple[Supervisor, tuple[Slot | Supervisor, ...]]]:
        """Return the parts on a node, as pairs of a supervisor and its children there, in start order.

        A part is a whole child of a supervisor.
        """
        found: list[tuple[Supervisor, tuple[Slot | Supervisor, ...]]] = []
        top: list[Slot | Supervisor] = []
        for child in root.children:
            members = None if isinstance(child, Slot) else child.numbered
            if members is None:
                top += [child] if self._place_of(child) == node else []
            elif isinstance(child, Supervisor):
                own = self.names.members_on(node, child.label, members)
                found += [(child, own)] if own else []
        return [(root, tuple(top)), *found] if top else found

    def _place_of(self, child: Slot | Supervisor) -> str:
        """Return the node of an agent, or of the agents below a supervisor, which all share one node."""
        first = child if isinstance(child, Slot) else next(agents_of(child), child)
        return self.names.of_path(first.path)

    def ref(self, ref: Ref[Any]) -> Ref[Any]:
        """Return a ref to the same agent whose requests cross the network."""
        assert self._network is not None
        return self._network.ref(ref)

    def lines_between(self, node: Node, name: str, to: str) -> LineNetwork | None:
        """Return the lines from the node of an agent, or from `user`, to the node of another agent.

        Return None if both are on the same node, or the sender is `user` and steps do not cross the network.
        Connections over the lines lead to the real `node`, through its network.
        """
        assert self._network is not None
        (source,), (target,) = self.names.named(name), self.names.named(to)
        if source == target or (source == USER and not self.has_user):
            return None
        connections: Any = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        return self._network.lines(connections.network, source, target)

    def count(self, what: str) -> int:
        """Return how often an event has happened in the network; see `SimulatedNetwork.counts`."""
        return self._before[what] + (0 if self._network is None else self._network.counts[what])

    # ---- faults

    def strike(self, fault: OfNetwork, id: str) -> tuple[tuple[str, ...], ...]:
        """Put a fault into force, and return the affected nodes of each side."""
        assert self._network is not None
        if isinstance(fault, Disconnect) and fault.how in INSTANT:
            self._network.disconnect(self._rules.where(fault.between), half_open=fault.how == "half_open")
            return (self._rules.ends(fault.between),)
        made, about = self._rules.fault(fault, id)
        self._in_force.setdefault(id, []).append(self._network.begin(made))
        return about

    def nodes(self, of: str | Sequence[str]) -> list[str]:
        """Return the nodes to which the names refer, without duplicates."""
        return self._rules.nodes(of)

    def heal(self, id: str) -> None:
        """End the oldest fault in force with the given id; do nothing if there is none."""
        numbers = self._in_force.get(id)
        if numbers and self._network is not None:
            self._network.heal(numbers.pop(0))


def _ends_nodes(fault: Any) -> bool:
    """Return whether a fault ends nodes of the network."""
    kind = kind_of_fault(fault)
    return kind == "kill" or (kind == "restart" and (fault.of is not UNSET or fault.pick is not None))
