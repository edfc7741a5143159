"""Validation of the steps of a scenario, with all their references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmos_actors.files import DataPath, did_you_mean, is_mapping, listed, mapped
from lmos_actors.system import NAME, NAMED
from lmos_actors.system.model import split_step
from lmos_actors.system.values import ANYTHING, along, path_problem

from ...model import (
    Asking,
    Cancel,
    Deciding,
    Expect,
    Heal,
    Inject,
    Invoke,
    Query,
    Read,
    Say,
    Start,
    Stop,
    Stream,
    Subscribe,
    Wait,
)
from ._expect_validator import ExpectValidator, root_of
from ._say_validator import SayValidator
from ._step_scope import BrokenStep, StepScope
from ._timeline_validator import check_asking

if TYPE_CHECKING:
    from lmos_actors.system import CellNames, ValueValidator

    from ._fault_validator import FaultValidator

_RUNNING: Final = ((Invoke, Stream), "an invoke or stream step")


class StoryValidator:
    """The validator of the steps of one cell; mistakes go to `names`.

    `scope` is the scope after the last step.
    """

    def __init__(self, names: CellNames, validator: ValueValidator, faults: FaultValidator) -> None:
        self.names = names
        self.validator = validator
        self.faults = faults
        self.expectations = ExpectValidator(names)
        self.saying = SayValidator(names)
        self.saves: dict[str, DataPath] = {}
        self.saved_used: set[str] = set()
        self.scope = StepScope()
        self._late: dict[DataPath, list[Any]] = {}
        for late in names.cell.late:
            if late.reference.namespace == "saved":
                self._late.setdefault(split_step(late.path)[0], []).append(late)

    def check(self) -> None:
        self._steps(self.names.cell.data.get("steps"), ("steps",), self.scope, 1)
        for name, path in self.saves.items():
            if name not in self.saved_used:
                message = f'saved "{name}" is not used: $(saved.{name}) stands nowhere after it'
                self.names.report(path, message, key=True)

    def _steps(self, data: Any, path: DataPath, scope: StepScope, times: int) -> None:
        for index, raw in enumerate(listed(data)):
            if is_mapping(raw):
                self._any_step(raw, (*path, index), scope, times)

    def _any_step(self, raw: dict[str, Any], path: DataPath, scope: StepScope, times: int) -> None:
        kind, step = raw.get("do"), None
        if kind == "repeat":
            rounds = raw.get("times")
            self._steps(
                raw.get("steps"),
                (*path, "steps"),
                scope,
                times * rounds if isinstance(rounds, int) else times,
            )
        elif kind == "parallel":
            ends: list[StepScope] = []  # each branch has a scope of its own
            for index, steps in enumerate(listed(raw.get("branches"))):
                ends.append(scope.branch())
                self._steps(steps, (*path, "branches", index), ends[-1], times)
            for end in ends:
                scope.join(end)
        else:
            step = self.names.made.get(path) or BrokenStep()
            self._saved(path, scope)
            self.faults.any = self.faults.any or kind == "inject"
            self._step(step, path, scope)
        self._remember(raw, step, path, scope, times)

    # --- the effects of a step

    def _remember(self, raw: dict[str, Any], step: Any, path: DataPath, scope: StepScope, times: int) -> None:
        name = raw.get("id")
        if isinstance(name, str):
            what = "fault" if raw.get("do") == "inject" else "step"
            self.names.define(name, what, (*path, "id"))
            scope.ids[name] = step
            scope.run_counts[name] = times
        for saved, where in mapped(raw.get("save")).items():
            self._save(saved, where, step, (*path, "save", saved), scope)
        if isinstance(step, Subscribe):
            scope.subscribed.setdefault((step.as_, step.event), []).append(step.target)

    def _save(self, name: str, where: Any, step: Any, path: DataPath, scope: StepScope) -> None:
        if not NAME.fullmatch(name):
            self.names.report(path, f'"{name}" is not a name: {NAMED}', key=True)
        if name in self.saves:
            first = self.names.document.place(self.saves[name], key=True)
            self.names.report(path, f'"{name}" is saved twice, first at {first}', key=True)
        self.saves.setdefault(name, path)
        scope.saved[name] = ANYTHING
        if isinstance(where, str) and isinstance(step, (Read, Invoke, Stream, Query, Say)):
            scope.saved[name] = along(where, root_of(self.names, step))[0]

    def _saved(self, step: DataPath, scope: StepScope) -> None:
        for late in self._late.get(step, ()):
            name = late.reference.name
            self.saved_used.add(name)
            if name not in scope.saved:
                message = f'no earlier step saves "{name}"{did_you_mean(name, sorted(scope.saved))}'
                self.names.mistakes.append(
                    self.names.document.mistake_in(late.path, f"$(saved.{name})", message, "name")
                )

    # --- one step

    def _step(self, step: Any, path: DataPath, scope: StepScope) -> None:
        if isinstance(step, Asking):
            self.names.agent(step.as_, (*path, "as"), user=True)
            check_asking(self.validator, step, path)
        if isinstance(step, (Read, Invoke, Stream, Query, Say)):
            self._saving(step, path)
        if isinstance(step, Say):
            self.saying.check(step, path)
        elif isinstance(step, (Query, Cancel)):
            self._going_on(step, path, scope)
        elif isinstance(step, (Stop, Start, Deciding)):
            self.names.agent(step.target, (*path, "target"))
        elif isinstance(step, Inject):
            self.faults.fault(step.fault, (*path, "fault"))
        elif isinstance(step, Heal):
            self.faults.links.heal(step, path)
        elif isinstance(step, Wait):
            self._wait(step, path)
        elif isinstance(step, Expect):
            self.expectations.check(step, path, scope)

    def _saving(self, step: Read | Invoke | Stream | Query | Say, path: DataPath) -> None:
        """Check the parts of an answer that a step saves."""
        here, root = (*path, "save"), root_of(self.names, step)
        for name, where in step.save.items():
            if problem := path_problem(where) or along(where, root)[1]:
                self.names.report((*here, name), problem, "shape")
        if isinstance(step, Query) or not step.save:
            return
        if not step.wait:
            self.names.report(here, '"save" needs the answer, "wait: false" goes on without it', key=True)
        if step.error is not None:
            self.names.report(here, '"save" needs an answer, this step is to end in an error', key=True)

    def _going_on(self, step: Query | Cancel, path: DataPath, scope: StepScope) -> None:
        asked = scope.step(self.names, step.of, (*path, "of"), *_RUNNING)
        if asked is not None and asked.wait:
            message = f'"{step.of}" has ended before this step: say there "wait: false"'
            self.names.report((*path, "of"), message)

    def _wait(self, step: Wait, path: DataPath) -> None:
        if (step.until is None) == (step.for_ is None):
            self.names.report(path, 'a wait has exactly one of "until" and "for"', "shape")
        elif step.for_ is not None and step.within is not None:
            message = '"within" belongs to "until"; "for" is as long as it says'
            self.names.report((*path, "within"), message, "shape", key=True)
        if step.until is not None:
            here = (*path, "until", "agent")
            if self.names.agent(step.until.agent, here) and step.until.is_ == "connected":
                self.names.hub.check_name(step.until.agent, here)
