"""Requests as spans: one trace from an HTTP header to the last agent, read back from OpenTelemetry's SDK."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from lmos_actors import (
    ActionFailed,
    Agent,
    ConfigError,
    Event,
    Progress,
    Property,
    Ref,
    action,
    current_request,
    event,
    open_node,
    prop,
    simulate,
)
from lmos_actors.simulation import TraceLog
from tests.observe.http_requests import ask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from opentelemetry.sdk.trace import ReadableSpan

    from lmos_actors import Node

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"

SEEN: list[Any] = []
"""What agents have seen, emptied by each test that looks."""


class Recorder:
    """A provider, and the spans that came of it."""

    def __init__(self, **options: Any) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))

    def took(self) -> list[ReadableSpan]:
        found = list(self.spans.get_finished_spans())
        self.spans.clear()
        return sorted(found, key=lambda span: span.start_time or 0)

    def lines(self) -> list[tuple[str, str]]:
        return [(span.kind.name, span.name) for span in self.took()]


class Weather(Agent):
    """At the far end."""

    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()

    @action
    def turn(self, city: str) -> str:
        SEEN.append(trace.get_current_span().get_span_context())
        self.asked.emit(city)
        return f"sunny in {city}"

    @action
    async def run(self, progress: Progress[float], city: str) -> str:
        SEEN.append(trace.get_current_span().get_span_context())
        progress.report(0.5)
        return f"sunny in {city}"

    @action
    def fail(self) -> None:
        raise ActionFailed("secret weather")

    @action
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)


class Desk(Agent):
    """Between: near for one, with a ref to a far agent."""

    weather: Any

    @action
    async def forecast(self, city: str) -> str:
        with trace.get_tracer("desk").start_as_current_span("own code"):
            await trio.sleep(0.001)
        SEEN.append(current_request().trace)
        return str(await self.weather.invoke(Weather.turn, city))

    @action
    def pass_on(self, city: str) -> None:
        self.send(self.weather, Weather.turn, city)

    @action
    async def write_down(self, city: str) -> None:
        await self.weather.write(Weather.units, city)

    @action
    def remind(self, city: str) -> None:
        self.after(1, self.reminded, city)

    def reminded(self, city: str) -> None:
        self.send(self.weather, Weather.turn, city)


class Gate(Agent):
    """At the near end."""

    desk: Ref[Desk]

    @action
    async def ask(self, city: str) -> str:
        return await self.desk.invoke(Desk.forecast, city)

    @action
    async def ask_in_own_span(self, city: str) -> str:
        with OWN.provider.get_tracer("gate").start_as_current_span("nested"):
            return await self.desk.invoke(Desk.forecast, city)

    @action
    def tell(self, city: str, how: str) -> None:
        self.send(self.desk, getattr(Desk, how), city)

    @action
    async def tell_it(self, city: str, how: str) -> None:
        await self.desk.tell(getattr(Desk, how), city)
        self.desk.tell_nowait(getattr(Desk, how), city)

    @action
    def tell_itself(self, city: str) -> None:
        self.send(self.ref, Gate.tell, city, "pass_on")


OWN = Recorder()


@asynccontextmanager
async def scene(**options: Any) -> AsyncGenerator[tuple[Node, Recorder, Recorder]]:
    """A node with a gate and a desk, whose desk asks the weather of another node."""
    near, far = Recorder(), Recorder()
    SEEN.clear()
    async with (
        open_node(listen="ws://far", tracing=far.provider) as other,
        open_node(listen="ws://near", tracing=near.provider, **options) as node,
    ):
        await other.start(Weather)
        weather = await node.consume(Weather, "http://far/agents/weather")
        desk = await node.start(Desk, weather=weather)
        await node.start(Gate, desk=desk)
        yield node, near, far


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def context_of(span: ReadableSpan) -> SpanContext:
    found: Any = span.get_span_context()
    return found  # type: ignore[no-any-return]


def id_of(span: ReadableSpan) -> str:
    return f"{context_of(span).span_id:016x}"


def traces(*spans: ReadableSpan) -> list[str]:
    return list(dict.fromkeys(f"{context_of(span).trace_id:032x}" for span in spans))


async def test_one_trace_from_an_http_header_to_the_far_agent(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        answer = await ask(
            node,
            "/agents/gate/actions/ask",
            "POST",
            {"city": "Bonn"},
            traceparent=TRACEPARENT,
            tracestate="a=b",
        )
        assert answer.data == "sunny in Bonn"
        came, went = near.took()
        (arrived,) = far.took()
    assert traces(came, went, arrived) == [TRACE]
    assert [parent_of(span) for span in (came, went, arrived)] == [PARENT, id_of(came), id_of(went)]
    assert [span.kind for span in (came, went, arrived)] == [
        SpanKind.SERVER,
        SpanKind.CLIENT,
        SpanKind.SERVER,
    ]
    assert [span.name for span in (came, went, arrived)] == [
        "invoke Gate.ask", "invoke Weather.turn", "invoke Weather.turn",
    ]  # fmt: skip
    assert [TRACE, arrived.get_span_context()] == SEEN
    assert dict(came.attributes or {}) == {
        "rpc.system": "lmos",
        "rpc.service": "Gate",
        "rpc.method": "ask",
        "lmos.verb": "invoke",
        "lmos.agent": "gate",
        "lmos.way": "http",
    }
    assert (went.attributes or {})["lmos.way"] == "lmos"
    assert context_of(came).trace_state.get("a") == "b"


async def test_a_trace_begins_where_somebody_asks_for_the_first_time(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        weather = await node.consume(Weather, "http://far/agents/weather")
        await weather.invoke(Weather.run, city="Bonn")
        await weather.read(Weather.units)
        first, second = near.took()
        answered, read = far.took()
    assert first.parent is second.parent is None
    assert traces(first, answered) != traces(second, read)
    assert (parent_of(answered), parent_of(read)) == (id_of(first), id_of(second))
    assert [answered.get_span_context()] == SEEN


async def test_the_programs_own_span_is_what_its_requests_come_of(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        weather = await node.consume(Weather, "http://far/agents/weather")
        desk = node.find(Desk)
        OWN.took()
        with OWN.provider.get_tracer("program").start_as_current_span("main"):
            await weather.invoke(Weather.turn, "Bonn")
            await desk.invoke(Desk.forecast, "Rome")
        (main,) = OWN.took()
        spans = [*near.took(), *far.took()]
    assert traces(*spans) == traces(main)
    assert [parent_of(span) for span in spans[:2]] == [id_of(main)] * 2


async def test_what_agents_do_of_their_own_accord_is_in_nobodys_trace(autojump_clock: Any) -> None:
    near = Recorder()
    with OWN.provider.get_tracer("program").start_as_current_span("whole program"):
        async with open_node(listen="ws://here", tracing=near.provider) as node:
            agent = await node.start(Spontaneous)
            await ask(node, "/agents/spontaneous/actions/poke", "POST", traceparent=TRACEPARENT)
            await trio.sleep(2)
            assert await agent.read(Spontaneous.seen) == (True, False)


class Spontaneous(Agent):
    seen: Property[tuple[bool, ...]] = prop(default=())

    def started(self) -> None:
        self.after(1, self.look)

    @action
    def poke(self) -> None:
        self.look()

    def look(self) -> None:
        self.seen = (*self.seen, trace.get_current_span().get_span_context().is_valid)


@pytest.mark.parametrize(
    ("action", "body", "times"),
    [
        ("tell", {"how": "pass_on"}, 1),
        ("tell", {"how": "forecast"}, 1),
        ("tell", {"how": "remind"}, 1),
        ("tell_it", {"how": "pass_on"}, 2),
        ("tell_it", {"how": "forecast"}, 2),
        ("tell_itself", {}, 1),
    ],
)
async def test_agents_hand_the_trace_on(
    action: str, body: dict[str, str], times: int, autojump_clock: Any
) -> None:
    async with scene() as (node, near, far):
        line = {"city": "Bonn", **body}
        await ask(node, f"/agents/gate/actions/{action}", "POST", line, traceparent=TRACEPARENT)
        await trio.sleep(2)
        came, *went = near.took()
        arrived = far.took()
    assert len(went) == len(arrived) == times
    assert traces(came, *went, *arrived) == [TRACE]
    assert [parent_of(span) for span in went] == [id_of(came)] * times
    assert [parent_of(span) for span in arrived] == [id_of(span) for span in went]


async def test_a_span_within_a_handler_is_handed_on_too(autojump_clock: Any) -> None:
    async with scene() as (node, near, _):
        OWN.took()
        await ask(
            node, "/agents/gate/actions/ask_in_own_span", "POST", {"city": "x"}, traceparent=TRACEPARENT
        )
        (nested,) = OWN.took()
        came, went = near.took()
    assert (parent_of(nested), parent_of(went)) == (id_of(came), id_of(nested))


async def test_what_is_listened_to_is_in_the_trace_of_who_listens(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        weather = await node.consume(Weather, "http://far/agents/weather")
        async with weather.observe(Weather.units) as readings, weather.subscribe(Weather.asked) as events:
            await anext(aiter(readings))
            asked, subscribed = near.took()
            observing, subscribing = far.took()
            await weather.invoke(Weather.turn, "Bonn")
            await anext(aiter(events))
    assert [span.name for span in (observing, subscribing)] == [
        "observe Weather.units", "subscribe Weather.asked",
    ]  # fmt: skip
    assert [parent_of(observing), parent_of(subscribing)] == [id_of(asked), id_of(subscribed)]


class Listener(Agent):
    weather: Any
    desk: Any

    def started(self) -> None:
        self.follow(self.weather, Weather.asked, self.on_asked)

    def on_asked(self, city: str) -> None:
        self.send(self.desk, Desk.write_down, city)


async def test_events_carry_their_trace_to_who_follows_them(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        weather = await node.consume(Weather, "http://far/agents/weather")
        await node.start(Listener, weather=weather, desk=node.find(Desk))
        await trio.sleep(1)
        near.took()
        far.took()
        await weather.invoke(Weather.turn, "Bonn")
        await trio.sleep(1)
        asked, wrote = near.took()
        answered, written = far.took()
    assert wrote.name == "write Weather.units"
    assert traces(asked, wrote, answered, written) == traces(asked)
    assert [parent_of(wrote), parent_of(written)] == [id_of(answered), id_of(wrote)]


async def test_errors_are_told_by_their_kind_alone(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        weather = await node.consume(Weather, "http://far/agents/weather")
        with pytest.raises(ActionFailed):
            await weather.invoke(Weather.fail)
        with trio.move_on_after(1):
            await weather.invoke(Weather.work, 5)
        await trio.sleep(1)
        failed, cancelled = near.took()
        answered, left = far.took()
    for span, code in ((failed, StatusCode.ERROR), (answered, StatusCode.UNSET)):
        assert (span.attributes or {})["error.type"] == "ActionFailed"
        assert (span.attributes or {})["lmos.status"] == 409
        assert span.status.status_code is code  # a refusal is no fault of the side that answers
        assert (span.status.description, span.events) == (None, ())
    assert (cancelled.attributes or {})["error.type"] == "Cancelled"
    assert (left.attributes or {})["error.type"] == "ActionCancelled"
    assert "secret" not in "".join(span.to_json() for span in (failed, answered))


async def test_what_is_not_sampled_is_handed_on_as_such(autojump_clock: Any) -> None:
    async with scene() as (node, near, far):
        unsampled = f"{TRACEPARENT[:-2]}00"
        await ask(node, "/agents/gate/actions/ask", "POST", {"city": "Bonn"}, traceparent=unsampled)
        assert near.took() == far.took() == []
        assert SEEN[0] == TRACE
        assert (f"{SEEN[1].trace_id:032x}", SEEN[1].trace_flags) == (TRACE, 0)


@pytest.mark.parametrize(
    "said", ["", "00-0-0-01", "ff" + TRACEPARENT[2:], "x" * 5000, f"00-{'0' * 32}-{PARENT}-01"]
)
async def test_what_is_no_trace_context_begins_a_new_trace(said: str, autojump_clock: Any) -> None:
    async with scene() as (node, near, _):
        answer = await ask(node, "/agents/gate/actions/ask", "POST", {"city": "Bonn"}, traceparent=said)
        assert answer.data == "sunny in Bonn"
        assert near.took()[0].parent is None


async def test_a_provider_that_fails_costs_spans_and_nothing_else(autojump_clock: Any) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise ZeroDivisionError("a processor's bug")

    near = TracerProvider()
    near.add_span_processor(Broken())
    async with open_node(listen="ws://here", tracing=near) as node:
        await node.start(Weather)
        for _ in range(2):
            answer = await ask(node, "/agents/weather/actions/turn", "POST", {"city": "Bonn"})
            assert answer.data == "sunny in Bonn"
        assert [type(each) for each in node.connection_failures] == [ZeroDivisionError]


async def test_a_provider_without_the_sdk_hands_on_what_came(autojump_clock: Any) -> None:
    far = Recorder()
    SEEN.clear()
    async with (
        open_node(listen="ws://far", tracing=far.provider) as other,
        open_node(listen="ws://near", tracing=trace.NoOpTracerProvider()) as node,
    ):
        await other.start(Weather)
        desk = await node.start(Desk, weather=await node.consume(Weather, "http://far/agents/weather"))
        await node.start(Gate, desk=desk)
        await ask(node, "/agents/gate/actions/ask", "POST", {"city": "Bonn"}, traceparent=TRACEPARENT)
        (arrived,) = far.took()
    assert traces(arrived) == [TRACE]
    assert parent_of(arrived) == PARENT


async def test_a_sampler_may_leave_out_all_that_begins_here(autojump_clock: Any) -> None:
    near = Recorder(sampler=ParentBased(ALWAYS_OFF))
    async with open_node(listen="ws://here", tracing=near.provider) as node:
        await node.start(Weather)
        await ask(node, "/agents/weather/actions/turn", "POST", {"city": "Bonn"})
        assert near.took() == []
        await ask(node, "/agents/weather/actions/turn", "POST", {"city": "Bonn"}, traceparent=TRACEPARENT)
        assert near.lines() == [("SERVER", "invoke Weather.turn")]


async def test_true_means_the_programs_provider(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    near = Recorder()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: near.provider)
    async with open_node(listen="ws://here", tracing=True) as node:
        await node.start(Weather)
        await ask(node, "/agents/weather/actions/turn", "POST", {"city": "Bonn"})
        assert near.lines() == [("SERVER", "invoke Weather.turn")]


async def test_what_is_no_provider_is_refused(autojump_clock: Any) -> None:
    with pytest.raises(ConfigError, match="tracing"):
        async with open_node(tracing="yes"):  # type: ignore[arg-type]
            pass


async def test_an_instrument_and_spans_tell_of_the_same_traces(autojump_clock: Any) -> None:
    log = TraceLog()
    async with scene(instrument=log) as (node, near, far):
        await ask(node, "/agents/gate/actions/ask", "POST", {"city": "Bonn"}, traceparent=TRACEPARENT)
        spans = [*near.took(), *far.took()]
    assert traces(*spans) == [TRACE]
    records = [json.loads(line) for line in log.lines()]
    sent = [record["trace"] for record in records if record.get("kind") == "sent"]
    assert len(sent) == 2
    assert len(dict.fromkeys(sent)) == 1
    assert SEEN[0] == TRACE


async def test_a_message_to_the_node_itself_is_one_in_its_log_and_two_spans(autojump_clock: Any) -> None:
    log, near = TraceLog(), Recorder()
    async with open_node(listen="ws://here", tracing=near.provider, instrument=log) as node:
        await node.start(Weather)
        desk = await node.start(Desk, weather=await node.consume(Weather, "http://here/agents/weather"))
        assert await desk.invoke(Desk.forecast, "Bonn") == "sunny in Bonn"
        spans = near.took()
    assert len(spans) == 2
    assert len(traces(*spans)) == 1
    records = [json.loads(line) for line in log.lines()]
    sent = [
        (record["id"], record["trace"], record["from"]) for record in records if record.get("kind") == "sent"
    ]
    assert sent == [(1, 1, "user"), (2, 1, "desk")]


def test_on_virtual_time_spans_have_its_times() -> None:
    near = Recorder()

    async def main() -> None:
        async with open_node(listen="ws://here", tracing=near.provider) as node:
            await node.start(Weather)
            weather = await node.consume(Weather, "http://here/agents/weather")
            await weather.invoke(Weather.work, 3600)

    simulate(main, seed=1)
    inner, outer = near.took()
    assert parent_of(inner) == id_of(outer)
    for span in (outer, inner):
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.end_time - span.start_time == pytest.approx(3600e9, rel=1e-3)


@pytest.mark.slow
async def test_one_trace_over_lmos_to_a_thing_that_speaks_http(autojump_clock: Any, tmp_path: Any) -> None:
    last = Recorder()
    async with scene() as (node, near, _far), open_node(listen="ws://thing", tracing=last.provider) as third:
        await third.start(Weather)
        described = (await ask(third, "/agents/weather")).data
        file = tmp_path / "thing.td.json"
        file.write_text(json.dumps(_only_http(described)))
        thing = await node.consume_thing(file)
        await node.start(Reader, thing=thing)
        reader = await node.consume_thing("http://near/agents/reader")  # over LMOS, to itself
        assert await reader.invoke("look") == ["celsius", "sunny in Bonn"]
        asked, came, read, invoked = sorted(near.took(), key=lambda span: span.start_time or 0)
        answered = last.took()
    assert traces(asked, came, read, invoked, *answered) == traces(asked)
    assert [parent_of(span) for span in (came, read, invoked)] == [id_of(asked), id_of(came), id_of(came)]
    assert [parent_of(span) for span in answered] == [id_of(read), id_of(invoked)]
    ways = [(span.attributes or {})["lmos.way"] for span in (asked, came, read, invoked, *answered)]
    assert ways == ["lmos", "lmos", "http", "http", "http", "http"]


class Reader(Agent):
    thing: Any

    @action
    async def look(self) -> list[str]:
        return [await self.thing.read("units"), await self.thing.invoke("turn", {"city": "Bonn"})]


def _only_http(described: dict[str, Any]) -> dict[str, Any]:
    for kind in ("properties", "actions", "events"):
        for each in described.get(kind, {}).values():
            each["forms"] = [form for form in each["forms"] if form.get("subprotocol") != "lmosprotocol"]
    described["forms"] = [f for f in described.get("forms", ()) if f.get("subprotocol") != "lmosprotocol"]
    if not described["forms"]:
        del described["forms"]
    return described
