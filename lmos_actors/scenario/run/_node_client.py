"""How the agents of a run are reached where everything goes over a wire: through the door of their own node.

One connection carries all of it. It is there before the first agent, so no name leads nowhere.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.actors import trace_context
from lmos_actors.bindings import http_of, remote_ref, remote_thing
from lmos_actors.errors import AgentError
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import TcpNetwork

from .._worlds import LISTEN_ADDRESSES, is_real, wait_until_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.node import Node

MOST: Final = 1 << 24
"""Requests and listenings that one connection may have: it carries those of all agents of the file."""

HOPS: Final = 4
"""In real time: as many messages, each of which comes of the one before, are waited for."""


def node_options(world: str) -> dict[str, Any]:
    """Return what `open_node` is to be told in a world whose agents are behind a door."""
    session = SessionOptions(max_open=MOST, max_listening=MOST, max_open_bytes=1 << 30)
    network = TcpNetwork() if is_real(world) else None
    return {"listen": LISTEN_ADDRESSES[world], "session": session, "network": network}


class NodeClient:
    """The way to the agents of one run. `sent` is told the number of each message that is sent this way."""

    def __init__(self, node: Node, sent: Callable[[int], None]) -> None:
        self._peers = node._connections.peers  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._base = node.urls[0]
        self._is_real = node.root.rt.real
        self._nobody = self.thing("nobody")
        trace_context(node.root.rt).noticed = sent

    async def open(self) -> None:
        """Connect. Raises AgentUnavailable."""
        await self._nobody.ready()

    def _id(self, path: str) -> str:
        return f"{http_of(self._base)}/agents/{path.replace('/', '.')}"

    def ref(self, cls: type[Any], path: str) -> Ref[Any]:
        """Return a ref to the agent at a path, be it there or not."""
        return remote_ref(self._peers, cls, f"{self._base}/ws", self._id(path))

    def ref_to(self, cls: type[Any], other: ConsumedThing) -> Ref[Any]:
        """Return a ref to somebody else's agent."""
        return remote_ref(self._peers, cls, other.url, other.id)

    def thing(self, path: str) -> ConsumedThing:
        """Return the same by the names that its consumers know."""
        return remote_thing(self._peers, f"{self._base}/ws", self._id(path))

    async def wait_until_idle(self) -> None:
        """Wait until what was sent before has arrived, and what came of it at once."""
        if not self._is_real:
            await wait_until_idle()
            return
        for _ in range(HOPS):
            with suppress(AgentError):  # there is no such agent: said after all that came before
                await self._nobody.read("anything")
