"""A run in a simulated world: virtual time, seeded chance, seeded order, nothing from outside.

This file uses private names of trio, as `_core/_scopes.py` does: `_ALLOW_DETERMINISTIC_SCHEDULING` and `_r`,
which order the tasks of one pass of its run loop; `GLOBAL_RUN_CONTEXT` with the deadlines of a run, none of
which virtual time may pass unnoticed; `trio._timeouts`, where `trio.sleep` looks for `sleep_until`;
`trio._threads.start_thread_soon`, which starts the thread for code that has imported `run_sync` by name; and
`Task._abort_func` and `_attempt_abort`, which reach a deadlocked task through a shield as Ctrl-C does.
"""

from __future__ import annotations

import gc
import math
import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, TypeVarTuple

import trio
from trio import (  # pyright: ignore[reportPrivateUsage]
    _threads as _trio_threads,  # pyright: ignore[reportPrivateUsage]
    _timeouts as _trio_timeouts,  # pyright: ignore[reportPrivateUsage]
)
from trio._core import _run as _trio_run  # pyright: ignore[reportPrivateUsage]
from trio._core._run import GLOBAL_RUN_CONTEXT

from lmos_actors._core import (
    WAY_OUT,
    Environment,
    line_of_user,
    runs_asyncio,
    seeded_entropy,
    set_environment,
    uncollected,
)
from lmos_actors.actors import is_agents_code
from lmos_actors.errors import Deadlocked, ForbiddenCall

from ._clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from lmos_actors._core import Entropy

    from ._trace import TraceLog

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

COLLECT_EVERY = 200_000
"""The minimum number of events between two collections of young garbage; every eighth collects all."""

EACH_TIMER = 8
"""Events per timer, at least, between collections: each walks what a large population has made since the
last, nearly all of which lives until its timers fire."""

_PROCESSES = ("fork", "forkpty", "system", "posix_spawn", "posix_spawnp", "execv", "execve", "_exit")
"""Functions of `os` that begin a process or end this one; all other such functions call one of these."""

_alone = threading.Lock()


