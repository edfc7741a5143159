"""The spans of a node that is traced are the same while somebody looks at its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lmos_actors import Agent, ChildSpec, Ref, SupervisorSpec, action, open_node
from lmos_actors.actors import TracedSlot, slot_of
from lmos_actors.transport import MemoryNetwork
from tests.live.watching import SECURITY, watching

if TYPE_CHECKING:
    from trio.testing import MockClock

PLACE = "ws://here"

PROVIDER = TracerProvider()


class Weather(Agent):
    """At the end of the way."""

    @action
    async def turn(self, city: str) -> str:
        with PROVIDER.get_tracer("weather").start_as_current_span("look outside"):
            await trio.sleep(0.001)
        return f"sunny in {city}"


class Desk(Agent):
    """Asks, tells and sends, in a span of its own."""

    @action
    async def forecast(self, city: str) -> str:
        weather: Ref[Weather] = self.find(Weather, "weather")
        with PROVIDER.get_tracer("desk").start_as_current_span("ask about it"):
            found = await weather.invoke(Weather.turn, city)
        with PROVIDER.get_tracer("desk").start_as_current_span("tell"):
            await weather.tell(Weather.turn, city)
        with PROVIDER.get_tracer("desk").start_as_current_span("send"):
            self.send(weather, Weather.turn, city)
        return found


def lines(spans: InMemorySpanExporter) -> list[tuple[str, str, bool]]:
    """Return each span with the one above it, and whether they are of one trace."""
    found = spans.get_finished_spans()
    spans.clear()
    by_id = {span.context.span_id: span for span in found if span.context is not None}
    above = [by_id.get(0 if span.parent is None else span.parent.span_id) for span in found]
    return sorted(
        (span.name, "" if one is None else one.name, one is None or one.context == one.context)
        for span, one in zip(found, above, strict=True)
    )


async def test_spans_are_the_same_while_somebody_looks(virtual_clock: MockClock) -> None:
    spans = InMemorySpanExporter()
    PROVIDER.add_span_processor(SimpleSpanProcessor(spans))
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("desk", Desk), ChildSpec("weather", Weather)])

    async def ask() -> list[tuple[str, str, bool]]:
        with PROVIDER.get_tracer("user").start_as_current_span("user"):
            await desk.invoke(Desk.forecast, "Bonn")
        await trio.sleep(1)
        return lines(spans)

    async with open_node(tree, listen=PLACE, network=network, security=SECURITY, tracing=PROVIDER) as node:
        desk = node.find(Desk, "desk")
        before = await ask()
        async with watching(PLACE, network) as watcher:
            watcher.look("flow")
            await watcher.until(lambda: watcher.views.get("it"))
            await trio.sleep(2)
            assert type(slot_of(desk)) is TracedSlot
            assert await ask() == before
        await trio.sleep(10)
        assert await ask() == before
    assert [name for name, above, _ in before if not above] == ["user"]
