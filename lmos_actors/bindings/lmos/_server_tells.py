"""One-way messages received over one LMOS connection: each has a seat in a mailbox, or is parked for one.

To an agent these messages are like messages from a near sender. At a full mailbox whose policy is `wait` a
message waits outside and is not accepted yet. Only the first one of a connection stands in the agent's line
of parked senders. Those behind it wait here, in a separate lane, and the next one joins the line when the
first has a seat. So connections and near senders get seats in turn, however much each of them sends, and the
messages of one connection to one agent stay in order. The peer's credit bounds the lanes.

A message that does not begin, or whose turn crashes, is answered with an error, and becomes a dead letter of
its sender; for other messages nothing is reported once they have begun. When the connection ends, messages
with a seat are carried out all the same, like those of a near sender; parked ones become dead letters here.
Large messages with a seat stay charged, because otherwise a peer that connects again and again could fill all
mailboxes uncounted. If memory runs out, they become dead letters, too.

Nothing here waits, and only `post` raises: see `_server_connection.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs
import trio

from lmos_actors._core import NOT_NEEDED_YET, SMALL
from lmos_actors.errors import ActionFailed, AgentError, AgentUnavailable, MailboxFull

from ..exposure._access_middleware import nothing
from ..exposure._meter import ended, left

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Account, Budget, Timer
    from lmos_actors.actors import Far, OneWay, Peer, Runtime
    from lmos_actors.protocol import lmos
    from lmos_actors.security import Verb

PATIENCE: Final = 1.0
"""Seconds after which even less than half a window of credit goes back."""

BROKEN: Final = "the connection ended while it waited for a seat"
SPENT: Final = "its connection has ended, and all peers together hold too much memory"


@attrs.define
class WaitingTells:
    """The number of one-way `messages` that wait at a server: parked, or seated and not begun.

    Their memory is a part of what their session holds, which is charged to the connection.
    """

    budget: Budget
    messages: int = 0


@attrs.define(eq=False)
class _Lane:
    """Parked messages of one connection to one agent: the first is in the agent's line, the rest here."""

    first: OneWay
    rest: deque[OneWay] = attrs.field(factory=lambda: deque["OneWay"]())


class TellOwner(Protocol):
    """The receiving end of a connection, which has the one-way messages."""

    def fail(self, asked: Any, error: Exception, /) -> None:
        """Answer a message with an error."""
        ...

    def tell_settled(self) -> None:
        """Note that a message no longer waits."""
        ...

    def check_end(self) -> None:
        """Note that the messages may hold less memory."""
        ...


