"""Our refs reach WebSocket servers that are not ours and answer by the examples of the LMOS text."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from websockets.asyncio.server import ServerConnection, serve

from lmos_actors import Agent, Event, Property, Ref, action, event, open_node, prop
from tests.wire_conformance.bench import Bench, World
from tests.wire_conformance.examples import EXAMPLES, FORECASTER, Feedback, ModelConfiguration
from tests.wire_conformance.foreign import NODE, SCRIPT, ws_folder as ws_folder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SECONDS = 20.0
"""Seconds that one of them may take, of real time."""

CONFIGURED = ModelConfiguration("gpt-4o", 0.7, 1000)


class Examples(Agent, rename="camel"):
    """All that the examples name."""

    model_configuration: Property[ModelConfiguration] = prop(default=CONFIGURED)
    user_feedback_received: Event[Feedback] = event()

    @action
    def get_weather(self, question: str) -> str:
        """Answer a question."""
        return question

    @action
    def get_time(self) -> str:
        """Is none that the server has."""
        return ""


# ---- servers


class Thing:
    """What `foreign.cjs` has too: answers a message by the examples."""

    def answers(self, text: str) -> list[dict[str, Any]]:
        message = json.loads(text)
        settled = {name: self.settle(name, message) for name in EXAMPLES}
        match message["messageType"]:
            case "readProperty" | "observeProperty":
                return [settled["propertyReading"]]
            case "writeProperty":
                return [settled["propertyReading"] | {"name": message["name"], "value": message["data"]}]
            case "writeMultipleProperties":
                return [settled["propertyReadings"] | {"data": message["data"]}]
            case "invokeAction" if message["action"] == "getWeather":
                answer = settled["actionStatus"]
                early = {name: value for name, value in answer.items() if name != "output"}
                return [*(early | {"status": word} for word in ("pending", "in progress")), answer]
            case "subscribeEvent":
                return [settled["event"]]
            case "unobserveProperty" | "unsubscribeEvent":
                return []
            case _:
                return [settled["error"]]

    def settle(self, example: str, request: dict[str, Any]) -> dict[str, Any]:
        """Give an example as the answer to a request."""
        raw = {name: value for name, value in EXAMPLES[example].items() if not name.lower().endswith("id")}
        ids = {"thingID": request["thingID"], "messageID": EXAMPLES["propertyReading"]["messageID"]}
        return raw | ids | {"correlationID": request["correlationID"]}


@asynccontextmanager
async def by_websockets(folder: str = "") -> AsyncGenerator[int]:
    """Have a server of `websockets` in a thread of its own; gives its port."""
    started, found = threading.Event(), []

    async def talk(socket: ServerConnection) -> None:
        async for text in socket:
            for answer in Thing().answers(cast("str", text)):
                await socket.send(json.dumps(answer))

    async def run() -> None:
        stop = asyncio.Event()
        found.append((asyncio.get_running_loop(), stop))
        async with serve(talk, "127.0.0.1", 0, subprotocols=cast("Any", ["lmosprotocol"])) as server:
            found.append(next(iter(server.sockets)).getsockname()[1])
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        await trio.to_thread.run_sync(started.wait, SECONDS)
        yield found[1]
    finally:
        loop, stop = found[0]
        loop.call_soon_threadsafe(stop.set)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(thread.join)


@asynccontextmanager
async def by_node(kind: str, folder: str) -> AsyncGenerator[int]:
    """Have a server in Node; gives its port."""
    process = await trio.lowlevel.open_process(
        [str(NODE), str(SCRIPT), "server", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "WS_FOLDER": folder},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with process.stdin as stdin:
            await stdin.send_all(json.dumps(EXAMPLES).encode())
        line = b""
        while not line.endswith(b"\n"):
            line += await process.stdout.receive_some() or b"\n"
        yield int(line)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


# ---- what is asked of each


async def told(port: int) -> list[Any]:
    """Ask for everything; give what came of it."""
    async with open_node() as node:
        it: Ref[Examples] = await node.consume(Examples, f"ws://127.0.0.1:{port}/agent", thing=FORECASTER)
        b = Bench(World(), cast("Any", it), FORECASTER)
        seen: list[Any] = [
            await b.said(it.read(Examples.model_configuration)),
            await b.said(it.write(Examples.model_configuration, CONFIGURED)),
            await b.said(it.invoke(Examples.get_weather, "What is the weather in New York?")),
            await b.said(it.invoke(Examples.get_time)),
        ]
        async with it.begin(Examples.get_weather, "and tomorrow?") as call:
            seen.append(await b.said(call.result()))
        async with it.observe(Examples.model_configuration) as readings:
            seen += await b.some(readings, 1)
        async with it.subscribe(Examples.user_feedback_received) as feedback:
            seen += await b.some(feedback, 1)
        seen.append(await b.said(it.read(Examples.model_configuration)))
        assert node.connection_failures == ()
    return seen


MODEL = "ModelConfiguration {'modelName': 'gpt-4o', 'temperature': 0.7, 'maxTokens': 1000}"
SUNNY = EXAMPLES["actionStatus"]["output"]
TROUBLE = "The weather service encountered an internal error."
TOLD = [
    MODEL,
    None,
    SUNNY,
    f"ActionFailed: {TROUBLE} [output={TROUBLE!r}]",
    SUNNY,
    MODEL,
    f"Feedback {EXAMPLES['event']['data']}",
    MODEL,
]


async def test_websockets_of_python() -> None:
    with trio.fail_after(SECONDS):
        async with by_websockets() as port:
            assert await told(port) == TOLD


@pytest.mark.skipif(NODE is None, reason="there is no Node.js here")
async def test_a_server_by_hand_in_node() -> None:
    with trio.fail_after(SECONDS):
        async with by_node("by-hand", "") as port:
            assert await told(port) == TOLD


@pytest.mark.slow
async def test_ws_of_npm(ws_folder: str) -> None:
    with trio.fail_after(SECONDS):
        async with by_node("ws", ws_folder) as port:
            assert await told(port) == TOLD
