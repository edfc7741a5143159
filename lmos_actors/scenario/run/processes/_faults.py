"""Faults of processes: killed, stopped and continued by signals, or drained and started again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio
from msgspec import UNSET

from lmos_actors.reports import FaultResult

from ...model import Continue, Kill, Restart, StopProcess, kind_of_fault
from .._faults import FaultFailed

if TYPE_CHECKING:
    from lmos_actors._core import Instrument

    from ...judge import Cut
    from ...model import AnyFault, ProcessFault
    from ._processes import Processes


@attrs.define(eq=False)
class _Injected:
    """A fault, in force until it has an end."""

    id: str
    kind: str
    groups: tuple[str, ...]
    begin: float
    end: float | None = None


class ProcessFaults:
    """Injects faults into the processes of one run. `paths` are those of agents, by name.

    `watch` gets a record of each begin and end.
    """

    def __init__(self, watch: Instrument, processes: Processes, paths: dict[str, str]) -> None:
        self._watch = watch
        self._processes = processes
        self._paths = paths
        self._injected: list[_Injected] = []

    async def inject(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool = True) -> None:
        """Inject a fault; with `wait` until processes that it has ended are there again, and ready."""
        assert isinstance(fault, Kill | StopProcess | Continue | Restart)  # else the file has been refused
        groups = self._groups_of(fault)
        if isinstance(fault, Continue):
            self._continue(groups)
            return
        injected = _Injected(id, kind_of_fault(fault), tuple(groups), trio.current_time())
        self._injected.append(injected)
        for group in groups:
            fields: dict[str, object] = {"fault": injected.kind, "id": id, "targets": len(groups)}
            self._watch.record("fault", group, fields)
        done = trio.Event()
        self._processes.nursery.start_soon(self._carry_out, fault, injected, done)
        if wait and not isinstance(fault, StopProcess):
            await done.wait()

    def _groups_of(self, fault: Any) -> list[str]:
        names: tuple[str, ...] = (fault.of,) if isinstance(fault.of, str) else fault.of
        known = self._processes.launcher.groups
        groups = [
            name if name in known else self._processes.group_at(self._paths.get(name, name)) for name in names
        ]
        return list(dict.fromkeys(groups))

    async def _carry_out(
        self, fault: Kill | StopProcess | Restart, injected: _Injected, done: trio.Event
    ) -> None:
        processes, groups = self._processes, list(injected.groups)
        if isinstance(fault, Kill):
            before = processes.generations(groups)
            for group in groups:
                processes.kill(group)
            await processes.wait_begun_after(groups, before)
        elif isinstance(fault, Restart):
            async with trio.open_nursery() as nursery:
                for group in groups:
                    nursery.start_soon(processes.restart, group, float(fault.down))
        else:
            for group in groups:
                processes.pause(group)
            if fault.duration is UNSET:
                return
            await trio.sleep(fault.duration)
            if injected.end is None:
                self._continue(groups)
        self._end(injected)
        done.set()

    def _continue(self, groups: list[str]) -> None:
        for group in groups:
            self._processes.resume(group)
        for injected in self._injected:
            if injected.kind == "stop" and set(injected.groups) <= set(groups):
                self._end(injected)

    def _end(self, injected: _Injected) -> None:
        if injected.end is None:
            injected.end = trio.current_time()
            for group in injected.groups:
                self._watch.record("healed", group, {"fault": injected.kind, "id": injected.id})

    def heal(self, id: str) -> None:
        """End a fault of the network; there is none. Raises FaultFailed."""
        raise FaultFailed(f"the fault {id} in force", "it has not begun, or has ended")

    @property
    def active(self) -> bool:
        """True while any fault is in force."""
        return any(injected.end is None for injected in self._injected)

    def cuts(self) -> tuple[Cut, ...]:
        """Return the cuts of the network that are in force: none."""
        return ()

    def healed(self, id: str) -> float | None:
        """Return the instant when the last fault of an id ended; None if one is in force, or none came."""
        ends = [injected.end for injected in self._injected if injected.id == id]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None

    def results(self) -> tuple[FaultResult, ...]:
        """Return all faults, in their order; `end` is None for those still in force."""
        return tuple(
            FaultResult(id=each.id, kind=each.kind, targets=each.groups, begin=each.begin, end=each.end)
            for each in self._injected
        )
