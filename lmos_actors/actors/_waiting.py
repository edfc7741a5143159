"""The waiting graph of a node: which task or agent waits for which, built only when it is asked for.

Nothing is kept for it while agents work: what waits is found in the mailboxes, and who waits in the context
of the parked tasks. A wait belongs to a *run*, or to an agent whose turns are held back; so an agent
that serves others while one of its runs waits is in no circle. What is waited for is one of four things:

- a run, which goes on when all that it waits for has come;
- an agent's turns, which go on when its messages have seats and, if it is serial, its run has ended;
- a seat in a mailbox, free when a turn begins, or when a run in line begins;
- an action's concurrency, free when any of its runs ends.

Beside these, a task in `ref.ready()` waits for something that the runtime sees no end of: a
supervisor, a directory or a connection. So does a message to an agent of another node that is not sent
yet: it waits for credit, which comes back when messages before it begin there, or for room on the connection.

A message that an agent has put aside waits for a further turn or run, which may change the behaviour.

A handler that waits for an item of its input stream waits for the source, and the source for whatever the
task that iterates it waits for; a timer or a socket is not shown here. A source that is too far ahead waits
for the run.

A wait for something that can still happen is no deadlock; circles are looked for among the rest. A circle
in which a message waits for a seat does not stay: see `_blocking.py`.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from .messages._gates import SERIAL
from .messages._input_streams import streams_among
from .messages._invocation import CURRENT, Run
from .messages._mailbox import (
    DONE,
    PARKED,
    PENDING,
    RUNNING,
    STASHED,
    Envelope,
    InternalTurn,
    OutgoingTell,
    SelfEnvelope,
    SelfMessage,
)
from .slot._calls import LocalCall, LocalStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import trio

    from ._parking import ReadyWait
    from ._runtime import Runtime
    from ._unsent import Outbox
    from .messages._input_streams import InputStream, Source
    from .messages._invocation import OwnTask
    from .messages._operation import Operation
    from .slot._slot import Slot

WaitingKind: TypeAlias = Literal["answer", "seat", "concurrency", "ready", "credit", "room", "item"]

SHOWN: Final = 50  # the most waits, and names of one circle, that are shown

USER: Final = "user code"


@attrs.frozen
class Waiting:
    """One wait: `waiter` cannot go on before `target` has done something.

    Both are paths of agents, None for code outside any agent. What is waited for:

    | `kind` | the waiter waits for | `why` |
    |---|---|---|
    | "answer" | the answer to `affordance` | |
    | "seat" | a seat for `affordance`; a stream and a source: for a reader that is too far behind | |
    | "concurrency" | the end of one of the runs of `affordance` | |
    | "ready" | the start of the agent, near or far; `affordance` is "" | what it lacks |
    | "credit" | credit of an agent of another node, whose path there is `target` | its address |
    | "room" | room on the connection to that agent | its address |
    | "item" | an item of an input stream from its caller, None for one elsewhere | the stream's name |

    `run` names the waiting run's action; for code outside agents and, with `own_task`, for an agent's
    lifespan and nursery, it names the task. It is None when a message of a turn holds the waiter back.
    """

    waiter: str | None
    target: str | None
    kind: WaitingKind
    affordance: str
    run: str | None = None
    why: str = ""
    own_task: bool = False
    place: str = attrs.field(default="", eq=False)
    """The line of the waiting task, as `file:line`; only where a circle is reported."""

    def __str__(self) -> str:
        itself = self.waiter is not None and self.waiter == self.target
        target = "itself" if itself else self.target or USER
        place = f" ({self.place})" if self.place else ""
        return f"{self._who()} waits for {_WHAT[self.kind].format(self.affordance, target, self.why)}{place}"

    def _who(self) -> str:
        if self.waiter is None:
            return f"{USER} ({self.run})" if self.run is not None else USER
        if self.own_task:
            return f"{self.waiter} (its task {self.run!r})"
        return f"{self.waiter} ({f'run of {self.run!r}' if self.run is not None else 'its turns'})"


_WHAT: Final[dict[WaitingKind, str]] = {
    "answer": "the answer to {0!r} from {1}",
    "seat": "a seat for {0!r} with {1}",
    "concurrency": "room for one more run of {0!r} in {1}",
    "ready": "{1} to be ready: {2}",
    "credit": "credit to send {0!r} to {1} ({2})",
    "room": "room on the connection to send {0!r} to {1} ({2})",
    "item": "the next item of {2!r} from {1}",
}


@attrs.frozen
class WaitingGraph:
    """All waits of one instant, in the start order of their agents. As text: circles first, at most 50."""

    edges: tuple[Waiting, ...]
    _cycles: tuple[tuple[Waiting, ...], ...] = attrs.field(default=(), repr=False)

    def cycles(self) -> tuple[tuple[Waiting, ...], ...]:
        """Return the circles of waits that nothing inside them can end, each once, from its first wait on.

        Cancellation and deadlines may still end a circle. Of overlapping circles at least one is returned.
        """
        return self._cycles

    def __str__(self) -> str:
        return "\n".join(_lines(self.edges, self._cycles)) or "no agent or task waits for another"


def _lines(edges: tuple[Waiting, ...], cycles: tuple[tuple[Waiting, ...], ...]) -> Iterator[str]:
    left = SHOWN
    reported: dict[int, None] = {}
    for number, cycle in enumerate(cycles):
        if left <= 0:
            yield f"... and {len(cycles) - number} more deadlocks"
            break
        yield _title(cycle)
        reported.update((id(edge), None) for edge in cycle)
        yield from (f"  {edge}" for edge in cycle[:left])
        if len(cycle) > left:
            yield f"  ... and {len(cycle) - left} more"
        left -= len(cycle)
    rest = [edge for edge in edges if id(edge) not in reported]
    shown = rest[: max(0, left)]
    yield from map(str, shown)
    if len(rest) > len(shown):
        yield f"... and {len(rest) - len(shown)} more waits"


def _title(cycle: tuple[Waiting, ...]) -> str:
    return title_of([edge.waiter or USER for edge in cycle])


def title_of(names: list[str]) -> str:
    """Return the heading for the waits of a circle, made of the names of the waiters."""
    first = names[0]
    if names.count(names[0]) == len(names):
        return f"deadlock: {names[0]} waits for itself"
    if len(names) > SHOWN:
        names = [*names[:SHOWN], f"... {len(names) - SHOWN} more ..."]
    return "deadlock: " + " -> ".join([*names, first])


def waiting_graph(slots: Iterable[Slot], rt: Runtime | None = None) -> WaitingGraph:
    """Build the graph of the agents of these slots as they are now. Never waits.

    With `rt`, the graph includes the waits for agents to be ready, and the waits to send to agents of other
    nodes. In a turn, it lacks the other messages that the dispatcher has taken from that agent's mailbox.
    """
    search = _Search()
    for slot in slots:
        if slot.extra is not None or slot.queue:
            search.look_at(slot)
    if rt is not None:
        for wait in rt.ready_waits.open:
            search.look_at_ready(wait)
        for outbox in rt.outboxes:
            search.look_at_unsent(outbox)
    return search.graph()


E = TypeVar("E")

Node: TypeAlias = Any
"""The object of a wait: a run, a source, a slot (its turns), `(slot,)` (a seat), `(slot, op)` (its
concurrency), `(slot, ASIDE)` (one more turn or run)."""


class _Search:
    """The waits found so far, and the links that they form between nodes."""

    def __init__(self) -> None:
        self._found: list[tuple[float, Waiting]] = []
        self._carriers: dict[trio.lowlevel.Task, Source] = {}
        self._waits: list[tuple[trio.lowlevel.Task, Node, int]] = []  # task, node, and place in `_found`
        self._links: dict[Node, list[tuple[Node, int | None]]] = {}

    # ---- finding

    def look_at(self, slot: Slot) -> None:
        """Add the waits for one agent."""
        path = slot.path
        for envelope in _open_envelopes(slot):
            self._take(path, envelope)
        extra = slot.extra
        if extra is None:
            return
        if slot.gate == SERIAL:
            self._link_all(slot, extra.runs)
        if extra.parked:
            self._link_all((slot,), ways_to_a_seat(slot, []))
        for op, line in extra.pending.items():
            if line:
                self._link_all((slot, op), runs_before(slot, op))
        if extra.stash is not None:
            self._link_all((slot, STASHED), [slot, *extra.runs])

    def look_at_ready(self, wait: ReadyWait) -> None:
        """Add a wait for an agent to be ready, which is in no circle, as it can always still happen."""
        path, why = wait.link.path, wait.link.unready()
        self._add_task(wait.task, (wait,), Waiting(None, path, "ready", "", why=why))

    def look_at_unsent(self, outbox: Outbox) -> None:
        """Add the messages that wait to be sent to another node, which is always still possible."""
        for kind, message in outbox.unsent():
            edge = Waiting(None, message.path, kind, message.affordance, why=outbox.place)
            held = message.held_sender()
            if held is not None:
                self._add(held, held, (message,), attrs.evolve(edge, waiter=held.path))
            for task in message.waiting_tasks():
                self._add_task(task, (message,), edge)

    def _add_task(self, task: trio.lowlevel.Task, node: Node, edge: Waiting) -> None:
        """Add a waiting task: a run, one of an agent's own tasks, or code outside any agent."""
        self._waits.append((task, node, len(self._found)))
        run = task.context.get(CURRENT)
        edge = waiting_of_task(edge, run, task)
        if run is None:
            self._found.append((math.inf, edge))
        else:
            self._add(run.slot, run, node, edge)

    def _link_all(self, node: Node, others: Iterable[Node]) -> None:
        self._links.setdefault(node, []).extend((other, None) for other in others)

    def _take(self, path: str, envelope: Envelope) -> None:
        kind, node = awaited(envelope)
        name = envelope.op.name
        if isinstance(envelope, OutgoingTell) and envelope.holds is not None:
            held = envelope.holds
            self._add(held, held, node, Waiting(held.path, path, kind, name))
        held = envelope.held_sources() if isinstance(envelope, LocalCall) else ()
        for task in envelope.waiting_tasks():
            self._add_task(task, node, Waiting(None, path, "seat" if task in held else kind, name))
        for stream in streams_among(envelope.op, envelope.args) if envelope.op.streams else ():
            self._take_stream(envelope, stream)
        if isinstance(envelope, LocalStream) and envelope.room is not None:
            consumer = envelope.consumer
            target = consumer.slot.path if consumer is not None else None
            self._add_task(envelope.room, consumer, Waiting(None, target, "seat", name))

    def _take_stream(self, envelope: Envelope, stream: InputStream) -> None:
        """Add a handler that waits for an item, and note the task that iterates the source."""
        sources = envelope.sources if isinstance(envelope, LocalCall) else None
        found = () if sources is None else sources.sources
        source = next((each for each in found if each.target is stream), None)
        carrier = None if source is None else source.task
        if source is not None and carrier is not None:
            self._carriers[carrier] = source
        if stream.receiver is not None:
            caller = None if carrier is None else carrier.context.get(CURRENT)
            target = None if caller is None else caller.slot.path
            edge = Waiting(None, target, "item", envelope.op.name, why=stream.name)
            self._add_task(stream.receiver, source, edge)

    def _add(self, slot: Slot, waiter: Node, node: Node, edge: Waiting) -> None:
        self._links.setdefault(waiter, []).append((node, len(self._found)))
        self._found.append((slot.number, edge))

    # ---- circles

    def graph(self) -> WaitingGraph:
        """Return the graph: the waits in their agents' start order, and the circles that cannot end."""
        for task, node, number in self._waits:
            if task in self._carriers:
                self._links.setdefault(self._carriers[task], []).append((node, number))
        order = sorted(range(len(self._found)), key=lambda n: self._found[n][0])
        places = {number: place for place, number in enumerate(order)}
        edges = tuple(self._found[number][1] for number in order)
        circles: dict[tuple[int, ...], None] = {}
        stuck = stuck_among(self._links)
        seen: dict[Node, None] = {}
        for start in stuck:
            for found in _circles(start, stuck, seen) if start not in seen else ():
                circle = [places[number] for number in found]
                first = circle.index(min(circle))
                circles[(*circle[first:], *circle[:first])] = None
        return WaitingGraph(edges, tuple(tuple(edges[n] for n in circle) for circle in sorted(circles)))


