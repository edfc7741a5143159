"""Deviations from the letter of the specification in messages that are nevertheless readable."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ._messages import ActionStatus, Error, Event, PropertyReading, PropertyReadings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._messages import Message

_UUID4: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_TRACE: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_WORDS: Final = ("pending", "in progress", "completed", "failed")


def irregularities(message: Message) -> tuple[str, ...]:
    """Return the deviations of a message from the letter of the specification, each as `$.member: what`.

    Deviations are: ids that are not version-4 UUIDs, a `thingID` that is not a URI, a reading or event
    without a time, an event without a correlation, a status of a run that is not listed, a status of an error
    that HTTP does not have, an error with an empty type or instance, a `traceparent` that W3C Trace Context
    does not allow.
    """
    return tuple(_found(message))


def _found(message: Message) -> Iterator[str]:
    if not _is(_URI, message.thing_id):
        yield "$.thingID: not a URI"
    if not _is(_UUID4, message.message_id):
        yield "$.messageID: not a UUID of version 4"
    if message.correlation_id is not None and not _is(_UUID4, message.correlation_id):
        yield "$.correlationID: not a UUID of version 4"
    if message.traceparent is not None and not _is(_TRACE, message.traceparent):
        yield "$.traceparent: not a trace context"
    yield from _own(message)


def _own(message: Message) -> Iterator[str]:
    if isinstance(message, PropertyReading | PropertyReadings | Event) and message.timestamp is None:
        yield "$.timestamp: missing"
    if isinstance(message, Event) and message.correlation_id is None:
        yield "$.correlationID: missing"
    if isinstance(message, ActionStatus) and message.status not in _WORDS:
        yield "$.status: not one of those listed"
    if isinstance(message, Error):
        if not re.fullmatch("[1-5][0-9]{2}", message.status):
            yield "$.status: not a status of HTTP"
        for name in ("type", "instance"):
            if not getattr(message, name):
                yield f"$.{name}: empty"


def _is(pattern: re.Pattern[str], text: str) -> bool:
    return len(text) <= 2_000 and pattern.fullmatch(text) is not None
