"""Validation of the checks of agents that think: tools, budgets, answers and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.system.values import ANYTHING, schema_problems

from ...model import Answer, CalledTool, Spending, Tools
from ._condition_validator import (
    BOUNDS,
    ConditionValidator,
    check_bounds,
    contradiction,
    given,
    needs_one,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

    from ...model import NoSecrets

_PATTERNS: Final = ("called", "in_order", "never", "only")
_AMOUNTS: Final = ("tokens", "input_tokens", "output_tokens", "calls", "tools")
_PARTS: Final = ("schema", "words", "any_of", "without", "match")


class ModelCheckValidator:
    """The validator of the checks of agents that think; mistakes go to `names`.

    `ids` has the steps by their ids; `step` checks the id of a step.
    """

    def __init__(
        self, names: CellNames, ids: Mapping[str, Any], step: Callable[[str, DataPath, str], None]
    ) -> None:
        self.names = names
        self.ids = ids
        self.step = step
        self.conditions = ConditionValidator(names)

    def check(self, check: Tools | Spending | Answer | NoSecrets, path: DataPath) -> None:
        """Validate one check of an agent that thinks."""
        if isinstance(check, Tools):
            self._tools(check, path)
        elif isinstance(check, Spending):
            self._spending(check, path)
        elif isinstance(check, Answer):
            self._answer(check, path)

    def _subject(self, of: str, path: DataPath) -> None:
        """Check the subject of a check of model requests: a step, an agent, or a model."""
        if of not in self.ids:
            if of in self.names.names or self.names.base_of(of) in self.names.names:
                self.names.check_group(of, path)
                return
            self.names.is_known(of, [*self.ids, *self.names.names], path, "step and no agent")
        elif of in self.names.names:
            self.names.report(path, f'"{of}" is a step and an agent: call the step something else')
        else:
            self.step(of, path, "sending")

    # --- tools

    def _tools(self, check: Tools, path: DataPath) -> None:
        self._subject(check.of, (*path, "of"))
        lists: dict[str, Any] = given(check, *_PATTERNS)
        needs_one(self.names, lists, _PATTERNS, path)
        for key, patterns in lists.items():
            for index, pattern in enumerate(patterns):
                if isinstance(pattern, CalledTool):
                    self._pattern(pattern, key, (*path, key, index))
        never = [each for each in lists.pop("never", ()) if isinstance(each, str)]
        for key, patterns in lists.items():
            for index, each in enumerate(patterns):
                name = each.tool if isinstance(each, CalledTool) else each
                if name in never:
                    self.names.report((*path, key, index), f'"{name}" is never to be called', "shape")

    def _pattern(self, pattern: CalledTool, key: str, path: DataPath) -> None:
        self.conditions.match(pattern.match, ANYTHING, (*path, "match"))
        if key != "called":
            self.names.refuse(pattern, path, 'counts calls, which "called" does', *BOUNDS)
        self.names.report_at(path, contradiction(given(pattern, *BOUNDS)), key=True)

    def _spending(self, check: Spending, path: DataPath) -> None:
        self._subject(check.of, (*path, "of"))
        amounts = given(check, *_AMOUNTS)
        needs_one(self.names, amounts, _AMOUNTS, path)
        for key, amount in amounts.items():
            check_bounds(self.names, amount, (*path, key))

    # --- answers

    def _answer(self, check: Answer, path: DataPath) -> None:
        self.step(check.of, (*path, "of"), "answered")
        needs_one(self.names, [*given(check, *_PARTS[:-1]), *check.match], _PARTS, path)
        if check.schema is not UNSET:
            for place, message, key in schema_problems(check.schema, (*path, "schema")):
                self.names.report(place, message, "shape", key=key)
        self.conditions.match(check.match, ANYTHING, (*path, "match"))
        without = {word.casefold() for word in check.without or ()}
        for part in ("words", "any_of"):
            for index, word in enumerate(getattr(check, part) or ()):
                if word.casefold() in without:
                    self.names.report((*path, part, index), f'"{word}" is not to be there', "shape")
