"""The view `agent`: one place of the tree in full, with its agent's state, messages and runs.

Like a crash report, the view shows no value that is marked secret, and no text that contains one. Everything
is bounded, and no code of an agent is called: looking at an agent must not delay it. The runtime does not
record when a message arrived, so `seen` is the time at which this view first saw it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import attrs
import msgspec
import trio
from msgspec import Meta, Struct

from lmos_actors.actors import ALL_EVENTS, DONE, MONITORS, Inspection, Slot, describe, next_turns
from lmos_actors.observe import class_name, task_stack, tasks_in_order
from lmos_actors.protocol.td import dump
from lmos_actors.supervision import Pool, Supervisor, agent_class, children_of, place_at, size_of

from ._merge_patch import without_null

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.actors import Runtime

    from ._crash_text import CrashRows
    from ._merge_patch import State

MESSAGES: Final = 50
RUNS: Final = 10
TASKS: Final = 10
LINES: Final = 60
"""Lines of one stack."""
NAMES: Final = 50
"""Links, monitors, groups or timers that are named."""


class AgentArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: the path of the place to show."""

    path: Annotated[str, Meta(max_length=4_096)]


class AgentView:
    """One place of the tree; `kind` is `gone` while the place is empty."""

    is_busy = False

    def __init__(self, rt: Runtime, root: Supervisor, crashes: CrashRows, arguments: AgentArguments) -> None:
        self._rt = rt
        self._root = root
        self._rows = crashes
        self._path = arguments.path
        self._seen: dict[int, tuple[Any, float]] = {}

    def content(self) -> State:
        """Return all that the view shows of the place."""
        place = place_at(self._root, self._path)
        if place is None:
            return {"kind": "gone"}
        return _supervisor(place) if isinstance(place, Supervisor) else self._agent(place)

    def _agent(self, slot: Slot) -> State:
        below = children_of(slot)
        return {
            "kind": "agent",
            "name": slot.label,
            "status": slot.status,
            "state": slot.state_name,
            "life": slot.incarnation,
            "held": slot.held,
            "running": slot.running(),
            "statistics": _statistics(slot),
            "tasks": _tasks(slot),
            "crashes": self._last_crashes(slot),
            **({} if below is None else {"children": size_of(below)}),
            **self._inside(slot),
            **_relations(slot),
            **self._suspended(slot),
            **_durable(slot),
            **_class(slot),
        }

    def _inside(self, slot: Slot) -> State:
        """Return the fields, the waiting messages and the runs, all without the agent's secrets."""
        waiting = list(islice(_messages(slot), MESSAGES))
        runs = [] if slot.extra is None else list(islice(slot.extra.runs, RUNS))
        look = Inspection(slot, [*(item for _, item in waiting), *(run.envelope for run in runs)])
        shown = look.messages()
        now, known = trio.current_time(), self._seen
        seen = [*(item for _, item in waiting), *runs]
        self._seen = {id(item): known.get(id(item), (item, now)) for item in seen}
        messages = [
            {"place": where, **text, **self._about(item)}
            for (where, item), text in zip(waiting, shown, strict=False)
        ]
        return {
            "fields": look.fields(),
            "mailbox": {**attrs.asdict(slot.mailbox_statistics()), "messages": messages},
            "runs": [
                {
                    **text,
                    **self._about(run),
                    "settled": run.settled,
                    "stack": _stack(None if run.runner is None else run.runner.home),
                }
                for run, text in zip(runs, shown[len(messages) :], strict=True)
            ],
        }

    # ---- what the runtime does not note

    def _about(self, item: Any) -> State:
        """Return when an item was first seen, its deadline, and the principal that sent it, if any."""
        envelope = getattr(item, "envelope", item)
        found: State = {"seen": self._seen[id(item)][1]}
        deadline = getattr(envelope, "deadline", None)
        if deadline is not None:
            found["deadline"] = deadline
        principal = getattr(envelope, "principal", None)
        if isinstance(principal, str):
            found["principal"] = principal
        return found

    def _suspended(self, slot: Slot) -> State:
        """Return why an agent of this node does not run: another node runs it, or the store fails."""
        keeping = self._rt.keeping
        return {"suspended": keeping.why_suspended(slot)[0]} if slot.suspended and keeping is not None else {}

    def _last_crashes(self, slot: Slot) -> list[State]:
        """Return the last three crash reports about the agent, the newest first."""
        crashes = self._rt.crashes
        first = crashes.count - len(crashes.reports) + 1
        mine = [(first + n, each) for n, each in enumerate(crashes.reports) if each.is_of(slot)][-3:]
        return [{"number": number, **self._rows.row(report)} for number, report in reversed(mine)]


# ---- parts


def _supervisor(supervisor: Supervisor) -> State:
    spec, loop = supervisor.spec, supervisor.loop
    pool = loop.made_from
    return {
        "kind": "supervisor",
        **({"pool": pool.by, **_members(pool)} if isinstance(pool, Pool) else {}),
        "name": supervisor.label,
        "status": "running" if supervisor.is_root else supervisor.status,
        "life": supervisor.incarnation,
        "strategy": spec.strategy,
        "max_restarts": spec.max_restarts,
        "max_seconds": spec.max_seconds,
        "children": size_of(supervisor),
        "restarts": loop.restarts,
        "failed_starts": loop.failed_starts,
    }


