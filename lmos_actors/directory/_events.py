"""Event streams of a directory (Server-Sent Events): each reads the log at its own pace.

A stream buffers no events. It keeps the id of the last one it has sent, and observes the property `revision`
to learn of new ones. A slow client delays only its own task; if the log has dropped events meanwhile, it
gets a gap event instead of them.

The response is not a StreamingResponse of Starlette, whose source is an async generator: a draining node
cancels a stream wherever it waits, also while it observes, and the response still ends with its last chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from starlette.responses import Response

from lmos_actors.bindings.http import HttpError, only_head
from lmos_actors.errors import AgentError, NotFound

from ._agent import ThingDirectory

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from lmos_actors.actors import Feed, Ref
    from lmos_actors.bindings import LmosServer

    from ._changes import EventPage
    from ._options import DirectoryOptions

PAGE_EVENTS: Final = 100
"""Events that are read from the log at once."""

_EVENTS: Final = "text/event-stream"
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


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

    async def response(self, kind: str, *, diff: bool, last: str, head: bool) -> Response:
        """Return the response with the events after `last`; with `head`, only its headers.

        The response must be sent at once. It ends when the client leaves or the directory is gone. The access
        control before all routes checks the credentials again with each part. Raises the agent's error for
        the first page, and HttpError if too many streams are open.
        """
        if len(self._open) >= self._options.max_listeners:
            raise HttpError(503, "too many event streams are open", {"retry-after": "5"})
        scope = trio.CancelScope()
        self._open[scope] = None
        try:
            page = await self._ref.invoke(ThingDirectory.events_after, last, kind, diff, PAGE_EVENTS)
        except BaseException:
            del self._open[scope]
            raise
        if head:
            del self._open[scope]
            return only_head(_EVENTS, _HEADERS)
        heartbeat = self._options.heartbeat_seconds
        return _EventResponse(
            self._ref, page, kind, diff=diff, heartbeat=heartbeat, scope=scope, is_open=self._open
        )


class _EventResponse(Response):
    """The response of one stream, which removes itself from `is_open` when it has been sent."""

    media_type = _EVENTS

    def __init__(
        self,
        ref: Ref[ThingDirectory],
        page: EventPage,
        kind: str,
        *,
        diff: bool,
        heartbeat: float,
        scope: trio.CancelScope,
        is_open: dict[trio.CancelScope, None],
    ) -> None:
        super().__init__(headers={"content-type": _EVENTS, **_HEADERS})
        del self.headers["content-length"]
        self._ref = ref
        self._page = page
        self._kind = kind
        self._diff = diff
        self._heartbeat = heartbeat
        self._scope = scope
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, and then events as they occur."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            with self._scope:
                await self._send_events(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            del self._is_open[self._scope]

    async def _send_events(self, send: Send) -> None:
        page = self._page
        if not page.frames:
            await _send(send, f": the events of a directory\nid: {page.last}\n\n")
        try:
            async with self._ref.observe(ThingDirectory.revision) as changes:
                while True:
                    if page.frames:
                        await _send(send, "".join(page.frames))
                    if not page.more and not await self._wait(changes, send, page.last):
                        return
                    page = await self._next(page.last)
        except NotFound:
            return

    async def _wait(self, changes: Feed[int], send: Send, last: str) -> bool:
        """Wait for new events or the next heartbeat. Return False if the directory is gone."""
        with trio.move_on_after(self._heartbeat) as scope:
            try:
                await changes.receive()
            except trio.EndOfChannel:
                return False
        if scope.cancelled_caught:
            await _send(send, f":\nid: {last}\n\n")  # the id lets a filtered stream resume here
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


async def _send(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
