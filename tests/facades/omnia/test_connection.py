"""Omnia clients that send what is no frame, or do not read: closes and codes."""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node, simulate
from lmos_actors.facades import OmniaOptions
from lmos_actors.transport import MemoryNetwork, TcpNetwork, endpoint_of
from tests.facades.desk import Desk, opened_raw

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.transport import Network

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """Return a masked frame, by a mask that changes nothing."""
    size = len(payload)
    head = bytes([0x80 * fin | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += struct.pack(">BH", 0xFE, size)
    else:
        head += struct.pack(">BQ", 0xFF, size)
    return head + bytes(4) + payload


class Bytes:
    """A WebSocket client that sends bytes as they are."""

    def __init__(self, stream: trio.abc.Stream, host: str = "desk") -> None:
        self.stream = stream
        self._host = host
        self._rest = b""

    async def shake(self, target: str) -> None:
        lines = [f"GET {target} HTTP/1.1", f"Host: {self._host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]
        await self.stream.send_all("\r\n".join(lines).encode())
        while b"\r\n\r\n" not in self._rest:
            self._rest += await self.stream.receive_some()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        assert b" 101 " in head, head

    async def close(self) -> tuple[int, str]:
        """Read until the server closes; return its code and reason, (0, "") where the stream just ends."""
        while True:
            found = self._frame()
            if found is None:
                data = await self.stream.receive_some()
                if not data:
                    return 0, ""
                self._rest += data
            elif found[0] == CLOSE:
                return int.from_bytes(found[1][:2], "big"), found[1][2:].decode()

    def _frame(self) -> tuple[int, bytes] | None:
        rest = self._rest
        if len(rest) < 2:
            return None
        size, at = rest[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(rest[2 : 2 + width], "big"), 2 + width
        if len(rest) < at + size:
            return None
        self._rest = rest[at + size :]
        return rest[0] & 0x0F, rest[at : at + size]


@asynccontextmanager
async def opened(network: Network, **options: Any) -> AsyncGenerator[Bytes]:
    listen = "ws://127.0.0.1:0" if isinstance(network, TcpNetwork) else "ws://desk:80"
    async with open_node(listen=listen, omnia=OmniaOptions(**options), network=network) as node:
        await node.start(Desk)
        endpoint = endpoint_of(node.urls[0])
        client = Bytes(await network.connect(endpoint, None), endpoint.authority)
        await client.shake("/?agent=desk")
        yield client
        await client.stream.aclose()


SENT: list[tuple[bytes, int]] = [
    (frame(TEXT, b"x" * 1_001), 1009),
    (frame(TEXT, b"x" * 600, fin=False) + frame(0, b"x" * 600), 1009),
    (frame(BINARY, b"x" * 1_001), 1009),
    (frame(TEXT, b'{"type":"message","content":"\xff"}'), 1007),
    (frame(TEXT, b"\xc3", fin=False) + frame(0, b"\x28"), 1007),
    (frame(CLOSE, b"\x03"), 1002),
    (frame(CLOSE, struct.pack(">H", 1005)), 1002),
    (frame(CLOSE, struct.pack(">H", 4999)), 4999),
    (frame(CLOSE, struct.pack(">H", 1000) + b"bye"), 1000),
    (frame(3, b""), 1002),
    (frame(PING, b"x" * 126), 1002),
    (b"\x81\x05hello", 1002),
]


@pytest.mark.parametrize(("data", "code"), SENT)
def test_what_is_no_frame_closes_the_connection(data: bytes, code: int) -> None:
    async def main() -> int:
        async with opened(MemoryNetwork(), max_payload=1_000) as client:
            await client.stream.send_all(data)
            return (await client.close())[0]

    assert simulate(main) == code


@pytest.mark.parametrize(("data", "code"), SENT[:6:2])
async def test_the_same_over_a_socket(data: bytes, code: int) -> None:
    async with opened(TcpNetwork(), max_payload=1_000) as client:
        await client.stream.send_all(data)
        assert (await client.close())[0] == code


def test_a_node_that_stops_says_so() -> None:
    async def main() -> tuple[int, str]:
        network = MemoryNetwork()
        async with open_node(listen="ws://desk:80", omnia=True, network=network) as node:
            await node.start(Desk)
            client = Bytes(await network.connect(endpoint_of(node.urls[0]), None))
            await client.shake("/?agent=desk")
        return await client.close()

    assert simulate(main) == (1001, "server shutdown")


def test_a_client_that_never_reads_is_cut_after_ten_seconds() -> None:
    async def main() -> tuple[int, int, int]:
        network = MemoryNetwork()
        async with open_node(listen="ws://desk:80", omnia=True, network=network) as node:
            await node.start(Desk)
            client = Bytes(await network.connect(endpoint_of(node.urls[0]), None))
            await client.shake("/?agent=desk")
            await client.stream.send_all(frame(TEXT, b'{"type":"message","content":"flood 100000"}'))
            await trio.sleep(8)
            there = node.connections, len(node.agents())
            await trio.sleep(12)
            assert (node.connections, len(node.agents())) == (0, 1), "its turn has ended too"
            return *there, node.statistics().memory.bytes

    connections, agents, held = simulate(main)
    assert (connections, agents) == (1, 2)
    assert held == 0


@pytest.mark.slow  # its lines: test_omnia_server.py
def test_six_hundred_silent_clients() -> None:
    """Five hundred are served, the others are refused; who never pongs is cut, and then there is room."""

    async def main() -> tuple[int, int, int]:
        network = MemoryNetwork()
        async with open_node(listen="ws://desk:80", omnia=True, network=network) as node:
            await node.start(Desk)
            taken = refused = 0
            clients: list[Bytes] = []
            for _ in range(600):
                client = Bytes(await network.connect(endpoint_of(node.urls[0]), None))
                clients.append(client)
                try:
                    await client.shake("/?agent=desk")
                    taken += 1
                except AssertionError as error:
                    refused += "503" in str(error)
            await trio.sleep(70)
            async with opened_raw(network, "agent=desk") as raw:
                raw.ask("hello")
                assert (await raw.end())["type"] == "done"
            await trio.sleep(1)
            return taken, refused, node.connections

    assert simulate(main) == (500, 100, 0)
