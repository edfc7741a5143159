"""Runs of `async def` actions, the tasks that carry them, and their progress.

A run is carried by a runner: a task of the supervisor's nursery with one cancel scope, which is replaced only
after a cancel. Handing a run to a parked runner costs one switch; opening a nursery or a scope for every run
would cost several times that. A runner parks in an empty context, so that the last run, its agent and its
message can be collected.

What this file keeps true:

1. The code that hands a run over sets the runner's context before the runner wakes: nothing leaks from run to
   run, and the handler's first step is already in the run's own context.
2. The agent takes no turn between handing over and the handler's first step: later messages of the same
   sender must not overtake.
3. A run is settled once: by its value, its failure, a cancel, or the agent's death. The handler's later work
   has no effect on the answer, but the next incarnation does not start before that work ends.
4. An exception that is no `ActionFailed` ends the agent (`Slot.die`), whether the run is settled or not.
5. A cancellation that no scope around the run has asked for (`_split`, `_stray`) is an error of the handler:
   passed on, it would end the runner task, and with it the supervisor.
"""

from __future__ import annotations

import math
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import trio
from trio.lowlevel import (
    Abort,
    checkpoint,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from lmos_actors.errors import ActionFailed, AgentError, InvalidInput, SourceFailed, group_of, is_interrupt

from ..values import conceal
from ._input_streams import break_in, streams_among
from ._mailbox import DONE, RUNNING, Envelope, Stashed
from ._operation import RUN, STREAM, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._input_streams import ItemGate
    from ._mailbox import Mark, Request

G = TypeVar("G")
G_contra = TypeVar("G_contra", contravariant=True)

CURRENT: ContextVar[Run | OwnTask | None] = ContextVar("lmos_actors_current_run", default=None)
"""The run or own task to which the running code of an agent belongs; None in a turn and outside agents."""
_NO_RUN: Final = Context()  # the context of all parked runners: nothing is ever set in it


class Progress(Generic[G_contra]):
    """A reporter of progress, passed to an `async def` action that declares it: `progress.report(0.5)`.

    Reports conflate: a caller sees the latest. They never wait, and are discarded if no consumer listens.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def report(self, value: G_contra, /) -> None:
        """Report to the caller how far the run has got.

        Raises:
            TypeError: the value is not of the declared type, which is a bug of the agent.
        """
        self._run.report(value)


class Resumption(Protocol):
    """The restart of a run: its agent begins it again if the agent's process ends now."""

    def goes_on(self) -> bool:
        """Return whether the run would begin again if it ended now."""
        ...

    def check(self, link: Any, key: str) -> None:
        """Check a request that the run is about to send. Raises NotAllowed if it is refused."""
        ...


class Run:
    """One invocation of an `async def` or stream action, from hand-over to the end of its coroutine."""

    __slots__ = (
        "agent", "args", "at_end", "at_withdrawal", "begun", "cancelled", "envelope", "number", "op",
        "resumption", "runner", "sender", "settled", "slot",
    )  # fmt: skip

    number: int  # unset until another node is told of it, see `_circles_afar.py`

    def __init__(self, slot: Any, envelope: Envelope) -> None:
        self.slot = slot
        self.agent = slot.agent
        self.op: Operation = envelope.op
        self.args = envelope.args
        self.envelope = envelope
        self.sender = envelope.sender
        self.settled = False
        self.begun = False  # whether a line of the handler has run
        self.cancelled = False
        self.at_withdrawal: Callable[[], object] | None = None  # see `on_caller_left`
        self.at_end: Callable[[], object] | None = None  # see `on_run_ended`
        self.resumption: Resumption | None = None  # for a run that asks again if it ends now
        self.runner: Runner | None = None
        envelope.phase = RUNNING
        envelope.run = self

    def report(self, value: Any) -> None:
        """Pass a progress value on to the listeners. Raises TypeError for a value of another type."""
        shape = self.op.progress
        if shape is not None:
            try:
                value = shape.take(value)
            except AgentError as exc:
                raise TypeError(f"{self.op.label} reported progress of another type: {exc}") from None
        if self.settled:
            return
        if self.envelope.trace is not None:
            hidden = shape.secrecy if shape is not None else 0
            self.slot.rt.note("progress", self.envelope, progress=conceal(value, hidden))
        if self.envelope.feed is not None:
            self.slot.show_progress(self.envelope.feed, value)

    def cancel(self) -> None:
        """Cancel the coroutine; the code that calls this method has settled the run already."""
        self.cancelled = True
        runner = self.runner
        if runner is not None:
            runner.scope.cancel("the run was cancelled")
        self._close_streams()  # after that, as a handler that waits for an item is to be cancelled there

    def settle_value(self, value: Any) -> None:
        """Answer with a value, unless the run is settled."""
        if not self.settled:
            self.settled = True
            self.slot.handled += 1
            if self.envelope.trace is not None:
                self.slot.rt.note("answered", self.envelope, value=value)
            if self.slot.output_gate is not None:
                self.slot.output_gate.answer(self.envelope, value, None)
                return
            self.envelope.phase = DONE
            self.envelope.answer(value)

    def settle_error(self, error: Exception, account: str) -> None:
        """Answer with an error, unless the run is settled; `account` names the counter to increase."""
        if not self.settled:
            self.settled = True
            self.slot.run_failed(account)
            if self.envelope.trace is not None:
                text, output = f"{type(error).__name__}: {error}", getattr(error, "output", None)
                self.slot.rt.note("answered", self.envelope, error=text, output=output)
            if self.slot.output_gate is not None and isinstance(error, ActionFailed | SourceFailed):
                self.slot.output_gate.answer(self.envelope, None, error)
                return
            self.envelope.phase = DONE
            self.envelope.fail(error)

    @enable_ki_protection
    async def execute(self, task: trio.lowlevel.Task) -> None:
        """Run the handler to its end, in `task`, which runs now.

        Raises only `trio.Cancelled`; a KeyboardInterrupt goes to the node.
        """
        op, slot = self.op, self.slot
        CURRENT.set(self)
        if slot.rt.edge is not None:
            slot.rt.edge.enter(self.envelope)  # of this run's own context
        slot.run_began(self)
        if op.kind != STREAM:  # whose message cannot be put aside, see `_stash.py`
            task.custom_sleep_data = self  # until it first waits: then trio empties it
        self.begun = True
        try:
            args = self.args if op.progress is None else (Progress[Any](self), *self.args)
            made = op.fn(self.agent, *args)  # a coroutine, or a generator of items
            value: Any = None
            if op.kind == STREAM:
                await self._stream(made)
            else:
                value = op.result(await made)
        except BaseException as exc:  # noqa: ASYNC103 -- what is cancelled goes on, the rest arrives in the reason
            cancelled, error = _split(exc)
            if cancelled is not None and trio.current_effective_deadline() > -math.inf:
                error, cancelled = error or stray(self.op.label, exc), None
            if isinstance(error, Stashed):
                slot.stash_run(self)
            elif error is not None:
                self._failed(error)
            else:
                slot.run_cancelled(self)
            if cancelled is not None:
                raise cancelled from None
        else:
            self.settle_value(value)
        finally:
            if op.streams and self.envelope.run is self:  # else its message is put aside, with its streams
                self._close_streams()
            slot.run_ended(self)
            if self.at_end is not None:
                self.at_end()

    def _close_streams(self) -> None:
        for stream in streams_among(self.op, self.args):
            stream.close()

    def _failed(self, error: BaseException) -> None:
        group = group_of(error)
        if group is not None and group.subgroup(Stashed) is not None:
            error = RuntimeError("stash() was called inside a nursery: that waits for its tasks first")
        failure: Exception | None = declared_failure(error)
        if failure is None and self.op.streams:
            failure = break_in(error, self.op, self.args)
        if failure is not None:
            self.settle_error(failure, "handled")
            return
        self.slot.run_crashed(self, error)
        fatal = self.slot.rt.fatal
        if fatal is not None and is_interrupt(error):
            fatal(error)

    def skip(self) -> None:
        """End a run, without executing it, that was cancelled between hand-over and first step."""
        self.slot.run_began(self)
        self.slot.run_cancelled(self)
        self.slot.run_ended(self)

    async def _stream(self, items: Any) -> None:
        try:
            async for item in items:
                await self.put(item)
        finally:
            await _close(items)

    async def put(self, item: Any) -> None:
        """Send an item of a stream action, as `yield` does; also for tasks that work for the run.

        Waits until its consumer has room. Only one task at a time may call this. Raises TypeError for an item
        of another type than the action declares.
        """
        if self.settled:
            await checkpoint()  # nothing holds back a task whose items go nowhere
            return
        value = self.op.result(item)
        put = getattr(self.envelope, "put", None)
        if put is not None:
            gate = self.slot.output_gate
            if gate is not None and gate.waits_in_runs and not is_provisional(item):
                await gate.wait_kept()
            await put(value)
            if self.envelope.trace is not None:
                self.slot.rt.note("item", self.envelope, value=value)
        else:
            await checkpoint()  # of a one-way message, which has no consumer to wait for

    def put_nowait(self, item: Any) -> bool:
        """Send an item as `put` does, if that needs no wait; return whether it was sent.

        It is not if there is no room, if the item is of another type than the action declares, or if `put`
        has more to do: for a durable agent, a record, or a consumer that is not near.
        """
        envelope: Any = self.envelope
        if (
            self.settled
            or self.slot.output_gate is not None
            or (envelope.trace is not None and self.slot.rt.instrument is not None)
            or not hasattr(envelope, "put_nowait")
        ):
            return False
        try:
            value = self.op.give(item)
        except InvalidInput:
            return False
        return bool(envelope.put_nowait(value))


def is_provisional(item: object) -> bool:
    """Return whether the class of an item allows sending it before the earlier changes are kept.

    A later item of the stream, which waits for the changes, confirms all such items.
    """
    return getattr(item, "is_provisional", False) is True


async def _close(items: Any) -> None:
    """Close an async generator, as its `finally` blocks belong to the run."""
    await items.aclose()


def gate_of_caller() -> ItemGate | None:
    """Return the gate of the current run, or None if items that it sends need not wait for its state."""
    run = CURRENT.get()
    gate = None if run is None else run.slot.output_gate
    return gate if gate is not None and gate.waits_in_runs else None


def running_gate(turns: Any) -> Any:
    """Return the output gate of the agent whose code runs now, or None outside durable agents.

    Callers need not call this if `turns.durables` is 0, as there have been no durable agents then.
    """
    run = CURRENT.get()
    slot = turns.slot if run is None else run.slot
    return None if slot is None else slot.output_gate


class OwnTask:
    """A task of an agent beside its turns and runs: its lifespan, or a task of its nursery.

    This object takes the place of a run where the package looks up whose code runs now, so that the agent is
    the sender of the task's messages. Its trace is that of the turn or run that started the task; `request`
    is the request of that run, or None.
    """

    __slots__ = ("at_end", "envelope", "op", "request", "slot")

    def __init__(self, slot: Any, mark: Mark | None = None, request: Request | None = None) -> None:
        self.slot = slot
        self.at_end: Callable[[], object] | None = None  # see `on_run_ended`
        self.op = OWN_TASK
        self.request = request
        self.envelope = Envelope(slot, OWN_TASK, (), None)
        self.envelope.trace = mark


def comes_back(run: Run | OwnTask | None) -> bool:
    """Return whether a run would repeat its open requests if it ended now; see `Run.resumption`."""
    return isinstance(run, Run) and run.resumption is not None and run.resumption.goes_on()


def check_repeat(turns: Any, link: Any, key: str) -> None:
    """Check a request of a run that may begin again in a next life. Raises NotAllowed if it is refused.

    Does nothing for other code. Callers can leave the check out if `turns.durables` is 0.
    """
    run = CURRENT.get()
    if turns.slot is None and isinstance(run, Run) and run.resumption is not None:
        run.resumption.check(link, key)


OWN_TASK: Final = Operation(
    verb="act", name="a task of its own", owner="agent", kind=RUN, fn=lambda: None, internal=True
)


def _split(exc: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Split an exception into its cancellations and the handler's own errors, each of which may be None."""
    if isinstance(exc, trio.Cancelled):
        return exc, None
    group = group_of(exc)
    return (None, exc) if group is None else group.split(trio.Cancelled)


def stray(label: str, exc: BaseException) -> RuntimeError:
    """Make the error for an agent's code that raises Cancelled although no scope around it was cancelled."""
    error = RuntimeError(
        f"{label} let out a cancellation that belongs to no scope around it; "
        f"a `yield` inside a cancel scope or nursery does that"
    )
    error.__cause__ = exc
    return error


def declared_failure(exc: BaseException) -> ActionFailed | None:
    """Return the failure that an exception means: itself, or the first leaf of a group of failures."""
    if isinstance(exc, ActionFailed):
        return exc
    group = group_of(exc)
    if group is None:
        return None
    leaves = [declared_failure(part) for part in group.exceptions]
    return leaves[0] if None not in leaves else None


class Runner:
    """A task that carries runs, one after another."""

    __slots__ = ("_pool", "home", "next_run", "scope")

    def __init__(self, pool: Runners) -> None:
        self._pool = pool
        self.next_run: Run | None = None
        self.scope = trio.CancelScope()
        self.home: trio.lowlevel.Task | None = None  # for its whole life, from its first step

    @enable_ki_protection
    async def main(self) -> None:
        """Carry runs until the pool has enough parked runners."""
        self.home = home = current_task()
        while True:
            with trio.CancelScope() as self.scope:
                while True:
                    run, self.next_run = self.next_run, None
                    if run is None:
                        if not self._pool.park(self):
                            return
                        home.context = _NO_RUN  # so that the last run, its agent and its message may go
                        await wait_task_rescheduled(self._abort)
                        continue
                    if run.cancelled:
                        run.skip()
                    else:
                        await run.execute(home)
                    if run.cancelled:  # so may be the scope: a wait in it would end at once
                        break

    def _abort(self, _: object) -> Abort:
        self._pool.unpark(self)
        return Abort.SUCCEEDED


class Runners:
    """The runner tasks of one supervisor's nursery, of which at most `spare` are parked."""

    __slots__ = ("_nursery", "_parked", "_spare")

    def __init__(self, nursery: trio.Nursery, spare: int = 64) -> None:
        self._nursery = nursery
        self._parked: list[Runner] = []
        self._spare = spare

    def carry(self, run: Run) -> None:
        """Hand a run to a parked runner, which wakes in the run's own context, or to a new one."""
        slot = run.slot
        slot.rt.timers.woke = True
        ctx = slot.ctx
        context = (slot.context() if ctx is None else ctx).copy()
        runner = run.runner = self._parked.pop() if self._parked else Runner(self)
        runner.next_run = run
        task = runner.home
        if task is None:
            context.run(self._start, runner, run)
        else:
            task.context = context
            reschedule(task)

    def _start(self, runner: Runner, run: Run) -> None:
        self._nursery.start_soon(runner.main, name=f"runner of {run.op.label}")

    def park(self, runner: Runner) -> bool:
        """Keep a runner that has no run to carry; return False if there is no room for one more."""
        if len(self._parked) >= self._spare:
            return False
        self._parked.append(runner)
        return True

    def unpark(self, runner: Runner) -> None:
        """Remove a parked runner that is being cancelled."""
        if runner in self._parked:
            self._parked.remove(runner)
