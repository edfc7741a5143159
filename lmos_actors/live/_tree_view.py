"""The views `tree`, `find` and `top`: rows from the tree of a node or a run.

A viewer's arguments name the places that it has opened and the rows that it shows; below a closed supervisor
it sees only sums. So the data for a viewer does not grow with the tree, and its cost hardly does: of a
supervisor with very many children only those on the screen are visited.
"""

from __future__ import annotations

from collections import defaultdict
from time import thread_time
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeAlias

import attrs
from msgspec import Meta, Struct

from ._survey import Order  # noqa: TC001  (msgspec reads it)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ._merge_patch import State

MOST_OPEN: Final = 500
MOST_ROWS: Final = 300

Path = Annotated[str, Meta(max_length=4_096)]
Place: TypeAlias = Any
"""An agent or a supervisor, which only its tree can read."""


class Tree(Protocol):
    """The tree of a node, or of a run according to its log: its places are supervisors and agents."""

    @property
    def root(self) -> Place:
        """The root supervisor."""
        ...

    @property
    def passes(self) -> int:
        """The number of times that all agents have been counted."""
        ...

    def path_of(self, place: Place) -> str:
        """Return the path of a place in the form that viewers use: "" for the root."""
        ...

    def class_of(self, agent: Place) -> str:
        """Return the name of the class of an agent."""
        ...

    def row_of(self, place: Place) -> State:
        """Return the row that shows a place."""
        ...

    def size_of(self, place: Place) -> int | None:
        """Return the number of children, None for a place that can have none."""
        ...

    def children_between(self, place: Place, begin: int, end: int) -> Sequence[Place]:
        """Return the children with numbers from `begin` up to, but not including, `end`."""
        ...

    def numbered_children(self, place: Place, names: Iterable[str]) -> Iterable[tuple[int, Place]]:
        """Return the children with the given names, each with its number, in order."""
        ...

    def agents(self) -> Callable[[int], Sequence[Place]]:
        """Return a function that returns the next agents, up to the given number; [] at the end."""
        ...

    def top(self, by: Order) -> Sequence[tuple[float, Place]]:
        """Return the agents with the highest value of the kind `by`, each with that value."""
        ...


class TreeArguments(Struct, forbid_unknown_fields=True, rename={"first": "from"}):
    """The arguments of the view: `rows` rows from number `first` on, with the places in `open` expanded.

    `at` is a path whose row number is requested.
    """

    open: Annotated[list[Path], Meta(max_length=MOST_OPEN)] = []
    first: Annotated[int, Meta(ge=0)] = 0
    rows: Annotated[int, Meta(ge=0, le=MOST_ROWS)] = 100
    at: Path | None = None


class FindArguments(Struct, forbid_unknown_fields=True):
    """The arguments of a search for agents whose path or class contains a text, ignoring case."""

    text: Annotated[str, Meta(min_length=1, max_length=200)]
    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


@attrs.define
class _Level:
    """The children of the open place `above`, of which the first `shown` are done.

    If `above` is None, the level consists of the root alone.
    """

    above: Place
    size: int
    opened: Iterator[tuple[int, Place]]
    depth: int
    shown: int = 0


