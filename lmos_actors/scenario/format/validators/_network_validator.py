"""Validation of the network of a file: the behaviour of its links, and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.system import NODES, OF_SYSTEM, NodeValidator
from lmos_actors.system.model import HUB, PROCESS, WORLDS, Bridge, Topology, is_real
from lmos_actors.system.values import problem_of_delay

from ...model import MOST_CONNECTIONS, MOST_REGISTERED, LinksBetween, Network, Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

_HERE: DataPath = ("network",)

SMALLEST: Final = 1_024
"""Minimum size of a queue in bytes: room for one useful message."""

MESSAGE: Final = 320
"""Approximate size of the smallest message, in bytes."""

SILENCE: Final = 60.0
"""Seconds without a sign of the other end after which every connection ends."""

SHORTEST_TTL: Final = 3.0
DAY: Final = 86_400.0
LONGEST_TTL: Final = 366 * DAY
"""Bounds of the time to live of a registration in seconds, as for a node: see `Registration`."""


class NetworkValidator:
    """The validator of `network` and `nodes`; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names
        self.nodes = NodeValidator(names, OF_SYSTEM if "system" in names.cell.data else NODES)
        made = names.made.get(_HERE)
        self._network = made if isinstance(made, Network) else None

    @property
    def is_datagram(self) -> bool:
        """Whether the network delivers datagrams; False if the network is not known."""
        return self._network is not None and self._network.delivery == "datagram"

    def check(self) -> None:
        """Check the network and the nodes of the file."""
        self.nodes.check()
        data = self.names.cell.data
        if "network" not in data:
            return
        world = data.get("world", "memory")
        if world in WORLDS and is_real(world) and world != PROCESS:
            why = (
                f'"network" is simulated, in world: memory or wire, or between the groups of world: process; '
                f"that of {world} is this machine's own"
            )
            self.names.report(_HERE, why, "shape", key=True)
        network = self._network
        if network is None:
            return
        if self.is_datagram and world in ("wire", PROCESS):
            why = f"datagrams are of world: memory; in {world} messages go over connections, which keep order"
            self.names.report((*_HERE, "delivery"), why, "shape")
        if self.is_datagram:
            self._check_connected(data)
        if world == "wire":
            self._connections()
        if network.directory is not None:
            self._directory(float(network.directory.ttl), is_wire=world == "wire")
        self._rules(network.default, (*_HERE, "default"))
        for index, links in enumerate(network.links):
            here = (*_HERE, "links", index)
            self._rules(links, here)
            self._ends_of(links, here)
        self._queues(network)

    def _check_connected(self, data: dict[str, Any]) -> None:
        """Refuse datagrams if agents open connections themselves: those on a hub, and bridges to Omnia."""
        here: DataPath = (*_HERE, "delivery")
        if HUB in data:
            why = 'the agents on a hub have connections to it: "relay" needs "delivery: stream"'
            self.names.report(here, why, "shape")
        for name, entry in self.names.agents.items():
            if isinstance(entry, Bridge) and entry.speaks == "omnia":
                self.names.report(
                    here, f'the bridge "{name}" connects, and needs "delivery: stream"', "shape"
                )

    def _directory(self, ttl: float, *, is_wire: bool) -> None:
        """Check the directory: the time to live of registrations, and the number of registrations."""
        here: DataPath = (*_HERE, "directory")
        if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
            why = f"registrations live from {SHORTEST_TTL:g} s to {LONGEST_TTL / DAY:g} days"
            self.names.report((*here, "ttl"), f"{why}, not {ttl:g} s", "shape")
        populations = self.names.populations
        one_each = len(self.names.names) - len(populations) - 1  # without the directory itself
        agents = one_each + sum(each.count for each in populations.values())
        if agents > MOST_REGISTERED:
            why = f"{agents:,} agents register in the directory: {MOST_REGISTERED:,} are the most"
            self.names.report(here, why, "shape", key=True)
        alone = [each.count for name, each in populations.items() if not self.nodes.is_on_nodes(name)]
        nodes = len(self.nodes.all()) - len(alone) - 1 + sum(alone)
        if is_wire and nodes > MOST_CONNECTIONS:
            why = f"{nodes:,} nodes register in the directory, and in world: wire each has a connection"
            self.names.report(here, f"{why}: {MOST_CONNECTIONS:,} are the most", "shape", key=True)

    def _connections(self) -> None:
        """Refuse a topology that links more pairs of nodes than there can be connections."""
        topology = self.names.made.get(("topology",))
        if not isinstance(topology, Topology):
            return
        from ._topology import topology_problem

        here: DataPath = ("topology", "of")
        population = self.names.populations.get(topology.of)
        if population is None or topology_problem(topology, population.count) is not None:
            return
        pairs, count = 0, population.count
        if count > MOST_CONNECTIONS and not self.nodes.is_on_nodes(topology.of):
            pairs = count * (count - 1) if topology.kind == "complete" else 2 * (count - 1)
        elif count <= MOST_CONNECTIONS:
            pairs = self._pairs(topology, count)
        if pairs > MOST_CONNECTIONS:
            why = f"{pairs:,} pairs of nodes talk, or more, and in world: wire each has a connection"
            self.names.report(here, f"{why}: {MOST_CONNECTIONS:,} are the most. Use world: memory", "shape")

    def _pairs(self, topology: Topology, count: int) -> int:
        from ._topology import neighbours_of

        nodes = [self.nodes.node_of(f"{topology.of}/{number}") for number in range(count)]
        neighbours = neighbours_of(topology, count, seed=1)  # other seeds give about as many
        near = zip(nodes, neighbours, strict=True)
        between = ((here, nodes[other]) for here, others in near for other in others)
        return len({pair for pair in between if pair[0] != pair[1]})

    # ---- what links do

    def _rules(self, rules: Rules, path: DataPath) -> None:
        self.time(rules.latency, (*path, "latency"))
        self.time(rules.jitter, (*path, "jitter"))
        if not self.is_datagram:
            why = "is of datagrams: a stream keeps order, and nothing comes twice over it"
            self.names.refuse(rules, path, why, "duplicate", "reorder")
        if self.names.cell.data.get("world", "memory") == "memory":
            why = "changes bytes of connections, which are there in world: wire and process"
            self.names.refuse(rules, path, why, "corrupt")
        if rules.bandwidth is not UNSET:
            self._bandwidth(float(rules.bandwidth), (*path, "bandwidth"))
        if rules.queue is not UNSET:
            self._queue(rules, path)

    def _bandwidth(self, bandwidth: float, path: DataPath) -> None:
        """Refuse a bandwidth that is too low for the smallest message to arrive in time.

        Otherwise the run, or a connection without traffic, would end first.
        """
        if not bandwidth:
            self.names.report(path, "a line without bandwidth carries nothing", "shape")
            return
        end, needed = self._end(), MESSAGE / bandwidth
        if end is not None and needed > end:
            why = f"a message of {MESSAGE} B takes {needed:g} s at that, and the run is over after {end:g} s"
            self.names.report(path, why, "shape")
        elif needed > SILENCE and not self.is_datagram:
            why = f"a message of {MESSAGE} B takes {needed:g} s at that, and a connection ends"
            self.names.report(path, f"{why} after {SILENCE:g} s in which nothing comes", "shape")

    def _end(self) -> float | None:
        """Return the maximum duration of the run in seconds; None if it is wrong or missing."""
        stop: Any = self.names.made.get(("stop",))
        if stop is not None:
            return float(stop.at)
        if "steps" not in self.names.cell.data:
            return None
        given: Any = self.names.made.get(("timeout",), None if "timeout" in self.names.cell.data else 30.0)
        return None if given is None else float(given)

    def _queue(self, rules: Rules, path: DataPath) -> None:
        if rules.queue is not UNSET and rules.queue < SMALLEST:
            why = f"a queue of less than {SMALLEST} B has room for no message"
            self.names.report((*path, "queue"), why, "shape")
        if not self.is_datagram:
            why = "is of datagrams: what a stream has no room for waits at its sender"
            self.names.refuse(rules, path, why, "queue")

    def _queues(self, network: Network) -> None:
        """Refuse a queue without a bandwidth. The default or earlier links may set the bandwidth."""
        if not self.is_datagram:
            return  # every queue is refused elsewhere
        several = (network.default, *network.links)
        if network.default.queue is not UNSET and all(links.bandwidth is UNSET for links in several):
            self._no_bandwidth((*_HERE, "default", "queue"))
        limited = network.default.bandwidth is not UNSET
        for index, links in enumerate(network.links):
            limited = limited or links.bandwidth is not UNSET
            if links.queue is not UNSET and not limited:
                self._no_bandwidth((*_HERE, "links", index, "queue"))

    def _no_bandwidth(self, path: DataPath) -> None:
        why = 'nothing waits in a "queue" without "bandwidth": all of it leaves at once'
        self.names.report(path, why, "shape", key=True)

    def time(self, value: Any, path: DataPath) -> None:
        """Check a delay of messages, or its distribution."""
        if value is not UNSET:
            self.names.report_at(path, problem_of_delay(value))

    # ---- ends

    def _ends_of(self, links: LinksBetween, path: DataPath) -> None:
        one_way = links.from_ is not UNSET and links.to is not UNSET
        if (links.between is not UNSET) == one_way or (links.from_ is UNSET) != (links.to is UNSET):
            why = 'links are "between" two ends, or "from" one "to" the other'
            self.names.report(path, why, "shape")
        elif links.between is not UNSET:
            self.between(links.between, (*path, "between"))
        else:
            ends = [str(links.from_), str(links.to)]
            self._two(ends, [(*path, "from"), (*path, "to")])

    def between(self, ends: Sequence[str], path: DataPath) -> None:
        """Check the two ends of links."""
        self._two(ends, [(*path, 0), (*path, 1)])

    def _two(self, ends: Sequence[str], paths: Sequence[DataPath]) -> None:
        known = [self.nodes.end(end, path) for end, path in zip(ends, paths, strict=True)]
        if not all(known):
            return
        first, second = map(self.nodes.node_of, ends)
        if first == second and first not in self.names.populations:
            why = f'"{ends[1]}" needs no link to itself'
            if ends[0] != ends[1]:
                node = next((f' of "{first}"' for end in ends if end != first), "")
                why = f'"{ends[0]}" and "{ends[1]}" are on one node{node}, and need no link'
            self.names.report(paths[1], why, "shape")