def simulate(
    main: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    seed: int = 0,
    log: TraceLog | None = None,
) -> T:
    """Run `await main(*args)` in a simulated world and return its result.

    Time is virtual and begins at 0.0; ids, chance, the order of tasks that wake together and the time of
    day follow from `seed`. `log`, if given, receives every record of the nodes opened inside. The same
    seed gives the same log on the same CPython minor version, packages and C library.

    Threads, processes, sockets and `time.sleep` are refused with ForbiddenCall. Raises Deadlocked if nothing
    can ever happen again and `main` has not ended; RuntimeError inside a trio run or beside another
    simulation of this process; and whatever `main` raises.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("a simulation has a trio run of its own and cannot begin inside one")
    if not _alone.acquire(blocking=False):
        raise RuntimeError("another simulation is running in this process")
    with ExitStack() as stack:
        stack.callback(_alone.release)
        stack.enter_context(seeded_order(seed))
        world = _World(seed, log, stack)
        stack.enter_context(_own_collections(world.clock))
        return world.run(main, *args)


class _World:
    def __init__(self, seed: int, log: TraceLog | None, outside: ExitStack) -> None:
        self.clock = VirtualClock()
        self._ambient = Environment(seeded_entropy(seed, self.clock), self.clock, log)
        self._deadlock_watch = DeadlockWatch(self._ambient.describe)
        self.clock.on_deadlock = self._deadlock_watch.report_deadlock
        self._log = log
        self._seed = seed
        self._outside = outside

    def run(self, main: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        if self._log is not None:
            self._log.begin(seed=self._seed, now=self.clock.current_time)
        try:
            return trio.run(self._main, main, args, clock=self.clock)
        except trio.TrioInternalError:
            if self._deadlock_watch.deadlock is not None:
                raise self._deadlock_watch.deadlock from None
            raise
        finally:
            if self._log is not None:
                self._log.flush()

    async def _main(self, main: Callable[[*Ts], Awaitable[T]], args: tuple[*Ts]) -> T:
        set_environment(self._ambient)
        self.clock.deadlines = GLOBAL_RUN_CONTEXT.runner.deadlines
        trio.lowlevel.current_task().name = getattr(main, "__qualname__", repr(main))  # for waiting graphs
        # entered here, as trio makes a pair of sockets when a run begins; left outside, whatever happens
        self._outside.enter_context(_forbidden_calls())
        self._outside.enter_context(_seeded_bytes(self._ambient.entropy))
        self._outside.enter_context(_sleeping_on(self.clock))
        with self._deadlock_watch.watching():
            return await main(*args)
        # not reached: the body returns, or the watch raises
        raise AssertionError


class DeadlockWatch:
    """A watch over a body on virtual time: when nothing can ever happen again, the body ends with Deadlocked.

    `report_deadlock` is called when nothing can happen any more, for example as a clock's `on_deadlock`. The
    functions in `describe` return what is waiting for what; `title` names the body in the report.
    """

    def __init__(self, describe: Sequence[Callable[[], str]] = (), title: str = "") -> None:
        self.deadlock: Deadlocked | None = None
        """The error of the body, once the alarm has been raised."""
        self._describe = describe
        self._title = title
        self._body = trio.CancelScope()
        self._attempts = 0
        self._main: trio.lowlevel.Task | None = None

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch the block, in the task that runs it. Raises Deadlocked once, at the end of the block."""
        self._main = trio.lowlevel.current_task()
        try:
            with self._body:
                yield
        except (Exception, BaseExceptionGroup, _AbortDeadlocked) as error:
            if self.deadlock is not None:
                raise self.deadlock from error
            raise
        finally:
            self._main = None
        if self.deadlock is not None:
            raise self.deadlock

    def report_deadlock(self) -> None:
        """End the body with Deadlocked: cancel it, or abort its tasks, or crash trio."""
        self._attempts += 1
        if self.deadlock is None:
            self.deadlock = Deadlocked(self._report())
            self._body.cancel(reason="deadlocked")
        elif self._main is None or self._attempts > 100 or not _abort_tree(self._main):
            raise self.deadlock

    def _report(self) -> str:
        now = trio.current_time()
        title = f"{self._title}: " if self._title else ""
        head = f"at {now:g} s of virtual time nothing can ever happen again: every task waits for another"
        waiting = [text for describe in self._describe if (text := describe())]
        return "\n".join([title + head, *waiting])


class _AbortDeadlocked(BaseException):
    """Raised in those tasks of a deadlocked body that cannot be cancelled because they are shielded."""


def _raise_abort() -> NoReturn:
    raise _AbortDeadlocked


