"""Circles of waits: what happens once a new wait has closed one.

There are two kinds. One search (`_circles.py`) looks for both whenever something begins to wait for something
else. A request that is taken at once closes none: its run is newer than all that could wait for it.

**A message waits for a seat.** No agent has accepted it yet, so it can be refused where other messages of a
deadlock cannot. It is refused when every way in which its seat could come free waits, in the end, for its own
sender. Cancels and deadlines do not count as ways. So no wait for a seat stays part of a deadlock among the
agents of one node. Such a circle closes at one of two moments:

- A message begins to wait for a seat. The circle is looked for there and then (`closed_by`), as if the
  message waited already, and the error is raised at the line that sends.
- A message waits, and then something else changes: a task begins to wait for an answer, or a message is in
  line for its action's concurrency or is put aside, so that its seat comes free in another way than before.
  The search looks at such a change once the running code has yielded (`look_again`), and only while any
  message waits for a seat (`Runtime.full_slots`). The line that sent a message refused then has run already:
  a task that waits for its seat gets the error, a message of `self.send` becomes a dead letter. If there is
  a choice, a message whose error a task gets is refused. A change that leads into a deadlock without a seat
  in it also stops all who counted on what is stuck now. The search does not reach them from there, so it
  then looks at all seats for which messages wait. That is much work, and rare.

**Requests alone.** All of them have been accepted, and a circle of them may be intended: code may count on a
deadline. So a circle must be certain before it is reported:

- A deadline, or a scope that code has made, around a wait of the circle or of its request may end the
  circle. Then the circle is only noted in the trace. Callers outside the circle do not count: when they lose
  patience, the runs end, but the mistake remains.
- A run with several tasks is held up by the request of one of them, as a nursery waits for all. But another
  of its tasks may cancel that request. So as long as one task can go on, the circle is not certain. It is
  looked at again after 1 s, 2 s, 4 s and so on, TIMES times, and then reported in real time all the same.
- An action that allows several runs is held up if all its runs are.

A certain circle causes a warning, once for the same lines. On virtual time it ends the node with Deadlocked.
With `circles="fail"` the request that has closed the circle fails.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors._core import time_jumps
from lmos_actors.errors import Deadlocked, DeadlockWarning, MailboxFull, WouldDeadlock

from ._callers import requests_of
from ._circles import Link, Search, Wait, frees_seats, in_mailbox, seems_open, starts_of, way
from ._circles_afar import PAUSE, FarLink, FarNode, Labels, Step, Walk, circle_at, graph_of, plain_of, step_of
from ._remote_requests import Far
from ._waiting import SHOWN, USER, is_choice, stuck_among, title_of
from .messages._gates import ENDING, SERIAL
from .messages._invocation import CURRENT, Run
from .messages._mailbox import DONE, PARKED, Envelope, OutgoingTell
from .slot._slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import EndOfWait

    from ._runtime import Runtime
    from ._waiting import Node
    from .messages._operation import Operation

FIRST: Final = 1.0
"""Seconds after which a circle that another task may still end is looked at again; then twice as many."""

TIMES: Final = 6
"""Looks after which, in real time, the circle counts as certain: it has stood for about a minute."""

SAID: Final = 1000
"""The most circles, at different lines, that a node warns of."""

_ALL: Final = object()
"""Stands for a change that any message waiting for a seat may have counted on."""


class CircleSearch:
    """See `Circles`, by which the slots of one node use this search; `fails` is `circles="fail"`."""

    __slots__ = ("_changed", "_fails", "_labels", "_rt", "_said", "_walks")

    def __init__(self, rt: Runtime, *, fails: bool = False) -> None:
        self._rt = rt
        self._fails = fails
        self._changed: list[Any] = []
        self._said: set[frozenset[str]] = set()
        self._labels = Labels(rt)
        self._walks: dict[str, Any] = {}  # begun less than PAUSE ago, and what is to be looked at since

    # ---- messages that wait for seats

    def closed_by(self, envelope: Envelope) -> tuple[str, ...]:
        """Return the waits of the deadlock that a message would close by waiting for a seat, or ()."""
        if not envelope.holds_sender or frees_seats(envelope.slot):
            return ()
        if isinstance(envelope, OutgoingTell) and envelope.sender.state >= ENDING:
            return ()  # nothing is left to be held back
        search = Search(envelope)
        if search.has_seat_soon(envelope):
            return ()
        stuck = search.stuck_from([(envelope.slot,)])
        circle = _circle_through(envelope, stuck)
        if stuck and not circle:
            self._look_later(_ALL)
        return _texts(circle)

    def look_again(self, changed: Any) -> None:
        """Check whether a change has closed a circle, once the code that runs now has yielded."""
        if not isinstance(changed, Slot | Envelope):  # who stands in line for the run of this task
            run = CURRENT.get()
            changed = next(iter(_line_at(run.slot, run.op)), None) if isinstance(run, Run) else None
            if changed is None:
                return
        self._rt.is_in_line = True
        if (self._rt.full_slots or _is_request_of_agent(changed)) and not seems_open(changed):
            self._look_later(changed)

    def _look_later(self, changed: Any) -> None:
        if not self._changed:  # by a timer: what runs now may be in the middle of something
            self._rt.timers.call_at(trio.current_time(), self._look)
        self._changed.append(changed)

    @enable_ki_protection
    def _look(self) -> None:
        changed, self._changed = self._changed, []
        seen: set[Any] = set()  # several may wait for the answer to one key
        for each in changed:
            if self._rt.full_slots:
                found = self.closed_since(each)
                while found is not None and self.refuse(*found):
                    found = self.closed_since(each)
            if _is_request_of_agent(each) and in_mailbox(each) not in seen:
                seen.add(in_mailbox(each))
                self.look_at_request(each)

    def refuse(self, envelope: Envelope, circle: tuple[str, ...]) -> bool:
        """Refuse a message that waits for a seat in a deadlock; return whether that has ended its wait."""
        slot = envelope.slot
        slot.refuse_parked(envelope, MailboxFull(slot.path, slot.mailbox.size, circle=circle))
        return True

    def closed_since(self, changed: Any) -> tuple[Envelope, tuple[str, ...]] | None:
        """Return a message that a change has deadlocked, with the waits of the deadlock, or None."""
        found: list[Wait] = []
        stuck = {} if changed is _ALL else Search(None).stuck_from(starts_of(changed))
        if stuck:
            found = _circle_among(stuck, changed)
        if not found and (stuck or changed is _ALL):
            seats = [(slot,) for slot in self._rt.full_slots]
            found = _circle_among(Search(None).stuck_from(seats), changed)
        return (found[0].envelope, _texts(found)) if found else None

    # ---- requests

    @enable_ki_protection
    def look_at_request(self, request: Any, times: int = 0) -> None:
        """Report a circle that a request has closed by waiting; it has been looked at `times` before."""
        if request.phase == DONE:
            return
        envelope = in_mailbox(request)
        search = Search(None, looks_on=True)
        reached = search.reach(starts_of(request))
        circle = _circle_through(envelope, stuck_among(reached, _may_end, search.loose))
        if circle:
            self.deadlocked(envelope, _told(circle), circle[0].own)
            return
        if search.far:
            self._look_afar(request, times)
        circle = _circle_through(envelope, stuck_among(reached))
        if circle:
            self._may_end(request, _told(circle), {wait.end for wait in circle}, times)

    def _may_end(self, request: Any, steps: list[Step], ends: set[EndOfWait | None], times: int) -> None:
        """Note a circle that may still end, and look again later if only another task can end it."""
        known = sorted(filter(None, ends))
        if not times:
            self._note(request, steps, known[0] if known else "task")
        if not known and times < TIMES:
            again = partial(self.look_at_request, request, times + 1)
            self._rt.timers.call_after(FIRST * 2**times, again)
        elif not known and not time_jumps():
            self._warn([*steps, Step("", "another task of a run in it goes on, and has not ended it so far")])

    def _note(self, request: Any, steps: list[Step], ends: str | None) -> None:
        """Note a circle in the trace, with whatever may still end it."""
        texts = _shown([step.text for step in steps])
        self._rt.record("circle", request.slot, affordance=request.op.name, waits=texts, ends=ends)

    def deadlocked(self, request: Any, steps: list[Step], own: Any = None) -> None:
        """Report a circle that cannot end by itself, by a warning or an error as the node is configured.

        `own` is the request of the task that closed the circle, if another represents it in the mailbox.
        """
        self._note(request, steps, None)
        texts = _shown([step.text for step in steps])
        if self._fails:
            failing = own or request
            if failing.slot.withdraw(failing):
                failing.fail(WouldDeadlock(request.slot.path, request.op.name, texts))
            return
        if time_jumps():
            now = f"at {trio.current_time():g} s of virtual time requests wait for each other"
            self._end_node(Deadlocked(f"{now}\n{_text_of(steps)}"))
        else:
            self._warn(steps)

    def _end_node(self, error: Exception) -> None:
        if self._rt.fatal is not None:
            self._rt.fatal(error)

    def _warn(self, steps: list[Step]) -> None:
        """Warn of a circle, unless the same lines have been warned of before."""
        texts = [step.text for step in steps]
        places = [step.place for step in steps if step.place]
        key = frozenset(places or texts)
        if key in self._said or len(self._said) >= SAID:
            return
        self._said.add(key)
        file, _, line = places[-1].rpartition(":") if places else ("lmos_actors", "", "0")
        try:
            warnings.warn_explicit(_text_of(steps), DeadlockWarning, file, int(line), registry={})
        except DeadlockWarning as error:  # where warnings are errors, it is one of the node
            self._end_node(error)

    # ---- requests over several nodes

    def describe(
        self, request: Any, asked: tuple[str, ...], then: Callable[[dict[str, Any]], None], *, shows: bool
    ) -> None:
        """Report to another node what its request waits for; `asked`: ids on the way here, its own last."""
        search = Search(None, looks_on=True)
        starts = starts_of(request)
        graph = graph_of(search, search.reach(starts), self._labels, shows=shows)
        if starts and graph:
            graph[asked[-1]] = FarNode("ways", False, [FarLink(self._labels.of(starts[0]))])
        Walk(self._rt, graph, list(search.far), asked, lambda found: then(plain_of(found)))

    def _look_afar(self, request: Any, times: int, before: list[str] | None = None) -> None:
        """Walk over other nodes from what a request waits for; `before` is the circle that was found."""
        search = Search(None, looks_on=True)
        starts = starts_of(request)
        reached = search.reach(starts)
        if not starts or not search.far:
            return
        start = self._labels.of(starts[0])
        if before is None:
            if start in self._walks:
                self._walks[start] = request, times
                return
            self._walks[start] = None
            self._rt.timers.call_after(PAUSE, partial(self._walk_again, start))
        graph = graph_of(search, reached, self._labels, shows=True)
        seen = partial(self._seen_afar, request, start, times, before)
        Walk(self._rt, graph, list(search.far), (), seen)

    @enable_ki_protection
    def _walk_again(self, start: str) -> None:
        later = self._walks.pop(start)
        if later is not None and later[0].phase != DONE:
            self._look_afar(*later)

    @enable_ki_protection
    def _seen_afar(
        self, request: Any, start: str, times: int, before: list[str] | None, graph: dict[str, FarNode]
    ) -> None:
        if request.phase == DONE:
            return
        circle = circle_at(start, graph, certain=True)
        certain = bool(circle)
        circle = circle or circle_at(start, graph, certain=False)
        places = [link.to for link in circle]
        closing = self._closing(request, places[-2:-1])
        if closing is None:
            return
        steps = [step_of(link) for link in circle if link.text]
        if not certain:
            self._may_end(closing, steps, {link.end for link in circle}, times)
        elif before is None:
            self._look_afar(request, times, places)
        elif places == before:
            self.deadlocked(closing, steps)
        else:
            self._may_end(request, steps, set(), times + 1)

    def _closing(self, request: Any, label: list[str]) -> Any:
        """Return the request that closed a circle by waiting for `request`, or None if it closed earlier."""
        for each in (request, *_line_at(request.slot, request.op)):
            for caller in requests_of(each):
                if (
                    isinstance(caller, Far)
                    and caller.asked is not None
                    and [caller.asked.message_id] == label
                ):
                    return caller
                if each is request and [self._labels.of(_run_of(caller))] == label:
                    return caller
        return None


def _is_request_of_agent(changed: Any) -> bool:
    """Return whether a change is a wait for an answer by the code of an agent, here or in another node."""
    if not isinstance(changed, Envelope) or not changed.waits_for_answer:
        return False
    return changed.sender is not None or changed.peer is not None


def _line_at(slot: Slot, op: Operation) -> list[Envelope]:
    """Return the requests that wait for a run of an action to end, or for the run of a serial agent."""
    line = slot.queue if slot.gate == SERIAL else slot.ensure_extra().pending.get(op.original, ())
    return [each for each in line if isinstance(each, Envelope)]


def _run_of(request: Envelope) -> Run | None:
    """Return the run whose task waits for a request."""
    found = (task.context.get(CURRENT) for task in request.waiting_tasks())
    return next((run for run in found if isinstance(run, Run)), None)


def _may_end(node: Node) -> bool:
    """Return whether one open way is enough for a node, as for a run, whose tasks may cancel one another."""
    return is_choice(node) or not isinstance(node, Slot)


def _circle_through(envelope: Envelope, stuck: dict[Node, list[Link]]) -> list[Wait]:
    """Return the waits of a circle through a request's wait, which comes first; empty without a circle."""
    for node, links in stuck.items():
        for other, wait in links:
            if wait is not None and wait.envelope is envelope:
                path = way(other, node, stuck)
                if path is not None:
                    return [wait, *path]
    return []


