"""Chat agents: over Omnia's protocol from another process, and near, with sessions in memory and SQLite."""

from __future__ import annotations

import json
import re
import select
import socket
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter as clock, process_time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import trio
from trio_websocket import open_websocket_url, serve_websocket

from lmos_actors import action, open_node
from lmos_actors.facades import (
    ChatAgent,
    ChatTurn,
    OmniaOptions,
    Sound,
    TextChunk,
    VoiceCall,
    open_chat,
)
from lmos_actors.transport import TcpNetwork, raise_descriptor_limit
from tests.benchmarks.limits_wire import HOST, other_process
from tests.benchmarks.wire import resident

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from trio_websocket import WebSocketRequest

    from lmos_actors import Ref
    from lmos_actors.facades import OutgoingCall
    from lmos_actors.transport import Endpoint

PIECE = "a few words, "
PACE = 0.05
CALLERS = 100


class Talker(ChatAgent):
    """Says as many pieces as it is asked for: at once, or at 20 a second; `cpu` is what its process took."""

    async def talk(self, call: VoiceCall) -> None:
        async for frame in call.sound:
            await call.play(frame)

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        pace, _, count = turn.text.partition(" ")
        at = trio.current_time()
        for _ in range(int(count)):
            if pace == "slowly":
                at += PACE
                await trio.sleep_until(at)
            yield str(process_time()) if pace == "cpu" else PIECE

    @action
    def resident(self) -> int:
        """Say how many bytes of memory this process has in use."""
        return resident()


async def serve(told: Callable[[str], object]) -> None:
    """Serve the agent until killed; tell the URL of the node."""
    raise_descriptor_limit(20_000)
    async with open_node(listen=f"ws://{HOST}:0", omnia=OmniaOptions(connections=5_000)) as node:
        await node.start(Talker)
        told(node.urls[0])
        await trio.sleep_forever()


# ---- a client with next to no cost of its own


class Client:
    """A WebSocket of a chat client, which counts what comes by a word in it."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.sock = socket.create_connection((place.hostname, place.port or 80))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(
            f"GET /?agent=talker HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        self.heard = b""
        while b'"connected"' not in self.heard:
            self.heard += self.sock.recv(65_536)

    def say(self, text: str) -> None:
        data = json.dumps({"type": "message", "content": text}).encode()
        assert len(data) < 126
        self.sock.sendall(bytes((0x81, 0x80 | len(data), 0, 0, 0, 0)) + data)

    def count(self, until: bytes = b'"done"') -> int:
        """Read until a word comes; return how many chunks came before."""
        chunks, rest = 0, b""
        while True:
            data = rest + self.sock.recv(1 << 20)
            chunks += data.count(b'"chunk"')
            if until in data:
                return chunks
            rest = data[-8:].replace(b'"chunk"', b"")


def there(program: Callable[[str, int], float], n: int) -> float:
    """Measure a program against the agent in a process of its own."""
    with other_process("omnia") as url:
        return program(url, n)


# ---- frames


def frames(url: str, n: int) -> float:
    """Chunks a second on one connection."""
    with closing(Client(url).sock) as sock:
        client = Client.__new__(Client)
        client.sock = sock
        client.say("quickly 10")
        client.count()
        client.say(f"quickly {n}")
        began = clock()
        assert client.count() == n
        return n / (clock() - began)


def crowd(url: str, n: int) -> float:
    """Chunks a second of 1,000 sessions (or `n`, if fewer) at 20 a second each, for five seconds."""
    raise_descriptor_limit(20_000)
    each = 100 if n > 10 else 3
    clients = [Client(url) for _ in range(n)]

    async def read(client: Client, done: list[float]) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(client.sock))
        chunks, rest = 0, b""
        while True:
            data = rest + await stream.receive_some(65_536)
            chunks += data.count(b'"chunk"')
            if b'"done"' in data:
                break
            rest = data[-8:].replace(b'"chunk"', b"")
        assert chunks == each
        done.append(clock())
        await stream.aclose()

    async def main() -> float:
        done: list[float] = []
        began = clock()
        async with trio.open_nursery() as nursery:
            for client in clients:
                client.say(f"slowly {each}")
            for client in clients:
                nursery.start_soon(read, client, done)
        return n * each / (max(done) - began)

    return trio.run(main)


def for_a_second(kind: str, pace: str, n: int) -> float:
    """Chunks for a second of the server's processor time: `n` sessions have an answer of 100 chunks each."""
    raise_descriptor_limit(20_000)
    each = 100 if n > 10 else 3
    with other_process(kind) as url:
        clients, meter = [Client(url) for _ in range(n)], Client(url)
        for count in (1, each):  # the first warms up
            used = -_used(meter)
            for client in clients:
                client.say(f"{pace} {count}")
            _hear(clients, count)
            used += _used(meter)
        for client in (*clients, meter):
            client.sock.close()
    return n * each / used


def _used(client: Client) -> float:
    """Ask for the seconds of processor time that the server has used."""
    client.say("cpu 1")
    data = b""
    while b'"done"' not in data:
        data += client.sock.recv(65_536)
    found = re.search(rb'"content":"([0-9.e-]+)"', data)
    assert found is not None
    return float(found[1])


def _hear(clients: list[Client], each: int) -> None:
    """Read until all have heard their answer."""
    poll, socks = select.epoll(), {client.sock.fileno(): client.sock for client in clients}
    heard, rest = dict.fromkeys(socks, 0), dict.fromkeys(socks, b"")
    for number in socks:
        poll.register(number, select.EPOLLIN)
    while socks:
        for number, _ in poll.poll():
            data = rest[number] + socks[number].recv(1 << 18)
            heard[number] += data.count(b'"chunk"')
            rest[number] = data[-6:]
            if b'"done"' in data:
                assert heard[number] == each
                poll.unregister(number)
                del socks[number]
    poll.close()


