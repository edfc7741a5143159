"""Peers over sockets that do not read, or reset, while their answer is sent in the step of the reader."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, Event, MailboxOptions, SupervisorSpec, action, event, open_node
from lmos_actors.actors import slot_of
from lmos_actors.transport import ConnectionOptions
from tests.transport.peer import CLOSE, TEXT, closing, frame, frames_of, mask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from lmos_actors import Node

LARGE = 3_000_000
"""Characters that a socket does not take at once whose peer has a small buffer."""

HEAD = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: lmosprotocol\r\n\r\n"
)
SPENT = b"all connections together hold too much memory, and this one most of it: try again later"


class Taker(Agent, mailbox=MailboxOptions(size=8)):
    took: list[int] = attrs.field(factory=list)
    said: Event[str] = event()

    @action
    def take(self, number: int) -> int:
        self.took.append(number)
        return number

    @action
    def take_large(self, number: int) -> str:
        self.took.append(number)
        return "x" * LARGE

    @action
    def speak(self, number: int) -> int:
        self.took.append(number)
        for _ in range(300):
            self.said.emit("y" * 10_000)
        return number

    @action
    def exit(self, number: int) -> None:
        raise (KeyboardInterrupt, SystemExit, GeneratorExit)[number]


def message(number: int, action: str = "take") -> bytes:
    said = {"messageType": "invokeAction", "thingID": "taker", "action": action, "input": {"number": number}}
    return mask(frame(TEXT, json.dumps({**said, "messageID": f"m{number}"}).encode()))


class Peer:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.came = b""

    def send(self, *data: bytes) -> None:
        self.socket.send(b"".join(data))

    async def read(self, *, until: Callable[[bytes], bool]) -> None:
        """Read until that is so, or the end."""
        while not until(self.came):
            await trio.lowlevel.wait_readable(self.socket)
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return
            if not data:
                return
            self.came += data

    def answers(self) -> list[str]:
        found = [json.loads(data) for kind, data in frames_of(self.came, masked=False) if kind == TEXT]
        return [one["correlationID"] for one in found if one["messageType"] != "event"]

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


async def connect(node: Node) -> Peer:
    port = int(node.urls[0].rstrip("/").rpartition(":")[2])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    peer = Peer(sock)
    peer.send(HEAD)
    await peer.read(until=lambda came: b"\r\n\r\n" in came)
    peer.came = b""
    return peer


async def attack(
    body: Callable[[Node], Awaitable[None]], *, close_seconds: float = 0.2, **limits: Any
) -> list[int]:
    """Let peers attack a node; return what its agent took, and check that nothing is left of them."""
    took: list[int] = []
    tree = SupervisorSpec("root", [ChildSpec("taker", partial(Taker, took=took))])
    options = ConnectionOptions(close_seconds=close_seconds, **limits)
    with trio.fail_after(60):
        async with open_node(tree, listen="ws://127.0.0.1:0", connection=options) as node:
            await body(node)
            while node.connections:  # noqa: ASYNC110 -- nothing tells
                await trio.sleep(0.01)
            memory = node.statistics().memory
            assert memory.bytes == memory.granted == 0
            counts = slot_of(node.find(Taker)).statistics()
            assert counts.waiting == counts.running == 0
            ends = counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered
            assert counts.accepted == ends
            assert node.connection_failures == ()
    assert len(took) == len(set(took))
    return took


async def test_peers_that_reset_at_any_time_leave_nothing() -> None:
    async def body(node: Node) -> None:
        for number in range(30):
            peer = await connect(node)
            rest = message(1000 + number)[:20] if number % 2 else b""
            peer.send(message(number, "take_large"), rest)
            for _ in range(number % 7):
                await trio.lowlevel.checkpoint()
            peer.reset()

    await attack(body)


@pytest.mark.slow
async def test_a_peer_that_reads_late_has_one_answer_to_each_request() -> None:
    async def body(node: Node) -> None:
        peer = await connect(node)
        peer.send(message(0, "take_large"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        for number in range(1, 60):
            peer.send(message(number))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await peer.read(until=lambda came: came.count(b"correlationID") == 60)
        assert sorted(peer.answers()) == sorted(f"m{number}" for number in range(60))
        peer.socket.close()

    await attack(body)


async def test_a_close_in_the_middle_of_a_blocked_answer_waits_for_its_end() -> None:
    async def body(node: Node) -> None:
        peer = await connect(node)
        peer.send(message(0, "take_large"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        peer.send(mask(closing()))
        await peer.read(until=lambda _: False)
        frames = frames_of(peer.came, masked=False)
        assert [kind for kind, _ in frames] == [TEXT, CLOSE]
        assert peer.answers() == ["m0"]
        assert frames[-1][1][:2] == b"\x03\xe8"
        peer.socket.close()

    await attack(body, close_seconds=60)


async def test_an_answer_that_is_too_much_for_all_peers_ends_its_connection_by_name() -> None:
    async def body(node: Node) -> None:
        peer = await connect(node)
        peer.send(message(0, "take_large"))
        await peer.read(until=lambda came: SPENT in came)
        assert frames_of(peer.came, masked=False) == [(CLOSE, b"\x03\xf5" + SPENT)]
        peer.socket.close()
        other = await connect(node)
        other.send(message(1))
        await other.read(until=bool)
        assert other.answers() == ["m1"]
        other.socket.close()

    assert await attack(body, total_bytes=200_000) == [0, 1]


async def test_peers_that_read_nothing_give_way_and_others_are_answered() -> None:
    async def body(node: Node) -> None:
        peers = [await connect(node) for _ in range(6)]
        for number, peer in enumerate(peers):
            peer.send(message(number, "take_large"))
            await trio.testing.wait_all_tasks_blocked(0.01)
        good = await connect(node)
        good.send(message(99))
        await good.read(until=bool)
        assert good.answers() == ["m99"]
        assert node.statistics().memory.bytes <= 4_000_000
        for peer in (*peers, good):
            peer.socket.close()

    assert await attack(body, total_bytes=4_000_000) == [*range(6), 99]


async def test_a_turn_that_emits_to_its_own_peer_is_answered_once() -> None:
    async def body(node: Node) -> None:
        peer = await connect(node)
        said = {"messageType": "subscribeEvent", "thingID": "taker", "messageID": "s", "event": "said"}
        peer.send(mask(frame(TEXT, json.dumps(said).encode())))
        await trio.testing.wait_all_tasks_blocked(0.01)
        for number in range(3):
            peer.send(message(number, "speak"))
            await trio.testing.wait_all_tasks_blocked(0.01)
        await peer.read(until=lambda came: b'"m2"' in came and came.endswith(b"}"))
        assert [each for each in peer.answers() if each != "s"] == ["m0", "m1", "m2"]
        peer.socket.close()

    await attack(body)


@asynccontextmanager
async def exiting(kind: int, *, alone: bool) -> AsyncGenerator[Node]:
    """A node that is sent a message whose turn exits; the peer stays."""
    brief = ConnectionOptions(close_seconds=0.05)
    async with open_node(listen="ws://127.0.0.1:0", connection=brief) as node:
        await node.start_child(ChildSpec("taker", Taker))
        peer = await connect(node)
        try:
            peer.send(message(kind, "exit"), b"" if alone else message(9))
            yield node
        finally:
            peer.socket.close()


@pytest.mark.parametrize("alone", [True, False])
async def test_ctrl_c_ends_the_node_however_the_turn_was_run(alone: bool) -> None:
    async def serve() -> None:
        async with exiting(0, alone=alone):
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await serve()


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("kind", [1, 2])
async def test_another_exit_ends_the_agent_alone_however_the_turn_was_run(kind: int, alone: bool) -> None:
    async with exiting(kind, alone=alone) as node:
        taker = node.find(Taker)
        async with taker.monitor() as downs:
            down = await anext(aiter(downs))
        assert type(down.reason.error) is (SystemExit, GeneratorExit)[kind - 1]
        await taker.ready()
