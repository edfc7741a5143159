"""Matchers and verdicts: pure functions, which judge a run while it goes on, or later from its log.

Values are compared as in JSON: 1 equals 1.0, true does not equal 1, the order of members does not matter. A
JSON path must lead to a value, and every value it leads to must fulfil the condition.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import UNSET, structs

from lmos_actors.files import Duration, is_list, mapped
from lmos_actors.system.model import Condition, ExpectedError, fill_late
from lmos_actors.system.values import holds as holds, same as same, select, show as show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.system.model import Scalar

    from ..model import Below, Bounded, Expect, Latency

FEWEST_SAMPLES: Final = 20
"""Minimum number of samples for a percentile; with fewer the check fails."""

_ORDER: Final = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))


MESSAGE: Final = "message"
"""The root of paths into a message on a hub."""


def payload_of(message: object) -> Any:
    """Return the payload of a message; None if it has none."""
    return mapped(message).get("payload")


@attrs.frozen
class Verdict:
    """Verdict on one expectation; `expected` and `saw` are texts."""

    ok: bool
    expected: str
    saw: str

    def __str__(self) -> str:
        return f"expected {self.expected}, saw {self.saw}"


# --- one value


def judge_value(expect: Expect, value: object, root: str | None = None) -> list[Verdict]:
    """Judge one value by `equals`, `contains`, `match`, `ge` and `le`: one verdict for each key given.

    The paths of `match` begin at the value. With `root` they begin at an answer that has the value as its
    member `root`. If `root` is `MESSAGE`, the value is a message, and all other keys judge its payload.
    """
    if root == MESSAGE:
        answer, value = value, payload_of(value)
    else:
        answer = value if root is None else {root: value}
    plain = Condition(eq=expect.equals, contains=expect.contains, ge=expect.ge, le=expect.le)
    return judge_condition(plain, value) + judge_match(expect.match, answer)


def judge_match(match: Mapping[str, Condition | Scalar], answer: object) -> list[Verdict]:
    """Judge the parts of an answer at the given paths, each by its condition.

    Return one verdict for each path without a value, and otherwise for each condition of each value.
    """
    verdicts: list[Verdict] = []
    for path, condition in match.items():
        whole = condition if isinstance(condition, Condition) else Condition(eq=condition)
        found = select(path, answer)
        if not found:
            verdicts.append(Verdict(False, f"something at {path}", show(answer)))
        for part in found:
            verdicts += judge_condition(whole, part, f"{path} ")
    return verdicts


def judge_condition(condition: Condition, value: object, where: str = "") -> list[Verdict]:
    """Judge one value by a condition; `where` is put before the expectation in the verdict."""
    seen = show(value)
    verdicts: list[Verdict] = []

    def add(ok: bool, expected: str) -> None:
        verdicts.append(Verdict(ok, where + expected, seen))

    if condition.eq is not UNSET:
        add(same(value, condition.eq), f"to equal {show(condition.eq)}" if where else show(condition.eq))
    if condition.ne is not UNSET:
        add(not same(value, condition.ne), f"other than {show(condition.ne)}")
    for name, words in _ORDER:
        bound = getattr(condition, name)
        if bound is not UNSET:
            add(_in_order(value, name, bound), f"{words} {show(bound)}")
    if condition.contains is not UNSET:
        add(holds(value, condition.contains), f"to contain {show(condition.contains)}")
    if isinstance(condition.regex, str):
        fits = isinstance(value, str) and re.search(condition.regex, value) is not None
        add(fits, f"text like {condition.regex!r}")
    return verdicts


def _in_order(value: object, name: str, bound: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return {"ge": value >= bound, "gt": value > bound, "le": value <= bound, "lt": value < bound}[name]


def judge_error(expected: ExpectedError, error: BaseException | None) -> Verdict:
    """Judge the error of a step; None means success. `is` names the error's class or a base class of it."""
    parts = [expected.is_]
    ok = error is not None and expected.is_ in [above.__name__ for above in type(error).__mro__]
    if expected.path is not None:
        parts.append(f"at {expected.path}")
        ok = ok and getattr(error, "path", None) == expected.path
    if expected.contains is not None:
        parts.append(f"with {expected.contains!r} in its message")
        ok = ok and expected.contains in str(error)
    saw = "no error" if error is None else f"{type(error).__name__}: {error}".rstrip(": ")
    return Verdict(ok, " ".join(parts), saw)


# --- steps and checks


def fill_expect(expect: Expect, saved: Mapping[str, Any]) -> Expect:
    """Return the step with its saved values filled in. Raises LookupError for a missing value."""

    def late(value: Any) -> Any:
        return value if value is UNSET else fill_late(value, "saved", saved)

    def condition(found: Any) -> Any:
        if not isinstance(found, Condition):
            return late(found)
        return structs.replace(found, eq=late(found.eq), ne=late(found.ne), contains=late(found.contains))

    sequence = expect.sequence if expect.sequence is UNSET else tuple(late(list(expect.sequence)))
    return structs.replace(
        expect,
        of=late(expect.of),
        equals=late(expect.equals),
        contains=late(expect.contains),
        match={path: condition(found) for path, found in expect.match.items()},
        sequence=sequence,
    )


