"""The views `tree` and `find`: the supervisor tree as rows, of which a viewer gets those on its screen.

A viewer says which places it has opened, and which rows it shows; what is below a closed supervisor are its
sums. So what a viewer gets does not grow with the tree, and what it costs hardly does: of a supervisor with
very many children only those on the screen are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from time import thread_time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import attrs
from msgspec import Meta, Struct

from lmos_actors.observe import class_name
from lmos_actors.supervision import (
    Pool,
    Supervisor,
    agent_class,
    agents_of,
    children_between,
    children_of,
    numbered_children,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lmos_actors.actors import Slot

    from ._merge_patch import State
    from ._survey import Order, Survey

ROOT: Final = ""
"""The path of the root supervisor, as a viewer writes it."""

MOST_OPEN: Final = 500
MOST_ROWS: Final = 300

FIND_SECONDS: Final = 0.005
"""Seconds of processor time that a search takes in one step."""

Path = Annotated[str, Meta(max_length=4_096)]


class TreeArguments(Struct, forbid_unknown_fields=True, rename={"first": "from"}):
    """The rows that are shown: so many from that number on, of the tree with these places open.

    `at` is a path whose number is sought.
    """

    open: Annotated[list[Path], Meta(max_length=MOST_OPEN)] = []
    first: Annotated[int, Meta(ge=0)] = 0
    rows: Annotated[int, Meta(ge=0, le=MOST_ROWS)] = 100
    at: Path | None = None


class FindArguments(Struct, forbid_unknown_fields=True):
    """The agents whose path or class has that text, in any case."""

    text: Annotated[str, Meta(min_length=1, max_length=200)]
    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


@attrs.define
class _Level:
    """The children of one open place, None for the root by itself: those before `shown` have been shown."""

    above: Supervisor | None
    size: int
    opened: Iterator[tuple[int, Slot | Supervisor]]
    depth: int
    shown: int = 0


class TreeView:
    """The rows of one viewer, by their paths."""

    is_busy = False

    def __init__(self, root: Supervisor, survey: Survey, arguments: TreeArguments) -> None:
        self._root = root
        self._survey = survey
        self._first, self._most = arguments.first, arguments.rows
        self._sought = arguments.at
        # what is sought is gone to as if it were open
        self._open: Mapping[str, list[str]] = _by_parent([*arguments.open, *filter(None, [arguments.at])])
        self._is_open = arguments.at in arguments.open

    def content(self) -> State:
        """Return `order`, the paths of the rows; `rows`, what each shows; `total`, how many there are.

        `at` is the number of the row that is sought, if there is one.
        """
        rows: dict[str, State] = {}
        sought: State = {}
        number = 0
        root: tuple[int, Slot | Supervisor] = (0, self._root)
        stack = [_Level(None, 1, iter([root]), 0)]
        while stack:
            level = stack[-1]
            at, opened = next(level.opened, (level.size - 1, None))
            stop = at + 1
            begin = max(level.shown, level.shown + self._first - number)
            end = min(stop, level.shown + self._first + self._most - number)
            for child in self._some(level.above, begin, end):
                rows[path_of(child)] = {**row_of(child, self._survey), "level": level.depth}
            number += stop - level.shown
            level.shown = stop
            if opened is None:
                stack.pop()
                continue
            if path_of(opened) == self._sought:
                sought["at"] = number - 1
                if not self._is_open:
                    continue
            below = _below(opened)
            if below is not None:
                if (row := rows.get(path_of(opened))) is not None:
                    row["open"] = True
                stack.append(self._level(below, path_of(opened), level.depth + 1))
        return {"total": number, "from": self._first, "order": list(rows), "rows": rows, **sought}

    def _some(self, above: Supervisor | None, begin: int, end: int) -> list[Slot | Supervisor]:
        """Return the places of a level from one number to another."""
        if above is not None:
            return children_between(above, begin, end)
        return [self._root] if begin < end else []

    def _level(self, above: Supervisor, path: str, depth: int) -> _Level:
        opened = numbered_children(above, self._open.get(path, ()))
        return _Level(above, size_of(above), iter(opened), depth)


class Search:
    """A search through all agents of a node, step by step, as there may be very many.

    It is made once: what comes later is not in it. `matches` returns whether an agent is sought, `row` what
    is shown of it; `most` rows are enough.
    """

    def __init__(
        self, root: Supervisor, matches: Callable[[Slot], bool], row: Callable[[Slot], State], most: int
    ) -> None:
        self._rest = agents_of(root)
        self._matches, self._row = matches, row
        self._most = most
        self._found: list[Slot] = []
        self.looked_at = 0
        """The number of agents that have been looked at."""
        self.is_busy = True
        """Whether there is more to be searched."""

    def content(self) -> State:
        """Search on, and return the rows of the matches; `complete` once all agents have been looked at."""
        until = thread_time() + FIND_SECONDS
        while self.is_busy and thread_time() < until:
            some = list(islice(self._rest, 100))
            self.looked_at += len(some)
            self._found += filter(self._matches, some)
            self.is_busy = bool(some) and len(self._found) < self._most
        rows = {slot.path: self._row(slot) for slot in self._found[: self._most]}
        complete = not self.is_busy and len(self._found) < self._most
        return {"order": list(rows), "rows": rows, "complete": complete}


class FindView:
    """The agents that match a text, found step by step."""

    def __init__(self, root: Supervisor, survey: Survey, arguments: FindArguments) -> None:
        self._text = arguments.text.casefold()
        self._classes: dict[str, bool] = {}
        self._search = Search(root, self._matches, lambda slot: row_of(slot, survey), arguments.rows)

    @property
    def is_busy(self) -> bool:
        """Whether there is more to be searched."""
        return self._search.is_busy

    def content(self) -> State:
        """Search on, and return the rows of the matches; `searched` agents have been looked at."""
        found = self._search.content()
        return {**found, "searched": self._search.looked_at}

    def _matches(self, slot: Slot) -> bool:
        cls = class_name(slot)
        known = self._classes.get(cls)
        if known is None:
            known = self._classes[cls] = self._text in cls.casefold()
        return known or self._text in slot.path.casefold()


class TopArguments(Struct, forbid_unknown_fields=True):
    """The agents with most of something: messages that wait or were handled a second, or restarts."""

    by: Literal["waiting", "handled", "restarts"] = "waiting"
    rows: Annotated[int, Meta(ge=1, le=50)] = 20


class TopView:
    """The agents with most of something, as the last survey has found them."""

    is_busy = False

    def __init__(self, root: Supervisor, survey: Survey, arguments: TopArguments) -> None:
        self._survey = survey
        self._by: Order = arguments.by
        self._most = arguments.rows

    def content(self) -> State:
        """Return their rows; `most` is what they have most of, `passes` how often all have been counted."""
        found = self._survey.top.get(self._by, [])[: self._most]
        rows = {slot.path: {**row_of(slot, self._survey), "most": round(most, 1)} for most, slot in found}
        return {"order": list(rows), "rows": rows, "passes": self._survey.passes}


# ---- one row


def path_of(child: Slot | Supervisor) -> str:
    """Return the path of a place, ROOT for the root supervisor."""
    return ROOT if isinstance(child, Supervisor) and child.is_root else child.path


def row_of(child: Slot | Supervisor, survey: Survey) -> State:
    """Return what a row shows of an agent or a supervisor."""
    if isinstance(child, Supervisor):
        row: State = {
            "kind": "supervisor",
            "name": child.label,
            "strategy": child.spec.strategy,
            "status": "running" if child.is_root else child.status,
            "life": child.incarnation,
        }
        if isinstance(pool := child.loop.made_from, Pool):
            cls = agent_class(pool.member(1))
            row |= {"pool": pool.by, **({} if cls is None else {"class": cls.__name__})}
        return row | _sums_of(child, survey)
    row = {
        "kind": "agent",
        "name": child.label,
        "class": class_name(child),
        "status": child.status,
        "life": child.incarnation,
        "waiting": max(0, child.accepted - child.begun),
        "handled": child.handled + child.inline,
        "running": child.running(),
    }
    if child.held:
        row["held"] = True
    below = children_of(child)
    return row if below is None else row | _sums_of(below, survey)


def _sums_of(supervisor: Supervisor, survey: Survey) -> State:
    """Return how many children there are, and the sums below where they are known."""
    found: State = {"children": size_of(supervisor)}
    sums = survey.sums_of(supervisor.path)
    if sums is not None:
        found["below"] = attrs.asdict(sums)
    return found


def _below(child: Any) -> Supervisor | None:
    return child if isinstance(child, Supervisor) else children_of(child)


def _by_parent(paths: list[str]) -> Mapping[str, list[str]]:
    """Return the names of what is open, by the path of what it is below."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in dict.fromkeys(paths):
        above, _, name = path.rpartition("/")
        if name:
            found[above].append(name)
    return found
