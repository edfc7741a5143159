"""Queries and cancels (W1), items and their credit (W6), input streams, at a thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    InvalidInput,
    LocalProtocolError,
    NotAllowed,
    NotFound,
)
from lmos_actors.protocol.lmos import (
    Binary,
    CreditArrived,
    IncomingRequest,
    ItemArrived,
    RequestWithdrawn,
    SessionOptions,
    StreamFinished,
    StreamStopped,
)
from tests.protocol.lmos.consumer_by_hand import AT, Talk
from tests.protocol.lmos.wire import binary_frame

if TYPE_CHECKING:
    from collections.abc import Callable

GO = 'action="go"'


def invoke(talk: Talk, number: object = 1, **members: Any) -> IncomingRequest:
    asked: IncomingRequest = talk.ask("invokeAction", number, action="go", **members)
    return asked


def waits(talk: Talk, run: IncomingRequest) -> None:
    pass


def runs(talk: Talk, run: IncomingRequest) -> None:
    talk.session.began(run)


def reports(talk: Talk, run: IncomingRequest) -> None:
    talk.session.progress(run, 0.5)


def completes(talk: Talk, run: IncomingRequest) -> None:
    talk.session.complete(run, 7)


def fails(talk: Talk, run: IncomingRequest) -> None:
    talk.session.fail(run, ActionFailed("no"))


def dies(talk: Talk, run: IncomingRequest) -> None:
    talk.session.fail(run, AgentDied("boom", started=True))


def is_cancelled(talk: Talk, run: IncomingRequest) -> None:
    talk.say("cancelAction", "c", action="go", correlation="m1", reason="first")


# what became of the run before, the answer to a query, the answer to a cancel (spec)
STANDS: list[tuple[Callable[[Talk, IncomingRequest], None], str, str]] = [
    (waits, 'status="pending"', "cancelled"),
    (runs, 'status="in progress"', "cancelled"),
    (reports, 'status="in progress" progress=0.5', "cancelled"),
    (completes, 'status="completed" output=7', ""),
    (fails, 'status="failed" output="no"', ""),
    (is_cancelled, 'status="failed" output=null', ""),
]
AFTER = {is_cancelled: ' cancelled=true reason="first"'}


@pytest.mark.parametrize(("before", "status", "cancelled"), STANDS)
@pytest.mark.parametrize("named", [True, False])
def test_a_query_tells_the_latest_status_and_a_cancel_the_end(
    before: Callable[[Talk, IncomingRequest], None], status: str, cancelled: str, named: bool
) -> None:
    talk = Talk()
    run = invoke(talk)
    before(talk, run)
    talk.heard()
    which = {"correlation": "m1"} if named else {}
    assert talk.say("queryAction", 8, action="go", **which) == ()
    status, _, rest = status.partition(" progress")
    rest = f" progress{rest}" if rest else ""
    assert talk.short() == [f'actionStatus m1 {GO} {status}{rest} inReplyTo="m8"{AFTER.get(before, "")}']
    demands = talk.say("cancelAction", 9, action="go", reason="enough", **which)
    if cancelled:
        (withdrawn,) = demands
        assert (withdrawn.request, withdrawn.reason) == (run, "enough")
        end = (
            f'actionStatus m1 {GO} status="failed" output=null inReplyTo="m9" cancelled=true reason="enough"'
        )
    else:
        assert demands == ()
        end = f'actionStatus m1 {GO} {status} inReplyTo="m9"{AFTER.get(before, "")}'
    assert talk.short() == [end]
    assert not run.open
    assert talk.session.statistics().open == 0
    assert talk.adds_up()


def test_a_run_that_ended_with_an_error_is_told_so() -> None:
    talk = Talk()
    dies(talk, invoke(talk))
    talk.say("queryAction", 8, action="go", correlation="m1")
    talk.say("cancelAction", 9, action="go", correlation="m1")
    died = 'error m1 type="agent-died" status="500"'
    assert talk.short() == [died, f'{died} inReplyTo="m8"', f'{died} inReplyTo="m9"']


@pytest.mark.parametrize(
    "refusal", [InvalidInput("no"), NotAllowed("no"), AgentUnavailable("t"), NotFound("action", "go")]
)
@pytest.mark.parametrize("kind", ["queryAction", "cancelAction"])
def test_a_request_that_was_refused_is_no_run_to_ask_about(refusal: Any, kind: str) -> None:
    talk = Talk()
    refused = invoke(talk)
    talk.session.fail(refused, refusal)
    talk.heard()
    talk.say(kind, 8, action="go")
    (found,) = talk.heard()
    assert (found["messageType"], found["status"], found["correlationID"]) == ("error", "404", "m8")
    completes(talk, invoke(talk, 2))
    talk.session.fail(invoke(talk, 3), refusal)
    talk.heard()
    talk.say(kind, 9, action="go")
    (found,) = talk.heard()
    assert (found["messageType"], found["status"], found["correlationID"]) == (
        "actionStatus",
        "completed",
        "m2",
    )
    talk.say(kind, 10, action="go", correlation="m3")
    (found,) = talk.heard()
    assert (found["messageType"], found["correlationID"]) == ("error", "m3")


def test_in_kotlin_wot_habits_a_query_is_correlated_with_itself() -> None:
    talk = Talk("kotlin-wot")
    reports(talk, invoke(talk))
    talk.say("queryAction", 8, action="go")
    (status,) = talk.heard()
    assert (status["correlationId"], status["status"], status["inReplyTo"]) == ("m8", "in progress", "m8")


def test_in_kotlin_wot_habits_run_and_cancel_have_an_answer_each() -> None:
    talk = Talk("kotlin-wot")
    invoke(talk)
    (withdrawn,) = talk.say("cancelAction", 9, action="go", reason="enough")
    assert withdrawn.reason == "enough"
    error, status = talk.heard()
    assert (error["messageType"], error["correlationId"], error["status"]) == ("error", "m1", "500")
    assert "inReplyTo" not in error
    assert (status["status"], status["correlationId"], status["cancelled"]) == ("failed", "m9", True)


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
@pytest.mark.parametrize("kind", ["queryAction", "cancelAction"])
@pytest.mark.parametrize(
    "members",
    [
        {"action": "other"},
        {"action": "other", "correlation": "m1"},
        {"action": "go", "correlation": "m7"},
        {"action": "go", "thing": "urn:other"},
        {"action": "go", "thing": "urn:other", "correlation": "m1"},
    ],
)
def test_a_run_that_is_not_known_is_not_found(kind: str, members: dict[str, Any], habits: str) -> None:
    talk = Talk(habits)
    run = invoke(talk)
    assert talk.say(kind, 9, **members) == ()
    (error,) = talk.heard()
    own = "m9" if talk.kotlin else members.get("correlation", "m9")
    assert (error["status"], error["inReplyTo"]) == ("404", "m9")
    assert error["correlationId" if talk.kotlin else "correlationID"] == own
    assert run.open
    assert talk.adds_up()


def test_without_a_correlation_the_newest_unfinished_run_is_meant() -> None:
    talk = Talk()
    first, second, third = (invoke(talk, number) for number in (1, 2, 3))
    talk.ask("invokeAction", 4, action="other")
    talk.session.complete(third)
    talk.heard()
    assert [one.request for one in talk.say("cancelAction", 8, action="go")] == [second]
    assert [one.request for one in talk.say("cancelAction", 9, action="go")] == [first]
    assert talk.say("cancelAction", 10, action="go") == ()
    assert [line.split()[1] for line in talk.short()] == ["m2", "m1", "m1"], "then the one that ended last"


def test_a_run_is_found_by_its_own_correlation_too() -> None:
    talk = Talk()
    run = invoke(talk, 1, correlation="shared")
    invoke(talk, 2)
    assert [one.request for one in talk.say("cancelAction", 8, action="go", correlation="shared")] == [run]
    talk.say("queryAction", 9, action="go", correlation="shared")
    assert [line.split()[1] for line in talk.short()] == ["shared", "shared"]


def test_of_two_runs_of_one_id_the_newest_is_meant_first() -> None:
    talk = Talk()
    first, second = invoke(talk, 1, input=1), invoke(talk, 1, input=2)
    for run in (second, first):
        assert [one.request for one in talk.say("cancelAction", 8, action="go", correlation="m1")] == [run]
    assert talk.adds_up()


def test_a_number_of_ended_runs_is_remembered() -> None:
    talk = Talk(options=SessionOptions(remembered_runs=3))
    for number in range(5):
        talk.session.complete(invoke(talk, number), number)
    talk.heard()
    for number in range(5):
        talk.say("queryAction", 9, action="go", correlation=f"m{number}")
    answers = [message.get("output", message.get("status")) for message in talk.heard()]
    assert answers == ["404", "404", 2, 3, 4]
    assert talk.session.statistics().remembered == 3


def test_outputs_of_ended_runs_are_remembered_within_bounds() -> None:
    talk = Talk(options=SessionOptions(max_bytes=1000))
    for number in (1, 2):
        talk.session.complete(invoke(talk, number), "x" * 600)
    talk.heard()
    for number in (1, 2):
        talk.say("queryAction", 9, action="go", correlation=f"m{number}")
    first, second = talk.heard()
    assert (first["output"], second["status"]) == ("x" * 600, "completed")
    assert "output" not in second


# ---- items


def test_items_are_statuses_and_the_end_has_no_output() -> None:
    talk = Talk()
    run = invoke(talk)
    assert talk.session.room(run)
    assert all(talk.session.item(run, number) for number in (1, None))
    talk.session.complete(run)
    assert talk.short() == [
        f'actionStatus m1 {GO} status="in progress" output=1',
        f'actionStatus m1 {GO} status="in progress" output=null',
        f'actionStatus m1 {GO} status="completed"',
    ]


def test_items_wait_for_credit() -> None:
    talk = Talk()
    run = invoke(talk, credit={"items": 2, "bytes": 10_000})
    talk.session.item(run, 1)
    assert talk.session.room(run)
    talk.session.item(run, 2)
    assert not talk.session.room(run)
    with pytest.raises(LocalProtocolError, match="credit"):
        talk.session.item(run, 3)
    (credited,) = talk.say("streamCredit", 2, correlation="m1", items=1, bytes=1000)
    assert isinstance(credited, CreditArrived)
    assert credited.run is run
    assert talk.session.room(run)
    talk.session.item(run, 3)
    assert [message["output"] for message in talk.heard()] == [1, 2, 3]
    assert talk.say("streamCredit", 3, correlation="gone", items=1, bytes=1) == ()
    talk.session.complete(run)
    assert talk.say("streamCredit", 4, correlation="m1", items=1, bytes=1) == ()
    statistics = talk.session.statistics()
    assert (statistics.streamed, statistics.late, statistics.streams) == (3, 2, 0)
    assert talk.adds_up()


def test_bytes_go_in_binary_frames_where_they_are_taken() -> None:
    talk = Talk()
    run = invoke(talk, binary=True, credit={"items": 4, "bytes": 1000})
    talk.session.item(run, b"abc")
    talk.session.complete(run)
    opened, frame, ended, status = talk.session.frames()
    assert frame == binary_frame(2, 0, b"abc")
    assert [type(one) is Binary for one in (opened, frame, ended, status)] == [False, True, False, False]
    assert b'"streamOpen"' in opened
    assert b'"streamEnd"' in ended
    assert b'"completed"' in status


def test_in_kotlin_wot_habits_items_become_one_output() -> None:
    talk = Talk("kotlin-wot")
    run = invoke(talk)
    assert all(talk.session.item(run, number) for number in range(3))
    assert talk.heard() == []
    talk.session.complete(run)
    assert talk.short() == [f'actionStatus m1 {GO} status="completed" output=[0, 1, 2]']


def test_in_kotlin_wot_habits_too_many_items_end_the_run() -> None:
    talk = Talk("kotlin-wot", options=SessionOptions(max_bytes=1000))
    run = invoke(talk)
    assert talk.session.item(run, "x" * 500)
    assert not talk.session.item(run, "x" * 500)
    assert not talk.session.item(run, "x")
    assert [line.split(" type")[0] for line in talk.short()] == ["error m1"]
    talk.session.complete(run)
    assert talk.heard() == []
    assert not run.open


def test_a_cancelled_run_takes_no_more_items() -> None:
    talk = Talk()
    run = invoke(talk)
    talk.say("cancelAction", 2, action="go")
    assert talk.session.room(run)
    assert talk.session.item(run, 1) is False
    talk.session.progress(run, 1)
    talk.session.pending(run)
    talk.session.began(run)
    talk.session.complete(run, 1)
    talk.session.fail(run, ActionFailed())
    assert len(talk.heard()) == 1


# ---- input streams

MIC = {"stream": 1, "contentType": "audio/pcm"}
WORDS = {"stream": 3}


def test_input_streams_are_named_and_given_credit() -> None:
    talk = Talk()
    run = invoke(talk, streams={"mic": MIC, "words": WORDS}, binary=True)
    assert run.streams is not None
    mic, words = run.streams["mic"], run.streams["words"]
    talk.session.ready(mic)
    talk.session.ready(words)
    assert [(m["messageType"], m["stream"], m["items"]) for m in talk.heard()] == [
        ("streamCredit", 1, 16),
        ("streamCredit", 3, 16),
    ]
    assert talk.session.receive_binary(binary_frame(1, 0, b"pcm")) == (ItemArrived(run, mic, b"pcm"),)
    item = {"correlation": "m1", "stream": 3, "sequence": 0, "data": "hello"}
    assert talk.say("streamItem", 2, **item) == (ItemArrived(run, words, "hello"),)
    assert talk.say("streamEnd", 3, correlation="m1", stream=3, sequence=1) == (
        StreamFinished(run, words, None),
    )
    for number in range(1, 8):
        talk.session.receive_binary(binary_frame(1, number, b"pcm"))
    for _ in range(8):
        talk.session.consumed(mic)
    assert [(m["messageType"], m["items"]) for m in talk.heard()] == [("streamCredit", 8)]
    talk.session.stop(mic, "enough")
    assert [(m["messageType"], m["reason"]) for m in talk.heard()] == [("streamEnd", "enough")]
    talk.session.complete(run)
    assert talk.session.statistics().streams == 0
    assert talk.adds_up()


def test_the_consumer_may_stop_the_items_of_an_answer() -> None:
    talk = Talk()
    run = invoke(talk, binary=True)
    talk.session.item(run, b"a")
    stopped, *more = talk.say("streamEnd", 2, correlation="m1", stream=2, sequence=1, reason="enough")
    assert isinstance(stopped, StreamStopped)
    assert more == []
    talk.session.frames()
    assert talk.session.room(run)
    assert talk.session.item(run, b"b") is True
    assert talk.session.frames() == []
    talk.session.complete(run)
    assert talk.short() == [f'actionStatus m1 {GO} status="completed"']


VIOLATIONS = [
    {"stream": 3, "sequence": 1, "data": 1},
    {"stream": 5, "sequence": 0, "data": 1},
    {"stream": 1, "sequence": 0, "data": 1},
]


@pytest.mark.parametrize("item", VIOLATIONS)
def test_a_violation_ends_the_run_and_nothing_else(item: dict[str, Any]) -> None:
    talk = Talk()
    run = invoke(talk, streams={"mic": MIC, "words": WORDS})
    other = invoke(talk, 2)
    for stream in (run.streams or {}).values():
        talk.session.ready(stream)
    talk.heard()
    (withdrawn,) = talk.say("streamItem", 3, correlation="m1", **item)
    assert isinstance(withdrawn, RequestWithdrawn)
    assert (withdrawn.request, run.open, other.open) == (run, False, True)
    assert talk.short() == ['error m1 type="invalid-input" status="400" path="$.streams"']
    assert talk.say("streamItem", 4, correlation="m1", stream=3, sequence=0, data=1) == ()
    assert talk.session.statistics().late == 1
    assert talk.adds_up()


def test_streams_are_refused_where_they_are_not_offered() -> None:
    talk = Talk(options=SessionOptions(offers=("acks",)))
    assert talk.say("invokeAction", action="go", streams={"words": WORDS}) == ()
    assert talk.short() == ['error m1 type="invalid-input" status="400" path="$.streams"']
    for kind in ("streamItem", "streamEnd", "streamCredit"):
        assert talk.say(kind, 2, stream=1, sequence=0, data=1, items=1, bytes=1) == ()
    unsupported = 'error m2 type="unsupported-message-type" status="400" path="$.messageType"'
    assert talk.short() == [unsupported] * 3
    run = invoke(talk, 3, credit={"items": 0, "bytes": 0}, binary=True)
    assert talk.session.room(run), "credit means nothing to a thing that knows no streams"
    talk.session.item(run, 1)
    assert talk.session.statistics().refused == 4
    assert talk.adds_up()


def test_streams_that_cannot_be_opened_refuse_the_invocation() -> None:
    talk = Talk()
    assert talk.say("invokeAction", action="go", streams={"words": {"stream": 2}}) == ()
    assert talk.short() == ['error m1 type="invalid-input" status="400" path="$.streams.words.stream"']
    assert talk.session.statistics().streams == 0
    assert talk.adds_up()


# ---- what requests wait for


def test_what_a_read_waits_for_is_told_to_the_one_that_reads() -> None:
    talk, other = Talk(), Talk()
    read = talk.ask("readProperty", 1, name="level")
    about = {"action": "level", "correlation": "m1", "asked": ["m1"]}
    (asked,) = talk.say("queryAction", 8, **about)
    assert asked.request is read
    talk.session.tell_waits(asked, {"m1": ["ways", False, []]})
    (told,) = talk.heard()
    assert (told["messageType"], told["inReplyTo"], told["status"]) == ("actionStatus", "m8", "pending")
    assert told["waits"] == {"m1": ["ways", False, []]}
    assert other.say("queryAction", 8, **about) == ()
    assert talk.say("queryAction", 9, action="level", correlation="m1") == ()  # as a run it is none
    for each in (other, talk):
        (refused,) = each.heard()
        assert refused["messageType"] == "error"
    talk.session.answer(read, 7, AT)
    assert [each["messageType"] for each in talk.heard()] == ["propertyReading"]
    assert talk.adds_up()


def test_a_read_that_ends_first_is_told_no_more() -> None:
    talk = Talk()
    read = talk.ask("readProperty", 1, name="level")
    (asked,) = talk.say("queryAction", 8, action="level", correlation="m1", asked=["m1"])
    talk.session.answer(read, 7, AT)
    talk.session.tell_waits(asked, {})
    assert [each["messageType"] for each in talk.heard()] == ["propertyReading", "error"]
    assert talk.adds_up()
