"""Jobs of a portal: requests from other threads to a node, and their answers.

A job is made in the caller's thread, begun in the node's thread by `run_sync_soon`, run by a separate task,
and answered once. One lock guards the set of open jobs. Only the code that removes a job from the set may
answer it, so each caller gets exactly one final answer, even if the node ends between the call and its first
step. There are never more jobs than waiting callers, so no limit is needed.
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

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

_CONTEXTS: Final = "opentelemetry.context"


def wait_for(event: threading.Event) -> None:
    """Wait for an event, or for an interrupt, in a thread other than the node's.

    A signal that arrives between Python's last check for signals and the wait on the lock does not end the
    wait, so signals are checked again at intervals.
    """
    while not event.wait(0.5):
        pass


class PortalNode(Protocol):
    """The methods of a node that a portal calls."""

    async def start(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Ref[A]:
        """Start an agent."""
        ...

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Return a ref."""
        ...


class NodeEnded(AgentUnavailable):
    """The error for a node that has ended, perhaps before it answered a request of the portal."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent, "the node of this portal has ended")


class Job(ABC):
    """A request from another thread, to an agent or, without `ref`, to the node itself.

    Subclasses deliver the answer.
    """

    caller: Run | OwnTask | None = None
    """The agent's run or task that calls from a thread, if it carried its context into that thread."""

    def __init__(self, make: Callable[[], Awaitable[Any]], ref: Ref[Any] | None) -> None:
        self.make = make
        self.scope = trio.CancelScope()
        self.caller = CURRENT.get()
        contexts = sys.modules.get(_CONTEXTS)  # a program without OpenTelemetry has none
        self.context = None if contexts is None else contexts.get_current()
        """OpenTelemetry's current context where the job was made."""
        self._ref = ref

    def node_ended_error(self) -> NodeEnded:
        """Return the error for a job whose node has ended. It can be called from any thread."""
        return NodeEnded(self._ref.path if self._ref is not None else "node")

    @abstractmethod
    def deliver(self, value: Any, error: Exception | None) -> None:
        """Pass the answer from the node's thread to the caller's; never blocks, never raises."""


class BlockingJob(Job):
    """A job whose caller blocks its thread until the answer arrives."""

    def __init__(self, make: Callable[[], Awaitable[Any]], ref: Ref[Any] | None) -> None:
        super().__init__(make, ref)
        self._done = threading.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def deliver(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error
        self._done.set()

    def wait(self) -> Any:
        """Block the thread for the answer; return it, or raise its error. Ctrl-C interrupts the wait."""
        wait_for(self._done)
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # breaks the reference cycle of exception and frame
        return self._value


class PortalJobs:
    """The open jobs of one node; made in the node's own thread."""

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
        """Run a job, block until it ends, and return its answer.

        Raise NodeEnded, and RuntimeError in the node's thread.
        """
        if threading.get_ident() == self._thread and not self.closed:
            raise RuntimeError(
                "a portal blocks its caller, and this is the node's own thread, which would wait for itself: "
                "await the verb of the ref instead"
            )
        job = BlockingJob(make, ref)
        try:
            self.submit(job)
            value: T = job.wait()
        except BaseException:
            self.abandon(job)
            raise
        return value

    def submit(self, job: Job) -> None:
        """Begin a job in the node's thread. Raises NodeEnded."""
        if os.getpid() != self._process:
            raise job.node_ended_error()  # forked: the node, and any holder of the lock, are in the parent
        with self._lock:
            if not self.closed:
                self._open[job] = None
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(self._begin, job)
                    return
                del self._open[job]
        raise job.node_ended_error()

    def abandon(self, job: Job) -> None:
        """Cancel a job whose caller no longer waits, unless it has been answered."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if job in self._open:
                del self._open[job]
                self.soon(job.scope.cancel)

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the node's thread, if the node still exists."""
        if os.getpid() == self._process:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(fn)

    # ---- in the node's own thread

    async def serve(self) -> None:
        """Run jobs until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for job in self._early:
                nursery.start_soon(self._run_job, job, name="call through a portal")
            self._early.clear()
            await trio.sleep_forever()

    def close(self) -> None:
        """Answer all open jobs with NodeEnded, and accept no more."""
        with self._lock:
            self.closed = True
            left = list(self._open)
            self._open.clear()
        for job in left:
            job.scope.cancel()
            job.deliver(None, job.node_ended_error())

    def _begin(self, job: Job) -> None:
        if job not in self._open:
            return
        if self._nursery is None:
            self._early.append(job)
        else:
            self._nursery.start_soon(self._run_job, job, name="call through a portal")

    @enable_ki_protection
    async def _run_job(self, job: Job) -> None:
        value, error = None, None
        if job.caller is not None and job.caller.slot.rt is self._rt:
            CURRENT.set(job.caller)
        if job.context is not None:
            sys.modules[_CONTEXTS].attach(job.context)
        try:
            with job.scope:
                value = await interruptible(job.make)
        except Exception as exc:
            error = exc
        except BaseException as exc:  # noqa: ASYNC103 -- goes to the caller and to the node's root
            if _is_cancellation(exc):
                self._settle(job, None, job.node_ended_error())
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

    async def hold(self, held: HeldContext) -> Any:
        """Enter the context of `held` in a separate task, and return what entering it returned."""
        if self._nursery is None:
            raise AssertionError("a job runs in the nursery")
        held.begun = True
        return await self._nursery.start(held.hold, name="held for a portal")


@disable_ki_protection
async def interruptible(make: Callable[[], Awaitable[T]]) -> T:
    """Await user code. Ctrl-C may interrupt it, unlike the code around it."""
    return await make()


def _is_cancellation(exc: BaseException) -> bool:
    group = group_of(exc)
    return isinstance(exc, trio.Cancelled) if group is None else group.split(trio.Cancelled)[1] is None


class HeldContext:
    """An async context that is entered for a caller in another thread; one task enters and leaves it."""

    def __init__(self, manager: Callable[[], AbstractAsyncContextManager[Feed[Any]]]) -> None:
        self.begun = False
        self._manager = manager
        self._left = trio.Event()
        self._gone = trio.Event()
        self._error: Exception | None = None

    @enable_ki_protection
    async def hold(self, task_status: trio.TaskStatus[Any]) -> None:
        """Enter the context, report what entering it returned, and wait for `release` or `leave`."""
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

    def release(self) -> None:
        """Let the task leave the context; return at once."""
        self._left.set()

    async def leave(self) -> None:
        """Let the task leave the context and wait until it has. Raise the error of leaving, if any."""
        self._left.set()
        if self.begun:  # false if the caller was gone before the job began
            await self._gone.wait()
        if self._error is not None:
            raise self._error


def take_remaining(feed: Feed[V], end: type[Exception]) -> V:
    """Return a value that the feed of an ended node still holds, or else raise `end`.

    Safe in any thread: the node no longer touches the feed.
    """
    try:
        return feed.receive_nowait()
    except (trio.WouldBlock, trio.EndOfChannel):
        raise end from None
