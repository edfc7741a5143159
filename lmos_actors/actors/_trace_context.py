"""Traces over the wire: the W3C Trace Context that this node sends, and how it reads that of other nodes.

Within the node a message carries a `Mark`: its number in this node's log, and the number of the message that
began the trace. On the wire `traceparent` carries the same: the trace id stands for the number of the first
message, the parent id for the message itself. Ids of this node are made of the numbers and of keys that are
drawn once, so no table has to be kept for them. Ids of other nodes are kept with the message, and for a while
by trace, so that two messages of one trace are in one trace here too.

A request over a link of a simulated network never leaves the node. It carries its number directly, and not as
a text that would be parsed again at once: `outgoing_mark`, `incoming_mark`.

A node without an instrument numbers no messages. It starts no traces, but its runs' requests, near and far,
pass on the trace that came with a request, and OpenTelemetry's current context. `tracestate` has the member
`lmosactors`, the path of the sender.

With an instrument, followed events and timers pass on the trace of the message from which they came.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import trio

from lmos_actors._core import Bounded

from ._runtime import RUNTIME, Runtime
from .messages._invocation import CURRENT
from .messages._mailbox import Origin
from .messages._operation import Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from ._edge import Going, RequestKind, TraceMembers
    from .messages._mailbox import Envelope, Mark

TRACES: Final = "trace context"
"""The prefix of the names of the random streams from which ids of traces are drawn."""

MEMBER: Final = "lmosactors"
LONGEST_STATE: Final = 512
"""Characters of a `tracestate` that are handed on; the standard asks for as many."""

_MOST_MEMBERS: Final = 32
_LONGEST_SENDER: Final = 256
_KEPT: Final = 1 << 16
"""The most traces of others, and messages of this node under way, that are known at a time."""

_REMEMBERED: Final = 1 << 10
"""The most texts of `tracestate` that are remembered: all texts of one agent are the same."""

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x20-\x7e]*)?")
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,256}")
_PLAIN: Final = "/ :;()[]{}!*+@#$&'~|?<>^`\\\""
_HALF: Final = 1 << 63
_WORD: Final = (1 << 64) - 1
_OPENTELEMETRY: Final = "opentelemetry.trace"
_CONTEXTS: Final = trio.lowlevel.RunVar("lmos_actors_trace_contexts", 0)


class TraceContext:
    """The trace ids of one node, and those of other nodes that it has received."""

    def __init__(self, rt: Runtime) -> None:
        # two nodes of one simulated world must not take each other's ids for their own
        count = _CONTEXTS.get()
        _CONTEXTS.set(count + 1)
        self._rt = rt
        self._random = rt.entropy.stream(f"{TRACES} {count}")
        self._key = self._random.getrandbits(64) | _HALF
        self._traces = self._random.getrandbits(64)
        self._spans = self._random.getrandbits(64) | _HALF  # numbers are below it, so that no id is zero
        self._numbers: Bounded[str, int] = Bounded(_KEPT)
        self._sent: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._named: Bounded[str, int] = Bounded(_KEPT)
        self.noticed: Callable[[int], None] | None = None
        """Called with the number of each message that is sent over a wire, in the step of its sender."""
        self.carried: Mark | None = None
        """The mark of the event that is being passed to its far listeners."""

    # ---- ids of this node

    def trace_id(self, number: int) -> str:
        """Return the id of the trace that began with the message `number`."""
        return f"{self._key:016x}{number ^ self._traces:016x}"

    def span_id(self, number: int) -> str:
        """Return the id of the message `number`, or a random id if messages have no numbers."""
        return f"{number ^ self._spans if number else self._random.getrandbits(64) or 1:016x}"

    def message(self, span_id: str) -> int:
        """Return the number of the message with an id."""
        named = self._named.get(span_id)
        return int(span_id, 16) ^ self._spans if named is None else named

    def named(self, trace_id: str, span_id: str, number: int, trace: int) -> None:
        """Note that a message of this node is sent with ids that are not derived from its numbers."""
        self._named[span_id] = number
        self._numbers[trace_id] = trace

    def number_of(self, trace_id: str) -> int | None:
        """Return the number of the message that began a trace, or None if it did not begin in this node."""
        whole = int(trace_id, 16)
        if whole >> 64 != self._key:
            return None
        return (whole & _WORD) ^ self._traces

    def under_way(self, number: int, sender: Any, trace: int) -> None:
        """Note that a message leaves this node, as it may arrive at this same node again."""
        self._sent[number] = sender, trace
        if len(self._sent) > _KEPT:  # as `Bounded`, whose calls would cost as much as the rest
            self._sent.popitem(last=False)
        if self.noticed is not None:
            self.noticed(number)

    def arrived(self, span_id: str) -> tuple[int, Any, int] | None:
        """Return number, sender and trace of a message that this node has sent; at the second call, None."""
        number = self.message(span_id)
        found = self._sent.pop(number, None)
        return None if found is None else (number, *found)

    def has_come(self, number: int) -> bool:
        """Return whether a message of this node has arrived before or is no longer remembered."""
        return self._sent.pop(number, None) is None

    # ---- ids of others

    def trace_in(self, trace_id: str, number: int) -> int:
        """Return the number of the message that began the trace in this node's log.

        If the trace is new in the log, this is `number`; a `number` of 0 means no message of the log.
        """
        own = self.number_of(trace_id)
        if own is not None and 0 < own <= self._rt.messages:
            return own
        known: int = self._numbers.get(trace_id, 0)
        if not known and number:
            self._numbers[trace_id] = number
        return known or number


def trace_context(rt: Runtime) -> TraceContext:
    """Return the trace context of a node, made at its first use."""
    context: TraceContext | None = rt.trace_context
    if context is None:
        context = rt.trace_context = TraceContext(rt)
    return context


# --- what runs now


def current_mark(rt: Runtime) -> Mark | None:
    """Return the mark of the message for which the current code works, or None."""
    context = rt.trace_context
    if context is not None and context.carried is not None:
        mark: Mark | None = context.carried
        return mark
    run = CURRENT.get()
    if run is not None:
        return run.envelope.trace
    if rt.turns.slot is None:
        return None
    current = rt.turns.current
    if isinstance(current, Operation):  # a turn in its asker's step
        asker = trio.lowlevel.current_task().context.get(CURRENT)
        return asker.envelope.trace if asker is not None else None
    return getattr(current, "trace", None)


def mark_within(rt: Runtime, outer: Mark | None, number: int) -> Mark:
    """Return the mark of the message `number` that is sent on behalf of the message with the mark `outer`."""
    if outer is None:
        return (number, number, None, None)
    origin = outer[2]
    trace = outer[1]
    if not trace and origin is not None:  # an event of a trace of others, in which no message came
        trace = trace_context(rt).trace_in(origin.trace_id, number)
    return (number, trace, origin, None)


def _sender(rt: Runtime) -> Any:
    """Return the slot of the agent whose code runs now, or None outside of agents."""
    run = CURRENT.get()
    return rt.turns.slot if run is None else run.slot


# --- OpenTelemetry's


def origin_of(span: Any) -> Origin | None:
    """Return the origin of requests sent in an OpenTelemetry span, or None for a span without a context."""
    found = span.get_span_context()
    if not found.is_valid:
        return None
    state = ",".join(f"{key}={value}" for key, value in found.trace_state.items())
    return Origin(
        f"{found.trace_id:032x}", f"{found.trace_flags & 1:02x}", state, f"{found.span_id:016x}", span
    )


def ambient_mark() -> Mark | None:
    """Return the mark of OpenTelemetry's current span, or None if there is no span."""
    # a program that has not imported it has no span, and should not pay for the import
    current = getattr(sys.modules.get(_OPENTELEMETRY), "get_current_span", None)
    origin = None if current is None else origin_of(current())
    return None if origin is None else (0, 0, origin, None)


