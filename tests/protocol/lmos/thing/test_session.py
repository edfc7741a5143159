"""What a thing answers, by habits: one table per rule of PROTOCOLS section 5 (D7 to D17)."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.errors import (
    ActionCancelled,
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    InvalidInput,
    LmosActorsError,
    LocalProtocolError,
    MailboxFull,
    NotAllowed,
    NotFound,
)
from lmos_actors.protocol.lmos import Close, IncomingRequest, RequestWithdrawn, SessionOptions
from tests.protocol.lmos.consumer_by_hand import AT, THING, TIME, Talk

if TYPE_CHECKING:
    from collections.abc import Callable

HABITS = ["spec", "kotlin-wot"]


def output(talk: Talk, asked: IncomingRequest) -> None:
    talk.session.complete(asked, "out")


def value(talk: Talk, asked: IncomingRequest) -> None:
    talk.session.answer(asked, {"x": 1}, AT)


def first(talk: Talk, asked: IncomingRequest) -> None:
    talk.session.accept(asked, 7, AT)


def taken(talk: Talk, asked: IncomingRequest) -> None:
    talk.session.accept(asked)


COMPLETED = 'actionStatus {c} action="go" status="completed" output="out"'

# request, what the host does, the answer by habits: spec, kotlin-wot ({c} is the correlation)
ANSWERS: list[tuple[str, dict[str, Any], Callable[[Talk, IncomingRequest], None], str, str]] = [
    ("readProperty", {"name": "x"}, value, 'propertyReading {c} name="x" value={"x": 1}', ""),
    ("readAllProperties", {}, value, 'propertyReadings {c} data={"x": 1}', ""),
    ("readMultipleProperties", {"properties": ["x"]}, value, 'propertyReadings {c} data={"x": 1}', ""),
    ("writeProperty", {"name": "x", "data": 1}, value, 'propertyReading {c} name="x" value={"x": 1}', ""),
    ("writeMultipleProperties", {"data": {"x": 1}}, value, 'propertyReadings {c} data={"x": 1}', ""),
    ("writeAllProperties", {"data": {"x": 1}}, value, 'propertyReadings {c} data={"x": 1}', ""),
    ("observeProperty", {"name": "x"}, first, 'propertyReading {c} name="x" value=7', ""),
    (
        "invokeAction",
        {"action": "go"},
        output,
        'actionStatus {c} action="go" status="completed" output="out"',
        "",
    ),
    ("subscribeEvent", {"event": "e"}, taken, "", 'acknowledgement {c} message="subscribeEvent"'),
    ("subscribeAllEvents", {}, taken, "", 'acknowledgement {c} message="subscribeAllEvents"'),
]


@pytest.mark.parametrize("correlation", [None, "shared"])
@pytest.mark.parametrize("habits", HABITS)
@pytest.mark.parametrize(
    ("kind", "members", "act", "spec", "kotlin"), ANSWERS, ids=[row[0] for row in ANSWERS]
)
def test_each_request_has_its_answer_with_its_correlation(
    kind: str,
    members: dict[str, Any],
    act: Callable[[Talk, IncomingRequest], None],
    spec: str,
    kotlin: str,
    habits: str,
    correlation: str | None,
) -> None:
    talk = Talk(habits)
    given = {} if correlation is None else {"correlation": correlation}
    asked = talk.ask(kind, **members, **given)
    assert (asked.thing_id, asked.message_id, asked.open) == (THING, "m1", True)
    act(talk, asked)
    expected = (kotlin or spec) if talk.kotlin else spec
    assert talk.short() == [expected.replace("{c}", correlation or "m1")] * bool(expected)
    assert (talk.session.habits, asked.open) == (habits, False)
    assert talk.session.statistics().answered == 1
    assert talk.adds_up()


def test_a_reading_says_when_and_everything_of_the_envelope() -> None:
    talk = Talk()
    talk.session.answer(talk.ask("readProperty", name="x"), None, AT)
    assert talk.heard() == [
        {
            "messageType": "propertyReading",
            "thingID": THING,
            "messageID": "s1",
            "correlationID": "m1",
            "name": "x",
            "value": None,
            "timestamp": TIME,
        }
    ]


def say_a_time(talk: Talk, what: str, at: datetime) -> None:
    if what in ("readProperty", "readAllProperties"):
        talk.session.answer(talk.ask(what, name="x"), {}, at)
    elif what == "observeProperty":
        talk.session.accept(talk.ask(what, name="x"), 1, at)
    elif what == "propertyReading":
        listening = talk.session.accept(talk.ask("observeProperty", name="x"), 1, AT)
        talk.session.reading(listening, 2, at)
    else:
        talk.session.event(talk.session.accept(talk.ask("subscribeEvent", event="e")), "e", 1, at)


TIMED = ["readProperty", "readAllProperties", "observeProperty", "propertyReading", "event"]


@pytest.mark.parametrize("what", TIMED)
def test_times_are_written_in_utc(what: str) -> None:
    talk = Talk()
    say_a_time(talk, what, AT.astimezone(timezone(timedelta(hours=2))))
    assert talk.heard()[-1]["timestamp"] == TIME


NEVER = [AT.replace(tzinfo=None), datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))]


@pytest.mark.parametrize("what", TIMED)
@pytest.mark.parametrize("at", NEVER)
def test_a_time_that_is_no_instant_is_a_mistake_of_the_host(what: str, at: datetime) -> None:
    talk = Talk()
    with pytest.raises(LocalProtocolError, match=re.escape(str(at))):
        say_a_time(talk, what, at)


def test_trap_a_a_final_status_has_an_output() -> None:
    talk = Talk("kotlin-wot")
    talk.session.complete(talk.ask("invokeAction", action="go"))
    assert talk.short() == ['actionStatus m1 action="go" status="completed" output=null']


def test_without_an_output_there_is_none() -> None:
    talk = Talk()
    talk.session.complete(talk.ask("invokeAction", action="go"))
    talk.session.complete(talk.ask("invokeAction", 2, action="go"), None)
    assert talk.short() == [
        'actionStatus m1 action="go" status="completed"',
        'actionStatus m2 action="go" status="completed" output=null',
    ]


# what the host says of a run, in order; what a spec peer hears of it before the end (D13, W6)
STEPS: list[tuple[str, list[str]]] = [
    ("", []),
    ("began", []),
    ("pending", ["pending"]),
    ("pending pending", ["pending"]),
    ("pending began", ["pending", "in progress"]),
    ("pending began began", ["pending", "in progress"]),
    ("began pending", []),
    ("progress", ["in progress 1"]),
    ("pending progress", ["pending", "in progress 2"]),
    ("progress progress", ["in progress 2"]),
    ("progress item progress", ["in progress 1", "in progress item", "in progress 3"]),
    ("item progress progress item", ["in progress item", "in progress 3", "in progress item"]),
]


@pytest.mark.parametrize("habits", HABITS)
@pytest.mark.parametrize(("steps", "heard"), STEPS)
def test_a_run_is_told_of_before_its_end_in_spec_habits_alone(
    steps: str, heard: list[str], habits: str
) -> None:
    talk = Talk(habits)
    asked = talk.ask("invokeAction", action="go")
    for number, step in enumerate(steps.split(), 1):
        extra = {"progress": (number,), "item": ("item",)}.get(step, ())
        getattr(talk.session, step)(asked, *extra)
    told = [
        " ".join([status["status"], *(str(status[key]) for key in ("progress", "output") if key in status)])
        for status in talk.heard()
    ]
    assert told == ([] if talk.kotlin else heard)  # trap b: any status would end the call
    talk.session.complete(asked)
    assert len(talk.heard()) == 1


FAILURES: list[tuple[LmosActorsError, str, str]] = [
    (
        ActionFailed({"why": "dry"}),
        'actionStatus m1 action="go" status="failed" output={"why": "dry"}',
        'error m1 type="internal-server-error" status="500"',
    ),
    (
        ActionCancelled("enough"),
        'actionStatus m1 action="go" status="failed" output=null cancelled=true reason="enough"',
        'error m1 type="action-cancelled" status="500"',
    ),
    (InvalidInput("no city", "$.city"), 'error m1 type="invalid-input" status="400" path="$.city"', ""),
    (NotFound("action", "go"), 'error m1 type="not-found" status="404"', ""),
    (NotAllowed("closed"), 'error m1 type="operation-not-allowed" status="405"', ""),
    (MailboxFull("a", 64), 'error m1 type="mailbox-full" status="503"', ""),
    (AgentUnavailable("a", retry_in=2.0), 'error m1 type="agent-unavailable" status="503" retryIn=2.0', ""),
    (AgentDied("boom", started=True), 'error m1 type="agent-died" status="500"', ""),
]


@pytest.mark.parametrize("habits", HABITS)
@pytest.mark.parametrize(
    ("error", "spec", "kotlin"), FAILURES, ids=[type(row[0]).__name__ for row in FAILURES]
)
def test_a_failure_is_a_status_or_an_error(
    error: LmosActorsError, spec: str, kotlin: str, habits: str
) -> None:
    talk = Talk(habits)
    talk.session.fail(talk.ask("invokeAction", action="go"), error)
    assert talk.short() == [(kotlin or spec) if talk.kotlin else spec]


@pytest.mark.parametrize("habits", HABITS)
@pytest.mark.parametrize("kind", ["readProperty", "writeProperty", "observeProperty"])
def test_other_requests_fail_with_an_error_of_five_members(kind: str, habits: str) -> None:
    talk = Talk(habits)
    asked = talk.ask(kind, name="x", data=1)
    talk.session.fail(asked, NotFound("property", "x"))
    (error,) = talk.heard()  # trap d: one that lacks a member is dropped
    assert {key: error[key] for key in ("type", "title", "status")} == {
        "type": "https://eclipse.dev/lmos/protocol/v1/errors#not-found",
        "title": "Property Not Found",
        "status": "404",
    }
    assert error["instance"].startswith("https://eclipse.dev/lmos/protocol/v1/errors/s")
    assert "'x'" in error["detail"]
    assert error["correlationId" if talk.kotlin else "correlationID"] == "m1"


def test_a_refused_subscription_is_none() -> None:
    talk = Talk()
    asked = talk.ask("subscribeEvent", event="e")
    talk.session.fail(asked, NotFound("event", "e"))
    assert asked.listening.ended
    assert talk.session.statistics().listening == 0
    assert talk.say("unsubscribeEvent", 2, event="e") == ()


# method, the arguments after the request; the verbs that it answers
METHODS: dict[str, tuple[tuple[Any, ...], set[str]]] = {
    "answer": ((1, AT), {"readProperty", "readAllProperties", "writeProperty"}),
    "accept": ((1, AT), {"observeProperty", "subscribeEvent", "subscribeAllEvents"}),
    "pending": ((), {"invokeAction"}),
    "began": ((), {"invokeAction"}),
    "progress": ((1,), {"invokeAction"}),
    "item": ((1,), {"invokeAction"}),
    "complete": ((1,), {"invokeAction"}),
}
REQUESTS = {
    "readProperty": {"name": "x"},
    "readAllProperties": {},
    "writeProperty": {"name": "x", "data": 1},
    "invokeAction": {"action": "go"},
    "observeProperty": {"name": "x"},
    "subscribeEvent": {"event": "e"},
    "subscribeAllEvents": {},
}
FINAL = ("answer", "accept", "complete", "fail")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_is_answered_by_what_answers_it_and_once(kind: str, method: str) -> None:
    talk = Talk()
    asked = talk.ask(kind, **REQUESTS[kind])
    extra, answers = METHODS[method]
    act = getattr(talk.session, method)
    if kind not in answers:
        with pytest.raises(LocalProtocolError, match="does not answer"):
            act(asked, *extra)
        assert asked.open
        return
    act(asked, *extra)
    assert asked.open == (method not in FINAL)
    if method in FINAL:
        with pytest.raises(LocalProtocolError, match="has its final answer"):
            act(asked, *extra)
        with pytest.raises(LocalProtocolError, match="has its final answer"):
            talk.session.fail(asked, NotAllowed("no"))


def test_an_observation_is_accepted_with_a_value() -> None:
    talk = Talk()
    asked = talk.ask("observeProperty", name="x")
    with pytest.raises(LocalProtocolError, match="value and its time"):
        talk.session.accept(asked)
    assert not asked.listening.active
    talk.session.accept(asked, None, AT)
    assert asked.listening.active


def test_a_request_is_answered_where_it_was_asked() -> None:
    one, other = Talk(), Talk()
    asked = one.ask("readProperty", name="x")
    with pytest.raises(LocalProtocolError, match="another connection"):
        other.session.answer(asked, 1, AT)


def test_what_cannot_be_written_leaves_the_request_open() -> None:
    talk = Talk()
    asked = talk.ask("readProperty", name="x")
    with pytest.raises(LocalProtocolError, match="cannot be written"):
        talk.session.answer(asked, "\ud800", AT)
    assert asked.open
    talk.session.answer(asked, "fine", AT)
    assert talk.short() == ['propertyReading m1 name="x" value="fine"']


def test_a_limit_of_open_requests() -> None:
    talk = Talk(options=SessionOptions(max_open=2))
    asked = [talk.ask("readProperty", number, name="x") for number in (1, 2)]
    for kind, members in REQUESTS.items():
        assert talk.say(kind, 3, **members) == ()
    assert talk.short() == ['error m3 type="mailbox-full" status="503"'] * len(REQUESTS)
    talk.session.answer(asked[0], 1, AT)
    assert talk.ask("readProperty", 4, name="x").open
    statistics = talk.session.statistics()
    assert (statistics.open, statistics.refused, statistics.answered) == (2, len(REQUESTS), 1)
    assert talk.adds_up()


def test_a_limit_of_listenings() -> None:
    talk = Talk(options=SessionOptions(max_listening=2))
    talk.session.accept(talk.ask("subscribeEvent", 1, event="a"))
    talk.ask("observeProperty", 2, name="a")
    assert talk.say("subscribeEvent", 3, event="b") == ()
    assert talk.short() == ['error m3 type="mailbox-full" status="503"']
    assert len(talk.say("subscribeEvent", 4, event="a")) == 2, "to take the place of one is always possible"
    assert len(talk.say("unsubscribeEvent", 5, event="a")) == 1
    assert talk.ask("subscribeEvent", 6, event="b").open


UNREADABLE = [
    ("{", 'error - type="invalid-input" status="400" path="$"', "urn:lmos-actors:unknown"),
    ("[]", 'error - type="invalid-input" status="400" path="$"', "urn:lmos-actors:unknown"),
    (
        '{"messageType": "readPropertie", "thingID": "urn:t", "messageID": "m9"}',
        'error m9 type="unsupported-message-type" status="400" path="$.messageType"',
        "urn:t",
    ),
    (
        '{"messageType": "readProperty", "thingID": "urn:t", "messageID": "m9", "correlationID": "c"}',
        'error c type="invalid-input" status="400" path="$.name"',
        "urn:t",
    ),
    (
        '{"messageType": "readProperty", "messageID": "m9", "name": "x"}',
        'error m9 type="invalid-input" status="400" path="$.thingID"',
        "urn:lmos-actors:unknown",
    ),
    (
        '{"messageType": "queryAction", "thingID": "urn:t", "messageID": "m9", "correlationID": "c"}',
        'error c type="invalid-input" status="400" path="$.action" inReplyTo="m9"',
        "urn:t",
    ),
]


@pytest.mark.parametrize(("text", "answer", "thing"), UNREADABLE)
def test_what_cannot_be_read_is_answered_and_the_connection_goes_on(
    text: str, answer: str, thing: str
) -> None:
    talk = Talk()
    assert talk.session.receive(text, 0.0) == ()
    (error,) = talk.heard()
    assert error["thingID"] == thing
    talk.session.receive(text, 0.0)
    assert talk.short() == [answer]
    assert talk.session.statistics().unreadable == 2
    assert talk.ask("readProperty", name="x").open
    assert talk.adds_up()


@pytest.mark.parametrize(
    "text",
    [
        '{"messageType": "error", "thingID": "", "messageID": "m"}',
        '{"messageType": "acknowledgement", "thingID": "urn:t"}',
    ],
)
def test_errors_are_not_answered_even_if_unreadable(text: str) -> None:
    talk = Talk()
    assert talk.session.receive(text, 0.0) == ()
    assert talk.heard() == []
    assert talk.adds_up()


FOREIGN: dict[str, dict[str, Any]] = {
    "propertyReading": {"name": "x", "value": 1, "timestamp": TIME},
    "propertyReadings": {"data": {}, "timestamp": TIME},
    "actionStatus": {"action": "go", "status": "completed"},
    "event": {"event": "e", "data": 1, "timestamp": TIME},
    "gap": {"reason": "restart"},
    "streamOpen": {"stream": 2},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_only_things_send_is_not_supported(kind: str) -> None:
    talk = Talk()
    assert talk.say(kind, **FOREIGN[kind]) == ()
    assert talk.short() == ['error m1 type="unsupported-message-type" status="400" path="$.messageType"']
    assert talk.session.statistics().strays == 1
    assert talk.adds_up()


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("error", {"type": "t", "title": "t", "status": "400", "detail": "d", "instance": "i"}),
        ("acknowledgement", {"message": "subscribeEvent"}),
    ],
)
def test_an_error_is_never_answered_with_an_error(kind: str, members: dict[str, Any]) -> None:
    talk = Talk()
    assert talk.say(kind, **members) == ()
    assert talk.heard() == []
    assert talk.session.statistics().strays == 1


def test_two_things_that_are_joined_fall_silent() -> None:
    one, other = Talk(), Talk()
    one.say("event", event="e", data=1, timestamp=TIME)
    for _ in range(3):
        for sender, receiver in ((one, other), (other, one)):
            for frame in sender.session.frames():
                receiver.session.receive(frame, 0.0)
    assert one.session.frames() == other.session.frames() == []


def test_a_frame_too_large_closes_the_connection() -> None:
    talk = Talk(options=SessionOptions(max_bytes=1000))
    (close,) = talk.session.receive("x" * 1001, 0.0)
    assert isinstance(close, Close)
    assert close.code == 1009
    assert talk.say("readProperty", name="x") == ()
    assert talk.heard() == []
    assert talk.adds_up()


@pytest.mark.parametrize(
    ("offers", "data", "code"),
    [((), b"\x01" * 12, 1003), (("streams",), b"{}", 1003), (("streams",), b"\x01" * 2000, 1009)],
)
def test_a_binary_frame_that_is_none_of_ours_closes_the_connection(
    offers: tuple[str, ...], data: bytes, code: int
) -> None:
    talk = Talk(options=SessionOptions(max_bytes=1000, offers=offers))
    (close,) = talk.session.receive_binary(data)
    assert (type(close), close.code) == (Close, code)
    assert talk.session.receive_binary(data) == ()
    assert talk.adds_up()


def test_strict_refuses_ids_that_are_not_by_the_letter() -> None:
    talk = Talk(options=SessionOptions(strict=True))
    assert talk.say("readProperty", name="x") == ()
    assert 'error m1 type="invalid-input" status="400"' in talk.short()[0]


def test_the_end_of_the_connection_tells_what_to_end() -> None:
    talk = Talk()
    run = talk.ask("invokeAction", 1, action="go")
    read = talk.ask("readProperty", 2, name="x")
    listening = talk.session.accept(talk.ask("subscribeEvent", 3, event="e"))
    unaccepted = talk.ask("observeProperty", 4, name="x")
    done = talk.ask("readProperty", 5, name="x")
    talk.session.answer(done, 1, AT)
    assert talk.session.closed() == (run, read, unaccepted, listening)
    assert (run.open, listening.ended, unaccepted.listening.ended) == (False, True, True)
    talk.session.complete(run, 1)
    talk.session.progress(run, 1)
    assert talk.session.item(run, 1) is False
    assert talk.session.room(run)
    talk.session.fail(read, NotAllowed("late"))
    assert talk.session.accept(unaccepted, 1, AT).ended
    talk.session.event(listening, "e", 1, AT)
    assert talk.say("readProperty", 6, name="x") == ()
    assert talk.session.receive_binary(b"") == ()
    assert (talk.heard(), talk.session.closed()) == ([], ())
    statistics = talk.session.statistics()
    assert (statistics.abandoned, statistics.open, statistics.listening) == (3, 0, 0)
    assert talk.adds_up()


def test_full_is_a_peer_that_does_not_read() -> None:
    talk = Talk(options=SessionOptions(max_waiting=2))
    listening = talk.session.accept(talk.ask("subscribeEvent", event="e"))
    for _ in range(2):
        talk.session.event(listening, "e", 1, AT)
    assert not talk.session.full
    talk.session.event(listening, "e", 1, AT)
    assert talk.session.full
    talk.session.frames()
    assert not talk.session.full


def test_habits_turn_for_good_and_answers_with_them() -> None:
    talk = Talk()
    talk.session.accept(talk.ask("subscribeEvent", 1, event="e"))
    assert talk.short() == []
    talk.session.accept(talk.ask("subscribeevent", 2, event="f"))
    assert (talk.session.habits, talk.short()) == (
        "kotlin-wot",
        ['acknowledgement m2 message="subscribeevent"'],
    )
    talk.session.fail(talk.ask("invokeAction", 3, action="go"), ActionFailed("no"))
    assert talk.short() == ['error m3 type="internal-server-error" status="500"']


def test_frames_are_text_that_is_json() -> None:
    talk = Talk("kotlin-wot")
    talk.session.answer(talk.ask("readProperty", property="x"), "é", AT)
    (frame,) = talk.session.frames()
    message = json.loads(frame)
    assert next(iter(message)) == "messageType"
    assert (message["property"], message["data"], message["correlationId"]) == ("x", "é", "m1")


def test_a_withdrawn_run_is_named_once() -> None:
    talk = Talk()
    run = talk.ask("invokeAction", action="go")
    (withdrawn,) = talk.say("cancelAction", 2, action="go")
    assert isinstance(withdrawn, RequestWithdrawn)
    assert withdrawn.request is run
