"""Matchers and verdicts: what is equal, what is contained, what is said when it is not so."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from lmos_actors.errors import InvalidInput, NotAllowed
from lmos_actors.files import Duration
from lmos_actors.scenario.judge import (
    FEWEST_SAMPLES,
    fill_expect,
    judge_bounded,
    judge_error,
    judge_expect,
    judge_latency,
    judge_value,
    percentile,
    waits_to_the_end,
)
from lmos_actors.scenario.model import Below, Expect, Latency, Restarts
from lmos_actors.system.model import Condition, ExpectedError
from lmos_actors.system.values import holds, pick, same
from tests.rows import each_row

wanted = partial(Expect, that="value")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ([1, 2], [1.0, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ([True], [1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": [True]}, {"a": [1]}, False),
        ({}, [], False),
    ],
)
def test_values_are_the_same_as_in_json(left: object, right: object, equal: bool) -> None:
    assert same(left, right) is equal
    assert same(right, left) is equal


@given(JSON)
def test_a_value_is_the_same_after_the_wire(value: Any) -> None:
    assert same(value, json.loads(json.dumps(value)))
    assert judge_value(wanted(equals=value), value)[0].ok


@pytest.mark.parametrize(
    ("whole", "part", "inside"),
    [
        ("sunny in Bonn", "Bonn", True),
        ("sunny", 5, False),
        ([1, 2], 2, True),
        ([1, 2], True, False),
        ([{"a": 1, "b": 2}], {"a": 1}, True),
        ([[1]], 1, False),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, "a", False),
        ({"a": "long text"}, {"a": "long"}, False),
        (5, 5, False),
        (None, None, False),
    ],
)
def test_a_part_is_inside_a_whole(whole: object, part: object, inside: bool) -> None:
    assert holds(whole, part) is inside


def lines(verdicts: list[Any]) -> list[str]:
    return [str(verdict) for verdict in verdicts if not verdict.ok]


VALUE = {"city": "Bonn", "rating": 4, "days": [{"t": 1}, {"t": 9}], "none": None}


@each_row(
    ("expected", "said"),
    [
        (wanted(equals=VALUE), []),
        (wanted(contains={"city": "Bonn"}), []),
        (wanted(match={"$.city": "Bonn", "$.none": None}), []),
        (wanted(match={"$.rating": Condition(ge=1, le=5, gt=3.9, lt=4.1, eq=4, ne=5)}), []),
        (wanted(match={"$.days[*].t": Condition(ge=1)}), []),
        (wanted(match={"$.days[?@.t>5].t": 9}), []),
        (wanted(match={"$.city": Condition(regex="^B.n+$", contains="on")}), []),
        (wanted(match={"$.city": "Kiel"}), ['expected $.city to equal "Kiel", saw "Bonn"']),
        (wanted(match={"$.rating": Condition(ge=5)}), ["expected $.rating at least 5, saw 4"]),
        (wanted(match={"$.rating": Condition(gt=4)}), ["expected $.rating more than 4, saw 4"]),
        (wanted(match={"$.rating": Condition(le=3)}), ["expected $.rating at most 3, saw 4"]),
        (wanted(match={"$.rating": Condition(lt=4)}), ["expected $.rating less than 4, saw 4"]),
        (wanted(match={"$.rating": Condition(ne=4)}), ["expected $.rating other than 4, saw 4"]),
        (wanted(match={"$.city": Condition(ge=1)}), ['expected $.city at least 1, saw "Bonn"']),
        (wanted(match={"$.city": Condition(regex="^K")}), ["expected $.city text like '^K', saw \"Bonn\""]),
        (wanted(match={"$.rating": Condition(regex="4")}), ["expected $.rating text like '4', saw 4"]),
        (wanted(match={"$.days[*].t": Condition(le=5)}), ["expected $.days[*].t at most 5, saw 9"]),
        (wanted(match={"$.citty": "Bonn"}), [f"expected something at $.citty, saw {json.dumps(VALUE)}"]),
    ],
)
def test_judging_a_value(expected: Expect, said: list[str]) -> None:
    verdicts = judge_value(expected, VALUE)
    assert verdicts
    assert lines(verdicts) == said


def test_a_plain_value_reads_plainly() -> None:
    assert lines(judge_value(wanted(equals=1, ge=5, le=1, contains="x"), 2)) == [
        "expected 1, saw 2",
        "expected at least 5, saw 2",
        "expected at most 1, saw 2",
        'expected to contain "x", saw 2',
    ]
    assert lines(judge_value(wanted(ge=1), True)) == ["expected at least 1, saw true"]


def test_long_values_are_cut() -> None:
    (line,) = lines(judge_value(wanted(equals=1), "x" * 5000))
    assert len(line) < 300


@pytest.mark.parametrize(
    ("expected", "error", "ok"),
    [
        (ExpectedError(is_="NotAllowed"), NotAllowed("read-only"), True),
        (ExpectedError(is_="AgentError"), NotAllowed("read-only"), True),
        (ExpectedError(is_="NotAllowed"), InvalidInput("x", "$.q"), False),
        (ExpectedError(is_="NotAllowed"), None, False),
        (ExpectedError(is_="InvalidInput", path="$.q"), InvalidInput("x", "$.q"), True),
        (ExpectedError(is_="InvalidInput", path="$.p"), InvalidInput("x", "$.q"), False),
        (ExpectedError(is_="NotAllowed", path="$.p"), NotAllowed("x"), False),
        (ExpectedError(is_="NotAllowed", contains="only"), NotAllowed("read-only"), True),
        (ExpectedError(is_="NotAllowed", contains="never"), NotAllowed("read-only"), False),
    ],
)
def test_judging_an_error(expected: ExpectedError, error: BaseException | None, ok: bool) -> None:
    assert judge_error(expected, error).ok is ok


def test_an_error_reads_plainly() -> None:
    expected = ExpectedError(is_="InvalidInput", path="$.p", contains="y")
    assert str(judge_error(expected, NotAllowed("read-only"))) == (
        "expected InvalidInput at $.p with 'y' in its message, saw NotAllowed: read-only"
    )
    assert str(judge_error(ExpectedError(is_="NotFound"), None)) == "expected NotFound, saw no error"


def oks(expect: Expect, seen: object) -> bool:
    verdicts = judge_expect(expect, seen)
    assert verdicts
    return all(verdict.ok for verdict in verdicts)


@each_row(
    ("expect", "seen", "ok"),
    [
        (Expect(that="value", equals=1), 1, True),
        (Expect(that="value", match={"$.a": 1}), {"a": 1}, True),
        (Expect(that="output", match={"$.output.a": 1}), {"a": 1}, True),
        (Expect(that="output", match={"$.output.a": 1}), {"a": 2}, False),
        (Expect(that="output", match={"$.a": 1}), {"a": 1}, False),
        (Expect(that="reading", match={"$.value": Condition(ge=2)}), [1, 2], True),
        (Expect(that="reading", match={"$.value": Condition(ge=3)}), [1, 2], False),
        (Expect(that="event", match={"$.data.a": 1}), [{"a": 0}, {"a": 1}], True),
        (Expect(that="event", match={"$.data.a": 1}, equals={"a": 1}, ge=1), [{"a": 1}], False),
        (Expect(that="items", match={"$.items[1]": 2, "$.items[-1]": 3}), [1, 2, 3], True),
        (Expect(that="items", match={"$.items[1]": 2, "$.items[-1]": 3}), [1, 2], False),
        (Expect(that="items", match={"$.items[*]": Condition(ge=1)}), [1, 0], False),
        (Expect(that="items", match={"$.items[0]": 1}), [], False),
        (Expect(that="items", match={"$.items[0]": 1}, equals=7), [1, 7], True),
        (Expect(that="items", match={"$.items[0]": 1}, equals=7), [1, 2], False),
        (Expect(that="items", sequence=(1, 2)), [1, 2], True),
        (Expect(that="items", sequence=(1, 2)), [1, 2, 3], False),
        (Expect(that="status", sequence=("completed",)), ["completed"], True),
        (Expect(that="status", sequence=("completed",)), ["in progress", "completed"], False),
        (
            Expect(that="status", sequence=("in progress", "completed")),
            ["in progress"] * 3 + ["completed"],
            True,
        ),
        (Expect(that="status", sequence=("completed",)), [], False),
        (Expect(that="status", equals="completed"), ["in progress", "completed"], True),
        (Expect(that="status", equals="in progress"), ["in progress", "completed"], False),
        (Expect(that="status", equals="completed"), [], False),
        (Expect(that="reading", equals=2), [1, 2, 3], True),
        (Expect(that="reading", equals=4), [1, 2, 3], False),
        (Expect(that="reading", equals=2, times=1), [1, 2, 3], True),
        (Expect(that="reading", equals=2, times=1), [2, 2], False),
        (Expect(that="reading", equals=2, times=0), [1], True),
        (Expect(that="reading", equals=2, times=0), [], True),
        (Expect(that="reading", equals=2, times=0), [2], False),
        (Expect(that="reading", times=2), [1, 5], True),
        (Expect(that="event", sequence=(1, 2)), [1, 2], True),
        (Expect(that="event", sequence=(1, 2)), [1, 2, 3], False),
        (Expect(that="event", sequence=(1, 2)), [2, 1], False),
        (Expect(that="event", sequence=(1, 2), times=3), [1, 2], False),
        (Expect(that="event", sequence=(1, 2), ge=5), [1, 2], False),
        (Expect(that="event", ge=2, le=3), [1, 4], False),
        (Expect(that="event", ge=2, le=3), [1, 3], True),
        (Expect(that="items", match={"$.items[0]": 1}, times=2), [1, 7], True),
        (Expect(that="items", match={"$.items[0]": 1}, times=2), [1, 7, 8], False),
    ],
)
def test_judging_what_has_been_seen(expect: Expect, seen: object, ok: bool) -> None:
    assert oks(expect, seen) is ok
    assert waits_to_the_end(expect) is (expect.times is not UNSET)


def test_what_was_seen_reads_plainly() -> None:
    assert lines(judge_expect(Expect(that="event", equals=2, times=1), [2, 2])) == [
        "expected 2, 1 times, saw 2 times (2, last 2)"
    ]
    assert lines(judge_expect(Expect(that="event", equals=2), [])) == ["expected 2, at least once, saw none"]


def test_the_output_of_a_read_is_its_value() -> None:
    expect = Expect(that="output", match={"$.value.a": 1})
    assert all(verdict.ok for verdict in judge_expect(expect, {"a": 1}, "value"))
    assert lines(judge_expect(expect, {"a": 1})) == [
        'expected something at $.value.a, saw {"output": {"a": 1}}'
    ]


def test_saved_values_are_filled_in() -> None:
    expect = Expect(
        that="value",
        of="$(saved.answer)",
        equals={"a": ["$(saved.n)", "$$(x) $(saved.n)"]},
        match={"$.a": "$(saved.n)", "$.b": Condition(eq="$(saved.answer)", ge=1)},
        sequence=("$(saved.n)",),
    )
    found = fill_expect(expect, {"answer": {"deep": [1]}, "n": 3})
    assert found.of == {"deep": [1]}
    assert found.equals == {"a": [3, "$(x) 3"]}
    assert found.match == {"$.a": 3, "$.b": Condition(eq={"deep": [1]}, ge=1)}
    assert found.sequence == (3,)
    assert found.contains is UNSET
    with pytest.raises(LookupError, match=r"\$\(saved.n\) has no value"):
        fill_expect(expect, {"answer": 1})


def test_a_path_picks_exactly_one_value() -> None:
    assert pick("$.output.x", {"output": {"x": [1]}}) == [1]
    with pytest.raises(LookupError, match=r"there is nothing at \$\.x"):
        pick("$.x", {"output": 1})
    with pytest.raises(LookupError, match="leads to 2 values"):
        pick("$[*]", [1, 2])


# --- numbers


def test_numbers_are_judged_by_bounds() -> None:
    assert lines(judge_bounded(Restarts(of="x", equals=1, ge=1, le=1), 1)) == []
    assert lines(judge_bounded(Restarts(of="x", equals=1, ge=3, le=1), 2)) == [
        "expected 1, saw 2",
        "expected at least 3, saw 2",
        "expected at most 1, saw 2",
    ]


def test_percentile_is_a_measured_value_by_nearest_rank() -> None:
    samples = [float(n) for n in range(100, 0, -1)]
    assert [percentile(samples, p) for p in (50, 90, 95, 99)] == [50.0, 90.0, 95.0, 99.0]
    assert percentile([1.0] * 19 + [7.0], 95) == 1.0
    assert percentile([1.0] * 19 + [7.0], 99) == 7.0
    assert percentile([1.0] * (FEWEST_SAMPLES - 1), 50) is None


@given(st.lists(st.floats(0, 1e6), min_size=FEWEST_SAMPLES), st.sampled_from([50, 90, 95, 99]))
def test_a_percentile_covers_its_share(samples: list[float], percent: int) -> None:
    value = percentile(samples, percent)
    assert value in samples
    assert sum(sample <= value for sample in samples) * 100 >= percent * len(samples)
    assert sum(sample < value for sample in samples) * 100 < percent * len(samples)


def test_times_of_answers_are_judged_by_bounds() -> None:
    check = Latency(of="ask", max=Below(lt=Duration(1.5)), p95=Below(le=Duration(1.0)))
    assert lines(judge_latency(check, [1.0] * 20)) == []
    assert lines(judge_latency(check, [1.5] * 20)) == [
        "expected max less than 1500ms, saw 1500ms",
        "expected p95 at most 1s, saw 1500ms",
    ]
    assert lines(judge_latency(check, [0.1] * 19)) == [
        "expected p95 at most 1s, saw 19 samples: it cannot be computed"
    ]
    assert lines(judge_latency(Latency(of="ask", max=Below(le=Duration(1.0))), [])) == [
        "expected max at most 1s, saw 0 samples: it cannot be computed"
    ]
