"""Both ends of a connection as state machines: without a socket, without a clock."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from lmos_actors.errors import LocalProtocolError
from lmos_actors.protocol.omnia import (
    Call,
    CallAccepted,
    CallAnswered,
    ClientConnection,
    HungUp,
    MediaFrame,
    MediaInfo,
    MediaReceived,
    MessageReceived,
    Outcome,
    ServerConnection,
    ServerOptions,
    UploadWanted,
    write_media_frame,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
ALL = 1 << 30


def server(**options: Any) -> ServerConnection:
    ids = count(1)
    made = ServerConnection(ServerOptions(**options), new_id=lambda: f"s-{next(ids)}", now=lambda: NOW)
    made.begin()
    return made


def sent(end: ServerConnection | ClientConnection) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in end.frames(ALL)]


def said(end: ServerConnection, at: float = 0.0, **members: Any) -> Any:
    return end.receive(json.dumps(members), at)


def message(end: ServerConnection, **members: Any) -> MessageReceived:
    event = said(end, type="message", **{"content": "hello", **members})
    assert isinstance(event, MessageReceived)
    return event


# ---- the server


def test_what_is_announced() -> None:
    (frame,) = sent(server(max_payload=100, binary=True))
    assert frame == {
        "type": "connected",
        "session_id": "s-1",
        "timestamp": "2026-01-02T03:04:05.678Z",
        "connected": {
            "capabilities": {"binary_frames": True, "max_payload_size": 100, "protocol_version": 1},
        },
    }


def test_a_session_is_new_until_it_is_used() -> None:
    end = server()
    assert [message(end).is_new, message(end).is_new, message(end, session_id="x").is_new] == [
        True,
        False,
        False,
    ]
    end.adopt("y")
    event = message(end)
    assert (event.session_id, event.is_new) == ("y", False)


def test_a_turn_has_one_end() -> None:
    end = server()
    turn = message(end).turn
    turn.chunk("a")
    turn.chunk("b", role="user")
    turn.chunk("c")
    turn.done()
    assert [each.get("content") for each in sent(end)[2:]] == ["a", "b", "c", "ac"]
    for act in (turn.done, turn.chunk, lambda: turn.fail("X", "y")):
        with pytest.raises(LocalProtocolError, match="the turn has ended"):
            act()
    assert end.turns == 0


def test_eight_turns_wait_behind_one() -> None:
    end = server()
    turns = [message(end).turn for _ in range(9)]
    sent(end)
    assert said(end, type="message", content="one too many") is None
    refused = sent(end)[-1]
    assert refused["error"] == {"code": "RATE_LIMITED", "message": "too many in-flight requests"}
    assert refused["session_id"] == "s-1"
    turns[0].done()
    assert isinstance(said(end, type="message", content="now there is room"), MessageReceived)


def test_rates_are_of_each_connection() -> None:
    end = server(texts=2, texts_burst=3)
    taken = [said(end, at, type="hangup") for at in (0, 0, 0, 0, 0.4, 0.5, 10, 10, 10, 10)]
    assert [isinstance(each, HungUp) for each in taken] == [
        *(True, True, True, False, False, True),
        *(True, True, True, False),
    ]
    faults = [each for each in sent(end) if each["type"] == "error"]
    assert {each["error"]["code"] for each in faults} == {"RATE_LIMITED"}
    assert all("session_id" not in each for each in faults)


def test_answers_to_calls() -> None:
    end = server()
    turn = message(end).turn
    for call in ("a", "b", "c", "d"):
        turn.ask(Call(id=call, name="tool"))
    turn.show_call(Call(id="shown", name="other"))
    turn.show_result(Outcome(id="shown", result=1))
    turn.give_up("d")
    sent(end)

    def result(call: str, **members: Any) -> Any:
        return said(end, type="tool_result", tool_result={"call_id": call, **members})

    assert said(end, type="tool_call_ack", tool_call_ack={"call_id": "a"}) == CallAccepted("a")
    assert result("a", result=None) == CallAnswered("a", None)
    assert result("b", error="no") == CallAnswered("b", error="no")
    refusal = {"call_id": "c", "reason": "may not"}
    nack = said(end, type="tool_call_nack", tool_call_nack=refusal)
    assert nack == CallAnswered("c", error="may not", refused=True)
    assert sent(end) == []
    assert result("shown") is None
    assert said(end, type="tool_call_nack", tool_call_nack={"call_id": "c"}) is None
    assert sent(end) == []
    for late in ("a", "d", "never"):
        assert result(late) is None
        (fault,) = sent(end)
        assert fault["error"] == {"code": "INVALID_MESSAGE", "message": f"no pending tool call '{late}'"}


def test_shown_calls_are_remembered_up_to_a_bound() -> None:
    end = server()
    turn = message(end).turn
    for number in range(300):
        turn.show_call(Call(id=str(number), name="tool"))
    sent(end)
    for call in ("0", "43", "299"):
        said(end, type="tool_result", tool_result={"call_id": call})
    assert [each["error"]["message"] for each in sent(end)] == [
        "no pending tool call '0'",
        "no pending tool call '43'",
    ]


def test_uploads_are_asked_for_in_a_session() -> None:
    end = server()
    order = {"filename": "a.txt", "mime_type": "text/plain", "size_bytes": 3}
    event = said(end, type="upload_request", session_id="x", upload_request=order)
    assert isinstance(event, UploadWanted)
    assert (event.session_id, event.request.upload_request.size_bytes) == ("x", 3)


PIECE = MediaFrame(media_id="m", sequence=3, payload=b"abc", info=MediaInfo(session_id="x"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "a header of 32 bytes, not 0"),
        (b"OMNJ" + write_media_frame(PIECE)[4:], "begins with OMNI"),
        (b"OMNI\x02" + write_media_frame(PIECE)[5:], "version 1, not 2"),
        (b"OMNI\x01\x01" + write_media_frame(PIECE)[6:], "compressed"),
        (b"OMNI\x01\x00\x00\x02" + write_media_frame(PIECE)[8:], "ask with upload_request"),
        (b"OMNI\x01\x00\x00\x09" + write_media_frame(PIECE)[8:], "no type 9"),
        (write_media_frame(PIECE) + b"x", "has not the 3 bytes"),
        (write_media_frame(PIECE)[:-1], "has not the 3 bytes"),
        (write_media_frame(PIECE)[:8] + b"\xff\xff\xff\xff" + write_media_frame(PIECE)[12:], "metadata"),
        (write_media_frame(PIECE)[:32] + b"#" + write_media_frame(PIECE)[33:], "cannot be read"),
    ],
)
def test_binary_frames_that_cannot_be_read(data: bytes, reason: str) -> None:
    end = server(binary=True)
    sent(end)
    assert end.receive_binary(data, 0) is None
    (fault,) = sent(end)
    assert fault["error"]["code"] == "INVALID_MESSAGE"
    assert reason in fault["error"]["message"]
    assert "session_id" not in fault


def test_binary_frames_are_bounded_in_bytes_a_second() -> None:
    end = server(binary=True, media_bytes=100, media_burst=200)
    data = write_media_frame(PIECE)
    taken = [end.receive_binary(data, at) for at in (0, 0, 0, 0, 0, 10)]
    assert [isinstance(each, MediaReceived) for each in taken] == [True, True, True, False, False, True]
    assert taken[0] == MediaReceived(PIECE)


def test_binary_frames_need_to_be_asked_for() -> None:
    end = server()
    sent(end)
    assert end.receive_binary(write_media_frame(PIECE), 0) is None
    assert "binary=true" in sent(end)[0]["error"]["message"]
    with pytest.raises(LocalProtocolError, match="no binary frames"):
        end.send_media(PIECE)


def test_frames_are_taken_up_to_a_room() -> None:
    woken: list[int] = []
    end = ServerConnection(
        ServerOptions(), new_id=lambda: "s", now=lambda: NOW, wake=lambda: woken.append(end.waiting_bytes)
    )
    end.begin()
    first = end.waiting_bytes
    end.begin()
    assert (end.waiting_bytes, woken) == (2 * first, [first])
    assert len(end.frames(1)) == 1
    assert end.waiting_bytes == first
    assert len(end.frames(ALL)) == 1
    assert end.frames(ALL) == []


# ---- the client


def hears(end: ClientConnection, **members: Any) -> Any:
    return end.receive(json.dumps(members))


def test_stages_of_a_turn() -> None:
    end = ClientConnection()
    assert end.stage == "none"
    end.send_message("hello", metadata={"a": "b"})
    assert end.stage == "unsent"
    with pytest.raises(LocalProtocolError, match="a turn is in progress"):
        end.send_message("again")
    assert sent(end) == [{"type": "message", "content": "hello", "metadata": {"a": "b"}}]
    assert end.stage == "sent"
    hears(end, type="connected", session_id="s")
    assert (end.stage, end.session_id, end.is_announced) == ("sent", "s", False)
    hears(end, type="chunk", content="x")
    assert end.stage == "begun"
    assert hears(end, type="done", content="x").ends == "done"
    assert end.stage == "none"
    end.send_message("next")
    assert sent(end)[0]["session_id"] == "s"
    with pytest.raises(ValueError, match="content or parts"):
        ClientConnection().send_message()


REFUSAL = {"type": "error", "error": {"code": "RATE_LIMITED", "message": ""}}
FAILURE = {"type": "error", "error": {"code": "SESSION_EXPIRED", "message": ""}}
CHUNK = {"type": "chunk", "session_id": "s", "content": "x"}


@pytest.mark.parametrize(
    ("frames", "ends"),
    [
        ([REFUSAL], "refused"),
        ([{**REFUSAL, "session_id": "s"}], "refused"),
        ([FAILURE], "failed"),
        ([{**FAILURE, "session_id": "s"}], "failed"),
        ([CHUNK, REFUSAL], None),
        ([CHUNK, {**REFUSAL, "session_id": "s"}], "failed"),
        ([CHUNK, FAILURE], None),
        ([{"type": "tool_call", "tool_call": {"id": "1"}}, {**FAILURE, "session_id": "s"}], "failed"),
    ],
)
def test_what_an_error_is_about(frames: list[dict[str, Any]], ends: str | None) -> None:
    end = ClientConnection()
    assert hears(end, **frames[-1]).ends is None, "there is no turn"
    end.send_message("hello")
    assert hears(end, **frames[-1]).ends is None, "it has not been sent"
    sent(end)
    assert [hears(end, **frame).ends for frame in frames] == [None] * (len(frames) - 1) + [ends]


@pytest.mark.parametrize(
    ("session", "before", "after", "asks"),
    [
        (None, 1, 1, True),  # ours, and the newest
        (None, 0, 2, True),  # the same, where the message was quicker
        ("s", 0, 1, True),
        (None, 0, 1, False),  # an old one, which announces what a message begins
        ("s", 0, 0, False),
    ],
)
def test_calls_are_answered_where_an_announcement_came_unasked(
    session: str | None, before: int, after: int, asks: bool
) -> None:
    end = ClientConnection(session_id=session)
    for _ in range(before):
        hears(end, type="connected", session_id="s")
    end.send_message("hello")
    sent(end)
    for _ in range(after):
        hears(end, type="connected", session_id="s")
    assert hears(end, type="tool_call", tool_call={"id": "1", "name": "tool"}).asks is asks
    assert not hears(end, type="tool_call", tool_call={"id": "2", "name": "tool", "shown": True}).asks


def test_what_a_client_may_send() -> None:
    end = ClientConnection(session_id="s")
    end.accept_call("1")
    end.answer_call("1", {"a": 1})
    end.answer_call("2", error="no")
    end.refuse_call("3", "may not")
    end.request_upload("a.txt", "text/plain", 3)
    end.hang_up()
    assert [each["session_id"] for each in sent(end)] == ["s"] * 6
    with pytest.raises(TypeError):
        end.answer_call("4", object())


def test_frames_that_cannot_be_read_are_counted() -> None:
    end = ClientConnection()
    for text in ("", "null", "[]", '{"type": "applause"}', '{"type": "chunk", "content": 1}', "{}"):
        assert end.receive(text).ends is None
    end.receive_binary(b"nothing")
    assert end.unread == 7
