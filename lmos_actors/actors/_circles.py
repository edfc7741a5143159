"""The search for circles of waits: from one node of the waiting graph, only where waits lead.

The rule and the nodes are the waiting graph's (`_waiting.py`). This search does not go through all mailboxes,
as that graph does: a node may have very many agents, and under load runs begin to wait all the time. The wait
of a task is in its `custom_sleep_data`, which trio empties when the task is woken. A task with nothing there
waits for something else, such as a socket, and can go on.

A turn that runs now leaves its seat when it has ended, and the seats of turns before it in the current batch
become free with it. The messages that get these seats wait for no agent. Those behind them wait for the next
turn, which does not come if this one is held back. So two agents that flood each other get the error at the
line that would close the circle, and not when the turn has ended.

`_blocking.py` deals with the circles that are found.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

import attrs
from trio.lowlevel import current_task

from lmos_actors._core import end_of_wait, line_of, waits_for_nursery

from ._dispatcher import batch_in_hand
from ._waiting import (
    Node,
    Waiting,
    WaitingKind,
    awaited,
    holds_seat,
    is_choice,
    runs_before,
    stuck_among,
    waiting_of_task,
    ways_to_a_seat,
)
from .finding._gather import Gathering
from .messages._gates import DRAINING, SERIAL
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
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import trio

    from lmos_actors._core import EndOfWait

    from .messages._operation import Operation

E = TypeVar("E")

_NO_WAIT: Final = (NEW, DONE, HELD_BACK)
"""Phases in which an answer is there or comes without a turn, a run or a seat."""

_WAITS: Final = (Envelope, Gathering, InputStream)
"""The `custom_sleep_data` of a task that waits for an agent."""


class FarRequest(Protocol):
    """A request to another node; only that node can find out what the request waits for in the end."""

    @property
    def path(self) -> str:
        """The path of the agent that the request goes to."""
        ...

    @property
    def affordance(self) -> str:
        """The name of the affordance that the request uses."""
        ...

    @property
    def deadline(self) -> float | None:
        """The time at which the request fails if it is unanswered."""
        ...

    @property
    def number_there(self) -> str | None:
        """The request's id on the wire; None before it is sent, or if it can have none."""
        ...

    @property
    def place(self) -> str:
        """The address of the node that the request goes to."""
        ...

    def here(self) -> Envelope | None:
        """Return the request in its agent's mailbox if that agent is on a simulated node, else None."""
        ...

    def follow(self, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None]) -> None:
        """Ask the request's node what it waits for; `then` is called once, with an empty graph if unknown."""
        ...


@attrs.define(eq=False)
class Wait:
    """One wait: a waiter, and what has to happen before it can go on."""

    waiter: Node
    envelope: Any  # an `Envelope` or a `FarRequest`
    kind: WaitingKind
    task: trio.lowlevel.Task | None = None  # None: a message of a turn
    target: Slot | None = None  # None: the agent of the envelope
    why: str = ""
    own: Any = None
    """The task's own request, where another with its key stands in the mailbox for it."""
    end: EndOfWait | None = None
    """What may end the wait besides an answer, if that was looked for."""

    def shown(self, *, placed: bool = False) -> Waiting:
        """Return the wait as the waiting graph shows it, with the line of the waiting task if `placed`."""
        path, name, _ = named(self)
        edge = Waiting(None, path, self.kind, name, why=self.why)
        if self.task is None:
            return attrs.evolve(edge, waiter=self.waiter.path)
        run = self.waiter if isinstance(self.waiter, Run) else self.task.context.get(CURRENT)
        place = line_of(self.task) if placed else None
        return waiting_of_task(attrs.evolve(edge, place=":".join(map(str, place or ()))), run, self.task)


def named(wait: Wait) -> tuple[str, str, int]:
    """Return the path of the awaited agent, the affordance, and a number for sorting."""
    request = wait.envelope
    if isinstance(request, Envelope):
        return (wait.target or request.slot).path, request.op.name, request.slot.number
    return f"{request.path} of {request.place}", request.affordance, 0


Link: TypeAlias = "tuple[Node, Wait | None]"


# ---- at a glance: nearly always something goes on, and then nothing is looked for


