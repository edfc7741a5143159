"""Outcomes of incoming frames: what `ConsumerSession.receive` returns, in order."""

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
    """A request was answered with a value.

    `value` of a read or a write: the property's value; of a request for several properties: their values by
    name; of a run: its output, UNSET if there is none; of a query or a cancel: a `RunStatus`.
    """

    pending: ConsumerRequest
    value: Any


class RequestFailed(Struct, frozen=True):
    """A request was refused or has failed, with an exception."""

    pending: ConsumerRequest
    error: LmosActorsError


class RunProgressed(Struct, frozen=True):
    """A run has a new status, or new progress (UNSET if there is none), or asks a person.

    `waits` is the question as its thing sent it, None if no person is asked, or no longer.
    """

    pending: PendingRun
    status: str
    progress: Any = UNSET
    waits: dict[str, Any] | None = None


class RunItem(Struct, frozen=True):
    """A run has sent one item; the host calls `consumed` when it has taken it."""

    pending: PendingRun
    output: Any


class ForgottenFailed(Struct, frozen=True):
    """A forgotten request was answered by an error."""

    pending: ConsumerRequest
    error: LmosActorsError


class FeedEstablished(Struct, frozen=True):
    """The thing has confirmed an observation or subscription."""

    feed: Feed


class PropertyRead(Struct, frozen=True):
    """An observed property has this value; `at` is the time in the message, None if it has none."""

    feed: Feed
    value: Any
    at: datetime | None


class EventOccurred(Struct, frozen=True, repr_omit_defaults=True):
    """An event that was subscribed to; `at` is the time in the message, None if it has none.

    `traceparent` and `tracestate`: the W3C trace context of its emission, None if the message has none.
    """

    feed: Feed
    event: str
    data: Any
    at: datetime | None
    traceparent: str | None = None
    tracestate: str | None = None


class ValuesMissed(Struct, frozen=True):
    """Values are missing here: `missed` of them, None if the number is unknown."""

    feed: Feed
    reason: str
    missed: int | None


class FeedEnded(Struct, frozen=True):
    """The end of a feed: by an error, or, without one, because its stop was acknowledged."""

    feed: Feed
    error: LmosActorsError | None = None


class TellRoom(Struct, frozen=True):
    """One-way messages that found no credit may find some now; see `ConsumerSession.may_tell`."""


class StrayMessage(Struct, frozen=True):
    """A frame that answers nothing: it is counted, and changes nothing. `why` is for a log."""

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
