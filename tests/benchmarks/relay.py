"""A hub of an AgentRelay: broadcasts to many agents, who are sockets without a cost of their own."""

from __future__ import annotations

import json
import select
import socket
from functools import partial
from time import perf_counter as clock, process_time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import trio
from trio_websocket import ConnectionClosed, serve_websocket

from lmos_actors import Agent, action, open_node
from lmos_actors.facades import RelayOptions
from lmos_actors.transport import raise_descriptor_limit
from tests.benchmarks.limits_wire import HOST, other_process
from tests.benchmarks.wire import resident

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 100
ROUNDS = 20
"""Single broadcasts, one after another: the question what they cost costs something too."""

PAYLOAD = "x" * 100
MARK = b'"xxx'
CPU = "cpu?"


class Meter(Agent):
    """Measures the process that it runs in."""

    @action
    def cpu(self) -> float:
        """Return the seconds of processor time that this process has used."""
        return process_time()

    @action
    def resident(self) -> int:
        """Return how many bytes of memory this process has in use."""
        return resident()


async def serve(told: Callable[[str], object]) -> None:
    """Serve a hub until killed; tell the URL of the node."""
    raise_descriptor_limit(20_000)
    options = RelayOptions(rates=(), registrations_per_minute=None)
    async with open_node(listen=f"ws://{HOST}:0", relay=options) as node:
        await node.start(Meter)
        told(node.urls[0])
        await trio.sleep_forever()


async def serve_bare(told: Callable[[str], object]) -> None:
    """Serve a bare fan-out of trio-websocket until killed: a text of one goes to all others."""
    raise_descriptor_limit(20_000)
    there: dict[Any, None] = {}

    async def serve(request: Any) -> None:
        socket = await request.accept()
        there[socket] = None
        await socket.send_message('{"type":"welcome"}')
        try:
            while True:
                text = await socket.get_message()
                if text == CPU:
                    await socket.send_message(json.dumps({"cpu": process_time()}))
                    continue
                for other in tuple(there):
                    if other is not socket:
                        await other.send_message(text)
        except ConnectionClosed:
            del there[socket]

    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve_websocket, serve, HOST, 0, None))
        told(f"ws://{HOST}:{server.port}")


class Peer:
    """An agent on the hub, with next to no cost of its own; in a bare fan-out without a name."""

    def __init__(self, url: str, *, bare: bool = False) -> None:
        place = urlsplit(url)
        token = "none"
        if not bare:
            with urlopen(Request(f"http://{place.netloc}/register", data=b"{}", method="POST")) as answer:
                token = json.load(answer)["token"]
        self.sock = socket.create_connection((place.hostname, place.port or 80))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(
            f"GET /arc?token={token} HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        heard = b""
        while b'"welcome"' not in heard:
            heard += self.sock.recv(65_536)

    def say(self, times: int) -> None:
        data = json.dumps({"to": ["*"], "payload": PAYLOAD}).encode()
        head = bytes((0x81, 0x80 | 126, len(data) >> 8, len(data) & 0xFF, 0, 0, 0, 0))
        self.sock.sendall((head + data) * times)


def _heard(peers: list[Peer], wanted: int) -> float:
    """Read until all have heard so many broadcasts; return when."""
    poll, left, rest = select.epoll(), len(peers), dict.fromkeys((p.sock.fileno() for p in peers), b"")
    counts = dict.fromkeys(rest, 0)
    socks = {peer.sock.fileno(): peer.sock for peer in peers}
    for number in socks:
        poll.register(number, select.EPOLLIN)
    while left:
        for number, _ in poll.poll(10):
            data = rest[number] + socks[number].recv(1 << 18)
            before = counts[number]
            counts[number] += data.count(MARK)
            rest[number] = data[-len(MARK) + 1 :]
            left -= before < wanted <= counts[number]
    poll.close()
    return clock()


def _bare_cpu(peer: Peer) -> float:
    """Return the seconds of processor time that the bare fan-out has used."""
    data = CPU.encode()
    peer.sock.sendall(bytes((0x81, 0x80 | len(data), 0, 0, 0, 0)) + data)
    heard = b""
    while b"}" not in heard:
        heard += peer.sock.recv(65_536)
    return float(json.loads(heard[heard.index(b"{") :])["cpu"])


async def _asked(url: str, what: Any) -> Any:
    async with open_node() as node:
        meter = await node.consume(Meter, url.replace("ws://", "http://", 1) + "/agents/meter")
        return await meter.invoke(what)


def _fan(
    times: int, result: Callable[[float, float, int], float], n: int, *, rounds: int = 1, bare: bool = False
) -> float:
    """Measure broadcasts to n agents: `times` at once, in rounds of which each waits for the one before."""
    raise_descriptor_limit(20_000)
    with other_process("relay-bare" if bare else "relay") as base:
        url = base.removesuffix("/ws")
        peers = [Peer(url, bare=bare) for _ in range(n)]
        sender = Peer(url, bare=bare)
        sender.say(1)
        _heard(peers, 1)
        used = _bare_cpu(sender) if bare else trio.run(_asked, url, Meter.cpu)
        taken = 0.0
        for _ in range(rounds):
            began = clock()
            sender.say(times)
            taken += _heard(peers, times) - began
        used = (_bare_cpu(sender) if bare else trio.run(_asked, url, Meter.cpu)) - used
        for peer in (*peers, sender):
            peer.sock.close()
    return result(taken / rounds, used, n * times * rounds)


def deliveries(n: int) -> float:
    """Deliveries a second of 100 broadcasts at once to so many agents."""
    return _fan(AT_ONCE, lambda taken, _, count: count / taken, n)


def cost(n: int) -> float:
    """Microseconds of processor time for each of those deliveries."""
    return _fan(AT_ONCE, lambda _, used, count: used / count * 1e6, n)


def cost_singly(n: int) -> float:
    """Microseconds of processor time for each delivery of a single broadcast."""
    return _fan(1, lambda _, used, count: used / count * 1e6, n, rounds=ROUNDS)


def until_the_last(n: int) -> float:
    """Milliseconds until the last of so many agents has a broadcast."""
    return _fan(1, lambda taken, *_: taken * 1e3, n, rounds=ROUNDS)


def bare_deliveries(n: int) -> float:
    """The same of a bare fan-out."""
    return _fan(AT_ONCE, lambda taken, _, count: count / taken, n, bare=True)


def bare_until_the_last(n: int) -> float:
    """The same of a bare fan-out."""
    return _fan(1, lambda taken, *_: taken * 1e3, n, rounds=ROUNDS, bare=True)


def bare_cost_singly(n: int) -> float:
    """The same of a bare fan-out."""
    return _fan(1, lambda _, used, count: used / count * 1e6, n, rounds=ROUNDS, bare=True)


def idle(n: int) -> float:
    """Bytes of memory of a hub for each idle connection."""
    raise_descriptor_limit(20_000)
    with other_process("relay") as base:
        url = base.removesuffix("/ws")
        warm = [Peer(url) for _ in range(5)]
        before = trio.run(_asked, url, Meter.resident)
        peers = [Peer(url) for _ in range(n)]
        after = trio.run(_asked, url, Meter.resident)
        for peer in (*warm, *peers):
            peer.sock.close()
    return (after - before) / n
