"""Threads and processes beside the node, for blocking calls of an agent's runs.

Each node has its own limits for both, so that neither another node nor a library that uses threads can use
them up. Worker processes belong to the whole trio run, as anyio keeps them, and each serves one call at a
time. They end with the last node of the run that used them.

Three things are done here that anyio leaves open. Before a worker gets work, it has to answer a greeting;
this is shielded, so that a cancel leaves no process half-started. Workers ignore Ctrl-C, which belongs to the
process that started them. Every answer to a greeting carries the number of the greeting, as a worker that was
interrupted may still send an earlier answer.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import RunVar, enable_ki_protection

from lmos_actors._core import WAY_OUT, line_of_user
from lmos_actors.errors import ConfigError, ForbiddenCall, WorkerDied, text_of

from ._runtime import RUNTIME
from .messages._operation import named
from .refs._after_kept import wait_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .slot._slot import Slot

THREADS: Final = 16
"""Threads that the agents of one node may use at a time; `open_node(threads=...)` sets another number."""

ATTEMPTS: Final = 3  # workers asked in vain before the call fails
RETURNED, RAISED, UNFIT = range(3)  # what a worker answers
PATIENCE: Final = 5.0  # seconds in which idle workers are expected to take note of the end

_GUARD: Final = """a script needs `if __name__ == "__main__":` around what it starts"""


class Outside:
    """The threads and the processes of one node."""

    def __init__(self, *, threads: int | None = None, processes: int | None = None) -> None:
        self.threads = _limiter("threads", threads, THREADS)
        self.processes = _limiter("processes", processes, os.cpu_count() or 1)
        self._pool: Pool | None = None

    @named("self.to_thread")
    async def to_thread(self, fn: Callable[..., Any], args: tuple[Any, ...], abandon: bool) -> Any:
        """Call a function in a thread, in a copy of the caller's context."""
        await _wait_kept()
        call = partial(_in_thread, fn, args)
        return await trio.to_thread.run_sync(call, abandon_on_cancel=abandon, limiter=self.threads)

    @named("self.to_process")
    @enable_ki_protection
    async def to_process(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a function in a worker process; a cancel kills the worker."""
        if "__main__" not in sys.modules:
            raise RuntimeError(f"a worker process, which imports the script, may start none itself: {_GUARD}")
        job = _packed(fn, args)
        await _wait_kept()
        pool = self._pool
        if pool is None:
            try:
                pool = _pool.get()
            except LookupError:
                pool = Pool()
                _pool.set(pool)
            self._pool = pool
            pool.nodes += 1
        async with self.processes:
            kind, value = await pool.call(job)
        if kind == RAISED:
            raise value
        if kind == UNFIT:
            raise TypeError(value)
        return value

    async def close(self) -> None:
        """Note that the node has ended; if no other node of this run uses the workers, end the idle ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.nodes -= 1
            if not pool.nodes:
                await pool.stop_children()


def _limiter(name: str, number: int | None, usual: int) -> trio.CapacityLimiter:
    if number is None:
        return trio.CapacityLimiter(usual)
    if type(number) is not int or number < 1:
        raise ConfigError(f"must be a whole number of at least 1, not {number!r}", f"open_node({name}=...)")
    return trio.CapacityLimiter(number)


def outside_of(slot: Slot, verb: str) -> Outside:
    """Return the node's threads and processes for a run that wants to use them.

    Raises RuntimeError in a `def` turn, which cannot await them, and ForbiddenCall on virtual time.
    """
    if slot.turns.slot is not None:
        raise RuntimeError(
            f"self.{verb}(...) has to be awaited, and the turn of {slot.turns.slot.path!r} that calls it is "
            f"a def: make the handler async def"
        )
    if not slot.rt.real:
        raise ForbiddenCall(
            f"self.{verb}(...) of agent {slot.path!r} reaches out of the simulated world, called at "
            f"{line_of_user()}; {WAY_OUT}"
        )
    outside: Outside = slot.rt.outside
    return outside


async def _wait_kept() -> None:
    rt = RUNTIME.get()
    if rt is not None:
        await wait_kept(rt.turns)


def _in_thread(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    RUNTIME.set(None)  # the turn that runs at this moment is none of the thread's business
    return fn(*args)


def _packed(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((fn, args), pickle.HIGHEST_PROTOCOL)
    except Exception as exc:
        name = getattr(fn, "__qualname__", fn)
        raise TypeError(
            f"to_process cannot send {name!r} and its arguments to another process: {exc}; use a function "
            f"from the top level of a module, no lambda and no method of the agent, and pass plain data"
        ) from None


# ---- the worker processes of a run


class Pool:
    """The worker processes that the agents of one trio run use."""

    def __init__(self) -> None:
        self.nodes = 0  # how many nodes use it
        self._idle: dict[int, None] = {}
        self._numbers = count(1)

    async def call(self, job: bytes) -> tuple[int, Any]:
        """Run a job in a worker; return the kind of the answer, and the answer. Raises WorkerDied."""
        from anyio import BrokenWorkerProcess, to_process

        worker = await self._worker()
        await trio.lowlevel.checkpoint_if_cancelled()
        # no other task has run since the worker answered, so it is the one that is taken now
        self._idle.pop(worker, None)
        try:
            kind, answer = await to_process.run_sync(_work, job, cancellable=True, limiter=_UNLIMITED)
        except BrokenWorkerProcess as exc:
            raise WorkerDied(f"the worker process {worker} ended before it answered") from exc
        self._idle[worker] = None
        try:
            return kind, pickle.loads(answer)
        except Exception as exc:
            return UNFIT, f"to_process cannot load what the worker process sent: {exc!r}; return plain data"

    async def _worker(self) -> int:
        """Make sure that the worker to be used next answers, and return its process id. Raises WorkerDied."""
        from anyio import BrokenWorkerProcess, to_process

        cause: BaseException | None = None
        with trio.CancelScope(shield=True):
            for _ in range(ATTEMPTS):
                number = next(self._numbers)
                try:
                    answered, worker = await to_process.run_sync(_greet, number, limiter=_UNLIMITED)
                except BrokenWorkerProcess as exc:
                    cause = exc
                    continue
                except BaseException as exc:  # noqa: ASYNC103 -- the worker's, still owed from before
                    cause = exc
                else:
                    if answered == number:
                        self._idle[worker] = None
                        return worker
                await self._dismiss_next()
        why = (cause.__cause__ or cause) if cause is not None else "it answers what it was not asked"
        raise WorkerDied(f"no worker process could be started: {why}; {_GUARD}") from cause

    async def stop_children(self) -> None:
        """End the idle workers."""
        with trio.move_on_after(PATIENCE, shield=True):
            async with trio.open_nursery() as nursery:
                for _ in self._idle:
                    nursery.start_soon(self._dismiss_next)
        self._idle.clear()

    async def _dismiss_next(self) -> None:
        from anyio import to_process

        try:
            await to_process.run_sync(_leave, cancellable=True, limiter=_UNLIMITED)
        except trio.Cancelled:
            raise
        except BaseException:  # noqa: ASYNC103 -- it ends without an answer; whatever else it was, it is gone
            return


_pool: RunVar[Pool] = RunVar("lmos_actors.workers")


class _Unlimited:
    """A replacement for anyio's limiter that never waits, as the node's limiter has admitted the call."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


_UNLIMITED: Final[Any] = _Unlimited()


# ---- in the worker


def _greet(number: int) -> tuple[int, int]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return number, os.getpid()


def _leave() -> None:
    os._exit(0)  # without an answer: then anyio closes the pipes and waits for the process


@contextmanager
def _apart() -> Generator[None]:
    """Keep a function, and the processes it starts, from using the worker's own pipes."""
    own = [os.dup(place) for place in (0, 1)]
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1):
        os.dup2(nothing, place)
    os.close(nothing)
    try:
        yield
    finally:
        for place, pipe in enumerate(own):
            os.dup2(pipe, place)
            os.close(pipe)


def _work(job: bytes) -> tuple[int, bytes]:
    """Run a job, and return an answer in a form that the other side can always read."""
    try:
        fn, args = pickle.loads(job)
    except Exception as exc:
        return _answer(UNFIT, f"the worker process of to_process cannot load its work: {exc!r}; {_LOADABLE}")
    try:
        with _apart():
            value = fn(*args)
    except BaseException as exc:  # noqa: ASYNC103 -- a worker process without trio: it tells the other side
        return _failure(exc)
    try:
        return _answer(RETURNED, value)
    except Exception as exc:
        name = getattr(fn, "__qualname__", fn)
        return _answer(UNFIT, f"to_process cannot return the result of {name!r}: {exc!r}; return plain data")


_LOADABLE: Final = "a function has to be in a module that can be imported, not in the cell of a notebook"


def _failure(exc: BaseException) -> tuple[int, bytes]:
    calls = "".join(traceback.format_tb(exc.__traceback__)[1:])
    exc.add_note(f"raised in a worker process:\n{calls}")
    try:
        answer = _answer(RAISED, exc)
        pickle.loads(answer[1])
    except Exception:
        other = RuntimeError(f"{type(exc).__qualname__}: {text_of(exc)}")
        other.add_note(f"raised in a worker process, as an exception that cannot be sent:\n{calls}")
        return _answer(RAISED, other)
    return answer


def _answer(kind: int, value: object) -> tuple[int, bytes]:
    return kind, pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
