"""A slot's mailbox from the inside: accepting, parking, dropping, handing over, withdrawing, losing.

Every accepted message leaves by one of these methods, and each counts it, so that at every instant at which
no turn runs `accepted == handled + cancelled + dropped + dead_lettered + waiting + running`. A refusal by
type (`InvalidInput`) is an answer of the agent and counts as handled; a message that found no seat was never
accepted and counts as refused alone. The methods for senders are in `_slot_requests.py`.

Order is kept per sender. That is why an agent takes no turn between handing a run over and the run's first
step, why a parked sender keeps the gate from being `IDLE` (an inline turn would overtake it), and why a
sender that is let in queues behind what is there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from lmos_actors.errors import AgentDied, AgentUnavailable, InvalidInput, MailboxFull, NotFound

from ._gates import BUSY, EMPTY, ENDING, GONE, HANDING, HELD, IDLE, QUIET, SERIAL, STATE_TEXTS, WORKED
from ._invocation import CURRENT, Run
from ._mailbox import (
    DONE,
    PARKED,
    PENDING,
    QUEUED,
    RUNNING,
    STASHED,
    WORKED_ON,
    Envelope,
    InternalTurn,
    Line,
    RunLine,
    SelfEnvelope,
    SelfMessage,
    Tell,
)
from ._operation import RUNS, not_in
from ._runtime import BATCH
from ._slot_pacing import SlotPacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._mailbox import OutgoingTell
    from ._monitor import ExitReason
    from ._operation import Operation


SHARED: Final = 4
"""Runs of an action at once from which on the last of them is kept for a peer that has none."""


class SlotMailbox(SlotPacing):
    """What happens to messages once they are sent."""

    __slots__ = ()

    # ---- accepting

    def operation(self, key: str) -> Operation:
        """Return the operation of that key. Raises `NotFound`, `AgentUnavailable`."""
        try:
            return self.table[key]
        except KeyError:
            raise self.unknown(key) from None

    def unknown(self, key: str) -> Exception:
        """Make the error for a key that is not in the table."""
        if self.state in (EMPTY, GONE):
            return self.closed_error()
        return not_in(self.table, key, self.path)

    def bound(self, op: Operation, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Check and convert arguments; a refusal is an answer of the agent and counts as handled."""
        try:
            return op.bind(args, kwargs)
        except InvalidInput as exc:
            exc.__context__ = None  # of the caller's attempt on the short path
            self._count_refusal()
            raise

    def spread(
        self, op: Operation, data: Any, *, tolerant: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Turn an input of plain data into arguments; a refusal counts as in `bound`."""
        try:
            return op.spread(data, tolerant=tolerant)
        except InvalidInput:
            self._count_refusal()
            raise

    def _count_refusal(self) -> None:
        if self.size > 0:
            self.leave_tally()
            self.inline += 1

    def sender(self) -> Any:
        """Return the slot of the agent whose code runs now, None outside any."""
        run = CURRENT.get()
        return self.turns.slot if run is None else run.slot

    def full(self) -> bool:
        """Return whether a message finds no seat now; false while closed."""
        return 0 < self.size <= self.accepted - self.begun

    def post(self, envelope: Envelope) -> None:
        """Accept an envelope, park it, or refuse it, by the mailbox's policy.

        Raises `MailboxFull`, `AgentUnavailable` or `NotFound` when it is refused.
        """
        run = CURRENT.get()
        if run is not None and run.envelope.trace is not None and envelope.trace is None:
            envelope.trace = run.envelope.trace  # what came over a wire, handed on
        if self.accepted - self.begun >= self.size and not self._make_room(envelope):
            return
        self.accepted += 1
        envelope.phase = QUEUED
        self.put(envelope)

    def post_last(self, envelope: Envelope) -> None:
        """Post an envelope, behind all that wait for a seat though one may be free. Raises as `post` does."""
        extra = self.extra
        if extra is not None and extra.parked:
            envelope.phase = PARKED
            extra.parked.join(envelope)
        else:
            self.post(envelope)

    def post_or_block(self, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        """Post a one-way message, but raise `trio.WouldBlock` instead of parking it."""
        if self.mailbox.when_full == "wait" and self.full():
            raise trio.WouldBlock
        self.post(Tell(self, op, args, sender))

    def _make_room(self, envelope: Envelope) -> bool:
        """Return whether the envelope may go in after all; if not, it has been parked, dropped or refused."""
        if self.size < 0:
            self.ensure_extra().refused += 1
            raise self.closed_error()
        policy = self.mailbox.when_full
        extra = self.ensure_extra()
        if policy == "wait" and envelope.parks:
            envelope.phase = PARKED
            if extra.parked is None:
                extra.parked = Line()
            extra.parked.join(envelope)
            if self.gate == IDLE:  # all seats are in line for a run: an inline turn would overtake this one
                self.gate = QUIET
            return False
        if policy in ("reject", "wait"):
            extra.refused += 1
            raise MailboxFull(self.path, self.mailbox.size)
        if policy == "drop_oldest":
            self._drop_oldest()
            return True
        self.accepted += 1
        self._dropped(envelope)
        return False

    def _drop_oldest(self) -> None:
        extra = self.ensure_extra()
        waiting = self.oldest_stashed() or self.oldest_pending()
        if waiting is not None:
            self._dropped(waiting)
            return
        if extra.withdrawn:
            self.clear_withdrawn()
        queue = self.queue if len(self.queue) <= BATCH else self.long_queue()
        for place, item in enumerate(queue):
            if not isinstance(item, (InternalTurn, SelfMessage, SelfEnvelope)):
                del queue[place]
                self._dropped(item)
                return

    def _dropped(self, item: Any) -> None:
        self.begun += 1
        self.ensure_extra().dropped += 1
        if isinstance(item, Envelope):
            self.rt.note("dropped", item)
            item.phase = DONE
            item.fail(MailboxFull(self.path, self.mailbox.size))

    def displace(self, envelope: Envelope, error: MailboxFull) -> None:
        """Drop a request that waits, as its seat is somebody else's from now on."""
        phase, envelope.phase = envelope.phase, DONE
        extra = self.ensure_extra()
        if phase == QUEUED:
            self.withdraw_queued()
        elif phase == STASHED:
            del self.ensure_stash().items[id(envelope)]
        else:
            extra.pending[envelope.op].remove(envelope)
        self.begun += 1
        extra.dropped += 1
        extra.displaced += 1
        self.rt.note("dropped", envelope)
        envelope.fail(error)

    def closed_error(self) -> AgentUnavailable | NotFound:
        """Make the error for a message to a slot that takes none."""
        if self.state == GONE:
            return NotFound("agent", self.path)
        return AgentUnavailable(self.path, STATE_TEXTS[self.state])

    def put(self, item: Any) -> None:
        """Queue what has been accepted, and see to it that its turn comes."""
        if self.gate and not self.leave_tally():
            if self.queue:
                self.queue.append(item)
            else:
                self.queue = [item]
            if self.gate == QUIET:
                self.resume()
            return
        if isinstance(item, Envelope) and item.op.kind in RUNS:
            self.begin_run(item, hold=True)
            return
        self.gate = BUSY
        self.queue = [item]
        self.rt.schedule(self)

    def admit(self) -> None:
        """Let parked senders in, as far as there are seats."""
        extra = self.extra
        if extra is None or not extra.parked:
            return
        parked = extra.parked
        while parked and self.accepted - self.begun < self.size:
            envelope = parked.first()
            self.accepted += 1
            envelope.phase = QUEUED
            self.put(envelope)
            envelope.admitted()

    # ---- runs

    def begin_next(self, line: RunLine) -> bool:
        """Begin the first run in line that the behaviour allows; return whether there was one."""
        while line:
            op = next(iter(line)).op
            kept = self._keeps_last(op)
            envelope = line.first(partial(self._has_no_run, op) if kept else None)
            if envelope is None:
                return False
            self.begin_run(envelope, hold=False)
            if envelope.phase == RUNNING:
                return True
        return False

    def begin_run(self, envelope: Envelope, *, hold: bool) -> None:
        """Hand a run to a runner, or put it in line for its action's concurrency.

        `hold`: no turn until the run's first step, as later messages must not overtake it.
        """
        extra = self.ensure_run_tables()
        op = envelope.op
        if op.when is not None and not self.enabled(op):
            self.postpone_or_refuse(envelope)
            return
        active = extra.active.get(op, 0)
        # the last of several at once is kept for a peer that has none
        is_last = active + 1 == op.concurrency >= SHARED
        if active >= op.concurrency or (is_last and not self._has_no_run(op, envelope.peer)):
            envelope.phase = PENDING
            extra.pending.setdefault(op, RunLine()).join(envelope)
            envelope.on_pending()
            return
        extra.active[op] = active + 1
        run = Run(self, envelope)
        envelope.began()
        extra.runs[run] = None
        self.begun += 1
        if isinstance(envelope, SelfEnvelope):
            self.free_own_seat()
        if hold:
            self.gate = HANDING
            extra.handing = run
        self.rt.note("delivered", envelope)
        runners = self.owner.runners
        if runners is not None:
            runners.carry(run)

    def _keeps_last(self, op: Operation) -> bool:
        """Return whether only one more run may begin now, which is kept for a peer that has none."""
        return op.concurrency >= SHARED and self.ensure_run_tables().active.get(op, 0) == op.concurrency - 1

    def _has_no_run(self, op: Operation, peer: Any) -> bool:
        """Return whether a peer may have the last run of an action; what came over no connection may."""
        runs = self.ensure_run_tables().runs
        return peer is None or not any(run.envelope.peer == peer and run.op is op for run in runs)

    def run_began(self, run: Run) -> None:
        """The handler's first step is about to run: the agent may take turns again."""
        extra = self.ensure_extra()
        if extra.handing is run:
            extra.handing = None
            if self.gate == HANDING:
                if self.serial:
                    self.gate = SERIAL
                elif extra.out:
                    self.gate = HELD
                else:
                    self.resume()

    @property
    def serial(self) -> bool:
        """Whether the class has `serial=True`: one run at a time over all actions, and no turn beside it."""
        agent = self.agent
        return agent is not None and bool(agent.__contract__.serial)

    def run_settled(self, account: str) -> None:
        """Count the final answer of a run."""
        if account == "handled":
            self.handled += 1
        else:
            extra = self.ensure_extra()
            setattr(extra, account, getattr(extra, account) + 1)

    # ---- withdrawing

    def withdraw(self, envelope: Envelope) -> bool:
        """Take a request out wherever it is, as its consumer is gone; return whether it was still open.

        Queued, it gives up its seat; running, its run is cancelled and not waited for.
        """
        phase = envelope.phase
        if phase == DONE:
            return False
        if phase == RUNNING:
            return self._withdraw_run(envelope)
        envelope.phase = DONE
        extra = self.ensure_extra()
        if phase == PARKED:
            if extra.parked is not None:
                extra.parked.pop(envelope, None)
            if self.gate == QUIET and not extra.parked and self.size > 0 and extra.pace is None:
                self.gate = IDLE  # no inline turn could overtake anybody now
            return True
        if phase == QUEUED:
            self.withdraw_queued()
        elif phase == STASHED:
            del self.ensure_stash().items[id(envelope)]
        elif phase == WORKED_ON:
            self.abandon_work()
            envelope.phase = DONE
        else:
            extra.pending[envelope.op].remove(envelope)
        self.begun += 1
        extra.cancelled += 1
        self.rt.note("cancelled", envelope)
        self.admit()
        self.on_idle()
        return True

    def _withdraw_run(self, envelope: Envelope) -> bool:
        run = envelope.run
        if run is None or run.settled:
            return False
        run.settled = True
        envelope.phase = DONE
        self.ensure_extra().cancelled += 1
        self.rt.note("cancelled", envelope)
        run.cancel()
        return True

    def lose(self, item: Any, reason: str, error: Exception | None) -> None:
        """Count what never began as dead-lettered; fail its sender, or record it.

        Nothing of a queue outlives a crash: that a request was not begun tells its sender that it is safe to
        repeat.

        `error` stands in the answer; None means the agent died.
        """
        if isinstance(item, InternalTurn) or (isinstance(item, Envelope) and item.phase == DONE):
            return
        self.begun += 1
        self.ensure_extra().dead_lettered += 1
        if isinstance(item, tuple):
            op, args, sender = cast("tuple[Operation, tuple[Any, ...], SlotMailbox | None]", item)
            if isinstance(item, SelfMessage):
                self.free_own_seat()
            self.rt.dead_letter(reason, self, sender, op.name, args)
            return
        envelope: Envelope = item
        envelope.phase = DONE
        if isinstance(envelope, SelfEnvelope):
            self.free_own_seat()
        if envelope.waits_for_answer:
            self.rt.note("answered", envelope, error=reason)
        else:
            self.rt.dead_letter(reason, self, envelope.sender, envelope.op.name, envelope.args)
        envelope.fail(error or AgentDied(reason, started=False, agent=self))

    def outgoing_parked(self, held: OutgoingTell) -> None:
        """A message of this agent's turn waits for a seat elsewhere: no further turn until it has one."""
        if self.state >= ENDING:  # nothing is left to be held back
            held.holds = None
            return
        self.ensure_outgoing()[held] = None
        self.leave_tally()
        if self.gate in (IDLE, BUSY, QUIET, WORKED):
            if self.turns.slot is self:
                self.turns.leave = True
            self.gate = HELD

    def outgoing_admitted(self, held: OutgoingTell) -> None:
        """One of them has its seat, or needs none any more."""
        out = self.ensure_extra().out
        out.pop(held, None)
        if not out and self.gate == HELD:
            self.resume()

    # ---- filled in by Slot

    def inline_failed(self, exc: BaseException, op: Operation, args: tuple[Any, ...]) -> BaseException:
        """Deal with what an inline turn raised; return what its asker is to see."""
        raise NotImplementedError

    def after_turn(self) -> None:
        """Deal with an agent that was held back, stopped or ended by its own turn."""
        raise NotImplementedError

    def turn_crashed(self, exc: BaseException, reason: ExitReason) -> BaseException:
        """End the agent for what its turn raised; return what the asker is to see."""
        raise NotImplementedError

    def run_cancelled(self, run: Run) -> None:
        """A run's coroutine was cancelled."""
        raise NotImplementedError

    def run_crashed(self, run: Run, exc: BaseException) -> None:
        """A run's coroutine raised what it does not declare."""
        raise NotImplementedError

    def run_ended(self, run: Run) -> None:
        """A run's coroutine has unwound."""
        raise NotImplementedError

    def property_changed(self, name: str, value: Any) -> None:
        """A property was assigned."""
        raise NotImplementedError

    def emit(self, event: Any, value: Any) -> None:
        """An event was emitted."""
        raise NotImplementedError
