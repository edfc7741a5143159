"""Refs to the remote agents that a scenario or deployment file names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.bindings import consume_thing, remote_ref
from lmos_actors.system import RemoteAccess

if TYPE_CHECKING:
    from lmos_actors.actors import Ref
    from lmos_actors.bindings import ConsumedThing, Peers
    from lmos_actors.node import Node


class RemoteAgents:
    """The remote agents that a file names, for one node."""

    def __init__(self, node: Node) -> None:
        self._connections = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._by_access: dict[RemoteAccess, Peers] = {RemoteAccess(): self._connections.peers}
        self._peers_of: dict[str, Peers] = {}

    async def consume(self, name: str, source: str, thing: str | None, access: RemoteAccess) -> ConsumedThing:
        """Connect to an agent of another node. Raises TransportError, ConfigError.

        Agents with equal access data share connections; others do not.
        """
        peers = self._by_access.get(access)
        if peers is None:
            peers = self._connections.peers_with(tls=access.tls(), credentials=access.presented())
            self._by_access[access] = peers
        self._peers_of[name] = peers
        return await consume_thing(peers, source, thing=thing)

    def ref_to(self, cls: type[Any], name: str, other: ConsumedThing) -> Ref[Any]:
        """Return a ref to an agent of another node, by its name in the file."""
        return remote_ref(self._peers_of[name], cls, other.url, other.id)
