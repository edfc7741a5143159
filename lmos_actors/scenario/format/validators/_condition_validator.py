"""Validation of conditions on values: of the conditions alone, and against the schema of the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, UnsetType

from lmos_actors.system.model import Condition
from lmos_actors.system.values import (
    along,
    exception_class,
    exception_names,
    is_late,
    is_numeric,
    is_textual,
    may_contain,
    misfits,
    problem_at,
    regex_problem,
    same,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Set

    from lmos_actors.files import DataPath, Duration
    from lmos_actors.system import CellNames
    from lmos_actors.system.model import Delay
    from lmos_actors.system.values import Schema

BOUNDS: Final = ("equals", "ge", "le")
"""The keys of checks of a number."""

_BELOW: Final = ("le", "lt")
_ABOVE: Final = ("ge", "gt")


def contradiction(bounds: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a bound that contradicts another, and the reason; None if there is no such bound.

    `bounds` has the bounds that are given, among `ge`, `gt`, `le`, `lt`, and `eq` or `equals`. They are
    numbers or times.
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
    """Return the keys that are set in a struct, out of the given ones, with their values."""
    return {key: value for key in keys if (value := getattr(what, key)) not in (UNSET, None)}


def check_bounds(names: CellNames, what: Any, path: DataPath) -> None:
    """Check that a number has at least one bound, and that its bounds do not contradict each other."""
    bounds = given(what, *BOUNDS)
    needs_one(names, bounds, BOUNDS, path)
    names.report_at(path, contradiction(bounds), key=True)


def needs_one(names: CellNames, given: Collection[str], keys: Collection[str], path: DataPath) -> None:
    """Refuse a check in which none of the keys is given."""
    if not given:
        names.report(path, f"nothing is checked: one of {', '.join(keys)}", "shape")


def check_keys(
    names: CellNames,
    word: str,
    given: Iterable[str],
    needed: Set[str],
    more: Set[str],
    path: DataPath,
    *,
    key: bool = False,
) -> None:
    """Check the keys given with a word such as `kind: crash`: none is missing, and each applies to it."""
    keys = list(given)
    for each in sorted(needed - set(keys)):
        names.report(path, f'"{word}" needs "{each}"', "shape", key=key)
    for each in keys:
        if each not in needed | more:
            names.report((*path, each), f'"{each}" does not apply to "{word}"', "shape", key=True)


def check_delay(names: CellNames, delay: Delay | UnsetType, path: DataPath) -> None:
    """Check a delay, which is a time or the distribution from which a time is drawn."""
    if delay is not UNSET:
        names.report_at(path, problem_at(delay, time=True))


def check_in_time(names: CellNames, instant: Duration, path: DataPath, *, before_end: bool = False) -> None:
    """Check that an instant is not after the end of a simulation; with `before_end`, nor at the end."""
    stop = names.made.get(("stop",))
    if stop is not None and (instant > stop.at or (before_end and instant == stop.at)):
        names.report(path, f"the simulation is over before that, at {stop.at}", "shape")


def check_exception(names: CellNames, name: object, path: DataPath) -> None:
    """Check that a name belongs to a built-in exception that can be made from a message."""
    if isinstance(name, str) and exception_class(name) is None:
        names.is_known(name, exception_names(), path, "built-in exception", more=" made from a message")


class ConditionValidator:
    """The validator of conditions; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names

    def match(self, match: Mapping[str, Any], schema: Schema, path: DataPath) -> None:
        """Check JSON paths into data with a schema, and the conditions on the values at these paths."""
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
        """Check the expectations on a value against its schema.

        `match` applies to the whole answer, whose schema is `root`.
        """
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
        self.names.report_at(path, contradiction(bounds), key=True)

    def equal(self, value: Any, schema: Schema, path: DataPath) -> None:
        for here, message, key in misfits(value, schema, path):
            self.names.report(here, message, "shape", key=key)

    def contain(self, part: Any, schema: Schema, path: DataPath) -> None:
        if problem := may_contain(schema, part):
            self.names.report(path, problem, "shape")
