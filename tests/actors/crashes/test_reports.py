"""Crash reports: what they say of every way to crash, that they are bounded, and where they go."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Event,
    ExitReason,
    Property,
    Secret,
    StartFailed,
    SupervisorSpec,
    TraceLog,
    action,
    event,
    every,
    open_node,
    prop,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import CrashReport
from tests.actors import crashing

if TYPE_CHECKING:
    from lmos_actors import Node, Ref


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    asked: Event[str] = event()
    questions: int = 0

    @action
    def forecast(self, city: str) -> str:
        self.questions += 1
        self._look_up(city)
        return "rain"

    def _look_up(self, city: str) -> None:
        try:
            {"Bonn": 1}[city]
        except KeyError as exc:
            raise ValueError(f"no such city: {city}") from exc

    @action
    async def slow(self, city: str) -> str:
        await trio.sleep(1)
        self._look_up(city)
        return city

    @action
    async def each(self, city: str) -> AsyncIterator[str]:
        yield city
        self._look_up(city)

    @action
    def wrong(self) -> int:
        return "seven"  # type: ignore[return-value]

    @action
    def in_a_task(self, city: str) -> None:
        self.nursery.start_soon(self.task, city)

    async def task(self, city: str) -> None:
        await trio.sleep(1)
        self._look_up(city)

    @action
    def later(self, city: str) -> None:
        self.after(1, self.on_time, city, n=7)

    def on_time(self, city: str, n: int) -> None:
        self._look_up(city)

    @action
    def ask_around(self, city: str) -> None:
        self.send(self.find(Weather, "other"), Weather.forecast, city)


TREE = SupervisorSpec(
    "root",
    (
        SupervisorSpec(
            "desk",
            (ChildSpec("weather", Weather), ChildSpec("other", Weather)),
            strategy="rest_for_one",
            max_restarts=100,
        ),
    ),
)


async def only_report(node: Node) -> dict[str, Any]:
    await settle()
    (report,) = node.crash_reports
    return report.data()


def the_line(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, start=1) if text in line)


RAISED = the_line("raise ValueError(f")


async def test_a_turn_that_crashes_is_told_in_full(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        weather = node.find(Weather, "weather")
        await trio.sleep(5)
        with pytest.raises(AgentDied):
            await weather.invoke(Weather.forecast, "Rome")
        (report,) = node.crash_reports
        data = report.data()
    assert data["agent"] == report.agent == "desk/weather"
    assert (data["class"], report.agent_class) == ("Weather", Weather)
    assert data["incarnation"] == report.incarnation == 1
    assert report.time == datetime(2030, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert report.supervisors == (("root", "one_for_one"), ("desk", "rest_for_one"))
    assert data["reason"] == report.reason == "ValueError: no such city: Rome"
    assert type(report.error) is ValueError
    assert data["where"] == f"{__file__}:{RAISED} in _look_up"
    assert [call.split(": ")[0].split(" in ")[1] for call in data["calls"]] == ["forecast", "_look_up"]
    assert [(c["how"], c["reason"]) for c in data["causes"]] == [("caused by", "KeyError: 'Rome'")]
    assert data["message"] == {"verb": "invoke", "affordance": "forecast", "arguments": {"city": "'Rome'"}}
    assert data["state"] == {"units": "'celsius'", "questions": "1"}
    assert data["state_as_of"] == "at the crash"


async def test_the_first_line_names_agent_place_and_error(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        with pytest.raises(AgentDied):
            await node.find(Weather).invoke(Weather.forecast, "Rome")
        text = str(node.crash_reports[0])
    first, *rest = text.splitlines()
    place = f"{__file__}:{RAISED} in _look_up"
    assert first == f"agent 'desk/weather' #1 crashed at {place}: ValueError: no such city: Rome"
    assert "  in the tree: root (one_for_one) > desk (rest_for_one) > weather" in rest
    assert "message in hand: invoke forecast(city='Rome')" in rest


async def use(weather: Ref[Weather], how: str) -> None:
    """Make it crash in one of its ways."""
    if how in ("forecast", "slow", "wrong"):
        handle: Any = getattr(Weather, how)
        with pytest.raises(AgentDied):
            await (weather.invoke(handle, "Rome") if how != "wrong" else weather.invoke(Weather.wrong))
    elif how == "each":
        async with weather.stream(Weather.each, "Rome") as items:
            assert await anext(items) == "Rome"
            with pytest.raises(AgentDied):
                await anext(items)
    elif how == "told":
        await weather.tell(Weather.forecast, "Rome")
    elif how == "begun":
        async with weather.begin(Weather.forecast, "Rome") as call:
            with pytest.raises(AgentDied):
                await call.result()
    else:
        await weather.invoke(Weather.in_a_task if how == "task" else Weather.later, "Rome")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("forecast", "invoke forecast(city='Rome')"),
        ("told", "invoke forecast(city='Rome')"),
        ("begun", "invoke forecast(city='Rome')"),
        ("slow", "invoke slow(city='Rome')"),
        ("each", "invoke each(city='Rome')"),
        ("wrong", "invoke wrong()"),
        ("task", "none, it was a task of its nursery"),
        ("timer", "turn Weather.on_time(city='Rome', n=7)"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
async def test_every_way_to_crash_names_what_was_in_hand(
    how: str, message: str, traced, virtual_clock
) -> None:
    log = TraceLog() if traced else None
    async with open_test_node(TREE, instrument=log) as node:
        await use(node.find(Weather, "weather"), how)
        await trio.sleep(2)
        (report,) = node.crash_reports
        assert f"message in hand: {message}" in str(report).splitlines()
        data = report.data()
        if how != "wrong":
            assert data["where"] == f"{__file__}:{RAISED} in _look_up"
        else:
            assert data["where"].endswith(" in wrong")
            assert data["reason"].startswith("TypeError: Weather.wrong returned a result")
        counts = node.find(Weather, "weather").statistics()
        assert counts.accepted == counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered


async def test_the_sender_is_named(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        await node.find(Weather, "weather").invoke(Weather.ask_around, "Rome")
        data = await only_report(node)
    assert (data["agent"], data["message"]["from"]) == ("desk/other", "desk/weather")


async def test_messages_of_the_same_batch_are_told(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        weather = node.find(Weather, "weather")
        await weather.ready()
        for _ in range(20):
            weather.tell_nowait(Weather.forecast, "Bonn")
        weather.tell_nowait(Weather.forecast, "Rome")
        data = await only_report(node)
    assert [m["arguments"]["city"] for m in data["before"]] == ["'Bonn'"] * 16
    assert data["message"]["arguments"] == {"city": "'Rome'"}


# ---- a class that keeps a history


class Diary(Agent, history=3):
    total: Property[int] = prop(default=0)
    ticks: int = 0

    @action
    def add(self, n: int) -> int:
        if n == 7:
            raise ActionFailed("seven")
        self.total += n
        return self.total // (n - 100)

    @action
    async def wait(self, n: int) -> None:
        self.total += n
        await trio.sleep(n)
        self.total = 1 // (n - 10)

    @action
    async def count(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            self.total += 1
            yield i
        raise RuntimeError("counted")

    @every(50)
    def tick(self) -> None:
        self.ticks += 1

    @action
    def alarm(self, n: int) -> None:
        self.after(1, self.ring, n)

    def ring(self, n: int) -> None:
        self.total = n
        raise RuntimeError("rang")


DIARY = SupervisorSpec("root", (ChildSpec("diary", Diary),), max_restarts=100)


async def test_a_history_tells_the_last_messages_and_the_state_before(virtual_clock) -> None:
    async with open_test_node(DIARY) as node:
        diary = node.find(Diary)
        for n in (1, 2):
            await diary.invoke(Diary.add, n)
        with pytest.raises(ActionFailed):
            await diary.invoke(Diary.add, 7)
        await diary.write(Diary.total, 40)
        with pytest.raises(AgentDied):
            await diary.invoke(Diary.add, 100)
        data = await only_report(node)
    told = [(m["affordance"], *m["arguments"].values(), m["outcome"]) for m in data["before"]]
    assert told == [("add", "7", "ActionFailed"), ("total", "40", "done")]
    assert data["state_as_of"] == "before the message in hand"
    assert data["state"]["total"] == "40"


@pytest.mark.parametrize("how", ["wait", "count", "alarm"])
async def test_runs_streams_and_timers_are_kept_too(how: str, virtual_clock) -> None:
    async with open_test_node(DIARY) as node:
        diary = node.find(Diary)
        await diary.write(Diary.total, 5)
        await diary.invoke(Diary.wait, 2)
        await diary.write(Diary.total, 6)
        if how == "alarm":
            await diary.invoke(Diary.alarm, 3)
            await trio.sleep(2)
        elif how == "wait":
            with pytest.raises(AgentDied):
                await diary.invoke(Diary.wait, 10)
        else:
            with pytest.raises(AgentDied):
                async with diary.stream(Diary.count, 2) as items:
                    assert [i async for i in items] == [0, 1]
        data = await only_report(node)
    assert data["state"]["total"] == "6"
    assert data["before"][0]["affordance"] == ("wait" if how != "alarm" else "total")
    assert data["state_as_of"] == "before the message in hand"


async def test_a_periodic_turn_is_kept(virtual_clock) -> None:
    async with open_test_node(DIARY) as node:
        await trio.sleep(120)
        with pytest.raises(AgentDied):
            await node.find(Diary).invoke(Diary.add, 100)
        data = await only_report(node)
    assert [(m["verb"], m["affordance"]) for m in data["before"]] == [("turn", "Diary.tick")] * 2


def test_a_history_is_inherited_and_can_be_given_up() -> None:
    class Same(Diary):
        pass

    class None_(Diary, history=0):
        pass

    assert Same.__contract__.options.history == 3
    assert None_.__contract__.table["add"].fn is Diary.add.__wrapped__
    assert Weather.__contract__.table["forecast"].fn is Weather.forecast.__wrapped__


@pytest.mark.parametrize("history", [-1, True, "many", 1001])
def test_a_history_that_is_no_number_is_refused(history: Any) -> None:
    with pytest.raises(TypeError, match="history must be a whole number from 0 to 1000"):

        class Wrong(Agent, history=history):
            pass


# ---- starts and ends


async def test_a_failed_start_is_told(virtual_clock) -> None:
    class Begun(Agent):
        place: str

        def started(self) -> None:
            raise OSError("no sensor")

    async with open_test_node() as node:
        with pytest.raises(StartFailed):
            await node.start(Begun, place="roof")
        data = await only_report(node)
    assert (data["message"], data["incarnation"], data["reason"]) == ("started()", 1, "OSError: no sensor")
    assert data["state"] == {"place": "'roof'"}


async def test_a_failed_factory_and_a_failed_lifespan_are_told(virtual_clock) -> None:
    class Held(Agent):
        place: str

        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            await trio.sleep(1)
            raise OSError("no sensor")
            yield

    def fail() -> Held:
        raise OSError("no factory")

    async with open_test_node() as node:
        with pytest.raises(StartFailed):
            await node.start(fail)
        with pytest.raises(StartFailed):
            await node.start(Held, place="roof")
        factory, held = (report.data() for report in node.crash_reports)
    assert (factory["message"], factory["state"], factory["class"]) == ("its factory", {}, None)
    assert (held["message"], held["state"]) == ("its start, before started()", {"place": "'roof'"})


async def test_what_is_raised_while_it_ends_is_told(virtual_clock) -> None:
    class Held(Agent):
        place: str

        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await trio.sleep(1)
                raise OSError("the door is stuck")

        @action
        def fail(self) -> None:
            raise KeyError("first")

    reports: list[dict[str, Any]] = []
    tree = SupervisorSpec("root", (ChildSpec("held", lambda: Held(place="roof"), restart="temporary"),))
    for crash in (False, True):
        async with open_test_node(tree) as node:
            held = node.find(Held)
            if crash:
                with pytest.raises(AgentDied):
                    await held.invoke(Held.fail)
                await trio.sleep(5)
            else:
                with pytest.raises(Exception, match="held has stopped, but raised"):
                    await node.root.terminate_child("held")
            reports.append(await only_report(node))
    stopped, crashed = reports
    assert (stopped["message"], stopped["state"]) == ("its end", {"place": "'roof'"})
    assert stopped["reason"] == "OSError: the door is stuck"
    assert crashed["reason"] == "KeyError: 'first'"
    assert crashed["later"] == ["OSError: the door is stuck"]


async def test_the_lifespan_that_leaves_is_named(virtual_clock) -> None:
    class Left(Agent):
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            with trio.move_on_after(1):
                yield

    tree = SupervisorSpec("root", (ChildSpec("left", Left, restart="temporary"),))
    async with open_test_node(tree) as node:
        await trio.sleep(3)
        data = await only_report(node)
    assert data["message"] == "lifespan()"


async def test_ends_that_are_no_crashes_are_not_reported(virtual_clock) -> None:
    class Calm(Agent):
        @action
        def fail(self) -> None:
            raise ActionFailed("as declared")

        @action
        def end(self) -> None:
            self.stop()

    async with open_test_node() as node:
        calm = await node.start_child(ChildSpec("calm", Calm, restart="temporary"))
        with pytest.raises(ActionFailed):
            await calm.invoke(Calm.fail)
        await calm.invoke(Calm.end)
        await settle()
        assert node.crash_reports == ()


async def test_a_linked_agent_dies_without_a_report_of_its_own(virtual_clock) -> None:
    class Mate(Weather):
        @action
        def join(self, name: str) -> None:
            self.link(self.find(Weather, name))

    specs = tuple(ChildSpec(name, Mate, restart="temporary") for name in ("a", "b"))
    async with open_test_node(SupervisorSpec("root", specs)) as node:
        await node.find(Mate, "a").invoke(Mate.join, "b")
        await node.find(Mate, "b").tell(Mate.forecast, "Rome")
        await settle()
        assert [report.agent for report in node.crash_reports] == ["b"]


async def test_a_reason_leads_to_its_report(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        weather = node.find(Weather)
        async with weather.monitor() as downs:
            with pytest.raises(AgentDied):
                await weather.invoke(Weather.forecast, "Rome")
            down = await downs.receive()
        assert down.reason.report is node.crash_reports[0]
        assert down.reason == ExitReason("error", error=down.reason.error)


async def test_a_caller_is_told_the_reason_and_no_more(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        with pytest.raises(AgentDied) as caught:
            await node.find(Weather).invoke(Weather.forecast, "Rome")
    assert str(caught.value) == "agent desk/weather died (ValueError: no such city: Rome), request had begun"
    assert caught.value.__cause__ is None


# ---- bounds


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Endless:
    def __repr__(self) -> str:
        return repr(self)


class Huge:
    def __repr__(self) -> str:
        return "x" * 1_000_000


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Hostile(), "<Hostile whose repr raises>"),
        (Endless(), "<Endless whose repr raises>"),
        (object(), "<object object>"),
        pytest.param(10**5000, "<int of 16610 bits>", id="long"),
        ({2, 1}, "{1, 2}"),
        (set(), "set()"),
        ((1,), "(1,)"),
        (b"\xff", "b'\\xff'"),
        ("\x1b[31m", "'\\x1b[31m'"),
        (True, "True"),
    ],
)
def test_a_value_is_shown_whatever_it_is(value: Any, shown: str) -> None:
    assert crashing.shown(value) == shown


@pytest.mark.parametrize("value", [Huge(), ["y" * 1000] * 1000, "z" * 10**6, {n: n for n in range(10**5)}])
def test_a_value_is_shown_in_little_room(value: Any) -> None:
    assert len(crashing.shown(value)) <= 512


def test_a_value_that_contains_itself_is_shown() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert crashing.shown(value).startswith("[1, [1, [1, ")


async def test_a_report_is_bounded_whatever_it_is_about(virtual_clock) -> None:
    class Heap(Agent):
        many: Any = attrs.field(factory=lambda: {n: ["ü" * 1000] * 50 for n in range(500)})
        hostile: Any = attrs.field(factory=lambda: [Hostile(), Endless(), Huge()])

        def __attrs_post_init__(self) -> None:
            for n in range(300):
                setattr(self, f"field_{n}", "ö" * 10_000)

        @action
        def fail(self, text: str, depth: int) -> None:
            if depth:
                self.fail(text, depth - 1)
            error: BaseException = NoText()
            for n in range(100):
                error = ExceptionGroup(text, [error, ValueError(text)]) if n % 2 else _caused(text, error)  # type: ignore[list-item]
            error.add_note(text)
            raise error

    async with open_test_node() as node:
        heap = await node.start(Heap)
        with pytest.raises(AgentDied):
            await heap.invoke(Heap.fail, "\N{SNOWMAN}\n" * 100_000, 100)
        (report,) = node.crash_reports
        text, data = str(report), report.data()
    assert len(text.encode()) <= 16_384
    assert text.endswith("… the rest is left out")
    assert len(data["causes"]) == 8
    assert len(data["calls"]) == 21
    assert "81 calls left out" in data["calls"][5]
    assert all(len(value) <= 512 for value in data["state"].values())
    assert sum(map(len, data["state"].values())) < 16_384


def _caused(text: str, cause: BaseException) -> Exception:
    error = RuntimeError(text)
    error.__cause__ = cause
    return error


class Elusive(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError(name)


async def test_an_exception_whose_attributes_raise_is_told(virtual_clock) -> None:
    class Plain(Agent):
        @action
        def crash(self) -> None:
            raise Elusive("plain")

    class Secretive(Plain):
        token: Secret[str] = "no such key"

    for cls in (Plain, Secretive):
        async with open_test_node(SupervisorSpec("root", (ChildSpec("it", cls),))) as node:
            with pytest.raises(AgentDied):
                await node.find(cls).invoke(cls.crash)
            (report,) = node.crash_reports
            assert "Elusive: plain" in str(report)


async def test_a_ring_of_causes_ends(virtual_clock) -> None:
    class Ring(Agent):
        @action
        def fail(self) -> None:
            one, two = KeyError("one"), KeyError("two")
            one.__cause__, two.__cause__ = two, one
            raise one

    async with open_test_node() as node:
        with pytest.raises(AgentDied):
            await (await node.start(Ring)).invoke(Ring.fail)
        data = await only_report(node)
    assert [cause["reason"] for cause in data["causes"]] == ["KeyError: 'two'"]


class Kept(Agent):
    token: Secret[str]
    data: Any = None

    @action
    def fail(self, given: Any, key: Secret[str]) -> None:
        self.data = given
        raise ValueError(self.token, key, given)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(st.text("abcdefgh", min_size=6, max_size=300), st.text("stuvwxyz\n\x00é", min_size=6), PLAIN)
def test_no_report_shows_a_secret_and_every_report_is_bounded(token: str, key: str, given: Any) -> None:
    async def main() -> None:
        async with open_test_node() as node:
            kept = await node.start(Kept, token=token)
            with pytest.raises(AgentDied) as caught:
                await kept.invoke(Kept.fail, [given, token, {"k": key}], key)
            (report,) = node.crash_reports
            texts = (str(report), repr(report), *_texts(report.data()), str(caught.value))
            assert [text for text in texts if token in text or key in text] == []
            assert len(texts[0].encode()) <= 16_384

    trio.run(main, clock=VirtualClock())


def _texts(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [text for item in data.items() for text in _texts(list(item))]
    return [text for item in data for text in _texts(item)] if isinstance(data, list) else [str(data)]


@pytest.mark.slow
async def test_ten_thousand_crashes_keep_no_more_than_a_hundred_reports(virtual_clock) -> None:
    tree = SupervisorSpec("root", (ChildSpec("weather", Weather),), max_restarts=2, max_seconds=0.5)

    async def crash(times: int) -> int:
        for _ in range(times):
            await weather.tell(Weather.forecast, "Rome")
            await trio.sleep(1)
            await weather.ready()
        gc.collect()
        return len(gc.get_objects())

    async with open_test_node(tree) as node:
        weather = node.find(Weather)
        first = await crash(300)
        assert await crash(9_700) < first + 500
        assert len(node.crash_reports) == 100
        assert node.crash_reports[-1].incarnation == 10_000
        assert weather.statistics().restarts == 10_000


# ---- where they go


async def test_reports_can_be_watched(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        async with node.watch_crash_reports() as feed:
            await node.find(Weather).tell(Weather.forecast, "Rome")
            report = await feed.receive()
            assert isinstance(report, CrashReport)
        await node.find(Weather, "other").tell(Weather.forecast, "Rome")
        await settle()
        assert len(node.crash_reports) == 2
        with pytest.raises(trio.WouldBlock):
            feed.receive_nowait()


class Seen:
    def __init__(self) -> None:
        self.crashes: list[dict[str, object]] = []

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        if kind == "crashed":
            self.crashes.append(fields)


async def test_the_instrument_gets_the_whole_exception(virtual_clock) -> None:
    seen = Seen()
    async with open_test_node(TREE, instrument=seen) as node:
        await node.find(Weather).tell(Weather.forecast, "Rome")
        await settle()
        ((fields),) = seen.crashes
    report = fields["report"]
    assert isinstance(report, CrashReport)
    assert isinstance(report.error, ValueError)
    assert isinstance(report.error.__cause__, KeyError)
    assert fields["reason"] == "ValueError: no such city: Rome"


async def test_a_trace_tells_a_report_in_one_line_without_places(virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(TREE, instrument=log) as node:
        await node.find(Weather).tell(Weather.forecast, "Rome")
        await settle()
    (line,) = (line for line in log.lines() if '"crashed"' in line)
    assert '"report":"<CrashReport desk/weather #1: ValueError: no such city: Rome>"' in line


def crash_often(times: int, clock: trio.abc.Clock | None, *, first: bool = True) -> None:
    async def main() -> None:
        tree = SupervisorSpec("root", (ChildSpec("weather", Weather),), max_restarts=1000)
        async with open_node(tree) as node:
            weather = node.find(Weather)
            for _ in range(times):
                with pytest.raises(AgentDied):
                    await weather.invoke(Weather.forecast, "Rome")
                while True:
                    try:
                        await weather.ready()
                        await weather.read(Weather.units)
                        break
                    except AgentUnavailable:
                        continue

    trio.run(main, clock=clock)


def test_a_plain_program_sees_crashes_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    crash_often(1, None)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("lmos_actors", logging.ERROR)
    assert record.getMessage().startswith("agent 'weather' #1 crashed at ")


def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    crash_often(35, trio.testing.MockClock())
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 11
    assert texts[-1] == "25 crash reports were left out here; node.crash_reports has the last ones"


def test_a_handler_that_raises_changes_nothing() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("disk full")

    handler = Broken()
    logging.getLogger("lmos_actors").addHandler(handler)
    try:
        crash_often(2, trio.testing.MockClock())
    finally:
        logging.getLogger("lmos_actors").removeHandler(handler)


async def test_a_simulated_world_logs_nothing(virtual_clock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_test_node(TREE) as node:
        await node.find(Weather).tell(Weather.forecast, "Rome")
        await settle()
        assert len(node.crash_reports) == 1
    assert caplog.records == []


def test_a_first_start_that_fails_is_raised_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Begun(Agent):
        def started(self) -> None:
            raise OSError("no sensor")

    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(StartFailed):
                await node.start(Begun)
            assert len(node.crash_reports) == 1

    trio.run(main)
    assert caplog.records == []
