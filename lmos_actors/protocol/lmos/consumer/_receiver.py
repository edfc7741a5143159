"""Incoming frames of a consumer's connection, dispatched by type to the part that matches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.errors import RemoteProtocolError

from .._codec import Unreadable
from .._frames import BadFrame
from .._messages import (
    Acknowledgement,
    ActionStatus,
    Error,
    Event,
    Gap,
    PropertyReading,
    PropertyReadings,
    StreamCredit,
    StreamEnd,
    StreamItem,
    StreamOpen,
    TellCredit,
    TellWindow,
)
from .._peer import TOO_BIG, UNREADABLE_DATA, Close
from .._pending import PendingRun, RunControl
from .._problems import error_of

if TYPE_CHECKING:
    from .._messages import Base
    from ._connection import ConsumerConnection
    from ._feeds import Feeds
    from ._outcomes import Outcome, Outcomes
    from ._requests import Requests
    from ._runs import Runs
    from ._streams import ConsumerStreams


class Receiver:
    """A dispatcher for the incoming frames of one connection."""

    __slots__ = ("_closing", "_connection", "_feeds", "_requests", "_runs", "_streams", "unreadable")

    def __init__(
        self,
        connection: ConsumerConnection,
        requests: Requests,
        feeds: Feeds,
        runs: Runs,
        streams: ConsumerStreams,
    ) -> None:
        self._connection = connection
        self._requests = requests
        self._feeds = feeds
        self._runs = runs
        self._streams = streams
        self.unreadable = 0
        self._closing = False

    def _close(self, code: int, reason: str) -> Outcomes:
        self._closing = True
        return (Close(code, reason),)

    def take(self, text: str | bytes) -> Outcomes:
        """Handle a text frame, and return its outcomes."""
        if self._closing:
            return ()
        message = self._connection.codec.decode(text)
        if isinstance(message, ActionStatus):
            return self._runs.take_status(message, text)
        if isinstance(message, PropertyReading):
            found = self._feeds.take_reading(message)
            return self._requests.take_reading(message) if found is None else found
        if isinstance(message, Unreadable):
            return self._take_unreadable(message)
        return self._take_other(message)

    def _take_other(self, message: Base) -> Outcomes:
        match message:
            case Event():
                return self._feeds.take_event(message)
            case PropertyReadings():
                return self._requests.take_reading(message)
            case Error():
                return self._take_error(message)
            case Acknowledgement():
                return self._feeds.take_acknowledgement(message)
            case Gap():
                return self._feeds.take_gap(message)
            case TellCredit():
                return self._requests.take_credit(message)
            case TellWindow():
                return self._requests.take_window(message)
            case StreamOpen():
                return self._runs.stream_outcomes(self._streams.take_open(message))
            case StreamEnd():
                return self._runs.stream_outcomes(self._streams.take_end(message))
            case StreamCredit():
                return self._runs.stream_outcomes(self._streams.take_credit(message))
            case StreamItem():
                return self._connection.stray(message, "things send items as statuses")
            case _:
                return self._connection.stray(message, "a request, where only answers are expected")

    def _take_error(self, message: Error) -> Outcomes:
        requests = self._requests
        control = requests.find_control(message.in_reply_to)
        if control is not None:
            return self._runs.take_control_error(control, message)
        correlation = message.in_reply_to or message.correlation_id
        pending = requests.find(correlation)
        if correlation is None and not self._feeds.awaits(message.thing_id):
            # the table of the text has no correlation for errors
            pending = requests.guess(lambda each: each.thing_id == message.thing_id)
        if isinstance(pending, PendingRun):
            return self._runs.take_error(pending, message)
        if isinstance(pending, RunControl):
            return self._runs.take_control_error(pending, message)
        if pending is not None:
            return requests.take_error(pending, message)
        forgotten = requests.find_forgotten(correlation)
        if correlation is None and not self._feeds.awaits(message.thing_id):
            forgotten = requests.take_unnamed(message.thing_id, None)
        if forgotten is not None:
            return requests.come_for_forgotten(forgotten, error_of(message, forgotten.request))
        return self._feeds.take_error(message)

    def _take_unreadable(self, unreadable: Unreadable) -> Outcomes:
        """Fail the request that an unreadable frame answers, so that it does not stay open forever."""
        self.unreadable += 1
        if unreadable.oversize:
            return self._close(TOO_BIG, unreadable.problem.detail)
        error = RemoteProtocolError(unreadable.problem)
        pending = self._requests.find(unreadable.correlation_id)
        if isinstance(pending, PendingRun):
            return self._runs.fail(pending, error)
        if isinstance(pending, RunControl):
            return self._runs.fail_control(pending, error)
        if pending is not None:
            return self._requests.fail(pending, error)
        forgotten = self._requests.find_forgotten(unreadable.correlation_id)
        if forgotten is not None and unreadable.type in ("error", "actionStatus"):
            return self._requests.come_for_forgotten(forgotten, error)
        refused = self._feeds.refuse(unreadable.correlation_id, error) if unreadable.type == "error" else None
        return self._connection.stray(unreadable, unreadable.problem.detail) if refused is None else refused

    def take_binary(self, data: bytes) -> Outcomes:
        """Handle a binary frame, and return its outcomes."""
        if self._closing:
            return ()
        if "streams" not in self._connection.known:
            return self._close(UNREADABLE_DATA, "binary frames were not offered")
        if len(data) > self._connection.options.max_bytes:
            return self._close(TOO_BIG, f"more than {self._connection.options.max_bytes} bytes")
        news = self._streams.take_frame(data)
        if isinstance(news, BadFrame):
            return self._close(UNREADABLE_DATA, news.detail)
        found: list[Outcome] = []
        for one in news:
            found.extend(self._runs.stream_outcomes(one))
        return tuple(found)
