"""Judges of formulas that must hold always, never, or eventually.

A formula about an agent is evaluated after each of its logged turns, at every sample, and once more at the
end. A formula about series alone is evaluated at every sample and at the end. A formula about a mailbox is
also evaluated when the mailbox is fullest, just before a message leaves it. An agent that does not run is
skipped.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmos_actors.files import Duration
from lmos_actors.system.model import ALL_AGENTS

from ..formulas import (
    AgentValues,
    CheckedNames,
    Formula,
    FormulaFailed,
    compile_formula,
    error_text,
    of_agents,
)
from ..model import Never
from ._cuts import with_cuts
from ._judge import Judge, Offenders, instant, listing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.reports import CheckResult

    from ..model import Always, Eventually
    from ._judge import AgentDirectory, Slot, View

_TURNS: Final = ("started", "delivered", "answered", "cancelled", "dropped")
_MAIL: Final = (*_TURNS, "sent", "refused")

JudgeContext: TypeAlias = "tuple[View, AgentDirectory, AgentValues, CheckedNames]"
"""Shared by the judges of formulas: the view, the agents, the values of names, and the names."""


class ValueMissing(LookupError):
    """The error raised for a name that has no value yet, but will have one."""


class FormulaJudge(Judge):
    """Base of the judges that evaluate a formula repeatedly."""

    def __init__(self, check: Any, name: str, place: str, context: JudgeContext, text: str) -> None:
        super().__init__(check, name, place)
        self.view, self.directory, self.agents, names = context
        self.formula: Formula = compile_formula(text, names)
        self.formula_names = self.formula.names
        self.of: str = check.of or ALL_AGENTS
        self.of_agents = of_agents(self.formula.names)
        self._state = of_agents(name for name in self.formula.names if name.startswith("state."))
        self._mail = any(name.startswith("mailbox.") for name in self.formula.names)
        if self.of_agents:
            self.records = _MAIL if self._mail else _TURNS

    def paths(self) -> frozenset[str] | None:
        path = self.view.path(self.of)
        return None if path is None else frozenset((path, self.of))

    def concerns(self, path: str) -> bool | None:
        found = self.directory.find(path)
        if found is None or found[0] is None:
            return None if found else False
        return self.of in found[1] or self.of in (path, ALL_AGENTS)

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        found = self.directory.find(path)
        assert found is not None  # `concerns` has found it
        if self._mail and kind == "delivered" and self.agents.at(found[0], state=self._state, queued=1):
            self.judge_agent(path, now)
        if self.agents.at(found[0], state=self._state):
            self.judge_agent(path, now)

    def sample(self, now: float) -> None:
        if not self.of_agents:
            self.judge_agent("", now)
            return
        slots = self.view.slots(self.of)
        found = self.agents.of_all(self.formula, slots, state=self._state)
        if found is not None and self.judge_values(*found, now):
            return
        for slot in slots:
            if self.agents.at(slot, state=self._state):
                self.judge_agent(slot.path, now)

    def judge_final_state(self, now: float) -> None:
        self.sample(now)

    @abstractmethod
    def judge_agent(self, path: str, now: float) -> None:
        """Evaluate the formula for the agent that is selected in `agents`."""

    @abstractmethod
    def judge_values(self, slots: Sequence[Slot], values: list[Any], now: float) -> bool:
        """Judge the values of all agents at once; return False if each agent has to be judged separately."""

    def describe(self) -> str:
        """Return the current values of the formula's names as text."""
        return self.formula.describe(self.agents)


