"""`lmos-actors mcp`: agents in a process that a client has started. Clients of both official SDKs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import trio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from lmos_actors import open_node
from lmos_actors.mcp import McpServer
from tests.mcp.offering import error_of, text_of
from tests.mcp.using import asked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "lmos_actors", "mcp"]
TARGET = "agents/weather.py:WeatherAgent"

NOISY = '''
"""Agents that print, also while they are imported."""
import os
import subprocess
import sys
import time

import trio

from lmos_actors import Agent, action

print("imported")


class Noisy(Agent):
    @action
    def say(self) -> str:
        print("printed")
        os.write(1, b"written\\n")
        subprocess.run([sys.executable, "-c", "print('by a program')"], check=True)
        return "said"

    @action
    def read(self) -> str:
        return sys.stdin.read()

    @action
    async def wait(self, path: str) -> None:
        open(path, "w").close()
        try:
            await trio.sleep_forever()
        finally:
            os.unlink(path)

    @action
    def block(self, path: str) -> None:
        open(path, "w").close()
        time.sleep(60)
'''


@pytest.fixture
def noisy(tmp_path: Path) -> str:
    (tmp_path / "noisy.py").write_text(NOISY)
    return f"{tmp_path}/noisy.py:Noisy"


@asynccontextmanager
async def client_of(*words: str, mode: Any = "auto") -> AsyncIterator[Client]:
    """The official client of Python, which starts the command."""
    started = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *words], cwd=str(ROOT))
    async with Client(started, mode=mode) as client:
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_of_python_uses_agents(mode: str) -> None:
    async with client_of("weather=" + TARGET, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "weather__getWeather" in names
        assert (await error_of(client.call_tool("weather__nothing"))).error.code == -32602


async def test_one_agent_alone_has_plain_names() -> None:
    async with client_of("weather=" + TARGET, "--mcp-agent", "weather", "--mcp-logs") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "getWeather", "giveFeedback", "set_units",
        ]  # fmt: skip
        assert client.server_capabilities.logging is not None


async def test_what_agents_print_does_not_reach_the_client(noisy: str) -> None:
    async with client_of(noisy) as client:
        assert text_of(await client.call_tool("noisy__say")) == "said"
        assert text_of(await client.call_tool("noisy__read")) == ""


async def test_our_own_client_uses_agents(noisy: str) -> None:
    async with open_node() as node:
        server = await node.start(McpServer, command=[*COMMAND, noisy])
        assert (await asked(server, "noisy__say")).structured == {"result": "said"}


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Process:
    """The command, and its two streams."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )

    def send(self, method: str, params: Any, number: int) -> None:
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ended(self) -> tuple[int, bytes]:
        """The exit code, and what standard error has."""
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


def begun(*words: str) -> Process:
    found = Process(*words)
    found.send("initialize", HELLO, 0)
    assert found.answer()["result"]["serverInfo"]["name"] == "lmos_actors"
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(None, 0), (signal.SIGINT, 0), (signal.SIGTERM, 0)], ids=["end", "SIGINT", "SIGTERM"]
)
def test_each_end_cancels_what_runs_and_stops_in_order(
    noisy: str, tmp_path: Path, number: int | None, code: int
) -> None:
    process, path = begun(noisy), tmp_path / "runs"
    process.send("tools/call", {"name": "noisy__wait", "arguments": {"path": str(path)}}, 1)
    while not path.exists():
        process.send("ping", {}, 2)
        assert process.answer()["id"] == 2
    if number is not None:
        process.process.send_signal(number)
    assert process.ended()[0] == code
    assert not path.exists()


def test_more_signals_end_it_though_a_turn_does_not_end(noisy: str, tmp_path: Path) -> None:
    process, path = begun(noisy), tmp_path / "runs"
    process.send("tools/call", {"name": "noisy__block", "arguments": {"path": str(path)}}, 1)
    try:
        while not path.exists():
            assert process.process.poll() is None
        for _ in range(100):
            process.process.send_signal(signal.SIGINT)
            try:
                process.process.wait(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                pass
        assert process.process.returncode == 130
    finally:
        process.process.kill()
        process.process.communicate()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "nothing to serve"),
        (("nothing.py:Nothing",), 2, "nothing.py"),
        (("agents/weather.py:Nobody",), 2, "Nobody"),
        ((TARGET, "--arg", "x=1"), 2, "x"),
        ((TARGET, "--listen", "ws://127.0.0.1:0"), 2, "--listen"),
        (("weather=" + TARGET, "--mcp-agent", "wether"), 2, "did you mean 'weather'"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], code: int, text: str) -> None:
    found = Process(*words).ended()
    assert found[0] == code
    assert text in found[1].decode()
    assert b"Traceback" not in found[1]


