"""Formulas such as `state.questions <= 3`: read and resolved once, then computed again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.system.values import show

from ._evaluation import FormulaFailed as FormulaFailed, Look as Look, computing
from ._text import FormulaProblem as FormulaProblem, Known as Known, read_formula

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen(eq=False)
class Formula:
    """A formula that has been read. `names` has the names used in it, without repeats, in text order."""

    text: str
    names: tuple[str, ...]
    _compute: Callable[[Look], Any] = attrs.field(repr=False)

    def value(self, look: Look) -> Any:
        """Compute the formula. Raises FormulaFailed, and LookupError for a name that has no value."""
        return self._compute(look)

    def truth(self, look: Look) -> bool:
        """Compute the formula as a condition. Raises the same errors as `value`.

        Also raises FormulaFailed if the value is neither true nor false.
        """
        value = self._compute(look)
        if value is True or value is False:
            return value
        raise FormulaFailed(f"{self.text} is {show(value)}, which is neither true nor false")

    def describe(self, look: Look) -> str:
        """Return the values of the formula's names as text: `state.questions = 4`."""
        return ", ".join(f"{name} = {_describe(name, look)}" for name in self.names)


def _describe(name: str, look: Look) -> str:
    try:
        return show(look(name))
    except LookupError as error:
        return f"({error_text(error)})"


def error_text(error: BaseException) -> str:
    """Return the text of an error, without the quotes that `str` adds for some LookupErrors."""
    return str(error.args[0]) if error.args else "missing"


def compile_formula(text: str, known: Known, *, condition: bool = False) -> Formula:
    """Read a formula and resolve its names. Raises FormulaProblem.

    With `condition`, the formula must use at least one name, and its form must not show that it is a number.
    """
    tree, names = read_formula(text, known, condition=condition)
    return Formula(text, names, computing(text, tree))
