"""What attacks on the sessions have found: each of these once raised, hung, lost an answer, or grew."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.errors import (
    ActionFailed,
    DeadlineExceeded,
    LocalProtocolError,
    MailboxFull,
    RemoteProtocolError,
)
from lmos_actors.protocol.lmos import (
    OFFERS,
    AnswerMemory,
    Close,
    Credit,
    RequestFailed,
    SessionOptions,
    StrayMessage,
    ThingSession,
)
from lmos_actors.protocol.lmos.thing import _answers as _memory
from tests.protocol.lmos.consumer_by_hand import AT, THING, Talk
from tests.protocol.lmos.thing_by_hand import Hand

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = "9" * 400  # no float is that large
RING: list[Any] = []
RING.append(RING)
UNWRITABLE = pytest.mark.parametrize(
    "value", [object(), "\ud800", {(1, 2): 3}, RING], ids=["object", "half a pair", "a tuple as key", "ring"]
)


# ---- hostile things


@pytest.mark.parametrize("status", [DIGITS, "1e308", "-1", "4.0e2"])
def test_an_error_may_have_any_number_as_its_status(status: str) -> None:
    hand = Hand()
    hand.session.read(THING, "x")
    text = json.dumps({"messageType": "error", "thingID": THING, "messageID": "t", "correlationID": "c1"})
    members = f', "type": "about:blank", "title": "", "detail": "", "instance": "", "status": {status}}}'
    (failed,) = hand.session.receive(text[:-1] + members)
    assert isinstance(failed, RequestFailed)
    assert hand.adds_up()


@pytest.mark.parametrize(("seconds", "told"), [(DIGITS, 0.0), (f"-{DIGITS}", 0.0), ("2.5", 2.5)])
def test_a_deadline_may_be_any_number(seconds: str, told: float) -> None:
    hand = Hand()
    run = hand.session.invoke(THING, "go")
    about = {"seconds": json.loads(seconds)}
    hand.error("c1", type="urn:lmos-actors:errors#deadline-exceeded", about=about)
    assert isinstance(run.error, DeadlineExceeded)
    assert run.error.seconds == told


def test_queries_that_are_answered_with_nonsense_leave_room_for_others() -> None:
    hand = Hand(offers=OFFERS)
    run = hand.session.invoke(THING, "go")
    for _ in range(17):  # more than may be open
        query = hand.session.query(run)
        assert hand.say("actionStatus", query.message_id) == [("RequestFailed", "RemoteProtocolError")]
    assert not run.controls
    assert hand.adds_up()


def test_a_peer_that_answers_no_query_is_asked_no_more() -> None:
    hand = Hand(offers=OFFERS, options=SessionOptions(max_open=2))
    for _ in range(17):
        run = hand.session.invoke(THING, "go")
        hand.sent()
        hand.session.query(run)
        hand.session.cancel(run)
        hand.session.forget(run)
    run = hand.session.invoke(THING, "go")
    hand.sent()
    for ask in (hand.session.query, hand.session.cancel):
        with pytest.raises(MailboxFull):
            ask(run)
    assert hand.session.statistics().open == 2 * 17 + 1
    assert hand.adds_up()


def test_of_a_read_too_no_more_than_16_questions_are_open() -> None:
    hand = Hand(offers=OFFERS)
    read, other = hand.session.read(THING, "level"), hand.session.read(THING, "level")
    for _ in range(16):
        query = hand.session.query(read, [read.message_id])
    with pytest.raises(MailboxFull):
        hand.session.query(read, [read.message_id])
    assert not hand.session.query(other, [other.message_id]).done
    about = {"type": "urn:lmos-actors:errors#not-found", "inReplyTo": query.message_id}
    assert hand.error(read.message_id, **about)[0][0] == "RequestFailed"  # of a peer that knows no such query
    assert (query.done, read.done) == (True, False)
    hand.session.query(read, [read.message_id])
    assert hand.adds_up()


def test_nonsense_of_a_foreign_peer_ends_what_was_asked_about_the_run_as_well() -> None:
    hand = Hand()
    run = hand.session.invoke(THING, "go")
    hand.sent()
    query, cancel = hand.session.query(run), hand.session.cancel(run)
    text = {"messageType": "actionStatus", "thingID": THING, "messageID": "", "correlationID": run.message_id}
    assert hand.raw(text) == [("RequestFailed", "RemoteProtocolError")] * 3
    assert all(one.done for one in (run, query, cancel))
    assert hand.adds_up()


@pytest.mark.parametrize("title", [1, None])
def test_an_unreadable_error_ends_what_it_is_about(title: object) -> None:
    hand = Hand("kotlin-wot")
    feed = hand.session.subscribe(THING, "called")
    assert hand.error(feed.message_id, **{"title": title, "type": 5})[0][0] == "FeedEnded"
    assert feed.ended
    assert isinstance(feed.error, RemoteProtocolError)


def test_an_unreadable_value_ends_nothing() -> None:
    hand = Hand()
    feed = hand.session.subscribe(THING, "called")
    (stray,) = hand.session.receive(
        json.dumps({"messageType": "event", "thingID": THING, "messageID": "t", "correlationID": "c1"})
    )
    assert isinstance(stray, StrayMessage)
    assert not feed.ended


@pytest.mark.parametrize("frame", [b"short", b"\x02" + bytes(11)])
def test_after_a_close_a_consumer_looks_at_nothing(frame: bytes) -> None:
    hand = Hand(offers=OFFERS)
    pending = hand.session.read(THING, "x")
    (close,) = hand.session.receive_binary(frame)
    assert isinstance(close, Close)
    assert hand.reading("c1", "x", 1) == []
    assert hand.session.receive_binary(frame) == ()
    assert hand.session.closed().pendings == ((pending, False),)


# ---- hostile consumers


def test_a_query_does_not_raise_what_the_hosts_progress_is_to_blame_for() -> None:
    talk = Talk()
    run = talk.ask("invokeAction", action="go")
    with pytest.raises(LocalProtocolError):
        talk.session.progress(run, object())
    assert talk.say("queryAction", 2, action="go", correlation="m1") == ()
    assert talk.short() == ['actionStatus m1 action="go" status="in progress" inReplyTo="m2"']
    assert talk.adds_up()


def test_runs_of_one_id_are_told_apart_by_their_actions() -> None:
    talk = Talk()
    first = talk.ask("invokeAction", 1, action="first")
    second = talk.ask("invokeAction", 1, action="second")
    (withdrawn,) = talk.say("cancelAction", 1, action="first", correlation="m1")
    assert withdrawn.request is first
    talk.session.complete(second, 2)
    talk.short()
    talk.say("queryAction", 1, action="first", correlation="m1")
    talk.say("queryAction", 1, action="second", correlation="m1")
    cancelled, completed = talk.heard()
    assert cancelled["cancelled"]
    assert completed["output"] == 2


def test_what_is_remembered_of_runs_is_bounded_in_bytes_whatever_their_ids() -> None:
    talk = Talk(options=SessionOptions(max_bytes=10_000))
    for number in range(64):
        talk.session.complete(talk.ask("invokeAction", f"{number}-" + "x" * 4_000, action="go"))
        talk.short()
    assert talk.session.statistics().remembered == 1


def test_reasons_are_not_remembered_where_there_is_no_room() -> None:
    talk = Talk(options=SessionOptions(max_bytes=10_000))
    for number in range(4):
        talk.ask("invokeAction", number, action="go")
        talk.say("cancelAction", "c", action="go", correlation=f"m{number}", reason="x" * 6_000)
    talk.short()
    for number in range(4):
        talk.say("queryAction", "q", action="go", correlation=f"m{number}")
    assert [len(message.get("reason", "")) for message in talk.heard()] == [6_000, 0, 0, 0]


def test_open_requests_are_bounded_in_bytes() -> None:
    talk = Talk(options=SessionOptions(max_open_bytes=10_000))
    asked = [talk.ask("writeProperty", n, name="x", data="x" * 6_000) for n in range(2)]
    assert talk.say("writeProperty", 3, name="x", data=1) == ()
    assert talk.short() == ['error m3 type="mailbox-full" status="503"']
    for one in asked:
        talk.session.answer(one, None, AT)
    assert talk.say("writeProperty", 4, name="x", data=1) != ()
    assert talk.adds_up()


def test_listenings_are_bounded_in_bytes() -> None:
    talk = Talk(options=SessionOptions(max_open_bytes=10_000))
    for number in range(2):
        talk.session.accept(talk.ask("subscribeEvent", "x" * 6_000, event=f"e{number}"))
    assert talk.say("subscribeEvent", 3, event="e3") == ()
    talk.say("unsubscribeEvent", 4, event="e1")
    assert talk.say("subscribeEvent", 5, event="e3") != ()
    assert talk.adds_up()


def test_a_short_repeat_of_a_long_request_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    compare: Callable[[object], bytes] = _memory._text
    monkeypatch.setattr(_memory, "_text", lambda payload: written.append(payload) or compare(payload))
    talk = Talk(memory=AnswerMemory(), options=SessionOptions(max_open=1))
    talk.ask("invokeAction", 1, action="go", input=list(range(1_000)))
    for other in ([], [1], 1, {"a": 1}, None, list(range(999))):
        talk.say("invokeAction", 1, action="go", input=other)
    assert written == []
    talk.say("invokeAction", 1, action="go", input=[float(n) for n in range(1_000)])
    assert len(written) == 2  # equal for Python, so it takes a closer look
    talk.say("invokeAction", 1, action="go", input=list(range(1_000)))
    assert talk.session.statistics().merged == 1


def test_items_do_not_end_the_call_of_a_peer_that_takes_any_status_for_the_end() -> None:
    memory = AnswerMemory()
    talk, other = Talk(memory=memory), Talk("kotlin-wot", memory=memory)
    run = talk.ask("invokeAction", action="go")
    other.say("invokeAction", action="go")
    talk.session.item(run, 1)
    talk.session.complete(run)
    assert other.short() == ['actionStatus m1 action="go" status="completed" output=null']


# ---- careless hosts


@UNWRITABLE
@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_a_run_whose_answer_cannot_be_written_can_still_be_answered(habits: str, value: object) -> None:
    talk = Talk(habits)
    run = talk.ask("invokeAction", action="go")
    failed = ActionFailed()
    failed.output = value
    for act in (
        lambda: talk.session.item(run, value),
        lambda: talk.session.complete(run, value),
        lambda: talk.session.fail(run, failed),
    ):
        with pytest.raises(LocalProtocolError, match="cannot be written"):
            act()
        assert run.open
    talk.session.complete(run, 1)
    assert talk.short() == ['actionStatus m1 action="go" status="completed" output=1']
    assert talk.adds_up()


@UNWRITABLE
def test_several_writes_go_out_all_or_none(value: object) -> None:
    hand = Hand("kotlin-wot")
    with pytest.raises(LocalProtocolError):
        hand.session.write_many(THING, {"a": 1, "b": value})
    assert hand.sent() == []
    assert hand.session.statistics().asked == 0
    assert hand.adds_up()


def test_a_run_of_another_connection_is_no_run_of_this_one() -> None:
    run = Hand("kotlin-wot").session.invoke(THING, "go")
    hand = Hand("kotlin-wot")
    for ask in (hand.session.query, hand.session.cancel):
        with pytest.raises(LocalProtocolError, match="another connection"):
            ask(run)
    assert hand.adds_up()


def test_a_stream_of_another_connection_is_no_stream_of_this_one() -> None:
    talk, hand = Talk(), Hand(offers=OFFERS)
    stream = Talk().ask("invokeAction", action="go", streams={"in": {"stream": 1}}).streams["in"]
    for act in (talk.session.ready, talk.session.consumed, lambda one: talk.session.stop(one, "no")):
        with pytest.raises(LocalProtocolError, match="another connection"):
            act(stream)
    run = Hand(offers=OFFERS).session.invoke(
        THING, "go", streams={"in": "audio/pcm"}, credit=Credit(items=1, bytes=1)
    )
    for act in (lambda one: hand.session.send(one, b""), hand.session.finish):
        with pytest.raises(LocalProtocolError, match="another connection"):
            act(run.inputs["in"])
    assert talk.short() == []
    assert hand.sent() == []
    assert stream.open
    assert run.inputs["in"].open


def test_the_id_of_an_open_query_is_taken() -> None:
    hand = Hand()
    query = hand.session.query(hand.session.invoke(THING, "go"))
    with pytest.raises(LocalProtocolError, match="still open"):
        hand.session.invoke(THING, "go", message_id=query.message_id)
    assert hand.adds_up()


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
@pytest.mark.parametrize("last", range(12))
def test_a_host_that_is_out_of_ids_finds_everything_as_it_was(habits: str, last: int) -> None:
    talk, name = Talk(habits), "property" if habits == "kotlin-wot" else "name"
    numbers = iter([f"s{number}" for number in range(last)])  # then StopIteration is raised
    talk.session = ThingSession(offered=habits == "spec", new_id=lambda: next(numbers))
    read, observe = talk.ask("readProperty", 1, **{name: "x"}), talk.ask("observeProperty", 2, **{name: "x"})
    first, second = talk.ask("invokeAction", 3, action="go"), talk.ask("invokeAction", 4, action="go")
    for act in (
        lambda: talk.session.answer(read, 1, AT),
        lambda: talk.session.accept(observe, 1, AT),
        lambda: talk.session.complete(first),
        lambda: talk.say("queryAction", 5, action="go"),
        lambda: talk.say("cancelAction", 6, action="go"),
        lambda: talk.say("cancelAction", 7, action="stay"),
        lambda: talk.say("unobserveProperty", 8, **{name: "x"}),
        lambda: talk.say("nonsense", 9),
        lambda: talk.say("event", 10, event="x", data=1),
    ):
        with suppress(StopIteration):
            act()
        assert talk.adds_up()
    wanted = (read, observe, first, second)
    assert talk.session.statistics().open == sum(asked.open for asked in wanted)


@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_an_answer_that_no_peer_would_take_fails_its_request_alone(habits: str) -> None:
    talk = Talk(habits, options=SessionOptions(max_bytes=2000))
    run, other = talk.ask("invokeAction", 1, action="go"), talk.ask("invokeAction", 2, action="stay")
    talk.session.complete(run, "x" * 2000)
    talk.session.complete(other, "x" * 1000)
    error, status = talk.heard()
    assert (error["messageType"], error["status"]) == ("error", "500")
    assert "2000 is the most" in error["detail"]
    assert (status["messageType"], status["output"]) == ("actionStatus", "x" * 1000)
    assert not run.open


def test_a_long_request_is_remembered_as_text() -> None:
    memory = AnswerMemory()
    talk = Talk(memory=memory)
    for repeat, payload in enumerate(([[]] * 4000, [[]] * 4000, [[]] * 3999)):
        asked = talk.say("invokeAction", 1, action="go", input=payload)
        assert len(asked) == (repeat != 1)  # the second asks for the same again
        for one in asked:
            talk.session.complete(one, repeat)
    assert [status["output"] for status in talk.heard()] == [0, 0, 2]
    (kept,) = memory._answers.values()  # the collector does not see what a message refers to
    assert bytes(kept.message.input) == b"[" + b",".join([b"[]"] * 3999) + b"]"
