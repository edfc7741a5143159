"""Formulas: what they may say, where a mistake in one is, what they compute; and none of them does harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.scenario.formulas import Formula, FormulaFailed, FormulaProblem, compile_formula
from lmos_actors.system.values import same
from tests.matrix import examples
from tests.rows import each_row

LONGEST, NODES = 2_000, 200  # characters and parts of a formula

VALUES: dict[str, Any] = {
    "state.n": 4,
    "state.half": 0.5,
    "state.name": "ann",
    "state.none": None,
    "state.ok": True,
    "state.xs": [1, 2, 3],
    "state.flags": [True, False],
    "state.empty": [],
    "state.place": {"city": {"name": "Bonn", "zip codes": [53111]}},
    "state.the-units": "kelvin",
    "mailbox.depth": 2,
    "series.informed": 0.25,
    "delivered": 9,
    "all_informed": True,
    "all_informed.time": 3.5,
}
KNOWN: dict[str, str | None] = {**dict.fromkeys(VALUES), "state.key": "is secret", "series.late": None}


def look(name: str) -> Any:
    try:
        return VALUES[name]
    except KeyError:
        raise LookupError(f"{name} has no value") from None


def formula(text: str, *, condition: bool = False) -> Formula:
    return compile_formula(text, KNOWN, condition=condition)


# --- what they compute


@each_row(
    ("text", "value"),
    [
        ("state.n", 4),
        ("state.n <= 3", False),
        ("state.n >= 4 and state.ok", True),
        ("state.n > 4 or not state.ok", False),
        ("1 < state.n < 5", True),
        ("1 < state.n < 4", False),
        ("state.n <= 4 <= 3", False),
        ("state.n + 2 * 3 - 1", 9),
        ("state.n / 8", 0.5),
        ("state.n // 3", 1),
        ("-state.n % 3", 2),
        ("+state.half", 0.5),
        ("abs(-state.n)", 4),
        ("min(state.xs)", 1),
        ("min(state.n, 2)", 2),
        ("max(state.xs)", 3),
        ("sum(state.xs)", 6),
        ("sum(state.empty)", 0),
        ("len(state.xs)", 3),
        ("len(state.name)", 3),
        ("len(state.place)", 1),
        ("any(state.flags)", True),
        ("all(state.flags)", False),
        ("state.xs[0]", 1),
        ("state.xs[-1]", 3),
        ("state.xs[state.n - 2]", 3),
        ("state.place.city.name", "Bonn"),
        ("state.place['city']['zip codes'][0]", 53111),
        ('state["the-units"] == "kelvin"', True),
        ("state['n']", 4),
        ("state.name == 'ann'", True),
        ("'n' in state.name", True),
        ("2 in state.xs", True),
        ("True in state.xs", False),
        ("2 not in state.xs", False),
        ("'city' in state.place", True),
        ("state.n in [1, 4]", True),
        ("state.n in (1, 4)", True),
        ("state.n == 4.0", True),
        ("state.ok == 1", False),
        ("state.ok == true", True),
        ("state.none == null", True),
        ("state.none == None", True),
        ("state.none != 0", True),
        ("state.name < 'bob'", True),
        ("1 if state.ok else 0", 1),
        ("series.informed >= 0.25", True),
        ("all_informed and all_informed.time < 4", True),
        ("delivered + mailbox.depth", 11),
        ("  state.n\n   == 4\n", True),
        ("'a # b' == state.name", False),
    ],
)
def test_what_a_formula_computes(text: str, value: Any) -> None:
    found = formula(text).value(look)
    assert found == value
    assert type(found) is type(value)


def test_a_formula_names_what_it_speaks_of_once_and_in_order() -> None:
    text = "state.place.city.name == 'a' or state.n > 1 and state['the-units'] != state.place.city"
    assert formula(text).names == ("state.place", "state.n", "state.the-units")
    assert formula("1 + 1").names == ()
    assert formula("state.n > 3").describe(look) == "state.n = 4"
    assert (
        formula("state.n > series.late").describe(look)
        == "state.n = 4, series.late = (series.late has no value)"
    )


@each_row(
    ("text", "why"),
    [
        ("state.n < 'x'", '4 < "x": numbers, or texts, can be compared'),
        ("state.ok < 1", "true < 1: numbers, or texts, can be compared"),
        ("state.none >= 1", "null >= 1"),
        ("state.xs > 1", r"\[1, 2, 3\] > 1"),
        ("state.name + 'x'", 'ann" . "x": both have to be numbers'),
        ("state.name * 3", "both have to be numbers"),
        ("state.ok + 1", "both have to be numbers"),
        ("'%d' % state.n", "both have to be numbers"),
        ("-state.name", "it has to be a number"),
        ("state.n / (state.n - 4)", "4 / 0: division by zero"),
        ("state.n // 0", "division by zero"),
        ("state.n % 0", "division by zero"),
        ("min(state.n)", "min of 4: it takes numbers"),
        ("min(state.flags)", "it takes numbers"),
        ("max(state.empty)", "max of an empty list"),
        ("sum(state.name)", "sum of .ann.: it takes numbers"),
        ("len(state.n)", "len of 4: it takes a text, a list or an object"),
        ("any(state.n)", "any of 4: it takes a list"),
        ("abs(state.name)", "it has to be a number"),
        ("1 in state.n", "1 in 4: only texts, lists and objects hold something"),
        ("1 in state.name", "only texts"),
        ("state.xs[3]", "there is no item 3"),
        ("state.xs[state.name]", "has no part"),
        ("state.xs[state.ok]", "has no part"),
        ("state.n.real", "4 has no part"),
        ("state.place.town", 'there is no "town"'),
        ("state.place.__class__", 'there is no "__class__"'),
        ("state.xs.append", "has no part"),
        ("1e308 * 1e308 * state.n", "the result is too large"),
        ("sum([1e308, 1e308, state.n])", "the result is too large"),
    ],
)
def test_what_does_not_fit_together_is_said(text: str, why: str) -> None:
    made = formula(text)
    with pytest.raises(FormulaFailed, match=why):
        made.value(look)


def test_a_name_without_a_value_says_so() -> None:
    with pytest.raises(LookupError, match=r"series\.late has no value"):
        formula("series.late > 1").value(look)


def test_a_condition_is_true_or_false_and_nothing_else() -> None:
    assert formula("state.ok").truth(look) is True
    for text in ("state.n", "state.xs", "state.none", "state.name", "state.ok and state.n"):
        with pytest.raises(FormulaFailed, match="neither true nor false"):
            formula(text, condition=True).truth(look)


# --- what they may not say, and where


@each_row(
    ("text", "where", "why"),
    [
        ("state.m > 3", "state.m", 'no "state.m" here, did you mean "state.n"?'),
        ("3 < stat.n", "stat.n", 'did you mean "state.n"?'),
        ("mailbox.deph <= 3", "mailbox.deph", 'did you mean "mailbox.depth"?'),
        ("state.ok and serie.informed > 1", "serie.informed", 'did you mean "series.informed"?'),
        ("all_inform", "all_inform", 'did you mean "all_informed"?'),
        ("state['m'] > 1", "state['m']", 'no "state.m" here'),
        ("'ä' == state.m", "state.m", 'no "state.m" here'),
        ("state.ok or (\n  state.m\n)", "state.m", 'no "state.m" here'),
        ("state.key == 'x'", "state.key", '"state.key" is secret'),
        ("state['the.units'] == 1", "state['the.units']", "here"),
        ("state.n > 1 and state", "state", '"state" alone is no value'),
        ("min > 3", "min", '"min" is a function'),
        ("minn(1) > state.n", "minn", 'no function "minn", did you mean "min"?'),
        ("state.xs.append(3)", "state.xs.append", "no function"),
        ("state.n(3)", "state.n", "no function"),
        ("abs(1, state.n)", "abs(1, state.n)", "abs takes one value"),
        ("min(a=3)", "min(a=3)", "without names"),
        ("min(1, a=3)", "min(1, a=3)", "without names"),
        ("min()", "min()", "takes values"),
        ("min(*state.xs)", "*state.xs", "cannot be part of a formula"),
        ("state.n ** 2", "state.n ** 2", "a power"),
        ("9**9**9", "9**9**9", "a power"),
        ("1 << 99999", "1 << 99999", "a shift"),
        ("state.n & 1", "state.n & 1", "write and"),
        ("~state.n", "~state.n", "write not"),
        ("state.n is None", "state.n is None", "write =="),
        ("[x for x in state.xs]", "[x for x in state.xs]", "a comprehension"),
        ("sum(x for y in state.xs for x in y)", "(x for y in state.xs for x in y)", "a comprehension"),
        ("(lambda: 1)()", "lambda: 1", "no function"),
        ("state.ok and (lambda: 1)", "lambda: 1", "a lambda"),
        ("(x := 3)", "x := 3", "an assignment"),
        ("f'{state.n}'", "f'{state.n}'", "an f-string"),
        ("state.xs[0:1]", "state.xs[0:1]", "a slice"),
        ("state.xs[0, 1]", "state.xs[0, 1]", "a slice"),
        ("{1, 2}", "{1, 2}", "a set"),
        ("{'a': 1}", "{'a': 1}", "a mapping"),
        ("b'x' == state.n", "b'x'", "cannot be part"),
        ("state.n > 1j", "1j", "cannot be part"),
        ("state.n > ...", "...", "cannot be part"),
        ("state.n < 1e999", "1e999", "too large"),
        ("state.n,", None, "one value, not a list"),
        ("[state.ok]", "[state.ok]", "one value, not a list"),
        ("await state.n", "await state.n", "cannot be part"),
        ("(yield)", "yield", "cannot be part"),
        ("", None, "missing"),
        ("  \n ", None, "missing"),
        ("state.n && state.ok", "&", "write and, not &&"),
        ("state.n || state.ok", "|", "write or, not ||"),
        ("!state.ok", "!", "write not, not !"),
        ("state.n = 3", None, "write ==, not ="),
        ("state.n >", None, "is not a formula"),
        ("1) or (state.ok", None, "its brackets do not match"),
        ("state.ok # and state.n\n", None, "has no comments"),
        ("state.n >\x00 3", "\x00", "cannot be part"),
        ("state.n >\u00a03", "\u00a0", "cannot be part"),
        ("state.n > 3; state.ok", ";", "is not a formula"),
        ("import os", None, "is not a formula"),
        ("__import__('os').system('true')", "__import__('os').system", "no function"),
        ("x" * (LONGEST + 1), None, "at most 2000 characters"),
        ("+".join(["1"] * NODES), None, "at most 200 parts"),
        ("(" * 300 + "1" + ")" * 300, None, "is not a formula"),
        ("-" * 150 + "1", None, "nested too deeply"),
    ],
)
def test_a_mistake_is_named_and_placed(text: str, where: str | None, why: str) -> None:
    with pytest.raises(FormulaProblem) as caught:
        formula(text)
    problem = caught.value
    assert why in problem.message
    assert 0 <= problem.start <= problem.end <= len(text)
    if where is not None:
        assert text[problem.start : problem.end] == where
    assert len(problem.message) < 400


def test_what_is_secret_is_not_offered() -> None:
    with pytest.raises(FormulaProblem) as caught:
        formula("state.kex == 1")
    assert "state.key" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("state.n + 1", "compare it with something"),
        ("-state.n", "compare it with something"),
        ("len(state.xs)", "compare it with something"),
        ("1 < 2", "speaks of nothing"),
        ("true", "speaks of nothing"),
        ("sum([1, 2]) == 3", "speaks of nothing"),
    ],
)
def test_a_condition_that_cannot_be_one_is_refused(text: str, why: str) -> None:
    formula(text)
    with pytest.raises(FormulaProblem, match=why):
        formula(text, condition=True)


@pytest.mark.slow
def test_a_formula_may_look_at_a_hundred_thousand_items_again_and_again() -> None:
    values = {"state.xs": list(range(100_000))}
    made = compile_formula(" + ".join(["sum(state.xs)"] * 40), {"state.xs": None})
    assert made.value(values.__getitem__) == 40 * sum(range(100_000))


def test_products_do_not_grow_beyond_their_factors() -> None:
    made = formula(" * ".join(["9999999999999999"] * 99))
    assert made.value(look) == 9999999999999999**99


@given(st.text("state.nx()[]'\"+-*/<>=!,: \n#\\&|andorifelse0123456789{}@~^;$äß\x00", max_size=60))
def test_whatever_is_written_is_a_formula_or_a_mistake_with_a_place(text: str) -> None:
    try:
        made = compile_formula(text, KNOWN, condition=True)
    except FormulaProblem as problem:
        found, message = problem, problem.message
    else:
        try:
            made.truth(look)
        except (LookupError, FormulaFailed) as failed:
            found, message = None, str(failed)
        else:
            return
    assert message
    assert found is None or 0 <= found.start <= found.end <= len(text)


# --- against Python itself

NUMBERS = {"a": 3, "b": -2, "c": 0.5, "d": 0}
NUMBER = st.sampled_from([*NUMBERS]).map(lambda name: f"state.{name}") | st.integers(-9, 9).map(
    lambda n: f"({n})" if n < 0 else str(n)
)


def numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner)
    return (
        two.map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})")
        | st.tuples(st.sampled_from(["-", "+", "abs"]), inner).map(lambda p: f"{p[0]}({p[1]})")
        | st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})")
        | st.tuples(inner, inner).map(lambda p: f"sum([{p[0]}, {p[1]}])")
        | st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} > 0 else {p[2]})")
    )


COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]
ARITHMETIC = st.recursive(NUMBER, numbers, max_leaves=8)
COMPARED = st.tuples(ARITHMETIC, st.sampled_from(COMPARISONS), ARITHMETIC).map(" ".join)
LOGIC = st.recursive(
    COMPARED.map(lambda text: f"({text})"),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({' '.join(p)})")
        | inner.map(lambda text: f"(not {text})")
        | st.tuples(inner, inner).map(lambda p: f"any([{p[0]}, {p[1]}])")
        | st.tuples(inner, inner).map(lambda p: f"all([{p[0]}, {p[1]}])")
    ),
    max_leaves=5,
)


class State:
    def __init__(self) -> None:
        self.__dict__.update(NUMBERS)


@settings(max_examples=examples(300))
@given(LOGIC | ARITHMETIC)
def test_a_formula_computes_what_python_does(text: str) -> None:
    made = compile_formula(text, {f"state.{name}": None for name in NUMBERS})
    try:
        expected = eval(text, {"state": State()})
    except (ZeroDivisionError, OverflowError):
        with pytest.raises(FormulaFailed):
            made.value(lambda name: NUMBERS[name[6:]])
        return
    found = made.value(lambda name: NUMBERS[name[6:]])
    assert same(found, expected) or found != found
    assert type(found) is type(expected)
