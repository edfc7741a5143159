"""Evaluation of formulas: simpleeval walks the tree, with operators and functions for plain data only.

The tree comes from `_text.py`, which has refused every node and operator that is not evaluated here, and has
made one `ast.Name` of each dotted name such as `state.questions`. Values are compared as in JSON: true is not
a number, 1 equals 1.0. Operands that do not fit together raise FormulaFailed. No operation makes a value that
is longer than its operands, so no formula takes long.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeGuard

from simpleeval import InvalidExpression, SimpleEval  # type: ignore[import-untyped] # pyright: ignore

from lmos_actors.files import is_list, is_mapping
from lmos_actors.system.values import same, show

Look: TypeAlias = Callable[[str], Any]
"""Returns the value of a dotted name, plain data. Raises LookupError, whose text is shown to the user."""


class FormulaFailed(Exception):
    """The error raised if a formula cannot be computed with the present values; its text is the reason."""


def computing(text: str, tree: ast.expr) -> Callable[[Look], Any]:
    """Return a function that computes the tree of a formula; `text` is used in error messages.

    The function raises FormulaFailed. A LookupError raised for a name passes through.
    """
    simple = _simple(tree)
    if simple is not None:
        return simple
    evaluator = _Evaluator()

    def compute(look: Look) -> Any:
        evaluator.look = look
        try:
            return evaluator.eval(text, tree)
        except (ArithmeticError, InvalidExpression, RecursionError, TypeError, ValueError) as error:
            raise FormulaFailed(f"{text}: {error}") from None

    return compute


_Base: Any = SimpleEval  # it has no types
_op: Any = operator


def _simple(tree: ast.expr) -> Callable[[Look], Any] | None:
    """Return a quick function for a name, or a name compared with a constant; None for any other tree.

    Such formulas are computed for every agent at every sample.
    """
    if isinstance(tree, ast.Name):
        name = tree.id
        return lambda look: look(name)
    if not isinstance(tree, ast.Compare) or len(tree.ops) > 1:
        return None
    left, right = tree.left, tree.comparators[0]
    if not isinstance(left, ast.Name) or not isinstance(right, ast.Constant):
        return None
    name, compare, value = left.id, _OPERATORS[type(tree.ops[0])], right.value
    return lambda look: compare(look(name), value)


class _Evaluator(_Base):  # type: ignore[misc]
    look: Look

    def __init__(self) -> None:
        _Base.__init__(self, operators=_OPERATORS, functions=_FUNCTIONS, names={})
        self.nodes = {
            ast.Name: self._name,
            ast.Constant: self._eval_constant,
            ast.List: self._rows,
            ast.Tuple: self._rows,
            ast.UnaryOp: self._eval_unaryop,
            ast.BinOp: self._eval_binop,
            ast.BoolOp: self._eval_boolop,
            ast.Compare: self._eval_compare,
            ast.IfExp: self._eval_ifexp,
            ast.Call: self._eval_call,
            ast.Subscript: self._part,
        }

    def _check_disallowed_items(self, item: Any) -> None:
        """Do nothing: names refer to plain data, which contains nothing that could be called."""

    def _name(self, node: ast.Name) -> Any:
        return self.look(node.id)

    def _rows(self, node: ast.List | ast.Tuple) -> list[Any]:
        return [self._eval(part) for part in node.elts]

    def _part(self, node: ast.Subscript) -> Any:
        whole, key = self._eval(node.value), self._eval(node.slice)
        if is_mapping(whole) and isinstance(key, str):
            if key in whole:
                return whole[key]
            raise FormulaFailed(f'there is no "{key}" in {show(whole)}')
        if is_list(whole) and type(key) is int:
            if -len(whole) <= key < len(whole):
                return whole[key]
            raise FormulaFailed(f"there is no item {key} in {show(whole)}")
        raise FormulaFailed(f"{show(whole)} has no part {show(key)}")


# --- operators and functions


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _calculated(sign: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def calculate(left: object, right: object) -> Any:
        if not _is_number(left) or not _is_number(right):
            raise FormulaFailed(f"{show(left)} {sign} {show(right)}: both have to be numbers")
        try:
            result = compute(left, right)
        except ZeroDivisionError:
            raise FormulaFailed(f"{show(left)} {sign} {show(right)}: division by zero") from None
        if isinstance(result, float) and not math.isfinite(result):
            raise FormulaFailed(f"{show(left)} {sign} {show(right)}: the result is too large")
        return result

    return calculate


def _signed(sign: str, compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def calculate(value: object) -> Any:
        if not _is_number(value):
            raise FormulaFailed(f"{sign}{show(value)}: it has to be a number")
        return compute(value)

    return calculate


def _ordered(sign: str, compute: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: object, right: object) -> bool:
        if (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str)):
            return compute(left, right)
        raise FormulaFailed(f"{show(left)} {sign} {show(right)}: numbers, or texts, can be compared")

    return compare


def _is_in(part: object, whole: object) -> bool:
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    if is_list(whole):
        return any(same(part, item) for item in whole)
    if is_mapping(whole) and isinstance(part, str):
        return part in whole
    raise FormulaFailed(f"{show(part)} in {show(whole)}: only texts, lists and objects hold something")


def _is_not_in(part: object, whole: object) -> bool:
    return not _is_in(part, whole)


def _differ(left: object, right: object) -> bool:
    return not same(left, right)


_OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: _calculated("+", _op.add),
    ast.Sub: _calculated("-", _op.sub),
    ast.Mult: _calculated("*", _op.mul),
    ast.Div: _calculated("/", _op.truediv),
    ast.FloorDiv: _calculated("//", _op.floordiv),
    ast.Mod: _calculated("%", _op.mod),
    ast.USub: _signed("-", _op.neg),
    ast.UAdd: _signed("+", _op.pos),
    ast.Not: operator.not_,
    ast.Eq: same,
    ast.NotEq: _differ,
    ast.Lt: _ordered("<", _op.lt),
    ast.LtE: _ordered("<=", _op.le),
    ast.Gt: _ordered(">", _op.gt),
    ast.GtE: _ordered(">=", _op.ge),
    ast.In: _is_in,
    ast.NotIn: _is_not_in,
}


def _of_numbers(name: str, compute: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def reduce(*given: Any) -> Any:
        items = given[0] if len(given) == 1 else list(given)
        if not is_list(items) or not all(map(_is_number, items)):
            raise FormulaFailed(f"{name} of {show(items)}: it takes numbers")
        if not items and name != "sum":
            raise FormulaFailed(f"{name} of an empty list")
        result = compute(items)
        if isinstance(result, float) and not math.isfinite(result):
            raise FormulaFailed(f"{name} of {show(items)}: the result is too large")
        return result

    return reduce


def _of_list(name: str, compute: Callable[[list[Any]], bool]) -> Callable[[Any], bool]:
    def reduce(items: object) -> bool:
        if not is_list(items):
            raise FormulaFailed(f"{name} of {show(items)}: it takes a list")
        return compute(items)

    return reduce


def _length(value: object) -> int:
    if isinstance(value, str) or is_list(value) or is_mapping(value):
        return len(value)
    raise FormulaFailed(f"len of {show(value)}: it takes a text, a list or an object")


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "min": _of_numbers("min", min),
    "max": _of_numbers("max", max),
    "sum": _of_numbers("sum", sum),
    "abs": _signed("abs ", abs),
    "any": _of_list("any", any),
    "all": _of_list("all", all),
    "len": _length,
}
