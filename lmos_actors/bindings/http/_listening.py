"""Listening over HTTP: server-sent events, and long polls.

Listeners never hold an agent back: each has a feed, which keeps the latest reading alone, or drops its
oldest event, with a gap in its place. What waits in feeds is charged to the budget of all peers, see
`_shared_values.py`. A client that does not read is ended by the front door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import trio

from lmos_actors.actors import Feed, Gap, Occurrence
from lmos_actors.errors import AgentError, AgentUnavailable, NotFound, Unauthorized
from lmos_actors.protocol.lmos import problem_of, written

from ._accept import has_tag
from ._answers import EMPTY, EVENTS, NO_STORE, NOSNIFF, VARY, Answer, problem_data, value
from ._values import tag_of, written_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime, Sink, Sinks

    from ..exposure._shared_values import SharedValues
    from ._requests import WebRequest

HEARTBEAT: Final = 15.0
"""Seconds of silence after which a stream of events says that it is still there."""

AT_ONCE: Final = 64
AT_ONCE_BYTES: Final = 1 << 16
"""Bytes of events that are sent together: so much, and one event, waits for a client that does not read."""

GAP: Final = "lmosx:gap"
END: Final = "lmosx:end"
RECONNECTED: Final = "reconnected"

NOT_GOOD: Final = "the credentials are no longer good"
LEAVING: Final = "the node is shutting down"


class FeedSink:
    """A sink that feeds one listener: a value that several receive is encoded once.

    Of several properties each goes on with its name; an event among all events has one already.
    """

    __slots__ = ("_feed", "_name", "_sharing")

    only_reads = True

    def __init__(self, feed: Feed[Any], sharing: SharedValues, name: str) -> None:
        self._feed = feed
        self._sharing = sharing
        self._name = name

    def push(self, value: Any) -> None:
        """Take a reading, or an event."""
        if type(value) is Occurrence:
            self._feed.push(Occurrence(value.event, self._sharing.of(value.data)))
        elif self._name:
            self._feed.push(Occurrence(self._name, self._sharing.of(value)))
        else:
            self._feed.push(self._sharing.of(value))

    def gap(self, reason: str, missed: int | None) -> None:
        """Take note that readings are missing."""
        self._feed.gap(reason, missed)

    def close(self) -> None:
        """There will be no more."""
        self._feed.close()


class Listening:
    """One listener: its feed and the sinks that fill it. Call `leave` in any case."""

    def __init__(self, rt: Runtime, sinks: Sinks, sharing: SharedValues, *, conflate: bool) -> None:
        self._memory = sharing.reader(self._drop)
        self.feed: Feed[Any] = Feed(rt.timers, conflate=conflate, gaps=True, holder=self._memory)
        self.leaving = False
        self._sinks = sinks
        self._sharing = sharing
        self._joined: dict[str, Sink] = {}

    def sink(self, key: str, name: str = "") -> Sink:
        """Return the sink for a key; with a name it is one of several."""
        sink = self._joined[key] = FeedSink(self.feed, self._sharing, name)
        return sink

    def join(self, key: str) -> None:
        """Receive what is pushed under a key from now on."""
        self._sinks.add(key, self.sink(key))

    def leave(self) -> None:
        """Receive nothing more."""
        for key, sink in self._joined.items():
            self._sinks.remove(key, sink)
        self._memory.close()

    def _drop(self) -> None:
        self.feed.drop_waiting()

    def end(self) -> None:
        """End because the node drains: what has come is still sent."""
        self.leaving = True
        self.feed.close()


# ---- long polls


async def polled(request: WebRequest, listening: Listening, current: Any, *, observes: bool) -> Answer:
    """Answer a long poll with the next value.

    An observation whose client says by If-None-Match which value it has is answered at once by another.
    Without an answer within what it prefers to `wait`, 204.
    """
    feed = listening.feed
    if observes and not feed.missed:
        feed.receive_nowait()  # the value that there is now
        body = written_value(current)
        if request.header(b"if-none-match") and not has_tag(request.headers, b"if-none-match", tag_of(body)):
            return _reading(body)
    wait = request.wait()
    with trio.move_on_after(float("inf") if wait is None else wait):
        try:
            while type(found := await feed.receive()) is Gap:
                pass
        except trio.EndOfChannel:
            raise _over(request, listening) from None
        if not is_valid(request):
            raise Unauthorized(NOT_GOOD)
        body = found.json()
        return _reading(body) if observes else value(body, NO_STORE, VARY)
    return EMPTY


def _reading(body: bytes) -> Answer:
    return value(body, NO_STORE, VARY, (b"etag", tag_of(body)))


def _over(request: WebRequest, listening: Listening) -> AgentError:
    name = request.parts[0]
    return AgentUnavailable(name, LEAVING) if listening.leaving else NotFound("agent", name)


# ---- server-sent events


HEAD: Final = ((b"content-type", EVENTS), NO_STORE, NOSNIFF, VARY, (b"x-accel-buffering", b"no"))


class EventStream:
    """Tells a client what its listener hears, as `text/event-stream`, until one of them leaves.

    `failed` is given what JSON cannot say: a gap stands in its place.
    """

    def __init__(
        self,
        request: WebRequest,
        listening: Listening,
        new_id: Callable[[], str],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._request = request
        self._listening = listening
        self._new_id = new_id
        self._failed = failed
        self._count = 0

    async def run(self) -> None:
        """Send the head, then events as they come; ends with the channel."""
        await self._request.send({"type": "http.response.start", "status": 200, "headers": list(HEAD)})
        again = self._request.header(b"last-event-id") is not None
        await self._send(self._frame(Gap(RECONNECTED)) if again else b": listening\n\n")
        while (events := await self._next()) is not None:
            await self._send(events)
        await self._request.send({"type": "http.response.body", "body": self._goodbye()})

    async def _send(self, body: bytes) -> None:
        await self._request.send({"type": "http.response.body", "body": body, "more_body": True})

    async def _next(self) -> bytes | None:
        """Wait for what is to be said next; None at the end."""
        feed, found = self._listening.feed, list[Any]()
        with trio.move_on_after(HEARTBEAT):
            try:
                found.append(await feed.receive())
            except trio.EndOfChannel:
                return None
        if not is_valid(self._request):
            return None
        return self._together(found[0]) if found else b":\n\n"

    def _together(self, value: Any) -> bytes:
        """Return a value as it is sent, with those behind it that are there by now."""
        feed, frames = self._listening.feed, [self._frame(value)]
        size = len(frames[0])
        try:
            while len(frames) < AT_ONCE and size < AT_ONCE_BYTES:
                frames.append(self._frame(feed.receive_nowait()))
                size += len(frames[-1])
        except (trio.WouldBlock, trio.EndOfChannel):
            pass
        return b"".join(frames)

    def _frame(self, value: Any) -> bytes:
        self._count += 1
        if type(value) is not Gap:
            # of several affordances each value has a name, of a single one none: so all clients hear it
            name, data = (value.event, value.data) if type(value) is Occurrence else ("", value)
            try:
                return framed(name, data.json(), self._count)
            except Exception as error:
                self._failed(error)
                value = Gap("a value that could not be sent", 1)
        members = {"reason": value.reason, "missed": value.missed}
        return framed(GAP, written(members), self._count)

    def _goodbye(self) -> bytes:
        """Return the last event: there is nothing to reconnect for, unless there is."""
        if not is_valid(self._request):
            return framed(END, written(problem_data(problem_of(Unauthorized(NOT_GOOD)), self._new_id())))
        return b"" if self._listening.leaving else framed(END, b"null")


def is_valid(request: WebRequest) -> bool:
    """Return whether the client's credentials are still valid after the wait."""
    return request.admission is None or bool(request.admission.valid(trio.current_time()))


def framed(name: str, data: bytes, number: int | None = None) -> bytes:
    """Return one event; its data is JSON on one line. Without a name, `onmessage` of browsers hears it."""
    if not name.isprintable():
        name = quote(name)
    said = b"data: %s\n\n" % data
    if name:
        said = b"event: %s\n%s" % (name.encode(), said)
    return said if number is None else b"id: %d\n%s" % (number, said)