def _members(pool: Pool[Any]) -> State:
    """Return the class and contract of a pool's members, if they are known without making a member."""
    cls: Any = agent_class(pool.member(1))
    return {} if cls is None else {"class": cls.__name__, "contract": contract_of(cls)}


def _messages(slot: Slot) -> Iterator[tuple[str, Any]]:
    """Yield each message that has not begun, with the place where it waits; the next one comes first."""
    extra = slot.extra
    if extra is not None and extra.pace is not None and extra.pace.item is not None:
        yield "worked on", extra.pace.item
    yield from (("queued", item) for item in slot.queue if getattr(item, "phase", None) != DONE)
    if extra is None:
        return
    for line in extra.pending.values():
        yield from (("in line", envelope) for envelope in line)
    if extra.stash is not None:
        yield from (("put aside", item) for item in extra.stash.all_messages())
    yield from (("no seat", envelope) for envelope in extra.parked or ())


def _statistics(slot: Slot) -> State:
    """Return the message counts of an agent without walking its queue, which may be very long.

    See `AgentStatistics`.
    """
    extra = slot.extra
    found = {"accepted": slot.accepted + slot.inline, "handled": slot.handled + slot.inline}
    for name in ("cancelled", "dropped", "dead_lettered", "refused"):
        found[name] = 0 if extra is None else getattr(extra, name)
    return {**found, "waiting": max(0, slot.accepted - slot.begun), "restarts": slot.restarts}


def _stack(task: trio.lowlevel.Task | None) -> list[str]:
    return [] if task is None else list(islice(task_stack(task), LINES))


def _tasks(slot: Slot) -> list[State]:
    """Return the tasks of the agent's nursery, or the task of its lifespan while it starts or ends."""
    lifespan = None if slot.extra is None else slot.extra.lifespan_task
    if lifespan is None:
        return []
    if slot.status != "running":
        return [{"name": "lifespan", "stack": _stack(lifespan.task)}]
    tasks = () if lifespan.nursery is None else tasks_in_order(lifespan.nursery.child_tasks)
    return [{"name": task.name, "stack": _stack(task)} for task in tasks[:TASKS]]


def _relations(slot: Slot) -> State:
    """Return links, monitors, groups, timers and listeners; empty lists are left out."""
    extra = slot.extra
    if extra is None:
        return {}
    timers = [{"at": when, "turn": title} for when, title in next_turns(slot, NAMES)]
    found: State = {
        "links": _named(each.path if isinstance(each, Slot) else each.name for each in extra.links or ()),
        "monitors": _named(each.watched.path for each in extra.monitors or ()),
        "groups": _named(roll.name for roll in extra.groups or ()),
        "timers": sorted(timers, key=lambda timer: cast("float", timer["at"])),
        "listeners": {} if extra.sinks is None else _listeners(extra.sinks),
    }
    return {name: value for name, value in found.items() if value}


def _named(names: Iterable[str]) -> list[str]:
    return list(islice(names, NAMES))


_PLAIN: Final[dict[str, str]] = {MONITORS: "monitors", ALL_EVENTS: "all events"}


def _listeners(sinks: Any) -> State:
    """Return the number of listeners per property or event: `units` is a property, `!asked` an event."""
    by_key: dict[str, Any] = sinks.by_key
    few = islice(by_key.items(), NAMES)
    return {_PLAIN.get(key, key.removeprefix("?")): len(listening) for key, listening in few}


def _durable(slot: Slot) -> State:
    gate, key = slot.output_gate, slot.spec.key
    own = {} if key is None else {"key": key}
    if gate is None:
        return {"durable": own} if own else {}
    at = {} if gate.kept_at is None else {"at": slot.rt.entropy.time_of(gate.kept_at).timestamp()}
    epoch = {} if gate.state.epoch is None else {"epoch": gate.state.epoch}
    kept = {"restored": gate.restored, "kept": gate.state.has_state, "pending": not gate.empty}
    return {"durable": {**own, **epoch, **kept, **at}}


# ---- what a class offers


def _class(slot: Slot) -> State:
    """Return the class of an agent and what it offers; only the name if the class cannot be found."""
    agent: Any = slot.agent
    cls: Any = agent.__class__ if agent is not None else agent_class(slot.spec)
    if cls is None:
        return {"class": class_name(slot)}
    own: State = {"class": cls.__name__, "module": cls.__module__, "contract": contract_of(cls)}
    if cls.__contract__.options.private:
        own["private"] = True
    if agent is None or not agent.__contract__.behaviours:
        return own
    return {**own, "behaviour": agent.behaviour}


@lru_cache(maxsize=128)
def contract_of(cls: type[Any]) -> State:
    """Return the affordances of a class as in its description, without null values.

    If the class cannot be described, the result has only the member `error`. If there are too many
    affordances, only their names are returned.
    """
    try:
        plain = dump(describe(cls))
    except Exception as error:  # a docstring or a schema may fit no description
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    kinds = ("properties", "actions", "events")
    found: State = {kind: without_null(plain[kind]) for kind in kinds if plain.get(kind)}
    if len(msgspec.json.encode(found)) > 128 << 10:  # then only the names are shown
        found = {kind: {name: {} for name in list(names)[:1000]} for kind, names in found.items()}
    doc = plain.get("description")
    return {**found, "description": doc[:2000]} if isinstance(doc, str) else found
