"""One-way messages under credit: the messages that a consumer may still send, and the credit returned to it.

A one-way message has no answer, so its sender would not notice that the agent is slow. Credit shows this. It
is not a seat in a mailbox, but room at the receiver for messages that wait, with a seat or without.

- A message spends credit when it is put into the outbox, and the credit is returned when the message begins
  or is refused. So the messages that wait at a thing are bounded: for the connection by its window, for each
  agent by half of the window (by all of the first window). Slow agents do not affect others until they have
  used up the window.
- The first window (`FIRST`) is a part of the extension, so the first message needs no round trip. It cannot
  be refused, and any connection may use it at any time. Therefore it is small: all grants together have at
  most half of a node's memory, and the other half has room for the first windows of all connections that a
  node accepts (12 KiB each as the objects that messages become; 10,000 connections, 256 MiB).
- When half of the window of the connection or of an agent is spent, the thing raises it, up to `MOST`, if
  memory is granted for that. Unused credit counts as used memory. If no memory is left, senders wait.
- Credit that was given cannot be revoked at once, because messages may be on their way. So a lower window
  applies at the thing once the consumer confirms it; until then it is not raised. The thing revokes only
  unused credit, such as the credit of a connection that has long been silent.
- As with streams, a message may be sent while credit is left in messages and in bytes; its bytes may take the
  credit in bytes below zero.
- Messages have numbers, and credit is returned by number. Messages begin in any order (a pool, an action that
  waits for its concurrency), and both ends must count the same bytes. The messages that were sent and whose
  credit has not been returned are exactly the ones in doubt when the connection breaks.
- Credit is returned once it is half of an agent's or the connection's window: a frame for each message would
  cost as much as an answer. `due` returns the rest at any time.

A peer without the extension answers every message. With such a peer each final answer returns the credit, and
the window is `MOST` from the beginning. Extension: docs/reference/lmos-extensions.md, "One-way messages".
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from lmos_actors.errors import InvalidInput

from ._limits import REQUEST
from ._messages import Credit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._pending import OneWayMessage

TELLS: Final = Credit(items=256, bytes=262_144)
"""The most that may wait at one thing."""

MOST: Final = Credit(items=1024, bytes=1 << 20)
"""The most that may wait at all things of a connection."""

FIRST: Final = Credit(items=2, bytes=2048)
"""The window of a new connection: both ends know it without a message."""

GROWTH: Final = 4
"""The factor between one window and the next."""

Ranges: TypeAlias = list[tuple[int, int]]
"""Numbers of messages, as pairs of the first and the last number of a range."""


def size_of(window: Credit) -> int:
    """Return the approximate memory, in bytes, that the messages of a window can take."""
    return window.items * REQUEST + window.bytes


def _each(window: Credit) -> Credit:
    """Return one thing's part of a connection's window: half of it, but at least the first window."""
    return Credit(
        items=max(FIRST.items, min(window.items // 2, TELLS.items)),
        bytes=max(FIRST.bytes, min(window.bytes // 2, TELLS.bytes)),
    )


def _within_bounds(window: Credit) -> Credit:
    """Return the nearest window that is allowed."""
    return Credit(
        items=max(FIRST.items, min(window.items, MOST.items)),
        bytes=max(FIRST.bytes, min(window.bytes, MOST.bytes)),
    )


def _wider(window: Credit) -> Credit:
    return _within_bounds(Credit(items=GROWTH * window.items, bytes=GROWTH * window.bytes))


class CreditGrants(Protocol):
    """A policy that limits the credit a connection may give, in bytes of memory beyond the first window.

    When other connections need memory, the peer is asked to give up unused credit. That memory is free again
    once the peer has confirmed.
    """

    def on_shortage(self, lower: Callable[[], bool]) -> None:
        """Register `lower`, to be called when memory is short; it returns False if all credit is in use."""
        ...

    def grant(self, size: int) -> bool:
        """Replace the previous grant by `size` bytes; return whether they are granted.

        A smaller grant is never refused.
        """
        ...


class _UsedCredit:
    """The credit that is spent: a number of messages, and their bytes.

    Messages that are sent or arrive are counted inline, without calls of `add`: two such calls, and two more
    to ask for room, would take a tenth of the time of a message.
    """

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

    def as_credit(self) -> Credit:
        return Credit(items=self.messages, bytes=self.bytes)


def _is_half(used: _UsedCredit, window: Credit) -> bool:
    return 2 * used.messages >= window.items or 2 * used.bytes >= window.bytes


class SentTells:
    """The consumer's side: messages that are in the outbox or sent, and not known to have begun.

    `numbered`: the thing returns credit by number. Otherwise its answers do so.
    """

    __slots__ = (
        "_by_id", "_by_number", "_missed", "_things", "_total", "each", "next_number", "window",
    )  # fmt: skip

    def __init__(self, *, numbered: bool) -> None:
        self.next_number: int | None = 1 if numbered else None
        """The number of the next message, None if messages have none."""
        self._by_id: dict[str, OneWayMessage] = {}
        self._by_number: dict[int, OneWayMessage] = {}
        self._things: dict[str, _UsedCredit] = {}
        self._total = _UsedCredit()
        self._missed = False
        self.window = FIRST if numbered else MOST
        self.each = _each(self.window)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def spent(self) -> Credit:
        """The credit spent on all open messages."""
        return self._total.as_credit()

    def room(self, thing: str) -> bool:
        """Return whether a message may be sent to a thing now. If not, `has_come` shows when to ask again."""
        total, window = self._total, self.window
        if total.messages < window.items and total.bytes < window.bytes:
            used, each = self._things.get(thing), self.each
            if used is None or (used.messages < each.items and used.bytes < each.bytes):
                return True
        self._missed = True
        return False

    def has_come(self) -> bool:
        """Return whether credit may have returned since `room` was False. The call resets this flag."""
        missed, self._missed = self._missed, False
        return missed

    def resize(self, window: Credit) -> bool:
        """Apply another window within allowed bounds; return whether it is lower and must be confirmed."""
        before, self.window = self.window, _within_bounds(window)
        self.each = _each(self.window)
        return self.window.items < before.items or self.window.bytes < before.bytes

    def add(self, message: OneWayMessage, size: int) -> None:
        """Spend credit for a message that has been put into the outbox."""
        message.size = size
        self._by_id[message.request.message_id] = message
        if self.next_number is not None:
            self._by_number[message.number] = message
            self.next_number += 1
        thing, total = message.request.thing_id, self._total
        used = self._things.get(thing)
        if used is None:
            used = self._things[thing] = _UsedCredit()
        used.messages += 1
        used.bytes += size
        total.messages += 1
        total.bytes += size

    def get(self, message_id: str) -> OneWayMessage | None:
        """Return the open message with this id, or None."""
        return self._by_id.get(message_id)

    def oldest(self, thing: str, action: str | None = None) -> OneWayMessage | None:
        """Return the oldest open message to a thing, or to one action of it.

        Answers that name no message need this.
        """
        for message in self._by_id.values():
            if message.request.thing_id == thing and action in (None, message.request.action):
                return message
        return None

    def end(self, message: OneWayMessage) -> None:
        """Remove an open message, and recover its credit."""
        del self._by_id[message.request.message_id]
        if self.next_number is not None:
            del self._by_number[message.number]
        thing = message.request.thing_id
        used = self._things[thing]
        used.take(message.size)
        if not used.messages:
            del self._things[thing]
        self._total.take(message.size)

    def begun(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Recover the credit of the messages with these numbers; ignore those that are not open."""
        opened = self._by_number
        numbers, at = list(opened), 0  # lowest first
        # one way through both: a peer may name as many ranges, of as many numbers, as a frame can say
        for first, last in sorted(ranges):
            at = bisect_left(numbers, first, at)
            while at < len(numbers) and numbers[at] <= last:
                self.end(opened[numbers[at]])
                at += 1

    def close(self) -> list[OneWayMessage]:
        """Remove all open messages because the connection has ended; return them, oldest first."""
        found = list(self._by_id.values())
        for table in (self._by_id, self._by_number, self._things):
            table.clear()
        self._total = _UsedCredit()
        return found