def frees_seats(slot: Slot) -> bool:
    """Return whether a quick check shows that a seat of the agent will come free."""
    extra = slot.extra
    if slot.queue and _takes_turns(slot) and slot.turns.slot is not slot and holds_seat(slot.queue[0]):
        return True
    lines = () if extra is None else extra.pending.items()
    return any(_ends_a_run(slot, op) for op, line in lines if any(map(holds_seat, line)))


def _takes_turns(slot: Slot) -> bool:
    """Return whether neither a serial run nor unsent messages of the agent hold back its turns."""
    return slot.gate != SERIAL and (slot.extra is None or not slot.extra.out)


def _ends_serially(slot: Slot) -> bool:
    """Return whether a quick check shows that all runs of a serial agent go on, so that it can go on."""
    extra = slot.extra
    return extra is not None and not extra.out and slot.gate == SERIAL and all(map(_goes_on, extra.runs))


def _ends_a_run(slot: Slot, op: Operation) -> bool:
    """Return whether a quick check shows that a run of an action goes on."""
    runs = runs_before(slot, op)
    return not runs or _goes_on(runs[0])


def _goes_on(run: Run) -> bool:
    """Return whether a run is known to wait for no agent; false if its code runs now, as it may soon wait."""
    task = None if run.runner is None else run.runner.home
    if task is None:
        return True
    waits = task.child_nurseries or isinstance(task.custom_sleep_data, _WAITS) or far_request_of(task)
    return not waits and CURRENT.get() is not run


def seems_open(changed: Any) -> bool:
    """Return whether a quick check shows that a change has closed no circle."""
    if isinstance(changed, Slot):
        aside = changed.extra is not None and changed.extra.stash is not None
        return frees_seats(changed) and (not aside or _takes_turns(changed))
    slot, phase = changed.slot, changed.phase
    if phase == PARKED:
        return changed.holds_sender or frees_seats(slot)  # it was looked at when it began to wait
    if phase == PENDING:
        return _ends_a_run(slot, changed.op.original)
    if phase == RUNNING:
        return _goes_on(changed.run)
    return phase != ATTACHED and (_takes_turns(slot) or _ends_serially(slot))


def starts_of(changed: Any) -> list[Node]:
    """Return the nodes from which every circle that a change may have closed can be reached."""
    if isinstance(changed, Slot):
        return [(changed,), (changed, STASHED)]
    envelope = in_mailbox(changed)
    if envelope.phase in _NO_WAIT:
        return []
    slot = envelope.slot
    parked = slot.extra is not None and slot.extra.parked
    return [awaited(envelope)[1], *([(slot,)] if parked else [])]


def in_mailbox(envelope: Envelope) -> Envelope:
    """Return the envelope in the mailbox: with a key, the one that represents all callers of the key."""
    if envelope.phase != ATTACHED:
        return envelope
    found: Envelope = envelope.slot.output_gate.state.requests.request_of(envelope)
    return found


