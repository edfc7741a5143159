"""Leases: which node runs the agent with a key, as decided by the store that keeps its state.

An agent with a key of its own (`ChildSpec(key=...)`) may be in several nodes whose store is shared. One of
these nodes holds its lease; the others wait. Both records have the key of the agent:

| space | value | written |
|---|---|---|
| `leases` | `Grant`: its number, the epoch, and who holds it | at each grant, never removed |
| `lease-terms` | `Term`: how long the grant lasts | with the grant and at each renewal; removed at its end |

What this module guarantees:

- **The guarantee is the store's.** Every commit of the agent has a `Check` of the `Grant`, in its own batch:
  nothing of an older epoch is written, and so nothing leaves the agent's output gate, whatever its node
  believes and however long it has been paused or cut off. On a shared store, output without a change of the
  state has such a check too: a value read in an older epoch is not an answer.
- **Epochs rise, and none is used twice.** A grant expects the one before it, and survives a power failure
  where the store can keep anything through one. A server that cannot, and has lost a grant, gives its number
  to the next one too, but with another `mark`: commits under the lost grant are still refused.
- **Time only decides who waits.** A holder counts from when it has *sent* a renewal, less a margin; another
  node takes the lease once it has seen the same term for that time and the margin (`DRIFT`). Both count
  seconds on clocks of their own: no date is compared, so a clock that is set to another year changes nothing.
- **A killed process costs a second.** Where the store knows who is connected (`AttendedStore`), a term names
  its writer. Once that writer has been missing for `MISSED` seconds its lease is taken: a process that has
  ended is missing at once, a paused one is not. A connection that has merely broken is made again sooner; if
  it is not, the guarantee above still holds.
- **A store that was away costs no wait.** Once it works again, the missed renewals are made; and a holder
  whose own lease has ended meanwhile, and was granted to nobody else, takes it again at once.
- **No renewals without need.** A store that is not shared has one writer: its opening ends all that were
  before, so a lease lasts as long as the store is open, and a new node waits for nobody. No term is written.
"""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from lmos_actors.actors import clock_seconds, world_seconds
from lmos_actors.errors import LeaseHeld, LeaseLost, StoreFailed, WriteConflict

from ._store import Check, Delete, Expected, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors._core import Timer
    from lmos_actors.actors import Runtime, Slot

    from ._store import Write
    from ._writer import StoreWriter

    Found = tuple[bytes | None, bytes | None]

LEASES: Final = "leases"
TERMS: Final = "lease-terms"
"""The spaces of the store that hold leases."""

SECONDS: Final = 10.0
"""Seconds for which a lease lasts without a renewal."""

RENEWAL: Final = SECONDS / 3
"""Seconds between two renewals."""

DRIFT: Final = 0.02
"""The greatest deviation of a clock's rate from other clocks, as a fraction."""

WAIT: Final = 1.5 * SECONDS
"""Seconds for which a start waits for the lease: enough to see that its holder is gone."""

MISSED: Final = 1.0
"""Seconds for which the store must have missed a holder before its lease is taken."""

MOST_AHEAD: Final = 1_024
"""Maximum number of grants that are kept for agents about to start."""

POLL: Final = 0.2
"""Seconds between two looks at a lease of another node: the most that a released lease stays unnoticed."""


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest grant for a key."""

    epoch: int
    holder: str
    mark: str = ""
    """Tells apart grants with one number, given by a server that has lost one of them."""


class Term(msgspec.Struct, frozen=True, omit_defaults=True):
    """The seconds for which a grant lasts."""

    epoch: int
    number: int
    """The number of renewals: it shows others that the holder lives, without comparing dates."""
    seconds: float
    until: float
    """Unix time by the holder's clock, for people."""
    sign: str = ""
    """The holder's sign, by which the store tells whether it is connected."""


