"""A slot's life: start, the end of a turn, crash, stop, and what its listeners hear.

An incarnation ends in one of two ways. `die` is for at once: a crash, a brutal stop, a deadline passed.
`drain` lets what waits be handled first. Both are synchronous and end in `_end`, which answers whoever
is left; `Exited` goes to the supervisor when the last run and the lifespan have unwound, so that two
incarnations never hold one resource (T4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

from lmos_actors._errors import AgentDied, AgentError, AgentUnavailable, StartFailed

from ._cell import (
    BUSY,
    CLOSED,
    DOWN,
    DRAINING,
    ENDING,
    GONE,
    HELD,
    IDLE,
    NO_MAIL,
    RUNNING,
    SERIAL,
    SHUT,
    STARTING,
)
from ._holder import Holder, is_cancel
from ._invocation import Run, declared_failure
from ._listeners import Listened
from ._mailbox import DONE
from ._monitor import NORMAL, SHUTDOWN, Down, ExitReason
from ._observers import MONITORS

if TYPE_CHECKING:
    from ._operation import Operation


class Slot(Listened):
    """What refs point to: one place in the tree, and whoever lives there now."""

    __slots__ = ()

    # ---- start

    def make(self) -> Any:
        """Make the agent object. Raises StartFailed."""
        self.state = STARTING
        try:
            agent = self.spec.factory()
            contract = getattr(type(agent), "__contract__", None)
            if contract is None:
                raise TypeError(f"the factory made {agent!r}, which is no agent")
        except BaseException as exc:
            self.state = DOWN
            raise self._start_failed(exc) from exc
        self.table = contract.table
        return agent

    def _start_failed(self, exc: BaseException) -> StartFailed:
        """Make the error for a start that failed; what is no `Exception` ends the node too (T5)."""
        if not isinstance(exc, Exception) and self.rt.fatal is not None:
            self.rt.fatal(exc)
        return StartFailed(self.path, str(exc) or type(exc).__name__)

    def start_now(self) -> None:
        """Start an agent whose start needs no waiting. Raises StartFailed."""
        self.open(self.make())

    async def start(self) -> None:
        """Start an agent; enter its lifespan if it has one. Raises StartFailed."""
        agent = self.make()
        if not type(agent).__contract__.has_lifespan:
            self.open(agent)
            return
        self._seat(agent)
        holder = self.furnish().holder = Holder(self)
        try:
            await holder.enter()
        except BaseException as exc:
            self._unseat()
            if is_cancel(exc):
                raise
            raise self._start_failed(exc) from exc
        if self.state == STARTING:
            self.open(agent)

    def _seat(self, agent: Any) -> None:
        self.agent = agent
        agent._slot = self
        self.ctx = None

    def _unseat(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            agent._slot = None
        self.ctx = None
        self.state = DOWN
        self.gate = CLOSED
        self.size = SHUT

    def open(self, agent: Any) -> None:
        """Run `started()`, the first turn, and open the mailbox. Raises StartFailed."""
        if self.agent is None:
            self._seat(agent)
        self.incarnation += 1
        self.gate = BUSY
        self.size = self.mailbox.size
        contract = type(agent).__contract__
        if contract.has_started or contract.periodic:
            self._first_turn(agent, contract)
            if self.gate == CLOSED:
                return
        self.state = DRAINING if self.state == DRAINING else RUNNING
        if self.rt.instrument is not None:
            self.rt.record("started", self, incarnation=self.incarnation)
        if self.gate == BUSY:
            if self.queue or self.state == DRAINING:
                self.resume()
            else:
                self.gate = IDLE
        more = self.more
        if more is not None:
            if more.sinks is not None:
                self.show_properties(more.sinks)
            self._wake_waiters()

    def _first_turn(self, agent: Any, contract: Any) -> None:
        turns = self.turns
        outer = turns.slot, turns.current
        turns.slot, turns.current = self, (None, (), None)
        try:
            if contract.has_started:
                self.context().run(agent.started)
        except BaseException as exc:
            self.incarnation -= 1
            self.furnish().silent = True
            self.die(ExitReason("error", error=exc))
            raise self._start_failed(exc) from exc
        finally:
            turns.slot, turns.current = outer
            turns.leave = False
        for seconds, name in contract.periodic:
            self.tick(trio.current_time() + seconds, seconds, getattr(agent, name))

    # ---- the end of a turn

    def inline_failed(self, exc: BaseException, op: Operation) -> BaseException:
        """Deal with what an inline turn raised; give what its asker is to see (T3)."""
        self.inline += 1
        self.turns.leave = False
        failure = declared_failure(exc)
        if failure is not None or (op.internal and isinstance(exc, AgentError)):
            self.after_turn()
            return failure or exc
        return self.turn_crashed(exc)

    def turn_crashed(self, exc: BaseException) -> BaseException:
        """End the agent for what its turn raised; give what the asker is to see."""
        reason = ExitReason("error", error=exc)
        self.die(reason)
        if not isinstance(exc, Exception):
            if self.rt.fatal is not None:
                self.rt.fatal(exc)
            return exc
        return AgentDied(str(reason), started=True)

    def after_turn(self) -> None:
        """Go on after a turn of which something came: held back, stopped, ended."""
        if self.gate == BUSY:
            self.resume()

    def settled_down(self) -> None:
        """Nothing waits any more: a stopping agent may end."""
        if self.state == DRAINING and self.gate in (IDLE, SERIAL, HELD) and self.turns.slot is not self:
            more = self.furnish()
            if not self.queue and not more.runs and not any(more.pending.values()) and not more.out:
                self._end(more.reason or SHUTDOWN)

    # ---- runs, as `Run.execute` reports them

    def run_cancelled(self, run: Run) -> None:
        """The coroutine was cancelled; if nobody has settled it, the node is ending."""
        run.settle_error(AgentDied("shutdown", started=True), "cancelled")

    def run_crashed(self, run: Run, exc: BaseException) -> None:
        """The coroutine raised what it does not declare."""
        reason = ExitReason("error", error=exc)
        run.settle_error(AgentDied(str(reason), started=True), "handled")
        self.die(reason)

    def run_ended(self, run: Run) -> None:
        """The coroutine has unwound."""
        more = self.furnish()
        more.runs.pop(run, None)
        if more.handing is run:
            more.handing = None
        op = run.op
        more.active[op] = more.active.get(op, 1) - 1
        if self.state >= ENDING:
            self._maybe_finish()
            return
        line = more.pending.get(op)
        if self.gate == SERIAL:
            self.gate = IDLE
        if line:
            self.begin_run(line.popleft(), hold=False)
            self.admit()
        elif self.gate == IDLE:
            if more.out:
                self.gate = HELD
            else:
                self.resume()
        else:
            self.settled_down()

    # ---- end

    def stop(self, reason: ExitReason, shutdown: float | str) -> bool:
        """Begin to stop (R4); say whether it has ended already.

        `shutdown`: seconds for what waits and runs, `"brutal"` for none, `"infinity"` for no limit.
        """
        if self.state >= ENDING:
            if shutdown == "brutal" and self.more is not None and self.more.holder is not None:
                self.more.holder.hurry()
            return self.state >= DOWN
        if shutdown == "brutal":
            self.die(reason)
        else:
            self.drain(reason, None if shutdown == "infinity" else float(shutdown))
        return self.state >= DOWN

    def drain(self, reason: ExitReason, seconds: float | None) -> None:
        """Take nothing new, let what waits and runs be handled, then end; at once when idle."""
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
            if not envelope.waits_for_answer and envelope.sender is not None:
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

    def _answer_all(self, queue: list[Any], reason: ExitReason) -> None:
        """Answer whoever still waits: lost with the agent, or with its stop (M1, M2)."""
        more = self.furnish()
        crashed = reason.abnormal
        why = str(reason) if crashed else "stopped"
        error = None if crashed else AgentUnavailable(self.path, why)
        self._refuse_parked(why)
        for line in tuple(more.pending.values()):
            while line:
                self.lose(line.popleft(), why, error)
        for item in queue:
            self.lose(item, why, error)
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
        if more.timers is not None:
            for timer in more.timers:
                timer.cancel()
            more.timers = None
        if more.follows is not None:
            for sinks, key, follow in more.follows:
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

    def _finish(self, reason: ExitReason) -> None:
        """Everything has unwound: tell the supervisor and the listeners."""
        self._unseat()
        more = self.more
        report = True
        if more is not None:
            report, more.silent = not more.silent, False
            if more.errors:
                reason = _with_errors(reason, more.errors)
                more.errors = []
            more.holder = None
            more.active.clear()
            more.pending.clear()
            more.random = None
            if more.sinks is not None:
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

    @enable_ki_protection
    async def wait_down(self) -> None:
        """Wait until the present incarnation has ended and unwound."""
        while self.state < DOWN:
            await self._wait()

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
    first = () if reason.error is None else (reason.error,)
    both = BaseExceptionGroup("errors of one incarnation", [*first, *errors])
    return ExitReason("error", error=both if len(both.exceptions) > 1 else both.exceptions[0])
