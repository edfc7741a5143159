"""`tests/rows.py`: all rows of a table are asked, and one that fails is named."""

from __future__ import annotations

import pytest

from tests.rows import each_row


def test_each_row_that_fails_is_named() -> None:
    asked: list[int] = []

    @each_row("number, half", [(2, 1), (3, 1), (4, 2), (5, 2)])
    def test_halves(number: int, half: int) -> None:
        asked.append(number)
        assert number == 2 * half

    with pytest.raises(ExceptionGroup, match="2 of 4 rows") as failed:
        test_halves()
    assert asked == [2, 3, 4, 5]
    assert [error.__notes__ for error in failed.value.exceptions] == [["row 1: 3, 1"], ["row 3: 5, 2"]]


def test_a_test_of_rows_is_no_test_with_fixtures() -> None:
    with pytest.raises(AssertionError, match="no fixtures"):

        @each_row("number", [1])
        def test_with_one(number: int, tmp_path: object) -> None:
            pass
