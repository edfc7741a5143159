"""Circles of full mailboxes: a message that waits for a seat in one, and could never get it, is refused.

A message that waits for a seat has been accepted by nobody, so it can be refused where other messages of a
deadlock cannot. It is refused when every way in which its seat could come free waits, in the end, for its own
sender: by the rule of the waiting graph (`_waiting.py`), with the nodes that are explained there. Cancels and
deadlines do not count as ways. So no wait for a seat stays part of a deadlock among the agents of one node.
Circles of requests alone stay: all of their messages have been accepted.

Such a circle closes at one of two moments:

- **A message begins to wait for a seat.** It is looked for there and then (`closed_by`), as if the message
  waited already, and the error is raised at the line that sends.
- **A message waits, and then something else changes:** somebody waits for an answer, or a message stands in
  line for its action's concurrency or is put aside, so that it frees its seat by another way than before.
  That is looked at when the code that runs now has let go (`look_again`), and only while a message waits for
  a seat at all (`Runtime.full_slots`). A message that is refused then has its line behind it: a task that
  waits for its seat gets the error, a message of `self.send` becomes a dead letter. If there is a choice, one
  of which a task learns is refused.

A change that leads into a deadlock without a seat in it, such as an agent that asks itself, takes a way from
all who have counted on what is stuck now. They are not reached from there, so then all seats are looked at
for which messages wait. That is much, and rare.

What is waited for is not looked for in all mailboxes, as the waiting graph does: a node may have very many
agents, and under load senders begin to wait all the time. The search begins at the seat and goes only where
waits lead. What a task waits for is in its `custom_sleep_data`, which trio empties when the task is woken; a
task in whose place there is nothing waits for something of its own, such as a socket, and can go on.

A turn that runs now leaves its seat when it has ended, and the seats of turns before it in the batch in hand
become free with it. As many messages as that makes room for wait for nobody. Those behind them wait for the
next turn, which does not come if this one is held back. So two agents that flood each other get the error at
the line that would close the circle, and not when the turn has ended.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import trio
from trio.lowlevel import current_task, enable_ki_protection

from lmos_actors.errors import MailboxFull

from ._dispatcher import batch_in_hand
from ._waiting import (
    SHOWN,
    Node,
    Waiting,
    WaitingKind,
    awaited,
    holds_seat,
    runs_before,
    stuck_among,
    waiting_of_task,
    ways_to_a_seat,
)
from .finding._gather import Gathering
from .messages._gates import ENDING, SERIAL
from .messages._input_streams import InputStream, Source
from .messages._invocation import CURRENT, OwnTask, Run
from .messages._mailbox import (
    ATTACHED,
    DONE,
    HELD_BACK,
    NEW,
    PARKED,
    PENDING,
    RUNNING,
    STASHED,
    Envelope,
    OutgoingTell,
)
from .slot._calls import LocalStream
from .slot._slot import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ._runtime import Runtime
    from .messages._operation import Operation

_NO_WAIT: Final = (NEW, DONE, HELD_BACK)
"""Phases in which an answer is there or comes without a turn, a run or a seat."""

_WAITS: Final = (Envelope, Gathering, InputStream)
"""The `custom_sleep_data` of a task that waits for an agent."""


@attrs.frozen(eq=False)
class _Wait:
    """One wait: who cannot go on before what."""

    waiter: Node
    envelope: Envelope
    kind: WaitingKind
    task: trio.lowlevel.Task | None = None  # None: a message of a turn
    target: Slot | None = None  # None: the agent of the envelope
    why: str = ""

    def shown(self) -> Waiting:
        """Return it as the waiting graph shows it."""
        target, name = self.target or self.envelope.slot, self.envelope.op.name
        edge = Waiting(None, target.path, self.kind, name, why=self.why)
        if self.task is None:
            return attrs.evolve(edge, waiter=self.waiter.path)
        run = self.waiter if isinstance(self.waiter, Run) else self.task.context.get(CURRENT)
        return waiting_of_task(edge, run, self.task)


_Link: TypeAlias = "tuple[Node, _Wait | None]"

_ALL: Final = object()
"""In the place of a change: one that any message may have counted on that waits for a seat."""


class CircleSearch:
    """See `SeatCircles`, the interface of this to the slots of one node."""

    __slots__ = ("_changed", "_rt")

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._changed: list[Any] = []

    def closed_by(self, envelope: Envelope) -> tuple[str, ...]:
        """Return the waits of the deadlock that a message would close by waiting for a seat, () if none."""
        if not envelope.holds_sender or _frees_seats(envelope.slot):
            return ()
        if isinstance(envelope, OutgoingTell) and envelope.sender.state >= ENDING:
            return ()  # nothing is left to be held back
        search = _Search(envelope)
        if search.has_seat_soon(envelope):
            return ()
        seat = (envelope.slot,)
        stuck = search.stuck_from([seat])
        for node, links in stuck.items():
            for _, wait in links:
                if wait is not None and wait.envelope is envelope:
                    path = _path(seat, node, stuck)
                    if path is not None:
                        return _texts(wait, path)
        if stuck:
            self._look_later(_ALL)
        return ()

    def look_again(self, changed: Any) -> None:
        """Have a message refused that waits for a seat, if what has changed makes its wait a deadlock."""
        if not _seems_open(changed):
            self._look_later(changed)

    def _look_later(self, changed: Any) -> None:
        if not self._changed:  # by a timer: what runs now may be in the middle of something
            self._rt.timers.call_at(trio.current_time(), self._look)
        self._changed.append(changed)

    @enable_ki_protection
    def _look(self) -> None:
        changed, self._changed = self._changed, []
        for each in changed:
            found = self.closed_since(each)
            while found is not None and self.refuse(*found):
                found = self.closed_since(each)

    def refuse(self, envelope: Envelope, circle: tuple[str, ...]) -> bool:
        """Refuse a message that waits for a seat in a deadlock; return whether that has ended its wait."""
        slot = envelope.slot
        slot.refuse_parked(envelope, MailboxFull(slot.path, slot.mailbox.size, circle=circle))
        return True

    def closed_since(self, changed: Any) -> tuple[Envelope, tuple[str, ...]] | None:
        """Return a message whose wait for a seat a change has made part of a deadlock, and that; or None."""
        found = None
        stuck = {} if changed is _ALL else _Search(None).stuck_from(_starts(changed))
        if stuck:
            found = _circle_among(stuck, changed)
        if found is None and (stuck or changed is _ALL):
            seats = [(slot,) for slot in self._rt.full_slots]
            found = _circle_among(_Search(None).stuck_from(seats), changed)
        return None if found is None else (found[0].envelope, _texts(*found))


# ---- at a glance: nearly always something goes on, and then nothing is looked for


def _frees_seats(slot: Slot) -> bool:
    """Return whether it is seen at a glance that a seat of the agent comes free."""
    extra = slot.extra
    if slot.queue and _takes_turns(slot) and slot.turns.slot is not slot and holds_seat(slot.queue[0]):
        return True
    lines = () if extra is None else extra.pending.items()
    return any(_ends_a_run(slot, op) for op, line in lines if any(map(holds_seat, line)))


def _takes_turns(slot: Slot) -> bool:
    """Return whether nothing of the agent's own holds its turns back."""
    return slot.gate != SERIAL and (slot.extra is None or not slot.extra.out)


