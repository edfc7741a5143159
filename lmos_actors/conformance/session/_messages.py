"""Messages of things, parsed in any spelling, and compared member by member with the tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from lmos_actors.conformance.wire import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

UUID4: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")
URI_REFERENCE: Final = re.compile(r"[^\s<>\"{}|\\^`]+")
_OFFSET: Final = r"[+-]([01]\d|2[0-3]):[0-5]\d"
_PART: Final = r"(?!\.{1,2}[/\]])[A-Za-z._][\w.+-]*"
DATE_TIME: Final = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?"
    rf"([Zz]|{_OFFSET})(\[!?({_PART}(/{_PART})*|{_OFFSET})\])?"
    r"(\[!?[a-z_][a-z0-9_-]*=[A-Za-z0-9]+(-[A-Za-z0-9]+)*\])*",
    re.ASCII,
)
STATUS: Final = re.compile(r"[1-5][0-9][0-9]")

STATUSES: Final = ("pending", "in progress", "completed", "failed")
"""The words for the status of a run; the text's prose has all of them, its table all but the second."""

MANDATORY: Final[dict[str, tuple[str, ...]]] = {
    "propertyReading": ("name", "value", "timestamp"),
    "propertyReadings": ("data", "timestamp"),
    "actionStatus": ("action", "status"),
    "event": ("correlationID", "event", "data", "timestamp"),
    "error": ("type", "title", "status", "detail", "instance"),
    "acknowledgement": ("message",),
}
"""Mandatory members of things' messages beside `thingID`, `messageID` and `messageType`."""

OTHER: Final = {
    "thingID": "thingId",
    "messageID": "messageId",
    "correlationID": "correlationId",
    "name": "property",
    "value": "data",
}
_NULLABLE: Final = ("value", "data", "output", "progress")
_TEXTS: Final = ("thingID", "messageID", "messageType", "correlationID", "name", "action", "event", "message",
                 "type", "title", "detail", "instance")  # fmt: skip
_SPELLINGS: Final = {"name": "names-spelled-property", "value": "value-spelled-data"}


@attrs.frozen
class Fault:
    """A fault of a message: the key of its deviation, the member's name in the tables, and a description."""

    key: str
    member: str
    what: str


class Absent:
    """The value of a member that is absent."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = Absent()


@attrs.frozen(eq=False)
class ReceivedMessage:
    """A message that was received.

    `data`: the JSON object, or an empty one if the message is none; `trouble`: what it is then, in words.
    `at`: the time of receipt, in seconds on trio's clock. `number`: its number in the session, from 0.
    """

    text: str
    data: dict[str, Any]
    trouble: str
    twice: tuple[str, ...]
    at: float
    number: int

    def get(self, member: str) -> Any:
        """Return a member by its name in the tables, in either spelling, or ABSENT if it is missing."""
        if member in self.data:
            return self.data[member]
        other = OTHER.get(member)
        if member == "name" and self.kind not in ("propertyReading", ""):
            other = None
        return self.data.get(other, ABSENT) if other is not None else ABSENT

    @property
    def kind(self) -> str:
        """The `messageType` of the message, or "" if it has none."""
        found = self.data.get("messageType")
        return found if isinstance(found, str) else ""

    @property
    def thing(self) -> Any:
        """The `thingID` of the message."""
        return self.get("thingID")

    @property
    def message_id(self) -> Any:
        """The `messageID` of the message."""
        return self.get("messageID")

    @property
    def correlation(self) -> Any:
        """The `correlationID` of the message, or None if it is null or absent."""
        found = self.get("correlationID")
        return None if found is ABSENT else found

    @property
    def name(self) -> Any:
        """The name of the message's property, action or event, or None if it names none."""
        for member in ("name", "property", "action", "event"):
            if isinstance(self.data.get(member), str):
                return self.data[member]
        return None

    @property
    def value(self) -> Any:
        """The value of a reading, or ABSENT if there is none."""
        return self.get("value")

    @property
    def status(self) -> str | None:
        """The status as text in lower case, with spellings unified, such as `in progress` or `cancelled`."""
        found = self.data.get("status")
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        return _WORDS.get(found.lower(), found.lower()) if isinstance(found, str) else None

    @property
    def is_final(self) -> bool:
        """Whether no further answer follows this one."""
        return self.kind != "actionStatus" or self.status not in ("pending", "in progress")

    def __str__(self) -> str:
        if self.trouble:
            return f"{self.trouble}: {self.text[:200]}"
        if self.kind == "error":
            return f"error {self.data.get('status')} {self.data.get('title')!r}: {self.data.get('detail')!r}"
        shown = {key: value for key, value in self.data.items() if key not in _ENVELOPE}
        return f"{self.kind or 'a message without messageType'} {json.dumps(shown, ensure_ascii=False)[:300]}"


