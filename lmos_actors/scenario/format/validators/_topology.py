"""Topologies of populations: the neighbours of every agent by number, in order.

networkx makes the random networks, from a number derived from the run's seed. The others are simple enough to
be written out here. All are undirected: neighbours have refs to each other.
"""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmos_actors.system.model import Topology

MOST_COMPLETE: Final = 5_000
"""The size of the largest complete topology: the number of pairs grows with its square."""

Neighbours: TypeAlias = "list[tuple[int, ...]]"


def topology_problem(topology: Topology, count: int) -> tuple[str, str] | None:
    """Return a key that is wrong for a population of `count` agents, and the reason; None if all are right.

    The keys must already fit the kind; edges are validated one by one elsewhere.
    """
    kind, degree = topology.kind, topology.degree
    if kind == "complete" and count > MOST_COMPLETE:
        return "kind", f"{count} agents that all know each other are too many, {MOST_COMPLETE} are the most"
    if isinstance(degree, int) and degree >= count:
        return "degree", f'"{topology.of}" has {count} agents: at most {count - 1} neighbours each'
    if kind == "small_world" and isinstance(degree, int) and degree % 2:
        return "degree", "the degree of a small world is even: as many neighbours to either side"
    if kind == "grid" and isinstance(topology.width, int) and topology.width > count:
        return "width", f"a grid of {count} agents is at most {count} wide"
    return None


def neighbours_of(topology: Topology, count: int, seed: int) -> Neighbours:
    """Return the neighbours of each of `count` agents; the numbers of neighbours are in ascending order."""
    return _KINDS[topology.kind](topology, count, seed)


# --- regular


def _complete(topology: Topology, count: int, seed: int) -> Neighbours:
    numbers = tuple(range(count))
    return [numbers[:me] + numbers[me + 1 :] for me in numbers]


def _ring(topology: Topology, count: int, seed: int) -> Neighbours:
    return [_distinct(me, ((me - 1) % count, (me + 1) % count)) for me in range(count)]


def _line(topology: Topology, count: int, seed: int) -> Neighbours:
    return [tuple(other for other in (me - 1, me + 1) if 0 <= other < count) for me in range(count)]


def _star(topology: Topology, count: int, seed: int) -> Neighbours:
    return [tuple(range(1, count)), *((0,) for _ in range(1, count))]


def _grid(topology: Topology, count: int, seed: int) -> Neighbours:
    width: Any = topology.width
    found: Neighbours = []
    for me in range(count):
        column = me % width
        around = (
            me - width,
            me - 1 if column else -1,
            me + 1 if column < width - 1 else count,
            me + width,
        )
        found.append(tuple(other for other in around if 0 <= other < count))
    return found


def _edges(topology: Topology, count: int, seed: int) -> Neighbours:
    edges: tuple[tuple[int, ...], ...] = topology.edges if isinstance(topology.edges, tuple) else ()
    around = [list[int]() for _ in range(count)]
    for one, other in edges:
        around[one].append(other)
        around[other].append(one)
    return [_distinct(me, others) for me, others in enumerate(around)]


def _distinct(me: int, others: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(dict.fromkeys(other for other in others if other != me)))


# --- random


def _small_world(topology: Topology, count: int, seed: int) -> Neighbours:
    """Make a small world: a ring with some links rewired, and separate parts joined again.

    So rumours reach every agent.
    """
    networkx = _networkx()
    graph = networkx.watts_strogatz_graph(count, topology.degree, topology.rewire, seed=seed)
    first = [min(component) for component in networkx.connected_components(graph)]
    graph.add_edges_from(pairwise(first))
    return _from_graph(graph, count)


def _random(topology: Topology, count: int, seed: int) -> Neighbours:
    made = _networkx().fast_gnp_random_graph
    return _from_graph(made(count, topology.probability, seed=seed), count)


def _scale_free(topology: Topology, count: int, seed: int) -> Neighbours:
    made = _networkx().barabasi_albert_graph
    return _from_graph(made(count, topology.degree, seed=seed), count)


def _networkx() -> Any:
    return import_module("networkx")  # late: the import takes long, and most files do not need it


def _from_graph(graph: Any, count: int) -> Neighbours:
    return [tuple(sorted(graph[me])) for me in range(count)]


_KINDS: Final[dict[str, Callable[[Topology, int, int], Neighbours]]] = {
    "complete": _complete,
    "ring": _ring,
    "line": _line,
    "star": _star,
    "grid": _grid,
    "small_world": _small_world,
    "random": _random,
    "scale_free": _scale_free,
    "edges": _edges,
}
