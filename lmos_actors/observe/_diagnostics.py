"""Diagnostics of an open node: its dump on a signal, its waiting graph in the report of a deadlock."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lmos_actors._core import current_environment
from lmos_actors.actors import waiting_graph
from lmos_actors.supervision import agents_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from lmos_actors.actors import Runtime, WaitingGraph
    from lmos_actors.supervision import Supervisor


def graph_of(root: Supervisor, rt: Runtime) -> WaitingGraph:
    """Return the waiting graph of a tree, waits for agents of other nodes included."""
    return waiting_graph(agents_of(root), rt)


@contextmanager
def diagnostics_for(root: Supervisor, rt: Runtime) -> Generator[None]:
    """Offer a node's diagnostics while the block is open, also while the node stops.

    In real time SIGUSR1 dumps it; in a simulated world a deadlock's report ends with its waiting graph.
    """
    if rt.real:
        from ._dump import dump
        from ._signal import dump_signal

        dump_signal.node_opened(root, partial(dump, root, rt))
        try:
            yield
        finally:
            dump_signal.node_ended(root)
        return
    environment = current_environment()
    describe = partial(_describe, root, rt)
    if environment is not None:
        environment.describe.append(describe)
    try:
        yield
    finally:
        if environment is not None:
            environment.describe.remove(describe)


def _describe(root: Supervisor, rt: Runtime) -> str:
    graph = graph_of(root, rt)
    return str(graph) if graph.edges else ""