def ways_to_a_seat(slot: Slot, in_hand: list[Any]) -> list[Node]:
    """Return all nodes that free a seat: turns, and runs whose end lets a message in line begin.

    `in_hand`: items that the dispatcher has taken from the queue and not begun. Returns [] if a way is open.
    """
    extra, waiting = slot.extra, [in_hand, slot.queue]
    ways: list[Node] = []
    if extra is not None:
        for op, line in extra.pending.items():
            if any(map(holds_seat, line)):
                runs = runs_before(slot, op)
                if not runs:
                    return []
                ways += runs
        if extra.stash is not None:
            waiting.append(extra.stash.all_messages())
    if any(map(holds_seat, chain.from_iterable(waiting))):
        ways.append(slot)
    return ways


def holds_seat(item: Any) -> bool:
    """Return whether an item of a mailbox holds a seat that another message can take after it."""
    if isinstance(item, Envelope):
        return item.phase != DONE and not isinstance(item, SelfEnvelope)
    return not isinstance(item, (InternalTurn, SelfMessage))


def runs_before(slot: Slot, op: Operation) -> list[Run]:
    """Return the runs of an action; one of them has to end before a message in line for it begins.

    Empty if one more may run: the agent is held from outside, or the last run is kept for another peer.
    """
    extra = slot.ensure_extra()
    line = extra.pending.get(op)
    if line and extra.active.get(op, 0) < next(iter(line)).op.concurrency:
        return []
    return [run for run in extra.runs if run.op.original is op]


