"""The worlds that the table is run in."""

from __future__ import annotations

import json
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import NotAllowed, describe, open_node, simulate
from lmos_actors.bindings import ContractWarning
from lmos_actors.facades import RelayBridge, join_relay
from lmos_actors.links import LinkRules, Links
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.protocol.td import dump, with_forms
from lmos_actors.security import Access, Security
from lmos_actors.simulation.network import USER, NodeNetwork, Place, SimulatedNetwork, WireNetwork
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.facades.relays import HUBS, URL
from tests.wire_conformance.agents import Helper, start_helper, tree
from tests.wire_conformance.bench import LIMIT, Bench, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node, Ref
    from lmos_actors.transport import Network
    from tests.wire_conformance.bench import Behaviour


class Near(World):
    """The agents are in the same node."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        for ref in self.node.agents():
            if ref.path == name:
                return ref
        return self.node.find(cls, name)


class Far(World):
    """The agents are at the other end of a connection."""

    far = True

    def __init__(self, node: Node, base: str) -> None:
        self.node = node
        self.base = base

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        return await self.node.consume(cls, f"{self.base}/agents/{name}")


async def carried_out(row: Behaviour, world: World, helper: Ref[Helper]) -> Any:
    """Carry out one row with an agent of its own."""
    name = await helper.invoke(Helper.begin, row.kind.__name__)
    with trio.fail_after(LIMIT):
        return await row.run(Bench(world, helper, name))


async def over(base: str, row: Behaviour) -> Any:
    """Carry out a row with far refs."""
    async with open_node(tree()) as node:
        world = Far(node, base)
        got = await carried_out(row, world, await world.ref(Helper, "helper"))
        assert node.connection_failures == ()
        return got


def near(row: Behaviour) -> Any:
    """Carry out a row with near refs, on virtual time."""

    async def main() -> Any:
        async with open_node(tree(), store="memory:") as node:
            return await carried_out(row, Near(node), await start_helper(node))

    return simulate(main)


def in_memory(row: Behaviour, session: SessionOptions | None = None) -> Any:
    """Carry out a row with refs of another node, over streams in memory, on virtual time."""

    async def main() -> Any:
        async with open_node(tree(), listen="ws://here:0", session=session, store="memory:") as node:
            await start_helper(node)
            got = await over(node.urls[0], row)
            assert node.connection_failures == ()
            return got

    return simulate(main)


class OverNetwork(Near):
    """The agents are on another node of a simulated network; senders that rows start are beside the user."""

    far = True

    def __init__(self, node: Node, network: NodeNetwork) -> None:
        super().__init__(node)
        self.network = network

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        return self.network.ref(await super().ref(cls, name))


def label(path: str) -> str:
    """Name the node of an agent."""
    return USER if "sender" in path.lower() else "there"


def lines(node: Node, latency: float) -> Links:
    """Give lines that all take as long."""
    rules = LinkRules(latency=lambda _: latency) if latency else LinkRules()
    return Links(lambda *_: rules, node.root.rt.entropy.stream)


def over_network(latency: float, row: Behaviour) -> Any:
    """Carry out a row over a simulated network, on virtual time."""

    async def main() -> Any:
        async with open_node(tree(), store="memory:") as node:
            await start_helper(node)
            network = SimulatedNetwork(node.root.rt, lines(node, latency), label)
            world = OverNetwork(node, network)
            return await carried_out(row, world, await world.ref(Helper, "helper"))

    return simulate(main)


def over_wires(latency: float, row: Behaviour) -> Any:
    """Carry out a row over a simulated network with connections, on virtual time."""

    async def main() -> Any:
        memory = MemoryNetwork()
        async with open_node(tree(), listen="ws://here", network=memory, store="memory:") as node:
            await start_helper(node)
            base = node.urls[0]
            named = f"{base.replace('ws:', 'http:')}/agents/"
            place = Place(node._connections, memory, f"{base}/ws", lambda path: named + path)
            network = WireNetwork(node.root.rt, lines(node, latency), label, place, far_user=True)
            world = OverNetwork(node, network)
            got = await carried_out(row, world, await world.ref(Helper, "helper"))
            assert node.connection_failures == ()
            return got

    return simulate(main)


class OverHttp(Far):
    """The agents are at the other end too, and their descriptions tell of HTTP alone."""

    keeps_order = False

    def __init__(self, node: Node, base: str) -> None:
        super().__init__(node, base)
        self.papers: dict[str, bytes] = {}
        """The descriptions that `serve` has, by the path at which they are."""

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        if cls is Helper:
            return await super().ref(cls, name)
        place = f"/{len(self.papers)}"
        self.papers[place] = json.dumps(over_http(cls, name, self.base)).encode()
        with warnings.catch_warnings(action="ignore", category=ContractWarning):  # of what HTTP has not
            return await self.node.consume(cls, PAPERS + place)

    async def serve(self, network: Network, task_status: trio.TaskStatus[None]) -> None:
        """Serve the descriptions, at `PAPERS`."""
        listener = await network.listen(endpoint_of(PAPERS))
        task_status.started()
        while True:
            stream, _ = await listener.accept()
            async with stream:
                body = self.papers[(await stream.receive_some(65_536)).split(b" ")[1].decode()]
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {TD_JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
                await stream.send_all(head.encode() + body)


PAPERS = "http://papers"
TD_JSON = "application/td+json"


def over_http(cls: type[Any], name: str, base: str) -> Any:
    """Describe an agent of a node as if the node spoke HTTP alone."""
    described = describe(cls, id=f"{base.replace('ws:', 'http:')}/agents/{name}")
    return without_sockets(dump(with_forms(described, name, [base])))


def is_unreachable(described: Any) -> bool:
    """Return whether an affordance has no form left."""
    return isinstance(described, dict) and described.get("forms") == []


def without_sockets(described: Any) -> Any:
    """Leave out the forms that lead to a WebSocket."""
    match described:
        case {"href": str(href)} if href.startswith("ws"):
            return None
        case dict():
            found = {key: without_sockets(each) for key, each in described.items()}
            # what goes over sockets alone, as input streams do, is not there
            return {key: each for key, each in found.items() if not is_unreachable(each)}
        case list():
            return [found for each in described if (found := without_sockets(each)) is not None]
        case _:
            return described


def http(row: Behaviour) -> Any:
    """Carry out a row over the HTTP forms of the agent, in memory, on virtual time."""

    async def main() -> Any:
        async with (
            open_node(tree(), listen="ws://here:0", store="memory:") as served,
            open_node(tree()) as node,
            trio.open_nursery() as nursery,
        ):
            await start_helper(served)
            world = OverHttp(node, served.urls[0])
            await nursery.start(world.serve, node._connections.peers.network)
            helper = await world.ref(Helper, "helper")
            try:
                got = await carried_out(row, world, helper)
            except NotAllowed as error:  # HTTP has no such thing
                got = [type(error).__name__]
            nursery.cancel_scope.cancel()
        assert node.connection_failures == served.connection_failures == ()
        return got

    return simulate(main)


class OverRelay(Far):
    """The agents are on a relay, where one of this node is, too."""

    listenings = 2

    async def ref(self, cls: type[Any], name: str) -> Ref[Any]:
        if cls is Helper:
            return await super().ref(cls, name)
        found = self.node.find(cls, name)
        with trio.move_on_after(5):
            await found.ready()
        return found

    async def settled(self) -> None:
        """Wait until what was sent has come, over both connections to the relay."""
        await trio.sleep(0.01)


WAITS = "waits for ever"


def over_relay(hub: str, row: Behaviour) -> Any:
    """Carry out a row with refs over a relay, in memory, on virtual time."""

    async def main() -> Any:
        name = f"{row.kind.__name__.lower()}-1"  # as the helper calls it
        security = Security(access={name: Access(invoke="anyone")})
        async with HUBS[hub](name, "mine") as (network, tokens):
            bridge = RelayBridge(url=URL, agent=name, credentials=tokens[name])
            served_there = open_node(
                tree(),
                listen="ws://here:0",
                store="memory:",
                network=network,
                bridges=[bridge],
                security=security,
            )
            async with served_there as served, open_node(tree(), network=network) as node:
                await start_helper(served)
                await join_relay(node, URL, id="mine", credentials=tokens["mine"], peers=True)
                got = await seen(row, OverRelay(node, served.urls[0]))
                assert node.connection_failures == served.connection_failures == ()
                return got

    return simulate(main)


async def seen(row: Behaviour, world: World) -> Any:
    """Return what comes of a row; where something is not carried, and the row waits for it, that alone."""
    helper = await world.ref(Helper, "helper")
    bench = Bench(world, helper, await helper.invoke(Helper.begin, row.kind.__name__))
    try:
        with trio.fail_after(LIMIT):
            return await row.run(bench)
    except NotAllowed as error:
        return [bench.error(error)]
    except (trio.TooSlowError, ExceptionGroup):
        return [bench.refused or WAITS]


def plain(row: Behaviour) -> Any:
    """Carry out a row with refs of a node that offers none of our extensions."""
    return in_memory(row, SessionOptions(offers=()))


WORLDS: dict[str, Callable[[Behaviour], Any]] = {
    "near": near,
    "memory": in_memory,
    "plain": plain,
    "http": http,
    "network": partial(over_network, 0.0),
    "slow network": partial(over_network, 0.05),
    "wires": partial(over_wires, 0.0),
    "slow wires": partial(over_wires, 0.05),
    **{f"relay {hub}": partial(over_relay, hub) for hub in HUBS},
}
"""How a row is carried out where one process is enough."""


def over_tcp(base: str, row: Behaviour) -> Any:
    """Carry out a row with refs to agents in another process, over TCP, in real time."""
    return trio.run(over, base, row)
