"""Outcomes of incoming frames, which `ConsumerSession.receive` returns in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Struct

from .._peer import Close
from .._streams import CreditArrived, StreamStopped

if TYPE_CHECKING:
    from datetime import datetime

    from lmos_actors.errors import LmosActorsError

    from .._codec import Unreadable
    from .._messages import Base
    from .._pending import ConsumerRequest, Feed, PendingRun


class RequestAnswered(Struct, frozen=True):
    """The answer to a request, with a value.

    For a read or a write, `value` is the property's value. For a request for several properties it has their
    values by name. For a run it is the output, UNSET if there is none. For a query or a cancel it is a
    `RunStatus`.
    """

    pending: ConsumerRequest
    value: Any


class RequestFailed(Struct, frozen=True):
    """The refusal or failure of a request, with an exception."""

    pending: ConsumerRequest
    error: LmosActorsError


class RunProgressed(Struct, frozen=True):
    """A new status or new progress of a run (UNSET if there is none), or its question to a person.

    `waits` is the question as the thing sent it, or None if the run asks no question now.
    """

    pending: PendingRun
    status: str
    progress: Any = UNSET
    waits: dict[str, Any] | None = None


class RunItem(Struct, frozen=True):
    """One item of a run. The host calls `consumed` after taking it."""

    pending: PendingRun
    output: Any


class ForgottenFailed(Struct, frozen=True):
    """An error that answers a forgotten request."""

    pending: ConsumerRequest
    error: LmosActorsError


class FeedEstablished(Struct, frozen=True):
    """The thing's confirmation of an observation or subscription."""

    feed: Feed


class PropertyRead(Struct, frozen=True):
    """A value of an observed property; `at` is the time in the message, None if it has none."""

    feed: Feed
    value: Any
    at: datetime | None


class EventOccurred(Struct, frozen=True, repr_omit_defaults=True):
    """An event of a subscription; `at` is the time in the message, None if it has none.

    `traceparent` and `tracestate` are the W3C trace context in which it was emitted, None if the message has
    none.
    """

    feed: Feed
    event: str
    data: Any
    at: datetime | None
    traceparent: str | None = None
    tracestate: str | None = None


class ValuesMissed(Struct, frozen=True):
    """A gap in the values of a feed: `missed` of them are missing, None if the number is unknown."""

    feed: Feed
    reason: str
    missed: int | None


class FeedEnded(Struct, frozen=True):
    """The end of a feed: with an error, or without one if the peer has acknowledged its stop."""

    feed: Feed
    error: LmosActorsError | None = None


class TellRoom(Struct, frozen=True):
    """A hint that there may be credit for one-way messages again; see `ConsumerSession.may_tell`."""


class StrayMessage(Struct, frozen=True):
    """A frame that answers no request. It is counted and has no other effect. `why` is for a log."""

    message: Base | Unreadable
    why: str


Outcome: TypeAlias = (
    RequestAnswered
    | RequestFailed
    | RunProgressed
    | RunItem
    | ForgottenFailed
    | FeedEstablished
    | PropertyRead
    | EventOccurred
    | ValuesMissed
    | FeedEnded
    | CreditArrived
    | StreamStopped
    | TellRoom
    | StrayMessage
    | Close
)
"""An outcome of a frame, as `ConsumerSession.receive` returns it."""

Outcomes: TypeAlias = tuple[Outcome, ...]
