"""The verbs of a ref for those who do not live in the node: threads, and asyncio code through `aio`."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, TypeVarTuple

import trio

from lmos_actors.actors import Agent, Ref
from lmos_actors.errors import ForbiddenCall

from ._entrance import Entrance, Held, Home, NodeEnded, last_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from lmos_actors._core import Services
    from lmos_actors.actors import Action, EventHandle, Feed, PropertyHandle, Runtime, Turn

    from ._aio import AioPortal

A = TypeVar("A", bound=Agent)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
R = TypeVar("R")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class PortalFeed(Generic[V_co]):
    """What `subscribe` and `observe` of a portal give: an iterator that blocks its thread for the next value.

    It ends when the agent is gone for good, or the node; what had come by then is still given.
    """

    def __init__(self, entrance: Entrance, feed: Feed[V_co], ref: Ref[Any]) -> None:
        self._entrance = entrance
        self._feed = feed
        self._ref = ref

    @property
    def missed(self) -> int:
        """Values dropped or replaced so far, as this side was slower than its bound allows."""
        return self._feed.missed

    def __iter__(self) -> PortalFeed[V_co]:
        return self

    def __next__(self) -> V_co:
        try:
            return self._entrance.call(self._feed.receive, self._ref)
        except trio.EndOfChannel:
            raise StopIteration from None
        except NodeEnded:
            return last_of(self._feed, StopIteration)


class Portal:
    """The way into a node for other threads: `node.portal()`. Every verb blocks the calling thread.

    Verbs raise what those of `Ref` raise, and AgentUnavailable once the node has ended. Ctrl-C in the
    calling thread cancels what was asked for. Called in the node's own thread they raise RuntimeError.
    Any number of threads may share one portal.
    """

    def __init__(self, entrance: Entrance, home: Home) -> None:
        self._entrance = entrance
        self._home = home

    @property
    def aio(self) -> AioPortal:
        """The same verbs for asyncio code in another thread, to be awaited."""
        from ._aio import AioPortal  # asyncio is imported by those who use it

        return AioPortal(self._entrance, self._home)

    # ---- agents

    def start(self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> Ref[A]:
        """Start a permanent agent, as `Node.start`. Raises StartFailed."""
        return self._entrance.call(lambda: self._home.start(factory, *args, **kwargs))

    def find(self, cls: type[A], name: str | None = None) -> Ref[A]:
        """Return a ref to an agent of that class, by name or path, or the first started; never waits."""
        return self._home.find(cls, name)

    def run(self, async_fn: Callable[[*Ts], Awaitable[R]], /, *args: *Ts) -> R:
        """Run an async function in the node, on trio, and return what it returns: `portal.run(ref.ready)`."""
        return self._entrance.call(lambda: async_fn(*args))

    # ---- actions and properties

    def invoke(
        self,
        ref: Ref[A],
        handle: Turn[A, P, R] | Action[A, P, R, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Have an action carried out and return its output."""
        return self._entrance.call(lambda: ref.invoke(handle, *args, **kwargs), ref)

    def tell(
        self,
        ref: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send one way; returns when the message has its seat in the mailbox."""
        self._entrance.call(lambda: ref.tell(handle, *args, **kwargs), ref)

    def read(self, ref: Ref[A], handle: PropertyHandle[A, V], /) -> V:
        """Return the value of a property."""
        return self._entrance.call(lambda: ref.read(handle), ref)

    def write(self, ref: Ref[A], handle: PropertyHandle[A, V], value: V, /) -> None:
        """Set a property."""
        self._entrance.call(lambda: ref.write(handle, value), ref)

    # ---- listening

    def subscribe(
        self, ref: Ref[A], handle: EventHandle[A, V], /, *, size: int = 64
    ) -> AbstractContextManager[PortalFeed[V]]:
        """Return every event from now on; past `size` waiting ones the oldest is dropped and counted."""
        return self._listen(lambda: ref.subscribe(handle, size=size), ref)

    def observe(self, ref: Ref[A], handle: PropertyHandle[A, V], /) -> AbstractContextManager[PortalFeed[V]]:
        """Return the present value, then every change; a slow observer sees the latest."""
        return self._listen(lambda: ref.observe(handle), ref)

    @contextmanager
    def _listen(
        self, manager: Callable[[], AbstractAsyncContextManager[Feed[V]]], ref: Ref[Any]
    ) -> Generator[PortalFeed[V]]:
        entrance = self._entrance
        held = Held(manager)
        try:
            feed: Feed[V] = entrance.call(lambda: entrance.hold(held), ref)
            yield PortalFeed(entrance, feed, ref)
        finally:
            entrance.soon(held.let_go)
            with suppress(NodeEnded):
                entrance.call(held.leave, ref)


def open_portal(rt: Runtime, services: Services, home: Home) -> Portal:
    """Make the portal of a node, served until its services end. Raises ForbiddenCall on virtual time."""
    if not rt.real:
        raise ForbiddenCall("a portal leads out of the simulated world: let the test ask the refs themselves")
    entrance = Entrance(rt)
    services.at_end.append(entrance.close)
    services.start_soon(entrance.serve, name="portal")
    return Portal(entrance, home)
