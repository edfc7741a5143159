"""The dispatcher: the one task of a node that runs the turns of its agents.

An idle agent owns no task. An agent that gets mail is put in the ready queue (`Runtime.schedule`); the
dispatcher takes agents from it in order and runs a batch of at most `BATCH` messages of each, so that agents
are served in turn however much mail one of them has. After `BUDGET` messages or, in real time, after 10 ms,
it makes a checkpoint, so that other tasks, I/O and Ctrl-C are served too. The watchdog thread says when those
10 ms have passed, so that no clock is read for each message. In a simulation
only messages are counted: real time would make a run depend on the speed of the machine.

What this file keeps true:

- Turns never nest. `turns.slot` is set while a turn runs; a verb of a ref that has to be awaited is refused
  then. So depth is 1, recursion between agents is impossible, and one record says whose turn it is.
- Every message of a batch is counted once, and what a turn left in the batch goes back in front, in order.
- An exception of a turn arrives somewhere: at the asker, in the reason of the agent's end, or at the node's
  root. It ends only its own agent.
- `async def` actions are handed to runners (`_invocation.py`) and cost the dispatcher nothing.

Read `dispatch`, then `run_batch`, which is the hot path and is written without calls for the common item, a
plain tuple of a one-way message; `_take` carries out the others. `_leave` follows a batch after which the
agent is not simply ready or idle, `_failed` one that raised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    current_task,
    current_trio_token,
    enable_ki_protection,
    wait_task_rescheduled,
)

from lmos_actors.errors import AgentDied, AgentError, InvalidInput

from ._runtime import BUDGET
from .crashes._crashes import crash_reason
from .crashes._reports import EARLIER
from .messages._gates import BUSY, DRAINING, IDLE, QUIET, RUNNING, WORKED
from .messages._invocation import declared_failure
from .messages._mailbox import DONE, QUEUED, Envelope, InternalTurn, SelfEnvelope, SelfMessage, Stashed, Tell
from .messages._operation import GATED
from .slot._slot import NO_MAIL
from .values import conceal

LIVELOCK_AFTER = 2_000  # passes with turns left after which the guard checks whether time goes on
LIVELOCK_RECHECK = 40  # passes until the next check, once it does not
SHORTEST_WAIT: Final = 1e-6  # seconds that turns then wait
LONGEST_WAIT: Final = 0.05

if TYPE_CHECKING:
    from types import FrameType

    from ._runtime import Runtime
    from .messages._operation import Operation
    from .slot._pacing import Pacing
    from .slot._slot import Slot


@enable_ki_protection
async def dispatch(rt: Runtime) -> None:
    """Run turns forever, as the node's own task."""
    ready, turns = rt.ready, rt.turns
    rt.token = current_trio_token()

    def abort(_: object) -> Abort:
        rt.dispatcher = None
        return Abort.SUCCEEDED

    livelock = _LivelockGuard()

    def serve() -> None:
        """Run turns until none is left, or until it is time for a checkpoint."""
        turns.budget = BUDGET
        while ready and turns.budget > 0:
            slot: Slot = ready.popleft()
            if slot.gate == BUSY:
                if slot.output_gate is None:
                    run_batch(rt, slot, slot.take_batch())
                else:
                    run_next(rt, slot, slot.take_one)
            elif slot.gate == WORKED:
                run_worked(rt, slot, slot.ensure_pacing())
        if ready:
            livelock.passes += 1

    while True:
        if not ready:
            if livelock.passes:
                livelock.reset()
            rt.run_worked = run_worked
            others = rt.timers.go_on(ready, serve)
            rt.run_worked = None
            if not ready:
                rt.dispatcher = current_task()
                await wait_task_rescheduled(abort)
            elif others:
                await checkpoint()
        if rt.wake_watchdog is not None:
            rt.wake_watchdog()
        serve()
        if ready:
            if livelock.passes < LIVELOCK_AFTER:
                await checkpoint()
            else:
                await livelock.check(rt, abort)


def run_now(slot: Slot, envelope: Envelope) -> bool:
    """Run a turn in the step of a caller that is in no turn; False if it has to wait for the dispatcher.

    The agent must be idle, and nothing may record messages or spans. It never blocks or raises.
    """
    rt, op = slot.rt, envelope.op
    waiting = slot.accepted - slot.begun
    if op.kind or slot.turns.budget <= 0 or 0 < slot.size <= waiting:  # no seat is free
        return False
    if rt.edge is not None or slot.traced or (slot.gate and not slot.leave_tally()):
        return False
    if rt.wake_watchdog is not None:
        rt.wake_watchdog()
    slot.accepted += 1
    envelope.phase = QUEUED
    slot.gate = BUSY
    run_batch(rt, slot, [envelope])
    if rt.ready and rt.dispatcher is not None:
        rt.schedule(rt.ready.pop())  # what the turn left: `run_batch` takes the dispatcher to be awake
    return True


