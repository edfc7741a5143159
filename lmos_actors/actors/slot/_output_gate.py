"""The output gate of a durable agent: no output leaves before the state on which it depends is kept.

A turn of a durable agent runs as any other, but its outputs (its answer, its events, changes of its
properties, its messages) stay here. When the turn has ended its state is handed to the store, and when the
store has kept it, the outputs leave, in the order in which they were made. Meanwhile the agent takes its next
turns, whose outputs queue behind. A turn that has changed nothing needs no commit, but its outputs still
queue behind those that wait, as it may have read state that is not kept yet.

A run (`async def`) has outputs between its awaits, while its state may be half changed. Its outputs are
collected in `_open` and sealed as soon as another task runs: then every run of the agent is at an await,
where a `snapshot_safe` action promises that the state is consistent. An agent of a `serial` class has no such
promise: its outputs are sealed when the run has ended.

What this file keeps true:

- Outputs leave in order, each at most once: by `release` when they are kept, or by `drop`.
- The answer to a request with a key goes to the store in the same batch as the state on which it depends.
- An answer that waits here is not lost to its caller: a deadline or a cancel withdraws it (`HELD_BACK` in
  `_mailbox.py`), and then it is not released.
- A turn that crashes has no outputs, as its state is not kept. The outputs of earlier turns are untouched by
  the crash, as their state is on its way to the store.
- A commit that fails ends the incarnation: all callers here get `AgentDied(started=True)`, messages become
  dead letters, and events are dropped.
- Where other nodes may run the agent, nothing leaves before the store has found that no other node does.
- When `MOST` outputs wait, the agent takes no further turn, as if it waited for a full mailbox elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from trio.lowlevel import (
    Abort,
    checkpoint,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from lmos_actors.errors import AgentDied, MailboxFull, raise_interrupt

from ..messages._gates import BUSY, DRAINING, HELD, IDLE, QUIET
from ..messages._invocation import CURRENT, OwnTask
from ..messages._mailbox import DONE, HELD_BACK
from ..messages._monitor import ExitReason
from ._departure import Departure
from ._unkept_runs import watch_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from lmos_actors._core import Timer, Timers

    from ..messages._invocation import Run
    from ..messages._mailbox import Envelope
    from ..messages._observers import Sink, Sinks

MOST: Final = 1024
"""The most outputs of one agent that may wait for the store."""


class KeptState(Protocol):
    """The state of one agent in the store, as seen by its gate; filled in by persistence."""

    def keep(self) -> int:
        """Hand the present state to the store; return the number of the commit, 0 if nothing changed.

        Numbers grow. The gate's `kept` or `failed` is called for each. Raises the errors of the state's form.
        """
        ...

    def check(self) -> int:
        """Make the store check that no other node runs the agent; return a number, as `keep` does.

        The number is 0 if there is nothing to check, as only this node uses the store.
        """
        ...

    @property
    def epoch(self) -> int | None:
        """The lease number of an agent with its own key; None while the node does not hold the lease."""
        ...

    def ended(self) -> None:
        """Note that the incarnation has ended and has unwound completely."""
        ...

    @property
    def has_state(self) -> bool:
        """Whether the store has state for the next incarnation, or will have it after pending writes."""
        ...

    @property
    def has_changes(self) -> bool:
        """Whether there are facts, or changes of timers, that `keep` has not handed over yet."""
        ...

    @property
    def is_whole_in_runs(self) -> bool:
        """Whether the state is consistent at the awaits of runs; if not, it is kept at the end of a run."""
        ...

    def note(self, fact: object) -> None:
        """Note a fact of a journal, which the next `keep` hands to the store."""
        ...

    def touch(self) -> None:
        """Note that the timers have changed, so that the next `keep` hands them to the store."""
        ...

    def forget(self) -> None:
        """Drop the facts and answers that `keep` has not handed over, as their turn has crashed."""
        ...

    def keep_soon(self) -> None:
        """Schedule a call of the gate's `seal_open` for when another task runs."""
        ...

    def keep_answer(self, name: str, answer: Any) -> None:
        """Record a `KeptAnswer` under the name of its key, which the next `keep` hands to the store."""
        ...

    @property
    def requests(self) -> Any:
        """The requests with keys that are under way, a `KeyedRequests` that is made at the first request."""
        ...


