"""Judge of convergence: a formula reaches the same value for all agents of a population."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.files import Duration
from lmos_actors.system.values import same, show

from ..formulas import PLAIN, FormulaFailed, compile_formula, error_text
from ._cuts import with_cuts
from ._judge import Judge, instant, listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.reports import CheckResult

    from ..model import Converges
    from ._formula_judges import JudgeContext
    from ._judge import Slot


class ConvergesJudge(Judge):
    """The judge of `converges`: it judges every sample from the start on, and the end of the run.

    If the check names a fault, it begins when the fault has ended. Agents that do not run at an instant are
    left out; at least two have to run.
    """

    check: Converges

    def __init__(self, check: Converges, name: str, place: str, context: JudgeContext) -> None:
        super().__init__(check, name, place)
        self.view, _, self.agents, names = context
        self.formula = compile_formula(check.field, names)
        self.formula_names = self.formula.names
        self.saw = "it was never looked at"
        self.begin: float | None = None

    def sample(self, now: float) -> None:
        if self.met_at is not None or not self._begun():
            return
        slots = self.view.slots(self.check.of)
        found = self.agents.of_all(self.formula, slots, state=True)
        if found is None:
            found = self._one_by_one(slots, now)
        if found is not None:
            self._compare(*found, now)

    def _one_by_one(self, slots: Sequence[Slot], now: float) -> tuple[list[Slot], list[Any]] | None:
        there: list[Slot] = []
        values: list[Any] = []
        for slot in slots:
            if self.agents.at(slot):
                try:
                    values.append(self.formula.value(self.agents))
                    there.append(slot)
                except (LookupError, FormulaFailed) as error:
                    self.saw = f"at {instant(now)} {slot.path} cannot be computed: {error_text(error)}"
                    return None
        return there, values

    def judge_final_state(self, now: float) -> None:
        self.sample(now)
        if self.met_at is None:
            self.saw = with_cuts(self.saw, self.view.cuts())

    def _begun(self) -> bool:
        if self.begin is None:
            fault = (self.check.after or "").removesuffix(".healed")
            self.begin = self.view.fault_healed(fault) if fault else 0.0
            if self.begin is None:
                self.saw = f"{fault} was not healed"
        return self.begin is not None

    def _compare(self, slots: Sequence[Slot], values: list[Any], now: float) -> None:
        if len(values) < 2:
            there = f"running agents of {self.check.of}: {len(values)}"
            self.saw = f"at {instant(now)} {there}, too few to agree"
            return
        first = values[0]
        kinds = set(map(type, values))
        if len(kinds) == 1 and kinds <= PLAIN:  # without a call for each
            others = [number for number, value in enumerate(values) if value != first]
        else:
            others = [number for number, value in enumerate(values) if not same(value, first)]
        if not others:
            self.met_at = now
            self.saw = f"{show(first)} at all {len(values)} agents at {instant(now)}"
            return
        other, value = slots[others[0]].path, values[others[0]]
        self.saw = f"at {instant(now)} {show(first)} at {slots[0].path}, {show(value)} at {other}; "
        self.saw += f"other than the first are {listing([slots[number].path for number in others])}"

    def result(self) -> CheckResult:
        within = self.check.within
        after = f"after {self.check.after}" if self.check.after else "after the begin"
        expected = f"one {self.check.field} within {within} {after}"
        if self.met_at is None or self.begin is None:
            return self.verdict(False, expected, self.saw)
        took = Duration(round(max(0.0, self.met_at - self.begin), 6))
        in_time = took <= within + 1e-9
        return self.verdict(in_time, expected, f"{self.saw}, {took} {after}", self.met_at)