_WORDS: Final = {
    "inprogress": "in progress",
    "in_progress": "in progress",
    "in-progress": "in progress",
    "running": "in progress",
    "canceled": "cancelled",
}
_IDS: Final = ("thingID", "thingId", "messageID", "messageId", "correlationID", "correlationId")
_ENVELOPE: Final = ("messageType", *_IDS, "timestamp")


def parse_message(text: str | bytes, at: float, number: int) -> ReceivedMessage:
    """Parse the message in a text or in bytes, whatever they contain."""
    twice: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.extend(sorted(name for name, n in Counter(name for name, _ in pairs).items() if n > 1))
        return found

    if isinstance(text, bytes):
        return ReceivedMessage(text[:1000].hex(), {}, "a binary message", (), at, number)
    try:
        data: Any = read_json(text, keep)
    except ValueError as error:
        return ReceivedMessage(text, {}, f"a message that is not JSON ({error})", (), at, number)
    if not isinstance(data, dict):
        return ReceivedMessage(text, {}, "a message that is not a JSON object", (), at, number)
    return ReceivedMessage(text, cast("dict[str, Any]", data), "", tuple(twice), at, number)


def faults(received: ReceivedMessage) -> tuple[Fault, ...]:
    """Return all faults of a thing's message: its departures from the tables."""
    if received.trouble:
        return (Fault("member-type", "", received.trouble),)
    return tuple(_faults(received))


def _faults(received: ReceivedMessage) -> Iterator[Fault]:
    for member in received.twice:
        yield Fault("member-twice", member, f"{member} is there twice")
    wanted = ("thingID", "messageID", "messageType", *MANDATORY.get(received.kind, ()))
    for member in wanted:
        value = received.get(member)
        if value is ABSENT or (value is None and member not in _NULLABLE):
            yield Fault("member-missing", member, f"{received.kind or 'a message'} has no {member}")
        elif member not in received.data:
            key = _SPELLINGS.get(member, "ids-spelled-Id")
            yield Fault(key, member, f"{OTHER[member]} stands for {member}")
    if (
        "correlationID" not in wanted
        and "correlationId" in received.data
        and "correlationID" not in received.data
    ):
        yield Fault("ids-spelled-Id", "correlationID", "correlationId stands for correlationID")
    for member in _TEXTS:
        value = received.get(member)
        if value is not ABSENT and value is not None and not isinstance(value, str):
            yield Fault("member-type", member, f"{member} is {_shown(value)}, not a text")
    yield from _formats(received)


def _formats(received: ReceivedMessage) -> Iterator[Fault]:
    for member in ("messageID", "correlationID"):
        value = received.get(member)
        if isinstance(value, str) and not UUID4.fullmatch(value):
            yield Fault("id-no-uuid", member, f"{member} is {_shown(value)}")
    if isinstance(received.thing, str) and not URI.fullmatch(received.thing):
        yield Fault("thing-no-uri", "thingID", f"thingID is {_shown(received.thing)}")
    yield from _time(received.get("timestamp"))
    if received.kind == "propertyReadings" and not isinstance(received.get("data"), (dict, Absent)):
        yield Fault("member-type", "data", f"data is {_shown(received.get('data'))}, not an object")
    status = received.get("status")
    if received.kind == "actionStatus" and status is not ABSENT:
        if not isinstance(status, str):
            yield Fault("member-type", "status", f"status is {_shown(status)}, not a text")
        elif status not in STATUSES:
            yield Fault("status-word", "status", f"status is {_shown(status)}")
    if received.kind == "error":
        yield from _error(received)


def _time(value: Any) -> Iterator[Fault]:
    if value is ABSENT or value is None:
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield Fault("time-number", "timestamp", f"timestamp is the number {value!r}")
    elif not isinstance(value, str) or not DATE_TIME.fullmatch(value):
        yield Fault("time-format", "timestamp", f"timestamp is {_shown(value)}")


def _error(received: ReceivedMessage) -> Iterator[Fault]:
    value = received.get("status")
    if value is not ABSENT and value is not None and not (isinstance(value, str) and STATUS.fullmatch(value)):
        yield Fault("error-status", "status", f"status is {_shown(value)}")
    for member in ("type", "instance"):
        found = received.get(member)
        if isinstance(found, str) and not URI_REFERENCE.fullmatch(found):
            yield Fault("error-uri", member, f"{member} is {_shown(found)}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:100]
