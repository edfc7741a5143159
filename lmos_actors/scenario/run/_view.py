"""View of a run for its judges."""

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
    """Implementation of `View` for one run: agents by the names of the file, faults, steps."""

    def __init__(self, run: Run, paths: Mapping[str, str]) -> None:
        self._run = run
        self._names = {path: name for name, path in paths.items()}

    def fields(self, cls: Any) -> Mapping[str, tuple[str, bool]]:
        """Return attribute and secrecy of the fields of a class.

        Raises LookupError while agents unwind whose node has ended: those have no state, so that each is
        looked at alone.
        """
        machine = self._run.machine
        if machine is not None and machine.has_unwinding:
            raise LookupError("some agents have no state")
        return fields_known(cls)

    def now(self) -> float:
        """Return the virtual time, in seconds since the run began."""
        return self._run.now()

    def network_count(self, what: str) -> int:
        """Return how often the network of the file has done something: `lost`, `doubled`, `late`, ..."""
        return 0 if self._run.network is None else self._run.network.count(what)

    def cuts(self) -> Sequence[Cut]:
        """Return the cuts of the network of the file that are in force."""
        return () if self._run.faults is None else self._run.faults.cuts()

    def agent(self, path: str) -> tuple[Slot | None, tuple[str, ...]] | None:
        """Return the slot at a path, None before its first start, and the names it goes by.

        None for a path that the file does not know.
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
        """Return the path of the one agent of a name; None for a name of several, or that is not known."""
        return self._run.agents.path_of_one(of)

    def slots(self, of: str) -> Sequence[Slot]:
        """Return the slots that there are."""
        return self._run.agents.slots(of)

    def size(self, of: str) -> int:
        """Return how many agents there are once all have been started."""
        return self._run.agents.size(of)

    def state(self, slot: Any) -> AgentState | None:
        """Return the state of an agent; None while none runs, and while one unwinds whose node has ended."""
        machine = self._run.machine
        is_lost = machine is not None and machine.is_unwinding(slot.path)
        return None if is_lost else state_of(slot)

    def faults_active(self) -> bool:
        """Return whether a fault is in force."""
        return self._run.faults is not None and self._run.faults.active

    def fault_healed(self, id: str) -> float | None:
        """Return the instant since which a fault is no longer in force; None if it is, or is yet to come."""
        return self._run.faults.healed(id) if self._run.faults is not None else None

    def latencies(self, step: str) -> Sequence[float]:
        """Return how long the runs of a step took, in seconds."""
        return self._run.latencies.get(step, ())

    def supervisor_restarts(self, name: str) -> int | None:
        """Return how often a supervisor was restarted, None if the name is no supervisor's."""
        if name == ALL_AGENTS or "/" in name or name in self._run.agents.given:
            return None
        supervisor = self._run.agents.supervisor(name)
        return restarts_of(supervisor) if supervisor is not None else None

    def messages_of(self, step: str | None) -> Sequence[int]:
        """Return the numbers of the messages that a step has sent; None: all steps."""
        return self._run.sent.get(step, ())

    def answers(self, step: str | None) -> Sequence[StepAnswer]:
        """Return the answers of the runs of a step that a check looks at; None: of all steps."""
        return [each for each in self._run.answers if step in (None, each.step)]

    def secrets(self, values: Sequence[str]) -> Mapping[str, str]:
        """Return the secrets of the run by what they are of, and those that `values` refer to."""
        document, agents = self._run.document, self._run.agents
        folder = Path() if document.path is None else document.path.parent
        slots = [slot for name in agents.given for slot in agents.slots(name)]
        return secrets_of(self._run.cell, folder, slots, values)
