"""Actions over HTTP: invoked and waited for, or left to run, queried and cancelled (WoT Profile, HTTP Basic).

An invocation is answered with its output, or with the path of its run if the run goes on. A client that waits
and disconnects cancels the run; a client that has received the path does not wait, so its run goes on. An
action that has many items is answered by a stream of events, or of JSON lines, one for each item. An action
that takes a stream is answered once it is done, whatever the client prefers, because its body cannot continue
after an answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import trio

from lmos_actors._core import weight
from lmos_actors.actors import MISSING, STREAM, Slot
from lmos_actors.errors import InvalidInput, LmosActorsError, LocalProtocolError, MailboxFull, NotAllowed
from lmos_actors.protocol.lmos import problem_of, written
from lmos_actors.protocol.td import LINES
from lmos_actors.supervision import class_at

from ..exposure._exposure import public_name
from ..exposure._problem_details import problem_data
from ..lmos._server_requests import operation_named, representative
from ._events import END, framed
from ._input_bodies import InputBody, input_beside
from ._requests import check_content_type, negotiate
from ._responses import EVENTS, JSON, UNSTORED, UNSTORED_VARIANT, JsonResponse, no_content
from ._values import fitting, read_json, with_integers, with_parameters, written_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.responses import Response

    from lmos_actors.actors import Operation, RequestKey

    from ..lmos._server_requests import AgentOrPool
    from ._agent_request import AgentRequest
    from ._request_tracker import HttpRequestTracker
    from ._requests import HttpRequest
    from ._runs import KeptRun

ITEM: Final = "item"
"""The name of the event that carries an item of a stream."""

MANY: Final = (EVENTS, LINES)
"""The media types of an answer of many items."""

WAITS: Final = "lmosx:waits"
"""The name of the event with the question to a person that a run waits for; null once it waits no longer."""

ASKS: Final = "lmos-questions"
"""The preference (`Prefer`) by which a client asks to hear when a run waits for a person."""

APPLIED: Final = (b"preference-applied", b"respond-async")

_encode: Final = msgspec.json.Encoder().encode


async def invoke(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response | None:
    """Invoke an action; return its output or the path of its run, None if the answer was sent as a stream."""
    name = request.parts[2]
    op = operation_named(link, "action", name, name)
    kind = negotiate(request.headers, MANY if op.kind == STREAM else (JSON,))
    if op.streams:
        return await _invoke_with_body(tracker, request, link, op, kind)
    if op.kind == STREAM:
        ask = tracker.ask(request)
        ask.items = []
        _post(tracker, ask, request, link, op, await _input(request, op))
        await _send_items(tracker, request, ask, kind)
        return None
    data = await _input(request, op)
    preferences = request.preferences()
    cls = class_at(link)
    handle = None if cls is None else cls.__contract__.actions.get(op.name)
    answers_later = handle is not None and handle.options.synchronous is False
    if "respond-async" in preferences or answers_later:
        return await _invoke_later(tracker, request, link, op, data, preferences)
    if ASKS in preferences:
        return await _invoke_until_asked(tracker, request, link, op, data)
    ask = tracker.ask(request)
    _post(tracker, ask, request, link, op, data)
    return _result(op, await ask.result())


async def _invoke_with_body(
    tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool, op: Operation, kind: str
) -> Response | None:
    """Invoke an action whose input stream is the body, which is read while the run goes on."""
    body = InputBody(tracker.rt.timers, request, op, tracker.options.line_bytes)
    data = with_parameters(op, input_beside(request), request.scope["query_string"])
    ask = tracker.ask(request)
    ask.key = _key(tracker, request, link)
    ask.on_begun = body.begin
    if op.kind == STREAM:
        ask.items = []
    one = representative(link)

    def spread(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = _spread(one, op, given)
        return args, {**kwargs, body.parameter.name: body.items}

    ask.send(
        link, (op.name, *spread(fitting(data, lambda each: op.bind(*spread(each))))), request.remaining()
    )
    if op.kind == STREAM:
        await body.beside(lambda: _send_items(tracker, request, ask, kind))
        return None
    return _result(op, await body.beside(ask.result))


async def _input(request: HttpRequest, op: Operation) -> Any:
    """Return the input in a request, as plain data; MISSING if there is none."""
    body, data = await request.whole_body(), MISSING
    if body:
        check_content_type(request.headers)
        data = read_json(body)
        request.weight = len(body) + weight(body)
    query: bytes = request.scope["query_string"]
    return with_parameters(op, data, query) if query else data


def _post(
    tracker: HttpRequestTracker,
    ask: AgentRequest,
    request: HttpRequest,
    link: AgentOrPool,
    op: Operation,
    data: Any,
) -> None:
    """Post the request. Valid input takes few steps; other input raises an error that names the mistake."""
    remaining = request.remaining()
    ask.key = _key(tracker, request, link)
    if isinstance(link, Slot):
        args = op.taken(data)
        if args is None:
            args = _bound(op, data)
        if args is not None:
            ask.send_good(link, op, args, remaining)
            return
    ask.send(link, (op.name, *_spread(representative(link), op, data)), remaining)


def _key(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> RequestKey | None:
    """Return the idempotency key in a request; None if there is none. Raises InvalidInput, NotAllowed."""
    key = request.key()
    if key is None:
        return None
    if not isinstance(link, Slot):
        raise NotAllowed(f"{link.path!r} is a pool, and a key is for one agent")
    return tracker.context.key_of(key, request.principal, request.scope["headers"])


def _bound(op: Operation, data: Any) -> tuple[Any, ...] | None:
    """Return the arguments of an input; None if it is invalid. As in JSON Schema, 4.0 is an integer too."""
    if op.whole and data is MISSING:
        return None
    given = None if data is MISSING else data
    for each in (given, with_integers(given)):
        try:
            return op.bind(*op.spread(each, tolerant=True))
        except InvalidInput:
            pass
    return None


def _spread(one: Slot, op: Operation, data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not op.whole:
        return one.spread(op, None if data is MISSING else data, tolerant=True)
    return (() if data is MISSING else (data,)), {}


def _result(op: Operation, result: Any) -> Response:
    if result is None and op.result_shape is not None and op.result_shape.type in (None, type(None)):
        return no_content()
    return JsonResponse(written_value(result), UNSTORED)


# ---- streams: actions that have many items


async def _send_items(
    tracker: HttpRequestTracker, request: HttpRequest, ask: AgentRequest, kind: str
) -> None:
    """Send the items of a run as they arrive, and then the outcome of the run.

    Raises an error that comes before any item; a later error is sent as the end of the stream. If the task is
    cancelled, or the client leaves, the request is withdrawn.
    """
    questions = _Questions(ask, tells=ASKS in request.preferences())
    heartbeat = tracker.options.heartbeat_seconds
    try:
        if not (ask.done or ask.items):
            await _wait(ask, heartbeat)
        if ask.done and not ask.items:
            ask.outcome()
        if kind == EVENTS:
            items = _items(ask, questions, heartbeat)
            await request.send_events(items, lambda: framed(END, _end(tracker, ask)))
        else:
            await request.send_events(_lines(ask), lambda: _last_line(tracker, ask), kind)
    except BaseException:
        ask.left()
        raise


class _Questions:
    """The questions to people on which a run with many items waits, for a client that wants to know."""

    def __init__(self, ask: AgentRequest, *, tells: bool) -> None:
        self.are_new = False
        self._ask = ask
        if tells:
            ask.on_question = self._note

    def _note(self) -> None:
        self.are_new = True
        self._ask.wake()

    def told(self) -> bytes:
        """Return the event for a new question or for the end of one, empty if there is nothing new."""
        are_new, self.are_new = self.are_new, False
        return framed(WAITS, _encode(self._ask.question)) if are_new else b""


async def _items(ask: AgentRequest, questions: _Questions, heartbeat: float) -> AsyncGenerator[bytes, None]:
    while ask.items or not ask.done:
        body = b"".join([questions.told(), *[framed(ITEM, written_value(item)) for item in ask.taken()]])
        yield body or b":\n\n"
        if not (ask.items or ask.done or questions.are_new):
            await _wait(ask, heartbeat)


async def _lines(ask: AgentRequest) -> AsyncGenerator[bytes, None]:
    while ask.items or not ask.done:
        yield b"".join([written_value(item) + b"\n" for item in ask.taken()])
        if not (ask.items or ask.done):
            await ask.something()


def _last_line(tracker: HttpRequestTracker, ask: AgentRequest) -> bytes:
    """Return the line that follows the items: the error of the run, or nothing if all went well."""
    return b"" if ask.error is None else b'{"%s":%s}\n' % (END.encode(), _end(tracker, ask))


def _end(tracker: HttpRequestTracker, ask: AgentRequest) -> bytes:
    if ask.error is None:
        return b"null"
    error = ask.error
    if not isinstance(error, LmosActorsError):
        tracker.context.failed(error)
        error = LocalProtocolError("the answer could not be made")
    return written(problem_data(problem_of(error), tracker.rt.entropy.new_id()))


async def _wait(ask: AgentRequest, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await ask.something()


# ---- runs that are queried later


async def _invoke_until_asked(
    tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool, op: Operation, data: Any
) -> Response:
    """Return the result of a run; or the run's path, if it asks a person and there is room to keep it."""
    ask = tracker.ask(request)
    ask.on_question = ask.wake
    _post(tracker, ask, request, link, op, data)
    try:
        while not ask.done and ask.question is None:
            await ask.something()
    except BaseException:
        ask.left()
        raise
    agent = public_name(link.path)
    with suppress(MailboxFull):
        if not ask.done:
            with tracker.runs.room(request.owner, agent):
                place = _place(tracker, agent, op.name)
                run = tracker.runs.keep(request.owner, agent, op.name, place, ask, request.weight)
            location = (b"location", run.place.encode())
            return JsonResponse(_encode(run.status_data()), UNSTORED, location, status_code=201)
    return _result(op, await ask.result())


