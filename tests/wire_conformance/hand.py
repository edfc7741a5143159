"""A consumer written by hand, which says whatever it likes: plain objects, text that is none, bytes."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import open_node, simulate
from lmos_actors.transport import MemoryNetwork
from tests.protocol.lmos.consumer_by_hand import shortly
from tests.wire_conformance.agents import Helper, Subject, start_helper, tree
from tests.wire_conformance.bench import Bench
from tests.wire_conformance.sockets import Closed, Socket, connect
from tests.wire_conformance.worlds import Near

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node


class Hand:
    """One connection; what comes is kept as it is."""

    def __init__(self, socket: Socket, thing: str) -> None:
        self.socket = socket
        self.thing = thing
        self.frames: list[dict[str, Any] | bytes] = []
        self.closed: int | str | None = "open"

    async def listen(self) -> None:
        """Take what comes, until the connection ends."""
        try:
            while True:
                got = await self.socket.receive()
                self.frames.append(json.loads(got) if isinstance(got, str) else got)
        except Closed as closed:
            self.closed = closed.code

    async def say(self, kind: str, number: object = 1, **members: Any) -> None:
        """Send a message with the id `m<number>`, in the spelling of the tables."""
        names = {"correlation": "correlationID", "thing": "thingID"}
        raw = {"messageType": kind, "thingID": self.thing, "messageID": f"m{number}"}
        await self.raw(raw | {names.get(key, key): value for key, value in members.items()})

    async def raw(self, raw: object) -> None:
        """Send any text, bytes or JSON; what no longer reaches the peer is left."""
        try:
            await self.socket.send(raw if isinstance(raw, str | bytes) else json.dumps(raw))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def heard(self) -> list[str]:
        """Give what has come since, in short, once nothing more comes for a second of virtual time."""
        await trio.sleep(1)
        frames, self.frames = self.frames, []
        return [shortly(frame) if isinstance(frame, dict) else repr(frame) for frame in frames]


class Scene:
    """A node with an agent, somebody else who is connected to it, and as many hands as wanted."""

    def __init__(self, node: Node, network: MemoryNetwork, bench: Bench, nursery: trio.Nursery) -> None:
        self.node = node
        self.network = network
        self.bench = bench
        self.name = bench.name
        self.hands: list[Hand] = []
        self._nursery = nursery

    @property
    def server(self) -> Any:
        """What the node serves LMOS with."""
        return self.node._connections._server

    async def hand(self, *, offer: bool = True, path: str = "/ws", reads: bool = True) -> Hand:
        """Connect once more."""
        url = f"{self.node.urls[0]}{path}"
        socket = await connect(self.network, url, subprotocols=("lmosprotocol",) if offer else ())
        hand = Hand(socket, self.name)
        self.hands.append(hand)
        if reads:
            self._nursery.start_soon(hand.listen)
        return hand

    async def count(self, connections: int) -> None:
        """Wait until there are so many connections."""
        while self.server.statistics().connections != connections:  # noqa: ASYNC110 -- nothing tells
            await trio.sleep(0.01)


def play(story: Callable[[Scene], Awaitable[None]], kind: type[Subject] = Subject, **node: Any) -> None:
    """Tell a story on virtual time; afterwards everybody else is as well as before, and nothing is left."""
    simulate(_play, story, kind, node)


async def _play(
    story: Callable[[Scene], Awaitable[None]], kind: type[Subject], options: dict[str, Any]
) -> None:
    network = options.setdefault("network", MemoryNetwork())
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with open_node(tree(), listen="ws://here:0", **options) as node:
        helper = await start_helper(node)
        name = await helper.invoke(Helper.begin, kind.__name__)
        async with _bystander(node, network), trio.open_nursery() as nursery:
            scene = Scene(node, network, Bench(Near(node), helper, name), nursery)
            with trio.fail_after(1000):
                await story(scene)
            nursery.cancel_scope.cancel()
            for hand in scene.hands:
                await trio.aclose_forcefully(hand.socket.stream)
        assert node.connection_failures == ()
        found = await helper.invoke(Helper.accounts, name)
        words = ("handled", "cancelled", "dropped", "dead_lettered")
        assert found.get("accepted", 0) == sum(found.get(word, 0) for word in words)
        await scene.count(0)
        assert scene.server.statistics().open == 0
    assert trio.lowlevel.current_statistics().tasks_living == tasks


@asynccontextmanager
async def _bystander(node: Node, network: MemoryNetwork) -> AsyncGenerator[None]:
    """Have somebody connected who listens all the time and is answered in the end."""
    socket = await connect(network, f"{node.urls[0]}/ws", subprotocols=("lmosprotocol",))
    hand = Hand(socket, "helper")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hand.listen)
        await hand.say("invokeAction", "before", action="noted", input={"name": "x"})
        assert await hand.heard() != []
        yield
        await hand.say("invokeAction", "after", action="noted", input={"name": "x"})
        assert await hand.heard() == ['actionStatus mafter action="noted" status="completed" output={}']
        assert hand.closed == "open"
        nursery.cancel_scope.cancel()
    await trio.aclose_forcefully(socket.stream)
