"""Faults of one run: injection, duration and recovery.

A pause and a slowdown end after their duration. A crash lasts until its agent runs again or is gone for good,
a restart of the node until its agents have been started again, a full disk until those that it stopped run.
Random choices come from streams named after the fault, so that adding a fault does not change another.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import trio
from msgspec import UNSET

from lmos_actors.actors import (
    ExitReason,
    end_skew,
    hold,
    keep_state,
    release,
    service_time,
    set_service_time,
    skew_clock,
    slot_of,
)
from lmos_actors.errors import NotFound
from lmos_actors.files import Duration
from lmos_actors.reports import FaultResult, NodeRestart
from lmos_actors.supervision import supervisor_of
from lmos_actors.system.model import NETWORK
from lmos_actors.system.values import draw, exception_class

from ...judge import Cut
from ...model import (
    INSTANT,
    AnyFault,
    ClockSkew,
    Comeback,
    Continue,
    Crash,
    Disconnect,
    FullDisk,
    Kill,
    OnLinks,
    Partition,
    Pause,
    Provider,
    Restart,
    Slow,
    SlowDisk,
    StopProcess,
    Swizzle,
    kind_of_fault,
)
from .._fault_log import ends_of_cut, log_fields, named_in_log
from ._provider_faults import ProviderFault, ProviderFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from lmos_actors._core import Entropy, Instrument, RandomStream
    from lmos_actors.actors import Ref, Slot

    from ...model import OfNetwork, ProcessFault
    from ..network import RunNetwork
    from ._machine import Machine

NODE: Final = "root"
"""The path that faults of the node as a whole have in the log."""

INJECTED: Final = "__lmos_injected__"
"""Attribute that marks exceptions of faults."""


class FaultFailed(Exception):
    """A fault cannot be injected into its target."""

    def __init__(self, expected: str, saw: str) -> None:
        super().__init__(f"expected {expected}, saw {saw}")
        self.expected = expected
        self.saw = saw


class RefLookup(Protocol):
    """Lookup of agents by the names of the file."""

    def __call__(self, name: str, /) -> Sequence[Ref[Any]]:
        """Return the ref of an agent, or those of all agents of a population, in order."""
        ...


@attrs.define(eq=False)
class _InjectedFault:
    """An injected fault, in force until `left`, the agents not recovered yet by path, is empty."""

    id: str
    kind: str
    targets: tuple[str, ...]
    begin: float
    left: dict[str, Slot | None]
    """None for the node, and for agents of a node that has been killed."""
    end: float | None = None
    key: str = ""
    """The name of a fault of links for the network."""
    sides: tuple[tuple[str, ...], ...] = ()
    one_way: bool = False
    ends: dict[str, Callable[[], object]] = attrs.field(factory=dict[str, "Callable[[], object]"])
    """What undoes it on each agent, by path, where that is not its own affair."""
    agents: dict[str, tuple[str, ...]] = attrs.field(factory=dict[str, tuple[str, ...]])
    """What is on each node of the network that a restart has ended, by the node."""
    back_at: dict[str, float] = attrs.field(factory=dict[str, float])
    """When each of them was there again."""


class Faults:
    """Injects faults, ends them, and tracks those in force. One per run.

    `watch` gets a record of each begin and end. `record` must be called for every record of the run.
    """

    def __init__(
        self,
        watch: Instrument,
        entropy: Entropy,
        find: RefLookup,
        machine: Machine | None = None,
        network: RunNetwork | None = None,
    ) -> None:
        self._watch = watch
        self._machine = machine
        self._network = network
        self._entropy = entropy
        self._find = find
        self._injected: list[_InjectedFault] = []
        self._in_force: dict[_InjectedFault, None] = {}
        self._down: dict[str, list[_InjectedFault]] = {}  # by the paths of the crashed
        self._ends: dict[str, trio.Event] = {}
        self._paces: dict[Slot, tuple[float, list[float]]] = {}
        self._streams: dict[str, RandomStream] = {}
        self.providers = ProviderFaults(find, self._stream)
        """The faults of providers of models."""

    # ---- striking

    async def inject(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool = True) -> None:
        """Inject a fault and wait for its immediate effects, restarts by supervisors included.

        `id` is its name, or its place in the file. `wait=False` does not wait for the crashed agents
        to end. Raises FaultFailed, and then has changed nothing.
        """
        if isinstance(fault, Kill):
            fault = Restart(of=fault.of)
        assert not isinstance(fault, StopProcess | Continue)  # else the file has been refused
        if isinstance(fault, (OnLinks, Swizzle)):
            self._strike_network(fault, id)
            return
        if isinstance(fault, (Restart, FullDisk, SlowDisk)):
            ended = self._strike_node(fault, id)
            if wait and isinstance(fault, Restart) and self._machine is not None:
                for node in ended:
                    await self._machine.wait_node_up(node)
                await self._machine.wait_up()
            return
        slots = self.strike(fault, id)
        if wait and isinstance(fault, Crash):
            for slot in slots:
                if slot.path in self._ends:
                    await self._ends[slot.path].wait()
            for supervisor in dict.fromkeys(map(supervisor_of, slots)):
                await supervisor.settled()

    def strike(self, fault: Crash | Slow | Pause | ClockSkew | Provider, id: str) -> tuple[Slot, ...]:
        """Inject a fault now and return the affected slots. Raises FaultFailed before any change."""
        refs = self._choose(fault, id)
        if isinstance(fault, Crash):
            self._check_comeback(fault, refs)
        if isinstance(fault, Slow):
            _check_service(refs)
        slots = tuple(slot_of(ref) for ref in refs)
        kind = kind_of_fault(fault)
        injected = self._inject(id, kind, {slot.path: slot for slot in slots})
        more = log_fields(fault)
        for slot in slots:
            fields = {"fault": kind, "id": id, "targets": len(slots), **more}
            self._watch.record("fault", slot.path, fields)
        if isinstance(fault, Crash):
            self._crash(fault, injected, refs, slots)
        elif isinstance(fault, Provider):
            self._fail_providers(fault, injected, slots)
        else:
            self._impair(fault, injected, refs, slots)
        return slots

    def _inject(self, id: str, kind: str, left: dict[str, Slot | None]) -> _InjectedFault:
        injected = _InjectedFault(id, kind, tuple(left), trio.current_time(), left)
        self._injected.append(injected)
        self._in_force[injected] = None
        return injected

    def _choose(self, fault: Crash | Slow | Pause | ClockSkew | Provider, id: str) -> list[Ref[Any]]:
        pick = fault.pick
        if pick is None:
            assert fault.target is not None
            refs = list(self._find(fault.target))
            for ref in refs:
                if _state(ref) != "running":
                    raise FaultFailed(f"a running {fault.target}", f"{ref.path} is {_state(ref)}")
            return refs
        refs = list(self._find(pick.of))
        count = pick.number_of(len(refs))
        running = [number for number, ref in enumerate(refs) if _state(ref) == "running"]
        if count > len(running):
            raise FaultFailed(f"{count} running agents of {pick.of}", f"{len(running)} of {len(refs)}")
        return [refs[number] for number in sorted(self._stream(f"fault {id}").sample(running, count))]

    def _stream(self, name: str) -> RandomStream:
        if name not in self._streams:
            self._streams[name] = self._entropy.stream(name)
        return self._streams[name]

    # ---- crashes

    def _check_comeback(self, fault: Crash, refs: list[Ref[Any]]) -> None:
        if fault.restart is not None:
            for ref in refs:
                if slot_of(ref).spec.restart == "temporary":
                    raise FaultFailed(f"{ref.path} to come back", "it is temporary and not restarted")

    def _crash(
        self, fault: Crash, injected: _InjectedFault, refs: list[Ref[Any]], slots: Sequence[Slot]
    ) -> None:
        made = exception_class(fault.with_)
        assert made is not None
        for ref, slot in zip(refs, slots, strict=True):
            path = slot.path
            self._down.setdefault(path, []).append(injected)
            self._ends[path] = trio.Event()
            if fault.restart is not None:
                self._schedule_comeback(fault.restart, injected.id, ref, slot)
            error = made("injected by the scenario")
            setattr(error, INJECTED, True)
            slot.die(ExitReason("error", error=error))

    def _schedule_comeback(self, comeback: Comeback, id: str, ref: Ref[Any], slot: Slot) -> None:
        """Postpone the restart of an agent to the time in the file."""
        seconds = draw(comeback.after, self._stream(f"fault {id} {slot.path}"))
        supervisor_of(slot).postpone_restart(slot.label, seconds)
        if comeback.state == "kept":
            keep_state(ref)

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Take a record of the run: crashed agents may have ended or started again."""
        if kind == "started":
            self.providers.started(agent)
            for injected in self._down.pop(agent, ()):
                self._heal(injected, [agent] if agent in injected.left else [])
        elif kind in ("crashed", "stopped"):
            ended = self._ends.pop(agent, None)
            if ended is not None:
                ended.set()

    def _end_unrecoverable(self) -> None:
        """End crashes whose agents will never run again."""
        for path, several in tuple(self._down.items()):
            for injected in tuple(several):
                slot = injected.left.get(path)
                if slot is not None and slot.gone:
                    several.remove(injected)
                    self._heal(injected, [path])
            if not several:
                del self._down[path]

    # ---- providers of models

    def _fail_providers(self, fault: Provider, injected: _InjectedFault, slots: Sequence[Slot]) -> None:
        """Have the providers of models fail; they go on to when a node is killed meanwhile."""
        until = trio.current_time() + fault.duration
        failing = ProviderFault(fault, until)
        for path in injected.targets:
            self.providers.begin(path, failing)
        injected.ends = {path: partial(self.providers.end, path, failing) for path in injected.targets}
        clock: Any = trio.lowlevel.current_clock()
        call_at = getattr(clock, "call_at", slots[0].rt.timers.call_at)
        call_at(until, partial(self._undo, injected, injected.targets))

    # ---- pauses, slowings and wrong clocks

    def _impair(
        self,
        fault: Slow | Pause | ClockSkew,
        injected: _InjectedFault,
        refs: list[Ref[Any]],
        slots: Sequence[Slot],
    ) -> None:
        ends: list[Callable[[], object]]
        if isinstance(fault, Pause):
            ends = [partial(release, ref) for ref in refs]
            for ref in refs:
                hold(ref)
        elif isinstance(fault, ClockSkew):
            skew, rate = float(fault.skew), float(fault.rate)
            ends = [partial(end_skew, ref, skew_clock(ref, skew, rate)) for ref in refs]
        else:
            ends = [partial(self._undo_slow, fault.factor, ref) for ref in refs]
            for ref in refs:
                self._slow(fault.factor, ref)
        injected.ends = dict(zip(injected.targets, ends, strict=True))

        def heal() -> None:
            if injected.end is None:  # else the node has been killed, and with it what was slow
                self._undo(injected, tuple(injected.left))

        slots[0].rt.timers.call_at(trio.current_time() + fault.duration, heal)

    def _undo(self, injected: _InjectedFault, paths: Sequence[str]) -> None:
        for path in paths:
            injected.ends[path]()
        self._heal(injected, paths)

    def _slow(self, factor: float, ref: Ref[Any]) -> None:
        self._paces.setdefault(slot_of(ref), (service_time(ref), []))[1].append(factor)
        self._change_pace(ref)

    def _undo_slow(self, factor: float, ref: Ref[Any]) -> None:
        self._paces[slot_of(ref)][1].remove(factor)
        self._change_pace(ref)

    def _change_pace(self, ref: Ref[Any]) -> None:
        """Set the service time; the factors of several faults are multiplied."""
        slot = slot_of(ref)
        own, factors = self._paces[slot]
        if factors:
            set_service_time(ref, round(own * math.prod(sorted(factors)), 6))
        else:
            set_service_time(ref, own)
            del self._paces[slot]

    # ---- faults of the node

    def _strike_node(self, fault: Restart | FullDisk | SlowDisk, id: str) -> Sequence[str]:
        """Inject a fault of the node or of its disk now; return the nodes of the network that have ended.

        Raises FaultFailed before any change.
        """
        machine, kind = self._machine, kind_of_fault(fault)
        assert machine is not None
        if isinstance(fault, Restart) and machine.is_down:
            raise FaultFailed("a running node to restart", "it is down")
        if isinstance(fault, Restart) and (fault.of is not UNSET or fault.pick is not None):
            return self._strike_nodes(fault, id)
        injected = self._inject(id, kind, {NODE: None})
        self._watch.record("fault", NODE, {"fault": kind, "id": id, "targets": 1, **log_fields(fault)})
        if isinstance(fault, Restart):
            self._end_with_node()
            machine.kill("kept" if fault.writes is UNSET else fault.writes, float(fault.down))
            return ()
        if isinstance(fault, SlowDisk):
            machine.slow_disk(fault.factor)
            heal = partial(self._undo_slow_disk, machine, fault.factor, injected)
        else:
            machine.fill_disk()
            heal = partial(self._clear_disk, machine, injected)
        machine.call_at(trio.current_time() + fault.duration, heal)
        return ()

    def _strike_nodes(self, fault: Restart, id: str) -> Sequence[str]:
        """End nodes of the network now, and have them begin again. Raises FaultFailed before any change."""
        machine, network = self._machine, self._network
        assert machine is not None
        assert network is not None
        if fault.pick is None:
            assert fault.of is not UNSET
            nodes = network.nodes(fault.of)
            for node in nodes:
                if machine.is_node_down(node):
                    raise FaultFailed(f"a running node {node} to restart", "it is down")
        else:
            every = network.nodes(fault.pick.of)
            up = [node for node in every if not machine.is_node_down(node)]
            count = fault.pick.number_of(len(every))
            if count > len(up):
                raise FaultFailed(f"{count} running nodes of {fault.pick.of}", f"{len(up)} of {len(every)}")
            nodes = [up[place] for place in sorted(self._stream(f"fault {id}").sample(range(len(up)), count))]
        injected = self._inject(id, "restart", dict.fromkeys(nodes))
        for node in nodes:
            fields = {"fault": "restart", "id": id, "targets": len(nodes), **log_fields(fault)}
            self._watch.record("fault", node, fields)
        injected.sides = (tuple(nodes),)
        injected.agents = {node: machine.agents_on(node) for node in nodes}
        for node in nodes:
            machine.kill_node(node, "kept" if fault.writes is UNSET else fault.writes, float(fault.down))
        return nodes

    def agents_end(self, paths: Container[str]) -> None:
        """End what was in force on agents that are killed with their node of the network."""
        for injected in tuple(self._in_force):
            struck = [path for path in injected.left if path in paths and injected.left[path] is not None]
            if injected.kind in ("slow", "pause", "clock_skew"):
                self._undo(injected, struck)
            else:
                injected.left |= dict.fromkeys(struck)  # the crashed are to run again
        for path in tuple(self._ends):
            if path in paths:
                self._ends.pop(path).set()

    def _end_with_node(self) -> None:
        """End what was in force on agents of a node that is killed; crashed ones are to run again."""
        for injected in tuple(self._in_force):
            if injected.kind in ("slow", "pause", "clock_skew"):
                self._heal(injected, injected.targets)
            for path in injected.left:
                injected.left[path] = None
        self._paces.clear()
        for ended in self._ends.values():
            ended.set()
        self._ends.clear()

    def node_came_up(self, node: str | None = None) -> None:
        """All agents of a node that was killed have been started again; or those of one of the network."""
        for injected in tuple(self._in_force):
            if injected.kind == "restart":
                self._heal(injected, [each for each in injected.left if node in (None, each)])

    def _undo_slow_disk(self, machine: Machine, factor: float, injected: _InjectedFault) -> None:
        machine.undo_slow_disk(factor)
        self._heal(injected, injected.targets)

    def _clear_disk(self, machine: Machine, injected: _InjectedFault) -> None:
        machine.clear_disk()
        self._heal_once_all_run(machine, injected)

    def _heal_once_all_run(self, machine: Machine, injected: _InjectedFault) -> None:
        """End a full disk once the agents that it has stopped run again."""
        seconds = machine.look_again_in()
        if seconds is None:
            self._heal(injected, injected.targets)
        else:
            again = partial(self._heal_once_all_run, machine, injected)
            machine.call_at(trio.current_time() + seconds, again)

    # ---- faults of the network

    def _strike_network(self, fault: OfNetwork | Swizzle, id: str, *, kind: str = "", key: str = "") -> None:
        """Inject a fault of links between nodes now. `key`: its name for the network, if not `id`.

        `kind`: the kind of the fault that this one is a part of.
        """
        assert self._network is not None
        if isinstance(fault, Swizzle):
            self._cut_one_by_one(fault, id)
            return
        kind, key = kind or kind_of_fault(fault), key or id
        nodes = self._network.strike(fault, key)
        injected = self._inject(id, kind, {NETWORK: None})
        injected.key = key
        injected.targets = tuple(node for side in nodes for node in side)
        if isinstance(fault, Partition):
            injected.sides, injected.one_way = nodes, fault.one_way
        targets = {"targets": len(injected.targets), **named_in_log(injected)}
        self._watch.record("fault", NETWORK, {"fault": kind, "id": id, **targets, **log_fields(fault)})
        if isinstance(fault, Disconnect) and fault.how in INSTANT:
            self._heal(injected, (NETWORK,))
        elif fault.duration is not UNSET:
            clock: Any = trio.lowlevel.current_clock()
            clock.call_at(trio.current_time() + fault.duration, partial(self._heal_network, injected))

    def heal(self, id: str) -> None:
        """End a fault of the network that lasts until then. Raises FaultFailed if there is none in force."""
        found = next((each for each in self._in_force if each.id == id and NETWORK in each.left), None)
        if found is None:
            raise FaultFailed(f"the fault {id} in force", "it has not begun, or has ended")
        self._heal_network(found)

    def _heal_network(self, injected: _InjectedFault) -> None:
        assert self._network is not None
        if injected.end is None:
            self._network.heal(injected.key)
            self._heal(injected, (NETWORK,))

    def _cut_one_by_one(self, fault: Swizzle, id: str) -> None:
        """Cut links one after the other, and heal them in another order: each is a partition of two nodes."""
        assert self._network is not None
        links = list(combinations(self._network.nodes(fault.of), 2))
        random, now = self._stream(f"fault {id}"), trio.current_time()
        random.shuffle(links)
        last = len(links) - 1
        clock: Any = trio.lowlevel.current_clock()
        for number, place in enumerate(random.sample(range(len(links)), len(links))):
            begin = number * fault.every
            lasts = Duration(round(fault.duration - (last - place) * fault.every - begin, 6))
            one, other = links[number]
            cut = Partition(sides=((one,), (other,)), duration=lasts)
            strike = partial(self._strike_network, cut, id, kind="swizzle", key=f"{id} {number}")
            if number:
                clock.call_at(now + begin, strike)
            else:
                strike()

    # ---- what is in force

    def _heal(self, injected: _InjectedFault, paths: Sequence[str]) -> None:
        for path in paths:
            injected.left.pop(path, None)
            if path in injected.agents:
                injected.back_at[path] = trio.current_time()
        if not injected.left:
            injected.end = trio.current_time()
            del self._in_force[injected]
        for path in paths:
            fields = {"fault": injected.kind, "id": injected.id, **named_in_log(injected)}
            self._watch.record("healed", path, fields)

    @property
    def active(self) -> bool:
        """True while any fault is in force."""
        self._end_unrecoverable()
        return bool(self._in_force)

    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts of the network that are in force, the oldest first."""
        return tuple(
            Cut(
                injected.begin,
                injected.sides or ends_of_cut(injected.targets),
                one_way=injected.one_way,
                is_down=injected.kind == "restart",
            )
            for injected in self._in_force
            if injected.kind in ("partition", "swizzle", "disconnect")
            or (injected.kind == "restart" and injected.sides)
        )

    def healed(self, id: str) -> float | None:
        """Return the instant when the last fault of an id ended; None if one is in force, or none came."""
        self._end_unrecoverable()
        ends = [injected.end for injected in self._injected if injected.id == id]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None

    def results(self) -> tuple[FaultResult, ...]:
        """Return all faults that have struck, in that order; `end` is None for those still in force."""
        self._end_unrecoverable()
        return tuple(
            FaultResult(
                id=injected.id,
                kind=injected.kind,
                targets=injected.targets,
                begin=injected.begin,
                end=injected.end,
                sides=injected.sides,
                one_way=injected.one_way,
                restarted=tuple(
                    NodeRestart(node=node, agents=agents, end=injected.back_at.get(node))
                    for node, agents in injected.agents.items()
                ),
            )
            for injected in self._injected
        )


def _check_service(refs: list[Ref[Any]]) -> None:
    for ref in refs:
        if not service_time(ref):
            raise FaultFailed(f"{ref.path} with a service time to slow", "it has none")


def _state(ref: Ref[Any]) -> str:
    """Return the state of an agent; if it is down, the state that its supervisor has."""
    try:
        slot = slot_of(ref)
    except NotFound:
        return "gone"
    state = slot.state_name
    if state != "down" or slot.status == "running":  # its supervisor has not been notified of its end yet
        return state
    return slot.status