class ReceivedTells:
    """The thing's side: messages that wait, and credit that has to be returned."""

    __slots__ = (
        "_begun", "_begun_bytes", "_begun_of", "_each", "_highest", "_known", "_known_each", "_may_grow",
        "_narrower", "_things", "_total", "is_tight", "thing", "waiting", "window",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiting = 0
        """The number of messages that have arrived, and have neither begun nor been refused."""
        self._highest = 0
        self._things: dict[str, _UsedCredit] = {}  # of messages that wait, or begun and not given back
        self._begun_of: dict[str, _UsedCredit] = {}  # the part of it that is to go back, by thing
        self._total = _UsedCredit()
        self._begun: list[int] = []
        self._begun_bytes = 0
        self.thing = ""
        """The thing of the last message: each frame has to name one, though numbers are the connection's."""
        self.window = self._known = FIRST
        """The window of the peer; `_known` is lower while the peer has not confirmed a lower one."""
        self._each = self._known_each = _each(FIRST)
        self._may_grow = True
        self._narrower: Credit | None = None  # the window that it has been asked for, and has not confirmed
        self.is_tight = False
        """Whether half of a window is used, so that a wider one would help."""

    @property
    def spent(self) -> Credit:
        """The credit that the peer has spent and that has not been returned."""
        return self._total.as_credit()

    # ---- the window

    def wider(self) -> Credit | None:
        """Return the next wider window of which less than half is spent, or else the widest.

        Return None if there is no wider window, or if the peer has not yet confirmed a lower one.
        """
        if self._narrower is not None or not self._may_grow:
            return None
        held, window = self._things.get(self.thing, self._total), _wider(self.window)
        while window != MOST and (_is_half(self._total, window) or _is_half(held, _each(window))):
            window = _wider(window)
        return window

    def widen(self, window: Credit) -> None:
        """Apply a wider window from now on."""
        self.is_tight = False
        self.window = self._known = window
        self._each = self._known_each = _each(window)
        self._may_grow = window != MOST

    def narrow(self) -> Credit | None:
        """Return the lowest window of which less than half is spent. It applies once it is confirmed.

        Return None if it is not lower than now, or if another lower window is not confirmed yet.
        """
        window = FIRST
        while window != MOST and _is_half(self._total, window):
            window = _wider(window)
        if self._narrower is not None or window.items >= self.window.items:
            return None
        self._narrower = self._known = window
        self._known_each = _each(window)
        return window

    def confirm(self, window: Credit) -> bool:
        """Apply a lower window that the peer confirms; return False if it is not the requested one."""
        if window != self._narrower:
            return False
        self._narrower = None
        self.widen(window)
        return True

    def size_of(self, window: Credit, held: int) -> int:
        """Return the approximate size of a window in bytes; `held` is that of the messages that wait now."""
        size, spent = size_of(window), REQUEST * self._total.messages + self._total.bytes
        return size + size * (held - spent) // spent if held > spent > 0 else size

    # ---- messages

    def arrive(self, thing: str, number: int, size: int) -> InvalidInput | None:
        """Count a message that arrives. If it breaks the rules, return the error and do not count it."""
        if number <= self._highest:
            return InvalidInput("the number of a one-way message is higher than all before", "$.tell")
        self._highest = number
        held = self._things.get(thing)
        total, window, each = self._total, self.window, self._each
        if (
            total.messages >= window.items
            or total.bytes >= window.bytes
            or (held is not None and (held.messages >= each.items or held.bytes >= each.bytes))
        ):
            return InvalidInput("a one-way message came without credit", "$.tell")
        if held is None:
            held = self._things[thing] = _UsedCredit()
        held.messages += 1
        held.bytes += size
        total.messages += 1
        total.bytes += size
        self.waiting += 1
        if self._may_grow:
            self.thing = thing
            self.is_tight = _is_half(held, each) or _is_half(total, window)
        return None

    def refused(self, thing: str, size: int) -> None:
        """Record that an error answers a message, and so returns its credit."""
        self.waiting -= 1
        held = self._things[thing]
        held.take(size)
        self._total.take(size)
        if not held.messages:
            del self._things[thing]

    def begin(self, thing: str, number: int, size: int) -> bool:
        """Record that a message has begun; return whether credit has to be returned now."""
        self.waiting -= 1
        own = self._begun_of.get(thing)
        if own is None:
            own = self._begun_of[thing] = _UsedCredit()
        own.add(size)
        self.thing = thing
        begun, window, each = self._begun, self._known, self._known_each
        begun.append(number)
        self._begun_bytes += size
        return _is_half(own, each) or 2 * len(begun) >= window.items or 2 * self._begun_bytes >= window.bytes

    @property
    def owes(self) -> bool:
        """Whether there is credit to return."""
        return bool(self._begun)

    def due(self) -> Ranges:
        """Return the numbers of all messages whose credit is returned now, and count it as returned."""
        for thing, begun in self._begun_of.items():
            held = self._things[thing]
            held.messages -= begun.messages
            held.bytes -= begun.bytes
            if not held.messages:
                del self._things[thing]
        self._begun_of.clear()
        self._total.messages -= len(self._begun)
        self._total.bytes -= self._begun_bytes
        numbers, self._begun, self._begun_bytes = self._begun, [], 0
        return _ranges(numbers)


def _ranges(numbers: list[int]) -> Ranges:
    """Return numbers as sorted ranges, usually a single one."""
    found: Ranges = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
