"""Requests from the wire as operations of an agent: the key of the operation, and its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from msgspec import UNSET

from lmos_actors.actors import ALL_EVENTS, PoolLink, Slot, event_key, property_key
from lmos_actors.errors import InvalidInput, NotAllowed, NotFound

from ..exposure._exposure import EXITED
from ._server_inputs import inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Operation
    from lmos_actors.protocol import lmos
    from lmos_actors.security import Verb

READ_ALL: Final = "?"
WRITE_MANY: Final = "="
OBSERVES: Final = "+?"
SUBSCRIBES: Final = "+!"

AgentOrPool: TypeAlias = Slot | PoolLink
RequestedOperation: TypeAlias = "tuple[str, tuple[Any, ...], Mapping[str, Any]]"
"""The key of an operation, and its arguments as plain data."""

PERMISSIONS: Final[dict[str, Verb]] = {
    "read": "read",
    "read_all": "read",
    "read_many": "read",
    "observe": "read",
    "write": "write",
    "write_many": "write",
    "write_all": "write",
    "invoke": "invoke",
    "subscribe": "subscribe",
    "subscribe_all": "subscribe",
}
"""The permission each verb needs; a peer that may invoke an action may query and cancel its runs."""

_NO_NAMES: Final[dict[str, Any]] = {}


def requested_operation(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    """Return the operation that a request asks for.

    Raises NotFound, NotAllowed, InvalidInput, AgentUnavailable.
    """
    return _WISHES[asked.verb.word](asked, link)


def representative(link: AgentOrPool) -> Slot:
    """Return the agent itself, or one member of a pool, as all members have the same operations.

    Raises AgentUnavailable, NotFound.
    """
    one = link if isinstance(link, Slot) else next(iter(link.members), None)
    if one is None and isinstance(link, PoolLink):
        raise link.no_member()
    if one is None or not one.table:
        raise one.closed_error() if one is not None else NotFound("agent", link.path)
    return one


def action_requested(link: AgentOrPool, name: str, data: Any) -> tuple[Operation, RequestedOperation]:
    """Return an action, and the request for it with an input of plain data.

    Raises NotFound, NotAllowed, InvalidInput, AgentUnavailable.
    """
    op = operation_named(link, "action", name, name)
    if op.streams:
        raise NotAllowed(f"{name!r} of {link.path} takes a stream, which a message cannot carry")
    if op.whole:
        return op, (op.name, (data,), _NO_NAMES)
    return op, (op.name, *representative(link).spread(op, data, tolerant=True))


def check_keyed(asked: lmos.IncomingRequest, link: AgentOrPool) -> None:
    """Refuse a key for a request that cannot have one. Raises InvalidInput, NotAllowed."""
    if asked.tell is not None:
        raise InvalidInput("a one-way message has no answer to be kept, and so no key", "$.key")
    if not isinstance(link, Slot):
        raise NotAllowed(f"{link.path!r} is a pool, and a key is for one agent")


def operation_named(link: AgentOrPool, kind: str, key: str, name: str) -> Operation:
    """Return the operation with a key and a name. Raises NotFound, NotAllowed, AgentUnavailable."""
    # most are for an agent that is there
    one = link if isinstance(link, Slot) and link.table else representative(link)
    op = one.table.get(key)
    if op is None or op.name != name or not name:
        _refuse(one, kind, name)
    return op


def _refuse(one: Slot, kind: str, name: str) -> NoReturn:
    """Raise NotFound for an affordance that does not exist, NotAllowed for one of another kind."""
    if one.gone:
        raise one.closed_error()
    every = [op for op in one.table.values() if op.name != "*"]
    for op in every:
        if op.name == name:
            raise NotAllowed(f"{name!r} of {one.path} is {op.sort}: {op.verb} it")
    known = [op.name for op in every if op.sort.endswith(kind)]
    raise NotFound(kind, name, where=one.path, known=known)


# ---- by verb


def _read(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    key = property_key(asked.name)
    operation_named(link, "property", key, asked.name)
    return key, (), _NO_NAMES


def _read_all(_: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    representative(link)
    return READ_ALL, (), _NO_NAMES


def _read_many(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    for name in dict.fromkeys(asked.message.properties):
        operation_named(link, "property", property_key(name), name)
    return _read_all(asked, link)


def _write(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    key = f"{WRITE_MANY}{asked.name}"
    operation_named(link, "property", key, asked.name)
    return key, (asked.message.data,), _NO_NAMES


def _write_many(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    representative(link)
    return WRITE_MANY, (asked.message.data,), _NO_NAMES


def _invoke(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    message = asked.message
    op = operation_named(link, "action", message.action, message.action)
    data, one = None if message.input is UNSET else message.input, representative(link)
    args, kwargs = one.spread(op, data, tolerant=True)
    if asked.streams or op.streams:
        kwargs = {**kwargs, **inputs_of(one.rt.timers, op, asked.streams or {})}
    return message.action, args, kwargs


def _observe(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    if isinstance(link, PoolLink):
        link.choose(READ_ALL, (), _NO_NAMES)  # raises NotAllowed: a pool has no properties of its own
    key = f"+{property_key(asked.name)}"
    operation_named(link, "property", key, asked.name)
    return key, (), _NO_NAMES


def _subscribe(asked: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    if asked.name == EXITED:
        return EXITED, (), _NO_NAMES
    key = f"+{event_key(asked.name)}"
    operation_named(link, "event", key, asked.name)
    return key, (), _NO_NAMES


def _subscribe_all(_: lmos.IncomingRequest, link: AgentOrPool) -> RequestedOperation:
    representative(link)
    return f"+{ALL_EVENTS}", (), _NO_NAMES


_WISHES: Final[dict[str, Callable[[lmos.IncomingRequest, AgentOrPool], RequestedOperation]]] = {
    "read": _read,
    "read_all": _read_all,
    "read_many": _read_many,
    "write": _write,
    "write_many": _write_many,
    "write_all": _write_many,
    "invoke": _invoke,
    "observe": _observe,
    "subscribe": _subscribe,
    "subscribe_all": _subscribe_all,
}
