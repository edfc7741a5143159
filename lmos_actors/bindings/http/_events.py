"""Observations and events over HTTP: as server-sent events, or by long polls, one value per request.

The header `Accept` decides which. A stream sends an empty comment after 15 seconds of silence, reports missed
values as an event named `lmosx:gap`, and ends with `lmosx:end`, after which there is nothing to reconnect
for. Events of a single affordance have no name, as `onmessage` of browsers receives only nameless ones; in a
stream of several, each has the name of its affordance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import trio

from lmos_actors.actors import ALL_EVENTS, Gap, Occurrence, PoolLink, Slot, event_key, property_key
from lmos_actors.errors import AgentError, AgentUnavailable, NotFound, Unauthorized
from lmos_actors.protocol.lmos import problem_of, written
from lmos_actors.supervision import class_at

from ..exposure._problem_details import problem_data
from ..lmos._server_requests import READ_ALL, operation_named, representative
from ._request_tracker import LEAVING
from ._requests import has_tag, negotiate
from ._responses import EVENTS, JSON, UNSTORED_VARIANT, JsonResponse, no_content, only_head
from ._values import tag_of, written_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.responses import Response

    from lmos_actors.actors import Property

    from ..lmos._server_requests import AgentOrPool
    from ._request_tracker import HttpRequestTracker, Listening
    from ._requests import HttpRequest

AT_ONCE: Final = 64
AT_ONCE_BYTES: Final = 1 << 16
"""Limit in bytes of events sent together: that much, and one event more, waits for a client that is slow."""

GAP: Final = "lmosx:gap"
END: Final = "lmosx:end"
RECONNECTED: Final = "reconnected"

NOT_GOOD: Final = "the credentials are no longer good"


# ---- observing


async def observe(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response | None:
    """Send the changes of a property: by a long poll, or as a stream of events."""
    name = request.parts[2]
    place = property_key(name)
    key = f"+{place}"
    operation_named(link, "property", key, name)
    _check_no_pool(link)
    kind = negotiate(request.headers, (JSON, EVENTS))
    if request.method == "HEAD":
        return only_head(kind)
    with tracker.listening(link, conflate=True) as listening:
        current = await tracker.outcome(request, link, key, listening.sink(place))
        if kind == JSON:
            return await polled(request, listening, current, observes=True)
        stream = EventStream(tracker, request, listening)
        await request.send_events(stream.frames(), stream.goodbye)
    return None


def _check_no_pool(link: AgentOrPool) -> None:
    """Raise NotAllowed for a pool, which has no properties of its own."""
    if isinstance(link, PoolLink):
        link.choose(READ_ALL, (), {})


async def observe_all(
    tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool
) -> Response | None:
    """Send the changes of all observable properties, each with the name of its property."""
    _check_no_pool(link)
    if request.method == "HEAD":
        return only_head(EVENTS)
    with tracker.listening(link) as listening:
        properties = properties_of(representative(link))
        for name in [name for name, made in properties.items() if made.observable and not made.write_only]:
            place = property_key(name)
            await tracker.outcome(request, link, f"+{place}", listening.sink(place, name))
        stream = EventStream(tracker, request, listening)
        await request.send_events(stream.frames(), stream.goodbye)
    return None


def properties_of(link: AgentOrPool) -> Mapping[str, Property[Any]]:
    """Return the declared properties of an agent, or of the members of a pool."""
    cls = class_at(link)
    return {} if cls is None else cls.__contract__.properties


# ---- events


async def subscribe(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response | None:
    """Send the occurrences of an event: the next one by a long poll, or all of them as a stream."""
    name = request.parts[2]
    place = event_key(name)
    operation_named(link, "event", f"+{place}", name)
    return await _send_events(tracker, request, link, place, negotiate(request.headers, (JSON, EVENTS)))


async def subscribe_all(
    tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool
) -> Response | None:
    """Send all events of an agent, each with its name."""
    representative(link)
    return await _send_events(tracker, request, link, ALL_EVENTS, negotiate(request.headers, (EVENTS,)))


async def _send_events(
    tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool, place: str, kind: str
) -> Response | None:
    if request.method == "HEAD":
        return only_head(kind)
    with tracker.listening(link) as listening:
        if isinstance(link, Slot):
            await tracker.outcome(request, link, f"+{place}", listening.sink(place))
        else:
            listening.join(place)
        if kind == JSON:
            return await polled(request, listening, None, observes=False)
        stream = EventStream(tracker, request, listening)
        await request.send_events(stream.frames(), stream.goodbye)
    return None


# ---- long polls


async def polled(request: HttpRequest, listening: Listening, current: Any, *, observes: bool) -> Response:
    """Answer a long poll with the next value.

    An observation is answered at once if the value is not the one in the client's If-None-Match. If no value
    comes within the time that the client prefers to `wait`, the answer is 204.
    """
    feed = listening.feed
    if observes and not feed.missed:
        feed.receive_nowait()  # the present value
        body = written_value(current)
        if request.header(b"if-none-match") and not has_tag(request.headers, "if-none-match", tag_of(body)):
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
        return _reading(body) if observes else JsonResponse(body, UNSTORED_VARIANT)
    return no_content()


def _reading(body: bytes) -> Response:
    return JsonResponse(body, UNSTORED_VARIANT, (b"etag", tag_of(body).encode()))


def _over(request: HttpRequest, listening: Listening) -> AgentError:
    name = request.parts[0]
    return AgentUnavailable(name, LEAVING) if listening.leaving else NotFound("agent", name)


# ---- server-sent events


class EventStream:
    """The body of one listener, as `text/event-stream`."""

    def __init__(self, tracker: HttpRequestTracker, request: HttpRequest, listening: Listening) -> None:
        self._tracker = tracker
        self._request = request
        self._listening = listening
        self._count = 0

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Yield events as they arrive, until the feed ends; waiting events are joined into one piece."""
        again = self._request.header(b"last-event-id") is not None
        yield self._frame(Gap(RECONNECTED)) if again else b": listening\n\n"
        while (events := await self._next()) is not None:
            yield events

    async def _next(self) -> bytes | None:
        """Return the next events, or a heartbeat after a period of silence; None at the end of the feed."""
        feed, found = self._listening.feed, list[Any]()
        with trio.move_on_after(self._tracker.options.heartbeat_seconds):
            try:
                found.append(await feed.receive())
            except trio.EndOfChannel:
                return None
        if not is_valid(self._request):
            return None
        return self._together(found[0]) if found else b":\n\n"

    def _together(self, value: Any) -> bytes:
        """Return a value as an event, followed by the events of values that are waiting already."""
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
            name, data = (value.event, value.data) if type(value) is Occurrence else ("", value)
            try:
                return framed(name, data.json(), self._count)
            except Exception as error:
                self._tracker.context.failed(error)
                value = Gap("a value that could not be sent", 1)
        members = {"reason": value.reason, "missed": value.missed}
        return framed(GAP, written(members), self._count)

    def goodbye(self) -> bytes:
        """Return the last event; b"" if the node drains: then the client should reconnect."""
        if not is_valid(self._request):
            problem = problem_of(Unauthorized(NOT_GOOD))
            return framed(END, written(problem_data(problem, self._tracker.rt.entropy.new_id())))
        return b"" if self._listening.leaving else framed(END, b"null")


def is_valid(request: HttpRequest) -> bool:
    """Return whether the client's credentials are still valid after the wait."""
    return request.admission is None or bool(request.admission.valid(trio.current_time()))


def framed(name: str, data: bytes, number: int | None = None) -> bytes:
    """Return one server-sent event; `data` is JSON on one line."""
    if not name.isprintable():
        name = quote(name)  # a line break would end the field
    said = b"data: %s\n\n" % data
    if name:
        said = b"event: %s\n%s" % (name.encode(), said)
    return said if number is None else b"id: %d\n%s" % (number, said)
