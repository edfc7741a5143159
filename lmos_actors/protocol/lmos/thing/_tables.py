"""Tables of a thing's session: ended runs, listenings, counters."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
from msgspec import UNSET, Struct
from msgspec.structs import replace

from .._messages import ActionStatus, Error, InvokeAction, name_in
from .._problems import FAILED
from ._answers import OVERHEAD
from ._requests import ALL_EVENTS, EVENT, LISTENED, PROPERTY, IncomingRequest, Listening

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._messages import Base, CancelAction, QueryAction
    from ._answers import AnswerBound


Key: TypeAlias = tuple[str, str, str]


class EndedRun(Struct, frozen=True, eq=False):
    """A run that has ended, and its final answer."""

    correlation: str
    final: Any
    size: int


class Runs:
    """The live runs of one connection, and the last `limit` that ended, by id, thing and action.

    Runs of different actions are distinguished even if a peer gives every message the same id. The ended runs
    have at most `max_bytes` in all. If there is little room they are kept without their outputs, and can
    still be queried. If there is none, the oldest are forgotten.
    """

    __slots__ = ("_bound", "_bytes", "_ended", "_limit", "_live", "_max_bytes")

    def __init__(self, limit: int, max_bytes: int, bound: AnswerBound | None = None) -> None:
        self._bound = bound
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._live: dict[Key, IncomingRequest] = {}
        self._ended: OrderedDict[Key, EndedRun] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ended)

    def begin(self, request: IncomingRequest) -> None:
        """Add a run that has not ended."""
        run = request.message
        self._live[run.message_id, run.thing_id, run.action] = request

    def keep(
        self,
        run: InvokeAction,
        correlation: str,
        final: Base,
        size: int,
        request: IncomingRequest | None = None,
    ) -> None:
        """Keep the final answer of a run, of `size` bytes; a long one is already compacted.

        With a `request`, that run no longer counts as live.
        """
        key = run.message_id, run.thing_id, run.action
        if request is not None and self._live.get(key) is request:
            del self._live[key]
        size += len(run.message_id)
        if self._bytes + size > self._max_bytes:
            size = sum(map(len, key)) + len(correlation)
            if isinstance(final, ActionStatus):
                final = replace(final, output=UNSET, reason=None)
            elif isinstance(final, Error):
                final = replace(final, about=None)
        more = -self._take_out(key) if key in self._ended else 0
        self._ended[key] = EndedRun(correlation, final, size)
        self._bytes += size
        more += size + OVERHEAD
        while len(self._ended) > self._limit or self._bytes > self._max_bytes:
            more -= self._take_out(next(iter(self._ended)))
        if more and self._bound is not None:
            self._bound.changed(self, more)

    def _forget(self, key: Key) -> None:
        less = self._take_out(key)
        if self._bound is not None:
            self._bound.changed(self, -less)

    def _take_out(self, key: Key) -> int:
        """Forget an ended run; return the bytes that it took."""
        size = self._ended.pop(key).size
        self._bytes -= size
        return size + OVERHEAD

    @property
    def held(self) -> int:
        """The approximate bytes of memory that the ended runs take."""
        return self._bytes + len(self._ended) * OVERHEAD

    def shrink(self) -> None:
        """Drop about half of the ended runs, the oldest first."""
        enough = self.held // 2
        while self._ended and self.held > enough:
            self._forget(next(iter(self._ended)))

    def close(self) -> None:
        """Drop all runs, because the connection has ended."""
        self._limit = 0
        self._live.clear()
        for key in tuple(self._ended):
            self._forget(key)

    def find(
        self, message: QueryAction | CancelAction, going: Iterable[IncomingRequest]
    ) -> IncomingRequest | EndedRun | None:
        """Return the run of a message: the one its correlation names, else the newest unfinished, else the
        newest.

        A refused request was not a run, so it is found only by its correlation. `going` are the open requests
        of the connection, newest first.
        """
        wanted = message.correlation_id
        runs = (one for one in going if _is_of(one, message))
        if wanted is None:
            return next(runs, None) or self._newest_ended(message)
        key = wanted, message.thing_id, message.action
        named = (run for run in runs if wanted in (run.message_id, run.correlation))
        found = self._live.get(key) or next(named, None)
        return found or self._ended.get(key) or self._newest_ended(message, wanted)

    def _newest_ended(
        self, message: QueryAction | CancelAction, correlation: str | None = None
    ) -> EndedRun | None:
        about = message.thing_id, message.action
        for key, ended in reversed(self._ended.items()):
            if key[1:] == about and (
                not _was_refused(ended.final) if correlation is None else correlation == ended.correlation
            ):
                return ended
        return None


def _was_refused(final: Base) -> bool:
    """Return whether an answer means that no run took place, for example because the action is unknown."""
    if not isinstance(final, Error) or final.type == FAILED:
        return False
    return final.started is False or final.status.startswith("4")


def _is_of(request: IncomingRequest, message: QueryAction | CancelAction) -> bool:
    run = request.message
    return isinstance(run, InvokeAction) and (run.thing_id, run.action) == (message.thing_id, message.action)


class ListeningTable:
    """The observations and subscriptions of one connection, at most one per thing and property or event."""

    __slots__ = ("_things", "bytes", "count")

    def __init__(self) -> None:
        self.bytes = 0  # of the requests for them
        self.count = 0
        self._things: dict[str, dict[tuple[str, str], Listening]] = {}

    def __len__(self) -> int:
        return self.count

    def get(self, message: Base) -> Listening | None:
        """Return the listening that a message is about."""
        key = LISTENED[type(message)], name_in(message)
        return self._things.get(message.thing_id, {}).get(key)

    def add(self, listening: Listening) -> None:
        """Add a listening; there must be none with its key."""
        self._things.setdefault(listening.thing_id, {})[listening.key] = listening
        self.count += 1
        self.bytes += listening.size

    def remove(self, listening: Listening) -> None:
        """End a listening. Do nothing if it has already ended."""
        if listening.ended:
            return
        listening.ended = True
        of_thing = self._things[listening.thing_id]
        del of_thing[listening.key]
        if not of_thing:
            del self._things[listening.thing_id]
        self.count -= 1
        self.bytes -= listening.size

    def left(self, message: Base) -> list[Listening]:
        """Return the listenings that a message ends; leaving all events also ends those to a single event."""
        kind = LISTENED[type(message)]
        if kind in (PROPERTY, EVENT):
            one = self.get(message)
            return [] if one is None else [one]
        of_thing = self._things.get(message.thing_id, {})
        return [one for one in of_thing.values() if one.kind in (EVENT, ALL_EVENTS)]

    def all(self) -> list[Listening]:
        """Return all listenings, in any order."""
        return [one for of_thing in self._things.values() for one in of_thing.values()]


@attrs.define
class FrameCounts:
    """Counters of incoming frames: each is counted once, when its outcome is known."""

    received: int = 0
    answered: int = 0
    refused: int = 0
    merged: int = 0
    abandoned: int = 0
    streamed: int = 0
    strays: int = 0
    unreadable: int = 0


@attrs.frozen(kw_only=True)
class ThingStatistics:
    """A snapshot of one session.

    `received == answered + refused + merged + abandoned + streamed + strays + unreadable + open`. `received`:
    all frames that arrived. `answered`: requests with a final answer, including successes without a message.
    `refused`: requests that the session itself refused (limits, unknown runs, extensions that are not
    offered). `merged`: repeats of requests that were being carried out here. `abandoned`: requests open when
    the connection ended. `streamed`: items, ends and credit of streams. `strays`: messages that a consumer
    does not send. `unreadable`: texts that are not messages. `open`: requests that wait for their answer.

    `listening`: observations and subscriptions. `remembered`: ended runs that can be queried. `streams`: open
    streams. `late`: messages for streams that are over. `waiting`: frames to be sent, of `waiting_bytes`.
    """

    received: int
    answered: int
    refused: int
    merged: int
    abandoned: int
    streamed: int
    strays: int
    unreadable: int
    open: int
    listening: int
    remembered: int
    streams: int
    late: int
    waiting: int
    waiting_bytes: int
