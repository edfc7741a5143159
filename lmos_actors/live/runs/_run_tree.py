"""The tree of one run as its log has it: which agents there are, and what they have been sent.

A log names agents by their paths, and no supervisor: so what is above an agent is one. Counts are kept as
records come; sums over a large tree are made when somebody looks, and kept for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import nlargest
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._merge_patch import State
    from ._run_log import LogRecord

MOST_AGENTS: Final = 200_000
"""Agents of one run that are shown; others are left out."""

MOST_UNDER_WAY: Final = 20_000
"""Messages that are followed from their sender to their end."""

REST: Final = 50
"""How much longer than they took to make the sums are kept."""

KEPT: Final = 0.5
"""Seconds of real time for which the sums are kept at least."""

MOST_TOP: Final = 50

ENDS: Final = frozenset({"answered", "refused", "dropped", "cancelled"})
"""The kinds of records with which a message ends."""


@attrs.define(eq=False)
class Place:
    """An agent, or what is above some: then `below` are its children by their names, and in their order."""

    path: str
    name: str
    depth: int
    index: int = 0
    """Its number among the children of what is above it."""
    cls: str = ""
    is_agent: bool = False
    status: str = "running"
    life: int = 1
    waiting: int = 0
    running: int = 0
    handled: int = 0
    below: dict[str, Place] = attrs.field(factory=dict[str, "Place"])
    children: list[Place] = attrs.field(factory=list["Place"])
    sums: State = attrs.field(factory=dict[str, Any])
    handled_before: int = 0
    rate: float = 0.0


@attrs.define(eq=False)
class MessageOnWay:
    """A message that was sent and has not ended."""

    place: Place
    sender: str
    affordance: str
    sent: float
    trace: int | None
    begun: bool = False


class RunTree:
    """The agents of one run. `class_of` returns the class of the agent at a path, "" if unknown."""

    def __init__(self, class_of: Callable[[str], str]) -> None:
        self._class_of = class_of
        self.root = Place("", "root", 0)
        self.agents: dict[str, Place] = {}
        self.order: list[Place] = []
        """The same in the order of their first records."""
        self.down: dict[str, str] = {}
        """The status of those that do not run, by their paths."""
        self.messages: OrderedDict[int | str, MessageOnWay] = OrderedDict()
        self._survey_due = 0.0
        self._surveyed_at = 0.0
        self.passes = 0
        self.tops: dict[str, list[tuple[float, Place]]] = {}

    # ---- records

    def take(self, record: LogRecord) -> MessageOnWay | None:
        """Take one record; return the message that has ended by it, if one has."""
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
        """End agents with their node: no record says so, neither of them nor of the messages to them."""
        for id, message in list(self.messages.items()):
            if ends(message.place.path):
                del self.messages[id]
                _leave(message)
        for path, place in self.agents.items():
            if place.status == "running" and ends(path):
                place.status = self.down[path] = "restarting"

    def agent_at(self, path: str) -> Place | None:
        """Return the place of an agent, made at its first record; None for one beyond the most."""
        found = self.agents.get(path)
        if found is not None:
            return found
        if len(self.agents) >= MOST_AGENTS:
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
        at.cls = self._class_of(path)
        self.agents[path] = at
        self.order.append(at)
        return at

    def at(self, path: str) -> Place | None:
        """Return what is at a path, None where nothing is."""
        place: Place | None = self.root
        for name in path.split("/") if path else ():
            place = place.below.get(name) if place is not None else None
        return place

    # ---- sums

    def survey(self, now: float) -> None:
        """Bring sums and tops up to date, unless they are young; `now` is the instant of the run."""
        if monotonic() < self._survey_due:
            return
        began = thread_time()
        seconds = now - self._surveyed_at
        self._sum(self.root)
        for place in self.agents.values() if seconds > 0 else ():
            place.rate = (place.handled - place.handled_before) / seconds
            place.handled_before = place.handled
        agents = self.agents.values()
        self.tops = {
            "waiting": _most(agents, lambda place: place.waiting),
            "handled": _most(agents, lambda place: place.rate),
            "restarts": _most(agents, lambda place: place.life - 1),
        }
        self._surveyed_at = now
        self.passes += 1
        self._survey_due = monotonic() + max(KEPT, REST * (thread_time() - began))

    def _sum(self, place: Place) -> tuple[int, int, int, int, int]:
        agents = waiting = handled = restarts = down = 0
        for child in place.below.values():
            if child.is_agent:
                agents += 1
                waiting += max(0, child.waiting)
                handled += child.handled
                restarts += child.life - 1
                down += child.status != "running"
            if child.below:
                more = self._sum(child)
                agents, waiting, handled = agents + more[0], waiting + more[1], handled + more[2]
                restarts, down = restarts + more[3], down + more[4]
        names = ("agents", "waiting", "handled", "restarts", "down")
        found = (agents, waiting, handled, restarts, down)
        place.sums = dict(zip(names, found, strict=True))
        return found


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


def _most(places: Any, count: Callable[[Place], float]) -> list[tuple[float, Place]]:
    found = nlargest(MOST_TOP, places, key=count)
    return [(count(place), place) for place in found if count(place) > 0]


# ---- rows and views


def row_of(place: Place) -> State:
    """Return what a row shows of a place, as the views of a node have it."""
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
    if place.below or not place.is_agent:
        row["children"] = len(place.below)
        if place.sums:
            row["below"] = place.sums
    return row


def tree_rows(
    tree: RunTree, now: float, opened: list[str], first: int, most: int, sought: str | None
) -> State:
    """Return the rows of the view `tree`, as of a node."""
    tree.survey(now)
    window = _Window(tree, first, most, sought)
    window.show([tree.root], [tree.root, *filter(None, map(tree.at, opened)), *_above(tree, sought)])
    found: State = {"total": window.number, "from": first, "order": list(window.rows), "rows": window.rows}
    return found if window.at is None else {**found, "at": window.at}


def _above(tree: RunTree, sought: str | None) -> list[Place]:
    """Return what is above the place that is sought: it is gone to as if it were open."""
    names = sought.split("/") if sought else []
    places = (tree.at("/".join(names[:count])) for count in range(1, len(names)))
    return [place for place in places if place is not None]


class _Window:
    """The rows of a tree that are on a screen, `number` all of them; what is closed costs nothing."""

    def __init__(self, tree: RunTree, first: int, most: int, sought: str | None) -> None:
        self.rows: dict[str, State] = {}
        self.number = 0
        self.at: int | None = None
        self._first, self._last = first, first + most
        self._sought = None if sought is None else tree.at(sought)

    def show(self, places: list[Place], opened: list[Place]) -> None:
        """Show places of one level, and what is below those that are open."""
        depth = places[0].depth if places else 0
        beside = (place for place in opened if place.depth == depth and place.children)
        of_level = {
            place.index: place for place in beside if places[place.index : place.index + 1] == [place]
        }
        begin = 0
        for index in sorted(of_level):
            self._add(places, begin, index + 1)
            place, begin = of_level[index], index + 1
            if place.path in self.rows:
                self.rows[place.path]["open"] = True
            self.show(place.children, opened)
        self._add(places, begin, len(places))

    def _add(self, places: list[Place], begin: int, end: int) -> None:
        """Add the rows of some neighbours that have nothing open between them."""
        number = self.number
        sought = self._sought
        if sought is not None and begin <= sought.index < end and places[sought.index] is sought:
            self.at = number + sought.index - begin
        low = begin + max(0, self._first - number)
        high = min(end, begin + max(0, self._last - number))
        for place in places[low:high]:
            self.rows[place.path] = {**row_of(place), "level": place.depth}
        self.number = number + end - begin


def top_rows(tree: RunTree, now: float, by: str, most: int) -> State:
    """Return the rows of the view `top`, as of a node; a rate is a second of the run's time."""
    tree.survey(now)
    found = tree.tops.get(by, [])[:most]
    rows = {place.path: {**row_of(place), "most": round(count, 1)} for count, place in found}
    return {"order": list(rows), "rows": rows, "passes": tree.passes}
