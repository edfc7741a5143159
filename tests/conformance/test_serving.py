"""The scripted server on a network: handshakes, frames, HTTP, and our own client at it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, InvalidInput, NotAllowed, open_node
from lmos_actors.conformance.scripted import ID, NetworkServer, ScriptedServer
from lmos_actors.conformance.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameReader,
    RawFrame,
    close_payload,
    write_frame,
)
from lmos_actors.transport import MemoryNetwork, Network, TcpNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

HERE = "ws://kit.example"
KEY = b"\x01\x02\x03\x04"
READ = json.dumps(
    {
        "messageType": "readProperty",
        "thingID": ID,
        "messageID": "5b6c7d8e-9f0a-4b1c-8d2e-3f4a5b6c7d15",
        "name": "level",
    }
).encode()


@asynccontextmanager
async def served(network: Network | None = None, url: str = HERE) -> AsyncGenerator[Place]:
    """Serve for as long as it is entered."""
    network = network or MemoryNetwork()
    serving = NetworkServer(ScriptedServer(trio.current_time, Random(1)))
    async with trio.open_nursery() as nursery:
        base = await nursery.start(serving.run, network, endpoint_of(url))
        yield Place(network, base, serving)
        nursery.cancel_scope.cancel()


class Place:
    """Where it is served."""

    def __init__(self, network: Network, base: str, serving: NetworkServer) -> None:
        self.network = network
        self.base = base
        self.serving = serving

    async def stream(self) -> trio.abc.Stream:
        return await self.network.connect(endpoint_of(self.base), None)

    async def asked(self, text: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request and give the whole answer; the connection is closed by the client."""
        stream = await self.stream()
        await stream.send_all(text.replace("\r", "").replace("\n", "\r\n").encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        if not text.startswith("HEAD"):
            while len(body) < int(headers.get("content-length", "0")):
                body += await stream.receive_some(65536)
        await stream.aclose()
        return int(lines[0].split(" ")[1]), headers, body

    async def open(self) -> SendFrame:
        stream = await self.stream()
        head = f"GET /ws HTTP/1.1\r\nHost: kit.example\r\n{upgrade()}\r\n\r\n"
        await stream.send_all(head.encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some(65536)
        raw = SendFrame(stream)
        raw.take(bytes(data.partition(b"\r\n\r\n")[2]))
        return raw


def upgrade(**changed: str) -> str:
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "lmosprotocol",
    }
    changed = {name.replace("_", "-"): value for name, value in changed.items()}
    return "\r\n".join(f"{name}: {value}" for name, value in {**headers, **changed}.items() if value)


class SendFrame:
    """An open WebSocket, by hand."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.reader = FrameReader()
        self.frames: list[RawFrame] = []

    def take(self, data: bytes) -> None:
        self.frames += self.reader.feed(data)

    async def send(self, opcode: int, payload: bytes = b"", **how: Any) -> None:
        await self.stream.send_all(write_frame(opcode, payload, **{"key": KEY, **how}))

    async def next(self) -> RawFrame:
        while not self.frames:
            data = await self.stream.receive_some(65536)
            assert data, "the connection ended"
            self.take(bytes(data))
        return self.frames.pop(0)

    async def ended(self) -> bool:
        with trio.move_on_after(30):
            return not await self.stream.receive_some(1)
        return False


async def test_the_handshake(autojump_clock: trio.abc.Clock) -> None:
    async with served() as place:
        status, headers, _ = await place.asked(f"GET /ws HTTP/1.1\nHost: h\n{upgrade()}\n\n")
        assert status == 101
        assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert headers["sec-websocket-protocol"] == "lmosprotocol"
        assert headers["lmos-extensions"] == "acks, gaps, streams, deadlines, retries, tells, keys"


@pytest.mark.parametrize(
    ("path", "changed", "status", "selected"),
    [
        ("/ws", {"Sec_WebSocket_Protocol": ""}, 101, None),
        ("/ws", {"Sec_WebSocket_Protocol": "chat, lmosprotocol"}, 101, "lmosprotocol"),
        ("/agents/conformance", {}, 101, "lmosprotocol"),
        ("/elsewhere", {}, 101, "lmosprotocol"),
        ("/elsewhere", {"Sec_WebSocket_Protocol": ""}, 404, None),
        ("/ws", {"Sec_WebSocket_Version": "12"}, 426, None),
        ("/ws", {"Sec_WebSocket_Key": ""}, 400, None),
    ],
)
async def test_other_handshakes(
    autojump_clock: trio.abc.Clock, path: str, changed: dict[str, str], status: int, selected: str | None
) -> None:
    async with served() as place:
        found, headers, _ = await place.asked(f"GET {path} HTTP/1.1\nHost: h\n{upgrade(**changed)}\n\n")
        assert (found, headers.get("sec-websocket-protocol")) == (status, selected)
        assert headers.get("sec-websocket-version") == ("13" if status == 426 else None)


async def test_messages_whole_and_in_parts(autojump_clock: trio.abc.Clock) -> None:
    async with served() as place:
        raw = await place.open()
        await raw.send(TEXT, READ)
        assert json.loads((await raw.next()).payload)["value"] == 20
        await raw.send(TEXT, READ[:10], fin=False)
        await raw.send(PING, b"now")
        await raw.send(CONTINUATION, READ[10:20], fin=False)
        await raw.send(CONTINUATION, READ[20:])
        assert await raw.next() == RawFrame(PONG, b"now")
        assert json.loads((await raw.next()).payload)["value"] == 20
        await raw.send(CLOSE, close_payload(1000))
        assert await raw.next() == RawFrame(CLOSE, close_payload(1000))
        assert await raw.ended()
    assert place.serving.server.connections == []


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([write_frame(TEXT, b"x")], 1002),
        ([write_frame(TEXT, b"x", key=KEY, rsv=4)], 1002),
        ([write_frame(3, b"x", key=KEY)], 1002),
        ([write_frame(11, b"x", key=KEY)], 1002),
        ([write_frame(PING, b"x", key=KEY, fin=False)], 1002),
        ([write_frame(PING, b"x" * 126, key=KEY)], 1002),
        ([write_frame(CONTINUATION, b"x", key=KEY)], 1002),
        ([write_frame(TEXT, b"x", key=KEY, fin=False), write_frame(TEXT, b"x", key=KEY)], 1002),
        ([write_frame(TEXT, b"\xff", key=KEY)], 1007),
        ([write_frame(BINARY, b"x", key=KEY)], 1003),
        ([write_frame(TEXT, b"", key=KEY, width=8, claims=(4 << 20) + 100)], 1009),
        ([write_frame(CLOSE, b"x", key=KEY)], 1002),
        ([write_frame(CLOSE, close_payload(1005), key=KEY)], 1002),
        ([write_frame(CLOSE, close_payload(1000) + b"\xff", key=KEY)], 1007),
        ([write_frame(CLOSE, b"", key=KEY)], None),
        ([write_frame(CLOSE, close_payload(4000), key=KEY)], 4000),
    ],
)
async def test_what_closes_a_connection(
    autojump_clock: trio.abc.Clock, frames: list[bytes], code: int | None
) -> None:
    async with served() as place:
        raw = await place.open()
        await raw.stream.send_all(b"".join(frames))
        frame = await raw.next()
        assert frame.opcode == CLOSE
        assert frame.payload[:2] == close_payload(code)
        assert await raw.ended()


async def test_a_peer_that_does_not_return_a_close_is_left(autojump_clock: trio.abc.Clock) -> None:
    async with served() as place:
        raw = await place.open()
        place.serving.server.connections[0].hang_up(1012, "again")
        assert (await raw.next()).payload == close_payload(1012, "again")
        assert await raw.ended()
        assert trio.current_time() >= 5


async def test_who_takes_nothing_is_cut(autojump_clock: trio.abc.Clock) -> None:
    async with served(MemoryNetwork(buffer=1024)) as place:
        raw = await place.open()
        await raw.send(TEXT, READ)
        for _ in range(50):
            place.serving.server.connections[0].send("event", ID, None, {"data": "x" * 500})
        await trio.sleep(40)
        assert place.serving.server.connections == []


async def test_descriptions_and_a_page_are_served_over_http(autojump_clock: trio.abc.Clock) -> None:
    async with served() as place:
        status, headers, body = await place.asked("GET /.well-known/wot HTTP/1.1\nHost: h:1\n\n")
        assert (status, headers["content-type"]) == (200, "application/td+json")
        assert json.loads(body)["forms"][0]["href"] == "ws://h:1/ws"
        assert await place.asked("HEAD /.well-known/wot HTTP/1.1\nHost: h:1\n\n") == (200, headers, b"")
        page = await place.asked("GET / HTTP/1.1\nHost: h\nAccept: text/html\n\n")
        assert b"Conformance thing B" in page[2]
        assert (await place.asked("nonsense\n\n"))[0] == 400
        assert (await place.asked("GET /ws HTTP/1.1\nHost: h\n\n"))[0] == 404


async def test_our_client_at_it(autojump_clock: trio.abc.Clock) -> None:
    async with served() as place, open_node(network=place.network) as node:
        thing = await node.consume_thing("http://kit.example/agents/conformance")
        await thing.write_many({"level": 34, "label": "x"})
        assert (await thing.read_all())["level"] == 34
        assert await thing.invoke("add", {"a": 1, "b": 2}) == 3
        assert await thing.invoke("wait", {"seconds": 5}) == {"waited": 5}
        with pytest.raises(ActionFailed):
            await thing.invoke("fail")
        with pytest.raises(NotAllowed):
            await thing.write("version", "2")
        with pytest.raises(InvalidInput):
            await thing.write("level", 200)
        async with thing.stream("count", {"to": 40}) as items:
            assert [item async for item in items] == list(range(40))
        for _ in range(600):  # more than the credit
            await thing.tell("add", {"a": 1, "b": 2})
        with pytest.raises(ActionFailed):  # behind all of them
            await thing.invoke("fail")
        (there,) = place.serving.server.connections
        assert there.last_tell == 600
        assert node.dead_letters == ()
        async with thing.subscribe("rang") as rang:
            await thing.invoke("ring", {"note": "hey"})
            assert await anext(aiter(rang)) == {"note": "hey", "number": 1}
        async with thing.observe("uptime") as uptime:
            values = aiter(uptime)
            assert (await anext(values)) < (await anext(values))


async def test_over_tcp() -> None:
    network = TcpNetwork()
    async with served(network, "ws://127.0.0.1:0") as place, open_node(network=network) as node:
        with trio.fail_after(20):
            thing = await node.consume_thing(place.base.replace("ws", "http"))
            assert await thing.read("level") == 20
