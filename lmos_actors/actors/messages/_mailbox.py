"""The items that may be in a mailbox, the options of a mailbox, and the counts of an agent.

A one-way message in its usual form is a plain tuple `(operation, arguments, sender)`: it takes a hundred
bytes and a tenth of a microsecond less than an object. Every message whose sender waits is an `Envelope`,
which gets exactly one final answer. The queue itself is a list in the slot (`_slot.py`); this file defines
what may be in it.

The phases of an envelope:

    NEW -> PARKED -> QUEUED -> WORKED_ON -> PENDING -> RUNNING -> DONE

PARKED: not accepted yet, and its sender waits for a seat. QUEUED and PENDING (in line for its action's
concurrency) hold a seat, as does STASHED: postponed or stashed until it is QUEUED again. WORKED_ON: its agent
has a service time and works on it, see `_pacing.py`. HELD_BACK: a durable agent has answered it, and the
answer waits until the state is kept, see `slot/_output_gate.py`. ATTACHED: it is in no mailbox, and waits for
the answer to a request with its key, see `_keyed_requests.py`. Any phase may lead straight to DONE.

One bound holds for everything that has not begun: queued, in the current batch, in line for a run, stashed.
An envelope gives up its seat when its turn or its run begins. Two kinds of messages have separate bounds: an
agent's messages to itself (`OWN_SEATS`), as an agent that waited for its own mailbox would wait forever, and
messages of its turns that wait for seats in other mailboxes (`OUT_SEATS`). Timers have a seat each and are
not counted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import attrs
from trio.lowlevel import Abort, reschedule

from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import trio

    from lmos_actors._core import Timer

    from ._operation import Operation

WhenFull = Literal["wait", "reject", "drop_oldest", "drop_newest"]
WHEN_FULL: Final = ("wait", "reject", "drop_oldest", "drop_newest")

OWN_SEATS: Final = 64  # reserved for messages of an agent to itself, which never wait
OUT_SEATS: Final = 1024  # the most messages of an agent's turns that wait for seats elsewhere
PROMPT: Final = 64  # turns of timers of no time in a row, after which messages come that wait
ORDERED: Final = 1024  # messages among which peers take turns: a longer queue costs a batch no more than that

NEW, PARKED, QUEUED, PENDING, RUNNING, DONE, STASHED, WORKED_ON, HELD_BACK, ATTACHED = range(10)


@attrs.frozen
class MailboxOptions:
    """The number of messages that may wait for an agent, and what happens to the next one.

    `size` counts everything that has not begun: queued, in line for its action's concurrency, stashed.
    `when_full`: `wait` holds the sender back, `reject` answers `MailboxFull`, `drop_oldest` makes room by
    dropping the message that has waited longest, `drop_newest` drops the new one.
    """

    size: int = attrs.field(default=64)
    when_full: WhenFull = "wait"

    def __attrs_post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= 1 << 40:
            raise ConfigError(f"mailbox size must be a whole number of at least 1, not {self.size!r}", "size")
        if self.when_full not in WHEN_FULL:
            raise ConfigError(
                f"when_full must be one of {', '.join(WHEN_FULL)}, not {self.when_full!r}", "when_full"
            )


DEFAULT_MAILBOX: Final = MailboxOptions()


@attrs.frozen
class AgentStatistics:
    """Counts of one slot over all its incarnations.

    At every instant at which none of its turns runs:
    `accepted == handled + cancelled + dropped + dead_lettered + waiting + running`.
    `refused` messages were never accepted. `restarts` is the number of incarnations after the first.
    """

    accepted: int
    handled: int
    cancelled: int
    dropped: int
    dead_lettered: int
    waiting: int
    running: int
    refused: int
    restarts: int
    incarnation: int
    state: str


@attrs.frozen
class MailboxStatistics:
    """Counts of the mailbox alone: waiting messages, how many may wait, and senders held back.

    `displaced` counts the requests dropped so far because peers with most seats lost them to other peers.
    """

    depth: int
    size: int
    when_full: WhenFull
    parked: int
    displaced: int = 0


@attrs.frozen
class Request:
    """The request that the running code carries out, and its consumer.

    `consumer` is the path of the agent that sent the request, None for code outside any agent. `deadline` is
    in the clock's seconds, None without one. `allows` returns whether the client that has sent the request
    over a network may use a verb of access lists (`"approve"`) on an agent, given by its public name; it is
    None for requests of this node.
    """

    affordance: str
    consumer: str | None = None
    principal: str | None = None
    deadline: float | None = None
    trace: str | None = None
    message_id: str | None = None
    allows: Callable[[str, Any], bool] | None = attrs.field(default=None, repr=False, eq=False)


@attrs.frozen
class Origin:
    """A trace that began in another node: its id, its flags, and the trace state of other nodes.

    `parent` is the id of the message, or span, that caused this one; `span` is the span that this node
    records for it, if it records spans.
    """

    trace_id: str
    flags: str = "01"
    state: str = ""
    parent: str = attrs.field(default="", eq=False, repr=False)
    span: Any = attrs.field(default=None, eq=False, repr=False)


Mark: TypeAlias = tuple[int, int, Origin | None, str | None]
"""Number of a message, and of the message that began its trace; its origin and sender, if from another node.

