"""Spans on their way to a collector: real sockets, OTLP over HTTP, a server that takes what it is sent."""

from __future__ import annotations

import gzip
import signal
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lmos_actors import ConfigError, open_node
from lmos_actors.cli.serve._tracing import spans_to
from tests.cli.test_serve import project as project, serving
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


def test_a_collector_is_sent_one_trace_of_two_nodes() -> None:
    async def main(provider: Any) -> None:
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
        with spans_to(url) as provider:
            trio.run(main, provider)
        paths, messages = zip(*taken, strict=True)
    assert dict.fromkeys(paths) == {"/v1/traces": None}
    resources = [each for message in messages for each in message.resource_spans]
    names = {item.key: item.value.string_value for item in resources[0].resource.attributes}
    assert names["service.name"] == "lmos-actors"
    spans = [span for each in resources for scope in each.scope_spans for span in scope.spans]
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
def test_what_is_no_collector_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="URL of a collector"), spans_to(url):
        pass


def test_without_a_collector_there_is_no_provider() -> None:
    with spans_to(None) as provider:
        assert provider is None


def test_serve_tells_numbers_and_sends_spans(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "the weather service")

    async def client(url: str) -> None:
        async with open_node() as node:
            slow = await node.consume_thing(url)
            assert await slow.invoke("work", {"seconds": 0}) == "celsius 3"

    with collector() as (url, taken):
        with serving("served.py:Slow", "--metrics", "--tracing", url) as served:
            trio.run(client, served.url)
            with urlopen(served.url.replace("/agents/slow", "/metrics")) as answer:
                text = answer.read().decode()
            served.process.send_signal(signal.SIGTERM)
            assert served.end() == (0, ["draining", "stopped"]), served.errors
        (sent,) = [each for _, message in taken for each in message.resource_spans]
    assert samples(text)["lmos_actors_requests_total", "work", "Slow", "2xx", "invoke", "lmos"] == 1
    assert "process_cpu_seconds_total" in text
    assert [span.name for scope in sent.scope_spans for span in scope.spans] == ["invoke Slow.work"]
    names = {item.key: item.value.string_value for item in sent.resource.attributes}
    assert names["service.name"] == "the weather service"
