"""The verbs of senders: asking, telling, sending from a turn.

The hot path of the package. Two verbs make most of it: `ask` of an idle agent runs the turn in the asker's
own step, and `tell_nowait` appends a tuple. Everything but the common case goes to a method of its own, so
that the common one stays short. The short paths are repeated in `ask`, `ask_within`, `tell_nowait` and
`send_from` on purpose: sharing them would cost a call a message.

How to read a condition: `gate` is zero only for an idle agent (`IDLE`), `leave_tally()` turns the gate
`TALLIED` into `IDLE`, `op.kind` is zero only for a plain turn, and `accepted - begun` is the number of seats
taken. `size` is -1 while the mailbox is closed, so one comparison finds both a full mailbox and a closed one.

`turns.budget` counts down over all askers: one that spends it makes a checkpoint, so that a task that only
asks idle agents cannot keep the loop to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    wait_task_rescheduled,
)

from lmos_actors.errors import AgentUnavailable, InvalidInput, MailboxFull

from ._gates import BUSY, DRAINING, IDLE, QUIET
from ._invocation import CURRENT
from ._mailbox import DONE, OUT_SEATS, OWN_SEATS, PARKED, Ask, OutgoingTell, SelfMessage, Stashed, Tell
from ._operation import ASKING, CHECKED, named
from ._runtime import BUDGET
from ._slot_mailbox import SlotMailbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._operation import Operation


class SlotRequests(SlotMailbox):
    """A slot's mailbox, as those see it who send to it."""

    __slots__ = ()

    traced = False
    """Every message is recorded, so no turn runs in the asker's step; see `_traced_link.py`."""

    # ---- asking

    @named(ASKING)
    @enable_ki_protection
    async def ask(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an operation carried out and return its value; the arguments are checked first.

        An idle agent's turn runs here, in the asker's step: no task switch, and no checkpoint after it, as a
        call that had its effect returns its value. Raises an `AgentError`, or
        `trio.Cancelled`: then the run is cancelled.
        """
        try:
            op = self.table[key]
        except KeyError:
            raise self.unknown(key) from None
        if kwargs or len(args) != 1:
            if kwargs or args or op.params:
                args = self.bound(op, args, kwargs)
        else:
            try:
                value = op.take(args[0])
                if value is not args[0]:
                    args = (value,)
            except InvalidInput:
                args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        turns = self.turns
        budget = turns.budget = turns.budget - 1
        if budget < 0:
            await self.yield_to_others()
        if (self.gate and not self.leave_tally()) or op.kind:
            return await self.ask_queued(Ask(self, op, args, self.sender(), None), None)
        try:
            return self.run_inline(op, args)
        except Stashed:
            pass  # left before the waiting: what comes of it has nothing to do with this exception
        return await self.ask_queued(Ask(self, op, args, self.sender(), None), None, aside=True)

    def run_inline(self, op: Operation, args: tuple[Any, ...]) -> Any:
        """Run a turn of the idle agent now, in the caller's step."""
        turns = self.turns
        self.gate = BUSY
        turns.slot = self
        turns.current = op
        ctx = self.ctx
        if ctx is None:
            ctx = self.context()
        try:
            if len(args) == 1:  # a star costs as much as the call
                value = ctx.run(op.fn, self.agent, args[0])
            else:
                value = ctx.run(op.fn, self.agent, *args)
            try:
                value = op.give(value)
            except InvalidInput as exc:
                raise op.wrong_result(exc) from None
        except BaseException as exc:
            turns.slot = None
            raise self.inline_failed(exc, op, args) from None
        turns.slot = None
        self.inline += 1
        if turns.leave:
            turns.leave = False
            self.after_turn()
        elif self.queue:
            self.rt.schedule(self)
        else:
            self.gate = IDLE
        return value

    async def yield_to_others(self) -> None:
        """Let other tasks run, now that the budget is spent."""
        await checkpoint()
        self.turns.budget = BUDGET
        wake = self.rt.wake_watchdog
        if wake is not None:
            wake()

    async def ask_queued(self, ask: Ask, seconds: float | None, *, aside: bool = False) -> Any:
        """Post an ask and wait for its answer; `aside`: the agent has put it aside already."""
        if aside:
            self.stash_inline_ask(ask)
        else:
            self.post(ask)
        if ask.phase == DONE:  # the new message was dropped
            return self._outcome(ask)
        ask.task = current_task()
        if seconds is not None:
            self.rt.deadlines.add(ask, seconds)

        def abort(_: object) -> Abort:
            ask.task = None
            return Abort.SUCCEEDED

        try:
            await wait_task_rescheduled(abort)
        except BaseException:
            self.withdraw(ask)
            raise
        finally:
            if ask.bucket is not None:
                self.rt.deadlines.forget(ask)
        return self._outcome(ask)

    @staticmethod
    def _outcome(ask: Ask) -> Any:
        if ask.error is not None:
            try:
                raise ask.error
            finally:
                ask.error = None  # no cycle through the traceback
        return ask.value

    @named(ASKING)
    @enable_ki_protection
    async def ask_within(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> Any:
        """As `ask`, with a deadline `seconds` from now; the node sweeps deadlines every 10 ms."""
        op = self.operation(key)
        args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        turns = self.turns
        turns.budget -= 1
        if turns.budget < 0:
            await self.yield_to_others()
        if (self.gate and not self.leave_tally()) or op.kind:
            return await self.ask_queued(Ask(self, op, args, self.sender(), None), seconds)
        try:
            return self.run_inline(op, args)
        except Stashed:
            pass  # as in `ask`
        return await self.ask_queued(Ask(self, op, args, self.sender(), None), seconds, aside=True)

    # ---- telling

    @enable_ki_protection
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send one way. Raises `trio.WouldBlock` where `tell` would wait."""
        try:
            op = self.table[key]
        except KeyError:
            raise self.unknown(key) from None
        if kwargs or len(args) != 1:
            args = self.bound(op, args, kwargs)
        else:
            try:
                value = op.take(args[0])
                if value is not args[0]:
                    args = (value,)
            except InvalidInput:
                args = self.bound(op, args, kwargs)
        run = CURRENT.get()
        if run is None:
            sender = self.turns.slot
        else:
            sender = run.slot
            if run.envelope.trace is not None:  # a tuple has no place for it
                self.post_or_block(op, args, sender)
                return
        if self.accepted - self.begun >= self.size or op.kind:
            self.post_or_block(op, args, sender)
            return
        self.accepted += 1
        if self.queue:
            self.queue.append((op, args, sender))
            return
        self.queue = [(op, args, sender)]
        if not self.gate or self.leave_tally():
            self.gate = BUSY
            self.rt.schedule(self)
        elif self.gate == QUIET:
            self.resume()

    @named("ref.tell")
    @enable_ki_protection
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send one way; under `wait`, wait for a seat in a full mailbox."""
        op = self.operation(key)
        args = self.bound(op, args, kwargs)
        await checkpoint_if_cancelled()
        run = CURRENT.get()
        sender = self.turns.slot if run is None else run.slot
        plain = not op.kind and (run is None or run.envelope.trace is None)
        if plain and self.accepted - self.begun < self.size:
            self.seat(op, args, sender)
        else:
            tell = Tell(self, op, args, sender)
            self.post(tell)
            if tell.phase == PARKED:
                await self._parked(tell)
                return
        turns = self.turns
        turns.budget -= 1
        if turns.budget < 0:
            await self.yield_to_others()

    def seat(self, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        """Accept a one-way message to a turn, for which there is a seat."""
        self.accepted += 1
        self.put((op, args, sender))

    async def _parked(self, tell: Tell) -> None:
        tell.task = current_task()

        def abort(_: object) -> Abort:
            tell.task = None
            self.withdraw(tell)  # at once: a seat that becomes free now is the next sender's
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        if tell.lost is not None:
            raise tell.lost

    @enable_ki_protection
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Send one way from an agent's turn: what finds no seat holds the agent back.

        So `def` agents feel back-pressure without awaiting: the sender gets no turn until its message has a
        seat.
        """
        try:
            op = self.table[key]
        except KeyError:
            self.send_to_nobody(sender, key, args)
            return
        if kwargs or len(args) != 1:
            if kwargs is not CHECKED:
                args = self.bound(op, args, kwargs)
        else:
            try:
                value = op.take(args[0])
                if value is not args[0]:
                    args = (value,)
            except InvalidInput:
                args = self.bound(op, args, kwargs)
        if op.kind or sender is self or self.accepted - self.begun >= self.size:
            self.send_slowly(sender, op, args)
            return
        self.accepted += 1
        if self.queue:
            self.queue.append((op, args, sender))
            return
        self.queue = [(op, args, sender)]
        if not self.gate or self.leave_tally():
            self.gate = BUSY
            self.rt.schedule(self)
        elif self.gate == QUIET:
            self.resume()

    def send_to_nobody(self, sender: Any, key: str, args: tuple[Any, ...]) -> None:
        """There is no such key, or no agent yet: the latter is a dead letter as after a crash."""
        error = self.unknown(key)
        if not isinstance(error, AgentUnavailable):
            raise error
        self.rt.dead_letter(str(error), self, sender, key, args)

    def send_slowly(self, sender: Any, op: Operation, args: tuple[Any, ...]) -> None:
        """As `send_from`, where the message is to the sender itself, needs time, or finds no seat."""
        if sender is self and self.state <= DRAINING:
            self._send_own(op, args)
            return
        if self.mailbox.when_full == "wait" and len(sender.ensure_extra().out) >= OUT_SEATS and self.full():
            raise MailboxFull(self.path, self.mailbox.size)
        held = OutgoingTell(self, op, args, sender)
        try:
            self.post(held)
        except MailboxFull:
            raise
        except AgentUnavailable as exc:
            self.rt.dead_letter(str(exc), self, sender, op.name, args)
            return
        if held.phase == PARKED:
            held.holds = sender
            sender.outgoing_parked(held)

    def _send_own(self, op: Operation, args: tuple[Any, ...]) -> None:
        extra = self.ensure_extra()
        if extra.own >= OWN_SEATS:
            raise MailboxFull(self.path, OWN_SEATS)
        self.take_own_seat()
        self.accepted += 1
        self.put(self.own(op, args))

    def own(self, op: Operation, args: tuple[Any, ...]) -> SelfMessage:
        """Make what stands in the queue for a message of the agent to itself."""
        return SelfMessage((op, args, self))