class Search:
    """The waits that are reachable from some nodes, all as of the same instant."""

    def __init__(self, new: Envelope | None, *, looks_on: bool = False) -> None:
        self._new = new  # it waits for a seat as soon as nothing speaks against it
        self._looks_on = looks_on  # at what may end waits besides, and at requests to other nodes
        self.loose: dict[Node, None] = {}
        """The runs that may go on without what they wait for: one of their tasks can, or a scope may end."""
        self.far: dict[FarRequest, None] = {}
        """The requests to other nodes that are reached; they have no links here."""
        self._by_turn = isinstance(new, OutgoingTell)
        self._task = None
        if new is not None and not self._by_turn and not new.is_keyed:  # whose callers wait already
            self._task = current_task()
        self._soon: dict[Slot, int] = {}
        self._openers: dict[Node, trio.lowlevel.Task] = {}  # of streams, in tasks of an agent's own
        self._links: dict[Node, list[Link]] = {}

    def stuck_from(self, starts: Iterable[Node]) -> dict[Node, list[Link]]:
        """Return the nodes that cannot go on, with their links among themselves."""
        return stuck_among(self.reach(starts))

    def reach(self, starts: Iterable[Node]) -> dict[Node, list[Link]]:
        """Return the reachable nodes with their links; a choice that has an open way gets no links."""
        found: dict[Node, list[Link]] = {}
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
        return found

    def has_seat_soon(self, envelope: Envelope) -> bool:
        """Return whether a message that waits for a seat gets one through the turn that runs now."""
        slot = envelope.slot
        soon = self._seats_soon(slot)
        if not soon:
            return False
        line = _line(slot)
        return (envelope is self._new and len(line) < soon) or envelope in islice(line, soon)

    def _seats_soon(self, slot: Slot) -> int:
        """Return how many seats of an agent are free, counting those of turns that have begun as free."""
        soon = self._soon.get(slot)
        if soon is None:
            free = max(0, slot.size - (slot.accepted - slot.begun)) if slot.size > 0 else 0
            begun = batch_in_hand(slot)[0] if slot.turns.slot is slot else ()
            soon = self._soon[slot] = free + sum(type(item) is tuple for item in begun)
        return soon

    # ---- what has to happen before a node goes on

    def _links_of(self, node: Node) -> list[Link]:
        links = self._links.get(node)
        if links is None:
            links = self._links[node] = list(self._look_at(node))
        return links

    def _look_at(self, node: Node) -> Iterator[Link]:
        if isinstance(node, Slot):
            return self._of_turns(node)
        if isinstance(node, Run):
            return self._of_tasks(node, None if node.runner is None else node.runner.home)
        if isinstance(node, Source):
            return self._of_tasks(node, node.task)
        if isinstance(node, OwnTask):
            return self._of_tasks(node, self._openers[node])
        if not is_choice(node):
            return iter(())  # a request to another node
        slot, *rest = node
        if not rest:
            # what is in the queue once the turn that runs now has ended, and is not yet
            left = batch_in_hand(slot)[1] if slot.turns.slot is slot else []
            in_hand = [*left, *islice(_line(slot), self._seats_soon(slot))]
            others: list[Node] = ways_to_a_seat(slot, in_hand)
        elif rest[0] == STASHED:
            others = [slot, *slot.ensure_extra().runs]
        else:
            others = [*runs_before(slot, rest[0])]
        return iter([(other, None) for other in others])

    def _of_turns(self, slot: Slot) -> Iterator[Link]:
        """Yield what an agent's turns wait for: seats for its messages, and the end of a `serial` run."""
        new = self._new
        if new is not None and self._by_turn and new.sender is slot:
            yield (new.slot,), Wait(slot, new, "seat")
        extra = slot.extra
        if extra is None:
            return
        seats: set[Slot] = set()
        for held in cast("Iterable[Any]", extra.out):  # messages to other nodes have another class
            waits = isinstance(held, OutgoingTell) and held.phase == PARKED and held.slot not in seats
            if waits and not self.has_seat_soon(held):
                seats.add(held.slot)
                yield (held.slot,), Wait(slot, held, "seat")
        if slot.gate == SERIAL:
            yield from ((run, None) for run in extra.runs)

    def _of_tasks(self, node: Node, task: trio.lowlevel.Task | None) -> Iterator[Link]:
        """Return, in a fixed order, the waits of a task and of all tasks in its open nurseries."""
        found: dict[Node, Wait] = {}
        tasks = [] if task is None else [task]
        while tasks:
            task = tasks.pop()
            for nursery in task.child_nurseries:
                tasks += nursery.child_tasks
            waits = list(self._of_task(node, task))
            if self._looks_on and self._is_loose(node, task, waits):
                self.loose[node] = None
            for other, wait in waits:
                known = found.get(other)
                if known is None or wait.envelope is self._new or _is_before(wait, known):
                    found[other] = wait
        if len(found) == 1:
            return iter(found.items())
        return iter(sorted(found.items(), key=_order))  # the tasks of a nursery have none

    def _is_loose(self, node: Node, task: trio.lowlevel.Task, waits: list[tuple[Node, Wait]]) -> bool:
        """Return whether a task of a run may go on without answers; note in its waits what may end them."""
        run = node if isinstance(node, Run) else task.context.get(CURRENT)
        ends = isinstance(run, Run) and (run.cancelled or run.slot.state >= DRAINING)
        if ends or not (waits or waits_for_nursery(task)):
            return True
        runner = getattr(run, "runner", None)
        end = end_of_wait(task, None if runner is None else runner.scope)
        for _, wait in waits:
            has_deadline = getattr(wait.own or wait.envelope, "deadline", None) is not None
            wait.end = "deadline" if has_deadline else end
        return end is not None or any(wait.end for _, wait in waits)

    def _of_task(self, node: Node, task: trio.lowlevel.Task) -> Iterator[tuple[Node, Wait]]:
        awaits: Any = task.custom_sleep_data
        if task is self._task and self._new is not None:
            yield (self._new.slot,), Wait(node, self._new, "seat", task)
        elif isinstance(awaits, InputStream):
            yield from _of_item(node, task, awaits)
        elif isinstance(awaits, LocalStream) and awaits.room is task:
            consumer = awaits.consumer
            if consumer is not None:
                self._openers[consumer] = awaits.opener
                yield consumer, Wait(node, awaits, "seat", task, consumer.slot)
        elif isinstance(awaits, Envelope):
            yield from self._of_envelope(node, task, awaits)
        elif isinstance(awaits, Gathering):
            for part in awaits.parts:
                yield from self._of_envelope(node, task, part)
        elif self._looks_on and (request := far_request_of(task)) is not None:
            there = request.here()
            if there is not None:
                yield from self._of_envelope(node, task, there, own=request)
            elif request.number_there is not None:
                self.far[request] = None
                yield request, Wait(node, request, "answer", task)

    def _of_envelope(
        self, node: Node, task: trio.lowlevel.Task, envelope: Envelope, own: Any = None
    ) -> Iterator[tuple[Node, Wait]]:
        own, envelope = own or envelope, in_mailbox(envelope)
        if envelope is self._new:
            yield (envelope.slot,), Wait(node, envelope, "seat", task)
        elif envelope.phase == PARKED and self.has_seat_soon(envelope):
            if envelope.waits_for_answer:
                yield envelope.slot, Wait(node, envelope, "answer", task)
        elif envelope.phase not in _NO_WAIT:
            kind, other = awaited(envelope)
            yield other, Wait(node, envelope, kind, task, own=own)


