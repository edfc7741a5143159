"""The connection from a run to its node, for the worlds `wire` and `websocket`.

All requests of steps and agents go over one connection. It is opened before the first agent starts, so that
every remote ref is usable from the beginning. If the file has a network, each pair of nodes has a separate
connection (`_network.py`), and this one is for steps.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.actors import trace_context
from lmos_actors.bindings import http_of, remote_ref, remote_thing
from lmos_actors.deployment.agents import RemoteAgents
from lmos_actors.errors import AgentError
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.system.model import is_real
from lmos_actors.transport import MemoryNetwork, TcpNetwork

from ..._worlds import LISTEN_ADDRESSES, wait_until_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Ref
    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.node import Node
    from lmos_actors.simulation.network import Place

MOST: Final = 1 << 24
"""Maximum number of requests and subscriptions on the connection, which all agents of the file share."""

HOPS: Final = 4
"""Round trips of `wait_until_idle` in real time: the longest chain of messages that it covers."""


def node_network(world: str) -> MemoryNetwork | None:
    """Return the network of a simulated world; None if the world uses this machine's network."""
    return None if is_real(world) else MemoryNetwork()


def node_options(world: str, network: MemoryNetwork | None) -> dict[str, Any]:
    """Return the arguments of `open_node` for a world that reaches its agents over a connection."""
    session = SessionOptions(max_open=MOST, max_listening=MOST, max_open_bytes=1 << 30)
    return {"listen": LISTEN_ADDRESSES[world], "session": session, "network": network or TcpNetwork()}


def thing_id(node: Node, path: str) -> str:
    """Return the id of the agent at a path on a node."""
    return f"{http_of(node.urls[0])}/agents/{path.replace('/', '.')}"


def place_of(node: Node, network: MemoryNetwork) -> Place:
    """Return the place to which connections in a simulated network lead: the sockets of a node."""
    from lmos_actors.simulation.network import Place  # only files with a network need it

    connections = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
    return Place(connections, network, f"{node.urls[0]}/ws", partial(thing_id, node))


class NodeClient:
    """The client of the node of one run. `sent` is called with the number of each message it sends."""

    def __init__(self, node: Node, sent: Callable[[int], None]) -> None:
        connections = node._connections  # pyright: ignore[reportPrivateUsage] # no user has a need of it
        self._peers = connections.peers
        self.remotes = RemoteAgents(node)
        """The agents of other nodes that the file names."""
        self._url = f"{node.urls[0]}/ws"
        self._id = partial(thing_id, node)
        self._is_real = node.root.rt.real
        self._absent = self.thing("absent")
        trace_context(node.root.rt).noticed = sent

    async def open(self) -> None:
        """Open the connection. Raises AgentUnavailable."""
        await self._absent.ready()

    def ref(self, cls: type[Any], path: str) -> Ref[Any]:
        """Return a ref to the agent at a path, which need not exist yet."""
        return remote_ref(self._peers, cls, self._url, self._id(path))

    def thing(self, path: str) -> ConsumedThing:
        """Return the untyped view of the agent at a path."""
        return remote_thing(self._peers, self._url, self._id(path))

    async def wait_until_idle(self) -> None:
        """Wait until all messages sent so far have been delivered, with their immediate effects."""
        if not self._is_real:
            await wait_until_idle()
            return
        for _ in range(HOPS):
            with suppress(AgentError):  # no such agent exists; the answer comes after all earlier messages
                await self._absent.read("anything")