def _ends_a_run(slot: Slot, op: Operation) -> bool:
    """Return whether it is seen at a glance that a run of an action goes on."""
    runs = runs_before(slot, op)
    return not runs or _goes_on(runs[0])


def _goes_on(run: Run) -> bool:
    """Return whether a run waits for no agent. One whose code runs now may be about to."""
    task = None if run.runner is None else run.runner.home
    if task is None:
        return True
    waits = task.child_nurseries or isinstance(task.custom_sleep_data, _WAITS)
    return not waits and CURRENT.get() is not run


def _seems_open(changed: Any) -> bool:
    """Return whether it is seen at a glance that a change has closed no circle."""
    if isinstance(changed, Slot):
        aside = changed.extra is not None and changed.extra.stash is not None
        return _frees_seats(changed) and (not aside or _takes_turns(changed))
    slot, phase = changed.slot, changed.phase
    if phase == PARKED:
        return changed.holds_sender or _frees_seats(slot)  # it was looked at when it began to wait
    if phase == PENDING:
        return _ends_a_run(slot, changed.op.original)
    if phase == RUNNING:
        return _goes_on(changed.run)
    return phase != ATTACHED and _takes_turns(slot)


def _starts(changed: Any) -> list[Node]:
    """Return the nodes from which all waits are reached that a change may have closed to a circle."""
    if isinstance(changed, Slot):
        return [(changed,), (changed, STASHED)]
    envelope = _in_mailbox(changed)
    if envelope.phase in _NO_WAIT:
        return []
    slot = envelope.slot
    parked = slot.extra is not None and slot.extra.parked
    return [awaited(envelope)[1], *([(slot,)] if parked else [])]


def _in_mailbox(envelope: Envelope) -> Envelope:
    """Return the envelope that stands for one, of those that have a key, and for others like it."""
    if envelope.phase != ATTACHED:
        return envelope
    found: Envelope = envelope.slot.output_gate.state.requests.request_of(envelope)
    return found