# --- out


def outgoing_trace(rt: Runtime) -> TraceMembers:
    """Return the trace context of a request that the current code sends over a wire.

    With an instrument, this call gives the request its number, so it must be made once for each request.
    """
    context = rt.trace_context
    if (  # the common case, outside of any agent, without a call
        rt.instrument is None
        and rt.turns.slot is None
        and (context is None or context.carried is None)
        and CURRENT.get() is None
        and _OPENTELEMETRY not in sys.modules
    ):
        return {}
    outer = current_mark(rt) or ambient_mark()
    if rt.instrument is None:
        return {} if outer is None else _members(rt, outer, 0)
    rt.messages = number = rt.messages + 1
    mark = mark_within(rt, outer, number)
    trace_context(rt).under_way(number, _sender(rt), mark[1])
    return _members(rt, mark, number)


def outgoing_mark(rt: Runtime) -> Any:
    """Do the same as `outgoing_trace`, for a request to an agent of this node; for `incoming_mark`.

    The trace of another node is passed on as text, with everything that the other node has added.
    """
    outer = None if rt.instrument is None else current_mark(rt) or ambient_mark()
    if rt.instrument is None or (outer is not None and (outer[2] is not None or not outer[1])):
        return outgoing_trace(rt)
    rt.messages = number = rt.messages + 1
    run, trace = CURRENT.get(), number if outer is None else outer[1]
    sender = rt.turns.slot if run is None else run.slot  # as `_sender`, without the call
    (rt.trace_context or trace_context(rt)).under_way(number, sender, trace)
    return {"mark": (number, trace, sender)}


