"""The agents of a run by their names in the file: refs, slots and supervisors, and a drawing of the tree.

A name is `weather` (one agent), `peer` (all agents of a population or pool), `peer/3` (one of them) or `*`.
In the worlds `wire` and `websocket`, steps and arguments get remote refs, which lead through the node's
server; judges and faults always use the slots themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.actors import Ref, Slot, Thing, found_link, slot_of
from lmos_actors.errors import AgentUnavailable
from lmos_actors.supervision import Supervisor, agents_of, children_of, supervisors_of
from lmos_actors.system.model import ALL_AGENTS, HUB

from ..model import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lmos_actors.actors import Link
    from lmos_actors.approvals import Approvals
    from lmos_actors.bindings import ConsumedThing
    from lmos_actors.node import Node

    from ..format import Cell
    from .memory import Machine
    from .network import RunNetwork
    from .processes import Processes
    from .wire import NodeClient

SHOWN: Final = 16
"""Maximum number of rows of a drawn tree; the last line counts the others."""


class RunAgents:
    """The agents of one run by name: `weather`, `peer/3`, or `peer` for a whole population. One per run.

    Raises KeyError for unknown names, which validation rules out.
    """

    def __init__(
        self,
        cell: Cell,
        node: Node,
        paths: Mapping[str, str],
        machine: Machine,
        client: NodeClient | None = None,
        network: RunNetwork | None = None,
        processes: Processes | None = None,
    ) -> None:
        self._node = node
        self._network = network
        self._processes = processes
        self._cell = cell
        self._client = client
        self._counts: dict[str, int] = {}
        if isinstance(cell.scenario, Simulation):
            self._counts = {entry.id: entry.count for entry in cell.scenario.population}
        self._paths = paths
        self._hub = () if cell.scenario.relay is None else (HUB,)
        self._pools = cell.system.pools
        self._pool_at = {paths[name]: name for name in self._pools}
        self._refs: dict[str, Ref[Any]] = {}
        self._population_refs: dict[str, tuple[Ref[Any], ...]] = {}
        self._remote_refs: dict[str, Ref[Any]] = {}
        self._things: dict[str, Thing | ConsumedThing] = {}
        self._remotes: dict[str, ConsumedThing] = {}
        self._slots: dict[str, tuple[Slot, ...]] = {}
        self._members: dict[str, tuple[Slot, ...]] = {}  # the members of populations, by number
        self.given = _GivenRefs(self, (*paths, *cell.system.remotes), self._counts)
        """The values of `$(agents.NAME)`: a ref, or the refs of a population."""
        self._machine = machine

    def move(self, node: Node, client: NodeClient | None) -> None:
        """Use the agents of another node from now on, because the previous node was killed."""
        self._node, self._client = node, client
        for found in (self._refs, self._population_refs, self._remote_refs, self._things):
            found.clear()
        self._slots.clear()
        self._members.clear()
        self.given.forget()

    # ---- refs

    def add_remote(self, name: str, other: ConsumedThing) -> None:
        """Register an agent of another node."""
        self._remotes[name] = self._things[name] = other

    @property
    def is_remote(self) -> bool:
        """Whether all agents are reached over one connection to the node."""
        return self._client is not None and self._network is None

    def crossing(self, ref: Ref[Any]) -> Ref[Any]:
        """Return a ref in the form that other agents get.

        It crosses the network of the file, if there is one.
        """
        return ref if self._network is None else self._network.ref(ref)

    def given_ref(self, target: str) -> Ref[Any]:
        """Return the ref to an agent that is given to other agents: a remote ref if `is_remote`."""
        if self._client is None and self._network is None:
            return self.ref(target)
        found = self._remote_refs.get(target)
        if found is not None:
            return found
        if self._network is not None:
            found = self._network.ref(self.ref(target))
        else:
            assert self._client is not None
            other, cls = self._remotes.get(target), self._class_of(target)
            if other is not None:
                found = self._client.remotes.ref_to(cls, target, other)
            else:
                found = self._client.ref(cls, self.path(target))
        self._remote_refs[target] = found
        return found

    def given_refs(self, of: str) -> Sequence[Ref[Any]]:
        """Return the refs to an agent, or to all of a population or pool, in the form of `given_ref`."""
        count = self._counts.get(of)
        if not self.is_remote:
            return [self.crossing(ref) for ref in self.refs(of)]
        if count is None:
            return (self.given_ref(of),)
        return [self.given_ref(f"{of}/{number}") for number in range(count)]

    def ref(self, target: str) -> Ref[Any]:
        """Return the near ref of one agent: `weather`, `peer/3`, or a population of one agent."""
        found = self._refs.get(target)
        if found is None:
            found = self._refs[target] = self._node.find(self._class_of(target), self.path(target))
        return found

    def _class_of(self, target: str) -> Any:
        return self._cell.system.agent_class(target)

    def path(self, target: str) -> str:
        """Return the path of an agent in the tree."""
        found = self._paths.get(target)
        if found is not None:
            return found
        above, _, member = target.rpartition("/")
        if above in self._pools:
            return f"{self._paths[above]}/{member}"
        return target if above else f"{target}/0"

    def path_of_one(self, name: str) -> str | None:
        """Return the path of the agent with a name; None if no agent of the file has it, or several do."""
        several = name in self._pools or name in self._counts
        return None if several else self._paths.get(name)

    def refs(self, of: str) -> Sequence[Ref[Any]]:
        """Return the refs of an agent, or of all agents of a population or pool."""
        count = self._counts.get(of)
        if of in self._pools:
            return tuple([Ref[Any](member) for member in self.slots(of)])
        if count is None:
            return (self.ref(of),)
        found = self._population_refs.get(of)
        if found is None:
            slots = self._numbered(of)
            if slots is None:  # not started yet
                return tuple([self.ref(f"{of}/{number}") for number in range(count)])
            found = self._population_refs[of] = tuple([Ref[Any](slot) for slot in slots])
        return found

    def thing(self, target: str) -> Thing | ConsumedThing:
        """Return the untyped view of an agent, for steps.

        Raises AgentUnavailable while its node is down.
        """
        if self._machine.is_down:
            raise AgentUnavailable(self.path(target), "its node is down")
        if self._processes is not None and target not in self._remotes:
            return self._processes.client.thing(self.path(target))  # in the process that `reach` has chosen
        found = self._things.get(target)
        if found is not None:
            return found
        if self._client is not None and self._network is None:
            found = self._client.thing(self.path(target))
        else:
            near = self.ref(target)
            found = Thing(near, None if self._network is None else self.crossing(near))
        self._things[target] = found
        return found

    async def reach(self, target: str, *, is_chosen: bool = False) -> None:
        """Wait for a connection to the next process of an agent; without processes, return at once.

        With `is_chosen`, use the process that this task has chosen. Raises AgentUnavailable if no process is
        ready.
        """
        if self._processes is not None and target not in self._remotes:
            await self._processes.client.reach(self.path(target), is_chosen=is_chosen)

    def link(self, target: str) -> Link:
        """Return the link to an agent whose class is known; the link takes sources of input streams.

        Raises AgentUnavailable while its node is down.
        """
        if self._machine.is_down:
            raise AgentUnavailable(self.path(target), "its node is down")
        if self._processes is None:
            ref = self._used(target) if self._client is None else self.given_ref(target)
        else:
            ref = self._processes.client.ref(self._class_of(target), self.path(target))
        link: Link = found_link(ref._link)  # pyright: ignore[reportPrivateUsage] # as a ref does
        return link

    def _used(self, target: str) -> Ref[Any]:
        """Return the ref to an agent that steps use; it crosses the network of the file, if there is one."""
        return self.crossing(self.ref(target))

    # ---- slots

    def approvals(self) -> Slot | None:
        """Return the slot of the agent that passes questions to people; None while there is no such agent."""
        resolver = self._node.root.rt.resolver
        if not self._machine.has_node or self._processes is not None or resolver is None:
            return None
        found = resolver.at("approvals")
        return found if isinstance(found, Slot) else None

    def far_approvals(self, path: str) -> list[Ref[Approvals]] | None:
        """Return refs to the agents `approvals` of an agent's processes; None in other worlds."""
        return None if self._processes is None else self._processes.client.approvals(path)

    def slot(self, target: str) -> Slot:
        """Return the slot of one agent. Raises AgentUnavailable while its node is down."""
        if not self._machine.has_node:
            raise AgentUnavailable(self.path(target), "its node is down")
        population, slash, number = target.partition("/")
        if slash and population in self._counts and number.isdecimal():
            members = self._members.get(population)
            if members is None:
                members = self._numbered(population)
                if members:
                    self._members[population] = members
            if members and int(number) < len(members):
                return members[int(number)]  # saves a ref and a search for each of very many agents
        return slot_of(self.ref(target))

    def slots(self, of: str) -> tuple[Slot, ...]:
        """Return the slots of an agent, a population, a pool, all agents below a supervisor, or all (`*`).

        While the node is down, there are no slots.
        """
        if not self._machine.has_node:
            return ()
        found = self._slots.get(of)
        if found is None:
            found = self._slots[of] = self._find_slots(of)
        return found

    def _find_slots(self, of: str) -> tuple[Slot, ...]:
        if of == ALL_AGENTS:  # those of the file: agents that other agents start belong to these
            own = {path: None for name, path in self._paths.items() if name not in self._hub}
            return tuple(
                slot
                for slot in agents_of(self._node.root)
                if slot.path in own or self.member_names(slot.path)
            )
        if of in self._pools:
            path = self._paths[of]
            pool = next((each for each in supervisors_of(self._node.root) if each.path == path), None)
            return () if pool is None else tuple(agents_of(pool))
        if of in self._counts or of not in self._paths:
            supervisor = (
                self.supervisor(of) if of.partition("/")[0] not in self._counts or "/" not in of else None
            )
            if supervisor is not None:
                return supervisor.numbered or tuple(agents_of(supervisor))
        return (self.slot(of),)

    def size(self, of: str) -> int:
        """Return the number of agents with a name, or of all (`*`), whether they have started or not."""
        if of == ALL_AGENTS:
            members = sum(self._pools.values()) - len(self._pools)
            return len(self._paths) - len(self._hub) + members + sum(self._counts.values())
        return self._counts.get(of) or self._pools.get(of, 1)

    def _numbered(self, population: str) -> tuple[Slot, ...] | None:
        supervisor = self.supervisor(population)
        return None if supervisor is None else supervisor.numbered

    def supervisor(self, name: str) -> Supervisor | None:
        """Return the supervisor with a name or path; None if there is none, or the node is down."""
        if not self._machine.has_node:
            return None
        there = list(supervisors_of(self._node.root))
        found = next((each for each in there if each.label == name), None)
        return found or next((each for each in there if each.path == name), None)

    def member_names(self, path: str) -> tuple[str, ...]:
        """Return the names of a member of a population or pool, `peer/3` and `peer`; () for other paths."""
        pool = self._pool_at.get(path.rpartition("/")[0])
        if pool is not None:
            return (f"{pool}/{path.rpartition('/')[2]}", pool)
        population, _, number = path.partition("/")
        # an agent that a member starts is below it, and is not a member
        return (path, population) if population in self._counts and number and "/" not in number else ()

    def never_started(self, path: str) -> bool:
        """Return whether a member of a population has not run yet."""
        return bool(self.member_names(path)) and not self.slot(path).incarnation

    # ---- the tree

    def draw(self) -> tuple[str, ...]:
        """Return the present tree as lines of text, with mailboxes and counts.

        A large tree is cut. If agents are in processes, return the processes instead.
        """
        if self._processes is not None:
            return self._processes.draw()
        if not self._machine.has_node:
            return ("the node is down",)
        drawing = _TreeDrawing()
        drawing.add(self._node.root, "")
        return drawing.lines()


