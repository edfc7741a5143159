"""The consumer of agents in processes: steps reach them at the addresses that the launcher has."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.actors import trace_context
from lmos_actors.approvals import NAME as APPROVALS, Approvals
from lmos_actors.bindings import http_of, remote_ref, remote_thing
from lmos_actors.deployment.agents import RemoteAgents
from lmos_actors.system import RemoteAccess

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.node import Node

CONNECT: Final = 5.0
"""Seconds that connecting may take; after that, a request fails for lack of a connection."""

_CHOSEN: Final[ContextVar[tuple[str, str] | None]] = ContextVar("process", default=None)
"""The path of an agent, and the URL of the process in which this task uses it."""


class ProcessClient:
    """The client of the processes of one run. `sent` is called with the number of each message it sends.

    `urls_of` returns the URLs of the ready processes that have the agent at a path. `next_url` returns one of
    these, in turn, or raises AgentUnavailable. A request goes to the process that its task has chosen.
    """

    def __init__(
        self,
        node: Node,
        urls_of: Callable[[str], list[str]],
        next_url: Callable[[str], str],
        access: RemoteAccess,
        sent: Callable[[int], None],
    ) -> None:
        connections = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._peers = connections.peers
        if access != RemoteAccess():
            self._peers = connections.peers_with(tls=access.tls(), credentials=access.presented())
        self._urls_of = urls_of
        self._next_url = next_url
        self._things: dict[tuple[str, str], ConsumedThing] = {}
        self.remotes = RemoteAgents(node)
        """The agents of other nodes that the file names."""
        trace_context(node.root.rt).noticed = sent

    def choose(self, path: str) -> str:
        """Choose the next process of the agent at a path for this task, and return its URL.

        Raises AgentUnavailable while no process is ready.
        """
        url = self._next_url(path)
        _CHOSEN.set((path, url))
        return url

    def _url_of(self, path: str) -> str:
        chosen = _CHOSEN.get()
        if chosen is not None and chosen[0] == path and chosen[1] in self._urls_of(path):
            return chosen[1]
        return self._next_url(path)

    def ref(self, cls: type[Any], path: str) -> Ref[Any]:
        """Return a ref to the agent at a path in the chosen process. Raises AgentUnavailable."""
        url = self._url_of(path)
        return remote_ref(self._peers, cls, f"{url}/ws", _id(url, path))

    def thing(self, path: str) -> ConsumedThing:
        """Return the untyped view of the agent at a path in the chosen process. Raises AgentUnavailable."""
        url = self._url_of(path)
        found = self._things.get((url, path))
        if found is None:
            found = self._things[url, path] = remote_thing(self._peers, f"{url}/ws", _id(url, path))
        return found

    def approvals(self, path: str) -> list[Ref[Approvals]]:
        """Return refs to the agents `approvals` of all ready processes that have the agent at a path."""
        return [
            remote_ref(self._peers, Approvals, f"{url}/ws", _id(url, APPROVALS))
            for url in self._urls_of(path)
        ]

    async def reach(self, path: str, *, is_chosen: bool) -> None:
        """Choose a process of the agent at a path, unless `is_chosen`, and connect to it.

        Waits up to `CONNECT` for the connection. Raises AgentUnavailable if no process is ready.
        """
        if not is_chosen:
            self.choose(path)
        with trio.move_on_after(CONNECT):
            await self.thing(path).ready()


def _id(url: str, path: str) -> str:
    """Return the id of the agent at a path, in the process with the given URL."""
    return f"{http_of(url)}/agents/{path.replace('/', '.')}"
