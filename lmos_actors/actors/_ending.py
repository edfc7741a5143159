"""How an incarnation ends, and who is told.

It ends in one of two ways. `die` is for at once: a crash, a brutal stop, a deadline passed. `drain` lets
what waits be handled first. Both are synchronous and end in `_end`, which answers whoever is left;
`Exited` goes to the supervisor when the last run and the lifespan have unwound, so that two incarnations
never hold one resource (T4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

from lmos_actors._errors import AgentDied, AgentUnavailable

from ._cell import CLOSED, DOWN, DRAINING, ENDING, GONE, IDLE, NO_MAIL, RUNNING, SHUT
from ._listeners import Listened
from ._mailbox import DONE, Held
from ._monitor import NORMAL, Down, ExitReason
from ._observers import MONITORS

if TYPE_CHECKING:
    from collections.abc import Iterable


class Mortal(Listened):
    """A slot whose incarnations end: answering, letting go, unwinding, and telling whoever waits."""

    __slots__ = ()

    # ---- stop and crash

    def stop(self, reason: ExitReason, shutdown: float | str) -> bool:
        """Begin to stop (R4); say whether it has ended already.

        `shutdown`: seconds for what waits and runs, `"brutal"` for none, `"infinity"` for no limit.
        """
        if self.state >= ENDING:
            self._hurry(shutdown)
            return self.state >= DOWN
        if shutdown == "brutal":
            self.die(reason)
            self._hurry(shutdown)
        else:
            self.drain(reason, None if shutdown == "infinity" else float(shutdown))
        return self.state >= DOWN

    def _hurry(self, shutdown: float | str) -> None:
        if shutdown == "brutal" and self.more is not None and self.more.holder is not None:
            self.more.holder.hurry()

    @property
    def at_rest(self) -> bool:
        """Nothing waits, runs, listens or is held: told to stop, it ends at once."""
        return self.gate == IDLE and self.more is None

    @enable_ki_protection
    def drain(self, reason: ExitReason, seconds: float | None) -> None:
        """Take nothing new, let what waits and runs be handled, then end; at once when idle."""
        if self.state >= ENDING:
            return
        if self.gate == IDLE and (self.more is None or not self.more.runs):
            self.state = DRAINING
            self._end(reason)
            return
        more = self.furnish()
        if self.state != DRAINING:
            self.state = DRAINING
            self.size = SHUT
            self._refuse_parked("stopping")
        more.reason = reason
        if seconds is not None and more.drain_timer is None:
            more.drain_timer = self.rt.timers.call_at(
                trio.current_time() + seconds, lambda: self._end(reason)
            )
        if self.turns.slot is self:
            self.turns.leave = True
        self.settled_down()

    def _refuse_parked(self, why: str) -> None:
        more = self.more
        if more is None or not more.parked:
            return
        parked, more.parked = more.parked, None
        for envelope in parked:
            envelope.phase = DONE
            more.refused += 1
            if isinstance(envelope, Held):
                self.rt.dead_letter(why, self, envelope.sender, envelope.op.name, envelope.args)
            envelope.fail(AgentUnavailable(self.path, why))

    def die(self, reason: ExitReason) -> None:
        """End now (T4): slot emptied, mailbox closed, everybody answered, runs cancelled. Synchronous."""
        if self.state >= ENDING:
            if reason.error is not None and self.state == ENDING:
                self.furnish().errors.append(reason.error)
            return
        self._end(reason)

    def _end(self, reason: ExitReason) -> None:
        if self.state >= ENDING:
            return
        self.state = ENDING
        self.gate = CLOSED
        self.size = SHUT
        if self.turns.slot is self:
            self.turns.leave = True
        more = self.more
        queue, self.queue = self.queue, NO_MAIL
        if more is None:
            more = self.furnish() if queue else None
        if more is not None:
            more.reason = reason
            self._answer_all(queue, reason)
            self._let_go(reason)
            if more.runs or (more.holder is not None and not more.holder.ended):
                return
        self._finish(reason)

    def _answer_all(self, queue: Iterable[Any], reason: ExitReason) -> None:
        """Answer whoever still waits: lost with the agent, or with its stop (M1, M2)."""
        more = self.furnish()
        crashed = reason.abnormal
        why = str(reason) if crashed else "stopped"
        error = None if crashed else AgentUnavailable(self.path, why)
        self._refuse_parked(why)
        for line in tuple(more.pending.values()):
            while line:
                self.lose(line.first(), why, error)
        for item in queue:
            self.lose(item, why, error)
        more.withdrawn = 0
        for run in tuple(more.runs):
            if not run.settled:
                if crashed and not run.envelope.waits_for_answer:
                    self.rt.dead_letter(why, self, run.sender, run.op.name, run.args)
                run.settle_error(AgentDied(why, started=True), "dead_lettered" if crashed else "cancelled")
            run.cancel()

    def _let_go(self, reason: ExitReason) -> None:
        more = self.furnish()
        if more.drain_timer is not None:
            more.drain_timer.cancel()
            more.drain_timer = None
        for held in more.out:
            held.holds = None  # still on its way, but it holds nobody back any more
        more.out.clear()
        timers, more.timers = more.timers, None
        for timer in tuple(timers or ()):
            timer.cancel()
        if more.follows is not None:
            for follow, (sinks, key) in more.follows.items():
                sinks.remove(key, follow)
            more.follows = None
        if more.holder is not None:
            more.holder.end(reason)

    def _maybe_finish(self) -> None:
        more = self.furnish()
        if self.state == ENDING and not more.runs:
            if more.holder is not None and not more.holder.ended:
                more.holder.runs_ended()
            else:
                self._finish(more.reason or NORMAL)

    def holder_ended(self) -> None:
        """The lifespan has been left."""
        if self.state == ENDING:
            self._maybe_finish()

    def _start_over(self, exc: BaseException) -> None:
        """A start failed before the agent was opened: nothing of it is left for the next."""
        queue, self.queue = self.queue, NO_MAIL
        reason = ExitReason("error", error=exc)
        self._answer_all(queue, reason)
        self._let_go(reason)
        self._unseat()
        self._forget_incarnation()

    def _forget_incarnation(self) -> None:
        more = self.furnish()
        more.holder = None
        more.active.clear()
        more.pending.clear()
        more.random = more.log = None

    def _unseat(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            agent._slot = None
        self.ctx = None
        self.state = DOWN
        self.gate = CLOSED
        self.size = SHUT

    def _finish(self, reason: ExitReason) -> None:
        """Everything has unwound: tell the supervisor and the listeners."""
        self._unseat()
        more = self.more
        report = True
        if more is not None:
            report, more.silent = not more.silent, False
            if more.errors:
                told, reason = reason, _with_errors(reason, more.errors)
                more.errors = []
                if not told.abnormal and reason.error is not None:
                    self.owner.raised_at_end(self, reason.error)
            self._forget_incarnation()
            if more.sinks is not None and report:
                more.sinks.gap(str(reason))
                more.sinks.push(MONITORS, Down(self.path, self.incarnation, reason))
        if self.rt.instrument is not None:
            self.rt.record("crashed" if reason.abnormal else "stopped", self, reason=str(reason))
        if report:
            self.owner.exited(self, reason)
        if more is not None and more.buried:
            self.bury()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        more = self.more
        if more is not None and more.waiters:
            waiters, more.waiters = more.waiters, None
            self.rt.timers.woke = True
            for task in waiters:
                reschedule(task)

    # ---- waiting for it

    @enable_ki_protection
    async def wait_down(self) -> None:
        """Wait until the present incarnation has ended and unwound."""
        while self.state < DOWN:
            await self._wait()

    @enable_ki_protection
    async def wait_running(self) -> None:
        """Wait until the agent takes messages. Raises NotFound when it is gone for good."""
        while self.state not in (RUNNING, GONE):
            await self._wait()
        if self.state == GONE:
            raise self.closed_error()

    async def _wait(self) -> None:
        more = self.furnish()
        if more.waiters is None:
            more.waiters = []
        waiters, me = more.waiters, current_task()
        waiters.append(me)

        def abort(_: object) -> Abort:
            if me in waiters:
                waiters.remove(me)
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def bury(self) -> None:
        """Empty the slot for good: its child spec is gone (L2)."""
        if self.state == ENDING:  # something of it still unwinds
            self.furnish().buried = True
        if self.state in (ENDING, GONE):
            return
        self.state = GONE
        more = self.more
        if more is not None and more.sinks is not None:
            more.sinks.close()
        self._wake_waiters()


def _with_errors(reason: ExitReason, errors: list[BaseException]) -> ExitReason:
    """Add what was raised while unwinding: exceptions always arrive somewhere."""
    every = errors if reason.error is None else [reason.error, *errors]
    alone = every[0] if len(every) == 1 else BaseExceptionGroup("errors of one incarnation", every)
    return ExitReason("error", error=alone)
