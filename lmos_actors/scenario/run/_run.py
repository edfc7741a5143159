"""The state of one run, shared by its steps, judges and observers."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from lmos_actors.reports import Failure

from .._worlds import wait_until_idle
from ..model import Answer, NoSecrets, Simulation
from ._approvals import RunApprovals
from .memory import INJECTED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.actors import Ref, Slot
    from lmos_actors.approvals import Approvals
    from lmos_actors.files import DataPath, Document
    from lmos_actors.system import RemoteAccess

    from ..format import Cell
    from ..judge import Judges, StepAnswer
    from ._run_agents import RunAgents
    from .faults import Faults
    from .hub import RunHub
    from .memory import Machine
    from .network import RunNetwork
    from .processes import Processes
    from .records import StateSampler, StepLog, StopInstrument, Watch
    from .wire import NodeClient

Progress: TypeAlias = "Callable[[int, int, str], None]"
"""A callback for progress: done, total, current place."""


@attrs.define(eq=False)
class Run:
    """The state of one run. `at` is a text on the present step; `latencies` has seconds by step id."""

    cell: Cell
    document: Document
    watch: Watch
    step_log: StepLog
    progress: Progress
    access: RemoteAccess
    """The access to remote agents whose entries give none."""
    at: str = ""
    failures: list[Failure] = attrs.Factory(list[Failure])
    latencies: dict[str, list[float]] = attrs.Factory(dict[str, list[float]])
    answers: list[StepAnswer] = attrs.Factory(list["StepAnswer"])
    """The answers that checks judge."""
    sent: dict[str | None, list[int]] = attrs.Factory(dict[Any, list[int]])
    """The numbers of the messages sent by a step, by its id; under None those of all steps."""
    faults: Faults | None = None
    judges: Judges | None = None
    stop: StopInstrument | None = None
    """The instrument that stops the run at its stop point, if there is one."""
    states: StateSampler | None = None
    """The instrument that takes digests of the run's states, if requested."""
    crashes: Crashes = attrs.Factory(lambda: Crashes())
    machine: Machine | None = None
    """The machine of the run's node; it exists from the start of the world on."""
    client: NodeClient | None = None
    """The connection to the node, in worlds where steps reach agents over one."""
    processes: Processes | None = None
    """The processes, in the world of processes."""
    hub: RunHub | None = None
    """The hub, if the file has one."""
    network: RunNetwork | None = None
    """The network, if the file has one."""
    approvals: RunApprovals = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: RunApprovals(self._find_approvals, self._far_approvals), takes_self=True
        ),
    )
    """The approvals that agents request from people."""
    _agents: RunAgents | None = None
    _places: dict[tuple[DataPath, bool], str] = attrs.Factory(dict[Any, str])

    @property
    def agents(self) -> RunAgents:
        """The agents of the run; available once its node is open."""
        assert self._agents is not None
        return self._agents

    @property
    def deaths(self) -> int:
        """The number of times that the run's node has been killed."""
        return 0 if self.machine is None else self.machine.deaths

    def _find_approvals(self) -> Slot | None:
        return None if self._agents is None else self._agents.approvals()

    def _far_approvals(self, path: str) -> list[Ref[Approvals]] | None:
        return None if self._agents is None else self._agents.far_approvals(path)

    def set_agents(self, agents: RunAgents) -> None:
        """Store the agents, once the node is open."""
        self._agents = agents

    async def wait_until_delivered(self) -> None:
        """Wait until all sent messages have been delivered.

        Without a connection or a hub, return at once. In the world of processes, wait until it is known which
        processes have ended by now.
        """
        if self.processes is not None:
            await self.processes.settle()
        elif self.client is not None:
            await self.client.wait_until_idle()
        elif self.hub is not None:
            await wait_until_idle()

    def now(self) -> float:
        """Return the time of the world, in seconds since the run began."""
        return round(trio.current_time(), 6)

    def report_progress(self) -> None:
        """Report progress in steps, or for a simulation in microseconds of virtual time."""
        scenario = self.cell.scenario
        if isinstance(scenario, Simulation):
            self.progress(round(trio.current_time() * 1e6), round(scenario.stop.at * 1e6), self.at)
        else:
            self.progress(self.step_log.done, self.step_log.total, self.at)

    def place(self, path: DataPath, *, key: bool = False) -> str:
        """Return the place in the file of the data at a path, as text."""
        found = self._places.get((path, key))
        if found is None:
            found = self._places[path, key] = self.document.place(path, key=key)
        return found

    def note_sent(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Note which step has sent a message; called with the record of the message."""
        if STEP.get() is not None and "id" in fields:
            self.note_number(fields["id"])

    def note_number(self, number: int) -> None:
        """Note that the current step sends the message with this number; called at the moment of sending."""
        step = STEP.get()
        if step is not None:
            for name in (None, step) if step else (None,):
                self.sent.setdefault(name, []).append(number)

    def is_answer_judged(self, step: str | None) -> bool:
        """Return whether a check judges the answers of a step."""
        return any(
            isinstance(check, NoSecrets) or (isinstance(check, Answer) and check.of == step)
            for check in self.cell.scenario.checks
        )

    def fail(self, path: DataPath | None, what: str, expected: str, saw: str) -> None:
        """Record a failure."""
        self.failures.append(Failure(self.place(path) if path else "", what, expected, saw))


class RunObserver:
    """A read-only view of a run for progress displays."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def now(self) -> float:
        """Return the virtual time, in seconds."""
        return trio.current_time()

    def tree(self) -> Sequence[str]:
        """Return the present tree as lines of text; a large tree is cut."""
        return self._run.agents.draw()

    def counts(self) -> dict[str, int]:
        """Return the number of records so far by kind: `delivered`, `crashed` and so on."""
        return dict(self._run.watch.counts)


class Crashes:
    """The crashes of a run, expected or not.

    Crashes by faults are expected, and so are crashes in the trace of a step whose `error` is AgentDied. All
    others fail the run, unless a rule, a recording or a check of restarts covers them (`is_crash_expected`).
    """

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, int | None]] = Counter()
        self._expected: set[int] = set()

    def record(self, kind: str, agent: str, fields: dict[str, Any]) -> None:
        """Count a crash, unless a fault has caused it."""
        report = fields.get("report")
        if report is not None and getattr(report.error, INJECTED, False):
            return
        trace = report.trace if report is not None and len(self._seen) < MOST_CRASHES else None
        self._seen[agent, str(fields["reason"]), trace] += 1

    def expect(self, trace: int) -> None:
        """Count all crashes in the given trace as expected."""
        self._expected.add(trace)

    def unexpected(self) -> list[tuple[str, str, int]]:
        """Return the unexpected crashes: for each path and reason, their number."""
        found: Counter[tuple[str, str]] = Counter()
        for (agent, reason, trace), count in self._seen.items():
            if trace not in self._expected:
                found[agent, reason] += count
        return [(agent, reason, count) for (agent, reason), count in found.items()]


STEP: Final[ContextVar[str | None]] = ContextVar("lmos_actors_step", default=None)
"""The id of the step for which a task works, "" for a step without an id; None in all other tasks."""

MOST_CRASHES: Final = 10_000
"""Maximum number of crashes that are distinguished by their traces."""
