"""One-way messages under credit: what a consumer may still send, and what a thing gives back.

A one-way message has no answer, so nothing would tell its sender that the agent is slow. Credit does. It is
not a seat of a mailbox: it is room at the receiver for messages that wait, with a seat or without.

- A message spends credit when it is put into the outbox, and has it back when it begins or is refused. So
  what waits at a thing is bounded for each agent (`TELLS`) and for the connection (`ALL_TELLS`), and slow
  agents take nothing from others until four of them are full. More would be kinder to others, and too much
  memory: a message that waits takes some 2 kB, and a hundred connections that all are full must not use up
  what all peers together may hold.
- Both windows are part of the extension, so the first message needs no round trip. As with streams, a message
  goes out while there is credit left in number and in bytes; its bytes may take the latter below zero.
- Messages have numbers, and credit comes back by number: messages begin in any order (a pool, an action that
  waits for its concurrency), and both ends must count the same bytes. What was sent and has not come back is
  exactly what the sender has to worry about when the connection breaks.
- Credit comes back by halves, of one agent or of the connection: a frame for each message would cost what
  answers cost. `due` gives the rest back at any time.

A peer without the extension answers every message; there each final answer gives the credit back.
Extension: docs/reference/lmos-extensions.md, "One-way messages".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from lmos_actors._errors import InvalidInput

from ._messages import Credit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._consumer_asked import Told

TELLS: Final = Credit(items=256, bytes=262_144)
"""What may wait at one thing."""

ALL_TELLS: Final = Credit(items=1024, bytes=1 << 20)
"""What may wait at all things of a connection."""

Ranges: TypeAlias = list[tuple[int, int]]
"""Numbers of messages, as pairs of the first and the last."""


class _Spent:
    """Credit that is spent: messages, and their bytes."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, size: int) -> None:
        self.messages += 1
        self.bytes += size

    def take(self, size: int) -> None:
        self.messages -= 1
        self.bytes -= size

    def within(self, window: Credit) -> bool:
        """Whether there is room for one more message of any size."""
        return self.messages < window.items and self.bytes < window.bytes


