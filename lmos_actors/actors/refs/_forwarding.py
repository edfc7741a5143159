"""Links that pass each request on to another link."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trio.lowlevel import enable_ki_protection

from ..messages._operation import ASKING, named

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from .._runtime import Runtime, Turns
    from ..messages._mailbox import AgentStatistics, MailboxStatistics
    from ..messages._monitor import Down
    from ..messages._observers import Feed
    from ._link import Attempt, Invocation, Link


class ForwardingLink:
    """A link whose verbs all pass the request on to the link that `choose` returns; see `Link`.

    A subclass defines `choose`, and overrides the verbs that do more. The choice is made when the request
    begins, and not when its coroutine or context manager is made.
    """

    __slots__ = ("rt", "turns")

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.turns: Turns = rt.turns

    def choose(self, *request: Any, **more: Any) -> Any:
        """Return the link for a request with this key and these arguments.

        Without a key, return the link for requests about the agent as a whole.
        """
        raise NotImplementedError

    @property
    def path(self) -> str:
        """The path of the agent."""
        return self._whole().path

    @property
    def identity(self) -> tuple[object, int]:
        """The value by which refs are compared."""
        return self._whole().identity

    def _whole(self) -> Link:
        link: Link = self.choose()
        return link

    @named(ASKING)
    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """See `Link`."""
        return await self.choose(key, args, kwargs).ask(key, args, kwargs, seconds, attempt)

    @named("ref.tell")
    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        await self.choose(key, args, kwargs).tell(key, args, kwargs)

    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.choose(key, args, kwargs).tell_nowait(key, args, kwargs)

    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        self.choose(key, args, kwargs).send_from(sender, key, args, kwargs)

    @asynccontextmanager
    @enable_ki_protection
    async def open(self, invocation: Invocation) -> AsyncGenerator[Any]:
        """See `Link`."""
        link = self.choose(invocation.key, invocation.args, invocation.kwargs)
        async with link.open(invocation) as opened:
            yield opened

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """See `Link`."""
        async with self.choose(key).listen(key, conflate=conflate, gaps=gaps, size=size) as feed:
            yield feed

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self) -> AsyncGenerator[Feed[Down]]:
        """See `Link`."""
        async with self.choose().watch() as feed:
            yield feed

    @asynccontextmanager
    @enable_ki_protection
    async def link(self) -> AsyncGenerator[None]:
        """See `Link`."""
        async with self.choose().link():
            yield

    async def wait_running(self) -> None:
        """See `Link`."""
        await self.choose().wait_running()

    def unready(self) -> str:
        """See `Link`."""
        return self._whole().unready()

    def statistics(self) -> AgentStatistics:
        """See `Link`."""
        return self._whole().statistics()

    def mailbox_statistics(self) -> MailboxStatistics:
        """See `Link`."""
        return self._whole().mailbox_statistics()
