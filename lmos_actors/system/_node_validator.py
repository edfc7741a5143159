"""Validation of the nodes or groups of a file, and the placement of agents on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET

from lmos_actors.files import listed, mapped

from ._cell_names import NAME, NAMED, USED
from .model import DIRECTORY, USER, Bridge, Supervisor, Tree

if TYPE_CHECKING:
    from lmos_actors.files import DataPath

    from ._cell_names import CellNames
    from .model import Supervising


@attrs.frozen
class Parts:
    """A division of the agents of a file: its key, the noun for one part, and the keys to its agents."""

    key: str
    noun: str
    agents: tuple[str, ...] = ()

    def members(self, raw: Any) -> Any:
        """Return the agents of one part of the file."""
        for key in self.agents:
            raw = mapped(raw).get(key)
        return raw


NODES: Final = Parts("nodes", "node")
GROUPS: Final = Parts("groups", "group", ("agents",))
OF_SYSTEM: Final = Parts("nodes", "group")
"""The groups of a deployment, as the nodes of a file that uses its system."""

NEEDED: Final = 'needs a network, which the file has not: "network: {}" makes one'


class NodeValidator:
    """The validator of `nodes` or `groups`, which also finds the node of a name; `names` gets mistakes."""

    def __init__(self, names: CellNames, parts: Parts = NODES) -> None:
        self.names = names
        self._parts = parts
        self._nodes = [node for node in mapped(names.cell.data.get(parts.key)) if node != USER]
        self._members: dict[str, tuple[str, DataPath]] = {}
        """The node and the place in the file of each member, by its name in the tree."""
        self._above: dict[str, str] = {}
        """The supervisor, other than the root, of each agent and supervisor, by name in the file's tree."""
        self._places: dict[str, DataPath] = {}
        """The places of supervisors in the file."""
        self._by_name: dict[str, str] = {}
        """The paths of the supervisors in a tree of the project, by all their names."""
        tree = names.made.get(("tree",))
        if isinstance(tree, Tree):
            self._take_tree(tree)

    @property
    def is_needed(self) -> bool:
        """Whether the file has groups, or a network (even one with mistakes)."""
        return self._parts is GROUPS or "network" in self.names.cell.data

    def _take_tree(self, tree: Tree) -> None:
        todo: list[tuple[Supervising | Tree, DataPath, str]] = [(tree, ("tree",), "")]
        if tree.root is not UNSET:
            todo = [(tree.root, ("tree", "root"), "")]
        seen: dict[str, None] = {}
        for above, path, name in todo:
            for index, child in enumerate(above.children):
                own = child if isinstance(child, str) else child.name
                if own in seen:
                    continue  # a mistake, which would lead to a circle
                seen[own] = None
                if name:
                    self._above[own] = name
                if isinstance(child, Supervisor):
                    here = (*path, "children", index)
                    self._places[own] = (*here, "name")
                    todo.append((child, here, own))
        if self.names.tree is not None:
            self._by_name = self.names.tree.supervisor_names
            self._places |= dict.fromkeys(self.names.tree.supervisors, USED)

    # ---- questions about nodes

    def node_of(self, name: str) -> str:
        """Return the node with a name: a node of the file, or an agent's own node."""
        if name in self._nodes or name == USER:
            return name
        place: str | None = self._by_name.get(name, name)
        while place is not None:
            if place in self._members:
                return self._members[place][0]
            place = self._above_of(place)
        entry = self.names.agents.get(name)
        if isinstance(entry, Bridge) and entry.is_beside_agent and entry.to is not None:
            led_to = self.names.agents.get(entry.to)
            return name if isinstance(led_to, Bridge) else self.node_of(entry.to)  # the former is a mistake
        base = self.names.base_of(name)
        return base if base in self.names.pools else name

    def _above_of(self, place: str) -> str | None:
        if place in self._above:
            return self._above[place]
        base = self.names.base_of(place)
        if base in self.names.places and base != place:
            return base
        above = place.rpartition("/")[0]
        return above if above in self._places else None

    def is_on_nodes(self, population: str) -> bool:
        """Return whether a population, or a part of it, is listed in `nodes`."""
        return any(self.names.base_of(member) == population for member in self._members)

    def all(self) -> list[str]:
        """Return all nodes; a population that is listed in no node counts as a node."""
        own = [name for name in self.names.places if name not in self.names.remotes]
        return list(dict.fromkeys(map(self.node_of, own)))

    def end(self, name: str, path: DataPath) -> bool:
        """Check the name of a node: a node of the file, an agent or population that is a node, or `user`."""
        if name in self._nodes or name == USER:
            return True
        if self.names.base_of(name) in self.names.places:
            return self.names.check_group(name, path, uses=False)
        if name == DIRECTORY:
            self.names.report(path, f'the network has no directory: "{DIRECTORY}: {{}}" in it makes one')
            return False
        return self.names.is_known(name, [*self._nodes, *self.names.places, USER], path, "node")

    # ---- `nodes`

    def check(self) -> None:
        """Check the nodes of the file, and that each supervisor is on one of them."""
        key, before = self._parts.key, len(self.names.mistakes)
        if key in self.names.cell.data and not self.is_needed:
            self.names.report((key,), f'"{key}" {NEEDED}', "shape", key=True)
        for node, raw in mapped(self.names.cell.data.get(key)).items():
            self._check_name(node, (key, node))
            for index, member in enumerate(listed(self._parts.members(raw))):
                if isinstance(member, str):
                    self._member(member, node, (key, node, *self._parts.agents, index))
        self._check_overlaps()
        if self.is_needed:
            self._check_bridges()
            if len(self.names.mistakes) == before:  # else it may be said already
                self._check_supervisors()

    def _check_name(self, node: str, here: DataPath) -> None:
        if node == USER:
            self.names.report(here, f'"{USER}" is the node of steps; another has another name', key=True)
        elif not NAME.fullmatch(node):
            self.names.report(here, f'"{node}" is not a name: {NAMED}', key=True)
        elif self._parts is NODES and (node in self.names.places or node in self._places):
            what = "an agent" if node in self.names.places else "a supervisor"
            self.names.report(here, f'"{node}" is {what}, and a node has a name of its own', key=True)

    def _member(self, member: str, node: str, here: DataPath) -> None:
        base = self.names.base_of(member)
        if base in self.names.pools and base != member:
            self.names.report(
                here, f'the members of the pool "{base}" are on one {self._parts.noun}: name the pool'
            )
            return
        if member in ("root", USER):
            why = (
                f'"{USER}" is a {self._parts.noun} of its own'
                if member == USER
                else f"the root is on no {self._parts.noun}: name what is below it"
            )
            self.names.report(here, why)
            return
        if not self.names.check_group(member, here, supervisors=True, uses=False):
            return
        place = self._by_name.get(member, member)
        if place in self._members:
            self._twice(member, place, here)
        self._members.setdefault(place, (node, here))

    def _twice(self, member: str, first: str, here: DataPath) -> None:
        node, path = self._members[first]
        where = self.names.document.place(path)
        more = "" if first in (member, self._by_name.get(member)) else f' with "{first}"'
        why = f'"{member}" stands in a {self._parts.noun} twice, first in "{node}"{more} at {where}'
        self.names.report(here, why, "shape")

    def _check_overlaps(self) -> None:
        """Report a member of a node that is part of another member."""
        for member, (_, here) in self._members.items():
            above = self._above_of(member)
            while above is not None:
                if above in self._members:
                    self._twice(member, above, here)
                    break
                above = self._above_of(above)

    # ---- supervisors

    def _check_supervisors(self) -> None:
        """Report a supervisor (other than the root) whose agents are on several nodes."""
        below: dict[str, list[str]] = {}
        noun = self._parts.noun
        for name in self.names.names:
            top = self._top(name)
            if top is not None:
                below.setdefault(top, []).append(name)
        for supervisor, agents in below.items():
            nodes = list(dict.fromkeys(map(self.node_of, agents)))
            if len(nodes) > 1:
                why = (
                    f'the children of "{supervisor}" are on several {noun}s, "{nodes[0]}" and "{nodes[1]}", '
                    f'and a supervisor is where those are that it restarts: put "{supervisor}" on one {noun}'
                )
                self.names.report(self._places[supervisor], why, "shape")

    def _top(self, name: str) -> str | None:
        """Return the topmost supervisor below the root that an agent belongs to."""
        found, above = None, self._above_of(name)
        while above is not None:
            found, above = above, self._above_of(above)
        return found

    def _check_bridges(self) -> None:
        for name, entry in self.names.agents.items():
            if isinstance(entry, Bridge) and entry.is_beside_agent and name in self._members:
                node, here = self._members[name]
                if node != self.node_of(str(entry.to)):
                    why = f'"{name}" is on the node of its agent "{entry.to}", which is not "{node}"'
                    self.names.report(here, why, "shape")
