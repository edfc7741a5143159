"""Messages held against the tables of the text: what is found in each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmos_actors.conformance.session import ABSENT, faults, parse_message
from tests.protocol.lmos.test_times import NO_SUFFIXES, SUFFIXES
from tests.rows import each_row

THING = "urn:uuid:3f1d3a7a-4f97-4e6b-b45f-f3c2e1c84c77"
ONE, TWO = "c370da58-69ae-4e83-bb5a-ac6cfb2fed54", "5afb752f-8be0-4a3c-8108-1327a6009cbd"
HEAD = {"thingID": THING, "messageID": ONE, "correlationID": TWO}
TIME = "2025-01-20T19:00:00.52Z"
GOOD: dict[str, dict[str, Any]] = {
    "propertyReading": {"name": "level", "value": None, "timestamp": TIME},
    "propertyReadings": {"data": {"level": 3}, "timestamp": "2025-01-20T19:00:00+01:00[Europe/Berlin]"},
    "actionStatus": {"action": "echo", "status": "in progress", "output": None},
    "event": {"event": "rang", "data": {}, "timestamp": "2025-01-20T19:00:00Z[!u-ca=iso8601]"},
    "error": {"type": "/e", "title": "t", "status": "404", "detail": "", "instance": "urn:x:1"},
    "acknowledgement": {"message": "subscribeEvent"},
}


def found(kind: str, **changes: Any) -> set[tuple[str, str]]:
    data = {"messageType": kind, **HEAD, **GOOD[kind], **changes}
    text = json.dumps({key: value for key, value in data.items() if value is not ABSENT})
    return {(fault.key, fault.member) for fault in faults(parse_message(text, 0.0, 0))}


@pytest.mark.parametrize("kind", GOOD)
def test_nothing_is_found_in_what_is_as_written(kind: str) -> None:
    assert found(kind) == set()


@pytest.mark.parametrize("kind", GOOD)
def test_a_missing_member_is_found(kind: str) -> None:
    mandatory = [*GOOD[kind], "thingID", "messageID"]
    for member in mandatory:
        expected = set() if member == "output" else {("member-missing", member)}
        assert found(kind, **{member: ABSENT}) == expected, member
    assert found("event", correlationID=ABSENT) == {("member-missing", "correlationID")}


@each_row("suffix", SUFFIXES)
def test_nothing_is_found_in_a_suffix_of_rfc_9557(suffix: str) -> None:
    assert found("event", timestamp=TIME + suffix) == set()
    assert found("event", timestamp=TIME + suffix.replace("[", "[!", 1)) == set()


@each_row("suffix", NO_SUFFIXES)
def test_another_suffix_is_found(suffix: str) -> None:
    assert found("event", timestamp=TIME + suffix) == {("time-format", "timestamp")}


ROWS: tuple[tuple[str, dict[str, Any], set[tuple[str, str]]], ...] = (
    ("propertyReading", {"thingID": "bare"}, {("thing-no-uri", "thingID")}),
    ("propertyReading", {"messageID": "m1"}, {("id-no-uuid", "messageID")}),
    ("propertyReading", {"messageID": TWO.replace("4a3c", "1a3c")}, {("id-no-uuid", "messageID")}),
    ("propertyReading", {"correlationID": "c"}, {("id-no-uuid", "correlationID")}),
    ("propertyReading", {"messageID": 7}, {("member-type", "messageID")}),
    ("propertyReading", {"timestamp": 1737399600.5}, {("time-number", "timestamp")}),
    ("propertyReading", {"timestamp": "2025-01-20 19:00:00Z"}, {("time-format", "timestamp")}),
    ("propertyReading", {"timestamp": "2025-01-20T19:00:00"}, {("time-format", "timestamp")}),
    ("propertyReading", {"timestamp": "2025-13-20T19:00:00Z"}, {("time-format", "timestamp")}),
    ("propertyReading", {"timestamp": None}, {("member-missing", "timestamp")}),
    ("propertyReading", {"timestamp": True}, {("time-format", "timestamp")}),
    ("propertyReading", {"name": ABSENT, "property": "level"}, {("names-spelled-property", "name")}),
    ("propertyReading", {"value": ABSENT, "data": 3}, {("value-spelled-data", "value")}),
    ("propertyReading", {"thingID": ABSENT, "thingId": THING}, {("ids-spelled-Id", "thingID")}),
    ("actionStatus", {"correlationID": ABSENT, "correlationId": TWO}, {("ids-spelled-Id", "correlationID")}),
    ("actionStatus", {"status": "cancelled"}, {("status-word", "status")}),
    ("actionStatus", {"status": 3}, {("member-type", "status")}),
    ("actionStatus", {"name": "x"}, set()),
    ("propertyReadings", {"data": [1]}, {("member-type", "data")}),
    ("error", {"status": 404}, {("error-status", "status")}),
    ("error", {"status": "bad"}, {("error-status", "status")}),
    ("error", {"type": ""}, {("error-uri", "type")}),
    ("error", {"instance": "not one"}, {("error-uri", "instance")}),
)


@pytest.mark.parametrize(("kind", "changes", "expected"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_what_is_not_as_written_is_found(
    kind: str, changes: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    assert found(kind, **changes) == expected


def test_a_member_that_is_there_twice_is_found() -> None:
    text = json.dumps({"messageType": "acknowledgement", "message": "x", **HEAD})
    twice = text[:-1] + ', "message": "y"}'
    assert [(fault.key, fault.member) for fault in faults(parse_message(twice, 0.0, 0))] == [
        ("member-twice", "message")
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"a": NaN}', "[" * 100_000, b"\x00"])
def test_invalid_messages_are_reported(text: str | bytes) -> None:
    received = parse_message(text, 0.0, 0)
    assert received.trouble
    assert received.kind == ""
    assert [fault.key for fault in faults(received)] == ["member-type"]
    assert str(received)


def test_both_spellings_are_read() -> None:
    received = parse_message(
        json.dumps({"messageType": "propertyReading", "thingId": THING, "messageId": ONE, "property": "p",
                    "correlationId": None, "data": 3}), 1.0, 2)  # fmt: skip
    assert (received.thing, received.message_id, received.name, received.value) == (THING, ONE, "p", 3)
    assert received.correlation is None
    assert parse_message('{"messageType": "event", "data": 3}', 0.0, 0).value == 3
    assert parse_message('{"messageType": "event"}', 0.0, 0).value is ABSENT


@pytest.mark.parametrize(
    ("written", "read"),
    [("Running", "in progress"), ("in_progress", "in progress"), ("CANCELED", "cancelled"), (404, "404"),
     (True, None), ("odd", "odd")],
)  # fmt: skip
def test_statuses_are_read_widely(written: Any, read: str | None) -> None:
    received = parse_message(json.dumps({"messageType": "actionStatus", "status": written}), 0.0, 0)
    assert received.status == read
    assert received.is_final == (read not in ("in progress", "pending"))
