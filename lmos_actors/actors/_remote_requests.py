"""Requests that arrive over a wire: envelopes whose answers go back over the same connection."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs
from trio.lowlevel import (
    Abort,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    reschedule,
    wait_task_rescheduled,
)

from lmos_actors.errors import MailboxFull

from ._dispatcher import run_now
from .messages._gates import SERIAL
from .messages._mailbox import DONE, NEW, PARKED, RUNNING, Ask, FairQueue, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    import trio

    from ._edge import Watch
    from .messages._mailbox import Request
    from .messages._operation import Operation
    from .slot._slot import Slot


Peer: TypeAlias = "tuple[Hashable, Hashable]"
"""The source of a request: its group, which is a principal or an address, and the peer in that group."""

CUT_OFF: Final = "its caller has ended, and asks again"
"""The reason of a cancel whose caller comes back for the answer."""

REFUSING: Final = ("wait", "reject")
"""The policies under which a seat changes hands; under the others a full mailbox drops what it holds."""


class RequestClient(Protocol):
    """The client of one request, which can be asked in return; see `_request_clients.py`."""

    @property
    def offer(self) -> Any:
        """The `Offer` of approvals that puts a question to the client's user, or None."""
        ...

    async def carry_out(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Ask the client to carry out something itself; return the result. Raises ToolFailed."""
        ...

    def logged(self, level: str, event: Any, fields: Mapping[str, Any]) -> None:
        """Receive what an agent has logged while it carried out the request. Must not block or raise."""
        ...


class Asker(Protocol):
    """The connection over which a request came, as the request uses it. Nothing here blocks or raises."""

    @property
    def label(self) -> str:
        """The name of the peer, such as its address."""
        ...

    @property
    def principal(self) -> str | None:
        """The name of the authenticated client, or None without authentication."""
        ...

    def allows(self, agent: str, verb: Any, /) -> bool:
        """Return whether the client may use a verb on an agent; see `Request`."""
        ...

    def answered(self, far: Far, value: Any) -> None:
        """Send the value that the operation has returned."""
        ...

    def failed(self, far: Far, error: Exception) -> None:
        """Send the error with which the request has failed."""
        ...

    def waits(self, far: Far) -> None:
        """Report that the run has to wait, as its action has reached its concurrency."""
        ...

    def began(self, far: Far) -> None:
        """Report that the run begins."""
        ...

    def asks(self, far: Far, question: dict[str, Any] | None) -> None:
        """Report the question to a person for which the run waits: id, key, expiry; None after the wait."""
        ...

    def reported(self, far: Far, value: Any) -> None:
        """Send the progress that the run has reported."""
        ...

    def has_room(self, far: Far) -> bool:
        """Return whether an item can be sent now; if not, `Far.go_on` is called once it can."""
        ...

    def send_item(self, far: Far, item: Any) -> bool:
        """Send an item of the run; return whether the consumer still wanted it."""
        ...


class Teller(Asker, Protocol):
    """The connection over which a one-way message came."""

    @property
    def peer(self) -> Peer:
        """The source of the messages."""
        ...

    @property
    def stands(self) -> bool:
        """Whether the sender would be informed if the message did not begin."""
        ...

    def admitted(self, tell: Any) -> None:
        """Note that the message has moved from the line of parked senders to a seat in the mailbox."""
        ...


class _SlotSeats:
    """The requests from afar that wait for one agent, by group, then by peer, in order of arrival."""

    __slots__ = ("count", "groups", "totals")

    def __init__(self) -> None:
        self.count = 0
        self.groups: dict[Hashable, dict[Peer, Line]] = {}
        self.totals: Counter[Hashable] = Counter()

    def take(self, far: Far, peer: Peer) -> None:
        """Count a request that has begun to wait."""
        self.groups.setdefault(peer[0], {}).setdefault(peer, Line())[far] = None
        self.totals[peer[0]] += 1
        self.count += 1
        far.is_seated = True

    def give_up(self, far: Far, peer: Peer) -> None:
        """Count a request that no longer waits."""
        group = self.groups[peer[0]]
        line = group[peer]
        del line[far]
        far.is_seated = False
        self.totals[peer[0]] -= 1
        self.count -= 1
        if not line:
            del group[peer]
            if not group:
                del self.groups[peer[0]], self.totals[peer[0]]

    def requests(self) -> Iterator[Any]:
        """Yield all counted requests."""
        return (far for group in self.groups.values() for line in group.values() for far in line)

    def hold(self) -> None:
        """Mark all counted requests as seated, so that each gives up its seat when it leaves."""
        for far in self.requests():
            far.is_seated = True

    def let_go(self) -> None:
        """Mark all counted requests as not seated, as they are no longer counted."""
        for far in self.requests():
            far.is_seated = False

    def taken(self, peer: Peer) -> int:
        """Return how many seats a peer has."""
        return len(self.groups.get(peer[0], NO_PEERS).get(peer, ()))

    def loser(self, peer: Peer) -> Any:
        """Return the request that has to give its seat to a request of this peer, None if there is none.

        That is the newest request of a peer that has at least two more seats, so as many or more afterwards.
        """
        group, totals = peer[0], self.totals
        if totals[group] * len(totals) < totals.total():  # below the average, so another is above
            greedy = max(totals, key=totals.__getitem__)
            if totals[greedy] > totals[group] + 1:
                group = greedy
        peers = self.groups.get(group, NO_PEERS)
        mine = 0 if group != peer[0] else self.taken(peer)
        if group == peer[0] and mine * len(peers) >= totals[group]:
            return None
        line = max(peers.values(), key=len)
        return next(reversed(line)) if group != peer[0] or len(line) > mine + 1 else None


NO_PEERS: Final[dict[Peer, Line]] = {}


class Seats:
    """The seats that peers hold in the mailboxes of agents.

    Shares are not fixed, as there may be one peer or a thousand. A peer that is alone may take all seats.
    When a mailbox is full, a peer with fewer seats than others takes one from the peer that has the most. The
    newest request of that peer, which has not begun, is refused ("longest queue drop", as in the shared
    buffers of network switches). So a new peer finds a seat at once, as long as there are more seats than
    peers. Addresses are compared first, then the connections from one address: more connections do not get
    more seats, if others want them too. A principal counts as an address with one connection.

    Messages from this node, and one-way messages, take seats without regard to shares, and keep them.

    As long as a mailbox has room nothing is counted: the table of an agent is made from the waiting requests
    when it is needed, and dropped once half of the seats are free again.
    """

    __slots__ = ("counted",)

    def __init__(self) -> None:
        self.counted: dict[Slot, _SlotSeats] = {}
        """The agents whose seats are counted."""

    def take(self, far: Far, peer: Peer) -> None:
        """Count a request that has begun to wait, if the seats of its agent are counted."""
        there = self.counted.get(far.slot)
        if there is not None:
            there.take(far, peer)

    def give_up(self, far: Far, peer: Peer) -> None:
        """Remove a counted request that no longer waits."""
        there = self.counted[far.slot]
        there.give_up(far, peer)
        if there.count * 2 <= far.slot.size or not there.count:
            there.let_go()
            del self.counted[far.slot]

    def taken(self, slot: Slot, peer: Peer) -> int:
        """Return how many seats of an agent a peer has."""
        return (self.counted.get(slot) or _seats_of(slot)).taken(peer)

    def share(self, slot: Slot, peer: Peer) -> int | None:
        """Return how many seats a peer has, or None if no other peer has any."""
        there = self.counted.get(slot) or _seats_of(slot)
        mine = there.taken(peer)
        return None if there.count == mine else mine

    def make_room(self, slot: Slot, peer: Peer) -> None:
        """Free a seat of a full mailbox for a peer, if another peer has more seats."""
        there = self.counted.get(slot)
        if there is None:
            there = _seats_of(slot)
            if not there.count:
                return
            self.counted[slot] = there
            there.hold()
        loser: Far | None = there.loser(peer)
        if loser is not None and loser.peer is not None:
            slot.displace(loser, MailboxFull(slot.path, slot.mailbox.size, there.taken(loser.peer)))


def _seats_of(slot: Slot) -> _SlotSeats:
    """Count the seats of all requests from afar that wait for an agent now."""
    there = _SlotSeats()
    extra = slot.extra
    if extra is not None:
        stash = () if extra.stash is None else extra.stash.all_messages()
        lines = (envelope for line in extra.pending.values() for envelope in line)
        waiting: Iterable[Any] = (*stash, *lines, *slot.queue)
    else:
        waiting = slot.queue
    for each in waiting:
        if isinstance(each, Far) and each.seats is not None and each.peer is not None and each.phase != DONE:
            was = each.is_seated
            there.take(each, each.peer)
            each.is_seated = was  # the table may be thrown away
    return there


class Far(Ask):
    """One request from afar; `asked` is the connection's key for this request.

    The request never waits for a seat: in a full mailbox `wait` means `reject`. Peers share the seats.
    """

    __slots__ = (
        "again", "asked", "asker", "client", "giver", "is_cut_off", "is_seated", "peer", "seats", "until",
        "was_stashed", "watch",
    )  # fmt: skip

    parks = False
    holds_sender = False

    def __init__(self, slot: Slot, op: Operation, args: tuple[Any, ...], asker: Asker, asked: Any) -> None:
        # as `Ask.__init__`, without the call
        self.slot = slot
        self.op = op
        self.args = args
        self.sender = None
        self.phase = NEW
        self.run = None
        self.trace = None
        self.task = None
        self.value = None
        self.error = None
        self.bucket = None
        self.peer: Peer | None = None
        self.seats: Seats | None = None  # where the seats of its peer are counted
        self.is_seated = False
        self.is_cut_off = False  # its caller has left as the connection has ended, and may come back
        self.was_stashed = False
        self.asker = asker
        self.asked = asked
        self.again: Callable[[], bool] | None = None  # of a pool: sends it to another member
        self.client: RequestClient | None = None  # where it can be asked back
        self.until: float | None = None  # when it fails if it is unanswered, in the clock's seconds
        self.giver: trio.lowlevel.Task | None = None  # the run, while there is no room for its item
        self.watch: Watch | None = None  # measures or traces it

    def post(self, seats: Seats, peer: Peer, *, now: bool = False) -> None:
        """Put the request into its agent's mailbox, on a seat of its peer, or run it in this step if `now`.

        With `now` the caller must be in no turn. Raises MailboxFull, AgentUnavailable, NotFound.
        """
        slot, self.peer, self.seats = self.slot, peer, seats  # first: a turn here may stash it
        if now and run_now(slot, self):
            return
        if slot.size > 0 and slot.accepted - slot.begun >= slot.size and slot.mailbox.when_full in REFUSING:
            seats.make_room(slot, peer)
        if slot in seats.counted:
            seats.take(self, peer)
        try:
            slot.post(self)
        except MailboxFull:
            self._uninstall()
            raise MailboxFull(slot.path, slot.mailbox.size, seats.share(slot, peer)) from None
        except BaseException:
            self._uninstall()
            raise
        if slot.gate == SERIAL:
            slot.rt.circles.look_again(self)
        if len(slot.queue) > 1:
            self.stand_among_peers()

    def stand_among_peers(self) -> None:
        """Make the agent's queue serve its peers in rotation, if requests of several peers wait there."""
        slot, queue = self.slot, self.slot.queue
        if len(queue) > 1 and type(queue) is not FairQueue:
            before = queue[-2]
            if not (isinstance(before, Far) and before.peer == self.peer):
                slot.queue = FairQueue(queue)

    def _uninstall(self) -> None:
        if self.is_seated and self.seats is not None and self.peer is not None:
            self.seats.give_up(self, self.peer)

    # ---- the slot's side

    def on_pending(self) -> None:
        self.asker.waits(self)

    def began(self) -> None:
        self._uninstall()
        self.asker.began(self)

    def on_seat_regained(self) -> None:
        if self.seats is not None and self.peer is not None and not self.is_seated:
            self.seats.take(self, self.peer)

    def on_stashed(self) -> None:
        self.was_stashed = True

    def answer(self, value: Any) -> None:
        self.phase = DONE
        if self.is_seated or self.bucket is not None or self.giver is not None:
            self.leave()
        self.asker.answered(self, value)

    def fail(self, error: Exception) -> None:
        self.leave()
        self.asker.failed(self, error)

    def leave(self) -> None:
        """End the request, as it is answered or its consumer has left."""
        self.phase = DONE
        if self.is_seated:
            self._uninstall()
        if self.bucket is not None:
            self.slot.rt.deadlines.forget(self)
        if self.giver is not None:
            self.go_on()

    def request(self) -> Request:
        """Return the request as agents see it, with the client of the connection and the message's id."""
        request = super().request()
        asker = self.asker
        return attrs.evolve(
            request,
            consumer=asker.label if request.consumer is None else request.consumer,
            principal=asker.principal,
            message_id=self.asked.message_id,
            allows=asker.allows,
        )

    # ---- the run's side

    @property
    def feed(self) -> Far:
        """The feed of the run's progress."""
        return self

    def push(self, value: Any) -> None:
        """Pass progress of the run on to the connection."""
        self.asker.reported(self, value)

    async def put(self, item: Any) -> None:
        """Send one output of the run; wait until its consumer and the connection have room for it."""
        await checkpoint_if_cancelled()
        while not self.asker.has_room(self):
            self.giver = current_task()
            await wait_task_rescheduled(self._abort)
        if not self.asker.send_item(self, item):
            await checkpoint()  # nothing holds back a run whose items go nowhere

    def _abort(self, _: object) -> Abort:
        self.giver = None
        return Abort.SUCCEEDED

    def go_on(self) -> None:
        """Wake the run if it waits for room."""
        task = self.giver
        if task is not None:
            self.giver = None
            self.slot.rt.timers.woke = True
            reschedule(task)


class OneWay(Far):
    """A one-way message from afar, which waits for a seat as the message of a near sender does."""

    __slots__ = ("teller",)

    parks = True

    def __init__(self, slot: Slot, op: Operation, args: tuple[Any, ...], teller: Teller, asked: Any) -> None:
        super().__init__(slot, op, args, teller, asked)
        self.teller = teller
        self.peer = teller.peer

    @property
    def parked(self) -> bool:
        """Whether the message still waits in its agent's line for a seat."""
        return self.phase == PARKED

    def admitted(self) -> None:
        self.teller.admitted(self)

    @property
    def waits_for_answer(self) -> bool:
        """Whether a loss is reported to the sender: not once the run has begun or the connection ended."""
        return self.phase != RUNNING and self.teller.stands
