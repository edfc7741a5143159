"""The view of a run for its judges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import LmosActorsError
from lmos_actors.supervision import restarts_of
from lmos_actors.system.model import ALL_AGENTS

from .._agent_state import fields_known, state_of
from ._secrets import secrets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.actors import Slot

    from .._agent_state import AgentState
    from ..judge import Cut, StepAnswer
    from ._run import Run


class RunView:
    """The `View` of one run: agents by their names in the file, faults, steps."""

    def __init__(self, run: Run, paths: Mapping[str, str]) -> None:
        self._run = run
        self._names = {path: name for name, path in paths.items()}

    def fields(self, cls: Any) -> Mapping[str, tuple[str, bool]]:
        """Return the attribute and secrecy of each field of a class.

        Raises LookupError while agents of an ended node unwind: they have no state, so each agent has to be
        read separately.
        """
        machine = self._run.machine
        if machine is not None and machine.has_unwinding:
            raise LookupError("some agents have no state")
        return fields_known(cls)

    def now(self) -> float:
        """Return the virtual time, in seconds since the run began."""
        return self._run.now()

    def network_count(self, what: str) -> int:
        """Return how often an event such as `lost`, `doubled` or `late` happened in the file's network."""
        return 0 if self._run.network is None else self._run.network.count(what)

    def cuts(self) -> Sequence[Cut]:
        """Return the cuts of the file's network that are in force."""
        return () if self._run.faults is None else self._run.faults.cuts()

    def agent(self, path: str) -> tuple[Slot | None, tuple[str, ...]] | None:
        """Return the slot at a path (None before its first start) and its names.

        Return None for a path that is not in the file.
        """
        agents = self._run.agents
        name = self._names.get(path)
        names = (name,) if name is not None else agents.member_names(path)
        if not names:
            return None
        try:
            return agents.slot(names[0]), names
        except LmosActorsError:  # its first start is under way
            return None, names

    def path(self, of: str) -> str | None:
        """Return the path of the agent with a name; None if several agents have it, or it is unknown."""
        return self._run.agents.path_of_one(of)

    def slots(self, of: str) -> Sequence[Slot]:
        """Return the present slots with a name."""
        return self._run.agents.slots(of)

    def size(self, of: str) -> int:
        """Return the number of agents with a name once all have been started."""
        return self._run.agents.size(of)

    def state(self, slot: Any) -> AgentState | None:
        """Return the state of an agent; None while it does not run, or unwinds after its node has ended."""
        machine = self._run.machine
        is_lost = machine is not None and machine.is_unwinding(slot.path)
        return None if is_lost else state_of(slot)

    def faults_active(self) -> bool:
        """Return whether a fault is in force."""
        return self._run.faults is not None and self._run.faults.active

    def fault_healed(self, id: str) -> float | None:
        """Return the instant when a fault ended; None if it is still in force or yet to come."""
        return self._run.faults.healed(id) if self._run.faults is not None else None

    def latencies(self, step: str) -> Sequence[float]:
        """Return the durations of the runs of a step, in seconds."""
        return self._run.latencies.get(step, ())

    def supervisor_restarts(self, name: str) -> int | None:
        """Return how often a supervisor was restarted; None if no supervisor has that name."""
        if name == ALL_AGENTS or "/" in name or name in self._run.agents.given:
            return None
        supervisor = self._run.agents.supervisor(name)
        return restarts_of(supervisor) if supervisor is not None else None

    def messages_of(self, step: str | None) -> Sequence[int]:
        """Return the numbers of the messages sent by a step, or by all steps if `step` is None."""
        return self._run.sent.get(step, ())

    def answers(self, step: str | None) -> Sequence[StepAnswer]:
        """Return the answers to the runs of a step that a check judges, or of all if `step` is None."""
        return [each for each in self._run.answers if step in (None, each.step)]

    def secrets(self, values: Sequence[str]) -> Mapping[str, str]:
        """Return the secrets of the run by the names of their sources, including those named in `values`."""
        document, agents = self._run.document, self._run.agents
        folder = Path() if document.path is None else document.path.parent
        slots = [slot for name in agents.given for slot in agents.slots(name)]
        return secrets_of(self._run.cell, folder, slots, values)
