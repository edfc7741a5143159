"""The environment of one run: the node, its agents and populations, and the observers of their records.

Order matters in `open`: judges and other observers are connected before the first agent starts, so that they
get its first record; remote agents are looked up before the agents that get refs to them start.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import UNSET

from lmos_actors.actors import Ref, set_service_time
from lmos_actors.assembly import open_node
from lmos_actors.errors import LmosActorsError, StartFailed, raise_together
from lmos_actors.system import Places, TreeBuilder, root_spec, start_spec
from lmos_actors.system.model import (
    HUB,
    PROCESS,
    AgentEntry,
    Bridge,
    Mock,
    OwnProcess,
    PoolEntry,
    Replay,
    is_real,
)

from .._worlds import LISTEN_ADDRESSES, begin_time, change_environment, wait_until_idle
from ..judge import AgentDirectory, Judges
from ..model import Restarts, Simulation, Statistics, kind_of_fault
from ._run_agents import RunAgents
from ._step_text import faults_in
from ._view import RunView
from .faults import Faults
from .memory import AgentFaults, Machine, MachineFaults, first_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from lmos_actors.actors import Slot
    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.deployment.agents import RemoteAgents
    from lmos_actors.node import Node
    from lmos_actors.persistence import Store
    from lmos_actors.simulation.network import LineNetwork
    from lmos_actors.system import RemoteAccess
    from lmos_actors.system.model import Elsewhere
    from lmos_actors.transport import MemoryNetwork

    from ..doubles._hub_agents import HubLine
    from ..format import Cell
    from ..model import Scenario
    from ._doubles import Doubles
    from ._populations import Populations
    from ._run import Run
    from .processes import OwnProcesses, Processes

ADDRESS: Final = "ws://world"
"""The address for bridges and the hub in `world: memory`; its network is in memory, too."""


class RunEnvironment:
    """The node, agents and observers of one run."""

    def __init__(self, run: Run, doubles: Doubles, root: Path) -> None:
        self._run = run
        self._root = root
        self._own: OwnProcesses | None = None
        self._doubles = doubles
        self._node: Node | None = None
        self._agent_faults: AgentFaults | None = None
        self._populations: Populations | None = None
        self._options: dict[str, Any] = {}
        self._wires: MemoryNetwork | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open a node with all agents of the file. Raises StartFailed, and any error from `open_node`."""
        run, cell = self._run, self._run.cell
        world = cell.scenario.world
        if isinstance(cell.scenario, Simulation):
            from ._populations import Populations

            entropy = change_environment().entropy
            self._populations = Populations(cell.scenario, run.document, cell.system.classes, entropy)
            change_environment(staging=self._populations)
        if world == PROCESS:
            async with self._in_processes():
                yield
            return
        network: MemoryNetwork | None = None
        if world in LISTEN_ADDRESSES:
            from .wire import node_network, node_options  # for worlds with wires: few files need it

            network = self._wires = node_network(world)
            self._options = node_options(world, network)
        network = self._speak(network)
        self._options["circles"] = cell.scenario.circles
        machine = run.machine = Machine(run.watch, network)
        keeps_turns = cell.scenario.store is not None and cell.system.has_resuming_agents
        if (cell.system.has_durable_agents or keeps_turns) and not is_real(world):
            machine.put_in_disk(cell.scenario.store, change_environment().entropy)
        async with self._restartable() if _is_restarted(cell.scenario) else self._opened():
            yield

    def _speak(self, network: MemoryNetwork | None) -> MemoryNetwork | None:
        """Set the node's options for bridges and a hub of the file; return its network in memory, if any.

        Also make the network of the file, if it has one.
        """
        run, cell = self._run, self._run.cell
        bridges = [entry for entry in cell.scenario.agents.values() if isinstance(entry, Bridge)]
        if any(entry.speaks == "omnia" and entry.to is not None for entry in bridges):
            self._options = {"listen": ADDRESS, **self._options, "omnia": True}
        if cell.scenario.relay is not None:
            from lmos_actors.system import relay_options  # few files need these

            from .hub import RunHub
            from .wire import node_network

            network = network or node_network(cell.scenario.world)
            to_hub = partial(self._lines_between, HUB)
            run.hub = RunHub(cell, run.fail, run.note_number, run.watch.notify, to_hub)
            own = {"listen": ADDRESS, "network": network, "relay": relay_options(cell.scenario.relay)}
            self._options = {**own, **self._options}
        if cell.scenario.network is not None:
            from .network import RunNetwork  # few files need it

            run.network = RunNetwork(cell, change_environment().entropy)
        opened = [str(entry.to) for entry in bridges if entry.access == "anyone"]
        if opened:
            from lmos_actors.bindings import public_name
            from lmos_actors.security import Access, Security

            access = {public_name(cell.system.paths[name]): Access(invoke="anyone") for name in opened}
            self._options["security"] = Security(access=access)
        return network

    def _lines_between(self, to: str, name: str) -> LineNetwork | None:
        """Return the lines from agent `name` to agent `to`; None without a network, or on the same node."""
        network, node = self._run.network, self._node
        return None if network is None or node is None else network.lines_between(node, name, to)

    def _chat_network(self, name: str, to: str) -> LineNetwork | None:
        """Return the network over which a bridge reaches a chat agent; None for the network of the node."""
        lines = self._lines_between(to, name)
        if lines is not None:
            lines.stands()  # the bridge connects anew for each turn
        return lines

    def _store(self, machine: Machine) -> Store | str | None:
        """Return the store for the states of the node's agents; None if no store is needed."""
        if machine.disk is None:
            return "memory:" if self._run.cell.system.has_durable_agents else None
        from lmos_actors.persistence import SimulatedStore

        return SimulatedStore(machine.disk)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        """Open a node, and start all agents of the file."""
        run, cell = self._run, self._run.cell
        machine = run.machine
        assert machine is not None
        store = self._store(machine)
        async with AsyncExitStack() as stack:
            opened = open_node(root_spec(cell.system), instrument=run.watch, store=store, **self._options)
            node = await stack.enter_async_context(opened)
            before, self._node = self._node, node
            machine.power_on(node)
            if run.network is not None:
                run.network.open(node, self._wires)
                await stack.enter_async_context(machine.starting_nodes(run.network))
            if before is None:
                self._connect_observers(node)
            else:
                self._connect_again(before, node)
            if run.client is not None:
                await run.client.open()
                await stack.enter_async_context(self._running_own_processes())
                for name, entry in cell.system.remotes.items():
                    run.agents.add_remote(name, await self._find(name, entry, run.client.remotes))
                begin_time()
            if run.hub is not None:
                await stack.enter_async_context(run.hub.open(node))
            if run.network is not None:
                await stack.enter_async_context(run.network.registering(node))
            await self._start_agents(node)
            if run.hub is not None:
                await run.hub.wait_ready()
                await wait_until_idle()
                run.hub.begin()
            if run.network is not None:
                await run.network.wait_registered()
            machine.came_up()
            if before is not None:
                if run.judges is not None:
                    run.judges.forget_agents()
                if run.faults is not None:
                    run.faults.node_came_up()
            yield

    @asynccontextmanager
    async def _running_own_processes(self) -> AsyncGenerator[None]:
        """Allow agents `from: process` in this block, and end their processes after the block."""
        if not any(isinstance(entry, OwnProcess) for entry in self._run.cell.system.remotes.values()):
            yield
            return
        from .processes import OwnProcesses  # few files need it

        self._own = OwnProcesses(self._root, self._note_ended)
        async with self._own.open():
            yield

    @asynccontextmanager
    async def _in_processes(self) -> AsyncGenerator[None]:
        """Run the groups of the deployment as processes, and open a node that consumes their agents."""
        from lmos_actors.transport import TcpNetwork

        from .processes import Processes, ProcessNetwork  # few files need it

        run, cell = self._run, self._run.cell
        assert cell.deployed is not None  # else the file has been refused
        machine = run.machine = Machine(run.watch)
        processes = Processes(cell.deployed, run.watch.notify, self._note_ended)
        network = None
        if cell.scenario.network is not None:
            groups = tuple(cell.deployed.deployment.groups)
            entropy = change_environment().entropy
            network = processes.network = ProcessNetwork(cell, groups, entropy, processes.group_at_address)
        # processes end first: the node cannot say goodbye to a stopped process
        async with (
            nullcontext() if network is None else network.open(),
            open_node(
                root_spec(cell.system),
                instrument=run.watch,
                network=TcpNetwork() if network is None else network.of_user(),
            ) as node,
            processes.open(),
        ):
            run.processes, self._node = processes, node
            machine.power_on(node)
            processes.connect(node, run.access, run.note_number)
            self._connect_observers(node)
            for name, entry in cell.system.remotes.items():
                run.agents.add_remote(name, await self._find(name, entry, processes.client.remotes))
            begin_time()
            machine.came_up()
            yield

    def _note_ended(self, process: str, why: str) -> None:
        expected = "no end that the file does not ask for"
        self._run.fail(None, f"process {process}", expected, f"it {why}")

    async def _start_agents(self, node: Node) -> None:
        """Start all agents of the file, populations last."""
        run = self._run
        chat_url = partial(_chat_url, node, run.agents)
        places = Places(chat_url, self._chat_network, partial(self._line, node), self._access)
        tree = TreeBuilder(run.cell.system, run.agents.given, self._doubles.classes, places).root()
        for spec in tree.children:
            await start_spec(node, spec)
        for name, entry in run.cell.scenario.agents.items():
            if isinstance(entry, (AgentEntry, PoolEntry)) and entry.service_time:
                for slot in run.agents.slots(name):
                    set_service_time(Ref[Any](slot), float(entry.service_time))
        if self._populations is not None:
            for index in range(len(self._populations)):
                await node.start_supervisor(self._populations.spec_of(index, run.agents))
        failures = [each for each in faults_in(run.cell.scenario) if kind_of_fault(each) == "provider"]
        if self._agent_faults is not None and failures:
            models = dict.fromkeys(str(each.target or each.pick.of) for each in failures)
            self._agent_faults.providers.guard(list(models))

    def _access(self, entry: Bridge) -> RemoteAccess:
        """Return the access that a bridge has to the server in its entry."""
        path = self._run.document.path
        return self._run.access.of(entry, Path() if path is None else path.parent)

    def _line(self, node: Node, name: str) -> HubLine:
        """Return the connection data of an agent for the hub of the file, or for the relay in its entry."""
        run = self._run
        entry = run.cell.scenario.agents[name]
        if isinstance(entry, Bridge) and entry.url is not None:
            from lmos_actors.facades.relay import relay_url

            from ..doubles._hub_agents import HubLine

            access = self._access(entry)
            return HubLine(name, relay_url(entry.url), access.presented(), access.tls())
        assert run.hub is not None  # else the file has been refused
        return run.hub.line(name)

    # ---- a node that is killed and started again

    @asynccontextmanager
    async def _restartable(self) -> AsyncGenerator[None]:
        """Keep a node open in a separate task, and open another one whenever it is killed."""
        over = trio.Event()
        try:
            async with trio.open_nursery(strict_exception_groups=True) as nursery:
                await nursery.start(self._live, over)
                try:
                    yield
                finally:
                    over.set()
        except BaseExceptionGroup as group:
            raise_together(list(group.exceptions), "errors of one run")

    async def _live(self, over: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        machine = self._run.machine
        assert machine is not None
        while not over.is_set():
            async with self._opened():
                if not machine.deaths:
                    task_status.started()
                await first_of(machine.wait_killed, over.wait)
                if machine.is_down:
                    await wait_until_idle()  # callers elsewhere must see that the connection is gone
            self._run.watch.muted = False
            with trio.move_on_at(machine.back_at):
                await over.wait()

    def _connect_again(self, before: Node, node: Node) -> None:
        """Connect steps, judges and the stop point to another node."""
        run = self._run
        node.root.rt.messages = before.root.rt.messages  # the log goes on
        if run.client is not None:
            from .wire import NodeClient

            run.client = NodeClient(node, run.note_number)
        run.agents.move(node, run.client)
        if run.stop is not None:
            run.stop.follow(node)

    def _before_death(self, slots: Collection[Slot] | None) -> None:
        """Note what is lost when a node is killed, just before that.

        `slots` has the agents of a node of the network; None means the whole node.
        """
        judges, faults = self._run.judges, self._agent_faults
        assert judges is not None
        assert faults is not None
        if slots is None:
            faults.node_ends()
        judges.node_ends(slots)
        if slots is not None:
            faults.agents_end({slot.path for slot in slots})

    def _after_return(self, node: str, slots: Collection[Slot]) -> None:
        """Note that the agents of a network node have restarted."""
        run = self._run
        if run.judges is not None:
            run.judges.agents_are_back(slots)
        if run.faults is not None:
            run.faults.node_came_up(node)

    async def _find(self, name: str, entry: Elsewhere, remotes: RemoteAgents) -> ConsumedThing:
        """Connect to an agent on another node, or start its process. Raises StartFailed."""
        path = self._run.document.path
        folder = path.parent if path is not None else Path()
        try:
            access = self._run.access.of(entry, folder)
            if isinstance(entry, OwnProcess):
                assert self._own is not None
                reach = partial(remotes.consume, name, access=access)
                return await self._own.start(name, entry, reach)
            source = str(folder / str(entry.description)) if entry.url is None else entry.url
            return await remotes.consume(name, source, entry.thing, access)
        except StartFailed:
            raise
        except LmosActorsError as error:
            raise StartFailed(name, str(error)) from error

    def _connect_observers(self, node: Node) -> None:
        """Connect judges, faults and counters to the records. Must run before the first agent starts."""
        run, scenario = self._run, self._run.cell.scenario
        places = run.cell.system.paths if scenario.relay is None else {**run.cell.system.paths, HUB: HUB}
        if scenario.world in LISTEN_ADDRESSES:
            from .wire import NodeClient

            run.client = NodeClient(node, run.note_number)
        machine = run.machine
        assert machine is not None
        run.set_agents(RunAgents(run.cell, node, places, machine, run.client, run.network, run.processes))
        judges = Judges(
            scenario.checks,
            scenario.measure,
            RunView(run, places),
            lambda index: run.place(("checks", index)),
        )
        run.judges = judges
        machine.at_death = self._before_death
        machine.at_return = self._after_return
        for kind in judges.kinds:
            run.watch.add(judges.record, kind, paths=judges.paths(kind))
        run.watch.add(run.crashes.record, "crashed")
        if run.stop is not None:
            run.stop.begin(node, run.agents.draw)
            run.watch.add(run.stop.record, *_all_kinds())
        run.watch.add(run.note_sent, "sent")
        if run.states is not None:
            run.states.begin(AgentDirectory(RunView(run, places)))
            run.watch.add(run.states.record, *_all_kinds())
        if run.processes is not None:
            self._connect_process_faults(run.processes, places)
        else:
            self._connect_faults(node, machine)

    def _connect_faults(self, node: Node, machine: Machine) -> None:
        """Set up faults of agents, of the machine, and of the network if there is one."""
        run = self._run
        faults = run.faults = Faults(run.watch, node.root.rt.entropy)
        agents = self._agent_faults = AgentFaults(faults, run.agents.refs)
        run.watch.add(agents.record, "started", "crashed", "stopped")
        faults.worlds += [agents, MachineFaults(faults, machine)]
        if run.network is not None:
            from .network import LinkFaults, NodeFaults  # few files need it

            nodes = NodeFaults(faults, machine, run.network)
            faults.worlds += [nodes, LinkFaults(faults, run.network, machine.call_at)]

    def _connect_process_faults(self, processes: Processes, places: dict[str, str]) -> None:
        """Set up faults of processes, and of links between them if there is a network."""
        from .processes import ProcessFaults  # few files need it

        faults = self._run.faults = Faults(self._run.watch, change_environment().entropy)
        faults.worlds.append(ProcessFaults(faults, processes, places))
        if processes.network is not None:
            from .network import LinkFaults

            faults.worlds.append(LinkFaults(faults, processes.network, processes.call_at))

    async def judge_final_state(self) -> None:
        """Judge the state after the last step, while the agents still exist."""
        await self._run.wait_until_delivered()
        assert self._run.judges is not None
        self._run.judges.judge_final_state(self._run.now())

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets of the run, while its agents still exist."""
        view = RunView(self._run, self._run.cell.system.paths)
        return tuple(view.secrets(()).values())

    def end_simulation(self) -> None:
        """Stop recording, then kill the agents: what they do while stopping is not part of the run."""
        assert self._node is not None
        self._run.watch.end()
        self._node.root.kill()


def _is_restarted(scenario: Scenario | Simulation) -> bool:
    """Return whether the file has a fault that restarts the whole node."""
    return any(
        kind_of_fault(fault) == "restart" and fault.of is UNSET and fault.pick is None
        for fault in faults_in(scenario)
    )


def _all_kinds() -> tuple[str, ...]:
    from .records import KINDS  # few runs have an observer for records of all kinds

    return KINDS


def _chat_url(node: Node, agents: RunAgents, name: str) -> str:
    from lmos_actors.bindings import public_name  # few files need it

    return f"{node.urls[0]}/?agent={public_name(agents.path(name))}"


# --- crashes that the file expects


def is_crash_expected(cell: Cell, path: str) -> bool:
    """Return whether a rule, a recording, or a check of restarts in the file allows crashes of an agent.

    A check of restarts counts if it is about the agent, its population, or a supervisor above it other than
    the root, which never restarts. A temporary agent never restarts either, so no count would include its
    crash.
    """
    places = {place: name for name, place in cell.system.paths.items()}
    name, above = places.get(path, path), path.rpartition("/")[0]
    entry = _entry_of(cell, name)
    if isinstance(entry, (Mock, Replay)) or isinstance(
        _entry_of(cell, above), Mock | Replay
    ):  # for a turn of a chat agent
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


def way_to_expect(cell: Cell, path: str) -> str:
    """Return a hint on how a file can allow crashes of an agent; "" if the agent never restarts."""
    from ..doubles import named_sender

    name = named_sender(path, cell.system.paths).partition(" ")[0]
    entry = _entry_of(cell, name)
    if entry is not None and entry.restart == "temporary":
        return ""
    return f"; if that is wanted: {{check: restarts, of: {name}, ge: 1}}"


def _entry_of(cell: Cell, name: str) -> Any:
    """Return the entry in the file for a name or path; None for agents that other agents have started."""
    scenario = cell.scenario
    if cell.system.used is not None and name in cell.system.used.agents and name not in scenario.agents:
        return cell.system.used.agents[name]
    if name in scenario.agents or not isinstance(scenario, Simulation):
        return scenario.agents.get(name)
    above = name.partition("/")[0]
    return next((entry for entry in scenario.population if entry.id == above), None)
