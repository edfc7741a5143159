"""Spans on their way to a collector: real sockets, OTLP over HTTP, a server that takes what it is sent."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lmos_actors import open_node
from lmos_actors.cli import main
from lmos_actors.facades import open_chat
from tests.cli.test_relay import hub, registered
from tests.cli.test_serve import project as project, serving
from tests.commands import surroundings
from tests.observe.http_requests import samples
from tests.observe.test_tracing import Desk, Gate, Weather

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def collector() -> Generator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    """Give the URL of a collector, and what it has been sent: the path and the message."""
    taken: list[tuple[str, ExportTraceServiceRequest]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            taken.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spans_in(taken: list[tuple[str, ExportTraceServiceRequest]]) -> list[tuple[Any, Any]]:
    """Return the spans that a collector was sent, each with its resource."""
    return [
        (each.resource, span)
        for _, message in taken
        for each in message.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]


def test_a_collector_is_sent_one_trace_of_two_nodes() -> None:
    async def talk(provider: Any) -> None:
        async with (
            open_node(listen="ws://127.0.0.1:0", tracing=provider) as other,
            open_node(listen="ws://127.0.0.1:0", tracing=provider) as node,
        ):
            await other.start(Weather)
            far = other.urls[0].replace("ws", "http")
            desk = await node.start(Desk, weather=await node.consume(Weather, f"{far}/agents/weather"))
            await node.start(Gate, desk=desk)
            gate = await node.consume_thing(f"{node.urls[0].replace('ws', 'http')}/agents/gate")
            assert await gate.invoke("ask", {"city": "Bonn"}) == "sunny in Bonn"

    with collector() as (url, taken):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        trio.run(talk, provider)
        provider.shutdown()
    spans = [span for _, span in spans_in(taken)]
    assert len(spans) == 4
    assert len({span.trace_id for span in spans}) == 1
    parents = {span.span_id: span.parent_span_id for span in spans}
    chain = [next(span.span_id for span in spans if not span.parent_span_id)]
    while len(chain) < 4:
        chain.append(next(child for child, parent in parents.items() if parent == chain[-1]))
    told = [(span.kind, span.name) for each in chain for span in spans if span.span_id == each]
    client, server = 3, 2
    assert told == [
        (client, "invoke gate.ask"),
        (server, "invoke Gate.ask"),
        (client, "invoke Weather.turn"),
        (server, "invoke Weather.turn"),
    ]


@pytest.mark.parametrize("url", ["collector:4318", "ws://127.0.0.1:4318", "http://", "http://x:y", ""])
def test_what_is_no_collector_is_refused(project: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "served.py:Slow", "--listen", "ws://127.0.0.1:0", "--tracing", url])
    assert ended.value.code == 2
    assert "--tracing: must be the URL of a collector" in capsys.readouterr().err


async def work_at(url: str) -> None:
    async with open_node() as node:
        slow = await node.consume_thing(url)
        assert await slow.invoke("work", {"seconds": 0}) == "celsius 3"


def test_without_a_collector_nothing_is_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (url, taken):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with serving("served.py:Slow") as served:
            trio.run(work_at, served.url)
            served.process.send_signal(signal.SIGTERM)
            assert served.end()[0] == 0, served.errors
    assert taken == []


@pytest.mark.parametrize(
    ("own", "name", "path"),
    [("the weather service", "the weather service", "/v1/traces"), (None, "lmos-actors", "/")],
)
def test_serve_tells_numbers_and_sends_spans(
    project: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, name: str, path: str
) -> None:
    if own is not None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", own)
    with collector() as (url, taken):
        with serving("served.py:Slow", "--metrics", "--tracing", url + path) as served:
            trio.run(work_at, served.url)
            with urlopen(served.url.replace("/agents/slow", "/metrics")) as answer:
                text = answer.read().decode()
            served.process.send_signal(signal.SIGTERM)
            assert served.end() == (0, ["draining", "stopped"]), served.errors
        assert {path for path, _ in taken} == {"/v1/traces"}
        (sent,) = [each for _, message in taken for each in message.resource_spans]
    assert samples(text)["lmos_actors_requests_total", "work", "Slow", "2xx", "invoke", "lmos"] == 1
    assert "process_cpu_seconds_total" in text
    assert [span.name for scope in sent.scope_spans for span in scope.spans] == ["invoke Slow.work"]
    names = {item.key: item.value.string_value for item in sent.resource.attributes}
    assert names["service.name"] == name


WEATHER = """
from lmos_actors import Agent, action


