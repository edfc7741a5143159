"""Who listens over a wire: sinks at an agent's slot, and what of theirs waits until the connection has room.

They never hold an agent back. Readings conflate in the session's outbox; of events the oldest is dropped past
a bound, and the listener is told by a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from lmos_actors._errors import NotFound
from lmos_actors.actors import FEED_SIZE, Backlog, Gap, Occurrence

from ._exposure import EXITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Down, Sinks, TraceMembers
    from lmos_actors.protocol import lmos

Tell: TypeAlias = "Callable[[Down], Any]"
"""Gives, as plain data, what is told of an incarnation that has ended."""


class Speaker(Protocol):
    """The connection, as its listeners see it."""

    def read(self, listening: lmos.Listening, value: Any) -> None:
        """Send a reading."""
        ...

    def said(self, listening: lmos.Listening, event: str, data: Any, trace: TraceMembers) -> None:
        """Send an event."""
        ...

    def shared(self, value: Any) -> Any:
        """Return what stands for a value that others are told of in this step, too."""
        ...

    def trace(self) -> TraceMembers:
        """Give the trace of what is being done now."""
        ...

    def missed(self, listening: lmos.Listening, gap: Gap) -> None:
        """Send word that values are missing."""
        ...

    def crowded(self) -> bool:
        """Say whether so much waits to be sent that what can be dropped should wait elsewhere."""
        ...

    def line_up(self, listener: Listener) -> None:
        """Call `speak` once there is room."""
        ...

    def over(self, listener: Listener) -> None:
        """What is listened to is gone for good."""
        ...


class Listener:
    """One observation or subscription of a connection, at one slot or pool."""

    __slots__ = ("_key", "_sinks", "_speaker", "listening", "path")

    def __init__(self, speaker: Speaker, sinks: Sinks, key: str, path: str) -> None:
        self._speaker = speaker
        self._sinks = sinks
        self._key = key
        self.path = path
        self.listening: lmos.Listening | None = None  # once it has been accepted

    def join(self) -> None:
        """Hear what there is to hear from now on."""
        self._sinks.add(self._key, self)

    def leave(self) -> None:
        """Hear nothing more."""
        self.listening = None
        self._sinks.remove(self._key, self)

    def push(self, value: Any) -> None:
        """Take one value."""
        raise NotImplementedError

    def gap(self, reason: str, missed: int | None) -> None:
        """Take note that values are missing from here on."""
        raise NotImplementedError

    def close(self) -> None:
        """There will be no more."""
        if self.listening is not None:
            self._speaker.over(self)

    def speak(self) -> bool:
        """Send the oldest of what waits here; say whether more waits."""
        return False

    @property
    def end(self) -> NotFound:
        """What the consumer is told at the end."""
        return NotFound("agent", self.path)


class Observer(Listener):
    """Hears a property: the outbox keeps the latest reading alone."""

    __slots__ = ()

    def push(self, value: Any) -> None:
        if self.listening is not None:
            self._speaker.read(self.listening, value)

    def gap(self, reason: str, missed: int | None) -> None:
        if self.listening is not None:
            self._speaker.missed(self.listening, Gap(reason, missed))


class Subscriber(Listener):
    """Hears events: all of them in order, as long as the connection takes them."""

    __slots__ = ("_waiting",)

    only_reads = True

    def __init__(self, speaker: Speaker, sinks: Sinks, key: str, path: str) -> None:
        super().__init__(speaker, sinks, key, path)
        self._waiting = Backlog(FEED_SIZE)  # of gaps, and of values with their traces

    def push(self, value: Any) -> None:
        if self._sinks.hears(self._key) > 1:
            value = self._with_others(value)
        self._take((value, self._speaker.trace()))

    def _with_others(self, value: Any) -> Any:
        """Return what stands for a value that is written once for all who listen to it."""
        return self._speaker.shared(value)

    def gap(self, reason: str, missed: int | None) -> None:
        self._take(Gap(reason, missed))

    def close(self) -> None:
        while self.speak():
            pass
        super().close()

    def _take(self, told: Gap | tuple[Any, TraceMembers]) -> None:
        if self.listening is None:
            return
        waiting = self._waiting
        if not waiting and not self._speaker.crowded():
            self._say(told)
            return
        waiting.append(told)
        if len(waiting) == 1:
            self._speaker.line_up(self)

    def speak(self) -> bool:
        """Send the oldest of what waits here; return whether more waits."""
        if self._waiting:
            self._say(self._waiting.popleft())
        return bool(self._waiting)

    def leave(self) -> None:
        """Hear nothing more."""
        self._waiting.clear()
        super().leave()

    def _say(self, told: Gap | tuple[Any, TraceMembers]) -> None:
        if self.listening is None:
            return
        if isinstance(told, Gap):
            self._speaker.missed(self.listening, told)
        else:
            value, trace = told
            self._speaker.said(self.listening, *self._told(value), trace)

    def _told(self, value: Any) -> tuple[str, Any]:
        return self.listening.name if self.listening is not None else "", value


class SubscriberToAll(Subscriber):
    """Hears all events of an agent, each with its name."""

    __slots__ = ()

    def _with_others(self, value: Any) -> Any:
        return Occurrence(value.event, self._speaker.shared(value.data))

    def _told(self, value: Any) -> tuple[str, Any]:
        return value.event, value.data


class Watcher(Subscriber):
    """Hears of every incarnation that ends, as the event `lmosx:exited`."""

    __slots__ = ("_tell",)

    def __init__(self, speaker: Speaker, sinks: Sinks, key: str, path: str, tell: Tell) -> None:
        super().__init__(speaker, sinks, key, path)
        self._tell = tell

    def _with_others(self, value: Any) -> Any:
        return value

    def _told(self, value: Down) -> tuple[str, Any]:
        return EXITED, self._tell(value)


def exited(down: Down, generation: str) -> dict[str, Any]:
    """Say in plain data that an incarnation has ended: `text` is the error, or the detail of a shutdown."""
    reason = down.reason
    told: dict[str, Any] = {"kind": reason.kind}
    if reason.error is not None:
        told["text"] = str(reason)
    elif reason.detail is not None:
        told["text"] = str(reason.detail)
    return {
        "agent": down.agent,
        "incarnation": down.incarnation,
        "generation": generation,
        "reason": told,
    }