def is_choice(node: Node) -> bool:
    """Return whether a node can go on by any one of its links; otherwise it needs all of them."""
    return isinstance(node, tuple)


def stuck_among(
    all_links: dict[Node, list[tuple[Node, E]]],
    is_choice: Callable[[Node], bool] = is_choice,
    loose: Iterable[Node] = (),
) -> dict[Node, list[tuple[Node, E]]]:
    """Remove all nodes that can still go on; return the others, with the links among them.

    `loose` nodes may go on regardless of their links.
    """
    waiters: dict[Node, list[Node]] = {}
    needs: dict[Node, int] = {}
    for node, links in all_links.items():
        needs[node] = 1 if is_choice(node) else len(links)
        for other, _ in links:
            waiters.setdefault(other, []).append(node)
    done: dict[Node, None] = {node: None for node in (*needs, *waiters) if not all_links.get(node)}
    done.update((node, None) for node in loose)
    free = deque(done)
    while free:
        for node in waiters.get(free.popleft(), ()):
            needs[node] -= 1
            if needs[node] <= 0 and node not in done:
                done[node] = None
                free.append(node)
    return {
        node: [link for link in links if link[0] not in done]
        for node, links in all_links.items()
        if node not in done
    }


def waiting_of_task(edge: Waiting, run: Run | OwnTask | None, task: trio.lowlevel.Task) -> Waiting:
    """Return an edge with its waiter: a run, one of an agent's own tasks, or a task outside agents."""
    if run is None:
        return attrs.evolve(edge, run=task.name)
    own = not isinstance(run, Run)
    return attrs.evolve(edge, waiter=run.slot.path, run=task.name if own else run.op.name, own_task=own)


