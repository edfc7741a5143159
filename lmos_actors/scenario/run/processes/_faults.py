"""Faults of processes: signals kill, stop or continue them, or they drain and are started again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from msgspec import UNSET

from ...model import Continue, Kill, Restart, StopProcess, kind_of_fault
from ..faults import FaultFailed

if TYPE_CHECKING:
    from ...model import AnyFault, ProcessFault
    from ..faults import Faults, StruckFault
    from ._processes import Processes


class ProcessFaults:
    """The faults of the processes of one run. `paths` has the paths of agents, by name."""

    def __init__(self, faults: Faults, processes: Processes, paths: dict[str, str]) -> None:
        self._faults = faults
        self._processes = processes
        self._paths = paths

    async def strike(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool) -> bool:
        """See `FaultWorld`. With `wait`, wait until the processes that the fault ended are ready again."""
        if not isinstance(fault, Kill | StopProcess | Continue | Restart):
            return False
        targets = self._targets_of(fault)
        if isinstance(fault, Continue):
            self._continue(targets)
            return True
        struck = self._faults.begin(id, kind_of_fault(fault), dict.fromkeys(targets))
        for target in targets:
            self._faults.log(struck, target, {"targets": len(targets)})
        done = trio.Event()
        self._processes.nursery.start_soon(self._carry_out, fault, struck, done)
        if wait and not isinstance(fault, StopProcess):
            await done.wait()
        return True

    def _targets_of(self, fault: Any) -> list[str]:
        """Return the groups and single processes that a fault strikes. Raises FaultFailed."""
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
        self, fault: Kill | StopProcess | Restart, struck: StruckFault, done: trio.Event
    ) -> None:
        processes, targets = self._processes, list(struck.targets)
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
            if struck.end is None:
                self._continue(targets)
        self._end(struck)
        done.set()

    def _continue(self, targets: list[str]) -> None:
        for target in targets:
            self._processes.resume(target)
        for struck in self._faults.present():
            groups = {target.partition("/")[0] for target in struck.targets}
            if struck.kind == "stop" and ({*struck.targets} <= {*targets} or groups <= {*targets}):
                self._end(struck)

    def _end(self, struck: StruckFault) -> None:
        if struck.end is None:
            self._faults.heal(struck, struck.targets)
