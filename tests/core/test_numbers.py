"""Numbers as text: decimal digits of ASCII, and nothing else that `int` and `float` take."""

from __future__ import annotations

import pytest

from lmos_actors._core import number_of, whole_number_of
from tests.rows import each_row


@each_row(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("-1", -1),
        ("+2.50", 2.5),
        (".5", 0.5),
        ("1.", 1),
        ("1e3", 1000),
        ("-1E-1", -0.1),
    ],
)
def test_a_number_is_decimal_digits(text: str, number: float) -> None:
    assert number_of(text) == number
    if "." not in text and "e" not in text.lower():
        assert whole_number_of(text) == number


@each_row(
    "text", ["", "-", ".", "1_0", " 1", "1\n", "\u0663", "0x10", "nan", "inf", "1e", "1e1_0", "1,0", "--1"]
)
def test_nothing_else_is_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number such as"):
        number_of(text)
    with pytest.raises(ValueError, match="is not a whole number such as"):
        whole_number_of(text)
