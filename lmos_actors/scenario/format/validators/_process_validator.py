"""Validation of the parts that a file may have in `world: process`, and of the faults of processes.

In this world, steps consume agents from outside. A part that reads the state of agents, or turns single ones
off, is refused: nothing could judge such a part, and an unjudged part must not pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import mapped
from lmos_actors.system.model import PROCESS, USER
from lmos_actors.system.values import texts_at

from ...model import Answer, Asking, Compare, Latency, Say, Start, Stop

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

KINDS: Final = ("kill", "stop", "cont", "restart")
"""The kinds of faults that processes can have."""

OUTSIDE: Final = "in world: process steps are outside of the agents"
ELSEWHERE: Final = "memory, wire and websocket have it"
VIRTUAL: Final = "memory and wire have it"

SIMULATED: Final = ("clock_skew", "full_disk", "slow_disk")
"""The kinds of faults of simulated things: clocks and disks."""


class ProcessValidator:
    """The validator of a cell in `world: process`; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names

    @property
    def is_process(self) -> bool:
        """Whether the cell runs in `world: process`."""
        return bool(self.names.cell.data.get("world") == PROCESS)

    def _report(self, path: DataPath, why: str, *, key: bool = False) -> None:
        self.names.report(path, why, "shape", key=key)

    def check(self) -> None:
        """Check all parts of a cell except its faults."""
        data = self.names.cell.data
        if not self.is_process:
            return
        if "system" not in data:
            place = ("world",) if "world" in mapped(self.names.document.data) else ("matrix", "world")
            why = 'world: process runs the groups of a deployment: "system: FILE" names its file'
            self._report(place, why)
            return
        if "population" in data:
            self._report(("population",), f"{OUTSIDE}, and a population has nowhere to be", key=True)
        if "relay" in data:
            self._report(("relay",), '"relay" in a group of the deployment makes its hub', key=True)
        if "circles" in data:
            self._report(("circles",), '"circles" in a group of the deployment is for its agents', key=True)
        if "measure" in data:
            self._report(("measure",), f"{OUTSIDE}, and series look into them: {ELSEWHERE}", key=True)
        for path, made in self.names.made.items():
            if path[:1] == ("steps",):
                self._step(made, path)
            elif path[:1] == ("checks",) and len(path) == len(("checks", "index")):
                self._check(made, path)

    def _step(self, step: Any, path: DataPath) -> None:
        if isinstance(step, Asking) and step.as_ != USER:
            self._report((*path, "as"), f"{OUTSIDE}, and are those of {USER}: {ELSEWHERE}")
        elif isinstance(step, (Stop, Start)):
            does = type(step).__name__.lower()
            why = f'{OUTSIDE}, and "do: {does}" is for their supervisors: "do: inject" ends processes'
            self._report((*path, "do"), why)
        elif isinstance(step, Say):
            self._report((*path, "do"), f"there is no hub in world: process: {ELSEWHERE}")

    def _check(self, check: Any, path: DataPath) -> None:
        if not isinstance(check, (Latency, Compare, Answer)):
            kind = str(check.__struct_config__.tag)
            self._report((*path, "check"), f'{OUTSIDE}, and "check: {kind}" looks into them: {ELSEWHERE}')

    # ---- faults

    def fault(self, fault: Any, kind: str, path: DataPath) -> None:
        """Check a fault in `world: process`."""
        if kind in KINDS:
            self._of_processes(fault, path)
            return
        known, there = ", ".join(KINDS), VIRTUAL if kind in SIMULATED else ELSEWHERE
        why = f'{OUTSIDE}, and "kind: {kind}" is inside: {there}; faults of processes are {known}'
        self._report((*path, "kind"), why)

    def _of_processes(self, fault: Any, path: DataPath) -> None:
        self.names.refuse(fault, path, f"is for simulated nodes and disks: {ELSEWHERE}", "pick", "writes")
        if fault.of is UNSET:
            self._report(path, 'in world: process a restart is of groups: "of" names them')
            return
        agents = [name for name in self.names.names if name not in self.names.remotes]
        for name, here in texts_at(fault.of, (*path, "of")):
            group, _, number = name.partition("/")
            if number.isdecimal() and group in self.names.groups:
                count = self.names.groups[group]
                if not 1 <= int(number) <= count:
                    there = f"{count} processes, {group}/1 to {group}/{count}" if count > 1 else "one process"
                    self.names.report(here, f'"{group}" has {there if count else "no process"}')
            else:
                self.names.is_known(name, [*self.names.groups, *agents], here, "group or agent")

    def elsewhere(self, kind: str, path: DataPath) -> None:
        """Refuse a fault that only real processes can have."""
        why = f'"kind: {kind}" is of real processes: world: process; "kind: pause" holds simulated agents'
        self._report((*path, "kind"), why)
