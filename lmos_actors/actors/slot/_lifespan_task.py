"""The task of an agent that has one: it enters the lifespan, opens the nursery, and stays for life.

Most agents need no task. An agent whose class overrides `lifespan()` gets the task as part of its start; an
agent that uses `self.nursery` gets it at that moment. The nursery stays open for the incarnation's life, even
while it is empty.

The order at the end: runs and tasks first, then the children, then the lifespan, which has `shutdown` seconds
to leave. The lifespan cannot swallow a crash: the incarnation has ended already when the error is raised in
it, and the error that leaves the `async with` is compared with that one (`_without`). A new exception is
added to the reason, the known one is not reported twice.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from trio.lowlevel import Abort, current_task, enable_ki_protection, reschedule, wait_task_rescheduled

from lmos_actors.errors import group_of, is_interrupt

from .._runtime import awaited
from .._trace_context import current_mark
from ..crashes._crashes import crash_reason, end_reason
from ..messages._gates import ENDING
from ..messages._invocation import CURRENT, OwnTask, Run, stray

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

    from .._runtime import Owner, Runtime
    from ..messages._monitor import ExitReason

CLOSED_TEXT: Final = "the agent is ending: its nursery takes no more tasks"


class LivingSlot(Protocol):
    """The slot of an agent with a lifespan or a nursery; see `Slot`, which is in a layer above this file."""

    rt: Runtime
    owner: Owner
    spec: Any
    agent: Any
    state: int

    @property
    def path(self) -> str: ...
    def context(self) -> Context: ...
    def ensure_extra(self) -> Any: ...
    def die(self, reason: ExitReason) -> None: ...
    def lifespan_ended(self) -> None: ...


class LifespanTask:
    """One incarnation's lifespan and nursery, and the task that holds them open."""

    __slots__ = (
        "_backlog", "_crash", "_entered", "_failure", "_finished_runs", "_forced", "_leaving",
        "_opened", "_parked", "_reason", "_slot", "_task", "_waiter", "ended", "nursery", "scope",
    )  # fmt: skip

    def __init__(self, slot: LivingSlot) -> None:
        self._slot = slot
        self._task: trio.lowlevel.Task | None = None
        self._opened = trio.Event()
        self.scope = trio.CancelScope()
        self.nursery: trio.Nursery | None = None
        self.ended = False
        self._entered = False
        self._finished_runs = False
        self._forced = False
        self._leaving = False
        self._failure: BaseException | None = None
        self._crash: BaseException | None = None
        self._reason: ExitReason | None = None
        self._backlog: list[
            tuple[Context, Callable[..., Awaitable[object]], tuple[Any, ...], str | None]
        ] = []
        self._parked: trio.lowlevel.Task | None = None
        self._waiter: trio.lowlevel.Task | None = None

    # ---- from outside

    def begin(self) -> None:
        """Start the task."""
        slot = self._slot
        context = slot.context().copy()
        context.run(CURRENT.set, OwnTask(slot))
        slot.owner.start_task(self.main, name=f"agent {slot.path}", context=context)
        slot.rt.timers.woke = True

    async def enter(self) -> None:
        """Start the task and wait until the lifespan has been entered. Raises errors of entering it."""
        self.begin()
        try:
            while not self._entered and not self.ended:
                await self._wait_here()
        except BaseException:
            self.scope.cancel("the start was cancelled")
            with trio.CancelScope(shield=True):
                await self.wait_ended()
            raise
        if self._failure is not None:
            raise self._failure
        if not self._entered:
            cause = self._reason.error if self._reason is not None else None
            raise RuntimeError("lifespan() was cancelled before it was entered") from cause

    async def _wait_here(self) -> None:
        self._waiter = current_task()

        def abort(_: object) -> Abort:
            self._waiter = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    @enable_ki_protection
    def start_soon(
        self, async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...], name: str | None
    ) -> None:
        """Start a task in the agent's nursery, now or as soon as the nursery is open."""
        if self._reason is not None or self.ended:
            raise RuntimeError(CLOSED_TEXT)
        context = copy_context()
        context.run(CURRENT.set, own_task(self._slot))
        if self.nursery is not None:
            context.run(partial(self.nursery.start_soon, _contained(async_fn), *args, name=name or async_fn))
            self._slot.rt.timers.woke = True
        else:
            self._backlog.append((context, async_fn, args, name))

    async def opened(self) -> trio.Nursery:
        """Wait until the nursery is open, and return it. Raises RuntimeError if it will never be open."""
        if self._task is current_task() and not self._entered:
            raise RuntimeError("the agent's nursery opens at the yield of lifespan(): use start_soon")
        await self._opened.wait()
        if self.nursery is None:
            raise RuntimeError(CLOSED_TEXT)
        return self.nursery

    @property
    def task(self) -> trio.lowlevel.Task | None:
        """The task of the agent, once it has begun."""
        return self._task

    def end(self, reason: ExitReason) -> None:
        """Cancel the agent's tasks, and leave the lifespan once the agent's runs have ended, too."""
        if self._reason is None:
            self._reason = reason
            self._wake()

    def fail_entering(self, error: BaseException) -> None:
        """Stop entering the lifespan, and make that fail with an error."""
        self._failure = error
        self._slot.rt.timers.woke = True
        self.scope.cancel("the start has failed")

    @property
    def entering(self) -> bool:
        """Whether the lifespan has not been entered yet."""
        return not self._entered and not self.ended

    async def wait_ended(self) -> None:
        """Wait until the lifespan has been left; only one task at a time may wait."""
        while not self.ended:
            await self._wait_here()

    def runs_ended(self) -> None:
        """Note that the last run has unwound, or the last child has ended."""
        self._finished_runs = True
        self._wake()

    def force_stop(self) -> None:
        """Stop entering or leaving immediately; runs and tasks still unwind at their own pace."""
        self._forced = True
        if self._leaving or not self._entered:
            self.scope.cancel("the agent was stopped at once")

    def abandon(self) -> None:
        """Cancel the entering of the lifespan, as the agent has ended before."""
        if not self._entered:
            self.scope.cancel("the agent has ended before it was entered")

    def _wake(self) -> None:
        task, self._parked = self._parked, None
        if task is not None:
            self._slot.rt.timers.woke = True
            reschedule(task)

    # ---- the task

    @enable_ki_protection
    async def main(self) -> None:
        """Hold the lifespan and the nursery open for the incarnation's life."""
        slot = self._slot
        self._task = current_task()
        try:
            with self.scope:
                agent = slot.agent
                lifespan: Any = agent.lifespan() if agent.__contract__.has_lifespan else nullcontext()
                async with lifespan:
                    await self._live()
        except BaseException as exc:  # noqa: ASYNC103 -- it arrives: at the starter, in the reason, or the root
            self._raised(exc if not is_stray(exc) else stray("lifespan()", exc))
        self.ended = True
        if self._entered and self._reason is None:
            left = RuntimeError("lifespan() left before the agent ended")
            slot.die(crash_reason(slot, left, "lifespan()"))
        self._tell_waiter()
        slot.lifespan_ended()

    def _raised(self, exc: BaseException) -> None:
        if not self._entered:
            self._failure = exc
            return
        known = self._crash or (self._reason.error if self._reason is not None else None)
        news = _without(exc, known)
        if self._reason is None or news is not None:
            self._slot.die(crash_reason(self._slot, news or exc, "lifespan()"))
        fatal = self._slot.rt.fatal
        if fatal is not None and is_interrupt(exc):
            fatal(exc)

    def _tell_waiter(self) -> None:
        self._opened.set()
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._slot.rt.timers.woke = True
            reschedule(waiter)

    async def _live(self) -> None:
        try:
            await self._hold_nursery()
            while self._reason is None:  # the agent has cancelled all of its tasks: others may follow
                await self._hold_nursery()
        except BaseException as exc:  # noqa: ASYNC103 -- raised below, when the runs have ended
            crash = _without_cancelled(exc)
            if crash is None:
                raise
            self._crash = crash = _bare(crash)
            self._slot.die(end_reason(self._slot, crash, "a task of its nursery"))
        extra = self._slot.ensure_extra()
        while extra.runs and not self._finished_runs:
            await self._park()
        if extra.child_supervisor is not None:
            extra.child_supervisor.stop_children(self._slot.spec.shutdown)
        while extra.child_supervisor is not None:
            await self._park()
        self._leaving = True
        shutdown = self._slot.spec.shutdown
        if self._forced or shutdown == "brutal":
            self.force_stop()
        elif self.scope.deadline > trio.current_time() and isinstance(shutdown, (int, float)):
            self.scope.deadline = trio.current_time() + shutdown
        error = self._crash or (self._reason.error if self._reason is not None else None)
        if error is not None:
            raise error

    async def _hold_nursery(self) -> None:
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            for context, async_fn, args, name in self._backlog:
                context.run(partial(nursery.start_soon, _contained(async_fn), *args, name=name or async_fn))
            self._backlog.clear()
            self._entered = True
            self._tell_waiter()
            while self._reason is None:
                await self._park()
            nursery.cancel_scope.cancel("the agent is ending")

    async def _park(self) -> None:
        self._parked = current_task()

        def abort(_: object) -> Abort:
            self._parked = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)