class _LivelockGuard:
    """A guard that advances virtual time if endless turns would stop it; real time passes by itself.

    An agent that sends itself a message in every turn never lets the clock jump ahead. Once half a million
    messages have been handled twice at one instant, turns wait for time to pass, longer each time, until no
    turns are left. So timers fire, and a stop whose time is up ends the agent.
    """

    __slots__ = ("_since", "_step", "passes")

    def __init__(self) -> None:
        self.passes = 0
        self._since: float | None = None
        self._step = 0.0

    def reset(self) -> None:
        """Start over, as no turns are left."""
        self.passes = 0
        self._since = None
        self._step = 0.0

    async def check(self, rt: Runtime, abort: Callable[[object], Abort]) -> None:
        """Check whether time has passed; if not, let time pass until another agent has a turn to take."""
        now = trio.current_time()
        if not self._step and now != self._since:
            self._since = now
            self.passes = 0
            await checkpoint()
            return
        self._step = min(max(2 * self._step, SHORTEST_WAIT), LONGEST_WAIT)
        self.passes = LIVELOCK_AFTER - LIVELOCK_RECHECK
        with trio.move_on_after(self._step):
            rt.dispatcher = current_task()
            await wait_task_rescheduled(abort)


def run_batch(rt: Runtime, slot: Slot, batch: list[Any]) -> None:
    """Run a batch of an agent's turns.

    The hot path, and longer than a function here should be: splitting it would cost a call per batch.
    """
    turns = rt.turns
    agent = slot.agent
    ctx = slot.ctx
    run = (slot.context() if ctx is None else ctx).run  # by `or` it would be asked for its length
    turns.slot = slot
    done = other = 0
    op: Operation
    args: Any
    try:
        for item in batch:
            done += 1
            turns.current = item
            kind = type(item)  # pyright: ignore[reportUnknownVariableType] # keeps `item` Any below
            if kind is tuple:
                op, args, _ = item
                if len(args) == 1:  # a star costs as much as the call
                    run(op.fn, agent, args[0])
                else:
                    run(op.fn, agent, *args)
            else:
                _take(slot, item, run)
                other += 1
            if turns.leave:
                break
    except BaseException as exc:  # noqa: ASYNC103 -- it arrives: at the asker, in the reason, or at the node's root
        turns.slot = None
        tells = done - 1 - other
        slot.begun += tells
        slot.handled += tells
        _failed(rt, slot, exc, batch, done)
        return
    turns.slot = None
    tells = done - other
    slot.begun += tells
    slot.handled += tells
    turns.budget -= done
    extra = slot.extra
    unusual = turns.leave or slot.gate != BUSY or slot.state != RUNNING or slot.output_gate is not None
    if unusual or (extra is not None and (extra.parked or extra.stash is not None or extra.pace is not None)):
        _leave(rt, slot, batch, done)
    elif slot.queue:  # the common case, without the call
        rt.ready.append(slot)
    else:
        slot.queue = NO_MAIL
        slot.gate = IDLE


def run_next(rt: Runtime, slot: Slot, take: Callable[[], list[Any]]) -> None:
    """Run a durable agent's turn, for the item that `take` returns; outputs leave once state is kept."""
    gate = slot.output_gate
    if gate is None:
        run_batch(rt, slot, take())
    elif gate.begin_turn():
        batch = take()
        run_batch(rt, slot, batch)
        try:
            gate.end_turn()
        except BaseException as exc:  # noqa: ASYNC103 -- a value of the state is not of its type: the turn crashes
            slot.turn_crashed(exc, crash_reason(slot, exc, batch[0]))


