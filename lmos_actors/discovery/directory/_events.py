"""Event streams of a directory (Server-Sent Events): each reads the log at its own pace.

A stream buffers no events. It keeps the id of the last one it has sent, and observes the property `revision`
to learn of new ones. A slow client delays only its own task; if the log has dropped events meanwhile, it
gets a gap event instead of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.bindings import HttpError
from lmos_actors.errors import AgentError, NotFound

from ._agent import ThingDirectory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.actors import Feed, Ref
    from lmos_actors.bindings import LmosServer

    from ._changes import EventPage
    from ._options import DirectoryOptions

    Send = Callable[[Any], Awaitable[None]]

PAGE_EVENTS: Final = 100
"""Events that are read from the log at once."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class EventStreams:
    """Open streams of one directory."""

    def __init__(
        self, ref: Ref[ThingDirectory], options: DirectoryOptions, server: LmosServer | None
    ) -> None:
        self._ref = ref
        self._options = options
        self._open: dict[trio.CancelScope, None] = {}
        self._server = server
        if server is not None:
            server.join(self)

    def on_drain(self) -> None:
        """End all streams when the node stops waiting for listeners; see `DrainingService`."""
        if self._server is not None and self._server.context.finishing:
            for scope in self._open:
                scope.cancel("the node leaves")

    async def wait_done(self) -> None:
        """Return at once: a drain does not wait for subscribers."""

    async def serve(
        self,
        send: Send,
        kind: str,
        *,
        diff: bool,
        last: str,
        bare: bool,
    ) -> None:
        """Send the events after `last`, until the client leaves or the directory is gone.

        `bare`: send the headers only. The client's access is checked by the middleware on every send. Raises
        the errors of the agent's first answer, and HttpError if there are too many streams.
        """
        if len(self._open) >= self._options.max_listeners:
            retry = ((b"retry-after", b"5"),)
            raise HttpError(503, "Service Unavailable", "too many event streams are open", retry)
        scope = trio.CancelScope()
        self._open[scope] = None
        try:
            page = await self._ref.invoke(ThingDirectory.events_after, last, kind, diff, PAGE_EVENTS)
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if not bare:
                stream = _Stream(self._ref, send, kind, diff=diff, heartbeat=self._options.heartbeat_seconds)
                with scope:
                    await stream.run(page)
            await send({"type": "http.response.body", "body": b""})
        finally:
            del self._open[scope]


class _Stream:
    """One event stream."""

    def __init__(
        self, ref: Ref[ThingDirectory], send: Send, kind: str, *, diff: bool, heartbeat: float
    ) -> None:
        self._ref = ref
        self._send = send
        self._kind = kind
        self._diff = diff
        self._heartbeat = heartbeat

    async def run(self, page: EventPage) -> None:
        await self._send_text(f": the events of a directory\nid: {page.last}\n\n" if not page.frames else "")
        try:
            async with self._ref.observe(ThingDirectory.revision) as changes:
                while True:
                    if page.frames:
                        await self._send_text("".join(page.frames))
                    if not page.more and not await self._wait(changes, page.last):
                        return
                    page = await self._next(page.last)
        except NotFound:
            return

    async def _wait(self, changes: Feed[int], last: str) -> bool:
        """Wait for new events or the next heartbeat. Return False if the directory is gone."""
        with trio.move_on_after(self._heartbeat) as scope:
            try:
                await changes.receive()
            except trio.EndOfChannel:
                return False
        if scope.cancelled_caught:
            await self._send_text(f":\nid: {last}\n\n")  # the id lets a filtered stream resume here
        return True

    async def _next(self, last: str) -> EventPage:
        """Return the events after an id; wait while the agent restarts. Raises NotFound."""
        while True:
            try:
                return await self._ref.invoke(
                    ThingDirectory.events_after, last, self._kind, self._diff, PAGE_EVENTS
                )
            except NotFound:
                raise
            except AgentError:
                await self._ref.ready()

    async def _send_text(self, text: str) -> None:
        if text:
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
