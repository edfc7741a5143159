"""Sixty peers that take what memory they get, over sockets, and a client that behaves: it is served all the
while, in a process of its own, and nothing is left when they are gone."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from wsproto.events import TextMessage

from lmos_actors import Agent, ChildSpec, Event, action, event, open_node
from lmos_actors.transport import ConnectionOptions
from tests.source import ROOT
from tests.wire_conformance.good_client import Counter
from tests.wire_conformance.sockets import Closed, Tcp, connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

EACH = 12
"""Peers of each kind."""

REQUESTS = 100
LIMIT = 4 << 20


class Target(Agent):
    """What the greedy turn to."""

    gate: trio.Event = attrs.field(factory=trio.Event)
    news: Event[str] = event()

    @action
    async def hold(self, words: list[str] | None = None) -> None:
        await self.gate.wait()

    @action
    def large(self) -> str:
        return "x" * 300_000

    @action
    def speak(self) -> None:
        self.news.emit("n" * 50_000)


def message(kind: str, number: int, **members: Any) -> str:
    frame = {"messageType": kind, "thingID": "target", "messageID": f"m{number}", **members}
    return json.dumps(frame)


async def half_a_message(url: str) -> None:
    socket = await connect(Tcp(), f"{url}/ws", subprotocols=("lmosprotocol",))
    async with socket.stream:
        for _ in range(8):
            part = TextMessage(data="[" * 60_000, message_finished=False)
            await socket.stream.send_all(socket.ws.send(part))
        await trio.sleep_forever()


async def answers_unread(url: str) -> None:
    socket = await connect(Tcp(), f"{url}/ws", subprotocols=("lmosprotocol",))
    async with socket.stream:
        for number in range(20):
            await socket.send(message("invokeAction", number, action="large"))
        await trio.sleep_forever()


async def parked_tells(url: str) -> None:
    socket = await connect(Tcp(), f"{url}/ws", subprotocols=("lmosprotocol",))
    words = {"words": ["word"] * 500}
    async with socket.stream:
        for number in range(1, 200):
            await socket.send(message("invokeAction", number, action="hold", tell=number, input=words))
        await trio.sleep_forever()


async def half_a_body(url: str) -> None:
    host, _, port = url.removeprefix("ws://").removesuffix("/").rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    head = "POST /agents/target/actions/hold HTTP/1.1", f"Host: {host}:{port}", "Content-Length: 4000000"
    async with stream:
        await stream.send_all("\r\n".join((*head, "Content-Type: application/json", "", "")).encode())
        await stream.send_all(b"[" + b"1," * 200_000)
        await trio.sleep_forever()


async def events_unread(url: str) -> None:
    host, _, port = url.removeprefix("ws://").removesuffix("/").rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    head = "GET /agents/target/events/news HTTP/1.1", f"Host: {host}:{port}", "Accept: text/event-stream"
    async with stream:
        await stream.send_all("\r\n".join((*head, "", "")).encode())
        await trio.sleep_forever()


KINDS = (half_a_message, answers_unread, parked_tells, half_a_body, events_unread)


async def insist(attack: Callable[[str], Awaitable[None]], url: str) -> None:
    """Do it again whenever the server has had enough."""
    while True:
        try:
            await attack(url)
        except (OSError, Closed, trio.BrokenResourceError):
            await trio.sleep(0.3)


@pytest.mark.slow
async def test_a_client_that_behaves_is_served_among_sixty_that_take_what_they_get() -> None:
    gate = trio.Event()
    narrow = ConnectionOptions(total_bytes=LIMIT)
    async with open_node(listen="ws://127.0.0.1:0", connection=narrow) as server:
        target = await server.start_child(ChildSpec("target", partial(Target, gate=gate)))
        await server.start_child(ChildSpec("counter", Counter))
        url = server.urls[0].removesuffix("/")

        async def speak() -> None:
            while True:
                await target.tell(Target.speak)
                await trio.sleep(0.05)

        async with trio.open_nursery() as greedy:
            greedy.start_soon(speak)
            for attack in KINDS * EACH:
                greedy.start_soon(insist, attack, url)
            while server.statistics().memory.gave_way < EACH:  # noqa: ASYNC110 -- nothing tells
                await trio.sleep(0.01)
            served = await trio.run_process(
                [sys.executable, "-m", "tests.wire_conformance.good_client", url, str(REQUESTS)],
                capture_stdout=True,
                cwd=ROOT,
            )
            memory = server.statistics().memory
            greedy.cancel_scope.cancel()
        assert served.stdout.split() == [str(REQUESTS).encode()]
        assert 0 < memory.bytes <= LIMIT
        gate.set()
        while server.connections or server.statistics().memory.bytes:  # noqa: ASYNC110 -- nothing tells
            await trio.sleep(0.01)
        assert server.statistics().memory.granted == 0
        assert server.connection_failures == ()
