"""Listenings of one peer: each property or event has one subscription, shared by all listeners here.

A listening survives a break of the connection and a stop of the agent: its listeners receive a gap, and the
subscription is requested again. It ends when the last listener leaves, or when the thing refuses it
permanently. A listener that has only just joined (`entering`) is treated differently: it is a task waiting to
learn whether the subscription is accepted, so it receives the refusal as an exception instead of a gap.

Latecomers of a property receive the last value at once: the subscription on the wire exists already, and its
thing would not send the value again for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import trio
from msgspec import UNSET

from lmos_actors._core import OBJECT, LooseAccount, weight
from lmos_actors.actors import Down, ExitReason, Feed, park_among, wake_all
from lmos_actors.errors import (
    AgentUnavailable,
    InvalidInput,
    LmosActorsError,
    MailboxFull,
    NotFound,
    RateLimited,
    RemoteProtocolError,
)

from ..exposure._exposure import EXITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Budget, Timer
    from lmos_actors.actors import Going, Runtime, TraceMembers
    from lmos_actors.protocol import lmos

    from ._peer_backoff import Backoff

Variables: TypeAlias = "tuple[tuple[str, str | float | bool], ...]"
"""Values for the variables of URLs, by name."""

LOST: Final[Any] = object()
"""Stands in for the data of an exit event: the connection is lost, and with it knowledge of the agent."""

BROKEN: Final = "connection lost"
ENDED: Final = "subscription ended"

SHORT: Final = 512
"""Limit on the characters of a text whose objects are too few to be counted."""

LONGEST_WAIT: Final = 3600.0
"""Upper bound, in seconds, of a pause that a peer asks for by `retry_in`."""


class Sink(Protocol):
    """A receiver of values here, as near agents have them."""

    def push(self, value: Any, /) -> None: ...
    def gap(self, reason: str, missed: int | None, /) -> None: ...
    def close(self) -> None: ...


class ListeningPeer(Protocol):
    """The peer of a thing, as its listenings use it."""

    def listen(self, listening: SharedListening, /) -> None: ...
    def unlisten(self, listening: SharedListening, /) -> None: ...


class ListenedThing(Protocol):
    """The thing that is listened to; see `RemoteThing`."""

    @property
    def rt(self) -> Runtime: ...
    @property
    def peer(self) -> ListeningPeer: ...
    @property
    def thing_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def listenings(self) -> dict[tuple[str, str], SharedListening]: ...
    @property
    def variables(self) -> Variables: ...


class FeedMemory:
    """The memory of values that wait for the receiver of one feed: a `BacklogHolder`.

    It is charged to the budget of the node. When the budget is tight, the feed drops the waiting values, and
    reports them as missed. While a value is pushed, `size` is its size in bytes.
    """

    __slots__ = ("_account", "_sizes", "size")

    def __init__(self, budget: Budget, drop: Callable[[], object]) -> None:
        self._account = LooseAccount(budget, drop)
        self._sizes: dict[int, list[int]] = {}  # by the identity of a value, which lives while it waits
        self.size = 0

    def hold(self, value: Any) -> None:
        """Count a value that begins to wait."""
        self._sizes.setdefault(id(value), []).append(self.size)
        self._account.add(self.size)

    def release(self, value: Any) -> None:
        """Count a value as no longer waiting."""
        sizes = self._sizes[id(value)]
        self._account.add(-sizes.pop())
        if not sizes:
            del self._sizes[id(value)]

    def close(self) -> None:
        """Stop counting, because the feed now belongs to its receiver alone."""
        self._account.close()


class RemoteListener:
    """A listener, which converts values for its sink.

    While `entering`, a task waits until the listening is confirmed. Only a feed has a `memory`.
    """

    __slots__ = ("convert", "entering", "memory", "refusal", "sink")

    def __init__(
        self, sink: Sink, convert: Callable[[Any], Any], memory: FeedMemory | None = None, *, entering: bool
    ) -> None:
        self.sink = sink
        self.convert = convert
        self.memory = memory
        self.entering = entering
        self.refusal: Exception | None = None

    def push(self, raw: Any, size: int) -> None:
        """Convert a value and pass it on. A value of a wrong type ends a feed; other sinks get a gap."""
        if self.memory is not None:
            self.memory.size = size
        try:
            value = self.convert(raw)
        except (InvalidInput, RemoteProtocolError) as error:
            if not self._fail(error):
                self.sink.gap("a value of another type", 1)
            return
        self.sink.push(value)

    def end(self, error: Exception | None) -> None:
        """End the sink, with an error if there is one."""
        if self.entering:
            self.refusal, self.entering = error, False
        elif error is None or not self._fail(error):
            self.sink.close()

    def _fail(self, error: Exception) -> bool:
        """End a feed with an error; return False for any other sink, which can only be closed."""
        sink: Any = self.sink
        if not isinstance(cast("object", sink), Feed):
            return False
        sink.fail(error)
        return True


class SharedListening:
    """One property, one event or all events of a thing, with all its listeners over one connection."""

    __slots__ = (
        "_again", "_backoff", "_going", "_last_size", "_waiting", "far", "feed", "is_confirmed", "kind",
        "last", "name", "taps",
    )  # fmt: skip

    def __init__(
        self, far: ListenedThing, kind: str, name: str, backoff: Backoff, going: Going | None = None
    ) -> None:
        self.far = far
        self.kind = kind
        self.name = name
        self.feed: lmos.Feed | None = None  # as the session of an LMOS connection knows it
        self.is_confirmed = False
        self.last: Any = UNSET
        self._last_size = 0
        self.taps: dict[RemoteListener, None] = {}
        self._waiting: list[trio.lowlevel.Task] = []
        self._again: Timer | None = None
        self._backoff = backoff
        self._going = going  # the instrument of the first listener: the request goes out in its trace

    @property
    def trace(self) -> TraceMembers:
        """The trace members to send with the request."""
        return {} if self._going is None else self._going.trace

    def ask(self, session: lmos.ConsumerSession) -> lmos.Feed:
        """Request the values in a session, and return their feed. Raises the errors of the session."""
        thing, trace = self.far.thing_id, self.trace
        if self.kind == "property":
            return session.observe(thing, self.name, **trace)
        if self.kind == "event":
            return session.subscribe(thing, self.name, **trace)
        return session.subscribe_all(thing, **trace)

    # ---- its listeners

    def join(self, tap: RemoteListener) -> None:
        """Add a listener; a latecomer receives the last value at once."""
        self.taps[tap] = None
        if self.is_confirmed:
            tap.entering = False
            if self.last is not UNSET:
                tap.push(self.last, self._last_size)

    def leave(self, tap: RemoteListener) -> None:
        """Remove a listener; the listening ends with the last one."""
        if self.taps.pop(tap, self) is not self and not self.taps:
            self.cancel_retry()
            self._settle(None)
            self._leave_thing()

    def _leave_thing(self) -> None:
        listenings, key = self.far.listenings, (self.kind, self.name)
        if listenings.get(key) is self:  # else another one has begun meanwhile
            del listenings[key]
        self.far.peer.unlisten(self)

    async def confirmed(self, tap: RemoteListener) -> None:
        """Wait until the listening is confirmed. Raises the refusal; AgentUnavailable if not connected."""
        while tap.entering:
            await park_among(self._waiting)
        if tap.refusal is not None:
            raise tap.refusal

    # ---- the side of the connection

    def on_confirmed(self) -> None:
        """Note that the listening is confirmed, or that the thing sends no confirmations."""
        self.is_confirmed = True
        self._settle(None)
        self._backoff.reset()
        for tap in self.taps:
            tap.entering = False
        wake_all(self.far.rt.timers, self._waiting)

    def _settle(self, error: Exception | None) -> None:
        """End the measurement of the request; only the first call counts."""
        if self._going is not None:
            self._going.ended(error)

    def value(self, raw: Any, text: str | bytes) -> None:
        """Pass a value to all listeners; `text` is the text from which it was read."""
        size = len(text) + (weight(text) if len(text) > SHORT else OBJECT)
        if self.kind == "property":
            self.last, self._last_size = raw, size
        for tap in tuple(self.taps):
            tap.push(raw, size)

    def gap(self, reason: str, missed: int | None) -> None:
        """Pass a gap to all listeners whose subscription is confirmed."""
        for tap in tuple(self.taps):
            if not tap.entering:
                tap.sink.gap(reason, missed)

    def on_connection_lost(self, error: Callable[[], Exception]) -> None:
        """Handle a lost connection: listeners stay for the next connection, entering listeners fail."""
        lost = self.is_confirmed and self.name == EXITED
        self._settle(None if self._going is None else error())
        self.feed, self.is_confirmed, self.last = None, False, UNSET
        self.cancel_retry()
        for tap in tuple(self.taps):
            if tap.entering:
                self._turn_away(tap, error())
            elif lost:
                tap.push(LOST, OBJECT)
            else:
                tap.sink.gap(BROKEN, None)
        wake_all(self.far.rt.timers, self._waiting)
        if not self.taps:
            self._leave_thing()

    def on_refused(self, error: Exception) -> None:
        """Handle a refusal: after a temporary one retry later, after any other end the listeners."""
        self._settle(error)
        passing = isinstance(error, AgentUnavailable | MailboxFull | RateLimited)
        stood = self.is_confirmed
        gone = isinstance(error, NotFound) and error.kind == "agent" and stood
        self.feed, self.is_confirmed, self.last = None, False, UNSET
        for tap in tuple(self.taps):
            if tap.entering:
                self._turn_away(tap, error)
            elif not passing:
                del self.taps[tap]
                tap.end(None if gone else error)
            elif stood:
                tap.sink.gap(ENDED, None)
        wake_all(self.far.rt.timers, self._waiting)
        if self.taps:
            asked: float = getattr(error, "retry_in", None) or 0.0
            wait = max(self._backoff.next(), min(asked, LONGEST_WAIT))
            self._again = self.far.rt.timers.call_at(trio.current_time() + wait, self._retry)
        else:
            self._leave_thing()

    def _turn_away(self, tap: RemoteListener, error: Exception) -> None:
        del self.taps[tap]
        tap.end(error)

    def _retry(self) -> None:
        self._again = None
        if self.taps:
            self.far.peer.listen(self)

    def cancel_retry(self) -> None:
        """Cancel the retry that is due, if any."""
        again, self._again = self._again, None
        if again is not None:
            again.cancel()

    def close(self) -> None:
        """End all listeners, at the end of the node."""
        self.cancel_retry()
        self._settle(None)
        taps, self.taps = self.taps, {}
        for tap in taps:
            tap.end(AgentUnavailable(self.far.path, "the node has ended") if tap.entering else None)
        wake_all(self.far.rt.timers, self._waiting)


# ---- ends of incarnations on other nodes, as monitors here receive them


class RemoteCrash(LmosActorsError):
    """The error that ended an agent of another process; its text is the text of the exit reason there."""

    tells_class = True  # so that the text of an exit reason is the same near and far


def down_of(path: str) -> Callable[[Any], Down]:
    """Return a function that turns the data of the event `lmosx:exited` into a `Down`."""

    def convert(data: Any) -> Down:
        if data is LOST:
            return Down(path, 0, ExitReason("shutdown", "connection lost"))
        fields = _members(data)
        number, restored = fields.get("incarnation"), fields.get("restored")
        return Down(
            path,
            number if type(number) is int else 0,
            _reason(fields.get("reason")),
            restored if type(restored) is bool else None,
        )

    return convert


def _members(data: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _reason(data: Any) -> ExitReason:
    fields = _members(data)
    kind, text = fields.get("kind"), fields.get("text")
    text = text if isinstance(text, str) else ""
    if kind == "normal":
        return ExitReason("normal")
    if kind == "shutdown":
        detail = text.removeprefix("shutdown").removeprefix(": ")
        return ExitReason("shutdown", detail or None)
    return ExitReason("error", error=RemoteCrash(text or "the agent has ended"))
