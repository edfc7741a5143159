"""The bytes that all peers of a node together may hold in its memory, and who gives way when they are spent.

Each limit of a single connection is generous, since most peers never come near it; a thousand peers that do
would fill any machine. So what one holds for longer than a step is charged to an account: a message in
progress, the body of a request, what waits to be sent, what waits for an agent. An account is a number and
nothing is reserved; whoever has it charges what it keeps and releases what it lets go.

Credit for messages that may still come is granted out of the same bytes: an account takes what it holds or
what it was granted, whichever is more. All grants together have half of the limit at most, and are made only
while a quarter of it is free, so that nobody has to give way for what was only granted. Where a grant is
refused, those who were granted something before are asked for what they do not use.

When all accounts together pass the limit, one of them has to go, at once and whole: to refuse only what comes
next would leave the bytes with those who took them first. It is the greediest: of those who hold an average
share or more, the one whose bytes times seconds are the most, without what was granted to it. Time counts
because an attacker's bytes stay while those of a peer that works pass through; after a minute it counts no
more, so that a connection that is always busy does not age into the victim. Its bytes leave the sum before it
has let go of them: it has to do that without waiting for the peer.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Callable

TOTAL: Final = 256 << 20
"""Bytes that all peers together may hold where nothing else is said."""

SMALL: Final = 4096
"""Bytes that are not worth counting: nearly always they are gone with the step that made them."""

AGE: Final = 60.0
"""Seconds of holding something after which an account is as old as it gets."""

PAUSE: Final = 0.1
"""Seconds between two that are asked for what was granted to them."""

ASKED: Final = 16
"""Accounts that are looked at for one that has something to give back."""

SPENT: Final = "all connections together hold too much memory, and this one most of it: try again later"

OBJECT: Final = 64
"""Bytes that a member, an element or a container of JSON takes as a Python object, about."""

_TEXT: Final = (",", ":", "[", "{")
_BYTES: Final = (b",", b":", b"[", b"{")


def weight(text: str | bytes) -> int:
    """Return about how many bytes more than its own a text takes once it has been read as JSON.

    Up to twenty times as many, so that bounds on texts alone would not hold. Of prose it is little.
    """
    if isinstance(text, str):
        return OBJECT * sum([text.count(mark) for mark in _TEXT])
    return OBJECT * sum([text.count(mark) for mark in _BYTES])


@attrs.frozen
class BudgetStatistics:
    """A snapshot: the `bytes` that all peers hold, the `limit`, and how many peers had to give way.

    `granted` bytes are taken, but not held yet: by one-way messages that may still come.
    """

    bytes: int
    limit: int
    gave_way: int
    granted: int = 0


class Budget:
    """The bytes that peers hold, up to a limit over all of them; `now` is the time in seconds."""

    __slots__ = (
        "_accounts",
        "_asked_at",
        "_bytes",
        "_gave_way",
        "_granted",
        "_grants",
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
        self._accounts: dict[Account, None] = {}  # those that hold something
        self._grants: dict[Account, None] = {}  # those that were granted something, longest not asked first
        self._asked_at = -inf

    def open(self, give_way: Callable[[], object]) -> Account:
        """Return an account of somebody who holds nothing yet.

        `give_way` is called when it has to let go of everything: it must not block or raise, and whatever
        ends for it ends in a later step, as the one who charged may be in the midst of something.
        """
        return Account(self, give_way)

    def statistics(self) -> BudgetStatistics:
        """Return how much is held now, and how often somebody had to give way."""
        return BudgetStatistics(self._bytes, self.limit, self._gave_way, self._taken - self._bytes)

    def changed(self, account: Account, size: int) -> None:
        """Take note that an account holds more, or less, and took something else before."""
        self._bytes += size
        self._taken += account.take()
        if not account.bytes:
            self._accounts.pop(account, None)
        elif account not in self._accounts:
            account.since = self._now()
            self._accounts[account] = None
        while self._taken > self.limit and self._accounts:
            self._relieve()

    def may_grant(self, account: Account, size: int) -> bool:
        """Whether an account may be granted so much instead of what it was; if not, others are asked."""
        granted = self._granted - account.granted + size
        taken = self._taken - account.taken + max(account.bytes, size)
        if granted <= self.limit // 2 and taken <= self.limit - self.limit // 4:
            return True
        self._ask_back(account)
        return False

    def granted(self, account: Account, size: int) -> None:
        """Take note that an account was granted more, or less, and took something else before."""
        self._granted += size
        self._taken += account.take()
        if account.granted:
            self._grants[account] = None
        else:
            self._grants.pop(account, None)

    def _ask_back(self, wants: Account) -> None:
        """Ask somebody for what was granted and is not used; it is free when the peer has said so.

        Not more often than every `PAUSE` seconds: grants that went to and fro with every message would take
        more than they give.
        """
        now = self._now()
        if now < self._asked_at + PAUSE:
            return
        self._asked_at = now
        for account in [*islice(self._grants, ASKED)]:
            if account is not wants:
                del self._grants[account]
                self._grants[account] = None
                if account.lower():
                    return

    def _relieve(self) -> None:
        now = self._now()
        held = {each: each.taken - each.granted for each in self._accounts}
        average = sum(held.values()) / len(held)
        greedy = [each for each, size in held.items() if size >= average]
        account = max(greedy, key=lambda each: held[each] * (1 + min(now - each.since, AGE)))
        self._gave_way += 1
        account.overdraw()


class Account:
    """The `bytes` that one peer holds; `since` when it has held something all the time.

    `granted` is how many it may hold by what was promised to it, and `taken` the greater of both. `is_spent`:
    it had to give way. From then on it counts nothing, so whoever has it may go on releasing.
    """

    __slots__ = ("_budget", "bytes", "give_way", "granted", "is_spent", "lower", "since", "taken")

    def __init__(self, budget: Budget, give_way: Callable[[], object]) -> None:
        self._budget = budget
        self.give_way = give_way
        self.lower: Callable[[], bool] = bool
        self.bytes = 0
        self.granted = 0
        self.taken = 0
        self.since = 0.0
        self.is_spent = False

    def charge(self, size: int) -> None:
        """Count bytes that are held from now on; it may be that somebody has to give way, maybe this one."""
        if not self.is_spent:
            self.bytes += size
            self._budget.changed(self, size)

    def release(self, size: int) -> None:
        """Count bytes that were charged as held no more."""
        if not self.is_spent:
            self.bytes -= size
            self._budget.changed(self, -size)

    def grant(self, size: int) -> bool:
        """Grant so many bytes in the place of what was granted before; return whether they are.

        Less than before always is.
        """
        more = size - self.granted
        if self.is_spent or (more > 0 and not self._budget.may_grant(self, size)):
            return False
        self.granted = size
        self._budget.granted(self, more)
        return True

    def on_shortage(self, lower: Callable[[], bool]) -> None:
        """Have `lower` called when others need what is granted here: see `Grants` of the protocol."""
        self.lower = lower

    def take(self) -> int:
        """Take what is held or granted now; return how much more that is than before."""
        before, self.taken = self.taken, max(self.bytes, self.granted)
        return self.taken - before

    def close(self) -> None:
        """Let go of all that is held or granted, and count nothing more."""
        self._let_go()
        self.give_way = self.lower = bool  # no cycle through whoever has it

    def overdraw(self) -> None:
        """Have it give way."""
        self._let_go()
        self.give_way()

    def _let_go(self) -> None:
        self.grant(0)
        self.release(self.bytes)
        self.is_spent = True