class SentTells:
    """The consumer's side: messages in the outbox or sent, and not known to have begun.

    `numbered`: the thing gives credit back by number. Otherwise its answers do.
    """

    __slots__ = ("_by_id", "_by_number", "_missed", "_next", "_numbered", "_things", "_total")

    def __init__(self, *, numbered: bool) -> None:
        self._numbered = numbered
        self._next = 1
        self._by_id: dict[str, Told] = {}
        self._by_number: dict[int, Told] = {}
        self._things: dict[str, _Spent] = {}
        self._total = _Spent()
        self._missed = False

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def next_number(self) -> int | None:
        """The number of the next message, None where messages have none."""
        return self._next if self._numbered else None

    def room(self, thing: str) -> bool:
        """Whether a message may be sent to a thing now; if not, `has_come` says when to look again."""
        spent = self._things.get(thing)
        if self._total.within(ALL_TELLS) and (spent is None or spent.within(TELLS)):
            return True
        self._missed = True
        return False

    def has_come(self) -> bool:
        """Whether credit may have come back for somebody who has found none since the last call."""
        missed, self._missed = self._missed, False
        return missed

    def add(self, told: Told, size: int) -> None:
        """Spend credit for a message that has been put into the outbox."""
        told.size = size
        self._by_id[told.request.message_id] = told
        if self._numbered:
            self._by_number[told.number] = told
            self._next += 1
        thing = told.request.thing_id
        spent = self._things.get(thing)
        if spent is None:
            spent = self._things[thing] = _Spent()
        spent.add(size)
        self._total.add(size)

    def get(self, message_id: str) -> Told | None:
        """Return the open message of this id."""
        return self._by_id.get(message_id)

    def oldest(self, thing: str, action: str | None = None) -> Told | None:
        """Return the oldest open message to a thing, or to an action of it: for answers that name none."""
        for told in self._by_id.values():
            if told.request.thing_id == thing and action in (None, told.request.action):
                return told
        return None

    def end(self, told: Told) -> None:
        """Take back the credit of an open message."""
        del self._by_id[told.request.message_id]
        if self._numbered:
            del self._by_number[told.number]
        thing = told.request.thing_id
        spent = self._things[thing]
        spent.take(told.size)
        if not spent.messages:
            del self._things[thing]
        self._total.take(told.size)

    def begun(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take back the credit of the messages with these numbers; those that are not open are ignored."""
        opened = self._by_number
        for first, last in ranges:
            if last - first < len(opened):
                found = [opened[number] for number in range(first, last + 1) if number in opened]
            else:  # not a step for each number that a peer can think of
                found = [told for number, told in opened.items() if first <= number <= last]
            for told in found:
                self.end(told)

    def close(self) -> list[Told]:
        """End everything, as the connection is gone; return the messages that were open, oldest first."""
        found = list(self._by_id.values())
        for table in (self._by_id, self._by_number, self._things):
            table.clear()
        self._total = _Spent()
        return found


class _Held(_Spent):
    """The credit of one thing: messages that wait, and those begun whose credit is to go back."""

    __slots__ = ("begun", "begun_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.begun_bytes = 0


class ReceivedTells:
    """The thing's side: messages that wait, and credit that is to go back."""

    __slots__ = ("_begun", "_begun_bytes", "_highest", "_things", "_total", "thing", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        """How many messages have come, and have neither begun nor been refused."""
        self._highest = 0
        self._things: dict[str, _Held] = {}
        self._total = _Spent()
        self._begun: list[int] = []
        self._begun_bytes = 0
        self.thing = ""
        """Where a message has begun last: each frame names a thing, though numbers are the connection's."""

    def arrive(self, thing: str, number: int, size: int) -> InvalidInput | None:
        """Take a message in; return what is wrong with it, in which case it is not counted."""
        if number <= self._highest:
            return InvalidInput("the number of a one-way message is higher than all before", "$.tell")
        self._highest = number
        held = self._things.get(thing)
        if not self._total.within(ALL_TELLS) or (held is not None and not held.within(TELLS)):
            return InvalidInput("a one-way message came without credit", "$.tell")
        if held is None:
            held = self._things[thing] = _Held()
        held.add(size)
        self._total.add(size)
        self.waiting += 1
        return None

    def refused(self, thing: str, size: int) -> None:
        """Give the credit of a message back by the error that answers it."""
        self.waiting -= 1
        held = self._things[thing]
        held.take(size)
        self._total.take(size)
        if not held.messages:
            del self._things[thing]

    def begin(self, thing: str, number: int, size: int) -> bool:
        """Note that a message has begun; return whether credit is to go back now."""
        self.waiting -= 1
        held = self._things[thing]
        held.begun += 1
        held.begun_bytes += size
        self.thing = thing
        begun = self._begun
        begun.append(number)
        self._begun_bytes += size
        return (
            2 * held.begun >= TELLS.items
            or 2 * held.begun_bytes >= TELLS.bytes
            or 2 * len(begun) >= ALL_TELLS.items
            or 2 * self._begun_bytes >= ALL_TELLS.bytes
        )

    @property
    def owes(self) -> bool:
        """Whether there is credit to give back."""
        return bool(self._begun)

    def due(self) -> Ranges:
        """Return the numbers of all messages whose credit goes back now."""
        for thing, held in tuple(self._things.items()):
            if held.begun:
                held.messages -= held.begun
                held.bytes -= held.begun_bytes
                held.begun = held.begun_bytes = 0
                if not held.messages:
                    del self._things[thing]
        self._total.messages -= len(self._begun)
        self._total.bytes -= self._begun_bytes
        numbers, self._begun, self._begun_bytes = self._begun, [], 0
        return _ranges(numbers)


def _ranges(numbers: list[int]) -> Ranges:
    """Return numbers as ranges, in order; they usually are one."""
    found: Ranges = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
