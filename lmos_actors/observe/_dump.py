"""The dump of a node as text: its tree, its turn, its runs and tasks, and the stacks of user code.

Stacks leave out the calls of the runtime and of trio. A dump is bounded: agents at rest are counted by class,
and long texts are cut. Making it reads only, and never raises: a signal handler may make it between any two
instructions, when any data structure may be half changed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections import Counter
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import timers_of, uncollected
from lmos_actors.actors import title_of, waiting_graph
from lmos_actors.supervision import Supervisor, agent_class, agents_of, children_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from lmos_actors.actors import Runtime, Slot


CALLS: Final = 20  # innermost calls that are shown of one stack
TASKS: Final = 8  # child tasks that are shown of one task

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TRIO: Final = os.path.dirname(trio.__file__) + os.sep
_HIDDEN: Final = (_PACKAGE, _TRIO, contextlib.__file__)


def task_stack(task: trio.lowlevel.Task) -> Iterator[str]:
    """Yield the lines of a task's stack, then the lines of its child tasks."""
    yield from _calls(task.iter_await_frames())
    children = [child for nursery in task.child_nurseries for child in tasks_in_order(nursery.child_tasks)]
    for child in children[:TASKS]:
        yield f"task {child.name!r}"
        yield from ("  " + line for line in task_stack(child))
    if len(children) > TASKS:
        yield f"... and {len(children) - TASKS} more tasks"


def tasks_in_order(tasks: Iterable[trio.lowlevel.Task]) -> list[trio.lowlevel.Task]:
    """Return tasks sorted by name; the order of a set is arbitrary."""
    return sorted(tasks, key=lambda task: task.name)


def thread_stack(frame: FrameType) -> list[str]:
    """Return the lines of user code that a thread runs; none while the runtime or trio waits."""
    calls = dropwhile(lambda call: _is_in(call, _PACKAGE), traceback.walk_stack(frame))
    own = list(takewhile(lambda call: not _is_in(call, *_HIDDEN), calls))
    return list(_calls(reversed(own)))


def _is_in(call: tuple[FrameType, int], *places: str) -> bool:
    return call[0].f_code.co_filename.startswith(places)


def _calls(calls: Iterable[tuple[FrameType, int]]) -> Iterator[str]:
    own = [call for call in calls if not _is_in(call, *_HIDDEN)]
    for entry in traceback.StackSummary.extract(iter(own[-CALLS:])).format():
        yield from entry.rstrip("\n").splitlines()


# --- a whole node as text

LINES: Final = 1000  # the most lines of each part
AGENTS: Final = 100  # agents of one supervisor that are shown one by one
FEW: Final = 20  # children of one supervisor that are all shown
RUNS: Final = 10  # runs of one agent that are shown
LETTERS: Final = 20  # dead letters that are shown, the last ones
MESSAGE: Final = 120  # characters of a dead letter's message that are shown


def dump(root: Supervisor, rt: Runtime, frame: FrameType | None = None) -> str:
    """Return a node as text. `frame` is the frame a signal interrupted. Never raises, whatever agents do."""
    parts: list[tuple[str, Iterator[str]]] = [
        ("head", _head(root, rt)),
        ("turn", _turn(rt, frame)),
        ("tree", _branch(root, "")),
        ("waiting", _waits(root, rt)),
        ("dead letters", _letters(rt)),
    ]
    return "\n".join(line for name, lines in parts for line in _bounded(name, lines))


def _bounded(name: str, lines: Iterator[str]) -> Iterator[str]:
    try:
        yield from islice(lines, LINES)
        if next(lines, None) is not None:
            yield f"... the rest of {name} is left out"
    except Exception as exc:
        yield _unreadable(name, exc)


def _unreadable(name: str, exc: Exception) -> str:
    return f"... {name} cannot be read: {type(exc).__name__}"


def _head(root: Supervisor, rt: Runtime) -> Iterator[str]:
    slots = list(agents_of(root))
    states = Counter(slot.status for slot in slots)
    agents = ", ".join(f"{count} {status}" for status, count in states.items()) or "no agents"
    yield f"node at {rt.entropy.now():%Y-%m-%d %H:%M:%S} UTC; agents: {agents}"


def _turn(rt: Runtime, frame: FrameType | None) -> Iterator[str]:
    """Yield the turn in progress; a run or other code only if a signal interrupted it."""
    here = rt.thread == threading.get_ident()
    slot, current = rt.turns.slot, rt.turns.current
    with uncollected():
        if not here:
            frame = sys._current_frames().get(rt.thread)  # pyright: ignore[reportPrivateUsage] # documented by CPython
        elif frame is None and slot is not None:
            frame = sys._getframe()  # pyright: ignore[reportPrivateUsage] # documented by CPython
        calls = thread_stack(frame) if frame is not None else []
    if slot is not None:
        yield f"turn in progress: {title_of(current)!r} of {slot.path}"
    elif calls:
        yield "running now, in no turn:"
    yield from ("  " + line for line in calls)


# ---- the tree


def _branch(supervisor: Supervisor, indent: str) -> Iterator[str]:
    status = "" if supervisor.is_root else f" {supervisor.status} #{supervisor.incarnation},"
    count = len(supervisor.children)
    yield f"{indent}{supervisor.label} ({supervisor.spec.strategy}),{status} children: {count}"
    yield from _children(supervisor, indent + "  ")


