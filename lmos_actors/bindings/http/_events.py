"""Events over HTTP: by long polls, or as streams of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.actors import ALL_EVENTS, Slot, event_key

from ..lmos._server_requests import operation_named, representative
from ._accept import check_taken
from ._answers import VARY, Answer
from ._listening import EventStream, polled

if TYPE_CHECKING:
    from ..lmos._server_requests import AgentOrPool
    from ._request_tracker import HttpRequestTracker
    from ._requests import WebRequest

EITHER: Final = ("application/json", "text/event-stream")


async def subscribe(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer | None:
    """Send an event: once, by a long poll, or as often as it happens."""
    name = request.parts[2]
    place = event_key(name)
    operation_named(link, "event", f"+{place}", name)
    return await _send_events(tracker, request, link, place, check_taken(request.headers, EITHER))


async def subscribe_all(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer | None:
    """Send all events, each by its name."""
    representative(link)
    return await _send_events(tracker, request, link, ALL_EVENTS, check_taken(request.headers, EITHER[1:]))


async def _send_events(
    tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool, place: str, kind: str
) -> Answer | None:
    if request.method == "HEAD":
        return Answer(200, b"", ((b"content-type", kind.encode()), VARY))
    with tracker.listening(link) as listening:
        if isinstance(link, Slot):
            await tracker.outcome(request, link, f"+{place}", listening.sink(place))
        else:
            listening.join(place)
        if kind == EITHER[0]:
            return await polled(request, listening, None, observes=False)
        await EventStream(request, listening, tracker.rt.entropy.new_id, tracker.context.failed).run()
    return None
