"""A directory in a simulated network: agents register in it, and agents of other nodes find them.

The directory is the agent that a real node hosts, and is on a node like every agent. Each node has the
registrar and the finder of a real node, with the same constants. Their requests to the directory go over the
links of their node, as messages to an agent, with the time limit of a request over HTTP.

Two things are unusual but intended:

- **Agents that start before the run begins are registered at once**, whatever the state of the links.
  In the same way, a connection exists when it is first used (`has_begun`). A run begins in a network that
  has existed for a while.
- **A node is not an agent**, and yet sends requests. It is in `CURRENT` like an agent with a task
  (`NodePlace`), so that logs and diagrams name it as the sender.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio

from lmos_actors._core import Bounded
from lmos_actors.actors import CURRENT, OwnTask, Ref
from lmos_actors.bindings import Descriptions, Exposure, http_of, names_of, path_named
from lmos_actors.directory import OwnDirectory
from lmos_actors.discovery import MAX_AGENTS, REQUEST_SECONDS, AgentFinder, Lookup, Registrar, ServedAgents
from lmos_actors.errors import ConfigError
from lmos_actors.supervision import Tree
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lmos_actors.actors import AgentQuery, Spread
    from lmos_actors.bindings import RemoteLink
    from lmos_actors.directory import ThingDirectory
    from lmos_actors.discovery import ReplicaLink
    from lmos_actors.node import Node
    from lmos_actors.persistence import MemoryStore
    from lmos_actors.protocol.td import Description
    from lmos_actors.simulation.network import NodeNetwork

HOST: Final = "{}.world"
"""The host of a node in descriptions, which is not a name of this machine."""


class NodePlace:
    """A node in the place of an agent, as the sender of the node's requests."""

    __slots__ = ("path",)

    number = math.inf
    """Its number in the order of waiting graphs: after all agents."""

    output_gate: ClassVar[None] = None
    """A node stores nothing, so its messages wait for no commit."""

    def __init__(self, path: str) -> None:
        self.path = path


class NetworkDirectory:
    """The registrars and finders of the nodes of a simulated network, and the directory that they use.

    `ref` is the ref to the directory, an agent of `node` that keeps its registrations in `store`. `label`
    returns the node of the agent at a path. `start_soon` starts a task of the real node. `ttl` is the time to
    live of registrations in seconds.
    """

    def __init__(
        self,
        node: Node,
        network: NodeNetwork,
        ref: Ref[ThingDirectory],
        *,
        store: MemoryStore,
        label: Callable[[str], str],
        start_soon: Callable[..., None],
        ttl: float,
        has_begun: bool,
    ) -> None:
        self.has_begun = has_begun
        """Whether registrations go over links; see the module docstring."""
        self.network = network
        self.near = ref
        self._store = store
        self.place = label(ref.path)
        """The node of the directory."""
        self.url = http_of(_base(self.place))
        self._label = label
        self._start_soon = start_soon
        self._ttl = ttl
        self._rt = rt = node.root.rt
        self._root = node.root
        self._tree = Tree(node.root)
        self._registrars: dict[str, Registrar] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._finders: dict[str, AgentFinder] = {}
        self._known: Bounded[str, Any] = Bounded(MAX_AGENTS)  # the last links by path, also of lost agents
        self._near_spread = rt.spread
        rt.seeker, rt.spread = self, self._spread
        rt.population.watchers.append(self._changed)

    # ---- registering

    def register(self, nodes: Iterable[str]) -> None:
        """Begin to register the agents of nodes, including agents that start later."""
        for node in nodes:
            served = ServedAgents(self._descriptions(node), partial(self._is_registered, node))
            registrar = Registrar(self._rt, LinkedDirectory(self, node), served, self._ttl, node)
            scope = self._scopes[node] = trio.CancelScope()
            self._registrars[node] = registrar
            self._start(node, self._run, registrar, scope, name=f"registration of {node}")

    @staticmethod
    async def _run(registrar: Registrar, scope: trio.CancelScope) -> None:
        with scope:
            await registrar.run()

    def close(self) -> None:
        """End all registrars without removing registrations, because the network ends."""
        for scope in self._scopes.values():
            scope.cancel("the network has ended")

    def end_node(self, node: str) -> None:
        """End the registrar and the finder of a node that ends now; its registrations expire later."""
        self._registrars.pop(node, None)
        self._finders.pop(node, None)
        scope = self._scopes.pop(node, None)
        if scope is not None:
            scope.cancel("its node has ended")

    def begin_node(self, node: str) -> None:
        """Begin to register the agents of a node that has restarted.

        If the directory is on that node, it loses its data.
        """
        if node == self.place:
            self._store.wipe()
        self.register((node,))

    def _is_registered(self, node: str, path: str) -> bool:
        return path != self.near.path and self._label(path) == node

    def _changed(self, path: str) -> None:
        found = self._tree.at(path)
        if found is not None:
            self._known[path] = found
        registrar = self._registrars.get(self._label(path))
        if registrar is not None:
            registrar.changed(path)

    def _descriptions(self, node: str) -> Descriptions:
        base = _base(node)
        return Descriptions(Exposure(self._root, (http_of(base),)), (base,))

    def _start(self, node: str, async_fn: Callable[..., Awaitable[object]], /, *args: Any, name: str) -> None:
        """Start a task that acts as a node of the network."""
        self._start_soon(_of_node, node, async_fn, args, name=name)

    # ---- finding

    def beyond(self, sought: AgentQuery) -> ReplicaLink | None:
        """See `RemoteLookup`. It serves only lookups by agents, and does each from the agent's node."""
        return None if sought.node is None else self._finder(sought.node).beyond(sought)

    def _spread(self, sought: AgentQuery, by: Spread, key: str | None) -> Any:
        if sought.node is None:
            assert self._near_spread is not None
            return self._near_spread(sought, by, key)
        return self._finder(sought.node).spread(sought, by, key)

    def _finder(self, node: str) -> AgentFinder:
        found = self._finders.get(node)
        if found is None:
            ours, exposure = endpoint_of(_base(node)).authority, self._descriptions(node).catalogue
            directories = (LinkedDirectory(self, node),)
            lookup = Lookup(
                self._rt,
                partial(self._link_to, node),
                directories,
                partial(self._start, node),
                lambda: (ours,),
            )
            found = self._finders[node] = AgentFinder(
                self._rt, lookup, partial(_id_of, exposure), lambda _: None
            )
        return found

    def _link_to(self, node: str, _cls: Any, description: Description, source_url: str) -> RemoteLink:
        """Return the link from a node to a described agent, which may no longer exist."""
        path = path_named(next(iter(names_of(description, source_url)), ""))
        link = self._tree.at(path) or self._known.get(path)
        if link is None:
            raise ConfigError(f"there is no agent {path!r}", description.id or "")
        return self.network.toward(node, link)


