"""Listening to an agent of another node: feeds and monitors of tasks, and followings of agents here.

Followings have no task of their own: their sinks are kept in `RemoteSinks`, which stands in for the sinks
of a near agent's slot.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trio.lowlevel import checkpoint, checkpoint_if_cancelled, enable_ki_protection

from lmos_actors.actors import MONITORS, going_out

from ..exposure._exposure import EXITED
from ._peer_listening import RemoteFeed, RemoteListener, SharedListening
from ._remote_exits import down_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors.actors import Feed, Operation, Runtime

    from ._peer_listening import Sink
    from ._peer_things import RemoteThing
    from ._remote_interface import RemoteInterface


class RemoteSinks:
    """The listeners of one far agent, by what they listen to; as a near agent's `Sinks`."""

    __slots__ = ("_tapped", "_taps")

    def __init__(self, tapped: Callable[[str, Sink], tuple[RemoteListener, SharedListening]]) -> None:
        self._tapped = tapped
        self._taps: dict[tuple[str, Sink], tuple[RemoteListener, SharedListening]] = {}

    def add(self, key: str, sink: Sink) -> None:
        """Let a sink hear what comes under `key` from now on, once there is a connection."""
        if (key, sink) not in self._taps:
            tap, listening = self._tapped(key, _Entrance(self, key, sink))
            if tap in listening.taps:
                self._taps[key, sink] = tap, listening

    def remove(self, key: str, sink: Sink) -> None:
        """Take a sink out; it may be gone already."""
        found = self._taps.pop((key, sink), None)
        if found is not None:
            tap, listening = found
            listening.leave(tap)


class _Entrance:
    """A sink that removes itself from where it is kept when it ends."""

    __slots__ = ("_key", "_sink", "_sinks", "gap", "push")

    def __init__(self, sinks: RemoteSinks, key: str, sink: Sink) -> None:
        self.push = sink.push
        self.gap = sink.gap
        self._sinks = sinks
        self._key = key
        self._sink = sink

    def close(self) -> None:
        """It has ended for good."""
        self._sinks.remove(self._key, self._sink)
        self._sink.close()


# --- listening to a far agent: subscriptions are shared by connection, see `SharedListening`


class RemoteListening:
    """The part of a link to a far agent that has to do with listening."""

    __slots__ = ("_interface", "_sinks", "far", "rt")

    def __init__(self, far: RemoteThing, interface: RemoteInterface) -> None:
        self.far = far
        self.rt: Runtime = far.rt
        self._interface = interface
        self._sinks: RemoteSinks | None = None

    def operation(self, key: str) -> Operation:
        """Return the operation of that key. Raises NotFound, NotAllowed."""
        return self._interface.operation(key, self.far.path)

    @asynccontextmanager
    @enable_ki_protection
    async def listen(self, key: str, *, conflate: bool, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        """Observe a property or subscribe to events until the block is left.

        Goes on over breaks of the connection. Raises what the agent refuses it with; of an agent that
        confirms no subscriptions the first iteration does.
        """
        feed = RemoteFeed(self.rt.timers, size=size, conflate=conflate, gaps=gaps)
        self.operation(key)
        async with self._tapped(key[1:], feed):
            yield feed

    @asynccontextmanager
    @enable_ki_protection
    async def watch(self, *, gaps: bool = False) -> AsyncGenerator[Feed[Any]]:
        """Monitor until the block is left. Of agents that tell no ends, the end of the connection is one."""
        feed = RemoteFeed(self.rt.timers, gaps=gaps)
        async with self._tapped(MONITORS, feed):
            yield feed

    @asynccontextmanager
    async def _tapped(self, key: str, feed: RemoteFeed) -> AsyncGenerator[None]:
        await checkpoint_if_cancelled()
        peer = self.far.peer
        if peer.session is None:
            raise peer.unavailable(self.far)
        tap, listening = self.tapped(key, feed, entering=True)
        try:
            await checkpoint()
            await listening.confirmed(tap)
            yield
        finally:
            listening.leave(tap)
            feed.close()

    def tapped(self, key: str, sink: Sink, *, entering: bool) -> tuple[RemoteListener, SharedListening]:
        """Let a sink hear a property, event, all events, or ends; now, or once there is a connection.

        `entering`: a task waits until the subscription stands, and fails if it is refused.
        """
        far = self.far
        kind, name, convert = self._heard(key)
        listening = far.listenings.get((kind, name))
        tap = RemoteListener(sink, convert, entering=entering)
        if listening is None:
            going = (
                None
                if key == MONITORS
                else going_out(self.rt, self.operation(f"+{key}"), far.path, far.peer.way)
            )
            listening = SharedListening(far, kind, name, far.peer.new_backoff(), going)
            far.listenings[kind, name] = listening
            listening.join(tap)
            far.peer.listen(listening)
        else:
            listening.join(tap)
        return tap, listening

    def _heard(self, key: str) -> tuple[str, str, Callable[[Any], Any]]:
        path = self.far.path
        if key == MONITORS:
            return "event", EXITED, down_of(path)
        if key == "!":
            return "events", "", self._interface.converter(key, path)
        return "property" if key[0] == "?" else "event", key[1:], self._interface.converter(key, path)

    def _followed(self, key: str, sink: Sink) -> tuple[RemoteListener, SharedListening]:
        return self.tapped(key, sink, entering=False)

    def sinks(self) -> RemoteSinks:
        """Return the listeners of this agent here, as near."""
        if self._sinks is None:
            self._sinks = RemoteSinks(self._followed)
        return self._sinks