def _abort_tree(task: trio.lowlevel.Task) -> bool:
    """Abort the waits of a task and its children, even behind shields; return whether any was aborted."""
    tasks = [task]
    # grows while it is walked: children after their parents
    for parent in tasks:
        children = (child for nursery in parent.child_nurseries for child in nursery.child_tasks)
        tasks += sorted(children, key=lambda child: child.name)
    aborted = False
    for blocked in tasks:
        if blocked._abort_func is not None:  # pyright: ignore[reportPrivateUsage]
            blocked._attempt_abort(_raise_abort)  # pyright: ignore[reportPrivateUsage]
            aborted = True
    return aborted


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Generator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def seeded_order(seed: int) -> Generator[None]:
    """Make trio order the tasks of a pass by age, and then shuffle them by the seed."""
    with (
        _replaced(_trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        _replaced(_trio_run, "_r", random.Random(seed)),
    ):
        yield


@contextmanager
def _own_collections(clock: VirtualClock) -> Generator[None]:
    """Trigger garbage collection by a count of events, as allocation counts differ from run to run."""
    collections = last = 0

    def collect() -> None:
        nonlocal collections, last
        if clock.events - last < EACH_TIMER * len(clock):
            return
        last = clock.events
        collections += 1
        gc.collect(2 if collections % 8 == 0 else 1)

    clock.every_events(COLLECT_EVERY, collect)
    with uncollected():
        yield


@contextmanager
def _forbidden_calls() -> Generator[None]:
    forbidden: list[tuple[object, str, str]] = [
        (time, "sleep", "time.sleep"),
        (threading.Thread, "start", "threading.Thread.start"),
        (subprocess.Popen, "__init__", "subprocess.Popen"),
        *((os, name, f"os.{name}") for name in _PROCESSES),
        *_WAITING,
        *_loops(),
    ]
    with ExitStack() as stack:
        for owner, name, title in forbidden:
            if name in vars(owner):
                stack.enter_context(_replaced(owner, name, _refusal(title, vars(owner)[name])))
        yield


@contextmanager
def forbidden_to_agents() -> Generator[None]:
    """Forbid agents the calls that never return on virtual time, which waits for no thread or socket."""
    with ExitStack() as stack:
        for owner, name, title in (*_WAITING, *_loops()):
            original = vars(owner)[name]
            stack.enter_context(_replaced(owner, name, _refusal(title, original, is_agents_code)))
        yield


def _loops() -> list[tuple[object, str, str]]:
    """Return the functions that make asyncio event loops, if asyncio has been imported.

    They are refused as a whole: a loop without its sockets would be half made, and report an error when it is
    destroyed.
    """
    events = sys.modules.get("asyncio.events")
    policy = getattr(events, "BaseDefaultEventLoopPolicy", None)
    policy = policy or getattr(events, "_BaseDefaultEventLoopPolicy", None)  # from Python 3.14 on
    return [] if policy is None else [(policy, "new_event_loop", "an event loop of asyncio")]


# trio keeps idle threads of earlier runs, which it need not start again
_WAITING: Final[tuple[tuple[object, str, str], ...]] = (
    (socket.socket, "__init__", "socket.socket"),
    (socket, "getaddrinfo", "socket.getaddrinfo"),
    (trio.to_thread, "run_sync", "trio.to_thread.run_sync"),
    (_trio_threads, "start_thread_soon", "trio.to_thread.run_sync"),  # for code that has imported it by name
)


@contextmanager
def _seeded_bytes(entropy: Entropy) -> Generator[None]:
    """Make the results of `os.urandom` depend on the seed: it provides the masks and keys of WebSockets."""
    stream, home, outside = entropy.stream("os.urandom"), threading.get_ident(), os.urandom

    def urandom(size: int, /) -> bytes:
        return stream.randbytes(size) if threading.get_ident() == home else outside(size)

    with _replaced(os, "urandom", urandom):
        yield


@contextmanager
def _sleeping_on(clock: VirtualClock) -> Generator[None]:
    """Make `trio.sleep` and `trio.sleep_until` wait on a timer of the clock."""
    home, scoped, current_time = threading.get_ident(), trio.sleep_until, clock.current_time

    async def sleep_until(deadline: float) -> None:
        # what is past, endless or no number, and other threads' runs, are trio's own to deal with
        if current_time() < deadline < math.inf and threading.get_ident() == home:
            await clock.sleep_until(deadline)
        else:
            await scoped(deadline)

    with _replaced(_trio_timeouts, "sleep_until", sleep_until), _replaced(trio, "sleep_until", sleep_until):
        yield


def _refusal(
    title: str, original: Callable[..., object], applies: Callable[[], bool] = lambda: True
) -> Callable[..., object]:
    home = threading.get_ident()

    def refuse(*args: object, **kwargs: object) -> object:
        if threading.get_ident() != home or not applies():
            return original(*args, **kwargs)
        by = ", by asyncio, which does not run there" if runs_asyncio() else ""
        way = "await trio.sleep(...) takes virtual time" if title == "time.sleep" else WAY_OUT
        raise ForbiddenCall(
            f"{title} reaches out of the simulated world, called at {line_of_user()}{by}; {way}"
        )

    return refuse