class LinkedDirectory:
    """The view that one node has of the directory: near on the directory's node, over links elsewhere."""

    def __init__(self, shared: NetworkDirectory, node: str) -> None:
        self._shared = shared
        self._node = node
        self._near = OwnDirectory(shared.near, shared.url)
        self._far: OwnDirectory | None = None

    @property
    def url(self) -> str:
        """The URL of the directory, used in messages."""
        return self._shared.url

    def _there(self) -> OwnDirectory:
        shared = self._shared
        if self._node == shared.place:
            return self._near
        if self._far is None:
            link = shared.network.toward(self._node, shared.near._link)  # pyright: ignore[reportPrivateUsage]
            far: Ref[ThingDirectory] = Ref(link)
            self._far = OwnDirectory(far.within(REQUEST_SECONDS), shared.url)
        return self._far

    def _registry(self) -> OwnDirectory:
        return self._there() if self._shared.has_begun else self._near

    async def put(self, thing_id: str, text: bytes, ttl: float) -> None:
        """See `Directory`."""
        await self._registry().put(thing_id, text, ttl)

    async def renew(self, thing_id: str) -> bool:
        """See `Directory`."""
        return await self._registry().renew(thing_id)

    async def remove(self, thing_id: str) -> None:
        """See `Directory`."""
        await self._registry().remove(thing_id)

    async def find(self, query: str | None, most: int) -> list[Any]:
        """See `Directory`."""
        return await self._there().find(query, most)

    async def aclose(self) -> None:
        """Do nothing: the connections belong to the nodes."""


async def _of_node(node: str, async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
    CURRENT.set(OwnTask(NodePlace(node)))  # in this task alone
    await async_fn(*args)


def _base(node: str) -> str:
    """Return the address of a node that is used in descriptions."""
    return f"ws://{HOST.format(node.replace('/', '.'))}"


def _id_of(exposure: Any, link: Any) -> str:
    exposed = exposure.named(link.path.replace("/", "."))
    found: str = link.path if exposed is None else exposed.thing_id
    return found