async def _invoke_later(
    tracker: HttpRequestTracker,
    request: HttpRequest,
    link: AgentOrPool,
    op: Operation,
    data: Any,
    preferences: Mapping[str, str],
) -> Response:
    """Begin a run and return its path, or its result if it ends while the client prefers to wait."""
    agent, wait = public_name(link.path), request.wait()
    with tracker.runs.room(request.owner, agent):
        ask = tracker.ask(request)
        _post(tracker, ask, request, link, op, data)
        if wait and not ask.done:
            try:
                await _wait(ask, wait)
            except BaseException:
                ask.left()
                raise
        if ask.done:
            return _result(op, ask.outcome())
        run = tracker.runs.keep(
            request.owner, agent, op.name, _place(tracker, agent, op.name), ask, request.weight
        )
    applied = (APPLIED,) if "respond-async" in preferences else ()
    location = (b"location", run.place.encode())
    return JsonResponse(_encode(run.status_data()), UNSTORED, location, *applied, status_code=201)


def _place(tracker: HttpRequestTracker, agent: str, action: str) -> str:
    """Return the path of an action, with the prefix under which this node is reached."""
    return f"{tracker.prefix}/agents/{quote(agent, safe='')}/actions/{quote(action, safe='')}"


def _run(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool | None) -> KeptRun:
    """Return the run at a path; a path with the run's id is valid even when the agent is gone."""
    agent, action = public_name(request.parts[0] if link is None else link.path), request.parts[2]
    if link is None or len(request.parts) == 4:
        return tracker.runs.find(request.owner, agent, action, request.parts[3])
    op = operation_named(link, "action", action, action)
    if op.kind == STREAM or op.streams:
        raise NotAllowed(f"{action!r} of {agent} {_streams(op)} a stream: it has no run to query")
    return tracker.runs.newest(request.owner, agent, action)


def _streams(op: Operation) -> str:
    return "is" if op.kind == STREAM else "takes"


def _status(data: Any) -> Response:
    return JsonResponse(_encode(data), UNSTORED_VARIANT)


async def query(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool | None) -> Response:
    """Return the status of a run; without an id, of the newest run of this action."""
    negotiate(request.headers, (JSON,))
    return _status(_run(tracker, request, link).status_data())


async def cancel(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool | None) -> Response:
    """Cancel a run; a run that has ended is not changed."""
    _run(tracker, request, link).ask.cancel("cancelled over HTTP")
    return no_content()


async def query_all(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response:
    """Return the status of all runs, by action, the newest first."""
    negotiate(request.headers, (JSON,))
    found: dict[str, list[Any]] = {}
    for run in tracker.runs.of(request.owner, public_name(link.path)):
        found.setdefault(run.action, []).append(run.status_data())
    return _status(found)
