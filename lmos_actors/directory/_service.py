"""The directory that a node hosts, as a service of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.actors import AgentQuery, Ref, link_to
from lmos_actors.node import NodeService
from lmos_actors.supervision import place_at

from ._hosting import NAME, OwnDirectory, directory_routes, directory_spec
from ._options import DirectoryOptions

if TYPE_CHECKING:
    from os import PathLike

    from starlette.routing import BaseRoute

    from lmos_actors.actors import Runtime
    from lmos_actors.node import OwnAgents, ServiceHome, View
    from lmos_actors.supervision import ChildSpec, Supervisor

    from ._agent import ThingDirectory


class DirectoryService(NodeService):
    """The directory of a node: its agent, right below the root, and its API over HTTP."""

    name = "directory"
    hosts_directory = True
    unregistered = (NAME,)

    def __init__(self, options: DirectoryOptions | str | PathLike[str] | bool) -> None:
        self._options = DirectoryOptions.of(options)

    def children(self) -> tuple[ChildSpec[ThingDirectory]]:
        """Return the spec of the directory's agent."""
        return (directory_spec(self._options, NAME),)

    def begin(self, rt: Runtime, root: Supervisor) -> None:
        """Store the root of the node's tree, and create a ref to the directory's agent."""
        self._root = root
        self._ref: Ref[Any] = Ref(link_to(rt, AgentQuery(None, NAME), None, None))

    def own_agents(self) -> OwnAgents:
        """Return the name of the agent, which stores data, and the token of the deployment's nodes."""
        return {"storage_agents": (NAME,), "shared": self._options.takeover_token}

    def directory(self, url: str) -> OwnDirectory:
        """Return the directory, which the node uses through its agent; see `NodeService.directory`."""
        token = self._options.takeover_token
        return OwnDirectory(self._ref, url, None if token is None else token.name)

    def open(self, home: ServiceHome) -> None:
        """Store the node's side of the service, which has the addresses at which the node listens."""
        self._home = home

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the directory's API."""
        home = self._home
        return directory_routes(
            self._ref,
            self._options,
            name=NAME,
            bases=home.bases,
            security=home.guard.security,
            new_id=home.rt.entropy.new_id,
            server=home.server,
        )

    def views(self) -> dict[str, View]:
        """Return the view `directories`: the number of descriptions, and the revision."""
        return {"directories": self._view}

    def _view(self) -> dict[str, Any]:
        agent = getattr(place_at(self._root, NAME), "agent", None)
        total, revision = getattr(agent, "total", None), getattr(agent, "revision", None)
        return {} if total is None else {"hosted": {"total": total, "revision": revision}}