def _children(supervisor: Supervisor, indent: str) -> Iterator[str]:
    children = supervisor.children
    rest: Counter[str] = Counter()
    shown = 0
    for child in children:
        if isinstance(child, Supervisor):
            yield from _branch(child, indent)
        elif shown < AGENTS and (len(children) <= FEW or not _at_rest(child)):
            shown += 1
            yield from _guarded(child, indent)
            below = children_of(child)
            if below is not None:
                yield from _children(below, indent + "  ")
        else:
            rest[_class_name(child)] += 1
    if rest:
        counts = ", ".join(f"{count} {name}" for name, count in rest.items())
        yield f"{indent}... and {counts}"


def _guarded(slot: Slot, indent: str) -> Iterator[str]:
    try:
        yield indent + _agent(slot)
        yield from (f"{indent}  {line}" for line in _doing(slot))
    except Exception as exc:
        yield indent + _unreadable("an agent", exc)


def _at_rest(slot: Slot) -> bool:
    """Return whether nothing waits, runs or is held back, and nothing has gone wrong."""
    extra = slot.extra
    if slot.queue or slot.status != "running" or slot.incarnation > 1:
        return False
    return extra is None or not (
        extra.runs or extra.parked or extra.out or extra.stash or extra.refused or extra.dropped
        or extra.dead_lettered or any(extra.pending.values()) or children_of(slot)
    )  # fmt: skip


def _class_name(slot: Slot) -> str:
    agent: Any = slot.agent
    if agent is not None:
        return str(type(agent).__name__)
    cls = agent_class(slot.spec)
    return cls.__name__ if cls is not None else "agent"


def _agent(slot: Slot) -> str:
    mailbox = slot.mailbox_statistics()
    words = [f"{slot.label} ({_class_name(slot)}), {slot.status} #{slot.incarnation}"]
    if slot.restored:
        words.append("restored")
    words.append(f"mailbox {mailbox.depth}/{mailbox.size}")
    extra = slot.extra
    if extra is not None:
        timers = list(timers_of(extra))
        counts = {
            "parked": len(extra.parked or ()),
            "put aside": len(extra.stash.all_messages()) if extra.stash is not None else 0,
            "in line for a run": sum(map(len, extra.pending.values())),
            "holding back its turns": len(extra.out),
            "running": len(extra.runs),
            "timers": len(timers),
        }
        words += [f"{count} {what}" for what, count in counts.items() if count]
        # The clock of another run counts from elsewhere.
        if timers and slot.rt.thread == threading.get_ident() and trio.lowlevel.in_trio_run():
            words.append(f"the next in {min(timer.when for timer in timers) - trio.current_time():g} s")
    return ", ".join(words)


def _doing(slot: Slot) -> Iterator[str]:
    """Yield the message counts of one agent, and the stacks of its runs and tasks."""
    numbers = slot.statistics()
    doors = ("handled", "cancelled", "dropped", "dead_lettered", "waiting", "running")
    counts = [(door, getattr(numbers, door)) for door in doors]
    if numbers.accepted or numbers.refused:
        parts = " + ".join(f"{count} {door}" for door, count in counts if count) or "0"
        refused = f", refused {numbers.refused}" if numbers.refused else ""
        yield f"accepted {numbers.accepted} = {parts}{refused}"
    extra = slot.extra
    if extra is None:
        return
    for run in islice(extra.runs, RUNS):
        asker = run.sender.path if run.sender is not None else "user code"
        over = ", settled" if run.settled else ""
        yield f"run of {run.op.name!r} for {asker}{over}"
        task = run.runner.home if run.runner is not None else None
        yield from _indented(task_stack, task)
    if len(extra.runs) > RUNS:
        yield f"... and {len(extra.runs) - RUNS} more runs"
    if extra.lifespan_task is not None:
        yield from _holding(extra.lifespan_task, slot)


def _holding(lifespan_task: Any, slot: Slot) -> Iterator[str]:
    if slot.status != "running":
        yield "lifespan"
        yield from _indented(task_stack, lifespan_task.task)
        return
    tasks = tasks_in_order(lifespan_task.nursery.child_tasks) if lifespan_task.nursery is not None else []
    for task in tasks[:RUNS]:
        yield f"task {task.name!r}"
        yield from _indented(task_stack, task)
    if len(tasks) > RUNS:
        yield f"... and {len(tasks) - RUNS} more tasks"


def _indented(
    show: Callable[[trio.lowlevel.Task], Iterable[str]], task: trio.lowlevel.Task | None
) -> Iterator[str]:
    if task is not None:
        yield from ("  " + line for line in show(task))


# ---- waits and losses


def _waits(root: Supervisor, rt: Runtime) -> Iterator[str]:
    graph = waiting_graph(agents_of(root), rt)
    if graph.edges:
        yield "waiting:"
        yield from ("  " + line for line in str(graph).splitlines())


def _letters(rt: Runtime) -> Iterator[str]:
    letters = list(rt.dead_letters)[-LETTERS:]
    if letters:
        yield f"dead letters: {rt.dead_letter_count}, the last {len(letters)}:"
    for letter in letters:
        message = letter.message if len(letter.message) <= MESSAGE else letter.message[:MESSAGE] + "…"
        sender = letter.sender or "user code"
        yield f"  {letter.affordance!r} from {sender} to {letter.agent}: {message} ({letter.reason})"
