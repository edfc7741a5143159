"""Calls and streams over HTTP: a run whose URL is known can be queried and cancelled there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors.actors import CallStatus, awaited, park_among
from lmos_actors.errors import ActionCancelled, MailboxFull, NotAllowed, NotFound
from lmos_actors.protocol import lmos

from ..lmos._peer_requests import wake_all
from ..lmos._remote_calls import RemoteCall, RemoteStream, told_status

if TYPE_CHECKING:
    import trio

    from ..lmos._peer_requests import OutboundRequest
    from ..lmos._peer_things import RemoteThing
    from ..lmos._remote_interface import RemoteInterface
    from ._invocations import HttpInvocation

QUERIES: Final = 16
"""Questions of one call that may be open."""

AHEAD: Final = 16
"""Items that are read ahead of the consumer."""


def _no_tasks() -> list[trio.lowlevel.Task]:
    return []


@attrs.define(eq=False)
class RunUrl:
    """The URL of a run, once it is known, and the tasks that wait for it."""

    invocation: HttpInvocation | None = None
    url: str | None = None
    queries: int = 0
    waiting: list[trio.lowlevel.Task] = attrs.field(factory=_no_tasks)

    @property
    def is_told(self) -> bool:
        """Whether the server is expected to tell where the run goes on."""
        invocation = self.invocation
        return invocation is not None and invocation.server.ways.can_query(invocation.outbound.name)


class WebRun(RemoteCall):
    """The common part of calls and streams over HTTP."""

    __slots__ = ()

    at: RunUrl

    # ---- the invocation's side

    def began(self, url: str) -> None:
        """The run goes on at this URL."""
        self.at.url = url
        wake_all(self.far, self.at.waiting)

    async def took(self, output: Any) -> None:
        """The run has given an item."""
        self.item(output)
        await checkpoint()

    def _finish(self) -> None:
        super()._finish()
        wake_all(self.far, self.at.waiting)

    # ---- the consumer's side

    @awaited("call.")
    @enable_ki_protection
    async def query(self) -> CallStatus:
        """Return how the invocation stands; asks the server unless that is known here.

        Raises NotAllowed where the server tells no URL of runs, MailboxFull where 16 queries are open.
        """
        return await self._by_deadline(self._query)

    async def _query(self) -> CallStatus:
        await checkpoint()
        if self._done:
            return self._status()
        if self.at.queries >= QUERIES:
            raise MailboxFull(self.far.path, QUERIES)
        self.at.queries += 1
        try:
            return await self._stands()
        finally:
            self.at.queries -= 1

    async def _stands(self) -> CallStatus:
        await self._known()
        if self._done or self.at.url is None or self.at.invocation is None:
            return self._status()
        try:
            standing, _ = await self.at.invocation.standing(self.at.url)
        except NotFound:  # it may have ended, and been forgotten
            if not self.ended:
                raise
            return self._status()
        if self.ended:
            return self._status()
        cancelled = standing.status == "cancelled"
        return told_status(lmos.RunStatus(standing.status, cancelled=cancelled))

    async def _known(self) -> None:
        """Wait until it is known where the run goes on, or that it has ended."""
        if self.at.url is None and not self.at.is_told:
            raise NotAllowed(f"{self.far.path!r} has no form to ask about runs of {self.op.name!r} by")
        while self.at.url is None and not self._done:
            await park_among(self.at.waiting)

    @awaited("call.")
    @enable_ki_protection
    async def cancel(self, reason: str | None = None) -> CallStatus:
        """Cancel the invocation if it is still open.

        Where its server tells the URL of the run, it is asked to end it; what it says against it is raised.
        Elsewhere the connection is closed, which is all that can be said.
        """
        return await self._by_deadline(partial(self._cancel, reason))

    async def _cancel(self, reason: str | None) -> CallStatus:
        await checkpoint()
        if self.at.is_told:
            await self._known()
        if self.at.url is not None and self.at.invocation is not None and not self._done:
            try:
                await self.at.invocation.end(self.at.url)
            except NotFound:  # it has ended: how, is on its way
                await self._over()
        if self.far.withdraw(self):
            self.fail(ActionCancelled(reason))
        return self._status()

    async def _over(self) -> None:
        while not self._done:
            await park_among(self._tasks)


class WebCall(WebRun):
    """An invocation over HTTP; see `Call`."""

    __slots__ = ("at",)

    def __init__(
        self, far: RemoteThing, outbound: OutboundRequest, op: Any, interface: RemoteInterface
    ) -> None:
        super().__init__(far, outbound, op, interface)
        self.at = RunUrl()


class WebStream(WebRun, RemoteStream):
    """An invocation with many outputs over HTTP: items not yet taken hold the server back."""

    __slots__ = ("_reading", "at")

    def __init__(
        self, far: RemoteThing, outbound: OutboundRequest, op: Any, interface: RemoteInterface
    ) -> None:
        super().__init__(far, outbound, op, interface)
        self.at = RunUrl()
        self._reading: list[trio.lowlevel.Task] = []

    async def took(self, output: Any) -> None:
        """Take an item of the output; waits while too many have not been taken."""
        self.item(output)
        await checkpoint()
        while len(self._items) >= AHEAD and not self._done:
            await park_among(self._reading)

    def _next(self) -> Any:
        wake_all(self.far, self._reading)
        return super()._next()
