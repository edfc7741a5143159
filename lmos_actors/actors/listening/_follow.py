"""Following: another agent's events, or a topic's values, as turns of an agent, without a task.

While values wait in the buffer of a `Following`, the `Following` itself is an item in the follower's queue.
It has a seat of its own and is not counted. It ends with the follower's incarnation, or when its source has
ended permanently.
"""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import NotFound

from .._trace_context import current_mark
from ..declaration._affordances import EventHandle
from ..declaration._history import kept_turn
from ..finding._registry import LookupLink, check_home, near_link
from ..messages._gates import DRAINING, GONE
from ..messages._mailbox import InternalTurn
from ..messages._observers import Backlog, Gap, event_key
from ..refs._ref import Ref
from ..refs._retrying import Retrying, found_link
from ..slot._slot import NO_TABLE
from ..values import Discreet
from ._topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._population import AgentQuery
    from .._runtime import Runtime
    from ..messages._mailbox import Mark
    from ..slot._slot import Slot

NOTHING: Final[Any] = ()


class Following(InternalTurn):
    """The result of `self.follow`: `cancel()` ends it, `missed` counts values dropped past its bound."""

    __slots__ = (
        "_after", "_before", "_buffer", "_follower", "_key", "_on_gap", "_size", "_source", "missed",
    )  # fmt: skip

    def __init__(
        self,
        follower: Slot,
        turn: Callable[[Any], None],
        size: int,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> None:
        super().__init__(turn)
        self._follower = follower
        self._on_gap = on_gap  # the turn for gaps; without one they are left out
        self._size = size
        self._buffer: Any = NOTHING  # while it is not empty, this is in the follower's queue
        self._source: Any = None
        self._key: Any = ""
        self._before: Following | None = None
        self._after: Following | None = None
        self.missed: int = 0

    @property
    def affordance(self) -> str:
        """The event or topic that is followed, as `current_request` names it."""
        return str(self._key).removeprefix("!")

    @property
    def active(self) -> bool:
        """Whether further values may come."""
        return self._source is not None

    @enable_ki_protection
    def cancel(self) -> None:
        """Stop following: no further turn runs, not even for buffered values. May be called again."""
        self._buffer = NOTHING
        self.drop()

    # ---- the side of what is followed

    def push(self, value: Any) -> None:
        """Receive one value, to be handled after those that already wait."""
        buffer = self._buffer
        follower = self._follower
        if follower.traced and type(value) is not Gap:
            mark = current_mark(follower.rt)
            if mark is not None:
                value = _Marked(value, mark)
        if not buffer:
            if self._on_gap is None:  # nearly always one waits, and a list is a seventh of a deque
                self._buffer = [value] if self._size <= 64 else deque((value,))
            else:
                self._buffer = Backlog(self._size)
                self._buffer.append(value)
            follower.put(self)
            return
        self._add(buffer, value)

    def _add(self, buffer: Any, value: Any) -> None:
        if isinstance(buffer, Backlog):
            self.missed += buffer.append(value)
            return
        if len(buffer) >= self._size:
            del buffer[0]
            self.missed += 1
        buffer.append(value)

    def gap(self, reason: str, missed: int | None) -> None:
        """Receive a gap where values are missing; it is ignored if the follower takes no gaps."""
        if self._on_gap is not None:
            self.push(Gap(reason, missed))

    def close(self) -> None:
        """End the following, as its source has ended for good; values received before are still handled."""
        self._end()

    # ---- the follower's side

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the turn for the oldest value, and queue this item again if more values wait."""
        buffer = self._buffer
        if not buffer:  # cancelled meanwhile
            return _nothing, ()
        if self._on_gap is None:  # in place: as many calls as followers would be made for each value
            value = buffer[0]
            del buffer[0]
        else:
            value = buffer.popleft()
        self.trace = None
        if type(value) is _Marked:
            self.trace, value = value.mark, value.value
        if buffer:
            self._follower.put(self)
        else:
            self._buffer = NOTHING
        turn = self._on_gap if type(value) is Gap else None
        return self.fn if turn is None else turn, (value,)

    def bind(self, source: Any, key: Any) -> None:
        """Set the source of the values; `drop` calls its `remove(key, self)`."""
        first = self._source is None
        self._source, self._key = source, key
        if first:
            more = self._follower.ensure_extra()
            after: Following | None = more.follows
            self._after = after
            if after is not None:
                after._before = self
            more.follows = self

    def drop(self) -> None:
        """Stop following; values received before are still handled."""
        source = self._source
        if source is not None:
            source.remove(self._key, self)
            self._end()

    def _end(self) -> None:
        if self._source is None:
            return
        self._source = None
        before, after = self._before, self._after
        if before is not None:
            before._after = after
        else:
            self._follower.ensure_extra().follows = after
        if after is not None:
            after._before = before
        self._before = self._after = None


class _Marked:
    """A value with the mark of the message that caused it, on a node with an instrument."""

    __slots__ = ("mark", "value")

    def __init__(self, value: Any, mark: Mark) -> None:
        self.value = value
        self.mark = mark


def _nothing() -> None:
    pass


class Absent:
    """Followings whose agents have not appeared yet, by the query for the agent."""

    __slots__ = ("_by_finder", "_rt")

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._by_finder: dict[AgentQuery, dict[Following, str]] = {}

    def add(self, finder: LookupLink, following: Following, key: str) -> None:
        """Add a following, which is bound when a matching agent appears."""
        wanted = finder.wanted
        self._by_finder.setdefault(wanted, {})[following] = key
        following.bind(self, wanted)

    def remove(self, wanted: AgentQuery, following: Following) -> None:
        """Remove a following."""
        waiting = self._by_finder[wanted]
        del waiting[following]
        if not waiting:
            del self._by_finder[wanted]

    def appeared(self, slot: Slot | None) -> None:
        """Bind the followings that wait for this agent, or all whose agents can be found if it is None."""
        for wanted in tuple(self._by_finder):
            if slot is None or _is_wanted(slot, wanted):
                link = near_link(self._rt, wanted)
                if link is not None:
                    self.settle(wanted, link)

    def settle(self, wanted: AgentQuery, link: Any) -> None:
        """Bind the followings that wait for a query to the agent that was found."""
        for following, key in self._by_finder.pop(wanted, {}).items():
            _listen(link, following, key)


@enable_ki_protection
def follow(
    follower: Slot,
    source: Any,
    rest: tuple[Any, ...],
    size: int,
    on_gap: Callable[[Gap], None] | None,
) -> Following:
    """Make an agent follow a topic, or an event of another agent, until its incarnation ends."""
    handle, turn = _parts(source, rest)
    if iscoroutinefunction(turn):
        raise TypeError(f"self.follow takes a def, as what comes is a turn; {turn!r} is async")
    if size < 1:
        raise ValueError(f"following needs a size of at least 1, not {size!r}")
    secrecy = source.secrecy if handle is None else handle.secrecy
    turn = kept_turn(follower.agent, Discreet(turn, secrecy) if secrecy else turn)
    made = Following(follower, turn, size, on_gap)
    if follower.state >= DRAINING:  # it takes nothing new any more
        return made
    if isinstance(source, Topic):
        made.bind(source, source.name)
        source.add(made)
    elif handle is not None:
        _follow_agent(follower.rt, source._link, handle, made)  # what a ref is for those inside
    return made


def _parts(source: Any, rest: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the event's handle, or None for a topic, and the turn from the arguments of `follow`."""
    if isinstance(source, Topic) and len(rest) == 1:
        return None, rest[0]
    if isinstance(source, Ref) and len(rest) == 2 and isinstance(rest[0], EventHandle):
        return rest
    raise TypeError("self.follow takes a ref, the handle of an event and a turn, or a topic and a turn")


def _follow_agent(rt: Runtime, link: Any, handle: EventHandle[Any, Any], following: Following) -> None:
    """Follow at once, or from the moment at which the wanted agent appears."""
    link = link.inner if isinstance(link, Retrying) else link
    link = link if isinstance(link, LookupLink) else found_link(link)  # near or far, in a simulated network
    if isinstance(link, LookupLink):
        found = link.look()
        if found is None or getattr(found, "is_settled", True) is False:
            cls: Any = link.wanted.cls
            contract = getattr(cls, "__contract__", None)
            if contract is not None and handle.key not in contract.table:  # never wait for such an agent
                raise NotFound("event", handle.name, where=cls.__name__, known=contract.events)
            if rt.absent is None:
                rt.absent = Absent(rt)
            rt.absent.add(link, following, event_key(handle.name))
            if found is not None:
                found.then(partial(rt.absent.settle, link.wanted))
            return
        link = found
    link = link.settled() if hasattr(link, "settled") else link
    check_home(rt, link)
    if getattr(link, "state", None) == GONE or getattr(link, "gone", False):
        raise NotFound("agent", link.path)
    if getattr(link, "table", None) is not NO_TABLE:  # else it has not been made yet
        link.operation(handle.key)
    _listen(link, following, event_key(handle.name))


def _listen(link: Any, following: Following, key: str) -> None:
    sinks, key = link.sinks(), sys.intern(key)  # one text for all its followers
    following.bind(sinks, key)
    sinks.add(key, following)


def _is_wanted(slot: Slot, wanted: AgentQuery) -> bool:
    cls, name = wanted.cls, wanted.name
    return (cls is None or isinstance(slot.agent, cls)) and (
        name is None or slot.label == name or ("/" in name and slot.path == name)
    )
