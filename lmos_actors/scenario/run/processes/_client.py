"""The consumer of agents in processes: steps reach them at the addresses that the launcher knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.actors import trace_context
from lmos_actors.bindings import http_of, remote_ref, remote_thing

from ..._remote_agents import RemoteAgents
from ...system import RemoteAccess

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.node import Node

CONNECT: Final = 5.0
"""Seconds that a connection may take; then a request finds that there is none."""


class ProcessClient:
    """Client of the processes of one run. `sent` is called with the number of each message it sends.

    `url_of` returns the URL of the process that has the agent at a path, or raises AgentUnavailable.
    """

    def __init__(
        self, node: Node, url_of: Callable[[str], str], access: RemoteAccess, sent: Callable[[int], None]
    ) -> None:
        connections = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._peers = connections.peers
        if access != RemoteAccess():
            self._peers = connections.peers_with(tls=access.tls(), credentials=access.presented())
        self._url_of = url_of
        self._things: dict[tuple[str, str], ConsumedThing] = {}
        self.remotes = RemoteAgents(node)
        """The agents of others that the file names."""
        trace_context(node.root.rt).noticed = sent

    def ref(self, cls: type[Any], path: str) -> Ref[Any]:
        """Return a ref to the agent at a path, in the process that is there. Raises AgentUnavailable."""
        url = self._url_of(path)
        return remote_ref(self._peers, cls, f"{url}/ws", _id(url, path))

    def thing(self, path: str) -> ConsumedThing:
        """Return the untyped view of the agent at a path, in the same way. Raises AgentUnavailable."""
        url = self._url_of(path)
        found = self._things.get((url, path))
        if found is None:
            found = self._things[url, path] = remote_thing(self._peers, f"{url}/ws", _id(url, path))
        return found

    async def reach(self, path: str) -> None:
        """Have a connection to the process of the agent at a path, or not, after some time.

        Raises AgentUnavailable while no process is ready.
        """
        with trio.move_on_after(CONNECT):
            await self.thing(path).ready()


def _id(url: str, path: str) -> str:
    """Return the id of the agent at a path."""
    return f"{http_of(url)}/agents/{path.replace('/', '.')}"