class _Search:
    """The waits that are reached from some nodes, all links of one instant."""

    def __init__(self, new: Envelope | None) -> None:
        self._new = new  # it waits for a seat as soon as nothing speaks against it
        self._by_turn = isinstance(new, OutgoingTell)
        self._task = None
        if new is not None and not self._by_turn and not new.is_keyed:  # whose callers wait already
            self._task = current_task()
        self._soon: dict[Slot, int] = {}
        self._openers: dict[Node, trio.lowlevel.Task] = {}  # of streams, in tasks of an agent's own
        self._links: dict[Node, list[_Link]] = {}

    def stuck_from(self, starts: Iterable[Node]) -> dict[Node, list[_Link]]:
        """Return the nodes that cannot go on, with their links among themselves."""
        found: dict[Node, list[_Link]] = {}
        left = list(starts)
        while left:
            node = left.pop()
            if node in found:
                continue
            links = found[node] = self._links_of(node)
            if isinstance(node, tuple) and any(not self._links_of(other) for other, _ in links):
                found[node] = []  # one of its ways is open
            else:
                left += [other for other, _ in links]
        return stuck_among(found)

    def has_seat_soon(self, envelope: Envelope) -> bool:
        """Return whether the seat of a message that waits for one becomes free by the turn that runs now."""
        slot = envelope.slot
        soon = self._seats_soon(slot)
        if not soon:
            return False
        line = _line(slot)
        return (envelope is self._new and len(line) < soon) or envelope in islice(line, soon)

    def _seats_soon(self, slot: Slot) -> int:
        """Return how many seats are free once the turns that have begun are counted."""
        soon = self._soon.get(slot)
        if soon is None:
            free = max(0, slot.size - (slot.accepted - slot.begun)) if slot.size > 0 else 0
            begun = batch_in_hand(slot)[0] if slot.turns.slot is slot else ()
            soon = self._soon[slot] = free + sum(type(item) is tuple for item in begun)
        return soon

    def _in_hand(self, slot: Slot) -> list[Any]:
        """Return what is in the queue once the turn that runs now has ended, and is not yet."""
        left = batch_in_hand(slot)[1] if slot.turns.slot is slot else []
        return [*left, *islice(_line(slot), self._seats_soon(slot))]

    # ---- what has to happen before a node goes on

    def _links_of(self, node: Node) -> list[_Link]:
        links = self._links.get(node)
        if links is None:
            links = self._links[node] = list(self._look_at(node))
        return links

    def _look_at(self, node: Node) -> Iterator[_Link]:
        if isinstance(node, Slot):
            return self._of_turns(node)
        if isinstance(node, Run):
            return self._of_tasks(node, None if node.runner is None else node.runner.home)
        if isinstance(node, Source):
            return self._of_tasks(node, node.task)
        if isinstance(node, OwnTask):
            return self._of_tasks(node, self._openers[node])
        slot = node[0]
        if len(node) == 1:
            others: list[Node] = ways_to_a_seat(slot, self._in_hand(slot))
        elif node[1] == STASHED:
            others = [slot, *slot.ensure_extra().runs]
        else:
            others = [*runs_before(slot, node[1])]
        return iter([(other, None) for other in others])

    def _of_turns(self, slot: Slot) -> Iterator[_Link]:
        """Return what an agent's turns wait for: seats for all of its messages, the end of a `serial` run."""
        new = self._new
        if new is not None and self._by_turn and new.sender is slot:
            yield (new.slot,), _Wait(slot, new, "seat")
        extra = slot.extra
        if extra is None:
            return
        seats: set[Slot] = set()
        for held in cast("Iterable[Any]", extra.out):  # those to agents of other nodes are of another class
            waits = isinstance(held, OutgoingTell) and held.phase == PARKED and held.slot not in seats
            if waits and not self.has_seat_soon(held):
                seats.add(held.slot)
                yield (held.slot,), _Wait(slot, held, "seat")
        if slot.gate == SERIAL:
            yield from ((run, None) for run in extra.runs)

    def _of_tasks(self, node: Node, task: trio.lowlevel.Task | None) -> Iterator[_Link]:
        """Return what a task waits for, and all tasks in nurseries that it has opened: in a fixed order."""
        found: dict[Node, _Wait] = {}
        tasks = [] if task is None else [task]
        while tasks:
            task = tasks.pop()
            for nursery in task.child_nurseries:
                tasks += nursery.child_tasks
            for other, wait in self._of_task(node, task):
                known = found.get(other)
                if known is None or wait.envelope is self._new or _is_before(wait, known):
                    found[other] = wait
        if len(found) == 1:
            return iter(found.items())
        return iter(sorted(found.items(), key=_order))  # the tasks of a nursery have none

    def _of_task(self, node: Node, task: trio.lowlevel.Task) -> Iterator[tuple[Node, _Wait]]:
        awaits: Any = task.custom_sleep_data
        if task is self._task and self._new is not None:
            yield (self._new.slot,), _Wait(node, self._new, "seat", task)
        elif isinstance(awaits, InputStream):
            yield from _of_item(node, task, awaits)
        elif isinstance(awaits, LocalStream) and awaits.room is task:
            consumer = awaits.consumer
            if consumer is not None:
                self._openers[consumer] = awaits.opener
                yield consumer, _Wait(node, awaits, "seat", task, consumer.slot)
        elif isinstance(awaits, Envelope):
            yield from self._of_envelope(node, task, awaits)
        elif isinstance(awaits, Gathering):
            for part in awaits.parts:
                yield from self._of_envelope(node, task, part)

    def _of_envelope(
        self, node: Node, task: trio.lowlevel.Task, envelope: Envelope
    ) -> Iterator[tuple[Node, _Wait]]:
        envelope = _in_mailbox(envelope)
        if envelope is self._new:
            yield (envelope.slot,), _Wait(node, envelope, "seat", task)
        elif envelope.phase == PARKED and self.has_seat_soon(envelope):
            if envelope.waits_for_answer:
                yield envelope.slot, _Wait(node, envelope, "answer", task)
        elif envelope.phase not in _NO_WAIT:
            kind, other = awaited(envelope)
            yield other, _Wait(node, envelope, kind, task)


