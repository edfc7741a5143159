"""A slot whose messages have a trace: used instead of `Slot` where a node records messages, or their spans.

A node that records neither pays nothing for it. The code is in one class; two subclasses set what differs:

- `TracedSlot` records: no turn runs in the asker's step and no message is a bare tuple, so every message has
  a number, the number of the message it all began with (its trace), and records from `sent` to `answered`.
- `RecordedSlot` is the same in a node that records from its start.
- `PropagatingSlot` records nothing: each message only carries the trace in which it was sent. Where nothing
  is traced, as when agents act of their own accord, it costs no more than a `Slot` and a check for a trace.

A `TracedSlot` has the memory layout of a `Slot`, so an existing slot is turned into one and back by setting
its class (`tap`, `untap`). While the messages of some agents are watched, other agents cost no more than
before. Messages that are already on their way then are finished as plain messages, without records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.errors import AgentError

from .._trace_context import current_mark, handed_mark, mark_within
from ..messages._gates import BUSY
from ..messages._mailbox import QUEUED, Ask, Tell
from ..messages._operation import ASKING, CHECKED, named
from ..values import conceal_all
from ._slot import Slot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._runtime import Owner, Runtime
    from ..messages._mailbox import Envelope, MailboxOptions, SelfMessage
    from ..messages._operation import Operation
    from ..refs._link import Attempt

_UNSHOWN = ("observe", "subscribe", "subscribe to all")


class TracedSlot(Slot):
    """A slot that reports every message to the node's instrument, if it has one."""

    __slots__ = ()

    traced = True
    records = True
    """Messages are reported to the instrument, and not only handed their trace."""

    @named(ASKING)
    @enable_ki_protection
    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """Ask as `Slot.ask` does, but through the mailbox if the message is recorded or has a trace."""
        if not self.records and handed_mark(self.rt) is None:
            return await super().ask(key, args, kwargs, seconds)
        op = self.operation(key)
        args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        return await self.ask_queued(Ask(self, op, args, self.sender(), None), seconds)

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send a one-way message as `Slot.tell_nowait` does, and keep its trace."""
        if not self.records and handed_mark(self.rt) is None:
            super().tell_nowait(key, args, kwargs)
            return
        op = self.operation(key)
        self.post_or_block(op, self.bound(op, args, kwargs), self.sender())

    def seat(self, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        """Accept a one-way message as `Slot.seat` does, and keep its trace."""
        if not self.records and handed_mark(self.rt) is None:
            super().seat(op, args, sender)
        else:
            self.post(Tell(self, op, args, sender))

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send a one-way message from a turn as `Slot.send_from` does, and keep its trace."""
        op = self.table.get(key)
        if op is None or (not self.records and handed_mark(self.rt) is None):
            super().send_from(sender, key, args, kwargs)
            return
        if kwargs is not CHECKED:
            args = self.bound(op, args, kwargs)
        if sender is self and self.records:
            self.rt.record("sent", self, affordance=op.name, verb="tell", **_origin(self.path, op, args))
        if sender is self or op.kind or self.accepted - self.begun >= self.size:
            self.send_slowly(sender, op, args)
            return
        tell = Tell(self, op, args, sender)
        self._mark(tell)
        self.accepted += 1
        tell.phase = QUEUED
        if self.gate:
            self.put(tell)
        else:  # as `put`, without the call
            self.gate = BUSY
            self.queue = [tell]
            self.rt.schedule(self)

    def own(self, op: Operation, args: tuple[Any, ...]) -> SelfMessage:
        """Make the queue's item as `Slot.own` does, and add the trace of the current code."""
        made = super().own(op, args)
        made.trace = handed_mark(self.rt)
        return made

    def post(self, envelope: Envelope) -> None:
        """Post an envelope as `Slot.post` does, with its trace, and with a record if this slot records."""
        self._mark(envelope)
        try:
            super().post(envelope)
        except AgentError as exc:
            if self.records:
                trace = envelope.trace
                number = trace[0] if trace is not None else None
                self.rt.record("refused", self, id=number, error=type(exc).__name__)
            raise

    def _mark(self, envelope: Envelope) -> None:
        """Set the trace of a message unless it has one already; if this slot records, record the message."""
        rt, mark = self.rt, envelope.trace
        if not self.records:
            if mark is None:
                envelope.trace = handed_mark(rt)
            return
        if mark is None:  # else it came over a wire
            rt.messages = number = rt.messages + 1
            outer = current_mark(rt) if rt.edge is None else handed_mark(rt)
            if outer is None or outer[2] is None:  # as `mark_within`, without the call
                mark = (number, number if outer is None else outer[1], None, None)
            else:
                mark = mark_within(rt, outer, number)
            envelope.trace = mark
        number, trace, _, sender_name = mark
        op, sender = envelope.op, envelope.sender
        verb = "tell" if not op.internal and isinstance(envelope, Tell) else op.verb
        fields: dict[str, object] = {
            "id": number,
            "trace": trace,
            "affordance": op.name,
            "verb": verb,
            "from": sender_name or "user" if sender is None else sender.path or "user",
        }
        args = envelope.args
        if args and op.verb not in _UNSHOWN:
            fields["input"] = _shown(op, args)
        if rt.instrument is not None:
            rt.instrument.record("sent", self.path, fields)

    def note_event(self, name: str, data: Any) -> None:
        """Record an event as `Slot.note_event` does, with the trace of the message that caused it."""
        mark = current_mark(self.rt) if self.records else None
        if mark is None or not mark[1]:
            super().note_event(name, data)
        else:
            self.rt.record("event", self, event=name, data=data, trace=mark[1])


class PropagatingSlot(TracedSlot):
    """A slot that keeps with each message the trace in which it was sent, and records no messages."""

    __slots__ = ()

    records = False


class RecordedSlot(TracedSlot):
    """A traced slot of a node that records from its start; it stores its path, which each record contains."""

    __slots__ = ("path",)

    path: str

    def __init__(
        self, rt: Runtime, owner: Owner, spec: Any, name: str | int, mailbox: MailboxOptions
    ) -> None:
        super().__init__(rt, owner, spec, name, mailbox)
        self.path = super().path  # pyright: ignore[reportIncompatibleMethodOverride]


def tap(slot: Slot) -> bool:
    """Make a slot report its messages from now on; return False for a slot that always does."""
    if isinstance(slot, RecordedSlot):
        return False
    slot.__class__ = TracedSlot
    return True


def untap(slot: Slot) -> None:
    """Undo `tap`."""
    if type(slot) is TracedSlot:
        slot.__class__ = slot.rt.link


def _origin(sender: str | None, op: Operation, args: tuple[Any, ...]) -> dict[str, object]:
    fields: dict[str, object] = {"from": sender or "user"}
    if args and op.verb not in _UNSHOWN:
        fields["input"] = _shown(op, args)
    return fields


def _shown(op: Operation, args: tuple[Any, ...]) -> Any:
    if op.secrecies is not None:
        args = conceal_all(args, op.secrecies)
    if op.whole or op.internal:
        return args[0]
    shown = dict(zip(op.names, args))  # noqa: B905 -- `strict` would take as long as the rest
    for place in op.streams:
        del shown[op.names[place]]
    return shown
