"""Requests of a far ref: what is sent, what is made of answers, and what becomes of them when that breaks."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    InvalidInput,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    action,
)
from lmos_actors.actors import CallStatus
from lmos_actors.errors import ActionCancelled, RemoteProtocolError
from lmos_actors.protocol import lmos
from tests.benchmarks.counting import Walk
from tests.bindings.client_connections import Weather, Wire, quiet, scripted, two_nodes, weather

OURS = "urn:lmos-actors:errors#"


def complete(wire: Wire, message: dict[str, Any]) -> None:
    """Answer everything at once."""
    match message["messageType"]:
        case "invokeAction":
            wire.status(message, "completed", output=f"{message['input']['city']} 1")
        case "readProperty":
            wire.reading(message, message["name"], "celsius")
        case "writeProperty":
            wire.reading(message, message["name"], message["data"])
        case _:
            pass


async def failing(ask: Any) -> BaseException:
    """Give what a request raises."""
    try:
        await ask
    except Exception as error:
        return error
    raise AssertionError("it was answered")


class Later:
    """A request in a task of its own."""

    def __init__(self, nursery: trio.Nursery, ask: Any) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        nursery.start_soon(self._run, ask)

    async def _run(self, ask: Any) -> None:
        with self.scope:
            try:
                self.value = await ask
            except Exception as error:
                self.error = error
        self.done.set()


async def test_an_invocation_is_one_message_with_one_object(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, _):
        ref = await weather(peers)
        assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"
        sent = peers.wire.last("invokeAction")
        assert sent["thingID"] == "http://server/agents/weather"
        assert (sent["action"], sent["input"]) == ("turn", {"city": "Bonn"})  # defaults are the thing's
        await ref.invoke(Weather.turn, city="Rome", days=2)
        assert peers.wire.last("invokeAction")["input"] == {"city": "Rome", "days": 2}
        assert await ref.read(Weather.units) == "celsius"
        await ref.write(Weather.units, "kelvin")
        assert peers.wire.last("writeProperty")["data"] == "kelvin"


async def test_arguments_are_checked_here(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, _):
        ref: Any = await weather(peers)
        with pytest.raises(InvalidInput, match=r"`str`, got `int` - at \$\.city"):
            await ref.invoke(Weather.turn, 3)
        with pytest.raises(InvalidInput, match="needs 'city'"):
            await ref.invoke(Weather.turn)
        with pytest.raises(InvalidInput, match=r"at \$\.units"):
            await ref.write_many(Weather.units.to(3))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="not finite"):
            await ref.invoke(Weather.forecast, "Bonn", math.inf)
        assert peers.wire.sent == []


async def test_arguments_that_were_checked_as_they_are_sent_are_not_searched_again(
    autojump_clock: Any,
) -> None:
    async with scripted(complete) as (peers, _):
        ref = await weather(peers)
        walk = Walk()
        with walk.counting():
            assert await ref.invoke(Weather.turn, "null") == "null 1"
        assert "bind" in {name for _, _, name in walk.functions}
        assert "check_finite" not in {name for _, _, name in walk.functions}


@attrs.frozen
class Spot:
    height: float = math.nan


class Marker(Agent):
    marked: int = 0

    @action
    def mark(self, spot: Spot) -> int:
        self.marked += 1
        return self.marked


async def test_a_default_that_is_not_finite_is_refused_here(autojump_clock: Any) -> None:
    async with two_nodes(Marker) as (_, client):
        ref: Any = await client.consume(Marker, "http://server/agents/weather")
        for spot in (Spot(), {}):
            with pytest.raises(InvalidInput, match="not finite"):
                await ref.invoke(Marker.mark, spot)
        assert await ref.invoke(Marker.mark, {"height": 3.5}) == 1


async def test_what_the_class_has_not_is_refused_here(autojump_clock: Any) -> None:
    async with scripted(complete) as (peers, _):
        link: Any = (await weather(peers))._link
        with pytest.raises(NotFound, match="'forcast' on weather, did you mean 'forecast'"):
            await link.ask("forcast", (), {})
        with pytest.raises(NotAllowed, match="'units' of weather is a property: read it"):
            await link.ask("units", (), {})


@pytest.mark.parametrize(
    ("kind", "status", "members", "expected"),
    [
        (OURS + "invalid-input", 400, {"path": "$.city"}, InvalidInput("no", "$.city")),
        (OURS + "mailbox-full", 503, {"about": {"size": 64}}, MailboxFull("weather", 64)),
        (OURS + "agent-unavailable", 503, {"retryIn": 2.5}, AgentUnavailable("weather", "no", retry_in=2.5)),
        (OURS + "agent-died", 500, {"started": True}, AgentDied("no", started=True, agent="weather")),
        (OURS + "agent-died", 500, {"started": False}, AgentDied("no", started=False, agent="weather")),
        (OURS + "deadline-exceeded", 503, {"about": {"seconds": 3}}, DeadlineExceeded("weather", 3)),
        (OURS + "action-cancelled", 500, {"about": {"reason": "tired"}}, ActionCancelled("tired")),
        ("urn:other", 500, {"about": {"output": [1]}}, ActionFailed([1])),
        ("urn:other", 418, {"title": "Teapot"}, None),
    ],
)
async def test_errors_are_those_of_a_near_agent(
    autojump_clock: Any, kind: str, status: int, members: dict[str, Any], expected: Exception | None
) -> None:
    def refuse(wire: Wire, message: dict[str, Any]) -> None:
        wire.error(message, kind, status, **members)

    async with scripted(refuse) as (peers, _):
        ref = await weather(peers)
        error = await failing(ref.invoke(Weather.turn, "Bonn"))
        if expected is None:
            assert isinstance(error, RemoteProtocolError)
            assert str(error) == "Teapot: no"
            return
        assert type(error) is type(expected)
        assert str(error) == str(expected)
        told = [{n: v for n, v in vars(e).items() if n != "_agent"} for e in (error, expected)]
        if "status" not in kind and not isinstance(expected, ActionFailed):
            assert told[0] == told[1]


async def test_an_answer_of_another_type_is_the_peers_fault(autojump_clock: Any) -> None:
    def lie(wire: Wire, message: dict[str, Any]) -> None:
        if message["messageType"] == "readProperty":
            wire.reading(message, message["name"], 3)
        elif message["messageType"] == "readAllProperties":
            wire.say("propertyReadings", message, data={"units": 1}, timestamp="2026-01-01T00:00:00Z")
        else:
            wire.status(message, "completed", output={"no": "text"})

    async with scripted(lie) as (peers, _):
        ref = await weather(peers)
        for ask in (ref.invoke(Weather.turn, "Bonn"), ref.read(Weather.units), ref.read_all()):
            error = await failing(ask)
            assert isinstance(error, RemoteProtocolError)
            assert "weather answered" in str(error)
            assert "what is no str" in str(error)


async def test_answers_that_fit_nothing_change_nothing(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        later = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        wire = peers.wire
        sent = wire.last("invokeAction")
        stranger = {**sent, "messageID": "somebody-else"}
        for text in ("", "[]", "{}", '{"messageType": "surprise"}', "nonsense", '{"messageType": 3}'):
            wire.text(text)
        wire.handler.text("\ud800")
        wire.status(stranger, "completed", output="x 1")
        wire.reading(stranger, "units", "x")
        wire.event(stranger, "asked", "x")
        wire.say("gap", stranger, reason="x")
        wire.acknowledge(stranger)
        wire.say("invokeAction", sent, action="turn")
        wire.status(sent, "in progress")
        wire.status(sent, "strange")
        await quiet()
        assert not later.done.is_set()
        wire.status(sent, "completed", output="Bonn 1")
        wire.status(sent, "completed", output="Bonn 2")  # said twice
        wire.error(sent, "urn:x", 500)
        await later.done.wait()
        assert later.value == "Bonn 1"
        assert wire.closed is None


async def test_an_answer_that_cannot_be_read_fails_its_request_alone(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        one = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        first = peers.wire.last("invokeAction")
        other = Later(nursery, ref.invoke(Weather.turn, "Rome"))
        await quiet()
        peers.wire.status(first, 3)  # type: ignore[arg-type]
        await one.done.wait()
        assert isinstance(one.error, RemoteProtocolError)
        peers.wire.status(peers.wire.last("invokeAction"), "completed", output="Rome 1")
        await other.done.wait()
        assert other.value == "Rome 1"


async def test_a_message_that_is_too_long_ends_the_connection(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_bytes=2_000)
    async with scripted(session=options) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        later = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        wire = peers.wire
        wire.status(wire.last("invokeAction"), "completed", output="x" * 3_000)
        await later.done.wait()
        assert wire.closed is not None
        assert wire.closed[0] == 1009
        assert isinstance(later.error, OutcomeUnknown)


async def test_a_break_tells_what_was_sent_from_what_was_not(autojump_clock: Any) -> None:
    async with scripted() as (peers, node), trio.open_nursery() as nursery:
        ref = await weather(peers)
        sent = Later(nursery, ref.invoke(Weather.turn, "sent"))
        await quiet()
        peers.wire.stuck = True
        unsent = Later(nursery, ref.invoke(Weather.turn, "unsent"))
        await ref.tell(Weather.turn, "told")
        await quiet()
        peers.wire.break_off()
        await sent.done.wait()
        await unsent.done.wait()
        assert isinstance(sent.error, OutcomeUnknown)
        assert str(sent.error).startswith("what became of the request to 'weather' is unknown")
        assert isinstance(unsent.error, AgentUnavailable)
        assert unsent.error.started is False
        (letter,) = node.dead_letters
        assert (letter.agent, letter.affordance) == ("weather", "turn")
        assert "the connection ended" in letter.reason


async def test_after_a_drain_nothing_counts_as_begun(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        asks = [Later(nursery, ref.invoke(Weather.turn, str(n))) for n in range(3)]
        await quiet()
        peers.wire.drain()
        for each in asks:
            await each.done.wait()
            assert isinstance(each.error, AgentUnavailable)
            assert each.error.started is False


async def test_a_1012_of_our_own_is_no_drain(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        ask = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        peers.wire.close(1012)
        await ask.done.wait()
        assert isinstance(ask.error, OutcomeUnknown)


async def test_cancelling_the_caller_cancels_the_run_once(autojump_clock: Any) -> None:
    async with scripted() as (peers, node), trio.open_nursery() as nursery:
        ref = await weather(peers)
        later = Later(nursery, ref.invoke(Weather.forecast, "Bonn"))
        await quiet()
        later.scope.cancel()
        await later.done.wait()  # nobody waits for the peer
        await quiet()
        assert peers.wire.kinds() == ["invokeAction", "cancelAction"]
        asked, cancel = peers.wire.sent
        assert cancel["correlationID"] == asked["messageID"]
        peers.wire.status(asked, "failed", cancelled=True, inReplyTo=cancel["messageID"])
        await quiet()
        assert node.dead_letters == ()
        assert peers.statistics()["open"] == 0


async def test_what_is_cancelled_before_it_was_sent_is_never_sent(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        peers.wire.stuck = True
        later = Later(nursery, ref.invoke(Weather.forecast, "Bonn"))
        await quiet()
        later.scope.cancel()
        await later.done.wait()
        peers.wire.go_on()
        await quiet()
        assert peers.wire.sent == []


async def test_within_is_a_deadline_here_and_there(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        begin = trio.current_time()
        with pytest.raises(DeadlineExceeded, match="no answer from 'weather' within 2 s"):
            await ref.within(2).invoke(Weather.forecast, "Bonn")
        assert 2 <= trio.current_time() - begin < 2.02
        await quiet()
        assert peers.wire.last("invokeAction")["remaining"] == pytest.approx(2)
        assert peers.wire.kinds() == ["invokeAction", "cancelAction"]
        with pytest.raises(DeadlineExceeded):
            async with ref.within(1).begin(Weather.forecast, "Bonn") as call:
                await call.result()
        await quiet()
        assert peers.wire.kinds()[2:] == ["invokeAction", "cancelAction"]


async def test_asks_wait_for_room_in_order_and_no_longer_than_they_may(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_open=2)
    async with scripted(session=options) as (peers, node), trio.open_nursery() as nursery:
        ref = await weather(peers)
        asks: list[Later] = []
        for number in range(5):
            asks.append(Later(nursery, ref.invoke(Weather.turn, str(number))))
            await quiet()
        late = await failing(ref.within(1).invoke(Weather.turn, "late"))
        assert isinstance(late, DeadlineExceeded)
        lines = [(each.kind, each.affordance) for each in node.waiting_graph().edges]
        assert lines == [("room", "turn")] * 3
        asks[3].scope.cancel()
        await quiet()
        sent = peers.wire.sent
        for number, expected in enumerate(["0 1", "0 1 2", "0 1 2 4", "0 1 2 4"]):
            assert " ".join(message["input"]["city"] for message in sent) == expected
            peers.wire.status(sent[number], "completed", output=sent[number]["input"]["city"])
            await quiet()
        assert [each.value for each in asks] == ["0", "1", "2", None, "4"]


async def test_who_waits_for_progress_or_outputs_of_what_is_not_sent_is_in_the_waiting_graph(
    autojump_clock: Any,
) -> None:
    options = lmos.SessionOptions(max_open=1)
    async with scripted(session=options) as (peers, node), trio.open_nursery() as nursery:
        ref = await weather(peers)

        async def progress() -> None:
            async with ref.begin(Weather.forecast, "Bonn") as call:
                await call.progress.receive()

        async def outputs() -> None:
            async with ref.stream(Weather.hours, 40) as hours:
                await anext(hours)

        for waits in (ref.invoke(Weather.turn, "open"), progress(), outputs()):
            Later(nursery, waits)
            await quiet()
        edges = node.waiting_graph().edges
        assert [(each.kind, each.affordance) for each in edges] == [("room", "forecast"), ("room", "hours")]
        nursery.cancel_scope.cancel()


async def test_the_line_ends_with_the_connection(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_open=1)
    async with scripted(session=options) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        asks = [Later(nursery, ref.invoke(Weather.turn, str(n))) for n in range(3)]
        await quiet()
        peers.wire.break_off()
        for each in asks:
            await each.done.wait()
        kinds = sorted(type(each.error).__name__ for each in asks)
        assert kinds == ["AgentUnavailable", "AgentUnavailable", "OutcomeUnknown"]


async def test_tells_wait_for_the_outbox_and_nothing_else(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_waiting=2, max_open=100)
    async with scripted(session=options) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        peers.wire.say("tellWindow", messages=64, bytes=65_536)
        for n in range(10):  # fewer than the window of one agent has
            await ref.tell(Weather.turn, str(n))  # nobody answers
        await quiet()
        peers.wire.stuck = True
        for n in range(3):
            await ref.tell(Weather.turn, f"held {n}")
        with pytest.raises(trio.WouldBlock):
            ref.tell_nowait(Weather.turn, "too much")
        waiting = Later(nursery, ref.tell(Weather.turn, "waits"))
        given_up = Later(nursery, ref.tell(Weather.turn, "given up"))
        await quiet()
        assert not waiting.done.is_set()
        given_up.scope.cancel()
        await given_up.done.wait()
        peers.wire.go_on()
        await waiting.done.wait()
        await quiet()
        cities = [message["input"]["city"] for message in peers.wire.sent[10:]]
        assert cities == ["held 0", "held 1", "held 2", "waits"]


async def test_an_error_about_a_tell_is_a_dead_letter(autojump_clock: Any) -> None:
    def refuse(wire: Wire, message: dict[str, Any]) -> None:
        wire.error(message, OURS + "mailbox-full", 503, about={"size": 64})

    async with scripted(refuse) as (peers, node):
        ref = await weather(peers)
        await ref.tell(Weather.turn, "Bonn")
        await quiet()
        (letter,) = node.dead_letters
        assert letter.reason == "mailbox of 'weather' is full (64)"
        assert (letter.agent, letter.affordance, letter.sender) == ("weather", "turn", None)
        assert "Bonn" in letter.message


async def test_thousands_of_calls_are_in_flight_at_once(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_open=8_192)
    async with scripted(session=options) as (peers, _):
        ref = await weather(peers)
        found: list[str] = []

        async def ask(n: int) -> None:
            found.append(await ref.invoke(Weather.turn, str(n)))

        async with trio.open_nursery() as nursery:
            for n in range(4_000):
                nursery.start_soon(ask, n)
            await quiet()
            assert len(peers.wire.sent) == 4_000
            for message in reversed(peers.wire.sent):
                peers.wire.status(message, "completed", output=message["input"]["city"])
        assert sorted(map(int, found)) == list(range(4_000))
        assert peers.statistics() == {"peers": 1, "connected": 1, "open": 0}


# ---- calls


async def test_a_call_tells_progress_is_queried_and_cancelled(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        async with ref.begin(Weather.forecast, "Bonn") as call:
            await quiet()
            wire, run = peers.wire, peers.wire.last("invokeAction")
            wire.status(run, "pending")
            wire.status(run, "in progress", progress=0.5)
            wire.status(run, "in progress", progress="half")  # no float: it is missing
            assert await call.progress.receive() == 0.5
            assert call.progress.missed == 1
            assert call.stood_in_line  # type: ignore[attr-defined]
            query = Later(nursery, call.query())
            await quiet()
            asked = wire.last("queryAction")
            wire.status(run, "in progress", inReplyTo=asked["messageID"])
            await query.done.wait()
            assert query.value == CallStatus("in progress")
            cancels = [Later(nursery, call.cancel("tired")), Later(nursery, call.cancel("again"))]
            await quiet()
            assert wire.kinds().count("cancelAction") == 1
            cancel = wire.last("cancelAction")
            assert cancel["reason"] in ("tired", "again")
            reason = cancel["reason"]
            wire.status(run, "failed", cancelled=True, reason=reason, inReplyTo=cancel["messageID"])
            for each in cancels:
                await each.done.wait()
                assert each.value == CallStatus("failed", cancelled=True, reason=reason)
            with pytest.raises(ActionCancelled, match=reason):
                await call.result()
            assert await call.query() == CallStatus("failed", cancelled=True, reason=reason)
        await quiet()
        assert wire.kinds() == ["invokeAction", "queryAction", "cancelAction"]


async def test_leaving_a_call_cancels_its_run(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        async with ref.begin(Weather.forecast, "Bonn"):
            await quiet()
        await quiet()
        assert peers.wire.kinds() == ["invokeAction", "cancelAction"]


async def test_a_query_that_nobody_waits_for_is_forgotten(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        async with ref.begin(Weather.forecast, "Bonn") as call:
            for _ in range(40):  # more than may be open
                query = Later(nursery, call.query())
                await quiet()
                query.scope.cancel()
                await query.done.wait()
                peers.wire.status(peers.wire.sent[0], "in progress")
            assert peers.statistics()["open"] == 1
            peers.wire.break_off()
            with pytest.raises(OutcomeUnknown):
                await call.result()


async def test_a_query_ends_with_the_connection(autojump_clock: Any) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        async with ref.begin(Weather.forecast, "Bonn") as call:
            await quiet()
            query = Later(nursery, call.query())
            await quiet()
            peers.wire.break_off()
            await query.done.wait()
            assert query.error is not None or query.value == CallStatus("failed")
            assert await call.query() == CallStatus("failed")


async def test_a_stream_is_read_under_credit(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        async with ref.stream(Weather.hours, 40) as hours:
            await quiet()
            wire, run = peers.wire, peers.wire.last("invokeAction")
            assert run["credit"] == {"items": 16, "bytes": 262_144}
            for number in range(16):
                wire.status(run, "in progress", output=number)
            found = [await anext(hours) for _ in range(8)]
            await quiet()
            credit = wire.last("streamCredit")
            assert credit["items"] == 8
            for number in range(16, 24):
                wire.status(run, "in progress", output=number)
            wire.status(run, "completed")
            found += [hour async for hour in hours]
            assert found == list(range(24))
        await quiet()
        assert "cancelAction" not in wire.kinds()


async def test_items_without_credit_end_the_stream(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        async with ref.stream(Weather.hours, 40) as hours:
            await quiet()
            run = peers.wire.last("invokeAction")
            for number in range(20):
                peers.wire.status(run, "in progress", output=number)
            for number in range(16):
                assert await anext(hours) == number
            with pytest.raises(RemoteProtocolError, match="without credit"):
                await anext(hours)
        await quiet()
        assert peers.wire.kinds().count("cancelAction") == 1


async def test_an_item_of_another_type_ends_the_stream(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        async with ref.stream(Weather.hours, 40) as hours:
            await quiet()
            run = peers.wire.last("invokeAction")
            peers.wire.status(run, "in progress", output=0)
            peers.wire.status(run, "in progress", output="one")
            peers.wire.status(run, "in progress", output=2)
            assert await anext(hours) == 0
            with pytest.raises(RemoteProtocolError, match="'hours' with what is no int"):
                await anext(hours)
            with pytest.raises(RemoteProtocolError):  # and no item that came after it
                await anext(hours)
        await quiet()
        assert peers.wire.kinds().count("cancelAction") == 1


async def test_a_broken_stream_gives_what_has_come_and_then_its_error(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        ref = await weather(peers)
        async with ref.stream(Weather.hours, 40) as hours:
            await quiet()
            peers.wire.status(peers.wire.last("invokeAction"), "in progress", output=0)
            peers.wire.break_off()
            await quiet()
            assert await anext(hours) == 0
            with pytest.raises(OutcomeUnknown):
                await anext(hours)


async def test_a_peer_without_credit_is_bounded_all_the_same(autojump_clock: Any) -> None:
    async with scripted(offers=None) as (peers, _):
        ref = await weather(peers)
        async with ref.stream(Weather.hours, 40) as hours:
            await quiet()
            run = peers.wire.last("invokeAction")
            assert "credit" not in run
            for number in range(1_025):
                peers.wire.status(run, "in progress", output=number)
            assert await anext(hours) == 0
            with pytest.raises(MailboxFull):
                [hour async for hour in hours]


# ---- peers of other habits


async def test_a_thing_of_kotlin_wot(autojump_clock: Any) -> None:
    def answer(wire: Wire, message: dict[str, Any]) -> None:
        if message["messageType"] == "invokeAction":
            wire.status(message, "completed", output="Bonn 1")
        elif message["messageType"] in ("readProperty", "writeProperty"):
            wire.reading(message, message["property"], message.get("data", "celsius"))
        elif message["messageType"] == "readAllProperties":
            wire.say("propertyReadings", message, data={"units": "x"}, timestamp=1737399600.52)

    async with scripted(answer, offers=None, kotlin=True) as (peers, _):
        ref = await weather(peers)
        assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"
        assert await ref.read(Weather.units) == "celsius"
        await ref.write_many(Weather.units.to("kelvin"))
        assert await ref.read_all() == {"units": "x"}
        assert peers.wire.kinds() == ["invokeAction", "readProperty", "writeProperty", "readAllProperties"]
        with pytest.raises(NotAllowed, match="does not support a subscription to all events"):
            async with ref.subscribe_all():
                pass
        async with ref.begin(Weather.forecast, "Rome") as call:
            await quiet()
            assert await call.query() == CallStatus("completed")


async def test_a_run_of_kotlin_wot_is_given_up_here(autojump_clock: Any) -> None:
    async with scripted(offers=None, kotlin=True) as (peers, _):
        ref = await weather(peers)
        async with ref.begin(Weather.forecast, "Rome") as call:
            await quiet()
            assert (await call.query()).status == "pending"
            assert await call.cancel("tired") == CallStatus("failed", cancelled=True, reason="tired")
            with pytest.raises(ActionCancelled):
                await call.result()
        assert peers.wire.kinds() == ["invokeAction"]  # it would close the connection at another


async def test_properties_of_a_foreign_thing_are_read_one_by_one(autojump_clock: Any) -> None:
    async with scripted(complete, offers=None) as (peers, _):
        ref = await weather(peers)
        assert await ref.read_all() == {"units": "celsius", "station": "celsius"}
        assert peers.wire.kinds() == ["readProperty", "readProperty"]


async def test_a_request_that_is_too_long_is_refused_here_and_harms_nobody(autojump_clock: Any) -> None:
    options = lmos.SessionOptions(max_bytes=2_000, max_open=1)
    async with scripted(session=options) as (peers, _), trio.open_nursery() as nursery:
        ref = await weather(peers)
        with pytest.raises(InvalidInput, match="this invokeAction is longer than 2000 bytes"):
            await ref.invoke(Weather.turn, "x" * 3_000)
        first = Later(nursery, ref.invoke(Weather.turn, "Bonn"))
        await quiet()
        in_line = Later(nursery, ref.invoke(Weather.turn, "x" * 3_000))
        await quiet()
        behind = Later(nursery, ref.invoke(Weather.turn, "Rome"))
        await quiet()
        peers.wire.status(peers.wire.sent[0], "completed", output="Bonn 1")
        await in_line.done.wait()
        assert isinstance(in_line.error, InvalidInput)
        await quiet()
        peers.wire.status(peers.wire.last("invokeAction"), "completed", output="Rome 1")
        await behind.done.wait()
        assert (first.value, behind.value) == ("Bonn 1", "Rome 1")
