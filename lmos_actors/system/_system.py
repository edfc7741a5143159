"""The system of a file: its agents, their classes and their tree.

A scenario runs its steps on the system; a deployment runs the system as processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from msgspec import UNSET

from lmos_actors.actors import Agent
from lmos_actors.supervision import ChildSpec

from ._cell_names import is_durable_class, is_resuming_class
from .model import AgentEntry, Bridge, Elsewhere, PoolEntry, Root, Supervisor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.actors import Contract

    from ._used_tree import UsedTree
    from .model import AnyAgent, Supervising, Tree


@attrs.frozen
class System:
    """The agents of a file by name, and their tree.

    `classes` has the agents' classes by name (empty if not requested), `used` the tree of the project, if the
    file uses one. `beside` has the paths of agents of the file that are not in its tree.
    """

    agents: Mapping[str, AnyAgent]
    tree: Tree | None
    classes: dict[str, type]
    used: UsedTree | None = None
    beside: Mapping[str, str] = attrs.Factory(dict[str, str])

    def agent_class(self, name: str) -> Any:
        """Return the class of an agent, or of a member such as `peer/3`; `accepts` has checked it.

        If a function makes an agent of the project's tree, the class is the one that other agents expect.

        For a mock without `use`, the class has the affordances that its rules name; for a replay, those in
        its log.
        """
        used = {} if self.used is None else self.used.expected
        while name and name not in self.classes:
            if name in used:
                return used[name]
            name = name.rpartition("/")[0]
        return self.classes.get(name, Agent)

    def key_of(self, name: str) -> str | None:
        """Return the key of the state of a durable agent, or None if its path is the key."""
        return key_of(name, self.agents, self.used)

    def contract(self, name: str) -> Contract | None:
        """Return the contract of an agent, or None if its class is not known before the agent is made."""
        return getattr(self.agent_class(name), "__contract__", None)

    @property
    def has_durable_agents(self) -> bool:
        """Whether an agent of the file or its tree keeps its state in a store."""
        return any(map(is_durable_class, self._all_classes()))

    @property
    def has_resuming_agents(self) -> bool:
        """Whether an agent of the file or its tree stores its unfinished turns if there is a store."""
        return any(map(is_resuming_class, self._all_classes()))

    def _all_classes(self) -> tuple[Any, ...]:
        used = () if self.used is None else map(self.used.class_of, self.used.agents)
        return (*self.classes.values(), *used)

    @property
    def root(self) -> Root:
        """The root supervisor of the file, or a default root if the file has none; without populations.

        For a tree of the project, it has only the children that the file adds.
        """
        if self.tree is not None and self.tree.root is not UNSET:
            return self.tree.root
        if self.tree is not None:
            return Root(children=self.tree.children)
        own = (name for name, entry in self.agents.items() if not isinstance(entry, Elsewhere))
        return Root(children=tuple(own))

    @property
    def paths(self) -> dict[str, str]:
        """The paths in the tree of all agents and pools, by their names; without populations."""
        used = {} if self.used is None else dict.fromkeys(self.used.agents)
        return {**self.beside, **{path: path for path in used}, **paths(self.root)}

    @property
    def pools(self) -> dict[str, int]:
        """The sizes of pools, by their names."""
        own = {name: entry.size for name, entry in self.agents.items() if isinstance(entry, PoolEntry)}
        used = {} if self.used is None else self.used.pools
        return {name: size for name, size in used.items() if name not in self.agents} | own

    @property
    def remotes(self) -> dict[str, Elsewhere]:
        """The remote agents, on other nodes and in processes that the run starts, by name."""
        return {name: entry for name, entry in self.agents.items() if isinstance(entry, Elsewhere)}

    @property
    def bridges_out(self) -> dict[str, Bridge]:
        """The bridges to external servers, by name."""
        entries = self.agents.items()
        return {name: entry for name, entry in entries if isinstance(entry, Bridge) and entry.url is not None}


def paths(above: Supervising, prefix: str = "") -> dict[str, str]:
    """Return the tree paths of all agents below a supervisor of a file, by name."""
    found: dict[str, str] = {}
    for child in above.children:
        if isinstance(child, Supervisor):
            found |= paths(child, f"{prefix}{child.name}/")
        else:
            found[child] = prefix + child
    return found


def key_of(name: str, agents: Mapping[str, Any], used: UsedTree | None) -> str | None:
    """Return the key of the state of a durable agent, or None if its path is the key."""
    entry: Any = agents.get(name)
    if not isinstance(entry, AgentEntry) and used is not None:
        entry = used.agents.get(name)
    return entry.key if isinstance(entry, AgentEntry | ChildSpec) else None
