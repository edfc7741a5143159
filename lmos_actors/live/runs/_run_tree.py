"""The tree of one run according to its log: its agents, and the messages sent to them.

A log names agents by path and does not mention supervisors, so every place above an agent counts as a
supervisor. Counts are kept as records arrive. Sums over a large tree are computed when somebody looks, and
kept for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import nlargest
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final

import attrs

from .._survey import MOST_TOP, Sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .._merge_patch import State
    from .._survey import Order
    from ._run_log import LogRecord

MOST_AGENTS: Final = 200_000
"""Agents of one run that are shown; others are left out."""

MOST_UNDER_WAY: Final = 20_000
"""Messages that are followed from their sender to their end."""

REST: Final = 50
"""How long the sums are kept, in multiples of the time that it took to make them."""

KEPT: Final = 0.5
"""Seconds of real time for which the sums are kept at least."""

ENDS: Final = frozenset({"answered", "refused", "dropped", "cancelled"})
"""The kinds of records with which a message ends."""


@attrs.define(eq=False)
class Place:
    """An agent, or a place above agents: `below` has its children by name, `children` has them in order."""

    path: str
    name: str
    depth: int
    index: int = 0
    """Its number among the children of the place above it."""
    cls: str = ""
    is_agent: bool = False
    status: str = "running"
    life: int = 1
    waiting: int = 0
    running: int = 0
    handled: int = 0
    below: dict[str, Place] = attrs.field(factory=dict[str, "Place"])
    children: list[Place] = attrs.field(factory=list["Place"])
    sums: Sums | None = None
    handled_before: int = 0
    rate: float = 0.0


@attrs.define(eq=False)
class MessageOnWay:
    """A message that has been sent and has not ended, by an answer or otherwise."""

    place: Place
    sender: str
    affordance: str
    sent: float
    trace: int | None
    begun: bool = False


class RunTree:
    """The agents of one run, as the views of a tree show them; see `Tree`.

    `class_at` returns the class of the agent at a path, "" if unknown. `now` returns the current time of the
    run.
    """

    def __init__(self, class_at: Callable[[str], str], now: Callable[[], float]) -> None:
        self._class_at, self._now = class_at, now
        self.root = Place("", "root", 0)
        self.by_path: dict[str, Place] = {}
        """The agents."""
        self.order: list[Place] = []
        """The agents in the order of their first records."""
        self.down: dict[str, str] = {}
        """The status of the agents that do not run, by their paths."""
        self.messages: OrderedDict[int | str, MessageOnWay] = OrderedDict()
        self._survey_due = 0.0
        self._surveyed_at = 0.0
        self.passes = 0
        self._tops: dict[Order, list[tuple[float, Place]]] = {}

    # ---- records

    def take(self, record: LogRecord) -> MessageOnWay | None:
        """Bring the tree up to date with a record; return the message that the record ends, if any."""
        kind = record.kind
        if kind == "sent":
            self._sent(record)
            return None
        if kind == "delivered":
            message = self.messages.get(record.id) if record.id is not None else None
            if message is not None and not message.begun:
                message.begun = True
                message.place.waiting -= 1
                message.place.running += 1
            return None
        if kind in ENDS:
            return self._ended(record)
        if kind in _STATUS:
            place = self.agent_at(record.agent)
            if place is not None:
                place.status = _STATUS[kind]
                if kind == "started":
                    place.life = record.incarnation
                    place.running = 0
                    self.down.pop(place.path, None)
                else:
                    self.down[place.path] = place.status
        return None

    def _sent(self, record: LogRecord) -> None:
        place = self.agent_at(record.agent)
        if place is None or record.id is None:
            return
        place.waiting += 1
        self.messages[record.id] = MessageOnWay(
            place, record.from_ or "", record.affordance or "", record.t, record.trace
        )
        if len(self.messages) > MOST_UNDER_WAY:
            _, oldest = self.messages.popitem(last=False)
            _leave(oldest)

    def _ended(self, record: LogRecord) -> MessageOnWay | None:
        message = self.messages.pop(record.id, None) if record.id is not None else None
        if message is not None:
            _leave(message)
            message.place.handled += record.kind == "answered"
        return message

    def end_lives(self, ends: Callable[[str], bool]) -> None:
        """End the agents for which `ends` is true, and the messages to them.

        Used when a node goes down, as no record shows these ends.
        """
        for id, message in list(self.messages.items()):
            if ends(message.place.path):
                del self.messages[id]
                _leave(message)
        for path, place in self.by_path.items():
            if place.status == "running" and ends(path):
                place.status = self.down[path] = "restarting"

    def agent_at(self, path: str) -> Place | None:
        """Return the place of an agent, and make it at first use; None if there are too many agents."""
        found = self.by_path.get(path)
        if found is not None:
            return found
        if len(self.by_path) >= MOST_AGENTS:
            return None
        at = self.root
        for number, name in enumerate(path.split("/"), start=1):
            below = at.below.get(name)
            if below is None:
                above = f"{at.path}/" if at.path else ""
                below = at.below[name] = Place(f"{above}{name}", name, number, len(at.children))
                at.children.append(below)
            at = below
        at.is_agent = True
        at.cls = self._class_at(path)
        self.by_path[path] = at
        self.order.append(at)
        return at

    def at(self, path: str) -> Place | None:
        """Return the place at a path, None if there is none."""
        place: Place | None = self.root
        for name in path.split("/") if path else ():
            place = place.below.get(name) if place is not None else None
        return place

    # ---- sums

    def _survey(self) -> None:
        """Bring sums and tops up to date, unless they are recent."""
        if monotonic() < self._survey_due:
            return
        began, now = thread_time(), self._now()
        seconds = now - self._surveyed_at
        self._sum(self.root)
        for place in self.by_path.values() if seconds > 0 else ():
            place.rate = (place.handled - place.handled_before) / seconds
            place.handled_before = place.handled
        agents = self.by_path.values()
        self._tops = {
            "waiting": _most(agents, lambda place: place.waiting),
            "handled": _most(agents, lambda place: place.rate),
            "restarts": _most(agents, lambda place: place.life - 1),
        }
        self._surveyed_at = now
        self.passes += 1
        self._survey_due = monotonic() + max(KEPT, REST * (thread_time() - began))

    def _sum(self, place: Place) -> Sums:
        sums = Sums()
        for child in place.children:
            if child.is_agent:
                sums.agents += 1
                sums.waiting += max(0, child.waiting)
                sums.handled += child.handled
                sums.restarts += child.life - 1
                sums.down += child.status != "running"
            if child.children:
                sums.add_sums(self._sum(child))
        place.sums = sums
        return sums

    # ---- what views show; see `Tree`

    def path_of(self, place: Place) -> str:
        """See `Tree`."""
        return place.path

    def class_of(self, agent: Place) -> str:
        """See `Tree`."""
        return agent.cls

    def row_of(self, place: Place) -> State:
        """See `Tree`. The row has the same members as a node's row, as far as a log has the data."""
        row: State = {"kind": "agent" if place.is_agent else "supervisor", "name": place.name}
        if place.is_agent:
            row |= {
                "class": place.cls,
                "status": place.status,
                "life": place.life,
                "waiting": max(0, place.waiting),
                "handled": place.handled,
                "running": place.running,
            }
        else:
            row |= {"strategy": "", "status": "running", "life": 1}
        if place.children or not place.is_agent:
            self._survey()
            row["children"] = len(place.children)
            if place.sums is not None:
                row["below"] = attrs.asdict(place.sums)
        return row

    def size_of(self, place: Place) -> int | None:
        """See `Tree`."""
        return len(place.children) or None

    def children_between(self, place: Place, begin: int, end: int) -> Sequence[Place]:
        """See `Tree`."""
        return place.children[begin : max(begin, end)]

    def numbered_children(self, place: Place, names: Iterable[str]) -> Iterable[tuple[int, Place]]:
        """See `Tree`."""
        children = (place.below[name] for name in names if name in place.below)
        return sorted((child.index, child) for child in children)

    def agents(self) -> Callable[[int], Sequence[Place]]:
        """See `Tree`. Agents that are added later are returned too."""
        begin = 0

        def further(count: int) -> Sequence[Place]:
            nonlocal begin
            some = self.order[begin : begin + count]
            begin += len(some)
            return some

        return further

    def top(self, by: Order) -> Sequence[tuple[float, Place]]:
        """See `Tree`. A rate is per second of the run's time."""
        self._survey()
        return self._tops.get(by, [])


_STATUS: Final = {
    "started": "running",
    "stopped": "stopped",
    "crashed": "crashed",
    "restarting": "restarting",
}


def _leave(message: MessageOnWay) -> None:
    if message.begun:
        message.place.running = max(0, message.place.running - 1)
    else:
        message.place.waiting -= 1


def _most(places: Iterable[Place], count: Callable[[Place], float]) -> list[tuple[float, Place]]:
    found = nlargest(MOST_TOP, places, key=count)
    return [(count(place), place) for place in found if count(place) > 0]
