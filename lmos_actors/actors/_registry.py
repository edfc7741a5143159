"""Refs that resolve on first use."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trio.lowlevel import enable_ki_protection

from lmos_actors._errors import NotAllowed, NotFound

from ._members import Members
from ._operation import ASKING, named
from ._parking import park_among
from ._retrying import Retrying

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ._calls import LocalLink
    from ._mailbox import AgentStatistics, MailboxStatistics
    from ._monitor import Down
    from ._observers import Feed
    from ._ref import Ref
    from ._router import PoolLink
    from ._runtime import Runtime, Turns


class Finder:
    """A link that looks for its agent when it is first used, and keeps what it found (L2)."""

    __slots__ = ("_cls", "_found", "_name", "_rt")

    def __init__(self, rt: Runtime, cls: type | None, name: str | None) -> None:
        self._rt = rt
        self._cls = cls
        self._name = name
        self._found: LocalLink | PoolLink | None = None

    def resolve(self) -> LocalLink | PoolLink:
        """Give the slot, or the pool. Raises NotFound."""
        found = self._found
        if found is None:
            found = self._found = self._look()
        if found is None:
            raise self._missing()
        return found

    @property
    def wanted(self) -> tuple[type | None, str | None]:
        """The class and the name that are looked for."""
        return self._cls, self._name

    def look(self) -> LocalLink | PoolLink | None:
        """Give the slot, or the pool, if there is one by now."""
        if self._found is None:
            self._found = self._look()
        return self._found

    def _missing(self) -> NotFound:
        title = self._cls.__name__ if self._cls is not None else "any class"
        where = "" if self._name is None or self._cls is None else f"this node that is a {title}"
        return NotFound("agent", self._name or title, where=where)

    def _look(self) -> LocalLink | PoolLink | None:
        resolver = self._rt.resolver
        return None if resolver is None else resolver.resolve(self._cls, self._name)

    @property
    def turns(self) -> Turns:
        """Whose turn runs now."""
        return self._rt.turns

    @property
    def path(self) -> str:
        """Where the agent is; the name it is looked for by, until it has been found."""
        if self._found is None:
            self._found = self._look()
        return self._found.path if self._found is not None else (self._name or "?")

    @property
    def identity(self) -> tuple[object, int]:
        """What makes two refs equal. Raises NotFound when there is no such agent yet."""
        return self.resolve().identity

    @named(ASKING)
    async def ask(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """See `Link`."""
        return await self.resolve().ask(key, args, kwargs)

    @named(ASKING)
    async def ask_within(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float
    ) -> Any:
        """See `Link`."""
        return await self.resolve().ask_within(key, args, kwargs, seconds)

    @named("ref.tell")
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        await self.resolve().tell(key, args, kwargs)

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.resolve().tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.resolve().send_from(sender, key, args, kwargs)

    @asynccontextmanager
    @enable_ki_protection
    async def begin(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None
    ) -> AsyncGenerator[Any]:
        """See `Link`."""
        async with self.resolve().begin(key, args, kwargs, seconds) as call:
            yield call

    @asynccontextmanager
    @enable_ki_protection
    async def stream(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float | None
    ) -> AsyncGenerator[Any]:
        """See `Link`."""
        async with self.resolve().stream(key, args, kwargs, seconds) as items:
            yield items

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """See `Link`."""
        async with self.resolve().listen(key, conflate=conflate, gaps=gaps, size=size) as feed:
            yield feed

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self) -> AsyncGenerator[Feed[Down]]:
        """See `Link`."""
        async with self.resolve().watch() as feed:
            yield feed

    @asynccontextmanager
    @enable_ki_protection
    async def link(self) -> AsyncGenerator[None]:
        """See `Link`."""
        async with self.resolve().link():
            yield

    @named("ref.ready")
    async def wait_running(self) -> None:
        """Wait until there is such an agent and it takes messages. Raises NotFound at the node's end."""
        while self._found is None:
            self._found = self._look()
            if self._found is None:
                if self._rt.ended:
                    raise self._missing()
                await park_among(self._rt.appeared)
        await self._found.wait_running()

    def statistics(self) -> AgentStatistics:
        """See `Link`."""
        return self.resolve().statistics()

    def mailbox_statistics(self) -> MailboxStatistics:
        """See `Link`."""
        return self.resolve().mailbox_statistics()


def check_home(rt: Runtime, link: Any) -> None:
    """Raise NotAllowed where a link leads to a node in another thread: what it would change is not ours."""
    other: Runtime | None = getattr(link, "rt", None)
    if other is not None and other.thread != rt.thread:
        raise NotAllowed(f"{link.path!r} is an agent of a node in another thread: use its node.portal()")


def neighbour_of(slot: LocalLink, ref: Ref[Any]) -> LocalLink:
    """As `slot_of`, for an agent of the same thread. Raises NotAllowed for another's."""
    found = slot_of(ref)
    check_home(slot.rt, found)
    return found


def slot_of(ref: Ref[Any]) -> LocalLink:
    """Give the slot that a near ref points to. Raises NotFound when it leads nowhere yet.

    Raises NotAllowed for a pool, which has many.
    """
    link: Any = ref._link  # pyright: ignore[reportPrivateUsage] # what a ref is for those inside
    link = link.inner if isinstance(link, Retrying) else link
    found: LocalLink | Members = link.resolve() if isinstance(link, Finder) else link
    if isinstance(found, Members):
        raise NotAllowed(f"{found.path!r} is a pool, this takes one agent: use the refs of pool.members")
    return found
