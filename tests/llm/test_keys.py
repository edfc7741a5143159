"""The keys of providers: sent, read again, named by their reference, and never shown."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lmos_actors import ActionFailed, ConfigError, StartFailed, open_node
from lmos_actors.llm import AnthropicModel, OpenAIModel
from lmos_actors.transport import MemoryNetwork
from tests.live.watching import NAMES, SECURITY, watching
from tests.llm.asking import AFTER_HELLO, END, PROVIDERS, SECRET, items, model_of, start
from tests.llm.provider_server import Received, Reply, Tool, open_provider, refused

if TYPE_CHECKING:
    from pathlib import Path


def echoes(provider: str) -> list[Reply]:
    """Return failures with the key in them: in words, in names, in heads, in what is no HTTP."""
    said = f"the key {SECRET} is not liked"
    body = f'{{"error": {{"message": "{said}", "type": "{SECRET}", "code": "{SECRET}"}}}}'.encode()
    return [
        *(Reply(status=status, retry_after="0", error=said) for status in (401, 403, 400, 500, 429)),
        Reply(fault="error event", after=AFTER_HELLO[provider], error=said),
        Reply(fault="error event", error=said, error_type=SECRET),
        Reply(raw=[body]),
        Reply(raw=[f"data: {SECRET}\n\n".encode()]),
        Reply(ends=SECRET, text=()),
        Reply(ends=f"error {SECRET}", text=()),
        Reply(text=(), tools=[Tool("", [SECRET])]),
        refused(401, body, f"x-request-id: {SECRET}", f"retry-after: {SECRET}", f"{SECRET}: 1"),
        Reply(whole=f"HTTP/1.1 500 {SECRET}\r\ncontent-length: 0\r\n\r\n".encode()),
        Reply(whole=f"HTTP/1.1 307 Go\r\nlocation: /{SECRET}\r\ncontent-length: 0\r\n\r\n".encode()),
        Reply(whole=f"HTTP/1.1 200 OK\r\n{SECRET} is no header\r\n\r\n".encode()),
        Reply(whole=f"{SECRET}\r\n\r\n".encode()),
    ]


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_key_is_sent_and_never_shown(
    provider: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KEY_OF_TESTS", SECRET)
    for name in NAMES:
        monkeypatch.setenv(f"LIVE_{name.upper()}", f"{name}-token")
    caplog.set_level(logging.DEBUG)
    spans = InMemorySpanExporter()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    reports: list[str] = []
    network = MemoryNetwork()
    options: dict[str, Any] = {"listen": "ws://here", "network": network, "security": SECURITY}
    async with (
        open_provider() as server,
        open_node(tracing=tracing, metrics=True, **options) as node,
        watching("ws://here", network) as watcher,
    ):
        watcher.look("flow")
        await watcher.until(lambda: "it" in watcher.views)
        model = await start(node, server, provider, key="env:KEY_OF_TESTS", record_prompts=True)
        while "answered" not in str(watcher.views):  # the flow begins a moment after the look
            assert (await items(model))[-1] == END
        assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
        for reply in echoes(provider):
            server.default = reply
            failed = (await items(model))[-1]
            assert isinstance(failed, ActionFailed), failed
            reports.append(f"{failed} {failed.output!r} {failed.__context__!r} {failed.__cause__!r}")
        await watcher.until(lambda: "MODEL_MALFORMED" in str(watcher.views))
        reports += [node.dump(), await node.metrics(), node.tree(), str(watcher.views)]
        reports += map(str, node.crash_reports)
    assert "MODEL_KEY_REFUSED" in reports[0]
    assert "(env:KEY_OF_TESTS)" in reports[0]
    assert "the key *** is not liked" in reports[2]
    reports += capfd.readouterr()
    seen = "\n".join([*reports, caplog.text, *(span.to_json() for span in spans.get_finished_spans())])
    assert re.search(r"httpcore2\S* .*receive_response_headers.*\*\*\*", caplog.text), "it logs headers"
    assert SECRET not in seen
    assert not re.search("placeholder|set-when-sent", "\n".join(reports))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_key_that_is_not_there_is_named(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    async with model_of(provider, key="env:NO_SUCH_KEY") as (server, model):
        (failed,) = await items(model)
        assert failed.code == "MODEL_KEY_REFUSED"
        assert "env:NO_SUCH_KEY: the variable is not set" in failed.detail
        assert server.requests == []
        monkeypatch.setenv("NO_SUCH_KEY", SECRET)
        assert (await items(model))[-1] == END


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_cannot_be_a_key_is_not_sent_and_not_shown(provider: str, tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_bytes(SECRET.encode("utf-16-le"))
    async with model_of(provider, key=f"file:{place}") as (server, model):
        (failed,) = await items(model)
        assert failed.code == "MODEL_KEY_REFUSED"
        assert "is no key" in failed.detail
        assert server.requests == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_key_that_was_changed_is_read_again(provider: str, tmp_path: Path) -> None:
    place, valid = tmp_path / "key", "the first one"

    def answer(received: Received) -> Reply:
        return Reply(status=200 if received.headers["authorization"] == f"Bearer {valid}" else 401)

    place.write_text("the first one\n")
    async with model_of(provider, key=f"file:{place}") as (server, model):
        server.default = answer
        assert (await items(model))[-1] == END
        valid = "the second one"
        assert (await items(model))[-1].code == "MODEL_KEY_REFUSED"
        assert len(server.requests) == 2, "the same key is not tried again"
        place.write_text("the second one\n")
        assert (await items(model))[-1] == END
        os.unlink(place)
        valid = "a third one"
        assert (await items(model))[-1].code == "MODEL_KEY_REFUSED"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": SECRET}, "OpenAIModel.key: a reference to a secret is needed, env:NAME or file:PATH"),
        ({"key": 7}, "OpenAIModel.key: a reference to a secret"),
        ({"key": "env:K", "url": "http://models.example/v1"}, "OpenAIModel.key: credentials for"),
        ({"url": "models.example"}, "OpenAIModel.url: must be the http or https URL of an endpoint"),
        ({"url": "https://me:word@models.example"}, "OpenAIModel.url: must be the URL of an endpoint"),
        ({"model": ""}, "OpenAIModel.model: must be the name of a model, not ''"),
        ({"max_tokens": 0}, "OpenAIModel.max_tokens: must be a whole number of at least 1, not 0"),
        ({"retries": -1}, "OpenAIModel.retries: must be a whole number of at least 0"),
        ({"idle_seconds": 0}, "OpenAIModel.idle_seconds: must be a number of seconds above 0"),
        ({"answer_seconds": -1}, "OpenAIModel.answer_seconds: must be a number of seconds above 0"),
        ({"temperature": 3}, "OpenAIModel.temperature: must be a number from 0 to 2"),
        ({"options": [1]}, "OpenAIModel.options: must be a dict of members of requests"),
        ({"concurrency": 0}, "OpenAIModel.concurrency: must be a whole number of at least 1"),
        ({"tokens_per_minute": 1.5}, "OpenAIModel.tokens_per_minute: must be a whole number"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as found:
        OpenAIModel(**{"model": "m", "key": None, **options})
    assert SECRET not in str(found.value)
    if "url" not in options or "key" not in options:
        with pytest.raises(ConfigError, match=re.escape(said.replace("OpenAIModel", "AnthropicModel"))):
            AnthropicModel(**{"model": "m", "key": None, **options})


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_extra_is_named_where_it_is_not_installed(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, provider, None)
    monkeypatch.delitem(__import__("sys").modules, f"lmos_actors.llm._{provider}_format", raising=False)
    async with open_provider() as server, open_node() as node:
        with pytest.raises(StartFailed, match=r"need the extra llm: pip install 'lmos-actors\[llm\]'"):
            await start(node, server, provider)
