"""The events of a directory as Server-Sent Events: each stream reads the log at its own pace.

A stream holds no events: it has the number of the last it has sent, and a bell that rings when there are
more. Whoever does not read is waited for by nobody but its own task, and is told of a gap if need be.
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

AT_ONCE: Final = 100
"""Events that are read at a time."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class EventStreams:
    """The streams of one directory."""

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
        """End all streams once the node stops waiting for listeners; see `DrainingService`."""
        if self._server is not None and self._server.context.finishing:
            for scope in self._open:
                scope.cancel("the node leaves")

    async def wait_done(self) -> None:
        """Nothing is open that was asked: whoever listens only is not waited for."""

    async def serve(
        self,
        send: Send,
        kind: str,
        *,
        diff: bool,
        last: str,
        bare: bool,
    ) -> None:
        """Send events from the one after `last` on, until the client leaves or the directory is gone.

        `bare`: the headers alone. Whether the client may still be told is looked at before all routes, where
        answers go out. Raises what the agent answers to the first question, and HttpError for one stream too
        many.
        """
        if len(self._open) >= self._options.max_listeners:
            retry = ((b"retry-after", b"5"),)
            raise HttpError(503, "Service Unavailable", "there are too many streams of events", retry)
        scope = trio.CancelScope()
        self._open[scope] = None
        try:
            page = await self._ref.invoke(ThingDirectory.events_after, last, kind, diff, AT_ONCE)
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if not bare:
                stream = _Stream(self._ref, send, kind, diff=diff, quiet=self._options.heartbeat_seconds)
                with scope:
                    await stream.run(page)
            await send({"type": "http.response.body", "body": b""})
        finally:
            del self._open[scope]


class _Stream:
    """One stream."""

    def __init__(self, ref: Ref[ThingDirectory], send: Send, kind: str, *, diff: bool, quiet: float) -> None:
        self._ref = ref
        self._send = send
        self._kind = kind
        self._diff = diff
        self._quiet = quiet

    async def run(self, page: EventPage) -> None:
        await self._say(f": the events of a directory\nid: {page.last}\n\n" if not page.frames else "")
        try:
            async with self._ref.observe(ThingDirectory.revision) as changes:
                while True:
                    if page.frames:
                        await self._say("".join(page.frames))
                    if not page.more and not await self._wait(changes, page.last):
                        return
                    page = await self._next(page.last)
        except NotFound:
            return

    async def _wait(self, changes: Feed[int], last: str) -> bool:
        """Wait until there may be more, or it is time for a sign of life; False if there will be no more."""
        with trio.move_on_after(self._quiet) as scope:
            try:
                await changes.receive()
            except trio.EndOfChannel:
                return False
        if scope.cancelled_caught:
            await self._say(f":\nid: {last}\n\n")  # so that it also knows how far it is
        return True

    async def _next(self, last: str) -> EventPage:
        """Return what comes after; waits while the agent is between two lives. Raises NotFound."""
        while True:
            try:
                return await self._ref.invoke(
                    ThingDirectory.events_after, last, self._kind, self._diff, AT_ONCE
                )
            except NotFound:
                raise
            except AgentError:
                await self._ref.ready()

    async def _say(self, text: str) -> None:
        if text:
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
