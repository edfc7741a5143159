"""Where a node is shown while it is open: to whoever sends the signal, and in the report of a deadlock."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lmos_actors._core import current_ambient
from lmos_actors.actors import waiting_graph
from lmos_actors.supervision import agents_of

from ._dump import dump
from ._signal import dumps

if TYPE_CHECKING:
    from collections.abc import Generator

    from lmos_actors.actors import Runtime, WaitingGraph
    from lmos_actors.supervision import Supervisor


def graph_of(root: Supervisor, rt: Runtime) -> WaitingGraph:
    """Return who waits for whom in a tree, and for agents elsewhere."""
    return waiting_graph(agents_of(root), rt.ready_waits.open)


@contextmanager
def shown(root: Supervisor, rt: Runtime) -> Generator[None]:
    """Show a node while the block is open, its stopping included.

    In real time SIGUSR1 dumps it; in a simulated world a deadlock's report ends with its waiting graph.
    """
    if rt.real:
        dumps.node_opened(root, partial(dump, root, rt))
        try:
            yield
        finally:
            dumps.node_ended(root)
        return
    ambient = current_ambient()
    describe = partial(_describe, root, rt)
    if ambient is not None:
        ambient.describe.append(describe)
    try:
        yield
    finally:
        if ambient is not None:
            ambient.describe.remove(describe)


def _describe(root: Supervisor, rt: Runtime) -> str:
    graph = graph_of(root, rt)
    return str(graph) if graph.edges else ""