def _is_before(wait: Wait, other: Wait) -> bool:
    """Return whether `wait` is to be shown or refused rather than another wait for the same thing."""
    one, two = wait.envelope, other.envelope
    if wait.kind == other.kind == "seat" and one.slot is two.slot and one.phase == two.phase == PARKED:
        return next(each for each in one.slot.extra.parked if each is one or each is two) is one
    return named(wait)[:0:-1] < named(other)[:0:-1]


def _order(link: tuple[Node, Wait]) -> tuple[int, str, str, int, str]:
    node, wait = link
    path, name, number = named(wait)
    place = 0
    if isinstance(node, Run) and node in node.slot.extra.runs:
        place = [*node.slot.extra.runs].index(node)
    return number, wait.kind, name, place, path


def far_request_of(task: trio.lowlevel.Task) -> FarRequest | None:
    """Return the request to another node for which a parked task waits, or None."""
    awaits = task.custom_sleep_data
    return awaits if hasattr(awaits, "number_there") else None


def _of_item(node: Node, task: trio.lowlevel.Task, stream: InputStream) -> Iterator[tuple[Node, Wait]]:
    """Yield what a handler waits for when it takes an item from a caller in this node."""
    call = stream.call
    if call is None or call.sources is None:
        return
    for source in call.sources.sources:
        if source.target is stream and source.task is not None:
            caller = source.task.context.get(CURRENT)
            target = None if caller is None else caller.slot
            yield source, Wait(node, call, "item", task, target, stream.name)


def _line(slot: Slot) -> Collection[Envelope]:
    """Return the messages that wait for a seat in an agent's mailbox."""
    extra = slot.extra
    return () if extra is None or extra.parked is None else extra.parked


# ---- circles


def way(start: Node, end: Node, links: Mapping[Node, Sequence[tuple[Node, E | None]]]) -> list[E] | None:
    """Return the waits on a shortest path from one node to another, None if there is no path."""
    before: dict[Node, tuple[Node, E | None] | None] = {start: None}
    left = deque([start])
    while left and end not in before:
        node = left.popleft()
        for other, wait in links[node]:
            if other not in before:
                before[other] = node, wait
                left.append(other)
    if end not in before:
        return None
    waits: list[E] = []
    step = before[end]
    while step is not None:
        node, wait = step
        waits += [] if wait is None else [wait]
        step = before[node]
    return waits[::-1]