def _open_envelopes(slot: Slot) -> Iterator[Envelope]:
    """Yield the envelopes for which a task may wait, the nearest to its answer first; some may be done."""
    extra = slot.extra
    if extra is not None:
        yield from (run.envelope for run in extra.runs)
        for line in extra.pending.values():
            yield from line
        if extra.pace is not None and isinstance(extra.pace.item, Envelope):
            yield extra.pace.item
    yield from (item for item in slot.queue if isinstance(item, Envelope))
    if extra is not None:
        if extra.stash is not None:
            yield from (item for item in extra.stash.all_messages() if isinstance(item, Envelope))
        yield from extra.parked or ()


def awaited(envelope: Envelope) -> tuple[WaitingKind, Node]:
    """Return the next event that an envelope in a mailbox or a run waits for, and the node behind it."""
    slot, phase = envelope.slot, envelope.phase
    if phase == PARKED:
        return "seat", (slot,)
    if phase == PENDING:
        return "concurrency", (slot, envelope.op.original)
    if phase == STASHED:
        return "answer", (slot, STASHED)
    return "answer", envelope.run if phase == RUNNING else slot


def _circles(
    start: Node, links: dict[Node, list[tuple[Node, int | None]]], seen: dict[Node, None]
) -> Iterator[list[int]]:
    """Search depth first, without recursion, and yield a circle's edges where the path meets itself."""
    places: dict[Node, int] = {start: 0}
    path: list[tuple[Node, int | None, Iterator[Any]]] = [(start, None, iter(links[start]))]
    seen[start] = None
    while path:
        node, _, rest = path[-1]
        step = next(rest, None)
        if step is None:
            path.pop()
            del places[node]
            continue
        other, edge = step
        if other in places:
            edges = [*(e for _, e, _ in path[places[other] + 1 :]), edge]
            yield [e for e in edges if e is not None]
        elif other not in seen:
            seen[other] = None
            places[other] = len(path)
            path.append((other, edge, iter(links[other])))
