"""Execution of the timeline of a simulation, until its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import trio

from ..._worlds import wait_until_idle
from ...judge import TIMED, name_of
from ...model import DecidingAt, FaultAt, HealAt, InvokeAt, SayAt, TellAt, WriteAt
from .._step_text import at_of, describe
from ._step_executor import StepExecutor, StepFailed, unknown_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.files import DataPath

    from ...judge import Judge
    from ...model import Simulation
    from .._run import Run
    from ..records import StepEntry


class Timeline(StepExecutor):
    """The executor of the timeline of one run, until the end of the run. One per run.

    Entries of one instant happen in the order of the file, each after the effects of the previous entry.
    After the end of the run, which may be earlier than the end in the file, no entry happens. Instants are
    virtual times, as in the log: they include the time that agents need to start.
    """

    def __init__(self, run: Run, simulation: Simulation) -> None:
        super().__init__(run)
        self._simulation = simulation
        self._waiting: list[tuple[StepEntry, DataPath, Any]] = []
        self._over = False
        self._stop = trio.Event()
        self._ending: Judge | None = None
        self._timed = [name_of(check) for check in simulation.checks if isinstance(check, TIMED)]

    async def execute(self) -> bool:
        """Execute the timeline until the end of the run; return whether all entries succeeded."""
        completed = True
        try:
            async with trio.open_nursery() as self.listening:
                self.listening.start_soon(self._entries, name="timeline")
                self.listening.start_soon(self.measure, name="measure")
                stop = self._simulation.stop
                if stop.when is not None and self.run.judges is not None:
                    self._ending = self.run.judges.of(stop.when)
                    self.run.watch.on_record(self._end_if_met)
                with trio.move_on_at(float(stop.at)):
                    await self._stop.wait()
                await self.wait_until_settled()
                await self.last_sample()
                self.listening.cancel_scope.cancel("the simulation is over")
        except* StepFailed:
            completed = False
        for line, path, entry in self._waiting:
            if line.ok is None:
                line.finish(False, trio.current_time())
                self.fail(entry, path, "its end before that of the run", "none by then")
                completed = False
        return completed

    # ---- the end

    def _end_if_met(self) -> None:
        """End the run if its check is met, no entry is left, and no fault or other timed check is open."""
        judges, faults = self.run.judges, self.run.faults
        if not self._over or judges is None or self._ending is None or self._ending.met_at is None:
            return
        if all(map(judges.met, self._timed)) and (faults is None or not faults.active):
            self._stop.set()

    # ---- entries

    async def _entries(self) -> None:
        assert self.listening is not None
        for index, entry in entries_of(self._simulation):
            self.next_instant = at_of(entry)
            await trio.sleep_until(self.next_instant)
            await wait_until_idle()
            await self.run.wait_until_delivered()
            path: DataPath = ("timeline", index)
            text = describe(entry)
            self.run.at = f"{self.run.place(path)} {text}"
            line = self.run.step_log.begin(self.run.place(path), text, trio.current_time())
            self._waiting.append((line, path, entry))
            self.listening.start_soon(self._entry, entry, path, line)
        self.next_instant = math.inf
        await wait_until_idle()
        self._over = True
        self._end_if_met()

    async def _entry(self, entry: Any, path: DataPath, line: StepEntry) -> None:
        try:
            await self._carry_out(entry, path)
        except StepFailed:
            line.finish(False, trio.current_time())
            raise
        line.finish(True, trio.current_time())
        self.run.step_log.done += 1
        self.run.report_progress()

    async def _carry_out(self, entry: Any, path: DataPath) -> None:
        if isinstance(entry, TellAt):
            await self.perform(entry, path, self.send(entry, path))
        elif isinstance(entry, (InvokeAt, WriteAt)):
            await self.ask(entry, path)
        elif isinstance(entry, SayAt):
            await self.say(entry, path)
        elif isinstance(entry, DecidingAt):
            await self.decide(entry, path, self._simulation.stop.at)
        elif isinstance(entry, FaultAt):
            await self.inject_fault(entry, path)
        elif isinstance(entry, HealAt):
            self.heal_fault(entry, path)
        else:
            raise unknown_step(entry)


def entries_of(simulation: Simulation) -> Sequence[tuple[int, Any]]:
    """Return the entries of a timeline up to its end, with their indexes, sorted by time.

    Entries of one instant keep the order of the file.
    """
    found = [(n, entry) for n, entry in enumerate(simulation.timeline) if entry.at <= simulation.stop.at]
    return sorted(found, key=lambda one: at_of(one[1]))
