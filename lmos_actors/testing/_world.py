"""The world of a test: virtual time, seeded chance and order, and a report instead of a hang."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lmos_actors._core import Environment, TaskTimers, seeded_entropy, set_environment
from lmos_actors.errors import Deadlocked
from lmos_actors.simulation import DeadlockWatch, VirtualClock, forbidden_to_agents, seeded_order

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AsyncExitStack

    from lmos_actors._core import Timers

_NO_VIRTUAL_TIME: Final = (
    "open_test_node needs virtual time, and this run goes by {clock}. With pytest-trio let the test take "
    "the fixture lmos_actors.testing.virtual_clock; else trio.run(main, clock=VirtualClock()) with the clock "
    "from lmos_actors.simulation, or trio.testing.MockClock(autojump_threshold=0)"
)


async def settle() -> None:
    """Wait until nothing is left to do at the present instant of virtual time; time stands still meanwhile.

    Raises RuntimeError if time is real.
    """
    clock = virtual(trio.lowlevel.current_clock())
    await (clock.settle() if isinstance(clock, VirtualClock) else wait_all_tasks_blocked())


def virtual(clock: trio.abc.Clock) -> VirtualClock | MockClock:
    """Return the clock of a run whose time is virtual. Raises RuntimeError, with a remedy, if it is not."""
    if isinstance(clock, VirtualClock):
        return clock
    if isinstance(clock, MockClock) and clock.autojump_threshold < math.inf:
        return clock
    name = "a MockClock without autojump" if isinstance(clock, MockClock) else f"a {type(clock).__name__}"
    raise RuntimeError(_NO_VIRTUAL_TIME.format(clock=name))


def enter_world(stack: AsyncExitStack, clock: VirtualClock | MockClock, seed: int) -> None:
    """Turn the current run into a seeded world with deadlock detection, until the stack is unwound."""
    timers: Timers = clock if isinstance(clock, VirtualClock) else _timers_of(stack)
    environment = Environment(seeded_entropy(seed, clock), timers)
    stack.callback(set_environment, None)
    set_environment(environment)
    stack.enter_context(seeded_order(seed))
    stack.enter_context(forbidden_to_agents())
    vigil = DeadlockWatch(environment.describe, _title())
    stack.enter_context(_watching(clock, vigil))
    stack.enter_context(vigil.watching())


def _title() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST") or f"in {trio.lowlevel.current_task().name}"


def _timers_of(stack: AsyncExitStack) -> TaskTimers:
    timers = TaskTimers()
    scope = trio.CancelScope()

    async def carry() -> None:
        with scope:
            await timers.run()

    trio.lowlevel.spawn_system_task(carry, name="timers")
    stack.callback(scope.cancel)
    return timers


@contextmanager
def _watching(clock: VirtualClock | MockClock, vigil: DeadlockWatch) -> Generator[None]:
    """Notify the deadlock watch when no task can run and no deadline is left."""
    if isinstance(clock, VirtualClock):
        before, clock.on_deadlock = clock.on_deadlock, vigil.report_deadlock
        try:
            yield
        finally:
            clock.on_deadlock = before
        return
    watch = _IdleWatch(vigil)
    trio.lowlevel.add_instrument(watch)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(watch)


class _IdleWatch(trio.abc.Instrument):
    """An instrument that detects a run on a MockClock without a runnable task or a next deadline."""

    def __init__(self, vigil: DeadlockWatch) -> None:
        self._vigil = vigil
        self._idle = False

    def before_io_wait(self, timeout: float) -> None:
        counts = trio.lowlevel.current_statistics()
        idle = counts.tasks_runnable == 0 and counts.seconds_to_next_deadline == math.inf
        # a task may sit in wait_all_tasks_blocked, which goes on after a pass like this one
        if idle and self._idle:
            self._vigil.report_deadlock()
        self._idle = idle


def deadlock_clock() -> VirtualClock:
    """Return a clock that ends a whole run with Deadlocked when it is blocked for ever."""
    clock = VirtualClock()
    clock.on_deadlock = _DeadlockReporter().report_deadlock
    return clock


class _DeadlockReporter:
    """A reporter that ends a run that is blocked for ever, by cancelling its main task if possible."""

    def __init__(self) -> None:
        self._reported: Deadlocked | None = None

    def report_deadlock(self) -> None:
        if self._reported is not None:
            raise self._reported
        now = trio.current_time()
        self._reported = Deadlocked(f"{_title()}: at {now:g} s of virtual time every task waits for another")
        # what a system task raises cancels the main task
        trio.lowlevel.spawn_system_task(self._report)

    async def _report(self) -> None:
        assert self._reported is not None
        raise self._reported
