"""The messages of LMOS and of our own extension, one struct each.

Only this module defines the names on the wire, in the spelling of the specification's tables (`thingID`,
`name`, `value`). `_dialects.py` converts other spellings before a message is made. An optional member that is
absent is None; an absent payload is UNSET, because null is a value.

Members marked *extension* are not in the specification; docs/reference/lmos-extensions.md defines them. A
peer without the extension ignores them, as it ignores every unknown member.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct

Id: TypeAlias = Annotated[str, Meta(min_length=1)]
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]

_WIRE = {
    "thing_id": "thingID",
    "message_id": "messageID",
    "correlation_id": "correlationID",
    "in_reply_to": "inReplyTo",
    "retry_in": "retryIn",
    "content_type": "contentType",
}


class Base(
    Struct,
    kw_only=True,
    frozen=True,
    gc=False,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="messageType",
    rename=_WIRE,
):
    """The members of every message. Its ids are a URI and UUIDs; any non-empty text is accepted."""

    thing_id: Id
    message_id: Id
    correlation_id: Id | None = None
    traceparent: str | None = None
    tracestate: str | None = None


# ---- properties


class ReadProperty(Base, tag="readProperty", frozen=True):
    """A request for the value of a property, answered by a propertyReading."""

    name: str


class ReadAllProperties(Base, tag="readAllProperties", frozen=True):
    """A request for the values of all properties (kotlin-wot), answered by propertyReadings."""


class ReadMultipleProperties(Base, tag="readMultipleProperties", frozen=True):
    """A request for the values of several properties (kotlin-wot), answered by propertyReadings."""

    properties: list[str]


class WriteProperty(Base, tag="writeProperty", frozen=True):
    """A request to set a property to `data`, of any JSON type, answered by a propertyReading."""

    name: str
    data: Any


class WriteMultipleProperties(Base, tag="writeMultipleProperties", frozen=True):
    """A request to set the properties that are the members of `data`, answered by propertyReadings."""

    data: dict[str, Any]


class WriteAllProperties(Base, tag="writeAllProperties", frozen=True):
    """A request to set all writable properties (kotlin-wot), answered by propertyReadings."""

    data: dict[str, Any]


class PropertyReading(Base, tag="propertyReading", frozen=True):
    """The value of a property, in answer to a request or for an observer."""

    name: str
    value: Any
    timestamp: Time | None = None


class PropertyReadings(Base, tag="propertyReadings", frozen=True):
    """The values of several properties, by name."""

    data: dict[str, Any]
    timestamp: Time | None = None


class ObserveProperty(Base, tag="observeProperty", frozen=True):
    """A request for the value of a property and for every later value. `ack`, `gaps`: extension."""

    name: str
    ack: bool = False
    gaps: bool = False


class UnobserveProperty(Base, tag="unobserveProperty", frozen=True):
    """A request to end an observation. `ack`: extension."""

    name: str
    ack: bool = False


# ---- actions


class Credit(Struct, kw_only=True, frozen=True, gc=False):
    """Room for items of a stream: their number, and the bytes of the messages that carry them. Extension."""

    items: Count
    bytes: Count


class StreamOffer(Struct, kw_only=True, frozen=True, gc=False, rename=_WIRE, omit_defaults=True):
    """A stream that an invocation opens: its number on this connection, and its media type. Extension."""

    stream: Count
    content_type: str = "application/json"


class InvokeAction(Base, tag="invokeAction", frozen=True):
    """A request for a run of an action.

    Extension: `remaining` is the number of seconds until the caller gives up. `attempt` is the number of the
    attempt under one `messageID`, from 1. `credit` is the room for items of the answer. `streams` has the
    input streams by parameter. With `binary`, items of bytes may arrive in binary frames. `tell` is the
    number of a one-way message, which has no answer but an error. `key` names the request, so that its answer
    is kept.
    """

    action: str
    input: Any = UNSET
    remaining: float | None = None
    attempt: Count | None = None
    credit: Credit | None = None
    streams: dict[str, StreamOffer] | None = None
    binary: bool = False
    tell: Count | None = None
    key: str | None = None


class QueryAction(Base, tag="queryAction", frozen=True):
    """A request for the latest status of a run: the run named by the correlation, or else the newest one.

    Extension: with `asked` it asks what the run, or another request, waits for. `asked` has the ids of the
    requests that were queried in turn on the way here; the last is the request that this query is about.
    """

    action: str
    asked: list[str] | None = None


class CancelAction(Base, tag="cancelAction", frozen=True):
    """A request to end a run: the run named by the correlation, or else the newest unfinished one."""

    action: str
    reason: str | None = None


class ActionStatus(Base, tag="actionStatus", frozen=True):
    """The status of a run: `pending`, `in progress`, `completed`, `failed`; other statuses are passed on.

    Extension: `progress` is the progress of the run. `in_reply_to` names the query or cancel that this
    answers. `cancelled` with `reason` marks a run that was cancelled. In the answer to a query with `asked`,
    `waits` is what the run waits for; in any other status it is the question to a person that the run waits
    for.
    """

    action: str
    status: str
    output: Any = UNSET
    progress: Any = UNSET
    in_reply_to: str | None = None
    cancelled: bool = False
    reason: str | None = None
    waits: dict[str, Any] | None = None


# ---- events


class SubscribeEvent(Base, tag="subscribeEvent", frozen=True):
    """A request for every later event with one name. `ack`, `gaps`: extension."""

    event: str
    ack: bool = False
    gaps: bool = False


class UnsubscribeEvent(Base, tag="unsubscribeEvent", frozen=True):
    """A request to end a subscription. `ack`: extension."""

    event: str
    ack: bool = False


class SubscribeAllEvents(Base, tag="subscribeAllEvents", frozen=True):
    """A request for every later event of the thing. `ack`, `gaps`: extension."""

    ack: bool = False
    gaps: bool = False


class UnsubscribeAllEvents(Base, tag="unsubscribeAllEvents", frozen=True):
    """A request to end the subscription to all events of the thing. `ack`: extension."""

    ack: bool = False


class Event(Base, tag="event", frozen=True):
    """An event, sent with the correlation of its subscription."""

    event: str
    data: Any
    timestamp: Time | None = None


# ---- answers of every kind


class Error(Base, tag="error", frozen=True):
    """The failure of a request. The first five members are the specification's, all text.

    Extension: `path` leads to the wrong value in the input; `started` is whether a run had begun; `retry_in`
    is in seconds; `in_reply_to` names the query or cancel that this answers; `about` has further data of the
    exception.
    """

    type: str
    title: str
    status: str
    detail: str
    instance: str
    path: str | None = None
    started: bool | None = None
    retry_in: float | None = None
    about: dict[str, Any] | None = None
    in_reply_to: str | None = None


class Acknowledgement(Base, tag="acknowledgement", frozen=True):
    """A confirmation that a request was accepted; `message` is the `messageType` of the request.

    Peers with kotlin-wot's habits always get it. Other peers get it if they asked with `ack`, or if the thing
    always sends it.
    """

    message: str


# ---- our own extension


class Gap(Base, tag="gap", frozen=True):
    """A report that values of a subscription or observation are missing here. Extension."""

    reason: str
    missed: Count | None = None


class StreamOpen(Base, tag="streamOpen", frozen=True):
    """The number of the stream that will carry the items of an answer. Extension."""

    stream: Count
    content_type: str = "application/json"


class StreamItem(Base, tag="streamItem", frozen=True):
    """One item of an input stream, numbered from 0. Extension."""

    stream: Count
    sequence: Count
    data: Any


class StreamEnd(Base, tag="streamEnd", frozen=True):
    """The end of a stream after `sequence` items; `reason` is set if it was broken off. Extension."""

    stream: Count
    sequence: Count
    reason: str | None = None


class StreamCredit(Base, tag="streamCredit", frozen=True):
    """More room for items of a stream, or of the run that the correlation names. Extension."""

    items: Count
    bytes: Count
    stream: Count | None = None


class TellCredit(Base, tag="tellCredit", frozen=True):
    """The return of credit: `begun` has numbers of one-way messages as pairs of first and last. Extension."""

    begun: list[tuple[Count, Count]]


class TellWindow(Base, tag="tellWindow", frozen=True):
    """The window of one-way messages on this connection, in messages and bytes. Extension.

    A consumer confirms a lower window by repeating the message; then the lower window applies.
    """

    messages: Count
    bytes: Count


Request: TypeAlias = (
    ReadProperty
    | ReadAllProperties
    | ReadMultipleProperties
    | WriteProperty
    | WriteMultipleProperties
    | WriteAllProperties
    | ObserveProperty
    | UnobserveProperty
    | InvokeAction
    | QueryAction
    | CancelAction
    | SubscribeEvent
    | UnsubscribeEvent
    | SubscribeAllEvents
    | UnsubscribeAllEvents
)
"""A request: a message from a consumer to a thing, which answers it."""

Answer: TypeAlias = (
    PropertyReading
    | PropertyReadings
    | ActionStatus
    | Event
    | Error
    | Acknowledgement
    | Gap
    | StreamOpen
    | TellCredit
    | TellWindow
)
"""A message from a thing to a consumer."""

Streamed: TypeAlias = StreamItem | StreamEnd | StreamCredit
"""A message of either side while a stream is open."""

Message: TypeAlias = Request | Answer | Streamed
"""Any message."""


_NAMED: Final[dict[type[Base], str]] = {
    ReadProperty: "name",
    WriteProperty: "name",
    ObserveProperty: "name",
    UnobserveProperty: "name",
    InvokeAction: "action",
    QueryAction: "action",
    CancelAction: "action",
    SubscribeEvent: "event",
    UnsubscribeEvent: "event",
}


def name_in(request: Base) -> str:
    """Return the name of the property, action or event that a request is about, "" if it names none."""
    member = _NAMED.get(type(request))
    name: str = "" if member is None else getattr(request, member)
    return name


def message_types() -> dict[str, type[Base]]:
    """Return the struct of each `messageType`, in the order of `Message`."""
    union: Any = Message
    return {cls.__struct_config__.tag: cls for cls in union.__args__}


MESSAGES: Final = message_types()
strict_decoder: Final = msgspec.json.Decoder(Message)