Both numbers are 0 without an instrument.
"""


def trace_text(mark: Mark | None) -> str | None:
    """Return the trace of a message for `current_request`: a number, or the id from another node."""
    if mark is None:
        return None
    return str(mark[1]) if mark[2] is None else mark[2].trace_id


class Envelope:
    """One request, with the receiver of its one final answer.

    `answer` and `fail` are called by the slot, at most once between them, and never block. `slot` is the
    `Slot` of the receiver, `sender` the sender's slot, None for code outside any agent; `run` is the `Run`
    once that has begun. Those classes are defined above this layer, so they have no types here.
    """

    __slots__ = ("args", "op", "phase", "run", "sender", "slot", "trace")

    peer: Any = None
    """The peer that sent it, None if it came over no connection: see `Peer`."""

    feed: Any = None
    """The `Feed` for the progress of its run, None if its sender gets no reports."""

    was_stashed: bool = False
    """Whether it was stashed once, so that it keeps its place before all later messages of any sender."""

    parks: ClassVar[bool] = True
    """Under `wait` it waits for a seat in a full mailbox; one that does not park is refused."""

    holds_sender: ClassVar[bool] = True
    """Whether its sender waits from the moment at which it waits for a seat."""

    is_keyed: ClassVar[bool] = False
    """Whether it has a key, under which its answer is kept: see `KeyedRequest`."""

    def __init__(self, slot: Any, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        self.slot = slot
        self.op = op
        self.args = args
        self.sender = sender
        self.phase = NEW
        self.run: Any = None
        self.trace: Mark | None = None

    def admitted(self) -> None:
        """Note that the message has moved from the line of parked senders to a seat in the mailbox."""

    def on_pending(self) -> None:
        """Note that the envelope is pending, as its run has to wait for its action's concurrency."""

    def began(self) -> None:
        """Note that the run, or the work on it (`_pacing.py`), begins; not called for turns."""

    def on_seat_regained(self) -> None:
        """Note that the run has put its message aside, so that the message has a seat again."""

    def on_stashed(self) -> None:
        """Note that the message has been put aside."""

    def answer(self, value: Any) -> None:
        """Receive the value that the operation returned."""

    def fail(self, error: Exception) -> None:
        """Receive the error that is the answer instead of a value."""

    def request(self) -> Request:
        """Return the request of the envelope as agents see it, with its consumer."""
        trace = self.trace
        return Request(
            affordance=self.op.name,
            consumer=self.sender.path if self.sender is not None else None,
            deadline=getattr(self, "deadline", None),
            trace=trace_text(trace),
            message_id=str(trace[0]) if trace is not None and trace[0] else None,
        )

    @property
    def waits_for_answer(self) -> bool:
        """Whether the sender gets an error if the message is lost, so that no dead letter is recorded."""
        return True

    def waiting_tasks(self) -> tuple[trio.lowlevel.Task, ...]:
        """Return the tasks that are parked until something happens to the envelope."""
        return ()


class Line(OrderedDict[Envelope, None]):
    """Envelopes in order, each of which may leave at any time without a search."""

    def join(self, envelope: Envelope) -> None:
        """Put an envelope at the end."""
        self[envelope] = None

    def first(self) -> Envelope:
        """Remove the first envelope and return it."""
        return self.popitem(last=False)[0]


