"""Messages of the scripted server: requests, what goes out, JSON in both spellings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

import attrs

from lmos_actors.conformance.wire import read_json

from ._thing import (
    ABSENT,
    Json,
    ScriptedThing,
    invalid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

LMOS_ERRORS: Final = "https://eclipse.dev/lmos/protocol/v1/errors/"
MAX_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 64
IDS: Final = (("thingID", "thingId"), ("messageID", "messageId"), ("correlationID", "correlationId"))
ABOUT_PROPERTY: Final = ("readProperty", "writeProperty", "observeProperty", "unobserveProperty")
REQUESTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(ABOUT_PROPERTY, ("name",)),
    "writeProperty": ("name", "data"),
    "readAllProperties": (),
    "readMultipleProperties": ("properties",),
    "writeMultipleProperties": ("data",),
    "writeAllProperties": ("data",),
    "invokeAction": ("action",),
    "queryAction": ("action",),
    "cancelAction": ("action",),
    "subscribeEvent": ("event",),
    "unsubscribeEvent": ("event",),
    "subscribeAllEvents": (),
    "unsubscribeAllEvents": (),
    "streamCredit": ("items", "bytes"),
    "streamItem": ("stream",),
    "streamEnd": ("stream",),
}
"""Requests of consumers, and the mandatory members of each beside those of the envelope."""

TEXTS: Final = ("name", "action", "event")
NEVER_ANSWERED: Final = ("error", "acknowledgement")


@attrs.frozen
class SendText:
    """A text message to send."""

    text: str


@attrs.frozen
class SendFrame:
    """A frame to send unchanged."""

    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0


@attrs.frozen
class SendClose:
    """A Close frame to send; afterwards the peer must send its own."""

    code: int | None = 1000
    reason: str = ""


@attrs.frozen
class Disconnect:
    """The end of the stream, without a Close."""


Out: TypeAlias = SendText | SendFrame | SendClose | Disconnect


@attrs.define(eq=False)
class Request:
    """A message of a consumer in the spelling of the tables. `literal`: its type as the consumer wrote it."""

    kind: str
    literal: str
    message: Json
    thing: ScriptedThing
    id: str
    given: str | None
    size: int = 0

    @property
    def name(self) -> str:
        """The property, action or event of the request; "" if there is none."""
        return next((self.message[each] for each in TEXTS if each in REQUESTS[self.kind]), "")

    @property
    def payload(self) -> Any:
        """The `input` or `data` of the request, or `ABSENT`."""
        return self.message.get("input" if self.kind == "invokeAction" else "data", ABSENT)


def text_of(message: Json, spellings: tuple[str, str]) -> str | None:
    found = (message.get(each) for each in spellings)
    return next((each for each in found if isinstance(each, str) and each), None)


def check_members(kind: str, message: Json) -> None:
    """Raise Problem if a member of a request is missing or of a wrong type."""
    for member in REQUESTS[kind]:
        if member not in message or (member in TEXTS and not isinstance(message[member], str)):
            raise invalid(f"{member}: a text is needed", f"$.{member}")
    data = message.get("data")
    if kind in ("writeMultipleProperties", "writeAllProperties") and not is_object(data):
        raise invalid("data: an object is needed", "$.data")
    names = message.get("properties")
    if kind == "readMultipleProperties" and not is_texts(names):
        raise invalid("properties: an array of texts is needed", "$.properties")


def unified(message: Json, kind: str) -> Json:
    """Return a message in the spelling of the tables. Raises Problem if two spellings differ."""
    both = list(IDS)
    if kind in ABOUT_PROPERTY:
        both.append(("name", "property"))
    if kind.startswith("write"):
        both.append(("data", "value"))
    unified_message = dict(message)
    for one, other in both:
        if other in unified_message:
            found = unified_message.pop(other)
            if unified_message.setdefault(one, found) != found:
                raise invalid(f"{one} and {other} are not the same", f"$.{other}")
    return unified_message


def parsed(text: str) -> Json:
    """Return the JSON object in a text. Raises Problem."""
    try:
        found = read_json(text)
    except ValueError as error:
        raise invalid(f"not JSON: {error}"[:500]) from None
    if not is_object(found):
        raise invalid("a message is a JSON object")
    if is_deep(found):
        raise invalid(f"over {MAX_DEPTH} levels of nesting")
    return found


def dumped(message: Json) -> str:
    """Return a JSON object as text; what UTF-8 cannot encode is escaped."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":"))
    return text


def is_object(value: object) -> TypeGuard[Json]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_texts(value: object) -> TypeGuard[list[str]]:
    """Return whether a JSON value is an array of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


def is_deep(value: Json) -> bool:
    """Return whether a JSON value is nested more deeply than is accepted."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return True


def _inner(value: Json | list[Any]) -> list[Any]:
    values = list(value.values()) if isinstance(value, dict) else value
    return [each for each in values if isinstance(each, dict | list)]
