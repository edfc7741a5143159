"""How an incarnation ends, and who is told.

It ends in one of two ways. `die` is for at once: a crash, a brutal stop, a deadline passed. `drain` lets
what waits be handled first. Both are synchronous and end in `_end`, which answers whoever is left;
`Exited` goes to the supervisor when the last run and the lifespan have unwound, so that two incarnations
never hold one resource (T4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import enable_ki_protection, reschedule

from lmos_actors.errors import AgentDied, AgentUnavailable

from ._cell import NO_MAIL, SHUT
from ._crashes import crash_reason
from ._gates import CLOSED, DOWN, DRAINING, ENDING, GONE, IDLE, RUNNING, TALLIED, TOLD
from ._holder import is_cancel
from ._links import Linked
from ._mailbox import DONE, Held
from ._monitor import NORMAL, SHUTDOWN, Down, ExitReason
from ._observers import MONITORS
from ._operation import named
from ._parking import park_among

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._reports import CrashReport


class Mortal(Linked):
    """A slot whose incarnations end: answering, letting go, unwinding, and telling whoever waits."""

    __slots__ = ()

    # ---- stop and crash

    def stop(self, reason: ExitReason, shutdown: float | str) -> bool:
        """Begin to stop (R4); return whether it has ended already.

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
        more = self.more
        if shutdown == "brutal" and more is not None:
            if more.holder is not None:
                more.holder.hurry()
            if more.household is not None:
                more.household.kill()

    @property
    def gone(self) -> bool:
        """The slot has been emptied for good."""
        return self.state == GONE

    @property
    def at_rest(self) -> bool:
        """Nothing waits, runs, listens or is held: told to stop, it ends at once."""
        return self.gate in (IDLE, TALLIED) and self.more is None

    @enable_ki_protection
    def drain(self, reason: ExitReason, seconds: float | None) -> None:
        """Take nothing new, let what waits and runs be handled, then end; at once when idle."""
        if self.state >= ENDING:
            return
        if self.gate in (IDLE, TALLIED) and (self.more is None or not self.more.runs):
            self.state = DRAINING
            self._end(reason)
            return
        more = self.furnish()
        stopping = self.state == DRAINING
        if not stopping:
            self.state = DRAINING
            self.size = SHUT
            self._refuse_parked("stopping")
            self._part()
        if not (stopping and more.reason is not None and more.reason.abnormal):
            more.reason = reason  # of several, an error is not forgotten
        if seconds is not None and more.drain_timer is None:
            more.drain_timer = self.rt.timers.call_at(
                trio.current_time() + seconds, lambda: self._end(more.reason or reason)
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
                self.furnish().errors += (reason.error,)
            return
        if reason.error is not None and reason.report is None:
            reason = crash_reason(self, reason.error, None)
        self._end(reason)
        self.rt.crashes.take(self, reason)

    def _end(self, reason: ExitReason) -> None:
        if self.state >= ENDING:
            return
        if self.gate == TALLIED:
            self.loosen()
        self.state = ENDING
        self.gate = CLOSED
        self.size = SHUT
        self.end_work()
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
            self._maybe_finish()
        else:
            self._finish(reason)

    def _answer_all(self, queue: Iterable[Any], reason: ExitReason) -> None:
        """Answer whoever still waits: lost with the agent, or with its stop (M1, M2)."""
        more = self.furnish()
        crashed = reason.abnormal
        why = str(reason) if crashed else "stopped"
        error = None if crashed else AgentUnavailable(self.path, why)
        self._refuse_parked(why)
        for line in tuple(more.pending.values()):
            while (envelope := line.first()) is not None:
                self.lose(envelope, why, error)
        shelf, more.shelf = more.shelf, None
        for item in (*(shelf.everything() if shelf is not None else ()), *queue):
            self.lose(item, why, error)
        more.withdrawn = 0
        for run in tuple(more.runs):
            if not run.settled:
                if crashed and not run.envelope.waits_for_answer:
                    self.rt.dead_letter(why, self, run.sender, run.op.name, run.args)
                died = AgentDied(why, started=run.begun, agent=self)
                lost = died if run.begun else error or died  # handed over, and not a line of it has run
                run.settle_error(lost, "dead_lettered" if crashed else "cancelled")
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
        self._part()
        self.end_monitors()
        if more.holder is not None:
            more.holder.end(reason)

    def _part(self) -> None:
        """Hear no more of what it follows, and be in no group: it takes nothing new."""
        more = self.furnish()
        while more.follows is not None:
            more.follows.drop()
        groups, more.groups = more.groups, None
        for roll in groups or ():
            roll.lose(self)

    def _maybe_finish(self) -> None:
        more = self.furnish()
        if self.state == ENDING and not more.runs:
            if more.holder is not None and not more.holder.ended:
                more.holder.runs_ended()
            elif more.household is not None:
                more.household.dismiss(self.spec.shutdown)
            else:
                self._finish(more.reason or NORMAL)

    def holder_ended(self) -> None:
        """The lifespan has been left."""
        if self.state == ENDING:
            self._maybe_finish()

    def household_ended(self, reason: ExitReason | None, raised: Iterable[BaseException]) -> None:
        """All children have ended; without a reason because they were told to, or could not start.

        A supervisor that gives up is a crash of its agent; one whose work is done ends it.
        """
        more = self.furnish()
        more.household = None
        more.errors += tuple(raised)
        if self.state >= ENDING:
            self._maybe_finish()
        elif reason is None:
            if more.holder is not None:
                more.holder.runs_ended()
        elif reason.error is None:
            shutdown = self.spec.shutdown
            self.drain(reason, float(shutdown) if isinstance(shutdown, (int, float)) else None)
        elif more.holder is not None and more.holder.entering:
            more.holder.fail_entering(reason.error)
        else:
            self.die(ExitReason("error", error=reason.error))

    async def undo_start(self, exc: BaseException) -> BaseException:
        """End what a failed start has begun; return the error, with what was raised meanwhile."""
        more = self.furnish()
        reason = SHUTDOWN if is_cancel(exc) else ExitReason("error", error=exc)
        with trio.CancelScope(shield=True):
            if more.holder is not None:
                more.holder.end(reason)
                await more.holder.wait_ended()
            if more.household is not None:
                more.household.dismiss(self.spec.shutdown)
                await more.household.wait_ended()
        late, more.errors = more.errors, ()
        self._start_over(reason)
        return BaseExceptionGroup("a start that failed, and what followed", [exc, *late]) if late else exc

    def _start_over(self, reason: ExitReason) -> None:
        """A start failed before the agent was opened: nothing of it is left for the next."""
        queue, self.queue = self.queue, NO_MAIL
        self._answer_all(queue, reason)
        self._let_go(reason)
        self._unseat()
        self._forget_incarnation()
        self.furnish().silent = False
        self.end_links(reason)

    def _forget_incarnation(self) -> None:
        more = self.furnish()
        more.holder = more.shelf = None  # a run that unwound may have made a shelf anew
        more.active.clear()
        more.pending.clear()
        more.random = more.log = more.reason = None

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
        more = self.more
        told = reason
        if more is not None and more.errors:
            reason = self._with_errors(reason, more.errors)
        elif reason.error is not None and reason.report is None:
            reason = self._with_errors(reason, ())
        self._unseat()
        report = True
        if more is not None:
            report, more.silent = not more.silent, False
            if more.errors:
                more.errors = ()
                if not told.abnormal and reason.error is not None:
                    self.owner.raised_at_end(self, reason.error)
            self._forget_incarnation()
            if more.sinks is not None and report:
                more.sinks.gap(str(reason))
                more.sinks.push(MONITORS, Down(self.path, self.incarnation, reason))
        if self.rt.instrument is not None:
            crash = {"report": reason.report} if reason.report is not None else {}
            self.rt.record("crashed" if reason.abnormal else "stopped", self, reason=str(reason), **crash)
        if report:
            self.owner.exited(self, reason)
        if more is not None:
            if more.buried:
                self.bury()
            self._wake_waiters()
            self.end_links(reason)

    def _with_errors(self, reason: ExitReason, errors: tuple[BaseException, ...]) -> ExitReason:
        """Add what was raised while unwinding: exceptions always arrive somewhere."""
        every = errors if reason.error is None else (reason.error, *errors)
        alone = every[0] if len(every) == 1 else BaseExceptionGroup("errors of one incarnation", every)
        report: CrashReport | None = reason.report
        if report is not None and report.is_of(self):
            report.unwound(errors)
            return ExitReason("error", error=alone, report=report)
        raised = crash_reason(self, alone, "its end")
        self.rt.crashes.take(self, raised)
        return raised

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

    @named("ref.ready")
    @enable_ki_protection
    async def wait_running(self) -> None:
        """Wait until the agent takes messages. Raises NotFound when it is gone for good."""
        while self.state not in (RUNNING, GONE):
            await self._wait()
        if self.state == GONE:
            raise self.closed_error()

    def unready(self) -> str:
        """Return why the agent takes no messages now, "" while it does."""
        return "" if self.state == RUNNING else f"it is {TOLD[self.state]}"

    async def _wait(self) -> None:
        more = self.furnish()
        if more.waiters is None:
            more.waiters = []
        await park_among(more.waiters)

    def bury(self) -> None:
        """Empty the slot for good: its child spec is gone (L2)."""
        if self.state == ENDING:  # something of it still unwinds
            self.furnish().buried = True
        if self.state in (ENDING, GONE):
            return
        self.state = GONE
        self.rt.tally.lost()
        if self.rt.edge is not None:
            self.rt.edge.gone(self)
        more = self.more
        if more is not None and more.sinks is not None:
            more.sinks.close()
        self._wake_waiters()
