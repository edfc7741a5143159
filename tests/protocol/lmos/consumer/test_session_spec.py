"""A consumer's session against a server that answers with the specification's own examples, as they stand."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lmos_actors.protocol import lmos
from tests.protocol.lmos.thing_by_hand import told
from tests.source import ROOT

TEXT = (ROOT / "tests/wire/lmos/spec-examples.md").read_text(encoding="utf-8")
BLOCKS: list[dict[str, Any]] = [
    json.loads(block) for block in re.findall("```json\n(.*?)```", TEXT, re.DOTALL)
]
EXAMPLES = {block["messageType"]: block for block in BLOCKS}
THING = "urn:uuid:3f1d3a7a-4f97-2e6b-c45f-f3c2e1c84c77"
WEATHER = "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77"
CONFIGURATION = {"modelName": "gpt-4o", "temperature": 0.7, "maxTokens": 1000}
FEEDBACK = EXAMPLES["event"].get("data")
SUNNY = EXAMPLES["actionStatus"]["output"]

CASES: dict[str, tuple[Any, str, list[tuple[Any, ...]]]] = {
    "read": (
        lambda s: s.read(THING, "modelConfiguration"),
        "propertyReading",
        [("RequestAnswered", CONFIGURATION)],
    ),
    "write": (
        lambda s: s.write(THING, "modelConfiguration", CONFIGURATION),
        "propertyReadings",  # by its prose, and without correlation
        [("RequestAnswered", CONFIGURATION)],
    ),
    "write_many": (
        lambda s: s.write_many(THING, {"modelConfiguration": CONFIGURATION, "otherProperty": 60}),
        "propertyReadings",
        [("RequestAnswered", {"modelConfiguration": CONFIGURATION, "otherProperty": 60})],
    ),
    "observe": (
        lambda s: s.observe(THING, "modelConfiguration"),
        "propertyReading",
        [("FeedEstablished",), ("PropertyRead", CONFIGURATION)],
    ),
    "invoke": (lambda s: s.invoke(WEATHER, "getWeather"), "actionStatus", [("RequestAnswered", SUNNY)]),
    "subscribe": (
        lambda s: s.subscribe(THING, "userFeedbackReceived"),
        "event",
        [("EventOccurred", "userFeedbackReceived", FEEDBACK)],
    ),
    "subscribe_all": (
        lambda s: s.subscribe_all(THING),
        "event",
        [("EventOccurred", "userFeedbackReceived", FEEDBACK)],
    ),
    "failure": (lambda s: s.invoke(WEATHER, "getWeather"), "error", [("RequestFailed", "ActionFailed")]),
}


def answered(kind: str, message_id: str) -> bytes:
    """An example as the answer to this request: only the correlation that it has, if any, is changed."""
    example = dict(EXAMPLES[kind])
    for member in ("correlationID", "correlationId"):
        if member in example:
            example[member] = message_id
    return json.dumps(example).encode()


@pytest.mark.parametrize("case", CASES)
def test_an_example_answers_what_it_is_the_answer_to(case: str) -> None:
    ask, kind, wanted = CASES[case]
    session = lmos.ConsumerSession(selected=True, new_id=lambda: "b45e8f90-8824-4c23-bc37-c6c4ddad4b2c")
    asked = ask(session)
    session.frames()
    assert told(session.receive(answered(kind, asked.message_id))) == wanted
    assert session.statistics().strays == 0


@pytest.mark.parametrize("case", CASES)
def test_an_example_with_its_own_correlation_answers_nothing(case: str) -> None:
    ask, kind, _ = CASES[case]
    session = lmos.ConsumerSession(selected=True, new_id=lambda: "mine")
    ask(session)
    example = json.dumps(EXAMPLES[kind])
    if case in ("subscribe", "subscribe_all"):  # events are known by name as well
        assert told(session.receive(example)) == [("EventOccurred", "userFeedbackReceived", FEEDBACK)]
    elif "orrelation" in example:
        assert told(session.receive(example)) == [("StrayMessage",)]


def test_answers_without_correlation_are_not_guessed_where_two_would_fit() -> None:
    ids = iter("abcdef")
    session = lmos.ConsumerSession(selected=True, new_id=lambda: next(ids))
    for _ in range(2):
        session.write_many(THING, {"otherProperty": 60})
    assert told(session.receive(json.dumps(EXAMPLES["propertyReadings"]))) == [("StrayMessage",)]


def test_the_session_answers_in_the_examples_spelling() -> None:
    ids = iter("abcdef")
    session = lmos.ConsumerSession(selected=True, new_id=lambda: next(ids))
    session.invoke(WEATHER, "getWeather")
    session.receive(answered("actionStatus", "a"))
    session.read(THING, "modelConfiguration")
    first, second = (json.loads(frame) for frame in session.frames())
    assert "thingID" in first
    assert (second["thingId"], second["name"]) == (THING, "modelConfiguration")
