"""Faults of the machine of a run's node: the node is killed, or its disk is full or slow.

A restart of the node lasts until its agents have been started again. A full disk lasts until the agents that
it stopped run again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from msgspec import UNSET

from ...model import FullDisk, Restart, SlowDisk, kind_of_fault
from ..faults import FaultFailed, log_fields

if TYPE_CHECKING:
    from ...model import AnyFault, ProcessFault
    from ..faults import Faults, StruckFault
    from ._machine import Machine

NODE: Final = "root"
"""The path in the log for faults of the whole node."""


class MachineFaults:
    """The faults of the machine of one run."""

    def __init__(self, faults: Faults, machine: Machine) -> None:
        self._faults = faults
        self._machine = machine

    async def strike(self, fault: AnyFault | ProcessFault, id: str, *, wait: bool) -> bool:
        """See `FaultWorld`."""
        if isinstance(fault, FullDisk | SlowDisk):
            self._strike_disk(fault, id)
            return True
        if not isinstance(fault, Restart) or fault.of is not UNSET or fault.pick is not None:
            return False
        if self._machine.is_down:
            raise FaultFailed("a running node to restart", "it is down")
        self._begin(fault, id)
        self._machine.kill("kept" if fault.writes is UNSET else fault.writes, float(fault.down))
        if wait:
            await self._machine.wait_up()
        return True

    def _begin(self, fault: Restart | FullDisk | SlowDisk, id: str) -> StruckFault:
        struck = self._faults.begin(id, kind_of_fault(fault), {NODE: None})
        self._faults.log(struck, NODE, {"targets": 1, **log_fields(fault)})
        return struck

    def _strike_disk(self, fault: FullDisk | SlowDisk, id: str) -> None:
        struck = self._begin(fault, id)
        if isinstance(fault, SlowDisk):
            self._machine.slow_disk(fault.factor)
            heal = partial(self._undo_slow_disk, fault.factor, struck)
        else:
            self._machine.fill_disk()
            heal = partial(self._clear_disk, struck)
        self._machine.call_at(trio.current_time() + fault.duration, heal)

    def _undo_slow_disk(self, factor: float, struck: StruckFault) -> None:
        self._machine.undo_slow_disk(factor)
        self._faults.heal(struck, struck.targets)

    def _clear_disk(self, struck: StruckFault) -> None:
        self._machine.clear_disk()
        self._heal_once_all_run(struck)

    def _heal_once_all_run(self, struck: StruckFault) -> None:
        """End a full disk once the agents that it stopped are running again; else check again later."""
        seconds = self._machine.look_again_in()
        if seconds is None:
            self._faults.heal(struck, struck.targets)
        else:
            again = partial(self._heal_once_all_run, struck)
            self._machine.call_at(trio.current_time() + seconds, again)