class HoldsJudge(FormulaJudge):
    """The judge of `always`, and of `never` with a formula.

    Each evaluation must give the wanted truth value.
    """

    def __init__(
        self, check: Always | Never, name: str, place: str, context: JudgeContext, text: str, *, wanted: bool
    ) -> None:
        super().__init__(check, name, place, context, text)
        self.wanted = wanted
        self.fault_free = isinstance(check, Never) and check.when.fault_free is True
        self.looks = 0
        self.problem = ""
        self.offenders = Offenders()

    @property
    def so_far(self) -> bool | None:
        """False once the check has been broken; None until then."""
        return False if self.offenders else None

    def judge_agent(self, path: str, now: float) -> None:
        if self.fault_free and self.view.faults_active():
            return
        try:
            holds = self.formula.truth(self.agents)
        except ValueMissing as error:
            self.problem = error_text(error)
            return
        except (LookupError, FormulaFailed) as error:
            self.offenders.add(path, f"cannot be computed: {error_text(error)}", now)
            return
        self.looks += 1
        if holds is not self.wanted:
            words = self.describe()
            self.offenders.add(path, words if self.offenders else with_cuts(words, self.view.cuts()), now)

    def judge_values(self, slots: Sequence[Slot], values: list[Any], now: float) -> bool:
        if self.fault_free and self.view.faults_active():
            return True
        if False in [value is self.wanted for value in values]:  # `all` would cost a call for each
            return False
        self.looks += len(values)
        return True

    def result(self) -> CheckResult:
        expected = f"{'always' if self.wanted else 'never'} {self.formula.text}"
        expected += " outside of faults" if self.fault_free else ""
        if self.offenders:
            return self.verdict(False, expected, str(self.offenders), self.offenders.at)
        if not self.looks:
            why = self.problem or "there was no agent, and no sample, to look at"
            return self.verdict(False, expected, f"it was never looked at: {why}")
        return self.verdict(True, expected, f"so at each of {self.looks} looks")


class EventuallyJudge(FormulaJudge):
    """The judge of `eventually`: each agent of a population must fulfil it at some instant of the run.

    The agents need not fulfil it at the same instant.
    """

    check: Eventually

    def __init__(self, check: Eventually, name: str, place: str, context: JudgeContext) -> None:
        super().__init__(check, name, place, context, check.expr)
        self.fulfilled: dict[str, None] = {}
        self.nearest = "it was never looked at"

    def judge_agent(self, path: str, now: float) -> None:
        if self.met_at is not None or path in self.fulfilled:
            return
        try:
            holds = self.formula.truth(self.agents)
        except (LookupError, FormulaFailed) as error:
            self.nearest = f"cannot be computed: {error_text(error)}"
            return
        self.nearest = ""
        if holds:
            self._fulfil(path, now)

    def judge_values(self, slots: Sequence[Slot], values: list[Any], now: float) -> bool:
        if False in [value is True or value is False for value in values]:
            return False
        for slot, holds in zip(slots, values, strict=True):
            if self.met_at is None and slot.path not in self.fulfilled:
                self.nearest = ""
                if holds:
                    self._fulfil(slot.path, now)
        return True

    def _fulfil(self, path: str, now: float) -> None:
        self.fulfilled[path] = None
        if not self.of_agents or len(self.fulfilled) >= max(1, self.view.size(self.of)):
            self.met_at = now

    def judge_final_state(self, now: float) -> None:
        self.sample(now)
        if self.met_at is None:
            self.nearest = with_cuts(self.nearest or self._left_behind(now), self.view.cuts())

    def _left_behind(self, now: float) -> str:
        if not self.of_agents:
            return f"at {instant(now)} {self.describe()}"
        left = [slot for slot in self.view.slots(self.of) if slot.path not in self.fulfilled]
        if not left:
            there = len(self.fulfilled)
            return f"{there} of {self.view.size(self.of)} agents did, the others were never started"
        self.agents.at(left[0])
        return f"left behind {listing([slot.path for slot in left])}; {left[0].path}: {self.describe()}"

    def result(self) -> CheckResult:
        by = float(self.check.by)
        expected = f"{self.formula.text} by {self.check.by}"
        if self.met_at is None:
            return self.verdict(False, expected, self.nearest or "it did not come true")
        in_time = self.met_at <= by + 1e-9
        saw = f"it came true at {instant(self.met_at)}"
        if not in_time:
            saw += f", {Duration(round(self.met_at - by, 6))} too late"
        return self.verdict(in_time, expected, saw, self.met_at)
