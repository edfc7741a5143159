"""Answers over HTTP where something does not go as planned: what is said, and what is counted."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, ChildSpec, Pool, SupervisorSpec, action
from lmos_actors.actors import hold
from lmos_actors.observe import MetricsOptions
from lmos_actors.transport import ConnectionOptions
from tests.bindings.web import Weather, World, run, served, world
from tests.observe.http_requests import samples

ALONE = MetricsOptions(registry=None)


def test_a_weak_tag_is_no_condition_for_a_write() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        tag = (await web.ask("GET", "properties/units")).headers["etag"]
        assert (await web.ask("GET", "properties/units", if_none_match=f"W/{tag}")).status == 304
        assert (await web.ask("PUT", "properties/units", "x", if_match=f"W/{tag}")).status == 412
        assert (await web.ask("PUT", "properties/units", "x", if_match=tag)).status == 204

    served(main)


@pytest.mark.parametrize("path", ["events/asked", "events", "properties/units/observable"])
def test_no_length_is_said_of_what_has_no_end(path: str) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        head = await web.ask("HEAD", path, accept="text/event-stream")
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert "content-length" not in head.headers

    served(main)


class CountedSpans(SpanProcessor):
    """How many spans have begun and ended."""

    begun = 0
    ended = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.begun += 1

    def on_end(self, span: Any) -> None:
        self.ended += 1


def test_a_request_that_another_member_of_a_pool_takes_is_one() -> None:
    spans, provider = CountedSpans(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(spans)

    async def main() -> None:
        spec = SupervisorSpec("root", [Pool(Weather, 2, name="weather", shutdown=1.0)])
        async with world(spec=spec, metrics=ALONE, tracing=provider) as there:
            pool = there.node.root.pool("weather")
            hold(pool.members[1])
            webs = [await there.client() for _ in range(2)]
            for web in webs:
                await web.send("POST", "actions/tell", b'{"city": "x"}')
            await wait_all_tasks_blocked()
            await pool.resize(1)
            assert [(await web.answer()).data for web in webs] == ["x 1", "x 1"]
            counted = samples(await there.node.metrics())
            assert counted["lmos_actors_requests_total", "tell", "Weather", "2xx", "invoke", "http"] == 2
        assert (spans.begun, spans.ended) == (2, 2)

    run(main)


class Large(Agent):
    @action
    def text(self, size: int) -> str:
        return "x" * size


def test_an_answer_that_waits_for_its_client_is_there_once() -> None:
    """It counts once in the memory of all peers; no copies stand beside that."""
    size, clients = 500_000, 8

    async def main() -> None:
        spec = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("large", Large)])
        async with world(spec=spec, buffer=4096) as there:
            webs = [await there.client("/agents/large") for _ in range(clients)]
            assert (await webs[0].ask("POST", "actions/text", {"size": 1})).data == "x"
            gc.collect()
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for web in webs:
                    await web.send("POST", f"actions/text?size={size}")
                await wait_all_tasks_blocked()
                held = tracemalloc.get_traced_memory()[0] - before
                counted = there.node.statistics().memory.bytes
            finally:
                tracemalloc.stop()
            assert clients * size <= counted < 1.1 * clients * size
            assert held < 1.6 * clients * size  # what is encoded keeps the room that was reserved for it
            assert {(await web.answer()).status for web in webs} == {200}

    run(main)


def test_after_half_of_a_large_answer_its_connection_ends() -> None:
    """Head and body of it are written one after the other: nothing else may follow what was broken off."""

    async def main() -> None:
        spec = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("large", Large)])
        async with world(spec=spec, connection=ConnectionOptions(total_bytes=1_000_000)) as there:
            web, other = [await there.client("/agents/large") for _ in range(2)]
            request = b"POST /agents/large/actions/text?size=900000 HTTP/1.1\r\nHost: here\r\n\r\n"
            await web.stream.send_all(2 * request)
            await wait_all_tasks_blocked()
            await other.send("POST", "actions/text?size=300000")
            await wait_all_tasks_blocked()
            received = b"".join([part async for part in web.stream])
            assert received.count(b"HTTP/1.1 200") == 1
            assert len(received) < 900_000
            assert (await other.answer()).status == 200

    run(main)