class _GivenRefs(Mapping[str, Any]):
    """Refs by name, made on first use. For a population the value is a tuple of refs."""

    def __init__(self, agents: RunAgents, names: Iterable[str], populations: Iterable[str]) -> None:
        self._agents = agents
        self._is_population = dict.fromkeys(names, False) | dict.fromkeys(populations, True)
        self._whole: dict[str, tuple[Ref[Any], ...]] = {}

    def __getitem__(self, name: str) -> Any:
        if not self._is_population[name]:
            return self._agents.given_ref(name)
        if name not in self._whole:
            self._whole[name] = tuple(self._agents.given_refs(name))
        return self._whole[name]

    def forget(self) -> None:
        """Discard the refs of populations, so that they are made anew on their next use."""
        self._whole.clear()

    def __iter__(self) -> Iterator[str]:
        return iter(self._is_population)

    def __len__(self) -> int:
        return len(self._is_population)


class _TreeDrawing:
    """The rows of a drawn tree; rows past the bound are only counted."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str, str, str]] = []
        self._left_out = 0

    def add(self, above: Supervisor, indent: str) -> None:
        """Add a supervisor and everything below it."""
        spec = above.spec
        limit = (
            f"{above.statistics().restarts} restarts, {spec.max_restarts} allowed in {spec.max_seconds:g} s"
        )
        self._rows.append((f"{indent}{above.label} {spec.strategy}", limit, "", "", ""))
        self._below(above, indent + "  ")

    def _below(self, above: Supervisor, indent: str) -> None:
        children = above.children
        for number, child in enumerate(children):
            if len(self._rows) >= SHOWN:
                self._left_out += len(children) - number
                return
            if isinstance(child, Supervisor):
                self.add(child, indent)
            else:
                self._agent(child, indent)

    def _agent(self, child: Slot, indent: str) -> None:
        numbers = child.statistics()
        seats = f"{numbers.waiting}/{child.mailbox.size}"
        counts = (str(numbers.handled), str(numbers.restarts))
        self._rows.append((f"{indent}{child.label}", numbers.state, seats, *counts))
        below = children_of(child)
        if below is not None:
            self._below(below, indent + "  ")

    def lines(self) -> tuple[str, ...]:
        """Return the rows as text, with aligned columns."""
        width, states = (max(len(row[column]) for row in self._rows) for column in (0, 1))
        head = f"{'':{width}}  {'':{states}}  mailbox  handled  restarts"
        rows = [f"{a:{width}}  {b:{states}}  {c:>7}  {d:>7}  {e:>8}".rstrip() for a, b, c, d, e in self._rows]
        more = [f"... {self._left_out} more"] if self._left_out else []
        return (head.rstrip(), *rows, *more)