def _is_before(wait: _Wait, other: _Wait) -> bool:
    """Return whether of two waits for one thing this is the one that is shown, or refused."""
    one, two = wait.envelope, other.envelope
    if one.phase == two.phase == PARKED and one.slot is two.slot:
        return next(each for each in one.slot.extra.parked if each is one or each is two) is one
    return (one.slot.number, one.op.name) < (two.slot.number, two.op.name)


def _order(link: tuple[Node, _Wait]) -> tuple[int, str, str, int]:
    node, wait = link
    slot = wait.envelope.slot
    place = [*slot.extra.runs].index(node) if isinstance(node, Run) and node in slot.extra.runs else 0
    return slot.number, wait.kind, wait.envelope.op.name, place


def _of_item(node: Node, task: trio.lowlevel.Task, stream: InputStream) -> Iterator[tuple[Node, _Wait]]:
    """Return what the handler waits for that takes an item of a caller in this node."""
    call = stream.call
    if call is None or call.sources is None:
        return
    for source in call.sources.sources:
        if source.target is stream and source.task is not None:
            caller = source.task.context.get(CURRENT)
            target = None if caller is None else caller.slot
            yield source, _Wait(node, call, "item", task, target, stream.name)


def _line(slot: Slot) -> Collection[Envelope]:
    """Return the messages that wait for a seat with an agent."""
    extra = slot.extra
    return () if extra is None or extra.parked is None else extra.parked


# ---- circles


def _circle_among(stuck: dict[Node, list[_Link]], changed: Any) -> tuple[_Wait, list[_Wait]] | None:
    """Return a wait for a seat that is in a circle, and the other waits of that; None if there is none.

    The one that has changed is the first choice, and messages of turns are the last: they are dead letters.
    """
    waits = [
        (wait, node, other)
        for node, links in stuck.items()
        for other, wait in links
        if wait is not None and wait.envelope.phase == PARKED and other == (wait.envelope.slot,)
    ]
    for wait, node, seat in sorted(
        waits, key=lambda each: (each[0].envelope is not changed, each[0].task is None)
    ):
        path = _path(seat, node, stuck)
        if path is not None:
            return wait, path
    return None


def _path(start: Node, end: Node, links: dict[Node, list[_Link]]) -> list[_Wait] | None:
    """Return the waits on a shortest way from one node to another, None if there is no way."""
    before: dict[Node, _Link | None] = {start: None}
    left = deque([start])
    while left and end not in before:
        node = left.popleft()
        for other, wait in links[node]:
            if other not in before:
                before[other] = node, wait
                left.append(other)
    if end not in before:
        return None
    waits: list[_Wait] = []
    step = before[end]
    while step is not None:
        node, wait = step
        waits += [] if wait is None else [wait]
        step = before[node]
    return waits[::-1]


def _texts(wait: _Wait, path: list[_Wait]) -> tuple[str, ...]:
    """Return the waits of a circle in words."""
    waits = [wait, *path]
    texts = [str(each.shown()) for each in waits[:SHOWN]]
    if len(waits) > SHOWN:
        texts[-1] = f"... and {len(waits) - SHOWN + 1} more waits"
    return tuple(texts)
