"""Environment of one run: the node, its agents and populations, and the observers of their records.

Order matters in `open`: the judges and other observers are connected before the first agent starts, so that
they see its first record; remote agents are looked up before agents that get refs to them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.actors import Ref, set_service_time
from lmos_actors.errors import LmosActorsError, StartFailed
from lmos_actors.node import open_node
from lmos_actors.supervision import BulkSpec, Pool, SupervisorSpec

from .._worlds import LISTEN_ADDRESSES, begin_time, change_environment
from ..format import TreeBuilder
from ..judge import Judges
from ..model import AgentEntry, Mock, PoolEntry, Replay, Restarts, Simulation, Statistics
from ._faults import Faults
from ._populations import Populations
from ._run_agents import RunAgents
from ._stop_point import KINDS
from ._view import RunView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.node import Node

    from ..format import Cell
    from ..model import Remote
    from ._doubles import Doubles
    from ._run import Run


class RunEnvironment:
    """Node, agents and observers of one run."""

    def __init__(self, run: Run, doubles: Doubles) -> None:
        self._run = run
        self._doubles = doubles
        self._node: Node | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open a node with all agents of the file. Raises StartFailed, and whatever `open_node` raises."""
        run, cell = self._run, self._run.cell
        world = cell.scenario.world
        populations: Populations | None = None
        if isinstance(cell.scenario, Simulation):
            populations = Populations(cell.scenario, run.document, cell.classes, change_environment().entropy)
            change_environment(staging=populations)
        options: dict[str, Any] = {}
        if world in LISTEN_ADDRESSES:
            from ._node_client import node_options  # what speaks over wires, which most files have no use for

            options = node_options(world)
        if cell.has_durable_agents:
            options["store"] = "memory:"
        async with open_node(_root_spec(cell), instrument=run.watch, **options) as node:
            self._node = node
            self._connect_observers(node)
            if run.client is not None:
                await run.client.open()
                for name, entry in cell.remotes.items():
                    run.agents.add_remote(name, await self._find(name, entry))
                begin_time()
            for spec in TreeBuilder(cell, run.agents.given, self._doubles.classes).root().children:
                await _start(node, spec)
            self._set_service_times()
            if populations is not None:
                for index in range(len(populations)):
                    await node.start_supervisor(populations.spec_of(index, run.agents))
            yield

    async def _find(self, name: str, entry: Remote) -> ConsumedThing:
        """Connect to an agent of another node. Raises StartFailed."""
        client, path = self._run.client, self._run.document.path
        assert client is not None
        folder = path.parent if path is not None else Path()
        source = str(folder / str(entry.description)) if entry.url is None else entry.url
        try:
            access = self._run.access.of(entry, folder)
            return await client.consume(name, source, entry.thing, access)
        except LmosActorsError as error:
            raise StartFailed(name, str(error)) from error

    def _connect_observers(self, node: Node) -> None:
        """Connect judges, faults and counters to the records, before the first agent starts."""
        run, scenario = self._run, self._run.cell.scenario
        places = run.cell.paths
        if scenario.world in LISTEN_ADDRESSES:
            from ._node_client import NodeClient

            run.client = NodeClient(node, run.note_number)
        run.set_agents(RunAgents(run.cell, node, places, run.client))
        judges = Judges(
            scenario.checks,
            scenario.measure,
            RunView(run, places),
            lambda index: run.place(("checks", index)),
        )
        run.judges = judges
        for kind in judges.kinds:
            run.watch.add(judges.record, kind, paths=judges.paths(kind))
        run.watch.add(run.crashes.record, "crashed")
        if run.stop is not None:
            run.stop.begin(node, run.agents.draw)
            run.watch.add(run.stop.record, *KINDS)
        run.watch.add(run.note_sent, "sent")
        faults = run.faults = Faults(run.watch, node.root.rt.entropy, run.agents.refs)
        run.watch.add(faults.record, "started", "crashed", "stopped")

    def _set_service_times(self) -> None:
        for name, entry in self._run.cell.scenario.agents.items():
            if isinstance(entry, (AgentEntry, PoolEntry)) and entry.service_time:
                for slot in self._run.agents.slots(name):
                    set_service_time(Ref[Any](slot), float(entry.service_time))

    async def judge_final_state(self) -> None:
        """Judge the state after the last step, while the agents still exist."""
        await self._run.wait_until_delivered()
        assert self._run.judges is not None
        self._run.judges.judge_final_state(self._run.now())

    def end_simulation(self) -> None:
        """Kill the agents without recording it: what they would do while stopping is not part of the run."""
        assert self._node is not None
        self._run.watch.end()
        self._node.root.kill()


def _root_spec(cell: Cell) -> SupervisorSpec:
    root = cell.root
    if cell.used is not None:
        return attrs.evolve(cell.used.spec, children=())
    return SupervisorSpec(
        "root",
        strategy=root.strategy,
        max_restarts=root.max_restarts,
        max_seconds=float(root.max_seconds),
        auto_shutdown=root.auto_shutdown,
    )


async def _start(node: Node, spec: Any) -> None:
    if isinstance(spec, SupervisorSpec | BulkSpec):
        await node.start_supervisor(spec)
    elif isinstance(spec, Pool):
        await node.start_pool(spec)  # pyright: ignore[reportUnknownArgumentType]
    else:
        await node.start_child(spec)


# --- crashes that the file expects


def is_crash_expected(cell: Cell, path: str) -> bool:
    """Return whether the file asks for crashes of an agent: by a rule, a recording, or a check of restarts.

    A check of restarts counts if it is of the agent, its population, or a supervisor above it other than the
    root, which is never restarted. A temporary agent is not restarted either, so no count shows its crash.
    """
    places = {place: name for name, place in cell.paths.items()}
    name, above = places.get(path, path), path.rpartition("/")[0]
    entry = _entry_of(cell, name)
    if isinstance(entry, (Mock, Replay)):
        return True
    if entry is not None and entry.restart == "temporary":
        return False
    names = (path, name, above, places.get(above, above), *path.split("/")[:-1])
    counted = [
        check
        for check in cell.scenario.checks
        if isinstance(check, Restarts) or (isinstance(check, Statistics) and check.counter == "restarts")
    ]
    return any(check.of in names for check in counted)


def _entry_of(cell: Cell, name: str) -> Any:
    """Return the entry of the file for a name or path; None for agents that agents start."""
    scenario = cell.scenario
    if cell.used is not None and name in cell.used.agents and name not in scenario.agents:
        return cell.used.agents[name]
    if name in scenario.agents or not isinstance(scenario, Simulation):
        return scenario.agents.get(name)
    above = name.partition("/")[0]
    return next((entry for entry in scenario.population if entry.id == above), None)
