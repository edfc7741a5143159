"""Requests and listenings of a peer, as objects that a thing's session and its host share.

The host is the code that carries out requests. It answers through methods of the session (`answer`, `began`,
`complete` and so on). The table `VERBS` lists the allowed methods for every request.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET, Struct

from .._messages import (
    InvokeAction,
    ObserveProperty,
    ReadAllProperties,
    ReadMultipleProperties,
    ReadProperty,
    SubscribeAllEvents,
    SubscribeEvent,
    UnobserveProperty,
    UnsubscribeAllEvents,
    UnsubscribeEvent,
    WriteAllProperties,
    WriteMultipleProperties,
    WriteProperty,
    name_in,
)

if TYPE_CHECKING:
    from .._messages import Base, QueryAction
    from .._streams import Incoming, Outgoing
    from ._streams import ItemCollector


class State(Enum):
    """The state of a request. The first three are open."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    ANSWERED = "answered"
    WITHDRAWN = "withdrawn"


OPEN: Final = (State.WAITING, State.PENDING, State.RUNNING)


@attrs.frozen
class RequestKind:
    """A kind of request: its name, the answering methods it allows, and whether it has an effect.

    Requests with an effect are remembered, so that a repeat is answered and not carried out again.
    """

    word: str
    answers: tuple[str, ...]
    has_effect: bool = False


_VALUE: Final = ("answer", "fail")
_LISTEN: Final = ("accept", "fail")
_RUN: Final = ("pending", "began", "progress", "asks", "item", "complete", "fail")

VERBS: Final[dict[type[Base], RequestKind]] = {
    ReadProperty: RequestKind("read", _VALUE),
    ReadAllProperties: RequestKind("read_all", _VALUE),
    ReadMultipleProperties: RequestKind("read_many", _VALUE),
    WriteProperty: RequestKind("write", _VALUE, has_effect=True),
    WriteMultipleProperties: RequestKind("write_many", _VALUE, has_effect=True),
    WriteAllProperties: RequestKind("write_all", _VALUE, has_effect=True),
    InvokeAction: RequestKind("invoke", _RUN, has_effect=True),
    ObserveProperty: RequestKind("observe", _LISTEN),
    SubscribeEvent: RequestKind("subscribe", _LISTEN),
    SubscribeAllEvents: RequestKind("subscribe_all", _LISTEN),
}

PROPERTY: Final = "property"
EVENT: Final = "event"
ALL_EVENTS: Final = "all events"

LISTENED: Final[dict[type[Base], str]] = {
    ObserveProperty: PROPERTY,
    UnobserveProperty: PROPERTY,
    SubscribeEvent: EVENT,
    UnsubscribeEvent: EVENT,
    SubscribeAllEvents: ALL_EVENTS,
    UnsubscribeAllEvents: ALL_EVENTS,
}
"""The kind of listening that a message begins or ends."""


class IncomingRequest(Struct, eq=False):  # made for every request: attrs would take five times as long
    """A request for the host to answer with the methods that `VERBS` allows, and once with a final one.

    `answer`, `accept`, `complete` and `fail` are final. The request is the key of everything about it, and
    equal only to itself. `message`: the message as it was read. `correlation`: the id that its answers carry.
    `listening`: the listening that an observe or subscribe will start. `streams`: the input streams of an
    invocation, by parameter. A request with a number as `tell` is a one-way message: it is answered by
    `tell_begun` when it begins, or by `fail` if it does not.
    """

    message: Any
    verb: RequestKind
    correlation: str
    size: int  # bytes of the request, or characters
    weight: int  # bytes of memory that it takes, about
    connection: Any  # the `ThingConnection` it came on first
    state: State = State.WAITING
    listening: Listening | None = None
    streams: dict[str, Incoming] | None = None
    out: Outgoing | None = None  # the stream of its items
    gathered: ItemCollector | None = None  # its items, where the peer knows no streams
    latest_progress: Any = UNSET  # the latest progress
    slot: object = None  # the key of the progress that waits to be sent
    question: dict[str, Any] | None = None  # to a person, while the run waits for the answer
    also: tuple[Any, ...] = ()  # other connections of the peer that asked for the same
    remembered: bool = False
    tell: int | None = None  # the number of a one-way message

    def __repr__(self) -> str:
        return f"<{self.verb.word} {self.name!r} of {self.thing_id} {self.state.value}>"

    @property
    def thing_id(self) -> str:
        """The thing that the request is for."""
        thing: str = self.message.thing_id
        return thing

    @property
    def message_id(self) -> str:
        """The id of the request."""
        message_id: str = self.message.message_id
        return message_id

    @property
    def name(self) -> str:
        """The property, action or event that the request is about, "" if it names none."""
        return name_in(self.message)

    @property
    def open(self) -> bool:
        """Whether the request has no final answer yet."""
        return self.state in OPEN


@attrs.define(eq=False)
class Listening:
    """An observation or subscription of the peer, from its request on; equal only to itself.

    `active`: the host has accepted the listening. `ended`: the peer has ended or replaced it, or the host has
    ended it; this is final.
    """

    message: Any
    kind: str
    correlation: str
    connection: Any  # the `ThingConnection` it came on
    size: int = 0  # bytes of the request, or characters
    active: bool = False
    ended: bool = False
    slot: object = attrs.field(factory=object)  # the key of the reading that waits to be sent

    def __repr__(self) -> str:
        state = "ended" if self.ended else "active" if self.active else "asked for"
        return f"<{self.kind} {self.name!r} of {self.thing_id} {state}>"

    @property
    def thing_id(self) -> str:
        """The thing that the values come from."""
        thing: str = self.message.thing_id
        return thing

    @property
    def name(self) -> str:
        """The property or event, "" for all events."""
        return name_in(self.message)

    @property
    def key(self) -> tuple[str, str]:
        """The kind and name of the listening, unique per thing on a connection."""
        return self.kind, self.name


@attrs.frozen(eq=False)
class RequestWithdrawn:
    """A demand to end a run that the peer has cancelled. The session has already answered the peer."""

    request: IncomingRequest
    reason: str | None


@attrs.frozen(eq=False)
class WaitsAsked:
    """A demand to report what a request of the peer waits for. The host answers with `tell_waits`."""

    request: IncomingRequest
    message: QueryAction


@attrs.frozen(eq=False)
class ListeningEnded:
    """A report that the peer has ended or replaced a listening. No more values are delivered to it."""

    listening: Listening
