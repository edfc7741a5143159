"""Listeners of one connection: sinks at agents' slots, whose values wait until the connection has room.

Listeners never hold an agent back. For a property, only the latest reading waits. For events, each listener
keeps a bounded backlog; past the bound the oldest is dropped, and the peer receives a gap. Beyond `CROWDED`
frames to send, readings and events wait at their listeners instead of in the outbox, and listeners send in
turn, one each, so that a busy event cannot starve the others. Values that wait at listeners are charged to
the budget of all peers, see `_shared_values.py`; messages that wait in the outbox are charged to the
connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Raw

from lmos_actors.actors import (
    FEED_SIZE,
    MONITORS,
    Backlog,
    Gap,
    Occurrence,
    PoolLink,
    Slot,
    emitted_trace,
)
from lmos_actors.errors import NotFound

from ..exposure._exposure import EXITED
from ..exposure._shared_values import SharedValue
from ..exposure._values import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from lmos_actors.actors import Down, Runtime, SinkTable, TraceMembers
    from lmos_actors.protocol import lmos

    from ..exposure._shared_values import ReaderMemory, SharedValues


Tell: TypeAlias = "Callable[[Down], Any]"
"""Function that returns the end of an incarnation as plain data."""


class Listener(ABC):
    """One observation or subscription of a connection, at one slot or pool."""

    __slots__ = ("_key", "_listeners", "_sinks", "_waiting", "listening", "path")

    only_reads = True

    def __init__(self, listeners: Listeners, sinks: SinkTable, key: str, path: str) -> None:
        self._listeners = listeners
        self._sinks = sinks
        self._key = key
        self.path = path
        self.listening: lmos.Listening | None = None  # set once the listener has been accepted
        self._waiting = Backlog(FEED_SIZE, listeners.memory)  # gaps, and values with their context

    def join(self) -> None:
        """Begin to receive the values that are pushed."""
        self._sinks.add(self._key, self)

    def leave(self) -> None:
        """Stop receiving values."""
        self._waiting.clear()
        self.listening = None
        self._sinks.remove(self._key, self)

    @abstractmethod
    def push(self, value: Any) -> None:
        """Send one value, or keep it until the connection has room."""

    def gap(self, reason: str, missed: int | None) -> None:
        """Send a gap, as values are missing from here on, or keep it until the connection has room."""
        self._take(Gap(reason, missed), must_wait=self._must_wait())

    def close(self) -> None:
        """Send the waiting values, and end the listener, because nothing more will be pushed."""
        while self.send_waiting():
            pass
        if self.listening is not None:
            self._listeners.end_listener(self)

    def send_waiting(self) -> bool:
        """Send the oldest value that waits here; return whether more values wait."""
        if self._waiting:
            self._send(self._waiting.popleft())
        return bool(self._waiting)

    def drop_waiting(self) -> None:
        """Drop the values that wait here, with a gap in their place."""
        self._waiting.drop_all()

    @property
    def end(self) -> NotFound:
        """The error that the consumer receives at the end."""
        return NotFound("agent", self.path)

    def _must_wait(self) -> bool:
        return bool(self._waiting) or self._listeners.is_congested()

    def _is_shared(self, *, must_wait: bool) -> bool:
        """Return whether a value is encoded once, because it has to wait or is for several listeners."""
        return must_wait or self._sinks.count(self._key) > 1

    def _take(self, news: Gap | tuple[Any, Any], *, must_wait: bool) -> None:
        if self.listening is None:
            return
        if not must_wait:
            self._send(news)
            return
        is_first = not self._waiting
        self._keep(news)
        if is_first:
            self._listeners.post_last(self)

    def _keep(self, news: Gap | tuple[Any, Any]) -> None:
        self._waiting.append(news)

    def _send(self, news: Gap | tuple[Any, Any]) -> None:
        if self.listening is None:
            return
        if isinstance(news, Gap):
            self._listeners.send_gap(self.listening, news)
        else:
            self._send_value(self.listening, *news)

    @abstractmethod
    def _send_value(self, listening: lmos.Listening, value: Any, context: Any) -> None:
        """Send a value with the context that is kept beside it."""


class Observer(Listener):
    """A listener to a property, which keeps only the latest reading, with the time of the reading."""

    __slots__ = ()

    def push(self, value: Any) -> None:
        must_wait = self._must_wait()
        if self._is_shared(must_wait=must_wait):
            value = self._listeners.shared(value)
        self._take((value, self._listeners.now()), must_wait=must_wait)

    def _keep(self, news: Gap | tuple[Any, Any]) -> None:
        if isinstance(news, Gap):
            self._waiting.append(news)
            return
        if not self._waiting and self.listening is not None:
            self._listeners.withdraw_reading(self.listening)
        if not self._waiting.replace_latest(news):
            self._waiting.append(news)

    def _send_value(self, listening: lmos.Listening, value: Any, context: Any) -> None:
        self._listeners.send_reading(listening, value, context)


class Subscriber(Listener):
    """A listener to events: all of them in order, with their traces, as long as the connection takes them."""

    __slots__ = ()

    def push(self, value: Any) -> None:
        must_wait = self._must_wait()
        if self._is_shared(must_wait=must_wait):
            value = self._shared_form(value)
        self._take((value, self._listeners.trace()), must_wait=must_wait)

    def _shared_form(self, value: Any) -> Any:
        """Return the form of a value that several listeners receive, or that has to wait."""
        return self._listeners.shared(value)

    def _send_value(self, listening: lmos.Listening, value: Any, context: Any) -> None:
        self._listeners.send_event(listening, *self._event_of(value), context)

    def _event_of(self, value: Any) -> tuple[str, Any]:
        return self.listening.name if self.listening is not None else "", value


class SubscriberToAll(Subscriber):
    """A listener to all events of an agent, each with its name."""

    __slots__ = ()

    def _shared_form(self, value: Any) -> Any:
        return Occurrence(value.event, self._listeners.shared(value.data))

    def _event_of(self, value: Any) -> tuple[str, Any]:
        return value.event, value.data


class Watcher(Subscriber):
    """A listener to the ends of incarnations, sent as the event `lmosx:exited`."""

    __slots__ = ("_tell",)

    def __init__(self, listeners: Listeners, sinks: SinkTable, key: str, path: str, tell: Tell) -> None:
        super().__init__(listeners, sinks, key, path)
        self._tell = tell

    def _shared_form(self, value: Any) -> Any:
        return value

    def _event_of(self, value: Down) -> tuple[str, Any]:
        return EXITED, self._tell(value)


def exited(down: Down, generation: str) -> dict[str, Any]:
    """Return the end of an incarnation as plain data: `text` is the error, or the detail of a shutdown."""
    reason = down.reason
    data: dict[str, Any] = {"kind": reason.kind}
    if reason.error is not None:
        data["text"] = str(reason)
    elif reason.detail is not None:
        data["text"] = str(reason.detail)
    exited: dict[str, Any] = {
        "agent": down.agent,
        "incarnation": down.incarnation,
        "generation": generation,
        "reason": data,
    }
    if down.restored is not None:
        exited["restored"] = down.restored
    return exited


# --- all listeners of one connection

CROWDED: Final = 64
"""Limit on the frames that wait: beyond it events wait at their subscribers, and runs wait for room."""

CROWDED_BYTES: Final = 256 << 10

_KINDS: Final[Mapping[str, type[Listener]]] = {
    "observe": Observer,
    "subscribe": Subscriber,
    "subscribe_all": SubscriberToAll,
}


class Listeners:
    """All listeners of one connection, which send through its session.

    The function `sent` is called after a message was put into the session or withdrawn from it, `failed` is
    called with errors of sending. `sharing` is the server's table of shared values.
    """

    def __init__(
        self,
        rt: Runtime,
        session: lmos.ThingSession,
        sent: Callable[[], object],
        failed: Callable[[BaseException], object],
        sharing: SharedValues,
    ) -> None:
        self._memory: ReaderMemory | None = None  # made by the first listener
        self._rt = rt
        self._sharing = sharing
        self._session = session
        self._sent = sent
        self._failed = failed
        self._active: dict[lmos.Listening, Listener] = {}
        self._backlog: deque[Listener] | None = None  # made when needed, as it takes 700 bytes

    # ---- joining and leaving

    def make(self, asked: lmos.IncomingRequest, link: Slot | PoolLink, key: str, tell: Tell) -> Listener:
        """Make the listener that a request asks for."""
        if key == EXITED:
            return Watcher(self, link.sinks(), MONITORS, link.path, tell)
        return _KINDS[asked.verb.word](self, link.sinks(), key[1:], link.path)

    def accept(self, asked: lmos.IncomingRequest, listener: Listener, *value: Any) -> None:
        """Let a listener receive values from now on, unless its consumer has left meanwhile."""
        listening = self._session.accept(asked, *value)
        if listening.ended:
            listener.leave()
            return
        listener.join()
        listener.listening = listening
        self._active[listening] = listener

    def leave(self, listening: lmos.Listening) -> None:
        """End a listening, because its consumer has left."""
        listener = self._active.pop(listening, None)
        if listener is not None:
            listener.leave()

    def close(self) -> None:
        """End all listeners, because the connection has ended."""
        for listener in self._active.values():
            listener.leave()
        self._active.clear()
        self._backlog = None
        if self._memory is not None:
            self._memory.close()

    @property
    def memory(self) -> ReaderMemory:
        """The memory of the values that wait for these listeners."""
        if self._memory is None:
            self._memory = self._sharing.reader(self._drop)
        return self._memory

    def _drop(self) -> None:
        for listener in self._active.values():
            listener.drop_waiting()

    # ---- sending

    def is_congested(self) -> bool:
        """Return whether too many messages or bytes wait to be sent."""
        session = self._session
        return session.waiting >= CROWDED or session.waiting_bytes >= CROWDED_BYTES

    def post_last(self, listener: Listener) -> None:
        """Put a listener at the end of the line of those that wait for room to send."""
        if self._backlog is None:
            self._backlog = deque()
        self._backlog.append(listener)

    def send_waiting(self) -> None:
        """Send from the listeners that wait for room, in turn, while there is room."""
        backlog = self._backlog
        while backlog and not self.is_congested():
            listener = backlog.popleft()
            if listener.send_waiting():
                backlog.append(listener)

    def send_reading(self, listening: lmos.Listening, value: Any, at: datetime) -> None:
        """Send a reading; a value that several listeners receive is encoded once."""
        self._send(listening, lambda: self._session.reading(listening, _encodable(value), at))

    def withdraw_reading(self, listening: lmos.Listening) -> None:
        """Withdraw a reading from the outbox, where it would wait as a copy for this connection alone."""
        self._session.withdraw_reading(listening)
        self._sent()

    def now(self) -> datetime:
        """Return the time of day."""
        return self._rt.entropy.now()

    def shared(self, value: Any) -> SharedValue:
        """Return the shared form of a value, which several listeners in this step encode only once."""
        return self._sharing.of(value)

    def send_event(self, listening: lmos.Listening, event: str, data: Any, trace: TraceMembers) -> None:
        """Send an event; data for several listeners is encoded once."""

        def send() -> None:
            self._session.event(listening, event, _encodable(data), self._rt.entropy.now(), **trace)

        self._send(listening, send)

    def trace(self) -> TraceMembers:
        """Return the trace of the running code."""
        return emitted_trace(self._rt)

    def send_gap(self, listening: lmos.Listening, gap: Gap) -> None:
        """Report that values are missing."""
        self._send(listening, lambda: self._session.gap(listening, gap.reason, gap.missed))

    def end_listener(self, listener: Listener) -> None:
        """End a listener, because its agent has been removed."""
        listening = listener.listening
        if listening is not None:
            self.leave(listening)
            self._send(listening, lambda: self._session.end(listening, listener.end))

    def _send(self, listening: lmos.Listening, send: Callable[[], None]) -> None:
        try:
            send()
        except Exception as error:  # such as a value that JSON cannot hold
            self._failed(error)
            self._session.gap(listening, "a value that could not be sent", 1)
        self._sent()


def _encodable(value: Any) -> Any:
    """Return a value for a message, shared or not."""
    return Raw(value.json()) if type(value) is SharedValue else plain(value)
