"""Traces through a relay: a message is in the trace of the one who has said it, by private members."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lmos_actors.actors import RUNTIME, Carried, outgoing_trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from lmos_actors.actors import Runtime
    from lmos_actors.protocol.relay import RelayMessage


def trace_of(message: RelayMessage) -> tuple[str | None, str | None]:
    """Return the `traceparent` and the `tracestate` of a message; what is no text is None."""
    found = (message.members.get("traceparent"), message.members.get("tracestate"))
    parent, state = (value if isinstance(value, str) else None for value in found)
    return parent, state


def carried(message: RelayMessage) -> AbstractContextManager[None]:
    """Return a block in which what an agent emits or starts is in the trace of a message.

    The block must not await.
    """
    rt = RUNTIME.get()
    return nullcontext() if rt is None else Carried(rt, *trace_of(message))


def trace_of_answer(rt: Runtime, message: RelayMessage) -> dict[str, Any]:
    """Return the private members by which an answer is in the trace of what it answers."""
    with Carried(rt, *trace_of(message)):
        return {**outgoing_trace(rt)}


def trace_of_now() -> Mapping[str, Any]:
    """Return the trace of what runs now, as private members; empty outside a node."""
    rt = RUNTIME.get()
    return {} if rt is None else outgoing_trace(rt)
