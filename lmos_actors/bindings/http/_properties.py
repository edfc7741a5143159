"""Properties over HTTP: one or all of them, read, written, observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import trio

from lmos_actors.actors import TURN, Operation, PoolLink, Slot, property_key
from lmos_actors.errors import InvalidInput, NotAllowed
from lmos_actors.supervision import class_at

from ..exposure._exposure import public_name
from ..lmos._server_requests import READ_ALL, WRITE_MANY, operation_named, representative
from ._accept import check_taken, has_tag, header_values
from ._answers import EMPTY, NO_CACHE, VARY, Answer, PreconditionFailed, value
from ._listening import EventStream, polled
from ._request_tracker import brought
from ._values import fitting, tag_of, written_members, written_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Property

    from ..lmos._server_requests import AgentOrPool
    from ._request_tracker import HttpRequestTracker
    from ._requests import WebRequest

JSON: Final = ("application/json",)
EITHER: Final = ("application/json", "text/event-stream")


async def read(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer:
    """Read a property."""
    key = property_key(request.parts[2])
    operation_named(link, "property", key, request.parts[2])
    check_taken(request.headers, JSON)
    return _tagged(request, written_value(await tracker.outcome(request, link, key)))


async def read_all(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer | None:
    """Read all properties, or send all changes to a client that accepts a stream of events."""
    representative(link)
    if check_taken(request.headers, EITHER) == EITHER[1]:
        return await _observe_all(tracker, request, link)
    return _tagged(request, written_members(await tracker.outcome(request, link, READ_ALL)))


def _tagged(request: WebRequest, body: bytes) -> Answer:
    tag = tag_of(body)
    if has_tag(request.headers, b"if-none-match", tag):
        return Answer(304, b"", ((b"etag", tag), NO_CACHE, VARY))
    return value(body, (b"etag", tag), NO_CACHE, VARY)


# ---- writing


async def write(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer:
    """Write a property."""
    name = request.parts[2]
    key = f"{WRITE_MANY}{name}"
    op = operation_named(link, "property", key, name)
    if _properties(link)[name].read_only:
        raise NotAllowed(f"property {name!r} of {link.path} is read-only")
    new = fitting(await brought(request), op.take)
    await _written(tracker, request, link, key, new, property_key(name), written_value)
    return EMPTY


async def write_many(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer:
    """Write several properties, all or none."""
    representative(link)
    new = await brought(request)
    if not isinstance(new, dict):
        raise InvalidInput("an object is needed, with a member for each property")
    table, members = representative(link).table, cast("dict[str, Any]", new)
    new = {
        name: fitting(each, table[key].take) if (key := f"{WRITE_MANY}{name}") in table else each
        for name, each in members.items()
    }
    await _written(tracker, request, link, WRITE_MANY, new, READ_ALL, written_members)
    return EMPTY


async def _written(
    tracker: HttpRequestTracker,
    request: WebRequest,
    link: AgentOrPool,
    key: str,
    new: Any,
    reads: str,
    to_json: Callable[[Any], bytes],
) -> None:
    if not (header_values(request.headers, b"if-match") or header_values(request.headers, b"if-none-match")):
        await tracker.outcome(request, link, key, new)
        return
    if request.admission is not None:  # what it asks is also what the value is
        request.admission.check(public_name(link.path), "read", trio.current_time())
    slot = link if isinstance(link, Slot) else link.choose(key, (new,), {})
    conditional = _on_condition(request, slot.operation(key), slot.operation(reads), to_json)
    ask = tracker.ask(request)
    ask.send_operation(slot, conditional, (new,), {}, request.remaining())
    await ask.result()


def _on_condition(
    request: WebRequest, writes: Operation, reads: Operation, to_json: Callable[[Any], bytes]
) -> Operation:
    """Make the operation that looks at the value and writes it, both in one turn."""

    def write_if(agent: Any, new: Any) -> None:
        tag = tag_of(to_json(reads.fn(agent)))
        wanted = not header_values(request.headers, b"if-match") or has_tag(request.headers, b"if-match", tag)
        if not wanted or has_tag(request.headers, b"if-none-match", tag):
            raise PreconditionFailed(f"{writes.label} has another value by now")
        writes.fn(agent, new)

    owner, _, name = writes.label.rpartition(".")
    return Operation(
        verb=writes.verb, name=name, owner=owner, kind=TURN, fn=write_if, params=writes.params, whole=True,
        internal=True,
    )  # fmt: skip


# ---- observing


async def observe(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer | None:
    """Send the changes of a property: by a long poll, or as a stream of events."""
    name = request.parts[2]
    place = property_key(name)
    key = f"+{place}"
    operation_named(link, "property", key, name)
    _check_no_pool(link)
    kind = check_taken(request.headers, EITHER)
    if request.method == "HEAD":
        return Answer(200, b"", ((b"content-type", kind.encode()), VARY))
    with tracker.listening(link, conflate=True) as listening:
        current = await tracker.outcome(request, link, key, listening.sink(place))
        if kind == EITHER[0]:
            return await polled(request, listening, current, observes=True)
        await EventStream(request, listening, tracker.rt.entropy.new_id, tracker.context.failed).run()
    return None


def _check_no_pool(link: AgentOrPool) -> None:
    """A pool has no properties of its own. Raises NotAllowed."""
    if isinstance(link, PoolLink):
        link.choose(READ_ALL, (), {})


async def _observe_all(tracker: HttpRequestTracker, request: WebRequest, link: AgentOrPool) -> Answer | None:
    _check_no_pool(link)
    if request.method == "HEAD":
        return Answer(200, b"", ((b"content-type", b"text/event-stream"), VARY))
    with tracker.listening(link) as listening:
        for name in _observable(representative(link)):
            place = property_key(name)
            await tracker.outcome(request, link, f"+{place}", listening.sink(place, name))
        await EventStream(request, listening, tracker.rt.entropy.new_id, tracker.context.failed).run()
    return None


def _observable(link: Slot) -> list[str]:
    return [name for name, made in _properties(link).items() if made.observable and not made.write_only]


def _properties(link: AgentOrPool) -> Mapping[str, Property[Any]]:
    cls = class_at(link)
    return {} if cls is None else cls.__contract__.properties