class FairQueue(deque[Any]):
    """A queue in which messages of several peers wait for turns, as they do in `RunLine` for runs.

    Peers change places only with each other. Messages of this node, and messages put aside, keep their
    places: however many peers send requests, a sender of this node waits only for earlier messages.

    The order is made when messages are taken out, once for a batch, and not for every message that comes in.
    """

    __slots__ = ()

    def reorder_fairly(self) -> None:
        """Reorder the messages of peers: first one message of each peer, then the second one of each."""
        places: list[int] = []
        rounds: list[list[Envelope]] = []
        taken: dict[Any, int] = {}
        for place, item in enumerate(islice(self, ORDERED)):
            if not isinstance(item, Envelope) or item.peer is None:
                continue
            if item.phase == QUEUED and not item.was_stashed:
                number = taken.get(item.peer, 0)
                taken[item.peer] = number + 1
                if number == len(rounds):
                    rounds.append([])
                rounds[number].append(item)
                places.append(place)
        if len(taken) > 1:
            for place, item in zip(places, chain.from_iterable(rounds), strict=True):
                self[place] = item


class RunLine:
    """Requests in line for an action's concurrency, served peer by peer in rotation.

    The requests of one peer stay in order. So a peer with a hundred requests delays another peer by one run,
    and not by a hundred. All requests of this node count as one peer.
    """

    __slots__ = ("_lines", "_size")

    def __init__(self) -> None:
        self._lines: OrderedDict[Any, Line] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Envelope]:
        for line in self._lines.values():
            yield from line

    def join(self, envelope: Envelope) -> None:
        """Put a request behind all others of the same peer."""
        self._lines.setdefault(envelope.peer, Line()).join(envelope)
        self._size += 1

    def first(self, may_begin: Callable[[Any], bool] | None = None) -> Envelope | None:
        """Remove and return the first request of the peer whose turn it is, or None if there is none.

        `may_begin` returns whether a message of a peer may begin; without it, all may.
        """
        for peer, line in self._lines.items():
            if may_begin is None or may_begin(peer):
                envelope = line.first()
                self._size -= 1
                self._lines.move_to_end(peer)
                if not line:
                    del self._lines[peer]
                return envelope
        return None

    def remove(self, envelope: Envelope) -> None:
        """Remove a request, wherever it is in line."""
        line = self._lines[envelope.peer]
        del line[envelope]
        self._size -= 1
        if not line:
            del self._lines[envelope.peer]