def first_chunk(url: str, n: int) -> float:
    """Milliseconds from a message to the first chunk of its answer, the median."""
    client, found = Client(url), list[float]()
    for number in range(1, n + 1):
        began = clock()
        client.say("quickly 1")
        data = b""
        while b'"done"' not in data:
            data += client.sock.recv(65_536)
            if b'"chunk"' in data and len(found) < number:
                found.append(clock() - began)
        if len(found) % 50 == 0:  # a client may send 50 frames a second after its first hundred
            trio.run(trio.sleep, 1.0)
    client.sock.close()
    return median(found) * 1_000


def first_chunk_near(n: int) -> float:
    """The same of a near caller."""

    async def main() -> float:
        found: list[float] = []
        async with open_node() as node:
            talker = await node.start(Talker)
            for _ in range(n):
                began = clock()
                async with talker.stream(Talker.chat, "quickly 1") as items:
                    async for item in items:
                        if isinstance(item, TextChunk):
                            found.append(clock() - began)
        return median(found) * 1_000

    return trio.run(main)


def idle_connections(url: str, n: int) -> float:
    """Bytes of memory of a server for each idle connection."""
    raise_descriptor_limit(20_000)
    warm = [Client(url) for _ in range(5)]
    before = trio.run(_resident_there, url)
    clients = [Client(url) for _ in range(n)]
    after = trio.run(_resident_there, url)
    for client in (*warm, *clients):
        client.sock.close()
    return (after - before) / n


async def _resident_there(url: str) -> int:
    async with open_node() as node:
        talker = await node.consume(Talker, url.replace("ws://", "http://", 1) + "/agents/talker")
        return await talker.invoke(Talker.resident)


FRAME_SECONDS = 0.02


class _Cuttable(TcpNetwork):
    """Connections by TCP, the newest of which can be cut."""

    newest: trio.abc.Stream

    async def connect(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
        self.newest = await super().connect(endpoint, tls)
        return self.newest


def late_frames(url: str, n: int) -> float:
    """Frames of sound that came back later than 20 ms, of `n` that are sent 20 ms apart.

    The connection breaks once, in the middle. What was under way then, is not counted.
    """

    async def main() -> float:
        network, sent, late = _Cuttable(), dict[int, float](), 0

        async def speak(call: OutgoingCall) -> None:
            at = trio.current_time()
            for number in range(n):
                sent[number] = clock()
                call.send(number.to_bytes(4, "big") + bytes(636))
                at += FRAME_SECONDS
                await trio.sleep_until(at)
                if number == n // 2:
                    await trio.aclose_forcefully(network.newest)
            call.hang_up()

        async with (
            open_chat(f"{url}/?agent=talker", network=network) as chat,
            chat.call() as call,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(speak, call)
            heard = 0
            async for item in call:
                if isinstance(item, Sound):
                    heard += 1
                    number = int.from_bytes(item.data[:4], "big")
                    late += clock() - sent[number] > FRAME_SECONDS and abs(number - n // 2) > 10
            counts = call.statistics()
        assert counts.resumed == 1
        assert heard >= n - 10
        return late

    return trio.run(main)


def bare_frames(n: int) -> float:
    """Messages a second of trio-websocket, from a server to a client in one process."""
    text = json.dumps({"type": "chunk", "content": PIECE, "session_id": "s" * 36, "timestamp": "t" * 24})

    async def serve_bare(request: WebSocketRequest) -> None:
        connection = await request.accept()
        await connection.get_message()
        for _ in range(n):
            await connection.send_message(text)

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            server: Any = await nursery.start(serve_websocket, serve_bare, HOST, 0, None)
            async with open_websocket_url(f"ws://{HOST}:{server.port}/") as connection:
                began = clock()
                await connection.send_message("go")
                for _ in range(n):
                    await connection.get_message()
                taken = clock() - began
            nursery.cancel_scope.cancel()
        return n / taken

    return trio.run(main)


# ---- sessions


async def _turns(talker: Ref[Talker], n: int) -> float:
    """Turns a second of many callers, each in a session of its own."""
    each = max(1, n // CALLERS)

    async def call(number: int) -> None:
        session = f"caller {number}"
        for _ in range(each):
            async with talker.stream(Talker.chat, "quickly 1", session, new=True) as items:
                async for _ in items:
                    pass

    began = clock()
    async with trio.open_nursery() as nursery:
        for number in range(min(CALLERS, n)):
            nursery.start_soon(call, number)
    return each * min(CALLERS, n) / (clock() - began)


def turns(store: str | None, n: int) -> float:
    """Turns a second, with sessions in memory or in SQLite."""

    async def main(place: str | None) -> float:
        async with open_node(store=place) as node:
            return await _turns(await node.start(Talker), n)

    with TemporaryDirectory() as folder:
        return trio.run(main, None if store is None else f"{store}:{Path(folder, 'chats.db')}")


def idle_sessions(n: int) -> float:
    """Bytes of memory for each session that is kept in SQLite."""

    async def main(place: str) -> float:
        async with open_node(store=place) as node:
            talker = await node.start(Talker)
            await _turns(talker, 100)
            before = resident()
            for number in range(n):
                async with talker.stream(Talker.chat, "quickly 1", f"idle {number}", new=True) as items:
                    async for _ in items:
                        pass
            return (resident() - before) / n

    with TemporaryDirectory() as folder:
        return trio.run(main, f"sqlite:{Path(folder, 'chats.db')}")
