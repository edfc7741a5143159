"""Faults of processes: killed, stopped and continued by signals, or drained and started again; and of links.

Those of links are done to the real connections between groups, by the network of the run.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import attrs
import trio
from msgspec import UNSET

from lmos_actors.reports import FaultResult
from lmos_actors.system.model import NETWORK

from ...judge import Cut
from ...model import (
    INSTANT,
    Continue,
    Disconnect,
    Kill,
    OnLinks,
    Partition,
    Restart,
    StopProcess,
    Swizzle,
    kind_of_fault,
)
from .._fault_log import ends_of_cut, log_fields, named_in_log
from ..memory import FaultFailed

if TYPE_CHECKING:
    from lmos_actors._core import Entropy, Instrument

    from ...model import AnyFault, OfNetwork, ProcessFault
    from ._network import ProcessNetwork
    from ._processes import Processes


@attrs.define(eq=False)
class _Injected:
    """A fault, in force until it has an end. `targets` are groups or processes, or the nodes of each side."""

    id: str
    kind: str
    targets: tuple[str, ...]
    begin: float
    end: float | None = None
    key: str = ""
    """The name of a fault of links for the network."""
    sides: tuple[tuple[str, ...], ...] = ()
    one_way: bool = False


class ProcessFaults:
    """Injects faults into the processes of one run. `paths` are those of agents, by name.

    `watch` gets a record of each begin and end. `network` is that of the run, where the file has one.
    """

    def __init__(
        self,
        watch: Instrument,
        entropy: Entropy,
        processes: Processes,
        paths: dict[str, str],
        network: ProcessNetwork | None,
    ) -> None:
        self._watch = watch
        self._entropy = entropy
        self._processes = processes
        self._paths = paths
        self._network = network
        self._injected: list[_Injected] = []

    async def inject(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool = True) -> None:
        """Inject a fault; with `wait` until processes that it has ended are there again, and ready."""
        if isinstance(fault, Swizzle):
            self._cut_one_by_one(fault, id)
            return
        if isinstance(fault, OnLinks):
            self._strike_network(fault, id)  # pyright: ignore[reportArgumentType] # it is one of its heirs
            return
        assert isinstance(fault, Kill | StopProcess | Continue | Restart)  # else the file has been refused
        targets = self._targets_of(fault)
        if isinstance(fault, Continue):
            self._continue(targets)
            return
        injected = _Injected(id, kind_of_fault(fault), tuple(targets), trio.current_time())
        self._injected.append(injected)
        for target in targets:
            fields: dict[str, object] = {"fault": injected.kind, "id": id, "targets": len(targets)}
            self._watch.record("fault", target, fields)
        done = trio.Event()
        self._processes.nursery.start_soon(self._carry_out, fault, injected, done)
        if wait and not isinstance(fault, StopProcess):
            await done.wait()

    # ---- faults of processes

    def _targets_of(self, fault: Any) -> list[str]:
        """Return the groups, and the single processes, that a fault is of. Raises FaultFailed."""
        names: tuple[str, ...] = (fault.of,) if isinstance(fault.of, str) else fault.of
        known = self._processes.launcher.groups
        targets: dict[str, None] = {}
        for name in names:
            group, _, number = name.rpartition("/")
            if group in known and number.isdecimal():
                if int(number) not in known[group].members:
                    raise FaultFailed(f"a process {name}", f"{group} has none of that number")
                targets[name] = None
            else:
                path = self._paths.get(name, name)
                targets[name if name in known else self._processes.group_at(path)] = None
        return list(targets)

    async def _carry_out(
        self, fault: Kill | StopProcess | Restart, injected: _Injected, done: trio.Event
    ) -> None:
        processes, targets = self._processes, list(injected.targets)
        if isinstance(fault, Kill):
            before = processes.generations(targets)
            for target in targets:
                processes.kill(target)
            await processes.wait_begun_after(before)
        elif isinstance(fault, Restart):
            async with trio.open_nursery() as nursery:
                for target in targets:
                    nursery.start_soon(processes.restart, target, float(fault.down))
        else:
            for target in targets:
                processes.pause(target)
            if fault.duration is UNSET:
                return
            await trio.sleep(fault.duration)
            if injected.end is None:
                self._continue(targets)
        self._end(injected)
        done.set()

    def _continue(self, targets: list[str]) -> None:
        for target in targets:
            self._processes.resume(target)
        for injected in self._injected:
            groups = {target.partition("/")[0] for target in injected.targets}
            if injected.kind == "stop" and ({*injected.targets} <= {*targets} or groups <= {*targets}):
                self._end(injected)

    def _end(self, injected: _Injected) -> None:
        if injected.end is None:
            injected.end = trio.current_time()
            for target in injected.targets if not injected.key else (NETWORK,):
                fields = {"fault": injected.kind, "id": injected.id, **named_in_log(injected)}
                self._watch.record("healed", target, fields)

    # ---- faults of links

    def _strike_network(self, fault: OfNetwork, id: str, *, kind: str = "", key: str = "") -> _Injected:
        """Inject a fault of links now. `kind` and `key` are those of one that is part of another."""
        assert self._network is not None  # else the file has been refused
        kind, key = kind or kind_of_fault(fault), key or id
        nodes = self._network.strike(fault, key)
        targets = tuple(node for side in nodes for node in side)
        injected = _Injected(id, kind, targets, trio.current_time(), key=key)
        if isinstance(fault, Partition):
            injected.sides, injected.one_way = nodes, fault.one_way
        self._injected.append(injected)
        fields = {"fault": kind, "id": id, "targets": len(targets), **named_in_log(injected)}
        self._watch.record("fault", NETWORK, {**fields, **log_fields(fault)})
        if isinstance(fault, Disconnect) and fault.how in INSTANT:
            self._end(injected)
        elif fault.duration is not UNSET:
            self._processes.nursery.start_soon(self._heal_after, injected, float(fault.duration))
        return injected

    async def _heal_after(self, injected: _Injected, seconds: float) -> None:
        await trio.sleep(seconds)
        self._heal(injected)

    def _heal(self, injected: _Injected) -> None:
        assert self._network is not None
        if injected.end is None:
            self._network.heal(injected.key)
            self._end(injected)

    def _cut_one_by_one(self, fault: Swizzle, id: str) -> None:
        """Cut links one after the other, and heal them in another order, as `Faults` does."""
        assert self._network is not None
        random = self._entropy.stream(f"fault {id}")
        links = list(combinations(self._network.nodes(fault.of), 2))
        random.shuffle(links)
        last = len(links) - 1
        for number, place in enumerate(random.sample(range(len(links)), len(links))):
            one, other = links[number]
            cut = Partition(sides=((one,), (other,)))
            begin, end = number * fault.every, fault.duration - (last - place) * fault.every
            strike = partial(self._strike_network, cut, id, kind="swizzle", key=f"{id} {number}")
            if number:
                self._processes.nursery.start_soon(self._cut_later, strike, begin, end)
            else:
                self._processes.nursery.start_soon(self._heal_after, strike(), end)

    async def _cut_later(self, strike: partial[_Injected], begin: float, end: float) -> None:
        at = trio.current_time()
        await trio.sleep_until(at + begin)
        injected = strike()
        await trio.sleep_until(at + end)
        self._heal(injected)

    def heal(self, id: str) -> None:
        """End a fault of links that lasts until then. Raises FaultFailed if there is none in force."""
        lasting = (each for each in self._injected if each.id == id and each.key and each.end is None)
        found = next(lasting, None)
        if found is None:
            raise FaultFailed(f"the fault {id} in force", "it has not begun, or has ended")
        self._heal(found)

    # ---- what is in force

    @property
    def active(self) -> bool:
        """True while any fault is in force."""
        return any(injected.end is None for injected in self._injected)

    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts of the network that are in force, the oldest first."""
        return tuple(
            Cut(injected.begin, injected.sides or ends_of_cut(injected.targets), one_way=injected.one_way)
            for injected in self._injected
            if injected.end is None and injected.kind in ("partition", "swizzle", "disconnect")
        )

    def healed(self, id: str) -> float | None:
        """Return the instant when the last fault of an id ended; None if one is in force, or none came."""
        ends = [injected.end for injected in self._injected if injected.id == id]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None

    def results(self) -> tuple[FaultResult, ...]:
        """Return all faults, in their order; `end` is None for those still in force."""
        return tuple(
            FaultResult(
                id=each.id,
                kind=each.kind,
                targets=each.targets,
                begin=each.begin,
                end=each.end,
                sides=each.sides,
                one_way=each.one_way,
            )
            for each in self._injected
        )