@asynccontextmanager
async def serving(*words: str) -> AsyncIterator[str]:
    """The address for MCP clients of a `serve`."""
    process = await trio.lowlevel.open_process(
        [*COMMAND[:-1], "serve", *words],
        stdout=subprocess.PIPE,
        cwd=str(ROOT),
        env={**os.environ, "T": "token"},
    )
    try:
        assert process.stdout is not None
        text = b""
        while b'"event": "ready"' not in text:
            piece = await process.stdout.receive_some()
            assert piece, text
            text += bytes(piece)
        lines = [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]
        yield next(line["url"] for line in lines if line["event"] == "mcp")
    finally:
        process.terminate()
        await process.wait()


RULES = """
schemes:
  - scheme: bearer
    tokens: {desktop: "env:T"}
access:
  weather: {invoke: [desktop], read: [desktop], write: [], subscribe: []}
  "*": {invoke: [], read: [], write: [], subscribe: []}
"""

DEPLOYED = """
lmos: deployment/v1
name: weather
agents:
  noisy: {from: agent, use: "noisy.py:Noisy"}
groups:
  all: {agents: [noisy], mcp: true}
"""


async def test_serve_offers_agents_behind_access_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    words = ["weather=" + TARGET, "--listen", "ws://127.0.0.1:0", "--mcp"]
    words += ["--security", f"{tmp_path}/rules.yaml"]
    async with (
        serving(*words) as url,
        httpx2.AsyncClient(headers={"authorization": "Bearer token"}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["weather__getWeather", "weather__giveFeedback"]


async def test_a_group_of_a_deployment_offers_agents(noisy: str, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(DEPLOYED)
    async with serving(f"{tmp_path}/all.yaml", "--group", "all") as url, Client(url) as client:
        assert text_of(await client.call_tool("noisy__say")) == "said"


NODE_CLIENT = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [where, ...args] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" });
const updated = new Promise((done) =>
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, (each) => done(each.params.uri)));
await client.connect(where.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(where))
  : new StdioClientTransport({ command: where, args }));
const found = { tools: (await client.listTools()).tools.map((tool) => tool.name) };
const progress = [];
const onprogress = (each) => progress.push(each.progress);
const call = (name, args) => client.callTool({ name, arguments: args }, undefined, { onprogress });
found.forecast = await call("weather__forecast", { city: "Bonn" });
found.progress = progress;
found.places = await call("weather__places", {});
found.refused = await call("weather__refuse", {});
const units = "lmos://agents/weather/properties/units";
await client.subscribeResource({ uri: units });
let waits = true;
updated.then(() => { waits = false; });
for (let n = 0; waits; n++) await call("weather__set_units", { value: `unit ${n}` });
found.updated = await updated;
found.unknown = await client.callTool({ name: "weather__nothing" }).catch((error) => error.code);
const stop = new AbortController();
setTimeout(() => stop.abort("enough"), 100);
found.aborted = await client.callTool({ name: "weather__wait" }, undefined, { signal: stop.signal })
  .then(() => false, () => true);
found.after = (await call("weather__look", { name: "Bonn" })).structuredContent;
await client.close();
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="session")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The official client of JavaScript, from npm."""
    folder = tmp_path_factory.mktemp("mcp-client")
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    words = ["npm", "install", "--no-audit", "--no-fund", "@modelcontextprotocol/sdk@1"]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip("@modelcontextprotocol/sdk cannot be installed from npm")
    (folder / "client.mjs").write_text(NODE_CLIENT)
    return ["node", str(folder / "client.mjs")]


async def test_the_client_of_javascript_uses_agents(node_client: list[str]) -> None:
    target = f"{ROOT}/tests/mcp/offering.py:Weather"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for where in ([*COMMAND, target], None):
        async with open_node(listen="ws://127.0.0.1:0", mcp=True) as node:
            from tests.mcp.offering import Marks, Weather

            await node.start(Weather, marks=Marks())
            url = f"http://{node.urls[0].partition('://')[2]}/mcp"
            words = [*node_client, *(where or [url])]
            done = await trio.run_process(
                words, capture_stdout=True, capture_stderr=True, env=environment, check=False, cwd=ROOT
            )
        assert done.returncode == 0, done.stderr.decode()
        found = json.loads(done.stdout)
        assert "weather__forecast" in found["tools"]
        text = "Bonn: sunny for 1 days, 25 degrees celsius"
        assert found["forecast"]["structuredContent"] == {"result": text}
        assert found["progress"] == [0.25, 0.5]
        assert found["places"]["structuredContent"] == {"result": [{"name": "Bonn", "height": None}]}
        assert found["refused"]["isError"]
        assert found["updated"] == "lmos://agents/weather/properties/units"
        assert (found["unknown"], found["aborted"]) == (-32602, True)
        assert found["after"] == {"name": "Bonn", "height": 60.5}