def run_worked(rt: Runtime, slot: Slot, pace: Pacing) -> None:
    """Run the turn of the message on which an agent has spent its service time.

    This does for one message what `run_batch` and `_take` do, without the calls that a batch takes: in a
    simulation with service times this is the hot path.
    """
    item: Any = pace.item
    kind = type(item)  # pyright: ignore[reportUnknownVariableType] # as in `run_batch`
    if slot.output_gate is not None or (kind is not Tell and not issubclass(kind, InternalTurn)):
        run_next(rt, slot, pace.take_finished_work)
        return
    pace.item = None
    slot.gate = BUSY
    turns = rt.turns
    turns.slot = slot
    turns.current = item
    ctx = slot.ctx
    run = (slot.context() if ctx is None else ctx).run
    try:
        if kind is not Tell:
            fn, args = item.take()
            given = run(fn, *args)
            if given is not None:
                _refuse_coroutine(given, fn)
        elif item.op.kind or item.trace is None or rt.edge is not None:
            slot.begun -= 1
            item.phase = QUEUED
            _take(slot, item, run)
        else:
            _take_worked(rt, slot, item, run)
    except BaseException as exc:  # noqa: ASYNC103 -- as in `run_batch`
        turns.slot = None
        _failed(rt, slot, exc, [item], 1)
        return
    turns.slot = None
    turns.budget -= 1
    extra = slot.extra
    unusual = turns.leave or slot.gate != BUSY or slot.queue or pace.holds or not pace.seconds
    if unusual or slot.state == DRAINING or extra is None or extra.stash is not None or extra.parked:
        _leave(rt, slot, [item], 1)
    else:  # the common case, as `resume` would leave it
        slot.queue = NO_MAIL
        slot.gate = QUIET


def _take_worked(rt: Runtime, slot: Slot, tell: Tell, run: Any) -> None:
    """Carry out a plain one-way message that has a trace, as `_take` does, and write its two records."""
    tell.phase = DONE
    op, mark, instrument = tell.op, tell.trace, rt.instrument
    number = None if mark is None else mark[0]
    if instrument is not None:
        instrument.record("delivered", slot.path, {"id": number, "affordance": op.name})
    value = run(op.fn, slot.agent, *tell.args)
    try:
        value = op.give(value)
    except InvalidInput as exc:
        raise op.wrong_result(exc) from None
    slot.handled += 1
    if op.result_secrecy:
        value = conceal(value, op.result_secrecy)
    if instrument is not None:
        instrument.record("answered", slot.path, {"id": number, "affordance": op.name, "value": value})


def _leave(rt: Runtime, slot: Slot, batch: list[Any], done: int) -> None:
    """Put back the messages that were not taken, and go on as the agent's state requires."""
    turns = rt.turns
    left = turns.leave
    turns.leave = False
    if done < len(batch):
        slot.put_back(batch[done:])
    extra = slot.extra
    if extra is not None:
        if extra.stash is not None:
            slot.restore_stashed()
        if extra.parked:
            slot.admit()
    if slot.gate == BUSY:
        extra = slot.extra
        if extra is not None and extra.pace is not None:
            slot.resume()
        elif slot.queue:
            rt.ready.append(slot)
        else:
            slot.queue = NO_MAIL
            quiet = slot.output_gate is not None or (extra is not None and extra.parked)
            slot.gate = QUIET if quiet else IDLE
            if slot.state == DRAINING:
                slot.on_idle()
    elif left:
        slot.after_turn()


def _take(slot: Slot, item: Any, run: Any) -> None:
    """Carry out one item that is not a plain one-way message."""
    if isinstance(item, InternalTurn):
        fn, args = item.take()
        given = run(fn, *args)
        if given is not None:
            _refuse_coroutine(given, fn)
        return
    if isinstance(item, SelfMessage):
        _take_own(slot, item, run)
        return
    envelope: Envelope = item
    if envelope.phase == DONE:  # its consumer is gone
        slot.ensure_extra().withdrawn -= 1
        return
    op = envelope.op
    if op.kind:
        if op.kind != GATED:
            _begin(slot, envelope)
            return
        if not slot.enabled(op):
            slot.postpone_or_refuse(envelope)
            return
    slot.begun += 1
    envelope.phase = DONE
    rt, trace = slot.rt, envelope.trace
    instrument = rt.instrument
    # `Runtime.note` is written out for the two commonest records
    if trace is not None and instrument is not None:
        instrument.record("delivered", slot.path, {"id": trace[0], "affordance": op.name})
    spans = trace is not None and rt.edge is not None
    value = _carry_out(slot, envelope, run) if spans else run(op.fn, slot.agent, *envelope.args)
    try:
        value = op.give(value)
    except InvalidInput as exc:
        raise op.wrong_result(exc) from None
    slot.handled += 1
    if trace is not None and instrument is not None:
        shown = conceal(value, op.result_secrecy) if op.result_secrecy else value
        fields: dict[str, object] = {"id": trace[0], "affordance": op.name, "value": shown}
        instrument.record("answered", slot.path, fields)
    if slot.output_gate is None:
        envelope.answer(value)
    else:
        slot.output_gate.answer(envelope, value, None)


def _carry_out(slot: Slot, envelope: Envelope, run: Any) -> Any:
    """Run a turn that has a trace, inside its span."""
    edge = slot.rt.edge
    assert edge is not None
    token = run(edge.enter, envelope)
    try:
        return run(envelope.op.fn, slot.agent, *envelope.args)
    finally:
        run(edge.leave, token)


