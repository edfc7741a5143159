"""All listeners of one connection: accepted, spoken for, and left."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from lmos_actors.actors import MONITORS, LocalLink, PoolLink, emitted_trace

from ._exposure import EXITED
from ._server_listening import Listener, Observer, Subscriber, SubscriberToAll, Watcher
from ._values import Shared, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.actors import Gap, Runtime, TraceMembers
    from lmos_actors.protocol import lmos

    from ._server_listening import Tell
    from ._values import Sharing

CROWDED: Final = 64
"""Frames that wait to be sent: with more of them, events wait at their subscribers and runs for room."""

CROWDED_BYTES: Final = 256 << 10

_KINDS: Final[Mapping[str, type[Listener]]] = {
    "observe": Observer,
    "subscribe": Subscriber,
    "subscribe_all": SubscriberToAll,
}


class Listeners:
    """Who listens over one connection; see `Speaker`.

    `sent` is called when something has been put into the session, `failed` with what could not be. `sharing`
    is that of the server.
    """

    def __init__(
        self,
        rt: Runtime,
        session: lmos.ThingSession,
        sent: Callable[[], object],
        failed: Callable[[BaseException], object],
        sharing: Sharing,
    ) -> None:
        self._rt = rt
        self._sharing = sharing
        self._session = session
        self._sent = sent
        self._failed = failed
        self._active: dict[lmos.Listening, Listener] = {}
        self._backlog: deque[Listener] | None = None  # made when needed, as it takes 700 bytes

    # ---- coming and leaving

    def make(self, asked: lmos.Asked, link: LocalLink | PoolLink, key: str, tell: Tell) -> Listener:
        """Make the listener that a request asks for."""
        if key == EXITED:
            return Watcher(self, link.sinks(), MONITORS, link.path, tell)
        return _KINDS[asked.verb.word](self, link.sinks(), key[1:], link.path)

    def accept(self, asked: lmos.Asked, listener: Listener, *value: Any) -> None:
        """Let it hear what comes from now on, unless its consumer has left meanwhile."""
        listening = self._session.accept(asked, *value)
        if listening.ended:
            listener.leave()
            return
        listener.join()
        listener.listening = listening
        self._active[listening] = listener

    def leave(self, listening: lmos.Listening) -> None:
        """Its consumer wants to hear no more."""
        listener = self._active.pop(listening, None)
        if listener is not None:
            listener.leave()

    def close(self) -> None:
        """The connection has ended."""
        for listener in self._active.values():
            listener.leave()
        self._active.clear()
        self._backlog = None

    # ---- speaking

    def crowded(self) -> bool:
        """Say whether much waits to be sent."""
        session = self._session
        return session.waiting >= CROWDED or session.waiting_bytes >= CROWDED_BYTES

    def line_up(self, listener: Listener) -> None:
        """Let it speak when there is room."""
        if self._backlog is None:
            self._backlog = deque()
        self._backlog.append(listener)

    def speak(self) -> None:
        """Let those speak who wait for room, in turn, as long as there is some."""
        backlog = self._backlog
        while backlog and not self.crowded():
            listener = backlog.popleft()
            if listener.speak():
                backlog.append(listener)

    def read(self, listening: lmos.Listening, value: Any) -> None:
        """Send a reading."""
        self._say(listening, lambda: self._session.reading(listening, plain(value), self._rt.entropy.now()))

    def shared(self, value: Any) -> Shared:
        """Return what stands for a value that others are told of in this step, too."""
        return self._sharing.of(value)

    def said(self, listening: lmos.Listening, event: str, data: Any, trace: TraceMembers) -> None:
        """Send an event; of one that others are told of the data are written once for all."""

        def say() -> None:
            value = Raw(data.json()) if type(data) is Shared else plain(data)
            self._session.event(listening, event, value, self._rt.entropy.now(), **trace)

        self._say(listening, say)

    def trace(self) -> TraceMembers:
        """Give the trace of what is being done now."""
        return emitted_trace(self._rt)

    def missed(self, listening: lmos.Listening, gap: Gap) -> None:
        """Send word that values are missing."""
        self._say(listening, lambda: self._session.gap(listening, gap.reason, gap.missed))

    def over(self, listener: Listener) -> None:
        """What is listened to is gone for good."""
        listening = listener.listening
        if listening is not None:
            self.leave(listening)
            self._say(listening, lambda: self._session.end(listening, listener.end))

    def _say(self, listening: lmos.Listening, say: Callable[[], None]) -> None:
        try:
            say()
        except Exception as error:  # such as a value that JSON cannot say
            self._failed(error)
            self._session.gap(listening, "a value that could not be sent", 1)
        self._sent()
