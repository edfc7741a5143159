"""The verbs of a ref for other threads, and for asyncio code through `aio`."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, TypeVarTuple

import trio

from lmos_actors.actors import Agent, Ref
from lmos_actors.errors import ForbiddenCall

from ._jobs import HeldContext, NodeEnded, PortalJobs, PortalNode, take_remaining

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from lmos_actors._core import ShieldedNursery
    from lmos_actors.actors import Action, EventHandle, Feed, PropertyHandle, Runtime, Turn

    from ._aio import AioPortal

A = TypeVar("A", bound=Agent)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
R = TypeVar("R")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class PortalFeed(Generic[V_co]):
    """The iterator of `Portal.subscribe` and `Portal.observe`; it blocks its thread for the next value.

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

    def __iter__(self) -> PortalFeed[V_co]:
        return self

    def __next__(self) -> V_co:
        try:
            return self._jobs.call(self._feed.receive, self._ref)
        except trio.EndOfChannel:
            raise StopIteration from None
        except NodeEnded:
            return take_remaining(self._feed, StopIteration)


class Portal:
    """The portal into a node for other threads: `node.portal()`. Every verb blocks the calling thread.

    The verbs raise what the verbs of `Ref` raise, and AgentUnavailable once the node has ended. Ctrl-C in the
    calling thread cancels the request. In the node's own thread the verbs raise RuntimeError. Any number of
    threads may share one portal.
    """

    def __init__(self, jobs: PortalJobs, node: PortalNode) -> None:
        self._jobs = jobs
        self._node = node

    @property
    def aio(self) -> AioPortal:
        """The same verbs as coroutines, for asyncio code in another thread."""
        from ._aio import AioPortal  # only programs that use asyncio import it

        return AioPortal(self._jobs, self._node)

    # ---- agents

    def start(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Ref[A]:
        """Start a permanent agent, as `Node.start` does. Raises StartFailed."""
        return self._jobs.call(lambda: self._node.start(factory, *args, **kwargs))

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Return a ref to an agent of class `cls`: by name or path, or else the first started. Never wait."""
        return self._node.find(cls, name)

    def run(self, async_fn: Callable[[*Ts], Awaitable[R]], /, *args: *Ts) -> R:
        """Run an async function in the node, on trio, and return what it returns: `portal.run(ref.ready)`."""
        return self._jobs.call(lambda: async_fn(*args))

    # ---- actions and properties

    def invoke(
        self,
        ref: Ref[A],
        handle: Turn[A, P, R] | Action[A, P, R, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Invoke an action and return its output."""
        return self._jobs.call(lambda: ref.invoke(handle, *args, **kwargs), ref)

    def tell(
        self,
        ref: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send a one-way message; return once the mailbox has a seat for it."""
        self._jobs.call(lambda: ref.tell(handle, *args, **kwargs), ref)

    def read(self, ref: Ref[A], handle: PropertyHandle[A, V], /) -> V:
        """Return the value of a property."""
        return self._jobs.call(lambda: ref.read(handle), ref)

    def write(self, ref: Ref[A], handle: PropertyHandle[A, V], value: V, /) -> None:
        """Set a property."""
        self._jobs.call(lambda: ref.write(handle, value), ref)

    # ---- listening

    def subscribe(
        self, ref: Ref[A], handle: EventHandle[A, V], /, *, size: int = 64
    ) -> AbstractContextManager[PortalFeed[V]]:
        """Return a context manager for a feed of every event from now on.

        If more than `size` events wait, the oldest is dropped and counted.
        """
        return self._listen(lambda: ref.subscribe(handle, size=size), ref)

    def observe(self, ref: Ref[A], handle: PropertyHandle[A, V], /) -> AbstractContextManager[PortalFeed[V]]:
        """Return a context manager for a feed of the present value and every later change.

        A slow observer sees the latest value.
        """
        return self._listen(lambda: ref.observe(handle), ref)

    @contextmanager
    def _listen(
        self, manager: Callable[[], AbstractAsyncContextManager[Feed[V]]], ref: Ref[Any]
    ) -> Generator[PortalFeed[V]]:
        jobs = self._jobs
        held = HeldContext(manager)
        try:
            feed: Feed[V] = jobs.call(lambda: jobs.hold(held), ref)
            yield PortalFeed(jobs, feed, ref)
        finally:
            jobs.soon(held.release)
            with suppress(NodeEnded):
                jobs.call(held.leave, ref)


def open_portal(rt: Runtime, services: ShieldedNursery, node: PortalNode) -> Portal:
    """Return the portal of a node, served until the node's services end.

    Raise ForbiddenCall on virtual time.
    """
    if not rt.real:
        raise ForbiddenCall("a portal leads out of the simulated world: let the test ask the refs themselves")
    jobs = PortalJobs(rt)
    services.at_end.append(jobs.close)
    services.start_soon(jobs.serve, name="portal")
    return Portal(jobs, node)
