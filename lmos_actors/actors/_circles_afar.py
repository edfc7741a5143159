"""Circles of waits over several nodes: each node reports what a request waits for and asks other nodes.

A run may wait for an agent of another node, whose run waits for an agent of this node. No node sees such a
circle alone. So where the search for a circle (`_circles.py`) ends at a request to another lmos_actors node,
that node is asked what the request waits for. It continues the search from there, asks further nodes where
its own search ends, and answers with all that it has found as plain data: nodes of the graph, by labels that
stay the same. This file joins the answers, and searches them as if the graph belonged to one node.

What this file keeps true:

- No request is asked about twice on one path: the ids are passed on, HOPS of them at most. A request without
  an intelligible answer after PATIENCE seconds counts as able to go on, so there is no circle.
- The parts of a graph are not from the same instant. So the search is repeated for what has been found. A
  wait that was there both times, under the same label, was there all the while. So there was an instant at
  which all waits of the circle existed. A node that is seen in two states counts as able to go on.
- A node is asked once in PAUSE seconds about the waits behind one run, however many requests wait for it.

Only peers that offer `waits` are asked, over LMOS. Their answers come from strangers: they are bounded, and
shown like any text from others. A guarded node reveals names and lines to no other node.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import msgspec
from msgspec import Struct

from lmos_actors._core import printable

from ._circles import way
from ._waiting import USER, is_choice, stuck_among
from .messages._invocation import Run
from .slot._slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors._core import Timer

    from ._circles import FarRequest, Link, Search, Wait
    from ._runtime import Runtime
    from ._waiting import Node

HOPS: Final = 16
PATIENCE: Final = 5.0
PAUSE: Final = 1.0
MOST: Final = 500
"""The most nodes of a graph that goes to another node."""

LENGTH: Final = 500
"""The most characters kept of a text that another node has written."""


@attrs.frozen
class Step:
    """One wait of a circle, as it is reported: the waiter, a text of the whole wait, and its line."""

    waiter: str
    text: str
    place: str = ""


class FarLink(Struct, array_like=True, frozen=True):
    """A link to another node of the graph, with a text if the link is a wait."""

    to: str
    waiter: str = ""
    text: str = ""
    place: str = ""
    end: Literal["deadline", "scope"] | None = None
    node: str = ""
    """The address of the node that waits; set by the one that has asked it."""


class FarNode(Struct, array_like=True, frozen=True):
    """A node of the graph, as in `Search`; `is_loose`: it may go on without what its links lead to."""

    kind: Literal["ways", "run", "turns"]
    is_loose: bool
    links: list[FarLink]

    @property
    def shape(self) -> tuple[object, ...]:
        """The facts about the node that stay the same as long as nothing happens to it."""
        return self.kind, self.is_loose, [link.to for link in self.links]


LOOSE: Final = FarNode(kind="ways", is_loose=True, links=[])


class Labels:
    """The labels of this node's graph for other nodes; a label stays the same while its object exists."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._key = b""  # drawn when it is needed: most nodes need none
        self._runs = 0

    def of(self, node: Node) -> str:
        """Return the label of a node."""
        if isinstance(node, Run):
            number = getattr(node, "number", None)
            if number is None:
                number = node.number = self._runs = self._runs + 1
            return self._hidden(f"run {number}")
        if isinstance(node, Slot):
            return self._hidden(f"turns {node.path}")
        if is_choice(node):
            slot, *rest = node
            return self._hidden(f"ways {slot.path} {[getattr(each, 'name', each) for each in rest]}")
        return getattr(node, "number_there", None) or ""

    def _hidden(self, text: str) -> str:
        self._key = self._key or self._rt.entropy.new_id().encode()[:32]
        return blake2s(text.encode("utf-8", "replace"), key=self._key, digest_size=12).hexdigest()


def graph_of(
    search: Search, reached: dict[Node, list[Link]], labels: Labels, *, shows: bool
) -> dict[str, FarNode]:
    """Return the graph that a search has reached as plain data, with waiters, texts and lines if `shows`."""
    graph: dict[str, FarNode] = {}
    for node, links in reached.items():
        if node in search.far:
            continue  # which others know of
        kind: Any = "ways" if is_choice(node) else "turns" if isinstance(node, Slot) else "run"
        told = [_link_of(labels.of(other), wait, shows=shows) for other, wait in links]
        graph[labels.of(node)] = FarNode(kind, node in search.loose, told)
    return graph