class Output(Protocol):
    """One output of an agent, such as an answer, an event or a message."""

    def release(self) -> None:
        """Send the output. Never blocks or raises."""
        ...

    def drop(self, why: str) -> None:
        """Discard the output, as the state on which it depends was not kept."""
        ...


class GatedSlot(Protocol):
    """The slot of the gate; see `Slot`, which is in a layer above this file."""

    turns: Any
    rt: Any
    gate: int
    state: int
    extra: Any

    @property
    def path(self) -> str: ...
    def resume(self) -> None: ...
    def on_idle(self) -> None: ...
    def die(self, reason: ExitReason) -> None: ...
    def leave_tally(self) -> bool: ...


class OutputGate:
    """The outputs of one durable agent that wait until its state is kept; it outlives the incarnations."""

    __slots__ = (
        "_alarm",
        "_ended",
        "_held",
        "_kept",
        "_last",
        "_open",
        "_turn",
        "_waiting",
        "kept_at",
        "restored",
        "slot",
        "state",
        "timers",
    )

    def __init__(self, slot: Any, state: KeptState) -> None:
        self.slot: GatedSlot = slot
        self.state = state
        self.restored = False  # the present incarnation began with state from the store
        self._alarm: Timer | None = None  # of a run that keeps nothing before its end
        self.timers: Any = None  # its `DurableTimers`, which stand above this file, once it has any
        self._ended = False  # it unwinds, or there is none
        self._turn: list[Output] | None = None  # the outputs of the turn that runs now
        self._open: list[Output] = []  # the outputs of runs since the state was last looked at
        # with the number of the commit they wait for; a list, as an empty deque takes 760 bytes
        self._held: list[tuple[int, list[Output]]] = []
        self._waiting = 0  # outputs in there
        self._last = 0  # the newest commit
        self._kept = 0  # the newest one that is done
        self.kept_at: float | None = None  # when it was done, as a stamp
        self.slot.turns.durables += 1

    @property
    def empty(self) -> bool:
        """Whether no output waits, and no change has to be kept or is on its way to the store."""
        held = self._held or self._open or self._turn is not None
        return not (held or self._kept < self._last or self.state.has_changes)

    @property
    def full(self) -> bool:
        """Whether the agent must take no further turn, as too many outputs wait."""
        return self._waiting >= MOST

    def held_answers(self) -> list[int]:
        """Return the log numbers of the requests whose answers wait for the store."""
        waiting = [*(output for _, outputs in self._held for output in outputs), *self._open]
        numbers = [output.number for output in waiting if isinstance(output, Answer)]
        return [number for number in numbers if number is not None]

    # ---- turns

    def begin_turn(self) -> bool:
        """Prepare for a turn: every run of the agent is at an await. Return False if the agent has died."""
        if (self._open or self.state.has_changes) and not self.seal_open():
            return False
        self._turn = []
        return True

    def end_turn(self) -> None:
        """End a turn: keep its changes, or drop the outputs of a crashed turn.

        Raises the error of the state's form if a field has a value that is not of its type.
        """
        outputs, self._turn = self._turn, None
        if outputs is not None:
            self._seal(outputs)
        slot = self.slot
        if slot.gate == HELD or slot.state == DRAINING or self._waiting >= MOST:
            self._after_change()

    def begin(self, *, restored: bool) -> None:
        """Begin an incarnation; with `restored`, its state comes from the store."""
        self.restored = restored
        self._ended = False

    def end(self) -> None:
        """End the incarnation, and drop all outputs since its state was last kept.

        These are all outputs of a turn that has crashed, and all outputs of runs since their last await.
        Nothing is kept from now on, so outputs of runs that unwind are dropped, too. Outputs of lifespans and
        other tasks of the agent, which clean up, leave after the outputs that wait.
        """
        self._ended = True
        self._turn = None
        self.state.forget()
        opened, self._open = self._open, []
        for output in opened:
            output.drop("its incarnation has ended before its state was kept")

    def serial_run_began(self, run: Run) -> None:
        """Note that a run of a serial agent has begun, and watch it if state is kept only at its end."""
        if not self.state.is_whole_in_runs:
            self._alarm = watch_run(run)

    def run_ended(self) -> None:
        """Note that a run has unwound, so its state may be kept now."""
        self.state.keep_soon()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # ---- what it puts out

    @property
    def waits_in_runs(self) -> bool:
        """Whether requests, items and progress of runs wait until earlier changes are kept."""
        return self.state.is_whole_in_runs

    def note(self, fact: object) -> None:
        """Record a fact of the running code."""
        if self._ended:
            return
        self.state.note(fact)
        if self._turn is None:
            self.state.keep_soon()

    def touch(self) -> None:
        """Note that the running code has changed the timers of the agent."""
        self.state.touch()
        if self._turn is None:
            self.state.keep_soon()

    def hold(self, output: Output) -> None:
        """Add an output of the running code. Raises MailboxFull past `MOST` in one run."""
        if self._turn is not None and self.slot.turns.slot is self.slot:
            self._turn.append(output)
            return
        if self._ended:
            self._hold_late(output)
            return
        if len(self._open) >= MOST:
            raise MailboxFull(self.slot.path, MOST)
        self._open.append(output)
        self.state.keep_soon()

    def hold_message(self, link: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Add a one-way message of the running code. Raises the same errors as `send` and `hold`."""
        self.hold(Departure.planned(self.slot, link, key, args, kwargs))

    def _hold_late(self, output: Output) -> None:
        """Add an output that is made while the incarnation unwinds."""
        if not isinstance(CURRENT.get(), OwnTask):
            output.drop("its incarnation has ended before its state was kept")
            return
        self._last = self.state.check() or self._last
        if self._held or self._kept < self._last:
            self._held.append((self._last, [output]))
            self._waiting += 1
        else:
            output.release()

    def answer(
        self, envelope: Envelope, value: Any, error: Exception | None, *, is_refusal: bool = False
    ) -> None:
        """Add the answer of a turn, or of a run whose coroutine has ended.

        `is_refusal`: the present behaviour, which may rest on state not kept yet, refuses the message.
        """
        if envelope.is_keyed and not is_refusal:
            keyed: Any = envelope
            self.state.keep_answer(keyed.key.name, keyed.outcome(value, error))
        envelope.phase = HELD_BACK
        answer = Answer(envelope, value, error)
        if self._turn is not None and self.slot.turns.slot is self.slot:
            self._turn.append(answer)
        else:
            self._open.append(answer)
            self.state.keep_soon()

    # ---- keeping

    def seal_open(self) -> bool:
        """Keep the present state for the outputs of runs; every run must be at an await.

        Return False if that ends the agent, as a field has a value that is not of its type.
        """
        extra = self.slot.extra
        waits_for_run = not self.state.is_whole_in_runs and extra is not None and bool(extra.runs)
        if (self._open or self.state.has_changes) and not waits_for_run:
            outputs, self._open = self._open, []
            try:
                self._seal(outputs)
            except BaseException as error:  # noqa: ASYNC103 -- not in trio: it ends the agent, as its reason
                raise_interrupt(error)
                self.slot.die(ExitReason("error", error=error))
                return False
        return True

    def _seal(self, outputs: list[Output]) -> None:
        try:
            self._last = self.state.keep() or (self.state.check() if outputs else 0) or self._last
        except BaseException as error:
            for output in outputs:
                output.drop(f"its state cannot be kept: {error}")
            raise
        if not outputs:
            return
        if self._kept < self._last or self._held:
            self._held.append((self._last, outputs))
            self._waiting += len(outputs)
        else:
            for output in outputs:
                output.release()

    def _after_change(self) -> None:
        slot = self.slot
        if self.full:
            slot.leave_tally()
            if slot.gate in (IDLE, BUSY, QUIET):
                slot.gate = HELD
        elif slot.gate == HELD and not slot.extra.out:
            slot.resume()
        slot.on_idle()

    @enable_ki_protection
    async def wait_kept(self) -> None:
        """Wait until the changes of the current run are kept. Not for runs of serial classes.

        Runs of an incarnation that unwinds do not wait, as it keeps nothing.
        """
        if self._ended:
            return
        awaited = Awaited(self.slot.rt.timers)
        self.hold(awaited)
        await awaited.wait()

    @enable_ki_protection
    async def keep_whole(self) -> None:
        """Wait until the present state is kept, for a run of a serial class whose state is consistent now.

        Raises the error of the state's form if a field has a value that is not of its type.
        """
        if self._ended:
            return
        awaited = Awaited(self.slot.rt.timers)
        outputs, self._open = [*self._open, awaited], []
        self._seal(outputs)
        await awaited.wait()

    @enable_ki_protection
    def kept(self, number: int) -> None:
        """Note that the commits up to `number` are done, and release the outputs that waited for them."""
        self._kept = number
        self.kept_at = self.slot.rt.entropy.stamp()
        while self._held and self._held[0][0] <= number:
            _, outputs = self._held.pop(0)
            self._waiting -= len(outputs)
            for output in outputs:
                output.release()
        slot = self.slot
        if slot.gate == HELD or slot.state == DRAINING:
            self._after_change()

    @enable_ki_protection
    def failed(self, why: str) -> None:
        """Drop all waiting outputs, as a commit has failed."""
        self._kept = self._last
        held, self._held, self._waiting = self._held, [], 0
        opened, self._open = self._open, []
        for output in (*(output for _, outputs in held for output in outputs), *opened):
            output.drop(why)


class Answer(msgspec.Struct, eq=False):
    """The answer of a turn or run; a struct, as one is made for each turn and run."""

    _envelope: Envelope
    _value: Any
    _error: Exception | None

    def release(self) -> None:
        """Deliver the answer, unless its request was withdrawn; see `Output`."""
        envelope = self._envelope
        if envelope.phase == HELD_BACK:
            envelope.phase = DONE
            if self._error is None:
                envelope.answer(self._value)
            else:
                envelope.fail(self._error)

    def drop(self, why: str) -> None:
        """Answer with AgentDied, unless the request was withdrawn; see `Output`."""
        envelope = self._envelope
        if envelope.phase == HELD_BACK:
            envelope.phase = DONE
            if envelope.trace is not None:  # the record of the answer came when the turn ended
                envelope.slot.rt.note("answered", envelope, error=f"AgentDied: {why}")
            envelope.fail(AgentDied(why, started=True, agent=envelope.slot))

    @property
    def number(self) -> int | None:
        """The number of the request in the log; None if it was withdrawn or has no number."""
        envelope = self._envelope
        return envelope.trace[0] if envelope.phase == HELD_BACK and envelope.trace is not None else None


class Push:
    """A value for all present listeners: an event, or a new value of a property."""

    __slots__ = ("_copy", "_key", "_listeners", "_sinks", "_value")

    def __init__(self, sinks: Sinks, key: str, value: Any, copy: Callable[[Any], Any] | None) -> None:
        self._sinks = sinks
        self._key = key
        self._value = value
        self._copy = copy
        self._listeners = tuple(sinks.by_key.get(key, ()))

    def release(self) -> None:
        """Push the value to the listeners that were present; see `Output`."""
        self._sinks.push(self._key, self._value, self._copy, self._listeners)

    def drop(self, why: str) -> None:
        """Do nothing, as listeners get no value that was not kept, only the notice of a new incarnation."""


class ToOne:
    """A value for one listener: a property value for a new observer, or the progress of a run."""

    __slots__ = ("_sink", "_value")

    def __init__(self, sink: Sink, value: Any) -> None:
        self._sink = sink
        self._value = value

    def release(self) -> None:
        """Push the value to the listener; see `Output`."""
        self._sink.push(self._value)

    def drop(self, why: str) -> None:
        """Do nothing, as the listener does not get a value that was not kept."""


class Awaited:
    """The wait of a run until all its changes and outputs so far are kept."""

    __slots__ = ("_is_released", "_task", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._is_released = False
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Wait until all earlier changes and outputs are kept; a cancel leaves nothing behind."""
        if self._is_released:
            await checkpoint()
            return
        self._task = current_task()

        def abort(_: object) -> Abort:
            self._task = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def release(self) -> None:
        """Wake the waiting run; see `Output`."""
        self._is_released = True
        task, self._task = self._task, None
        if task is not None:
            self._timers.woke = True
            reschedule(task)

    def drop(self, why: str) -> None:
        """Wake the waiting run, which is about to be ended with its incarnation; see `Output`."""
        self.release()
