"""Paths: plain ones, which we follow ourselves, lead where the library says; texts are not read as JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonpath import JSONPathEnvironment

from lmos_actors.scenario import pick
from lmos_actors.scenario.values import path_problem, select

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


def test_null_is_a_value_and_nothing_is_not() -> None:
    assert pick("$.a[1]", {"a": [1, None]}) is None
    with pytest.raises(LookupError, match=r"there is nothing at \$\.a\[2\]"):
        pick("$.a[2]", {"a": [1, None]})
    with pytest.raises(LookupError, match="leads to 2 values"):
        pick("$.a[*]", {"a": [1, None]})
