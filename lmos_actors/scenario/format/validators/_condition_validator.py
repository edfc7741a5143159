"""Validation of conditions on values: in themselves, and against the schema of the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.system.model import Condition
from lmos_actors.system.values import (
    along,
    is_late,
    is_numeric,
    is_textual,
    may_contain,
    misfits,
    regex_problem,
    same,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames
    from lmos_actors.system.values import Schema

_BELOW: Final = ("le", "lt")
_ABOVE: Final = ("ge", "gt")


def contradiction(bounds: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a bound that contradicts another, and why; None if there is none.

    `bounds` has those given among `ge`, `gt`, `le`, `lt`, and `eq` or `equals`; numbers or times.
    """
    for low in _ABOVE:
        for high in _BELOW:
            if low in bounds and high in bounds and _apart(low, bounds[low], high, bounds[high]):
                said = f"{low}: {bounds[low]} and {high}: {bounds[high]}"
                return high, f"nothing can be both {said}"
    for word in ("eq", "equals"):
        for sign in (*_ABOVE, *_BELOW):
            if word in bounds and sign in bounds and not _fulfils(bounds[word], sign, bounds[sign]):
                said = f"{word}: {show(bounds[word])} and {sign}: {bounds[sign]}"
                return sign, f"nothing can be both {said}"
    return None


def _apart(low: str, least: Any, high: str, most: Any) -> bool:
    open_end = low == "gt" or high == "lt"
    return bool(least >= most if open_end else least > most)


def _fulfils(value: Any, sign: str, bound: Any) -> bool:
    if is_late(value):
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return bool({"ge": value >= bound, "gt": value > bound, "le": value <= bound, "lt": value < bound}[sign])


def given(what: Any, *keys: str) -> dict[str, Any]:
    """Return the given keys of a struct, with their values."""
    return {key: value for key in keys if (value := getattr(what, key)) not in (UNSET, None)}


class ConditionValidator:
    """Validates conditions; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names

    def match(self, match: Mapping[str, Any], schema: Schema, path: DataPath) -> None:
        """Check JSON paths into data of a schema, and the conditions on the values there."""
        for where, condition in match.items():
            here = (*path, where)
            found, problem = along(where, schema)
            if problem:
                self.names.report(here, problem, "shape", key=True)
            if isinstance(condition, Condition):
                self.condition(condition, found, here)
            else:
                self.equal(condition, found, here)

    def condition(self, condition: Condition, schema: Schema, path: DataPath) -> None:
        if condition == Condition():
            self.names.report(path, "a condition without anything in it", "shape")
        bounds = given(condition, "ge", "gt", "le", "lt", "eq")
        if condition.eq is None:
            bounds["eq"] = None
        self._bounds(bounds, schema, path)
        if condition.eq is not UNSET:
            self.equal(condition.eq, schema, (*path, "eq"))
            if condition.ne is not UNSET and same(condition.eq, condition.ne):
                self.names.report((*path, "ne"), "nothing can be equal and not equal to it", key=True)
        if condition.contains is not UNSET:
            self.contain(condition.contains, schema, (*path, "contains"))
        if isinstance(condition.regex, str):
            problem = regex_problem(condition.regex)
            if problem:
                self.names.report((*path, "regex"), problem, "shape")
            elif not is_textual(schema):
                message = '"regex" searches text, and none stands there'
                self.names.report((*path, "regex"), message, "shape", key=True)

    def expected(self, what: Any, schema: Schema, path: DataPath, *, root: Schema) -> None:
        """Check the expectations of a value, and of `match` for its whole answer, whose schema is `root`."""
        bounds = given(what, "ge", "le")
        if what.equals is not UNSET:
            bounds["equals"] = what.equals
            self.equal(what.equals, schema, (*path, "equals"))
        self._bounds(bounds, schema, path)
        if what.contains is not UNSET:
            self.contain(what.contains, schema, (*path, "contains"))
        for index, item in enumerate(getattr(what, "sequence", None) or ()):
            self.equal(item, schema, (*path, "sequence", index))
        self.match(what.match, root, (*path, "match"))

    def _bounds(self, bounds: Mapping[str, Any], schema: Schema, path: DataPath) -> None:
        for key in (*_ABOVE, *_BELOW):
            if key in bounds and not is_numeric(schema):
                self.names.report((*path, key), f'"{key}" compares numbers, and none stands there', key=True)
                return
        problem = contradiction(bounds)
        if problem is not None:
            self.names.report((*path, problem[0]), problem[1], "shape", key=True)

    def equal(self, value: Any, schema: Schema, path: DataPath) -> None:
        for here, message, key in misfits(value, schema, path):
            self.names.report(here, message, "shape", key=key)

    def contain(self, part: Any, schema: Schema, path: DataPath) -> None:
        if problem := may_contain(schema, part):
            self.names.report(path, problem, "shape")
