"""Validation of the checks of agents that think: tools, budgets, answers and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean
from lmos_actors.system.values import ANYTHING, schema_problems

from ...model import Answer, CalledTool, Spending, Tools
from ._condition_validator import ConditionValidator, contradiction, given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames

    from ...model import NoSecrets

_PATTERNS: Final = ("called", "in_order", "never")
_AMOUNTS: Final = ("tokens", "input_tokens", "output_tokens", "calls", "tools")
_BOUNDS: Final = ("equals", "ge", "le")
_PARTS: Final = ("schema", "words", "any_of", "without", "match")


class ModelCheckValidator:
    """Validates these checks; mistakes go to `names`. `ids` has the steps by their ids.

    `asking` has the kinds of steps that send a message to an agent, `answered` those that have an answer.
    """

    def __init__(self, names: CellNames, ids: Mapping[str, Any], asking: Any, answered: Any) -> None:
        self.names = names
        self.ids = ids
        self.asking = asking
        self.answered = answered
        self.conditions = ConditionValidator(names)

    def check(self, check: Tools | Spending | Answer | NoSecrets, path: DataPath) -> None:
        """Check one of these checks."""
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
            near = did_you_mean(of, [*self.ids, *self.names.names])
            self.names.report(path, f'no step and no agent "{of}"{near}')
        elif of in self.names.names:
            self.names.report(path, f'"{of}" is a step and an agent: call the step something else')
        elif self.ids[of] is not None and not isinstance(self.ids[of], self.asking):
            self.names.report(path, f'"{of}" is not a step that turns to an agent')

    # --- tools

    def _tools(self, check: Tools, path: DataPath) -> None:
        self._subject(check.of, (*path, "of"))
        if not given(check, *_PATTERNS, "only"):
            self.names.report(path, f"nothing is checked: one of {', '.join((*_PATTERNS, 'only'))}", "shape")
        lists: dict[str, Any] = given(check, *_PATTERNS, "only")
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
        bounds = given(pattern, *_BOUNDS)
        if key != "called":
            for bound in bounds:
                why = f'"{bound}" counts calls, which "called" does'
                self.names.report((*path, bound), why, "shape", key=True)
        self._bounds(bounds, path)

    def _bounds(self, bounds: Mapping[str, Any], path: DataPath) -> None:
        problem = contradiction(bounds)
        if problem is not None:
            self.names.report((*path, problem[0]), problem[1], "shape", key=True)

    def _spending(self, check: Spending, path: DataPath) -> None:
        self._subject(check.of, (*path, "of"))
        amounts = given(check, *_AMOUNTS)
        if not amounts:
            self.names.report(path, f"nothing is checked: one of {', '.join(_AMOUNTS)}", "shape")
        for key, amount in amounts.items():
            bounds = given(amount, *_BOUNDS)
            if not bounds:
                self.names.report((*path, key), "nothing is checked: one of equals, ge, le", "shape")
            self._bounds(bounds, (*path, key))

    # --- answers

    def _answer(self, check: Answer, path: DataPath) -> None:
        here = (*path, "of")
        if check.of not in self.ids:
            self.names.report(here, f'no step "{check.of}"{did_you_mean(check.of, list(self.ids))}')
        elif self.ids[check.of] is not None and not isinstance(self.ids[check.of], self.answered):
            self.names.report(here, f'"{check.of}" is not a read, write, invoke or stream step')
        if not given(check, *_PARTS[:-1]) and not check.match:
            self.names.report(path, f"nothing is checked: one of {', '.join(_PARTS)}", "shape")
        if check.schema is not UNSET:
            for place, message, key in schema_problems(check.schema, (*path, "schema")):
                self.names.report(place, message, "shape", key=key)
        self.conditions.match(check.match, ANYTHING, (*path, "match"))
        without = {word.casefold() for word in check.without or ()}
        for part in ("words", "any_of"):
            for index, word in enumerate(getattr(check, part) or ()):
                if word.casefold() in without:
                    self.names.report((*path, part, index), f'"{word}" is not to be there', "shape")
