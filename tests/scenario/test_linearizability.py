"""The search for an order that explains a history of a register, and the smallest history without one."""

from __future__ import annotations

import json
import math
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.scenario.judge import UNKNOWN, Operation, linearize, smallest_failing
from tests.matrix import examples
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

INITIAL = "0"
SORTS: dict[str, Any] = {"r": "read", "w": "write", "c": "compare_and_set"}


def read(value: object, call: int, end: float) -> Operation:
    return Operation("read", str(value), call, end)


def write(value: object, call: int, end: float = UNKNOWN) -> Operation:
    return Operation("write", str(value), call, end)


def swap(
    expected: object, value: object, call: int, end: float = UNKNOWN, *, is_set: bool = True
) -> Operation:
    return Operation("compare_and_set", str(value), call, end, str(expected), is_set)


# ---- by a checker that tries everything


def applied(operation: Operation, value: str) -> str | None:
    """Return the value after an operation, None if the operation cannot have seen this one."""
    if operation.sort == "read":
        return value if operation.value == value else None
    if operation.sort == "write":
        return operation.value
    holds = operation.expected == value
    if operation.end != math.inf and operation.is_set != holds:
        return None
    return operation.value if holds else value


def explains(order: Sequence[Operation]) -> bool:
    for place, operation in enumerate(order):
        if any(later.end < operation.call for later in order[place + 1 :]):
            return False
    value: str | None = INITIAL
    for operation in order:
        value = applied(operation, value)
        if value is None:
            return False
    return True


def has_order(history: Sequence[Operation]) -> bool:
    """Try every order of every choice of the operations that may have happened."""
    known = [each for each in history if each.end != math.inf]
    unknown = [each for each in history if each.end == math.inf and each.sort != "read"]
    return any(
        explains(order)
        for count in range(len(unknown) + 1)
        for happened in combinations(unknown, count)
        for order in permutations([*known, *happened])
    )


@st.composite
def histories(draw: st.DrawFn, *, distinct: bool = False, most: int = 6) -> list[Operation]:
    count = draw(st.integers(1, most))
    places = draw(st.permutations([number for number in range(count) for _ in range(2)]))
    calls: dict[int, int] = {}
    ends: dict[int, int] = {}
    for place, number in enumerate(places):
        (ends if number in calls else calls)[number] = place
    written = 0
    found: list[Operation] = []
    for number in range(count):
        end = UNKNOWN if draw(st.integers(0, 3)) == 0 else ends[number]
        kind = draw(st.sampled_from("rrww" if distinct else "rrwwc"))
        value = draw(st.integers(0, 3))
        if kind == "r":
            found.append(read(value, calls[number], end))
        elif kind == "w":
            written += 1
            found.append(write(written if distinct else value, calls[number], end))
        else:
            is_set = draw(st.booleans())
            found.append(swap(draw(st.integers(0, 3)), value, calls[number], end, is_set=is_set))
    return found


@given(history=histories())
def test_the_search_agrees_with_trying_everything(history: list[Operation]) -> None:
    assert linearize(history, INITIAL) is has_order(history)


def cut(history: Sequence[Operation], end: float) -> list[Operation]:
    """Return what is known of a history at an instant."""
    return [
        each if each.end <= end else attrs.evolve(each, end=UNKNOWN) for each in history if each.call <= end
    ]


def fewest(history: Sequence[Operation]) -> int:
    """Return the size of the smallest part that fails, of any values and any of their reads."""
    ends = sorted(each.end for each in history if each.end != UNKNOWN)
    known = next(cut(history, end) for end in ends if not has_order(cut(history, end)))
    writes = [each for each in known if each.sort == "write"]
    reads = [each for each in known if each.sort == "read" and each.end != UNKNOWN]
    sizes = [
        len(some_writes) + len(some_reads)
        for count in range(len(writes) + 1)
        for some_writes in combinations(writes, count)
        for more in range(len(reads) + 1)
        for some_reads in combinations(reads, more)
        if all(
            each in some_writes or each.value not in {read.value for read in some_reads} for each in writes
        )
        and not has_order([*some_writes, *some_reads])
    ]
    return min(sizes)


@settings(max_examples=examples(60))
@given(history=histories(distinct=True, most=7))
def test_the_history_shown_is_the_smallest(history: list[Operation]) -> None:
    if linearize(history, INITIAL):
        return
    small = smallest_failing(history, INITIAL)
    assert set(small) <= set(history)
    assert len(small) == fewest(history)


