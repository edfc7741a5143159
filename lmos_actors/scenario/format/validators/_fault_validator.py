"""Validation of faults: targets, exceptions, durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

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
from ._condition_validator import check_delay, check_exception, check_keys
from ._link_fault_validator import check_pick, is_one_of_two

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
    """The validator of faults; mistakes go to `names`."""

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
        """Check a fault in `world: process`, or a fault that is meant for processes."""
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
        check_keys(self.names, f"kind: {fault.kind}", given, needed, more, path)

    def _of_node(self, fault: Any, kind: str, path: DataPath) -> None:
        """Check a fault of the node as a whole, or of its disk."""
        is_restart = kind == "restart"
        why = f'does not apply to "kind: {kind}", which is of the whole node'
        self.names.refuse(fault, path, why, "target", *(() if is_restart else ("pick",)))
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
        """Refuse a fault that has no effect on the hub or the directory."""
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
        is_one_of_two(self.names, pick, path)
        size = self.names.pools.get(pick.of)
        if size is None:
            population = self.names.population(pick.of, (*path, "of"))
            size = None if population is None else population.count
        if size is not None and not (pick.count is UNSET and pick.share is UNSET):
            check_pick(self.names, pick, size, 0, path)

    def _crash(self, fault: Crash | FaultAt, path: DataPath) -> None:
        check_exception(self.names, fault.with_, (*path, "with"))
        comeback: Any = fault.restart
        if comeback is UNSET or comeback is None:
            return
        base = self.names.base_of(_whom(fault, path)[0])
        entry = self.names.entry(base)
        if entry is not None and entry.restart == "temporary":
            message = f'"{base}" is temporary: once it has crashed, it does not come back'
            self.names.report((*path, "restart"), message, "shape", key=True)
        contract = self.names.contract(base)
        if comeback.state is not UNSET and contract is not None and contract.state is not None:
            message = f'"{base}" is durable: a restart finds what its store has'
            self.names.report((*path, "restart", "state"), message, "shape", key=True)
        check_delay(self.names, comeback.after, (*path, "restart", "after"))

    def _lasting(self, fault: Any, path: DataPath) -> None:
        if getattr(fault, "duration", UNSET) is not UNSET and fault.duration <= 0:
            self.names.report((*path, "duration"), "a fault of no duration does nothing", "shape")

    def _provider(self, fault: Provider | FaultAt, path: DataPath) -> None:
        """Report a provider fault of an agent that is not a language model, or a delay without an effect."""
        name, where = _whom(fault, path)
        cls = self.names.class_of(name)
        if cls is not None and not is_model(cls):
            why = f'"{name}" is {cls.__name__}, which is no language model, and has no provider'
            self.names.report(where, why)
        if fault.status != "slow":
            why = 'is how late the pieces of an answer are with "status: slow"'
            self.names.refuse(fault, path, why, "delay")
        check_delay(self.names, fault.delay, (*path, "delay"))

    def _slowed(self, fault: Slow | FaultAt, path: DataPath) -> None:
        """Report a slowdown of an agent without a service time, as it would have no effect."""
        name, place = _whom(fault, path)
        name = self.names.base_of(name)
        entry = self.names.entry(name)
        if entry is not None and not getattr(entry, "service_time", 0.0):
            self.names.report(place, f'"{name}" has no service_time, there is nothing to slow', "shape")


def _whom(fault: Any, path: DataPath) -> tuple[str, DataPath]:
    """Return the name of the agents that a fault strikes, and the path of that name in the file.

    The name is "" if the fault gives none.
    """
    if fault.target is not None:
        return fault.target, (*path, "target")
    return "" if fault.pick is None else fault.pick.of, (*path, "pick", "of")
