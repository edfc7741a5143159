"""Worlds of runs: the kind of time, and how agents are reached.

`memory` and `wire` are simulated: time is virtual, and the same seed gives the same run. `websocket` runs in
real time. In `wire` and `websocket` the node of the run listens. All messages to names in the file go over a
connection to it: streams in memory, or sockets of this machine.

In `process`, which also runs in real time, the groups of a deployment are processes. The node of the run has
no agents: it consumes those of the groups.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from lmos_actors._core import (
    Entropy,
    Environment,
    SeededBytes,
    current_environment,
    set_environment,
)
from lmos_actors.actors import TRACES
from lmos_actors.simulation import VirtualClock, settle, simulate
from lmos_actors.system.model import is_real

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.simulation import TraceLog

T = TypeVar("T")
A = TypeVar("A")

LISTEN_ADDRESSES: Final = {"wire": "ws://world", "websocket": "ws://127.0.0.1:0"}
"""Address that the node of a world listens on, for worlds with a connection."""


def run_world(
    world: str,
    main: Callable[[A], Awaitable[T]],
    given: A,
    /,
    *,
    seed: int,
    log: TraceLog | None = None,
    speed: float = 1.0,
) -> T:
    """Run `await main(given)` in a world; time begins at 0.0. Raises the same exceptions as `simulate`.

    If time is real, `speed` seconds of the world pass in each second. At any speed other than 1, time passes
    only while the run waits.
    """
    if not is_real(world):
        return simulate(main, given, seed=seed, log=log)
    clock = RealClock() if speed == 1 else PacedClock(speed)
    if log is not None:
        log.begin(seed=seed, now=clock.current_time)
    try:
        return trio.run(_live, main, given, seed, log, clock=clock)
    finally:
        if log is not None:
            log.flush()


async def _live(main: Callable[[A], Awaitable[T]], given: A, seed: int, log: TraceLog | None) -> T:
    set_environment(Environment(_live_entropy(seed), None, log))
    return await main(given)


class RealClock(trio.abc.Clock):
    """Real time in seconds since the run began, so instants in a file mean the same as on virtual time."""

    def __init__(self) -> None:
        self._begin = perf_counter()

    def start_clock(self) -> None:
        """Reset the clock to 0.0; called by Trio at the start, and by `begin_time` once the world is open."""
        self._begin = perf_counter()

    def current_time(self) -> float:
        """Return the seconds since the run began."""
        return perf_counter() - self._begin

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the time until a deadline, in seconds of this machine."""
        return deadline - self.current_time()


class PacedClock(trio.abc.Clock):
    """Time at another speed, which stops while any task can run.

    The clock advances only while Trio waits, and at most to the deadline of that wait, so that the speed of
    the machine does not influence the run.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self.start_clock()

    def start_clock(self) -> None:
        """Reset the clock to 0.0."""
        self._now = 0.0
        self._since = 0.0
        self._until: float | None = None  # while trio waits

    def current_time(self) -> float:
        """Return the seconds of paced time; the first call after a wait adds the time waited."""
        if self._until is not None:
            waited = (perf_counter() - self._since) * self._speed
            self._now, self._until = min(self._now + waited, self._until), None
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the time until a deadline, in seconds of this machine. Trio waits from here on."""
        now = self.current_time()
        self._since, self._until = perf_counter(), max(deadline, now)
        return (deadline - now) / self._speed


def _live_entropy(seed: int) -> Entropy:
    """Return the entropy of a run in real time; the seed determines its streams, but not the date and ids.

    Other processes see the ids and traces of several runs, and must not mistake the requests of one run for
    repeats of requests of another.
    """
    derived = SeededBytes(seed)

    def key_bytes(name: str) -> bytes:
        return os.urandom(8) if name.startswith(TRACES) else derived.of_stream(name)

    return Entropy(seed=seed, key_bytes=key_bytes)


def begin_time() -> None:
    """Restart real time at 0.0, so that the time taken to open the world is not part of the run."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, RealClock | PacedClock):
        clock.start_clock()


async def wait_until_idle() -> None:
    """Wait until no task can run at the present instant of virtual time; in real time, only yield once."""
    if isinstance(trio.lowlevel.current_clock(), VirtualClock):
        await settle()
    else:
        await trio.lowlevel.checkpoint()


def change_environment(**changes: Any) -> Environment:
    """Change the environment of the nodes of this world, and return it."""
    environment = current_environment()
    assert environment is not None  # run_cell has made a world
    changed = attrs.evolve(environment, **changes)
    set_environment(changed)
    return changed
