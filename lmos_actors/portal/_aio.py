"""The verbs of a portal for asyncio code. No other file of the package imports asyncio.

The event loop runs in another thread. Many calls may be in flight; each is one job in the node and one future
in the loop.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, TypeVarTuple

import trio

from lmos_actors.actors import Agent

from ._jobs import HeldContext, Job, NodeEnded, PortalJobs, PortalNode, take_remaining

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.actors import Action, EventHandle, Feed, PropertyHandle, Ref, Turn

A = TypeVar("A", bound=Agent)
T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
R = TypeVar("R")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class AsyncioJob(Job):
    """A job whose caller awaits a future of an asyncio event loop."""

    def __init__(self, make: Callable[[], Awaitable[Any]], ref: Ref[Any] | None) -> None:
        super().__init__(make, ref)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "portal.aio is for code that an asyncio event loop runs, and none runs here: "
                "use the portal's own verbs in a plain thread, and those of the ref inside the node"
            ) from None
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def deliver(self, value: Any, error: Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


async def call(jobs: PortalJobs, make: Callable[[], Awaitable[T]], ref: Ref[Any] | None = None) -> T:
    """Run a job and return its answer. Cancelling the call cancels the job. Raise NodeEnded."""
    job = AsyncioJob(make, ref)
    try:
        jobs.submit(job)
        value: T = await job.future
    except BaseException:
        jobs.abandon(job)
        raise
    return value


class AioFeed(Generic[V_co]):
    """The asynchronous iterator of `AioPortal.subscribe` and `AioPortal.observe`, for asyncio.

    It ends, after the values that have arrived, once the agent no longer exists or the node has ended.
    """

    def __init__(self, jobs: PortalJobs, feed: Feed[V_co], ref: Ref[Any]) -> None:
        self._jobs = jobs
        self._feed = feed
        self._ref = ref

    @property
    def missed(self) -> int:
        """The number of values dropped or replaced so far because the reader was too slow."""
        return self._feed.missed

    def __aiter__(self) -> AioFeed[V_co]:
        return self

    async def __anext__(self) -> V_co:
        try:
            return await call(self._jobs, self._feed.receive, self._ref)
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        except NodeEnded:
            return take_remaining(self._feed, StopAsyncIteration)


class AioPortal:
    """The portal into a node for asyncio code: `node.portal().aio`.

    Use it from an event loop in another thread; any number of calls may be in flight. Verbs raise what
    the verbs of `Ref` raise, and AgentUnavailable once the node has ended. Cancelling the asyncio task
    cancels its request in the node.
    """

    def __init__(self, jobs: PortalJobs, node: PortalNode) -> None:
        self._jobs = jobs
        self._node = node

    def start(
        self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Ref[A]]:
        """Start a permanent agent, as `Node.start` does. Raises StartFailed."""
        return call(self._jobs, lambda: self._node.start(factory, *args, **kwargs))

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Return a ref to an agent of class `cls`: by name or path, or else the first started. Never wait."""
        return self._node.find(cls, name)

    def run(self, async_fn: Callable[[*Ts], Awaitable[R]], /, *args: *Ts) -> Coroutine[Any, Any, R]:
        """Run an async function in the node, on trio, and return what it returns."""
        return call(self._jobs, lambda: async_fn(*args))

    def invoke(
        self,
        ref: Ref[A],
        handle: Turn[A, P, R] | Action[A, P, R, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, R]:
        """Invoke an action and return its output."""
        return call(self._jobs, lambda: ref.invoke(handle, *args, **kwargs), ref)

    def tell(
        self,
        ref: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, None]:
        """Send a one-way message; return once the mailbox has a seat for it."""
        return call(self._jobs, lambda: ref.tell(handle, *args, **kwargs), ref)

    def read(self, ref: Ref[A], handle: PropertyHandle[A, V], /) -> Coroutine[Any, Any, V]:
        """Return the value of a property."""
        return call(self._jobs, lambda: ref.read(handle), ref)

    def write(self, ref: Ref[A], handle: PropertyHandle[A, V], value: V, /) -> Coroutine[Any, Any, None]:
        """Set a property."""
        return call(self._jobs, lambda: ref.write(handle, value), ref)

    def subscribe(
        self, ref: Ref[A], handle: EventHandle[A, V], /, *, size: int = 64
    ) -> AbstractAsyncContextManager[AioFeed[V]]:
        """Return a context manager for a feed of every event from now on.

        If more than `size` events wait, the oldest is dropped and counted.
        """
        return self._listen(lambda: ref.subscribe(handle, size=size), ref)

    def observe(
        self, ref: Ref[A], handle: PropertyHandle[A, V], /
    ) -> AbstractAsyncContextManager[AioFeed[V]]:
        """Return a context manager for a feed of the present value and every later change.

        A slow observer sees the latest value.
        """
        return self._listen(lambda: ref.observe(handle), ref)

    @asynccontextmanager
    async def _listen(
        self, manager: Callable[[], AbstractAsyncContextManager[Feed[V]]], ref: Ref[Any]
    ) -> AsyncGenerator[AioFeed[V]]:
        jobs = self._jobs
        held = HeldContext(manager)
        try:
            feed: Feed[V] = await call(jobs, lambda: jobs.hold(held), ref)
            yield AioFeed(jobs, feed, ref)
        finally:
            jobs.soon(held.release)
            with suppress(NodeEnded):
                await call(jobs, held.leave, ref)
