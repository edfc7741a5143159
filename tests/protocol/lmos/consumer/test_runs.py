"""A consumer's session and runs: statuses, queries, cancels, items and input streams (D12, D14, W1, W6)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from lmos_actors.errors import ActionCancelled, ActionFailed, LocalProtocolError, MailboxFull, NotAllowed
from lmos_actors.protocol import lmos
from lmos_actors.protocol.lmos import Binary, PendingRun, RunStatus, SessionOptions
from tests.protocol.lmos.thing_by_hand import OURS, PROBLEM, THING, Hand, told
from tests.protocol.lmos.wire import binary_frame
from tests.rows import each_row

CREDIT = SessionOptions().credit
UNSUPPORTED = "https://eclipse.dev/lmos/protocol/v1/errors#unsupported-message-type"


def running(*, offers: tuple[str, ...] = (), **members: Any) -> tuple[Hand, PendingRun]:
    """A session with one run, c1, that was sent."""
    hand = Hand(offers=offers)
    run = hand.session.invoke(THING, "go", **members)
    hand.sent()
    return hand, run


# ---- statuses: what a status of a run means, by its members


STATUSES: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
    ({"status": "pending"}, []),
    ({"status": "in progress"}, [("RunProgressed", "in progress")]),
    ({"status": "running"}, [("RunProgressed", "in progress")]),
    ({"status": "inProgress"}, [("RunProgressed", "in progress")]),
    ({"status": "in_progress"}, [("RunProgressed", "in progress")]),
    ({"status": "resting"}, [("RunProgressed", "resting")]),
    ({"status": "pending", "progress": 0}, [("RunProgressed", "pending", 0)]),
    ({"status": "in progress", "progress": None}, [("RunProgressed", "in progress", None)]),
    ({"status": "in progress", "output": 1}, [("RunProgressed", "in progress"), ("RunItem", 1)]),
    ({"status": "pending", "output": None}, [("RunItem", None)]),
    ({"status": "completed"}, [("RequestAnswered", None)]),
    ({"status": "completed", "output": 7}, [("RequestAnswered", 7)]),
    ({"status": "Completed", "output": 7}, [("RequestAnswered", 7)]),
    ({"status": "failed"}, [("RequestFailed", "ActionFailed")]),
    ({"status": "failed", "output": {"why": 1}}, [("RequestFailed", "ActionFailed")]),
    ({"status": "failed", "cancelled": True, "reason": "bored"}, [("RequestFailed", "ActionCancelled")]),
    ({"status": "cancelled"}, [("RequestFailed", "ActionCancelled")]),
    ({"status": "canceled"}, [("RequestFailed", "ActionCancelled")]),
]


@pytest.mark.parametrize("offers", [(), OURS])
@pytest.mark.parametrize(("members", "wanted"), STATUSES, ids=lambda value: str(value))
def test_a_status_is_what_happened(
    members: dict[str, Any], wanted: list[tuple[Any, ...]], offers: tuple[str, ...]
) -> None:
    hand, run = running(offers=offers)
    assert hand.status("c1", **members) == wanted
    assert run.done == (wanted != [] and wanted[0][0] in ("RequestAnswered", "RequestFailed"))
    assert hand.adds_up()
    if run.done:
        assert hand.status("c1", **members) == [("StrayMessage",)]


def test_what_is_known_of_a_run_stands_in_it() -> None:
    hand, run = running()
    assert run.standing() == RunStatus("pending")
    hand.status("c1", "in progress", progress=3)
    assert run.standing() == RunStatus("in progress", 3)
    hand.status("c1", "in progress")
    assert run.standing() == RunStatus("in progress", 3)
    hand.status("c1", "failed", cancelled=True, reason="bored", output=None)
    assert run.standing() == RunStatus("failed", 3, None, cancelled=True, reason="bored")
    assert isinstance(run.error, ActionCancelled)
    assert run.error.reason == "bored"


def test_a_failure_keeps_its_output() -> None:
    for members, output in [({}, None), ({"output": None}, None), ({"output": {"why": 1}}, {"why": 1})]:
        hand, run = running()
        hand.status("c1", "failed", **members)
        assert isinstance(run.error, ActionFailed)
        assert run.error.output == output


def test_an_output_that_is_null_is_not_one_that_is_absent() -> None:
    hand, run = running()
    hand.status("c1", "completed", output=None)
    other = hand.session.invoke(THING, "go")
    hand.status("c2", "completed")
    assert (run.value, other.value) == (None, UNSET)


# ---- queries and cancels, by DECISIONS W1

DONE = {"action": "go", "status": "completed", "output": 1}
GOING = {"action": "go", "status": "in progress", "progress": 5}
REPLY = {"inReplyTo": "c2"}
ENDED = {"action": "go", "status": "failed", "output": None, "cancelled": True, "reason": "bored"}


def test_queries_and_cancels_carry_the_runs_id() -> None:
    hand, run = running()
    hand.session.query(run)
    hand.session.cancel(run, "bored")
    assert hand.short() == [
        'queryAction c2 of=c1 action="go"',
        'cancelAction c3 of=c1 action="go" reason="bored"',
    ]


# who asked, what is said: (kind, correlation, members), what happened
ASIDES: dict[str, tuple[str, tuple[str, str, dict[str, Any]], list[str]]] = {
    "query, by our peers": ("query", ("actionStatus", "c1", GOING | REPLY), ["c2 in progress"]),
    "query, by correlation": ("query", ("actionStatus", "c1", GOING), ["RunProgressed", "c2 in progress"]),
    "query, by its own id": ("query", ("actionStatus", "c2", GOING), ["c2 in progress"]),
    "query, with the end": ("query", ("actionStatus", "c1", DONE), ["c1 answered", "c2 completed"]),
    "query, the end in reply": ("query", ("actionStatus", "c1", DONE | REPLY), ["c2 completed"]),
    "query, refused in reply": ("query", ("error", "c1", {"status": "404"} | REPLY), ["c2 NotFound"]),
    "query, refused by its id": ("query", ("error", "c2", {"status": "404"}), ["c2 NotFound"]),
    "query, not understood": (
        "query",
        ("error", "c1", {"type": UNSUPPORTED, "status": "400"}),
        ["c2 NotAllowed"],
    ),
    "query, the run fails": (
        "query",
        ("error", "c1", {"status": "503"}),
        ["c1 AgentUnavailable", "c2 AgentUnavailable"],
    ),
    "cancel, by our peers": (
        "cancel",
        ("actionStatus", "c1", ENDED | REPLY),
        ["c1 ActionCancelled", "c2 failed cancelled"],
    ),
    "cancel, by correlation": (
        "cancel",
        ("actionStatus", "c1", ENDED),
        ["c1 ActionCancelled", "c2 failed cancelled"],
    ),
    "cancel, by its own id": (
        "cancel",
        ("actionStatus", "c2", ENDED),
        ["c1 ActionCancelled", "c2 failed cancelled"],
    ),
    "cancel, cannot be": ("cancel", ("actionStatus", "c2", GOING), ["c2 in progress"]),
    "cancel, cannot be, in reply": ("cancel", ("actionStatus", "c1", GOING | REPLY), ["c2 in progress"]),
    "cancel, too late": ("cancel", ("actionStatus", "c1", DONE), ["c1 answered", "c2 completed"]),
    "cancel, too late, by its id": ("cancel", ("actionStatus", "c2", DONE), ["c2 completed"]),
    "cancel, refused": ("cancel", ("error", "c1", {"status": "404"} | REPLY), ["c2 NotFound"]),
}


@each_row("case", ASIDES)
def test_what_a_query_or_cancel_is_answered_by(case: str) -> None:
    ask, (kind, correlation, members), wanted = ASIDES[case]
    hand, run = running()
    aside = getattr(hand.session, ask)(run)
    hand.sent()
    found = hand.say(kind, correlation, **(PROBLEM | members if kind == "error" else members))
    words = ["RunProgressed"] if ("RunProgressed", "in progress", 5) in found else []
    words += [f"c1 {type(run.error).__name__ if run.error else 'answered'}"] if run.done else []
    words += [f"c2 {_ended(aside)}"]
    assert words == wanted
    assert len(found) == len(wanted)
    assert hand.adds_up()


def _ended(aside: lmos.ConsumerRequest) -> str:
    if aside.error is not None:
        return type(aside.error).__name__
    assert isinstance(aside.value, RunStatus)
    return f"{aside.value.status} cancelled" if aside.value.cancelled else aside.value.status


def test_our_peers_answer_queries_apart_from_the_run() -> None:
    hand, run = running(offers=OURS)
    query = hand.session.query(run)
    assert hand.status("c1", "in progress", progress=1) == [("RunProgressed", "in progress", 1)]
    assert hand.status("c1", "completed") == [("RequestAnswered", None)]
    assert not query.done
    assert hand.status("c1", "completed", inReplyTo="c2") == [("RequestAnswered", RunStatus("completed"))]
    assert hand.adds_up()


def test_our_peers_refuse_queries_apart_from_the_run() -> None:
    hand, run = running(offers=OURS)
    query = hand.session.query(run)
    assert hand.error("c1", "503") == [("RequestFailed", "AgentUnavailable")]
    assert (run.done, query.done) == (True, False)
    assert hand.error("c1", "404", inReplyTo="c2") == [("RequestFailed", "NotFound")]
    assert hand.error("c1", "404", inReplyTo="c2") == [("StrayMessage",)]


def test_a_cancel_that_is_confirmed_without_the_runs_id_ends_the_run_as_well() -> None:
    hand, run = running(offers=OURS)
    hand.session.cancel(run)
    assert hand.status(None, "failed", cancelled=True, inReplyTo="c2")[0] == (
        "RequestFailed",
        "ActionCancelled",
    )
    assert run.done
    assert hand.adds_up()


def test_repeated_cancels_are_one() -> None:
    hand, run = running()
    cancel = hand.session.cancel(run, "bored")
    assert hand.session.cancel(run, "in a hurry") is cancel
    assert len(hand.sent()) == 1
    hand.status("c2", "in progress")
    assert hand.session.cancel(run, "in a hurry") is not cancel


def test_so_many_queries_of_a_run_are_open_and_no_more() -> None:
    hand, run = running(offers=OURS)
    for _ in range(16):
        hand.session.query(run)
    with pytest.raises(MailboxFull):
        hand.session.query(run)
    hand.session.cancel(run)
    hand.status("c1", "in progress", inReplyTo="c2")
    hand.session.query(run)


def test_of_a_run_that_has_ended_everything_is_known() -> None:
    hand, run = running()
    hand.status("c1", "completed", output=1)
    for aside in (hand.session.query(run), hand.session.cancel(run)):
        assert (aside.done, aside.value) == (True, RunStatus("completed", output=1))
    assert hand.sent() == []
    assert hand.adds_up()


def test_a_run_that_was_not_sent_is_taken_back() -> None:
    hand = Hand()
    run = hand.session.invoke(THING, "go")
    cancel = hand.session.cancel(run, "bored")
    assert hand.sent() == []
    assert isinstance(run.error, ActionCancelled)
    assert (cancel.done, cancel.value) == (True, RunStatus("failed", cancelled=True, reason="bored"))
    assert hand.session.statistics().remembered == 0
    assert hand.adds_up()


def test_a_tell_that_was_not_sent_is_taken_back() -> None:
    hand = Hand()
    run = hand.session.invoke(THING, "go")
    hand.session.forget(run)
    assert hand.session.cancel(run).done
    assert hand.sent() == []
    assert hand.session.closed().pendings == ()
    assert hand.adds_up()


def test_a_caller_that_is_gone_cancels_and_forgets() -> None:
    hand, run = running(offers=OURS)
    cancel = hand.session.cancel(run)
    hand.session.forget(run)
    hand.session.forget(cancel)
    assert hand.session.statistics().open == 0
    assert hand.status("c1", "failed", cancelled=True, inReplyTo="c2") == []
    assert hand.error("c1", inReplyTo="c2") == [("ForgottenFailed", "ActionFailed")]
    assert hand.session.statistics().remembered == 0
    assert hand.adds_up()


def test_a_status_that_says_nothing_of_its_run_is_that_of_the_only_one() -> None:
    hand, run = running()
    assert hand.status(None, "in progress") == [("RunProgressed", "in progress")]
    hand.session.invoke(THING, "go")
    assert hand.status(None, "completed") == [("StrayMessage",)]
    assert not run.done
    other, _ = running(offers=OURS)
    assert other.status(None, "completed") == [("StrayMessage",)]


# ---- items, by DECISIONS W6


def test_items_come_under_credit_that_is_given_back_by_halves() -> None:
    hand, run = running(offers=OURS, credit=lmos.Credit(items=4, bytes=100_000))
    for n in range(4):
        assert ("RunItem", n) in hand.status("c1", "in progress", output=n)
    assert hand.sent() == []
    hand.session.consumed(run)
    hand.session.consumed(run)
    [credit] = hand.sent()
    assert (credit["messageType"], credit["correlationID"], credit["items"]) == ("streamCredit", "c1", 2)
    assert hand.status("c1", "completed") == [("RequestAnswered", None)]
    hand.session.consumed(run)
    assert hand.sent() == []


def test_items_beyond_the_credit_end_the_run() -> None:
    hand, run = running(offers=OURS, credit=lmos.Credit(items=1, bytes=100_000))
    hand.status("c1", "in progress", output=1)
    assert hand.status("c1", "in progress", output=2) == [("RequestFailed", "RemoteProtocolError")]
    [cancel] = hand.sent()
    assert (cancel["messageType"], cancel["correlationID"]) == ("cancelAction", "c1")
    assert hand.status("c1", "in progress", output=3) == []
    assert hand.status("c1", "failed", cancelled=True, inReplyTo=cancel["messageID"]) == []
    assert hand.session.statistics().remembered == 0
    assert run.done
    assert hand.adds_up()


def test_foreign_items_need_no_credit() -> None:
    hand, run = running(credit=CREDIT)
    for n in range(40):
        assert hand.status("c1", "in progress", output=n)[-1] == ("RunItem", n)
    hand.session.consumed(run)
    assert hand.sent() == []


def opening(stream: int) -> dict[str, Any]:
    return {"stream": stream, "contentType": "application/octet-stream"}


def test_bytes_come_in_binary_frames() -> None:
    hand, run = running(offers=OURS, credit=CREDIT, binary=True)
    assert hand.say("streamOpen", "c1", **opening(2)) == []
    assert told(hand.session.receive_binary(binary_frame(2, 0, b"a"))) == [("RunItem", b"a")]
    assert told(hand.session.receive_binary(binary_frame(2, 1, b"b", last=True))) == [("RunItem", b"b")]
    assert hand.status("c1", "completed") == [("RequestAnswered", None)]
    assert told(hand.session.receive_binary(binary_frame(2, 2, b"c"))) == []
    assert hand.session.statistics().late == 1
    assert run.done


def test_a_binary_frame_out_of_order_ends_its_run_alone() -> None:
    hand, run = running(offers=OURS, credit=CREDIT, binary=True)
    other = hand.session.invoke(THING, "go")
    hand.say("streamOpen", "c1", **opening(2))
    assert told(hand.session.receive_binary(binary_frame(2, 1, b"a"))) == [
        ("RequestFailed", "RemoteProtocolError")
    ]
    assert (run.done, other.done) == (True, False)


@pytest.mark.parametrize(
    ("offers", "data", "code"),
    [
        ((), binary_frame(2, 0, b"a"), 1003),
        (OURS, b"short", 1003),
        (OURS, binary_frame(2, 0, b"a" * 5000), 1009),
    ],
)
def test_binary_frames_that_are_none_of_ours_close_the_connection(
    offers: tuple[str, ...], data: bytes, code: int
) -> None:
    hand = Hand(offers=offers, options=SessionOptions(max_bytes=5000))
    assert told(hand.session.receive_binary(data)) == [("Close", code)]


# ---- input streams


def test_inputs_need_a_peer_that_offers_them() -> None:
    hand = Hand(offers=("acks",))
    with pytest.raises(NotAllowed):
        hand.session.invoke(THING, "go", streams={"voice": "audio/pcm"})
    assert hand.sent() == []
    assert hand.session.statistics().open == 0


def test_inputs_go_out_under_the_things_credit() -> None:
    hand = Hand(offers=OURS)
    session = hand.session
    run = session.invoke(THING, "go", streams={"words": "application/json", "voice": "audio/pcm"})
    [invoke] = hand.sent()
    assert invoke["streams"] == {
        "words": {"stream": 1, "contentType": "application/json"},
        "voice": {"stream": 3, "contentType": "audio/pcm"},
    }
    words, voice = run.inputs["words"], run.inputs["voice"]
    assert not session.room(words)
    with pytest.raises(LocalProtocolError):
        session.send(words, "a")
    assert hand.say("streamCredit", "c1", stream=1, items=1, bytes=1000) == [("CreditArrived",)]
    assert hand.say("streamCredit", "c1", stream=3, items=2, bytes=1000) == [("CreditArrived",)]
    assert session.send(words, "a")
    assert not session.room(words)
    assert session.send(voice, b"\x00\x01")
    session.finish(words)
    session.finish(words)
    item, frame, end = session.frames()
    assert b'"streamItem"' in item
    assert isinstance(frame, Binary)
    assert b'"streamEnd"' in end
    assert hand.say("streamEnd", "c1", stream=3, sequence=1, reason="enough") == [("StreamStopped",)]
    assert not session.send(voice, b"\x00")
    assert hand.status("c1", "completed") == [("RequestAnswered", None)]
    assert session.frames() == []


def test_streams_end_with_their_run() -> None:
    hand = Hand(offers=OURS)
    run = hand.session.invoke(THING, "go", credit=CREDIT, streams={"words": "application/json"})
    hand.session.cancel(run)
    assert not run.inputs["words"].open
    assert run.answer is not None
    assert not run.answer.open
    again = hand.session.invoke(THING, "go", streams={"words": "application/json"})
    hand.session.forget(again)
    assert not again.inputs["words"].open