class Lease:
    """The lease of one agent, as its node sees it."""

    def __init__(self, leases: Leases, slot: Slot, key: str, epoch: int, check: Check, sent: float) -> None:
        self.key = key
        self.epoch = epoch
        self.check = check
        """The check that is part of every commit of the agent."""
        self.is_shared = leases.are_shared
        self.is_overdue = False
        """Whether it ended for want of a renewal: nobody else has been granted it, as far as is known."""
        self._leases = leases
        self._ended = False
        self._slot = slot
        self._renewals = 0
        self._is_renewing = False
        self._sign = ""  # of the last renewal
        self._has_missed = False  # a renewal has failed since the last one that has not
        self._until = math.inf
        self._timers: list[Timer] = []
        if self.is_shared:
            leases.held[self] = None
            self._extend(sent)

    @property
    def is_held(self) -> bool:
        """Whether the lease lasts, by the clock of this node."""
        return not self._ended and trio.current_time() < self._until

    def _extend(self, sent: float) -> None:
        """Extend the lease, counting from when a renewal was sent."""
        self._has_missed = False
        self._until = sent + world_seconds(self._slot, SECONDS * (1 - DRIFT))
        for timer in self._timers:
            timer.cancel()
        timers, pause = self._leases.rt.timers, world_seconds(self._slot, RENEWAL)
        self._timers = [
            timers.call_at(self._until, self._overdue),
            timers.call_after(pause, self._renew),
        ]

    def _overdue(self) -> None:
        self.is_overdue = True
        self.lose("it could not be renewed in time")

    def make_up(self) -> None:
        """Renew the lease now if a renewal failed before; do nothing if one is under way. Never blocks."""
        if self._has_missed and not self._ended:
            self.renew_now()

    def renew_now(self) -> None:
        """Renew the lease before its time; do nothing if a renewal is under way. Never blocks."""
        self._timers[1].cancel()
        self._renew()

    def _renew(self) -> None:
        leases = self._leases
        if not leases.is_wanted(self._slot):
            self.release()
            return
        pause = world_seconds(self._slot, RENEWAL)
        self._timers = [self._timers[0], leases.rt.timers.call_after(pause, self._renew)]
        if not self._is_renewing:
            sent, self._renewals = trio.current_time(), self._renewals + 1
            self._sign = leases.sign
            term = leases.term(self.epoch, self._renewals)
            self._is_renewing = leases.submit(
                [self.check, Put(TERMS, self.key, term)], partial(self._renewed, sent)
            )
            if not self._is_renewing:
                self._miss()

    def _renewed(self, sent: float, error: StoreFailed | WriteConflict | None) -> None:
        self._is_renewing = False
        if self._ended:
            return
        if isinstance(error, WriteConflict):
            self.lose("another node has been granted it")
        elif error is None:
            self._extend(sent)
            if self._sign and not self._leases.sign:  # it was lost while that was written
                self.renew_now()
        else:
            self._miss()

    def _miss(self) -> None:
        self._has_missed = True
        self._leases.make_up_later()

    def lose(self, why: str) -> None:
        """End the lease, and with it the agent's incarnation. Never blocks."""
        if self.end():
            self._leases.end_agent(self._slot, LeaseLost(self.key, self.epoch, why))

    def release(self) -> None:
        """Release the lease to others, once all that was submitted before is committed. Never blocks."""
        if self.end():
            self._leases.leave(self.key, self.check)

    def end(self) -> bool:
        """Stop relying on the lease; return whether it was held. Repeated calls do nothing."""
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        self._leases.held.pop(self, None)
        held, self._ended = not self._ended, True
        return held


