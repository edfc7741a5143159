"""The scripted server, message by message: what it says is what the texts have."""

from __future__ import annotations

import json
from random import Random
from typing import Any
from uuid import UUID

import pytest

from lmos_actors.conformance.scripted import (
    ID,
    ID_B,
    MOST_WAITING,
    Disconnect,
    HttpRequest,
    ScriptedConnection,
    ScriptedPages,
    ScriptedServer,
    SendClose,
    SendText,
    WebSocketCodec,
    described,
    described_b,
)
from lmos_actors.protocol import td

M = "5b6c7d8e-9f0a-4b1c-8d2e-3f4a5b6c7d15"
C = "6a7d0f4e-0f3a-4f5e-9d3e-0c6a4b0f9a11"
ERRORS = "https://eclipse.dev/lmos/protocol/v1/errors"
BAD = "urn:lmos-actors:errors#invalid-input"
NONE = f"{ERRORS}#not-found"
NOT = f"{ERRORS}#operation-not-allowed"


class Desk:
    """A server whose time the test sets, and connections to it."""

    def __init__(self) -> None:
        self.time = 0.0
        self.server = ScriptedServer(lambda: self.time, Random(1))

    def connect(self, *, offered: bool = True, path: str = "/ws", peer: str = "") -> Peer:
        return Peer(self, self.server.connect(offered=offered, path=path, peer=peer))

    def sleep(self, seconds: float) -> None:
        until = self.time + seconds
        while (due := self.server.due()) is not None and due <= until:
            self.time = due
            self.server.tick()
        self.time = until


class Peer:
    """One connection: what is sent, and what came of it."""

    def __init__(self, desk: Desk, connection: ScriptedConnection) -> None:
        self.desk = desk
        self.connection = connection
        self.number = 0

    def received(self) -> list[Any]:
        """Give what came since."""
        found = [json.loads(out.text) if isinstance(out, SendText) else out for out in self.connection.out]
        self.connection.out.clear()
        return found

    def raw(self, text: str) -> list[Any]:
        self.connection.text(text)
        return self.received()

    def send(self, kind: str, **members: Any) -> list[Any]:
        self.number += 1
        ids = {"thingID": ID, "messageID": f"5b6c7d8e-9f0a-4b1c-8d2e-{self.number:012}"}
        return self.raw(json.dumps({"messageType": kind, **ids, **members}))

    def one(self, kind: str, **members: Any) -> Any:
        (found,) = self.send(kind, **members)
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return desk.connect()


@pytest.mark.parametrize("describe", [described, described_b])
def test_the_descriptions_have_nothing_wrong(describe: Any) -> None:
    assert td.check(describe("ws://127.0.0.1:8080"), strict=True) == ()


def test_a_reading_has_its_members_and_no_others(peer: Peer) -> None:
    found = peer.one("readProperty", name="level", correlationID=C)
    assert UUID(found.pop("messageID")).version == 4
    assert found.pop("timestamp").endswith("Z")
    told = {"messageType": "propertyReading", "thingID": ID, "correlationID": C, "name": "level", "value": 20}
    assert found == told


def test_without_a_correlation_the_id_of_the_request_is_one(peer: Peer) -> None:
    assert peer.one("readProperty", name="level", messageID=M)["correlationID"] == M


def test_two_things_are_distinguished(peer: Peer) -> None:
    peer.send("writeProperty", name="level", data=7)
    assert peer.one("readProperty", name="level")["value"] == 7
    other = peer.one("readProperty", thingID=ID_B, name="level")
    assert (other["value"], other["thingID"]) == (20, ID_B)


