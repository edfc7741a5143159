"""A slot's life: start, the end of a turn, the end of a run. How it ends is in `_ending.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio

from lmos_actors._errors import AgentDied, AgentError, StartFailed, text_of

from ._cell import BUSY, CLOSED, DOWN, DRAINING, ENDING, HELD, IDLE, QUIET, RUNNING, SERIAL, STARTING
from ._ending import Mortal
from ._holder import Holder, is_cancel
from ._invocation import declared_failure
from ._mailbox import Periodic
from ._monitor import SHUTDOWN, ExitReason
from ._runtime import interruptible

if TYPE_CHECKING:
    from ._invocation import Run
    from ._operation import Operation


_AT_REST = (IDLE, SERIAL, HELD, QUIET)


class Slot(Mortal):
    """What refs point to: one place in the tree, and whoever lives there now."""

    __slots__ = ()

    # ---- start

    def make(self) -> Any:
        """Make the agent object. Raises StartFailed."""
        self.state = STARTING
        try:
            agent = interruptible(self.spec.factory)
            contract = getattr(type(cast("object", agent)), "__contract__", None)
            if contract is None:
                raise TypeError(f"the factory made {agent!r}, which is no agent")
            if agent._slot is not None:
                raise TypeError(f"the factory gave {agent!r}, which lives already; it must make a new one")
        except BaseException as exc:
            self.state = DOWN
            raise self._start_failed(exc) from exc
        self.table = contract.table
        return agent

    def _start_failed(self, exc: BaseException) -> StartFailed:
        """Make the error for a start that failed; what is no `Exception` ends the node too (T5)."""
        if not isinstance(exc, Exception) and self.rt.fatal is not None:
            self.rt.fatal(exc)
        return StartFailed(self.path, text_of(exc) or type(exc).__name__)

    def start_now(self) -> None:
        """Start an agent whose start needs no waiting. Raises StartFailed."""
        self.open(self.make())

    async def start(self) -> None:
        """Start an agent; enter its lifespan if it has one. Raises StartFailed."""
        agent = self.make()
        if not agent.__contract__.has_lifespan:
            self.open(agent)
            return
        self._seat(agent)
        holder = self.furnish().holder = Holder(self)
        try:
            await holder.enter()
        except BaseException as exc:
            self._start_over(exc)
            if is_cancel(exc):
                raise
            raise self._start_failed(exc) from exc
        if self.state in (STARTING, DRAINING):
            self.open(agent)

    def _seat(self, agent: Any) -> None:
        self.agent = agent
        agent._slot = self
        self.ctx = None

    def open(self, agent: Any) -> None:
        """Run `started()`, the first turn, and open the mailbox. Raises StartFailed."""
        if self.agent is None:
            self._seat(agent)
        self.incarnation += 1
        self.gate = BUSY
        if self.state != DRAINING:
            self.size = self.mailbox.size
        contract = agent.__contract__
        if (contract.has_started or contract.periodic) and not self._survives_first_turn(agent, contract):
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
            if more.sinks is not None and self.agent is not None:
                self.show_properties(more.sinks)
            self._wake_waiters()

    def _survives_first_turn(self, agent: Any, contract: Any) -> bool:
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
        if self.gate == CLOSED:
            return False
        for seconds, name in contract.periodic:
            self.tick(trio.current_time() + seconds, seconds, Periodic(getattr(agent, name)))
        return True

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
        if self.state == DRAINING and self.gate in _AT_REST and self.turns.slot is not self:
            more = self.furnish()
            if not self.queue and not more.runs and not any(more.pending.values()) and not more.out:
                self._end(more.reason or SHUTDOWN)
            elif self.gate == IDLE:
                self.gate = QUIET

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
            self.begin_run(line.first(), hold=False)
            self.admit()
        elif self.gate == IDLE:
            if more.out:
                self.gate = HELD
            else:
                self.resume()
        else:
            self.settled_down()
