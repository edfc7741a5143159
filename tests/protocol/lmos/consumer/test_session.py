"""A consumer's session: what it sends, and what answers what (D3, D7, D8, D16, D19, C1, C2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from lmos_actors.errors import (
    AgentUnavailable,
    Forbidden,
    InvalidInput,
    LocalProtocolError,
    MailboxFull,
    NotAllowed,
    NotFound,
    RemoteProtocolError,
    Unauthorized,
)
from lmos_actors.protocol import lmos
from lmos_actors.protocol.lmos import ConsumerSession, SessionOptions
from tests.protocol.lmos.thing_by_hand import OURS, THING, Hand
from tests.rows import each_row

SENT = {
    "read": (lambda s: s.read(THING, "unit"), ['readProperty c1 name="unit"']),
    "read_many": (
        lambda s: s.read_many(THING, ["a", "b", "a"]),
        ['readProperty c2 name="a"', 'readProperty c3 name="b"'],
    ),
    "read_all": (lambda s: s.read_all(THING), ["readAllProperties c1"]),
    "write": (lambda s: s.write(THING, "unit", "K"), ['writeProperty c1 name="unit" data="K"']),
    "write null": (lambda s: s.write(THING, "unit", None), ['writeProperty c1 name="unit" data=null']),
    "write_many": (
        lambda s: s.write_many(THING, {"a": 1, "b": [2]}),
        ['writeMultipleProperties c1 data={"a": 1, "b": [2]}'],
    ),
    "invoke": (lambda s: s.invoke(THING, "go"), ['invokeAction c1 action="go"']),
    "invoke with null": (lambda s: s.invoke(THING, "go", None), ['invokeAction c1 action="go" input=null']),
    "invoke with input": (
        lambda s: s.invoke(THING, "go", {"x": 1}),
        ['invokeAction c1 action="go" input={"x": 1}'],
    ),
    "invoke again": (
        lambda s: s.invoke(THING, "go", message_id="mine"),
        ['invokeAction mine action="go"'],
    ),
    "observe": (lambda s: s.observe(THING, "unit"), ['observeProperty c1 name="unit"']),
    "subscribe": (lambda s: s.subscribe(THING, "rain"), ['subscribeEvent c1 event="rain"']),
    "subscribe_all": (lambda s: s.subscribe_all(THING), ["subscribeAllEvents c1"]),
    "traced": (
        lambda s: s.read(THING, "unit", traceparent="00-1", tracestate="a=b"),
        ['readProperty c1 traceparent="00-1" tracestate="a=b" name="unit"'],
    ),
}


@pytest.mark.parametrize("case", SENT)
def test_what_is_asked_goes_out_with_its_id_as_correlation(case: str) -> None:
    ask, wanted = SENT[case]
    hand = Hand()
    ask(hand.session)
    assert [" ".join(sorted(line.split())) for line in hand.short()] == [
        " ".join(sorted(line.split())) for line in wanted
    ]
    assert hand.sent() == []


EXTENDED = {
    (): {"action"},
    ("deadlines",): {"action", "remaining"},
    ("retries",): {"action", "attempt"},
    ("streams",): {"action", "credit", "binary"},
    OURS: {"action", "remaining", "attempt", "credit", "binary"},
}


@pytest.mark.parametrize("offers", EXTENDED)
def test_extensions_go_to_those_who_offer_them(offers: tuple[str, ...]) -> None:
    hand = Hand(offers=offers)
    credit = SessionOptions().credit
    hand.session.invoke(THING, "go", remaining=2.5, attempt=2, credit=credit, binary=True)
    [sent] = hand.sent()
    assert sent.keys() - {"messageType", "thingID", "messageID", "correlationID"} == EXTENDED[offers]


def test_extensions_that_are_switched_off_here_are_not_sent() -> None:
    hand = Hand(offers=OURS, options=SessionOptions(offers=("acks",)))
    hand.session.invoke(THING, "go", remaining=2.5, attempt=2)
    hand.session.subscribe(THING, "rain")
    invoke, subscribe = hand.sent()
    assert "remaining" not in invoke
    assert "gaps" not in subscribe
    assert subscribe["ack"] is True


ANSWERS: dict[str, tuple[Any, list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "read": (
        lambda s: s.read(THING, "unit"),
        [("propertyReading", {"name": "unit", "value": None})],
        [("RequestAnswered", None)],
    ),
    "read by readings": (
        lambda s: s.read(THING, "unit"),
        [("propertyReadings", {"data": {"unit": "K", "x": 1}})],
        [("RequestAnswered", "K")],
    ),
    "read_all": (
        lambda s: s.read_all(THING),
        [("propertyReadings", {"data": {"a": 1}})],
        [("RequestAnswered", {"a": 1})],
    ),
    "write": (
        lambda s: s.write(THING, "unit", "K"),
        [("propertyReading", {"name": "unit", "value": "K"})],
        [("RequestAnswered", "K")],
    ),
    "write by readings": (
        lambda s: s.write(THING, "unit", "K"),
        [("propertyReadings", {"data": {"unit": "C"}})],
        [("RequestAnswered", "C")],
    ),
    "write_many": (
        lambda s: s.write_many(THING, {"a": 1, "b": 2}),
        [("propertyReadings", {"data": {"a": 1, "b": 2}})],
        [("RequestAnswered", {"a": 1, "b": 2})],
    ),
    "write_many by one reading": (
        lambda s: s.write_many(THING, {"a": 1, "b": 2}),
        [("propertyReading", {"name": "b", "value": 2})],
        [("RequestAnswered", {"b": 2})],
    ),
    "invoke": (
        lambda s: s.invoke(THING, "go"),
        [("actionStatus", {"action": "go", "status": "completed", "output": [1]})],
        [("RequestAnswered", [1])],
    ),
    "invoke without output": (
        lambda s: s.invoke(THING, "go"),
        [("actionStatus", {"action": "go", "status": "completed"})],
        [("RequestAnswered", None)],
    ),
    "error": (
        lambda s: s.read(THING, "unit"),
        [("error", {"type": "x", "title": "y", "status": "404", "detail": "z", "instance": "u"})],
        [("RequestFailed", "NotFound")],
    ),
    # of the wrong type, or about something else
    "a status for a read": (
        lambda s: s.read(THING, "unit"),
        [("actionStatus", {"action": "go", "status": "completed"})],
        [("StrayMessage",)],
    ),
    "a reading for a run": (
        lambda s: s.invoke(THING, "go"),
        [("propertyReading", {"name": "go", "value": 1}), ("propertyReadings", {"data": {"go": 1}})],
        [("StrayMessage",), ("StrayMessage",)],
    ),
    "a reading of another property": (
        lambda s: s.read(THING, "unit"),
        [("propertyReading", {"name": "limit", "value": 1})],
        [("StrayMessage",)],
    ),
    "readings without the property": (
        lambda s: s.read(THING, "unit"),
        [("propertyReadings", {"data": {"limit": 1}})],
        [("StrayMessage",)],
    ),
    "a reading of what was not written": (
        lambda s: s.write_many(THING, {"a": 1}),
        [("propertyReading", {"name": "b", "value": 2})],
        [("StrayMessage",)],
    ),
    "one reading for all": (
        lambda s: s.read_all(THING),
        [("propertyReading", {"name": "b", "value": 2})],
        [("StrayMessage",)],
    ),
    "an acknowledgement for a read": (
        lambda s: s.read(THING, "unit"),
        [("acknowledgement", {"message": "readProperty"})],
        [("StrayMessage",)],
    ),
    "an event for a read": (
        lambda s: s.read(THING, "unit"),
        [("event", {"event": "unit", "data": 1})],
        [("StrayMessage",)],
    ),
    "a gap for a read": (lambda s: s.read(THING, "unit"), [("gap", {"reason": "x"})], [("StrayMessage",)]),
}


@each_row("case", ANSWERS)
def test_an_answer_fits_or_is_a_stray(case: str) -> None:
    ask, said, wanted = ANSWERS[case]
    hand = Hand()
    pending = ask(hand.session)
    hand.sent()
    found = [one for kind, members in said for one in hand.say(kind, "c1", **members)]
    assert found == wanted
    strays = sum(1 for one in found if one == ("StrayMessage",))
    assert pending.done == (strays == 0)
    statistics = hand.session.statistics()
    assert (statistics.strays, statistics.open) == (strays, int(not pending.done))
    assert hand.adds_up()


@pytest.mark.parametrize("case", [case for case in ANSWERS if ANSWERS[case][2][0][0] != "StrayMessage"])
def test_a_second_final_answer_is_a_stray(case: str) -> None:
    ask, [(kind, members)], wanted = ANSWERS[case]
    hand = Hand()
    pending = ask(hand.session)
    assert hand.say(kind, "c1", **members) == wanted
    value, error = pending.value, pending.error
    assert hand.say(kind, "c1", **members) == [("StrayMessage",)]
    assert (pending.value, pending.error) == (value, error)


def test_what_became_of_a_request_stands_in_it_as_well() -> None:
    hand = Hand()
    pending = hand.session.read(THING, "unit")
    assert (pending.done, pending.sent, pending.verb, pending.thing_id) == (
        False,
        False,
        "readProperty",
        THING,
    )
    hand.sent()
    assert pending.sent
    [answered] = hand.session.receive(
        b'{"messageType":"propertyReading","thingID":"urn:thing","messageID":"t","correlationID":"c1",'
        b'"name":"unit","value":3,"timestamp":"2026-01-02T03:04:05Z"}'
    )
    assert isinstance(answered, lmos.RequestAnswered)
    assert answered.pending is pending
    assert (pending.done, pending.value, pending.error) == (True, 3, None)


ERRORS = [
    ("400", InvalidInput),
    ("401", Unauthorized),
    ("403", Forbidden),
    ("404", NotFound),
    ("405", NotAllowed),
    ("500", RemoteProtocolError),
    ("503", AgentUnavailable),
    ("418", RemoteProtocolError),
    ("many", RemoteProtocolError),
]


@pytest.mark.parametrize(("status", "error"), ERRORS)
def test_an_error_is_an_exception_by_its_status(status: str, error: type[Exception]) -> None:
    hand = Hand()
    pending = hand.session.read(THING, "unit")
    assert hand.error("c1", status) == [("RequestFailed", error.__name__)]
    assert type(pending.error) is error
    assert hand.adds_up()


@pytest.mark.parametrize("status", [404, 404.0, "404"])
def test_an_errors_status_may_be_a_number(status: object) -> None:
    hand = Hand()
    hand.session.read(THING, "unit")
    assert hand.raw(
        {"messageType": "error", "thingId": "x", "messageId": "t", "correlationId": "c1", "status": status}
    ) == [("RequestFailed", "NotFound")]


def test_an_error_without_correlation_is_nobodys() -> None:
    hand = Hand()
    hand.session.read(THING, "unit")
    hand.session.observe(THING, "unit")
    assert hand.error(None) == [("StrayMessage",)]
    assert hand.session.statistics().open == 1


def test_an_error_without_correlation_is_that_of_the_only_request() -> None:
    hand = Hand()
    hand.session.read(THING, "unit")
    assert hand.error(None, "404") == [("RequestFailed", "NotFound")]
    assert hand.adds_up()


def test_an_error_without_correlation_is_nobodys_where_two_could_be_meant() -> None:
    hand = Hand()
    hand.session.read(THING, "unit")
    hand.session.read(THING, "limit")
    assert hand.error(None) == [("StrayMessage",)]
    assert Hand(offers=OURS).error(None) == [("StrayMessage",)]


# ---- several at once


def test_several_reads_are_one_answer() -> None:
    hand = Hand()
    pending = hand.session.read_many(THING, ["a", "b"])
    assert hand.reading("c3", "b", 2) == []
    assert not pending.done
    assert hand.reading("c2", "a", 1) == [("RequestAnswered", {"b": 2, "a": 1})]
    assert pending.value == {"a": 1, "b": 2}
    assert hand.session.statistics().open == 0
    assert hand.adds_up()


def test_the_first_error_of_several_is_theirs() -> None:
    hand = Hand()
    pending = hand.session.read_many(THING, ["a", "b", "c"])
    assert hand.reading("c2", "a", 1) == []
    assert hand.error("c3", "404") == [("RequestFailed", "NotFound")]
    assert isinstance(pending.error, NotFound)
    assert hand.error("c4", "404") == []
    assert hand.session.statistics().late == 1
    assert hand.session.statistics().remembered == 0
    assert hand.adds_up()


def test_nothing_is_answered_at_once() -> None:
    hand = Hand()
    pending = hand.session.read_many(THING, [])
    assert (pending.done, pending.value) == (True, {})
    assert hand.sent() == []


def test_several_that_are_forgotten_are_all_forgotten() -> None:
    hand = Hand()
    pending = hand.session.read_many(THING, ["a", "b"])
    hand.session.forget(pending)
    assert hand.session.statistics().open == 0
    assert hand.reading("c2", "a", 1) == []
    assert hand.error("c3") == []
    assert hand.reading("c3", "b", 1) == [("StrayMessage",)]
    assert hand.adds_up()


def test_there_is_room_for_all_of_several_or_for_none() -> None:
    hand = Hand(options=SessionOptions(max_open=3))
    hand.session.read(THING, "x")
    with pytest.raises(MailboxFull):
        hand.session.read_many(THING, ["a", "b", "c"])
    hand.session.read_many(THING, ["a", "b"])
    assert len(hand.sent()) == 3


# ---- what the host does wrong, and limits


def test_payloads_that_json_cannot_say_are_a_mistake_here() -> None:
    hand = Hand()
    with pytest.raises(LocalProtocolError):
        hand.session.write(THING, "unit", object())
    with pytest.raises(LocalProtocolError):
        hand.session.invoke(THING, "go", {"x": object()}, credit=SessionOptions().credit)
    assert hand.sent() == []
    assert hand.session.statistics().open == 0


def test_a_request_names_its_thing() -> None:
    session = Hand().session
    for ask in (lambda: session.read("", "x"), lambda: session.observe("", "x")):
        with pytest.raises(LocalProtocolError, match="names its thing"):
            ask()


def test_an_id_is_open_once() -> None:
    hand = Hand()
    hand.session.invoke(THING, "go", message_id="mine")
    with pytest.raises(LocalProtocolError, match="still open"):
        hand.session.invoke(THING, "go", message_id="mine")
    hand.status("mine", "completed")
    hand.session.invoke(THING, "go", message_id="mine")
    assert len(hand.sent()) == 2


def test_so_many_requests_are_open_and_no_more() -> None:
    hand = Hand(options=SessionOptions(max_open=2))
    first, second = hand.session.read(THING, "a"), hand.session.invoke(THING, "go")
    with pytest.raises(MailboxFull):
        hand.session.read(THING, "b")
    hand.session.cancel(second)  # there is room for the end of what is open
    hand.session.forget(first)
    hand.session.read(THING, "c")


def test_what_is_told_to_others_is_answered_by_silence_or_lost() -> None:
    hand = Hand(options=SessionOptions(max_open=2))
    told = [hand.session.tell(THING, "go", {"n": n}, host=n) for n in range(3)]
    assert [frame["input"] for frame in hand.sent()] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert all(one.sent and one.forgotten for one in told)
    assert hand.status("c2", "in progress", progress=1) == []
    assert hand.status("c2", "completed") == []
    assert hand.error("c3", "503") == [("ForgottenFailed", "AgentUnavailable")]
    assert told[2].host == 2
    assert hand.status("c1", "completed") == []
    assert hand.status("c2", "completed") == [("StrayMessage",)]  # once
    assert hand.adds_up()


def test_what_is_told_and_not_sent_is_left_when_the_connection_ends() -> None:
    hand = Hand()
    told = hand.session.tell(THING, "go", host="mine")
    assert hand.session.closed().pendings == ((told, False),)


def test_requests_are_refused_while_too_much_waits() -> None:
    hand = Hand(options=SessionOptions(max_waiting=2))
    for _ in range(3):
        hand.session.forget(hand.session.invoke(THING, "go"))
    assert hand.session.full
    with pytest.raises(MailboxFull):
        hand.session.invoke(THING, "go")
    hand.session.frames(1)
    assert not hand.session.full
    hand.session.invoke(THING, "go")


def test_frames_are_taken_by_size_in_order() -> None:
    hand = Hand()
    pendings = [hand.session.read(THING, f"p{n}") for n in range(3)]
    [one] = hand.session.frames(1)
    assert b'"p0"' in one
    assert [pending.sent for pending in pendings] == [True, False, False]
    assert len(hand.session.frames()) == 2


def test_it_wakes_when_there_is_something_to_send_where_nothing_was() -> None:
    woken: list[str] = []
    session = ConsumerSession(
        selected=True, new_id=iter("abcd").__next__, offers=OURS, wake=lambda: woken.append("up")
    )
    session.invoke(THING, "go")
    session.observe(THING, "unit")
    assert woken == ["up"]
    assert len(session.frames()) == 2
    session.read(THING, "unit")
    assert woken == ["up", "up"]


# ---- forgotten


def test_what_is_forgotten_is_dropped_but_for_errors() -> None:
    hand = Hand()
    told = [hand.session.invoke(THING, "go") for _ in range(4)]
    for one in told:
        hand.session.forget(one)
        hand.session.forget(one)
    assert hand.status("c1", "in progress", progress=1) == []
    assert hand.status("c1", "completed") == []
    assert hand.status("c2", "failed") == []
    assert hand.error("c3", "503") == [("ForgottenFailed", "AgentUnavailable")]
    assert hand.status("c1", "completed") == [("StrayMessage",)]
    statistics = hand.session.statistics()
    assert (statistics.forgotten, statistics.remembered, statistics.open) == (4, 1, 0)
    assert hand.adds_up()


def test_so_many_forgotten_ones_are_known_and_no_more() -> None:
    hand = Hand(options=SessionOptions(max_open=2))
    for _ in range(5):
        hand.session.forget(hand.session.invoke(THING, "go"))
    assert hand.session.statistics().remembered == 2
    assert hand.error("c3") == [("StrayMessage",)]
    assert hand.error("c4") == [("ForgottenFailed", "ActionFailed")]


# ---- unreadable, foreign


UNREADABLE: dict[str, object] = {
    "no JSON": "{",
    "an unknown type": {
        "messageType": "actionStatuses",
        "thingID": "x",
        "messageID": "t",
        "correlationID": "x",
    },
    "a reading without a value": {
        "messageType": "propertyReading",
        "thingID": "x",
        "messageID": "t",
        "correlationID": "x",
        "name": "unit",
    },
    "not UTF-8": b"\xff\xff",
    "a number": "1",
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_counted(case: str) -> None:
    hand = Hand()
    hand.session.read(THING, "unit")
    assert hand.raw(UNREADABLE[case]) == [("StrayMessage",)]
    statistics = hand.session.statistics()
    assert (statistics.unreadable, statistics.open) == (1, 1)


def test_an_answer_that_cannot_be_read_fails_its_request() -> None:
    hand = Hand(offers=OURS)
    credit = SessionOptions().credit
    pending, run = hand.session.read(THING, "unit"), hand.session.invoke(THING, "go", credit=credit)
    assert hand.say("propertyReading", "c1", name="unit") == [("RequestFailed", "RemoteProtocolError")]
    assert hand.say("actionStatus", "c2", action="go") == [("RequestFailed", "RemoteProtocolError")]
    assert pending.done
    assert run.answer is not None
    assert not run.answer.open
    assert hand.adds_up()


def test_a_text_that_is_too_large_closes_the_connection() -> None:
    hand = Hand(options=SessionOptions(max_bytes=1000))
    assert hand.raw(" " * 1001) == [("Close", 1009)]


@each_row("kind", sorted(lmos.message_types()))
def test_a_message_of_any_type_that_nobody_asked_for_is_a_stray(kind: str) -> None:
    values = {str: "x", int: 1, bool: True}
    fields = msgspec.structs.fields(lmos.message_types()[kind])
    members = {
        field.encode_name: values.get(field.type, {})
        for field in fields
        if field.required and field.encode_name not in ("thingID", "messageID")
    }
    for bad in (
        ("properties", []),
        ("items", 1),
        ("bytes", 1),
        ("messages", 1),
        ("stream", 2),
        ("sequence", 0),
        ("begun", []),
    ):
        members.update([bad] if bad[0] in members else [])
    hand = Hand(offers=OURS)
    found = hand.say(kind, "unknown", **members)
    statistics = hand.session.statistics()
    assert statistics.unreadable == 0
    assert statistics.strays + statistics.late == (kind != "tellCredit")  # for what has begun long ago
    assert found == [("StrayMessage",)] * statistics.strays
    assert hand.sent() == []


# ---- the end


def test_what_is_left_says_what_was_sent() -> None:
    hand = Hand()
    sent = hand.session.invoke(THING, "go")
    several = hand.session.read_many(THING, ["a", "b"])
    hand.session.frames(200)
    waiting, feed = hand.session.read(THING, "unit"), hand.session.observe(THING, "unit")
    told = hand.session.invoke(THING, "go")
    hand.session.forget(told)
    aside = hand.session.query(sent)
    left = hand.session.closed()
    assert left.pendings == ((sent, True), (several, True), (waiting, False), (aside, False), (told, False))
    assert left.feeds == (feed,)
    assert feed.ended
    assert hand.session.frames() == []
    assert hand.adds_up()


def test_a_tell_that_was_sent_leaves_nothing() -> None:
    hand = Hand()
    hand.session.forget(hand.session.invoke(THING, "go"))
    hand.sent()
    assert hand.session.closed().pendings == ()


def test_what_a_drained_peer_leaves_has_not_begun() -> None:
    hand = Hand()
    pending = hand.session.invoke(THING, "go")
    hand.sent()
    assert hand.session.closed(drained=True).pendings == ((pending, False),)


def test_after_the_end_nothing_is_asked_and_nothing_happens() -> None:
    hand = Hand(offers=OURS)
    run, feed = hand.session.invoke(THING, "go"), hand.session.observe(THING, "unit")
    hand.session.closed()
    assert hand.session.closed() == lmos.UnfinishedWork((), ())
    assert hand.status("c1", "completed") == []
    assert hand.session.receive_binary(b"") == ()
    hand.session.forget(run)
    hand.session.consumed(run)
    asks: list[Any] = [
        lambda: hand.session.read(THING, "x"),
        lambda: hand.session.observe(THING, "x"),
        lambda: hand.session.query(run),
        lambda: hand.session.cancel(run),
        lambda: hand.session.stop(feed),
    ]
    for ask in asks:
        with pytest.raises(LocalProtocolError, match="closed"):
            ask()
    assert hand.adds_up()


HABITS = [
    (True, "auto", "spec"),
    (False, "auto", "kotlin-wot"),
    (True, "kotlin-wot", "kotlin-wot"),
    (False, "spec", "spec"),
]


@pytest.mark.parametrize(("selected", "asked", "habits"), HABITS)
def test_habits_come_from_the_handshake_or_are_chosen(selected: bool, asked: Any, habits: str) -> None:
    session = ConsumerSession(selected=selected, habits=asked, new_id=lambda: "c")
    assert session.habits == habits


def test_times_are_passed_on_and_may_be_missing() -> None:
    hand = Hand()
    hand.session.observe(THING, "unit")
    frame = {"messageType": "propertyReading", "thingID": "x", "messageID": "t", "correlationID": "c1"}
    for time, at in [(1767323045, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), (None, None)]:
        raw = msgspec.json.encode(frame | {"name": "unit", "value": 1, "timestamp": time})
        *_, read = hand.session.receive(raw)
        assert isinstance(read, lmos.PropertyRead)
        assert read.at == at


def test_names_say_what_they_stand_for() -> None:
    hand = Hand()
    pending, feed = hand.session.read(THING, "unit"), hand.session.observe(THING, "unit")
    assert (repr(pending), repr(feed)) == (
        "<readProperty c1 unsent>",
        "<property 'unit' of urn:thing asked for>",
    )
    assert hand.session.invoke(THING, "go").request.input is UNSET
