"""The end of an incarnation, and the notices of it.

An incarnation ends in one of two ways. `die` is for at once: a crash, a brutal stop, a deadline passed.
`drain` closes the mailbox and lets what waits be handled first. Both are synchronous and end in `_end`, which
answers everything that is left, so that no request is ever without an answer.

`_end` only begins the unwinding: runs are cancelled, the lifespan is asked to leave. `_maybe_finish` is
called by whatever has just unwound (a run, the lifespan, the children) and goes on when all has. Only then
does `_finish` report `Exited` to the supervisor, so that two incarnations never hold one resource. It never
waits: an ending agent needs no task of its own.

    die/drain -> _end -> _answer_all, _release_resources -> _maybe_finish -> _finish -> owner.exited

Exceptions raised while unwinding are added to the reason (`_with_errors`): an exception always arrives
somewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import enable_ki_protection, reschedule

from lmos_actors.errors import AgentDied, AgentUnavailable

from ._crashes import crash_reason
from ._gates import CLOSED, DOWN, DRAINING, ENDING, GONE, IDLE, RUNNING, STATE_TEXTS, TALLIED
from ._lifespan_task import is_cancel
from ._links import SlotLinks
from ._mailbox import DONE, OutgoingTell
from ._monitor import NORMAL, SHUTDOWN, Down, ExitReason
from ._observers import MONITORS
from ._operation import named
from ._parking import park_among
from ._slot_state import NO_MAIL, SHUT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._reports import CrashReport


class SlotLifecycle(SlotLinks):
    """A slot whose incarnations end: answering, releasing, unwinding, and reporting."""

    __slots__ = ()

    # ---- stop and crash

    def stop(self, reason: ExitReason, shutdown: float | str) -> bool:
        """Begin to stop; return whether it has ended already.

        `shutdown`: seconds for what waits and runs, `"brutal"` for none, `"infinity"` for no limit.
        """
        if self.state >= ENDING:
            self._force_stop(shutdown)
            return self.state >= DOWN
        if shutdown == "brutal":
            self.die(reason)
            self._force_stop(shutdown)
        else:
            self.drain(reason, None if shutdown == "infinity" else float(shutdown))
        return self.state >= DOWN

    def _force_stop(self, shutdown: float | str) -> None:
        extra = self.extra
        if shutdown == "brutal" and extra is not None:
            if extra.lifespan_task is not None:
                extra.lifespan_task.force_stop()
            if extra.child_supervisor is not None:
                extra.child_supervisor.kill()

    @property
    def gone(self) -> bool:
        """The slot has been emptied for good."""
        return self.state == GONE

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits, runs, listens or is held, so that a stop ends it at once."""
        return self.gate in (IDLE, TALLIED) and self.extra is None

    @enable_ki_protection
    def drain(self, reason: ExitReason, seconds: float | None) -> None:
        """Take nothing new, let what waits and runs be handled, then end; at once when idle."""
        if self.state >= ENDING:
            return
        if self.gate in (IDLE, TALLIED) and (self.extra is None or not self.extra.runs):
            self.state = DRAINING
            self._end(reason)
            return
        extra = self.ensure_extra()
        stopping = self.state == DRAINING
        if not stopping:
            self.state = DRAINING
            self.size = SHUT
            self._refuse_parked("stopping")
            self._leave_feeds_and_groups()
        if not (stopping and extra.reason is not None and extra.reason.abnormal):
            extra.reason = reason  # of several, an error is not forgotten
        if seconds is not None and extra.drain_timer is None:
            extra.drain_timer = self.rt.timers.call_at(
                trio.current_time() + seconds, lambda: self._end(extra.reason or reason)
            )
        if self.turns.slot is self:
            self.turns.leave = True
        self.on_idle()

    def _refuse_parked(self, why: str) -> None:
        extra = self.extra
        if extra is None or not extra.parked:
            return
        parked, extra.parked = extra.parked, None
        for envelope in parked:
            envelope.phase = DONE
            extra.refused += 1
            if isinstance(envelope, OutgoingTell):
                self.rt.dead_letter(why, self, envelope.sender, envelope.op.name, envelope.args)
            envelope.fail(AgentUnavailable(self.path, why))

    def die(self, reason: ExitReason) -> None:
        """End now: close the mailbox, answer everything, cancel the runs. Never blocks."""
        if self.state >= ENDING:
            if reason.error is not None and self.state == ENDING:
                self.ensure_extra().errors += (reason.error,)
            return
        if reason.error is not None and reason.report is None:
            reason = crash_reason(self, reason.error, None)
        self._end(reason)
        self.rt.crashes.take(self, reason)

    def _end(self, reason: ExitReason) -> None:
        if self.state >= ENDING:
            return
        if self.gate == TALLIED:
            self.leave_tally()
        self.state = ENDING
        self.gate = CLOSED
        self.size = SHUT
        self.end_work()
        if self.turns.slot is self:
            self.turns.leave = True
        extra = self.extra
        queue, self.queue = self.queue, NO_MAIL
        if extra is None:
            extra = self.ensure_extra() if queue else None
        if extra is not None:
            extra.reason = reason
            self._answer_all(queue, reason)
            self._release_resources(reason)
            self._maybe_finish()
        else:
            self._finish(reason)

    def _answer_all(self, queue: Iterable[Any], reason: ExitReason) -> None:
        """Answer everything that still waits, as lost by a crash or refused by a stop."""
        extra = self.ensure_extra()
        crashed = reason.abnormal
        why = str(reason) if crashed else "stopped"
        error = None if crashed else AgentUnavailable(self.path, why)
        self._refuse_parked(why)
        for line in tuple(extra.pending.values()):
            while (envelope := line.first()) is not None:
                self.lose(envelope, why, error)
        stash, extra.stash = extra.stash, None
        for item in (*(stash.all_messages() if stash is not None else ()), *queue):
            self.lose(item, why, error)
        extra.withdrawn = 0
        for run in tuple(extra.runs):
            if not run.settled:
                if crashed and not run.envelope.waits_for_answer:
                    self.rt.dead_letter(why, self, run.sender, run.op.name, run.args)
                died = AgentDied(why, started=run.begun, agent=self)
                lost = died if run.begun else error or died  # handed over, and not a line of it has run
                run.settle_error(lost, "dead_lettered" if crashed else "cancelled")
            run.cancel()

    def _release_resources(self, reason: ExitReason) -> None:
        extra = self.ensure_extra()
        if extra.drain_timer is not None:
            extra.drain_timer.cancel()
            extra.drain_timer = None
        for held in extra.out:
            held.holds = None  # still on its way, but it holds nobody back any more
        extra.out.clear()
        timers, extra.timers = extra.timers, None
        for timer in tuple(timers or ()):
            timer.cancel()
        self._leave_feeds_and_groups()
        self.end_monitors()
        if extra.lifespan_task is not None:
            extra.lifespan_task.end(reason)

    def _leave_feeds_and_groups(self) -> None:
        """End all followings and leave all groups, so that nothing new comes in."""
        extra = self.ensure_extra()
        while extra.follows is not None:
            extra.follows.drop()
        groups, extra.groups = extra.groups, None
        for roll in groups or ():
            roll.lose(self)

    def _maybe_finish(self) -> None:
        extra = self.ensure_extra()
        if self.state == ENDING and not extra.runs:
            if extra.lifespan_task is not None and not extra.lifespan_task.ended:
                extra.lifespan_task.runs_ended()
            elif extra.child_supervisor is not None:
                extra.child_supervisor.stop_children(self.spec.shutdown)
            else:
                self._finish(extra.reason or NORMAL)

    def lifespan_ended(self) -> None:
        """The lifespan has been left."""
        if self.state == ENDING:
            self._maybe_finish()

    def children_ended(self, reason: ExitReason | None, raised: Iterable[BaseException]) -> None:
        """All children have ended; without a reason because they were stopped, or could not start.

        A supervisor that gives up is a crash of its agent; one whose work is done ends it.
        """
        extra = self.ensure_extra()
        extra.child_supervisor = None
        extra.errors += tuple(raised)
        if self.state >= ENDING:
            self._maybe_finish()
        elif reason is None:
            if extra.lifespan_task is not None:
                extra.lifespan_task.runs_ended()
        elif reason.error is None:
            shutdown = self.spec.shutdown
            self.drain(reason, float(shutdown) if isinstance(shutdown, (int, float)) else None)
        elif extra.lifespan_task is not None and extra.lifespan_task.entering:
            extra.lifespan_task.fail_entering(reason.error)
        else:
            self.die(ExitReason("error", error=reason.error))

    async def undo_start(self, exc: BaseException) -> BaseException:
        """End what a failed start has begun; return the error, with what was raised meanwhile."""
        extra = self.ensure_extra()
        reason = SHUTDOWN if is_cancel(exc) else ExitReason("error", error=exc)
        with trio.CancelScope(shield=True):
            if extra.lifespan_task is not None:
                extra.lifespan_task.end(reason)
                await extra.lifespan_task.wait_ended()
            if extra.child_supervisor is not None:
                extra.child_supervisor.stop_children(self.spec.shutdown)
                await extra.child_supervisor.wait_ended()
        late, extra.errors = extra.errors, ()
        self._start_over(reason)
        return BaseExceptionGroup("a start that failed, and what followed", [exc, *late]) if late else exc

    def _start_over(self, reason: ExitReason) -> None:
        """Clear all that a start has left that failed before the agent was opened."""
        queue, self.queue = self.queue, NO_MAIL
        self._answer_all(queue, reason)
        self._release_resources(reason)
        self._uninstall()
        self._forget_incarnation()
        self.ensure_extra().silent = False
        self.end_links(reason)

    def _forget_incarnation(self) -> None:
        extra = self.ensure_extra()
        extra.lifespan_task = extra.stash = None  # a run that unwound may have made a shelf anew
        extra.active.clear()
        extra.pending.clear()
        extra.random = extra.log = extra.reason = None

    def _uninstall(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            agent._slot = None
        self.ctx = None
        self.state = DOWN
        self.gate = CLOSED
        self.size = SHUT

    def _finish(self, reason: ExitReason) -> None:
        """Report the end to the supervisor and the listeners; everything has unwound."""
        extra = self.extra
        first_reason = reason
        if extra is not None and extra.errors:
            reason = self._with_errors(reason, extra.errors)
        elif reason.error is not None and reason.report is None:
            reason = self._with_errors(reason, ())
        self._uninstall()
        report = True
        if extra is not None:
            report, extra.silent = not extra.silent, False
            if extra.errors:
                extra.errors = ()
                if not first_reason.abnormal and reason.error is not None:
                    self.owner.raised_at_end(self, reason.error)
            self._forget_incarnation()
            if extra.sinks is not None and report:
                extra.sinks.gap(str(reason))
                extra.sinks.push(MONITORS, Down(self.path, self.incarnation, reason))
        if self.rt.instrument is not None:
            crash = {"report": reason.report} if reason.report is not None else {}
            self.rt.record("crashed" if reason.abnormal else "stopped", self, reason=str(reason), **crash)
        if report:
            self.owner.exited(self, reason)
        if extra is not None:
            if extra.removed:
                self.remove()
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
        extra = self.extra
        if extra is not None and extra.waiters:
            waiters, extra.waiters = extra.waiters, None
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
        return "" if self.state == RUNNING else f"it is {STATE_TEXTS[self.state]}"

    async def _wait(self) -> None:
        extra = self.ensure_extra()
        if extra.waiters is None:
            extra.waiters = []
        await park_among(extra.waiters)

    def remove(self) -> None:
        """Empty the slot for good, as its child spec is gone; old refs then raise NotFound."""
        if self.state == ENDING:  # something of it still unwinds
            self.ensure_extra().removed = True
        if self.state in (ENDING, GONE):
            return
        self.state = GONE
        self.rt.tally.note_removed()
        if self.rt.edge is not None:
            self.rt.edge.gone(self)
        extra = self.extra
        if extra is not None and extra.sinks is not None:
            extra.sinks.close()
        self._wake_waiters()
