"""A slot whose messages hand on the trace that they were sent in: used where a node records spans.

Where nothing is traced, as in what agents do of their own accord, it is a `Slot` and a look at whether
something is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import checkpoint_if_cancelled, enable_ki_protection

from .._trace_context import handed_mark
from ..messages._gates import BUSY
from ..messages._mailbox import QUEUED, Ask, Tell
from ..messages._operation import ASKING, CHECKED, named
from ._slot import Slot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..messages._mailbox import Envelope, SelfMessage
    from ..messages._operation import Operation
    from ..refs._link import Attempt


class PropagatingSlot(Slot):
    """A slot that keeps with each message the trace it was sent in."""

    __slots__ = ()

    traced = True

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
        """As `Slot.ask`; through the mailbox where there is a trace to hand on."""
        if handed_mark(self.rt) is None:
            return await super().ask(key, args, kwargs, seconds)
        op = self.operation(key)
        args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        return await self.ask_queued(Ask(self, op, args, self.sender(), None), seconds)

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """As `Slot.tell_nowait`."""
        if handed_mark(self.rt) is None:
            super().tell_nowait(key, args, kwargs)
            return
        op = self.operation(key)
        self.post_or_block(op, self.bound(op, args, kwargs), self.sender())

    def seat(self, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        """As `Slot.seat`."""
        if handed_mark(self.rt) is None:
            super().seat(op, args, sender)
        else:
            self.post(Tell(self, op, args, sender))

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """As `Slot.send_from`."""
        op, mark = self.table.get(key), handed_mark(self.rt)
        if mark is None or op is None:
            super().send_from(sender, key, args, kwargs)
            return
        if kwargs is not CHECKED:
            args = self.bound(op, args, kwargs)
        if sender is self or op.kind or self.accepted - self.begun >= self.size:
            self.send_slowly(sender, op, args)
            return
        tell = Tell(self, op, args, sender)
        tell.trace = mark
        self.accepted += 1
        tell.phase = QUEUED
        if self.gate:
            self.put(tell)
        else:
            self.gate = BUSY
            self.queue = [tell]
            self.rt.schedule(self)

    def own(self, op: Operation, args: tuple[Any, ...]) -> SelfMessage:
        """As `Slot.own`, in the trace of what runs now."""
        made = super().own(op, args)
        made.trace = handed_mark(self.rt)
        return made

    def post(self, envelope: Envelope) -> None:
        """As `Slot.post`, in the trace of what runs now."""
        if envelope.trace is None:
            envelope.trace = handed_mark(self.rt)
        super().post(envelope)
