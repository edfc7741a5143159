"""Validation of the network of a file: nodes, links, and the faults of links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean, listed, mapped

from ..._worlds import is_real
from ...model import OF_NETWORK, USER, WORLDS, Disconnect, LinksBetween, Network, Normal, Pick, Rules
from ...values import problem_at
from .._cell_names import NAME, NAMED
from .._hub_names import all_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.files import DataPath

    from .._cell_names import CellNames

_HERE: DataPath = ("network",)
_NODES: DataPath = ("nodes",)

SMALLEST: Final = 1_024
"""Bytes that a queue has room for at least: those of one message that says something."""

TAIL: Final = 3.0
"""Deviations above zero that the mean of a normal latency has at least: about one in a thousand is below."""

_NEEDED: Final = 'needs a network, which the file has not: "network: {}" makes one'


class NetworkValidator:
    """Validates `network` and `nodes`, and faults of links; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names
        made = names.made.get(_HERE)
        self._network = made if isinstance(made, Network) else None
        self._nodes: dict[str, DataPath] = {}

    @property
    def is_there(self) -> bool:
        """Whether the file has a network, be it with mistakes."""
        return "network" in self.names.cell.data

    def check(self) -> None:
        """Check the network and the nodes of the file."""
        self._check_nodes()
        if not self.is_there:
            return
        world = self.names.cell.data.get("world", "memory")
        if world in WORLDS and is_real(world):
            why = f'"network" is simulated: world: memory or wire; that of {world} is this machine\'s own'
            self.names.report(_HERE, why, "shape", key=True)
        network = self._network
        if network is None:
            return
        if network.delivery == "datagram" and world == "wire":
            why = "datagrams are of world: memory; in wire messages go over connections, which keep order"
            self.names.report((*_HERE, "delivery"), why, "shape")
        self._rules(network.default, (*_HERE, "default"), network)
        for index, links in enumerate(network.links):
            here = (*_HERE, "links", index)
            self._rules(links, here, network)
            self._ends_of(links, here)

    # ---- nodes

    def _check_nodes(self) -> None:
        raw = mapped(self.names.cell.data.get("nodes"))
        if raw and not self.is_there:
            self.names.report(_NODES, f'"nodes" {_NEEDED}', "shape", key=True)
        owners: dict[str, str] = {}
        for node, members in raw.items():
            here: DataPath = (*_NODES, node)
            self._nodes[node] = here
            self._check_name(node, here)
            for index, member in enumerate(listed(members)):
                if isinstance(member, str):
                    self._member(member, node, (*here, index), owners)
        self._check_supervisors(owners)

    def _check_name(self, node: str, here: DataPath) -> None:
        if not NAME.fullmatch(node):
            self.names.report(here, f'"{node}" is not a name: {NAMED}', key=True)
        elif node == USER:
            self.names.report(here, f'"{USER}" is the node of steps; another has another name', key=True)
        elif node in self.names.places:
            self.names.report(here, f'"{node}" is an agent, and a node has a name of its own', key=True)

    def _member(self, member: str, node: str, here: DataPath, owners: dict[str, str]) -> None:
        base = self.names.base_of(member)
        if base in self.names.pools and base != member:
            self.names.report(here, f'the members of the pool "{base}" are on one node: name the pool')
            return
        if not self.names.check_group(member, here, supervisors=True):
            return
        if member in owners:
            where = f'"{owners[member]}"' if owners[member] != node else "it"
            self.names.report(here, f'"{member}" stands in two nodes: {where} has it already', "shape")
        owners[member] = node

    def _check_supervisors(self, owners: dict[str, str]) -> None:
        """Refuse a supervisor, other than the root, whose children are on several nodes."""
        for above, path, children in self._supervised():
            nodes = {child: owners.get(child, owners.get(above, child)) for child in children}
            if len(set(nodes.values())) > 1 and any(child in owners for child in children):
                first, second = list(dict.fromkeys(nodes.values()))[:2]
                why = f'the children of "{above}" are on several nodes, "{first}" and "{second}"'
                self.names.report(path, f"{why}: a supervisor is on the node of what it restarts", "shape")

    def _supervised(self) -> Iterator[tuple[str, DataPath, list[str]]]:
        """Return the supervisors of the file's tree below the root, their places, and their agents."""
        tree = mapped(self.names.cell.data.get("tree"))
        todo: list[tuple[Any, DataPath]] = [(tree, ("tree",))]
        for above, path in todo:
            children = listed(mapped(above).get("children"))
            todo += [(child, (*path, "children", n)) for n, child in enumerate(children)]
            name = mapped(above).get("name")
            if isinstance(name, str) and path != ("tree",):
                agents = [child for child in children if isinstance(child, str)]
                yield name, (*path, "name"), agents

    # ---- links

    def _rules(self, rules: Rules, path: DataPath, network: Network) -> None:
        for name in ("latency", "jitter"):
            value: Any = getattr(rules, name)
            if value is not UNSET:
                self._time(value, (*path, name))
        if network.delivery == "stream":
            for name in ("duplicate", "reorder"):
                if getattr(rules, name) is not UNSET:
                    why = f'"{name}" is of datagrams: a stream keeps order, and nothing comes twice over it'
                    self.names.report((*path, name), why, "shape", key=True)
        if rules.bandwidth is not UNSET and not rules.bandwidth:
            self.names.report((*path, "bandwidth"), "a line without bandwidth carries nothing", "shape")
        if rules.queue is not UNSET and rules.queue < SMALLEST:
            why = f"a queue of less than {SMALLEST} B has room for no message"
            self.names.report((*path, "queue"), why, "shape")

    def _time(self, value: Any, path: DataPath) -> None:
        problem = problem_at(value, time=True)
        if problem is not None:
            self.names.report((*path, problem[0]), problem[1], "shape")
        elif isinstance(value, Normal) and value.mean < TAIL * value.deviation:
            why = "below zero in its tail: a message would arrive before it is sent. Use lognormal"
            self.names.report((*path, "deviation"), why, "shape")

    def _ends_of(self, links: LinksBetween, path: DataPath) -> None:
        one_way = links.from_ is not UNSET and links.to is not UNSET
        if (links.between is not UNSET) == one_way or (links.from_ is UNSET) != (links.to is UNSET):
            why = 'links are "between" two ends, or "from" one "to" the other'
            self.names.report(path, why, "shape")
            return
        if links.between is not UNSET:
            self._between(links.between, (*path, "between"))
            return
        ends = [str(links.from_), str(links.to)]
        known = [self.node(end, (*path, key)) for end, key in zip(ends, ("from", "to"), strict=True)]
        if all(known) and ends[0] == ends[1] and not self._is_several(ends[0]):
            self.names.report((*path, "to"), f'"{ends[0]}" needs no link to itself', "shape")

    def _between(self, ends: Sequence[str], path: DataPath) -> None:
        known = [self.node(end, (*path, index)) for index, end in enumerate(ends)]
        if all(known) and ends[0] == ends[1] and not self._is_several(ends[0]):
            self.names.report((*path, 1), f'"{ends[0]}" needs no link to itself', "shape")

    def _is_several(self, name: str) -> bool:
        return name in self.names.populations

    def node(self, name: str, path: DataPath) -> bool:
        """Check the name of a node, of an agent or population that is one, or `user`."""
        if name in self._nodes or name == USER:
            return True
        base = self.names.base_of(name)
        if base in self.names.places:
            return self.names.check_group(name, path)
        known = [*self._nodes, *self.names.names, USER]
        self.names.report(path, f'no node "{name}"{did_you_mean(name, known)}')
        return False

    # ---- faults

    def fault(self, fault: Any, kind: str, path: DataPath) -> None:
        """Check a fault of links."""
        if not self.is_there:
            self.names.report((*path, "kind"), f'"kind: {kind}" {_NEEDED}')
        for key in ("target", "pick"):
            if getattr(fault, key, None) is not None:
                message = f'"{key}" does not apply to "kind: {kind}", which is of links between nodes'
                self.names.report((*path, key), message, "shape", key=True)
        if kind == "partition":
            self._partition(getattr(fault, "sides", UNSET), path)
        between = getattr(fault, "between", UNSET)
        if between is not UNSET:
            self._between(between, (*path, "between"))
        if kind == "latency" and getattr(fault, "delay", UNSET) is not UNSET:
            self._time(fault.delay, (*path, "delay"))
        if kind == "disconnect":
            self._disconnect(fault, path)

    def _disconnect(self, fault: Disconnect | Any, path: DataPath) -> None:
        if self._network is not None and self._network.delivery == "datagram":
            self.names.report((*path, "kind"), "datagrams have no connections that could end", "shape")
        if fault.how in (UNSET, "reset") and fault.duration is not UNSET:
            why = 'a connection is reset in an instant: "duration" goes with "how: hang"'
            self.names.report((*path, "duration"), why, "shape", key=True)

    def _partition(self, sides: Any, path: DataPath) -> None:
        if sides is UNSET:
            return
        here = (*path, "sides")
        if len(sides) < 2:
            self.names.report(here, "a partition has two sides at least", "shape")
        seen: dict[str, None] = {}
        for index, side in enumerate(sides):
            place = (*here, index)
            if isinstance(side, Pick):
                self._pick(side, place)
            elif isinstance(side, str):
                if index != len(sides) - 1:
                    self.names.report(place, '"rest" is the last side: those that are on no other', "shape")
            elif not side:
                self.names.report(place, "a side of nobody cuts nobody off", "shape")
            else:
                self._side(side, place, seen)

    def _pick(self, pick: Pick, path: DataPath) -> None:
        if (pick.count is UNSET) == (pick.share is UNSET):
            self.names.report(path, 'a pick has exactly one of "count" and "share"', "shape")
        population = self.names.population(pick.of, (*path, "of"))
        if population is not None and pick.count is not UNSET and pick.count > population.count:
            why = f'"{pick.of}" has {population.count} agents, fewer than {pick.count}'
            self.names.report((*path, "count"), why, "shape")

    def _side(self, side: Sequence[str], path: DataPath, seen: dict[str, None]) -> None:
        for number, name in enumerate(side):
            if not self.node(name, (*path, number)):
                continue
            if name in seen:
                self.names.report((*path, number), f'"{name}" is on two sides', "shape")
            seen[name] = None

    def heal(self, of: str, path: DataPath) -> None:
        """Check the fault that a step or an entry ends."""
        data = self.names.cell.data
        known: dict[str, dict[str, Any]] = {}
        for step in all_steps(data.get("steps"), data.get("timeline")):
            fault = mapped(step.get("fault")) if step.get("do") == "inject" else step
            if fault.get("kind") in OF_NETWORK and isinstance(step.get("id"), str):
                known[step["id"]] = fault
        found = known.get(of)
        if found is None:
            why = f'no fault of the network has the id "{of}"{did_you_mean(of, known)}'
            self.names.report((*path, "of"), why)
        elif "duration" in found:
            self.names.report((*path, "of"), f'"{of}" has a duration, and ends by itself', "shape")
