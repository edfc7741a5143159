"""Properties over HTTP: one or all of them, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio
from starlette.responses import Response

from lmos_actors.actors import TURN, Operation, Slot, property_key
from lmos_actors.errors import InvalidInput, NotAllowed

from ..exposure._exposure import public_name
from ..lmos._server_requests import READ_ALL, WRITE_MANY, operation_named, representative
from ._events import observe_all, properties_of
from ._requests import check_content_type, has_tag, negotiate
from ._responses import CURRENT, EVENTS, JSON, NO_CACHE, VARY, JsonResponse, PreconditionFailed, no_content
from ._values import fitting, read_json, tag_of, written_members, written_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..lmos._server_requests import AgentOrPool
    from ._request_tracker import HttpRequestTracker
    from ._requests import HttpRequest


async def read(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response:
    """Return the value of a property, or 304 if the client has it already."""
    key = property_key(request.parts[2])
    operation_named(link, "property", key, request.parts[2])
    negotiate(request.headers, (JSON,))
    return _tagged(request, written_value(await tracker.outcome(request, link, key)))


async def read_all(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response | None:
    """Return the values of all properties; to a client that accepts a stream of events, send all changes."""
    representative(link)
    if negotiate(request.headers, (JSON, EVENTS)) == EVENTS:
        return await observe_all(tracker, request, link)
    return _tagged(request, written_members(await tracker.outcome(request, link, READ_ALL)))


def _tagged(request: HttpRequest, body: bytes) -> Response:
    tag = tag_of(body)
    if b"if-none-match" in request.header_names and has_tag(request.headers, "if-none-match", tag):
        return Response(None, 304, {"etag": tag, **NO_CACHE, **VARY})
    return JsonResponse(body, CURRENT, (b"etag", tag.encode()))


# ---- writing


async def write(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response:
    """Set a property to the value in the request."""
    name = request.parts[2]
    key = f"{WRITE_MANY}{name}"
    op = operation_named(link, "property", key, name)
    if properties_of(link)[name].read_only:
        raise NotAllowed(f"property {name!r} of {link.path} is read-only")
    new = fitting(await _new_value(request), op.take)
    await _written(tracker, request, link, key, new, property_key(name), written_value)
    return no_content()


async def write_many(tracker: HttpRequestTracker, request: HttpRequest, link: AgentOrPool) -> Response:
    """Set several properties to the values in the request, all or none."""
    representative(link)
    new = await _new_value(request)
    if not isinstance(new, dict):
        raise InvalidInput("an object is needed, with a member for each property")
    table, members = representative(link).table, cast("dict[str, Any]", new)
    new = {
        name: fitting(each, table[key].take) if (key := f"{WRITE_MANY}{name}") in table else each
        for name, each in members.items()
    }
    await _written(tracker, request, link, WRITE_MANY, new, READ_ALL, written_members)
    return no_content()


async def _new_value(request: HttpRequest) -> Any:
    """Return the new value in a request. Raises HttpError 415, InvalidInput, ClientDisconnect."""
    body = await request.whole_body()
    if body:
        check_content_type(request.headers)
    return read_json(body)


async def _written(
    tracker: HttpRequestTracker,
    request: HttpRequest,
    link: AgentOrPool,
    key: str,
    new: Any,
    reads: str,
    to_json: Callable[[Any], bytes],
) -> None:
    if not ("if-match" in request.headers or "if-none-match" in request.headers):
        await tracker.outcome(request, link, key, new)
        return
    if request.admission is not None:  # the condition also tells what the value is
        request.admission.check(public_name(link.path), "read", trio.current_time())
    slot = link if isinstance(link, Slot) else link.choose(key, (new,), {})
    conditional = _on_condition(request, slot.operation(key), slot.operation(reads), to_json)
    ask = tracker.ask(request)
    ask.send_operation(slot, conditional, (new,), {}, request.remaining())
    await ask.result()


def _on_condition(
    request: HttpRequest, writes: Operation, reads: Operation, to_json: Callable[[Any], bytes]
) -> Operation:
    """Return an operation that checks the conditions of a request and writes the value, in one turn."""

    def write_if(agent: Any, new: Any) -> None:
        tag = tag_of(to_json(reads.fn(agent)))
        headers = request.headers
        wanted = "if-match" not in headers or has_tag(headers, "if-match", tag)
        if not wanted or has_tag(headers, "if-none-match", tag):
            raise PreconditionFailed(f"{writes.label} has another value by now")
        writes.fn(agent, new)

    owner, _, name = writes.label.rpartition(".")
    return Operation(
        verb=writes.verb, name=name, owner=owner, kind=TURN, fn=write_if, params=writes.params, whole=True,
        internal=True,
    )  # fmt: skip