def _refuse_coroutine(given: Any, fn: Any) -> None:
    """Raise TypeError for a coroutine, as the turn of a timer or follower cannot await it."""
    if isinstance(given, Coroutine):
        given.close()
        raise TypeError(
            f"{getattr(fn, '__qualname__', fn)} is async def, and a turn cannot wait: write it as def, and "
            f"begin what takes time by self.nursery.start_soon(...)"
        )


def _take_own(slot: Slot, item: SelfMessage, run: Any) -> None:
    """Carry out a message that the agent has sent to itself."""
    op, args, sender = item
    if op.kind and not slot.enabled(op):
        slot.postpone_or_refuse(item)
        return
    if op.kind and op.kind != GATED:
        envelope, mark = SelfEnvelope(slot, op, args, sender), item.trace
        if mark is not None:
            envelope.trace = (0, *mark[1:])  # in the trace, and no message with a number
        _begin(slot, envelope)
        return
    slot.free_own_seat()
    slot.begun += 1
    run(op.fn, slot.agent, *args)
    slot.handled += 1


def _begin(slot: Slot, envelope: Envelope) -> None:
    """Begin the run of a message; the agent's next turns wait until the run has made its first step."""
    slot.begin_run(envelope, hold=True)
    if slot.gate != BUSY:
        slot.turns.leave = True


def batch_in_hand(slot: Slot) -> tuple[list[Any], list[Any]]:
    """Return the messages of the current batch: those whose turns have begun, and the others.

    Both lists are empty if no batch of that agent runs now. The batch is read from the frame of `run_batch`,
    as storing it anywhere else would slow down every batch.
    """
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] # documented by CPython
    while frame is not None and frame.f_code is not run_batch.__code__:
        frame = frame.f_back
    names: dict[str, Any] = {} if frame is None else frame.f_locals
    if names.get("slot") is not slot:
        return [], []  # its turn runs in an asker's step, or it is one of a timer
    batch, done = names["batch"], names["done"]
    return batch[:done], batch[done:]


def _fired(item: InternalTurn, exc: BaseException) -> InternalTurn:
    """Return a timer's turn with its original arguments.

    A following has dropped them by now, but they are still in the frame of `_take` or `run_worked`.
    """
    traceback = exc.__traceback__
    taking = (_take.__code__, run_worked.__code__)
    while traceback is not None and traceback.tb_frame.f_code not in taking:
        traceback = traceback.tb_next
    taken: dict[str, Any] = traceback.tb_frame.f_locals if traceback is not None else {}
    fired = InternalTurn(taken.get("fn", item.fn), taken.get("args", item.args))
    fired.trace = item.trace
    return fired


def _failed(rt: Runtime, slot: Slot, exc: BaseException, batch: list[Any], done: int) -> None:
    """Handle an exception of a turn: answer the asker; end the agent unless it is a declared failure.

    A foreign exception never reaches the asker unchanged: near and far askers get the same `AgentDied`.
    """
    item = batch[done - 1]
    if isinstance(exc, Stashed):
        rt.turns.budget -= done
        if isinstance(item, SelfMessage):
            slot.take_own_seat()
        if type(item) is not tuple:
            slot.begun -= 1
        slot.put_aside(item)
        _leave(rt, slot, batch, done)
        return
    failure: Exception | None = declared_failure(exc)
    envelope = item if isinstance(item, Envelope) else None
    if failure is None and envelope is not None and envelope.op.internal and isinstance(exc, AgentError):
        failure = exc
    if not isinstance(item, InternalTurn):
        slot.handled += 1
        if type(item) is tuple:
            slot.begun += 1
    rt.turns.budget -= done
    if failure is None:
        hand = _fired(item, exc) if isinstance(item, InternalTurn) else cast("Any", item)
        reason = crash_reason(slot, exc, hand, batch[max(0, done - 1 - EARLIER) : done - 1])
        if envelope is not None:
            died = AgentDied(str(reason), started=True, agent=slot)
            if envelope.trace is not None:
                rt.note("answered", envelope, error=f"AgentDied: {died}")
            envelope.fail(died)
        slot.put_back(batch[done:])
        rt.turns.leave = False
        slot.turn_crashed(exc, reason)
        return
    if envelope is not None:
        output = getattr(failure, "output", None)
        rt.note("answered", envelope, error=f"{type(failure).__name__}: {failure}", output=output)
        if slot.output_gate is None:
            envelope.fail(failure)
        else:
            slot.output_gate.answer(envelope, None, failure)
    _leave(rt, slot, batch, done)