class Weather(Agent):
    "Knows the weather."

    @action(answers=True)
    def forecast(self, city: str) -> str:
        return f"sunny in {city}"
"""

ASSISTANT = """
import sys

import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from weather import Weather

from lmos_actors import open_node
from lmos_actors.facades import ChatAgent, RelayMember, join_relay
from lmos_actors.mcp import McpServer
from lmos_actors.security import BearerToken, Credentials


class Assistant(ChatAgent):
    far: object
    tools: object
    member: object

    async def reply(self, turn):
        yield await self.far.invoke(Weather.forecast, turn.text)
        found = await self.tools.invoke(McpServer.call, "weather__forecast", {"city": turn.text})
        yield found.content[0].text
        yield (await self.member.invoke(RelayMember.ask, turn.text, ["weather"])).payload


async def main(collector, weather, tools, hub):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(collector + "/v1/traces")))
    token = Credentials({hub.removesuffix("/arc"): BearerToken("file:assistant")})
    async with open_node(listen="ws://127.0.0.1:0", omnia=True, tracing=provider) as node:
        far = await node.consume(Weather, weather)
        tools = await node.start(McpServer, url=tools)
        member = await join_relay(node, hub, credentials=token)
        await node.start(Assistant, far=far, tools=tools, member=member)
        print(node.urls[0], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
    provider.shutdown()


trio.run(main, *sys.argv[1:])
"""


@contextmanager
def assisting(*words: str) -> Generator[str]:
    """Run the assistant; yield its address, and wait for its end."""
    command = [sys.executable, "-c", ASSISTANT, *words]
    with subprocess.Popen(
        command, env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.communicate(timeout=30)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)  # five processes start
def test_a_turn_of_four_processes_is_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub, an agent that is on it, the same agent for MCP clients, and an assistant that asks all three."""

    async def chat(url: str) -> str:
        async with open_chat(f"{url}/api/agents/assistant/ws") as assistant:
            return (await assistant.say("Bonn")).text

    monkeypatch.chdir(tmp_path)
    (tmp_path / "weather.py").write_text(WEATHER, encoding="utf-8")
    with collector() as (url, taken), hub(tmp_path, "--tracing", url) as (relay, place):
        for name in ("weather", "assistant"):
            (tmp_path / name).write_text(registered(tmp_path, place, name)["token"], encoding="utf-8")
        on_relay = ("--relay", place, "--relay-bearer", "file:weather")
        with (
            serving("weather.py:Weather", "--tracing", url, *on_relay) as far,
            serving("weather.py:Weather", "--tracing", url, "--mcp") as tools,
        ):
            mcp = next(each["url"] for each in tools.said if each["event"] == "mcp")
            with assisting(url, far.url, mcp, place) as assistant:
                assert trio.run(chat, assistant) == "sunny in Bonn" * 3
            for each in (far.process, tools.process, relay):
                each.terminate()
                each.wait(30)
    sent = spans_in(taken)
    turn = next(span for _, span in sent if span.name == "invoke Assistant.converse")
    spans = [(resource, span) for resource, span in sent if span.trace_id == turn.trace_id]
    names = {span.span_id: span.name for _, span in spans}
    assert sorted((span.name, names.get(span.parent_span_id, "")) for _, span in spans) == [
        ("ask question", "invoke Assistant.converse"),
        ("invoke Assistant.converse", ""),
        ("invoke Weather.forecast", "invoke Assistant.converse"),
        ("invoke Weather.forecast", "invoke Weather.forecast"),
        ("invoke Weather.forecast", "pass on question"),
        ("invoke Weather.forecast", "tools/call weather__forecast"),
        ("pass on answer", "pass on question"),
        ("pass on question", "ask question"),
        ("tools/call weather__forecast", "invoke Assistant.converse"),
    ]
