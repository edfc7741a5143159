"""Listening over HTTP: by server-sent events, or by long polls where a form offers nothing better.

Each property or event that is listened to has one task, `HttpSubscription.run`, however many listeners
there are. It outlives connections: after a break listeners receive a gap, and an observed property is read
anew, because a stream does not show what was missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio
from msgspec import UNSET

from lmos_actors.errors import (
    AgentError,
    AgentUnavailable,
    MailboxFull,
    NotFound,
    OutcomeUnknown,
    RateLimited,
)

from ..lmos._peer_listening import LONGEST_WAIT
from ._answers import error_from, refusal, wrong
from ._bodies import essence, from_json, is_json, taken
from ._invocations import END, FAILURES, GAP, SSE, as_agent_error, next_bytes, traced, whole_of
from ._sse import EventReader
from ._stream import BadAnswer, Unanswered, WebAnswer, WebRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..lmos._peer_backoff import Backoff
    from ..lmos._peer_listening import SharedListening
    from ._forms import HttpOperation
    from ._invocations import InvocationContext
    from ._sse import SentEvent
    from ._stream import Headers, HttpStream

POLL: Final = 120.0
"""Seconds that one long poll may take; then the next one is sent."""

FIRST_VALUE: Final = 10.0
STOOD: Final = 1.0
QUICK: Final = 0.05
"""Seconds; a long poll that is answered sooner has not waited."""

_NOTHING: Final = (204, 205, 304, 408, 504)
_VERBS: Final = {"property": "observe", "event": "subscribe", "events": "subscribe to all"}


@attrs.frozen
class ListeningTarget:
    """The operation by which a listening is made, for errors."""

    verb: str
    name: str


def target_of_listening(listening: SharedListening) -> ListeningTarget:
    """Return the operation of a listening."""
    return ListeningTarget(_VERBS[listening.kind], listening.name or "*")


class HttpSubscription:
    """One listening over HTTP; `run` is its task."""

    def __init__(
        self,
        server: InvocationContext,
        listening: SharedListening,
        way: HttpOperation,
        backoff: Backoff,
    ) -> None:
        self._server = server
        self._listening = listening
        self._far = listening.far
        self._way = way
        self._backoff = backoff
        self._reader = EventReader()
        self._tag = ""
        self._last: Any = self  # nothing could come
        self._what = target_of_listening(listening)

    async def run(self) -> None:
        """Listen until cancelled, or until the listening is refused, permanently or temporarily."""
        listening = self._listening
        while True:
            begun = trio.current_time()
            lost = await self._listen_once()
            if lost is None:
                return
            if not listening.is_confirmed:
                listening.on_refused(lost)  # entering listeners fail; for others it is asked for again
                return
            listening.on_connection_lost(lambda lost=lost: lost)  # type: ignore[misc]
            if trio.current_time() - begun >= STOOD:
                self._backoff.reset()
            await trio.sleep(max(self._backoff.next(), min(self._reader.retry or 0.0, LONGEST_WAIT)))

    async def _listen_once(self) -> Exception | None:
        """Listen on one connection. Return the error that ended the connection; None after a final answer."""
        listening, path = self._listening, self._far.path
        try:
            if self._way.form.subprotocol == "longpoll":
                return await self._polled()
            return await self._streamed()
        except AgentError as error:
            listening.on_refused(as_listening_error(error, path))
        except BadAnswer as error:
            listening.on_refused(wrong(path, error))
        except FAILURES as error:
            return as_listening_error(as_agent_error(error, path), path)
        return None

    # ---- server-sent events

    async def _streamed(self) -> Exception | None:
        request = self._request(f"{SSE}, application/json;q=0.5")
        if last_id := self._reader.last_id.strip():  # a header cannot begin or end with a space
            header = (b"Last-Event-ID", last_id.encode("utf-8", "replace"))
            request = attrs.evolve(request, headers=(*request.headers, header))
        async with self._server.pool.listening(request, self._server.own) as (head, stream):
            if head.status == 200 and head.kind == SSE:
                return await self._events(stream)
            answer = WebAnswer(head, await whole_of(stream))
        if head.status == 204:  # nothing will ever come (HTML, 9.2.3)
            raise NotFound("agent", self._far.path)
        self._refuse(answer)
        if self._way.form.subprotocol:
            raise BadAnswer(f"it is {head.kind or 'of no type'}, and no stream of events")
        return await self._polled(answer)

    async def _events(self, stream: HttpStream) -> Exception | None:
        self._reader = EventReader(self._reader.last_id)
        if self._listening.kind == "property" and not self._starts_with_value:
            await self._push_present_value()
        self._listening.on_confirmed()
        while data := await next_bytes(stream, self._reader):
            for event in self._reader.feed(data):
                self._take(event)
        return AgentUnavailable(self._far.path, "the stream of events ended")

    @property
    def _starts_with_value(self) -> bool:
        """Whether an observation begins with the present value, as with lmos_actors."""
        return bool(self._server.ways.description.offers)

    def _take(self, event: SentEvent) -> None:
        listening = self._listening
        if event.name == END:
            raise self._end(from_json(event.data))
        if event.name == GAP:
            listening.gap(*_gap(from_json(event.data)))
            return
        value = self._value(event.data)
        listening.value((event.name, value) if listening.kind == "events" else value, event.data)

    def _value(self, data: str) -> Any:
        kind = essence(self._way.form.content_type)
        if not is_json(kind):
            return data
        return from_json(data) if data else None

    def _end(self, problem: Any) -> Exception:
        """Return the error for the last event: the reported problem, or NotFound for a removed agent."""
        if isinstance(problem, dict):
            return error_from(cast("dict[str, Any]", problem), None, self._what, self._far.thing_id)
        return NotFound("agent", self._far.path)

    # ---- long poll

    async def _polled(self, first: WebAnswer | None = None) -> Exception | None:
        listening, quick = self._listening, 0
        if first is not None:
            listening.on_confirmed()
            self._push(first)
        elif listening.kind == "property":
            await self._push_present_value()
        while True:
            asked = trio.current_time()
            news = await self._poll(None if listening.is_confirmed else listening.on_confirmed)
            quick = quick + 1 if trio.current_time() - asked < QUICK else 0
            if not quick:
                self._backoff.reset()
            elif not news:
                await trio.sleep(self._backoff.next())
            elif quick > 20:  # so many quick polls, each with news, go without a pause
                await trio.sleep(QUICK)

    async def _poll(self, sent: Callable[[], None] | None) -> bool:
        """Send one poll, call `sent` when it is sent, and return whether the answer brings a new value."""
        headers = ((b"If-None-Match", self._tag.encode("latin-1")),) if self._tag else ()
        request = self._request(self._accepted, headers)
        with trio.move_on_after(POLL):
            return self._push(await self._server.pool.poll(request, self._server.own, sent))
        return False

    @property
    def _accepted(self) -> str:
        return essence(self._way.form.content_type)

    def _push(self, answer: WebAnswer) -> bool:
        if answer.head.status in _NOTHING:
            return False
        self._refuse(answer)
        self._tag = answer.head.header(b"etag")
        value = _taken(answer, self._way)
        is_new = self._listening.kind != "property" or value != self._last
        self._last = value
        if is_new:
            self._listening.value(self._occurred(value), answer.body)
        return is_new

    def _occurred(self, value: Any) -> Any:
        if self._listening.kind != "events":
            return value
        if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:  # {name: data}
            return next(iter(cast("dict[str, Any]", value).items()))
        raise BadAnswer("it names no event")

    # ---- either way

    async def _push_present_value(self) -> None:
        """Push the present value of an observed property, if it can be read."""
        way = self._server.ways.way("read", self._listening.name)
        if way is None:
            return
        values = {name: value for name, value in self._far.variables if name in way.variables}
        request = self._asked(way, values, self._headers(self._accepted))
        answer = None
        with trio.move_on_after(FIRST_VALUE):
            answer = await self._server.pool.exchange(request, self._server.own)
        if answer is None:
            raise Unanswered(f"its value was not there within {FIRST_VALUE:g} s")
        self._refuse(answer)
        self._tag, self._last = answer.head.header(b"etag"), _taken(answer, way)
        self._listening.value(self._last, answer.body)

    def _request(self, accept: str, more: Headers = ()) -> WebRequest:
        return self._asked(self._way, dict(self._far.variables), (*self._headers(accept), *more))

    def _asked(self, way: HttpOperation, values: Mapping[str, Any], headers: Headers) -> WebRequest:
        url, private = self._server.addressed(way, values, self._far.path)
        return WebRequest(way.method, url, headers, None, True, private)

    def _headers(self, accept: str) -> Headers:
        asked = (b"Accept", accept.encode("latin-1", "replace")), (b"Accept-Encoding", b"identity")
        return (*asked, *traced(self._listening.trace))

    def _refuse(self, answer: WebAnswer) -> None:
        """Raise the exception for an answer that is a refusal."""
        error = refusal(answer, self._far.path, self._far.thing_id, self._what)
        if error is not None:
            raise error


def _taken(answer: WebAnswer, way: HttpOperation) -> Any:
    """Return the value of an answer; None if there is none. Raises BadAnswer."""
    value = taken(answer, way.form.content_type)
    return None if value is UNSET else value


def passing(error: Exception) -> bool:
    """Return whether a later attempt may succeed."""
    return isinstance(error, AgentUnavailable | OutcomeUnknown | RateLimited | MailboxFull)


def as_listening_error(error: Exception, path: str) -> Exception:
    """Return a temporary error as AgentUnavailable, which listeners survive; any other error unchanged."""
    if isinstance(error, AgentUnavailable | MailboxFull) or not passing(error):
        return error
    why = error.why if isinstance(error, OutcomeUnknown) else str(error)
    return AgentUnavailable(path, why, retry_in=getattr(error, "retry_in", None))


def _gap(data: Any) -> tuple[str, int | None]:
    members = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    reason, missed = members.get("reason"), members.get("missed")
    known = missed if type(missed) is int and 0 < missed < 1 << 53 else None
    return (reason[:200] if isinstance(reason, str) else "gap"), known