def _told(circle: list[Wait]) -> list[Step]:
    """Return the waits of a circle as text, beginning with the agent that was started first."""

    def started(place: int) -> float:
        waiter = circle[place].waiter
        slot = waiter.slot if isinstance(waiter, Run) else waiter
        return slot.number if isinstance(slot, Slot) else float("inf")

    first = min(range(len(circle)), key=started)
    shown = [wait.shown(placed=True) for wait in (*circle[first:], *circle[:first])]
    return [Step(edge.waiter or USER, str(edge), edge.place) for edge in shown]


def _text_of(steps: list[Step]) -> str:
    title = title_of([step.waiter for step in steps if step.waiter])
    return "\n  ".join([title, *_shown([step.text for step in steps])])


def _circle_among(stuck: dict[Node, list[Link]], changed: Any) -> list[Wait]:
    """Return the waits of a circle with a wait for a seat, beginning with that; none without a circle.

    The changed message is the first choice, messages of turns are the last: they become dead letters.
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
        path = way(seat, node, stuck)
        if path is not None:
            return [wait, *path]
    return []


def _texts(circle: list[Wait]) -> tuple[str, ...]:
    """Return the waits of a circle as text."""
    return _shown([str(each.shown()) for each in circle])


def _shown(texts: list[str]) -> tuple[str, ...]:
    if len(texts) <= SHOWN:
        return tuple(texts)
    return (*texts[: SHOWN - 1], f"... and {len(texts) - SHOWN + 1} more waits")
