"""The start of an incarnation, the end of a turn, the end of a run.

How an incarnation ends is in `_slot_lifecycle.py`. A start may wait (a lifespan to enter, children to start)
or not; those that need not wait, which are nearly all, start in the step of the caller, without a task
switch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs
import trio

from lmos_actors.errors import AgentDied, AgentError, StartFailed, WrongState

from ._crashes import crash_reason, end_reason
from ._gates import (
    BUSY,
    CLOSED,
    DOWN,
    DRAINING,
    ENDING,
    HELD,
    IDLE,
    PAUSED,
    QUIET,
    RUNNING,
    SERIAL,
    STARTING,
    STATES,
)
from ._history import kept_turn
from ._invocation import declared_failure
from ._lifespan_task import LifespanTask, is_cancel
from ._mailbox import PeriodicTurn, Stashed
from ._monitor import SHUTDOWN
from ._reports import ENTERING, FACTORY, STARTED
from ._runtime import interruptible
from ._slot_lifecycle import SlotLifecycle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._contract import Contract
    from ._invocation import Run
    from ._monitor import ExitReason
    from ._operation import Operation
    from ._runtime import AgentSupervisor


_AT_REST = (IDLE, SERIAL, HELD, QUIET, PAUSED)


class Slot(SlotLifecycle):
    """What refs point to: one place in the tree, and the agent that lives there now."""

    __slots__ = ()

    # ---- start

    @property
    def factory(self) -> Callable[[], Any]:
        """What makes the next agent: as the spec has it, with refs in the place of references to siblings."""
        spec = self.spec
        if not spec.references:
            return spec.factory  # type: ignore[no-any-return]
        return spec.filled(self.owner.ref_to)  # type: ignore[no-any-return]

    def make(self) -> Any:
        """Make the agent object. Raises StartFailed."""
        self.state = STARTING
        try:
            staging, spec = self.rt.staging, self.spec
            factory = self.factory if spec.references else spec.factory  # without a call: agents are many
            agent = interruptible(factory if staging is None else partial(staging.make, self))
            contract = getattr(type(cast("object", agent)), "__contract__", None)
            if contract is None:
                raise TypeError(f"the factory made {agent!r}, which is no agent")
            if agent._slot is not None:
                raise TypeError(f"the factory gave {agent!r}, which lives already; it must make a new one")
        except BaseException as exc:
            self.state = DOWN
            reason = crash_reason(self, exc, FACTORY)
            self.rt.crashes.take(self, reason)
            raise self._start_failed(exc, reason) from exc
        self._restore_kept_state(agent)
        self.table = contract.table if staging is None else staging.table(self, agent)
        return agent

    def keep_state(self) -> None:
        """Have the next incarnation begin with the state that this one has now. Raises AgentUnavailable."""
        agent = self.agent
        if agent is None:
            raise self.closed_error()
        fields = [field.name for field in attrs.fields(agent.__class__)]
        names = ("_behaviour", *fields, *(p.hidden for p in agent.__contract__.properties.values()))
        self.ensure_extra().kept = {name: agent.__dict__[name] for name in names if name in agent.__dict__}

    def _restore_kept_state(self, agent: Any) -> None:
        extra = self.extra
        if extra is not None and extra.kept is not None:
            kept, extra.kept = extra.kept, None
            agent.__dict__.update(kept)

    def _start_failed(self, exc: BaseException, reason: ExitReason) -> StartFailed:
        """Make the error for a start that failed; what is no `Exception` ends the node too."""
        if not isinstance(exc, Exception) and self.rt.fatal is not None:
            self.rt.fatal(exc)
        error = reason.error or exc
        return StartFailed(self.path, reason.report.text(error) or type(error).__name__)

    def start_now(self) -> None:
        """Start an agent whose start needs no waiting. Raises StartFailed."""
        self.open(self.make())

    def start_at_once(self) -> Any:
        """Make an agent, and start it if that needs no waiting, else return it. Raises StartFailed."""
        agent = self.make()
        contract = agent.__contract__
        if contract.has_lifespan or contract.has_children:
            return agent
        self.open(agent)
        return None

    async def start(self, agent: Any = None) -> None:
        """Start an agent: enter its lifespan, start its children, as it has any. Raises StartFailed.

        `agent` is one that `start_at_once` has made.
        """
        if agent is None:
            agent = self.make()
        contract = agent.__contract__
        if contract.has_lifespan or contract.has_children:
            self._install(agent)
            try:
                await self._prepare(contract)
            except BaseException as exc:
                reason = crash_reason(self, exc, ENTERING)
                cause = await self.undo_start(exc)
                if is_cancel(exc) or (cause is exc and self._is_own_failure(exc)):
                    raise
                self.rt.crashes.take(self, reason)
                raise self._start_failed(exc, reason) from cause
            if self.state not in (STARTING, DRAINING):
                return
        self.open(agent)

    def _is_own_failure(self, exc: BaseException) -> bool:
        return isinstance(exc, StartFailed) and exc.path == self.path

    async def _prepare(self, contract: Contract) -> None:
        if contract.has_lifespan:
            lifespan_task = self.ensure_extra().lifespan_task = LifespanTask(self)
            await lifespan_task.enter()
        if contract.has_children and self.state < ENDING:
            extra = self.ensure_extra()
            extra.silent = True  # should the agent die meanwhile, it is a failed start and no more
            failed: StartFailed | None = None
            try:
                await self.child_supervisor().ready()
            except StartFailed as exc:
                failed = exc
            if self.state >= ENDING and extra.reason is not None and extra.reason.error is not None:
                raise extra.reason.error
            if failed is not None:
                raise failed
            extra.silent = False

    def child_supervisor(self) -> AgentSupervisor:
        """Return the supervisor of the agent's children, made at the first call.

        Raises WrongState when the agent is ending, and what its `supervises()` raises.
        """
        extra = self.ensure_extra()
        if extra.child_supervisor is None:
            starter = self.rt.starter
            if self.state >= ENDING or starter is None:
                raise WrongState(self.path, STATES[self.state], "it starts no more children")
            extra.child_supervisor = starter(self)
        return extra.child_supervisor

    def _install(self, agent: Any) -> None:
        self.agent = agent
        agent._slot = self
        self.ctx = None

    def open(self, agent: Any) -> None:
        """Run `started()`, the first turn, and open the mailbox. Raises StartFailed."""
        if self.agent is None:
            self._install(agent)
        self.incarnation += 1
        self.gate = BUSY
        if self.state != DRAINING:
            own = self.extra.own if self.extra is not None else 0  # what its lifespan has sent to itself
            self.size = self.mailbox.size + own
        contract = agent.__contract__
        if (contract.has_started or contract.periodic) and not self._survives_first_turn(agent, contract):
            return
        self.state = DRAINING if self.state == DRAINING else RUNNING
        if self.rt.instrument is not None:
            self.rt.record("started", self, incarnation=self.incarnation)
        if self.gate == BUSY:
            if self.queue or self.state == DRAINING or self.extra is not None:
                self.resume()
            else:
                self.gate = IDLE
        extra = self.extra
        if extra is not None:
            if extra.sinks is not None and self.agent is not None:
                self.show_properties(extra.sinks)
            self._wake_waiters()

    def _survives_first_turn(self, agent: Any, contract: Any) -> bool:
        turns = self.turns
        outer = turns.slot, turns.current
        turns.slot, turns.current = self, (None, (), None)
        try:
            if contract.has_started:
                self.context().run(agent.started)
        except BaseException as exc:
            reason = crash_reason(self, exc, STARTED)
            self.incarnation -= 1
            self.ensure_extra().silent = True
            self.die(reason)
            raise self._start_failed(exc, reason) from exc
        finally:
            turns.slot, turns.current = outer
            turns.leave = False
        self.restore_stashed()
        if self.gate == CLOSED:
            return False
        for seconds, name in contract.periodic:
            turn = kept_turn(agent, getattr(agent, name))
            self.tick(trio.current_time() + seconds, seconds, PeriodicTurn(turn))
        return True

    # ---- the end of a turn

    def inline_failed(self, exc: BaseException, op: Operation, args: tuple[Any, ...]) -> BaseException:
        """Deal with what an inline turn raised; return what its asker is to see.

        A declared failure is raised as it is; anything else ends the agent, and the asker gets `AgentDied`.
        """
        self.turns.leave = False
        if isinstance(exc, Stashed):
            return exc
        self.inline += 1
        failure = declared_failure(exc)
        if failure is not None or (op.internal and isinstance(exc, AgentError)):
            self.after_turn()
            return failure or exc
        return self.turn_crashed(exc, crash_reason(self, exc, (op, args, self.sender())))

    def turn_crashed(self, exc: BaseException, reason: ExitReason) -> BaseException:
        """End the agent for what its turn raised; return what the asker is to see."""
        self.die(reason)
        if not isinstance(exc, Exception):
            if self.rt.fatal is not None:
                self.rt.fatal(exc)
            return exc
        return AgentDied(str(reason), started=True, agent=self)

    def after_turn(self) -> None:
        """Go on after a turn of which something came: held back, stopped, ended."""
        self.restore_stashed()
        if self.gate == BUSY:
            self.resume()

    def on_idle(self) -> None:
        """End a stopping agent once nothing waits or runs any more."""
        if self.state == DRAINING and self.gate in _AT_REST and self.turns.slot is not self:
            extra = self.ensure_extra()
            if not self.queue and not extra.runs and not any(extra.pending.values()) and not extra.out:
                self._end(extra.reason or SHUTDOWN)
            elif self.gate == IDLE:
                self.gate = QUIET

    # ---- runs, as `Run.execute` reports them

    def run_cancelled(self, run: Run) -> None:
        """The coroutine was cancelled; if nobody has settled it, the node is ending."""
        run.settle_error(AgentDied("shutdown", started=run.begun, agent=self), "cancelled")

    def run_crashed(self, run: Run, exc: BaseException) -> None:
        """The coroutine raised what it does not declare."""
        reason = end_reason(self, exc, run.envelope)
        run.settle_error(AgentDied(str(reason), started=True, agent=self), "handled")
        self.die(reason)

    def run_ended(self, run: Run) -> None:
        """The coroutine has unwound."""
        extra = self.ensure_extra()
        extra.runs.pop(run, None)
        if extra.handing is run:
            extra.handing = None
        op = run.op
        extra.active[op] = extra.active.get(op, 1) - 1
        if self.state >= ENDING:
            self._maybe_finish()
            return
        line = extra.pending.get(op)
        if self.gate == SERIAL:
            self.gate = IDLE
        if line and not self.held and self.begin_next(line):
            self.admit()
        elif self.gate == IDLE:
            if extra.out:
                self.gate = HELD
            else:
                self.resume()
        else:
            self.on_idle()
