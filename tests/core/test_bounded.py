"""Tables that forget what is oldest in them."""

from __future__ import annotations

import pytest

from lmos_actors._core import NOT_NEEDED_YET, Bounded


def test_a_further_entry_takes_the_place_of_the_oldest() -> None:
    table: Bounded[str, int] = Bounded(2)
    table["a"], table["b"] = 1, 2
    table["a"] = 3  # as old as before
    table["c"] = 4
    assert list(table.items()) == [("b", 2), ("c", 4)]


def test_what_is_used_is_kept() -> None:
    table: Bounded[str, list[int]] = Bounded(2)
    made = table.use("a", list)
    table["b"] = [2]
    assert table.use("a", list) is made
    assert table.use("c", lambda: [3]) == [3]
    assert list(table) == ["a", "c"]


def test_the_empty_table_that_owners_share_refuses_entries() -> None:
    with pytest.raises(TypeError, match="a table of its own"):
        NOT_NEEDED_YET["one"] = 1
    with pytest.raises(TypeError, match="a table of its own"):
        NOT_NEEDED_YET.setdefault("one", 1)
    with pytest.raises(TypeError, match="a table of its own"):
        NOT_NEEDED_YET.update(one=1)
    assert NOT_NEEDED_YET == {}
    assert NOT_NEEDED_YET.pop("one", None) is None
