"""WebSocket clients that are not ours speak the examples of the LMOS text to our agents."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from websockets.asyncio.client import connect

from lmos_actors import SupervisorSpec, open_node
from tests.wire_conformance import letter
from tests.wire_conformance.examples import TURNS, agents, short
from tests.wire_conformance.foreign import NODE, SCRIPT, has_websocket, ws_folder as ws_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECONDS = 30.0
"""Seconds that a client may take, of real time."""


# ---- clients: each has the conversation, and gives what it has heard


async def by_websockets(url: str, offers: list[str], folder: str = "") -> dict[str, Any]:
    async def talk() -> dict[str, Any]:
        heard: list[Any] = []
        async with connect(url, subprotocols=offers or None) as socket:
            for text, answers in TURNS:
                await socket.send(text)
                heard += [json.loads(await socket.recv()) for _ in range(answers)]
        return {"protocol": socket.subprotocol or "", "code": socket.close_code, "heard": heard}

    return await trio.to_thread.run_sync(lambda: asyncio.run(asyncio.wait_for(talk(), SECONDS)))


async def by_node(kind: str, url: str, offers: list[str], folder: str) -> dict[str, Any]:
    command = [str(NODE), "--experimental-websocket", str(SCRIPT), "client", kind, url]
    environment = {**os.environ, "WS_FOLDER": folder, "NODE_NO_WARNINGS": "1"}
    with trio.fail_after(SECONDS):
        said = json.dumps({"offers": offers, "turns": TURNS}).encode()
        done = await trio.run_process(command, stdin=said, capture_stdout=True, env=environment)
    return json.loads(done.stdout)


async def conversation(
    client: Callable[[str, list[str], str], Awaitable[dict[str, Any]]], offers: list[str], folder: str = ""
) -> dict[str, Any]:
    """Have a client speak with the agents of the examples."""
    async with open_node(SupervisorSpec("root", agents()), listen="ws://127.0.0.1:0") as node:
        told = await client(f"{node.urls[0]}/ws", offers, folder)
        assert node.connection_failures == ()
    return told


def check(told: dict[str, Any], protocol: str) -> None:
    assert (told["protocol"], told["code"]) == (protocol, 1000)
    assert [short(message) for message in told["heard"]] == HEARD


HEARD = (Path(__file__).parent / "examples.txt").read_text(encoding="utf-8").splitlines()
"""What each of them hears, in this order."""


async def test_websockets_of_python() -> None:
    told = await conversation(by_websockets, ["lmosprotocol"])
    check(told, "lmosprotocol")
    respelt = [
        {key.replace("Id", "ID"): value for key, value in message.items()} for message in told["heard"]
    ]
    faults = [letter.faults(message, letter.ANSWERS) for message in respelt]
    assert [fault for found in faults for fault in found if "correlationID is '" not in fault] == []


async def test_websockets_of_python_with_several_offers() -> None:
    check(await conversation(by_websockets, ["v1.lmos", "lmosprotocol", "lmos"]), "lmosprotocol")


@pytest.mark.skipif(not has_websocket(), reason="there is no Node.js with a WebSocket here")
async def test_the_websocket_of_node() -> None:
    check(await conversation(partial(by_node, "built-in"), ["lmosprotocol"]), "lmosprotocol")


@pytest.mark.slow
async def test_ws_of_npm(ws_folder: str) -> None:
    check(await conversation(partial(by_node, "ws"), ["lmosprotocol"], ws_folder), "lmosprotocol")