def _link_of(label: str, wait: Wait | None, *, shows: bool) -> FarLink:
    if wait is None:
        return FarLink(label)
    if not shows:
        return FarLink(label, "an agent", "an agent waits; which one, the node does not say", "", wait.end)
    edge = wait.shown(placed=True)
    return FarLink(label, edge.waiter or USER, str(edge), edge.place, wait.end)


class Walk:
    """One walk over other nodes: what is known so far, and the nodes that have not answered.

    `then` is called once, with all that is known, when the last has answered; maybe before this returns.
    """

    def __init__(
        self,
        rt: Runtime,
        graph: dict[str, FarNode],
        far: list[FarRequest],
        asked: tuple[str, ...],
        then: Callable[[dict[str, FarNode]], None],
    ) -> None:
        self.graph = graph
        self._then = then
        self._open = {request.number_there or "": request for request in far}
        self._places = {label: request.place for label, request in self._open.items()}
        for label in asked:
            self._open.pop(label, None)
        if len(asked) >= HOPS or not self._open:
            self._open = {}
            then(graph)
            return
        self._timer: Timer = rt.timers.call_after(PATIENCE, self._give_up)
        for label, request in tuple(self._open.items()):
            request.follow((*asked, label), partial(self._take, label))

    def _give_up(self) -> None:
        if self._open:
            self._open.clear()
            self._then(self.graph)

    def _take(self, label: str, answer: dict[str, Any]) -> None:
        if self._open.pop(label, None) is None:
            return
        for name, node in _read(answer, self._places[label]).items():
            known = self.graph.setdefault(name, node)
            if known.shape != node.shape:
                self.graph[name] = LOOSE
        if not self._open:
            self._timer.cancel()
            self._then(self.graph)


def _read(answer: dict[str, Any], place: str) -> dict[str, FarNode]:
    """Return the graph in the answer of the node at an address, or {} if the answer cannot be read."""
    try:
        graph = msgspec.convert(answer, dict[str, FarNode])
    except msgspec.ValidationError:
        return {}
    if len(graph) > MOST:
        return {}
    found = partial(_bounded, place)
    return {
        name: FarNode(each.kind, each.is_loose, [*map(found, each.links)]) for name, each in graph.items()
    }


def _bounded(place: str, link: FarLink) -> FarLink:
    waiter, text, line, node = (
        printable(each[:LENGTH]) for each in (link.waiter, link.text, link.place, link.node)
    )
    return FarLink(link.to, waiter, text, line, link.end, node or place)


def plain_of(graph: dict[str, FarNode]) -> dict[str, Any]:
    """Return a graph in the form for another node; {}, as if nothing were known, if it is too large."""
    plain: dict[str, Any] = msgspec.to_builtins(graph if len(graph) <= MOST else {})
    return plain


def step_of(link: FarLink) -> Step:
    """Return a wait for the report; the wait of another node is shown with the name of that node."""
    if not link.node:
        return Step(link.waiter, link.text, link.place)
    return Step(f"{link.waiter} of {link.node}", f"{link.node}: {link.text}", link.place)


def circle_at(start: str, graph: dict[str, FarNode], *, certain: bool) -> list[FarLink]:
    """Return the links of a shortest circle through a node, starting there, or [] if there is none.

    `certain`: accept only a circle that no deadline, scope or other task may end.
    """
    links = {name: [(link.to, link) for link in node.links] for name, node in graph.items()}
    kinds = ("ways", "run") if certain else ("ways",)
    loose = [name for name, node in graph.items() if certain and node.is_loose]
    stuck = stuck_among(links, lambda name: name in graph and graph[name].kind in kinds, loose)
    found: list[list[FarLink]] = []
    for other, link in stuck.get(start, ()):
        path = way(other, start, stuck)
        found += [] if path is None else [[link, *path]]
    return min(found, key=len) if found else []
