"""Traces through a relay: private members of a message carry the trace of its sender.

An agent has a span for each message or question. A hub that records spans adds a span for each message that
it passes on, and names this span in the message.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from lmos_actors.actors import RUNTIME, Carried, calling, outgoing_trace
from lmos_actors.errors import ActionFailed
from lmos_actors.protocol.relay import HubRefusal, text_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager

    from lmos_actors.actors import Edge, Runtime, TraceMembers
    from lmos_actors.protocol.relay import Members, RelayMessage

WAY: Final = "relay"
"""The binding's name in metrics and traces."""

COUNTED: Final = ("answer", "cancel", "data", "discover", "discovery", "question", "thought", "waiting")
"""The message types that a hub counts by name; all others are `other`."""


def trace_of(message: RelayMessage) -> tuple[str | None, str | None]:
    """Return the `traceparent` and `tracestate` of a message; values that are not texts become None."""
    found = (message.members.get("traceparent"), message.members.get("tracestate"))
    parent, state = (value if isinstance(value, str) else None for value in found)
    return parent, state


def carried(message: RelayMessage) -> AbstractContextManager[None]:
    """Return a context manager in which everything that an agent emits or starts joins a message's trace.

    The block must not await.
    """
    rt = RUNTIME.get()
    return nullcontext() if rt is None else Carried(rt, *trace_of(message))


def trace_of_answer(rt: Runtime, message: RelayMessage) -> dict[str, Any]:
    """Return the private members that put an answer into the trace of its question."""
    with Carried(rt, *trace_of(message)):
        return {**outgoing_trace(rt)}


def trace_of_now() -> Mapping[str, Any]:
    """Return the current trace as private members; empty outside a node."""
    rt = RUNTIME.get()
    return {} if rt is None else outgoing_trace(rt)


def going_out(
    doing: str, type: str | None, members: Mapping[str, Any] | None
) -> AbstractContextManager[Mapping[str, Any]]:
    """Record the sending of a message as a span, and yield its trace; `doing` is `say` or `ask`.

    If `members` already contain a trace, as in an answer to another agent, there is no separate span.
    """
    if members and "traceparent" in members:
        return nullcontext({})
    type = type or "message"
    return calling(("relay", type, doing, WAY), f"{doing} {type}", _attributes(doing))


@contextmanager
def passing(edge: Edge, members: Members) -> Generator[Members]:
    """Record the passing on of a message by the hub as a span, and yield the members to send with it."""
    type = text_of(members, "type")
    counted = type if type in COUNTED else "other"
    trace = text_of(members, "traceparent"), text_of(members, "tracestate")
    going = edge.passes(
        ("relay", counted, "pass on", WAY), f"pass on {counted}", _attributes("pass on"), *trace
    )
    with going as span:
        try:
            yield {**members, **_written(span)}
        except HubRefusal as refusal:
            going.ended(ActionFailed({"code": refusal.code, "message": str(refusal)}))
            raise


def _written(span: TraceMembers) -> Members:
    """Return the private member that names a span, empty if there is no span.

    The sender's `tracestate` is not changed.
    """
    parent = span.get("traceparent")
    return {} if parent is None else {"traceparent": Raw(msgspec.json.encode(parent))}


def _attributes(doing: str) -> dict[str, Any]:
    return {
        "messaging.system": "agentrelay",
        "messaging.operation.type": "send",
        "messaging.operation.name": doing,
        "lmos.way": WAY,
    }
