"""What a node tells in numbers, read by the parsers of prometheus_client."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    ConfigError,
    Event,
    MailboxFull,
    MailboxOptions,
    NotFound,
    Pool,
    Property,
    Supervisor,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.observe import MetricsOptions
from lmos_actors.observe._exposition import OPENMETRICS, PROMETHEUS, Family, Sample, encode_families
from lmos_actors.observe._request_counts import RequestCounts
from lmos_actors.supervision import BulkSpec
from tests.observe.http_requests import ask, line_to, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

P = "lmos_actors_"
ALONE = MetricsOptions(registry=None)


class Weather(Agent):
    """Says something, fails, dies, or takes its time."""

    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()

    @action
    def turn(self, city: str) -> str:
        self.asked.emit(city)
        return f"sunny in {city}"

    @action
    def fail(self) -> None:
        raise ActionFailed("no weather today")

    @action
    def die(self) -> None:
        raise ValueError("lightning")

    @action
    async def work(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"


# ---- the text


HOSTILE = 'a"b\\c\nd\r\te{}=,#äöü \u2028 \U0001f600'


@pytest.mark.parametrize("media_type", [PROMETHEUS, OPENMETRICS])
@given(value=st.text(max_size=50))
def test_any_text_is_the_value_of_a_label(media_type: str, value: str) -> None:
    family = Family("x", "gauge", "Some.", (Sample((("label", value),), 1),))
    text = b"".join(encode_families((family,), media_type)).decode() + (
        "# EOF\n" if media_type == OPENMETRICS else ""
    )
    readable = value.encode("utf-8", "replace").decode()
    assert samples(text) == {("x", readable): 1}


def test_long_texts_are_cut_and_many_samples_come_in_pieces() -> None:
    many = [Sample((("label", f"{number} {'x' * 1000}"),), number) for number in range(1000)]
    pieces = list(encode_families((Family("x", "counter", "Some.", many),), PROMETHEUS))
    assert len(pieces) > 20
    assert max(map(len, pieces)) < 10_000
    assert len(samples(b"".join(pieces).decode())) == 1000


def test_a_histogram_is_one_to_both_parsers() -> None:
    tallies = RequestCounts((0.1, 1), 2)
    for seconds in (0.05, 0.1, 0.5, 7):
        tallies.take(("Weather", "turn", "invoke", "lmos"), "2xx", seconds)
    for end in (b"", b"# EOF\n"):
        families = tallies.families(P, "Requests")
        text = b"".join(encode_families(families, OPENMETRICS if end else PROMETHEUS)) + end
        found = samples(text.decode())
        key = ("turn", "Weather")
        counts = {
            name[3]: count
            for name, count in found.items()
            if name[0] == f"{P}request_duration_seconds_bucket" and name[1:3] == key
        }
        assert counts == {"0.1": 2, "1.0": 3, "+Inf": 4}
        assert found[f"{P}request_duration_seconds_sum", *key, "invoke", "lmos"] == 7.65
        assert found[f"{P}request_duration_seconds_count", *key, "invoke", "lmos"] == 4
        assert found[f"{P}requests_total", *key, "2xx", "invoke", "lmos"] == 4


def test_label_sets_are_bounded() -> None:
    tallies = RequestCounts((1,), 3)
    for number in range(100):
        tallies.take((f"Class{number}", HOSTILE, "invoke", "lmos"), "2xx", 0)
        tallies.take((f"Class{number}", "x", "read", "http"), "4xx", 0)
        tallies.refuse("invented", "lmos", "4xx")
    assert len(tallies) == 3 + 2  # `other` by verb and way, one of them is among the first three
    found = samples(b"".join(encode_families(tallies.families(P, "Requests"), PROMETHEUS)).decode())
    counted = {name[1:]: count for name, count in found.items() if name[0] == f"{P}requests_total"}
    assert counted["other", "other", "2xx", "invoke", "lmos"] == 99
    assert counted["other", "other", "4xx", "read", "http"] == 99
    assert counted["other", "other", "4xx", "other", "lmos"] == 100
    assert sum(counted.values()) == 300


# ---- a node


async def test_agents_are_counted_by_class_and_one_by_one(autojump_clock: Any) -> None:
    async with open_node(metrics=ALONE) as node:
        weather = await node.start(Weather)
        full = MailboxOptions(size=2, when_full="reject")
        slow = await node.start_child(ChildSpec("slow", Weather, mailbox=full))
        await weather.invoke(Weather.turn, "Bonn")
        with pytest.raises(AgentDied):
            await weather.invoke(Weather.die)
        for _ in range(3):
            await slow.tell(Weather.work, 10)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(MailboxFull):
            await slow.tell(Weather.work, 10)
        found = samples(await node.metrics())
    by_class = {name[0].removeprefix(P): count for name, count in found.items() if name[1:] == ("Weather",)}
    assert by_class == {
        "restarts_total": 1,
        "mailbox_depth": 2,
        "mailbox_deepest": 2,
        "senders_waiting": 0,
        "runs": 1,
    }
    outcomes = {name[2]: n for name, n in found.items() if name[0] == f"{P}messages_total"}
    assert outcomes == {"handled": 2, "cancelled": 0, "dropped": 0, "dead_lettered": 0, "refused": 1}
    assert found[f"{P}agent_mailbox_depth", "slow", "Weather"] == 2
    assert found[f"{P}agent_mailbox_depth", "weather", "Weather"] == 0
    assert found[f"{P}agents", "Weather", "running"] == 2


async def test_totals_do_not_fall_when_agents_go(autojump_clock: Any) -> None:
    handled = (f"{P}messages_total", "Weather", "handled")
    async with open_node(metrics=ALONE) as node:
        seen: list[float] = []
        for _ in range(3):
            weather = await node.start_child(ChildSpec("weather", Weather, restart="temporary"))
            await weather.invoke(Weather.turn, "Bonn")
            await trio.sleep(1)
            seen.append(samples(await node.metrics())[handled])
            await node.root.terminate_child("weather")
            await trio.sleep(1)
            found = samples(await node.metrics())
            seen.append(found[handled])
            assert not any(name[0] == f"{P}agents" for name in found)
        assert seen == [1, 1, 2, 2, 3, 3]


async def test_of_many_agents_only_classes_are_told_and_others_have_their_turns(autojump_clock: Any) -> None:
    crowd = BulkSpec("crowd", member=ChildSpec("one", Weather), count=3000)
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    async with (
        open_node(SupervisorSpec("root", [crowd]), metrics=ALONE) as node,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(count)
        found = samples(await node.metrics())
        nursery.cancel_scope.cancel("counted")
    assert found[f"{P}agents", "Weather", "running"] == 3000
    assert not any(name[0] == f"{P}agent_mailbox_depth" for name in found)
    assert steps >= 3000 // 500 - 1


async def test_classes_are_bounded(autojump_clock: Any) -> None:
    async with open_node(metrics=MetricsOptions(registry=None, classes=3)) as node:
        for number in range(10):
            made = type(f"Class{number}", (Weather,), {"__module__": __name__})
            ref = await node.start_child(ChildSpec(f"agent-{number}", made))
            await ref.invoke(Weather.turn, "Bonn")
        found = samples(await node.metrics())
    agents = {name[1]: count for name, count in found.items() if name[0] == f"{P}agents"}
    assert agents == {"Class0": 1, "Class1": 1, "Class2": 1, "other": 7}


async def test_one_count_serves_all_who_ask_within_a_second(autojump_clock: Any) -> None:
    asked = (f"{P}agents", "Weather", "running")
    async with open_node(metrics=ALONE) as node:
        await node.start(Weather)
        assert samples(await node.metrics())[asked] == 1
        await node.start(Weather)
        assert samples(await node.metrics())[asked] == 1
        await trio.sleep(1)
        assert samples(await node.metrics())[asked] == 2
        await trio.sleep(1)
        with trio.CancelScope() as scope:  # who leaves in the middle leaves it to the next
            scope.cancel("left")
            await node.metrics()
        assert samples(await node.metrics())[asked] == 2


async def test_requests_are_counted_where_they_come_in_and_where_they_go_out(autojump_clock: Any) -> None:
    async with open_node(metrics=ALONE, listen="ws://here") as node, open_node(metrics=ALONE) as other:
        await node.start(Weather)
        weather = await other.consume(Weather, "http://here/agents/weather")
        await weather.invoke(Weather.turn, "Bonn")
        await weather.read(Weather.units)
        await weather.tell(Weather.turn, "Rome")
        assert await weather.within(9).invoke(Weather.work, 0.3) == "done"
        with pytest.raises(ActionFailed):
            await weather.invoke(Weather.fail)
        with trio.move_on_after(1):
            await weather.invoke(Weather.work, 5)
        async with weather.observe(Weather.units) as readings:
            async for _ in readings:
                break
        with pytest.raises(AgentDied):
            await weather.invoke(Weather.die)
        nobody = await other.consume(Weather, "ws://here", thing="nobody")
        with pytest.raises(NotFound):
            await nobody.invoke(Weather.turn, "Bonn")
        came, went = samples(await node.metrics()), samples(await other.metrics())
    requests = {name[1:]: count for name, count in came.items() if name[0] == f"{P}requests_total"}
    lmos = {
        ("turn", "Weather", "2xx", "invoke"): 2,
        ("units", "Weather", "2xx", "read"): 1,
        ("units", "Weather", "2xx", "observe"): 1,
        ("work", "Weather", "2xx", "invoke"): 1,
        ("work", "Weather", "cancelled", "invoke"): 1,
        ("fail", "Weather", "4xx", "invoke"): 1,
        ("die", "Weather", "5xx", "invoke"): 1,
        ("other", "other", "4xx", "invoke"): 1,
    }
    assert requests == {(*key, "lmos"): count for key, count in lmos.items()}
    sent = {name[1:]: count for name, count in went.items() if name[0] == f"{P}client_requests_total"}
    theirs = lmos | {("turn", "Weather", "4xx", "invoke"): 1}
    del theirs["other", "other", "4xx", "invoke"]
    assert sent == {(*key, "lmos"): count for key, count in theirs.items()}
    labels = ("work", "Weather", "invoke", "lmos")
    assert came[f"{P}request_duration_seconds_sum", *labels] == pytest.approx(1.3, abs=0.01)
    assert came[f"{P}connections",] >= 1
    assert went[f"{P}peers_connected",] >= 1
    assert came[f"{P}held_limit_bytes",] == 256 << 20
    assert came[f"{P}held_bytes",] == came[f"{P}gave_way_total",] == 0


async def test_a_request_that_another_member_of_a_pool_takes_is_one(autojump_clock: Any) -> None:
    async with open_node(metrics=ALONE, listen="ws://here") as node, open_node() as other:
        near = await node.start_pool(Pool(Weather, 2, name="pool", shutdown=0.5))
        pool = await other.consume(Weather, "http://here/agents/pool")

        async def work() -> None:
            with suppress(AgentDied):  # what the member that is stopped was at
                await pool.invoke(Weather.work, 1)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(work)
            await trio.sleep(0.1)
            await near.resize(1)
        found = samples(await node.metrics())
    works = {name[3]: n for name, n in found.items() if name[:2] == (f"{P}requests_total", "work")}
    assert works == {"2xx": 3, "5xx": 1}
    assert found[f"{P}request_duration_seconds_sum", "work", "Weather", "invoke", "lmos"] == pytest.approx(
        6.5, abs=0.2
    )


async def test_what_a_mailbox_refuses_is_counted_with_its_agent(autojump_clock: Any) -> None:
    async with open_node(metrics=ALONE, listen="ws://here") as node, open_node(metrics=ALONE) as other:
        full = MailboxOptions(size=1, when_full="reject")
        await node.start_child(ChildSpec("weather", Weather, mailbox=full))
        weather = await other.consume(Weather, "http://here/agents/weather")
        async with weather.begin(Weather.work, 1) as first, weather.begin(Weather.work, 1) as second:
            await trio.sleep(0.1)
            with pytest.raises(MailboxFull):
                await weather.invoke(Weather.turn, "Bonn")
            await first.result()
            await second.result()
        came, went = samples(await node.metrics()), samples(await other.metrics())
    for name, found in (("requests", came), ("client_requests", went)):
        counted = {key[1:4]: n for key, n in found.items() if key[0] == f"{P}{name}_total"}
        assert counted == {("turn", "Weather", "5xx"): 1, ("work", "Weather", "2xx"): 2}


async def test_no_total_falls_when_an_agent_goes_while_others_are_counted(autojump_clock: Any) -> None:
    crowd = BulkSpec("crowd", member=ChildSpec("one", Quiet), count=8000)
    late = SupervisorSpec("late", [ChildSpec("weather", Weather, restart="temporary")])
    async with open_node(SupervisorSpec("root", [crowd, late]), metrics=ALONE) as node:
        await node.find(Weather).invoke(Weather.turn, "Bonn")
        handled = (f"{P}messages_total", "Weather", "handled")
        seen = [samples(await node.metrics())[handled]]
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:

            async def count() -> None:
                seen.append(samples(await node.metrics())[handled])

            nursery.start_soon(count)
            await trio.lowlevel.checkpoint()
            supervisor = next(each for each in node.root.children if each.label == "late")
            assert isinstance(supervisor, Supervisor)
            await supervisor.terminate_child("weather")
            seen.append(-len(seen))  # it was gone before the end of the count
        await trio.sleep(1)
        seen.append(samples(await node.metrics())[handled])
    assert seen == [1, -1, 1, 1]


class Quiet(Agent):
    pass


async def test_what_is_asked_over_http_is_counted_too(autojump_clock: Any) -> None:
    async with open_node(metrics=ALONE, listen="ws://here") as node:
        await node.start(Weather)
        line = await line_to(node)
        await line.ask("/agents/weather/actions/turn", "POST", {"city": "Bonn"})
        assert (await line.ask("/agents/weather/properties/units")).data == "celsius"
        assert (await line.ask("/agents/weather/actions/fail", "POST")).status >= 400
        assert (await line.ask("/agents/weather/properties/nothing")).status == 404
        assert (await line.ask("/agents/weather/events/turn", "PATCH")).status == 405
        assert (await line.ask("/agents/weather/properties/units", Accept="image/png")).status == 406
        late = await line.ask("/agents/weather/properties/units", "PUT", "kelvin", If_Match='"another"')
        assert late.status == 412
        found = samples((await line.ask("/metrics")).text)
    requests = {name[1:]: count for name, count in found.items() if name[0] == f"{P}requests_total"}
    assert requests == {
        ("turn", "Weather", "2xx", "invoke", "http"): 1,
        ("units", "Weather", "2xx", "read", "http"): 1,
        ("fail", "Weather", "4xx", "invoke", "http"): 1,
        ("units", "Weather", "4xx", "write", "http"): 1,
        ("other", "other", "4xx", "read", "http"): 2,
        ("other", "other", "4xx", "other", "http"): 1,
    }


# ---- at /metrics


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", PROMETHEUS),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", OPENMETRICS),
    ],
)
async def test_the_format_is_the_one_that_is_asked_for(accept: str, kind: str, autojump_clock: Any) -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("orders", "Orders.", ["what"], registry=registry).labels(HOSTILE).inc()
    options = MetricsOptions(registry=registry)
    async with open_node(metrics=options, listen="ws://here") as node:
        await node.start(Weather)
        answer = await ask(node, "/metrics", Accept=accept)
        bare = await ask(node, "/metrics", "HEAD", Accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert (bare.status, bare.headers["content-type"], bare.text) == (200, kind, "")
    found = samples(answer.text)
    assert found["orders_total", HOSTILE] == 1
    assert found[f"{P}agents", "Weather", "running"] == 1


async def test_a_collector_that_fails_costs_its_own_metrics_alone(autojump_clock: Any) -> None:
    class Broken:
        def collect(self) -> Iterator[Any]:
            raise ZeroDivisionError("a collector's bug")
            yield

    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    known: Any = registry
    known._collector_to_names[Broken()] = []  # as `register`, which would call it
    async with open_node(metrics=MetricsOptions(registry=registry)) as node:
        assert samples(await node.metrics())[f"{P}dead_letters_total",] == 0
        assert [type(each) for each in node.connection_failures] == [ZeroDivisionError]


async def test_without_metrics_there_are_none(autojump_clock: Any) -> None:
    async with open_node(listen="ws://here") as node:
        assert (await ask(node, "/metrics")).status == 404
        with pytest.raises(RuntimeError, match="metrics=True"):
            await node.metrics()


@pytest.mark.parametrize(
    "options",
    [{"label_sets": 0}, {"classes": True}, {"buckets": ()}, {"buckets": (1, 1)}, {"buckets": (math.inf,)}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        MetricsOptions(**options)


async def test_what_is_no_options_is_refused(autojump_clock: Any) -> None:
    with pytest.raises(ConfigError, match="metrics"):
        async with open_node(metrics="yes"):  # type: ignore[arg-type]
            pass
