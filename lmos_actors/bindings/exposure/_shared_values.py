"""Values for several listeners over connections: encoded once, and charged once while they wait.

An event for many readers is encoded once, and its JSON is in memory once, however many readers it waits for.
So it is charged once: to the account of one of its readers, and when that reader has taken or dropped it, to
the account of the next one. The sum of the charges is the memory that is really held. Every reader is also
charged for its own place in the queue.

A reader whose account is evicted loses the values that wait for it and gets a gap in their place, as with a
full backlog; its connection stays. That alone frees no event that also waits for other readers: one reader
after another would be evicted, each after a search through all accounts. So readers that share events with it
and hold at least half as much drop their backlogs too, because they are as slow. Readers that have just
received an event, and will take it in their next step, hold less and lose nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors._core import LooseAccount
from lmos_actors.actors import Occurrence
from lmos_actors.protocol.lmos import written

from ._values import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Budget

PLACE: Final = 256
"""About how many bytes an event takes in a queue, besides its JSON."""


class SharedValue:
    """A value for several listeners over connections, encoded as JSON once, at its first use.

    From then on only its JSON is kept, or the error that encoding it raised. `holders` are the readers for
    which it waits, each with its number of places in queues; `payer` is the reader that is charged for it.
    """

    __slots__ = ("_error", "_json", "_value", "holders", "payer")

    def __init__(self, value: Any) -> None:
        self._value = value
        self._json: bytes | None = None
        self._error: Exception | None = None
        self.holders: dict[ReaderMemory, int] | None = None
        self.payer: ReaderMemory | None = None

    def json(self) -> bytes:
        """Return the value's JSON. Raises LocalProtocolError, or what `plain` raises, if it has none."""
        if self._error is not None:
            raise self._error
        if self._json is None:
            value, self._value = self._value, None
            try:
                self._json = written(plain(value))
            except Exception as error:
                self._error = error.with_traceback(None)
                raise
        return self._json

    def size(self) -> int:
        """Return the length of the value's JSON in bytes; 0 if it has no JSON form."""
        try:
            return len(self.json())
        except Exception:
            return 0


class SharedValues:
    """The shared forms of values that are pushed to several listeners in one step; keeps the last one.

    Values that wait for slow listeners are charged to `budget`.
    """

    __slots__ = ("_budget", "_last", "_value")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._value: Any = None
        self._last = SharedValue(None)

    def of(self, value: Any) -> SharedValue:
        """Return the shared form of a value that will not change."""
        if self._value is not value:
            self._value, self._last = value, SharedValue(value)
        return self._last

    def reader(self, drop: Callable[[], object]) -> ReaderMemory:
        """Return the memory of one more reader; `drop` makes its backlogs drop everything."""
        return ReaderMemory(self._budget, drop)


class ReaderMemory:
    """The memory of the values that wait for one reader.

    A reader is a stream of server-sent events, or all subscriptions of a connection. This object is the
    `holder` of the reader's backlogs; `drop` makes all of these drop everything. Call `close` when the reader
    has gone.
    """

    __slots__ = ("_account", "_lost", "drop", "held")

    def __init__(self, budget: Budget, drop: Callable[[], object]) -> None:
        self.drop = drop
        """Function that drops the values that wait for the reader, with a gap in their place."""
        self._account = LooseAccount(budget, self._give_way)
        self._lost: dict[SharedValue, None] | None = None  # dropped values, while others drop them as well
        self.held = 0
        """Bytes that wait for the reader, shared or not."""

    def hold(self, value: Any) -> None:
        """Count a value that begins to wait for this reader."""
        event = _shared(value)
        if event is None:
            self._account.add(PLACE)
            return
        size = event.size()
        self.held += size
        holders = event.holders
        if holders is None:
            holders = event.holders = {}
        holders[self] = holders.get(self, 0) + 1
        if event.payer is None:
            event.payer = self
            self._account.add(PLACE + size)
        else:
            self._account.add(PLACE)

    def release(self, value: Any) -> None:
        """Count a value as no longer waiting for this reader, and charge the next reader if this one paid."""
        event = _shared(value)
        if event is None or event.holders is None:
            self._account.add(-PLACE)
            return
        size, holders = event.size(), event.holders
        self.held -= size
        left = holders.pop(self) - 1
        if left:
            holders[self] = left
        elif self._lost is not None:
            self._lost[event] = None
        if left or event.payer is not self:
            self._account.add(-PLACE)
            return
        event.payer = None
        self._account.add(-PLACE - size)
        if self._lost is None:
            _pass_on(event)

    def close(self) -> None:
        """Drop all values that wait for this reader, and close its account."""
        self.drop()
        self.drop = bool  # no reference cycle through its owner
        self._account.close()

    def adopt(self, event: SharedValue) -> None:
        """Take over the charge for an event from another reader."""
        event.payer = self
        self._account.add(event.size())

    def _give_way(self) -> None:
        """Replace all waiting values with a gap, for this reader and for other readers that are as slow."""
        most, lost = self.held, dict[SharedValue, None]()
        self._lost = lost
        self.drop()
        self._lost = None
        others = {reader: None for event in lost for reader in event.holders or ()}
        slow: list[ReaderMemory] = [reader for reader in others if 2 * reader.held >= most]
        for reader in slow:
            reader._lost = lost
        for reader in slow:
            reader.drop()
        for reader in slow:
            reader._lost = None
        for event in lost:
            if event.payer is None:
                _pass_on(event)


def _shared(value: Any) -> SharedValue | None:
    """Return the shared value in a queue item; None if there is none.

    The item is the value itself, an event with its name, or a pair of one of these and a trace.
    """
    found: Any = cast("tuple[Any, Any]", value)[0] if isinstance(value, tuple) else value
    if type(found) is Occurrence:
        found = found.data
    return found if type(found) is SharedValue else None


def _pass_on(event: SharedValue) -> None:
    for reader in event.holders or ():
        reader.adopt(event)
        return
