"""Validation of faults: targets, exceptions, durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.files import did_you_mean
from lmos_actors.system.values import problem_at

from ...doubles import is_model
from ...model import (
    FAULT_KEYS,
    OF_NETWORK,
    OF_NODE,
    OF_PROCESSES,
    Comeback,
    Crash,
    FaultAt,
    Pick,
    Provider,
    Slow,
    kind_of_fault,
)

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

    from ._link_fault_validator import LinkFaultValidator
    from ._process_validator import ProcessValidator
    from ._store_validator import StoreValidator

_KEYS = (
    "with", "restart", "factor", "duration", "writes", "down", "sides", "one_way", "between", "delay",
    "share", "how", "of", "every", "skew", "rate", "status",
)  # fmt: skip


class FaultValidator:
    """Validates faults; mistakes go to `names`."""

    def __init__(
        self,
        names: CellNames,
        store: StoreValidator,
        links: LinkFaultValidator,
        processes: ProcessValidator,
    ) -> None:
        self.names = names
        self.processes = processes
        self.store = store
        self.links = links
        self.any = False
        """True if the file has a fault, even a wrong one."""

    def fault(self, fault: Any, path: DataPath) -> None:
        """Check the fault of an `inject` step or of a timeline entry."""
        kind = kind_of_fault(fault)
        if isinstance(fault, FaultAt):
            self._keys(fault, path)
        if kind not in OF_NETWORK and (self.processes.is_process or kind in OF_PROCESSES or kind == "kill"):
            self._of_processes(fault, kind, path)
            return
        if kind in OF_NODE:
            self._of_node(fault, kind, path)
            return
        if kind in OF_NETWORK:
            self.links.fault(fault, kind, path)
            self._lasting(fault, path)
            return
        if (fault.target is None) == (fault.pick is None):
            self.names.report(path, 'a fault has exactly one of "target" and "pick"', "shape")
        if fault.target is not None:
            self.names.check_group(fault.target, (*path, "target"))
            self._of_service(fault, kind, path)
        if fault.pick is not None:
            self._pick(fault.pick, (*path, "pick"))
        if kind == "crash":
            self._crash(fault, path)
        else:
            self._lasting(fault, path)
        if kind == "provider":
            self._provider(fault, path)
        elif kind == "slow":
            self._slowed(fault, path)
        elif kind == "clock_skew":
            self.store.check_world('"kind: clock_skew"', (*path, "kind"))
            if fault.skew in (UNSET, 0) and fault.rate in (UNSET, 1):
                self.names.report(
                    path, 'a clock that is right: one of "skew" and "rate" says how it is not', "shape"
                )

    def _of_processes(self, fault: Any, kind: str, path: DataPath) -> None:
        """Check a fault that processes can have, or a fault of processes."""
        if self.processes.is_process:
            self.processes.fault(fault, kind, path)
            self._lasting(fault, path)
        elif kind in OF_PROCESSES:
            self.processes.elsewhere(kind, path)
        else:
            self.store.check_world(f'"kind: {kind}"', (*path, "kind"))
            self.links.restart(fault, path)

    def _keys(self, fault: FaultAt, path: DataPath) -> None:
        needed, more = FAULT_KEYS[fault.kind]
        names = [{"with": "with_"}.get(key, key) for key in _KEYS]
        values = [getattr(fault, name) for name in names]
        given = [key for key, value in zip(_KEYS, values, strict=True) if value is not UNSET]
        for key in sorted(needed.difference(given)):
            self.names.report(path, f'"kind: {fault.kind}" needs "{key}"', "shape")
        for key in given:
            if key not in needed | more:
                message = f'"{key}" does not apply to "kind: {fault.kind}"'
                self.names.report((*path, key), message, "shape", key=True)

    def _of_node(self, fault: Any, kind: str, path: DataPath) -> None:
        """Check a fault of the node as a whole, or of its disk."""
        is_restart = kind == "restart"
        for key in ("target",) if is_restart else ("target", "pick"):
            if getattr(fault, key, None) is not None:
                message = f'"{key}" does not apply to "kind: {kind}", which is of the whole node'
                self.names.report((*path, key), message, "shape", key=True)
        place = (*path, "kind")
        self.store.check_world(f'"kind: {kind}"', place)
        if is_restart:
            if fault.writes is not UNSET:
                self.store.check_durable('"writes"', (*path, "writes"), key=True)
            self.links.restart(fault, path)
            return
        self._lasting(fault, path)
        self.store.check_durable(f'"kind: {kind}"', place)
        if kind == "slow_disk" and not self.store.takes_time:
            message = 'commits take no time, there is nothing to slow: "store: {latency: ...}" says how long'
            self.names.report(place, message, "shape")

    def _of_service(self, fault: Any, kind: str, path: DataPath) -> None:
        """Refuse a fault that means nothing for the hub or the directory."""
        is_hub = self.names.is_hub(fault.target)
        if not is_hub and not self.names.is_directory(fault.target):
            return
        if is_hub and kind != "crash":
            why = f'"{fault.target}" is the hub, on which "kind: {kind}" has no effect: it can crash'
            self.names.report((*path, "target"), why)
        elif kind == "crash" and isinstance(fault.restart, Comeback) and fault.restart.state is not UNSET:
            why = f"what the {'hub' if is_hub else 'directory'} keeps outlives its crash"
            self.names.report((*path, "restart", "state"), why, "shape", key=True)

    def _pick(self, pick: Pick, path: DataPath) -> None:
        if (pick.count is UNSET) == (pick.share is UNSET):
            self.names.report(path, 'a pick has exactly one of "count" and "share"', "shape")
        size = self.names.pools.get(pick.of)
        if size is None:
            population = self.names.population(pick.of, (*path, "of"))
            size = None if population is None else population.count
        if size is not None and pick.count is not UNSET and pick.count > size:
            message = f'"{pick.of}" has {size} agents, fewer than {pick.count}'
            self.names.report((*path, "count"), message, "shape")
        if size is not None and pick.share is not UNSET and round(pick.share * size) < 1:
            message = f"that share of {size} agents is none"
            self.names.report((*path, "share"), message, "shape")

    def _crash(self, fault: Crash | FaultAt, path: DataPath) -> None:
        from lmos_actors.system.values import exception_class, exception_names

        name = fault.with_
        if isinstance(name, str) and exception_class(name) is None:
            near = did_you_mean(name, exception_names())
            self.names.report((*path, "with"), f'no built-in exception "{name}" made from a message{near}')
        comeback: Any = fault.restart
        if comeback is UNSET or comeback is None:
            return
        base = self.names.base_of(fault.target or (fault.pick.of if fault.pick is not None else ""))
        entry = self.names.entry(base)
        if entry is not None and entry.restart == "temporary":
            message = f'"{base}" is temporary: once it has crashed, it does not come back'
            self.names.report((*path, "restart"), message, "shape", key=True)
        contract = self.names.contract(base)
        if comeback.state is not UNSET and contract is not None and contract.state is not None:
            message = f'"{base}" is durable: a restart finds what its store has'
            self.names.report((*path, "restart", "state"), message, "shape", key=True)
        problem = problem_at(comeback.after, time=True)
        if problem is not None:
            self.names.report((*path, "restart", "after", problem[0]), problem[1], "shape")

    def _lasting(self, fault: Any, path: DataPath) -> None:
        if getattr(fault, "duration", UNSET) is not UNSET and fault.duration <= 0:
            self.names.report((*path, "duration"), "a fault of no duration does nothing", "shape")

    def _provider(self, fault: Provider | FaultAt, path: DataPath) -> None:
        """Report a provider fault of agents that are not language models, and a delay without an effect."""
        where: DataPath = (*path, "target") if fault.target is not None else (*path, "pick", "of")
        name = fault.target if fault.target is not None else fault.pick.of if fault.pick is not None else ""
        cls = self.names.class_of(name)
        if cls is not None and not is_model(cls):
            why = f'"{name}" is {cls.__name__}, which is no language model, and has no provider'
            self.names.report(where, why)
        if fault.delay is not UNSET and fault.status != "slow":
            why = '"delay" is how late the pieces of an answer are with "status: slow"'
            self.names.report((*path, "delay"), why, "shape", key=True)
        problem = None if fault.delay is UNSET else problem_at(fault.delay, time=True)
        if problem is not None:
            self.names.report((*path, "delay", problem[0]), problem[1], "shape")

    def _slowed(self, fault: Slow | FaultAt, path: DataPath) -> None:
        """Report a slowdown of agents without a service time, where it would have no effect."""
        name = fault.target if fault.target is not None else fault.pick.of if fault.pick is not None else ""
        name = self.names.base_of(name)
        entry = self.names.entry(name)
        if entry is not None and not getattr(entry, "service_time", 0.0):
            where = "target" if fault.target is not None else "pick"
            place = (*path, "target") if where == "target" else (*path, "pick", "of")
            self.names.report(place, f'"{name}" has no service_time, there is nothing to slow', "shape")