class Tell(Envelope):
    """A one-way message that needs an object: parked, traced, or to an `async def` action."""

    __slots__ = ("lost", "task")

    def __init__(self, slot: Any, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        self.slot = slot
        self.op = op
        self.args = args
        self.sender = sender
        self.phase = NEW
        self.run = None
        self.trace = None
        self.task: trio.lowlevel.Task | None = None
        self.lost: Exception | None = None

    def admitted(self) -> None:
        self._wake()

    def fail(self, error: Exception) -> None:
        if self.task is not None:  # its sender waits for a seat; once it has one, it gets no error any more
            self.lost = error
            self._wake()

    def _wake(self) -> None:
        task = self.task
        if task is not None:
            self.task = None
            self.slot.rt.timers.woke = True
            reschedule(task)

    @property
    def waits_for_answer(self) -> bool:
        return False

    def waiting_tasks(self) -> tuple[trio.lowlevel.Task, ...]:
        return () if self.task is None else (self.task,)


class SelfEnvelope(Tell):
    """A message of an agent to itself that needs time: it keeps its reserved seat until it begins."""

    __slots__ = ()


class OutgoingTell(Tell):
    """A message of an agent's turn that found no seat: while it waits here, its agent gets no turn.

    Once it waits, `holds` is its agent, which it lets go when it has a seat or when that incarnation ends.
    """

    __slots__ = ("holds",)

    def __init__(self, slot: Any, op: Operation, args: tuple[Any, ...], sender: Any) -> None:
        super().__init__(slot, op, args, sender)
        self.holds: Any = None

    def admitted(self) -> None:
        holds, self.holds = self.holds, None
        if holds is not None:
            holds.outgoing_admitted(self)

    def fail(self, error: Exception) -> None:
        self.admitted()


class Ask(Envelope):
    """A request whose asker is parked until the answer comes, which wakes the asker directly."""

    __slots__ = ("bucket", "error", "task", "value")

    def __init__(
        self,
        slot: Any,
        op: Operation,
        args: tuple[Any, ...],
        sender: Any,
        task: trio.lowlevel.Task | None,
    ) -> None:
        self.slot = slot
        self.op = op
        self.args = args
        self.sender = sender
        self.phase = NEW
        self.run = None
        self.trace = None
        self.task = task
        self.value: Any = None
        self.error: Exception | None = None
        self.bucket: Bucket | None = None

    @property
    def deadline(self) -> float | None:
        """The time, in the clock's seconds, at which an unanswered request fails; None without a deadline."""
        entry = self.bucket.get(self) if self.bucket is not None else None
        return entry[1] if entry is not None else None

    def answer(self, value: Any) -> None:
        self.phase = DONE
        task = self.task
        if task is not None:
            self.task = None
            self.value = value
            self.slot.rt.timers.woke = True
            reschedule(task)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.answer(None)

    def abort(self, _: object) -> Abort:
        """Let the cancelled asker go, which withdraws the request then."""
        self.task = None
        return Abort.SUCCEEDED

    def waiting_tasks(self) -> tuple[trio.lowlevel.Task, ...]:
        return () if self.task is None else (self.task,)


class Bucket(dict[Ask, tuple[float, float]]):
    """The asks whose deadlines are in the same hundredth of a second, and the timer that ends them."""

    __slots__ = ("far", "tick", "timer")

    far: bool
    tick: int
    timer: Timer


class InternalTurn:
    """A turn of an agent's own timer, which has a seat of its own and is not counted."""

    __slots__ = ("args", "fn", "trace")

    @property
    def affordance(self) -> str:
        """The affordance that `current_request` reports for this turn."""
        return "timer"

    def __init__(self, fn: Any, args: tuple[Any, ...] = ()) -> None:
        self.fn = fn
        self.args = args
        self.trace: Mark | None = None  # the mark of its origin, where an instrument looks

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function to run now, which is called without the agent, and its arguments."""
        return self.fn, self.args


class PeriodicTurn(InternalTurn):
    """A turn of a periodic timer, into which further firings are merged while it waits."""

    __slots__ = ("waiting",)

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.waiting = False

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function to run now, and let the next firing queue this turn again."""
        self.waiting = False
        return super().take()

    def taken_up(self) -> InternalTurn:
        """Return the turn to run after the service time, and let the next firing queue this turn again."""
        self.waiting = False
        return InternalTurn(self.fn, self.args)


class PromptTurn(InternalTurn):
    """The turn of an agent's timer of 0 seconds; it was cancelled if its `timer` has no callback."""

    __slots__ = ("slot", "timer")

    slot: Any
    timer: Timer


class PromptTurns(InternalTurn):
    """The turns of an agent's timers of 0 seconds, in order, as one item of its queue.

    The item stays behind the messages that were put back, and before those that have not been taken yet. Each
    time the item is taken it runs the first of its turns; the agent puts the item back while there are more.
    """

    __slots__ = ("in_row", "is_queued", "turns")

    def __init__(self) -> None:
        super().__init__(None)
        self.turns: list[PromptTurn] = []
        self.is_queued = False
        self.in_row = 0
        """How many of its turns have run since the agent handled anything else."""

    def first(self) -> PromptTurn | None:
        """Remove and return the first turn that has not been cancelled, or None if there is none."""
        self.is_queued = False
        while self.turns:
            turn = self.turns.pop(0)
            if turn.timer.callback is not None:
                turn.timer.callback = None
                turn.timer.leave()
                self.in_row += 1
                return turn
        return None

    def take(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the function of the first turn and its arguments, or a function that does nothing."""
        turn = self.first()
        if turn is None:
            self.fn = self.trace = None
            return _nothing, ()
        self.fn, self.args, self.trace = turn.fn, turn.args, turn.trace
        turn.slot.turns.leave = True  # what it brings back comes next, and then those that are left
        return self.fn, self.args


def _nothing() -> None:
    """Do nothing, as the turn of cancelled timers."""


class Stashed(BaseException):
    """Ends a turn, or a run in its first step, whose message is put aside; it never leaves the runtime."""


class SelfMessage(tuple[Any, ...]):
    """A message of an agent to itself, which has a reserved seat and otherwise is like any other."""

    trace: Mark | None = None
    """The trace in which it was sent; set where traces are kept. No slot, as a tuple cannot have any."""
