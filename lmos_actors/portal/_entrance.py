"""How requests from other threads come into a node, and how their answers get out.

A request is a job: made in another thread, begun in the node's own by `run_sync_soon`, carried by a task
of its own, answered once. Which jobs are open is known under one lock; whoever takes a job out of the
list is the one who answers it, or who leaves it. So each caller gets one final answer, also when the
node ends between a call and its first step. There are never more jobs than callers who wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import trio
from trio.lowlevel import disable_ki_protection, enable_ki_protection

from lmos_actors.actors import CURRENT, Agent
from lmos_actors.errors import AgentDied, AgentUnavailable, group_of

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.actors import Feed, OwnTask, Ref, Run, Runtime

A = TypeVar("A", bound=Agent)
T = TypeVar("T")
V = TypeVar("V")
P = ParamSpec("P")

Fatal = Callable[[BaseException], None]


class Home(Protocol):
    """What a portal asks of its node."""

    async def start(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Ref[A]:
        """Start an agent."""
        ...

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Return a ref."""
        ...


class NodeEnded(AgentUnavailable):
    """The portal's node has ended, or ended before it answered."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent, "the node of this portal has ended")


class Job:
    """One request from outside, to an agent or, without `ref`, to the node itself.

    How its answer is handed over, a subclass knows.
    """

    caller: Run | OwnTask | None = None
    """The code of an agent that asks from a thread, where it has carried its context there."""

    def __init__(self, make: Callable[[], Awaitable[Any]], ref: Ref[Any] | None) -> None:
        self.make = make
        self.scope = trio.CancelScope()
        self.caller = CURRENT.get()
        self._ref = ref

    def ended(self) -> NodeEnded:
        """Make the error of a job whose node has ended; there, or when nobody is there any more."""
        return NodeEnded(self._ref.path if self._ref is not None else "node")

    def deliver(self, value: Any, error: Exception | None) -> None:
        """Hand the answer over to the caller's thread, from the node's; never blocks, never raises."""
        raise NotImplementedError


class Blocking(Job):
    """A job whose caller blocks its thread."""

    def __init__(self, make: Callable[[], Awaitable[Any]], ref: Ref[Any] | None) -> None:
        super().__init__(make, ref)
        self._done = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def deliver(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error
        self._done.set()

    def wait(self) -> Any:
        """Wait for the answer; Ctrl-C gets through."""
        self._done.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # an exception and the frame that holds it would keep each other
        return self._value


class Entrance:
    """The jobs of one node; made in the node's own thread."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._fatal: Fatal | None = rt.fatal
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open: dict[Job, None] = {}
        self._early: list[Job] = []
        self._nursery: trio.Nursery | None = None
        self.closed = False

    # ---- from any thread

    def call(self, make: Callable[[], Awaitable[T]], ref: Ref[Any] | None = None) -> T:
        """Have a job done, wait for its answer. Raises NodeEnded, RuntimeError in the node's own thread."""
        if threading.get_ident() == self._thread and not self.closed:
            raise RuntimeError(
                "a portal blocks its caller, and this is the node's own thread, which would wait for itself: "
                "await the verb of the ref instead"
            )
        job = Blocking(make, ref)
        try:
            self.submit(job)
            value: T = job.wait()
        except BaseException:
            self.abandon(job)
            raise
        return value

    def submit(self, job: Job) -> None:
        """Have a job begun. Raises NodeEnded."""
        if os.getpid() != self._process:
            raise job.ended()  # forked: the node has stayed behind, and who holds the lock, too
        with self._lock:
            if not self.closed:
                self._open[job] = None
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._begin, job)
                    return
                del self._open[job]
        raise job.ended()

    def abandon(self, job: Job) -> None:
        """The caller is gone: what it asked for is cancelled, unless it has been answered."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if job in self._open:
                del self._open[job]
                self.soon(job.scope.cancel)

    def soon(self, fn: Callable[[], object]) -> None:
        """Have something done in the node's thread, if there still is a node."""
        if os.getpid() == self._process:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(fn)

    # ---- in the node's own thread

    async def serve(self) -> None:
        """Carry jobs until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for job in self._early:
                nursery.start_soon(self._carry, job, name="call through a portal")
            self._early.clear()
            await trio.sleep_forever()

    def close(self) -> None:
        """The node has ended: answer everybody, take no more."""
        with self._lock:
            self.closed = True
            left = list(self._open)
            self._open.clear()
        for job in left:
            job.scope.cancel()
            job.deliver(None, job.ended())

    def _begin(self, job: Job) -> None:
        if job not in self._open:
            return
        if self._nursery is None:
            self._early.append(job)
        else:
            self._nursery.start_soon(self._carry, job, name="call through a portal")

    @enable_ki_protection
    async def _carry(self, job: Job) -> None:
        value, error = None, None
        if job.caller is not None and job.caller.slot.rt is self._rt:
            CURRENT.set(job.caller)
        try:
            with job.scope:
                value = await interruptible(job.make)
        except Exception as exc:
            error = exc
        except BaseException as exc:  # noqa: ASYNC103 -- it arrives: at the caller, and at the node's root
            if _is_cancel(exc):
                self._settle(job, None, job.ended())
                raise
            error = AgentDied(type(exc).__name__, started=True)
            if self._fatal is not None:
                self._fatal(exc)
        self._settle(job, value, error)

    def _settle(self, job: Job, value: Any, error: Exception | None) -> None:
        with self._lock:
            if job not in self._open:
                return
            del self._open[job]
        job.deliver(value, error)

    async def hold(self, held: Held) -> Any:
        """Enter what `held` holds in a task of its own; return what that gives."""
        if self._nursery is None:
            raise AssertionError("a job runs in the nursery")
        held.begun = True
        return await self._nursery.start(held.hold, name="held for a portal")


@disable_ki_protection
async def interruptible(make: Callable[[], Awaitable[T]]) -> T:
    """Await what the user wrote: Ctrl-C may end it, unlike the code around it."""
    return await make()


def _is_cancel(exc: BaseException) -> bool:
    group = group_of(exc)
    return isinstance(exc, trio.Cancelled) if group is None else group.split(trio.Cancelled)[1] is None


class Held:
    """A context of the node that is entered for somebody outside: one task enters and leaves it."""

    def __init__(self, manager: Callable[[], AbstractAsyncContextManager[Feed[Any]]]) -> None:
        self.begun = False
        self._manager = manager
        self._left = trio.Event()
        self._gone = trio.Event()
        self._error: Exception | None = None

    @enable_ki_protection
    async def hold(self, task_status: trio.TaskStatus[Any]) -> None:
        """Enter, tell what was given, and stay until told to leave."""
        entered = False
        try:
            async with self._manager() as feed:
                entered = True
                task_status.started(feed)
                await self._left.wait()
        except Exception as exc:
            if not entered:
                raise
            self._error = exc
        finally:
            self._gone.set()

    def let_go(self) -> None:
        """Have the task leave; waits for nothing."""
        self._left.set()

    async def leave(self) -> None:
        """Have the task leave, and wait until it has. Raises what leaving raised."""
        self._left.set()
        if self.begun:  # not so if who asked was gone before the node came to it
            await self._gone.wait()
        if self._error is not None:
            raise self._error


def last_of(feed: Feed[V], end: type[Exception]) -> V:
    """Return what a feed of a node that has ended still holds: nobody else touches it any more."""
    try:
        return feed.receive_nowait()
    except (trio.WouldBlock, trio.EndOfChannel):
        raise end from None
