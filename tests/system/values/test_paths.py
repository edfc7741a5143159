"""Paths: plain ones, which we follow ourselves, lead where the library says; texts are not read as JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonpath import JSONPathEnvironment

from lmos_actors.system.values import path_problem, pick, select
from tests.rows import each_row

LIBRARY = JSONPathEnvironment(strict=True)
NAMES = ("a", "b", "_c", "d1", "0")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(("", "a", "[1]", '{"a": 1}')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=12,
)
PARTS = st.sampled_from((".a", ".b", "._c", ".d1", "[0]", "[1]", "[2]", "[10]"))


@given(st.lists(PARTS, max_size=4).map("".join), VALUES)
def test_plain_paths_lead_where_the_library_says(parts: str, value: Any) -> None:
    """The library is given the value inside a list: it reads a text as JSON."""
    assert path_problem(f"${parts}") is None
    assert select(f"${parts}", value) == LIBRARY.findall(f"$[0]{parts}", [value])


@given(st.text("$.[]ab_01-* '", max_size=6))
def test_what_is_no_path_is_none_for_both(text: str) -> None:
    try:
        LIBRARY.compile(f"${text}")
    except Exception:
        assert path_problem(f"${text}") is not None
    else:
        assert path_problem(f"${text}") is None


@pytest.mark.parametrize("text", ['{"a": 1}', "[1", '"', "7"])
@pytest.mark.parametrize("path", ["$.a", "$['a']", "$.*", "$..a", "$[0]"])
def test_a_text_has_no_parts(path: str, text: str) -> None:
    assert select(path, text) == []
    assert select("$", text) == [text]


PATTERNS = [
    (".", ["a", "\u2028", "\x85", "é", "\U00010101"], ["\n", "\r", "", "ab"]),
    (r"a[.b]\.\[.", ["a..[x", "ab.[x"], ["ax.[x", "a.x[x", "a..[\r"]),
    (r"\\.", ["\\x"], ["\\", "\\\n"]),
    (r"\p{Lu}+", ["AÄ"], ["a", "A1"]),
    (r"[\P{Lu}\-]", ["a", "-"], ["A"]),
    ("[0-9]{2,}|x", ["12", "123", "x"], ["1", "12x", "1x"]),
    (r"\d", ["1"], ["\u0663"]),
    ("^ab$", ["ab"], ["xab", "abx"]),
]
"""Regular expressions of RFC 9485, what each matches as a whole, and what not."""


@each_row(("pattern", "those", "others"), PATTERNS)
def test_match_and_search_take_regular_expressions_of_rfc_9485(
    pattern: str, those: list[str], others: list[str]
) -> None:
    literal = pattern.replace("\\", "\\\\")
    assert select(f"$[?match(@, '{literal}')]", [*those, *others, 1, None]) == those
    found = select("$.values[?search(@, $.pattern)]", {"values": those, "pattern": pattern})
    assert found == those


@each_row("pattern", ["(", "(?=a)a", "(?!a)b", r"(a)\\1", "a)|(?:b", "[", "a" * 2_000])
def test_a_pattern_that_is_none_is_refused_or_matches_nothing(pattern: str) -> None:
    problem = path_problem(f"$[?match(@, '{pattern}')]") or ""
    assert "is not a regular expression of RFC 9485" in problem
    data = {"values": ["a", "b", "aa"], "pattern": pattern}
    assert select("$.values[?match(@, $.pattern)]", data) == []


def test_null_is_a_value_and_nothing_is_not() -> None:
    assert pick("$.a[1]", {"a": [1, None]}) is None
    with pytest.raises(LookupError, match=r"there is nothing at \$\.a\[2\]"):
        pick("$.a[2]", {"a": [1, None]})
    with pytest.raises(LookupError, match="leads to 2 values"):
        pick("$.a[*]", {"a": [1, None]})