def sent_numbers(rt: Runtime, said: TraceMembers) -> tuple[int, int] | None:
    """Return number and trace of a request sent with the members `said`, or None without numbers."""
    mark: Any = said.get("mark")
    if mark is not None:
        return mark[0], mark[1]
    found = None if rt.instrument is None else read_trace(said.get("traceparent"), None)
    if found is None:
        return None
    origin, span_id, _ = found
    number = trace_context(rt).message(span_id)
    return number, trace_context(rt).trace_in(origin.trace_id, number)


def emitted_trace(rt: Runtime) -> TraceMembers:
    """Return the trace context of an event that is emitted now, empty outside a trace; no number is given."""
    outer = current_mark(rt)
    return {} if outer is None else _members(rt, outer, outer[0])


def _members(rt: Runtime, mark: Mark, number: int) -> TraceMembers:
    context, origin = trace_context(rt), mark[2]
    if origin is None:
        parent = f"00-{context.trace_id(mark[1])}-{context.span_id(number)}-01"
        return _said(rt, parent, "")
    span_id = ""  # of the span that the code that runs now works in
    if origin.span is not None or (rt.edge is not None and rt.edge.hands_on):
        span_id = origin.parent
    parent = f"00-{origin.trace_id}-{span_id or context.span_id(number)}-{origin.flags}"
    return _said(rt, parent, origin.state)


def _said(rt: Runtime, parent: str, others: str) -> TraceMembers:
    state = _state(_name_of(_sender(rt)), others)
    return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}


def _name_of(slot: Any) -> str:
    return "user" if slot is None else slot.path or "user"


def recorded_trace(rt: Runtime, said: TraceMembers, span: Origin) -> TraceMembers:
    """Return the trace context of a request that has its own span; `said` is from `outgoing_trace`.

    The id of the span is in `span.parent`.
    """
    numbers = sent_numbers(rt, said)
    if numbers is not None:
        trace_context(rt).named(span.trace_id, span.parent, *numbers)
    return _said(rt, f"00-{span.trace_id}-{span.parent}-{span.flags}", span.state)


@lru_cache(maxsize=_REMEMBERED)
def _state(sender: str, others: str) -> str:
    said = quote(sender, safe=_PLAIN, errors="replace").strip()
    mine = [f"{MEMBER}={said}"] if len(said) <= _LONGEST_SENDER else []
    members = [*mine, *(others.split(",") if others else ())][:_MOST_MEMBERS]
    while members and sum(map(len, members)) + len(members) - 1 > LONGEST_STATE:
        members.pop()
    return ",".join(members)


# --- in


def incoming_trace(
    rt: Runtime, envelope: Envelope, traceparent: str | None, tracestate: str | None = None
) -> None:
    """Set the mark of a request that came over a wire; to be called before the request is posted.

    A request that this node itself has sent keeps its number and trace, and its sender is the agent that sent
    it. An invalid trace context is ignored. Never raises.
    """
    said = read_trace(traceparent, tracestate)
    if rt.instrument is None:
        envelope.trace = None if said is None else (0, 0, said[0], said[2])
        return
    own = None if said is None else trace_context(rt).arrived(said[1])
    if own is not None and said is not None:
        number, envelope.sender, trace = own
        envelope.trace = (number, trace, _foreign(rt, said[0]), None)
        return
    rt.messages = number = rt.messages + 1
    envelope.trace = (number, number, None, None) if said is None else _marked(rt, number, said[0], said[2])


def incoming_mark(rt: Runtime, envelope: Envelope, said: TraceMembers) -> None:
    """Set the mark as `incoming_trace` does, from the result of `outgoing_mark` or `outgoing_trace`."""
    mark: Any = said.get("mark")
    if mark is None:
        incoming_trace(rt, envelope, said.get("traceparent"), said.get("tracestate"))
        return
    number, trace, sender = mark
    if not (rt.trace_context or trace_context(rt)).has_come(number):
        envelope.sender = sender
        envelope.trace = (number, trace, None, None)
        return
    rt.messages = number = rt.messages + 1
    envelope.trace = (number, trace, None, _read_state(_state(_name_of(sender), ""))[1])


