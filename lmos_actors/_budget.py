"""The bytes that all peers of a node together may hold in its memory, and who gives way when they are spent.

Each limit of a single connection is generous, since most peers never come near it; a thousand peers that do
would fill any machine. So what one holds for longer than a step is charged to an account: a message in
progress, the body of a request, what waits to be sent, what waits for an agent. An account is a number and
nothing is reserved; whoever has it charges what it keeps and releases what it lets go.

When all accounts together pass the limit, one of them has to go, at once and whole: to refuse only what comes
next would leave the bytes with those who took them first. It is the greediest: of those who hold an average
share or more, the one whose bytes times seconds are the most. Time counts because an attacker's bytes stay
while those of a peer that works pass through; after a minute it counts no more, so that a connection that is
always busy does not age into the victim. Its bytes leave the sum before it has let go of them: it has to do
that without waiting for the peer.
"""

from __future__ import annotations

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
    """A snapshot: the `bytes` that all peers hold, the `limit`, and how many peers had to give way."""

    bytes: int
    limit: int
    gave_way: int


class Budget:
    """The bytes that peers hold, up to a limit over all of them."""

    __slots__ = ("_accounts", "_bytes", "_gave_way", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._bytes = 0
        self._gave_way = 0
        self._accounts: dict[Account, None] = {}  # those that hold something

    def open(self, give_way: Callable[[], object]) -> Account:
        """Return an account of somebody who holds nothing yet.

        `give_way` is called when it has to let go of everything: it must not block or raise, and whatever
        ends for it ends in a later step, as the one who charged may be in the midst of something.
        """
        return Account(self, give_way)

    def statistics(self) -> BudgetStatistics:
        """Return how much is held now, and how often somebody had to give way."""
        return BudgetStatistics(self._bytes, self.limit, self._gave_way)

    def changed(self, account: Account, size: int) -> None:
        """Take note that an account holds more, or less."""
        self._bytes += size
        if account.bytes:
            self._accounts[account] = None
        else:
            self.forget(account)
        while self._bytes > self.limit and self._accounts:
            self._relieve()

    def forget(self, account: Account) -> None:
        """Count an account no more; what it holds has been taken off already."""
        self._accounts.pop(account, None)

    def _relieve(self) -> None:
        now = trio.current_time()
        average = self._bytes / len(self._accounts)
        greedy = [each for each in self._accounts if each.bytes >= average]
        account = max(greedy, key=lambda each: each.bytes * (1 + min(now - each.since, AGE)))
        self._gave_way += 1
        self._bytes -= account.bytes
        self.forget(account)
        account.overdraw()


class Account:
    """The `bytes` that one peer holds; `since` when it has held something all the time.

    `is_spent`: it had to give way. From then on it counts nothing, so whoever has it may go on releasing.
    """

    __slots__ = ("_budget", "bytes", "give_way", "is_spent", "since")

    def __init__(self, budget: Budget, give_way: Callable[[], object]) -> None:
        self._budget = budget
        self.give_way = give_way
        self.bytes = 0
        self.since = 0.0
        self.is_spent = False

    def charge(self, size: int) -> None:
        """Count bytes that are held from now on; it may be that somebody has to give way, maybe this one."""
        if not self.is_spent:
            if not self.bytes:
                self.since = trio.current_time()
            self.bytes += size
            self._budget.changed(self, size)

    def release(self, size: int) -> None:
        """Count bytes that were charged as held no more."""
        if not self.is_spent:
            self.bytes -= size
            self._budget.changed(self, -size)

    def close(self) -> None:
        """Let go of all that is held, and count nothing more."""
        self.release(self.bytes)
        self.is_spent = True
        self.give_way = _nothing  # no cycle through whoever has it

    def overdraw(self) -> None:
        """Have it give way; its budget has taken it off already."""
        self.is_spent = True
        self.bytes = 0
        self.give_way()


def _nothing() -> None:
    """Do nothing: there is nothing to release."""
