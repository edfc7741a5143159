"""What is readable, but not by the letter of the specification, has a name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lmos_actors.protocol import lmos

UUID = "b45e8f90-8824-4c23-bc37-c6c4ddad4b2c"
AT = datetime(2025, 1, 20, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ERROR = {"type": "about:blank", "title": "t", "status": "404", "detail": "d", "instance": "urn:i"}


def made(kind: type[Any], **members: Any) -> Any:
    return kind(**{"thing_id": "urn:a", "message_id": UUID} | members)


def asked(**members: Any) -> Any:
    return made(lmos.QueryAction, action="a", **members)


@pytest.mark.parametrize(
    ("message", "odd"),
    [
        (asked(), ""),
        (asked(correlation_id=UUID.upper(), traceparent=TRACE), ""),
        (asked(thing_id="https://example.com/agents/a?x=%20#y"), ""),
        (asked(thing_id="chatagent"), "$.thingID: not a URI"),
        (asked(thing_id="urn:a b"), "$.thingID: not a URI"),
        (asked(thing_id="urn:%zz"), "$.thingID: not a URI"),
        (asked(thing_id="urn:ärger"), "$.thingID: not a URI"),
        (asked(thing_id="urn:" + "a" * 100_000), "$.thingID: not a URI"),
        (asked(message_id="m"), "$.messageID: not a UUID of version 4"),
        (asked(message_id=UUID + "\n"), "$.messageID: not a UUID of version 4"),
        (asked(message_id=UUID.replace("-4c23", "-1c23")), "$.messageID: not a UUID of version 4"),
        (asked(message_id=UUID.replace("-bc37", "-cc37")), "$.messageID: not a UUID of version 4"),
        (asked(correlation_id="c"), "$.correlationID: not a UUID of version 4"),
        (asked(traceparent="00-" + "0" * 32 + TRACE[35:]), "$.traceparent: not a trace context"),
        (asked(traceparent="ff" + TRACE[2:]), "$.traceparent: not a trace context"),
        (asked(traceparent="urn:a"), "$.traceparent: not a trace context"),
        (made(lmos.PropertyReading, name="p", value=1, timestamp=AT), ""),
        (made(lmos.PropertyReading, name="p", value=1), "$.timestamp: missing"),
        (made(lmos.PropertyReadings, data={}), "$.timestamp: missing"),
        (made(lmos.Event, event="e", data=1, correlation_id=UUID), "$.timestamp: missing"),
        (made(lmos.Event, event="e", data=1, timestamp=AT), "$.correlationID: missing"),
        (made(lmos.ActionStatus, action="a", status="in progress"), ""),
        (made(lmos.ActionStatus, action="a", status="running"), "$.status: not one of those listed"),
        (made(lmos.Error, **ERROR), ""),
        (made(lmos.Error, **ERROR | {"status": "9"}), "$.status: not a status of HTTP"),
        (made(lmos.Error, **ERROR | {"status": "404\n"}), "$.status: not a status of HTTP"),
        (made(lmos.Error, **ERROR | {"type": ""}), "$.type: empty"),
        (made(lmos.Error, **ERROR | {"instance": ""}), "$.instance: empty"),
    ],
    ids=range(28),
)
def test_what_is_not_by_the_letter_is_named(message: Any, odd: str) -> None:
    assert "; ".join(lmos.irregularities(message)) == odd
    strictly = lmos.Codec(lmos.Dialect.of_consumer(True), lmos.Limits(strict=True))
    found = strictly.decode(strictly.encode(message))
    assert isinstance(found, lmos.Unreadable) == bool(odd)
    if isinstance(found, lmos.Unreadable):
        assert (found.problem.detail, found.problem.path) == (odd, odd.partition(":")[0])