def _without_cancelled(exc: BaseException) -> BaseException | None:
    if isinstance(exc, trio.Cancelled):
        return None
    group = group_of(exc)
    return exc if group is None else group.split(trio.Cancelled)[1]


def _without(exc: BaseException, known: BaseException | None) -> BaseException | None:
    """Remove the crash that was raised in the lifespan from the error that left it, which may be a group."""
    if exc is known:
        return None
    group = group_of(exc)
    return exc if group is None else group.split(lambda leaf: leaf is known)[1]


def _bare(exc: BaseException) -> BaseException:
    """Return an exception without the groups of one around it."""
    while (group := group_of(exc)) is not None and len(group.exceptions) == 1:
        exc = group.exceptions[0]
    return exc


def is_cancel(exc: BaseException) -> bool:
    return _without_cancelled(exc) is None


def is_stray(exc: BaseException) -> bool:
    """Return whether an exception is a cancellation although no scope around the task is cancelled."""
    return is_cancel(exc) and trio.current_effective_deadline() > -math.inf


def _contained(async_fn: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """Wrap a task's function so that a cancellation that no scope has asked for is a crash.

    Otherwise a trio nursery would treat it as its own cancellation, and silently cancel all other tasks.
    """
    if not iscoroutinefunction(async_fn):
        return async_fn  # trio says what is wrong with it

    async def task(*args: Any, **status: Any) -> object:
        try:
            return await async_fn(*args, **status)
        except BaseException as exc:
            if is_stray(exc):
                raise stray("a task of the agent's nursery", exc) from exc
            raise
        finally:
            own = CURRENT.get()
            if own is not None and own.at_end is not None:
                own.at_end()

    return task


def own_task(slot: LivingSlot) -> OwnTask:
    """Make the record of an agent's task that the current code starts."""
    run = CURRENT.get()
    request = None
    if run is not None and run.slot is slot:
        request = run.envelope.request() if isinstance(run, Run) else run.request
    return OwnTask(slot, current_mark(slot.rt), request)


class AgentNursery:
    """The `self.nursery` of an agent: tasks that live as long as the incarnation, and end with it.

    It has the methods of a trio nursery. `start_soon` may be called from a `def` turn: the task starts as
    soon as the agent's own nursery is open. An exception in a task is a crash of the agent.
    """

    __slots__ = ("_slot",)

    def __init__(self, slot: LivingSlot) -> None:
        self._slot = slot

    def _holder(self) -> LifespanTask:
        extra = self._slot.ensure_extra()
        if extra.lifespan_task is None:
            if self._slot.state >= ENDING:
                raise RuntimeError(CLOSED_TEXT)
            extra.lifespan_task = LifespanTask(self._slot)
            extra.lifespan_task.begin()
        task: LifespanTask = extra.lifespan_task
        return task

    def start_soon(
        self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str | None = None
    ) -> None:
        """Start a task. Raises RuntimeError if the agent is ending."""
        self._holder().start_soon(async_fn, args, name)

    @awaited("self.nursery.")
    async def start(
        self, async_fn: Callable[..., Awaitable[object]], *args: Any, name: str | None = None
    ) -> Any:
        """Start a task and wait until it calls `task_status.started(value)`; return the value."""
        nursery = await self._holder().opened()
        token = CURRENT.set(own_task(self._slot))  # of the task that is made by the next line
        try:
            return await nursery.start(_contained(async_fn), *args, name=name or async_fn)
        finally:
            CURRENT.reset(token)

    @property
    def cancel_scope(self) -> trio.CancelScope:
        """The scope around the tasks. Raises RuntimeError before the nursery is open."""
        nursery = self._holder().nursery
        if nursery is None:
            raise RuntimeError("the agent's nursery is not open yet")
        return nursery.cancel_scope

    @property
    def child_tasks(self) -> frozenset[trio.lowlevel.Task]:
        """The tasks that are running."""
        nursery = self._holder().nursery
        return frozenset() if nursery is None else nursery.child_tasks
