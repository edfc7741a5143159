"""Clients that mean harm to the server that judges them: it goes on, and there is a card."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
import trio

from lmos_actors.conformance import (
    Card,
    ClientOptions,
    card_html,
    card_json,
    card_junit,
    card_text,
    judge_clients,
)
from lmos_actors.conformance.wire import (
    CONTINUATION,
    PING,
    TEXT,
    write_frame,
)
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.conformance.breaking import on_virtual_time

HERE = endpoint_of("ws://judge.example")
KEY = b"abcd"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: judge.example\r\nUser-Agent: <script>alert(1)</script>\r\n"
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: lmosprotocol\r\n\r\n"
)
DEEP = b'{"x":' * 5000
LONE = (
    b'{"messageType":"readProperty","thingID":"urn:\\ud800","messageID":"\\ud800","name":"\\ud800","x":1e999}'
)
ATTACKS = {
    "pings": write_frame(PING, b"x" * 100, key=KEY) * 500,
    "depth": write_frame(TEXT, DEEP, key=KEY) * 5,
    "half pairs and infinity": write_frame(TEXT, LONE, key=KEY) * 5,
    "parts": write_frame(TEXT, b"a", fin=False, key=KEY)
    + write_frame(CONTINUATION, b"x" * 60_000, fin=False, key=KEY) * 30,
    "a claim": b"\x81\xff" + struct.pack(">Q", 1 << 62) + KEY,
    "escapes": write_frame(TEXT, b'{"messageType":"\\u001b[2J","<script>alert(1)</script>":1}', key=KEY),
}


async def attacked(data: bytes, *, idle: int = 0) -> Card:
    """Let some connect and say nothing, and one say what it has to say, and leave without a word."""
    network = MemoryNetwork()
    cards: list[Card] = []

    async def judge(task_status: trio.TaskStatus[str]) -> None:
        announce = task_status.started
        cards.append(await judge_clients(network, HERE, ClientOptions(once=True), announce=announce))

    async with trio.open_nursery() as nursery:
        await nursery.start(judge)
        still = [await network.connect(HERE, None) for _ in range(idle)]
        await trio.sleep(11 if idle else 0)
        stream = await network.connect(HERE, None)
        with suppress(trio.BrokenResourceError), trio.move_on_after(5):
            await stream.send_all(UPGRADE)
            assert b"101" in await stream.receive_some(65536)
            await stream.send_all(data)
        await trio.sleep(3)
        await trio.aclose_forcefully(stream)
        for each in still:
            await trio.aclose_forcefully(each)
    assert not network._streams
    return cards[0]


@pytest.mark.parametrize("name", ATTACKS)
def test_there_is_a_card_whatever_comes(name: str) -> None:
    card: Card = on_virtual_time(lambda: attacked(ATTACKS[name]))
    assert all(each.isprintable() or each == "\n" for each in card_text(card, verbose=True))
    assert json.loads(card_json(card).encode())["results"]
    assert card_junit(card).encode()
    assert "<script>alert" not in card_html(card)
    assert "<script>" in card.subject


def test_those_who_never_finish_a_handshake_give_way() -> None:
    card: Card = on_virtual_time(lambda: attacked(ATTACKS["escapes"], idle=60))
    assert not card.passed
