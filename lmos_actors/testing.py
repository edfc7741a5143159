"""What tests of agents need: a node on virtual time with seeded chance, and a report when nothing goes on.

With pytest-trio, put `from lmos_actors.testing import virtual_clock as virtual_clock` into `conftest.py`;
a test that names the fixture `virtual_clock` then runs on that clock:

    async def test_greeting(virtual_clock):
        async with open_test_node() as node:
            greeter = await node.start(Greeter)
            assert await greeter.invoke(Greeter.greet, "Ada") == "Hello Ada"
"""

from __future__ import annotations

import math
import os
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ._ambient import Ambient, current_ambient, set_ambient
from ._entropy import SeededEntropy
from ._errors import ConfigError, Deadlocked
from ._node import Node, open_node
from ._timers import TaskTimers
from .simulation import Vigil, VirtualClock, seeded_order

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from ._instrument import Instrument
    from ._timers import Timers
    from .supervision import SupervisorSpec

SEED_VARIABLE: Final = "LMOS_ACTORS_SEED"

_NO_VIRTUAL_TIME: Final = (
    "open_test_node needs virtual time, and this run goes by {clock}. With pytest-trio let the test take "
    "the fixture lmos_actors.testing.virtual_clock; else trio.run(main, clock=VirtualClock()) with the clock "
    "from lmos_actors.simulation, or trio.testing.MockClock(autojump_threshold=0)"
)


@asynccontextmanager
async def open_test_node(
    tree: SupervisorSpec | None = None, *, seed: int | None = None, instrument: Instrument | None = None
) -> AsyncGenerator[Node]:
    """Open a node whose time is virtual and whose ids, chance and order of tasks follow from `seed`.

    Without `seed` it is the number in the environment's LMOS_ACTORS_SEED, else 0. An exception that leaves
    the block carries a note with the seed. Inside `simulate` the node is that world's, seed and all. In
    all else it is as `open_node`.

    Raises RuntimeError where time is real; Deadlocked when the block can never end, as everything in the
    run waits for something else.
    """
    ambient = current_ambient()
    chosen = ambient.entropy.seed if ambient is not None else _seed() if seed is None else seed
    with _telling(chosen):
        async with AsyncExitStack() as stack:
            if ambient is None:
                _surround(stack, _virtual(trio.lowlevel.current_clock()), chosen or 0)
            yield await stack.enter_async_context(open_node(tree, instrument=instrument))


@contextmanager
def _telling(seed: int | None) -> Generator[None]:
    try:
        yield
    except BaseException as exc:
        exc.add_note(f"seed {seed}: rerun with {SEED_VARIABLE}={seed}")
        raise


async def settle() -> None:
    """Wait until nothing is left to do at the present instant of virtual time; time does not go on meanwhile.

    Raises RuntimeError where time is real.
    """
    clock = _virtual(trio.lowlevel.current_clock())
    await (clock.settle() if isinstance(clock, VirtualClock) else wait_all_tasks_blocked())


def _virtual(clock: trio.abc.Clock) -> VirtualClock | MockClock:
    if isinstance(clock, VirtualClock):
        return clock
    if isinstance(clock, MockClock) and clock.autojump_threshold < math.inf:
        return clock
    name = "a MockClock without autojump" if isinstance(clock, MockClock) else f"a {type(clock).__name__}"
    raise RuntimeError(_NO_VIRTUAL_TIME.format(clock=name))


def _seed() -> int:
    text = os.environ.get(SEED_VARIABLE, "0")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"must be a whole number, not {text!r}", SEED_VARIABLE) from None


def _surround(stack: AsyncExitStack, clock: VirtualClock | MockClock, seed: int) -> None:
    """Make the present run a world of that seed until the stack is unwound, and watch over it."""
    timers: Timers = clock if isinstance(clock, VirtualClock) else _timers_of(stack)
    ambient = Ambient(SeededEntropy(seed, clock), timers)
    stack.callback(set_ambient, None)
    set_ambient(ambient)
    stack.enter_context(seeded_order(seed))
    vigil = Vigil(ambient.describe, _title())
    stack.enter_context(_watching(clock, vigil))
    stack.enter_context(vigil.over_body())


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
def _watching(clock: VirtualClock | MockClock, vigil: Vigil) -> Generator[None]:
    """Have the vigil alarmed when the clock finds nothing more to do."""
    if isinstance(clock, VirtualClock):
        before, clock.on_deadlock = clock.on_deadlock, vigil.alarm
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
    """Notices that a run on a MockClock has no task to run and no deadline to jump to."""

    def __init__(self, vigil: Vigil) -> None:
        self._vigil = vigil
        self._idle = False

    def before_io_wait(self, timeout: float) -> None:
        counts = trio.lowlevel.current_statistics()
        idle = counts.tasks_runnable == 0 and counts.seconds_to_next_deadline == math.inf
        # a task may sit in wait_all_tasks_blocked, which goes on after a pass like this one
        if idle and self._idle:
            self._vigil.alarm()
        self._idle = idle


if find_spec("pytest") is not None:
    import pytest

    @pytest.fixture
    def virtual_clock() -> VirtualClock:
        """Give the clock of the test: pytest-trio runs a test on the clock that one of its fixtures is.

        A test that is blocked for ever outside `open_test_node` ends with `trio.TrioInternalError`,
        caused by Deadlocked.
        """
        clock = VirtualClock()
        clock.on_deadlock = _Crash().alarm
        return clock


class _Crash:
    """Ends a whole run that is blocked for ever, in order if its tasks can be cancelled."""

    def __init__(self) -> None:
        self._reported: Deadlocked | None = None

    def alarm(self) -> None:
        if self._reported is not None:
            raise self._reported
        now = trio.current_time()
        self._reported = Deadlocked(f"{_title()}: at {now:g} s of virtual time every task waits for another")
        # what a system task raises cancels the main task
        trio.lowlevel.spawn_system_task(self._report)

    async def _report(self) -> None:
        assert self._reported is not None
        raise self._reported