class IncomingTells:
    """The one-way messages of one connection; see `Teller` of the actors."""

    __slots__ = (
        "_account", "_lanes", "_large", "_owner", "_rt", "_session", "_timer", "_waiting", "label", "peer",
        "principal", "rights", "stands",
    )  # fmt: skip

    def __init__(
        self,
        rt: Runtime,
        session: lmos.ThingSession,
        waiting: WaitingTells,
        who: tuple[str, str | None, Peer],
        owner: TellOwner,
    ) -> None:
        self.label, self.principal, self.peer = who
        self.rights: Callable[[str, Verb], bool] = nothing
        self.stands = True
        """Whether the connection is still open, so that failures can be answered."""
        self._rt = rt
        self._session = session
        self._waiting = waiting
        self._owner = owner
        self._lanes: dict[Any, _Lane] = NOT_NEEDED_YET
        self._large: dict[OneWay, None] = NOT_NEEDED_YET  # waiting messages that are large enough to count
        self._account: Account | None = None  # charged for them, once the connection has ended
        self._timer: Timer | None = None

    def allows(self, agent: str, verb: Verb) -> bool:
        """See `Asker` of the actors."""
        return self.rights(agent, verb)

    @property
    def parked(self) -> int:
        """The number of messages that wait for a seat."""
        return sum(1 + len(lane.rest) for lane in self._lanes.values())

    def check_order(self, slot: Any) -> None:
        """Raise MailboxFull if messages to an agent are parked, because no request may overtake them."""
        if self._lanes and slot in self._lanes:
            slot.ensure_extra().refused += 1
            raise MailboxFull(slot.path, slot.mailbox.size)

    def post(self, tell: OneWay) -> None:
        """Put a message into its agent's mailbox, or park it.

        Raises MailboxFull, AgentUnavailable, NotFound.
        """
        self._waiting.messages += 1
        if tell.asked.weight > SMALL:
            if not self._large:
                self._large = {}
            self._large[tell] = None
        try:
            lane = self._lanes.get(tell.slot) if self._lanes else None
            if lane is not None:
                lane.rest.append(tell)
                return
            tell.slot.post(tell)
        except BaseException:
            self._waits_no_more(tell)
            raise
        if tell.parked:
            if not self._lanes:
                self._lanes = {}
            self._lanes[tell.slot] = _Lane(tell)
        else:
            tell.stand_among_peers()

    # ---- what becomes of them

    def admitted(self, tell: OneWay) -> None:
        """Note that a message has its seat, and let the next one join the line."""
        slot = tell.slot
        tell.stand_among_peers()
        lane = self._lanes.get(slot)
        while lane is not None and lane.rest:
            tell = lane.first = lane.rest.popleft()
            try:
                slot.post_last(tell)
            except AgentError as error:
                self._lost(tell, error)
            else:
                if tell.parked:
                    return
        self._lanes.pop(slot, None)

    def answered(self, far: Far, value: Any) -> None:
        """Note that the turn of a message has ended."""
        self.began(far)
        ended(far, None)

    def failed(self, far: Far, error: Exception) -> None:
        """Report to the sender that a message did not begin, or failed with an undeclared error."""
        if isinstance(error, ActionFailed) or not far.asked.open:
            self.began(far)
            ended(far, error)
        else:
            self._lost(far, error)
        lane = self._lanes.get(far.slot) if self._lanes else None
        if (
            lane is not None and lane.first is far
        ):  # its agent takes no more messages, so the ones behind it fail, too
            del self._lanes[far.slot]
            for tell in lane.rest:
                far.slot.ensure_extra().refused += 1
                self._lost(tell, error)

    def waits(self, far: Far) -> None:
        """Do nothing, because a message that waits for its action's concurrency has not begun."""

    def began(self, far: Far) -> None:
        """Note that a message has begun or its turn has ended, and return its credit.

        Credit is returned in half windows or after `PATIENCE`.
        """
        asked = far.asked
        if not asked.open:
            return
        self._waits_no_more(far)
        self._session.tell_begun(asked)
        if self._timer is None and self.stands:
            self._timer = self._rt.timers.call_at(trio.current_time() + PATIENCE, self._give_credit)
        self._owner.tell_settled()

    def asks(self, far: Far, question: dict[str, Any] | None) -> None:
        """Do nothing, because the sender of a one-way message does not wait for an answer."""

    def reported(self, far: Far, value: Any) -> None:
        """Drop progress, because a one-way message has no receiver for it."""

    def has_room(self, far: Far) -> bool:
        """Return True, because an item is dropped and so needs no room."""
        return True

    def send_item(self, far: Far, item: Any) -> bool:
        """Refuse an item, because a one-way message has no receiver for it."""
        return False

    def _lost(self, far: Far, error: Exception) -> None:
        """Let another member of the pool take a message; if none does, report that it did not begin."""
        self._waits_no_more(far)
        movable = self.stands and far.again is not None and isinstance(error, AgentUnavailable)
        if movable and far.again is not None and far.again():
            return
        ended(far, error)
        if self.stands:
            self._owner.fail(far.asked, error)
            self._owner.check_end()

    def _waits_no_more(self, far: Far) -> None:
        self._waiting.messages -= 1
        if self._large and self._large.pop(cast("OneWay", far), self) is None and self._account is not None:
            self._account.release(far.asked.weight)

    def _give_credit(self) -> None:
        self._timer = None
        self._session.give_credit()
        self._owner.check_end()

    # ---- the end

    def close(self, *, is_spent: bool) -> None:
        """Drop the parked messages at the end of the connection.

        If the connection was closed to free memory (`is_spent`), drop the large messages with a seat, too.
        """
        self.stands = False
        if self._timer is not None:
            self._timer.cancel()
        lanes, self._lanes = self._lanes, NOT_NEEDED_YET
        for slot, lane in lanes.items():
            slot.withdraw(lane.first)
            for tell in (lane.first, *lane.rest):
                self._drop(tell, BROKEN)
        if is_spent:
            self._give_way()
        elif self._large:
            self._account = self._waiting.budget.open(self._overdrawn)
            self._account.charge(sum(tell.asked.weight for tell in self._large))

    def _overdrawn(self) -> None:
        self._rt.timers.call_at(trio.current_time(), self._give_way)  # not in the middle of a turn

    def _give_way(self) -> None:
        """Drop the large messages that have their seats."""
        for tell in tuple(self._large):
            tell.slot.withdraw(tell)
            self._drop(tell, SPENT)

    def _drop(self, tell: OneWay, why: str) -> None:
        self._waits_no_more(tell)
        left(tell)
        self._rt.dead_letter(why, tell.slot, None, tell.op.name, tell.args)
