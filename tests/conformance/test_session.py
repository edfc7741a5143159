"""Conversations: which message is taken as the answer to which request."""

from __future__ import annotations

import json
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from lmos_actors.conformance.session import (
    AS_IN_EXAMPLES,
    AS_KOTLIN,
    AS_WRITTEN,
    Dialect,
    NoAnswer,
    Session,
)
from lmos_actors.conformance.wire import ConnectionEnd, ConnectionGone

if TYPE_CHECKING:
    from lmos_actors.conformance.wire import Socket

THING = "urn:thing"


class Line:
    """A socket whose other side has said everything already."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.coming: deque[str | bytes | ConnectionEnd] = deque()

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def next_message(self, within: float) -> str | bytes | None:
        if not self.coming:
            await trio.sleep(within)
            return None
        message = self.coming.popleft()
        if isinstance(message, ConnectionEnd):
            raise ConnectionGone(message)
        return message

    def says(self, kind: str, correlation: str | None = None, **members: Any) -> None:
        head = {"messageType": kind, "thingID": THING, "messageID": "m", "correlationID": correlation}
        self.coming.append(json.dumps(head | members))


@pytest.fixture
def line() -> Line:
    return Line()


def session_on(line: Line, dialect: Dialect = AS_WRITTEN) -> Session:
    return Session(cast("Socket", line), dialect, THING, Random(1), 2.0)


async def test_an_answer_is_the_one_that_correlates(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    one, two = await session.send("readProperty", name="a"), await session.send("readProperty", name="b")
    line.says("propertyReading", two.message_id, name="b", value=2)
    line.says("propertyReading", one.correlation, name="a", value=1)
    assert (await session.answer(one)).value == 1
    assert (await session.answer(two)).value == 2
    assert await session.drain() == []


async def test_with_one_open_request_any_answer_is_its_own(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    sent = await session.send("readProperty", name="a")
    line.says("event", "sub", event="rang", data=1)
    line.says("propertyReading", "something else", name="a", value=1)
    assert (await session.answer(sent)).value == 1
    event = await session.event("rang")
    assert event is not None
    assert event.data["data"] == 1


async def test_with_two_open_requests_none_is_guessed(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    one = await session.send("readProperty", name="a")
    await session.send("readProperty", name="b")
    line.says("propertyReading", None, name="a", value=1)
    with pytest.raises(NoAnswer, match="no answer to readProperty within 2 s"):
        await session.answer(one)
    assert trio.current_time() >= 2


async def test_what_came_before_is_no_answer(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    line.says("propertyReading", None, name="a", value=1)
    assert await session.drain() != []
    line.says("propertyReading", None, name="a", value=2)
    assert (await session.ask("readProperty", name="a")).value == 2


async def test_readings_of_an_observation_answer_no_read(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    observing = await session.send("observeProperty", name="a")
    line.says("propertyReading", observing.correlation, name="a", value=1)
    assert (await session.answer(observing)).value == 1
    sent = await session.send("readProperty", name="a")
    line.says("propertyReading", observing.correlation, name="a", value=2)
    line.says("propertyReading", sent.message_id, name="a", value=3)
    assert (await session.answer(sent)).value == 3
    told = await session.reading("a")
    assert told is not None
    assert told.value == 2


async def test_all_statuses_of_a_run_are_given(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    sent = await session.send("invokeAction", name="wait", input=1)
    for status in ("pending", "running", "completed", "completed"):
        line.says("actionStatus", sent.message_id, action="wait", status=status)
    assert [each.status for each in await session.answers(sent)] == ["pending", "in progress", "completed"]
    assert [each.status for each in await session.drain()] == ["completed"]
    assert line.sent[0]["action"] == "wait"
    assert line.sent[0]["input"] == 1


async def test_the_end_of_the_connection_is_reported(line: Line, autojump_clock: object) -> None:
    session = session_on(line)
    sent = await session.send("readProperty", name="a")
    line.coming.append(ConnectionEnd(1003, "no"))
    with pytest.raises(ConnectionGone, match="closed with 1003 'no'"):
        await session.answer(sent)
    line.coming.append(ConnectionEnd(None))
    assert await session.drain() == []


ROWS = (
    (AS_WRITTEN, {"thingID", "messageID", "correlationID", "messageType", "name"}, "subscribeEvent"),
    (AS_IN_EXAMPLES, {"thingId", "messageId", "correlationId", "messageType", "name"}, "subscribeEvent"),
    (AS_KOTLIN, {"thingId", "messageId", "correlationId", "messageType", "property"}, "subscribeevent"),
)


@pytest.mark.parametrize(
    ("dialect", "members", "subscribing"), ROWS, ids=["tables", "examples", "kotlin-wot"]
)
async def test_requests_are_spelt_as_asked_for(
    line: Line, dialect: Dialect, members: set[str], subscribing: str
) -> None:
    session = session_on(line, dialect)
    sent = await session.send("readProperty", name="level")
    assert line.sent[-1].keys() == members
    assert sent.correlation == sent.message_id
    await session.send("subscribeEvent", name="rang", correlation=None)
    assert line.sent[-1]["messageType"] == subscribing
    assert line.sent[-1]["event"] == "rang"
    assert not any(name.startswith("correlation") for name in line.sent[-1])
    await session.send("writeMultipleProperties", data={"a": 1}, thing="urn:other")
    assert line.sent[-1]["data"] == {"a": 1}
    assert "urn:other" in line.sent[-1].values()
