"""One of each kind of bad input and bad peer, over real sockets."""

from __future__ import annotations

import json
import socket as sockets
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import trio
from wsproto.events import TextMessage

from lmos_actors import open_node
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import ConnectionOptions, DoorOptions, endpoint_of
from tests.wire_conformance.agents import Helper, Subject, start_helper, tree
from tests.wire_conformance.bench import Bench
from tests.wire_conformance.sockets import Closed, Socket, Tcp, connected
from tests.wire_conformance.worlds import Near

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node

QUICK = ConnectionOptions(heartbeat_seconds=0.1, heartbeat_grace=0.1, write_seconds=0.3, close_seconds=0.2)


class Real:
    """A node at a real port, with an agent and somebody who waits for its end."""

    def __init__(self, node: Node, bench: Bench) -> None:
        self.node = node
        self.bench = bench
        self.url = f"{node.urls[0]}/ws"

    def said(self, kind: str, number: int = 1, **members: Any) -> str:
        """Write a message."""
        raw = {"messageType": kind, "thingID": self.bench.name, "messageID": f"m{number}"}
        return json.dumps(raw | members)

    async def holding(self, socket: Socket) -> None:
        """Have the agent do something for this peer."""
        await socket.send(self.said("invokeAction", action="hold", input={"gate": "g"}))
        await self.bench.until("begun hold")

    async def gone(self) -> None:
        """Wait until no connection is left, and what was done for it has ended."""
        server: Any = self.node._connections._server
        while server.statistics().connections or server.statistics().open:  # noqa: ASYNC110 -- nothing tells
            await trio.sleep(0.01)


@asynccontextmanager
async def real(**options: Any) -> AsyncGenerator[Real]:
    """Have such a node; in the end it is as well as before, and nothing is left."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    with trio.fail_after(30):
        async with open_node(tree(), listen="ws://127.0.0.1:0", **options) as node:
            helper = await start_helper(node)
            name = await helper.invoke(Helper.begin, "Subject")
            there = Real(node, Bench(Near(node), helper, name))
            yield there
            async with connected(Tcp(), there.url) as socket:
                await socket.send(there.said("readProperty", name="serial"))
                assert json.loads(await socket.receive())["value"] == "s-1"
            await there.gone()
            assert node.connection_failures == ()
        assert trio.lowlevel.current_statistics().tasks_living <= tasks + 1


async def ends(socket: Socket) -> int | None:
    """Wait for the end of the connection; give its code."""
    try:
        while True:
            await socket.receive()
    except Closed as closed:
        return closed.code


async def test_wrong_frames() -> None:
    async with real() as there, connected(Tcp(), there.url, subprotocols=("lmosprotocol",)) as socket:
        wrong = ["{", "[]", "{}", there.said("frobnicate"), there.said("readProperty", name=["units"])]
        wrong.append(there.said("writeProperty", name="limit", data=101))
        for text in wrong:
            await socket.send(text)
            assert json.loads(await socket.receive())["status"] == "400"
        await socket.send(there.said("readProperty", name="units"))
        assert json.loads(await socket.receive())["value"] == "celsius"


async def test_a_peer_that_leaves_in_mid_frame() -> None:
    async with real() as there:
        for how in ("closed", "reset"):
            async with connected(Tcp(), there.url) as socket:
                await there.holding(socket)
                text = there.said("readProperty", 2, name="units")
                stream: Any = socket.stream
                await stream.send_all(socket.ws.send(TextMessage(data=text))[:20])
                if how == "reset":
                    reset = struct.pack("ii", 1, 0)
                    stream.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, reset)
            await there.gone()
        assert await there.bench.noted("cancelled hold") == {"cancelled hold": 2}


async def test_bytes_one_by_one() -> None:
    async with real() as there, connected(Tcp(), there.url) as socket:
        for byte in socket.ws.send(TextMessage(data=there.said("readProperty", name="units"))):
            await socket.stream.send_all(bytes([byte]))
        assert json.loads(await socket.receive())["value"] == "celsius"


async def test_a_peer_that_never_pongs() -> None:
    async with real(connection=QUICK) as there, connected(Tcp(), there.url) as socket:
        socket.silent = True
        await there.holding(socket)
        await ends(socket)
        await there.bench.until("cancelled hold")


async def test_a_peer_that_never_reads() -> None:
    options = SessionOptions(max_waiting=200)
    async with real(connection=QUICK, session=options) as there, connected(Tcp(), there.url) as socket:
        await socket.send(there.said("subscribeEvent", event="asked"))
        await socket.send(there.said("readProperty", 2, name="units"))
        await socket.receive()
        it = await there.bench.subject()
        server: Any = there.node._connections._server
        (served,) = server._served
        while server._served:
            await it.invoke(Subject.tell_all, ["x" * 10_000] * 20)
            assert served.session.statistics().waiting <= 300
            await trio.sleep(0.005)


async def test_a_head_that_does_not_end() -> None:
    options = DoorOptions(head_seconds=0.2)
    async with real(door=options) as there, await Tcp().connect(endpoint_of(there.url), None) as stream:
        await stream.send_all(b"GET /ws HTTP/1.1\r\nhost: here\r\n")
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some(1000):
                pass


async def test_frames_that_are_too_long() -> None:
    options = ConnectionOptions(max_message_bytes=1000)
    async with real(connection=options) as there, connected(Tcp(), there.url) as socket:
        await socket.send("x" * 2000)
        assert await ends(socket) == 1009
