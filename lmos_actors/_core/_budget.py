"""Memory budget of a node: the bytes that all its peers together may hold, and which peer is evicted.

Each limit of a single connection is generous, since most peers never come near it; a thousand peers that do
would fill any machine. So what one holds for longer than a step is charged to an account: a message in
progress, the body of a request, what waits to be sent, what waits for an agent. An account is a number and
nothing is reserved; its owner charges what it keeps and releases what it no longer keeps.

Credit for messages that may still come is granted out of the same bytes: an account takes what it holds or
what it was granted, whichever is more. All grants together have half of the limit at most, and are made
only while a quarter of it is free, so that no peer is evicted because of a mere grant. When a grant is
refused, accounts with earlier grants are asked for what they do not use.

When all accounts together pass the limit, one account is evicted, at once and whole: refusing only what
comes next would leave the bytes with the peers that took them first. It is the greediest one: of the
accounts that hold an average share or more, the one with the largest product of bytes and seconds, grants
not counted. Time counts because an attacker's bytes stay while those of a working peer pass through; after
a minute it counts no more, so that a connection that is always busy does not age into the victim. Its bytes
leave the sum before its owner has released them, which it must do without waiting for the peer.

The greediest is found without a look at every account, as thousands of small ones may be over the limit for
long: accounts are in classes of about the same size, four for each power of two, and in each class the
oldest is nearest. Only those are compared, so "greediest" and "average" hold to within a quarter.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, Final

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Callable

TOTAL: Final = 256 << 20
"""Default for the bytes that all peers together may hold."""

SMALL: Final = 4096
"""Bytes that are not worth counting: nearly always they are gone with the step that made them."""

AGE: Final = 60.0
"""Seconds of holding something after which an account counts as no older."""

PAUSE: Final = 0.1
"""Seconds between two requests to give back a grant."""

ASKED: Final = 16
"""Accounts that are examined for one that can give something back."""

SPENT: Final = "all connections together hold too much memory, and this one most of it: try again later"

OBJECT: Final = 64
"""About how many bytes a member, an element or a container of JSON takes as a Python object."""

_TEXT: Final = (",", ":", "[", "{")
_BYTES: Final = (b",", b":", b"[", b"{")


def weight(text: str | bytes) -> int:
    """Estimate the bytes that a text takes, beyond its own, once it has been read as JSON.

    They may be twenty times the text's own, so bounds on texts alone would not hold. For prose they are few.
    """
    if isinstance(text, str):
        return OBJECT * sum([text.count(mark) for mark in _TEXT])
    return OBJECT * sum([text.count(mark) for mark in _BYTES])


@attrs.frozen
class BudgetStatistics:
    """A snapshot: the `bytes` that all peers hold, the `limit`, and how many were evicted (`gave_way`).

    `granted` bytes are set aside for one-way messages that may still come, and not held yet.
    """

    bytes: int
    limit: int
    gave_way: int
    granted: int = 0


class Budget:
    """The bytes that all peers together hold, up to a limit; `now` returns the time in seconds."""

    __slots__ = (
        "_asked_at",
        "_bytes",
        "_gave_way",
        "_granted",
        "_grants",
        "_holders",
        "_holding",
        "_is_evicting",
        "_now",
        "_taken",
        "limit",
    )

    def __init__(self, limit: int, now: Callable[[], float] = trio.current_time) -> None:
        self.limit = limit
        self._now = now
        self._bytes = 0
        self._taken = 0
        self._granted = 0
        self._gave_way = 0
        self._holding = 0  # the number of accounts that hold something
        self._holders = _Holders()
        self._grants: dict[Account, None] = {}  # those with a grant; the one asked longest ago is first
        self._asked_at = -inf
        self._is_evicting = False  # `give_way` may charge others for what it has shared with them

    def open(self, give_way: Callable[[], object]) -> Account:
        """Return a new, empty account.

        `give_way` is called on eviction and releases everything: it must not block or raise, and must end
        its connection in a later step, as the code that charged may be in the middle of its work.
        """
        return Account(self, give_way)

    def statistics(self) -> BudgetStatistics:
        """Return how much is held now, and the number of evictions."""
        return BudgetStatistics(self._bytes, self.limit, self._gave_way, self._taken - self._bytes)

    def changed(self, account: Account, size: int) -> None:
        """Update the sums after an account's `bytes` changed by `size`; evict while over the limit."""
        self._bytes += size
        held, before = account.bytes, account.taken
        taken = account.taken = max(held, account.granted)
        self._taken += taken - before
        if held == size:
            if size:
                account.since = self._now()
                self._holding += 1
        elif not held:
            self._holding -= 1
        if taken != before:
            self._holders.place(account)
        if self._taken > self.limit and not self._is_evicting:
            self._is_evicting = True
            try:
                while self._taken > self.limit and self._evict_greediest():
                    pass
            finally:
                self._is_evicting = False

    def may_grant(self, account: Account, size: int) -> bool:
        """Return whether an account's grant may become `size`; if not, ask another account to return part."""
        granted = self._granted - account.granted + size
        taken = self._taken - account.taken + max(account.bytes, size)
        if granted <= self.limit // 2 and taken <= self.limit - self.limit // 4:
            return True
        self._ask_back(account)
        return False

    def granted(self, account: Account, size: int) -> None:
        """Update the sums after an account's grant changed by `size`."""
        self._granted += size
        self._taken += account.take()
        self._holders.place(account)
        if account.granted:
            self._grants[account] = None
        else:
            self._grants.pop(account, None)

    def _ask_back(self, requester: Account) -> None:
        """Ask one other account for the unused part of its grant; it is free once the peer has agreed.

        At most every `PAUSE` seconds: moving grants with every message would cost more than it gains.
        """
        now = self._now()
        if now < self._asked_at + PAUSE:
            return
        self._asked_at = now
        for account in [*islice(self._grants, ASKED)]:
            if account is not requester:
                del self._grants[account]
                self._grants[account] = None
                if account.lower():
                    return

    def _evict_greediest(self) -> bool:
        """Evict the greediest account; return False if none holds more than its grant."""
        if not self._holding:
            return False
        account = self._holders.greediest((self._taken - self._granted) // self._holding, self._now())
        if account is None:
            return False
        self._gave_way += 1
        account.evict()
        return True


class _Holders:
    """The accounts that hold more than their grants, in classes of about the same size.

    The accounts of a class differ by a quarter at most, so the account that has held something longest is
    about the greediest. Each class is a heap ordered by that time. Entries of accounts that have left the
    class stay until they reach the top, or until they outnumber the others.
    """

    __slots__ = ("_classes", "_numbers")

    def __init__(self) -> None:
        self._classes: dict[int, tuple[list[tuple[float, int]], dict[int, Account]]] = {}
        self._numbers = count(1)

    def place(self, account: Account) -> None:
        """Put an account into the class for the size that it holds now."""
        held = account.taken - account.granted
        rank = 0
        if held:  # as `_rank` does, in this step: most of what is charged and released comes here
            length = held.bit_length()
            rank = 4 * length + (4 * held >> (length - 1))
        if rank == account.rank:
            return
        if account.rank:
            heap, present = self._classes[account.rank]
            del present[account.number]
            if not present:
                del self._classes[account.rank]
            elif len(heap) > 2 * len(present) + ASKED:
                heap[:] = [(each.since, number) for number, each in present.items()]
                heapify(heap)
        account.rank, account.number = rank, next(self._numbers)
        if rank:
            found = self._classes.get(rank)
            if found is None:
                found = self._classes[rank] = ([], {})
            heappush(found[0], (account.since, account.number))
            found[1][account.number] = account

    def greediest(self, average: int, now: float) -> Account | None:
        """Return the greediest, to within a quarter, of the accounts that hold an average share or more."""
        least, most, chosen = _rank(average) if average else 0, -1.0, None
        for rank, (heap, present) in self._classes.items():
            if rank >= least:
                while heap[0][1] not in present:
                    heappop(heap)
                account = present[heap[0][1]]
                held = account.taken - account.granted
                score = held * (1 + min(now - account.since, AGE))
                if score > most:
                    most, chosen = score, account
        return chosen


def _rank(size: int) -> int:
    """Return the class of a size above 0; there are four for each power of two."""
    length = size.bit_length()
    return 4 * length + (4 * size >> (length - 1))


class Account:
    """The `bytes` that one peer holds; `since` is the time from which it has always held some.

    `granted` is the number of bytes promised to the peer, `taken` the greater of `bytes` and `granted`.
    `is_spent`: the account was evicted or closed. From then on nothing is counted, so its owner may go on
    releasing. `rank` and `number` are its position among all holders.
    """

    __slots__ = (
        "_budget", "bytes", "give_way", "granted", "is_spent", "lower", "number", "rank", "since", "taken",
    )  # fmt: skip

    def __init__(self, budget: Budget, give_way: Callable[[], object]) -> None:
        self._budget = budget
        self.give_way = give_way
        self.lower: Callable[[], bool] = bool
        self.bytes = 0
        self.granted = 0
        self.taken = 0
        self.since = 0.0
        self.rank = self.number = 0
        self.is_spent = False

    def charge(self, size: int) -> None:
        """Count `size` more bytes as held, or fewer if negative; may evict an account, perhaps this one."""
        if size and not self.is_spent:
            self.bytes += size
            self._budget.changed(self, size)

    def release(self, size: int) -> None:
        """Count `size` bytes as no longer held."""
        self.charge(-size)

    def grant(self, size: int) -> bool:
        """Set the grant to `size` bytes; return whether that was done. Only a spent account refuses less."""
        more = size - self.granted
        if self.is_spent or (more > 0 and not self._budget.may_grant(self, size)):
            return False
        self.granted = size
        self._budget.granted(self, more)
        return True

    def on_shortage(self, lower: Callable[[], bool]) -> None:
        """Set the function that is called when others need this grant: see `Grants` of the protocol."""
        self.lower = lower

    def take(self) -> int:
        """Update `taken`; return by how much it changed."""
        before, self.taken = self.taken, max(self.bytes, self.granted)
        return self.taken - before

    def close(self) -> None:
        """Release all bytes and grants, and count nothing more."""
        self._release_all()
        self.give_way = self.lower = bool  # no reference cycle through its owner

    def evict(self) -> None:
        """Release everything and call `give_way`."""
        self._release_all()
        self.give_way()

    def _release_all(self) -> None:
        self.grant(0)
        self.release(self.bytes)
        self.is_spent = True


class LooseAccount:
    """An account for small amounts that come and go: opened when they are worth counting, charged in steps.

    After an eviction the next amount opens a new one. `give_way` is as in `Budget.open`.
    """

    __slots__ = ("_account", "_budget", "_charged", "_give_way", "_held", "_near")

    def __init__(self, budget: Budget, give_way: Callable[[], object]) -> None:
        self._budget = budget
        self._give_way = give_way
        self._account: Account | None = None
        self._held = self._charged = 0
        self._near = range(SMALL)  # to what is charged: more or less is not worth counting

    def add(self, size: int) -> None:
        """Count `size` more bytes as held, or fewer if it is negative; may evict an account."""
        held = self._held = self._held + size
        if held in self._near:
            return
        account = self._account
        if account is None:
            account = self._account = self._budget.open(self._evicted)
        held = held if held >= SMALL else 0
        more, self._charged = held - self._charged, held
        self._near = range(max(SMALL, held - SMALL + 1), held + SMALL) if held else range(SMALL)
        account.charge(more)

    def close(self) -> None:
        """Close the account, if one is open, and drop the eviction callback."""
        self._give_way = bool  # no reference cycle through its owner
        if self._account is not None:
            self._account.close()

    def _evicted(self) -> None:
        self._give_way()
        self._account = None
        self._charged, self._near = 0, range(SMALL)