class Leases:
    """The leases of the agents of one node.

    `home` returns this node's name, for others; `is_wanted` returns whether an agent runs or will run again;
    `end_agent` ends the incarnation of a slot with an error.
    """

    def __init__(
        self,
        rt: Runtime,
        writer: StoreWriter,
        *,
        home: Callable[[], str],
        is_wanted: Callable[[Slot], bool],
        end_agent: Callable[[Slot, LeaseLost], None],
    ) -> None:
        self.rt = rt
        self.are_shared = writer.is_shared
        self.is_wanted = is_wanted
        self.end_agent = end_agent
        self.held: dict[Lease, None] = {}
        """The leases on a shared store, which are renewed and released."""
        self._writer = writer
        self._ahead: dict[str, tuple[int, Check]] = {}  # newest grants, of which no agent has had one yet
        self._home = home
        self._closed = False
        self._look: Timer | None = None  # at whether the store works again
        writer.when_unattended(self._hide)

    @property
    def sign(self) -> str:
        """The name under which other nodes ask the store whether this node is there; "" if they cannot."""
        return self._writer.sign

    def _hide(self) -> None:
        """Remove the sign from all terms, as the store can no longer confirm that this node is there."""
        for lease in tuple(self.held):
            lease.renew_now()

    async def acquire(self, slot: Slot, key: str, wait: float, own: Lease | None = None) -> Lease:
        """Return the lease of an agent, at a new epoch. Raise LeaseHeld after `wait` seconds, StoreFailed.

        `own` is the agent's previous lease. If it is overdue and still the newest, there is no wait.
        """
        mine = own.check.expect if own is not None and own.is_overdue else None
        began = since = trio.current_time()
        missed: float | None = None  # since when the store has said that its holder is not there
        ahead = self._ahead.pop(key, None)
        if ahead is not None:
            return Lease(self, slot, key, *ahead, began)
        seen: Found | None = None
        while True:
            found = await self._read(key)
            is_missed = found == seen and not await self._is_there(found)
            now = trio.current_time()
            if found != seen:
                seen, since = found, now
            if not is_missed:
                missed = None
            elif missed is None:
                missed = now
            waited = clock_seconds(slot, now - began)
            is_mine = mine is not None and found[0] == mine
            is_gone = missed is not None and clock_seconds(slot, now - missed) >= MISSED
            if is_mine or is_gone or self._is_free(found, clock_seconds(slot, now - since)):
                lease = await self._take(slot, key, found)
                if lease is not None:
                    return lease
            elif waited >= wait:
                raise _held(key, found)
            else:
                await trio.sleep(POLL)

    async def _read(self, key: str) -> Found:
        if self._closed:
            raise StoreFailed(self._writer.name, "it is being closed", "start agents before that")
        term: bytes | None = None
        if self.are_shared:  # first, as there is a grant wherever there is a term
            (term,) = await self._writer.get(TERMS, [key])
        (grant,) = await self._writer.get(LEASES, [key])
        return grant, term

    async def _is_there(self, found: Found) -> bool:
        """Return whether the holder of a lease is connected to the store, as far as is known."""
        return found[1] is None or await self._writer.is_there(_term(found[1]).sign)

    def _is_free(self, found: Found, unchanged: float) -> bool:
        """Return whether a lease that has not changed for `unchanged` seconds may be taken."""
        return found[1] is None or unchanged >= _term(found[1]).seconds * (1 + DRIFT)

    async def _take(self, slot: Slot, key: str, found: Found) -> Lease | None:
        """Take and return the lease; None if another node has changed it meanwhile."""
        before, term = found
        epoch, check, put = self._next(key, before)
        writes: list[Write] = [put]
        if self.are_shared:
            writes.append(Put(TERMS, key, self.term(epoch, 0), term or Expected.NOTHING))
        sent = trio.current_time()
        try:
            await self._writer.commit(writes, "power" if self._writer.keeps_power else "process")
        except WriteConflict:
            return None
        except trio.Cancelled:  # it may have been granted all the same
            self.leave(key, check)
            raise
        if trio.current_time() >= sent + SECONDS / 2:
            self.leave(key, check)
            raise StoreFailed(self._writer.name, "it grants no lease in time", "wait until it is quicker")
        self._ahead.pop(key, None)  # by now an older one
        return Lease(self, slot, key, epoch, check, sent)

    async def grant_ahead(self, keys: Sequence[str]) -> None:
        """Grant the leases of agents that are about to start, in one commit. Raise StoreFailed.

        Only for a store that is not shared. A grant that is not used costs nothing but an epoch number.
        """
        if not keys:
            return
        before = await self._writer.get(LEASES, keys)
        granted = {key: self._next(key, found) for key, found in zip(keys, before, strict=True)}
        with suppress(WriteConflict):  # one has been started meanwhile: each is granted for itself
            await self._writer.commit([put for _, _, put in granted.values()], "power")
            if len(self._ahead) > MOST_AHEAD:  # of agents that were not started after all
                self._ahead = {}
            self._ahead.update((key, (epoch, check)) for key, (epoch, check, _) in granted.items())

    def _next(self, key: str, before: bytes | None) -> tuple[int, Check, Put]:
        """Return the epoch after a grant, the check for later commits, and the write that grants it."""
        epoch = 1 if before is None else _grant(before).epoch + 1
        mark = "" if self._writer.keeps_power else self.rt.entropy.new_id()
        grant = msgspec.json.encode(Grant(epoch, self._home(), mark))
        return epoch, Check(LEASES, key, grant), Put(LEASES, key, grant, before or Expected.NOTHING)

    def leave(self, key: str, check: Check) -> None:
        """Have the term of a grant removed, if the grant is the newest."""
        if self.are_shared:
            self.submit([check, Delete(TERMS, key)], None)

    def term(self, epoch: int, number: int) -> bytes:
        """Return the record of a term that begins now."""
        until = self.rt.entropy.now().timestamp() + SECONDS
        return msgspec.json.encode(Term(epoch, number, SECONDS, round(until, 3), self.sign))

    def submit(
        self, writes: Sequence[Write], done: Callable[[StoreFailed | WriteConflict | None], None] | None
    ) -> bool:
        """Submit writes to the store; return False if it fails."""
        try:
            self._writer.submit(writes, "process", done)
        except StoreFailed:
            return False
        return True

    def make_up_later(self) -> None:
        """Make the missed renewals once the store works again. Never blocks."""
        if self._look is None and not self._closed:
            self._look = self.rt.timers.call_after(POLL, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        if self._writer.retry_in is not None:
            self.make_up_later()
            return
        for lease in tuple(self.held):
            lease.make_up()

    def close(self) -> None:
        """Release all leases: the node ends, and its agents have ended."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        for lease in tuple(self.held):
            lease.release()


def _grant(found: bytes) -> Grant:
    return msgspec.json.decode(found, type=Grant)


def _term(found: bytes) -> Term:
    return msgspec.json.decode(found, type=Term)


def _held(key: str, found: Found) -> LeaseHeld:
    grant, term = found
    assert grant is not None
    assert term is not None
    who = _grant(grant)
    until: Any = datetime.fromtimestamp(_term(term).until, UTC)
    return LeaseHeld(key, who.holder, who.epoch, until)