def waits_to_the_end(expect: Expect) -> bool:
    """Return whether an `expect` step can be judged only when its time is over.

    It cannot be judged earlier if it counts values, or expects that there are none.
    """
    return expect.times is not UNSET or expect.sequence == ()


ROOTS: Final = {
    "output": "output",
    "reading": "value",
    "event": "data",
    "items": "items",
    "heard": MESSAGE,
}
"""The member of an answer that holds the value of an expectation; `match` and `save` start at the answer."""


def judge_expect(expect: Expect, seen: object, root: str | None = None) -> list[Verdict]:
    """Judge an `expect` step whose saved values have been filled in.

    `seen` is the value for `value` and `output`, the statuses so far for `status`, the values so far for
    `items`, `reading` and `event`, or the messages for `heard`. At least one of several values, or exactly
    `times` of them, must meet the expectation; for `items`, `match` judges all of them as a list. `root` is
    the member of the answer that holds the output, if the answered step is not an invocation.
    """
    if expect.that in ("value", "output"):
        return judge_value(expect, seen, root or ROOTS.get(expect.that))
    items = seen if is_list(seen) else []
    if expect.that == "status":
        return _statuses(expect, items)
    judged = list(map(payload_of, items)) if expect.that == "heard" else items
    verdicts = [] if expect.sequence is UNSET else [judge_sequence(judged, expect.sequence)]
    if expect.that == "items":
        verdicts += judge_match(expect.match, {"items": items})
        expect = structs.replace(expect, match={})
    if expect.times is not UNSET or not verdicts or judge_value(expect, None):
        verdicts.append(_among(expect, items))
    return verdicts


def _statuses(expect: Expect, seen: list[Any]) -> list[Verdict]:
    """Judge the statuses so far. Repeats count once: they only show how often progress was reported."""
    turns = [status for index, status in enumerate(seen) if index == 0 or seen[index - 1] != status]
    verdicts = [] if expect.sequence is UNSET else [judge_sequence(turns, expect.sequence)]
    if expect.equals is not UNSET:
        last = turns[-1] if turns else None
        verdicts.append(Verdict(same(last, expect.equals), show(expect.equals), show(last)))
    return verdicts


def judge_sequence(seen: Sequence[Any], wanted: Sequence[Any]) -> Verdict:
    """Judge whether the observed values are exactly the expected sequence."""
    return Verdict(same(list(seen), list(wanted)), show(list(wanted)), show(list(seen)))


def _among(expect: Expect, items: list[Any]) -> Verdict:
    root = ROOTS[expect.that]
    good = [item for item in items if all(verdict.ok for verdict in judge_value(expect, item, root))]
    nearest = judge_value(expect, items[-1] if items else None, root)
    what = " and ".join(verdict.expected for verdict in nearest) or "one"
    saw = f"{len(items)}, last {show(items[-1])}" if items else "none"
    if expect.times is UNSET:
        return Verdict(bool(good), f"{what}, at least once", saw)
    return Verdict(len(good) == expect.times, f"{what}, {expect.times} times", f"{len(good)} times ({saw})")


def judge_bounded(check: Bounded, number: int) -> list[Verdict]:
    """Judge a number by the bounds of a check: `equals`, `ge` and `le`."""
    return judge_condition(Condition(eq=check.equals, ge=check.ge, le=check.le), number)


def percentile(samples: Sequence[float], percent: float) -> float | None:
    """Return a percentile of samples by nearest rank, so that it is one of them.

    Return None if there are fewer than 20 samples.
    """
    return nearest_rank(samples, percent) if len(samples) >= FEWEST_SAMPLES else None


def nearest_rank(values: Sequence[float], percent: float) -> float:
    """Return a percentile of one or more values by nearest rank, so that it is one of the values."""
    return sorted(values)[max(1, math.ceil(percent / 100 * len(values))) - 1]


def judge_latency(check: Latency, samples: Sequence[float]) -> list[Verdict]:
    """Judge the durations, in seconds, of the runs of a step. Without a sample, every bound fails."""
    bounds = [("max", max(samples, default=None), check.max)]
    bounds += [
        (f"p{percent}", percentile(samples, percent), getattr(check, f"p{percent}"))
        for percent in (50, 90, 95, 99)
    ]
    return [
        verdict
        for name, seconds, below in bounds
        if below is not None
        for verdict in _below(name, seconds, below, len(samples))
    ]


def _below(name: str, seconds: float | None, below: Below, count: int) -> list[Verdict]:
    found = [("less than", below.lt), ("at most", below.le)]
    verdicts: list[Verdict] = []
    for words, bound in found:
        if not isinstance(bound, Duration):
            continue
        if seconds is None:
            saw = f"{count} samples: it cannot be computed"
            verdicts.append(Verdict(False, f"{name} {words} {bound}", saw))
        else:
            ok = seconds < bound if words == "less than" else seconds <= bound
            verdicts.append(Verdict(ok, f"{name} {words} {bound}", str(Duration(seconds))))
    return verdicts
