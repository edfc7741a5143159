"""The nodes of the network of a file, by their names.

A node is an entry in `nodes:`, or has the name of an agent that no entry contains. Agents started by an agent
are on the node of that agent. The members of a pool are on the node of the pool, and a bridge to a relay is
on the node of its agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.system import supervisor_paths
from lmos_actors.system.model import HUB, USER, Bridge

from ...model import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Slot

    from ...format import Cell


class NodeNames:
    """The nodes of one file: the nodes in `nodes:`, and one for each agent that is on none of those."""

    def __init__(self, cell: Cell) -> None:
        scenario = cell.scenario
        self._populations: dict[str, int] = {}
        if isinstance(scenario, Simulation):
            self._populations = {entry.id: entry.count for entry in scenario.population}
        self._paths: Mapping[str, str] = cell.system.paths
        if scenario.relay is not None:
            self._paths = {**self._paths, HUB: HUB}
        self._names = {path: name for name, path in self._paths.items()}
        supervisors = supervisor_paths(cell.system.root, cell.system.used)
        self._nodes: Mapping[str, tuple[str, ...]] = scenario.nodes
        self._node_of: dict[str, str] = {}
        for node, members in scenario.nodes.items():
            for member in members:
                place = self._paths.get(member) or supervisors.get(member, member)
                self._node_of[place] = node
        for name, entry in scenario.agents.items():
            if isinstance(entry, Bridge) and entry.is_beside_agent and name in self._paths:
                self._node_of[self._paths[name]] = self.of_path(self._paths[str(entry.to)])

    def of_path(self, path: str) -> str:
        """Return the node of the agent at a path."""
        place, own = path, ""
        while place:
            found = self._node_of.get(place)
            if found is not None:
                return found
            above, _, number = place.rpartition("/")
            if not own:
                own = self._names.get(place, place if above in self._populations and number else "")
            place = above
        return own or path

    def members_on(self, node: str, population: str, members: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the agents of a population that are on a node."""
        above, _, number = node.rpartition("/")
        if above == population and node not in self._nodes and number.isdecimal():
            return members[int(number) : int(number) + 1] if self.of_path(node) == node else ()
        if node not in self._nodes and node != population:
            return ()
        return tuple([slot for slot in members if self.of_path(slot.path) == node])

    def named(self, name: str) -> list[str]:
        """Return the nodes to which a name refers: one node, an agent's node, or all of a population."""
        if name in self._nodes or name == USER:
            return [name]
        count = self._populations.get(name)
        if count is not None:
            return list(dict.fromkeys(self.of_path(f"{name}/{number}") for number in range(count)))
        return [self.of_path(self._paths.get(name, name))]

    def selects(self, name: str) -> Callable[[str], bool]:
        """Return a function that tests whether a name refers to a node; it does not search a population."""
        if name in self._populations and name not in self._node_of:
            prefix = f"{name}/"
            return lambda node: node.startswith(prefix)
        return frozenset(self.named(name)).__contains__

    def all(self) -> list[str]:
        """Return all nodes of the file."""
        names = dict.fromkeys((*self._paths, *self._populations))
        return list(dict.fromkeys(node for name in names for node in self.named(name)))