@given(history=histories())
def test_no_read_of_the_history_shown_can_be_left_out(history: list[Operation]) -> None:
    if linearize(history, INITIAL):
        return
    small = smallest_failing(history, INITIAL)
    ends = sorted(each.end for each in history if each.end != UNKNOWN)
    known = cut(small, next(end for end in ends if not has_order(cut(history, end))))
    assert not has_order(known)
    for one in known:
        if one.sort == "read" or (one.end != UNKNOWN and not one.is_set):
            assert has_order([each for each in known if each != one])


# ---- by a checker of others

RECORDED = (ROOT / "tests" / "scenario" / "histories.jsonl").read_text(encoding="utf-8").splitlines()[1:]


def operation(sort: str, value: int, call: int, end: int | None, *more: Any) -> Operation:
    expected, is_set = more or (0, True)
    known = UNKNOWN if end is None else end
    return Operation(SORTS[sort], str(value), call, known, str(expected), is_set is not False)


def test_the_search_agrees_with_an_independent_checker() -> None:
    verdicts = {True: 0, False: 0}
    for line in RECORDED:
        recorded = json.loads(line)
        history = [operation(*each) for each in recorded["history"]]
        assert linearize(history, INITIAL) is recorded["linearizable"], line
        verdicts[recorded["linearizable"]] += 1
        if not recorded["linearizable"]:
            assert set(smallest_failing(history, INITIAL)) <= set(history)
    assert min(verdicts.values()) >= 100


# ---- histories that people know

SAMPLES: list[tuple[str, list[Operation], list[int] | None]] = [
    ("nothing", [], None),
    ("the initial value", [read(0, 0, 1)], None),
    ("a read of what nobody wrote", [write(1, 0, 1), read(2, 2, 3)], [1]),
    ("a read before its write began", [read(1, 0, 1), write(1, 2, 3)], [0]),
    ("a stale read", [write(1, 0, 1), write(2, 2, 3), read(2, 4, 5), read(1, 6, 7)], [0, 1, 3]),
    ("a lost write", [write(1, 0, 1), read(0, 2, 3)], [0, 1]),
    ("a read during a write", [write(1, 0, 5), read(0, 1, 2), read(1, 3, 4)], None),
    ("new, then old, during a write", [write(1, 0, 5), read(1, 1, 2), read(0, 3, 4)], [0, 1, 2]),
    ("an unknown write that comes late", [write(1, 0), read(0, 1, 2), read(1, 3, 4)], None),
    ("an unknown write that goes away", [write(1, 0), read(1, 1, 2), read(0, 3, 4)], [0, 1, 2]),
    ("an unknown write that never came", [write(1, 0), read(0, 1, 2)], None),
    ("two that both won", [swap(0, 1, 0, 2), swap(0, 2, 1, 3)], [0, 1]),
    ("two of which one won", [swap(0, 1, 0, 2), swap(0, 2, 1, 3, is_set=False)], None),
    (
        "a comparison that had to hold, beside one that had not",
        [write(1, 0, 1), swap(0, 9, 2, 3, is_set=False), swap(1, 8, 4, 5, is_set=False)],
        [0, 2],
    ),
    ("an unknown comparison that won", [swap(0, 1, 0), read(1, 1, 2)], None),
]


@pytest.mark.parametrize(("history", "part"), [pytest.param(*each[1:], id=each[0]) for each in SAMPLES])
def test_samples(history: list[Operation], part: list[int] | None) -> None:
    assert linearize(history, INITIAL) is (part is None)
    if part is not None:
        assert list(smallest_failing(history, INITIAL)) == [history[place] for place in part]


@pytest.mark.slow
def test_a_long_history_takes_a_look_for_each_operation() -> None:
    history = [
        each
        for turn in range(0, 20_000, 4)
        for each in (write(turn, turn, turn + 3), read(turn, turn + 1, turn + 2), write(f"lost {turn}", turn))
    ]
    assert linearize(history, INITIAL, most=10_000) is True
    history.append(read(4, 30_000, 30_001))
    assert linearize(history, INITIAL, most=10_000) is False
    assert len(smallest_failing(history, INITIAL)) == 3


def test_what_takes_too_long_is_not_decided() -> None:
    """Twelve writes at once of the same few values, all of unknown outcome."""
    history = [swap(number % 3, (number + 1) % 3, number) for number in range(12)]
    history += [read(number * 2 % 3, 100 + 2 * number, 101 + 2 * number) for number in range(9)]
    history.append(read(9, 200, 201))
    assert linearize(history, INITIAL) is False
    assert linearize(history, INITIAL, most=50) is None