class TreeView:
    """The view of the tree for one viewer: its rows, by path."""

    is_busy = False

    def __init__(self, tree: Tree, arguments: TreeArguments) -> None:
        self._tree = tree
        self._first, self._most = arguments.first, arguments.rows
        self._sought = arguments.at
        # the place that is sought is reached as if it were open
        self._open: defaultdict[str, list[str]] = defaultdict(list)
        """The names of open places, by the path of the place above them."""
        for path in dict.fromkeys([*arguments.open, *filter(None, [arguments.at])]):
            above, _, name = path.rpartition("/")
            if name:
                self._open[above].append(name)
        self._is_open = arguments.at in arguments.open

    def content(self) -> State:
        """Return `order`, the paths of the rows; `rows`, what each shows; `total`, the number of all rows.

        `at` is the number of the requested row, if that row exists.
        """
        tree = self._tree
        rows: dict[str, State] = {}
        sought: State = {}
        number = 0
        stack = [_Level(None, 1, iter([(0, tree.root)]), 0)]
        while stack:
            level = stack[-1]
            at, opened = next(level.opened, (level.size - 1, None))
            stop = at + 1
            begin = max(level.shown, level.shown + self._first - number)
            end = min(stop, level.shown + self._first + self._most - number)
            for child in self._some(level.above, begin, end):
                rows[tree.path_of(child)] = {**tree.row_of(child), "level": level.depth}
            number += stop - level.shown
            level.shown = stop
            if opened is None:
                stack.pop()
                continue
            path = tree.path_of(opened)
            if path == self._sought:
                sought["at"] = number - 1
                if not self._is_open:
                    continue
            size = tree.size_of(opened)
            if size is not None:
                if (row := rows.get(path)) is not None:
                    row["open"] = True
                below = tree.numbered_children(opened, self._open.get(path, ()))
                stack.append(_Level(opened, size, iter(below), level.depth + 1))
        return {"total": number, "from": self._first, "order": list(rows), "rows": rows, **sought}

    def _some(self, above: Place, begin: int, end: int) -> Sequence[Place]:
        """Return the places of a level with numbers from `begin` up to, but not including, `end`."""
        if above is not None:
            return self._tree.children_between(above, begin, end)
        return [self._tree.root] if begin < end else []


class Search:
    """A search through all agents of a tree in steps, as there may be very many agents.

    The agents are listed once: a node's later agents are not found. `matches` returns whether an agent is a
    match, `row` returns its row; the search ends at `most` rows.
    """

    def __init__(
        self,
        tree: Tree,
        matches: Callable[[Place], bool],
        row: Callable[[Place], State],
        most: int,
    ) -> None:
        self._tree, self._further = tree, tree.agents()
        self._matches, self._row = matches, row
        self._most = most
        self._found: list[Place] = []
        self.looked_at = 0
        """The number of agents that have been looked at."""
        self.is_busy = True
        """Whether there is more to be searched."""

    def content(self) -> State:
        """Continue the search, and return the rows of all matches so far.

        `complete` is true once all agents have been searched.
        """
        until = thread_time() + 0.005  # seconds of processor time for one step of a search
        self.is_busy = len(self._found) < self._most
        while self.is_busy and thread_time() < until:
            some = self._further(100)
            self.looked_at += len(some)
            self._found += filter(self._matches, some)
            self.is_busy = bool(some) and len(self._found) < self._most
        rows = {self._tree.path_of(agent): self._row(agent) for agent in self._found[: self._most]}
        complete = not self.is_busy and len(self._found) < self._most
        return {"order": list(rows), "rows": rows, "complete": complete}


class FindView:
    """The agents that match a text, found step by step."""

    def __init__(self, tree: Tree, arguments: FindArguments) -> None:
        self._tree = tree
        self._text = arguments.text.casefold()
        self._classes: dict[str, bool] = {}
        self._search = Search(tree, self._matches, tree.row_of, arguments.rows)

    @property
    def is_busy(self) -> bool:
        """Whether the search has not ended yet."""
        return self._search.is_busy

    def content(self) -> State:
        """Continue the search, and return the rows of all matches so far.

        `searched` is the number of agents that have been searched.
        """
        found = self._search.content()
        return {**found, "searched": self._search.looked_at}

    def _matches(self, agent: Place) -> bool:
        cls = self._tree.class_of(agent)
        known = self._classes.get(cls)
        if known is None:
            known = self._classes[cls] = self._text in cls.casefold()
        return known or self._text in self._tree.path_of(agent).casefold()


class TopArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: rank by waiting messages, messages handled per second, or restarts."""

    by: Order = "waiting"
    rows: Annotated[int, Meta(ge=1, le=50)] = 20


def top_state(tree: Tree, arguments: TopArguments) -> State:
    """Return the agents with the highest values of a kind, as of the last count of all agents.

    `most` is the value of each agent, `passes` the number of times that all agents have been counted.
    """
    found = tree.top(arguments.by)[: arguments.rows]
    rows = {tree.path_of(agent): {**tree.row_of(agent), "most": round(most, 1)} for most, agent in found}
    return {"order": list(rows), "rows": rows, "passes": tree.passes}
