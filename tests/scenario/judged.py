"""A run made up for judges: agents that are plain objects, time that is a number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.scenario.judge import Judges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.reports import CheckResult
    from lmos_actors.scenario.model import AnyCheck, Measure


@attrs.define(eq=False)
class Agent:
    """A slot and who lives in it; `state` None: nobody."""

    path: str
    state: dict[str, Any] | None = attrs.Factory(dict)
    accepted: int = 0
    begun: int = 0
    handled: int = 0
    inline: int = 0
    incarnation: int = 1
    extra: Any = None
    mailbox: Any = attrs.Factory(lambda: SimpleNamespace(size=8))
    running: int = 0

    @property
    def restarts(self) -> int:
        return max(0, self.incarnation - 1)

    def statistics(self) -> Any:
        return SimpleNamespace(
            accepted=self.accepted,
            handled=self.handled,
            running=self.running,
            waiting=self.accepted - self.begun,
            restarts=self.restarts,
        )


class Run:
    """What judges see. `cast` gives the agents by the names of the file."""

    fields = None  # these agents are no objects of a class

    def __init__(self, **cast: Agent | list[Agent]) -> None:
        self.cast = {name: agents if isinstance(agents, list) else [agents] for name, agents in cast.items()}
        self.sizes: dict[str, int] = {}
        self.unstarted: dict[str, str] = {}
        self.faulty = False
        self.healed: dict[str, float] = {}
        self.times: dict[str, list[float]] = {}
        self.sent: dict[str | None, list[int]] = {}
        self.supervisors: dict[str, int] = {}
        self.time = 0.0
        self.judges: Judges

    def judged(self, *checks: AnyCheck, measure: Measure | None = None) -> Run:
        self.judges = Judges(checks, measure, self, lambda index: f"s.yaml:{index + 1}:1")
        return self

    # --- what happens

    def at(self, time: float) -> Run:
        self.time = time
        return self

    def record(self, kind: str, path: str, **fields: Any) -> None:
        fields = {name.rstrip("_"): value for name, value in fields.items()}
        self.judges.record(kind, path, fields)

    def turn(self, agent: Agent, **state: Any) -> None:
        """Let an agent take a turn that changes its state."""
        self.record("delivered", agent.path)
        assert agent.state is not None
        agent.state |= state
        self.record("answered", agent.path)

    def sample(self, time: float) -> None:
        self.time = time
        self.judges.sample(time)

    def end(self, time: float | None = None) -> list[CheckResult]:
        self.time = self.time if time is None else time
        self.judges.judge_final_state(self.time)
        return self.judges.end()

    def verdict(self, time: float | None = None) -> CheckResult:
        (result,) = self.end(time)
        return result

    # --- what judges see

    def now(self) -> float:
        return self.time

    def agent(self, path: str) -> tuple[Agent | None, tuple[str, ...]] | None:
        if path in self.unstarted:
            return None, (path, self.unstarted[path])
        for name, agents in self.cast.items():
            for agent in agents:
                if agent.path == path:
                    return agent, (path, name)
        return None

    def path(self, of: str) -> str | None:
        agents = self.cast.get(of, ())
        return agents[0].path if len(agents) == 1 and of not in self.unstarted.values() else None

    def slots(self, of: str) -> Sequence[Agent]:
        if of == "*":
            return [agent for agents in self.cast.values() for agent in agents]
        return self.cast.get(of, [])

    def size(self, of: str) -> int:
        return self.sizes.get(of, len(self.slots(of)))

    def state(self, slot: Agent) -> Mapping[str, Any] | None:
        return None if slot.state is None else _State(slot.state)

    def network_count(self, what: str) -> int:
        return 0

    def cuts(self) -> Sequence[Any]:
        return ()

    def faults_active(self) -> bool:
        return self.faulty

    def fault_healed(self, id: str) -> float | None:
        return self.healed.get(id)

    def latencies(self, step: str) -> Sequence[float]:
        return self.times.get(step, [])

    def supervisor_restarts(self, name: str) -> int | None:
        return self.supervisors.get(name)

    def messages_of(self, step: str | None) -> Sequence[int]:
        if step is None:
            return [number for numbers in self.sent.values() for number in numbers]
        return self.sent.get(step, [])


class _State(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise LookupError(f"state.{name} has no value")


def peers(count: int, **state: Any) -> list[Agent]:
    return [Agent(f"peer/{index}", dict(state)) for index in range(count)]