@pytest.mark.parametrize(
    ("kind", "members", "status", "type_"),
    [
        ("readProperty", {"name": "nothing"}, "404", NONE),
        ("readProperty", {"name": "level", "thingID": "urn:x"}, "404", NONE),
        ("readProperty", {"name": "secret"}, "405", NOT),
        ("readProperty", {}, "400", BAD),
        ("readProperty", {"name": 1}, "400", BAD),
        ("readProperty", {"name": "level", "property": "label"}, "400", BAD),
        ("readProperty", {"name": "level", "messageID": 1}, "400", BAD),
        ("writeProperty", {"name": "version", "data": "2"}, "405", NOT),
        ("writeProperty", {"name": "level", "data": 101}, "400", BAD),
        ("writeProperty", {"name": "level", "data": True}, "400", BAD),
        ("writeProperty", {"name": "level"}, "400", BAD),
        ("writeMultipleProperties", {"data": {"x": 1}}, "404", NONE),
        ("writeMultipleProperties", {"data": [1]}, "400", BAD),
        ("observeProperty", {"name": "settings"}, "405", NOT),
        ("unobserveProperty", {"name": "nothing"}, "404", NONE),
        ("invokeAction", {"action": "nothing"}, "404", NONE),
        ("invokeAction", {"action": "echo"}, "400", BAD),
        ("invokeAction", {"action": "add", "input": {"a": 1, "b": "2"}}, "400", BAD),
        ("invokeAction", {"action": "fail", "input": 3}, "400", BAD),
        ("queryAction", {"action": "echo"}, "404", NONE),
        ("cancelAction", {"action": "echo"}, "404", NONE),
        ("subscribeEvent", {"event": "nothing"}, "404", NONE),
        ("unsubscribeEvent", {"event": "nothing"}, "404", NONE),
        ("frobnicate", {}, "400", f"{ERRORS}#unsupported-message-type"),
        ("propertyReading", {"name": "level", "value": 1}, "400", f"{ERRORS}#unsupported-message-type"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_an_error(
    peer: Peer, kind: str, members: dict[str, Any], status: str, type_: str
) -> None:
    found = peer.one(kind, correlationID=C, **members)
    assert (found["messageType"], found["status"], found["type"]) == ("error", status, type_)
    assert found["correlationID"] == C
    assert found["title"]
    assert found["detail"]
    assert found["instance"].startswith(f"{ERRORS}/")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"messageType": NaN}', "{" * 5000, '"x"'])
def test_what_is_no_message_is_an_error_and_the_connection_stays(peer: Peer, text: str) -> None:
    (found,) = peer.raw(text)
    assert (found["messageType"], found["status"]) == ("error", "400")
    assert peer.one("readProperty", name="level")["value"] == 20


def test_deep_nesting_is_an_error(peer: Peer) -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    assert peer.one("writeProperty", name="level", data=deep)["status"] == "400"


@pytest.mark.parametrize("kind", ["error", "acknowledgement"])
def test_answers_are_not_answered(peer: Peer, kind: str) -> None:
    assert peer.send(kind) == []


def test_lone_surrogates_come_back(peer: Peer) -> None:
    found = peer.one("invokeAction", action="echo", input={"text": "\ud800"})
    assert found["output"] == {"text": "\ud800"}


def test_binary_closes_unless_it_is_a_late_item(peer: Peer) -> None:
    peer.connection.binary(bytes.fromhex("01000000000000010000000061"))
    assert peer.received() == []
    peer.connection.binary(b"hello")
    assert peer.received() == [SendClose(1003, "text messages, and items of streams")]


def test_too_much_closes(peer: Peer) -> None:
    (out,) = peer.raw("x" * (4 << 20) + "x")
    assert out.code == 1009


# --- writing and observing


def test_writes_are_confirmed_and_done_once(peer: Peer) -> None:
    first = peer.one("writeProperty", messageID=M, name="level", data=5)
    assert (first["messageType"], first["name"], first["value"]) == ("propertyReading", "level", 5)
    peer.send("writeProperty", name="level", data=6)
    again = peer.one("writeProperty", messageID=M, name="level", data=5)
    assert (again["value"], again["messageID"] != first["messageID"]) == (5, True)
    assert peer.one("readProperty", name="level")["value"] == 6


def test_several_are_written_all_or_none(peer: Peer) -> None:
    assert peer.one("writeMultipleProperties", data={"level": 1, "label": ""})["path"] == "$.data.label"
    assert peer.one("readProperty", name="level")["value"] == 20
    found = peer.one("writeMultipleProperties", data={"level": 1, "label": "x"})
    assert (found["messageType"], found["data"]) == ("propertyReadings", {"level": 1, "label": "x"})


def test_an_observer_hears_the_value_and_its_changes(desk: Desk, peer: Peer) -> None:
    other = desk.connect()
    assert peer.one("observeProperty", name="level", correlationID=C)["value"] == 20
    other.send("writeProperty", name="level", data=3)
    other.send("writeProperty", name="level", data=3)
    (change,) = peer.received()
    assert (change["value"], change["correlationID"]) == (3, C)
    assert peer.one("unobserveProperty", name="level", ack=True)["message"] == "unobserveProperty"
    other.send("writeProperty", name="level", data=4)
    assert peer.received() == []


def test_the_time_is_sent_while_it_is_observed(desk: Desk, peer: Peer) -> None:
    peer.send("observeProperty", name="uptime")
    desk.sleep(2.5)
    assert [each["value"] for each in peer.received()] == [1.0, 2.0]
    assert peer.send("unobserveProperty", name="uptime") == []
    desk.sleep(5)
    assert peer.received() == []
    assert desk.server.due() is None


# --- events


def test_events_come_to_each_subscription_and_before_the_answer(desk: Desk, peer: Peer) -> None:
    other = desk.connect()
    assert peer.send("subscribeEvent", event="rang", correlationID=C) == []
    assert peer.one("subscribeAllEvents", correlationID=M, ack=True)["correlationID"] == M
    found = peer.send("invokeAction", action="ring", input={"note": "x"})
    assert [each["messageType"] for each in found] == ["event", "event", "actionStatus"]
    assert [each["correlationID"] for each in found[:2]] == [C, M]
    assert found[0]["data"] == {"note": "x", "number": 1}
    assert other.received() == []
    peer.send("invokeAction", thingID=ID_B, action="ring", input={"note": "x"})
    peer.send("unsubscribeAllEvents")
    assert len(peer.send("invokeAction", action="ring", input={"note": "x"})) == 1


def test_a_second_subscription_takes_the_place_of_the_first(peer: Peer) -> None:
    peer.send("subscribeEvent", event="alarm", correlationID=C)
    peer.send("subscribeEvent", event="alarm", correlationID=M)
    event, _ = peer.send("invokeAction", action="raise_alarm")
    assert event["correlationID"] == M


# --- runs


def test_a_run_is_pending_and_then_completed(desk: Desk, peer: Peer) -> None:
    pending = peer.one("invokeAction", action="wait", input={"seconds": 3}, messageID=M, correlationID=C)
    assert (pending["status"], pending["correlationID"]) == ("pending", C)
    query = peer.one("queryAction", action="wait", correlationID=M)
    assert (query["status"], query["correlationID"], "inReplyTo" in query) == ("pending", C, True)
    desk.sleep(3)
    going, final = peer.received()
    assert (going["status"], 0 < going["progress"] < 1, "output" in going) == ("in progress", True, False)
    assert (final["status"], final["output"], final["correlationID"]) == ("completed", {"waited": 3}, C)
    assert peer.one("queryAction", action="wait")["status"] == "completed"
    assert peer.one("cancelAction", action="wait", correlationID=M)["status"] == "completed"


def test_the_final_answer_of_a_cancelled_run_answers_the_cancel(desk: Desk, peer: Peer) -> None:
    peer.send("invokeAction", action="wait", input={"seconds": 3}, messageID=M)
    final = peer.one("cancelAction", action="wait", messageID=C, correlationID=M, reason="enough")
    assert (final["status"], final["cancelled"], final["reason"]) == ("failed", True, "enough")
    assert (final["correlationID"], final["inReplyTo"], final["output"]) == (M, C, None)
    desk.sleep(9)
    assert peer.received() == []


def test_without_a_correlation_the_newest_run_is_meant(peer: Peer) -> None:
    peer.send("invokeAction", action="wait", input={"seconds": 3})
    peer.send("invokeAction", action="wait", input={"seconds": 3}, messageID=M)
    assert peer.one("cancelAction", action="wait")["correlationID"] == M


def test_a_declared_failure_is_a_status(peer: Peer) -> None:
    found = peer.one("invokeAction", action="fail")
    assert (found["status"], found["output"]) == ("failed", {"why": "it always fails"})


def test_a_deadline_ends_a_run(desk: Desk, peer: Peer) -> None:
    peer.send("invokeAction", action="wait", input={"seconds": 3}, remaining=1)
    desk.sleep(5)
    _, found = peer.received()
    assert (found["type"], found["started"]) == ("urn:lmos-actors:errors#deadline-exceeded", True)


def test_a_repeated_run_goes_on_and_is_answered_where_it_was_asked(desk: Desk) -> None:
    one = desk.connect(peer="p" * 32)
    asked: dict[str, Any] = {"action": "wait", "input": {"seconds": 3}, "messageID": M}
    one.send("invokeAction", **asked, attempt=1)
    one.connection.lost()
    two = desk.connect(peer="p" * 32)
    assert two.send("invokeAction", **asked, attempt=2) == []
    desk.sleep(3)
    assert [each["status"] for each in two.received()] == ["in progress", "completed"]
    assert [each["status"] for each in two.send("invokeAction", **asked, attempt=3)] == ["completed"]
    desk.sleep(61)
    assert [each["status"] for each in two.send("invokeAction", **asked, attempt=4)] == ["pending"]


def test_a_run_that_cannot_be_resumed_ends_with_its_connection(desk: Desk, peer: Peer) -> None:
    peer.send("invokeAction", action="wait", input={"seconds": 3})
    peer.connection.lost()
    desk.sleep(0)
    assert desk.server.due() is None
    assert desk.server.connections == []


def test_items_come_under_credit(peer: Peer) -> None:
    credit = {"items": 2, "bytes": 9000}
    first = peer.send("invokeAction", action="count", input={"to": 4}, messageID=M, credit=credit)
    assert [each["output"] for each in first] == [0, 1]
    assert [each["status"] for each in first] == ["in progress", "in progress"]
    second = peer.send("streamCredit", correlationID=M, items=9, bytes=9000)
    assert [each.get("output") for each in second] == [2, 3, None]
    assert second[-1]["status"] == "completed"
    assert peer.send("streamCredit", correlationID=M, items=9, bytes=9000) == []
    assert peer.one("invokeAction", action="count", input={"to": 4}, credit={"items": -1, "bytes": 1})["path"]


def test_bytes_count_too(peer: Peer) -> None:
    found = peer.send("invokeAction", action="count", input={"to": 4}, credit={"items": 9, "bytes": 1})
    assert [each["output"] for each in found] == [0]


def test_input_streams_are_refused(peer: Peer) -> None:
    found = peer.one("invokeAction", action="echo", input={"text": ""}, streams={"x": {"stream": 1}})
    assert (found["status"], found["path"]) == ("400", "$.streams")


# --- spelling and habits

FRAMES = [
    (True, "readProperty", "ID", {"name": "level"}, "name", "spec"),
    (True, "readProperty", "Id", {"name": "level"}, "name", "spec"),
    (True, "readProperty", "Id", {"property": "level"}, "property", "kotlin-wot"),
    (True, "readProperty", "ID", {"property": "level"}, "property", "kotlin-wot"),
    (True, "subscribeevent", "ID", {"event": "rang"}, "property", "kotlin-wot"),
    (False, "readProperty", "ID", {"name": "level"}, "name", "spec"),
    (False, "readProperty", "Id", {"name": "level"}, "name", "kotlin-wot"),
    (False, "invokeAction", "Id", {"action": "fail"}, "property", "kotlin-wot"),
    (False, "frobnicate", "Id", {}, "property", "kotlin-wot"),
]


@pytest.mark.parametrize(("offered", "kind", "ids", "members", "names", "habits"), FRAMES)
def test_peers_are_answered_as_they_speak(
    desk: Desk, offered: bool, kind: str, ids: str, members: dict[str, str], names: str, habits: str
) -> None:
    frame = {"messageType": kind, f"thing{ids}": ID, f"message{ids}": M, **members}
    peer = desk.connect(offered=offered)
    (found,) = peer.raw(json.dumps(frame))
    assert f"thing{ids}" in found
    assert f"correlation{ids}" in found
    reading = peer.raw(json.dumps({**frame, "messageType": "readProperty", names: "level"}))[-1]
    assert {names, "value" if names == "name" else "data"} <= set(reading)
    assert peer.connection.habits == habits


def test_kotlin_wot_gets_acknowledgements_and_one_final_status(desk: Desk) -> None:
    peer = desk.connect(offered=False)

    def say(kind: str, **members: Any) -> list[Any]:
        return peer.raw(json.dumps({"messageType": kind, "thingId": ID, "messageId": M, **members}))

    assert say("subscribeevent", event="rang")[0]["message"] == "subscribeevent"
    event, status = say("invokeAction", action="ring", input={"note": "x"})
    assert event["correlationId"] == M
    assert (status["status"], status["output"]) == ("completed", None)
    assert [each["status"] for each in say("invokeAction", action="fail")] == ["500"]
    assert say("invokeAction", action="wait", input={"seconds": 1}) == []
    assert say("cancelAction", action="wait")[0]["messageType"] == "error"
    assert say("invokeAction", action="count", input={"to": 3})[0]["output"] == [0, 1, 2]
    say("observeProperty", property="level")
    change, _ = say("writeProperty", property="level", data=1)
    assert change["correlationId"] is None


def test_at_the_address_of_a_thing_no_id_is_needed(desk: Desk) -> None:
    peer = desk.connect(path="/agents/conformance-b")
    assert peer.one("readProperty", thingID="", name="level")["thingID"] == ID_B
    assert desk.connect().one("readProperty", thingID="", name="level")["status"] == "400"


def test_who_takes_nothing_is_cut(peer: Peer) -> None:
    for _ in range(MOST_WAITING + 1):
        peer.connection.send("event", ID, None, {})
    assert peer.received() == [Disconnect()]


def test_nothing_is_written_after_a_close(peer: Peer) -> None:
    wire = WebSocketCodec(peer.connection)
    assert wire.written(SendText("x")) == b"\x81\x01x"
    assert wire.written(SendClose(1000)) == b"\x88\x02\x03\xe8"
    assert wire.written(SendText("x")) == b""
    assert wire.written(SendClose(1000)) == b""


# --- HTTP


def asked(desk: Desk, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    request = HttpRequest(method=method, path=path, headers={"content-type": "application/json"}, body=data)
    reply = ScriptedPages(desk.server).answer(request, "ws://here")
    return reply.status, json.loads(reply.body) if reply.body else None


A = "/agents/conformance"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "answer"),
    [
        ("GET", f"{A}/properties/level", None, 200, 20),
        ("GET", f"{A}/properties", None, 200, None),
        ("PUT", f"{A}/properties/level", 3, 204, None),
        ("PUT", f"{A}/properties", {"level": 3, "label": "x"}, 204, None),
        ("PUT", f"{A}/properties", [], 400, None),
        ("PUT", f"{A}/properties/level", 300, 400, None),
        ("PUT", f"{A}/properties/version", "x", 405, None),
        ("GET", f"{A}/properties/secret", None, 405, None),
        ("GET", f"{A}/properties/nothing", None, 404, None),
        ("POST", f"{A}/properties/level", 1, 405, None),
        ("POST", f"{A}/actions/add", {"a": 1, "b": 2}, 200, 3),
        ("POST", f"{A}/actions/add", {"a": 1}, 400, None),
        ("POST", f"{A}/actions/raise_alarm", None, 204, None),
        ("POST", f"{A}/actions/fail", None, 409, None),
        ("GET", f"{A}/actions/add", None, 405, None),
        ("GET", "/agents/nobody", None, 404, None),
        ("GET", "/nowhere", None, 404, None),
    ],
)
def test_http_answers(desk: Desk, method: str, path: str, body: Any, status: int, answer: Any) -> None:
    found, told = asked(desk, method, path, body)
    assert found == status
    if answer is not None:
        assert told == answer
    if status >= 400:
        assert told["status"] == status
        assert {"type", "title", "detail", "instance"} <= set(told)


def test_descriptions_are_served_in_three_places(desk: Desk) -> None:
    own = asked(desk, "GET", A)[1]
    assert own == described("ws://here")
    assert asked(desk, "GET", "/.well-known/wot")[1] == own
    assert asked(desk, "GET", "/")[1] == [own, described_b("ws://here")]
