"""The start of an incarnation: make the agent, enter its lifespan, run its first turn, open its mailbox.

A start may have to wait until a lifespan has been entered or children have started. Nearly all starts need
not wait; they run in the caller's step, without a task switch. A start that fails raises StartFailed and
leaves nothing behind (`Slot.undo_start`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio

from lmos_actors.errors import (
    BROKEN_CODE,
    ConfigError,
    LeaseHeld,
    NameTaken,
    StartFailed,
    StoreFailed,
    WrongState,
    is_interrupt,
    is_permanent,
)

from .._runtime import interruptible
from ..crashes._crashes import crash_reason
from ..crashes._report_values import class_made_by
from ..crashes._reports import ENTERING, FACTORY, RESTORING, STARTED
from ..declaration._fields import name_nearest_field
from ..declaration._history import kept_turn
from ..messages._gates import BUSY, CLOSED, DOWN, DRAINING, ENDING, IDLE, RUNNING, STARTING, STATES
from ..messages._mailbox import PeriodicTurn
from ._lifespan_task import LifespanTask, is_cancel, is_stray
from ._skewed_clock import world_seconds
from ._slot_timers import run_every

if TYPE_CHECKING:
    from .._runtime import AgentSupervisor
    from ..declaration._contract import Contract
    from ..messages._monitor import ExitReason
    from ._slot import Slot


def start_now(slot: Slot) -> None:
    """Start an agent whose start needs no waiting. Raises StartFailed."""
    _open(slot, _make(slot))


async def start_agent(slot: Slot) -> None:
    """Start an agent: enter its lifespan and start its children, if it has any. Raises StartFailed.

    The start waits only for a lifespan or children. Raises NameTaken for a durable agent if another agent
    runs under its key.
    """
    agent = _make(slot)
    contract = agent.__contract__
    if contract.state is None and not (contract.has_lifespan or contract.has_children):
        _open(slot, agent)
    elif slot.incarnation or slot.spec.restart == "permanent":
        with slot.rt.starts.under_way(slot, again=slot.incarnation > 0 or slot.spec.optional):
            await _start_waiting(slot, agent, contract)
    else:
        await _start_waiting(slot, agent, contract)


async def _start_waiting(slot: Slot, agent: Any, contract: Contract) -> None:
    """Start an agent that has been made and whose start has to wait."""
    if contract.state is not None and not await _restore(slot, agent):
        return
    if contract.has_lifespan or contract.has_children:
        slot.install(agent)
        try:
            await _prepare(slot, contract)
        except BaseException as exc:
            reason = crash_reason(slot, exc, ENTERING)
            cause = await slot.undo_start(exc)
            own = isinstance(exc, StartFailed) and exc.path == slot.path
            if (is_cancel(exc) and not is_stray(exc)) or (cause is exc and own):
                raise
            slot.rt.crashes.take(slot, reason)
            raise _start_failed(slot, exc, reason) from cause
        if slot.state not in (STARTING, DRAINING):
            return
    _open(slot, agent)
    gate = slot.output_gate
    if gate is not None and gate.timers is not None and slot.agent is agent:
        gate.timers.begin()


def child_supervisor(slot: Slot) -> AgentSupervisor:
    """Return the supervisor of the agent's children, made at the first call.

    Raises WrongState when the agent is ending, and any error that its `supervises()` raises.
    """
    extra = slot.extra or slot.ensure_extra()
    if extra.child_supervisor is None:
        starter = slot.rt.starter
        if slot.state >= ENDING or starter is None:
            raise WrongState(slot.path, STATES[slot.state], "it starts no more children")
        extra.child_supervisor = starter(slot)
    return extra.child_supervisor


def _make(slot: Slot) -> Any:
    """Make the agent object. Raises StartFailed."""
    slot.state = STARTING
    try:
        staging, spec = slot.rt.staging, slot.spec
        factory = slot.factory if spec.references else spec.factory  # without a call: agents are many
        agent = interruptible(factory if staging is None else partial(staging.make, slot))
        contract = getattr(type(cast("object", agent)), "__contract__", None)
        if contract is None:
            raise TypeError(f"the factory made {agent!r}, which is no agent")
        if agent._slot is not None:
            raise TypeError(f"the factory returned {agent!r}, which lives already; it must make a new one")
    except BaseException as exc:
        slot.state = DOWN
        name_nearest_field(exc, class_made_by(slot.spec.factory))
        reason = crash_reason(slot, exc, FACTORY)
        slot.rt.crashes.take(slot, reason)
        raise _start_failed(slot, exc, reason) from exc
    if slot.extra is not None and slot.extra.kept is not None:
        kept, slot.extra.kept = slot.extra.kept, None
        agent.__dict__.update(kept)
    slot.table = contract.table if staging is None else staging.table(slot, agent)
    return agent


async def _restore(slot: Slot, agent: Any) -> bool:
    """Restore the kept state of a durable agent; return False if it is suspended: its store fails, or another
    node runs it.

    Raises StartFailed, NameTaken.
    """
    extra = slot.ensure_extra()
    extra.suspended = False
    try:
        if slot.rt.keeping is None:
            raise ConfigError(
                f"{type(agent).__name__} is durable, and the node has no store: open_node(store=...), or "
                f"lmos-actors serve --store"
            )
        await slot.rt.keeping.restore(slot, agent)
    except (StoreFailed, LeaseHeld) as exc:
        slot.state = DOWN
        # one that has run before, or stands by, is unavailable until the store works, or the lease ends
        if slot.incarnation or (isinstance(exc, LeaseHeld) and slot.spec.standby):
            extra.suspended = True
            return False
        raise _start_failed(slot, exc, crash_reason(slot, exc, RESTORING)) from exc
    except BaseException as exc:
        slot.state = DOWN
        if (is_cancel(exc) and not is_stray(exc)) or isinstance(exc, NameTaken):
            raise
        reason = crash_reason(slot, exc, RESTORING)
        slot.rt.crashes.take(slot, reason)
        raise _start_failed(slot, exc, reason) from exc
    return True


async def _prepare(slot: Slot, contract: Contract) -> None:
    if contract.has_lifespan:
        lifespan_task = slot.ensure_extra().lifespan_task = LifespanTask(slot)
        await lifespan_task.enter()
    if contract.has_children and slot.state < ENDING:
        extra = slot.ensure_extra()
        extra.silent = True  # should the agent die meanwhile, it is a failed start and no more
        failed: StartFailed | None = None
        try:
            await child_supervisor(slot).ready()
        except StartFailed as exc:
            failed = exc
        if slot.state >= ENDING and extra.reason is not None and extra.reason.error is not None:
            raise extra.reason.error
        if failed is not None:
            raise failed
        extra.silent = False


def _open(slot: Slot, agent: Any) -> None:
    """Run `started()`, the first turn, and open the mailbox. Raises StartFailed."""
    if slot.agent is None:
        slot.install(agent)
    slot.incarnation += 1
    slot.gate = BUSY
    if slot.state != DRAINING:
        own = slot.extra.own if slot.extra is not None else 0  # messages to itself from its lifespan
        slot.size = slot.mailbox.size + own
    contract = agent.__contract__
    if (contract.has_started or contract.periodic) and not _survives_first_turn(slot, agent, contract):
        return
    slot.state = DRAINING if slot.state == DRAINING else RUNNING
    if slot.rt.instrument is not None:
        restored = {} if slot.output_gate is None else {"restored": slot.output_gate.restored}
        slot.rt.record("started", slot, incarnation=slot.incarnation, **restored)
    if slot.gate == BUSY:
        if slot.queue or slot.state == DRAINING or slot.extra is not None:
            slot.resume()
        else:
            slot.gate = IDLE
    extra = slot.extra
    if extra is not None:
        if extra.sinks is not None and slot.agent is not None:
            slot.show_properties(extra.sinks)
        slot.wake_waiters()


def _survives_first_turn(slot: Slot, agent: Any, contract: Any) -> bool:
    turns = slot.turns
    outer = turns.slot, turns.current
    turns.slot, turns.current = slot, (None, (), None)
    try:
        if contract.has_started:
            slot.context().run(agent.started)
    except BaseException as exc:
        reason = crash_reason(slot, exc, STARTED)
        slot.incarnation -= 1
        slot.ensure_extra().silent = True
        slot.die(reason)
        raise _start_failed(slot, exc, reason) from exc
    finally:
        turns.slot, turns.current = outer
        turns.leave = False
    slot.restore_stashed()
    if slot.gate == CLOSED:
        return False
    for seconds, name in contract.periodic:
        turn = kept_turn(agent, getattr(agent, name))
        run_every(slot, trio.current_time() + world_seconds(slot, seconds), seconds, PeriodicTurn(turn))
    return True


def _start_failed(slot: Slot, exc: BaseException, reason: ExitReason) -> StartFailed:
    """Make the error for a start that failed; an interrupt such as Ctrl-C also ends the node."""
    if slot.rt.fatal is not None and is_interrupt(exc):
        slot.rt.fatal(exc)
    error, report = reason.error or exc, reason.report
    wrong = is_permanent(exc) or (report.handler == FACTORY and isinstance(exc, BROKEN_CODE))
    return StartFailed(slot.path, report.text(error) or type(error).__name__, is_permanent=wrong)
