"""How a peer spells and behaves: the tables of docs/reference/lmos-dialects.md are the test."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lmos_actors.protocol import lmos
from tests.source import ROOT

PAGE = (ROOT / "docs/reference/lmos-dialects.md").read_text(encoding="utf-8")


def table(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table below a heading, without the marks of code."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    return [tuple(re.sub("^`|`$", "", cell.strip()) for cell in row) for row in rows[1:]]


THING, CONSUMER = table("A server's side"), table("A client's side")


def written(codec: lmos.Codec) -> tuple[str, str, str]:
    """How the codec spells what it sends, found out from what it sends."""
    reading = lmos.PropertyReading(thing_id="urn:a", message_id="m", name="p", value=1)
    raw = json.loads(codec.encode(reading))
    ids = "ID" if "thingID" in raw else "Id"
    names = "name" if "name" in raw else "property"
    assert ("messageID" in raw, "messageId" in raw) == (ids == "ID", ids == "Id")
    assert ("value" in raw, "data" in raw) == (names == "name", names == "property")
    habits = "kotlin-wot" if {"correlationID", "correlationId"} & set(raw) else "spec"
    assert habits == codec.dialect.habits
    return ids, names, habits


def test_the_tables_are_there() -> None:
    assert (len(THING), len(CONSUMER)) == (22, 6)


@pytest.mark.parametrize("row", THING, ids=lambda row: "-".join(row[:1] + row[2:]))
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_thing_answers_as_its_peer_speaks(row: tuple[str, ...], as_bytes: bool) -> None:
    offered, frame, *expected = row
    codec = lmos.Codec(lmos.Dialect.of_thing({"yes": True, "no": False}[offered]))
    codec.decode(frame.encode() if as_bytes else frame)
    assert list(written(codec)) == expected


@pytest.mark.parametrize("row", CONSUMER, ids="-".join)
def test_a_consumer_speaks_first(row: tuple[str, ...]) -> None:
    habits, selected, *expected = row
    wanted: Any = habits
    codec = lmos.Codec(lmos.Dialect.of_consumer({"yes": True, "no": False}[selected], wanted))
    assert list(written(codec)) == expected


FIRST = '{"messageType":"readProperty","thingID":"urn:a","messageID":"m","name":"p"}'
INVOKE = '{"messageType":"invokeAction","thingID":"urn:a","messageID":"m","action":"a"}'
OTHER_IDS = '{"messageType":"invokeAction","thingId":"urn:a","messageId":"m","action":"a"}'
PROPERTY = '{"messageType":"readProperty","thingID":"urn:a","messageID":"m","property":"p"}'
LOWER = '{"messageType":"subscribeevent","thingID":"urn:a","messageID":"m","event":"e"}'
UPPER = '{"messageType":"subscribeEvent","thingID":"urn:a","messageID":"m","event":"e"}'
STRANGE = '{"messageType":"invokeAction","thingID":"urn:a","messageID":"m","action":"a","property":"p"}'
READING = '{"messageType":"propertyReading","thingId":"urn:a","messageId":"m","property":"p","data":1}'
NO_IDS = '{"messageType":"invokeAction","action":"a"}'


@pytest.mark.parametrize("habits", ["kotlin", "", "Spec"])
def test_other_habits_are_refused(habits: Any) -> None:
    with pytest.raises(ValueError, match="habits must be 'auto', 'spec' or 'kotlin-wot', not '"):
        lmos.ConsumerSession(selected=True, new_id=str, habits=habits)


@pytest.mark.parametrize("offered", [False, True])
@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([FIRST, OTHER_IDS], ("ID", "name", "spec")),
        ([FIRST, PROPERTY], ("ID", "name", "kotlin-wot")),
        ([FIRST, PROPERTY, FIRST], ("ID", "name", "kotlin-wot")),
        ([INVOKE, FIRST, PROPERTY], ("ID", "name", "kotlin-wot")),
        ([INVOKE, INVOKE, PROPERTY, FIRST], ("ID", "property", "kotlin-wot")),
        ([FIRST, LOWER], ("ID", "name", "kotlin-wot")),
        ([FIRST, LOWER, UPPER], ("ID", "name", "kotlin-wot")),
        ([FIRST, UPPER], ("ID", "name", "spec")),
        ([FIRST, STRANGE], ("ID", "name", "spec")),
        (["{", NO_IDS, FIRST, OTHER_IDS], ("ID", "name", "spec")),
    ],
)
def test_what_has_been_shown_first_stays(frames: list[str], expected: tuple[str, ...], offered: bool) -> None:
    codec = lmos.Codec(lmos.Dialect.of_thing(offered))
    for frame in frames:
        codec.decode(frame)
    assert written(codec) == expected


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([FIRST, INVOKE, FIRST], ("Id", "name", "spec")),
        ([FIRST, PROPERTY], ("Id", "name", "kotlin-wot")),
        ([INVOKE, FIRST, PROPERTY], ("Id", "name", "kotlin-wot")),
        ([INVOKE, PROPERTY, FIRST], ("Id", "property", "kotlin-wot")),
        ([INVOKE, READING, FIRST, INVOKE], ("Id", "property", "spec")),
        ([INVOKE, STRANGE], ("Id", "name", "spec")),
        ([FIRST, UPPER, LOWER], ("Id", "name", "kotlin-wot")),
    ],
)
def test_the_same_for_who_writes_ids_otherwise(frames: list[str], expected: tuple[str, ...]) -> None:
    codec = lmos.Codec(lmos.Dialect.of_thing(True))
    for frame in frames:
        codec.decode(frame.replace("ID", "Id"))
    assert written(codec) == expected


def test_a_frame_without_ids_decides_nothing() -> None:
    codec = lmos.Codec(lmos.Dialect.of_thing(False))
    codec.decode(NO_IDS)
    assert written(codec) == ("ID", "name", "spec")
    codec.decode(OTHER_IDS)
    assert written(codec) == ("Id", "property", "kotlin-wot")


def test_a_reading_is_no_request() -> None:
    codec = lmos.Codec(lmos.Dialect.of_thing(True))
    codec.decode(READING)
    assert written(codec) == ("Id", "property", "spec")


@pytest.mark.parametrize(("habits", "selected"), [("auto", True), ("kotlin-wot", False)])
def test_what_a_server_sends_says_nothing_about_habits(habits: Any, selected: bool) -> None:
    codec = lmos.Codec(lmos.Dialect.of_consumer(selected, habits))
    before = codec.dialect.habits
    codec.decode(READING)
    assert written(codec) == ("Id", "property", before)
    codec.decode(PROPERTY)
    codec.decode(FIRST)
    assert written(codec) == ("Id", "property", before)


@pytest.mark.parametrize("ids", ["ID", "Id"])
def test_an_acknowledgement_repeats_the_word_of_the_peer(ids: str) -> None:
    codec = lmos.Codec(lmos.Dialect.of_thing(True))
    for text in (FIRST, UPPER, LOWER, LOWER, UPPER, LOWER):
        message: Any = codec.decode(text.replace("ID", ids))
        assert codec.dialect.literal(message) == json.loads(text)["messageType"]


@pytest.mark.parametrize(("habits", "word"), [("spec", "subscribeEvent"), ("kotlin-wot", "subscribeevent")])
def test_a_consumer_subscribes_in_the_word_of_its_peer(habits: Any, word: str) -> None:
    message = lmos.SubscribeEvent(thing_id="urn:a", message_id="m", event="e")
    codec = lmos.Codec(lmos.Dialect.of_consumer(True, habits))
    assert json.loads(codec.encode(message))["messageType"] == word
    assert codec.dialect.literal(message) == word


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("pending", "pending"),
        ("in progress", "in progress"),
        ("inProgress", "in progress"),
        ("in_progress", "in progress"),
        ("IN-PROGRESS", "in progress"),
        ("running", "in progress"),
        ("Completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("canceled", "cancelled"),
        ("half way", "half way"),
        ("", ""),
        ("running" * 1000, "running" * 1000),
    ],
    ids=range(13),
)
def test_the_words_for_a_status(text: str, word: str) -> None:
    assert lmos.canonical_status(text) == word