def put_in_span(envelope: Envelope, span: Origin) -> None:
    """Make an incoming request run in the span that is recorded for it."""
    number, trace, _, sender = envelope.trace or (0, 0, None, None)
    envelope.trace = (number, trace, span, sender)


def _marked(rt: Runtime, number: int, origin: Origin, sender: str | None) -> Mark:
    """Return the mark of a message from another node; `number` is 0 if it is not in this node's log."""
    trace = trace_context(rt).trace_in(origin.trace_id, number)
    return (number, trace, _foreign(rt, origin), sender)


def _foreign(rt: Runtime, origin: Origin) -> Origin | None:
    """Return the origin, or None for a trace of this node to which no other node has added anything."""
    mine = not origin.state and origin.flags == "01"
    return None if mine and trace_context(rt).number_of(origin.trace_id) is not None else origin


class Carried:
    """A block, `with Carried(rt, traceparent, tracestate):`, that passes a remote event to its listeners.

    The turns of followers belong to the trace of that event.
    """

    __slots__ = ("_before", "_mark", "_rt")

    def __init__(self, rt: Runtime, traceparent: str | None, tracestate: str | None = None) -> None:
        traced = rt.instrument is not None or (rt.edge is not None and rt.edge.hands_on)
        said = read_trace(traceparent, tracestate) if traced else None
        self._rt = rt
        self._mark = None if said is None else _marked(rt, 0, said[0], None)
        self._before: Mark | None = None

    def __enter__(self) -> None:
        if self._mark is not None:
            context = trace_context(self._rt)
            self._before, context.carried = context.carried, self._mark

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mark is not None:
            trace_context(self._rt).carried = self._before


def read_trace(parent: str | None, state: str | None) -> tuple[Origin, str, str | None] | None:
    """Return the trace, the message's id, and the named sender from the two members of a message.

    Return None if the members are no trace context.
    """
    found = None if parent is None or len(parent) > LONGEST_STATE else _PARENT.fullmatch(parent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    others, sender = _read_state(state)
    return Origin(trace_id, "01" if int(flags, 16) & 1 else "00", others, span_id), span_id, sender


@lru_cache(maxsize=_REMEMBERED)
def _read_state(state: str | None) -> tuple[str, str | None]:
    """Split a `tracestate` into the members of others and the path in our own; "" and None where missing."""
    if state is None or len(state) > 2 * LONGEST_STATE:
        return "", None
    members = [member.strip(" \t") for member in state.split(",")]
    members = [member for member in members if member]
    if len(members) > _MOST_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return "", None
    others = [member for member in members if not member.startswith(f"{MEMBER}=")]
    mine = [member for member in members if member.startswith(f"{MEMBER}=")]
    sender = unquote(mine[0].partition("=")[2], errors="replace") if mine else None
    return ",".join(others), sender or None


class _Unseen:
    """An outgoing request that is neither measured nor traced."""

    __slots__ = ("trace",)

    def __init__(self, trace: TraceMembers) -> None:
        self.trace = trace

    def ended(self, error: BaseException | None, /) -> None:
        pass

    def __enter__(self) -> TraceMembers:
        return self.trace

    def __exit__(self, *_: object) -> None:
        pass


def handed_mark(rt: Runtime) -> Mark | None:
    """Return the mark of a message that the current code sends near, where spans are recorded."""
    mark = current_mark(rt)
    return mark if rt.edge is None else rt.edge.mark(mark)


def going_out(rt: Runtime, op: Operation, path: str, way: str) -> Going:
    """Observe a request that the current code sends; to be called once for each request.

    `path` is the path of the agent, `way` the protocol: `lmos` or `http`.
    """
    return _Unseen(outgoing_trace(rt)) if rt.edge is None else rt.edge.goes(op, path, way)


def calling(kind: RequestKind, name: str, attributes: Mapping[str, Any]) -> Going:
    """Observe a request that the current code, of an agent or not, sends to something that is no known agent.

    `kind` is what the request is counted as; `name` and `attributes` are for its span.
    """
    rt = RUNTIME.get()
    if rt is not None:
        return _Unseen(outgoing_trace(rt)) if rt.edge is None else rt.edge.calls(kind, name, attributes)
    mark = ambient_mark()
    return _Unseen({} if mark is None or mark[2] is None else span_members(mark[2]))


def span_members(span: Origin) -> TraceMembers:
    """Return the trace context for a request that is sent in a span."""
    parent = f"00-{span.trace_id}-{span.parent}-{span.flags}"
    return {"traceparent": parent, "tracestate": span.state} if span.state else {"traceparent": parent}
