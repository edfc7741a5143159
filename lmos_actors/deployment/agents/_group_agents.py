"""The agents of one group of a deployment, on the node of the group's process.

A ref to an agent of the same group leads to the agent in this process. An agent of another group is looked up
by name and class in the directories that this group uses; if several processes run it, they are used in turn.
An agent with a key is looked up by the key, as any process of its group may run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.actors import Ref
from lmos_actors.bindings import is_private
from lmos_actors.errors import LmosActorsError, StartFailed
from lmos_actors.supervision import Tree, standing_by
from lmos_actors.system import RemoteAccess, TreeBuilder, root_spec, start_spec

from ._group_names import GroupNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.node import Node
    from lmos_actors.supervision import SupervisorSpec

    from ..files import DeploymentFile


UNREGISTERED: Final = ("directory", "relay")
"""Agents of a node that are never in a directory."""


class GroupAgents:
    """The agents of one group; `name` is the group's name."""

    def __init__(self, file: DeploymentFile, name: str) -> None:
        self._file = file
        self._name = name
        self._group_of = GroupNames(file.deployment, file.system)

    @property
    def root(self) -> SupervisorSpec:
        """The specification of the root supervisor, without children, which `start` adds."""
        return root_spec(self._file.system)

    async def start(self, node: Node) -> None:
        """Start the agents in the order of the tree. Raises StartFailed.

        Then wait for up to 2 seconds until they are registered in the directories of the group.
        """
        refs = _Refs(node, self._file, self._name, self._group_of, await self._remotes(node))
        tree = TreeBuilder(self._file.system, refs, {})
        for child in tree.children(lambda name: self._group_of.path(name) == self._name):
            await start_spec(node, standing_by(child))  # of several processes one runs an agent with a key
        # Wait until the agents are in the directories of the group, but not long: one may be away.
        served = (link for link, _ in Tree(node.root).every(None, None) if not is_private(link))
        started = (link for link in served if getattr(link, "incarnation", 1))  # an optional one may be away
        wanted = sum(link.path not in UNREGISTERED for link in started)
        with trio.move_on_after(2.0):
            while any(  # noqa: ASYNC110 -- registrars wake nobody
                each.agents + len(each.refused) < wanted for each in node.registrations
            ):
                await trio.sleep(0.01)

    async def _remotes(self, node: Node) -> dict[str, Ref[Any]]:
        """Connect to the remote agents that the file names."""
        system, path = self._file.system, self._file.document.path
        folder, found = Path() if path is None else path.parent, dict[str, Ref[Any]]()
        if system.remotes:
            from ._remote_agents import RemoteAgents  # few files need it

            others = RemoteAgents(node)
            for name, entry in system.remotes.items():
                source = entry.url or str(folder / str(entry.description))
                try:
                    access = RemoteAccess().of(entry, folder)
                    thing = await others.consume(name, source, entry.thing, access)
                except LmosActorsError as error:
                    raise StartFailed(name, str(error)) from error
                found[name] = others.ref_to(system.agent_class(name), name, thing)
        return found


@attrs.define(eq=False)
class _Refs(Mapping[str, Any]):
    """The refs for `$(agents.NAME)`, made when they are needed."""

    node: Node
    file: DeploymentFile
    group: str
    groups: GroupNames
    remotes: Mapping[str, Ref[Any]]

    def __getitem__(self, name: str) -> Ref[Any]:
        if name in self.remotes:
            return self.remotes[name]
        system = self.file.system
        cls, path = system.agent_class(name), system.paths[name]
        group = self.groups.path(path)
        key = self.file.system.key_of(name)
        if key is not None:
            return self.node.find(cls, id=key)
        if group is None or group == self.group:
            return self.node.find(cls, path)
        several = self.file.deployment.groups[group].replicas > 1
        # of an agent that a function makes, only the class is known that it is taken for
        contract: Any = getattr(cls, "__contract__", None) if name in system.classes else None
        title = None if contract is None else str(contract.title)
        return self.node.find(cls, path, title=title, spread="round_robin" if several else None)

    def __iter__(self) -> Iterator[str]:
        return iter((*self.file.system.paths, *self.remotes))

    def __len__(self) -> int:
        return len(self.file.system.paths) + len(self.remotes)
