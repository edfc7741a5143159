"""Actions over HTTP: invoked and waited for, or left to run, queried and cancelled (WoT Profile, HTTP Basic).

An invocation is answered by its output, or, if it runs on, by the path of its run. A client that waits and
disconnects cancels the run; one that was given the path has not asked to wait, so its run goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import trio

from lmos_actors._core import weight
from lmos_actors.actors import MISSING, STREAM, Slot
from lmos_actors.errors import InvalidInput, NotAllowed
from lmos_actors.supervision import class_at

from ..exposure._exposure import public_name
from ..lmos._server_requests import operation_named, representative
from ._accept import check_brought, check_taken
from ._answers import EMPTY, NO_STORE, NOSNIFF, TYPE_JSON, VARY, Answer, value, whole_body
from ._streams import streamed
from ._values import read_json, with_integers, with_parameters, written_value

if TYPE_CHECKING:
    from lmos_actors.actors import Operation

    from ..lmos._server_requests import AgentOrPool
    from ._agent_request import AgentRequest
    from ._request_tracker import HttpRequestTracker
    from ._requests import WebRequest
    from ._runs import KeptRun

JSON: Final = ("application/json",)
EVENTS: Final = ("text/event-stream",)
APPLIED: Final = (b"preference-applied", b"respond-async")

_encode: Final = msgspec.json.Encoder().encode


async def invoke(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer | None:
    """Invoke an action."""
    name = request.parts[2]
    op = operation_named(link, "action", name, name)
    if op.kind == STREAM:
        check_taken(request.headers, EVENTS)
        ask = tracker.ask(request)
        ask.items = []
        _post(ask, request, link, op, await _input(request, op))
        await streamed(tracker, request, ask)
        return None
    check_taken(request.headers, JSON)
    data = await _input(request, op)
    preferences = request.preferences()
    if "respond-async" in preferences or _answers_later(link, op):
        return await _invoke_later(tracker, request, link, op, data)
    ask = tracker.ask(request)
    _post(ask, request, link, op, data)
    return _result(op, await ask.result())


async def _input(request: WebRequest, op: Operation) -> Any:
    """Return the input that a request brings, as plain data; MISSING if it brings none."""
    body, data = await whole_body(request.receive), MISSING
    if body:
        check_brought(request.headers)
        data = read_json(body)
        request.weight = len(body) + weight(body)
    return with_parameters(op, data, request.query) if request.query else data


def _post(ask: AgentRequest, request: WebRequest, link: AgentOrPool, op: Operation, data: Any) -> None:
    """Put it into the mailbox: with good input in few steps, else the long way, which says what is wrong."""
    remaining = request.remaining()
    if isinstance(link, Slot):
        args = op.taken(data)
        if args is None:
            args = _bound(op, data)
        if args is not None:
            ask.send_good(link, op, args, remaining)
            return
    ask.send(link, (op.name, *_spread(representative(link), op, data)), remaining)


def _bound(op: Operation, data: Any) -> tuple[Any, ...] | None:
    """Return the arguments that an input stands for, None for one that is no good.

    What is an integer for JSON Schema may stand there as 4.0.
    """
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


def _result(op: Operation, result: Any) -> Answer:
    if result is None and op.result_shape is not None and op.result_shape.type in (None, type(None)):
        return EMPTY
    return value(written_value(result), NO_STORE)


def _answers_later(link: AgentOrPool, op: Operation) -> bool:
    cls = class_at(link)
    handle = None if cls is None else cls.__contract__.actions.get(op.name)
    return handle is not None and handle.options.synchronous is False


# ---- runs that are looked at later


async def _invoke_later(
    tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool, op: Operation, data: Any
) -> Answer:
    """Begin a run and return where it is, after what the consumer prefers to wait; by then it may be over."""
    agent, wait = public_name(link.path), request.wait()
    with tracker.runs.room(request.owner, agent):
        ask = tracker.ask(request)
        _post(ask, request, link, op, data)
        if wait and not ask.done:
            await _wait(ask, wait)
        if ask.done:
            return _result(op, ask.outcome())
        run = tracker.runs.keep(
            request.owner, agent, op.name, _place(tracker, agent, op.name), ask, request.weight
        )
    more = ((b"location", run.place.encode()), *((APPLIED,) if _prefers(request) else ()))
    return Answer(201, _encode(run.status_data()), (TYPE_JSON, NOSNIFF, NO_STORE, *more))


async def _wait(ask: AgentRequest, seconds: float) -> None:
    try:
        with trio.move_on_after(seconds):
            await ask.something()
    except BaseException:
        ask.left()
        raise


def _prefers(request: WebRequest) -> bool:
    return "respond-async" in request.preferences()


def _place(tracker: HttpRequestTracker, agent: str, action: str) -> str:
    """Return the path of an action, with what stands before the node's paths where it is reached."""
    return f"{tracker.prefix}/agents/{quote(agent, safe='')}/actions/{quote(action, safe='')}"


def _run(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool | None) -> KeptRun:
    """Return the run that is meant; by its id it is found though its agent be gone."""
    agent, action = public_name(request.parts[0] if link is None else link.path), request.parts[2]
    if link is None or len(request.parts) == 4:
        return tracker.runs.find(request.owner, agent, action, request.parts[3])
    if operation_named(link, "action", action, action).kind == STREAM:
        raise NotAllowed(f"{action!r} of {agent} gives its items as it runs: there is nothing to look at")
    return tracker.runs.newest(request.owner, agent, action)


async def query(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool | None) -> Answer:
    """Return how a run stands; without an id, the newest of this action."""
    check_taken(request.headers, JSON)
    return value(_encode(_run(tracker, request, link).status_data()), NO_STORE, VARY)


async def cancel(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool | None) -> Answer:
    """Cancel a run; one that has ended stays as it is."""
    _run(tracker, request, link).ask.cancel("cancelled over HTTP")
    return EMPTY


async def query_all(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer:
    """Return how all runs stand, by action, the newest first."""
    check_taken(request.headers, JSON)
    found: dict[str, list[Any]] = {}
    for run in tracker.runs.of(request.owner, public_name(link.path)):
        found.setdefault(run.action, []).append(run.status_data())
    return value(_encode(found), NO_STORE, VARY)
